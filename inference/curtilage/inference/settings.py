"""The settings of an engine: its context, threads, queue and turns.

Needs no library: also the process that starts the engine's own reads them.
"""

import os
from dataclasses import dataclass
from typing import Final

MAX_THREADS: Final = 16
"""Decoding is bound by memory; more threads than this only wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The limits of one engine.

    Attributes:
        context_tokens: prompt and answer together; at most what the model was
            trained for.
        least_context_tokens: if memory is short, a context is made that is smaller
            by half or more, but not below this; None: no smaller one is accepted.
        threads: threads of one decode; None: the CPUs this process may use.
        max_queued: how many requests may wait.
        sequences: how many are answered at the same time, each with a context of
            ``context_tokens``; one, if memory is short or the model's sequences
            cannot be erased one by one.
        niceness: of the computing threads, 0 to 19; if the system supports niceness
            per thread.
        turn_s: how long one answer may be written while others wait.
    """

    context_tokens: int = 4096
    least_context_tokens: int | None = None
    threads: int | None = None
    max_queued: int = 16
    sequences: int = 1
    niceness: int = 0
    turn_s: float = 2.0


DEFAULTS: Final = EngineSettings()


def available_cpus() -> int:
    """Return how many CPUs this process may use, at most ``MAX_THREADS``."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)
