"""Virtual time for code with timers: it advances when every task waits."""

import asyncio
import heapq
from dataclasses import dataclass, field

from curtilage.enclave_server.answer.pacing import Timer

SETTLE = 30
"""How often other tasks may run before time advances; more than any needs."""


@dataclass
class VirtualTime:
    """A clock whose sleepers wake in order, without any waiting.

    ``lag_s``: how much later than due the first sleepers wake.
    """

    now: float = 1000.0
    lag_s: list[float] = field(default_factory=list[float])
    _sleepers: list[tuple[float, int, asyncio.Event]] = field(
        default_factory=list[tuple[float, int, asyncio.Event]]
    )
    _count: int = 0
    _moves: int = 0

    @property
    def timer(self) -> Timer:
        return Timer(clock=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced; waiting tasks advance it."""
        self._count += 1
        woken = asyncio.Event()
        entry = (self.now + seconds, self._count, woken)
        heapq.heappush(self._sleepers, entry)
        try:
            while not woken.is_set():
                await self._settle(woken)
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)

    async def _settle(self, woken: asyncio.Event) -> None:
        moves = self._moves
        for _ in range(SETTLE):
            await asyncio.sleep(0)
        if moves == self._moves and not woken.is_set():
            self._wake_next()

    def _wake_next(self) -> None:
        due, _, woken = heapq.heappop(self._sleepers)
        lag = self.lag_s.pop(0) if self.lag_s else 0.0
        self.now = max(self.now, due) + lag
        self._moves += 1
        woken.set()
