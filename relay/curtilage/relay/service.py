"""Handles one request: the order of the checks, and the way back.

Knows the rules (``forward``), the gateways (``upstream``) and the shared copies; sees
clients only through an interface that reads and writes bytes. Does not know their
addresses, or any field that ``forward`` does not read.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from typing import Final, Protocol, TypeVar

from curtilage.relay import forward, refusals
from curtilage.relay.access_keys import AccessKeys
from curtilage.relay.body import RequestBody, RequestPieces, Sink
from curtilage.relay.cache import SharedCopy
from curtilage.relay.config import RelayConfig
from curtilage.relay.forward import Action, Passage, RequestHead
from curtilage.relay.refusals import Refusal, RefusedError
from curtilage.relay.telemetry import Fetch, StateLog, StatusClass, Telemetry
from curtilage.relay.upstream import UpstreamAnswer, Upstreams

COPIES: Final = {
    Action.KEYS: (forward.KEYS_PATH, forward.OHTTP_KEYS, forward.MAX_KEYS_BYTES),
    Action.BUNDLE: (
        forward.BUNDLE_PATH,
        forward.EVIDENCE_BUNDLE,
        forward.MAX_BUNDLE_BYTES,
    ),
}
LISTS: Final = {
    Action.KEYS: forward.KEY_LISTS,
    Action.BUNDLE: forward.EVIDENCE_BUNDLES,
}
"""Media types of a pool's copies, which hold those of all its nodes."""
HEALTHY: Final = b"ok\n"
DEGRADED: Final = b"degraded\n"
DRAINING: Final = b"draining\n"
UNAVAILABLE: Final = 503

Fields = list[tuple[str, str]]
_Got = TypeVar("_Got")


class CutError(Exception):
    """An answer broke off after its head was sent; the client must see it."""


class Caller(Protocol):
    """The client of one request, as the service sees it."""

    broken: type[Exception]
    """Type that ``read`` raises if the framing of the content is wrong."""

    def may_ask(self) -> bool:
        """Charge this client for one request."""
        ...

    def begin_upload(self) -> bool:
        """Take one of the places that this client may hold with uploads."""
        ...

    def end_upload(self) -> None:
        """Give it back."""
        ...

    async def take_place(self) -> None:
        """Take a place at the gateways, waiting for one in the queue.

        Raises:
            RefusedError: there was none in time.
        """
        ...

    def end_place(self) -> None:
        """Give it back; without one, nothing changes."""
        ...

    def content(self) -> bytes | None:
        """Return the request's content if all of it has arrived."""
        ...

    async def read(self) -> bytes:
        """Return what has arrived of the content, or nothing at its end."""
        ...

    async def answer(self, status: int, fields: Fields, content: bytes) -> None:
        """Send a whole answer; return when the client has taken it."""
        ...

    def begin(self, fields: Fields, *, chunked: bool) -> Sink:
        """Send the head of a 200; return the sink of its content."""
        ...

    @property
    def begun(self) -> bool:
        """Whether any part of an answer was sent."""
        ...

    def resume_with(self, resume: Callable[[], None]) -> None:
        """Call this when the sink was full and has room again."""
        ...

    def end(self, *, chunked: bool) -> Awaitable[None]:
        """End the content; return when the client has taken the rest."""
        ...


