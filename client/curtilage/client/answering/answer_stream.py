"""One answer while it is generated, as its reader sees it.

Text that may still be taken back is withheld from a reader who cannot take it back.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import accumulate

from curtilage.client.answering.attempt import Status
from curtilage.client.answering.pump import Ended, Pump
from curtilage.client.chat.answer import (
    Answer,
    Choice,
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


class AnswerStream:
    """One answer while it is generated: iterate for pieces, then read the rest.

    ``provenance`` is known once ``begin()`` returned or the first piece came;
    ``answer`` after the last piece. Closing it stops the model.

    Attributes:
        id: of the answer; it can be graded by that later.
        status: what is being done now, and which tier answers.
        first_signal_s: how long ``events`` may be silent; None: for any time.
        retracts: the reader can take back what was shown.
    """

    def __init__(
        self,
        events: "Callable[[AnswerStream], AsyncGenerator[SessionEvent]]",
        *,
        answer_id: str = "",
    ) -> None:
        self.id = answer_id
        self.status = Status(Phase.CLASSIFYING)
        self.first_signal_s: float | None = None
        self.retracts = False
        self._events = events(self)
        self._begun = False
        self._waiting: SessionEvent | None = None
        self._pieces: list[Delta] = []
        self._finished: Finished | None = None
        self._settled = self._settle()

    async def begin(self) -> Provenance:
        """Wait until a tier began to answer.

        Raises:
            ClientError: no answer is possible, or none is allowed.
        """
        # The first event is read ahead: by then the tier is known, which must be shown
        # before the text (an HTTP header, a line on a terminal).
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
        # A reader who leaves in the middle stops the model, too.
        async with aclosing(self._events), aclosing(self._settled):
            event, self._waiting = self._waiting, None
            while event is not None:
                if isinstance(event, Delta):
                    yield event
                event = await anext(self._settled, None)

    async def events(
        self, *, retract: bool = True
    ) -> AsyncGenerator[SessionEvent | Progress]:
        """Yield every event, and a sign of life if there is none for too long.

        Use either this or the iteration.

        Args:
            retract: yield a draft while it is written, and report if it is taken back;
                else text is withheld until it is final, as in the iteration and after
                ``begin``.

        Raises:
            ClientError: as when it is iterated.
        """
        # ``begin`` waited for final text, so the rest must be final as well.
        self.retracts = retract and not self._begun
        self._begun = True
        source = self._noted() if self.retracts else self._settled
        ahead, self._waiting = self._waiting, None
        # A pump, and not a time limit around ``anext``: the limit would cancel the
        # generator in the middle of an answer only because it was silent.
        async with aclosing(self._events), aclosing(Pump(source)) as pump:
            if ahead is not None:
                yield ahead
            while not isinstance(more := await pump.next(self.first_signal_s), Ended):
                yield Progress(phase=self.status.phase) if more is None else more

    async def aclose(self) -> None:
        """Stop the answer, and the model that makes it."""
        # An abandoned ``async for`` does not close its source, so closing ``_settled``
        # alone would let the model go on writing.
        await self._settled.aclose()
        await self._events.aclose()

    async def _noted(self) -> AsyncGenerator[SessionEvent]:
        """Yield every event; keep the text that remains."""
        async for event in self._events:
            match event:
                case Delta():
                    self._pieces.append(event)
                case Retract(from_char=start):
                    # These pieces become ``answer.text``, which is stored as a turn:
                    # text that was retracted must not get into it.
                    # A call has no text, so none is before the first character.
                    ends = accumulate(len(piece.text) for piece in self._pieces)
                    known = zip(self._pieces, ends, strict=True)
                    self._pieces = [piece for piece, end in known if 0 < end <= start]
                case Finished():
                    self._finished = event
                case Verified() | Replaced():
                    pass
            yield event

    async def _settle(self) -> AsyncGenerator[SessionEvent]:
        """Yield text once it is final; none that was taken back."""
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
                        # No retraction can follow, so the draft was accepted. Its text
                        # comes before this event, as it was written.
                        for each in held:
                            yield replace(each, tentative=False)
                        held.clear()
                if not isinstance(event, Verified):
                    yield event

    @property
    def provenance(self) -> Provenance:
        """The tier that answers, and why; only after ``begin``."""
        if self.status.source is None:
            raise RuntimeError("no tier began to answer yet")
        return self.status.source

    @property
    def answer(self) -> Answer:
        """The whole answer; only after the last piece."""
        # The text so far may end in the middle of a sentence, and would look complete.
        if self._finished is None:
            raise RuntimeError("the answer is not complete")
        finished = self._finished
        first, *others = (
            Choice.of((each for each in self._pieces if each.choice == number), reason)
            for number, reason in enumerate((finished.finish_reason, *finished.others))
        )
        return Answer(
            id=self.id,
            text=first.text,
            provenance=self.provenance,
            finished=finished,
            logprobs=first.logprobs,
            tops=first.tops,
            calls=first.calls,
            others=tuple(others),
        )
