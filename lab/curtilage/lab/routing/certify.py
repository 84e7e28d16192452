"""Thresholds with a guarantee, or none: how much of the traffic can be kept local.

A score that ranks answers or queries becomes a rule through a threshold: above it, the
local model's answer is used. A threshold chosen by the counted errors is wrong too
often, because the best of several was lucky on the data that chose it. So each share of
a grid, fixed before any label is read, has its own upper confidence bound
(Clopper-Pearson, at the grid's part of ``delta``), and the largest share whose bound
holds is chosen.

The bounds hold simultaneously with probability ``1 - delta``, so every ``alpha`` that
is read from them is covered. They assume that future traffic is exchangeable with the
graded one; ``drift`` detects when that ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Final

from curtilage.client.errors import UsageError
from curtilage.client.routing.bounds import upper_bound

GRID: Final = tuple(tenths / 10 for tenths in range(1, 11))
DELTA: Final = 0.05
MIN_GRADED: Final = 500
# The dual form of a fit has a square matrix of this size.
MOST_FITTED: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """One graded answer of the local model.

    Attributes:
        score: larger values are accepted first; computed without the grade.
        bad: whether the answer was not good enough.
    """

    score: float
    bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The error bound for one share of the grid.

    Attributes:
        share: of the graded answers, at most.
        threshold: an answer with a larger score is accepted.
        accepted: how many graded answers are accepted.
        errors: how many of those were bad.
        upper: upper confidence bound for the error rate of accepted answers.
    """

    share: float
    threshold: float
    accepted: int
    errors: int
    upper: float


def bounds_of(
    graded: Sequence[Graded],
    *,
    delta: float = DELTA,
    grid: Sequence[float] = GRID,
    least: int = MIN_GRADED,
) -> tuple[Bound, ...]:
    """Bound the error rate for every share of a grid, in its order.

    Args:
        graded: answers that were not used to make the score.
        delta: the probability that some bound fails.
        grid: shares between 0 and 1, fixed before the grades were seen.
        least: the minimum number of graded answers.

    Raises:
        UsageError: there are too few, or a number is out of its range.
    """
    if not 0 < delta < 1 or not grid or not all(0 < each <= 1 for each in grid):
        raise UsageError("delta and the shares of the grid lie between 0 and 1")
    if len(graded) < least:
        raise UsageError(f"{len(graded)} graded answers; it takes at least {least}")
    ranked = sorted(graded, key=lambda each: -each.score)
    bounds: list[Bound] = []
    for share in grid:
        count = int(share * len(ranked) + 1e-9)  # .3 * 10 is a little less than 3
        # The threshold is the score of the first excluded answer, and accepted answers
        # are strictly above it: given that score, they are a sample of their own. An
        # answer with an equal score is excluded too.
        threshold = ranked[count].score if count < len(ranked) else -inf
        taken = [each.bad for each in ranked[:count] if each.score > threshold]
        bounds.append(
            Bound(
                share=share,
                threshold=threshold,
                accepted=len(taken),
                errors=sum(taken),
                upper=upper_bound(sum(taken), len(taken), delta / len(grid)),
            )
        )
    return tuple(bounds)


def certified(bounds: Sequence[Bound], alpha: float) -> Bound | None:
    """Return the largest share with an error rate below ``alpha``; None if none has."""
    held = [each for each in bounds if each.accepted and each.upper <= alpha]
    return max(held, key=lambda each: each.accepted, default=None)


def least_abstention(error_rate: float, alpha: float) -> float:
    """Return the least share that any rule must send on to keep ``alpha`` of bad ones.

    Even a score that knows every grade cannot do better: of the ``error_rate`` bad
    answers in all, at most ``alpha`` times the kept share may be kept.
    """
    return max(0.0, (error_rate - alpha) / (1 - alpha))


def auroc(graded: Sequence[Graded]) -> float:
    """Return how often the better of two answers has the larger score; a tie is half.

    One half if all answers are good or all are bad, since there is nothing to rank.
    """
    good = sum(not each.bad for each in graded)
    pairs = good * (len(graded) - good)
    if not pairs:
        return 0.5
    wins, worse = 0.0, 0
    for _, group in groupby(sorted(graded, key=_score), key=_score):
        same = list(group)
        right = sum(not each.bad for each in same)
        wrong = len(same) - right
        wins += right * (worse + wrong / 2)
        worse += wrong
    return wins / pairs


def _score(graded: Graded) -> float:
    return graded.score
