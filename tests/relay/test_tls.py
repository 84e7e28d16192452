"""TLS on the hop to the clients and on the hop to the gateways."""

import asyncio
import contextlib
import errno
import socket
import ssl
import warnings
from pathlib import Path

import pytest

from curtilage.relay.config import is_exposed, parse_config
from curtilage.relay.errors import ConfigError, StartError
from support.relay_certificates import Certificates, make_certificates
from support.relay_parts import (
    ANSWER,
    SEALED,
    FakeGateway,
    MakeRelay,
    Message,
    Running,
    raw_answer,
    raw_request,
    read_message,
)

POST = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), SEALED)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def ask(
    relay: Running, context: ssl.SSLContext, request: bytes = POST
) -> tuple[Message, ssl.SSLObject]:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", relay.port, ssl=context, server_hostname="localhost"
        )
        session = writer.get_extra_info("ssl_object")
        writer.write(request)
        try:
            return await read_message(reader), session
        finally:
            writer.close()


async def test_clients_reach_the_relay_over_tls(
    make_relay: MakeRelay, certificates: Certificates
) -> None:
    relay = await make_relay(tls=certificates.settings())
    context = certificates.client()
    context.set_alpn_protocols(["h2", "http/1.1"])
    answer, session = await ask(relay, context)
    assert (answer.status, answer.body) == (200, ANSWER)
    assert session.selected_alpn_protocol() == "http/1.1"


async def test_tls_clients_share_connections_to_the_gateway(
    make_relay: MakeRelay, certificates: Certificates, gateway: FakeGateway
) -> None:
    relay = await make_relay(tls=certificates.settings())
    for _ in range(3):
        answer, _ = await ask(relay, certificates.client())
        assert answer.status == 200
    assert (len(gateway.requests), gateway.connections) == (3, 1)


async def test_tls_gives_no_ticket_that_ties_connections_together(
    make_relay: MakeRelay, certificates: Certificates
) -> None:
    relay = await make_relay(tls=certificates.settings())
    _, session = await ask(relay, certificates.client())
    assert session.version() == "TLSv1.3"
    assert session.session is None or not session.session.has_ticket


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1", "TLSv1_2"])
async def test_old_tls_gets_no_answer(
    make_relay: MakeRelay,
    certificates: Certificates,
    gateway: FakeGateway,
    version: str,
) -> None:
    # TLS 1.2 sends a session's id and a client's certificate in clear.
    relay = await make_relay(tls=certificates.settings())
    old = certificates.client()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion[version]
        old.maximum_version = ssl.TLSVersion[version]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await ask(relay, old)
    assert gateway.requests == []


async def test_no_tls_gets_no_answer(
    make_relay: MakeRelay, certificates: Certificates, gateway: FakeGateway
) -> None:
    relay = await make_relay(tls=certificates.settings())
    reader, writer = await relay.connect()
    writer.write(POST)
    async with asyncio.timeout(5):
        assert b"HTTP" not in await reader.read()
    writer.close()
    assert gateway.requests == []


async def test_a_stalled_handshake_is_dropped_at_the_deadline(
    make_relay: MakeRelay, certificates: Certificates
) -> None:
    limits = {"header_timeout_s": 0.3}
    relay = await make_relay(tls=certificates.settings(), limits=limits)
    reader, writer = await relay.connect()
    writer.write(b"\x16\x03\x01\x02\x00\x01")
    async with asyncio.timeout(5):
        assert b"HTTP" not in await reader.read()
    writer.close()


async def refused_at_the_door(relay: Running) -> None:
    """Expect the end at once: no deadline of the relay is near."""
    reader, writer = await relay.connect()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(8):
            assert await reader.read() == b""
    writer.close()


