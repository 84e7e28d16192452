"""Drafts: the local model writes first, and its text is judged while it is written.

The text of two tiers is never put together: what one began is taken back whole.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from curtilage.client.answer import (
    AnswerEvent,
    Finished,
    Phase,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.answering.attempt import Status
from curtilage.client.answering.course import Course
from curtilage.client.answering.covering import Covering
from curtilage.client.answering.pump import Ended, ready
from curtilage.client.answering.writer import Writer, Writes
from curtilage.client.errors import (
    AnswererError,
    DraftRejectedError,
    FailureReason,
)
from curtilage.client.routing.router import question_of
from curtilage.client.routing.speculate import Speculation
from curtilage.client.routing.utility import Reason
from curtilage.client.routing.verifier import Verdict, Verifier


async def drafted(
    course: Course, draft: Speculation, writes: Writes, covering: Covering
) -> AsyncGenerator[SessionEvent]:
    """Yield the local model's draft, or in a race the enclave's answer instead.

    Args:
        course: the query's.
        draft: the plan of its draft.
        writes: begins an attempt.
        covering: covers an accepted draft of which nothing was sent.

    Raises:
        AnswererError: there is no draft, or it was rejected: the next tier is asked.
    """
    # Its answer may be worse than that of the next tier, but is better than none.
    course.left.append(draft.draft)
    verifier = draft.verifier(question_of(course.case.query))
    async with AsyncExitStack() as stack:
        home = await writes(course.attempt(draft.draft, draft=True), stack)
        rival = None
        if draft.race:
            course.left.remove(draft.escalation)
            rival = await writes(course.attempt(draft.escalation), stack)
        answer = judged(home, rival, verifier, course.stream, course.failures)
        async with aclosing(answer) as events:
            async for event in events:
                accepted = isinstance(event, Verified)
                if accepted and (rival is None or course.failures):
                    # Only now is it known that nothing of it was sent, or will be.
                    covering.unless_sent(course.case, course.failures)
                yield event


async def judged(
    home: Writer,
    rival: Writer | None,
    verifier: Verifier,
    status: Status,
    failures: list[AnswererError],
) -> AsyncGenerator[SessionEvent]:
    """Yield a draft as it is written, and the rest of it if it will do.

    Args:
        home: who writes it.
        rival: who writes beside him, in a race: his answer is taken if the draft will
            not do, or if it is whole before that is known.
        verifier: judges the draft.
        status: is told who is read.
        failures: of those who broke off while another went on.

    Raises:
        DraftRejectedError: it will not do, and nobody wrote beside it.
        AnswererError: whoever was read broke off, and nobody else writes.
    """
    race = _Race(home, rival, verifier, failures)
    status.phase = home.status.phase
    # Whose answer it will be: the question may have left, and he is told so.
    home.beside = rival is not None
    while (event := await race.next()) is not None:
        home.read(status)
        race.drafted, status.phase = True, Phase.CHECKING
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
            async with aclosing(home.rest(status)) as events:
                async for event in events:
                    yield event
    if verifier.verdict is not Verdict.ACCEPT:
        async with aclosing(_instead(race, status)) as events:
            async for each in events:
                yield each


async def _instead(race: "_Race", status: Status) -> AsyncGenerator[SessionEvent]:
    """Take a draft back, and yield what was written beside it."""
    if race.rival is None:
        raise DraftRejectedError
    if race.drafted:
        yield Retract(from_char=0, reason=race.why)
        yield Replaced(tier=race.rival.tier)
    race.rival.why, race.rival.failed = race.instead
    # No more of it is computed while the other is read.
    await race.home.pump.aclose()
    async with aclosing(race.rival.rest(status, race.held)) as events:
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
