"""Reliable tests of how the run time of code grows with its input.

Other work on the machine can only make a measurement longer, in either half of a
comparison. So each half is measured several times and its quickest counts. Code that
grows as promised passes at the first quiet moment; code that does not would pass only
where everything short, and nothing long, was held up.
"""

import math
import sys
import time
from collections.abc import Callable

from support.needs import MEASURED

LEAST, MOST = 4, 16


def seconds_of(work: Callable[[], object]) -> float:
    """Return the CPU time that this thread spends on ``work``."""
    sys.audit(MEASURED)
    began = time.thread_time()
    work()
    return time.thread_time() - began


def grows_at_most(
    cost: Callable[[int], float],
    *,
    lengths: tuple[int, int],
    factor: float,
    noise_s: float = 0.005,
) -> bool:
    """Return whether the longer input costs at most ``factor`` times the shorter."""
    quickest = dict.fromkeys(lengths, math.inf)
    short, long = lengths
    for tried in range(1, MOST + 1):
        for length in lengths:
            quickest[length] = min(quickest[length], cost(length))
        if tried >= LEAST and quickest[long] <= factor * quickest[short] + noise_s:
            return True
    return False


def takes_less_than(work: Callable[[], object], limit_s: float) -> bool:
    """Return whether ``work`` took less CPU time than ``limit_s``, once."""
    return any(seconds_of(work) < limit_s for _ in range(3))
