"""The tasks that no answer waits for; closing the session does."""

import asyncio
from collections.abc import Coroutine


class Background:
    """Running tasks."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    def run(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        """Run a task."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def settle(self) -> None:
        """Wait until all have ended."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def close(self) -> None:
        """Cancel those that still run."""
        for task in self._running:
            task.cancel()
