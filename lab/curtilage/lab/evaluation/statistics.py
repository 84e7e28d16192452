"""Shares, quantiles and their 95% intervals; pure functions without chance.

Shares have Wilson's score interval, differences of two shares Newcombe's, and
quantiles the exact interval of order statistics (binomial). Rows are assumed to be
independent; if one text has several marks, the interval is a little too narrow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Z95: Final = 1.959963984540054  # the normal quantile of 0.975
_TAIL: Final = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value, its 95% interval, and the number of observations.

    Attributes:
        value: the point estimate.
        low: lower end.
        high: upper end.
        n: observations; 0 means that nothing is known.
    """

    value: float
    low: float
    high: float
    n: int


def share(hits: int, n: int) -> Estimate:
    """Return a share with Wilson's interval.

    Raises:
        ValueError: not 0 <= hits <= n.
    """
    if not 0 <= hits <= n:
        raise ValueError("a share needs 0 <= hits <= n")
    if n == 0:
        return Estimate(value=0.0, low=0.0, high=1.0, n=0)
    p = hits / n
    weight = 1 + Z95**2 / n
    centre = (p + Z95**2 / (2 * n)) / weight
    half = Z95 / weight * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    return Estimate(
        value=p,
        # At the ends, the formula is exact except for rounding.
        low=0.0 if hits == 0 else centre - half,
        high=1.0 if hits == n else centre + half,
        n=n,
    )


def share_of(outcomes: Sequence[bool]) -> Estimate:
    """Return the share of true values."""
    return share(sum(outcomes), len(outcomes))


def difference(larger: Estimate, smaller: Estimate) -> Estimate:
    """Return the difference of two independent shares, by Newcombe's method 10."""
    gap = larger.value - smaller.value
    below = math.hypot(larger.value - larger.low, smaller.high - smaller.value)
    above = math.hypot(larger.high - larger.value, smaller.value - smaller.low)
    return Estimate(
        value=gap,
        low=max(gap - below, -1.0),
        high=min(gap + above, 1.0),
        n=larger.n + smaller.n,
    )


def mean_of_shares(shares: Sequence[Estimate]) -> Estimate:
    """Return the unweighted mean of shares, so that a large set does not dominate.

    The interval is the normal approximation for independent shares.
    """
    known = [each for each in shares if each.n]
    if not known:
        return Estimate(value=0.0, low=0.0, high=1.0, n=0)
    value = sum(each.value for each in known) / len(known)
    variance = sum(each.value * (1 - each.value) / each.n for each in known)
    half = Z95 * math.sqrt(variance) / len(known)
    return Estimate(
        value=value,
        low=max(value - half, 0.0),
        high=min(value + half, 1.0),
        n=sum(each.n for each in known),
    )


def quantile(values: Sequence[float], q: float) -> float:
    """Return the nearest-rank quantile.

    Raises:
        ValueError: no values, or q outside 0 to 1.
    """
    if not values or not 0 <= q <= 1:
        raise ValueError("a quantile needs values and 0 <= q <= 1")
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered)) - 1, 0)]


def quantile_estimate(values: Sequence[float], q: float) -> Estimate:
    """Return a quantile with the exact interval of order statistics.

    If there are too few values for 97.5% on a side, the end is the smallest or the
    largest value.
    """
    ordered = sorted(values)
    n = len(ordered)
    below = _binomial_quantile(n, q, _TAIL)
    above = _binomial_quantile(n, q, 1 - _TAIL)
    return Estimate(
        value=quantile(ordered, q),
        low=ordered[max(below - 1, 0)],
        high=ordered[min(above, n - 1)],
        n=n,
    )


def _binomial_quantile(n: int, p: float, level: float) -> int:
    """Return the least k with P(X <= k) >= level for a binomial(n, p) X."""
    if p in (0.0, 1.0):
        return round(p * n)
    total = 0.0
    for k in range(n + 1):
        total += math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(p)
            + (n - k) * math.log(1 - p)
        )
        if total >= level:
            return k
    return n
