"""A gateway and its clients in one process: the load for ``benchmarks.relay``.

Raw bytes over asyncio protocols, so that the load costs little itself and keeps up
with nginx. Takes one line of JSON for each piece of work; answers with one when its
connections are open, continues at the next line, and answers again at the end. A
request of ``STREAM`` bytes is answered by a stream, whose pieces are sent for all
streams at each tick; every other one by as many bytes as it had.
"""

import asyncio
import json
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from typing_extensions import override

FRAME: Final = 530
STREAM: Final = 16
HANG_S: Final = 60.0
SETTLE_S: Final = 1.0
_HEAD_END: Final = b"\r\n\r\n"
_END: Final = b"0\r\n\r\n"
_PIECE: Final = f"{FRAME:x}\r\n".encode() + b"f" * FRAME + b"\r\n"
_ANSWER: Final = (
    "HTTP/1.1 200 OK\r\nContent-Type: message/ohttp-chunked-res\r\n"
    "Incremental: ?1\r\nCache-Control: private, no-store\r\n"
)
_STREAM_HEAD: Final = f"{_ANSWER}Transfer-Encoding: chunked\r\n\r\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One piece of work.

    Attributes:
        port: the relay's.
        tls: certificates that the client trusts; empty for plain HTTP.
        connections: clients at once; each asks again when it was answered.
        requests: in all; ignored for streams.
        size: bytes of content, either way; ``STREAM`` for streams.
        frames: pieces of each stream.
        period_s: between two ticks.
        hold: open the connections, and streams of one piece if there are frames;
            say done and keep them until the next work.
    """

    port: int = 0
    tls: str = ""
    connections: int = 16
    requests: int = 0
    size: int = STREAM
    frames: int = 0
    period_s: float = 0.0
    hold: bool = False


class _Reader(asyncio.Protocol, ABC):
    """Cuts what comes into messages of announced length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transport: asyncio.Transport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(_HEAD_END)) >= 0:
            length = _length(bytes(self._buffer[:end]))
            if len(self._buffer) < end + 4 + length:
                return
            del self._buffer[: end + 4 + length]
            self.message(length)

    @abstractmethod
    def message(self, length: int) -> None:
        """Take a whole message."""


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError("the load sends and takes announced lengths only")


class _Gateway(_Reader):
    """Answers at once, or joins the streams."""

    def __init__(self, streams: set[asyncio.Transport]) -> None:
        super().__init__()
        self._streams = streams

    @override
    def message(self, length: int) -> None:
        if length == STREAM:
            self.transport.write(_STREAM_HEAD)
            self._streams.add(self.transport)
            return
        head = f"{_ANSWER}Content-Length: {length}\r\n\r\n".encode()
        self.transport.write(head + bytes(length))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.discard(self.transport)


class _Client(_Reader):
    """Asks, again and again, until there is nothing left to ask."""

    def __init__(self, request: bytes, more: Callable[[], bool]) -> None:
        super().__init__()
        self._request = request
        self._more = more

    def begin(self) -> None:
        """Send the first request."""
        if self._more():
            self.transport.write(self._request)

    @override
    def data_received(self, data: bytes) -> None:
        if not (self._buffer or data.startswith(b"HTTP/1.1 200 ")):
            raise SystemExit("a relay refused or failed under load")
        super().data_received(data)

    @override
    def message(self, length: int) -> None:
        self.begin()


class _StreamClient(_Client):
    """Asks once, and takes a stream to its end."""

    @override
    def data_received(self, data: bytes) -> None:
        if data.endswith(_END):
            self._more()


def _request(size: int) -> bytes:
    head = (
        "POST /demo HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: message/ohttp-chunked-req\r\nIncremental: ?1\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    return head.encode() + bytes(size)


class _Load:
    def __init__(self) -> None:
        self.streams: set[asyncio.Transport] = set()
        self._left = 0
        self._done = asyncio.Event()
        self._held: list[_Client] = []

    async def listen(self) -> int:
        """Open the gateway; return its port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Gateway(self.streams), "127.0.0.1", 0
        )
        return int(server.sockets[0].getsockname()[1])

    async def connect(self, work: Work, client: Callable[[], _Client]) -> list[_Client]:
        """Open connections to the relay, ready to ask."""
        context = ssl.create_default_context(cafile=work.tls) if work.tls else None
        loop = asyncio.get_running_loop()
        clients: list[_Client] = []
        for _ in range(work.connections):
            _, made = await loop.create_connection(
                client, "localhost", work.port, ssl=context
            )
            clients.append(made)
        return clients

    async def ask(self, work: Work) -> None:
        """Send requests and wait for the last answer."""
        self._left, self._done = work.requests + work.connections, asyncio.Event()
        request = _request(work.size)
        clients = await self.connect(work, lambda: _Client(request, self._take))
        await _connected()
        for client in clients:
            client.begin()
        await self._finish(clients)

    async def do(self, work: Work) -> None:
        """Do one piece of work; what an earlier one held is let go first."""
        for client in self._held:
            client.transport.close()
        if self._held:
            self._held = []
            await asyncio.sleep(SETTLE_S)
        if work.hold:
            await self.hold(work)
        elif work.frames:
            await self.stream(work)
        else:
            await self.ask(work)

    async def hold(self, work: Work) -> None:
        """Open connections, and a stream on each if there are frames."""
        if work.frames:
            self._held = await self._open_streams(work)
            for transport in self.streams:
                transport.write(_PIECE)
        else:
            self._held = await self.connect(work, lambda: _Client(b"", self._take))
            await _connected()
        await asyncio.sleep(SETTLE_S)

    async def _open_streams(self, work: Work) -> list[_Client]:
        request = _request(STREAM)
        clients = await self.connect(work, lambda: _StreamClient(request, self._take))
        await _connected()
        for client in clients:
            client.transport.write(request)
        while len(self.streams) < work.connections:  # noqa: ASYNC110 - no event fits
            await asyncio.sleep(0.005)
        return clients

    async def stream(self, work: Work) -> None:
        """Open streams, send all their pieces, wait for the last end."""
        self._left, self._done = work.connections, asyncio.Event()
        clients = await self._open_streams(work)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for tick in range(1, work.frames + 1):
            for transport in self.streams:
                transport.write(_PIECE)
            await asyncio.sleep(max(0.0, start + tick * work.period_s - loop.time()))
        for transport in self.streams:
            transport.write(_END)
        self.streams.clear()
        await self._finish(clients)

    def _take(self) -> bool:
        """Count one answer or one first request; whether there is more to ask."""
        self._left -= 1
        if self._left <= 0:
            self._done.set()
        return self._left >= 0

    async def _finish(self, clients: list[_Client]) -> None:
        async with asyncio.timeout(HANG_S):
            await self._done.wait()
        for client in clients:
            client.transport.close()
        await asyncio.sleep(0)


async def main() -> None:
    """Say the gateway's port, then do each piece of work."""
    load = _Load()
    _say({"port": await load.listen()})
    while line := await asyncio.to_thread(sys.stdin.readline):
        work = Work(**json.loads(line))
        await load.do(work)
        _say({"done": True})


async def _connected() -> None:
    """Report that all connections are open, and wait for the signal to go on."""
    _say({"connected": True})
    await asyncio.to_thread(sys.stdin.readline)


def _say(value: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
