"""The door inward: aiohttp's low-level server, with the relay's rules on it.

Every default of aiohttp that would change, keep or tell something is set here
(wire.md, section 7): no decompression, no log, no field of its own but Date, no
error page of its own, a deadline for heads, contents and idle connections.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from aiohttp import HttpVersion11, web
from typing_extensions import override

from curtilage.relay import forward
from curtilage.relay.body import RequestBody
from curtilage.relay.cache import SharedCopy
from curtilage.relay.config import Limits, Listen, RelayConfig, UnixAddress
from curtilage.relay.errors import StartError
from curtilage.relay.forward import Action, Passage, Refusal, RefusedError, RequestHead
from curtilage.relay.telemetry import (
    Fetch,
    StatusClass,
    Telemetry,
    silence_libraries,
    silent_logger,
)
from curtilage.relay.upstream import UpstreamAnswer, Upstreams
from curtilage.relay.view import Outline, Sight, UnsafeRecordView

SERVER: Final = "curtilage-relay"
MAX_LINE_BYTES: Final = 2048
"""A relay's path is below 50; the rest is room for a query we ignore."""
MAX_FIELDS: Final = 64
MAX_FIELD_BYTES: Final = 8190
LINGER_S: Final = 2.0
"""How long a refused request's content is read on, so that its sender, busy
writing, gets to see the answer instead of a reset."""
COPIES: Final = {
    Action.KEYS: (forward.KEYS_PATH, forward.OHTTP_KEYS, forward.MAX_KEYS_BYTES),
    Action.BUNDLE: (
        forward.BUNDLE_PATH,
        forward.EVIDENCE_BUNDLE,
        forward.MAX_BUNDLE_BYTES,
    ),
}
HEALTHY: Final = b"ok\n"
HEALTH_FIELDS: Final = [("Content-Type", "text/plain"), ("Cache-Control", "no-store")]
FIRST_SERVER_ERROR: Final = 500

Fields = list[tuple[str, str]]


class _CutError(Exception):
    """An answer broke off after its head had gone out; the client must see it."""


