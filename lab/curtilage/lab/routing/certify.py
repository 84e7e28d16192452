"""Thresholds with a guarantee, or none: how much of the traffic a score may keep home.

A score that ranks answers or queries becomes a rule with a threshold: above it, the
home model's answer is taken. Chosen by the errors that were counted, such a threshold
is wrong too often: the best of several is lucky on the very data that chose it. So
each share of a grid, fixed before a label is read, has an upper confidence bound of
its own (Clopper-Pearson, at the grid's part of ``delta``), and the largest share whose
bound holds is taken.

The bounds hold all at once with probability ``1 - delta``, so every ``alpha`` that is
read off the same bounds is covered together with the others. They assume that what
comes is exchangeable with what was graded; ``drift`` looks for the end of that.
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
# Questions of a fit: the matrix of its dual form has so many rows and columns.
MOST_FITTED: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """One graded answer of the home model.

    Attributes:
        score: larger means taken sooner; it was made without looking at the grade.
        bad: whether the answer was not good enough.
    """

    score: float
    bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What is known of one share of the grid.

    Attributes:
        share: of the graded answers, at most.
        threshold: an answer with a larger score is taken.
        accepted: how many of the graded ones are.
        errors: how many of those were bad.
        upper: the error rate of what is taken lies below it, with confidence.
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
    """Bound the error rate of every share of a grid, in its order.

    Args:
        graded: answers that had no part in making the score.
        delta: with what probability some bound may fail.
        grid: shares between 0 and 1, fixed before the grades were seen.
        least: refuse fewer graded answers than that.

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
        # The threshold is the score of the first answer that is left out, and what is
        # taken lies strictly above: given that score, the answers above it are a
        # sample of their own. An answer of equal score is left out with it.
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
    """Return the largest share whose error rate is below ``alpha``; None if none is."""
    held = [each for each in bounds if each.accepted and each.upper <= alpha]
    return max(held, key=lambda each: each.accepted, default=None)


def least_abstention(error_rate: float, alpha: float) -> float:
    """Return how much any rule must send on so that ``alpha`` of what it keeps is bad.

    Even a score that knows every grade keeps no more. Of ``error_rate`` bad answers in
    all, at most ``alpha`` times what is kept may be among it.
    """
    return max(0.0, (error_rate - alpha) / (1 - alpha))


def auroc(graded: Sequence[Graded]) -> float:
    """Return how often a good answer has the larger score of two; a tie is half.

    Of answers that are all good, or all bad, it is one half: nothing is told apart.
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
