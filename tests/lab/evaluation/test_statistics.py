import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.lab.evaluation.statistics import (
    Estimate,
    difference,
    mean_of_shares,
    quantile,
    quantile_estimate,
    share,
    share_of,
)


# Wilson, "Probable inference" (1927), as computed by hand for 8 of 10 and 0 of 10.
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)],
)
def test_a_share_has_wilsons_interval(
    hits: int, n: int, low: float, high: float
) -> None:
    found = share(hits, n)
    assert found.value == hits / n
    assert found.low == pytest.approx(low, abs=1e-4)
    assert found.high == pytest.approx(high, abs=1e-4)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_lies_in_its_interval(counts: tuple[int, int]) -> None:
    found = share(*counts)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_of_nothing_nothing_is_known() -> None:
    assert share(0, 0) == Estimate(value=0.0, low=0.0, high=1.0, n=0)
    assert mean_of_shares([share(0, 0)]).n == 0


@pytest.mark.parametrize(("hits", "n"), [(-1, 3), (4, 3)])
def test_a_share_refuses_impossible_counts(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="hits"):
        share(hits, n)


# Newcombe (1998), table II, method 10: 56/70 against 48/80.
def test_a_difference_has_newcombes_interval() -> None:
    found = difference(share(56, 70), share(48, 80))
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.0524, abs=1e-4)
    assert found.high == pytest.approx(0.3339, abs=1e-4)
    assert found.n == 150


def test_the_mean_of_shares_weighs_sets_alike() -> None:
    found = mean_of_shares([share(1, 1000), share(10, 10), share(0, 0)])
    assert found.value == pytest.approx((0.001 + 1) / 2)
    assert found.n == 1010


def test_share_of_counts_the_true_ones() -> None:
    assert share_of([True, False, True, True]).value == 0.75


@pytest.mark.parametrize(
    ("q", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)]
)
def test_a_quantile_is_one_of_the_values(q: float, expected: float) -> None:
    assert quantile(range(1, 101), q) == expected


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], 1.5), ([1.0], -0.1)])
def test_a_quantile_refuses_nothing_and_nonsense(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile(values, q)


# Order statistics: for the median of 100, ranks 40 and 61 cover 96.5%.
def test_a_median_has_the_interval_of_order_statistics() -> None:
    found = quantile_estimate(range(1, 101), 0.5)
    assert (found.low, found.value, found.high) == (40, 50, 61)


@given(
    st.lists(st.floats(0, 1000), min_size=1, max_size=300),
    st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
)
def test_a_quantile_lies_in_its_interval(values: list[float], q: float) -> None:
    found = quantile_estimate(values, q)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)
    assert math.isfinite(found.value)
