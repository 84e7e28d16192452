"""The router applies the operator's aim to each choice, and learns from traffic."""

from contextlib import suppress
from dataclasses import replace

import pytest

from curtilage.client.chat.openai_tools import format_of
from curtilage.client.chat.query import Query, single_query
from curtilage.client.errors import ElsewhereError
from curtilage.client.on_premises.reasons import (
    OnPremisesFailure,
    TooLongForServerError,
)
from curtilage.client.remote.reasons import TooLongForEnclaveError
from curtilage.client.routing.estimate import Estimate, Intent
from curtilage.client.routing.health import PRIORS
from curtilage.client.routing.router import Router, Standing
from curtilage.client.routing.utility import Reason, Refusal
from curtilage.policy.decision.tiers import (
    Permitted,
    RoutingClass,
    Tier,
    TierKind,
)
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import Aim, Estimator, Priors, TierEntry
from support.tier_views import DEVICE, ENCLAVE, WARD, expects

MASK = Permitted(routing_class=RoutingClass.PUBLIC, tiers=(DEVICE, ENCLAVE))
QUERY = single_query("Anything.")
LOSS = Aim(quality_loss_permille=40)


class Fixed:
    """Expects the same of every text."""

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def estimate(self, query_text: str, max_tokens: int) -> Estimate:  # noqa: ARG002
        return replace(expects(self.gain), intent=Intent.UNKNOWN)


def router(
    gain: float,
    *,
    aim: Aim | None = LOSS,
    quality: int | None = None,
    measured: int | None = None,
) -> Router:
    plan = Routing(
        tiers=(
            TierEntry(
                id="device",
                kind=TierKind.IN_PROCESS,
                priors=Priors(quality_permille=quality),
            ),
            TierEntry(id="enclave", kind=TierKind.ATTESTED),
        ),
    ).model_copy(update={"aim": aim})
    return Router(plan, Fixed(gain), clock=lambda: 0.0, home_quality=lambda: measured)


def first(asked: Router, query: Query = QUERY, conversation: bytes = b"") -> str:
    routed = asked.route(MASK, query, conversation=conversation)
    return routed.choice.order[0].id


def test_what_needs_a_strong_model_less_than_the_line_is_answered_locally() -> None:
    assert first(router(0.01)) == "device"
    assert first(router(0.45)) == "enclave"


def test_the_reason_says_hard_only_of_what_was_found_hard() -> None:
    def why(gain: float, percent: int) -> Reason:
        asked = router(gain, aim=Aim(local_percent=percent))
        return asked.route(MASK, QUERY, conversation=b"").choice.reason

    assert why(0.45, 50) is Reason.HARD
    assert why(0.01, 50) is Reason.EASY
    # Sent though it is easy, and kept though it is hard: the aim wants it.
    assert why(0.15, 1) is Reason.AIM
    assert why(0.45, 99) is Reason.AIM


def standing(asked: Router) -> Standing:
    """Return where a router places the question among ordinary ones."""
    found = asked.route(MASK, QUERY, conversation=b"").standing
    assert found is not None
    return found


def test_with_a_model_that_was_measured_the_line_is_that_model_s() -> None:
    lines = [
        standing(router(0.1, measured=measured)).line or 0.0
        for measured in (50, 500, 670, 850)
    ]
    assert lines == sorted(lines)
    assert 0 < lines[0] < 0.06 < lines[-1]


def test_what_the_policy_says_of_a_model_comes_before_what_was_measured() -> None:
    said = router(0.1, quality=800, measured=50)
    assert said.views()["device"].quality_permille == 800
    assert router(0.1, measured=50).views()["device"].quality_permille == 50


def test_of_a_model_that_takes_over_unmeasured_nothing_is_kept() -> None:
    measured: list[int | None] = [30]
    plan = router(0.1).plan
    asked = Router(
        plan, Fixed(0.1), clock=lambda: 0.0, home_quality=lambda: measured[0]
    )
    assert asked.views()["device"].quality_permille == 30
    measured[0] = None
    usual = PRIORS[TierKind.IN_PROCESS].quality_permille
    assert asked.views()["device"].quality_permille == usual


