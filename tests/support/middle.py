"""A party on the line: forwards bytes, records them, and cuts on request."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from support.tap import listening


@dataclass(slots=True)
class Middle:
    """One hop, as seen by a party on it.

    ``address`` is where to connect; ``outward`` and ``homeward`` are the bytes
    that passed.
    """

    address: str = ""
    outward: bytearray = field(default_factory=bytearray)
    homeward: bytearray = field(default_factory=bytearray)
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    def cut(self) -> None:
        """Close every connection at once, both ways, without a last byte."""
        for writer in self._open:
            writer.transport.abort()

    async def pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kept: bytearray,
    ) -> None:
        self._open.add(writer)
        try:
            while data := await reader.read(65536):
                kept += data
                writer.write(data)
                await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()


@asynccontextmanager
async def middle(there: str) -> AsyncGenerator[Middle]:
    """Stand on the line to ``host:port``."""
    host, _, port = there.rpartition(":")
    man = Middle()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(
            man.pass_on(reader, far_writer, man.outward),
            man.pass_on(far_reader, writer, man.homeward),
        )

    async with listening(connected) as own:
        man.address = f"127.0.0.1:{own}"
        yield man
