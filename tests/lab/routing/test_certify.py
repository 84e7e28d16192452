"""Certified thresholds: the bound is exact, and the promise holds as often as said."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.errors import UsageError
from curtilage.lab.routing.certify import (
    GRID,
    Bound,
    Graded,
    auroc,
    bounds_of,
    certified,
    least_abstention,
)


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


def test_an_uninformative_score_accepts_nothing() -> None:
    graded = [Graded(score=1.0, bad=at % 50 == 0) for at in range(1000)]
    bounds = bounds_of(graded, grid=(0.5,))
    assert bounds[0].accepted == 0
    assert certified(bounds, 0.5) is None


def test_nothing_is_certified_where_nothing_can_be() -> None:
    assert certified(bounds_of(items(600, 0.5, seed=3)), 0.01) is None


def test_too_few_grades_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^499 .* 500$"):
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


def test_a_perfect_ranking_separates_all() -> None:
    graded = [Graded(score=at, bad=at < 4) for at in range(10)]
    assert auroc(graded) == 1
    assert auroc([Graded(score=-each.score, bad=each.bad) for each in graded]) == 0


def test_a_constant_score_separates_nothing() -> None:
    assert auroc([Graded(score=1, bad=at % 3 == 0) for at in range(10)]) == 0.5


def test_answers_of_one_kind_are_not_separable() -> None:
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
