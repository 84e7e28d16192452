"""Quality of a router's ranking: RouteLLM's figures, on outcomes of two models.

A row is one prompt that a weak and a strong model answered, right (1) or wrong (0); a
score is the need of the strong one. Rows go to the strong model in the order of their
scores. The recovered gap at a share of strong calls is (quality reached - weak's) /
(strong's - weak's). APGR is its mean over shares from 0 to 1 (10 bins, trapezoid;
chance has 0.5). CPT50 and CPT80 are the lowest percentages of strong calls for 50 and
80 % of the gap, interpolated linearly between the bins.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_BINS = 10
_ROUNDS = 1000

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quality:
    """APGR, CPT50, CPT80; or an array of the three for computing intervals."""

    apgr: float
    cpt50: float
    cpt80: float


def quality(scores: Numbers, gains: Numbers) -> Quality:
    """Return the figures of scores, given each row's strong minus weak outcome."""
    order = np.argsort(-scores, kind="stable")
    count = len(order)
    reached = np.concatenate([[0.0], np.cumsum(gains[order])]) / gains.sum()
    shares = np.linspace(0, 1, _BINS + 1)
    curve = reached[np.round(shares * count).astype(int)]
    return Quality(
        float(np.trapezoid(curve, shares)),
        _share_for(0.5, shares, curve),
        _share_for(0.8, shares, curve),
    )


def interval(
    scores: Numbers, gains: Numbers, seed: int = 0, rounds: int = _ROUNDS
) -> tuple[Quality, Quality]:
    """Return the 2.5 and 97.5 percentiles of the figures over resampled rows."""
    draw = np.random.default_rng(seed)
    drawn: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        rows = draw.integers(0, len(scores), len(scores))
        if gains[rows].sum() > 0:
            each = quality(scores[rows], gains[rows])
            drawn.append((each.apgr, each.cpt50, each.cpt80))
    low, high = np.percentile(np.array(drawn), [2.5, 97.5], axis=0)
    return Quality(*map(float, low)), Quality(*map(float, high))


def difference(
    scores: Numbers, rival: Numbers, gains: Numbers, rounds: int = _ROUNDS
) -> tuple[float, float]:
    """Return the 2.5 and 97.5 percentiles of the first APGR minus the second."""
    draw = np.random.default_rng(0)
    drawn: list[float] = []
    for _ in range(rounds):
        rows = draw.integers(0, len(scores), len(scores))
        if gains[rows].sum() > 0:
            one, other = (
                quality(each[rows], gains[rows]).apgr for each in (scores, rival)
            )
            drawn.append(one - other)
    low, high = np.percentile(np.array(drawn), [2.5, 97.5])
    return float(low), float(high)


def _share_for(part: float, shares: Numbers, curve: Numbers) -> float:
    after = int(np.argmax(curve >= part))
    low, high = curve[after - 1], curve[after]
    share = shares[after - 1] + (part - low) / (high - low) * (
        shares[after] - shares[after - 1]
    )
    return float(100 * share)
