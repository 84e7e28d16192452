import gc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.errors import Failure
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.routing.health import (
    HALF_LIFE_MS,
    PRIORS,
    Attempt,
    TierHealth,
    TierPriors,
    TierView,
)
from curtilage.policy.decision.tiers import TierKind
from curtilage.wire.shaping import PADDED

LOCAL = PRIORS[TierKind.IN_PROCESS]


def local(priors: TierPriors = LOCAL) -> TierHealth:
    health = TierHealth(TierKind.IN_PROCESS, priors)
    health.ready()
    return health


def enclave(*, limit_per_min: int | None = None) -> TierHealth:
    health = TierHealth(TierKind.ATTESTED, limit_per_min=limit_per_min)
    health.ready()
    return health


def begun(health: TierHealth, now_ms: float, prompt_tokens: int = 20) -> Attempt:
    attempt = health.begin(now_ms, prompt_tokens=prompt_tokens)
    assert attempt is not None
    return attempt


def answer(
    health: TierHealth,
    now_ms: float,
    *,
    ttft_ms: float = 200,
    speed: float = 25,
    prompt_tokens: int = 20,
) -> None:
    """Let it answer with 50 tokens."""
    attempt = begun(health, now_ms, prompt_tokens)
    health.text(attempt, now_ms + ttft_ms)
    end_ms = now_ms + ttft_ms + 49_000 / speed
    health.text(attempt, end_ms)
    health.finished(attempt, end_ms, tokens=50)


def fail(health: TierHealth, now_ms: float, failure: Failure) -> None:
    health.failed(begun(health, now_ms), now_ms, failure)


def test_what_was_not_measured_is_as_expected() -> None:
    view = local().view(0)
    assert view.available
    assert (view.ttft_p50_ms, view.ttft_p95_ms) == (LOCAL.ttft_ms, LOCAL.ttft_ms)
    assert (view.tokens_per_s, view.tokens_per_s_p05) == (LOCAL.tokens_per_s,) * 2
    assert view.prompt_tokens_per_s == LOCAL.prompt_tokens_per_s
    assert view.queue_ms == view.setup_ms == view.rate_used == 0


def test_a_throttled_laptop_shows_within_a_few_answers() -> None:
    health = local(replace(LOCAL, tokens_per_s=40))
    for turn in range(8):
        answer(health, 10_000 * turn, speed=40)
    for turn in range(8, 16):
        answer(health, 10_000 * turn, speed=22.6)
    view = health.view(160_000)
    assert view.tokens_per_s == pytest.approx(22.6, abs=3)
    assert view.tokens_per_s_p05 == pytest.approx(22.6, abs=3)


def test_one_slow_answer_shows_in_the_tail_and_hardly_in_the_middle() -> None:
    health = local()
    for turn in range(12):
        answer(health, 10_000 * turn, ttft_ms=2000 if turn == 11 else 200)
    view = health.view(120_000)
    assert view.ttft_p50_ms < 250
    assert view.ttft_p95_ms > 1500


def test_what_was_measured_fades_back_to_what_is_expected() -> None:
    health = local()
    for turn in range(12):
        answer(health, 10_000 * turn, speed=5)
    assert health.view(120_000).tokens_per_s < 8
    rested = health.view(120_000 + 10 * HALF_LIFE_MS)
    assert rested.tokens_per_s == pytest.approx(LOCAL.tokens_per_s, rel=0.05)


@given(
    st.lists(st.tuples(st.floats(1, 5000), st.floats(1, 200)), max_size=50),
    st.floats(0, 1e7),
)
def test_figures_stay_between_what_was_expected_and_what_was_seen(
    answers: list[tuple[float, float]], later_ms: float
) -> None:
    health = local()
    for turn, (ttft_ms, speed) in enumerate(answers):
        answer(health, 100_000 * turn, ttft_ms=ttft_ms, speed=speed)
    view = health.view(100_000 * len(answers) + later_ms)
    firsts = [LOCAL.ttft_ms, *(first for first, _ in answers)]
    speeds = [LOCAL.tokens_per_s, *(speed for _, speed in answers)]
    slack = 1e-6  # of adding up weights, and of the times of an answer
    assert min(firsts) - slack <= view.ttft_p50_ms
    assert view.ttft_p50_ms <= view.ttft_p95_ms <= max(firsts) + slack
    assert min(speeds) * (1 - slack) <= view.tokens_per_s_p05
    assert view.tokens_per_s_p05 <= view.tokens_per_s <= max(speeds) * (1 + slack)


def test_a_long_prompt_is_waited_for_by_its_length() -> None:
    health = local()
    for turn in range(12):
        answer(health, 100_000 * turn, ttft_ms=20_000, prompt_tokens=2000)
    view = health.view(1_200_000)
    assert view.prompt_tokens_per_s == pytest.approx(100, rel=0.15)
    assert view.ttft_ms(4000) == pytest.approx(40_000, rel=0.15)
    assert view.ttft_ms(10) == view.ttft_p50_ms == LOCAL.ttft_ms


