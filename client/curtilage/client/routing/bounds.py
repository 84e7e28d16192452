"""Confidence bounds of a rate of errors, exact (Clopper-Pearson).

Thresholds and rollouts are judged by them, and certificates are made of them.
"""

from math import exp, lgamma, log, log1p
from typing import Final

_TINY: Final = 1e-300
_PRECISION: Final = 1e-15
# Both loops end for any input: a certificate is checked when a file is loaded, and a
# file with extreme counts must not hang the client.
_MOST_TERMS: Final = 100_000
_MOST_HALVINGS: Final = 200


def upper_bound(errors: int, count: int, delta: float) -> float:
    """Return the Clopper-Pearson upper bound of a rate, one-sided; 1 of nothing.

    Args:
        errors: how many were seen.
        count: among so many.
        delta: how often the true rate may lie above.
    """
    # Nothing was seen that speaks for a lower rate, and the distribution below is not
    # defined for it.
    if errors >= count:
        return 1.0
    return beta_quantile(1 - delta, errors + 1, count - errors)


def lower_bound(errors: int, count: int, delta: float) -> float:
    """Return the Clopper-Pearson lower bound of a rate, one-sided; 0 of nothing."""
    return 1 - upper_bound(count - errors, count, delta) if errors else 0.0


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of the beta distribution, by halving; never below it.

    Args:
        probability: between 0 and 1.
        a: first shape, above 0.
        b: second shape, above 0.
    """
    low, high = 0.0, 1.0
    for _ in range(_MOST_HALVINGS):
        middle = (low + high) / 2
        # No floating-point number is left between the two.
        if middle in {low, high}:
            break
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return high  # of the two numbers around the root, the one that promises less


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, I_x(a, b).

    By its continued fraction (DLMF 8.17.22) with Lentz's method as modified by
    Thompson and Barnett, on the side of the mean where it converges fast.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    front = exp(
        lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)
    ) / a  # fmt: skip
    value, c, d = 1.0, 1.0, 0.0
    for term in range(_MOST_TERMS):
        half = term // 2
        if term == 0:
            part = 1.0
        elif term % 2 == 0:
            part = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            part = -(a + half) * (a + b + half) * x
            part /= (a + 2 * half) * (a + 2 * half + 1)
        # Lentz's method fails if a denominator is exactly 0; a tiny number there does
        # not change the result.
        d = 1 / (1 + part * d or _TINY)
        c = 1 + part / c or _TINY
        value *= c * d
        if term and abs(1 - c * d) < _PRECISION:
            break
    return front * (value - 1)
