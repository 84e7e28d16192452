"""The operator's aim is a line through ordinary traffic, drawn at a rank."""

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.routing.aim import (
    BINS,
    HALF_LIFE,
    REFERENCE,
    REFERENCE_SCALE,
    SHIPPED_WEIGHT,
    STRONG,
    Pair,
    Scale,
    Traffic,
    traffic_of,
)
from curtilage.policy.document.routing_settings import Aim, AimKind

EVEN = [(1.0, 200.0)] * BINS
PAIR = Pair(local=REFERENCE, strong=STRONG, local_price=0.05, strong_price=0.5)


def aim(kind: AimKind, value: int) -> Aim:
    none = Aim(local_percent=0)
    return none.model_copy(update={"local_percent": None, kind.value: value})


def line(kind: AimKind, value: int, pair: Pair = PAIR) -> float:
    return Traffic(EVEN).line(aim(kind, value), pair, REFERENCE_SCALE)


def lost(upto: float, pair: Pair) -> float:
    """The mean loss if what ranks below is answered locally, by a sum of its own."""
    steps = 10_000
    return (
        sum(
            REFERENCE_SCALE.solved(pair.strong, need)
            - REFERENCE_SCALE.solved(pair.local, need)
            for at in range(steps)
            if (need := (at + 0.5) / steps) <= upto
        )
        / steps
    )


def test_between_the_models_of_the_scale_a_gain_is_what_it_says() -> None:
    for gain in (-0.1, 0.0, 0.05, 0.2, 0.5):
        need = REFERENCE_SCALE.need(gain)
        better = REFERENCE_SCALE.solved(STRONG, need)
        assert better - REFERENCE_SCALE.solved(REFERENCE, need) == pytest.approx(gain)


@pytest.mark.parametrize("quality", [0.0, 0.05, 0.3, REFERENCE, 0.8, STRONG, 1.0])
def test_over_ordinary_traffic_a_model_solves_its_quality(quality: float) -> None:
    # Whose mean need is what the model of the scale fails at.
    needs = [2 * (1 - REFERENCE) * (at + 0.5) / 100 for at in range(100)]
    mean = sum(REFERENCE_SCALE.solved(quality, each) for each in needs) / len(needs)
    assert mean == pytest.approx(quality)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 0.99))
def test_a_better_model_solves_more_without_a_cliff(
    need: float, one: float, other: float, weak: float
) -> None:
    scale = Scale(weak=weak, strong=1.0)
    low, high = sorted((one, other))
    rise = scale.solved(high, need) - scale.solved(low, need)
    # Never less, and by no more than in proportion to what it is better.
    assert -1e-9 <= rise <= (high - low) / min(weak, 1 - weak) + 1e-9


def test_a_gain_that_is_no_number_needs_nothing() -> None:
    assert REFERENCE_SCALE.need(math.nan) == 0.0
    assert Scale(weak=0.9, strong=0.9).need(0.5) == 0.0
    assert Scale(weak=1.0, strong=1.0).need(0.5) == 0.0


def test_a_share_is_met_by_its_rank() -> None:
    assert line(AimKind.LOCAL_PERCENT, 70) == 0.7


@pytest.mark.parametrize("permille", [0, 5, 20, 60, 100])
def test_a_loss_is_met_and_used_up(permille: int) -> None:
    upto = line(AimKind.QUALITY_LOSS_PERMILLE, permille)
    assert lost(upto, PAIR) == pytest.approx(permille / 1000, abs=0.002)


def test_a_larger_loss_than_all_is_everything() -> None:
    assert line(AimKind.QUALITY_LOSS_PERMILLE, 999) == 1.0


def test_the_better_the_local_model_the_more_it_answers() -> None:
    def at(quality: int) -> float:
        pair = Pair(
            local=quality / 1000, strong=STRONG, local_price=0.05, strong_price=0.5
        )
        return line(AimKind.QUALITY_LOSS_PERMILLE, 20, pair)

    lines = [at(quality) for quality in range(0, 901, 5)]
    rises = [later - earlier for earlier, later in pairwise(lines)]
    assert min(rises) >= 0
    assert lines[0] < 0.05
    assert lines[-1] > 0.95
    # No cliff: five in a thousand move the line by little, up to where all is kept.
    kept_all = next(at for at, each in enumerate(lines) if each == 1.0)
    assert max(rises[: kept_all - 10]) < 0.05


