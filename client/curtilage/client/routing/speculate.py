"""Whether to let the home model write while it is not yet known that it will do.

Pure. The draft starts at once; a verifier accepts it, or the enclave is asked. That is
worth its cost where drafts are often accepted and the enclave's answer is dear or late.

What may not leave cannot be escalated: a ``Speculation`` holds the permission to leave
itself, ``Allowed``, which only the decision makes, and refuses one of a class that is
more private than internal. There is none for what must stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import final

from curtilage.client.options import Mode, RoutingOptions
from curtilage.client.routing.aim import REFERENCE_SCALE, Scale
from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.health import TierView
from curtilage.client.routing.thresholds import Thresholds
from curtilage.client.routing.utility import (
    HARD_GAIN,
    SPECULATIVE,
    Choice,
    UtilitySettings,
    lateness,
    solved_by,
    terms_of,
)
from curtilage.client.routing.verifier import LOOKS, Verifier
from curtilage.policy.decision.decide import Allowed, require_allowed
from curtilage.policy.decision.tiers import Tier, TierKind
from curtilage.policy.document.routing_plan import Speculating, SpeculationPlan


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """A draft at home, and where its question goes if the draft does not do.

    Attributes:
        draft: the local model.
        escalation: an enclave.
        allowed: the permission to ask it.
        thresholds: by which the draft is judged.
        race: whether the enclave is asked at once, beside the draft.
        utility: what it is expected to be worth, beside an answer of the local model.

    Raises:
        TypeError: ``allowed`` was not made by a decision.
        ValueError: it does not permit this.
    """

    draft: Tier
    escalation: Tier
    allowed: Allowed = field(repr=False)
    thresholds: Thresholds = field(repr=False)
    race: bool
    utility: float

    def __post_init__(self) -> None:
        """Refuse what may not be."""
        allowed = require_allowed(self.allowed)
        if (
            allowed.routing_class not in SPECULATIVE
            or self.escalation.id not in allowed.tiers
            or self.escalation.kind is not TierKind.ATTESTED
            or self.draft.kind is not TierKind.IN_PROCESS
        ):
            raise ValueError("a query of this class, or such a tier, has no drafts")

    def verifier(self, question: str) -> Verifier:
        """Return what judges the draft.

        Args:
            question: the last turn of its sender.
        """
        return Verifier(
            self.thresholds.heads, self.thresholds.threshold, question=question
        )


def wanted(
    allowed: Allowed | None,
    choice: Choice,
    *,
    views: Mapping[str, TierView],
    estimate: Estimate,
    options: RoutingOptions,
    settings: UtilitySettings,
    plan: SpeculationPlan,
    thresholds: Thresholds | None,
    last: str | None,
    scale: Scale = REFERENCE_SCALE,
    bar: float | None = None,
) -> Speculation | None:
    """Return the speculation that is worth more than what was chosen; None: none is.

    Args:
        allowed: the decision's permission to leave; None: there is none.
        choice: of the tiers that are permitted and can answer.
        views: as for ``choose``, and so are the next three.
        estimate: what is expected of the query.
        options: what its sender asks.
        settings: what things are worth.
        plan: what the policy says of speculation.
        thresholds: certified for the model that runs; None: nothing is.
        last: the tier that answered in the conversation before; None: none did.
        scale: what the estimate's gain means.
        bar: the need from which an enclave is asked; None: the policy has no aim.
    """
    if (
        allowed is None
        or thresholds is None
        or plan.mode is Speculating.OFF
        or allowed.routing_class not in SPECULATIVE & plan.classes
        # Where somebody said who is to answer, nobody else is asked on suspicion.
        or options.mode is not Mode.AUTO
        or options.require is not None
        or estimate.intent in settings.overrides
    ):
        return None
    kinds = {tier.kind: tier for tier in reversed(choice.order)}
    draft, escalation = kinds.get(TierKind.IN_PROCESS), kinds.get(TierKind.ATTESTED)
    if draft is None or escalation is None or escalation.id not in allowed.tiers:
        return None
    race = plan.mode is Speculating.RACE
    views = {tier.id: views[tier.id] for tier in choice.order}
    local, away = (
        terms_of(
            tier, views, estimate, options, settings, last=last, aimed=bar is not None
        )
        for tier in (draft, escalation)
    )
    late = _times_on(views[draft.id], views[escalation.id], estimate, race=race)
    first_ms, total_ms = late[-1]
    # What is asked of one after the other takes as long as both.
    if options.slo_hard and (
        first_ms > (options.ttft_ms or inf) or total_ms > (options.total_ms or inf)
    ):
        return None
    most = options.max_cost_microusd
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    both = sum(
        views[tier.id].cost_microusd(prompt, answer) for tier in (draft, escalation)
    )
    if most is not None and both > most:
        return None
    keeps, goes = thresholds.accepts, 1 - thresholds.accepts
    good = 1 - thresholds.bad / thresholds.graded
    kept_good = 1 - thresholds.errors / thresholds.accepted
    solved, better = (
        solved_by(views[tier.id], estimate.gain, scale) for tier in (draft, escalation)
    )
    gain = better - solved
    # What the aim asks of a gain before a question is sent.
    price = 0.0
    if bar is not None:
        price = gain - scale.gain_of(1.0) * (scale.need(estimate.gain) - bar)
    if estimate.gain < HARD_GAIN:
        # At such questions the local model was counted to fail so often, and no other
        # adds more. What was found hard is not what was graded.
        gain = min(gain, 1 - good)
    alone = -local.taken
    sent = gain - price - away.taken
    # All three beside an answer of the local model that costs nothing.
    drafted = (
        keeps * (kept_good - good)
        + goes * (gain - price)
        - keeps * local.latency
        - goes * lateness(late, options, settings)
        # Of a race both are paid: what was asked of the enclave is computed to its end,
        # and drained, whoever answered.
        - local.cost - (1 if race else goes) * away.cost
        - keeps * (local.risk + local.switch) - goes * (away.risk + away.switch)
    )  # fmt: skip
    least = settings.hysteresis_permille / 1000 if bar is None else 0.0
    if not drafted - max(alone, sent) > least:
        return None
    return Speculation(
        draft=draft, escalation=escalation, allowed=allowed, thresholds=thresholds,
        race=race, utility=drafted,
    )  # fmt: skip


def _times_on(
    home: TierView, away: TierView, estimate: Estimate, *, race: bool
) -> list[tuple[float, float]]:
    """Return when an answer begins and ends whose draft was rejected, in ms.

    Usually, and at worst.
    """
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    times: list[tuple[float, float]] = []
    for slow in (False, True):
        speed = home.tokens_per_s_p05 if slow else home.tokens_per_s
        # Most are rejected at the last look before the end, or at the end itself.
        drafted = 1000 * min(answer, LOOKS[-1]) / speed
        lost = 0.0 if race else home.ttft_ms(prompt, slow=slow) + drafted
        times.append(
            (
                lost + away.ttft_ms(prompt, slow=slow),
                lost + away.total_ms(prompt, answer, slow=slow),
            )
        )
    return times
