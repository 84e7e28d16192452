"""Two who write at one answer: one is judged as he writes, or is late and replaced.

Who they are and what they may be told is settled before; here it is only which of them
is read. Two writers' text is never put together: what one began is taken back whole.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from curtilage.client.answer import (
    AnswerEvent,
    Finished,
    Phase,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.answering.pump import Ended, Pump, ready
from curtilage.client.errors import (
    AnswererError,
    DraftRejectedError,
    FailureReason,
)
from curtilage.client.routing.utility import Reason
from curtilage.client.routing.verifier import Verdict, Verifier


class Tells(Protocol):
    """Who is told what is done, and who answers.

    Attributes:
        phase: what is done just now.
    """

    phase: Phase

    @property
    def told(self) -> Provenance | None:
        """Who answers; None before anybody began."""
        ...

    def tell(self, provenance: Provenance) -> None:
        """Say who answers."""
        ...


@dataclass(slots=True)
class Told:
    """Keeps what one writer says of himself until it is known whether he is read.

    Attributes:
        phase: what is done; before anything came, that he was asked.
        told: who answers.
    """

    phase: Phase
    told: Provenance | None = None

    def tell(self, provenance: Provenance) -> None:
        """Keep who answers."""
        self.told = provenance


@dataclass(slots=True, eq=False)
class Writer:
    """One who writes.

    Attributes:
        tier: by the policy's name.
        pump: what he writes.
        says: what he says of himself.
        why: why he is read and not another; None: as he says.
        failed: what became of the other, if he is read for that.
        beside: another was asked beside him.
    """

    tier: str
    pump: Pump[AnswerEvent] = field(repr=False)
    says: Told
    why: Reason | None = None
    failed: FailureReason | None = None
    beside: bool = False

    def read(self, tells: Tells) -> None:
        """Say that he is read."""
        tells.phase = self.says.phase
        if (told := self.says.told) is not None:
            # What he says of himself is from before it was known what others do.
            why = self.why or (Reason.UNAVAILABLE if self.failed else told.why)
            fallback = told.fallback or self.failed
            tells.tell(replace(told, why=why, fallback=fallback, beside=self.beside))

    async def rest(
        self, tells: Tells, held: Sequence[AnswerEvent] = ()
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield what was held back of what he wrote, and what he still writes.

        Raises:
            AnswererError: he broke off.
        """
        for event in held:
            self.read(tells)
            yield event
        while not isinstance(more := await self.pump.next(), Ended):
            self.read(tells)
            if more is not None:
                yield more


async def judged(
    home: Writer,
    rival: Writer | None,
    verifier: Verifier,
    tells: Tells,
    failures: list[AnswererError],
) -> AsyncGenerator[SessionEvent]:
    """Yield a draft as it is written, and the rest of it if it will do.

    Args:
        home: who writes it.
        rival: who writes beside him, in a race: his answer is taken if the draft will
            not do, or if it is whole before that is known.
        verifier: judges the draft.
        tells: is told who is read.
        failures: of those who broke off while another went on.

    Raises:
        DraftRejectedError: it will not do, and nobody wrote beside it.
        AnswererError: whoever was read broke off, and nobody else writes.
    """
    race = _Race(home, rival, verifier, failures)
    tells.phase = home.says.phase
    # Whose answer it will be: the question may have left, and he is told so.
    home.beside = rival is not None
    while (event := await race.next()) is not None:
        home.read(tells)
        race.drafted, tells.phase = True, Phase.CHECKING
        if isinstance(event, Finished):
            if verifier.end(event) is Verdict.ACCEPT:
                yield Verified()
                yield event
            break
        verifier.feed(event)
        yield replace(event, tentative=True, signals=())
    else:
        if verifier.verdict is Verdict.ACCEPT:
            yield Verified()
            async with aclosing(home.rest(tells)) as events:
                async for event in events:
                    yield event
    if verifier.verdict is not Verdict.ACCEPT:
        async with aclosing(_instead(race, tells)) as events:
            async for each in events:
                yield each


