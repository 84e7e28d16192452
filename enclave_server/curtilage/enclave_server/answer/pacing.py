"""When the frames of an answer go out: at a constant pace from its acceptance.

A request is accepted when its last octet has been read, before anything of it is
opened. The first tick comes one period later, so that whatever is done with the
request (decapsulating, parsing, refusing) lies inside that period and the time it
takes does not show.

Knows a clock and a way to wait, both given; nothing of what is sent. A tick that
comes too late comes at once and the ones behind it keep their times, so that a
delay neither moves nor merges what follows.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A clock and how to wait by it.

    Attributes:
        clock: seconds, never going back.
        sleep: wait so many seconds; 0 lets others run.
    """

    clock: Callable[[], float] = _loop_time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


LOOP_TIMER = Timer()
"""The event loop's own time."""


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
            # that tells how busy we were.
            due = self._accepted + number * self._period_s
            wait_s = due - self._timer.clock()
            self.late += wait_s <= -self._period_s
            # Also for no time at all: who is late must not keep others from running.
            await self._timer.sleep(max(wait_s, 0.0))
            yield
