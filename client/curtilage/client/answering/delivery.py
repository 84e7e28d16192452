"""The delivery of one answer: what is counted, recorded and traced of it."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from curtilage.client.answer import SessionEvent
from curtilage.client.answering.course import Course
from curtilage.client.answering.observer import Observer
from curtilage.client.errors import ClientError, QueuedError, UsageError
from curtilage.client.routing.trace import TraceLine
from curtilage.client.routing.tracing import Tracing

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
        self._observer = observer
        self._now = now
        self._trace = trace
        self._queue = queue
        self._waits_on = False
        self._observed = observer.of(
            course.stream, course.case.recorder, chosen=bool(plan.why)
        )
        self._tracing = Tracing(
            began_s=course.began_s,
            estimate=plan.estimate,
            why=plan.why or UNCHOSEN,
            would_choose=plan.would_choose,
        )

    async def saw(self, event: SessionEvent) -> None:
        """Note an event, before the reader gets it."""
        self._tracing.saw(event, monotonic())
        await self._observed.saw(event)

    def failed(self, error: ClientError) -> None:
        """Note that no tier answered."""
        # A query that goes on waiting was counted when it was queued.
        again = self._queue is not None and self._queue.asks_again
        self._waits_on = again and isinstance(error, QueuedError)
        if not self._waits_on:
            self._observer.refused(error)

    def ended(self) -> None:
        """Trace the query, and remember its answer so that it can be graded."""
        stream, line = self._course.stream, self._line()
        # A query that waits was traced when it was queued, and is traced again when it
        # is answered.
        self._trace(None if self._waits_on else line)
        if stream.source is not None and self._tracing.first_s is not None:
            self._observer.answered(stream.id, stream.source.tier, line)
        self._observer.report()

    def _line(self) -> TraceLine | None:
        case = self._course.case
        # A line that cannot be made, of too many classes for example, costs no answer.
        with suppress(UsageError):
            return self._tracing.line(
                case.characters,
                case.recorder.decision,
                case.ways.permitted,
                self._course.stream.source,
                at=self._now(),
                now_s=monotonic(),
            )
        return None