async def _instead(race: "_Race", tells: Tells) -> AsyncGenerator[SessionEvent]:
    """Take a draft back, and yield what was written beside it."""
    if race.rival is None:
        raise DraftRejectedError
    if race.drafted:
        yield Retract(from_char=0, reason=race.why)
        yield Replaced(tier=race.rival.tier)
    race.rival.why, race.rival.failed = race.instead
    # No more of it is computed while the other is read.
    await race.home.pump.aclose()
    async with aclosing(race.rival.rest(tells, race.held)) as events:
        async for event in events:
            yield event


class _Race:
    """A draft until it is judged, and what is written beside it.

    Attributes:
        rival: who writes beside it; None: nobody, or no longer.
        home: who writes the draft.
        held: what the rival wrote.
        drafted: something of the draft was shown.
    """

    def __init__(
        self,
        home: Writer,
        rival: Writer | None,
        verifier: Verifier,
        failures: list[AnswererError],
    ) -> None:
        self.home = home
        self.rival = rival
        self._verifier = verifier
        self._failures = failures
        self.held: list[AnswerEvent] = []
        self.drafted = False
        self._broke: FailureReason | None = None

    @property
    def why(self) -> RetractReason:
        """Why the draft is taken back."""
        if self._verifier.verdict is Verdict.REJECT:
            return RetractReason.NOT_GOOD_ENOUGH
        return RetractReason.BROKE_OFF if self._broke else RetractReason.OVERTAKEN

    @property
    def instead(self) -> tuple[Reason, FailureReason | None]:
        """Why the rival is read, and what became of the draft; as one after another."""
        match self.why:
            case RetractReason.NOT_GOOD_ENOUGH:
                return Reason.HARD, FailureReason.DRAFT_REJECTED
            case RetractReason.BROKE_OFF:
                return Reason.UNAVAILABLE, self._broke
            case RetractReason.OVERTAKEN:
                return Reason.FASTER, None

    async def next(self) -> AnswerEvent | None:
        """Return what comes next of the draft; None where it is judged, or over.

        Raises:
            AnswererError: it broke off, and nobody writes beside it.
        """
        while self._verifier.verdict is Verdict.WAIT:
            # Of two that are ready the draft comes first: it is what is judged.
            others = [] if self.rival is None else [self.rival.pump]
            pump = await ready(self.home.pump, *others)
            try:
                event = await pump.next()
            except AnswererError as error:
                if self.rival is None:
                    raise
                self._failures.append(error.alone())
                if pump is not self.home.pump:
                    self.rival = None
                    continue
                self._broke = error.reason
                return None
            if event is None or isinstance(event, Ended):
                raise RuntimeError("an answer has an end, and it comes last")
            if pump is self.home.pump:
                return event
            self.held.append(event)
            if isinstance(event, Finished):
                return None
        return None


async def sooner(
    first: Writer,
    after_s: float,
    second: Callable[[], Awaitable[Writer | None]],
    tells: Tells,
    failures: list[AnswererError],
) -> AsyncGenerator[AnswerEvent]:
    """Yield the answer of the first; of a second who begins before him, if he is late.

    Args:
        first: who was asked.
        after_s: after how many seconds without a word he is late.
        second: asks another, or nobody; called once, and then only.
        tells: is told who is read.
        failures: of the one who broke off while the other went on.

    Raises:
        AnswererError: whoever was read broke off, and nobody else writes.
    """
    tells.phase = first.says.phase
    event: AnswerEvent | Ended | None = await first.pump.next(after_s)
    other = await second() if event is None else None
    read, left = first, [first] if other is None else [first, other]
    first.beside = other is not None
    while event is None:
        pump = await ready(*(each.pump for each in left))
        read = next(each for each in left if each.pump is pump)
        try:
            event = await pump.next()
        except AnswererError as error:
            left.remove(read)
            if not left:
                raise
            failures.append(error.alone())
            # The second is not only sooner then: the one that was chosen cannot.
            left[0].failed = error.reason if read is first else None
    for writer in left:
        if writer is not read:
            await writer.pump.aclose()
    if not isinstance(event, Ended):
        async with aclosing(read.rest(tells, [event])) as events:
            async for each in events:
                yield each