class Relay:
    """One relay: start, serve, stop.

    Args:
        config: what it does.
        telemetry: where it counts.
    """

    def __init__(self, config: RelayConfig, *, telemetry: Telemetry) -> None:
        self._config = config
        self._limits = config.limits
        self._telemetry = telemetry
        self._table = forward.make_table(config.gateways)
        self._in_flight = 0
        self._copies: dict[tuple[str, Action], SharedCopy] = {}
        self._upstreams: Upstreams | None = None
        self._runner: web.ServerRunner | None = None
        self._view: UnsafeRecordView | None = None

    async def start(self) -> str:
        """Listen; return the address as the configuration would write it.

        Raises:
            StartError: the address, the certificate file or the record's file
                cannot be used.
        """
        silence_libraries()
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        try:
            if self._config.unsafe_record_view is not None:
                self._view = UnsafeRecordView(self._config.unsafe_record_view)
            self._upstreams = Upstreams(self._config)
            self._copies = self._make_copies(self._upstreams)
            return await self._listen()
        except OSError as error:
            await self.stop()
            reason = error.strerror or type(error).__name__
            raise StartError(f"cannot start: {reason}") from None

    async def stop(self) -> None:
        """Stop listening, let running requests end, close everything."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            _remove_socket(self._config.listen)
        for copy in self._copies.values():
            await copy.close()
        if self._upstreams is not None:
            await self._upstreams.close()
        if self._view is not None:
            self._view.close()
            self._view = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        sight = self._look(request)
        status = 0
        try:
            response = await self._answer(request, sight)
            status = response.status
        except RefusedError as refused:
            self._telemetry.rejected(refused.refusal)
            response = _refusal_response(refused.refusal)
            status = response.status
        finally:
            sight.end(status)
        return response

    async def _listen(self) -> str:
        server = _Server(self, self._limits, self._telemetry)
        # aiohttp waits this long twice: for the end, then for the cancellation.
        runner = web.ServerRunner(
            server, shutdown_timeout=self._limits.shutdown_grace_s / 2
        )
        await runner.setup()
        self._runner = runner
        listen = self._config.listen
        if isinstance(listen, UnixAddress):
            await web.UnixSite(runner, listen.path).start()
            return f"unix:{listen.path}"
        site = web.TCPSite(runner, listen.host, listen.port)
        await site.start()
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        return f"{host}:{site.port}"

    def _on_loop_error(self, _: object, __: Mapping[str, object]) -> None:
        # The default prints whatever was at hand, peers' bytes included.
        self._telemetry.rejected(Refusal.INTERNAL)

    def _make_copies(
        self, upstreams: Upstreams
    ) -> dict[tuple[str, Action], SharedCopy]:
        return {
            (place.gateway, place.action): SharedCopy(
                partial(self._fetch, upstreams, place.gateway, place.action),
                max_age_s=self._limits.cache_s,
                clock=time.monotonic,
            )
            for place in self._table.values()
            if place.action in COPIES
        }

    async def _fetch(self, upstreams: Upstreams, gateway: str, action: Action) -> bytes:
        path, media_type, max_bytes = COPIES[action]
        try:
            value = await upstreams.fetch(
                gateway, path=path, media_type=media_type, max_bytes=max_bytes
            )
        except RefusedError:
            self._telemetry.cached_fetch(Fetch.FAILED)
            raise
        self._telemetry.cached_fetch(Fetch.FRESH)
        return value

    def _look(self, request: web.BaseRequest) -> Sight:
        if self._view is None:
            return Sight()
        names = tuple(name.decode("latin-1") for name, _ in request.raw_headers)
        return self._view.begin(
            Outline(
                peer=str(request.remote or ""),
                method=request.method,
                target=request.raw_path,
                field_names=names,
            )
        )

    async def _answer(
        self, request: web.BaseRequest, sight: Sight
    ) -> web.StreamResponse:
        head = RequestHead(
            method=request.method, target=request.raw_path, fields=request.raw_headers
        )
        passage = forward.admit(
            head, self._table, max_request_bytes=self._limits.max_request_bytes
        )
        if passage.place.action is Action.HEALTH:
            return _whole_response(forward.OK, HEALTH_FIELDS, HEALTHY)
        if passage.place.action is Action.EXCHANGE:
            return await self._exchange(request, passage, sight)
        return await self._serve_copy(passage, sight)

    async def _serve_copy(self, passage: Passage, sight: Sight) -> web.StreamResponse:
        copy = self._copies[passage.place.gateway, passage.place.action]
        if copy.current() is not None:
            self._telemetry.cached_fetch(Fetch.CACHED)
        value = await copy.get()
        sight.answer(value)
        fields = [
            ("Content-Type", COPIES[passage.place.action][1]),
            # The same for everybody at every moment: an age would be a mark.
            ("Cache-Control", f"public, max-age={self._limits.cache_s}"),
        ]
        return _whole_response(forward.OK, fields, value)

    async def _exchange(
        self, request: web.BaseRequest, passage: Passage, sight: Sight
    ) -> web.StreamResponse:
        body = RequestBody(
            request.content.readany,
            broken=web.RequestPayloadError,
            limits=self._limits,
            watch=sight.request,
        )
        # Whole before a place at the gateway is taken: a slow sender holds none,
        # whatever its fields say. Requests are complete before they are sent
        # (wire.md, W3), so nobody waits longer; answers still stream.
        content = await body.whole()
        if self._in_flight >= self._limits.max_upstream:
            raise RefusedError(Refusal.BUSY)
        self._in_flight += 1
        began = time.monotonic()
        try:
            answer = await self._ask(passage, content)
            try:
                return await self._pass_back(request, passage, answer, sight)
            finally:
                answer.close()
        finally:
            self._in_flight -= 1
            self._telemetry.took(time.monotonic() - began)

    async def _ask(self, passage: Passage, content: bytes) -> UpstreamAnswer:
        if self._upstreams is None:
            raise RuntimeError("the relay is not started")
        return await self._upstreams.ask(passage, content)

    async def _pass_back(
        self,
        request: web.BaseRequest,
        passage: Passage,
        answer: UpstreamAnswer,
        sight: Sight,
    ) -> web.StreamResponse:
        head = answer.head
        self._telemetry.forwarded(StatusClass(f"{head.status // 100}xx"))
        if head.status == forward.OK and passage.incremental:
            return await self._pass_pieces_back(request, answer, sight)
        if head.status == forward.OK:
            content = await answer.whole(self._limits.max_answer_bytes)
        elif head.passes:
            content = await answer.whole(forward.MAX_PROBLEM_BYTES)
        else:
            content = forward.refused_body(head.status)
        sight.answer(content)
        fields = forward.answer_fields(head, length=None)
        return _whole_response(head.status, fields, content)

    async def _pass_pieces_back(
        self, request: web.BaseRequest, answer: UpstreamAnswer, sight: Sight
    ) -> web.StreamResponse:
        length = answer.head.content_length
        if length is not None and length > self._limits.max_answer_bytes:
            raise RefusedError(Refusal.GATEWAY_ANSWER)
        response = web.StreamResponse(
            status=answer.head.status,
            headers=_with_server(forward.answer_fields(answer.head, length=length)),
        )
        if length is None and request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            await self._copy_pieces(answer, response, sight)
        except RefusedError as refused:
            self._telemetry.rejected(refused.refusal)
            raise _CutError from None
        except TimeoutError:
            raise _CutError from None
        await response.write_eof()
        return response

    async def _copy_pieces(
        self, answer: UpstreamAnswer, response: web.StreamResponse, sight: Sight
    ) -> None:
        async with aclosing(answer.pieces(self._limits.max_answer_bytes)) as pieces:
            async for piece in pieces:
                sight.answer(piece)
                async with asyncio.timeout(self._limits.write_timeout_s):
                    await response.write(piece)


class _Server(web.Server):
    """aiohttp's low-level server with our connections and a cap on them."""

    def __init__(self, relay: Relay, limits: Limits, telemetry: Telemetry) -> None:
        super().__init__(self._serve, handler_cancellation=True)
        self.limits = limits
        self.telemetry = telemetry
        self.open_connections = 0
        self._relay = relay

    @override
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, asyncio.get_running_loop())

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("_Connection", request.protocol)
        connection.begin_request()
        try:
            return await self._relay.handle(request)
        finally:
            connection.end_request()


