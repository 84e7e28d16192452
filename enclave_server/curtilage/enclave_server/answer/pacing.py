"""The times at which the frames of an answer are sent: a constant pace.

A request is accepted when its last byte has been read, before any of it is opened. All
answers are sent on one grid, the multiples of the period. The first frame is sent one
period later or more, so that all work on the request (decapsulating, parsing, refusing)
happens before, and its duration is not observable. Each frame is sealed some time
before it is sent, however much there is to seal; and it is sent a random part of a
millisecond or two after its moment, which hides how quickly the processor woke up.

Knows a clock, a way to wait and a source of chance, all passed in; nothing of what is
sent. A late frame is sent at once and the ones after it keep their times, so that a
delay neither moves nor merges what follows.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

SEALED_BEFORE: Final = 0.2
"""How long before it is sent a frame is sealed; a share of the period."""
READS_UNTIL: Final = 0.06
"""How long before frames are sent nothing else is begun; likewise."""
SPREAD: Final = 0.04
"""Within how long after its moment a frame is sent; likewise."""


def _never_later(_within_s: float) -> float:
    return 0.0


def _unreserved(_begin: float, _end: float) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A clock, and ways to wait by it.

    Attributes:
        clock: seconds, monotonic.
        sleep: wait so many seconds; 0 lets other tasks run.
        later: returns by chance 0 to so many seconds.
        reserve: keeps other work from beginning between two times.
    """

    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    later: Callable[[float], float] = _never_later
    reserve: Callable[[float, float], None] = _unreserved


LOOP_TIMER = Timer()
"""The event loop's time, whatever else the loop does."""


class Pacer:
    """Ticks before each multiple of the period, and waits for it.

    Args:
        accepted: when the request was read, by the timer's clock.
        period_s: the period.
        timer: see there.

    Attributes:
        late: how many frames came a whole period late, or more.
    """

    def __init__(self, accepted: float, period_s: float, timer: Timer) -> None:
        # The first multiple that is a period after it.
        self._first = math.ceil(accepted / period_s) + 1
        self._period_s = period_s
        self._timer = timer
        self._due = 0.0
        self.late = 0

    async def ticks(self) -> AsyncGenerator[None]:
        """Yield when the next frame is to be sealed, for ever."""
        timer, period_s = self._timer, self._period_s
        for number in count(self._first):
            # Never from the last one: delays must not add up to a pace that discloses
            # the load.
            self._due = due = number * period_s
            timer.reserve(due - READS_UNTIL * period_s, due + SPREAD * period_s)
            # Also for zero seconds: a late answer must not keep other tasks from
            # running.
            await timer.sleep(max(due - SEALED_BEFORE * period_s - timer.clock(), 0.0))
            yield

    async def due(self) -> None:
        """Wait until the frame is to be sent."""
        timer = self._timer
        wait_s = self._due - timer.clock()
        self.late += wait_s <= -self._period_s
        wait_s += timer.later(SPREAD * self._period_s)
        if wait_s > 0:
            await timer.sleep(wait_s)
