"""Requests to the gateway: three fields, and the sealed bytes."""

import pytest

from support.relay_processes import RelayProcess
from support.relay_wire import (
    ANSWER,
    CHUNKED_REQUEST,
    HOST,
    SEALED,
    Gateway,
    one_chunk,
    raw_request,
    read_answer,
)

CANARY = "canary-4111111111111111"
PASSING = {"Host", "Content-Type", "Content-Length", "Incremental"}
TRACKING = (
    *("User-Agent", "Cookie", "Cookie2", "Authorization", "Proxy-Authorization"),
    *("Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "From"),
    *("X-Forwarded-Proto", "X-Forwarded-Port", "X-Real-IP", "True-Client-IP"),
    *("CF-Connecting-IP", "CF-Ray", "Fastly-Client-IP", "X-Client-IP"),
    *("X-Cluster-Client-IP", "Traceparent", "tracestate", "baggage", "b3"),
    *("X-B3-TraceId", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "uber-trace-id"),
    *("X-Request-ID", "X-Correlation-ID", "Accept", "Accept-Encoding"),
    *("Accept-Language", "Accept-Charset", "DNT", "Sec-GPC", "Sec-CH-UA"),
    *("Sec-CH-UA-Platform", "Sec-Fetch-Site", "Origin", "Referer", "If-None-Match"),
    *("If-Match", "If-Modified-Since", "Range", "Cache-Control", "Pragma"),
    *("Keep-Alive", "TE", "Trailer", "Proxy-Connection", "Max-Forwards", "Date"),
    *("Priority", "Save-Data", "X-Requested-With", "X-HTTP-Method-Override"),
    *("X-Original-URL", "X-Accel-Redirect", "Signature", "X-Unknown", "x_unknown"),
)


def head_of(relay: RelayProcess, gateway: Gateway, request: bytes) -> bytes:
    """Send a request and return the head that the gateway got."""
    assert relay.send(request).body == ANSWER
    return gateway.arrival().head.raw


@pytest.fixture
def plain(relay: RelayProcess, gateway: Gateway) -> bytes:
    """Return the head that the gateway gets of a bare request."""
    return head_of(relay, gateway, raw_request())


def test_sealed_bytes_pass_both_ways_unchanged(
    relay: RelayProcess, gateway: Gateway
) -> None:
    answer = relay.post()
    exchange = gateway.arrival()
    assert exchange.head.start_line == "POST /.well-known/ohttp-gateway HTTP/1.1"
    assert (exchange.body, exchange.complete) == (SEALED, True)
    assert (answer.status, answer.body, answer.complete) == (200, ANSWER, True)


def test_nothing_but_the_allowed_fields_goes_on(plain: bytes, gateway: Gateway) -> None:
    names = gateway.exchanges[0].head.names
    assert set(names) == PASSING - {"Incremental"}
    assert f"Host: 127.0.0.1:{gateway.port}\r\n".encode() in plain


@pytest.mark.parametrize("field", TRACKING)
def test_a_tracking_field_changes_nothing(
    relay: RelayProcess, gateway: Gateway, plain: bytes, field: str
) -> None:
    assert head_of(relay, gateway, raw_request(f"{field}: {CANARY}")) == plain


def test_all_tracking_fields_together_change_nothing(
    relay: RelayProcess, gateway: Gateway, plain: bytes
) -> None:
    fields = [f"{name}: {CANARY}" for name in TRACKING]
    first, second = raw_request(*fields[:30]), raw_request(*fields[30:])
    assert head_of(relay, gateway, first) == plain
    assert head_of(relay, gateway, second) == plain


def test_order_and_casing_of_the_client_change_nothing(
    relay: RelayProcess, gateway: Gateway, plain: bytes
) -> None:
    odd = (
        f"POST /demo HTTP/1.1\r\ncontent-LENGTH: {len(SEALED)}\r\n"
        f"x-a: {CANARY}\r\nCONTENT-type:   MESSAGE/Ohttp-Req  \r\n"
        f"hOsT: {HOST.upper()}\r\n\r\n"
    )
    assert head_of(relay, gateway, odd.encode() + SEALED) == plain


@pytest.mark.parametrize(
    "field", ["Connection: keep-alive, X-Secret", "Connection: close"]
)
def test_connection_fields_of_the_client_change_nothing(
    relay: RelayProcess, gateway: Gateway, plain: bytes, field: str
) -> None:
    request = raw_request(field, f"X-Secret: {CANARY}")
    assert head_of(relay, gateway, request) == plain


@pytest.mark.parametrize(
    "target", ["/demo?canary=1", "/demo?", "/demo?../other", "/demo?a=%0d%0aX:1"]
)
def test_a_query_does_not_pass(
    relay: RelayProcess, gateway: Gateway, plain: bytes, target: str
) -> None:
    assert head_of(relay, gateway, raw_request(target=target)) == plain


def test_an_older_version_changes_nothing(
    relay: RelayProcess, gateway: Gateway, plain: bytes
) -> None:
    request = raw_request().replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert head_of(relay, gateway, request) == plain


def test_the_chunked_media_type_passes(relay: RelayProcess, gateway: Gateway) -> None:
    relay.send(raw_request(kind=CHUNKED_REQUEST))
    assert gateway.arrival().head.value("Content-Type") == CHUNKED_REQUEST


@pytest.mark.parametrize("value", ["?1", "?1;x=y", "?1; x", "?1;a=1;b"])
def test_incremental_goes_on_as_a_constant(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    relay.send(raw_request(f"Incremental: {value}"))
    head = gateway.arrival().head
    assert set(head.names) <= PASSING
    assert b"\r\nIncremental: ?1\r\n" in head.raw


@pytest.mark.parametrize("value", ["?0", "1", '"1"', "true", "?1, ?1", "?2", "", "?10"])
def test_what_is_not_true_is_not_incremental(
    relay: RelayProcess, gateway: Gateway, plain: bytes, value: str
) -> None:
    assert head_of(relay, gateway, raw_request(f"Incremental: {value}")) == plain


def test_a_chunked_request_arrives_whole(relay: RelayProcess, gateway: Gateway) -> None:
    chunks = b"".join(one_chunk(SEALED[at : at + 100]) for at in range(0, 1024, 100))
    head = raw_request("Transfer-Encoding: chunked", body=None)
    assert relay.send(head + chunks + b"0\r\n\r\n").status == 200
    exchange = gateway.arrival()
    assert (exchange.body, exchange.complete) == (SEALED, True)
    assert set(exchange.head.names) <= PASSING | {"Transfer-Encoding"}


def test_trailers_and_chunk_extensions_do_not_pass(
    relay: RelayProcess, gateway: Gateway
) -> None:
    head = raw_request("Transfer-Encoding: chunked", body=None)
    body = f"5;note={CANARY}\r\nhello\r\n0\r\nX-Trailer: {CANARY}\r\n\r\n".encode()
    assert relay.send(head + body).status == 200
    exchange = gateway.arrival()
    assert exchange.body == b"hello"
    assert CANARY.encode() not in exchange.wire.seen


def test_the_largest_request_passes(relay: RelayProcess, gateway: Gateway) -> None:
    body = bytes(1024 * 1024)
    assert relay.send(raw_request(body=body)).status == 200
    assert gateway.arrival().body == body


def test_clients_share_connections_to_the_gateway(
    relay: RelayProcess, gateway: Gateway
) -> None:
    clients = [relay.connect() for _ in range(4)]
    for wire in clients * 2:
        wire.send(raw_request())
        assert read_answer(wire).status == 200
    used = {exchange.connection for exchange in gateway.exchanges}
    assert len(gateway.exchanges) == 8
    assert len(used) == 1, "a client's connection maps to one at the gateway"
    for wire in clients:
        wire.close()


def test_one_clients_connection_is_not_one_at_the_gateway(
    relay: RelayProcess, gateway: Gateway
) -> None:
    first, second = relay.connect(), relay.connect()
    for wire in (first, second):
        wire.send(raw_request())
        read_answer(wire)
    first.close()
    second.send(raw_request())
    assert read_answer(second).status == 200
    second.close()
    # The first client's end closed nothing at the gateway.
    relay.post()
    assert len({exchange.connection for exchange in gateway.exchanges}) == 1
