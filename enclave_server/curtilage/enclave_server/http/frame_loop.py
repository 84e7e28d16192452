"""An event loop that wakes when frames are due, and begins nothing shortly before.

asyncio waits in whole milliseconds, rounded up, from when it was last busy: how late a
frame is would depend on what else the loop did. This one waits to the microsecond. And
while it has reserved a time, it only runs what is due by the clock: what a pipe or a
connection brings (tokens of the model, other requests) waits until the frames are sent.
"""

import asyncio
import secrets
import select
import selectors
import time
from collections import deque
from collections.abc import Callable

from typing_extensions import override

from curtilage.enclave_server.answer.pacing import Timer


class FrameSelector(selectors.DefaultSelector):
    """Waits for events, except at reserved times.

    Args:
        clock: that of the event loop.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._sleep = sleep
        self._reserved = deque[tuple[float, float]]()

    def reserve(self, begin: float, end: float) -> None:
        """Return no event between two times; they follow those reserved before."""
        if not self._reserved or begin >= self._reserved[-1][1]:
            self._reserved.append((begin, end))

    @override
    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what can be read and written, after so many seconds at most."""
        now = self._clock()
        while self._reserved and self._reserved[0][1] <= now:
            self._reserved.popleft()
        if self._reserved:
            begin, end = self._reserved[0]
            if begin <= now:
                left_s = end - now if timeout is None else min(timeout, end - now)
                if left_s > 0:
                    self._sleep(left_s)
                return []
            timeout = begin - now if timeout is None else min(timeout, begin - now)
        if timeout is None or timeout > 0:
            # Its own descriptor can be read when any of the others can, and this call
            # does not round.
            select.select([self.fileno()], [], [], timeout)
        return super().select(0)


def frame_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], Timer]:
    """Return a factory of the event loop, and its timer for frames."""
    selector = FrameSelector()
    chance = secrets.SystemRandom()
    timer = Timer(
        later=lambda within_s: chance.uniform(0.0, within_s), reserve=selector.reserve
    )
    return lambda: asyncio.SelectorEventLoop(selector), timer