# As docs/policy-reference.md has them, in percent.
@pytest.mark.parametrize(
    ("quality", "percent"),
    [
        *((30, 4), (300, 7), (500, 19), (550, 30), (600, 60)),
        *((670, 69), (750, 76), (800, 85), (850, 100)),
    ],
)
def test_the_shipped_line_is_what_the_reference_says(
    quality: int, percent: int
) -> None:
    pair = Pair(local=quality / 1000, strong=STRONG, local_price=0.0, strong_price=0.0)
    loss = aim(AimKind.QUALITY_LOSS_PERMILLE, 35)
    upto = traffic_of("ngram").line(loss, pair, REFERENCE_SCALE)
    assert round(100 * upto) == percent


def test_a_cost_is_met() -> None:
    # 200 tokens each: a thousand cost 0.01 $ locally and 0.1 $ at the enclave.
    assert line(AimKind.COST_PER_1000, 100) == pytest.approx(0.0)
    assert line(AimKind.COST_PER_1000, 55) == pytest.approx(0.5)
    assert line(AimKind.COST_PER_1000, 10) == pytest.approx(1.0)
    assert line(AimKind.COST_PER_1000, 0) == 1.0


def test_a_cost_aim_counts_the_length_of_answers() -> None:
    # What needs the enclave most is ten times as long.
    traffic = Traffic([(1.0, 200.0)] * 50 + [(1.0, 2000.0)] * 50)
    found = traffic.line(aim(AimKind.COST_PER_1000, 300), PAIR, REFERENCE_SCALE)
    spent = 1000 * 1e-6 * (0.05 * 1100 + 0.45 * 2000 * (1 - found))
    assert spent == pytest.approx(0.3)


@pytest.mark.parametrize("value", [0, 9])
def test_a_cost_below_that_of_the_local_answers_sends_nothing(value: int) -> None:
    # The last bins are empty, as those of the shipped traffic are.
    traffic = Traffic([*EVEN[:-5], *[(0.0, 0.0)] * 5])
    found = traffic.line(aim(AimKind.COST_PER_1000, value), PAIR, REFERENCE_SCALE)
    assert found == 1.0


def test_at_its_ends_a_rank_has_nothing_beyond_it() -> None:
    # Nothing of the shipped traffic needs more than .95; a question may all the same.
    traffic = Traffic([*EVEN[:-5], *[(0.0, 0.0)] * 5])
    assert (traffic.need(0.0), traffic.need(1.0)) == (-1.0, 1.0)


def test_rank_and_need_are_inverse() -> None:
    traffic = Traffic([(float(at % 7), 100.0) for at in range(BINS)])
    for rank in (0.1, 0.35, 0.5, 0.9):
        assert traffic.rank(traffic.need(rank)) == pytest.approx(rank)
    assert traffic.rank(-1.0) == 0.0
    assert traffic.rank(1.0) == pytest.approx(1.0)


def test_a_device_s_own_traffic_takes_over() -> None:
    traffic = Traffic(EVEN)
    before = traffic.rank(0.5)
    for _ in range(round(SHIPPED_WEIGHT)):
        traffic.saw(0.9, 50)
    half = traffic.rank(0.5)
    for _ in range(round(5 * HALF_LIFE)):
        traffic.saw(0.9, 50)
    after = traffic.rank(0.5)
    assert before == pytest.approx(0.5)
    assert half == pytest.approx(0.25, abs=0.02)
    assert after < 0.01


def test_a_share_holds_for_a_device_whose_questions_are_all_easier() -> None:
    # Ninety of a hundred are as easy as five of a hundred of the shipped ones.
    traffic = Traffic(EVEN)

    def asked() -> Iterator[float]:
        for at in range(10_000):
            yield 0.05 * (at % 9) / 9 if at % 10 else 0.5

    kept = 0
    for need in asked():
        bar = traffic.need(traffic.line(aim(AimKind.LOCAL_PERCENT, 50), PAIR,
                                        REFERENCE_SCALE))  # fmt: skip
        kept += need <= bar
        traffic.saw(need, 100)
    assert kept / 10_000 == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("shipped", [[], EVEN[:-1], [(0.0, 10.0)] * BINS])
def test_no_traffic_is_refused(shipped: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="bins"):
        Traffic(shipped)


@pytest.mark.parametrize("source", ["ngram", "rules", "unread"])
def test_traffic_comes_along_for_every_estimator(source: str) -> None:
    traffic = traffic_of(source)
    needs = [traffic.need(rank / 100) for rank in range(1, 100)]
    assert needs == sorted(needs)
    assert 0 <= needs[0] < needs[-1] <= 1
