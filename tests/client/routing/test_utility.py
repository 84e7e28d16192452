"""What is permitted is only ever narrowed, and then ordered as it was asked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.routing.estimate import Estimate, Intent
from curtilage.client.routing.health import TierView
from curtilage.client.routing.utility import (
    Choice,
    Reason,
    Refusal,
    UtilitySettings,
    choose,
)
from curtilage.policy.decision.tiers import (
    Denial,
    Permitted,
    RoutingClass,
    Tier,
    TierKind,
)
from curtilage.policy.document.routing_settings import Preference, Weights
from support.tier_views import (
    ALL,
    DEVICE,
    DEVICE_VIEW,
    ENCLAVE,
    ENCLAVE_VIEW,
    VIEWS,
    WARD,
    expects,
)

SETTINGS = UtilitySettings()


def mask(*tiers: Tier) -> Permitted:
    return Permitted(routing_class=RoutingClass.PUBLIC, tiers=tiers)


EASY, HARD = expects(0.0), expects(0.5)


def pick(
    estimate: Estimate,
    *tiers: Tier,
    views: Mapping[str, TierView] = VIEWS,
    options: RoutingOptions | None = None,
    settings: UtilitySettings = SETTINGS,
    last: str | None = None,
) -> Choice:
    return choose(
        mask(*(tiers or (DEVICE, ENCLAVE))),
        views,
        estimate,
        options or RoutingOptions(),
        settings,
        last=last,
    )


def but(tier: Tier, view: TierView) -> dict[str, TierView]:
    return VIEWS | {tier.id: view}


def test_an_easy_question_stays_and_a_hard_one_goes() -> None:
    easy, hard = pick(EASY), pick(HARD)
    assert (easy.order, easy.reason) == ((DEVICE, ENCLAVE), Reason.EASY)
    assert (hard.order, hard.reason) == ((ENCLAVE, DEVICE), Reason.HARD)


def test_of_what_is_as_good_the_more_private_answers() -> None:
    # The gain is a bit more than what the enclave costs more.
    choice = pick(expects(0.06))
    assert (choice.order[0], choice.reason) == (DEVICE, Reason.PRIVATE_TIE)
    assert choice.scores[0] < choice.scores[1]


def test_the_rules_send_a_question_away_only_if_their_whole_interval_does() -> None:
    unsure = replace(expects(0.2), gain_low=0.05, gain_high=0.35)
    assert pick(unsure).order[0] is ENCLAVE
    by_rules = pick(replace(unsure, source="rules"))
    assert (by_rules.order[0], by_rules.reason) == (DEVICE, Reason.PRIVATE_TIE)
    sure = replace(HARD, gain_low=0.3, source="rules")
    assert pick(sure).order[0] is ENCLAVE


def test_a_tier_between_has_a_share_of_the_gain() -> None:
    choice = pick(expects(0.1), *ALL)
    assert choice.order[0] is WARD
    ward, device = (choice.scores[choice.order.index(each)] for each in (WARD, DEVICE))
    # Half of the gain, less what it costs more: 300 tokens at 0.15 $ a million.
    assert ward - device == pytest.approx(0.05 - 0.0036)


def test_who_would_be_late_is_passed_over() -> None:
    choice = pick(EASY, views=but(DEVICE, replace(DEVICE_VIEW, queue_ms=120_000)))
    assert (choice.order[0], choice.reason) == (ENCLAVE, Reason.FASTER)


def test_the_end_of_an_answer_in_frames_is_the_end_of_its_bucket() -> None:
    # Its text would be there after 2 s; the answer is complete after 3.2 s.
    hurry = RoutingOptions(total_ms=2500, slo_hard=True)
    choice = pick(HARD, ENCLAVE, options=hurry)
    assert choice.refusal is Refusal.SLO_UNMEETABLE
    bare = but(ENCLAVE, replace(ENCLAVE_VIEW, period_ms=0, first_bucket=0, buckets=0))
    assert pick(HARD, ENCLAVE, options=replace(hurry, total_ms=3100), views=bare).order


def test_a_conversation_stays_where_it_is_if_little_speaks_against_it() -> None:
    tie = expects(0.075)
    assert pick(tie, last="device").order[0] is DEVICE
    assert pick(tie, last="enclave").order[0] is ENCLAVE
    assert pick(HARD, last="device").order[0] is ENCLAVE
    assert pick(EASY, last="enclave").order[0] is DEVICE


def test_a_tier_about_to_fail_counts_for_less() -> None:
    worth = expects(0.1)
    assert pick(worth).order[0] is ENCLAVE
    for changes in (
        {"rate_used": 0.99},
        {"strained": True},
        {"state": BreakerState.HALF_OPEN},
    ):
        choice = pick(worth, views=but(ENCLAVE, replace(ENCLAVE_VIEW, **changes)))
        assert choice.order[0] is DEVICE


def test_a_hard_time_takes_tiers_away_that_are_likely_to_miss_it() -> None:
    options = RoutingOptions(ttft_ms=1000, slo_hard=True)
    choice = pick(HARD, options=options)
    assert choice.order == (DEVICE,)
    assert choice.reason is Reason.SLO
    assert choice.denied == (("enclave", Denial.SLO),)
    none = pick(HARD, options=replace(options, ttft_ms=100))
    assert (none.order, none.refusal) == ((), Refusal.SLO_UNMEETABLE)


def test_a_soft_time_takes_none_away() -> None:
    choice = pick(HARD, options=RoutingOptions(ttft_ms=100, total_ms=100))
    assert set(choice.order) == {DEVICE, ENCLAVE}


def test_what_costs_too_much_is_not_asked() -> None:
    choice = pick(HARD, options=RoutingOptions(max_cost_microusd=599))
    assert (choice.order, choice.reason) == ((DEVICE,), Reason.CHEAPER)
    assert pick(HARD, options=RoutingOptions(max_cost_microusd=600)).order[0] is ENCLAVE
    none = pick(HARD, options=RoutingOptions(max_cost_microusd=0))
    assert none.refusal is Refusal.COST_UNMEETABLE


def test_a_query_that_does_not_fit_is_not_sent_there() -> None:
    views = but(DEVICE, replace(DEVICE_VIEW, context_tokens=299))
    choice = pick(EASY, views=views)
    assert (choice.order, choice.reason) == ((ENCLAVE,), Reason.CONTEXT)
    assert choice.denied == (("device", Denial.CONTEXT),)
    assert pick(EASY, DEVICE, views=views).refusal is Refusal.CONTEXT_TOO_LONG
    fits = but(DEVICE, replace(DEVICE_VIEW, context_tokens=300))
    assert pick(EASY, views=fits).order[0] is DEVICE


def test_a_tier_that_cannot_answer_now_is_not_asked() -> None:
    choice = pick(HARD, views=but(ENCLAVE, replace(ENCLAVE_VIEW, available=False)))
    assert (choice.order, choice.reason) == ((DEVICE,), Reason.UNAVAILABLE)
    assert choice.denied == (("enclave", Denial.UNAVAILABLE),)


def test_that_another_is_away_is_no_reason_where_it_had_not_been_chosen() -> None:
    choice = pick(EASY, views=but(ENCLAVE, replace(ENCLAVE_VIEW, available=False)))
    assert choice.reason is Reason.EASY


def test_a_tier_that_is_not_there_is_not_asked() -> None:
    choice = pick(EASY, views={"enclave": VIEWS["enclave"]})
    assert (choice.order, choice.reason) == ((ENCLAVE,), Reason.UNAVAILABLE)
    assert choice.denied == (("device", Denial.MISSING),)
    assert pick(EASY, views={}).refusal is Refusal.UNAVAILABLE


def test_the_only_one_that_policy_leaves_is_asked() -> None:
    choice = pick(HARD, DEVICE)
    assert (choice.order, choice.reason) == ((DEVICE,), Reason.ONLY_PERMITTED)


def test_where_policy_leaves_none_it_is_refused() -> None:
    none = choose(mask(), VIEWS, EASY, RoutingOptions(), SETTINGS, last=None)
    assert (none.order, none.refusal) == ((), Refusal.NO_PERMITTED_TIER)


@pytest.mark.parametrize(
    ("require", "tier"),
    [(Require.LOCAL, DEVICE), (Require.ON_PREMISES, WARD), (Require.ENCLAVE, ENCLAVE)],
)
def test_only_a_required_tier_answers(require: Require, tier: Tier) -> None:
    options = RoutingOptions(require=require)
    choice = pick(HARD, *ALL, options=options)
    assert (choice.order, choice.reason) == ((tier,), Reason.REQUIRED)
    away = pick(
        HARD,
        *ALL,
        options=options,
        views=but(tier, replace(VIEWS[tier.id], available=False)),
    )
    assert (away.order, away.refusal) == ((), Refusal.REQUIRED_UNMET)
    assert (tier.id, Denial.UNAVAILABLE) in away.denied
    others = tuple(each for each in ALL if each is not tier)
    forbidden = pick(HARD, *others, options=options)
    assert forbidden.refusal is Refusal.REQUIRED_UNMET


def test_a_denial_by_policy_is_still_reported() -> None:
    permitted = Permitted(
        routing_class=RoutingClass.RESTRICTED,
        tiers=(DEVICE,),
        denied=(("enclave", Denial.ROUTE),),
    )
    options = RoutingOptions(require=Require.ENCLAVE)
    choice = choose(permitted, VIEWS, HARD, options, SETTINGS, last=None)
    assert choice.denied == (("enclave", Denial.ROUTE), ("device", Denial.REQUIRED))


def test_home_is_this_device_and_on_premises_servers_only() -> None:
    home = RoutingOptions(mode=Mode.HOME)
    choice = pick(HARD, *ALL, options=home)
    assert set(choice.order) == {DEVICE, WARD}
    assert choice.reason is Reason.MODE
    assert pick(HARD, ENCLAVE, options=home).refusal is Refusal.HOME_UNAVAILABLE


def test_an_enclave_comes_first_where_that_is_wished_and_it_is_permitted() -> None:
    wished = RoutingOptions(mode=Mode.ENCLAVE_IF_ALLOWED)
    choice = pick(EASY, *ALL, options=wished)
    assert (choice.order[0], choice.reason) == (ENCLAVE, Reason.MODE)
    assert set(choice.order) == set(ALL)
    assert pick(EASY, DEVICE, options=wished).order == (DEVICE,)


@pytest.mark.parametrize(
    ("override", "estimate", "first"),
    [
        (Preference.PREFER_HOME, HARD, WARD),
        (Preference.PREFER_STRONG, EASY, ENCLAVE),
        (Preference.ONLY_HOME, HARD, WARD),
    ],
)
def test_the_operator_s_word_on_an_intent_comes_before_the_scores(
    override: Preference, estimate: Estimate, first: Tier
) -> None:
    settings = UtilitySettings(overrides={Intent.QA: override})
    choice = pick(estimate, *ALL, settings=settings)
    assert (choice.order[0], choice.reason) == (first, Reason.OVERRIDE)
    assert (ENCLAVE in choice.order) == (override is not Preference.ONLY_HOME)
    other = replace(estimate, intent=Intent.CODE)
    assert pick(other, *ALL, settings=settings).reason is not Reason.OVERRIDE


def test_only_home_is_home_also_for_one_who_wishes_the_enclave() -> None:
    settings = UtilitySettings(overrides={Intent.QA: Preference.ONLY_HOME})
    wished = RoutingOptions(mode=Mode.ENCLAVE_IF_ALLOWED)
    assert ENCLAVE not in pick(HARD, *ALL, settings=settings, options=wished).order


def test_the_sender_s_wish_comes_before_the_operator_s() -> None:
    settings = UtilitySettings(overrides={Intent.QA: Preference.PREFER_HOME})
    wished = RoutingOptions(mode=Mode.ENCLAVE_IF_ALLOWED)
    choice = pick(EASY, *ALL, settings=settings, options=wished)
    assert (choice.order[0], choice.reason) == (ENCLAVE, Reason.MODE)


def test_where_the_operator_takes_two_for_equally_good_the_cheaper_answers() -> None:
    pool = replace(ENCLAVE, id="pool")
    views = {
        "enclave": VIEWS["enclave"],
        "pool": replace(VIEWS["enclave"], cost_microusd_per_mtok=1_000_000),
    }
    choice = pick(HARD, ENCLAVE, pool, views=views)
    assert (choice.order, choice.reason) == ((pool, ENCLAVE), Reason.CHEAPER)


def test_an_estimate_that_is_no_number_sends_nothing_away() -> None:
    assert pick(expects(math.nan)).order[0] is DEVICE


def test_an_unbeaten_tier_comes_first_once_another_is_gone() -> None:
    # "Beats" knows a least difference: the enclave beats the device and not the ward,
    # and the ward does not beat the device. Without the enclave, the device is best.
    views = {
        tier: replace(DEVICE_VIEW, cost_microusd_per_mtok=0, quality_permille=quality)
        for tier, quality in (("device", 600), ("ward", 750), ("enclave", 900))
    }
    assert pick(expects(0.03), *ALL, views=views).order[0] is WARD
    views["enclave"] = replace(views["enclave"], available=False)
    choice = pick(expects(0.03), *ALL, views=views)
    assert (choice.order, choice.reason) == ((DEVICE, WARD), Reason.UNAVAILABLE)


TIERS = st.lists(
    st.builds(
        Tier,
        id=st.sampled_from("abcdef"),
        kind=st.sampled_from(TierKind),
    ),
    unique_by=lambda tier: tier.id,
    max_size=5,
).map(tuple[Tier, ...])
SPEEDS = st.floats(1, 500)
TIMES = st.floats(0, 60_000)
TIER_VIEWS = st.builds(
    TierView,
    kind=st.sampled_from(TierKind),
    available=st.booleans(),
    state=st.sampled_from(BreakerState),
    quality_permille=st.integers(0, 1000),
    cost_microusd_per_mtok=st.integers(0, 10_000_000),
    setup_ms=TIMES,
    queue_ms=TIMES,
    ttft_p50_ms=TIMES,
    ttft_p95_ms=TIMES,
    prompt_tokens_per_s=SPEEDS,
    tokens_per_s=SPEEDS,
    tokens_per_s_p05=SPEEDS,
    rate_used=st.floats(0, 1),
    strained=st.booleans(),
    context_tokens=st.none() | st.integers(0, 5000),
    period_ms=st.sampled_from([0, 50]),
    first_bucket=st.just(64),
    buckets=st.just(7),
)
ESTIMATES = st.builds(
    Estimate,
    intent=st.sampled_from(Intent),
    intent_confidence=st.floats(0, 1),
    gain=st.floats(-1, 1),
    gain_low=st.floats(-1, 1),
    gain_high=st.floats(-1, 1),
    source=st.sampled_from(["ngram", "rules"]),
    prompt_tokens=st.integers(0, 10_000),
    answer_tokens=st.integers(0, 2000),
)
LIMITS = st.none() | st.integers(1, 100_000)
OPTIONS = st.builds(
    RoutingOptions,
    ttft_ms=LIMITS,
    total_ms=LIMITS,
    slo_hard=st.booleans(),
    max_cost_microusd=LIMITS,
    mode=st.sampled_from(Mode),
    require=st.none() | st.sampled_from(Require),
)
WEIGHTS = st.integers(0, 1000)
ALL_SETTINGS = st.builds(
    UtilitySettings,
    weights=st.builds(
        Weights,
        latency=WEIGHTS,
        cost=WEIGHTS,
        risk=WEIGHTS,
        switch=WEIGHTS,
        hysteresis=WEIGHTS,
    ),
    overrides=st.dictionaries(st.sampled_from(Intent), st.sampled_from(Preference)),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Any query of any sender, under any policy, at any moment."""

    tiers: tuple[Tier, ...]
    views: dict[str, TierView]
    estimate: Estimate
    options: RoutingOptions
    settings: UtilitySettings
    last: str | None

    def choose(self) -> Choice:
        return choose(
            mask(*self.tiers),
            self.views,
            self.estimate,
            self.options,
            self.settings,
            last=self.last,
        )


