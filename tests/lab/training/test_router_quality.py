"""The figures that a router is measured by, on orders that are known."""

import numpy as np
import pytest
from lab.training.router.quality import interval, quality

# Of 100 prompts the strong model wins 20.
GAINS = np.array([1.0] * 20 + [0.0] * 80)


def test_sending_the_winners_first_recovers_the_gap_at_once() -> None:
    found = quality(np.arange(100, 0, -1.0), GAINS)
    assert (found.apgr, found.cpt50) == pytest.approx((0.9, 10.0))


def test_sending_the_winners_last_is_as_far_below_chance() -> None:
    assert quality(np.arange(100.0), GAINS).apgr == pytest.approx(0.1)


def test_equal_shares_everywhere_are_chance() -> None:
    found = quality(np.zeros(100), np.array([1.0, 0.0] * 50))
    assert (found.apgr, found.cpt50, found.cpt80) == pytest.approx((0.5, 50.0, 80.0))


def test_an_interval_holds_its_figure() -> None:
    draw = np.random.default_rng(1)
    scores = GAINS + draw.normal(0, 1, 100)
    low, high = interval(scores, GAINS, rounds=200)
    assert low.apgr < quality(scores, GAINS).apgr < high.apgr
