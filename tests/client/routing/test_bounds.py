"""Confidence bounds: exact, and on the safe side of the root."""

from fractions import Fraction
from math import comb

import pytest

from curtilage.client.routing.bounds import (
    beta_cdf,
    beta_quantile,
    lower_bound,
    upper_bound,
)


@pytest.mark.parametrize("a", [1, 2, 7, 60, 300])
@pytest.mark.parametrize("b", [1, 3, 40, 300])
def test_the_incomplete_beta_function_is_a_binomial_tail(a: int, b: int) -> None:
    count = a + b - 1
    for at in (1, 5, 25, 50, 80, 99):
        x = Fraction(at, 100)
        tail = sum(
            comb(count, k) * x**k * (1 - x) ** (count - k) for k in range(a, count + 1)
        )
        assert beta_cdf(float(x), a, b) == pytest.approx(float(tail), rel=1e-9)


def test_beyond_its_ends_the_distribution_is_nothing_or_all() -> None:
    assert beta_cdf(0, 2, 3) == 0
    assert beta_cdf(1, 2, 3) == 1


# scipy.stats.beta.ppf(0.995, errors + 1, count - errors), version 1.17
BOUNDS = (
    (0, 50, 0.10054508337476258),
    (3, 60, 0.17118538904120492),
    (40, 500, 0.1164115262230494),
    (499, 500, 0.9999899749666039),
    (100, 10_000, 0.012857514246765707),
)


@pytest.mark.parametrize(("errors", "count", "theirs"), BOUNDS)
def test_the_bound_is_scipys(errors: int, count: int, theirs: float) -> None:
    assert upper_bound(errors, count, 0.005) == pytest.approx(theirs, rel=1e-9)


def test_a_quantile_is_never_below_the_root() -> None:
    assert beta_cdf(beta_quantile(0.95, 4, 70), 4, 70) >= 0.95


def test_of_nothing_everything_is_possible() -> None:
    assert upper_bound(0, 0, 0.05) == 1
    assert upper_bound(5, 5, 0.05) == 1
    assert lower_bound(0, 5, 0.05) == 0


def test_the_lower_bound_is_the_upper_one_of_the_rest() -> None:
    assert lower_bound(8, 10, 0.05) == pytest.approx(1 - upper_bound(2, 10, 0.05))
