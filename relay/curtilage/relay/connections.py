"""Client connections: aiohttp's low-level server, with the relay's rules.

Every default of aiohttp that would change, keep or disclose something is set here: no
decompression, no log, no header field or error page from aiohttp, deadlines for heads,
contents, readers and idle connections, caps for each client. Answers are written
exactly as ``forward`` builds them; aiohttp parses requests and manages connections.
"""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Final, cast

from aiohttp import StreamReader, web
from typing_extensions import override

from curtilage.relay import forward, refusals
from curtilage.relay.admission import ConnectionSlot, make_admission_control
from curtilage.relay.body import Sink
from curtilage.relay.config import RelayConfig
from curtilage.relay.fair_queue import make_fair_queue
from curtilage.relay.forward import RequestHead
from curtilage.relay.refusals import Refusal, RefusedError
from curtilage.relay.service import CutError, Fields, Service
from curtilage.relay.telemetry import Telemetry, silent_logger

MAX_LINE_BYTES: Final = 2048
"""A relay's path is below 50; the rest is room for a query we ignore."""
MAX_FIELDS: Final = 64
MAX_FIELD_BYTES: Final = 8190
READ_BUFFER_BYTES: Final = 64 * 1024
LINGER_S: Final = 2.0
"""Time for which a refused request's content is read, so that a sender that is still
writing sees the answer instead of a reset."""
FRAMING_BYTES: Final = 16 * 1024
"""Bytes of a request beyond half its content: its head, and its chunk framing."""
FRAMING_COST: Final = 20.0
"""A request with more chunks is charged as several: each chunk costs a call, so that
one-byte chunks would cost the relay far more than their sender."""
FIRST_SERVER_ERROR: Final = 500


class HTTPClock:
    """The current second in HTTP's format: formatted once a second, not per answer."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def date(self) -> str:
        """Return an IMF-fixdate (RFC 9110, section 5.6.7)."""
        now = int(time.time())
        if now != self._second:
            self._second, self._text = now, formatdate(now, usegmt=True)
        return self._text


class _Written(web.StreamResponse):
    """An answer that was written already: aiohttp adds nothing."""

    def __init__(self, *, stays: bool) -> None:
        super().__init__()
        self._stays = stays

    @property
    @override
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._stays

    @override
    async def prepare(self, request: web.BaseRequest) -> None:
        """Add nothing."""

    @override
    async def write_eof(self, data: bytes = b"") -> None:
        """Add nothing."""


class Server(web.Server):
    """aiohttp's low-level server with our connections and caps.

    Args:
        service: answers requests.
        config: limits, and the caps for each client.
        telemetry: where refusals are counted.

    Attributes:
        admission: counts connections.
        queue: gives places at the gateways.
        clock: of the Date in answers.
        draining: every answer is its connection's last.
        quiet: set while no request runs.
    """

    def __init__(
        self,
        service: Service,
        config: RelayConfig,
        *,
        telemetry: Telemetry,
    ) -> None:
        # A client that disconnects cancels its request: nothing is sent to a gateway,
        # and no place is held there, for an answer that no client reads.
        super().__init__(self._serve, handler_cancellation=True)
        self.limits = config.limits
        self.telemetry = telemetry
        self.draining = False
        self.admission = make_admission_control(config)
        self.queue = make_fair_queue(config, self.admission)
        self.clock = HTTPClock()
        self.quiet = asyncio.Event()
        self.kept = _Written(stays=True)
        self.closed = _Written(stays=False)
        self._busy = 0
        self._service = service

    @override
    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a connection."""
        return _Connection(self, asyncio.get_running_loop())

    def protocol_for(self, slot: ConnectionSlot) -> web.RequestHandler:
        """Return the protocol of a connection that was counted before its handshake."""
        return _Connection(self, asyncio.get_running_loop(), slot)

    def close_idle(self) -> bool:
        """Close connections without a request; return whether others remain."""
        # Between two requests either side may close at any time (RFC 9112, section
        # 9.5): to a client this looks like the end of any idle connection.
        for connection in self.connections:
            cast("_Connection", connection).close_if_idle()
        return self._busy > 0

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("_Connection", request.protocol)
        if connection.slot is None:
            # Refused before it could send: a client that is not counted would have no
            # caps.
            raise ConnectionResetError
        caller = _Caller(request, connection, connection.slot)
        self._busy += 1
        self.quiet.clear()
        connection.begin_request()
        try:
            head = RequestHead(
                method=request.method,
                target=request.raw_path,
                fields=forward.index(request.raw_headers),
                # The parser accepts any digits here; 0.9 and 2 do not look like this.
                minor=request.version.minor if request.version.major == 1 else -1,
            )
            # With a Content-Length, framing is only a head; the parser bounds that.
            if b"transfer-encoding" in head.fields:
                connection.limit_framing(request.content)
            await self._service.serve(head, caller)
        except RefusedError as refused:
            self.telemetry.rejected(refused.refusal)
            # The rest of its content is not read, so the start of the next request is
            # unknown: what follows might be a smuggled one.
            caller.stays = False
            fields = refusals.refusal_fields(refused.refusal)
            status = refusals.status_of(refused.refusal)
            content = refusals.refusal_body(refused.refusal)
            await caller.answer(status, fields, content)
        finally:
            # Also if the client disconnected: one that stayed counted would delay a
            # drain.
            connection.end_request()
            self._busy -= 1
            if not self._busy:
                self.quiet.set()
        return self.kept if caller.stays else self.closed


