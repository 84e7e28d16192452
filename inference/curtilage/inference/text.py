"""Decodes token bytes to text: whole characters only, with stop strings. Pure.

A character may be split over several tokens, and a stop string over several pieces;
bytes that may still become either are held back. Work per push depends on the push and
the longest stop string, never on the length of the answer.
"""

import codecs
from collections.abc import Iterator, Sequence

from curtilage.inference.calls import CallParser
from curtilage.inference.protocol import Called


class TextAssembler:
    """The text of one answer, as it grows.

    Call ``push`` for every token, then ``flush`` once. After a stop string nothing more
    is returned. Stop strings are searched for in text, not in tool calls.

    Args:
        stop: the stop strings.
        calls: separates tool calls from the text; None: there are none.

    Attributes:
        stopped: a stop string was found; it and the text after it are dropped.
    """

    def __init__(
        self, stop: Sequence[str] = (), calls: CallParser | None = None
    ) -> None:
        self._stop = tuple(stop)
        self._calls = calls
        self._taken = 0
        # "replace": a model may emit bytes that are not a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def push(self, data: bytes) -> str:
        """Take the bytes of one token; return the text that is certain now."""
        text = self._decoder.decode(data)
        if self._calls is not None and not self.stopped:
            text = self._calls.push(text)
        return self._release(text, last=False)

    def flush(self) -> str:
        """Return what was held back; an incomplete character at the end is dropped."""
        self._decoder.reset()
        text = "" if self._calls is None else self._calls.flush()
        return self._release(text, last=True)

    @property
    def called(self) -> bool:
        """Whether the answer has a complete call."""
        return self._taken > 0

    def take_calls(self) -> Iterator[Called]:
        """Yield the calls that became complete since the last time."""
        if self._calls is None or self.stopped:
            return
        while self._taken < len(self._calls.calls):
            self._taken += 1
            index = self._taken - 1
            yield Called(index=index, call=self._calls.calls[index])

    def _release(self, new: str, *, last: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        # Includes what was held back: a stop string may have begun there.
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)]
        # Text that may still become a stop string is held back: it cannot be recalled.
        held = 0 if last else max((_overlap(text, s) for s in self._stop), default=0)
        cut = len(text) - held
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of the text that begins the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next(
        (size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0
    )
