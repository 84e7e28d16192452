"""Deadlines, caps and back-pressure, against senders and readers who dawdle.

A relay's deadline here is half a second. A slow machine makes these tests slow;
it cannot make a relay that has no deadline pass.
"""

import contextlib
import threading
import time

import pytest
from conformance.relay.conftest import HASTY, PATIENT, StartRelay

from support.relay_differences import differs
from support.relay_processes import RelayProcess
from support.relay_wire import (
    HOST,
    Exchange,
    Gateway,
    Wire,
    one_chunk,
    raw_answer,
    raw_request,
    read_answer,
    say,
)

HALF_HEAD = b"POST /demo HTTP/1.1\r\nHost: relay.example\r\nContent-"
DRIP_S = 0.05


def drip(wire: Wire, data: bytes) -> tuple[bool, float]:
    """Send byte by byte; return whether none was answered, and the longest pause."""
    longest, last = 0.0, time.monotonic()
    for byte in data:
        try:
            wire.send(bytes([byte]))
        except OSError:
            return False, longest
        if not wire.is_silent(DRIP_S):
            return False, longest
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return True, longest


@pytest.mark.parametrize("sent", [b"", b"P", HALF_HEAD], ids=["none", "one", "half"])
def test_an_unfinished_head_is_dropped(hasty_heads: RelayProcess, sent: bytes) -> None:
    assert hasty_heads.silence(sent)


def test_a_dripping_head_is_dropped(hasty_heads: RelayProcess) -> None:
    wire = hasty_heads.connect()
    all_sent, _ = drip(wire, HALF_HEAD[:4] + b"a" * 100)
    assert not all_sent
    wire.close()


def answered(relay: RelayProcess) -> Wire:
    """Return a connection that got an answer, however slow this machine is."""
    while True:
        wire = relay.connect()
        with contextlib.suppress(OSError, AssertionError):
            wire.send(raw_request())
            if read_answer(wire).status == 200:
                return wire
        wire.close()


def test_an_idle_connection_is_closed(
    hasty_heads: RelayProcess, gateway: Gateway
) -> None:
    wire = answered(hasty_heads)
    assert wire.ended()
    wire.close()
    assert gateway.exchanges


def test_a_second_head_has_a_deadline(
    hasty_heads: RelayProcess, gateway: Gateway
) -> None:
    wire = answered(hasty_heads)
    with contextlib.suppress(OSError):
        wire.send(HALF_HEAD)
    assert wire.ended()
    wire.close()
    assert gateway.exchanges


def stalled(*fields: str) -> bytes:
    """Write a request whose content stops after ten bytes."""
    return (
        raw_request(*fields, body=None)[:-2] + b"Content-Length: 99\r\n\r\n" + b"x" * 10
    )


@pytest.mark.parametrize("fields", [(), ("Incremental: ?1",)])
def test_a_stalled_content_is_dropped(
    hasty: RelayProcess, gateway: Gateway, fields: tuple[str, ...]
) -> None:
    wire = hasty.connect()
    wire.send(stalled(*fields))
    wire.more()
    assert b" 200 " not in wire.seen
    assert all(not exchange.complete for exchange in gateway.exchanges)
    wire.close()


@differs("slow-content")
def test_a_stalled_content_is_reported(hasty: RelayProcess) -> None:
    assert hasty.send(stalled()).status == 408


@differs("slow-content")
def test_a_dripping_content_is_dropped(hasty: RelayProcess) -> None:
    wire = hasty.connect()
    wire.send(stalled())
    all_sent, longest = drip(wire, b"x" * 40)
    wire.close()
    if longest > 0.8 * HASTY["body_timeout_s"]:
        pytest.skip("the machine was too slow to drip")
    assert not all_sent


@differs("request-streaming")
def test_a_slow_sender_takes_no_place_at_the_gateway(
    relay: RelayProcess, gateway: Gateway
) -> None:
    wire = relay.connect()
    wire.send(stalled())
    # A relay that forwards at once needs a moment; one that does not, none.
    end = time.monotonic() + (0.3 if relay.kind == "built-in" else 10)
    while not gateway.exchanges and time.monotonic() < end:
        time.sleep(0.01)
    wire.close()
    assert gateway.exchanges == []