CASES = st.builds(
    Case,
    tiers=TIERS,
    views=st.dictionaries(st.sampled_from("abcdef"), TIER_VIEWS),
    estimate=ESTIMATES,
    options=OPTIONS,
    settings=ALL_SETTINGS,
    last=st.none() | st.sampled_from("abcdef"),
)


@given(CASES)
def test_nothing_is_added_to_what_policy_permits(case: Case) -> None:
    choice = case.choose()
    ordered, denied = {tier.id for tier in choice.order}, dict(choice.denied)
    assert set(choice.order) <= set(case.tiers)
    # Each permitted tier is asked once, or the reason against it is given.
    assert len(choice.order) == len(ordered) == len(choice.scores)
    assert ordered | denied.keys() == {tier.id for tier in case.tiers}
    assert ordered.isdisjoint(denied)
    assert bool(choice.order) == (choice.refusal is None)


@given(CASES)
def test_no_enclave_is_asked_where_none_is_permitted_or_wanted(case: Case) -> None:
    asked = {tier.kind for tier in case.choose().order}
    permitted = {tier.kind for tier in case.tiers}
    if TierKind.ATTESTED not in permitted or case.options.mode is Mode.HOME:
        assert TierKind.ATTESTED not in asked


@given(CASES)
def test_only_what_is_required_is_asked_and_only_what_can_be(case: Case) -> None:
    order = case.choose().order
    assert all(case.views[tier.id].available for tier in order)
    if case.options.require is not None:
        assert all(tier.kind is case.options.require.kind for tier in order)


