"""Deadlines, caps, and connections that must not identify clients."""

import asyncio
import contextlib

import pytest

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
    say,
)

POST = ("Content-Type: message/ohttp-req",)


async def test_half_a_head_is_dropped_at_the_deadline(make_relay: MakeRelay) -> None:
    relay = await make_relay(limits={"header_timeout_s": 0.2})
    reader, writer = await relay.connect()
    writer.write(b"POST /demo HTTP/1.1\r\nHost:")
    async with asyncio.timeout(9):
        assert await reader.read() == b""
    writer.close()


async def test_a_silent_connection_is_dropped_at_the_deadline(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(limits={"header_timeout_s": 0.2})
    reader, writer = await relay.connect()
    async with asyncio.timeout(9):
        assert await reader.read() == b""
    writer.close()


async def test_waiting_for_a_further_request_takes_no_heads_time(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(limits={"header_timeout_s": 0.2})
    reader, writer = await relay.connect()
    request = raw_request("POST", "/demo", POST, SEALED)
    async with asyncio.timeout(5):
        for _ in range(2):
            writer.write(request)
            assert (await read_message(reader)).status == 200
            await asyncio.sleep(0.4)
    writer.close()


async def test_a_dripping_head_is_dropped_at_the_deadline(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(limits={"header_timeout_s": 0.3})
    reader, writer = await relay.connect()

    async def drip() -> None:
        for byte in b"POST /demo HTTP/1.1\r\nX-Slow: " + b"a" * 1000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    # The end, or a reset: what still drips in is not read any more.
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(9):
            assert await reader.read() == b""
    dripping.cancel()
    writer.close()


async def test_a_second_head_has_its_own_deadline(make_relay: MakeRelay) -> None:
    relay = await make_relay(limits={"header_timeout_s": 1.5})
    reader, writer = await relay.connect()
    request = raw_request("POST", "/demo", POST, SEALED)
    async with asyncio.timeout(9):
        for _ in range(2):
            await asyncio.sleep(0.8)
            writer.write(request)
            assert (await read_message(reader)).status == 200
        writer.write(b"POST /demo")
        assert await reader.read() == b""
    writer.close()


async def test_an_idle_connection_is_closed(make_relay: MakeRelay) -> None:
    relay = await make_relay(limits={"idle_timeout_s": 1.0})
    fresh, fresh_writer = await relay.connect()
    used, used_writer = await relay.connect()
    used_writer.write(raw_request("POST", "/demo", POST, SEALED))
    async with asyncio.timeout(9):
        assert (await read_message(used)).status == 200
        assert await fresh.read() == b""
        assert await used.read() == b""
    fresh_writer.close()
    used_writer.close()


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_a_stalled_body_is_refused(
    make_relay: MakeRelay, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    relay = await make_relay(limits={"body_timeout_s": 0.2})
    head = raw_request("POST", "/demo", (*POST, *incremental, "Content-Length: 100"))
    async with asyncio.timeout(9):
        answer = await relay.send(head + b"x" * 10)
    assert answer.status == 408
    # Incremental: what came went on at once, but never as if it were whole.
    await asyncio.sleep(0.05)
    assert gateway.connections == len(incremental)
    assert not any(request.complete for request in gateway.requests)


async def test_a_dripping_body_is_refused(make_relay: MakeRelay) -> None:
    relay = await make_relay(
        limits={"body_timeout_s": 0.2, "min_body_bytes_per_s": 1000}
    )
    reader, writer = await relay.connect()
    writer.write(raw_request("POST", "/demo", (*POST, "Content-Length: 1000")))

    async def drip() -> None:
        for _ in range(1000):
            writer.write(b"x")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    async with asyncio.timeout(9):
        answer = await read_message(reader)
    dripping.cancel()
    writer.close()
    assert answer.status == 408


async def test_connections_over_the_cap_are_refused(make_relay: MakeRelay) -> None:
    relay = await make_relay(limits={"max_connections": 2})
    first, second = await relay.connect(), await relay.connect()
    await asyncio.sleep(0.05)
    third, third_writer = await relay.connect()
    async with asyncio.timeout(9):
        answer = await read_message(third)
        assert (answer.status, answer.complete) == (503, True)
        assert await third.read() == b""
        third_writer.close()
        first[1].close()
        await asyncio.sleep(0.05)
        assert (await relay.post()).status == 200
    second[1].close()


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_requests_over_the_upstream_cap_are_refused_at_once(
    make_relay: MakeRelay, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    proceed = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        await proceed.wait()
        writer.write(raw_answer())

    gateway.script = script
    relay = await make_relay(limits={"max_upstream": 2, "place_wait_s": 0})
    waiting = [asyncio.create_task(relay.post()) for _ in range(2)]
    await gateway.arrived(2)
    refused = await relay.post("/demo", *incremental)
    assert refused.status == 429
    assert refused.value("Proxy-Status") == "relay; error=connection_limit_reached"
    assert (await relay.get("/healthz")).status == 200
    proceed.set()
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200]
    assert (await relay.post()).status == 200


async def test_slow_senders_hold_no_place_at_the_gateway(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(limits={"max_upstream": 1})
    begun = raw_request("POST", "/demo", (*POST, "Content-Length: 9"))
    slow = [await relay.connect() for _ in range(3)]
    for _, writer in slow:
        writer.write(begun + b"x")
    await asyncio.sleep(0.05)
    assert (await relay.post()).status == 200
    for _, writer in slow:
        writer.close()


async def test_slow_incremental_senders_hold_a_few_places_only(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(limits={"max_upstream": 4, "max_uploads": 2})
    fields = (*POST, "Incremental: ?1", "Content-Length: 9")
    begun = raw_request("POST", "/demo", fields) + b"x"
    slow = [await relay.connect() for _ in range(2)]
    for _, writer in slow:
        writer.write(begun)
    await gateway.greeted(2)
    refused = await relay.send(begun)
    assert refused.status == 429
    assert refused.value("Proxy-Status") == "relay; error=connection_limit_reached"
    # A request that is sent at once needs none of those places.
    assert (await relay.post("/demo", "Incremental: ?1")).status == 200
    assert (await relay.post()).status == 200
    for reader, writer in slow:
        writer.write(b"x" * 8)
        async with asyncio.timeout(5):
            assert (await read_message(reader)).status == 200
        writer.close()
    slow = [await relay.connect() for _ in range(2)]
    for reader, writer in slow:
        writer.write(begun + b"x" * 4)
        writer.write(b"x" * 4)
        async with asyncio.timeout(5):
            assert (await read_message(reader)).status == 200
        writer.close()


async def test_a_place_is_given_back_when_a_client_leaves(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    gateway.script = say()
    relay = await make_relay(limits={"max_upstream": 1})
    _, writer = await relay.connect()
    writer.write(raw_request("POST", "/demo", POST, SEALED))
    await gateway.arrived()
    writer.close()
    await asyncio.sleep(0.05)
    gateway.script = say(raw_answer())
    assert (await relay.post()).status == 200


async def test_clients_share_connections_to_the_gateway(
    relay: Running, gateway: FakeGateway
) -> None:
    for _ in range(5):
        assert (await relay.post()).status == 200
        assert (await relay.post("/demo", "Incremental: ?1")).status == 200
    assert len(gateway.requests) == 10
    assert gateway.connections == 1


async def test_many_requests_of_one_connection_are_answered_in_order(
    relay: Running, gateway: FakeGateway
) -> None:
    async def echo(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(raw_answer(message.body))

    gateway.script = echo
    reader, writer = await relay.connect()
    bodies = [b"first", b"second", b"third"]
    writer.write(b"".join(raw_request("POST", "/demo", POST, body) for body in bodies))
    async with asyncio.timeout(5):
        answers = [await read_message(reader) for _ in bodies]
    writer.close()
    assert [answer.body for answer in answers] == bodies


async def test_hundreds_of_idle_connections_do_not_hinder(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(limits={"max_connections": 400})
    idle = await asyncio.gather(*(relay.connect() for _ in range(300)))
    answer = await relay.post()
    for _, writer in idle:
        writer.close()
    assert (answer.status, answer.body) == (200, ANSWER)


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
@pytest.mark.parametrize("whole", [True, False])
async def test_a_failure_of_ours_gives_its_place_back(
    make_relay: MakeRelay,
    monkeypatch: pytest.MonkeyPatch,
    incremental: tuple[str, ...],
    *,
    whole: bool,
) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    relay = await make_relay(limits={"max_upstream": 1, "max_uploads": 1})
    with monkeypatch.context() as patched:
        patched.setattr("curtilage.relay.forward.admit_answer", fail)
        for _ in range(3):
            assert (await send_in_parts(relay, incremental, whole=whole)).status == 500
    assert (await send_in_parts(relay, incremental, whole=whole)).status == 200


async def send_in_parts(
    relay: Running, fields: tuple[str, ...], *, whole: bool
) -> Message:
    reader, writer = await relay.connect()
    request = raw_request("POST", "/demo", (*POST, *fields), SEALED)
    cut = len(request) if whole else len(request) - 100
    writer.write(request[:cut])
    await asyncio.sleep(0 if whole else 0.02)
    writer.write(request[cut:])
    try:
        async with asyncio.timeout(10):
            return await read_message(reader)
    finally:
        writer.close()