class _Connection(web.RequestHandler):
    """One client connection: bounded head, bounded wait, our own error page."""

    def __init__(self, server: _Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=server.limits.idle_timeout_s,
            logger=silent_logger(),
            access_log=cast("Any", None),  # None means none; the type forgets it
            debug=False,
            max_line_size=MAX_LINE_BYTES,
            max_headers=MAX_FIELDS,
            max_field_size=MAX_FIELD_BYTES,
            lingering_time=LINGER_S,
            auto_decompress=False,
        )
        self._server = server
        self._head_timer: asyncio.TimerHandle | None = None
        self._busy = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or refuse it when there are enough.

        The first head's deadline begins here: who is silent is dropped too.
        """
        super().connection_made(transport)
        self._start_head_timer()
        self._server.open_connections += 1
        if self._server.open_connections > self._server.limits.max_connections:
            self._server.telemetry.rejected(Refusal.CONNECTIONS)
            cast("asyncio.Transport", transport).write(CONNECTIONS_ANSWER)
            self.force_close()

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection."""
        self._server.open_connections -= 1
        self._stop_head_timer()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Read; the first byte of a further request starts its head's deadline."""
        if not self._busy and self._head_timer is None:
            self._start_head_timer()
        super().data_received(data)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what the parser refused, or what failed here, in our words."""
        if isinstance(exc, _CutError | ConnectionError):
            raise ConnectionResetError from None
        refusal = Refusal.MALFORMED
        if status >= FIRST_SERVER_ERROR:
            refusal = Refusal.INTERNAL
        self._server.telemetry.rejected(refusal)
        if request.writer.output_size > 0:
            raise ConnectionResetError from None
        return _refusal_response(refusal)

    def begin_request(self) -> None:
        """Note that a head is complete: its deadline is over."""
        self._busy = True
        self._stop_head_timer()

    def end_request(self) -> None:
        """Note that the connection waits for its next request."""
        self._busy = False

    def _start_head_timer(self) -> None:
        self._head_timer = self._loop.call_later(
            self._server.limits.header_timeout_s, self.force_close
        )

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _with_server(fields: Fields) -> Fields:
    return [*fields, ("Server", SERVER)]


def _whole_response(status: int, fields: Fields, content: bytes) -> web.Response:
    kind, *others = fields
    ordered = [kind, ("Content-Length", str(len(content))), *others]
    return web.Response(status=status, headers=_with_server(ordered), body=content)


def _refusal_response(refusal: Refusal) -> web.Response:
    response = web.Response(
        status=forward.status_of(refusal),
        headers=_with_server(forward.refusal_fields(refusal)),
        body=forward.refusal_body(refusal),
    )
    response.force_close()
    return response


def _raw_answer(refusal: Refusal, reason: str) -> bytes:
    fields = [*_with_server(forward.refusal_fields(refusal)), ("Connection", "close")]
    lines = [f"HTTP/1.1 {forward.status_of(refusal)} {reason}"]
    lines += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join([*lines, "", ""]).encode() + forward.refusal_body(refusal)


def _remove_socket(listen: Listen) -> None:
    if isinstance(listen, UnixAddress):
        Path(listen.path).unlink(missing_ok=True)


CONNECTIONS_ANSWER: Final = _raw_answer(Refusal.CONNECTIONS, "Service Unavailable")
