"""How the time of a piece of code grows with its input, told without flakes.

Other work on the machine can only make one measurement longer, in either half of
a comparison. So a comparison is repeated until it holds once: code that grows as
promised passes at the first quiet moment, code that does not fails every time.
"""

import time
from collections.abc import Callable

TRIES = 12


def seconds_of(work: Callable[[], object]) -> float:
    """Return the CPU time that this thread spends on ``work``."""
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
    """Tell whether the longer input costs at most ``factor`` times the shorter."""
    short, long = lengths
    cost(short)
    return any(cost(long) <= factor * cost(short) + noise_s for _ in range(TRIES))


def takes_less_than(work: Callable[[], object], limit_s: float) -> bool:
    """Tell whether ``work`` took less CPU time than ``limit_s``, once."""
    return any(seconds_of(work) < limit_s for _ in range(3))