class _Caller:
    """The client of one request, as the interface that ``service`` uses."""

    broken: type[Exception] = web.RequestPayloadError

    def __init__(
        self,
        request: web.BaseRequest,
        connection: "_Connection",
        slot: ConnectionSlot,
    ) -> None:
        self._request = request
        self._connection = connection
        self._slot = slot
        self._admission = connection.server.admission
        self._queue = connection.server.queue
        self.read = request.content.readany
        # RFC 9112, section 9.3: 1.1 is persistent by default. A 1.0 client that asks
        # for keep-alive does not get it: its proxies may not understand it.
        self.stays = (
            request.keep_alive
            and request.version.minor == 1
            and not connection.server.draining
        )

    def may_ask(self) -> bool:
        return self._admission.may_ask(self._slot)

    def begin_upload(self) -> bool:
        return self._admission.begin_upload(self._slot)

    def end_upload(self) -> None:
        self._admission.end_upload(self._slot)

    async def take_place(self) -> None:
        await self._queue.take(self._slot)

    def end_place(self) -> None:
        self._queue.give_back(self._slot)

    def content(self) -> bytes | None:
        content = self._request.content
        # Nearly every request arrives whole, with its head: then no task has to wait.
        if not content.is_eof() or content.exception() is not None:
            return None
        return content.read_nowait()

    async def answer(self, status: int, fields: Fields, content: bytes) -> None:
        head = forward.answer_head(
            status, fields, date=self._connection.date(), close=not self.stays
        )
        # HEAD gets a head only (RFC 9110, section 9.3.2).
        content = b"" if self._request.method == "HEAD" else content
        self._connection.put(head + content)
        await self._connection.drained()

    def begin(self, fields: Fields, *, chunked: bool) -> Sink:
        head = forward.answer_head(
            forward.OK, fields, date=self._connection.date(), close=not self.stays
        )
        return _Outflow(self._connection, head, chunked=chunked)

    @property
    def begun(self) -> bool:
        return self._connection.begun

    def resume_with(self, resume: Callable[[], None]) -> None:
        self._connection.on_room = resume

    async def end(self, *, chunked: bool) -> None:
        if chunked:
            self._connection.put(b"0\r\n\r\n")
        await self._connection.drained()


class _Outflow:
    """Sends the pieces of one answer to the client, each in one write."""

    def __init__(
        self, connection: "_Connection", head: bytes, *, chunked: bool
    ) -> None:
        self._connection = connection
        self._head = head
        self._chunked = chunked

    @property
    def full(self) -> bool:
        return self._connection.writing_paused

    def write(self, piece: bytes) -> None:
        # One write for each piece, with its head and framing: two would be two segments
        # and two TLS records, at twice the cost.
        if self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        if self._head:
            piece, self._head = self._head + piece, b""
        self._connection.put(piece)

    def flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._connection.put(head)


