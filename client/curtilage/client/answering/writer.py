"""A tier whose answer is generated before it is known whether it will be read."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from curtilage.client.answer import AnswerEvent, Phase, Provenance
from curtilage.client.answering.attempt import Attempt, Status
from curtilage.client.answering.pump import Ended, Pump
from curtilage.client.errors import FailureReason
from curtilage.client.routing.utility import Reason


@dataclass(slots=True)
class WriterStatus:
    """The status of one writer, until it is known whether its text is read.

    Attributes:
        phase: what is being done; at first, that it was asked.
        source: the tier that answers.
    """

    phase: Phase
    source: Provenance | None = None

    def set_source(self, provenance: Provenance) -> None:
        """Set it."""
        self.source = provenance


@dataclass(slots=True, eq=False)
class Writer:
    """One tier that generates an answer.

    Attributes:
        tier: its id.
        pump: its answer.
        status: its own status.
        why: why it is read and not another; None: as its status says.
        failed: why the other failed, if it is read for that reason.
        beside: another tier was asked at the same time.
    """

    tier: str
    pump: Pump[AnswerEvent] = field(repr=False)
    status: WriterStatus
    why: Reason | None = None
    failed: FailureReason | None = None
    beside: bool = False

    def read(self, status: Status) -> None:
        """Make its status that of the whole answer: it is the one that is read."""
        status.phase = self.status.phase
        if (own := self.status.source) is not None:
            # Its own status is from before it was known what the other does.
            why = self.why or (Reason.UNAVAILABLE if self.failed else own.why)
            fallback = own.fallback or self.failed
            status.set_source(
                replace(own, why=why, fallback=fallback, beside=self.beside)
            )

    async def rest(
        self, status: Status, held: Sequence[AnswerEvent] = ()
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield the events that were held back, and all that follow.

        Raises:
            AnswererError: the answer broke off.
        """
        for event in held:
            self.read(status)
            yield event
        while not isinstance(more := await self.pump.next(), Ended):
            self.read(status)
            if more is not None:
                yield more


Writes = Callable[[Attempt, AsyncExitStack], Awaitable[Writer]]
"""Begins an attempt that is read only if its text turns out to be the answer."""