@pytest.mark.parametrize("gain", [-0.5, 0.0, 0.3, 0.72, 1.0])
def test_all_and_nothing_are_met_for_every_gain(gain: float) -> None:
    for percent, tier in ((0, "enclave"), (100, "device")):
        aim = Aim(local_percent=percent)
        assert first(router(gain, aim=aim)) == tier


@pytest.mark.parametrize("cost", [0, 1])
def test_a_cost_that_cannot_be_met_sends_nothing(cost: int) -> None:
    aim = Aim.model_construct(cost_per_1000=cost)
    asked = router(0.9, aim=aim)
    assert first(asked) == "device"
    for _ in range(3):
        asked.asked(asked.route(MASK, QUERY, conversation=b""))
        assert first(asked) == "device"


def test_an_estimator_of_one_s_own_has_no_cliff_in_quality() -> None:
    """Its gain was measured between the operator's own two models."""

    def chosen(quality: int, aim: Aim, gain: float) -> str:
        plan = router(gain, aim=aim, quality=quality).plan
        own = plan.model_copy(
            update={"estimator": Estimator(file="own", sha256="00" * 32)}
        )
        return first(Router(own, Fixed(gain), clock=lambda: 0.0))

    share = Aim(local_percent=70)
    for aim in (LOSS, share):
        for gain, tier in ((0.02, "device"), (0.45, "enclave")):
            found = {chosen(each, aim, gain) for each in (300, 600, 880, 899, 900, 950)}
            assert found == {tier}


@pytest.mark.parametrize(
    ("aim", "tier"),
    [
        # Nine in ten are to be local, by whichever tier.
        (Aim(local_percent=90), "device"),
        # The device alone would lose more than that.
        (Aim(quality_loss_permille=35), "enclave"),
    ],
)
def test_the_aim_holds_while_the_best_local_tier_is_out_of_order(
    aim: Aim, tier: str
) -> None:
    tiers = (DEVICE, WARD, ENCLAVE)
    device, ward, enclave = (Priors(quality_permille=each) for each in (300, 800, 900))
    plan = Routing(
        tiers=(
            TierEntry(id=DEVICE.id, kind=DEVICE.kind, priors=device),
            TierEntry(
                id=WARD.id, kind=WARD.kind, address="unix:/w", model="m", priors=ward
            ),
            TierEntry(id=ENCLAVE.id, kind=ENCLAVE.kind, priors=enclave),
        ),
        aim=aim,
    )
    asked = Router(plan, Fixed(0.05), clock=lambda: 0.0)
    mask = Permitted(routing_class=RoutingClass.PUBLIC, tiers=tiers)
    view = asked.views()["ward"]
    assert view.available
    assert asked.route(mask, QUERY, conversation=b"").choice.order[0] is WARD
    for _ in range(50):
        with suppress(ElsewhereError), asked.follow(WARD, expects(0.05)):
            raise ElsewhereError(OnPremisesFailure.UNREACHABLE)
    assert not asked.views()["ward"].available
    choice = asked.route(mask, QUERY, conversation=b"").choice
    assert choice.order[0].id == tier