async def answered(relay: Running, certificates: Certificates) -> None:
    """Ask until the relay has noticed that there is room."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                answer, _ = await ask(relay, certificates.client())
                assert answer.status == 200
                return
            await asyncio.sleep(0.01)


CAPS = [
    {"limits": {"max_connections": 2}},
    {"clients": {"connections": 2, "requests_per_s": 0}},
]


@pytest.mark.parametrize("caps", CAPS, ids=["all", "client"])
async def test_unfinished_handshakes_count_as_connections(
    make_relay: MakeRelay, certificates: Certificates, caps: dict[str, object]
) -> None:
    relay = await make_relay(tls=certificates.settings(), **caps)
    (_, first), (_, second) = [await relay.connect() for _ in range(2)]
    first.write(b"\x16\x03\x01\x02\x00\x01")
    await refused_at_the_door(relay)
    second.close()
    await answered(relay, certificates)
    first.close()


async def test_connections_over_tls_count_until_they_end(
    make_relay: MakeRelay, certificates: Certificates
) -> None:
    caps = {"connections": 1, "requests_per_s": 0}
    relay = await make_relay(tls=certificates.settings(), clients=caps)
    _, writer = await asyncio.open_connection(
        "127.0.0.1", relay.port, ssl=certificates.client(), server_hostname="localhost"
    )
    await refused_at_the_door(relay)
    writer.close()
    await answered(relay, certificates)
    await answered(relay, certificates)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"])
async def test_failed_handshakes_leave_no_count(
    make_relay: MakeRelay, certificates: Certificates, sent: bytes
) -> None:
    relay = await make_relay(
        tls=certificates.settings(),
        limits={"max_connections": 1, "header_timeout_s": 1.0},
        clients={"connections": 1, "requests_per_s": 0},
    )
    for _ in range(3):
        reader, writer = await relay.connect()
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                await reader.read()
        writer.close()
    await answered(relay, certificates)


async def test_stopping_cuts_handshakes(
    make_relay: MakeRelay, certificates: Certificates
) -> None:
    relay = await make_relay(tls=certificates.settings(), limits={"max_connections": 1})
    reader, writer = await relay.connect()
    await refused_at_the_door(relay)
    await relay.relay.stop()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(8):
            assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionError):
        await relay.connect()


async def test_a_failed_accept_is_not_the_last(
    make_relay: MakeRelay,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    accept = loop.sock_accept
    failures = [OSError(errno.EMFILE, ""), ConnectionAbortedError()]

    async def sock_accept(listening: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    relay = await make_relay(tls=certificates.settings())
    await answered(relay, certificates)
    assert not failures


async def test_tls_listens_on_every_address_or_none(
    make_relay: MakeRelay, certificates: Certificates
) -> None:
    relay = await make_relay(tls=certificates.settings())
    with pytest.raises(StartError, match="cannot start"):
        await make_relay(tls=certificates.settings(), listen=f"127.0.0.1:{relay.port}")
    await answered(relay, certificates)


@pytest.mark.parametrize("certificate", [None, "untrusted"])
async def test_clients_without_a_certificate_of_ours_get_no_answer(
    make_relay: MakeRelay,
    certificates: Certificates,
    gateway: FakeGateway,
    certificate: str | None,
) -> None:
    relay = await make_relay(tls=certificates.settings(client_ca=True))
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask(relay, certificates.client(certificate))
    assert gateway.requests == []
    answer, _ = await ask(relay, certificates.client("client"))
    assert (answer.status, answer.body) == (200, ANSWER)
    assert b"client.example" not in gateway.requests[0].head


@pytest.mark.parametrize(
    ("certificate", "status"), [("server", 200), ("misnamed", 502), ("untrusted", 502)]
)
async def test_gateways_are_verified(
    make_relay: MakeRelay,
    certificates: Certificates,
    gateway: FakeGateway,
    certificate: str,
    status: int,
) -> None:
    server = await asyncio.start_server(
        gateway.serve, "127.0.0.1", 0, ssl=certificates.server(certificate)
    )
    port = server.sockets[0].getsockname()[1]
    relay = await make_relay(
        upstream=f"https://localhost:{port}",
        upstream_ca_file=str(certificates.authority),
    )
    assert (await relay.post()).status == status
    assert (await relay.post("/demo", "Incremental: ?1")).status == status
    server.close()
    assert len(gateway.requests) == (2 if status == 200 else 0)


async def test_a_gateway_without_tls_is_reported_as_unreachable(
    make_relay: MakeRelay,
) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relay = await make_relay(upstream=f"https://127.0.0.1:{port}")
    assert (await relay.post()).status == 502
    server.close()


@pytest.mark.parametrize(
    ("key", "file", "problem"),
    [
        ("certificate", "nowhere.pem", "No such file"),
        ("key", "client.key", "not usable PEM"),
        ("certificate", "server.key", "not usable PEM"),
        ("client_ca", "server.key", "tls.client_ca: not usable PEM"),
        ("client_ca", "nowhere.pem", "tls.client_ca: No such file"),
    ],
)
async def test_unusable_files_stop_the_start(
    make_relay: MakeRelay, certificates: Certificates, key: str, file: str, problem: str
) -> None:
    tls = {**certificates.settings(), key: str(certificates.folder / file)}
    with pytest.raises(StartError, match=problem):
        await make_relay(tls=tls)


GATEWAYS = '[gateways]\na = "https://a.example"\n'
TLS = '[tls]\ncertificate = "c.pem"\nkey = "k.pem"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TLS + "x = 1\n", "tls.x: unknown key"),
        ('[tls]\ncertificate = "c.pem"\n', "tls: expected certificate and key"),
        ("[tls]\ncertificate = 7\nkey = 8\n", "tls.certificate: expected a path"),
        (TLS + 'client_ca = ""\n', "tls.client_ca: expected a path"),
    ],
)
def test_wrong_tables_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(f'listen = "127.0.0.1:0"\n{GATEWAYS}{text}', {})
    assert any(found.startswith(problem) for found in refused.value.problems)


def test_tls_is_not_for_unix_sockets() -> None:
    with pytest.raises(ConfigError, match=r"\btls: .* UNIX socket"):
        parse_config(f'listen = "unix:/run/r.sock"\n{GATEWAYS}{TLS}', {})


@pytest.mark.parametrize(
    ("listen", "tls", "exposed"),
    [
        ("0.0.0.0:80", "", True),
        ("[::]:80", "", True),
        ("192.0.2.1:80", "", True),
        ("127.0.0.1:80", "", False),
        ("[::1]:80", "", False),
        ("unix:/run/r.sock", "", False),
        ("0.0.0.0:443", TLS, False),
    ],
)
def test_plain_http_beyond_this_machine_is_noticed(
    listen: str, tls: str, *, exposed: bool
) -> None:
    config = parse_config(f'listen = "{listen}"\n{GATEWAYS}{tls}', {})
    assert is_exposed(config) is exposed


def test_files_stay_paths() -> None:
    config = parse_config(f'listen = "127.0.0.1:0"\n{GATEWAYS}{TLS}', {})
    assert config.tls is not None
    assert config.tls.certificate == Path("c.pem")
    assert config.tls.client_ca is None
