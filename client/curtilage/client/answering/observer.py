"""Counts, records and traces of queries; no word and no exact length of any."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from curtilage.client import telemetry
from curtilage.client.answering.course import Course
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import (
    Delta,
    Finished,
    NotPossible,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
    Rung,
    SessionEvent,
    Verified,
)
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.errors import (
    AnswererError,
    BlockedError,
    ClientError,
    FailureReason,
    IncompleteAnswerError,
    NotRoutedError,
    QueuedError,
    UsageError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.health import Reason, reason_of
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.route import AskOnPremises, Ways
from curtilage.client.routing.router import Routed, Router
from curtilage.client.routing.trace import TraceLine, minute_of
from curtilage.client.routing.tracing import Gradable, Tracing
from curtilage.client.routing.utility import Refusal
from curtilage.client.telemetry import Opinion, Twice
from curtilage.policy.decision.tiers import Denial, Tier

if TYPE_CHECKING:
    from curtilage.client.queue.deferring import Deferring

_OTHER: Final = "other"
UNCHOSEN: Final = "usual"
"""The trace's reason where there was no choice."""
# A closed set of labels. With an error's own text as a label, part of a query could
# reach the operator's collector, and every new text would be a new time series.
_CODES = telemetry.names(
    (
        *("blocked", "cut", "consent_required", "queued", "queue_full", _OTHER),
        *(each.value for each in Refusal),
        *FAILURE_TEXTS,
    )
)


class Observer:
    """Counts what becomes of one client's queries.

    Attributes:
        tiers: of the policy, by their id.
        names: of the tiers, for telemetry.
        failing: the failure of each tier that failed last, by its id.
        gradable: the latest answers, which can be graded.
    """

    def __init__(self, tiers: Iterable[Tier], router: Router | None) -> None:
        self.tiers = {tier.id: tier for tier in tiers}
        self.names = telemetry.names(self.tiers)
        self._router = router
        promised = None if router is None else router.certified
        self._alpha = telemetry.names(() if promised is None else (f"{promised:g}",))
        self.gradable = Gradable()
        self.failing: dict[str, Reason] = {}

    def there(self, tier: str) -> None:
        """Note that a tier can be reached."""
        self.failing.pop(tier, None)

    def denied(self, tiers: Iterable[tuple[str, Denial]]) -> None:
        """Count the tiers that the policy or the router excludes."""
        for tier, reason in tiers:
            telemetry.denied(self.names[tier], reason)

    def crossed(self, ways: Ways) -> None:
        """Count how much of a conversation is sent, or why none of it is."""
        said = {
            way.boundary
            for way in ways.by_tier.values()
            if not isinstance(way, AskOnPremises) and way.boundary
        }
        if said:
            steps = telemetry.names(each.value for each in (*Rung, *NotPossible))
            # Once for each word, not for each tier: it counts conversations.
            for word in said:
                telemetry.boundary(steps[word])

    def chose(self, routed: Routed, seconds: float) -> None:
        """Count a choice, the time that it took, and the tiers that were excluded."""
        choice = routed.choice
        self.denied(choice.denied)
        if choice.order:
            first = self.names[choice.order[0].id]
            intent = routed.estimate.intent
            telemetry.routed(first, intent, choice.reason, seconds)

    def asks(self, tier: Tier) -> telemetry.Answering:
        """Begin to measure a tier's answer."""
        return telemetry.Answering(
            self.names[tier.id],
            cost_microusd_per_mtok=(
                None if self._router is None else self._router.price(tier)
            ),
        )

    def failed(self, tier: Tier, reason: FailureReason, *, of: RoutingOptions) -> None:
        """Count a tier that failed; a rejected draft is no failure.

        Args:
            tier: the tier.
            reason: why.
            of: the options of the query.
        """
        # Of another local model than the usual one, it says nothing about the tier.
        if not of.local_model:
            self.missed(tier.id, reason)
        # The local model works: its text was not good enough. As a failure, it would
        # hide real ones.
        if reason is not LocalFailure.DRAFT_REJECTED:
            telemetry.fallback(self.names[tier.id], reason)

    def missed(self, tier: str, reason: FailureReason) -> None:
        """Note a failure, if it says something about the tier."""
        lasts = reason_of(reason)
        if lasts is not None:
            self.failing[tier] = lasts

    def refused(self, error: ClientError) -> None:
        """Count a query without an answer; invalid requests are not counted."""
        match error:
            case AnswererError():
                word = error.reason.value
            case NotRoutedError():
                word = error.code
            case BlockedError():
                word = "blocked"
            case IncompleteAnswerError():
                word = "cut"
            case _:
                return
        telemetry.refused(_CODES.get(word, _CODES[_OTHER]))

    def report(self) -> None:
        """Report the state of the tiers."""
        if self._router is None:
            return
        telemetry.retry_budget(Twice.HEDGE, self._router.hedges.left)
        telemetry.retry_budget(Twice.RETRY, self._router.retries.left)
        for alpha in self._alpha.values():
            telemetry.certified(alpha, in_force=self._router.judges)
        for tier, view in self._router.views().items():
            telemetry.breaker(self.names[tier], view.state)

    def graded(self, answer_id: str, *, good: bool, now: datetime) -> TraceLine | None:
        """Count the grade of an answer; return its line for the trace, if there is one.

        Raises:
            UsageError: no such answer is remembered.
        """
        tier, line = self.gradable.take(answer_id)
        telemetry.feedback(self.names[tier], Opinion.GOOD if good else Opinion.BAD)
        return None if line is None else line.graded(good=good, at=minute_of(now))


