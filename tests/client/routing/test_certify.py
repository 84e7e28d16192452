"""Certified thresholds: the bound is exact, and the promise holds as often as said."""

import random
from collections.abc import Sequence
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.errors import UsageError
from curtilage.client.routing.certify import (
    GRID,
    Bound,
    Graded,
    auroc,
    beta_cdf,
    beta_quantile,
    bounds_of,
    certified,
    least_abstention,
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


def items(count: int, rate: float, seed: int) -> list[Graded]:
    """Answers whose score says something of how often they are bad."""
    drawn = random.Random(seed)  # noqa: S311 - repeatable, no secret
    made: list[Graded] = []
    for _ in range(count):
        ease = drawn.random()
        bad = drawn.random() < min(1.0, 2 * rate * (1 - ease))
        made.append(Graded(score=ease, bad=bad))
    return made


def test_the_largest_share_that_holds_is_taken() -> None:
    bounds = bounds_of(items(2000, 0.2, seed=1))
    found = certified(bounds, 0.15)
    assert found is not None
    assert found.upper <= 0.15
    larger = [each for each in bounds if each.accepted > found.accepted]
    assert larger
    assert all(each.upper > 0.15 for each in larger)


def test_all_of_it_has_no_threshold() -> None:
    last = bounds_of(items(600, 0.01, seed=2))[-1]
    assert last.share == 1
    assert last.accepted == 600
    assert last.threshold == float("-inf")


def test_what_has_the_thresholds_own_score_is_not_taken() -> None:
    graded = [Graded(score=float(at < 40), bad=at >= 40) for at in range(600)]
    bounds = {each.share: each for each in bounds_of(graded)}
    # Half of it reaches far into the answers that score 0, all of them alike.
    assert bounds[0.5].threshold == 0
    assert bounds[0.5].accepted == 40
    assert bounds[0.5].errors == 0


def test_a_score_that_tells_nothing_takes_nothing() -> None:
    graded = [Graded(score=1.0, bad=at % 50 == 0) for at in range(1000)]
    bounds = bounds_of(graded, grid=(0.5,))
    assert bounds[0].accepted == 0
    assert certified(bounds, 0.5) is None


def test_nothing_is_certified_where_nothing_can_be() -> None:
    assert certified(bounds_of(items(600, 0.5, seed=3)), 0.01) is None


def test_too_few_grades_are_refused() -> None:
    with pytest.raises(UsageError, match="499 graded answers; it takes at least 500"):
        bounds_of(items(499, 0.1, seed=4))


@pytest.mark.parametrize("grid", [(), (0.0,), (1.1,)])
def test_a_grid_of_no_shares_is_refused(grid: Sequence[float]) -> None:
    with pytest.raises(UsageError, match="grid"):
        bounds_of(items(500, 0.1, seed=5), grid=grid)


def test_the_least_abstention() -> None:
    assert least_abstention(0.28, 0.10) == pytest.approx(0.2)
    assert least_abstention(0.05, 0.10) == 0


def true_risk(bound: Bound, rate: float) -> float:
    """Return how often what is above a threshold is bad, by the law of ``items``."""
    start = max(bound.threshold, 0.0)
    return 2 * rate * (1 - (start + 1) / 2)


def test_the_promise_is_broken_in_at_most_one_of_twenty_repetitions() -> None:
    rate, alpha, broken = 0.2, 0.15, 0
    for seed in range(200):
        found = certified(bounds_of(items(500, rate, seed), grid=GRID), alpha)
        broken += found is not None and true_risk(found, rate) > alpha
    assert broken <= 10


def test_a_score_that_ranks_all_good_ones_above_tells_all_apart() -> None:
    graded = [Graded(score=at, bad=at < 4) for at in range(10)]
    assert auroc(graded) == 1
    assert auroc([Graded(score=-each.score, bad=each.bad) for each in graded]) == 0


def test_a_score_that_is_always_the_same_tells_nothing_apart() -> None:
    assert auroc([Graded(score=1, bad=at % 3 == 0) for at in range(10)]) == 0.5


def test_of_one_kind_of_answers_nothing_is_told_apart() -> None:
    assert auroc([Graded(score=at, bad=True) for at in range(3)]) == 0.5
    assert auroc([]) == 0.5


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_it_counts_pairs(answers: list[tuple[int, bool]]) -> None:
    graded = [Graded(score=score, bad=bad) for score, bad in answers]
    pairs = [
        (good.score > bad.score) + (good.score == bad.score) / 2
        for good in graded
        for bad in graded
        if bad.bad and not good.bad
    ]
    expected = sum(pairs) / len(pairs) if pairs else 0.5
    assert auroc(graded) == pytest.approx(expected)
