"""In which order those who may answer are asked, and what happens if one cannot.

A query's attempts share one mask and one deadline; each has a permission of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from time import monotonic
from typing import Final

from curtilage.client.answer import (
    Delta,
    Finished,
    Phase,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.answering.doors import Chosen, Doors
from curtilage.client.answering.observer import Observer
from curtilage.client.answering.pump import Pump
from curtilage.client.answering.writers import Told, Writer, judged, sooner
from curtilage.client.audit.record import Outcome
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.errors import (
    EXPLAINED,
    AnswererError,
    BlockedError,
    ClientError,
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
    LocalUnavailableError,
    NotRoutedError,
    QueuedError,
    TooLongError,
    UsageError,
)
from curtilage.client.options import Mode, Require, RoutingOptions
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.query import Query
from curtilage.client.queue.deferring import Deferring
from curtilage.client.remote.enclave import Enclave
from curtilage.client.route import AskEnclave, AskLocal, Plan, Ways
from curtilage.client.routing.router import (
    REMEDIES,
    Following,
    Routed,
    Router,
    question_of,
    required_unmet,
)
from curtilage.client.routing.speculate import SPECULATIVE, Speculation
from curtilage.client.routing.trace import TraceLine
from curtilage.client.routing.tracing import Tracing
from curtilage.client.routing.utility import Refusal
from curtilage.policy.decision.classes import STALE_POLICY, UNFINISHED
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Denial, RoutingClass, Tier, TierKind

LOOK_S: Final = 30.0
"""Seconds between two looks for an enclave that fails, where no breaker is open."""
UNCHOSEN: Final = "usual"
"""Stands in the trace for a reason where nobody chose."""
_TRIED_ANYWAY: Final = frozenset(
    {Refusal.REQUIRED_UNMET, Refusal.HOME_UNAVAILABLE, Refusal.UNAVAILABLE}
)
_PASSING: Final = UNFINISHED | {STALE_POLICY}
_JITTER: Final = 1000
_LIMITS: Final = frozenset({Denial.COST, Denial.SLO})
"""Not what a model lacks: what its asker would not have."""


class Attempts:
    """Asks those who may answer a query, in the order that the router chose.

    Args:
        parts: what the client is made of.
        doors: how each is asked.
        enclave: to find out beside the questions whether it is there again.
        keys: of each conversation.
        observer: sees what becomes of it.
        queue: where what nobody could answer waits, if the policy lets it.
    """

    def __init__(
        self,
        parts: ClientParts,
        doors: Doors,
        enclave: Enclave | None,
        keys: ConversationKeys,
        observer: Observer,
        *,
        queue: Deferring | None = None,
    ) -> None:
        self._parts = parts
        self._queue = queue
        self._doors = doors
        self._enclave = enclave
        self._keys = keys
        self._observer = observer
        self._router = parts.router
        self._running: set[asyncio.Task[object]] = set()
        self._probes: set[asyncio.Task[object]] = set()
        self._looked_s: float | None = None
        self._attested = [
            each.id
            for each in parts.policy.rulebook.tiering.tiers
            if each.kind is TierKind.ATTESTED
        ]

    async def look(self) -> None:
        """Find out whether the enclave is there, without any question.

        The first time, and then while it fails: every ``LOOK_S``, and as soon as its
        breaker lets one try.
        """
        enclave = self._enclave
        if enclave is None or self._probes:
            return
        # A broken answer is shown as a failure, but by itself opens no breaker, so
        # that a breaker alone would never have the enclave looked for.
        failing = not self._observer.failing.keys().isdisjoint(self._attested)
        looked_s = self._looked_s
        due = looked_s is None or (failing and monotonic() - looked_s >= LOOK_S)
        if self._router is not None:
            for probe in self._router.probes(first=due):
                await self._probed(enclave, probe)
        elif due:
            with suppress(EnclaveError):
                await self._found(enclave)
        if due:
            self._looked_s = monotonic()

    async def _found(self, enclave: Enclave) -> None:
        """Ask whether an enclave is there, and note it; raises if it is not."""
        try:
            await enclave.probe()
        except EnclaveError as error:
            for tier in self._attested:
                self._observer.missed(tier, error.reason)
            raise
        for tier in self._attested:
            self._observer.there(tier)

    def stop_probes(self) -> None:
        """Give up finding out who is there again."""
        for probe in self._probes:
            probe.cancel()

    async def settle(self) -> None:
        """Wait until what is done beside the questions has ended."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def close(self) -> None:
        """Cut off what is still done beside them."""
        for task in self._running:
            task.cancel()

    async def run(
        self,
        recorder: QueryRecorder,
        permitted: Ways,
        query: Query,
        stream: AnswerStream,
        *,
        began_s: float,
    ) -> AsyncGenerator[SessionEvent]:
        """Answer a query by one of the ways that are permitted.

        Args:
            recorder: where each step is recorded; holds the decision.
            permitted: the ways.
            query: what is asked.
            stream: is told who answers.
            began_s: when it was asked.

        Raises:
            ClientError: nobody answers; see ``curtilage.client.errors``.
        """
        decision = recorder.decision
        if decision.route is Route.BLOCK:
            self._doors.cover_for(query, decision)  # silence would say: blocked
            await recorder.stays(Outcome.BLOCKED)
            blocked = BlockedError(
                rule=decision.rule,
                reason=decision.reason,
                classes=decision.classes,
                policy_digest=decision.policy_digest,
            )
            self._observer.refused(blocked)
            raise blocked
        self._observer.crossed(permitted)
        plan = self._planned(query, permitted)
        observed = self._observer.of(stream, recorder, chosen=bool(plan.why))
        tracing = Tracing(
            began_s=began_s,
            estimate=plan.estimate,
            why=plan.why or UNCHOSEN,
            would_choose=plan.would_choose,
        )
        waits_on = False
        try:
            asked = _Asked(recorder, permitted, plan, query, stream, began_s)
            if self._router is not None:
                self._router.retries.earn()
            async with aclosing(self._tried(asked)) as events:
                async for event in events:
                    tracing.saw(event, monotonic())
                    await observed.saw(event)
                    yield event
            if self._router is not None and plan.conversation is not None:
                self._router.answered(plan.conversation, stream.provenance.tier)
        except ClientError as error:
            # What waits on was counted when it was put by.
            again = self._queue is not None and self._queue.asks_again
            waits_on = again and isinstance(error, QueuedError)
            if not waits_on:
                self._observer.refused(error)
            raise
        finally:
            line: TraceLine | None = None
            # A line that cannot be made, of too many classes say, costs no answer.
            with suppress(UsageError):
                line = tracing.line(
                    query,
                    decision,
                    permitted.permitted,
                    stream.told,
                    at=self._parts.clock(),
                    now_s=monotonic(),
                )
            # Who waits was traced when he began to, and is again when he is answered.
            self._trace(None if waits_on else line)
            if stream.told is not None and tracing.first_s is not None:
                self._observer.answered(stream.id, stream.told.tier, line)
            self._observer.stands()

    def graded(self, answer_id: str, *, good: bool) -> None:
        """Say how an answer was; see ``Session.feedback``."""
        now = self._parts.clock()
        self._trace(self._observer.graded(answer_id, good=good, now=now))

    async def _tried(  # noqa: C901 - one after the other, and what came of each
        self, asked: "_Asked"
    ) -> AsyncGenerator[SessionEvent]:
        """Ask one after the other until one answers."""
        left, draft = list(asked.plan.tiers), asked.plan.draft
        if draft is not None:
            first = [draft.draft, draft.escalation]
            left = first + [each for each in left if each not in first]
        shown = _Shown.NOTHING
        while left:
            tier = left.pop(0)
            answer = (
                self._hedged(asked, tier, left)
                if draft is None
                else self._drafted(asked, draft, left)
            )
            try:
                async with aclosing(answer) as events:
                    async for event in events:
                        shown = shown.after(event)
                        yield event
            except AnswererError as error:
                failed = error.alone()
            else:
                return
            self._observer.failed(tier, failed.reason)
            alone = draft is None and shown is _Shown.NOTHING
            if await self._waited(asked, failed, alone=alone):
                left.insert(0, tier)
                continue
            asked.failures.append(failed)
            draft = None
            rejected = failed.reason is FailureReason.DRAFT_REJECTED
            # Also of a draft without a word it is told that it was given up.
            if shown is _Shown.NOTHING and not rejected:
                continue
            if not left or (shown is _Shown.TEXT and not asked.stream.retracts):
                # Another model's answer would not go on with this one.
                break
            yield _taken_back(failed)
            yield Replaced(tier=left[0].id)
            shown = _Shown.NOTHING
        raise await self._failed(asked, shown)

    async def _waited(
        self, asked: "_Asked", failed: AnswererError, *, alone: bool
    ) -> bool:
        """Wait for one that wants to be asked again, if there is time; once a query.

        ``alone``: nobody else writes, and nothing was shown.
        """
        router, wait_s = self._router, failed.retry_after_s
        if router is None or router.plan.observe or wait_s is None:
            return False
        # What a person agreed to is one attempt, and he is not asked for the next.
        agreed = isinstance(failed, EnclaveError) and self._doors.asks_about(
            asked.ways.permitted.routing_class
        )
        if asked.waited or not alone or agreed:
            return False
        most_s, total_ms = (
            router.plan.resilience.retry_after_max_s,
            asked.query.options.total_ms or router.plan.budgets.total_ms,
        )
        # Those who were sent away at once are not to come back at once.
        longer_s = wait_s * (1 + self._parts.below(_JITTER) / _JITTER / 2)
        late = monotonic() + longer_s > asked.began_s + total_ms / 1000
        if late or not 0 < most_s >= wait_s or not router.retries.take():
            return False
        asked.waited = True
        asked.stream.phase = Phase.WAITING
        await self._parts.sleep(longer_s)
        return True

    async def _failed(self, asked: "_Asked", shown: "_Shown") -> ClientError:
        """Return what to tell when nobody answered whole."""
        recorder, failures = asked.recorder, asked.failures
        if shown is _Shown.TEXT and not isinstance(failures[-1], LocalUnavailableError):
            await recorder.stays(Outcome.CUT, failures[-1].reason)
            return IncompleteAnswerError(failures[-1].reason)
        if not any(isinstance(each, LocalUnavailableError) for each in failures):
            # Silence would say: it must stay, or nobody was asked.
            self._doors.cover_unless_sent(asked.query, recorder.decision, failures)
        if (queued := await self._put_by(asked)) is not None:
            return queued
        error = _unanswered(
            recorder.decision, failures, asked.plan, asked.query.options.require
        )
        if isinstance(error, NotRoutedError):
            error.final = self._forbidden(asked)
        return error

    def _forbidden(self, asked: "_Asked") -> bool:
        """Return whether the policy, and not a failure, is why no tier can be asked."""
        # What could not be looked at, or not under a policy in force, may be another
        # time: what is found then may permit what was asked for.
        if not _PASSING.isdisjoint(asked.recorder.decision.uncertain):
            return False
        if not _wanted(asked):
            return True
        # Consent that no person can be asked for is never given.
        unmet = FailureReason.UNMET_CONSENT
        return self._parts.consents is None and any(
            each.reason is unmet for each in asked.failures
        )

    async def _put_by(self, asked: "_Asked") -> QueuedError | None:
        """Let a query wait that nobody could answer; None: it may not, or need not."""
        if self._queue is None:
            return None
        reasons = [each.reason for each in asked.failures]
        if asked.plan.fallback is not None:
            reasons.append(asked.plan.fallback)
        known: list[int | None] = []
        if self._router is not None:  # which knows how long each wants to be left alone
            known = [self._router.left_alone_s(each.id) for each in _wanted(asked)]
        queued = await self._queue.put(
            asked.query,
            asked.recorder.decision,
            reasons,
            alone_s=min((each for each in known if each is not None), default=None),
            left=asked.recorder.let_out,
        )
        if queued is not None and not self._queue.asks_again:
            try:
                await asked.recorder.stays(Outcome.QUEUED, queued.reason)
            except asyncio.CancelledError:
                # Nobody has the ticket, so nobody is to be asked for it.
                await self._queue.drop(queued.ticket)
                raise
        return queued

    async def _drafted(
        self, asked: "_Asked", draft: Speculation, left: list[Tier]
    ) -> AsyncGenerator[SessionEvent]:
        """Yield the home model's draft, or in a race the enclave's answer instead.

        Raises:
            AnswererError: there is no draft, or it will not do: the next is asked.
        """
        # It can answer, only less well, which is better than that nobody does.
        left.append(draft.draft)
        verifier = draft.verifier(question_of(asked.query))
        async with AsyncExitStack() as stack:
            home = await self._writes(
                asked, asked.chosen(draft.draft, draft=True), stack
            )
            rival = None
            if draft.race:
                left.remove(draft.escalation)
                chosen = asked.chosen(draft.escalation)
                rival = await self._writes(asked, chosen, stack)
            answer = judged(home, rival, verifier, asked.stream, asked.failures)
            async with aclosing(answer) as events:
                async for event in events:
                    if isinstance(event, Verified) and (
                        rival is None or asked.failures
                    ):
                        # Only now is it known that nothing of it leaves, or has left.
                        self._doors.cover_unless_sent(
                            asked.query, asked.recorder.decision, asked.failures
                        )
                    yield event

    async def _hedged(
        self, asked: "_Asked", tier: Tier, left: list[Tier]
    ) -> AsyncGenerator[SessionEvent]:
        """Yield a tier's answer; of the next one if that begins before a late one.

        Raises:
            AnswererError: no whole answer was had.
        """
        router = self._router
        after_s = self._late_after_s(asked, tier) if left else None
        if router is None or after_s is None:
            chosen = replace(asked.chosen(tier), last=not left)
            answer = self._doors.answered(
                asked.recorder, chosen, asked.query, asked.stream
            )
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
            return
        async with AsyncExitStack() as stack:

            async def second() -> Writer | None:
                if not router.hedges.take():
                    return None
                chosen = replace(asked.chosen(left.pop(0)), hedge=True, last=not left)
                return await self._writes(asked, chosen, stack)

            chosen = replace(asked.chosen(tier), last=False)
            first = await self._writes(asked, chosen, stack)
            answer = sooner(first, after_s, second, asked.stream, asked.failures)
            async with aclosing(answer) as events:
                async for event in events:
                    yield event

    def _late_after_s(self, asked: "_Asked", tier: Tier) -> float | None:
        """Return when a tier is late that another may help out; None: nobody may."""
        router, estimate = self._router, asked.plan.estimate
        if router is None or estimate is None or router.plan.observe:
            return None
        # Two answers may cost more than what each of them was allowed to.
        if asked.query.options.max_cost_microusd is not None:
            return None
        # Of what is more private than that, being asked twice tells too much; and what
        # a person is to agree to is not asked on suspicion.
        if not self._lightly(asked.ways.permitted.routing_class):
            return None
        router.hedges.earn()
        view = router.views()[tier.id]
        return view.ttft_ms(estimate.prompt_tokens, slow=True) / 1000

    def _lightly(self, routing_class: RoutingClass) -> bool:
        """Tell whether a question of a class may be put to a second one."""
        return routing_class in SPECULATIVE and not self._doors.asks_about(
            routing_class
        )

    async def _writes(
        self, asked: "_Asked", chosen: Chosen, stack: AsyncExitStack
    ) -> Writer:
        says = Told(chosen.phase)
        answer = self._doors.answered(asked.recorder, chosen, asked.query, says)
        pump = await stack.enter_async_context(Pump(answer))
        return Writer(chosen.tier.id, pump, says)

    def _draft(
        self,
        router: Router,
        permitted: Ways,
        routed: Routed,
        query: Query,
        conversation: bytes,
    ) -> Speculation | None:
        """Return whether the local model is to write first."""
        for way in permitted.by_tier.values():
            # The whole question as it was asked, and nothing else, may be sent on.
            if (
                isinstance(way, AskEnclave)
                and not (way.rewritten or way.narrowed)
                and self._lightly(way.allowed.routing_class)
            ):
                return router.speculation(
                    way.allowed, routed, query, conversation=conversation
                )
        return None

    def _trace(self, line: TraceLine | None) -> None:
        """Have a line written; no answer waits for the disk."""
        if line is not None and self._parts.trace is not None:
            self._beside(asyncio.to_thread(self._parts.trace, line))

    async def _probed(self, enclave: Enclave, probe: Following) -> None:
        with suppress(EnclaveError), probe:
            await self._found(enclave)
            probe.there()
            if self._queue is not None:
                self._queue.reachable()

    def _beside(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        """Do something that no answer waits for; closing does."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _planned(self, query: Query, permitted: Ways) -> Plan:
        """Choose the order in which those who may answer are asked."""
        asked, router = query.options, self._router
        usual = _usual(permitted, asked)
        if router is None or router.plan.observe:
            _refuse_limits(asked)
        if router is None:
            self._observer.masked(permitted.permitted)
            return usual
        if self._enclave is not None:
            for probe in router.probes():
                task = self._beside(self._probed(self._enclave, probe))
                self._probes.add(task)
                task.add_done_callback(self._probes.discard)
        began_s = monotonic()
        # Where one tier is permitted, as for what is kept local, nothing reads the text
        # for what it asks, and no key of the conversation is made.
        conversation = None
        if router.chooses(permitted.permitted):
            conversation = permitted.conversation or self._keys.of(query)
            routed = router.route(permitted.permitted, query, conversation=conversation)
            router.asked(routed)
        else:
            routed = router.route_unread(
                permitted.permitted,
                asked,
                octets=query.octets,
                messages=len(query.messages),
                most=query.settings.max_tokens,
            )
        choice = routed.choice
        tiers = choice.order
        if router.plan.observe:
            self._observer.masked(permitted.permitted)
            first = tiers[0].id if tiers else None
            return replace(
                usual,
                estimate=routed.estimate,
                would_choose=first,
                conversation=conversation,
            )
        self._observer.chose(routed, monotonic() - began_s)
        too_long = choice.refusal is Refusal.CONTEXT_TOO_LONG
        if choice.refusal in _TRIED_ANYWAY or (too_long and router.plan.local.shortens):
            # The model of this machine says itself what it lacks, and what to do.
            tiers = tuple(
                each
                for each in permitted.permitted.tiers
                if isinstance(permitted.by_tier[each.id], AskLocal)
                and query.options.require in {None, Require.LOCAL}
                and dict(choice.denied).get(each.id) not in _LIMITS
            )
        refusal = choice.refusal
        refused = TooLongError if too_long else NotRoutedError
        return Plan(
            tiers=tiers,
            draft=(
                None
                if conversation is None
                else self._draft(router, permitted, routed, query, conversation)
            ),
            conversation=conversation,
            why=choice.reason.value,
            fallback=routed.fallback,
            estimate=routed.estimate,
            refusal=(
                None
                if refusal is None
                else refused(
                    refusal.value, router.remedy(routed, query.options.require)
                )
            ),
        )


@dataclass(slots=True)
class _Asked:
    """One query on its way; ``waited``: one that said 'later' was waited for."""

    recorder: QueryRecorder
    ways: Ways
    plan: Plan
    query: Query = field(repr=False)
    stream: AnswerStream
    began_s: float
    failures: list[AnswererError] = field(default_factory=list[AnswererError])
    waited: bool = False

    def chosen(self, tier: Tier, *, draft: bool = False) -> Chosen:
        """Return a tier of it to be asked now."""
        return Chosen(tier, self.ways, self.plan, tuple(self.failures), draft=draft)


class _Shown(Enum):
    """What whoever reads has of the answer."""

    NOTHING = 0
    DRAFT = 1
    TEXT = 2

    def after(self, event: SessionEvent) -> "_Shown":
        """Return the same after one more event."""
        match event:
            case Delta(tentative=True):
                return max(self, _Shown.DRAFT, key=lambda each: each.value)
            case Retract():
                return _Shown.NOTHING
            case Replaced():
                return self
            case Delta() | Verified() | Finished():
                return _Shown.TEXT


def _wanted(asked: _Asked) -> tuple[Tier, ...]:
    """Return the permitted tiers that its sender would have asked."""
    options, tiers = asked.query.options, asked.ways.permitted.tiers
    if options.require is not None:
        kind = options.require.kind
        return tuple(each for each in tiers if each.kind is kind)
    if options.mode is Mode.HOME:
        return tuple(each for each in tiers if each.kind is not TierKind.ATTESTED)
    return tiers


def _taken_back(failed: AnswererError) -> Retract:
    rejected = failed.reason is FailureReason.DRAFT_REJECTED
    why = RetractReason.NOT_GOOD_ENOUGH if rejected else RetractReason.BROKE_OFF
    return Retract(from_char=0, reason=why)


def _usual(permitted: Ways, asked: RoutingOptions) -> Plan:
    """Return the plan where nobody chooses; who asks may narrow it all the same."""
    tiers = permitted.usual(asked)
    if tiers or not permitted.permitted.tiers:
        return Plan(tiers=tiers)
    none, said = Refusal.HOME_UNAVAILABLE, REMEDIES[Refusal.HOME_UNAVAILABLE]
    if asked.require is not None:
        none = Refusal.REQUIRED_UNMET
        said = required_unmet(
            f"the policy permits no tier of the kind {asked.require.value!r}"
        )
    return Plan(tiers=(), refusal=NotRoutedError(none.value, said))


def _refuse_limits(asked: RoutingOptions) -> None:
    """Refuse what only who chooses could keep: prices and times are known to him.

    Raises:
        UsageError: there is such a limit.
    """
    for name, said in (
        ("max_cost", asked.max_cost_microusd is not None),
        ("slo_hard", asked.slo_hard),
    ):
        if said:
            raise UsageError(
                f"{name} needs a policy that chooses (routing, not observing)",
                param=name,
            )


def _unanswered(  # noqa: PLR0911 - one error each
    decision: Decision,
    failures: Sequence[AnswererError],
    plan: Plan,
    required: Require | None,
) -> ClientError:
    """Return what to tell when nobody was asked, or everybody failed."""
    if not failures:
        none = Refusal.NO_PERMITTED_TIER
        return plan.refusal or NotRoutedError(none.value, REMEDIES[none])
    *earlier, last = failures
    if required is not None and not isinstance(last, LocalUnavailableError):
        # Whoever required one kind is told so alike, whether it was tried or not.
        unmet = Refusal.REQUIRED_UNMET
        return NotRoutedError(unmet.value, required_unmet(str(last)))
    if not earlier:
        if isinstance(last, LocalUnavailableError):
            missed = plan.fallback
            if missed is not None and not missed.value.startswith("local_"):
                # It might have left, to one that failed just before and is left alone.
                return last.told_as(f"{EXPLAINED[missed]}, and on this machine: {last}")
            return last.told_as(
                f"this query must stay here (rule {decision.rule!r}), but {last}"
            )
        return last
    if isinstance(last, LocalUnavailableError):
        told = "; ".join(str(each) for each in earlier)
        return last.told_as(f"{told}, and on this machine: {last}")
    return last
