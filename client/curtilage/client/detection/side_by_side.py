"""Several inspectors that share many queries, each with its own detectors.

One process computes on one core, so a batch uses as many processes as there are cores.
The first is started immediately; the others are started when there is more than one can
handle at a time, and join in during the work. They do not share what they cache, so
neighbours in a batch, such as the turns of a conversation, stay together.
"""

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

from curtilage.client.chat.query import Query
from curtilage.client.detection.checked import InspectsMany
from curtilage.client.errors import DetectorsError
from curtilage.policy.decision.decide import Inspection

TOGETHER: Final = 32  # queries that one inspector takes at a time
MOST: Final = 4  # each takes the memory of a process


def cores() -> int:
    """Return how many processors this process may use, at most ``MOST``."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST)
    return min(os.cpu_count() or 1, MOST)


class OneOfMany(InspectsMany, Protocol):
    """An inspector with its own detectors."""

    @property
    def advice(self) -> str | None:
        """Advice from the detectors for the user, or None."""
        ...

    def close(self) -> None:
        """Stop the detectors."""
        ...


class SideBySide:
    """Inspects many queries on several cores; for one caller at a time."""

    def __init__(self, start: Callable[[], OneOfMany], *, count: int) -> None:
        """Start the first inspector, which takes seconds.

        Args:
            start: returns a running inspector.
            count: the maximum number.

        Raises:
            ConfigError, DetectorsError: it does not start.
        """
        self._start = start
        self._count = count
        self._started = [start()]
        self._free: queue.SimpleQueue[OneOfMany] = queue.SimpleQueue()
        self._free.put(self._started[0])
        self._helpers: list[threading.Thread] = []
        self._changing = threading.Lock()
        self._closed = False

    @property
    def advice(self) -> str | None:
        """Advice from the detectors for the user, or None."""
        return self._started[0].advice

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        """Yield one inspection for each query, in order."""
        parts = [
            queries[first : first + TOGETHER]
            for first in range(0, len(queries), TOGETHER)
        ]
        if len(parts) > 1:
            self._call_for_help()
        with ThreadPoolExecutor(self._count) as threads:
            for found in threads.map(self._look, parts):
                yield from found

    def close(self) -> None:
        """Stop all of them, including one that is being started."""
        with self._changing:
            self._closed = True
        for helper in self._helpers:
            helper.join()
        for each in self._started:
            each.close()

    def _look(self, part: Sequence[Query]) -> list[Inspection]:
        inspector = self._free.get()
        try:
            return list(inspector.inspect_many(part))
        finally:
            self._free.put(inspector)

    def _call_for_help(self) -> None:
        while len(self._helpers) < self._count - 1:
            helper = threading.Thread(target=self._help, daemon=True)
            self._helpers.append(helper)
            helper.start()

    def _help(self) -> None:
        # One that does not start costs time, but no query its result.
        with suppress(DetectorsError, OSError):
            inspector = self._start()
            with self._changing:
                self._started.append(inspector)
                if not self._closed:
                    self._free.put(inspector)
