"""The enclave's HTTP server, on aiohttp's low-level one.

Every default that leaks or waits is changed (decompression, access log, error pages,
field values, deadlines, cancellation). It accepts and answers; it never connects
anywhere. ``ohttp`` decides about the answers; this module sends them.
"""

import asyncio
import json
import secrets
import ssl  # noqa: TID251 - a door
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from typing_extensions import override

from curtilage.enclave_server.answer.run import AnswerRun
from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.http.binding import Bound
from curtilage.enclave_server.http.context import RequestContext
from curtilage.enclave_server.ohttp.gateway import (
    BAD_REQUEST,
    EXPECTATION_FAILED,
    INTERNAL,
    NOT_FOUND,
    REQUEST_TIMEOUT,
    TOO_LARGE,
    UNAVAILABLE,
    UNDECAPSULATED,
    UNKNOWN_KEY,
    UNSUPPORTED_TYPE,
    Form,
    OuterAnswer,
    OuterError,
    form_of,
    method_not_allowed,
    open_exchange,
)
from curtilage.enclave_server.ohttp.inner_requests import CoverRoom
from curtilage.enclave_server.ohttp.keys import Published
from curtilage.enclave_server.ohttp.openai_answers import AnswerHead
from curtilage.enclave_server.ohttp.sealing import PaddedSealer
from curtilage.enclave_server.telemetry import Event, Reason, silent_logger
from curtilage.wire.media import (
    BUNDLE_PATH,
    EVIDENCE_BUNDLE,
    GATEWAY_PATH,
    KEYS_PATH,
    OHTTP_KEYS,
)

SERVER_NAME: Final = "curtilage"
HEALTH_PATH: Final = "/healthz"
PUBLIC_CACHE: Final = "public, max-age=300"
"""Fixed: an age that differed between clients would mark them."""
LINGER_S: Final = 2.0
"""Time for which a refused body is read and discarded, so its sender can read the
answer."""
MAX_HEAD_LINE_BYTES: Final = 4096
MAX_HEAD_FIELDS: Final = 64
ANY_METHODS: Final = ("GET", "POST")
MAX_UNSENT_BYTES: Final = 8192
"""Buffer of the transport for a slow reader: some frames. Beyond that the answer
waits, and the model with it."""

_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class OverflowProtocol(asyncio.Protocol):
    """Answers a connection beyond the cap, without reading it."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse and close."""
        head = (
            f"HTTP/1.1 {UNAVAILABLE.status} Service Unavailable\r\n"
            f"Server: {SERVER_NAME}\r\nConnection: close\r\n"
            f"Content-Type: {UNAVAILABLE.content_type}\r\n"
            f"Content-Length: {len(UNAVAILABLE.content)}\r\n\r\n"
        )
        # asyncio gives every server connection a transport that can write.
        writable = cast("asyncio.WriteTransport", transport)
        writable.write(head.encode() + UNAVAILABLE.content)
        writable.close()


