"""TLS to the relay, certificates both ways, and the API key's file."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from curtilage.client.config import AccessFiles
from curtilage.client.errors import ConfigError, EnclaveError, FailureReason
from curtilage.client.remote.access import RelayAccess, read_access
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.system.tls import tls_context
from curtilage.wire import media
from support.permits import order
from support.relay_certificates import Certificates, make_certificates

API_KEY = "ward-7.0123456789abcdef"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def relay(
    certificates: Certificates,
    *,
    name: str = "server",
    clients: bool = False,
    plain: bool = False,
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> AsyncGenerator[RelayAddress]:
    """Serve a bundle over TLS; ``clients``: to those with a certificate alone."""
    context = certificates.server(name)
    context.maximum_version = newest
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.authority)

    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(body=b"{}", content_type=media.EVIDENCE_BUNDLE)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    tls = None if plain else context
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    port = runner.addresses[0][1]
    try:
        yield RelayAddress.parse(f"https://localhost:{port}/x", plain_loopback=False)
    finally:
        await runner.cleanup()


def read(files: AccessFiles) -> RelayAccess:
    return read_access(
        ca=files.ca,
        certificate=files.certificate,
        certificate_key=files.certificate_key,
        key=files.key,
    )


async def fetched(address: RelayAddress, files: AccessFiles) -> bytes:
    async with RelayTransport(address, access=read(files)) as transport:
        return await transport.fetch_bundle(order())


async def refused(address: RelayAddress, files: AccessFiles) -> FailureReason:
    with pytest.raises(EnclaveError) as error:
        await fetched(address, files)
    return error.value.reason


async def test_a_private_authority_is_trusted_when_it_is_named(
    certificates: Certificates,
) -> None:
    async with relay(certificates) as address:
        assert await fetched(address, AccessFiles(ca=certificates.authority)) == b"{}"
        assert await refused(address, AccessFiles()) is EnclaveFailure.RELAY_UNTRUSTED


@pytest.mark.parametrize("name", ["misnamed", "untrusted"])
async def test_another_name_or_authority_is_untrusted(
    certificates: Certificates, name: str
) -> None:
    async with relay(certificates, name=name) as address:
        files = AccessFiles(ca=certificates.authority)
        assert await refused(address, files) is EnclaveFailure.RELAY_UNTRUSTED


async def test_a_named_authority_is_the_only_one(certificates: Certificates) -> None:
    files = AccessFiles(ca=certificates.folder / "stranger.pem")
    async with relay(certificates) as address:
        assert await refused(address, files) is EnclaveFailure.RELAY_UNTRUSTED
    assert len(read(files).tls.get_ca_certs()) == 1


async def test_our_certificate_is_shown(certificates: Certificates) -> None:
    folder = certificates.folder
    together = folder / "together.pem"
    parts = (folder / "client.pem", folder / "client.key")
    together.write_bytes(b"".join(part.read_bytes() for part in parts))
    named = AccessFiles(
        ca=certificates.authority,
        certificate=folder / "client.pem",
        certificate_key=folder / "client.key",
    )
    one = AccessFiles(ca=certificates.authority, certificate=together)
    nothing = AccessFiles(ca=certificates.authority)
    async with relay(certificates, clients=True) as address:
        assert await fetched(address, named) == b"{}"
        assert await fetched(address, one) == b"{}"
        # This server hangs up before its alert is out; others say why (below).
        assert await refused(address, nothing) is EnclaveFailure.RELAY_HUNG_UP


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", EnclaveFailure.RELAY_WANTS_CERTIFICATE),
        ("TLSV1_ALERT_UNKNOWN_CA", EnclaveFailure.RELAY_WANTS_CERTIFICATE),
        ("SSLV3_ALERT_BAD_CERTIFICATE", EnclaveFailure.RELAY_WANTS_CERTIFICATE),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", EnclaveFailure.RELAY_WANTS_CERTIFICATE),
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", EnclaveFailure.RELAY_WANTS_CERTIFICATE),
        ("TLSV1_ALERT_PROTOCOL_VERSION", EnclaveFailure.RELAY_TLS_FAILED),
        ("RECORD_LAYER_FAILURE", EnclaveFailure.RELAY_TLS_FAILED),
    ],
)
async def test_tls_alerts_of_a_relay_are_reported(
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    expected: FailureReason,
) -> None:
    """As OpenSSL names alerts; the library passes them on as the cause."""

    def alerted(*_: object, **__: object) -> NoReturn:
        alert = ssl.SSLError(1, said)
        alert.reason = said
        raise aiohttp.ClientOSError(1, said) from alert

    monkeypatch.setattr(aiohttp.ClientSession, "get", alerted)
    files = AccessFiles(ca=certificates.authority)
    address = RelayAddress.parse("https://localhost/x", plain_loopback=False)
    assert await refused(address, files) is expected


async def test_https_and_http_are_distinguished(certificates: Certificates) -> None:
    files = AccessFiles(ca=certificates.authority)
    async with relay(certificates, plain=True) as address:
        assert await refused(address, files) is EnclaveFailure.RELAY_TLS_FAILED
    async with relay(certificates) as address:
        plain = address.url.replace("https://", "http://")
        other = RelayAddress.parse(plain, plain_loopback=True)
        assert await refused(other, files) is EnclaveFailure.RELAY_HUNG_UP


async def test_old_versions_are_not_spoken() -> None:
    assert tls_context().minimum_version == ssl.TLSVersion.TLSv1_2
    assert tls_context().check_hostname
    assert tls_context().verify_mode is ssl.CERT_REQUIRED


async def test_version_1_2_is_spoken(certificates: Certificates) -> None:
    async with relay(certificates, newest=ssl.TLSVersion.TLSv1_2) as address:
        assert await fetched(address, AccessFiles(ca=certificates.authority)) == b"{}"


# --- files -----------------------------------------------------------------------


def key_file(folder: Path, data: bytes, *, mode: int = 0o600) -> Path:
    path = folder / "relay.key"
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("data", [API_KEY.encode(), f"\n{API_KEY}\r\n".encode()])
def test_an_api_key_is_read_from_its_file(tmp_path: Path, data: bytes) -> None:
    access = read(AccessFiles(key=key_file(tmp_path, data)))
    assert access.api_key == API_KEY
    assert access.readable_by_others is None
    assert API_KEY not in repr(access)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_file_that_others_can_read_is_reported(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, API_KEY.encode(), mode=mode)
    assert read(AccessFiles(key=path)).readable_by_others == path


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        f"{API_KEY}\n{API_KEY}".encode(),
        f"{API_KEY}\r\nCookie: a=b".encode(),
        f"name {API_KEY}".encode(),
        "ward-ä-0123456789".encode(),
        b"x" * 5000,
    ],
    ids=["empty", "short", "two", "field", "words", "letters", "long"],
)
def test_an_invalid_api_key_is_refused_and_not_repeated(
    tmp_path: Path, data: bytes
) -> None:
    path = key_file(tmp_path, data)
    with pytest.raises(ConfigError, match=r"relay\.key") as error:
        read(AccessFiles(key=path))
    assert API_KEY not in str(error.value)
    assert error.value.__cause__ is None


def test_every_file_that_cannot_be_used_is_named(
    tmp_path: Path, certificates: Certificates
) -> None:
    missing, odd = tmp_path / "missing.pem", tmp_path / "odd.pem"
    odd.write_bytes(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    own = certificates.folder / "client.pem"
    for files, named in (
        (AccessFiles(ca=missing), missing),
        (AccessFiles(ca=odd), f"{odd}: no certificates in PEM"),
        (AccessFiles(certificate=missing), missing),
        (
            AccessFiles(certificate=odd),
            f"{odd}: not a certificate and its key in PEM",
        ),
        (AccessFiles(certificate=own), own),
        (AccessFiles(certificate=own, certificate_key=missing), missing),
        (AccessFiles(certificate=own, certificate_key=odd), odd),
        (AccessFiles(certificate_key=own), own),
        (AccessFiles(key=missing), missing),
    ):
        with pytest.raises(ConfigError) as error:
            read(files)
        assert str(named) in str(error.value)
        assert error.value.__cause__ is None


def test_an_encrypted_key_is_refused_without_a_prompt(
    tmp_path: Path, certificates: Certificates
) -> None:
    key = tmp_path / "encrypted.key"
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    own = certificates.folder / "client.pem"
    with pytest.raises(ConfigError, match=r"encrypted\.key: .* encrypted"):
        read(AccessFiles(certificate=own, certificate_key=key))
