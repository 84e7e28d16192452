"""The guest's door: forwards sealed bytes, and receives public files.

Three ports, on vsock, on TCP or on both. The first connects each client with the
server's UNIX socket and reads nothing: the traffic is sealed to the server's key, which
this process does not have. The second receives external files that the server needs and
that are public, each signed by its author: the release's manifest, its proof and
checkpoints, certificates and revocation lists. Nothing here trusts them; the server
verifies them before it serves. The third connects with a socket of the evidence process
that only identifies the processor: the stapler needs that to fetch its certificates.

One file for each connection to the second port: a byte with the name's length, the
name, four bytes (big-endian) with the content's length, the content. The answer is one
byte: 0 stored, 1 refused. Runs as a separate user, with only Python's standard library.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 64 * 1024
MAX_CONNECTIONS: Final = 256
MAX_FILE_BYTES: Final = 256 * 1024
INTAKE_TIMEOUT_S: Final = 30.0
STORED: Final = b"\0"
REFUSED: Final = b"\1"
NAMES: Final = frozenset(
    {
        "release/manifest.json",
        "release/proof.txt",
        "release/checkpoint.txt",
        "release/consistency.txt",
        "endorsements/vek.der",
        "endorsements/ask.der",
        "endorsements/ark.der",
        "endorsements/crl.der",
        "endorsements/collateral.json",
    }
)
"""The files that server and evidence process read; others would only fill the disk."""

_Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Intake:
    """Stores external files, each completely or not at all.

    Args:
        folder: contains the folders ``release`` and ``endorsements``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def take(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Receive one file and answer."""
        answer = REFUSED
        failures = (asyncio.IncompleteReadError, ValueError, OSError)
        with contextlib.suppress(*failures):
            async with asyncio.timeout(INTAKE_TIMEOUT_S):
                name, content = await read_file(reader)
            self.store(name, content)
            answer = STORED
        writer.write(answer)

    def store(self, name: str, content: bytes) -> None:
        """Put a file in its place, replacing an existing one.

        Raises:
            ValueError: no such name.
        """
        path = self._folder / parse_name(name)
        fresh = path.with_name(f".{path.name}")
        with fresh.open("wb") as file:
            file.write(content)
        fresh.chmod(0o644)
        fresh.replace(path)


def parse_name(name: str) -> str:
    """Return a file's place below the intake's folder.

    Raises:
        ValueError: there is no such place.
    """
    if name not in NAMES:
        raise ValueError("no such name")
    return name


async def read_file(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Read one file's name and content, both bounded.

    Raises:
        ValueError: no such name, or more than ``MAX_FILE_BYTES`` announced.
        IncompleteReadError: it was truncated.
    """
    (length,) = await reader.readexactly(1)
    name = (await reader.readexactly(length)).decode("ascii")
    parse_name(name)
    size = int.from_bytes(await reader.readexactly(4))
    if size > MAX_FILE_BYTES:
        raise ValueError("too large")
    return name, await reader.readexactly(size)


class Passage:
    """Connects clients with the server's socket.

    Args:
        server: the UNIX socket.
    """

    def __init__(self, server: Path) -> None:
        self._server = server

    async def join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward both directions until both have ended."""
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._server)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(reader, inner_writer))
                both.create_task(_carry(inner_reader, writer))
        finally:
            inner_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _guarded(handler: _Handler, room: asyncio.Semaphore) -> _Handler:
    """Limit the number of connections, and let none end the process."""

    async def guarded(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # A connection that finds all places taken is refused at once.
        if not room.locked():
            async with room:
                with contextlib.suppress(OSError, ExceptionGroup):
                    await handler(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    return guarded


async def serve(sockets: Sequence[tuple[socket.socket, _Handler]]) -> None:
    """Accept on every socket, for ever."""
    async with contextlib.AsyncExitStack() as open_servers:
        for listener, handler in sockets:
            server = await asyncio.start_server(
                _guarded(handler, asyncio.Semaphore(MAX_CONNECTIONS)), sock=listener
            )
            await open_servers.enter_async_context(server)
        await asyncio.Event().wait()


def listeners(options: argparse.Namespace, port: int) -> list[socket.socket]:
    """Bind one port on every configured address."""
    bound: list[socket.socket] = []
    if options.vsock:
        bound.append(_bind(socket.AF_VSOCK, (socket.VMADDR_CID_ANY, port)))
    if options.tcp:
        bound.append(_bind(socket.AF_INET, (options.tcp, port)))
    return bound


def _bind(family: int, address: tuple[object, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(MAX_CONNECTIONS)
    listener.setblocking(False)
    return listener


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the door; ends only after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vsock", action="store_true", help="listen on vsock")
    parser.add_argument("--tcp", metavar="ADDRESS", help="listen on this IPv4 address")
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--intake-port", type=int, default=8444)
    parser.add_argument("--identify-port", type=int, default=8445)
    parser.add_argument("--server", type=Path, required=True, metavar="SOCKET")
    parser.add_argument("--identify", type=Path, metavar="SOCKET")
    parser.add_argument("--folder", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    doors: list[tuple[int, _Handler]] = [
        (options.port, Passage(options.server).join),
        (options.intake_port, Intake(options.folder).take),
    ]
    if options.identify is not None:
        doors.append((options.identify_port, Passage(options.identify).join))
    sockets = [
        (listener, handler)
        for port, handler in doors
        for listener in listeners(options, port)
    ]
    if not sockets:
        parser.error("neither --vsock nor --tcp")
    asyncio.run(serve(sockets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
