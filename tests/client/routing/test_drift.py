"""The alarm about sinking quality: seldom wrong, and in time."""

import random
import statistics

import pytest

from curtilage.client.errors import UsageError
from curtilage.client.routing.drift import Drift, first_alarm


def grades(quality: float, count: int, seed: int) -> list[float]:
    drawn = random.Random(seed)  # noqa: S311 - repeatable, no secret
    return [float(drawn.random() < quality) for _ in range(count)]


def test_nothing_is_said_before_a_grade() -> None:
    assert Drift(promised=0.9).evidence == pytest.approx(1)
    assert not Drift(promised=0.9).alarm()


def test_the_bet_is_fair_at_the_promised_quality() -> None:
    promised = 0.85
    good, bad = (
        Drift(promised=promised).after([grade]).evidence for grade in (1.0, 0.0)
    )
    assert promised * good + (1 - promised) * bad == pytest.approx(1)
    assert good < 1 < bad


def test_grades_add_up_however_they_come() -> None:
    seen = grades(0.8, 50, seed=1)
    one_by_one = Drift(promised=0.85)
    for grade in seen:
        one_by_one = one_by_one.after([grade])
    assert one_by_one == Drift(promised=0.85).after(seen)


def test_half_a_grade_is_a_grade() -> None:
    assert Drift(promised=0.5).after([0.5]).evidence == pytest.approx(1)


def test_the_evidence_of_a_catastrophe_is_still_a_number() -> None:
    drift = Drift(promised=0.95).after([0.0] * 10_000)
    assert drift.alarm()
    assert drift.evidence < float("inf")


@pytest.mark.parametrize("promised", [0.0, 1.0, -1.0, 2.0])
def test_a_promise_that_nothing_speaks_against_is_refused(promised: float) -> None:
    with pytest.raises(UsageError, match="promised"):
        Drift(promised=promised)


def test_what_is_no_grade_is_refused() -> None:
    with pytest.raises(UsageError, match="grade"):
        Drift(promised=0.9).after([1.5])


def test_good_answers_hardly_ever_ring() -> None:
    # One in a hundred may, by the test's own word; of these 20, none does.
    rang = [first_alarm(0.85, grades(0.85, 20_000, seed)) for seed in range(20)]
    assert rang.count(None) >= 19


def test_five_points_less_are_found_within_some_hundreds() -> None:
    rang = [first_alarm(0.85, grades(0.80, 5_000, seed)) for seed in range(40)]
    assert statistics.median(each or 5_000 for each in rang) <= 700


def test_no_alarm_before_there_are_enough_grades() -> None:
    bad = [0.0] * 200
    assert first_alarm(0.85, bad[:20]) is not None
    assert first_alarm(0.85, bad, least=100) == 100
    assert first_alarm(0.85, bad[:99], least=100) is None
