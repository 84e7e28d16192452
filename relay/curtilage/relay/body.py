"""Message content, a piece at a time: read from a client with bounds, or sent to one.

Knows bytes, seconds and where content ends, not what a piece means or who sends it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from curtilage.relay.config import Limits
from curtilage.relay.refusals import Refusal, RefusedError


class RequestBody:
    """The content of a client's request.

    Args:
        read: returns what has arrived, or nothing at the end.
        broken: what ``read`` raises where the framing is wrong.
        limits: how large and how slow it may be.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        broken: type[Exception],
        limits: Limits,
    ) -> None:
        self._read = read
        self._broken = broken
        self._limits = limits
        self._seen = 0
        self._began = time.monotonic()

    async def whole(self) -> bytes:
        """Read everything.

        Raises:
            RefusedError: too large, too slow or malformed.
        """
        content = bytearray()
        while piece := await self.piece():
            content += piece
        return bytes(content)

    async def piece(self) -> bytes:
        """Read what has arrived, waiting for something; nothing at the end.

        Raises:
            RefusedError: too large, too slow or malformed.
        """
        # Each byte earns its time: a slow POST is cut off as a silent one is, and a
        # large request on a slow line is not.
        earned_s = self._seen / self._limits.min_body_bytes_per_s
        due = self._began + self._limits.body_timeout_s + earned_s
        try:
            async with asyncio.timeout(due - time.monotonic()):
                piece = await self._read()
        except TimeoutError:
            raise RefusedError(Refusal.BODY_TOO_SLOW) from None
        except self._broken:
            raise RefusedError(Refusal.MALFORMED) from None
        # By what arrived, not by what was announced: chunks announce nothing.
        self._seen += len(piece)
        if self._seen > self._limits.max_request_bytes:
            raise RefusedError(Refusal.BODY_TOO_LARGE)
        return piece

    def excuse(self, seconds: float) -> None:
        """Extend the deadline by so much time: we did not read meanwhile."""
        self._began += seconds


class Sink(Protocol):
    """Receiver of an answer's pieces."""

    @property
    def full(self) -> bool:
        """Whether no more should come until ``UpstreamAnswer.resume``."""
        ...

    def write(self, piece: bytes) -> None:
        """Take a piece, at once."""
        ...

    def flush(self) -> None:
        """Send the head, if it still waits for a first piece to go with."""
        ...


class RequestPieces:
    """The content of a request as it arrives; counted until its end.

    Args:
        first: what has arrived; nothing if that is all.
        body: the rest.
        ended: called once, when nothing follows or the rest is not wanted.
    """

    def __init__(
        self, first: bytes, body: RequestBody, ended: Callable[[], None]
    ) -> None:
        self._first: bytes | None = first
        self._body = body
        self._ended: Callable[[], None] | None = ended

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece.

        Raises:
            RefusedError: too large, too slow or malformed.
        """
        piece, self._first = self._first, None
        if piece is None:
            piece = await self._body.piece()
        if not piece:
            self.end()
            raise StopAsyncIteration
        return piece

    def end(self) -> None:
        """Stop counting it."""
        # Cleared before the call: the end of the content and the end of the exchange
        # both come here, and a second call would release two places.
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()
