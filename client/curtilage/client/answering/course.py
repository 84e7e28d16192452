"""The course of one query from tier to tier: all of its state that changes.

::

    CHOOSING ──begin──▶ ANSWERING ──the last event──▶ ANSWERED
       ▲                    │
       └──another may──── failed ──none may──▶ FAILED
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Final

from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.answering.attempt import Attempt, Case
from curtilage.client.chat.answer import (
    Delta,
    Finished,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.chat.options import Mode
from curtilage.client.errors import (
    AnswererError,
    ClientError,
    LocalUnavailableError,
    NotRoutedError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.remote.reasons import Unmet
from curtilage.client.route import Plan
from curtilage.client.routing.router import REMEDIES, required_unmet
from curtilage.client.routing.utility import Refusal
from curtilage.policy.decision.classes import STALE_POLICY, UNFINISHED
from curtilage.policy.decision.tiers import Tier

# These end by themselves: a detector recovers, or a policy is signed again. A refusal
# for them must not be stored as permanent.
_PASSING: Final = UNFINISHED | {STALE_POLICY}


@unique
class State(Enum):
    """Position of a query on its way.

    ``CHOOSING``: the next tier is to be asked. ``ANSWERING``: one is being asked.
    ``ANSWERED``: its answer is complete. ``FAILED``: no tier can complete the answer.
    """

    CHOOSING = "choosing"
    ANSWERING = "answering"
    ANSWERED = "answered"
    FAILED = "failed"


@unique
class Shown(Enum):
    """The part of an answer that its reader has."""

    NOTHING = 0
    DRAFT = 1
    TEXT = 2

    def after(self, event: SessionEvent) -> "Shown":
        """Return the same after one more event."""
        match event:
            case Delta(tentative=True):
                return max(self, Shown.DRAFT, key=lambda each: each.value)
            case Retract():
                return Shown.NOTHING
            case Replaced():
                return self
            case Delta() | Verified() | Finished():
                return Shown.TEXT


@dataclass(slots=True)
class Course:
    """One query on its way.

    Attributes:
        case: the query, with every permitted way to answer it.
        plan: the order in which tiers are asked.
        stream: shows which tier answers.
        began_s: when it was asked.
        left: the tiers that are not yet asked, in order.
        state: where it is.
        drafts: the next tier writes a draft.
        tier: that is being asked, or was last.
        shown: what the reader has.
        failures: of the tiers that failed, in order.
        waited: it waited once for a tier that wanted to be asked later.
    """

    case: Case
    plan: Plan
    stream: AnswerStream
    began_s: float
    left: list[Tier] = field(init=False)
    drafts: bool = field(init=False)
    tier: Tier | None = None
    state: State = State.CHOOSING
    shown: Shown = Shown.NOTHING
    failures: list[AnswererError] = field(default_factory=list[AnswererError])
    waited: bool = False
    _source: AsyncGenerator[SessionEvent] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Begin with the plan's order; a draft comes first."""
        draft, self.left = self.plan.draft, list(self.plan.tiers)
        self.drafts = draft is not None
        if draft is not None:
            first = [draft.draft, draft.escalation]
            # The tier that the draft would be escalated to comes second, whatever the
            # scores say: the draft was planned because this pair is worth it
            # (``speculate.wanted``).
            self.left = first + [each for each in self.left if each not in first]

    def attempt(
        self, tier: Tier, *, draft: bool = False, hedge: bool = False
    ) -> Attempt:
        """Return an attempt at a tier that is about to be asked."""
        failures, last = tuple(self.failures), not self.left
        return Attempt(
            self.case, self.plan, tier, failures, draft=draft, hedge=hedge, last=last
        )

    def begin(self, source: AsyncGenerator[SessionEvent]) -> None:
        """Begin to read an answer."""
        self._source, self.state = source, State.ANSWERING

    async def next(self) -> list[SessionEvent]:
        """Return the next event of the answer; none if it is complete.

        Raises:
            AnswererError: the answer broke off, or did not begin.
        """
        if self._source is None:
            raise RuntimeError("no tier is being asked")
        event = await anext(self._source, None)
        if event is None:
            self.state = State.ANSWERED
            return []
        self.shown = self.shown.after(event)
        return [event]

    def again(self, tier: Tier) -> None:
        """Have a tier asked once more."""
        self.left.insert(0, tier)
        self.state = State.CHOOSING

    def failed(self, failure: AnswererError) -> list[SessionEvent]:
        """Note a failure; return the events that announce another tier, if any."""
        # Also after a rejected draft: the next tier's provenance has to name the reason
        # why the first one does not answer.
        self.failures.append(failure)
        # One draft for each query: a second one by the same model would be rejected for
        # the same reason.
        self.drafts, self.state = False, State.CHOOSING
        rejected = failure.reason is LocalFailure.DRAFT_REJECTED
        # A rejected draft is announced even if it has no text.
        if self.shown is Shown.NOTHING and not rejected:
            return []
        unread = self.shown is not Shown.TEXT or self.stream.retracts
        if not self.left or not unread:
            # The answer of another tier would not continue this one.
            self.state = State.FAILED
            return []
        self.shown = Shown.NOTHING
        why = RetractReason.NOT_GOOD_ENOUGH if rejected else RetractReason.BROKE_OFF
        return [Retract(from_char=0, reason=why), Replaced(tier=self.left[0].id)]

    @property
    def wanted(self) -> tuple[Tier, ...]:
        """The permitted tiers that the request's options allow."""
        options, tiers = self.case.options, self.case.ways.permitted.tiers
        if options.require is not None:
            kind = options.require.kind
            return tuple(each for each in tiers if each.kind is kind)
        if options.mode is Mode.HOME:
            return tuple(each for each in tiers if not each.kind.outside)
        return tiers

    def forbidden(self, *, consents: bool) -> bool:
        """Return whether the policy, and not a failure, is why no tier can be asked.

        Args:
            consents: the user can be asked for consent.
        """
        # A query that could not be inspected now, or only under an outdated policy, may
        # be permitted later.
        if not _PASSING.isdisjoint(self.case.recorder.decision.uncertain):
            return False
        unmet = any(each.reason is Unmet.CONSENT for each in self.failures)
        return not self.wanted or (unmet and not consents)

    def unanswered(self) -> ClientError:
        """Return the error if no tier was asked, or all failed."""
        plan, required = self.plan, self.case.options.require
        if not self.failures:
            none = Refusal.NO_PERMITTED_TIER
            return plan.refusal or NotRoutedError(none.value, REMEDIES[none])
        *earlier, last = self.failures
        if not isinstance(last, LocalUnavailableError):
            if required is None:
                return last
            # The same error, whether the required kind was tried or not.
            refusal = Refusal.REQUIRED_UNMET.value
            return NotRoutedError(refusal, required_unmet(str(last)))
        missed = plan.fallback
        if earlier:
            said = "; ".join(str(each) for each in earlier)
        elif missed is not None and not missed.value.startswith("local_"):
            # It might have been sent to a tier that failed recently and is left alone.
            said = FAILURE_TEXTS[missed]
        else:
            rule = self.case.recorder.decision.rule
            return last.with_message(
                f"this query must stay here (rule {rule!r}), but {last}"
            )
        return last.with_message(f"{said}, and on this machine: {last}")

    async def aclose(self) -> None:
        """Stop the tier that is being asked."""
        # A reader may stop in the middle; without this the tier would complete an
        # answer that has no reader, and be paid for it.
        if self._source is not None:
            await self._source.aclose()
