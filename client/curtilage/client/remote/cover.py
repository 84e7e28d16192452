"""Cover traffic: dummy requests sent for queries that were answered locally.

If the policy asks for it, an absent request does not reveal regulated data: some time
after a query is answered locally, a sealed cover request of the same size class is
sent, and its answer is as long as recent real ones. This module decides when; only
``seal`` knows what a cover request contains. Failures are silent, no caller waits.

It is scheduled when local generation begins, so that its time does not reveal how long
the answer took. It uses the key in force; without one it fetches and verifies one, as a
real query would: the two look the same on the wire. Of the query, only the size class
is kept here.
"""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from curtilage.client import telemetry
from curtilage.client.errors import ClientError
from curtilage.client.remote.keys import RandomBelow, Sleep
from curtilage.client.remote.requests import RecordsCover

MAX_PENDING: Final = 64
PERCENT: Final = 100
_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverSettings:
    """The policy's settings for cover traffic.

    Attributes:
        delay_s: shortest and longest delay, in seconds.
        share: percent of the locally answered queries that get a cover request.
    """

    delay_s: tuple[float, float]
    share: int


class SendsCover(Protocol):
    """The part of the enclave's client that cover traffic needs."""

    async def cover(self, size_class: int, records: RecordsCover) -> None:
        """Send a cover request and return once its answer ended.

        Raises:
            EnclaveError: it could not be sent, or had no answer.
        """
        ...


class CoverTraffic:
    """Sends cover requests after a random delay.

    Args:
        settings: of the policy.
        enclave: sends them.
        records: where they are recorded.
        below: randomness.
        sleep: waits, in seconds.
    """

    def __init__(
        self,
        settings: CoverSettings,
        enclave: SendsCover,
        records: RecordsCover,
        *,
        below: RandomBelow = secrets.randbelow,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._enclave = enclave
        self._records = records
        self._below = below
        self._sleep = sleep
        self._pending: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """Number of cover requests that are scheduled or on the wire."""
        return len(self._pending)

    def answered_here(self, size_class: int) -> None:
        """Schedule a cover request, by chance, for a locally answered query."""
        # Random and not counted: every third query would be a pattern. Above the limit
        # none is queued: a burst of queries must not become a burst of requests minutes
        # later.
        drawn = self._below(PERCENT) < self._settings.share
        if not drawn or self.pending >= MAX_PENDING:
            return
        # In whole milliseconds, uniformly distributed.
        low, high = (round(each * _MS) for each in self._settings.delay_s)
        delay_s = (low + self._below(high - low + 1)) / _MS
        # Referenced here: an event loop holds its tasks by a weak reference only.
        task = asyncio.create_task(self._later(size_class, delay_s))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def settle(self) -> None:
        """Wait until every cover request was sent and answered."""
        while self._pending:
            await asyncio.wait(tuple(self._pending))

    async def close(self) -> None:
        """Cancel the cover requests that are still scheduled."""
        # Only scheduled requests are lost, at the end of an interrupted session.
        pending = tuple(self._pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _later(self, size_class: int, delay_s: float) -> None:
        # After a random delay: sent at once, it would mark the moment of a query that
        # was kept local.
        await self._sleep(delay_s)
        # Silently: no caller waits for it, and a failure concerns no query.
        with suppress(ClientError):
            await self._enclave.cover(size_class, self._records)
            telemetry.covered()