class Delivery:
    """One answer on its way to the reader; a record that fails costs no answer."""

    def __init__(
        self,
        course: Course,
        observer: Observer,
        queue: "Deferring | None",
        *,
        now: Callable[[], datetime],
        trace: Callable[[TraceLine | None], None],
    ) -> None:
        plan = course.plan
        self._course = course
        self._recorder = course.case.recorder
        self._stream = course.stream
        self._observer = observer
        self._now = now
        self._trace = trace
        self._queue = queue
        self._waits_on = False
        self._shown = False
        self._gave_up: tuple[str, RetractReason] | None = None
        self._escalated_from: str | None = None
        self._tracing = Tracing(
            began_s=course.began_s,
            estimate=plan.estimate,
            why=plan.why or UNCHOSEN,
            would_choose=plan.would_choose,
        )

    async def saw(self, event: SessionEvent) -> None:
        """Note an event, before the reader gets it."""
        self._tracing.saw(event, monotonic())
        source, names = self._stream.status.source, self._observer.names
        if source is None:
            return
        match event:
            case Delta():
                # From a reader who cannot take it back, a draft is withheld.
                self._shown |= self._stream.retracts or not event.tentative
            case Verified():
                telemetry.verified(names[source.tier], Opinion.GOOD)
            case Retract():
                self._gave_up = (source.tier, event.reason)
                if event.reason is RetractReason.NOT_GOOD_ENOUGH:
                    telemetry.verified(names[source.tier], Opinion.BAD)
            case Replaced(tier=by):
                await self._replaced(by)
            case Finished():
                await self._finished(source)

    async def _replaced(self, by: str) -> None:
        tier, reason = self._gave_up or (None, None)
        better = reason is RetractReason.NOT_GOOD_ENOUGH
        # If no other tier is left, the one that wrote the draft is asked again.
        if better and tier is not None and tier != by:
            self._escalated_from = tier
            telemetry.escalated(self._observer.names[tier])
            await self._recorder.stays(Outcome.ESCALATED)
        if self._shown:
            await self._recorder.stays(Outcome.REPLACED)
        self._shown, self._gave_up = False, None

    async def _finished(self, source: Provenance) -> None:
        tier = source.tier
        if not self._course.case.options.local_model:
            self._observer.there(tier)
        home = not self._observer.tiers[tier].kind.outside
        telemetry.answered(source.route, home=home)
        # An escalated query got the better answer, unless the tier of the draft
        # answered after all.
        cause = source.fallback if self._escalated_from in {None, tier} else None
        if source.left_out:
            cause = LocalFailure.TOO_LONG
        if self._course.plan.why and cause is not None:
            await self._recorder.stays(Outcome.DEGRADED, cause)

    def failed(self, error: ClientError) -> None:
        """Note that no tier answered."""
        # A query that goes on waiting was counted when it was queued.
        again = self._queue is not None and self._queue.asks_again
        self._waits_on = again and isinstance(error, QueuedError)
        if not self._waits_on:
            self._observer.refused(error)

    def ended(self) -> None:
        """Trace the query, and remember its answer so that it can be graded."""
        source, case, line = self._stream.status.source, self._course.case, None
        # A line that cannot be made, of too many classes for example, costs no answer.
        with suppress(UsageError):
            line = self._tracing.line(
                case.characters,
                case.recorder.decision,
                case.ways.permitted,
                source,
                at=self._now(),
                now_s=monotonic(),
            )
        # A query that waits was traced when it was queued, and is traced again when it
        # is answered.
        self._trace(None if self._waits_on else line)
        if source is not None and self._tracing.first_s is not None:
            self._observer.gradable.note(self._stream.id, source.tier, line)
        self._observer.report()
