"""Pieces pass as they arrive, both ways: checked by events, never by the clock."""

import threading

import pytest

from support.relay_processes import RelayProcess
from support.relay_wire import (
    CHUNKED_ANSWER,
    CHUNKED_REQUEST,
    HANG_S,
    Exchange,
    Gateway,
    one_chunk,
    raw_answer,
    raw_request,
    read_head,
    say,
)

PIECES = [bytes([number]) * 530 for number in range(1, 9)]
FIELD = "Incremental: ?1"


STREAMED = raw_answer(
    FIELD, "Transfer-Encoding: chunked", kind=CHUNKED_ANSWER, body=None
)


def test_each_piece_of_an_answer_passes_before_the_next_exists(
    relay: RelayProcess, gateway: Gateway
) -> None:
    seen = threading.Semaphore(0)

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED)
        for piece in PIECES:
            exchange.wire.send(one_chunk(piece))
            assert seen.acquire(timeout=HANG_S)
        exchange.wire.send(b"0\r\n\r\n")

    gateway.script = script
    wire = relay.connect()
    wire.send(raw_request(FIELD, kind=CHUNKED_REQUEST))
    head = read_head(wire)
    assert head.value("Content-Type") == CHUNKED_ANSWER
    assert head.value("Incremental") == "?1"
    for piece in PIECES:
        assert wire.chunk() == piece
        seen.release()
    assert wire.chunk() == b""
    wire.close()


def test_an_answer_of_known_length_streams_too(
    relay: RelayProcess, gateway: Gateway
) -> None:
    seen = threading.Semaphore(0)

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(raw_answer(FIELD, "Content-Length: 4240", body=None))
        for piece in PIECES:
            exchange.wire.send(piece)
            assert seen.acquire(timeout=HANG_S)

    gateway.script = script
    wire = relay.connect()
    wire.send(raw_request(FIELD))
    assert read_head(wire).value("Content-Length") == "4240"
    for piece in PIECES:
        assert wire.exactly(530) == piece
        seen.release()
    wire.close()


def test_the_head_passes_before_any_content(
    relay: RelayProcess, gateway: Gateway
) -> None:
    go_on = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED)
        assert go_on.wait(HANG_S)
        exchange.wire.send(b"0\r\n\r\n")

    gateway.script = script
    wire = relay.connect()
    wire.send(raw_request(FIELD))
    assert read_head(wire).status == 200
    go_on.set()
    assert wire.chunk() == b""
    wire.close()


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_each_piece_of_a_request_passes_before_the_next_exists(
    relay: RelayProcess, gateway: Gateway, framing: str
) -> None:
    arrived = threading.Semaphore(0)

    def script(exchange: Exchange) -> None:
        chunked = exchange.head.value("Transfer-Encoding") == "chunked"
        for piece in PIECES:
            got = b""
            while len(got) < len(piece):
                got += (
                    (exchange.wire.chunk() or b"") if chunked else exchange.wire.more()
                )
            exchange.body += got
            arrived.release()
        if chunked:
            exchange.wire.chunk()
        exchange.wire.send(raw_answer())

    gateway.script = script
    wire = relay.connect()
    whole = sum(len(piece) for piece in PIECES)
    field = "Transfer-Encoding: chunked"
    if framing == "length":
        field = f"Content-Length: {whole}"
    wire.send(raw_request(FIELD, field, kind=CHUNKED_REQUEST, body=None))
    for piece in PIECES:
        wire.send(piece if framing == "length" else one_chunk(piece))
        assert arrived.acquire(timeout=HANG_S)
    if framing == "chunked":
        wire.send(b"0\r\n\r\n")
    assert read_head(wire).status == 200
    assert gateway.exchanges[0].body == b"".join(PIECES)
    wire.close()


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_cut_at_the_gateway_is_a_cut_at_the_client(
    relay: RelayProcess, gateway: Gateway, end: str, framing: str
) -> None:
    seen = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        if framing == "chunked":
            exchange.wire.send(STREAMED + one_chunk(PIECES[0]))
        else:
            head = raw_answer(FIELD, "Content-Length: 4240", body=None)
            exchange.wire.send(head + PIECES[0])
        assert seen.wait(HANG_S)
        if end == "reset":
            exchange.wire.reset()
        else:
            exchange.wire.close()

    gateway.script = script
    wire = relay.connect()
    wire.send(raw_request(FIELD, kind=CHUNKED_REQUEST))
    read_head(wire)
    if framing == "chunked":
        assert wire.chunk() == PIECES[0]
        seen.set()
        assert wire.chunk() is None
    else:
        assert wire.exactly(530) == PIECES[0]
        seen.set()
        assert wire.ended()
    wire.close()


def test_the_gateway_notices_a_client_that_disconnects(
    relay: RelayProcess, gateway: Gateway
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED + one_chunk(PIECES[0]))
        exchange.wire.socket.settimeout(HANG_S)
        if exchange.wire.ended():
            exchange.lost.set()

    gateway.script = script
    wire = relay.connect()
    wire.send(raw_request(FIELD, kind=CHUNKED_REQUEST))
    read_head(wire)
    assert wire.chunk() == PIECES[0]
    wire.close()
    assert gateway.arrival().lost.wait(HANG_S)


def test_the_gateway_notices_a_client_that_disconnects_before_the_answer(
    relay: RelayProcess, gateway: Gateway
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.socket.settimeout(HANG_S)
        if exchange.wire.ended():
            exchange.lost.set()

    gateway.script = script
    wire = relay.connect()
    wire.send(raw_request(FIELD, kind=CHUNKED_REQUEST))
    exchange = gateway.arrival()
    wire.close()
    assert exchange.lost.wait(HANG_S)


def test_many_streams_do_not_wait_for_each_other(
    relay: RelayProcess, gateway: Gateway
) -> None:
    release = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED + one_chunk(PIECES[0]))
        assert release.wait(HANG_S)
        exchange.wire.send(b"0\r\n\r\n")

    gateway.script = script
    wires = [relay.connect() for _ in range(20)]
    for wire in wires:
        wire.send(raw_request(FIELD))
    for wire in wires:
        read_head(wire)
        assert wire.chunk() == PIECES[0]
    release.set()
    assert [wire.chunk() for wire in wires] == [b""] * 20
    for wire in wires:
        wire.close()


def test_streams_of_two_clients_share_the_pool_afterwards(
    relay: RelayProcess, gateway: Gateway
) -> None:
    gateway.script = say(STREAMED + one_chunk(PIECES[0]) + b"0\r\n\r\n")
    for _ in range(2):
        assert relay.post(FIELD).body == PIECES[0]
    assert len({exchange.connection for exchange in gateway.exchanges}) == 1
