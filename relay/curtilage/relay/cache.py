"""One copy for everybody: fetched once, served byte for byte, then dropped.

A copy per client, or an age per client, would mark clients; so there is one
copy, one age, and no answer older than it. Knows neither HTTP nor clients.
"""

import asyncio
from collections.abc import Awaitable, Callable

Fetcher = Callable[[], Awaitable[bytes]]


class SharedCopy:
    """A value that everybody shares until it is too old.

    Args:
        fetch: gets it; whatever it raises goes to everybody who waits.
        max_age_s: age at which a copy is no longer served.
        clock: monotonic seconds.
    """

    def __init__(
        self, fetch: Fetcher, *, max_age_s: float, clock: Callable[[], float]
    ) -> None:
        self._fetch = fetch
        self._max_age_s = max_age_s
        self._clock = clock
        self._value: bytes | None = None
        self._fetched_at = 0.0
        self._running: asyncio.Task[bytes] | None = None

    def current(self) -> bytes | None:
        """Return the copy while it is young enough, else None."""
        # Forgotten, not kept for bad days: an old key list would send requests to a key
        # that the gateway has overwritten.
        if self._clock() - self._fetched_at >= self._max_age_s:
            self._value = None
        return self._value

    async def get(self) -> bytes:
        """Return the copy; fetch it, once for all who ask, when there is none."""
        value = self.current()
        if value is not None:
            return value
        # One fetch for all: each client's own would tell the gateway when it came.
        if self._running is None:
            self._running = asyncio.create_task(self._refresh())
            self._running.add_done_callback(self._finished)
        # Shielded: one client that goes away must not cancel it for the others.
        return await asyncio.shield(self._running)

    async def close(self) -> None:
        """Stop a fetch that is under way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _refresh(self) -> bytes:
        # The age counts from before the fetch: it may have taken a while.
        began = self._clock()
        value = await self._fetch()
        self._value, self._fetched_at = value, began
        return value

    def _finished(self, task: asyncio.Task[bytes]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # seen, also when everybody who waited is gone