def test_an_answer_in_one_piece_says_nothing_of_the_first_text() -> None:
    health = enclave()
    attempt = begun(health, 0)
    health.text(attempt, 3200)
    health.finished(attempt, 3200, tokens=100)
    view, prior = health.view(3200), PRIORS[TierKind.ATTESTED]
    assert (view.ttft_p95_ms, view.tokens_per_s) == (prior.ttft_ms, prior.tokens_per_s)


def test_the_frames_behind_the_text_do_not_slow_it_down() -> None:
    health = enclave()
    attempt = begun(health, 0)
    health.text(attempt, 500)
    health.text(attempt, 1500)
    health.finished(attempt, 3200, tokens=101)
    assert health.view(3200).tokens_per_s == pytest.approx(80)  # 60 expected, 100 seen


def test_until_it_is_ready_setting_it_up_is_counted() -> None:
    health = TierHealth(TierKind.ATTESTED)
    assert health.view(0).setup_ms == PRIORS[TierKind.ATTESTED].setup_ms
    health.ready(until_ms=1000)
    assert health.view(999).setup_ms == 0
    assert health.view(1000).setup_ms > 0


def test_what_answered_at_home_is_loaded_and_its_loading_no_measure() -> None:
    health = TierHealth(TierKind.IN_PROCESS)
    answer(health, 0, ttft_ms=30_000)
    view = health.view(40_000)
    assert view.setup_ms == 0
    assert view.ttft_p95_ms == LOCAL.ttft_ms


def test_who_waits_in_line_makes_a_queue() -> None:
    health = local()
    running = [begun(health, 0)]
    one = health.view(0).queue_ms
    running.append(begun(health, 0))
    assert one > 0
    assert health.view(0).queue_ms == pytest.approx(2 * one)
    for attempt in running:
        health.dropped(attempt, 0)
    assert health.view(0).queue_ms == 0


def test_places_side_by_side_are_no_queue() -> None:
    health = local(replace(LOCAL, parallel=2))
    running = [begun(health, 0)]
    assert health.view(0).queue_ms == 0
    running.append(begun(health, 0))
    assert health.view(0).queue_ms > 0


def test_a_time_in_line_is_not_taken_for_the_tier_s() -> None:
    health = local()
    first, second = begun(health, 0), begun(health, 0)
    health.text(second, 60_300)
    health.finished(second, 61_300, tokens=2)
    health.dropped(first, 61_300)
    assert health.view(61_300).ttft_p95_ms == LOCAL.ttft_ms


def test_an_abandoned_attempt_counts_no_queue() -> None:
    health = local()
    begun(health, 0)
    gc.collect()
    assert health.view(0).queue_ms == 0


def test_the_end_of_an_attempt_is_noted_once() -> None:
    health = enclave()
    attempt = begun(health, 0)
    health.dropped(attempt, 0)
    for _ in range(3):
        health.failed(attempt, 0, Failure.UNREACHABLE)
    assert health.view(0).state is BreakerState.CLOSED


def test_a_dead_network_costs_one_question() -> None:
    health = enclave()
    fail(health, 5000, Failure.UNREACHABLE)
    assert not health.view(5000).available
    assert health.begin(5000, prompt_tokens=20) is None
    assert health.begin(34_999, prompt_tokens=20) is None


def test_three_broken_answers_open_the_breaker() -> None:
    health = enclave()
    for now in (0, 1, 2):
        assert health.view(now).available
        fail(health, now, Failure.BROKEN)
    assert health.view(2).state is BreakerState.OPEN


def test_the_probe_is_one_and_its_answer_opens_the_way() -> None:
    health = enclave()
    fail(health, 0, Failure.UNREACHABLE)
    assert health.view(30_000).state is BreakerState.HALF_OPEN
    probe = begun(health, 30_000)
    assert not health.view(30_000).available
    assert health.begin(30_000, prompt_tokens=20) is None
    health.finished(probe, 30_100)  # a key was fetched; there is no text
    assert health.view(30_100).state is BreakerState.CLOSED


def test_who_leaves_says_nothing_of_the_tier() -> None:
    health = enclave()
    fail(health, 0, Failure.UNREACHABLE)
    health.dropped(begun(health, 30_000), 30_001)
    assert health.view(30_001).state is BreakerState.HALF_OPEN


def test_refused_evidence_closes_the_way_until_there_is_other() -> None:
    health = enclave()
    fail(health, 0, Failure.EVIDENCE)
    view = health.view(1)
    assert not view.available
    assert view.setup_ms > 0
    health.ready(until_ms=1000)
    assert health.view(1).available


