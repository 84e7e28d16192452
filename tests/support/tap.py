"""Small servers on loopback: one that listens, one that taps a wire."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Tap:
    """What passed one hop, both ways."""

    port: int = 0
    outward: bytearray = field(default_factory=bytearray)
    homeward: bytearray = field(default_factory=bytearray)


@asynccontextmanager
async def listening(connected: Connected) -> AsyncGenerator[int]:
    """Serve connections on a free port; leave nothing open at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def guarded(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await connected(reader, writer)
        finally:
            await _close(writer)
            tasks.discard(task)

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def tapped(host: str, port: int) -> AsyncGenerator[Tap]:
    """Listen on a free port, pass everything to ``host:port``, keep a copy."""
    tap = Tap()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, port)
        try:
            await asyncio.gather(
                _copy(reader, there_writer, tap.outward),
                _copy(there_reader, writer, tap.homeward),
            )
        finally:
            await _close(there_writer)

    async with listening(connected) as tap.port:
        yield tap


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    while data := await reader.read(65536):
        kept += data
        writer.write(data)
        await writer.drain()
    writer.close()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, asyncio.CancelledError):
        await writer.wait_closed()
