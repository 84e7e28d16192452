"""Both directions as they come: nothing waits here, and nothing piles up here."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from support.relay_parts import (
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
)

HEAD = (
    f"HTTP/1.1 200 OK\r\nContent-Type: {CHUNKED_ANSWER}\r\nIncremental: ?1\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
).encode()
FIELDS = (f"Content-Type: {CHUNKED_REQUEST}", "Incremental: ?1")
CHUNKED = raw_request("POST", "/demo", (*FIELDS, "Transfer-Encoding: chunked"))
STALL_S = 0.3


class OpenGateway:
    """A gateway whose connection the test drives by itself."""

    def __init__(self) -> None:
        self.port = 0
        self._accepted: asyncio.Queue[
            tuple[asyncio.StreamReader, asyncio.StreamWriter]
        ] = asyncio.Queue()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._accepted.put((reader, writer))

    @property
    def waiting(self) -> int:
        """Connections that were not accepted."""
        return self._accepted.qsize()

    async def accept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(5):
            return await self._accepted.get()


@pytest.fixture
async def open_gateway() -> AsyncIterator[OpenGateway]:
    gateway = OpenGateway()
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    gateway.port = server.sockets[0].getsockname()[1]
    yield gateway
    server.close()


@pytest.fixture
async def streaming(make_relay: MakeRelay, open_gateway: OpenGateway) -> Running:
    return await make_relay(upstream=f"http://127.0.0.1:{open_gateway.port}")


async def test_a_request_goes_on_piece_by_piece(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    reader, writer = await streaming.connect()
    writer.write(CHUNKED + b"3\r\nabc\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        head = Message(head=await there.readuntil(b"\r\n\r\n"))
        assert await there.readexactly(8) == b"3\r\nabc\r\n"
        writer.write(b"2\r\nde\r\n")
        assert await there.readexactly(7) == b"2\r\nde\r\n"
        writer.write(b"0\r\nX-Trailer: canary\r\n\r\n")
        assert await there.readexactly(5) == b"0\r\n\r\n"
        back.write(raw_answer(b"done", kind=CHUNKED_ANSWER))
        answer = await read_message(reader)
    writer.close()
    back.close()
    assert head.names == ["Host", "Content-Type", "Transfer-Encoding", "Incremental"]
    assert (answer.status, answer.body) == (200, b"done")


async def test_an_announced_length_is_kept_while_pieces_go_on(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    reader, writer = await streaming.connect()
    writer.write(raw_request("POST", "/demo", (*FIELDS, "Content-Length: 6")) + b"abc")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        head = Message(head=await there.readuntil(b"\r\n\r\n"))
        assert await there.readexactly(3) == b"abc"
        writer.write(b"def")
        assert await there.readexactly(3) == b"def"
        back.write(raw_answer(kind=CHUNKED_ANSWER))
        assert (await read_message(reader)).status == 200
    writer.close()
    back.close()
    assert head.value("Content-Length") == "6"


async def test_a_request_without_the_field_waits_to_be_whole(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    reader, writer = await streaming.connect()
    head = raw_request("POST", "/demo", (*FIELDS[:1], "Transfer-Encoding: chunked"))
    writer.write(head + b"3\r\nabc\r\n")
    await asyncio.sleep(0.1)
    assert open_gateway.waiting == 0
    writer.write(b"2\r\nde\r\n0\r\n\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        seen = await read_message(there)
        back.write(raw_answer())
        assert (await read_message(reader)).status == 200
    writer.close()
    back.close()
    assert (seen.body, seen.value("Content-Length")) == (b"abcde", "5")


async def test_an_answer_may_begin_before_the_request_ends(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    reader, writer = await streaming.connect()
    writer.write(CHUNKED + b"3\r\nabc\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        await there.readuntil(b"abc\r\n")
        back.write(HEAD + b"5\r\nfirst\r\n")
        await reader.readuntil(b"5\r\nfirst\r\n")
        writer.write(b"2\r\nde\r\n0\r\n\r\n")
        assert await there.readexactly(12) == b"2\r\nde\r\n0\r\n\r\n"
        back.write(b"4\r\nlast\r\n0\r\n\r\n")
        assert await reader.readexactly(14) == b"4\r\nlast\r\n0\r\n\r\n"
    writer.close()
    back.close()


async def test_an_early_refusal_of_the_gateway_reaches_the_client(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    reader, writer = await streaming.connect()
    writer.write(CHUNKED + b"3\r\nabc\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        await there.readuntil(b"abc\r\n")
        back.write(raw_answer(b"", status="413 No", kind=None))
        assert (await read_message(reader)).status == 413
        assert await there.read() == b""
    writer.close()
    back.close()


@pytest.mark.parametrize(
    ("ending", "status"), [("broken", 400), ("too_large", 413), ("slow", 408)]
)
async def test_a_request_that_goes_wrong_never_looks_whole(
    make_relay: MakeRelay, open_gateway: OpenGateway, ending: str, status: int
) -> None:
    limits = {"max_request_bytes": 1000, "body_timeout_s": 1.0}
    relay = await make_relay(
        upstream=f"http://127.0.0.1:{open_gateway.port}", limits=limits
    )
    reader, writer = await relay.connect()
    writer.write(CHUNKED + b"3\r\nabc\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        await there.readuntil(b"abc\r\n")
        if ending == "broken":
            writer.write(b"zz\r\n")
        elif ending == "too_large":
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n")
        answer = await read_message(reader)
        with contextlib.suppress(ConnectionError):
            rest = await there.read()
            assert b"0\r\n\r\n" not in rest
    writer.close()
    back.close()
    assert answer.status in {status, 408}  # aiohttp may report "broken" at the deadline


async def test_a_request_that_goes_wrong_cuts_an_answer_that_has_begun(
    make_relay: MakeRelay, open_gateway: OpenGateway
) -> None:
    relay = await make_relay(
        upstream=f"http://127.0.0.1:{open_gateway.port}",
        limits={"max_request_bytes": 1000},
    )
    reader, writer = await relay.connect()
    writer.write(CHUNKED + b"3\r\nabc\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        await there.readuntil(b"abc\r\n")
        back.write(HEAD + b"5\r\nfirst\r\n")
        await reader.readuntil(b"first\r\n")
        writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n")
        assert await reader.read() == b""
        with contextlib.suppress(ConnectionError):
            assert await there.read() == b""
    writer.close()
    back.close()


async def test_a_client_that_leaves_while_it_sends_cuts_the_request(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    _, writer = await streaming.connect()
    writer.write(CHUNKED + b"3\r\nabc\r\n")
    there, back = await open_gateway.accept()
    async with asyncio.timeout(5):
        await there.readuntil(b"abc\r\n")
        writer.close()
        with contextlib.suppress(ConnectionError):
            assert await there.read() == b""
    back.close()


async def test_each_piece_goes_back_in_a_write_of_its_own(
    streaming: Running, open_gateway: OpenGateway
) -> None:
    reader, writer = await streaming.connect()
    writer.write(raw_request("POST", "/demo", FIELDS, SEALED))
    there, back = await open_gateway.accept()
    frame = bytes(530)
    async with asyncio.timeout(5):
        await read_message(there)
        back.write(HEAD)
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(20):
            back.write(b"212\r\n" + frame + b"\r\n")
            # One chunk for one chunk: it is here before the next is sent.
            assert await reader.readexactly(537) == b"212\r\n" + frame + b"\r\n"
        back.write(b"0\r\n\r\n")
        assert await reader.readexactly(5) == b"0\r\n\r\n"
    writer.close()
    back.close()


async def connect_slowly(relay: Running) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", relay.port))
    return client


async def write_until_stuck(writer: asyncio.StreamWriter, block: bytes) -> int:
    """Write until nothing goes any more for a while; return how much went."""
    written = 0
    with contextlib.suppress(TimeoutError):
        while written < 64 * 1024 * 1024:
            writer.write(block)
            async with asyncio.timeout(STALL_S):
                await writer.drain()
            written += len(block)
    return written


async def test_a_client_that_does_not_read_stops_the_gateway(
    make_relay: MakeRelay, open_gateway: OpenGateway
) -> None:
    relay = await make_relay(
        upstream=f"http://127.0.0.1:{open_gateway.port}",
        limits={"max_answer_bytes": 1 << 30},
    )
    client = await connect_slowly(relay)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, raw_request("POST", "/demo", FIELDS, SEALED))
    there, back = await open_gateway.accept()
    await read_message(there)
    back.write(HEAD)
    block = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    written = await write_until_stuck(back, block)
    # Whatever the kernel's buffers hold, and 100 KB of ours; never what was left.
    assert written < 32 * 1024 * 1024
    sent = await asyncio.to_thread(count_held, relay)
    assert sent < 256 * 1024
    # It reads on, and so everything goes on.
    received = 0
    async with asyncio.timeout(20):
        while received < written:
            received += len(await loop.sock_recv(client, 1 << 20))
    client.close()
    back.close()


def count_held(relay: Running) -> int:
    """Return how many bytes the relay itself holds for its clients."""
    server = relay.relay._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    held = 0
    for connection in server.connections:
        assert connection.transport is not None
        held += connection.transport.get_write_buffer_size()
    return held


async def test_a_gateway_that_does_not_read_stops_the_client(
    make_relay: MakeRelay, open_gateway: OpenGateway
) -> None:
    relay = await make_relay(
        upstream=f"http://127.0.0.1:{open_gateway.port}",
        limits={"max_request_bytes": 1 << 30},
    )
    _, writer = await relay.connect()
    writer.write(CHUNKED)
    writer.write(b"1\r\nx\r\n")
    _, back = await open_gateway.accept()
    block = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    written = await write_until_stuck(writer, block)
    assert written < 32 * 1024 * 1024
    writer.transport.abort()
    back.transport.abort()


async def test_a_client_that_never_reads_is_dropped(
    make_relay: MakeRelay, open_gateway: OpenGateway
) -> None:
    relay = await make_relay(
        upstream=f"http://127.0.0.1:{open_gateway.port}",
        limits={"write_timeout_s": 0.3, "max_answer_bytes": 1 << 30},
    )
    client = await connect_slowly(relay)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, raw_request("POST", "/demo", FIELDS, SEALED))
    there, back = await open_gateway.accept()
    await read_message(there)
    back.write(HEAD)
    block = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while True:
                back.write(block)
                await back.drain()
    client.close()
    back.close()


async def test_a_whole_answer_without_a_reader_is_dropped(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(raw_answer(b"x" * (7 << 20)))
        await writer.drain()

    gateway.script = script
    relay = await make_relay(limits={"write_timeout_s": 0.3})
    client = await connect_slowly(relay)
    loop = asyncio.get_running_loop()
    post = raw_request("POST", "/demo", FIELDS[:1], SEALED)
    await loop.sock_sendall(client, post)
    await gateway.arrived()
    server = relay.relay._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    async with asyncio.timeout(20):
        while server.connections:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)
    client.close()


async def test_hundreds_of_streams_end_whole(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(HEAD)
        for _number in range(5):
            writer.write(b"5\r\npiece\r\n")
            await asyncio.sleep(0.001)
        writer.write(b"0\r\n\r\n")

    gateway.script = script
    relay = await make_relay(limits={"max_upstream": 200})
    posts = [
        relay.post("/demo", "Incremental: ?1", kind=CHUNKED_REQUEST) for _ in range(150)
    ]
    answers = await asyncio.gather(*posts)
    assert {answer.body for answer in answers} == {b"piece" * 5}
    assert all(answer.complete for answer in answers)
