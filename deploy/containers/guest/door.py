"""Ends TLS in front of the enclave's UNIX socket, in a container of its own.

The enclave's container has no network. Relays on other machines connect to this
program, whose container has one; it passes the bytes on and reads nothing: they are
sealed to the enclave's key, which it does not have. It learns sizes and times, as the
machine's operator does. Runs with Python's standard library alone.
"""

import argparse
import asyncio
import contextlib
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 64 * 1024
MAX_CONNECTIONS: Final = 256
HANDSHAKE_S: Final = 10.0
CLOSING_S: Final = 10.0
EXIT_OK: Final = 0
EXIT_CONFIG: Final = 2


class Door:
    """Connects each client with the server's socket.

    Args:
        server: the UNIX socket.
        most: connections at the same time; the next one is closed at once.
    """

    def __init__(self, server: Path, *, most: int = MAX_CONNECTIONS) -> None:
        self._server = server
        self._room = asyncio.Semaphore(most)

    async def join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass both directions on until one of them ends; the other ends with it."""
        with contextlib.suppress(OSError):
            if not self._room.locked():
                async with self._room:
                    await self._join(reader, writer)
        await _closed(writer)

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._server)
        directions = [
            asyncio.create_task(_carry(reader, inner_writer)),
            asyncio.create_task(_carry(inner_reader, writer)),
        ]
        try:
            # TLS has no half-closed connections: a relay would send its next request
            # into one that the server has closed.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in directions:
                task.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            await _closed(inner_writer)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection once what was written to it is sent, or the time is over."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(CLOSING_S):
            await writer.wait_closed()


def context_of(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the settings of TLS: 1.3, without tickets that link connections.

    Raises:
        OSError: a file cannot be read, or is not a certificate or its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    # An encrypted key gets an empty password: there is no prompt.
    context.load_cert_chain(certificate, key, password=lambda: b"")
    return context


async def serve(
    listener: socket.socket, door: Door, context: ssl.SSLContext, stop: asyncio.Event
) -> None:
    """Accept on a socket until ``stop``."""
    server = await asyncio.start_server(
        door.join, sock=listener, ssl=context, ssl_handshake_timeout=HANDSHAKE_S
    )
    try:
        await stop.wait()
    finally:
        server.close()


async def _until_signalled(
    listener: socket.socket, door: Door, context: ssl.SSLContext
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(listener, door, context, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the door until it is stopped; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default="0.0.0.0", metavar="ADDRESS")  # noqa: S104
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--server", type=Path, required=True, metavar="SOCKET")
    parser.add_argument("--certificate", type=Path, required=True, metavar="PEM")
    parser.add_argument("--key", type=Path, required=True, metavar="PEM")
    options = parser.parse_args(arguments)
    try:
        context = context_of(options.certificate, options.key)
        listener = socket.create_server((options.listen, options.port))
    except OSError as error:
        sys.stderr.write(f"door: {error.strerror or type(error).__name__}\n")
        return EXIT_CONFIG
    asyncio.run(_until_signalled(listener, Door(options.server), context))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
