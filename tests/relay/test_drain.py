"""Draining: no new requests, running ones may end, and none waits for ever."""

import asyncio
from pathlib import Path

import pytest

from curtilage.relay.config import Limits
from support.relay_parts import (
    ANSWER,
    CHUNKED_ANSWER,
    CHUNKED_REQUEST,
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

POST = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), SEALED)
SHORTEST_PADDED_ANSWER_S = 64 * 0.05


@pytest.fixture
def proceed(gateway: FakeGateway) -> asyncio.Event:
    """Let the gateway answer only when this is set."""
    event = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        await event.wait()
        writer.write(raw_answer())

    gateway.script = script
    return event


def test_grace_covers_padded_answers() -> None:
    assert Limits().shutdown_grace_s > 2 * SHORTEST_PADDED_ANSWER_S


async def test_stop_lets_a_running_request_end(
    make_relay: MakeRelay, gateway: FakeGateway, proceed: asyncio.Event
) -> None:
    relay = await make_relay()
    running = asyncio.create_task(relay.post())
    await gateway.arrived()
    stopping = asyncio.create_task(relay.relay.stop())
    await asyncio.sleep(0.05)
    with pytest.raises(ConnectionError):
        await relay.connect()
    assert not stopping.done()
    proceed.set()
    answer = await running
    assert (answer.status, answer.body) == (200, ANSWER)
    assert answer.value("Connection") is None or answer.value("Connection") == "close"
    async with asyncio.timeout(5):
        await stopping


async def test_stop_lets_a_running_stream_end(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    proceed = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {CHUNKED_ANSWER}\r\n"
        writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"5\r\nfirst\r\n")
        await proceed.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    gateway.script = script
    relay = await make_relay()
    post = relay.post("/demo", "Incremental: ?1", kind=CHUNKED_REQUEST)
    running = asyncio.create_task(post)
    await gateway.arrived()
    stopping = asyncio.create_task(relay.relay.stop())
    await asyncio.sleep(0.05)
    proceed.set()
    answer = await running
    assert (answer.body, answer.complete) == (b"firstlast", True)
    async with asyncio.timeout(5):
        await stopping


async def test_stop_lets_a_request_that_still_arrives_end(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay()
    reader, writer = await relay.connect()
    writer.write(POST[:-10])
    await asyncio.sleep(0.05)
    stopping = asyncio.create_task(relay.relay.stop())
    await asyncio.sleep(0.05)
    writer.write(POST[-10:])
    async with asyncio.timeout(5):
        assert (await read_message(reader)).status == 200
        await stopping
    writer.close()
    assert len(gateway.requests) == 1


async def test_stop_closes_idle_connections_at_once(relay: Running) -> None:
    fresh, fresh_writer = await relay.connect()
    used, used_writer = await relay.connect()
    used_writer.write(POST)
    async with asyncio.timeout(5):
        assert (await read_message(used)).status == 200
        await relay.relay.stop()
        assert await fresh.read() == b""
        assert await used.read() == b""
    fresh_writer.close()
    used_writer.close()


async def test_stop_does_not_wait_beyond_its_grace(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    gateway.script = say()
    relay = await make_relay(limits={"shutdown_grace_s": 0.2})
    _, writer = await relay.connect()
    writer.write(POST)
    await gateway.arrived()
    async with asyncio.timeout(5):
        await relay.relay.stop()
    writer.close()


async def test_stop_in_a_hurry_does_not_wait(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    gateway.script = say()
    relay = await make_relay(limits={"shutdown_grace_s": 1000, "drain_delay_s": 1000})
    reader, writer = await relay.connect()
    writer.write(POST)
    await gateway.arrived()
    hurry = asyncio.Event()
    stopping = asyncio.create_task(relay.relay.stop(hurry))
    await asyncio.sleep(0.05)
    assert not stopping.done()
    hurry.set()
    async with asyncio.timeout(5):
        await stopping
        # Cut, not ended: half an answer must not look whole.
        assert await reader.read() == b""
    writer.close()


async def test_health_says_draining_while_others_are_still_served(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(limits={"drain_delay_s": 1000})
    assert (await relay.get("/healthz")).body == b"ok\n"
    hurry = asyncio.Event()
    stopping = asyncio.create_task(relay.relay.stop(hurry))
    await asyncio.sleep(0.05)
    health, answer = await relay.get("/healthz"), await relay.post()
    hurry.set()
    async with asyncio.timeout(5):
        await stopping
    assert (health.status, health.body) == (503, b"draining\n")
    assert health.value("Content-Type") == "text/plain"
    assert (answer.status, answer.value("Connection")) == (200, "close")


async def test_stop_twice_and_before_start_is_harmless(
    make_relay: MakeRelay, tmp_path: Path
) -> None:
    relay = await make_relay(listen=f"unix:{tmp_path}/relay.sock")
    await relay.relay.stop()
    await relay.relay.stop()
    assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []
