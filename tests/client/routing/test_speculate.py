"""A draft is worth its cost or is not written; what must stay is never escalated."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typing_extensions import override

from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.chat.query import single_query
from curtilage.client.routing.estimate import Estimate, Intent, RulesEstimator
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.health import TierView
from curtilage.client.routing.router import UNFIT, Router
from curtilage.client.routing.speculate import Speculation, wanted
from curtilage.client.routing.thresholds import Shipped, Thresholds, Unfit
from curtilage.client.routing.utility import UtilitySettings, choose
from curtilage.client.routing.verifier import Verdict
from curtilage.policy.decision.decide import (
    Allowed,
    AllowedOnPremises,
    decide,
)
from curtilage.policy.decision.tiers import (
    Permitted,
    RoutingClass,
    Tier,
    Tiering,
    TierKind,
)
from curtilage.policy.document.load import load_profile
from curtilage.policy.document.routing import ClassEntry, Classes, Routing
from curtilage.policy.document.routing_settings import (
    Aim,
    Preference,
    Speculating,
    TierEntry,
    Weights,
)
from curtilage.policy.document.routing_settings import Speculation as Drafting
from support.drafts import STOPPED, THRESHOLDS, thresholds, written
from support.inspections import inspection_of
from support.tier_views import (
    DEVICE,
    DEVICE_VIEW,
    ENCLAVE,
    ENCLAVE_VIEW,
    VIEWS,
    WARD,
    expects,
)

MEDIUM, HARD = expects(0.2), expects(0.5)
SETTINGS, ANYHOW = UtilitySettings(), RoutingOptions()
PLAN = Routing(
    tiers=tuple(TierEntry(id=each.id, kind=each.kind) for each in (DEVICE, ENCLAVE)),
    speculation=Drafting(mode=Speculating.VERIFY),
)
INTERNAL_ONLY = Classes(public=ClassEntry(speculation="deny"))
RULEBOOK = replace(
    load_profile("default").rulebook, tiering=Tiering(tiers=(DEVICE, WARD, ENCLAVE))
)


def decided(floor: RoutingClass) -> tuple[Allowed | None, AllowedOnPremises | None]:
    inspection = inspection_of(
        findings=(), payload_digest=bytes(32), messages=1, floor=floor
    )
    decision = decide(RULEBOOK, inspection)
    return decision.allowed, decision.on_premises


def allowed(floor: RoutingClass = RoutingClass.PUBLIC) -> Allowed:
    found, _ = decided(floor)
    assert found is not None
    return found


LEAVES = allowed()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A query that has a draft, unless it is changed."""

    tiers: tuple[Tier, ...] = (DEVICE, ENCLAVE)
    allowed: Allowed | None = LEAVES
    views: Mapping[str, TierView] = field(default_factory=lambda: VIEWS)
    estimate: Estimate = MEDIUM
    options: RoutingOptions = ANYHOW
    settings: UtilitySettings = SETTINGS
    plan: Routing = PLAN
    thresholds: Thresholds | None = THRESHOLDS

    def wanted(self) -> Speculation | None:
        mask = Permitted(routing_class=RoutingClass.PUBLIC, tiers=self.tiers)
        known, options = (self.views, self.estimate), (self.options, self.settings)
        return wanted(
            self.allowed,
            choose(mask, *known, *options, last=None),
            views=self.views,
            estimate=self.estimate,
            options=self.options,
            settings=self.settings,
            plan=self.plan,
            thresholds=self.thresholds,
            last=None,
        )


def test_a_draft_is_written_where_it_is_worth_more() -> None:
    speculation = Case().wanted()
    assert speculation is not None
    assert (speculation.draft, speculation.escalation) == (DEVICE, ENCLAVE)
    assert not speculation.race


def test_its_verifier_is_that_of_the_thresholds() -> None:
    speculation = Case().wanted()
    assert speculation is not None
    verifier = speculation.verifier("Why?")
    for piece in written("Because", " it", " is."):
        assert verifier.feed(piece) is Verdict.WAIT
    assert verifier.end(STOPPED) is Verdict.ACCEPT


def test_none_is_written_that_is_hardly_ever_accepted() -> None:
    rarely = thresholds(accepted=60, errors=0, graded=1000, bad=300, share=0.1)
    assert Case(thresholds=rarely, estimate=HARD).wanted() is None


def test_none_is_written_by_a_model_that_is_about_always_right() -> None:
    good = thresholds(bad=20, errors=20)
    assert Case(thresholds=good, estimate=expects(0.0)).wanted() is None


def test_none_is_written_that_would_make_the_answer_late() -> None:
    slow = replace(DEVICE_VIEW, tokens_per_s=2, tokens_per_s_p05=1)
    views = {"device": slow, "enclave": ENCLAVE_VIEW}
    hurried = RoutingOptions(total_ms=8000)
    assert Case(views=views, options=hurried).wanted() is None
    assert Case(options=hurried).wanted() is not None


@pytest.mark.parametrize("limit", [{"ttft_ms": 4500}, {"total_ms": 6500}])
def test_none_is_written_where_both_together_may_break_a_hard_promise(
    limit: dict[str, int],
) -> None:
    soft = replace(ANYHOW, **limit)  # type: ignore[arg-type]
    hard = replace(soft, slo_hard=True)
    # Each of the two alone would keep it.
    order = choose(
        Permitted(routing_class=RoutingClass.PUBLIC, tiers=(DEVICE, ENCLAVE)),
        VIEWS, MEDIUM, hard, SETTINGS, last=None,
    ).order  # fmt: skip
    assert set(order) == {DEVICE, ENCLAVE}
    assert Case(options=soft).wanted() is not None
    assert Case(options=hard).wanted() is None


def test_a_race_loses_no_time_and_costs_both() -> None:
    race = PLAN.model_copy(update={"speculation": Drafting(mode=Speculating.RACE)})
    expensive = {
        "device": DEVICE_VIEW,
        "enclave": replace(ENCLAVE_VIEW, cost_microusd_per_mtok=10_000_000),
    }
    assert Case(plan=PLAN, views=expensive).wanted() is not None
    assert Case(plan=race, views=expensive).wanted() is None
    soon: dict[str, Any] = {
        "options": RoutingOptions(total_ms=5000),
        "settings": UtilitySettings(weights=Weights(latency=100, cost=0)),
    }
    raced = Case(plan=race, **soon).wanted()
    verified = Case(plan=PLAN, **soon).wanted()
    assert raced is not None
    assert raced.race
    assert verified is None or verified.utility < raced.utility


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": PLAN.model_copy(update={"speculation": Drafting()})},
        {"plan": PLAN.model_copy(update={"classes": INTERNAL_ONLY})},
        {"thresholds": None},
        {"allowed": None},
        {"options": RoutingOptions(mode=Mode.HOME)},
        {"options": RoutingOptions(mode=Mode.ENCLAVE_IF_ALLOWED)},
        {"options": RoutingOptions(require=Require.ENCLAVE)},
        {"options": RoutingOptions(max_cost_microusd=610)},
        {"settings": UtilitySettings(overrides={Intent.QA: Preference.PREFER_STRONG})},
        {"views": {"device": DEVICE_VIEW,
                   "enclave": replace(ENCLAVE_VIEW, available=False)}},
        {"views": {"enclave": ENCLAVE_VIEW}},
    ],
)  # fmt: skip
def test_without_one_of_these_there_is_none(changes: dict[str, Any]) -> None:
    assert Case(**changes).wanted() is None


def test_the_cost_of_both_may_be_what_was_allowed() -> None:
    assert Case(options=RoutingOptions(max_cost_microusd=620)).wanted() is not None


def test_a_tier_that_was_denied_writes_no_draft() -> None:
    assert Case(tiers=(WARD, ENCLAVE)).wanted() is None
    assert Case(tiers=(DEVICE, WARD)).wanted() is None


@pytest.mark.parametrize("floor", [RoutingClass.PUBLIC, RoutingClass.INTERNAL])
def test_what_may_leave_as_it_is_has_drafts(floor: RoutingClass) -> None:
    assert Case(allowed=allowed(floor)).wanted() is not None


