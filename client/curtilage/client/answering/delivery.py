"""The delivery of one answer: what is counted, recorded and traced of it."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from curtilage.client import telemetry
from curtilage.client.answering.course import Course
from curtilage.client.answering.observer import Observer
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import (
    Delta,
    Finished,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.errors import (
    ClientError,
    QueuedError,
    UsageError,
)
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.routing.trace import TraceLine
from curtilage.client.routing.tracing import Tracing
from curtilage.client.telemetry import Opinion

if TYPE_CHECKING:
    from curtilage.client.queue.deferring import Deferring

UNCHOSEN: Final = "usual"
"""The trace's reason where there was no choice."""


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
