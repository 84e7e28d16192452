"""The operator's socket: ``GET /metrics`` gets the figures, anything else 404.

A UNIX socket with mode 0600, never a TCP address. Nothing of a request but its first
line is looked at, and nothing of it is kept.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from typing_extensions import override

from curtilage.enclave_server.http.binding import Bound

HEAD_S: Final = 5.0
MAX_HEAD_BYTES: Final = 8192
_LINES: Final = (b"GET /metrics HTTP/1.1", b"GET /metrics HTTP/1.0")
_HEAD: Final = (
    "HTTP/1.1 {status}\r\n"
    "Server: curtilage\r\n"
    "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    "Cache-Control: no-store\r\n"
    "Content-Length: {length}\r\n"
    "Connection: close\r\n\r\n"
)


class CounterSocket:
    """Serves a text to the account that runs the enclave server.

    Args:
        bound: the socket.
        text: returns the figures as they are now.
    """

    def __init__(self, bound: Bound, text: Callable[[], str]) -> None:
        self._bound = bound
        self._text = text
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: another server listens at the path.
        """
        self._listening = await asyncio.get_running_loop().create_unix_server(
            lambda: _Exchange(self._text), sock=self._bound.socket
        )

    def stop(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.close()


class _Exchange(asyncio.Protocol):
    """One connection: one request's head, one answer, closed."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._head = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio gives every server connection a transport that can write.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._deadline = asyncio.get_running_loop().call_later(
            HEAD_S, self._transport.abort
        )

    @override
    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._head += data
        if len(self._head) > MAX_HEAD_BYTES:
            transport.abort()
        elif b"\r\n\r\n" in self._head:
            found = bytes(self._head).split(b"\r\n", 1)[0] in _LINES
            content = self._text().encode() if found else b""
            head = _HEAD.format(
                status="200 OK" if found else "404 Not Found", length=len(content)
            )
            transport.write(head.encode() + content)
            transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
