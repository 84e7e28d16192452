"""Records the traffic of one hop: time, connection and direction."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

from support.tap import listening


@dataclass(frozen=True, slots=True)
class Seen:
    """Bytes that arrived together, on one connection."""

    at_s: float
    connection: int
    outward: bool
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """What passed on one connection, each way."""

    outward: bytes = field(repr=False)
    homeward: bytes = field(repr=False)


@dataclass
class Wiretap:
    """Everything seen on one hop so far.

    Attributes:
        port: where to connect instead.
        seen: in order of arrival.
        connections: how many there were.
        alive: how many of them are open.
    """

    port: int = 0
    seen: list[Seen] = field(default_factory=list[Seen])
    connections: int = 0
    alive: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def since(self, mark: int) -> list[Stream]:
        """Return what passed since ``len(seen)`` was ``mark``, by connection."""
        later = self.seen[mark:]
        numbers = sorted({seen.connection for seen in later})
        return [
            Stream(_joined(later, number, True), _joined(later, number, False))
            for number in numbers
        ]


def _joined(seen: list[Seen], connection: int, outward: bool) -> bytes:
    return b"".join(
        one.data
        for one in seen
        if one.connection == connection and one.outward is outward
    )


@asynccontextmanager
async def wiretapped(there: str) -> AsyncGenerator[Wiretap]:
    """Listen on a free port and pass everything to ``there``, as it comes."""
    host, _, port = there.rpartition(":")
    tap = Wiretap()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        number = tap.connections
        tap.connections += 1
        tap.alive += 1
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        for one in (writer, there_writer):
            _send_at_once(one)
        try:
            await asyncio.gather(
                _copy(tap, number, reader, there_writer, outward=True),
                _copy(tap, number, there_reader, writer, outward=False),
            )
        finally:
            there_writer.close()
            tap.alive -= 1

    async with listening(connected) as tap.port:
        yield tap


def _send_at_once(writer: asyncio.StreamWriter) -> None:
    # What came apart must go on apart.
    socket_of: socket.socket = writer.get_extra_info("socket")
    socket_of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _copy(
    tap: Wiretap,
    number: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    outward: bool,
) -> None:
    while data := await reader.read(65536):
        tap.seen.append(Seen(monotonic(), number, outward, data))
        writer.write(data)
        await writer.drain()
    writer.close()
