"""Collects what the trace records about one query: kinds, sizes and times, coarsely.

Pure: events and times are arguments. It stores no text.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from curtilage.client.chat.answer import (
    Delta,
    Finished,
    Provenance,
    Retract,
    SessionEvent,
)
from curtilage.client.errors import UsageError
from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.trace import (
    TraceLine,
    TraceOutcome,
    length_class,
    minute_of,
    time_class,
    token_class,
)
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.tiers import Permitted

MOST_ANSWERS: Final = 4096
"""Number of answers whose tier is remembered for feedback."""


class Gradable:
    """The tiers of the latest answers, so that each can get feedback once.

    In memory only: no file of ours contains an answer's id.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, TraceLine | None]] = OrderedDict()

    def note(self, answer_id: str, tier: str, line: TraceLine | None) -> None:
        """Remember an answer's tier, and its line in the trace, if it has one."""
        self._answers[answer_id] = (tier, line)
        if len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)

    def take(self, answer_id: str) -> tuple[str, TraceLine | None]:
        """Return and forget what was noted about an answer.

        Raises:
            UsageError: nothing is known: it is too old, belongs to another run, or
                already got its feedback.
        """
        try:
            # Removed: a second grade of the same answer would count it twice in the
            # test for drift.
            return self._answers.pop(answer_id)
        except KeyError:
            raise UsageError(
                f"no such answer: the last {MOST_ANSWERS} are remembered, each until "
                "it gets feedback",
                param="id",
            ) from None


@dataclass(slots=True, kw_only=True)
class Tracing:
    """Measurements of one query so far.

    Attributes:
        began_s: when it was asked.
        estimate: its estimate; None: nothing was chosen yet.
        why: the reason for the choice, or for there being none.
        would_choose: while observing, what would have been chosen.
        first_s: when the first text arrived that was not retracted.
        finished: its end.
    """

    began_s: float
    estimate: Estimate | None = None
    why: str = ""
    would_choose: str | None = None
    first_s: float | None = None
    finished: Finished | None = None

    def saw(self, event: SessionEvent, now_s: float) -> None:
        """Record an event of the answer."""
        if isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Retract) and not event.from_char:
            self.first_s = None  # it was not written by the tier that answers
        elif isinstance(event, Delta) and self.first_s is None:
            self.first_s = now_s

    def line(
        self,
        characters: int,
        decision: Decision,
        permitted: Permitted,
        provenance: Provenance | None,
        *,
        at: datetime,
        now_s: float,
    ) -> TraceLine | None:
        """Return the line; None if no choice was made.

        Args:
            characters: how long the query is.
            decision: for the classes found.
            permitted: the mask.
            provenance: of the answer; None: there is none.
            at: the time of day, aware.
            now_s: when it ended, by the clock of ``began_s``.
        """
        if self.estimate is None:
            return None
        line = TraceLine(
            at=minute_of(at),
            intent=self.estimate.intent.value,
            length=length_class(characters),
            classes=(*decision.classes, *decision.uncertain),
            routing_class=permitted.routing_class,
            permitted=tuple(tier.id for tier in permitted.tiers),
            why=self.why,
            total_ms=time_class(now_s - self.began_s),
            prompt_tokens=token_class(self.estimate.prompt_tokens),
            outcome=TraceOutcome.REFUSED,
            would_choose=self.would_choose,
        )
        if provenance is None or self.first_s is None:
            return line
        tokens, fallback = self.finished, provenance.fallback
        return replace(
            line,
            tier=provenance.tier,
            ttft_ms=time_class(self.first_s - self.began_s),
            answer_tokens=(
                None if tokens is None else token_class(tokens.completion_tokens)
            ),
            outcome=(
                TraceOutcome.INCOMPLETE if tokens is None else TraceOutcome.ANSWERED
            ),
            fallback=None if fallback is None else fallback.value,
            model=provenance.home_model or None,
        )
