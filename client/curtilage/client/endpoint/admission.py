"""Limits on the endpoint's connections: number, deadlines, and no log.

aiohttp's low-level server with the rules of relay and enclave: a deadline for each
request, a cap on connections, our own error page, no log. Any program of this machine
may connect, served or not, so a program that opens idle connections must not exclude
others: there is a limit for idle ones alone, and when it is reached, the one that has
been silent for longest is closed. It knows no question and no answer.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from typing_extensions import override

from curtilage.client.system.fair_queue import Asker

REQUEST_S: Final = 10.0
"""Deadline for a complete request, head and content, from its first byte; for a new
connection, from its beginning."""
IDLE_S: Final = 75.0
UNREAD_S: Final = 30.0
"""How long a program may leave an answer unread, all pauses together: meanwhile it
blocks the local model."""
LINGER_S: Final = 2.0
MAX_LINE_BYTES: Final = 4096
MAX_FIELD_BYTES: Final = 8190
MAX_FIELDS: Final = 64
MAX_CONNECTIONS: Final = 512
BACKLOG: Final = 64
"""Fewer than may wait: a new connection is read before others are accepted."""
FIELDS: Final = {
    "Cache-Control": "no-store",
    "Server": "curtilage",  # otherwise aiohttp reports its version, and Python's
    "X-Content-Type-Options": "nosniff",
}
INVALID: Final = "invalid_request_error"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def page(message: str, *, code: str, kind: str = INVALID) -> bytes:
    """Return an error in OpenAI's format; the text is a constant of ours."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}).encode()


MALFORMED: Final = page("the request is not well-formed HTTP", code="malformed_http")
LONG_LINE: Final = page(
    f"the request line is longer than {MAX_LINE_BYTES} bytes", code="uri_too_long"
)
LONG_FIELD: Final = page(
    f"a header field is longer than {MAX_FIELD_BYTES} bytes, or there are more than "
    f"{MAX_FIELDS}",
    code="header_too_large",
)
INTERNAL: Final = page("internal error", kind="server_error", code="internal")
CROWDED: Final = page(
    "too many connections are open; try again later",
    kind="rate_limit_error",
    code="rate_limit_exceeded",
)
_CROWDED_ANSWER: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nServer: curtilage\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nRetry-After: 5\r\nContent-Length: %d\r\n\r\n%b"
) % (len(CROWDED), CROWDED)


class Server(web.Server):
    """The endpoint's connections, each with its deadlines.

    Args:
        handler: answers a request.
        most: largest number; half of them may be without a request.
    """

    def __init__(self, handler: Handler, *, most: int = MAX_CONNECTIONS) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._most = most
        self._open: set[Connection] = set()
        # Without a complete request, in the order in which they began to wait.
        self._waiting: dict[Connection, None] = {}

    @override
    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a connection."""
        return Connection(self)

    def enter(self, connection: "Connection") -> bool:
        """Count a connection, and close another if there are too many.

        Returns:
            Whether it is accepted: not if all others have sent a request.
        """
        if len(self._open) >= self._most and not self._waiting:
            return False
        if len(self._open) >= self._most or len(self._waiting) >= self._most // 2:
            # The one that has been silent for longest, else the slowest; never one
            # whose question is being answered.
            silent = (each for each in self._waiting if not each.speaks)
            oldest = next(silent, None) or next(iter(self._waiting))
            self.leave(oldest)
            oldest.force_close()
        self._open.add(connection)
        self._waiting[connection] = None
        return True

    def leave(self, connection: "Connection") -> None:
        """Stop counting a connection; a second call has no effect."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def asked(self, connection: "Connection") -> None:
        """Record that a complete request has arrived."""
        self._waiting.pop(connection, None)

    def waits(self, connection: "Connection") -> None:
        """Record that a connection waits for its next request."""
        if connection in self._open:
            self._waiting[connection] = None


class Connection(web.RequestHandler):
    """One connection of a program on this machine.

    Attributes:
        asker: its account in the fair queue.
        account: the account at the other end, once determined; None inside:
            unknown.
        speaks: whether an incomplete request has arrived.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_S,
            access_log=cast("Any", None),  # none; the type does not allow it
            max_line_size=MAX_LINE_BYTES,
            max_headers=MAX_FIELDS,
            max_field_size=MAX_FIELD_BYTES,
            lingering_time=LINGER_S,
            auto_decompress=False,
        )
        self._server = server
        self._busy = False
        self._request_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._unread_s = UNREAD_S
        self.asker = Asker()
        self.account: tuple[int | None] | None = None
        self.speaks = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the first request's deadline: silent connections are closed too."""
        super().connection_made(transport)
        if self._server.enter(self):
            self._start_request_timer()
        elif self.transport is not None:
            self.transport.write(_CROWDED_ANSWER)
            self.force_close()

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        self._server.leave(self)
        self._stop_request_timer()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Read; the first byte of a further request starts its deadline."""
        if not self._busy:
            self.speaks = True
            if self._request_timer is None:
                self._start_request_timer()
        super().data_received(data)

    @override
    def pause_writing(self) -> None:
        """Record that the program does not read; its remaining time is limited."""
        super().pause_writing()
        if self.transport is not None:
            self._unread_timer = self._loop.call_later(
                self._unread_s, self.transport.abort
            )

    @override
    def resume_writing(self) -> None:
        """Record that it reads again; time already used counts for this answer."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_s = self._unread_timer.when() - self._loop.time()
            self._unread_timer.cancel()
            self._unread_timer = None

    def asked(self) -> None:
        """Record that a complete request has arrived: its deadline is over."""
        self._busy, self.speaks = True, False
        self._unread_s = UNREAD_S
        self._stop_request_timer()
        self._server.asked(self)

    def answered(self) -> None:
        """Record that the connection waits for its next request."""
        self._busy = self.speaks = False
        self._stop_request_timer()
        self._server.waits(self)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer requests that aiohttp refused in our words; its page repeats bytes."""
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            # The program has disconnected; or half an answer was sent, which can only
            # be cut short.
            raise ConnectionResetError from None
        code, body = _refusal_of(exc)
        response = web.Response(
            status=code,
            body=body,
            content_type="application/json",
            headers=FIELDS,
        )
        response.force_close()
        return response

    @override
    def log_exception(self, *args: object, **kw: object) -> None:
        """Write nothing: arguments contain bytes of the program."""

    def _start_request_timer(self) -> None:
        self._request_timer = self._loop.call_later(REQUEST_S, self.force_close)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None


def _refusal_of(failure: BaseException | None) -> tuple[int, bytes]:
    """Return the status and the page for a request that aiohttp refused."""
    match failure:
        # One error for two cases; the limit that was exceeded distinguishes them.
        case LineTooLong(args=(_, limit, *_)):
            of_line = str(limit) == str(MAX_LINE_BYTES)
            return (414, LONG_LINE) if of_line else (431, LONG_FIELD)
        case BadHttpMessage(message="Too many headers received"):
            return 431, LONG_FIELD
        case HttpProcessingError():
            return 400, MALFORMED
        case _:
            return 500, INTERNAL


def affordable_connections() -> int:
    """Return how many connections leave enough descriptors for everything else."""
    with contextlib.suppress(ImportError):
        import resource  # noqa: PLC0415 - not on every system

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return max(2, min(MAX_CONNECTIONS, soft // 2))
    return MAX_CONNECTIONS