def test_confidential_queries_have_none() -> None:
    confidential = allowed(RoutingClass.CONFIDENTIAL)

    class Everything(Routing):
        @property
        @override
        def drafted(self) -> frozenset[RoutingClass]:
            return frozenset(RoutingClass)

    plan = Everything(tiers=PLAN.tiers, speculation=PLAN.speculation)
    assert Case(allowed=confidential, plan=plan).wanted() is None
    with pytest.raises(ValueError, match="no drafts"):
        speculation(allowed=confidential)


def test_what_must_stay_has_no_permission_to_escalate_with() -> None:
    leaving, on_premises = decided(RoutingClass.RESTRICTED)
    assert leaving is None
    assert Case(allowed=leaving).wanted() is None
    for no_permission in (on_premises, None, object(), object.__new__(Allowed)):
        with pytest.raises(TypeError):
            speculation(allowed=no_permission)


@pytest.mark.parametrize(
    "changes",
    [
        {"escalation": Tier(id="other", kind=TierKind.ATTESTED)},
        {"escalation": Tier(id="enclave", kind=TierKind.ON_PREMISES)},
        {"draft": WARD},
        {"draft": ENCLAVE},
    ],
)
def test_an_escalation_goes_where_the_decision_permits(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no drafts"):
        speculation(**changes)


def speculation(**changes: object) -> Speculation:
    values: dict[str, Any] = {
        "draft": DEVICE,
        "escalation": ENCLAVE,
        "allowed": allowed(),
        "thresholds": THRESHOLDS,
        "race": False,
        "utility": 0.1,
    }
    values.update(changes)
    return Speculation(**values)


def routed_by(
    *, running: tuple[str, str | None] | None, mode: Speculating = Speculating.VERIFY
) -> tuple[Unfit | None, Speculation | None]:
    """Return what a router says of drafts of the model that runs."""
    router = Router(
        PLAN.model_copy(update={"speculation": Drafting(mode=mode)}),
        RulesEstimator(),
        clock=lambda: 0.0,
        thresholds=THRESHOLDS,
        running=lambda: running,
    )
    mask = Permitted(routing_class=RoutingClass.PUBLIC, tiers=(DEVICE, ENCLAVE))
    query = single_query("Why does ice float?")
    routed = router.route(mask, query, conversation=b"")
    speculation = router.speculation(LEAVES, routed, query.options, conversation=b"")
    return router.unfit(), speculation


OWN = (THRESHOLDS.model_sha256, THRESHOLDS.template_sha256)


def test_the_model_that_was_certified_writes_drafts() -> None:
    unfit, speculation = routed_by(running=OWN)
    assert unfit is None
    assert speculation is not None


@pytest.mark.parametrize(
    ("running", "why"),
    [
        (None, Unfit.NO_MODEL),
        (("11" * 32, OWN[1]), Unfit.MODEL),
        ((OWN[0], "11" * 32), Unfit.TEMPLATE),
        ((OWN[0], None), Unfit.LOADING),
        (("11" * 32, None), Unfit.MODEL),
    ],
)
def test_no_other_model_does(
    running: tuple[str, str | None] | None, why: Unfit
) -> None:
    assert routed_by(running=running) == (why, None)


def test_where_the_policy_wants_none_nothing_is_missing() -> None:
    assert routed_by(running=None, mode=Speculating.OFF) == (None, None)


def test_every_reason_for_no_speculation_is_given() -> None:
    assert UNFIT.keys() == set(Unfit)


CLASSIFY = "Is this mail spam or not? Classify it: 'You have won a prize.'"
WHY = "Why does ice float?"
SHIPPED = Shipped(
    intent=Intent.CLASSIFICATION,
    made_of="invented",
    date="2026-11-28",
    thresholds=THRESHOLDS,
)


def shipping(
    *,
    running: tuple[str, str | None] | None = OWN,
    mode: Speculating = Speculating.VERIFY,
    own: Thresholds | None = None,
    shipped: Shipped = SHIPPED,
    observe: bool = False,
) -> Router:
    """Return a router with thresholds that come with Curtilage."""
    changes = {"speculation": Drafting(mode=mode), "observe": observe}
    return Router(
        PLAN.model_copy(update=changes),
        RulesEstimator(),
        clock=lambda: 0.0,
        thresholds=own,
        shipped=[shipped],
        running=lambda: running,
    )


def drafted(router: Router, text: str) -> Speculation | None:
    """Return the draft of a question that may be sent as it is."""
    mask = Permitted(routing_class=RoutingClass.PUBLIC, tiers=(DEVICE, ENCLAVE))
    query = single_query(text)
    routed = router.route(mask, query, conversation=b"")
    return router.speculation(LEAVES, routed, query.options, conversation=b"")


def test_shipped_thresholds_are_of_one_intent() -> None:
    router = shipping()
    assert drafted(router, CLASSIFY) is not None
    assert drafted(router, WHY) is None
    assert (router.certified, router.judges) == (THRESHOLDS.alpha, True)


@pytest.mark.parametrize(
    ("running", "why"),
    [
        (None, Unfit.NO_MODEL),
        (("11" * 32, OWN[1]), Unfit.MODEL),
        ((OWN[0], "11" * 32), Unfit.TEMPLATE),
        ((OWN[0], None), Unfit.LOADING),
    ],
)
def test_shipped_thresholds_are_of_one_model(
    running: tuple[str, str | None] | None, why: Unfit
) -> None:
    router = shipping(running=running)
    assert router.unfit(THRESHOLDS) is why
    assert drafted(router, CLASSIFY) is None
    assert router.doubts(single_query(CLASSIFY)) is None
    assert not router.judges
    # Of a model that has none nothing is missing: the policy named no file.
    assert router.unfit() is None


def test_those_that_the_policy_names_count_instead() -> None:
    other = thresholds(model_sha256="11" * 32)
    assert drafted(shipping(own=other), CLASSIFY) is None
    assert drafted(shipping(own=THRESHOLDS), WHY) is not None


def test_off_means_that_nothing_is_judged() -> None:
    router = shipping(mode=Speculating.OFF)
    assert drafted(router, CLASSIFY) is None
    assert router.doubts(single_query(CLASSIFY)) is None
    assert (router.certified, router.judges) == (None, False)


def test_what_is_kept_local_is_judged_where_its_like_was_graded() -> None:
    assert shipping().doubts(single_query(CLASSIFY)) is not None
    assert shipping().doubts(single_query(WHY)) is None
    assert shipping(own=THRESHOLDS).doubts(single_query(WHY)) is not None
    assert shipping(observe=True).doubts(single_query(CLASSIFY)) is None
    seldom = replace(SHIPPED, thresholds=thresholds(accepted=900, bad=84, errors=60))
    assert shipping(shipped=seldom).doubts(single_query(CLASSIFY)) is None


def test_the_question_is_not_read_where_nothing_could_judge_its_answer() -> None:
    class Unreadable(RulesEstimator):
        @override
        def estimate(self, query_text: str, max_tokens: int) -> Estimate:
            raise AssertionError("read")

    router = Router(
        PLAN.model_copy(update={"tiers": ()}),
        Unreadable(),
        clock=lambda: 0.0,
        shipped=[SHIPPED],
        running=lambda: ("11" * 32, OWN[1]),
    )
    assert router.doubts(single_query(CLASSIFY)) is None


CERTIFIED = thresholds(graded=520, bad=50, accepted=468, errors=30, share=0.9)
"""Nine drafts of ten are accepted, at most one in ten of them bad."""
ROUTINE = (
    "Finish the sentence: Thank you for your patience while we",
    "Complete: Our office is closed on",
    "Is this a complaint or an order? 'The kettle came without its lid.'",
    "Sort this into invoice, reminder or offer: 'Your payment is two weeks late.'",
    "Classify as urgent or not: 'The server room is under water.'",
    "Which department should get this: 'My badge no longer opens the gate'?",
    "Ordne zu, Lob oder Beschwerde: 'Der Kaffee war kalt.'",
    "¿Es una queja o un pedido? 'Quiero dos cajas de tornillos.'",
    "Extract all dates: 'We met on 3 May and meet again on 9 June.'",
    "List the amounts in: '12 euros for paper, 40 for ink.'",
    "Find the order number in: 'Concerning order 4471, please call back.'",
    "Nenne alle Orte im Satz: 'Von Kiel nach Ulm über Fulda.'",
    "Fix the grammar: 'He have sent the files yesterday.'",
    "Make this more polite: 'Send it now.'",
    "Shorten: 'We are writing to you in order to let you know that we moved.'",
    "Translate into German: 'The lift is out of order.'",
    "Rewrite in the passive: 'The clerk stamped the form.'",
    "Mach das höflicher: 'Das Fenster ist kaputt, kommen Sie.'",
    "Traduce al inglés: 'La reunión empieza a las nueve.'",
    "What does VAT stand for?",
    "How many grams are in a kilogram?",
    "What is the capital of Norway?",
    "Wie viele Minuten hat ein Tag?",
    "¿Cuál es la capital de Portugal?",
)
"""Invented questions of routine work, in three languages."""
WORK = (
    "Write a Python function that merges two sorted lists, with tests.",
    "Prove that the sum of two even numbers is even, then that of odd ones.",
    "Explain step by step how a court weighs two contracts that contradict each other.",
    "Debug this SQL query and explain the plan: SELECT * FROM a JOIN b ON a.x = b.y",
)
"""Invented questions of which the certificate says nothing."""


def shipped_router(measured: int | None, certified: Thresholds = CERTIFIED) -> Router:
    plan = load_profile("default").routing
    assert plan is not None
    return Router(
        plan,
        open_estimator(),
        clock=lambda: 0.0,
        home_quality=lambda: measured,
        thresholds=certified,
        running=lambda: OWN,
    )


def drafts_of(router: Router, texts: Sequence[str]) -> list[tuple[str, Speculation]]:
    """Return the questions that get a draft under the default profile, with it."""
    inspection = inspection_of(findings=(), payload_digest=bytes(32), messages=1)
    decision = decide(load_profile("default").rulebook, inspection)
    made: list[tuple[str, Speculation]] = []
    for text in texts:
        query = single_query(text)
        routed = router.route(decision.permitted, query, conversation=b"")
        speculation = router.speculation(
            decision.allowed, routed, query.options, conversation=b""
        )
        if speculation is not None:
            made.append((text, speculation))
    return made


# Of a model that is as good as the one of the learned gains, and of the catalogue's
# that has 1.5 billion parameters. The first is expected to fail at half of ordinary
# questions: that it was counted to fail at one in ten of these is in the bound alone.
@pytest.mark.parametrize("measured", [455, 670])
def test_most_routine_questions_get_a_draft_and_hard_ones_do_not(measured: int) -> None:
    router = shipped_router(measured)
    assert CERTIFIED.accepts == 0.9
    assert len(drafts_of(router, ROUTINE)) >= 0.75 * len(ROUTINE)
    assert not drafts_of(router, WORK)


@pytest.mark.parametrize(
    ("aim", "drafts"),
    [
        (Aim(quality_loss_permille=35), True),
        (Aim(local_percent=70), False),
        (Aim.model_construct(cost_per_1000=100), False),
        (Aim(local_percent=5), True),
    ],
)
def test_what_an_aim_of_share_or_cost_keeps_local_has_no_draft(
    aim: Aim, *, drafts: bool
) -> None:
    """Of two drafts in ten the enclave would be asked after all."""
    router = shipped_router(670)
    router.plan = router.plan.model_copy(update={"aim": aim})
    assert bool(drafts_of(router, ROUTINE)) is drafts


def test_the_drafts_that_are_accepted_err_within_the_certificate() -> None:
    """A model that is as sure, and as often wrong, as the one that was graded."""
    draw = random.Random(0)  # noqa: S311 - no secret
    often_bad = replace(CERTIFIED, bad=72)
    accepted, wrong, asked = 0, 0, 0
    for text, speculation in drafts_of(shipped_router(670, often_bad), ROUTINE) * 50:
        sure = draw.random() < often_bad.accepts
        rate = 30 / 468 if sure else 42 / 52
        verifier = speculation.verifier(text)
        for piece in written("So", " it", " is.", probability=0.99 if sure else 0.01):
            verifier.feed(piece)
        asked += 1
        if verifier.end(STOPPED) is Verdict.ACCEPT:
            accepted += 1
            wrong += draw.random() < rate
    assert accepted > 0.85 * asked
    # All of them together err more often than that.
    assert wrong <= often_bad.alpha * accepted < often_bad.bad / 520 * accepted
