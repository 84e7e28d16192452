"""Cover traffic: a request on the wire for a query that stayed at home.

Where a policy asks for it, silence does not say 'regulated': some time after a
query is answered here, a sealed cover request of the same size class is sent, and
its answer is as long as those of real queries lately. This module knows when; what
a cover request is, the seal door alone knows. Failures are silent, nobody waits.

It is scheduled when this machine begins to answer, so that its time does not tell
how long that took. It uses the key in force, and where there is none, fetches and
verifies one, as a query that leaves would: on the wire the two are the same.
Nothing else of the query is kept here than its size class.
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
    """What the policy says of cover traffic.

    Attributes:
        delay_s: shortest and longest time to wait, in seconds.
        share: percent of the queries answered here that get a cover request.
    """

    delay_s: tuple[float, float]
    share: int


class SendsCover(Protocol):
    """The enclave's client, as far as cover traffic needs it."""

    async def cover(self, size_class: int, records: RecordsCover) -> None:
        """Send a cover request and return once its answer ended.

        Raises:
            EnclaveError: it could not be sent, or had no answer.
        """
        ...


class CoverTraffic:
    """Sends cover requests after a while.

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
        """How many cover requests wait or are on the wire."""
        return len(self._pending)

    def answered_here(self, size_class: int) -> None:
        """Take note that a query of a size class is answered here."""
        # By chance and not by count: every third query would be a pattern. Beyond the
        # bound, none is queued: a burst of queries must not become a burst of requests
        # minutes later.
        drawn = self._below(PERCENT) < self._settings.share
        if not drawn or self.pending >= MAX_PENDING:
            return
        # In whole milliseconds, each as likely as any other.
        low, high = (round(each * _MS) for each in self._settings.delay_s)
        delay_s = (low + self._below(high - low + 1)) / _MS
        # Kept by us: an event loop holds its tasks by a weak reference only.
        task = asyncio.create_task(self._later(size_class, delay_s))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def settle(self) -> None:
        """Wait until every cover request was sent and answered."""
        while self._pending:
            await asyncio.wait(tuple(self._pending))

    async def close(self) -> None:
        """Send none of those that wait."""
        # Only what waits is lost, and at the end of a session that was cut off.
        pending = tuple(self._pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _later(self, size_class: int, delay_s: float) -> None:
        await self._sleep(delay_s)
        # In silence: nobody asked for it, and a failure says nothing of any query.
        with suppress(ClientError):
            await self._enclave.cover(size_class, self._records)
            telemetry.covered()