def test_after_a_refusal_long_texts_go_to_a_tier_whose_context_fits() -> None:
    plan = Routing(
        tiers=(
            TierEntry(id=WARD.id, kind=WARD.kind, address="unix:/w", model="m"),
            TierEntry(id=ENCLAVE.id, kind=ENCLAVE.kind),
        ),
    )
    asked = Router(plan, Fixed(0.05), clock=lambda: 0.0)
    mask = Permitted(routing_class=RoutingClass.PUBLIC, tiers=(WARD, ENCLAVE))
    long = single_query("word " * 9000)

    def order(query: Query) -> list[str]:
        chosen = asked.route(mask, query, conversation=b"").choice.order
        return [tier.id for tier in chosen]

    assert set(order(long)) == {"ward", "enclave"}
    with suppress(ElsewhereError), asked.follow(WARD, expects(0.05)):
        raise TooLongForServerError(9000, 4096)
    # No failure of the tier, and only for texts that it cannot take.
    assert asked.views()["ward"].available
    assert order(long) == ["enclave"]
    assert set(order(QUERY)) == {"ward", "enclave"}
    with suppress(ElsewhereError), asked.follow(ENCLAVE, expects(0.05)):
        raise TooLongForEnclaveError(9000, 256, 8192)
    routed = asked.route(mask, long, conversation=b"")
    choice = routed.choice
    assert (choice.order, choice.refusal) == ((), Refusal.CONTEXT_TOO_LONG)
    said = asked.remedy(routed)
    assert f"about {routed.estimate.prompt_tokens:,} tokens and asks for 512" in said
    assert said.endswith("the largest context is 8,192")


def test_a_long_answer_needs_room_as_the_engine_demands_it() -> None:
    asked = router(1.0)
    with suppress(ElsewhereError), asked.follow(ENCLAVE, expects(0.05)):
        raise TooLongForEnclaveError(3000, 1097, 4096)
    for most, fits in ((4000, True), (4096, False)):
        settings = replace(QUERY.settings, max_tokens=most)
        query = replace(QUERY, settings=settings)
        choice = asked.route(MASK, query, conversation=b"").choice
        assert (ENCLAVE in choice.order) == fits


def test_a_schema_counts_as_what_is_read() -> None:
    asked = router(1.0)
    schema = format_of(
        {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"title": "word " * 900}},
        }
    )
    more = asked.estimate(replace(QUERY, response_format=schema)).prompt_tokens
    assert more > asked.estimate(QUERY).prompt_tokens + 1000


def test_a_conversation_changes_tiers_only_clearly_beyond_the_line() -> None:
    aim = Aim(local_percent=50)
    middle = router(0.0, aim=aim)
    assert standing(middle).line == pytest.approx(0.5)
    # The least gain that is clearly above the line in rank.
    at = next(
        gain / 1000
        for gain in range(1000)
        if standing(router(gain / 1000, aim=aim)).rank >= 0.505
    )
    fresh = router(at, aim=aim)
    assert first(fresh) == "enclave"
    fresh.answered(b"talk", "device")
    assert first(fresh, conversation=b"talk") == "device"
    fresh.answered(b"talk", "enclave")
    assert first(fresh, conversation=b"talk") == "enclave"


def test_only_what_was_asked_is_counted() -> None:
    asked = router(0.3)
    before = asked.route(MASK, QUERY, conversation=b"")
    again = asked.route(MASK, QUERY, conversation=b"")
    assert before.standing == again.standing
    for _ in range(300):
        asked.asked(before)
    after = asked.route(MASK, QUERY, conversation=b"")
    assert after.standing is not None
    assert before.standing is not None
    # Half of the ordinary questions now need as much: the same loss keeps fewer.
    assert after.standing.line is not None
    assert before.standing.line is not None
    assert after.standing.line < 0.8 * before.standing.line


def test_without_an_aim_the_rank_is_known_and_no_line_is_drawn() -> None:
    standing = router(0.1, aim=None).route(MASK, QUERY, conversation=b"").standing
    assert standing is not None
    assert 0 < standing.rank < 1
    assert (standing.line, standing.bar) == (None, None)


@pytest.mark.parametrize("only", [DEVICE, ENCLAVE])
def test_where_one_is_permitted_there_is_no_line(only: Tier) -> None:
    mask = replace(MASK, tiers=(only,))
    routed = router(0.3).route(mask, QUERY, conversation=b"")
    assert routed.standing is None
    assert routed.choice.order == (only,)


def test_no_prior_makes_a_demonstration_a_useful_model() -> None:
    plan = router(0.1, quality=670).plan
    asked = Router(
        plan,
        Fixed(0.1),
        clock=lambda: 0.0,
        home_quality=lambda: 30,
        demonstrates=lambda: True,
    )
    assert asked.views()["device"].quality_permille == 30
