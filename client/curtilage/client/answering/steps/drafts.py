"""Drafts: the local model writes first, and its text is judged while it is written.

The text of two tiers is never put together: what one began is taken back whole.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from curtilage.client.answering.attempt import Status
from curtilage.client.answering.background import Covering
from curtilage.client.answering.course import Course
from curtilage.client.answering.pump import Ended, Writer, Writes, ready
from curtilage.client.chat.answer import (
    AnswerEvent,
    Finished,
    Phase,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.errors import AnswererError, FailureReason
from curtilage.client.local.reasons import DraftRejectedError, LocalFailure
from curtilage.client.routing.speculate import Speculation
from curtilage.client.routing.utility import Reason
from curtilage.client.routing.verifier import Verdict, Verifier


async def drafted(
    course: Course,
    draft: Speculation,
    writes: Writes,
    covering: Covering,
    *,
    question: str,
) -> AsyncGenerator[SessionEvent]:
    """Yield the local model's draft, or in a race the enclave's answer instead.

    Raises:
        AnswererError: there is no draft, or it was rejected: the next tier is asked.
    """
    # Its answer may be worse than that of the next tier, but is better than none.
    course.left.append(draft.draft)
    verifier = draft.verifier(question)
    async with AsyncExitStack() as stack:
        home = await writes(course.attempt(draft.draft, draft=True), stack)
        rival = None
        if draft.race:
            # It is asked now. If it were left there, it would be asked again after the
            # race, and paid for twice.
            course.left.remove(draft.escalation)
            rival = await writes(course.attempt(draft.escalation), stack)
        answer = judged(home, rival, verifier, course.stream.status, course.failures)
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
    """Yield a draft while it is written, and the rest of it if it is accepted.

    Args:
        home: writes the draft.
        rival: writes at the same time, in a race: its answer is taken if the draft is
            rejected, or if it is complete before that is known.
        verifier: judges the draft.
        status: shows which of them is read.
        failures: gets the failure of one while the other continues.

    Raises:
        DraftRejectedError: it was rejected, and there is no rival.
        AnswererError: the one that was read broke off, and there is no other.
    """
    race = _Race(home, rival, verifier, failures)
    status.phase = home.status.phase
    # The provenance shows that the query may have been sent to another tier, too.
    home.in_parallel = rival is not None
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
    """Take a draft back, and yield the rival's answer."""
    if race.rival is None:
        raise DraftRejectedError
    if race.drafted:
        yield Retract(from_char=0, reason=race.why)
        yield Replaced(tier=race.rival.tier)
    race.rival.why, race.rival.failed = race.instead
    # The draft is not continued while the rival is read.
    await race.home.pump.aclose()
    async with aclosing(race.rival.rest(status, race.held)) as events:
        async for event in events:
            yield event


class _Race:
    """A draft until it is judged, and what the rival writes meanwhile.

    Attributes:
        home: writes the draft.
        rival: writes at the same time; None: there is none, or it failed.
        held: events of the rival.
        drafted: a part of the draft was shown.
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
        """Why the rival is read, and why the draft failed, if it did."""
        match self.why:
            case RetractReason.NOT_GOOD_ENOUGH:
                return Reason.HARD, LocalFailure.DRAFT_REJECTED
            case RetractReason.BROKE_OFF:
                return Reason.UNAVAILABLE, self._broke
            case RetractReason.OVERTAKEN:
                return Reason.FASTER, None

    async def next(self) -> AnswerEvent | None:
        """Return the draft's next event; None if it is judged, or has ended.

        Raises:
            AnswererError: it broke off, and there is no rival.
        """
        while self._verifier.verdict is Verdict.WAIT:
            # If both are ready, the draft comes first: it is what is judged.
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
            # Not shown: until the draft is judged, the reader sees the draft only, and
            # two models' text is never put together (docs/decisions/0044).
            self.held.append(event)
            if isinstance(event, Finished):
                return None
        return None