class Service:
    """Everything between a request's head and the end of its answer.

    Args:
        config: what the relay does.
        telemetry: where it counts.
        upstreams: the gateways.
        log: records which of them can be reached.
    """

    def __init__(
        self,
        config: RelayConfig,
        *,
        telemetry: Telemetry,
        upstreams: Upstreams,
        log: StateLog | None = None,
    ) -> None:
        self._log = log or StateLog(config.gateways)
        self._config = config
        self._limits = config.limits
        self._telemetry = telemetry
        self._upstreams = upstreams
        self._pools = config.pools
        self._table = forward.make_table(config.gateways, self._pools)
        self._keys = AccessKeys(config.keys)
        self._copies = {
            (route.gateway, route.action): SharedCopy(
                partial(
                    self._gather if route.gateway in self._pools else self._fetch,
                    route.gateway,
                    route.action,
                ),
                max_age_s=config.limits.cache_s,
                clock=time.monotonic,
            )
            for route in self._table.values()
            if route.action in COPIES
        }
        self._uploads = 0
        self.draining = False

    async def close(self) -> None:
        """Stop the fetches that are in progress, and close every connection."""
        for copy in self._copies.values():
            await copy.close()
        self._upstreams.close()

    async def serve(self, head: RequestHead, caller: Caller) -> None:
        """Answer one request.

        Raises:
            RefusedError: nothing was sent; the refusal says what to send.
            CutError: the answer broke off after its head was sent.
        """
        # The key is checked before the path: the rate limits how fast keys can be
        # guessed, and without a key not even the gateways' names can be tried.
        if head.target != forward.HEALTH_PATH:
            if not caller.may_ask():
                raise RefusedError(Refusal.RATE)
            if self._keys.required and not self._keys.admits(
                head.fields.get(b"authorization", ())
            ):
                raise RefusedError(Refusal.ACCESS)
        route = forward.find_route(head, self._table, hosts=self._config.hosts)
        passage = forward.admit(
            head, route, max_request_bytes=self._limits.max_request_bytes
        )
        if route.action is Action.EXCHANGE:
            try:
                await self._exchange(passage, caller)
            finally:
                # In any case: a place that is not returned is lost to all clients.
                caller.end_place()
        elif route.action is Action.HEALTH:
            await self._report_health(caller)
        else:
            await self._serve_copy(passage, caller)

    async def _report_health(self, caller: Caller) -> None:
        # Not 503 if a gateway cannot be reached: another relay cannot reach it either,
        # and a relay that gets no requests would never notice that it is back.
        status, word = forward.OK, DEGRADED if self._log.degraded else HEALTHY
        if self.draining:
            status, word = UNAVAILABLE, DRAINING
        fields = [
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(word))),
            # Cached, "ok" would still be reported for a relay that is draining.
            ("Cache-Control", "no-store"),
        ]
        await caller.answer(status, fields, word)

    async def _serve_copy(self, passage: Passage, caller: Caller) -> None:
        gateway, action = passage.route.gateway, passage.route.action
        copy = self._copies[gateway, action]
        if copy.current() is not None:
            self._telemetry.cached_fetch(Fetch.CACHED)
        value = await copy.get()
        fields = [
            (
                "Content-Type",
                LISTS[action] if gateway in self._pools else COPIES[action][1],
            ),
            ("Content-Length", str(len(value))),
            # The same for all clients at every moment: an age would be a mark.
            ("Cache-Control", f"public, max-age={self._limits.cache_s}"),
        ]
        await caller.answer(forward.OK, fields, value)

    async def _exchange(self, passage: Passage, caller: Caller) -> None:
        content = caller.content()
        if content is None:
            body = RequestBody(caller.read, broken=caller.broken, limits=self._limits)
            if passage.incremental:
                await self._upload(passage, body, caller)
                return
            # Whole before a place at the gateway is taken: a slow sender holds none,
            # and nothing requires us to begin before.
            content = await body.whole()
        elif len(content) > self._limits.max_request_bytes:
            raise RefusedError(Refusal.BODY_TOO_LARGE)
        await caller.take_place()
        asked = partial(self._upstreams.ask, passage, content)
        await self._ask(asked, passage, caller)

    async def _upload(
        self, passage: Passage, body: RequestBody, caller: Caller
    ) -> None:
        """Pass a request on while it arrives, as RFC 10036, section 3, requires.

        A slow sender holds a place meanwhile. So these requests have their own, smaller
        number of places, taken only when the first bytes have arrived, and no client
        has more than its share of them.
        """
        first = await body.piece()
        began = time.monotonic()
        await caller.take_place()
        body.excuse(time.monotonic() - began)
        if self._uploads >= self._limits.max_uploads or not caller.begin_upload():
            raise RefusedError(Refusal.BUSY)
        self._uploads += 1

        def ended() -> None:
            self._uploads -= 1
            caller.end_upload()

        # Counted until its last byte, not until its answer: that may take minutes.
        pieces = RequestPieces(first, body, ended)
        asked = partial(self._upstreams.ask_in_pieces, passage, pieces)
        try:
            await self._ask(asked, passage, caller)
        finally:
            pieces.end()

    async def _ask(
        self,
        asked: Callable[[], Awaitable[UpstreamAnswer]],
        passage: Passage,
        caller: Caller,
    ) -> None:
        began = time.monotonic()
        try:
            # Closed in any case: the connection serves another client next, or ends.
            with closing(await self._reached(passage.route.gateway, asked)) as answer:
                head = answer.head
                self._telemetry.forwarded(StatusClass(f"{head.status // 100}xx"))
                ok = head.status == forward.OK
                if ok and (passage.incremental or head.incremental):
                    await self._pass_pieces_back(passage, answer, caller)
                    return
                # Whole before any of it is sent: then a truncation is a 502 with a
                # text.
                if ok:
                    content = await answer.whole(self._limits.max_answer_bytes)
                elif head.passes:
                    content = await answer.whole(forward.MAX_PROBLEM_BYTES)
                else:
                    content = refusals.refused_body(head.status)
                fields = forward.answer_fields(head, length=len(content))
                await caller.answer(head.status, fields, content)
        finally:
            self._telemetry.took(time.monotonic() - began)

    async def _reached(
        self, gateway: str, asked: Callable[[], Awaitable[_Got]]
    ) -> _Got:
        """Send to a gateway, and record whether it could be reached."""
        try:
            got = await asked()
        except RefusedError as refused:
            self._log.gateway(gateway, refused.refusal)
            raise
        self._log.gateway(gateway, None)
        return got

    async def _pass_pieces_back(
        self, passage: Passage, answer: UpstreamAnswer, caller: Caller
    ) -> None:
        length = answer.head.content_length
        if length is not None and length > self._limits.max_answer_bytes:
            raise RefusedError(Refusal.GATEWAY_ANSWER)
        # The gateway streams unasked: HTTP/1.0 would not show a truncation.
        if passage.minor == 0:
            raise RefusedError(Refusal.INCREMENTAL)
        chunked = length is None
        caller.resume_with(answer.resume)
        fields = forward.answer_fields(answer.head, length=length)
        sink = caller.begin(fields, chunked=chunked)
        try:
            await answer.pass_on(sink, self._limits.max_answer_bytes)
        except RefusedError as refused:
            if not caller.begun:
                raise
            # Part of a 200 was sent: an answer after it would be read as its content.
            self._telemetry.rejected(refused.refusal)
            raise CutError from None
        await caller.end(chunked=chunked)

    async def _gather(self, pool: str, action: Action) -> bytes:
        """Fetch the copies of all nodes concurrently; one that fails is left empty."""
        nodes = self._pools[pool]
        fetches = (self._fetch_node(f"{pool}/{node}", action) for node in nodes)
        contents = dict(zip(nodes, await asyncio.gather(*fetches), strict=True))
        value = forward.node_list(contents)
        # Fail at once if there is no node to fetch from.
        if not any(contents.values()) or len(value) > forward.MAX_LIST_BYTES:
            raise RefusedError(Refusal.GATEWAY_UNREACHABLE)
        return value

    async def _fetch_node(self, gateway: str, action: Action) -> bytes:
        # It is listed even so: a pool that seems smaller than it is would make clients
        # draw each other node more often.
        with contextlib.suppress(RefusedError, TimeoutError):
            async with asyncio.timeout(self._limits.node_fetch_timeout_s):
                return await self._fetch(gateway, action)
        return b""

    async def _fetch(self, gateway: str, action: Action) -> bytes:
        path, media_type, max_bytes = COPIES[action]
        try:
            value = await self._reached(
                gateway,
                lambda: self._upstreams.fetch(
                    gateway, path=path, media_type=media_type, max_bytes=max_bytes
                ),
            )
        except RefusedError:
            self._telemetry.cached_fetch(Fetch.FAILED)
            raise
        self._telemetry.cached_fetch(Fetch.FRESH)
        return value