class _Connection(web.RequestHandler):
    """One connection: constant error pages, a silent log, a head deadline."""

    __slots__ = ("_busy", "_count", "_drained", "_head_s", "_head_timer")

    def __init__(
        self, manager: web.Server, *, limits: Limits, count: Callable[[Event], None]
    ) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_s,
            logger=silent_logger(),
            access_log=silent_logger(),
            max_line_size=MAX_HEAD_LINE_BYTES,
            max_field_size=MAX_HEAD_LINE_BYTES,
            max_headers=MAX_HEAD_FIELDS,
            lingering_time=LINGER_S,
            auto_decompress=False,
        )
        self._head_s = limits.header_s
        self._head_timer: asyncio.TimerHandle | None = None
        self._count = count
        self._busy = False
        self._drained = asyncio.Event()
        self._drained.set()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the first head's deadline at once: silent peers are dropped too."""
        super().connection_made(transport)
        # asyncio hands every server connection a transport that can write.
        writable = cast("asyncio.WriteTransport", transport)
        writable.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self._start_head_timer()

    @override
    def pause_writing(self) -> None:
        """Record that the peer reads more slowly than we write."""
        super().pause_writing()
        self._drained.clear()

    @override
    def resume_writing(self) -> None:
        """Record that the peer has caught up."""
        super().resume_writing()
        self._drained.set()

    async def drained(self) -> None:
        """Wait until little is unsent; the library itself waits for 64 KiB."""
        await self._drained.wait()

    @override
    def data_received(self, data: bytes) -> None:
        """Read; the first byte of a further request starts its head's deadline."""
        if not self._busy and self._head_timer is None:
            self._start_head_timer()
        super().data_received(data)

    def begin_request(self) -> None:
        """Record that a head is complete: its deadline is over."""
        self._busy = True
        self._stop_head_timer()

    def end_request(self) -> None:
        """Record that the connection waits for its next request."""
        self._busy = False

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        self._drained.set()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_timer = loop.call_later(self._head_s, self.force_close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp refused; its own page echoes the bytes."""
        if isinstance(exc, ConnectionError):
            # The peer has disconnected, or was dropped for not reading.
            raise exc
        malformed = isinstance(exc, HttpProcessingError)
        self._count(Event.MALFORMED_HTTP if malformed else Event.INTERNAL_ERROR)
        if request.writer.output_size > 0:
            # Half an answer was sent; it must not look complete, so it is cut off.
            raise ConnectionError
        response = _respond(BAD_REQUEST if malformed else INTERNAL)
        response.force_close()
        return response

    @override
    def log_exception(self, *args: object, **kw: object) -> None:
        """Write nothing: arguments hold the peer's bytes."""


class EnclaveServer:
    """The server: ``start``, then requests, then ``stop``."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._covers = CoverRoom(context.limits.max_connections)
        self._listening: asyncio.Server | None = None
        self._connections: web.Server | None = None
        self._routes: Mapping[str, Mapping[str, _Handler]] = {
            GATEWAY_PATH: {"GET": self._keys, "POST": self._gateway},
            KEYS_PATH: {"GET": self._keys},
            BUNDLE_PATH: {"GET": self._bundle},
            HEALTH_PATH: {"GET": self._health},
        }

    async def start(self, bound: Bound, tls: ssl.SSLContext | None = None) -> str:
        """Listen; return the address in the form of the ready line.

        Args:
            bound: where.
            tls: for a TCP address.

        Raises:
            OSError: another server listens at the address.
        """
        self._connections = web.Server(self._handle, handler_cancellation=True)
        loop = asyncio.get_running_loop()
        if bound.path is not None:
            self._listening = await loop.create_unix_server(
                self._protocol, sock=bound.socket
            )
            return bound.address
        self._listening = await loop.create_server(
            self._protocol,
            sock=bound.socket,
            ssl=tls,
            # A handshake counts against the deadline of a head.
            ssl_handshake_timeout=(
                None if tls is None else self._context.limits.header_s
            ),
        )
        return bound.address

    async def stop(self) -> None:
        """Stop accepting, give running answers their time, close."""
        if self._listening is None or self._connections is None:
            return
        self._listening.close()
        self._connections.pre_shutdown()
        # To the library, no time means for ever.
        await self._connections.shutdown(self._context.limits.shutdown_s or 0.001)

    def _protocol(self) -> asyncio.BaseProtocol:
        server, limits = self._connections, self._context.limits
        if server is None or len(server.connections) >= limits.max_connections:
            self._count(Event.OUTER_REFUSED)
            return OverflowProtocol()
        return _Connection(server, limits=limits, count=self._count)

    def _count(self, event: Event) -> None:
        self._context.counters.count(event)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("_Connection", request.protocol)
        connection.begin_request()
        try:
            return await self._route(request)
        except OuterError as error:
            event = Event.OUTER_REFUSED
            if error.answer is UNKNOWN_KEY:
                event = Event.KEY_UNKNOWN
            elif error.answer is UNDECAPSULATED:
                event = Event.UNOPENABLE
            self._count(event)
            return _respond(error.answer)
        finally:
            connection.end_request()
            # Not here, while frames of the exchange still exist.
            asyncio.get_running_loop().call_soon(self._context.sweep)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        # RFC 9110, section 10.1.1: 417. aiohttp would send 100 by itself, before we
        # know whether the path is one of ours.
        if "Expect" in request.headers:
            raise OuterError(EXPECTATION_FAILED)
        if request.method not in ANY_METHODS:
            # CONNECT and the like have no path to look up.
            raise OuterError(method_not_allowed(", ".join(ANY_METHODS)))
        url = request.rel_url
        # As sent, undecoded, and without a query: two readings of one path are how
        # filters in front are bypassed.
        methods = self._routes.get(url.raw_path)
        if methods is None or url.raw_query_string:
            raise OuterError(NOT_FOUND)
        handler = methods.get(request.method)
        if handler is None:
            raise OuterError(method_not_allowed(", ".join(methods)))
        return await handler(request)

    def _published(self) -> Published:
        published = self._context.bundles.published(self._context.clock())
        if published is None:
            raise OuterError(UNAVAILABLE)
        return published

    async def _keys(self, _request: web.BaseRequest) -> web.StreamResponse:
        return _public(self._published().key_configs, OHTTP_KEYS)

    async def _bundle(self, _request: web.BaseRequest) -> web.StreamResponse:
        return _public(self._published().bundle, EVIDENCE_BUNDLE)

    async def _health(self, _request: web.BaseRequest) -> web.StreamResponse:
        body: dict[str, object] = {"status": "ok", "evidence": self._published().tee}
        expiring = Reason.NOT_RENEWED if self._context.bundles.failing else None
        wrong = [each for each in (expiring, self._context.failing()) if each]
        if wrong:
            body |= {"status": "degraded", "reasons": [each.value for each in wrong]}
        return _respond(
            OuterAnswer(
                status=200,
                content_type="application/json",
                content=json.dumps(body).encode(),
            )
        )

    async def _gateway(self, request: web.BaseRequest) -> web.StreamResponse:
        context = self._context
        # A kilobyte may decompress to gigabytes; and sealed content does not compress.
        if "Content-Encoding" in request.headers:
            raise OuterError(UNSUPPORTED_TYPE)
        form = form_of(request.headers.getall("Content-Type", []))
        body = await self._read_body(request)
        # Before anything is opened: its duration must not be observable.
        accepted = context.timer.clock()
        now = context.clock()
        exchange = open_exchange(
            context.keys.usable(now), form, body, context.terms(now)
        )
        # The sealed request is not kept while the answer runs, which takes minutes.
        del body
        self._count(Event.OPENED)
        run = AnswerRun(
            exchange=exchange,
            model=context.model,
            head=AnswerHead(
                answer_id=f"chatcmpl-{secrets.token_hex(12)}",
                created=int(now.timestamp()),
                model=context.model_name,
            ),
            accepted=accepted,
            limit_s=context.limits.answer_s,
            timer=context.timer,
            challenges=context.challenges,
            covers=self._covers,
        )
        return await self._answer(request, form, run)

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        limits = self._context.limits
        # By the announced length, before any of it is read; chunks announce nothing, so
        # the received bytes are counted too.
        if (request.content_length or 0) > limits.max_body_bytes:
            raise OuterError(TOO_LARGE)
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_s):
                async for data in request.content.iter_any():
                    body += data
                    if len(body) > limits.max_body_bytes:
                        raise OuterError(TOO_LARGE)
        except TimeoutError:
            raise OuterError(REQUEST_TIMEOUT) from None
        except (web.RequestPayloadError, HttpProcessingError):
            raise OuterError(BAD_REQUEST) from None
        return bytes(body)

    async def _answer(
        self,
        request: web.BaseRequest,
        form: Form,
        run: AnswerRun,
    ) -> web.StreamResponse:
        exchange = run.exchange
        fields = {
            "Server": SERVER_NAME,
            "Content-Type": exchange.sealer.media_type,
            "Cache-Control": "private, no-store",
        }
        if form is Form.CHUNKED:
            # Else a relay that buffers would hold the frames until the last.
            fields["Incremental"] = "?1"
        response = web.StreamResponse(headers=fields)
        try:
            if not isinstance(exchange.sealer, PaddedSealer) and form is Form.CHUNKED:
                # Sent at once: the relay need not wait for the first token.
                await response.prepare(request)
            async with aclosing(run.pieces()) as pieces:
                async for data in pieces:
                    await self._send(request, response, data, form)
            await response.write_eof()
        finally:
            self._count(run.outcome)
            if run.late:
                self._count(Event.ANSWER_LATE)
            for _ in range(run.batches):
                self._count(Event.FRAMES_SENT)
        return response

    async def _send(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        data: bytes,
        form: Form,
    ) -> None:
        try:
            async with asyncio.timeout(self._context.limits.write_s):
                if not response.prepared:
                    if form is Form.PLAIN:
                        response.content_length = len(data)
                    await response.prepare(request)
                await response.write(data)
                await cast("_Connection", request.protocol).drained()
        except TimeoutError:
            # A peer that does not read must not hold the model for all others. Aborted,
            # not closed: closing would wait for the peer to read.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None


def _respond(answer: OuterAnswer) -> web.Response:
    response = web.Response(
        status=answer.status,
        body=answer.content,
        headers={
            "Server": SERVER_NAME,
            "Content-Type": answer.content_type,
            "Cache-Control": "no-store",
            **dict(answer.fields),
        },
    )
    if answer in _CLOSING:
        response.force_close()
    return response


_CLOSING: Final = (BAD_REQUEST, REQUEST_TIMEOUT, TOO_LARGE)
"""After these the rest of the body is unread, so the connection ends."""


def _public(content: bytes, content_type: str) -> web.Response:
    return web.Response(
        body=content,
        headers={
            "Server": SERVER_NAME,
            "Content-Type": content_type,
            "Cache-Control": PUBLIC_CACHE,
        },
    )