def test_after_refused_evidence_one_attempt_at_a_time_may_bring_other() -> None:
    health = enclave()
    fail(health, 0, Failure.EVIDENCE)
    again = begun(health, 30_000)
    health.failed(again, 30_100, Failure.EVIDENCE)
    assert not health.view(30_100).available
    last = begun(health, 60_100)
    health.ready()
    health.finished(last, 60_200)
    assert health.view(60_200).state is BreakerState.CLOSED


@pytest.mark.parametrize(("said_ms", "hold_ms"), [(0, 1000), (4000, 4000), (1e9, 1e4)])
def test_who_says_later_is_left_alone_for_so_long_but_never_for_long(
    said_ms: float, hold_ms: float
) -> None:
    health = enclave()
    attempt = begun(health, 0)
    health.failed(attempt, 0, Failure.BUSY, retry_after_ms=said_ms)
    assert not health.view(hold_ms - 1).available
    assert health.view(hold_ms).available
    assert health.view(hold_ms).state is BreakerState.CLOSED


def test_a_busy_probe_shows_that_the_tier_lives() -> None:
    health = enclave()
    fail(health, 0, Failure.UNREACHABLE)
    fail(health, 30_000, Failure.BUSY)
    assert health.view(30_000).state is BreakerState.CLOSED


def test_a_rate_limit_is_used_up_and_comes_back() -> None:
    health = enclave(limit_per_min=4)
    for now in (0, 10, 20, 30):
        assert health.view(now).available
        begun(health, now)
    view = health.view(40)
    assert view.rate_used == 1
    assert not view.available
    assert health.left_alone_ms(40) == 59_960
    assert health.view(60_000).rate_used == 0.75
    assert health.left_alone_ms(60_000) is None


@pytest.mark.parametrize(
    ("kind", "strained"),
    [
        (TierKind.IN_PROCESS, (True, False)),
        (TierKind.ON_PREMISES, (False, True)),
        (TierKind.ATTESTED, (False, True)),
    ],
)
def test_the_battery_strains_this_device_and_a_metered_network_the_others(
    kind: TierKind, strained: tuple[bool, bool]
) -> None:
    health = TierHealth(kind)
    assert not health.view(0).strained
    health.note_device(on_battery=True)
    assert health.view(0).strained is strained[0]
    health.note_device(metered=True)
    assert health.view(0).strained is strained[1]


def test_the_context_is_what_the_model_takes_now() -> None:
    health = TierHealth(TierKind.IN_PROCESS, context_tokens=8192)
    assert health.view(0).context_tokens == 8192
    health.context_tokens = 2048
    assert health.view(0).context_tokens == 2048
    assert TierHealth(TierKind.IN_PROCESS).view(0).context_tokens is None


def padded_view() -> TierView:
    health = TierHealth(TierKind.ATTESTED)
    health.ready(
        period_ms=PADDED.period_ms,
        first_bucket=PADDED.first_bucket,
        buckets=PADDED.buckets,
    )
    return health.view(0)


@pytest.mark.parametrize(
    ("tokens", "end_s"),
    [(1, 3.2), (150, 3.2), (151, 6.4), (342, 6.4), (343, 12.8), (10**6, 204.8)],
)
def test_an_answer_in_frames_ends_with_its_bucket(tokens: int, end_s: float) -> None:
    view = padded_view()
    assert view.ttft_ms(20) == 700
    assert view.total_ms(20, tokens) == pytest.approx(1000 * end_s)


def test_text_in_frames_comes_with_the_next_one() -> None:
    view = replace(padded_view(), ttft_p50_ms=701)
    assert view.ttft_ms(20) == 750


def test_before_the_key_there_are_no_frames() -> None:
    view = replace(padded_view(), setup_ms=500)
    assert view.total_ms(20, 150) == 500 + 3200


def test_without_frames_an_answer_ends_with_its_text() -> None:
    view = local().view(0)
    assert view.total_ms(20, 50) == 300 + 2000


def test_reading_and_writing_cost_alike() -> None:
    assert local().view(0).cost_microusd(400, 100) == pytest.approx(25)


@pytest.mark.parametrize("wrong", ["tokens_per_s", "prompt_tokens_per_s", "parallel"])
def test_a_tier_without_speed_or_place_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="above 0"):
        replace(LOCAL, **{wrong: 0})


def test_a_context_that_a_tier_named_holds_and_the_policys_is_not_exceeded() -> None:
    unknown = TierHealth(TierKind.ATTESTED)
    stated = TierHealth(TierKind.ATTESTED, context_tokens=4096)
    for each in (unknown, stated):
        each.learn_context(8192)
    assert unknown.view(0).context_tokens == 8192
    assert stated.view(0).context_tokens == 4096
    unknown.learn_context(2048)
    assert unknown.view(0).context_tokens == 2048
