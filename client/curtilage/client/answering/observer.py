"""Counts and records of what becomes of queries; no word and no exact length of any.

It changes nothing. A record that cannot be made costs no answer.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from curtilage.client import telemetry
from curtilage.client.answer import (
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
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.audit.record import Outcome
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.errors import (
    AnswererError,
    BlockedError,
    ClientError,
    FailureReason,
    IncompleteAnswerError,
    NotRoutedError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.health import Reason, reason_of
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.route import AskOnPremises, Ways
from curtilage.client.routing.router import Routed, Router
from curtilage.client.routing.trace import TraceLine, minute_of
from curtilage.client.routing.tracing import Gradable
from curtilage.client.routing.utility import Refusal
from curtilage.client.telemetry import Opinion, Twice
from curtilage.policy.decision.tiers import Permitted, Tier, TierKind

_OTHER = "other"
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
    """

    def __init__(self, tiers: Iterable[Tier], router: Router | None) -> None:
        self.tiers = {tier.id: tier for tier in tiers}
        self.names = telemetry.names(self.tiers)
        self._router = router
        promised = None if router is None else router.certified
        self._alpha = telemetry.names(() if promised is None else (f"{promised:g}",))
        self._gradable = Gradable()
        self._failing: dict[str, Reason] = {}

    @property
    def failing(self) -> Mapping[str, Reason]:
        """The failure of each tier that failed last, by its id."""
        return self._failing

    def there(self, tier: str) -> None:
        """Note that a tier can be reached."""
        self._failing.pop(tier, None)

    def masked(self, permitted: Permitted) -> None:
        """Count the tiers that the policy denies, if there is no choice."""
        for tier, reason in permitted.denied:
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
            for word in said:
                telemetry.boundary(steps[word])

    def chose(self, routed: Routed, seconds: float) -> None:
        """Count a choice, the time that it took, and the tiers that were excluded."""
        choice = routed.choice
        for tier, reason in choice.denied:
            telemetry.denied(self.names[tier], reason)
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

    def failed(self, tier: Tier, reason: FailureReason) -> None:
        """Count a tier that failed; a rejected draft is no failure."""
        self.missed(tier.id, reason)
        if reason is not LocalFailure.DRAFT_REJECTED:
            telemetry.fallback(self.names[tier.id], reason)

    def missed(self, tier: str, reason: FailureReason) -> None:
        """Note a failure, if it says something about the tier."""
        lasts = reason_of(reason)
        if lasts is not None:
            self._failing[tier] = lasts

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

    def answered(self, answer_id: str, tier: str, line: TraceLine | None) -> None:
        """Remember which tier gave an answer; see ``Gradable``."""
        self._gradable.note(answer_id, tier, line)

    def graded(self, answer_id: str, *, good: bool, now: datetime) -> TraceLine | None:
        """Count the grade of an answer; return its line for the trace, if there is one.

        Raises:
            UsageError: no such answer is remembered.
        """
        tier, line = self._gradable.take(answer_id)
        telemetry.feedback(self.names[tier], Opinion.GOOD if good else Opinion.BAD)
        return None if line is None else line.graded(good=good, at=minute_of(now))

    def of(
        self, stream: AnswerStream, recorder: QueryRecorder, *, chosen: bool
    ) -> "Observed":
        """Begin to observe one query; ``chosen``: there was a choice of tiers."""
        return Observed(self, stream, recorder, chosen=chosen)


class Observed:
    """One query, observed; ``Observer.of`` begins it."""

    def __init__(
        self,
        observer: Observer,
        stream: AnswerStream,
        recorder: QueryRecorder,
        *,
        chosen: bool,
    ) -> None:
        self._observer = observer
        self._names = observer.names
        self._stream = stream
        self._recorder = recorder
        self._chosen = chosen
        self._shown = False
        self._gave_up: tuple[str, RetractReason] | None = None
        self._escalated_from: str | None = None

    async def saw(self, event: SessionEvent) -> None:
        """Note an event, before the reader gets it."""
        source = self._stream.source
        if source is None:
            return
        match event:
            case Delta():
                # From a reader who cannot take it back, a draft is withheld.
                self._shown |= self._stream.retracts or not event.tentative
            case Verified():
                telemetry.verified(self._names[source.tier], Opinion.GOOD)
            case Retract():
                self._gave_up = (source.tier, event.reason)
                if event.reason is RetractReason.NOT_GOOD_ENOUGH:
                    telemetry.verified(self._names[source.tier], Opinion.BAD)
            case Replaced(tier=tier):
                await self._replaced(tier)
            case Finished():
                await self._finished(source)

    async def _replaced(self, by: str) -> None:
        tier, reason = self._gave_up or (None, None)
        better = reason is RetractReason.NOT_GOOD_ENOUGH
        # If no other tier is left, the one that wrote the draft is asked once more.
        if better and tier is not None and tier != by:
            self._escalated_from = tier
            telemetry.escalated(self._names[tier])
            await self._recorder.stays(Outcome.ESCALATED)
        if self._shown:
            await self._recorder.stays(Outcome.REPLACED)
        self._shown, self._gave_up = False, None

    async def _finished(self, source: Provenance) -> None:
        tier = source.tier
        self._observer.there(tier)
        home = self._observer.tiers[tier].kind is not TierKind.ATTESTED
        telemetry.answered(source.route, home=home)
        # An escalated query got the better answer, unless the tier of the draft
        # answered after all.
        cause = source.fallback if self._escalated_from in {None, tier} else None
        if source.left_out:
            cause = LocalFailure.TOO_LONG
        if self._chosen and cause is not None:
            await self._recorder.stays(Outcome.DEGRADED, cause)
