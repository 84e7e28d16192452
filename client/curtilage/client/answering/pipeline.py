"""The way of a query: inspect, decide, mask, plan, attempt, deliver.

``decided`` inspects a query, has the policy decide, and masks the tiers: it returns
every way that is permitted. ``run`` plans an order among them, attempts one after the
other, and delivers the events of the answer. Nothing after ``decided`` can add a way.

Optional steps are imported when a policy turns them on and a query needs them: a part
of a conversation (``conversation.narrowing``), drafts, hedging, consent, the queue.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, assert_never

from curtilage.client import telemetry
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.answering.attempt import Answers, Attempt, Case, Status
from curtilage.client.answering.background import Background, Covering, Probes
from curtilage.client.answering.course import Course, Shown, State
from curtilage.client.answering.observer import Delivery, Observer
from curtilage.client.answering.planning import Planner
from curtilage.client.answering.pump import Pump, Writer
from curtilage.client.answering.tiers.enclave import EnclaveTier
from curtilage.client.answering.tiers.local import LocalTier
from curtilage.client.answering.tiers.on_premises import OnPremisesTier
from curtilage.client.audit.record import Outcome
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.chat.answer import (
    Choice,
    Delta,
    Finished,
    Obstacle,
    Phase,
    SessionEvent,
)
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query, ToolCall
from curtilage.client.conversation.kept import UNSAVED
from curtilage.client.conversation.pinned import Found, PinnedConversations
from curtilage.client.errors import (
    AnswererError,
    BlockedError,
    ClientError,
    IncompleteAnswerError,
    LocalUnavailableError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.failure_texts import NO_QUEUE
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.remote.cover import CoverTraffic
from curtilage.client.remote.enclave import Enclave
from curtilage.client.route import (
    AskEnclave,
    AskLocal,
    AskOnPremises,
    Plan,
    Rewrite,
    Step,
    after_rewriting,
    first_step,
    ways,
)
from curtilage.client.routing.router import question_of
from curtilage.client.routing.trace import TraceLine
from curtilage.client.system.fair_queue import APPLICATION, memory_of
from curtilage.policy.decision.conversation import pins
from curtilage.policy.decision.decide import Decision, Inspection, decide
from curtilage.policy.decision.permit import PermitDesk
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import STICKY
from curtilage.policy.decision.tiers import RoutingClass, Tier

if TYPE_CHECKING:
    from curtilage.client.conversation.narrowing import Narrowing
    from curtilage.client.queue.deferring import Deferring


class Pipeline:
    """The pipeline of one client.

    Attributes:
        observer: counts what becomes of queries.
        probes: finds out whether the enclave can be reached.
        background: the tasks that no answer waits for.
        enclave: the tier of enclaves.
    """

    def __init__(
        self,
        parts: ClientParts,
        desk: PermitDesk,
        enclave: Enclave | None,
        cover: CoverTraffic | None,
        *,
        pinned: PinnedConversations,
        queue: "Deferring | None",
    ) -> None:
        self._parts = parts
        self._router = parts.router
        self._pinned = pinned
        self._queue = queue
        self._keys = ConversationKeys()
        self._saves = True
        self._narrowing = _narrowing(parts, pinned) if enclave is not None else None
        self._covering = Covering(parts.policy, cover, enclave)
        self.observer = Observer(parts.policy.rulebook.tiering.tiers, parts.router)
        self.background = Background()
        self.probes = Probes(
            parts,
            enclave,
            self.observer,
            self.background,
            reachable=None if queue is None else queue.reachable,
        )
        self._planner = Planner(
            parts.router, self.observer, parts.policy.routing, parts.below
        )
        self.enclave = EnclaveTier(parts, enclave, pinned, self._planner)
        self._on_premises = OnPremisesTier(parts, desk, self._covering)
        self._local = LocalTier(parts, self._covering)

    # 1. Inspect, decide, mask.

    async def decided(self, query: Query, *, remember: bool = False) -> Case:
        """Return a query with every permitted way to answer it.

        Args:
            query: the query.
            remember: it is really asked, so that a conversation that is kept local is
                remembered. A hypothetical question leaves no trace.
        """
        policy = self._parts.policy
        # First, and whole. A detector that fails or is too slow is a finding, which
        # keeps the query local.
        inspection = await self._parts.inspector.ainspect(query)
        # A later turn may contain nothing that is found, and still be about what was
        # found in an earlier one.
        seen = Found.of(policy.rulebook, inspection)
        # ``stricter`` only adds: a caller's ``floor`` can raise the class of a query
        # and never lower it.
        inspection = inspection.stricter(
            pinned=self._pinned.holds(query, seen), floor=query.options.floor
        )
        decision = decided = decide(policy.rulebook, inspection)
        step, conversation = first_step(decision), None
        if isinstance(step, Rewrite):
            conversation = self._key_of(query)
            step = await self._rewritten(query, inspection, decision, conversation)
            if isinstance(step, AskLocal):
                # What could not be replaced is kept local, with all that follows it.
                decided = replace(decision, route=Route.LOCAL)
        if decision.route is Route.LOCAL and self._narrowing is not None:
            taint = self._pinned.taint(query, seen)
            step = await self._narrowing.step(query, taint, inspection.floor)
        # Before any tier answers, so that it holds for a caller that continues at once.
        # What is sent is remembered when it is sealed (``tiers.enclave``).
        if remember and pins(policy.rulebook, inspection, decided):
            own = [hit for hit in decision.rules if hit.id != STICKY]
            alone = any(hit.route in {Route.BLOCK, Route.LOCAL} for hit in own)
            self._pinned.add(
                query,
                seen,
                own=alone or not inspection.pinned,
                apart=isinstance(step, AskEnclave),
            )
            await self._save()
        telemetry.decided(decision.route)
        recorder = QueryRecorder(
            self._parts.audit,
            policy,
            inspection,
            decision,
            application=APPLICATION.get(),
            save_transcript=self._parts.save_transcript,
        )
        tiering = policy.rulebook.tiering
        # From here on, every tier and every permission comes from ``ways``.
        permitted = ways(tiering, decision, step, conversation=conversation)
        payload = None
        with suppress(UnicodeError):  # half a character has no encoding
            payload = len(query.payload().content)
        return Case(
            recorder=recorder,
            ways=permitted,
            options=query.options,
            max_tokens=query.settings.max_tokens,
            messages=len(query.messages),
            characters=sum(len(each.said) for each in query.messages),
            text_bytes=query.text_bytes,
            payload=payload,
        )

    async def _rewritten(
        self, query: Query, inspection: Inspection, decision: Decision, key: bytes
    ) -> Step:
        """Replace the findings; the result is inspected and decided by itself."""
        policy = self._parts.policy
        found = findings_asked(policy, inspection, decision)
        rewritten = deidentify(query, found, key=key)
        if isinstance(rewritten, Obstacle):
            return AskLocal(rewritten)
        # The replacement is not trusted. What the first inspection missed is still in
        # the text, and may be found once the values around it are gone.
        again = await self._parts.inspector.ainspect(rewritten.reading)
        second = rewritten.inspected(again).stricter(
            floor=decision.permitted.routing_class
        )
        return after_rewriting(rewritten, decide(policy.rulebook, second))

    def _key_of(self, query: Query) -> bytes:
        """Return the key of a conversation; no two applications share one."""
        return self._keys.of(query, memory_of(APPLICATION.get()))

    async def _save(self) -> None:
        """Write kept conversations to the disk; reports once if that fails."""
        # What cannot be written now is written with the next one, or at the end.
        # In a thread: writing waits for the disk, and every other answer of this
        # process would wait with it.
        saved = await asyncio.to_thread(self._pinned.save)
        if not saved and self._saves and self._parts.notify is not None:
            self._parts.notify(UNSAVED)
        self._saves = saved

    # 2. Plan, and deliver.

    async def run(
        self, query: Query, stream: AnswerStream
    ) -> AsyncGenerator[SessionEvent]:
        """Answer a query in one of the ways that are permitted.

        Raises:
            ClientError: no tier answered; see ``curtilage.client.errors``.
        """
        if query.options.defer and self._queue is None:
            # Now, and not on the day that no tier can answer.
            raise UsageError(NO_QUEUE, param="defer")
        began_s = monotonic()
        case = await self.decided(query, remember=True)
        if case.recorder.decision.route is Route.BLOCK:
            raise await self._blocked(case)
        self.observer.crossed(case.ways)
        self._planner.refuse_limits(query.options)
        self.probes.begin()
        course = Course(case, self._planned(query, case), stream, began_s)
        delivery = Delivery(
            course,
            self.observer,
            self._queue,
            now=self._parts.clock,
            trace=self.trace,
        )
        try:
            async with aclosing(course):
                while course.state is not State.ANSWERED:
                    for event in await self._advance(query, course):
                        await delivery.saw(event)
                        yield event
            key = course.plan.conversation
            if self._router is not None and key is not None:
                self._router.answered(key, course.stream.provenance.tier)
        except ClientError as error:
            delivery.failed(error)
            raise
        finally:
            # In ``finally``, so that a query is traced, too, if its reader stops in the
            # middle or the caller is cancelled.
            delivery.ended()

    def _planned(self, query: Query, case: Case) -> Plan:
        """Return the order in which the permitted tiers are asked."""
        # The mask is the input, not the policy: the router can only order what was
        # decided.
        router, permitted = self._router, case.ways.permitted
        if router is None or query.options.local_model:
            # One local model was asked for: nothing is left to choose.
            return self._planner.usual(case)
        chose_s, key = monotonic(), None
        # If one tier is permitted, as for everything that is kept local, the text is
        # not read for its intent, and no key of the conversation is made.
        if router.chooses(permitted):
            key = case.ways.conversation or self._key_of(query)
            routed = router.route(permitted, query, conversation=key)
            router.asked(routed)
        else:
            routed = router.route_unread(
                permitted,
                case.options,
                text_bytes=case.text_bytes,
                messages=case.messages,
                most=case.max_tokens,
            )
        plan = self._planner.plan(case, routed, key, seconds=monotonic() - chose_s)
        # Drafts were certified for texts.
        return plan if query.is_plain else replace(plan, draft=None)

    async def _blocked(self, case: Case) -> BlockedError:
        """Record a blocked query, and return its error.

        In a frame of its own: the one that raises it must not hold it, or the question
        would be kept until the next collection of cycles.
        """
        decision = case.recorder.decision
        self._covering.of(case)  # silence would reveal that it is blocked
        await case.recorder.stays(Outcome.BLOCKED)
        blocked = BlockedError(
            rule=decision.rule,
            reason=decision.reason,
            classes=decision.classes,
            policy_digest=decision.policy_digest,
        )
        self.observer.refused(blocked)
        return blocked

    async def _advance(self, query: Query, course: Course) -> list[SessionEvent]:
        """Take the next step of a course; return its events.

        Raises:
            ClientError: no tier is left that could answer.
        """
        if course.state is State.CHOOSING and course.left:
            course.tier = course.left.pop(0)
            course.begin(self._source(query, course, course.tier))
        if course.state is not State.ANSWERING or course.tier is None:
            raise await self._failed(query, course)
        try:
            return await course.next()
        except AnswererError as error:
            failed = error.alone()
        tier = course.tier
        self.observer.failed(tier, failed.reason, of=course.case.options)
        wait_s = self._planner.wait_s(course, failed)
        if wait_s is None:
            return course.failed(failed)
        # The same tier is asked again.
        # Once for each query: a tier that is always busy must not hold a query for
        # ever.
        course.waited = True
        course.stream.status.phase = Phase.WAITING
        await self._parts.sleep(wait_s)
        course.again(tier)
        return []

    async def _failed(self, query: Query, course: Course) -> ClientError:
        """Return the error if no tier gave a whole answer."""
        case, failures = course.case, course.failures
        if course.shown is Shown.TEXT and not isinstance(
            failures[-1], LocalUnavailableError
        ):
            await case.recorder.stays(Outcome.CUT, failures[-1].reason)
            return IncompleteAnswerError(failures[-1].reason)
        if not any(isinstance(each, LocalUnavailableError) for each in failures):
            # Silence would reveal that it is kept local, or that no tier was asked.
            self._covering.unless_sent(case, failures)
        if self._queue is not None:
            from curtilage.client.answering.steps.queueing import (  # noqa: PLC0415
                queued_for_later,
            )

            queued = await queued_for_later(self._queue, query, course, self._router)
            if queued is not None:
                return queued
        error = course.unanswered()
        if isinstance(error, NotRoutedError):
            error.final = course.forbidden(consents=self._parts.consents is not None)
        return error

    # 3. Attempt: a tier is asked, and its answer is remembered as a turn.

    def _source(
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
            answer = first.rest(course.stream.status)
            if self._router is not None and not await first.pump.begins(after_s):
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
        clears = here is not True and not attempt.kept_home
        if isinstance(way, AskEnclave):
            # A restored answer holds the values that were replaced in the query.
            # Noted as known to the enclave, it could be sent in a later turn.
            here = None if way.rewritten is not None else False
        router, estimate = self._router, attempt.plan.estimate
        following = (
            router.follow(attempt.tier, estimate) if router and estimate else None
        )
        measured = self.observer.asks(attempt.tier)
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

    def trace(self, line: TraceLine | None) -> None:
        """Have a line written; no answer waits for the disk."""
        if line is not None and self._parts.trace is not None:
            self.background.run(asyncio.to_thread(self._parts.trace, line))

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


def _narrowing(parts: ClientParts, pinned: PinnedConversations) -> "Narrowing | None":
    """Return what reduces a conversation to a part that may be sent, if it may be."""
    plan = parts.policy.routing
    if plan is None or plan.observe or RoutingClass.RESTRICTED not in plan.history:
        return None
    from curtilage.client.conversation.narrowing import Narrowing  # noqa: PLC0415

    return Narrowing(
        parts.policy,
        parts.inspector.ainspect,
        parts.local.generate,
        pinned=pinned,
        parameters=parts.parameters,
    )
