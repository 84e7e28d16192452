"""One query on its way, as the trace will tell of it: kinds, sizes and times, coarsely.

Pure: what happens is told to it, with the time. It keeps no text.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from curtilage.client.answer import AnswerEvent, Finished, Provenance
from curtilage.client.query import Query
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


@dataclass(slots=True, kw_only=True)
class Tracing:
    """What is known of one query so far.

    Attributes:
        began_s: when it was asked.
        estimate: what was expected of it; None: nothing was chosen yet.
        why: the reason for the choice, or for there being none.
        would_choose: while observing, what would have been chosen.
        first_s: when the first text came.
        finished: its end.
    """

    began_s: float
    estimate: Estimate | None = None
    why: str = ""
    would_choose: str | None = None
    first_s: float | None = None
    finished: Finished | None = None

    def saw(self, event: AnswerEvent, now_s: float) -> None:
        """Note an event of the answer."""
        if isinstance(event, Finished):
            self.finished = event
        elif self.first_s is None:
            self.first_s = now_s

    def line(
        self,
        query: Query,
        decision: Decision,
        permitted: Permitted,
        provenance: Provenance | None,
        *,
        at: datetime,
        now_s: float,
    ) -> TraceLine | None:
        """Return the line; None where nobody was to be chosen.

        Args:
            query: for its size.
            decision: for what was found.
            permitted: the mask.
            provenance: who answered; None: nobody did.
            at: the time of day, aware.
            now_s: when it ended, by the clock of ``began_s``.
        """
        if self.estimate is None:
            return None
        line = TraceLine(
            at=minute_of(at),
            intent=self.estimate.intent.value,
            length=length_class(sum(len(each.content) for each in query.messages)),
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
        )
