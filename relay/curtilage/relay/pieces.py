"""Content on its way, a piece at a time: from a client, and to one.

Knows order and ends; refuses to know what a piece holds.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from curtilage.relay.body import RequestBody


class Sink(Protocol):
    """Where an answer's pieces go."""

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
    """A request's content as it comes; counted until its end.

    Args:
        first: what came already; nothing where that is all.
        body: the rest.
        ended: called once, when nothing follows or nobody wants it any more.
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
        """Count it no more."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()
