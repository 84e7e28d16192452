"""Other ways to a gateway: UNIX sockets and TLS; and listening on a socket."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from curtilage.relay.errors import StartError
from support.relay_parts import (
    ANSWER,
    SEALED,
    FakeGateway,
    MakeRelay,
    raw_answer,
    raw_request,
    read_message,
    say,
)


def make_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "gateway.pem", folder / "gateway.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    return certificate_file, context


async def test_unix_gateway(make_relay: MakeRelay, tmp_path: Path) -> None:
    gateway = FakeGateway()
    path = tmp_path / "gateway.sock"
    server = await asyncio.start_unix_server(gateway.serve, path)
    relay = await make_relay(
        upstream=f"unix:{path}", environment="production", limits={"cache_s": 1}
    )
    answer = await relay.post()
    server.close()
    assert (answer.status, answer.body) == (200, ANSWER)
    assert gateway.requests[0].value("Host") == "localhost"
    assert gateway.requests[0].body == SEALED


async def test_cookies_of_a_gateway_are_not_kept(
    make_relay: MakeRelay, tmp_path: Path
) -> None:
    gateway = FakeGateway()
    gateway.script = say(raw_answer(fields=("Set-Cookie: mark=canary; Path=/",)))
    path = tmp_path / "gateway.sock"
    server = await asyncio.start_unix_server(gateway.serve, path)
    relay = await make_relay(upstream=f"unix:{path}")
    for _ in range(2):
        assert (await relay.post()).status == 200
    server.close()
    assert all("Cookie" not in request.names for request in gateway.requests)


async def test_unix_gateway_that_is_absent(
    make_relay: MakeRelay, tmp_path: Path
) -> None:
    relay = await make_relay(upstream=f"unix:{tmp_path}/nothing.sock")
    assert (await relay.post()).status == 502


async def test_tls_gateway_needs_a_certificate_we_trust(
    make_relay: MakeRelay, gateway: FakeGateway, tmp_path: Path
) -> None:
    certificate, context = make_certificate(tmp_path)
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    upstream = f"https://127.0.0.1:{port}"
    trusting = await make_relay(upstream=upstream, upstream_ca_file=str(certificate))
    assert (await trusting.post()).body == ANSWER
    doubting = await make_relay(upstream=upstream)
    assert (await doubting.post()).status == 502
    other_name = f"https://localhost:{port}"
    deceived = await make_relay(upstream=other_name, upstream_ca_file=str(certificate))
    assert (await deceived.post()).status == 502
    assert len(gateway.requests) == 1
    server.close()


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_unusable_certificate_file_stops_the_start(
    make_relay: MakeRelay, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(StartError, match="cannot start"):
        await make_relay(upstream_ca_file=str(file))


async def test_relay_listens_on_a_unix_socket_and_removes_it(
    make_relay: MakeRelay, tmp_path: Path
) -> None:
    path = tmp_path / "relay.sock"
    relay = await make_relay(listen=f"unix:{path}")
    assert relay.address == f"unix:{path}"
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(
        raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), SEALED)
    )
    assert (await read_message(reader)).body == ANSWER
    writer.close()
    await relay.relay.stop()
    assert not path.exists()


async def test_address_in_use_stops_the_start(make_relay: MakeRelay) -> None:
    first = await make_relay()
    with pytest.raises(StartError, match="cannot start"):
        await make_relay(listen=first.address)


async def test_ipv6_address_is_reported_in_brackets(make_relay: MakeRelay) -> None:
    relay = await make_relay(listen="[::1]:0")
    assert relay.address.startswith("[::1]:")
