"""Attempts: a tier is asked by its way, and its answer is remembered as a turn.

Drafts and hedging ask a second tier; they are imported when a query needs them.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing, nullcontext, suppress
from functools import partial
from typing import assert_never

from curtilage.client.answering.attempt import Answers, Attempt, Status
from curtilage.client.answering.course import Course
from curtilage.client.answering.covering import Covering
from curtilage.client.answering.observer import Observer
from curtilage.client.answering.planning import Planner
from curtilage.client.answering.pump import Pump, Writer
from curtilage.client.answering.tiers.enclave import EnclaveTier
from curtilage.client.answering.tiers.local import LocalTier
from curtilage.client.answering.tiers.on_premises import OnPremisesTier
from curtilage.client.chat.answer import Choice, Delta, Finished, SessionEvent
from curtilage.client.chat.document import Document
from curtilage.client.chat.options import Mode, Require
from curtilage.client.chat.query import Message, Query, ToolCall
from curtilage.client.conversation.pinned import PinnedConversations
from curtilage.client.parts import ClientParts
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.reasons import Unmet
from curtilage.client.route import AskEnclave, AskLocal, AskOnPremises
from curtilage.client.routing.router import question_of
from curtilage.policy.decision.permit import PermitDesk
from curtilage.policy.decision.tiers import Tier


class Asking:
    """Asks the tiers of one client.

    Attributes:
        enclave: the tier of enclaves.
    """

    def __init__(
        self,
        parts: ClientParts,
        desk: PermitDesk,
        enclave: Enclave | None,
        *,
        pinned: PinnedConversations,
        observer: Observer,
        covering: Covering,
        planner: Planner,
    ) -> None:
        self._router = parts.router
        self._covering = covering
        self._planner = planner
        self._pinned = pinned
        self._observer = observer
        self.enclave = EnclaveTier(parts, enclave, pinned, planner)
        self._on_premises = OnPremisesTier(parts, desk, covering)
        self._local = LocalTier(parts, covering)

    def source(
        self, query: Query, course: Course, tier: Tier
    ) -> AsyncGenerator[SessionEvent]:
        """Return the events of a tier's answer, or of a draft."""
        if course.drafts and course.plan.draft is not None:
            from curtilage.client.answering.steps.drafts import (  # noqa: PLC0415
                drafted,
            )

            return drafted(
                course,
                course.plan.draft,
                partial(self._writes, query),
                self._covering,
                question=question_of(query),
            )
        after_s = self._planner.late_after_s(course, tier)
        attempt = course.attempt(tier)
        if after_s is None:
            return self._asked(query, attempt, course.stream.status)
        return self._unless_late(query, course, attempt, after_s)

    async def _unless_late(
        self, query: Query, course: Course, attempt: Attempt, after_s: float
    ) -> Answers:
        """Yield a tier's answer; if it is late, a second tier is asked as well."""
        async with AsyncExitStack() as stack:
            first = await self._writes(query, attempt, stack)
            course.stream.status.phase = first.status.phase
            if self._router is None or await first.pump.begins(after_s):
                answer = first.rest(course.stream.status)
            else:
                # Imported here: most queries are never hedged, and start-up is a large
                # part of the time of a command that asks one question.
                from curtilage.client.answering.steps.hedging import (  # noqa: PLC0415
                    hedged,
                )

                answer = hedged(
                    course,
                    first,
                    partial(self._writes, query),
                    self._router.hedges,
                    stack,
                )
            async with aclosing(answer) as events:
                async for event in events:
                    yield event

    async def _writes(
        self, query: Query, attempt: Attempt, stack: AsyncExitStack
    ) -> Writer:
        # Its own status: with two tiers at once, the reader's status must be that of
        # the tier that is read (``Writer.read``).
        status = Status(attempt.phase)
        pump = Pump(self._asked(query, attempt, status))
        await stack.enter_async_context(aclosing(pump))
        return Writer(attempt.tier.id, pump, status)

    async def _asked(self, query: Query, attempt: Attempt, status: Status) -> Answers:
        """Ask one tier; note its events in its figures, and its answer as a turn."""
        answer, way = self._answer(query, attempt, status), attempt.way
        here, left = attempt.case.ways.here, isinstance(way, AskEnclave)
        # Noted as not secret only if it could have been sent: a sender who kept it
        # local, or refused consent, may have a reason that no detector knows.
        clears = here is not True and not _was_kept_home(attempt)
        if isinstance(way, AskEnclave):
            # A restored answer holds the values that were replaced in the query.
            # Noted as known to the enclave, it could be sent in a later turn.
            here = None if way.rewritten is not None else False
        router, estimate = self._router, attempt.plan.estimate
        following = (
            router.follow(attempt.tier, estimate) if router and estimate else None
        )
        measured = self._observer.asks(attempt.tier)
        said: list[Delta] = []
        with following or nullcontext():
            try:
                async with aclosing(answer) as events:
                    async for event in events:
                        if clears:
                            self._pinned.clears(query)
                            clears = False
                        # Notes that the client wrote are no part of the turn: they are
                        # removed where the answer is sent again as one.
                        if isinstance(event, Delta) and not event.note:
                            said.append(event)
                        if following is not None:
                            following.saw(event)
                        if isinstance(event, Finished):
                            measured.finished(
                                event.prompt_tokens, event.completion_tokens
                            )
                        else:
                            measured.text()
                        yield event
            finally:
                # Also an incomplete answer: it was read up to here.
                self._remember(query, said, here=here, left=left)

    def _remember(
        self, query: Query, said: list[Delta], *, here: bool | None, left: bool
    ) -> None:
        if here is not None:
            for text in _turns_of(said, query.settings.n):
                self._pinned.answered(query, text, here=here, left=left)

    def _answer(self, query: Query, attempt: Attempt, status: Status) -> Answers:
        status.phase = attempt.phase
        match attempt.way:
            case AskEnclave() as way:
                return self.enclave.answer(attempt, way, query, status)
            case AskOnPremises() as way:
                return self._on_premises.answer(attempt, way, query, status)
            case AskLocal():
                return self._local.answer(attempt, query, status)
            case _:
                assert_never(attempt.way)

    async def close(self) -> None:
        """Free the model, and close every connection to on-premises servers."""
        await self._local.close()
        await self._on_premises.close()


def _turns_of(said: list[Delta], n: int) -> Iterator[str]:
    """Yield what each answer says as a turn, as it will be sent again."""
    for number in range(n):
        pieces = (each for each in said if each.choice == number)
        yield _turn_of(Choice.of(pieces, "")).said


def _turn_of(choice: Choice) -> Message:
    texts, calls = [choice.text], list[ToolCall]()
    for number, call in enumerate(choice.calls, start=1):
        with suppress(ValueError, RecursionError):
            arguments = Document.of(json.loads(call.arguments))
            calls.append(ToolCall(number=number, name=call.name, arguments=arguments))
            continue
        texts += (call.name, call.arguments)
    turn = "\n".join(texts)
    return Message(role="assistant", content=turn, calls=tuple(calls))


def _was_kept_home(attempt: Attempt) -> bool:
    """Return whether the caller kept a query local that could have been sent."""
    asked = attempt.case.options
    return (
        asked.mode is Mode.HOME
        or asked.require not in {None, Require.ENCLAVE}
        or any(each.reason is Unmet.CONSENT for each in attempt.failures)
    )