@given(CASES)
def test_the_same_is_chosen_for_the_same(case: Case) -> None:
    other_order = dict(reversed(case.views.items()))
    assert replace(case, views=other_order).choose() == case.choose()


@given(TIERS, TIER_VIEWS, ESTIMATES)
def test_of_equals_the_more_private_comes_first(
    tiers: tuple[Tier, ...], view: TierView, estimate: Estimate
) -> None:
    views = {tier.id: replace(view, available=True) for tier in tiers}
    roomy = replace(estimate, prompt_tokens=0, answer_tokens=0)
    choice = choose(mask(*tiers), views, roomy, RoutingOptions(), SETTINGS, last=None)
    assert choice.order == tiers


@pytest.mark.parametrize("weight", ["cost", "latency"])
@given(
    views=st.tuples(TIER_VIEWS, TIER_VIEWS),
    estimate=ESTIMATES,
    settings=ALL_SETTINGS,
    more=st.integers(1, 1000),
)
def test_what_weighs_more_is_never_taken_more_of(
    weight: str,
    views: tuple[TierView, TierView],
    estimate: Estimate,
    settings: UtilitySettings,
    more: int,
) -> None:
    """More weight on cost never chooses the dearer, more on time never the later."""
    two = (Tier(id="a", kind=TierKind.IN_PROCESS), Tier(id="b", kind=TierKind.ATTESTED))
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    known = {
        tier.id: replace(view, available=True, context_tokens=None)
        for tier, view in zip(two, views, strict=True)
    }
    settings = replace(settings, overrides={})
    weights = settings.weights
    heavier = replace(
        settings,
        weights=weights.model_copy(update={weight: getattr(weights, weight) + more}),
    )

    def taken(with_settings: UtilitySettings) -> float:
        first = pick(estimate, *two, views=known, settings=with_settings).order[0]
        view = known[first.id]
        if weight == "cost":
            return view.cost_microusd(prompt, answer)
        return sum(
            max(0.0, view.total_ms(prompt, answer, slow=slow) - settings.total_ms)
            for slow in (False, True)
        )

    assert taken(heavier) <= taken(settings) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("change", "options", "denial"),
    [
        ({"available": False}, {"max_cost_microusd": 0}, Denial.COST),
        ({"context_tokens": 1}, {"max_cost_microusd": 0}, Denial.COST),
        ({"context_tokens": 1}, {"ttft_ms": 1, "slo_hard": True}, Denial.SLO),
    ],
)
def test_the_senders_limits_are_reported_before_missing_features(
    change: dict[str, object], options: dict[str, object], denial: Denial
) -> None:
    """Who lacks something may be tried all the same; not beyond a sender's limits."""
    choice = pick(
        EASY,
        DEVICE,
        views=but(DEVICE, replace(DEVICE_VIEW, **change)),  # type: ignore[arg-type]
        options=replace(RoutingOptions(), **options),  # type: ignore[arg-type]
    )
    assert choice.denied == (("device", denial),)
