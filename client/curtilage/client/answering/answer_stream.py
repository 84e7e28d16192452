"""One answer as it is made, for whoever reads it.

Holds text back that may still be taken back, from a reader to whom that cannot be said.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from curtilage.client.answer import (
    Answer,
    Delta,
    Finished,
    Phase,
    Progress,
    Provenance,
    Replaced,
    Retract,
    SessionEvent,
    Verified,
)
from curtilage.client.answering.pump import Ended, Pump


class AnswerStream:
    """One answer as it is made: iterate for pieces, then read the rest.

    ``provenance`` is known once ``begin()`` returned or the first piece came;
    ``answer`` after the last piece. Closing it stops the model.

    Args:
        events: makes them.
        answer_id: what the answer is called, by who may say later how it was.

    Attributes:
        id: the same.
        phase: what is done just now; who does it says so.
        first_signal_s: how long silence may be, where somebody asks for ``events``;
            None: for as long as it lasts.
        retracts: whoever reads can take back what was shown.
    """

    def __init__(
        self,
        events: "Callable[[AnswerStream], AsyncGenerator[SessionEvent]]",
        *,
        answer_id: str = "",
    ) -> None:
        self.id = answer_id
        self.phase = Phase.CLASSIFYING
        self.first_signal_s: float | None = None
        self.retracts = False
        self._events = events(self)
        self._begun = False
        self._waiting: SessionEvent | None = None
        self._pieces: list[Delta] = []
        self._finished: Finished | None = None
        self._provenance: Provenance | None = None
        self._settled = self._settle()

    async def begin(self) -> Provenance:
        """Wait until somebody began to answer.

        Raises:
            ClientError: no answer is possible, or none is allowed.
        """
        # The first event, taken ahead: by then the session has said who answers, which
        # must be told before the text is (an HTTP head, a line on a terminal).
        if not self._begun:
            self._begun = True
            self._waiting = await anext(self._settled)
        return self.provenance

    async def __aiter__(self) -> AsyncGenerator[Delta]:
        """Yield the pieces of the answer, none of which is ever taken back.

        Raises:
            ClientError: as ``begin``; also when the answer was cut.
        """
        await self.begin()
        # Whoever leaves in the middle stops the model, too.
        async with aclosing(self._events), aclosing(self._settled):
            event, self._waiting = self._waiting, None
            while event is not None:
                if isinstance(event, Delta):
                    yield event
                event = await anext(self._settled, None)

    async def events(
        self, *, retract: bool = True
    ) -> AsyncGenerator[SessionEvent | Progress]:
        """Yield all that happens, and a sign of life where nothing does for too long.

        Instead of iterating, not beside it.

        Args:
            retract: yield a draft as it is written, and say so if it is taken back;
                else text is held until it is settled, as it is for who iterates, and
                for who waited for its beginning.

        Raises:
            ClientError: as when it is iterated.
        """
        # What ``begin`` waited for is settled text, and the rest of it must be as well.
        self.retracts = retract and not self._begun
        self._begun = True
        source = self._noted() if self.retracts else self._settled
        ahead, self._waiting = self._waiting, None
        async with aclosing(self._events), Pump(source) as pump:
            if ahead is not None:
                yield ahead
            while not isinstance(more := await pump.next(self.first_signal_s), Ended):
                yield Progress(phase=self.phase) if more is None else more

    async def aclose(self) -> None:
        """Stop the answer, and the model that makes it."""
        await self._settled.aclose()
        await self._events.aclose()

    async def _noted(self) -> AsyncGenerator[SessionEvent]:
        """Yield everything; keep what remains of it."""
        async for event in self._events:
            match event:
                case Delta():
                    self._pieces.append(event)
                case Retract(from_char=start):
                    self._pieces = _until(self._pieces, start)
                case Finished():
                    self._finished = event
                case Verified() | Replaced():
                    pass
            yield event

    async def _settle(self) -> AsyncGenerator[SessionEvent]:
        """Yield text once it is known to remain; nothing of what was taken back."""
        held: list[Delta] = []
        async with aclosing(self._noted()) as events:
            async for event in events:
                match event:
                    case Delta(tentative=True):
                        held.append(event)
                        continue
                    case Retract():
                        held.clear()
                        continue
                    case Replaced():
                        continue
                    case Delta() | Verified() | Finished():
                        for each in held:
                            yield replace(each, tentative=False)
                        held.clear()
                if not isinstance(event, Verified):
                    yield event

    @property
    def source(self) -> Provenance | None:
        """Who answers and why; None before anybody began."""
        return self._provenance

    @property
    def provenance(self) -> Provenance:
        """The same; only after ``begin``."""
        if self._provenance is None:
            raise RuntimeError("nobody began to answer yet")
        return self._provenance

    def set_source(self, provenance: Provenance) -> None:
        """Say who answers; the session does, once it knows."""
        self._provenance = provenance

    @property
    def answer(self) -> Answer:
        """The whole answer; only after the last piece."""
        if self._finished is None:
            raise RuntimeError("the answer is not complete")
        return Answer(
            id=self.id,
            text="".join(piece.text for piece in self._pieces),
            provenance=self.provenance,
            finished=self._finished,
            logprobs=tuple(pair for piece in self._pieces for pair in piece.logprobs),
        )


def _until(pieces: list[Delta], characters: int) -> list[Delta]:
    """Return the pieces that make up so many characters."""
    kept: list[Delta] = []
    for piece in pieces:
        if characters < len(piece.text):
            break
        characters -= len(piece.text)
        kept.append(piece)
    return kept
