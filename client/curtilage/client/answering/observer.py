"""What becomes of queries, as it is counted, and recorded besides.

It sees what passes and changes nothing of it: what it may not tell (a word, an exact
length) it does not keep. A record that it cannot make costs no answer.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from curtilage.client import telemetry
from curtilage.client.answer import (
    Delta,
    Finished,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
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
from curtilage.client.health import Reason, reason_of
from curtilage.client.route import AskHouse, Ways
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
        *(each.value for each in (*Refusal, *FailureReason)),
    )
)


class Observer:
    """Sees what becomes of one client's queries.

    Args:
        tiers: all that the policy has.
        router: tells how they stand; None: nobody chooses.
    """

    def __init__(self, tiers: Iterable[Tier], router: Router | None) -> None:
        self._tiers = {tier.id: tier for tier in tiers}
        self._names = telemetry.names(self._tiers)
        self._router = router
        promised = None if router is None else router.certified
        self._alpha = telemetry.names(() if promised is None else (f"{promised:g}",))
        self._gradable = Gradable()
        self._failing: dict[str, Reason] = {}

    @property
    def failing(self) -> Mapping[str, Reason]:
        """What is wrong with each tier that failed last, by its id."""
        return self._failing

    def there(self, tier: str) -> None:
        """Note that a tier is there, though it answered nothing."""
        self._failing.pop(tier, None)

    def masked(self, permitted: Permitted) -> None:
        """Count the tiers that the policy denies, where nobody chooses among others."""
        for tier, reason in permitted.denied:
            telemetry.denied(self._names[tier], reason)

    def crossed(self, ways: Ways) -> None:
        """Count how much of a conversation may leave, or why none of it does."""
        said = {
            way.boundary
            for way in ways.by_tier.values()
            if not isinstance(way, AskHouse) and way.boundary
        }
        if said:
            # Here, since most policies send no part of a conversation.
            from curtilage.client.boundary.ladder import (  # noqa: PLC0415
                NotPossible,
                Rung,
            )

            steps = telemetry.names(each.value for each in (*Rung, *NotPossible))
            for word in said:
                telemetry.boundary(steps[word])

    def chose(self, routed: Routed, seconds: float) -> None:
        """Count a choice, and the tiers that could not be chosen.

        Args:
            routed: the choice.
            seconds: how long it took to make.
        """
        choice = routed.choice
        for tier, reason in choice.denied:
            telemetry.denied(self._names[tier], reason)
        if choice.order:
            first = self._names[choice.order[0].id]
            intent = routed.estimate.intent
            telemetry.routed(first, intent, choice.reason, seconds)

    def asks(self, tier: Tier) -> telemetry.Answering:
        """Begin to measure a tier's answer."""
        return telemetry.Answering(
            self._names[tier.id],
            cost_microusd_per_mtok=(
                None if self._router is None else self._router.price(tier)
            ),
        )

    def failed(self, tier: Tier, reason: FailureReason) -> None:
        """Count a tier that was asked and failed; its draft alone is no failure."""
        self.missed(tier.id, reason)
        if reason is not FailureReason.DRAFT_REJECTED:
            telemetry.fallback(self._names[tier.id], reason)

    def missed(self, tier: str, reason: FailureReason) -> None:
        """Note what is wrong with a tier, where that says something of it."""
        lasts = reason_of(reason)
        if lasts is not None:
            self._failing[tier] = lasts

    def refused(self, error: ClientError) -> None:
        """Count a query without an answer; one that was asked wrongly is none."""
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

    def stands(self) -> None:
        """Tell how the tiers stand."""
        if self._router is None:
            return
        telemetry.retry_budget(Twice.HEDGE, self._router.hedges.left)
        telemetry.retry_budget(Twice.RETRY, self._router.retries.left)
        for alpha in self._alpha.values():
            telemetry.certified(alpha, in_force=self._router.judges)
        for tier, view in self._router.views().items():
            telemetry.breaker(self._names[tier], view.state)

    def answered(self, answer_id: str, tier: str, line: TraceLine | None) -> None:
        """Remember whose an answer is; see ``Gradable``."""
        self._gradable.note(answer_id, tier, line)

    def graded(self, answer_id: str, *, good: bool, now: datetime) -> TraceLine | None:
        """Count somebody's word on an answer; return its line for the trace, if any.

        Raises:
            UsageError: no such answer is remembered.
        """
        tier, line = self._gradable.take(answer_id)
        telemetry.feedback(self._names[tier], Opinion.GOOD if good else Opinion.BAD)
        return None if line is None else line.graded(good=good, at=minute_of(now))

    def of(
        self, stream: AnswerStream, recorder: QueryRecorder, *, chosen: bool
    ) -> "Observed":
        """Begin to observe one query; ``chosen``: somebody chose who answers it."""
        return Observed(
            self._names, self._tiers, stream, recorder, chosen=chosen, there=self.there
        )


class Observed:
    """One query, observed; ``Observer.of`` begins it.

    Args:
        names: of each tier.
        tiers: by their names.
        stream: tells who answers.
        recorder: where it is recorded what else becomes of it.
        chosen: somebody chose who answers.
        there: is called with the tier that answered.
    """

    def __init__(
        self,
        names: telemetry.Names,
        tiers: dict[str, Tier],
        stream: AnswerStream,
        recorder: QueryRecorder,
        *,
        chosen: bool,
        there: Callable[[str], None],
    ) -> None:
        self._there = there
        self._names = names
        self._tiers = tiers
        self._stream = stream
        self._recorder = recorder
        self._chosen = chosen
        self._shown = False
        self._gave_up: tuple[str, RetractReason] | None = None
        self._escalated_from: str | None = None

    async def saw(self, event: SessionEvent) -> None:
        """Note an event, before whoever reads the answer sees it."""
        told = self._stream.source
        if told is None:
            return
        match event:
            case Delta():
                # Of a reader who cannot take it back, a draft is kept.
                self._shown |= self._stream.retracts or not event.tentative
            case Verified():
                telemetry.verified(self._names[told.tier], Opinion.GOOD)
            case Retract():
                self._gave_up = (told.tier, event.reason)
                if event.reason is RetractReason.NOT_GOOD_ENOUGH:
                    telemetry.verified(self._names[told.tier], Opinion.BAD)
            case Replaced(tier=tier):
                await self._replaced(tier)
            case Finished():
                await self._finished(told)

    async def _replaced(self, by: str) -> None:
        tier, reason = self._gave_up or (None, None)
        better = reason is RetractReason.NOT_GOOD_ENOUGH
        # Where there is nobody else its writer is asked once more.
        if better and tier is not None and tier != by:
            self._escalated_from = tier
            telemetry.escalated(self._names[tier])
            await self._recorder.stays(Outcome.ESCALATED)
        if self._shown:
            await self._recorder.stays(Outcome.REPLACED)
        self._shown, self._gave_up = False, None

    async def _finished(self, told: Provenance) -> None:
        self._there(told.tier)
        telemetry.answered(
            told.route, home=self._tiers[told.tier].kind is not TierKind.ATTESTED
        )
        # What was escalated has the better answer, unless the draft's writer gave the
        # answer after all, since nobody better could.
        cause = told.fallback if self._escalated_from in {None, told.tier} else None
        if told.left_out:
            cause = FailureReason.LOCAL_TOO_LONG
        if self._chosen and cause is not None:
            await self._recorder.stays(Outcome.DEGRADED, cause)
