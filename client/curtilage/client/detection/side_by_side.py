"""Several inspectors that share many queries, each with detectors of its own.

One process computes on one core, so a batch takes as many as there are cores. The
first is there at once; the others are started when there is more than it takes at a
time, and join while it works. What one of them remembers of a text the others do not
know: neighbours in a batch, such as the turns of a conversation, stay together.
"""

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

from curtilage.client.detection.checked import InspectsMany
from curtilage.client.errors import DetectorsError
from curtilage.client.query import Query
from curtilage.policy.decision.decide import Inspection

TOGETHER: Final = 32  # queries that one of them takes at a time
MOST: Final = 4  # each has the memory of a process


def cores() -> int:
    """Return how many processors this process may use, ``MOST`` at most."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST)
    return min(os.cpu_count() or 1, MOST)


class OneOfMany(InspectsMany, Protocol):
    """An inspector with detectors of its own."""

    @property
    def advice(self) -> str | None:
        """What a person should be told of the detectors, or None."""
        ...

    def close(self) -> None:
        """Stop the detectors."""
        ...


class SideBySide:
    """Looks at many queries on several cores; for one caller at a time."""

    def __init__(self, start: Callable[[], OneOfMany], *, count: int) -> None:
        """Start the first inspector, some seconds.

        Args:
            start: returns an inspector that is ready.
            count: how many there may be.

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
        """What a person should be told of the detectors, or None."""
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
        """Stop all of them, also one that is being started."""
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
        # One that does not start costs time, and no query its answer.
        with suppress(DetectorsError, OSError):
            inspector = self._start()
            with self._changing:
                self._started.append(inspector)
                if not self._closed:
                    self._free.put(inspector)