def test_a_client_that_does_not_read_stops_the_gateway(
    start_relay: StartRelay, gateway: Gateway
) -> None:
    limits = {**HASTY, "upstream_read_timeout_s": 20, "max_answer_bytes": 2**40}
    relay = start_relay(limits=limits)
    stopped = threading.Event()

    def pour(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(raw_answer("Transfer-Encoding: chunked", body=None))
        try:
            for _ in range(4096):
                exchange.wire.send(one_chunk(bytes(65536)))
        except OSError:
            stopped.set()

    gateway.script = pour
    wire = relay.connect(small_buffer=True)
    wire.send(raw_request("Incremental: ?1"))
    assert stopped.wait(20), "the relay took 256 MB without a reader"
    wire.close()
    relay.stop()


def hold(gateway: Gateway) -> threading.Event:
    """Let the gateway hold every request until this is set."""
    release = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        release.wait(20)
        exchange.wire.send(raw_answer())

    gateway.script = script
    return release


def ask_without_answer(
    relay: RelayProcess, gateway: Gateway, requests: int
) -> list[Wire]:
    """Send this many requests; the gateway has each and holds its answer back."""
    held = [relay.connect() for _ in range(requests)]
    for wire in held:
        wire.send(raw_request())
        gateway.arrival()
    return held


@pytest.mark.parametrize(
    ("clients", "limits"),
    [
        ({}, {"max_upstream": 2}),
        ({"connections": 0, "exchanges": 2, "requests_per_s": 0}, {}),
    ],
    ids=["in all", "of one client"],
)
def test_the_places_at_the_gateway_are_bounded(
    start_relay: StartRelay,
    gateway: Gateway,
    clients: dict[str, float],
    limits: dict[str, float],
) -> None:
    relay = start_relay(
        **({"clients": clients} if clients else {}),
        limits={**PATIENT, **limits, "place_wait_s": 0},
    )
    release = hold(gateway)
    held = ask_without_answer(relay, gateway, 2)
    refused = relay.post()
    release.set()
    assert refused.status == 429
    assert b"The relay serves as many requests as it may." in refused.body
    assert refused.value("Proxy-Status") == "relay; error=connection_limit_reached"
    assert [read_answer(wire).status for wire in held] == [200, 200]
    assert relay.post().status == 200
    for wire in held:
        wire.close()


@differs("turns")
def test_a_request_without_a_place_waits_for_one(
    start_relay: StartRelay, gateway: Gateway
) -> None:
    relay = start_relay(limits={**PATIENT, "max_upstream": 1, "place_wait_s": 20})
    release = hold(gateway)
    held, waiting = relay.connect(), relay.connect()
    held.send(raw_request())
    gateway.arrival()
    waiting.send(raw_request())
    refused = not waiting.is_silent(0.3)
    release.set()
    assert not refused
    assert [read_answer(wire).status for wire in (held, waiting)] == [200, 200]
    held.close()
    waiting.close()


def test_the_requests_of_one_client_are_bounded(
    start_relay: StartRelay, gateway: Gateway
) -> None:
    clients = {"connections": 0, "requests_per_s": 0.02, "burst": 3}
    relay = start_relay(clients=clients)
    answers = [relay.post() for _ in range(6)]
    assert {answer.status for answer in answers[:3]} == {200}
    assert answers[-1].status == 429
    assert b"This client asks too often." in answers[-1].body
    assert answers[-1].value("Proxy-Status") is None
    assert len(gateway.exchanges) < 6
    assert relay.get("/healthz").status == 200


def test_running_requests_of_one_client_are_bounded(
    start_relay: StartRelay, gateway: Gateway
) -> None:
    relay = start_relay(clients={"connections": 2, "requests_per_s": 0})
    release = hold(gateway)
    held = ask_without_answer(relay, gateway, 2)
    status = relay.post().status
    release.set()
    assert status == 429
    for wire in held:
        assert read_answer(wire).status == 200
        wire.close()


def status_with_idle(relay: RelayProcess, connections: int) -> int:
    """Send requests while this many connections, each answered once, stay open."""
    idle = [relay.connect() for _ in range(connections)]
    for wire in idle:
        wire.send(raw_request(method="GET", target="/healthz", body=None, kind=None))
        assert read_answer(wire).status == 200
    status = relay.post().status
    for wire in idle:
        wire.close()
    return status


@differs("client-connections")
def test_idle_connections_of_one_client_are_bounded(start_relay: StartRelay) -> None:
    relay = start_relay(clients={"connections": 2, "requests_per_s": 0})
    assert status_with_idle(relay, 2) == 429


def test_idle_connections_leave_room(relay: RelayProcess) -> None:
    idle = [relay.connect() for _ in range(400)]
    assert relay.post().status == 200
    for wire in idle:
        wire.close()


@differs("connection-cap")
def test_connections_are_bounded(start_relay: StartRelay) -> None:
    relay = start_relay(limits={**PATIENT, "max_connections": 4})
    assert status_with_idle(relay, 4) == 503


def test_running_requests_end_and_new_ones_do_not_begin_when_it_drains(
    start_relay: StartRelay, gateway: Gateway
) -> None:
    relay = start_relay()
    release = hold(gateway)
    wire = relay.connect()
    wire.send(raw_request())
    gateway.arrival()
    relay.drain()

    end = time.monotonic() + 60
    closed = False
    while not closed and time.monotonic() < end:
        try:
            relay.connect().close()
        except OSError:
            closed = True
        time.sleep(0.02)
    assert closed
    release.set()
    assert read_answer(wire).status == 200
    wire.close()
    assert relay.process.wait(20) == 0


@differs("draining")
def test_health_reports_draining(start_relay: StartRelay) -> None:
    relay = start_relay(limits={**PATIENT, "drain_delay_s": 20.0})
    relay.drain()
    answer, end = None, time.monotonic() + 60
    with contextlib.suppress(OSError, AssertionError):
        while time.monotonic() < end:
            if (answer := relay.get("/healthz")).status != 200:
                break
            answer = None
    relay.stop()
    assert answer is not None
    assert (answer.status, answer.body) == (503, b"draining\n")


def test_nothing_is_written_or_said(start_relay: StartRelay, gateway: Gateway) -> None:
    relay = start_relay()
    gateway.script = say(raw_answer("X-A: canary-b", body=bytes(1024 * 1024)))
    body = one_chunk(b"canary-a" * 8192) * 8 + b"0\r\n\r\n"
    request = raw_request("Transfer-Encoding: chunked", "X-A: canary-c", body=None)
    assert relay.send(request + body).status == 200
    relay.send(f"BAD canary-d HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    relay.silence(b"\x16\x03canary-e\r\n\r\n")
    relay.post(target="/absent")
    assert "canary" not in relay.stop()
    files = [path for path in relay.folder.rglob("*") if path.is_file()]
    expected = {"relay.toml", "nginx.conf", "nginx.pid"}
    assert {path.name for path in files} <= expected
