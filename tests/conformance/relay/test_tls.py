"""TLS on both hops, and required client certificates."""

import socket
import ssl

import pytest

from support.relay_certificates import Certificates
from support.relay_processes import RelayProcess
from support.relay_wire import ANSWER, HANG_S, Gateway, raw_request, read_answer


def test_an_exchange_over_tls_is_the_same_at_the_gateway(
    relay: RelayProcess, tls_relay: RelayProcess, gateway: Gateway
) -> None:
    assert relay.post().body == tls_relay.post().body == ANSWER
    plain, sealed = gateway.exchanges
    assert plain.head.raw == sealed.head.raw
    assert plain.body == sealed.body


def test_two_tls_clients_share_connections_to_the_gateway(
    tls_relay: RelayProcess, gateway: Gateway
) -> None:
    wires = [tls_relay.connect(), tls_relay.connect()]
    for wire in wires * 2:
        wire.send(raw_request())
        assert read_answer(wire).status == 200
    assert len({exchange.connection for exchange in gateway.exchanges}) == 1
    for wire in wires:
        wire.close()


def test_a_tls_session_cannot_be_resumed(
    tls_relay: RelayProcess, gateway: Gateway
) -> None:
    assert tls_relay.tls is not None
    wire = tls_relay.connect()
    wire.send(raw_request())
    # A ticket comes with the first bytes that are read, not with the handshake.
    assert read_answer(wire).status == 200
    assert isinstance(wire.socket, ssl.SSLSocket)
    address = ("127.0.0.1", tls_relay.port)
    with (
        socket.create_connection(address, timeout=HANG_S) as plain,
        tls_relay.tls.wrap_socket(
            plain, server_hostname="localhost", session=wire.socket.session
        ) as again,
    ):
        assert not again.session_reused
    assert len(gateway.exchanges) == 1


def test_a_client_of_tls_1_2_stays_out(
    tls_relay: RelayProcess, certificates: Certificates, gateway: Gateway
) -> None:
    context = certificates.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    address = ("127.0.0.1", tls_relay.port)
    with (
        socket.create_connection(address, timeout=HANG_S) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    assert gateway.exchanges == []


def test_plain_http_gets_no_answer_where_tls_is_spoken(
    tls_relay: RelayProcess, gateway: Gateway
) -> None:
    context, tls_relay.tls = tls_relay.tls, None
    wire = tls_relay.connect()
    tls_relay.tls = context
    wire.send(raw_request())
    while wire.more():
        pass
    assert b"HTTP" not in wire.seen
    assert gateway.exchanges == []
    wire.close()


def test_a_client_with_a_certificate_gets_in(
    closed_relay: RelayProcess, gateway: Gateway
) -> None:
    assert closed_relay.post().body == ANSWER
    assert b"client.example" not in gateway.exchanges[0].wire.seen


@pytest.mark.parametrize("name", [None, "untrusted"], ids=["none", "stranger"])
def test_a_client_without_a_certificate_stays_out(
    closed_relay: RelayProcess,
    gateway: Gateway,
    tls_relay: RelayProcess,
    stranger: ssl.SSLContext,
    name: str | None,
) -> None:
    context = closed_relay.tls
    closed_relay.tls = tls_relay.tls if name is None else stranger
    seen = b""
    try:
        wire = closed_relay.connect()
        wire.send(raw_request())
        while wire.more():
            pass
        seen = wire.seen
        wire.close()
    except (ssl.SSLError, ConnectionError):
        pass
    finally:
        closed_relay.tls = context
    assert seen == b""
    assert gateway.exchanges == []


def test_a_gateway_with_a_good_certificate_is_asked(
    relay: RelayProcess, tls_gateways: dict[str, Gateway]
) -> None:
    assert relay.post(target="/sealed").body == ANSWER
    assert len(tls_gateways["sealed"].exchanges) == 1


@pytest.mark.parametrize("name", ["untrusted", "misnamed"])
def test_a_gateway_with_a_bad_certificate_is_not_asked(
    relay: RelayProcess, tls_gateways: dict[str, Gateway], name: str
) -> None:
    assert relay.post(target=f"/{name}").status == 502
    assert relay.get(f"/{name}/keys").status == 502
    assert tls_gateways[name].exchanges == []
