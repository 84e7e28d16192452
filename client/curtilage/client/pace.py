"""The pace that a padded answer is promised, and when it is broken.

A padded answer comes in frames, one every period, from its beginning to the end
of its bucket. Who holds it up, a relay that lets an octet through now and then
or one that stays silent behind a head, breaks that promise, and is not waited
for: the question is answered here instead. Whole frames count, since octets are
cheap.

The limits are wide. A slow line, a busy machine or a lost packet is not a breach,
and a verdict needs two looks with a pause between them, in which a process that
stood still reads what has come meanwhile.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from curtilage.client.errors import FailureReason
from curtilage.wire.shaping import TransportParameters

FIRST_FRAME_S: Final = 15.0
"""An enclave begins to answer at once, before any model runs; this is for a
connection, a handshake and a bad line."""

SLACK_S: Final = 15.0
"""How far behind its promise a frame may be: more than a line that is lost and
found again takes, and far less than any bucket worth waiting for."""

SLOWEST_UPLOAD: Final = 64 * 1024
"""Octets a second; a large request on a slower line is answered here."""

LOOK_S: Final = 1.0
LOOKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A clock, in seconds from anywhere, and a way to wait; tests have others."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


TIMER: Final = Timer()


class Pace:
    """Compares the frames that came with those that were promised.

    Args:
        parameters: padded, of the enclave's evidence.
        began: when the request began to be sent.
        request_bytes: its length.
    """

    __slots__ = ("_first_at", "_first_due", "_period_s")

    def __init__(
        self, parameters: TransportParameters, began: float, *, request_bytes: int
    ) -> None:
        self._period_s = parameters.period_ms / 1000
        self._first_due = began + FIRST_FRAME_S + request_bytes / SLOWEST_UPLOAD
        self._first_at: float | None = None

    def breach(self, frames: int, now: float) -> FailureReason | None:
        """Tell how the promise is broken, or None where it is not.

        Args:
            frames: how many came in whole so far.
            now: by the clock of ``began``.
        """
        if frames and self._first_at is None:
            self._first_at = now
        if self._first_at is None:
            return FailureReason.TIMEOUT if now > self._first_due else None
        # The frame that comes next is the one with this number, from 0.
        due = self._first_at + frames * self._period_s
        return FailureReason.ANSWER_LATE if now > due + SLACK_S else None
