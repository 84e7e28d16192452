"""Passes bytes from one address to another: ``pump.py LISTEN PORT HOST PORT``.

Client and relay accept plain HTTP to their own machine only, and the enclave listens
there; so a hop between two networks needs one at its ends. It adds and reads nothing.
"""

import asyncio
import sys
from contextlib import suppress

CHUNK_BYTES = 65536


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass one direction on until it ends."""
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main() -> None:
    """Serve until it is killed; one line says that it listens."""
    listen, port, host, there = sys.argv[1:]

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, int(there))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    server = await asyncio.start_server(join, listen, int(port))
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
