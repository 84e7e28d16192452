"""The times at which the frames of an answer are sent: a constant pace.

A request is accepted when its last byte has been read, before any of it is opened. The
first tick comes one period later, so that all work on the request (decapsulating,
parsing, refusing) happens within that period and its duration is not observable.

Knows a clock and a way to wait, both passed in; nothing of what is sent. A late tick
comes at once and the ones after it keep their times, so that a delay neither moves nor
merges what follows.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A clock, and a way to wait by it.

    Attributes:
        clock: seconds, monotonic.
        sleep: wait so many seconds; 0 lets other tasks run.
    """

    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


LOOP_TIMER = Timer()
"""The event loop's time."""


class Pacer:
    """Ticks at t0 + T, t0 + 2T and so on.

    Args:
        accepted: t0, by the timer's clock.
        period_s: T.
        timer: see there.

    Attributes:
        late: how many ticks came a whole period late, or more.
    """

    def __init__(self, accepted: float, period_s: float, timer: Timer) -> None:
        self._accepted = accepted
        self._period_s = period_s
        self._timer = timer
        self.late = 0

    async def ticks(self) -> AsyncGenerator[None]:
        """Yield at every tick, for ever."""
        for number in count(1):
            # From the first one, never from the last: delays must not add up to a pace
            # that discloses the load.
            due = self._accepted + number * self._period_s
            wait_s = due - self._timer.clock()
            self.late += wait_s <= -self._period_s
            # Also for zero seconds: a late answer must not keep other tasks from
            # running.
            await self._timer.sleep(max(wait_s, 0.0))
            yield
