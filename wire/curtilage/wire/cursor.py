"""Sequential readers of bytes: of a whole string, or of one that is still arriving.

Knows positions and ends, not what the bytes mean. A parse over arriving bytes
is a generator: it yields ``None`` when it needs more bytes and a value when it
has one, so that the code reads in the order of the format it parses.
"""

from collections.abc import Generator
from typing import Generic, TypeVar

from curtilage.wire.errors import ConsumedError, LimitExceededError, TruncatedError

EventT = TypeVar("EventT")


class Cursor:
    """A position in one complete byte string."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        """Number of bytes not yet taken."""
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes.

        Raises:
            TruncatedError: fewer than ``count`` bytes are left.
        """
        # A slice beyond the end would be shorter without a word.
        if count > self.remaining:
            raise TruncatedError(f"{count} bytes expected, {self.remaining} left")
        start = self._position
        self._position += count
        return self._data[start : self._position]

    def take_uint(self, width: int) -> int:
        """Return the next ``width`` bytes as an unsigned big-endian number."""
        return int.from_bytes(self.take(width), "big")


class ReceiveBuffer:
    """Bytes that arrive in pieces, up to a limit, and then end.

    Args:
        limit_bytes: bytes accepted in total, taken or not.
    """

    __slots__ = ("_arrived", "_buffer", "_limit_bytes", "ended")

    def __init__(self, *, limit_bytes: int) -> None:
        self._buffer = bytearray()
        self._arrived = 0
        self._limit_bytes = limit_bytes
        self.ended = False

    def __len__(self) -> int:
        """Count the bytes that arrived and were not taken."""
        return len(self._buffer)

    def push(self, data: bytes) -> None:
        """Append ``data``; refuse it unstored if the limit would be exceeded."""
        # All that ever arrived, not what is waiting: a message has one bound, however
        # fast its bytes are taken.
        self._arrived += len(data)
        if self._arrived > self._limit_bytes:
            raise LimitExceededError(f"message longer than {self._limit_bytes} bytes")
        self._buffer += data

    def take_at_most(self, count: int) -> bytes:
        """Return up to ``count`` bytes of those that are here."""
        # A bytearray drops its front without moving the rest, so that a sender of
        # single bytes does not make us copy what is here once for each.
        taken = bytes(self._buffer[:count])
        del self._buffer[: len(taken)]
        return taken

    def wait(self) -> Generator[None, None, None]:
        """Ask for more bytes once; an ended buffer is a truncated message."""
        if self.ended:
            raise TruncatedError("the message ends too soon")
        yield None

    def pull(self, count: int) -> Generator[None, None, bytes]:
        """Wait until ``count`` bytes are here, then take them.

        The caller bounds ``count``: that many bytes may be buffered.
        """
        while len(self._buffer) < count:
            yield from self.wait()
        return self.take_at_most(count)


class PushParser(Generic[EventT]):
    """Drive one parse while its bytes arrive.

    Gives the same events, content boundaries aside, however the bytes are cut.
    A failed parse is final: every later call raises ``ConsumedError``.

    Args:
        buffer: where the parse takes its bytes from.
        steps: the parse; it must not return before the buffer has ended.
    """

    __slots__ = ("_buffer", "_steps", "_usable")

    def __init__(
        self, buffer: ReceiveBuffer, steps: Generator[EventT | None, None, None]
    ) -> None:
        self._buffer = buffer
        self._steps = steps
        self._usable = True

    def push(self, data: bytes) -> list[EventT]:
        """Take in ``data``; return what it completes."""
        self._claim()
        self._buffer.push(data)
        events = self._advance()
        self._usable = True
        return events

    def finish(self) -> list[EventT]:
        """Declare the end of the bytes; return what only the end completes."""
        self._claim()
        # Before the parse runs on: what waits for more asks this, and then either
        # knows its message to be whole or raises ``TruncatedError``.
        self._buffer.ended = True
        return self._advance()

    def _claim(self) -> None:
        # Given back only by a push that went through, so that neither a failed
        # nor a finished parse can be fed again. A generator that has raised would
        # be silent from then on, and silence is what a valid message gives, too.
        if not self._usable:
            raise ConsumedError("this parse has failed or is finished")
        self._usable = False

    def _advance(self) -> list[EventT]:
        events: list[EventT] = []
        for event in self._steps:
            # The parse waits for bytes. What it gave before stays valid: no event
            # waits for the one behind it.
            if event is None:
                break
            events.append(event)
        return events
