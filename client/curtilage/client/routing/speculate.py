"""Speculation: whether the local model writes a draft before its quality is known.

Pure. The draft starts at once; a verifier accepts it, or the enclave is asked. This is
worth its cost if drafts are often accepted and the enclave is expensive or slow.

A query that must be kept local cannot be escalated: a ``Speculation`` contains an
``Allowed``, which only the decision creates, and refuses one for a class more private
than internal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import final

from curtilage.client.chat.options import Mode, RoutingOptions
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
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import Speculating


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """A local draft, and the enclave that is asked if the draft is rejected.

    Attributes:
        draft: the local model.
        escalation: an enclave.
        allowed: the permission to ask it.
        thresholds: for judging the draft.
        race: whether the enclave is asked at once, in parallel with the draft.
        utility: its expected utility, relative to a free answer of the local model.

    Raises:
        TypeError: ``allowed`` was not created by a decision.
        ValueError: it does not permit this.
    """

    draft: Tier
    escalation: Tier
    allowed: Allowed = field(repr=False)
    thresholds: Thresholds = field(repr=False)
    race: bool
    utility: float

    def __post_init__(self) -> None:
        """Refuse an impermissible combination."""
        # Checked here and not only by ``wanted``: an object that must not exist cannot
        # be passed on by mistake.
        allowed = require_allowed(self.allowed)
        if (
            allowed.routing_class not in SPECULATIVE
            or self.escalation.id not in allowed.tiers
            or self.escalation.kind is not TierKind.ATTESTED
            or self.draft.kind is not TierKind.IN_PROCESS
        ):
            raise ValueError("no drafts for a query of this class, or with such a tier")

    def verifier(self, question: str) -> Verifier:
        """Return the verifier for the draft.

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
    plan: Routing,
    thresholds: Thresholds | None,
    last: str | None,
    scale: Scale = REFERENCE_SCALE,
    bar: float | None = None,
) -> Speculation | None:
    """Return a speculation if it is worth more than the choice; None: it is not.

    Args:
        allowed: the decision's permission to send; None: there is none.
        choice: among the tiers that are permitted and can answer.
        views: as for ``choose``, as are the next three.
        estimate: the estimate for the query.
        options: the sender's options.
        settings: the weights.
        plan: the policy's.
        thresholds: certified for the current model; None: there are none.
        last: the tier that answered last in the conversation; None: none did.
        scale: the meaning of the estimate's gain.
        bar: the need from which an enclave is asked; None: the policy has no aim.
    """
    if (
        allowed is None
        or thresholds is None
        or plan.speculation.mode is Speculating.OFF
        or allowed.routing_class not in SPECULATIVE & plan.drafted
        # If a tier was asked for explicitly, no other is asked speculatively.
        or options.mode is not Mode.AUTO
        or options.require is not None
        # The operator has decided for such tasks.
        or estimate.intent in settings.overrides
    ):
        return None
    # Reversed, so that the best one of each kind is the one that remains.
    kinds = {tier.kind: tier for tier in reversed(choice.order)}
    draft, escalation = kinds.get(TierKind.IN_PROCESS), kinds.get(TierKind.ATTESTED)
    if draft is None or escalation is None or escalation.id not in allowed.tiers:
        return None
    race = plan.speculation.mode is Speculating.RACE
    views = {tier.id: views[tier.id] for tier in choice.order}
    local, away = (
        terms_of(
            tier, views, estimate, options, settings, last=last, aimed=bar is not None
        )
        for tier in (draft, escalation)
    )
    late = _times_on(views[draft.id], views[escalation.id], estimate, race=race)
    first_ms, total_ms = late[-1]
    # The deadline and the cost limit apply to both attempts together.
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
    # Counted shares, not an estimate for this query: a score for it exists only once
    # there is a draft.
    keeps, goes = thresholds.accepts, 1 - thresholds.accepts
    good = 1 - thresholds.bad / thresholds.graded
    kept_good = 1 - thresholds.errors / thresholds.accepted
    solved, better = (
        solved_by(views[tier.id], estimate.gain, scale) for tier in (draft, escalation)
    )
    gain = better - solved
    # The part of the gain that the aim requires before a question is sent.
    price = 0.0
    if bar is not None:
        price = gain - scale.gain_of(1.0) * (scale.need(estimate.gain) - bar)
    if estimate.gain < HARD_GAIN:
        # The local model's error rate on such questions was measured, so no other model
        # can add more. The measurement did not cover questions estimated as hard.
        gain = min(gain, 1 - good)
    alone = -local.taken
    sent = gain - price - away.taken
    # All three are relative to a free answer of the local model.
    drafted = (
        keeps * (kept_good - good)
        + goes * (gain - price)
        - keeps * local.latency
        - goes * lateness(late, options, settings)
        # In a race both are paid for: the enclave computes its answer to the end, and
        # it is drained, whichever answers.
        - local.cost - (1 if race else goes) * away.cost
        - keeps * (local.risk + local.switch) - goes * (away.risk + away.switch)
    )  # fmt: skip
    least = settings.weights.hysteresis / 1000 if bar is None else 0.0
    # ``not >``: with a NaN anywhere in the terms, no draft is written.
    if not drafted - max(alone, sent) > least:
        return None
    return Speculation(
        draft=draft, escalation=escalation, allowed=allowed, thresholds=thresholds,
        race=race, utility=drafted,
    )  # fmt: skip


def _times_on(
    home: TierView, away: TierView, estimate: Estimate, *, race: bool
) -> list[tuple[float, float]]:
    """Return when an answer begins and ends if the draft was rejected, in ms.

    The typical times, then the slow ones.
    """
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    times: list[tuple[float, float]] = []
    for slow in (False, True):
        speed = home.tokens_per_s_p05 if slow else home.tokens_per_s
        # Most are rejected at the last look before the end, or at the end.
        drafted = 1000 * min(answer, LOOKS[-1]) / speed
        # In a race the enclave is asked at once, so a rejected draft costs no time.
        lost = 0.0 if race else home.ttft_ms(prompt, slow=slow) + drafted
        times.append(
            (
                lost + away.ttft_ms(prompt, slow=slow),
                lost + away.total_ms(prompt, answer, slow=slow),
            )
        )
    return times
