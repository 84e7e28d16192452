"""Cover traffic: a dummy on the wire for a query that stayed at home.

Where a policy asks for it, silence does not say 'regulated': some time after a
query is answered here, a sealed dummy of the same size class is sent, and its
answer is as long as those of real queries lately. This module knows when; what
a dummy is, the seal door alone knows. Failures are silent, and nobody waits.

A dummy is scheduled when this machine begins to answer, so that its time does
not tell how long that took. It uses the key in force, and where there is none,
fetches and verifies one, as a query that leaves would: on the wire the two are
the same. Nothing else of the query is kept here than its size class.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from curtilage.client import telemetry
from curtilage.client.errors import ClientError

MAX_PENDING: Final = 64
PERCENT: Final = 100
_MS: Final = 1000

Below = Callable[[int], int]
"""Draws an integer from 0 to one less than what it is given."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverSettings:
    """What the policy says of cover traffic.

    Attributes:
        delay_s: shortest and longest time to wait, in seconds.
        share: percent of the queries answered here that get a dummy.
    """

    delay_s: tuple[float, float]
    share: int


class Cover:
    """Sends dummies after a while.

    Args:
        settings: of the policy.
        send: sends a dummy of a size class and returns once its answer ended.
        below: randomness.
        sleep: waits, in seconds.
    """

    def __init__(
        self,
        settings: CoverSettings,
        send: Callable[[int], Awaitable[None]],
        *,
        below: Below = secrets.randbelow,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._send = send
        self._below = below
        self._sleep = sleep
        self._pending: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """How many dummies wait or are on the wire."""
        return len(self._pending)

    def answered_here(self, size_class: int) -> None:
        """Take note that a query of a size class is answered here."""
        drawn = self._below(PERCENT) < self._settings.share
        if not drawn or self.pending >= MAX_PENDING:
            return
        task = asyncio.create_task(self._later(size_class, self._delay_s()))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def settle(self) -> None:
        """Wait until every dummy was sent and answered."""
        while self._pending:
            await asyncio.wait(tuple(self._pending))

    async def close(self) -> None:
        """Send none of those that wait."""
        pending = tuple(self._pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _later(self, size_class: int, delay_s: float) -> None:
        await self._sleep(delay_s)
        with suppress(ClientError):
            await self._send(size_class)
            telemetry.covered()

    def _delay_s(self) -> float:
        low, high = (round(each * _MS) for each in self._settings.delay_s)
        return (low + self._below(high - low + 1)) / _MS
