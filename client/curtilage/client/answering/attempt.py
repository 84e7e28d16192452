"""A query after its decision, and an attempt at one of the tiers that may answer it."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.chat.answer import Answerer, AnswerEvent, Phase, Provenance
from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.errors import AnswererError, FailureReason
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.remote.reasons import Unmet
from curtilage.client.route import AskEnclave, AskLocal, AskOnPremises, Plan, Way, Ways
from curtilage.client.routing.utility import Reason
from curtilage.policy.decision.tiers import RoutingClass, Tier, TierKind

ANSWERERS: Final = {
    TierKind.IN_PROCESS: Answerer.LOCAL,
    TierKind.ON_PREMISES: Answerer.ON_PREMISES,
    TierKind.ATTESTED: Answerer.ENCLAVE,
}
_PHASES: Final = {
    TierKind.IN_PROCESS: Phase.ASKING_HERE,
    TierKind.ON_PREMISES: Phase.ASKING_ON_PREMISES,
    TierKind.ATTESTED: Phase.ASKING_ENCLAVE,
}


@dataclass(slots=True)
class Status:
    """The state of an answer.

    Attributes:
        phase: what is being done for it now.
        source: the tier that gives it, and why; None before any began.
    """

    phase: Phase
    source: Provenance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query after its decision, without a word of it.

    Attributes:
        recorder: records its steps in the audit trail; holds the decision.
        ways: all permitted ways to answer it.
        options: its routing options.
        max_tokens: limit of its answer.
        messages: how many it has.
        characters: of its messages.
        text_bytes: length of the text of its messages in bytes.
        payload: length of its payload in bytes; None: it has no encoding.
    """

    recorder: QueryRecorder
    ways: Ways
    options: RoutingOptions
    max_tokens: int
    messages: int
    characters: int
    text_bytes: int
    payload: int | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One tier that is asked, and what led to it.

    Attributes:
        case: the query.
        plan: the order in which tiers are asked, and why.
        tier: the tier.
        failures: of the tiers that were asked before it.
        draft: its text is judged while it is written.
        hedge: it is asked because another is late.
        last: no tier is left to be asked after it.
    """

    case: Case
    plan: Plan
    tier: Tier
    failures: tuple[AnswererError, ...]
    draft: bool = False
    hedge: bool = False
    last: bool = True

    @property
    def way(self) -> Way:
        """The way in which it is asked, and the permission for that."""
        return self.case.ways.by_tier[self.tier.id]

    @property
    def phase(self) -> Phase:
        """The phase until its first text."""
        return _PHASES[self.tier.kind]

    @property
    def fallback(self) -> FailureReason | None:
        """Why a tier that might have come before does not answer."""
        return self.failures[0].reason if self.failures else self.plan.fallback

    @property
    def kept_home(self) -> bool:
        """Whether the caller kept a query local that could have been sent."""
        asked = self.case.options
        return (
            asked.mode is Mode.HOME
            or asked.require not in {None, Require.ENCLAVE}
            or any(each.reason is Unmet.CONSENT for each in self.failures)
        )

    def provenance(
        self,
        *,
        model: str,
        recorded: bool,
        key: VerifiedKey | None = None,
        home_model: str = "",
        demonstration: bool = False,
    ) -> Provenance:
        """Return where the answer comes from."""
        way, decision = self.way, self.case.recorder.decision
        rewritten = way.rewritten if isinstance(way, AskEnclave) else None
        floor = self.case.options.floor
        why = self.plan.why  # empty without a choice
        if why and self.failures:
            # After a rejected draft, a query is sent on because it is too hard, and not
            # because of a failure.
            rejected = self.fallback is LocalFailure.DRAFT_REJECTED
            why = Reason.HARD if rejected else Reason.UNAVAILABLE
        elif why and (self.hedge or self.draft):
            why = Reason.FASTER if self.hedge else Reason.EASY
        return Provenance(
            route=ANSWERERS[self.tier.kind],
            model=model,
            classes=decision.classes,
            rule=decision.rule,
            reason=decision.reason,
            policy_digest=decision.policy_digest,
            uncertain=decision.uncertain,
            verdict_id=None if key is None else key.verdict_id,
            evidence=None if key is None else key.tee,
            fallback=self.fallback,
            recorded=recorded,
            deidentified=() if rewritten is None else rewritten.counts,
            obstacle=way.obstacle if isinstance(way, AskLocal) else None,
            # An on-premises server gets the whole conversation.
            boundary="" if isinstance(way, AskOnPremises) else way.boundary,
            tier=self.tier.id,
            why=why,
            home_model=home_model,
            demonstration=demonstration,
            # The lowest class restricts nothing, so it is not reported as a floor.
            floor="" if floor is RoutingClass.PUBLIC else floor.value,
        )


Answers = AsyncGenerator[AnswerEvent]
"""Events of a tier: pieces of the answer, and its end."""
