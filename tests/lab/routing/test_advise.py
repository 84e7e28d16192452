"""Advice on routing: what the figures say, also where it is 'do not'."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from curtilage.client.errors import UsageError
from curtilage.client.routing.figures import TierFigures
from curtilage.client.routing.trace import TraceLine, TraceOutcome
from curtilage.lab.routing.advise import (
    Advice,
    Against,
    CoverShape,
    Judged,
    advise,
    feasible_at,
    proportion,
    quality_at,
    repeatable,
)
from curtilage.policy.decision.tiers import RoutingClass, TierKind
from support.route_traces import LINE as TRACE_LINE

TIERS = (
    TierFigures(
        id="device",
        kind=TierKind.IN_PROCESS,
        microusd_per_mtok=50_000,
        joules_per_token=0.6,
    ),
    TierFigures(
        id="enclave", kind=TierKind.ATTESTED, microusd_per_mtok=1_500_000
    ),
)  # fmt: skip
LINE = replace(TRACE_LINE, permitted=("device", "enclave"))
HOME = replace(LINE, intent="transform", would_choose="device")
STAYS = replace(
    LINE,
    intent="summarisation",
    permitted=("device",),
    tier="device",
    routing_class=RoutingClass.RESTRICTED,
    why="only_permitted",
)
DUMMIES = CoverShape(
    percent=50, frame_bytes=512, period_ms=50, first_bucket=64, buckets=10
)


def drawn(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable, no secret


def advised(
    lines: Sequence[TraceLine],
    *,
    judged: Sequence[Judged] = (),
    devices: int = 10_000,
    cover: CoverShape | None = None,
    tiers: Sequence[TierFigures] = TIERS,
) -> Advice:
    return advise(
        lines,
        tiers,
        judged=judged,
        devices=devices,
        cover=cover,
        draw=drawn().random,
    )


def graded(count: int, *, weak: float, known: bool = True) -> list[Judged]:
    """Questions of which the home model answers a share well, the easy ones."""
    draw = drawn()
    return [
        Judged(
            ease=draw.random() if not known else -at / count,
            weak=float(at < weak * count),
            strong=1.0,
        )
        for at in range(count)
    ]


USUAL = [*[HOME] * 60, *[LINE] * 25, *[STAYS] * 15]


def test_shares_are_counted_of_all_and_of_what_may_leave() -> None:
    advice = advised(USUAL)
    assert advice.at_home.value == pytest.approx(0.75)
    assert advice.may_leave.value == pytest.approx(0.85)
    assert advice.at_home_of_free.value == pytest.approx(60 / 85)
    assert advice.at_home.low < 0.75 < advice.at_home.high


def test_each_intent_has_its_share() -> None:
    parts = {each.name: each for each in advised(USUAL).intents}
    assert parts["transform"].at_home.value == 1
    assert parts["qa"].at_home.value == 0
    assert parts["qa"].queries == 25


def test_an_interval_of_few_is_wide_and_of_none_is_all() -> None:
    assert proportion(0, 0).low == 0
    assert proportion(0, 0).high == 1
    few, many = proportion(7, 10), proportion(7000, 10_000)
    assert few.high - few.low > 0.4
    assert many.high - many.low < 0.03


def test_the_saving_is_against_all_that_may_leave_leaving() -> None:
    # 85 of 100 at 1.5 and 15 at .05, against 25 and 75.
    before, after = 85 * 1.5 + 15 * 0.05, 25 * 1.5 + 75 * 0.05
    saving = advised(USUAL * 20).cost.saving
    assert saving.value == pytest.approx(1 - after / before, abs=0.02)
    assert saving.low < 1 - after / before < saving.high
    assert saving.high - saving.low < 0.1


def test_the_size_of_a_class_widens_what_it_costs() -> None:
    spent = advised(USUAL * 20).cost.before
    assert spent.high / spent.low > 1.5


def test_energy_is_given_only_if_known_for_every_tier() -> None:
    assert advised(USUAL).energy is None
    known = [replace(each, joules_per_token=1.0) for each in TIERS]
    energy = advised(USUAL, tiers=known).energy
    assert energy is not None
    assert energy.saving.value == pytest.approx(0)


def test_without_observing_the_tier_that_answered_counts() -> None:
    lines = [replace(LINE, tier="device"), LINE]
    assert advised(lines).at_home.value == pytest.approx(0.5)


def test_what_was_refused_is_counted_apart() -> None:
    refused = replace(LINE, tier=None, outcome=TraceOutcome.REFUSED)
    advice = advised([*USUAL, refused])
    assert advice.unanswered == 1
    assert advice.queries == len(USUAL)


def test_a_word_on_an_answer_is_no_query() -> None:
    word = replace(LINE, outcome=TraceOutcome.GRADED, feedback=True)
    assert advised([*USUAL, word]).queries == len(USUAL)


def test_the_volume_is_that_of_a_day() -> None:
    later = replace(HOME, at="2026-11-25T13:45Z")
    advice = advised([*USUAL, *[later] * 100], devices=10)
    assert advice.days == pytest.approx(2)
    assert advice.queries_per_day == pytest.approx(1000)


def test_draws_are_repeatable_and_even() -> None:
    draw, again, other = repeatable(1), repeatable(1), repeatable(2)
    drawn_now = [draw() for _ in range(5000)]
    assert drawn_now == [again() for _ in range(5000)]
    assert drawn_now[0] != other()
    assert all(0 <= each < 1 for each in drawn_now)
    assert sum(drawn_now) / 5000 == pytest.approx(0.5, abs=0.02)


def test_nothing_speaks_against_what_pays() -> None:
    assert advised(USUAL, judged=graded(600, weak=0.8), devices=2_000).against == ()


@pytest.mark.parametrize(
    ("lines", "against"),
    [
        ([replace(HOME, intent="qa")] * 80 + [LINE] * 20, Against.HOMOGENEOUS),
        ([HOME] * 97 + [LINE] * 3, Against.ONE_TIER),
        ([STAYS] * 100, Against.ONE_TIER),
        ([LINE] * 97 + [HOME] * 3, Against.HARD),
    ],
)
def test_one_kind_of_traffic_needs_no_router(
    lines: Sequence[TraceLine], against: Against
) -> None:
    assert against in advised(lines, judged=graded(600, weak=0.8)).against


def test_what_the_estimator_does_not_know_is_not_of_one_kind() -> None:
    lines = [replace(each, intent="unknown") for each in USUAL]
    assert Against.HOMOGENEOUS not in advised(lines).against


def test_graded_questions_can_show_that_all_of_it_is_hard() -> None:
    hard = advised(USUAL, judged=graded(600, weak=0.02))
    assert Against.HARD in hard.against


def test_a_small_volume_repays_nothing() -> None:
    assert Against.SMALL in advised(USUAL, devices=1).against
    assert Against.SMALL not in advised(USUAL).against


def test_ungraded_answers_cannot_be_judged() -> None:
    assert Against.UNTESTED in advised(USUAL).against
    assert Against.UNTESTED in advised(USUAL, judged=graded(499, weak=0.8)).against
    assert Against.UNTESTED not in advised(USUAL, judged=graded(500, weak=0.8)).against
    word = replace(LINE, outcome=TraceOutcome.GRADED, feedback=True)
    assert Against.UNTESTED not in advised([*USUAL, *[word] * 100]).against


def test_a_tier_that_the_policy_has_not_is_named() -> None:
    with pytest.raises(UsageError, match="names ward"):
        advised([replace(LINE, tier="ward")])


def test_a_trace_without_an_answer_says_nothing() -> None:
    with pytest.raises(UsageError, match="no line"):
        advised([])


def test_what_can_stay_home_at_a_quality() -> None:
    judged = graded(600, weak=0.6)
    feasible = feasible_at(judged, 0.95, drawn().random)
    assert feasible.share.value == pytest.approx(0.65)
    assert feasible.share.low < 0.65 < feasible.share.high
    assert feasible.by_chance == pytest.approx(0.05 / 0.4)
    assert quality_at(judged, 0.7) == pytest.approx(0.9)


def test_a_home_model_as_good_as_the_strong_one_keeps_everything() -> None:
    judged = graded(500, weak=1.0)
    feasible = feasible_at(judged, 0.99, drawn().random)
    assert feasible.share.value == 1
    assert feasible.by_chance == 1


def test_without_good_answers_nothing_is_lost() -> None:
    judged = [Judged(ease=0.0, weak=0.0, strong=0.0)] * 5
    assert quality_at(judged, 0.5) == 1
    assert advised(USUAL, judged=judged).ratio is None


def test_dummies_cost_octets_for_what_stays_home() -> None:
    here, some, most = advised(USUAL, cover=DUMMIES).cover
    assert here.at_home == pytest.approx(0.75)
    assert some.at_home == pytest.approx(0.70)
    assert most.dummies == pytest.approx(42.5)
    # A request of 4 KiB, and 64 frames, which last longer than three seconds.
    assert most.octets == pytest.approx(42.5 * (4096 + 64 * 512))


def test_a_longer_answer_makes_longer_dummies() -> None:
    slow = [replace(each, total_ms=7000) for each in USUAL]
    (_, _, most) = advised(slow, cover=DUMMIES).cover
    assert most.octets == pytest.approx(42.5 * (4096 + 256 * 512))


@pytest.mark.parametrize(
    ("line", "tier", "frames"),
    [
        (replace(LINE, permitted=("enclave",), would_choose="enclave"), "enclave", 256),
        (replace(STAYS, permitted=("device", "ward"), would_choose="ward"), "ward", 64),
        (replace(LINE, permitted=()), "enclave", 256),
    ],
    ids=["no other place", "an on-premises server", "no mask"],
)
def test_a_dummy_is_as_long_as_what_was_answered_outside(
    line: TraceLine, tier: str, frames: int
) -> None:
    ward = TierFigures(id="ward", kind=TierKind.ON_PREMISES, microusd_per_mtok=200_000)
    slow = replace(line, tier=tier, total_ms=7000)
    (_, _, most) = advised([slow], cover=DUMMIES, tiers=(*TIERS, ward)).cover
    assert most.octets == pytest.approx(42.5 * (4096 + frames * 512))


def test_without_cover_traffic_there_is_nothing_to_report() -> None:
    assert advised(USUAL).cover == ()


def test_an_answer_of_another_tier_than_the_chosen_one_shows_no_choice() -> None:
    """Without an enclave everything is local, and nothing is saved by routing."""
    forced = replace(LINE, tier="device", fallback="no_enclave_named")
    advice = advised([*USUAL, *[forced] * 50])
    assert advice.forced == 50
    assert replace(advice, forced=0) == advised(USUAL)
    unreachable = replace(LINE, tier="device", why="unavailable")
    with pytest.raises(UsageError, match="shows a choice"):
        advised([forced, unreachable])
    rejected = replace(LINE, fallback="draft_rejected")
    observed = replace(HOME, fallback="no_enclave_named")
    assert advised([*USUAL, rejected, observed]).forced == 0
