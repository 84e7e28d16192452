"""One answer as it is made, whoever makes it.

Holds the pieces, so that the whole can be read at the end; knows neither how
they are made nor what they say.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from curtilage.client.answers import Answer, AnswerEvent, Delta, Finished, Provenance


class AnswerStream:
    """One answer as it is made: iterate for pieces, then read the rest.

    ``provenance`` is known once ``begin()`` returned or the first piece came;
    ``answer`` after the last piece. Closing it stops whoever answers.
    """

    def __init__(
        self, events: "Callable[[AnswerStream], AsyncGenerator[AnswerEvent]]"
    ) -> None:
        self._events = events(self)
        self._waiting: AnswerEvent | None = None
        self._pieces: list[Delta] = []
        self._finished: Finished | None = None
        self._provenance: Provenance | None = None

    async def begin(self) -> Provenance:
        """Wait until somebody began to answer.

        Raises:
            ClientError: nobody can, or nobody may.
        """
        if self._waiting is None and not self._pieces and self._finished is None:
            self._waiting = await anext(self._events)
        return self.provenance

    async def __aiter__(self) -> AsyncGenerator[Delta]:
        """Yield the pieces of the answer.

        Raises:
            ClientError: as ``begin``; also when the answer was cut.
        """
        await self.begin()
        async with aclosing(self._events):
            event, self._waiting = self._waiting, None
            while event is not None:
                if isinstance(event, Delta):
                    self._pieces.append(event)
                    yield event
                else:
                    self._finished = event
                event = await anext(self._events, None)

    async def aclose(self) -> None:
        """Stop the answer; whoever makes it is told to stop too."""
        await self._events.aclose()

    @property
    def provenance(self) -> Provenance:
        """Who answers and why; only after ``begin``."""
        if self._provenance is None:
            raise RuntimeError("nobody began to answer yet")
        return self._provenance

    @provenance.setter
    def provenance(self, value: Provenance) -> None:
        """Tell who answers; the session does, once it knows."""
        self._provenance = value

    @property
    def answer(self) -> Answer:
        """The whole answer; only after the last piece."""
        if self._finished is None:
            raise RuntimeError("the answer is not complete")
        return Answer(
            text="".join(piece.text for piece in self._pieces),
            provenance=self.provenance,
            finished=self._finished,
            logprobs=tuple(pair for piece in self._pieces for pair in piece.logprobs),
        )
