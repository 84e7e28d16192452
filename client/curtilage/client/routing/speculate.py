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
from typing import Final, final

from curtilage.client.options import Mode, RoutingOptions
from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.health import TierView
from curtilage.client.routing.thresholds import Thresholds
from curtilage.client.routing.utility import Choice, UtilitySettings, lateness, terms_of
from curtilage.client.routing.verifier import LOOKS, Verifier
from curtilage.policy.decision.decide import Allowed, require_allowed
from curtilage.policy.decision.tiers import RoutingClass, Tier, TierKind
from curtilage.policy.document.routing_plan import Speculating, SpeculationPlan

SPECULATIVE: Final = frozenset({RoutingClass.PUBLIC, RoutingClass.INTERNAL})
"""A draft that is discarded tells the enclave that a question was hard, and an observer
that there was a delay. Of more private classes it is told neither."""


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
        utility: what it is expected to be worth, as ``Choice.scores``.

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
    home, away = (
        terms_of(tier, views, estimate, options, settings, last=last)
        for tier in (draft, escalation)
    )
    late = _times_on(views[draft.id], views[escalation.id], estimate, race=race)
    first_ms, total_ms = late[-1]
    # What is asked of one after the other takes as long as both.
    if options.slo_hard and (
        first_ms > (options.ttft_ms or inf) or total_ms > (options.total_ms or inf)
    ):
        return None
    keeps, goes = thresholds.accepts, 1 - thresholds.accepts
    good = 1 - thresholds.bad / thresholds.graded
    kept_good = 1 - thresholds.errors / thresholds.accepted
    utility = (
        # Beside an answer of the home model: what is kept is better than its mean, and
        # what goes on gets the enclave's gain.
        home.strength * estimate.gain
        + keeps * (kept_good - good)
        + goes * (away.strength - home.strength) * estimate.gain
        - keeps * home.latency
        - goes * lateness(late, options, settings)
        # Of a race both are paid: what was asked of the enclave is computed to its end,
        # and drained, whoever answered.
        - home.cost - (1 if race else goes) * away.cost
        - keeps * (home.risk + home.switch) - goes * (away.risk + away.switch)
    )  # fmt: skip
    most = options.max_cost_microusd
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    both = sum(
        views[tier.id].cost_microusd(prompt, answer) for tier in (draft, escalation)
    )
    if most is not None and both > most:
        return None
    if utility - max(choice.scores) <= settings.hysteresis_permille / 1000:
        return None
    return Speculation(
        draft=draft, escalation=escalation, allowed=allowed, thresholds=thresholds,
        race=race, utility=utility,
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