class _Connection(web.RequestHandler):
    """One client connection: bounded head, bounded wait, our own error page."""

    def __init__(
        self,
        server: Server,
        loop: asyncio.AbstractEventLoop,
        slot: ConnectionSlot | None = None,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=server.limits.idle_timeout_s,
            # aiohttp's own messages, in a log or an error page, quote what a peer sent.
            logger=silent_logger(),
            access_log=cast("Any", None),  # None disables it; the type lacks it
            debug=False,
            max_line_size=MAX_LINE_BYTES,
            max_headers=MAX_FIELDS,
            max_field_size=MAX_FIELD_BYTES,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            # ``forward`` refuses any content coding; decoded, the size is unbounded.
            auto_decompress=False,
        )
        self.server = server
        self.on_room: Callable[[], None] | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None
        self.slot = slot
        self._received = 0
        self._measured: StreamReader | None = None
        self._discarding = False
        self._busy = False
        self.begun = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection, or refuse it when the limit is reached.

        The deadline of the first head begins here: a silent client is dropped too.
        """
        super().connection_made(transport)
        # Slowloris: without this, a client that sends no head holds a connection for
        # ever.
        self._head_timer = self._loop.call_later(
            self.server.limits.header_timeout_s, self.force_close
        )
        if self.slot is None:
            # A UNIX socket has no peer address; all clients count as one.
            peer = self.peername
            address = str(peer[0]) if isinstance(peer, tuple) else ""
            try:
                self.slot = self.server.admission.admit(address)
            except RefusedError as refused:
                self.server.telemetry.rejected(refused.refusal)
                # Without TLS an answer is cheap; with TLS, ``tls`` has refused it
                # already.
                self.put(_refusal_bytes(refused.refusal, date=self.date()))
                self.force_close()

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection."""
        if self.slot is not None:
            self.server.admission.release(self.slot)
        # A timer that continued would keep the connection, and what was read, alive.
        self._stop_head_timer()
        self._stop_read_timer()
        self._make_room()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Read; the first byte of a further request starts the deadline of its head."""
        # From its first byte, not from the last answer: between two requests a client
        # may be idle for longer than a head may take.
        if not self._busy and self._head_timer is None:
            self._head_timer = self._loop.call_later(
                self.server.limits.header_timeout_s, self.force_close
            )
        if self._discarding:
            # Read, so that the answer is not lost to a reset, and discarded unparsed.
            return
        self._received += len(data)
        super().data_received(data)
        if self._measured is not None and self._has_excess_framing(self._measured):
            self._discarding = True
            self._measured.set_exception(web.RequestPayloadError())

    @override
    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume reading if it was paused; aiohttp calls this after every read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @override
    def pause_writing(self) -> None:
        """Pause the gateway; a client that does not read has this much time."""
        super().pause_writing()
        # Slow reading, the reverse of Slowloris: it would hold a place at the gateway
        # for as long as the client likes.
        self._start_read_timer()

    @override
    def resume_writing(self) -> None:
        """Resume the gateway."""
        super().resume_writing()
        self._stop_read_timer()
        self._make_room()
        if self.on_room is not None:
            self.on_room()

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer with our own text what the parser refused, or what failed here."""
        # A broken-off answer must be recognisable: the connection ends without the last
        # chunk (RFC 9112, section 8), and without a second answer after half of one.
        if isinstance(exc, CutError | ConnectionError):
            raise ConnectionResetError from None
        refusal = Refusal.MALFORMED
        if status >= FIRST_SERVER_ERROR:
            refusal = Refusal.INTERNAL
        # Neither the exception nor aiohttp's page is sent: both quote the request.
        self.server.telemetry.rejected(refusal)
        if self.begun:
            raise ConnectionResetError from None
        self.put(_refusal_bytes(refusal, date=self.date()))
        return self.server.closed

    def begin_request(self) -> None:
        """Note that a head is complete: its deadline is over."""
        self._busy = True
        if self._measured is not None:
            self._received, self._measured = 0, None
        self.begun = False
        self._stop_head_timer()
        if not self.writing_paused:
            self._stop_read_timer()

    def end_request(self) -> None:
        """Note that the connection waits for its next request."""
        self._busy = False
        # The rest of its content still arrives, and counts for it until the next head.
        if self._measured is None or self._measured.is_eof():
            self._received, self._measured = 0, None
        self.on_room = None
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size():
            # Buffered data is flushed by itself; a client that does not read it would
            # hold the connection, and our memory, for ever.
            self._start_read_timer()

    def close_if_idle(self) -> None:
        """Close the connection unless a request runs on it."""
        if not self._busy:
            self.close()

    def limit_framing(self, content: StreamReader) -> None:
        """Compare a request's bytes with those of its content from now on.

        Raises:
            RefusedError: there is far more framing than content.
        """
        # At once: a short request may have arrived whole with its head.
        if self._has_excess_framing(content):
            self._discarding = True
            raise RefusedError(Refusal.MALFORMED)
        self._measured = content

    def _has_excess_framing(self, content: StreamReader) -> bool:
        # What the parser buffers while it is paused is not counted yet.
        if self._reading_paused or self._buffer_paused:
            return False
        framing = self._received - content.total_bytes
        # Chunks of a dozen bytes, with five around each, stay below; one-byte chunks do
        # not.
        if framing <= FRAMING_BYTES + content.total_bytes // 2:
            return False
        if self.slot is not None:
            self.server.admission.charge(self.slot, FRAMING_COST)
        return True

    def put(self, data: bytes) -> None:
        """Write, at once.

        Raises:
            ConnectionError: the client is gone.
        """
        # asyncio would accept it, drop it and log a warning.
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError
        self.begun = True
        self.transport.write(data)

    async def drained(self) -> None:
        """Wait until the client reads; one that does not is dropped."""
        # Again after each wake-up: another waiter may have filled the buffer at once.
        while self.writing_paused and self.transport is not None:
            self._room = self._loop.create_future()
            await self._room

    def date(self) -> str:
        """Return the current second in HTTP's format."""
        return self.server.clock.date()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_read_timer(self) -> None:
        self._stop_read_timer()
        if self.transport is not None:
            self._read_timer = self._loop.call_later(
                self.server.limits.write_timeout_s, _give_up, self.transport
            )

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


def _give_up(transport: asyncio.Transport) -> None:
    # Not close: that would wait for the very bytes that are not read.
    if transport.get_write_buffer_size():
        transport.abort()


def _refusal_bytes(refusal: Refusal, *, date: str) -> bytes:
    fields = refusals.refusal_fields(refusal)
    status = refusals.status_of(refusal)
    head = forward.answer_head(status, fields, date=date, close=True)
    return head + refusals.refusal_body(refusal)
