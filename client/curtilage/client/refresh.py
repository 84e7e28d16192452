"""When a key is renewed: in the background, at a time that was drawn beforehand.

A relay sees when evidence is fetched. Fetched when a query needs it, that would
tell of queries; so the next time is drawn when a key is accepted, near four
fifths of its life, and nothing that is asked meanwhile moves it. One renewal
runs at a time. After one that failed the next is drawn likewise, and the key in
force serves on until it ends.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from curtilage.attest.verify import VerifiedKey

EARLIEST: Final = 0.75
SPREAD: Final = 0.10
"""A key is renewed after 0.75 to 0.85 of its life, evenly distributed."""
RETRY: Final = 0.05
"""After a failure, the next attempt comes after this part of the life, give or
take half of it, and never sooner than the time a refusal is remembered."""
LEAST_RETRY_S: Final = 60.0
_STEPS: Final = 2**32

Below = Callable[[int], int]
"""Draws an integer from 0 to one less than what it is given."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """One renewal to come.

    Attributes:
        key: to be renewed.
        life_s: from its acceptance to its end.
        wait_s: until the renewal.
    """

    key: VerifiedKey
    life_s: float
    wait_s: float


class Refresher:
    """Renews the key in force before it ends.

    Args:
        renew: fetches and verifies; returns the new key, or None if that failed.
        clock: the time, aware UTC.
        sleep: waits, in seconds.
        below: randomness.
    """

    def __init__(
        self,
        renew: Callable[[VerifiedKey], Awaitable[VerifiedKey | None]],
        clock: Callable[[], datetime],
        *,
        sleep: Sleep = asyncio.sleep,
        below: Below = secrets.randbelow,
    ) -> None:
        self._renew = renew
        self._clock = clock
        self._sleep = sleep
        self._below = below
        self._task: asyncio.Task[None] | None = None

    def accepted(self, key: VerifiedKey) -> None:
        """Draw when a key that was just accepted is renewed, and begin to wait.

        What was drawn for the key before is dropped.
        """
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._run(self._first(key)))

    async def close(self) -> None:
        """Renew nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, plan: _Plan) -> None:
        while True:
            await self._sleep(plan.wait_s)
            fresh = await self._renew(plan.key)
            plan = self._again(plan) if fresh is None else self._first(fresh)

    def _first(self, key: VerifiedKey) -> _Plan:
        life_s = max((key.expires_at - self._clock()).total_seconds(), 0.0)
        wait_s = max(life_s * (EARLIEST + SPREAD * self._drawn()), 1.0)
        return _Plan(key=key, life_s=life_s, wait_s=wait_s)

    def _again(self, plan: _Plan) -> _Plan:
        wait_s = plan.life_s * RETRY * (0.5 + self._drawn())
        return _Plan(
            key=plan.key, life_s=plan.life_s, wait_s=max(wait_s, LEAST_RETRY_S)
        )

    def _drawn(self) -> float:
        return self._below(_STEPS) / _STEPS
