"""A copy that all clients share: fetched once, served unchanged, then dropped.

A copy or an age for each client would identify clients; so there is one copy, one
age, and no answer older than it. Knows neither HTTP nor clients.
"""

import asyncio
from collections.abc import Awaitable, Callable

Fetcher = Callable[[], Awaitable[bytes]]


class SharedCopy:
    """A value that all clients share until it is too old.

    Args:
        fetch: gets it; an exception is raised to all that wait.
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
        # Dropped, not kept as a fallback: an old key list would make clients seal to a
        # key that the gateway has overwritten.
        if self._clock() - self._fetched_at >= self._max_age_s:
            self._value = None
        return self._value

    async def get(self) -> bytes:
        """Return the copy; if there is none, fetch it once for all callers."""
        value = self.current()
        if value is not None:
            return value
        # One fetch for all: a fetch for each client would show the gateway when it
        # came.
        if self._running is None:
            self._running = asyncio.create_task(self._refresh())
            self._running.add_done_callback(self._finished)
        # Shielded: one client that disconnects must not cancel it for the others.
        return await asyncio.shield(self._running)

    async def close(self) -> None:
        """Stop a fetch that is under way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _refresh(self) -> bytes:
        # The age counts from before the fetch, which may take a while.
        began = self._clock()
        value = await self._fetch()
        self._value, self._fetched_at = value, began
        return value

    def _finished(self, task: asyncio.Task[bytes]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # retrieved, also when all that waited have gone
