"""The public client: inspect, decide, then answer at home or ask the enclave.

Joins the steps; each of them lives in a module of its own. What ``decide``
kept home reaches the local model only: ``Enclave.ask`` cannot be called without
the ``Allowed`` that such a decision does not carry. A query that may leave
without its names is rewritten, inspected and decided again, and has an
``Allowed`` of its own; its answer is restored before anybody sees it.
"""

import asyncio
import secrets
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Final, Self

from curtilage.attest.verify import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.answer import (
    Answer,
    Answerer,
    AnswerEvent,
    AnswerStream,
    Delta,
    Obstacle,
    Provenance,
)
from curtilage.client.audit.record import Outcome
from curtilage.client.audit.recorder import (
    CoverRecorder,
    QueryRecorder,
)
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.consent import Outbound, Stays
from curtilage.client.errors import (
    UNMET,
    AnswererError,
    BlockedError,
    ClientError,
    EnclaveError,
    FailureReason,
    HouseUnavailableError,
    IncompleteAnswerError,
    LocalUnavailableError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.narrowing import Narrowing
from curtilage.client.options import Require, RoutingOptions
from curtilage.client.parts import (
    ClientParts,
    UnavailableLocal,
)
from curtilage.client.pinned import Found, PinnedConversations
from curtilage.client.pseudonyms.restore import AnswerRestorer
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.query import Query
from curtilage.client.remote.cover import CoverTraffic
from curtilage.client.remote.draining import (
    ExchangeSupervisor,
)
from curtilage.client.remote.enclave import (
    AttemptRecorded,
    Enclave,
)
from curtilage.client.remote.keys import (
    KeySource,
)
from curtilage.client.remote.requests import ChatRequest
from curtilage.client.route import (
    AskEnclave,
    AskHouse,
    AskLocal,
    Plan,
    Rewrite,
    Way,
    Ways,
    after_rewriting,
    first_step,
    ways,
)
from curtilage.client.routing.router import REMEDIES, Following, required_unmet
from curtilage.client.routing.trace import TraceLine
from curtilage.client.routing.tracing import Tracing
from curtilage.client.routing.utility import Reason, Refusal
from curtilage.policy.decision.decide import Decision, decide, pins
from curtilage.policy.decision.permit import (
    KEY_BYTES,
    PermitDesk,
    PermitRefusedError,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import STICKY
from curtilage.policy.decision.tiers import Denial, Tier, TierKind
from curtilage.policy.document.model import Policy
from curtilage.policy.expectations import requirement_for

ANSWERERS: Final[Mapping[TierKind, Answerer]] = {
    TierKind.IN_PROCESS: Answerer.LOCAL,
    TierKind.HOUSE: Answerer.HOUSE,
    TierKind.ATTESTED: Answerer.ENCLAVE,
}


UNCHOSEN: Final = "usual"
"""Stands in the trace for a reason where nobody chose."""
_TRIED_ANYWAY: Final = frozenset(
    {Refusal.REQUIRED_UNMET, Refusal.HOME_UNAVAILABLE, Refusal.UNAVAILABLE}
)
_LIMITS: Final = frozenset({Denial.COST, Denial.SLO})
"""Not what a model lacks: what its asker would not have."""


class Session:
    """One client with its detectors, its local model and its way out."""

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts
        self._pinned = PinnedConversations(
            by_content=parts.policy.rulebook.sticky == "content",
            by_message=parts.policy.routing is not None,
            languages=parts.policy.languages,
        )
        self._narrowing = Narrowing(
            parts.policy,
            parts.inspector.ainspect,
            parts.local.generate,
            pinned=self._pinned,
            parameters=parts.parameters,
        )
        self._keys = ConversationKeys()
        self._router = parts.router
        # The one key of this process's permits, which nobody else ever holds.
        self._desk = PermitDesk(secrets.token_bytes(KEY_BYTES), secrets.token_bytes)
        self._houses = {
            tier: make(self._desk, self._now_ms) for tier, make in parts.houses.items()
        }
        self._running: set[asyncio.Task[object]] = set()
        self._probes: set[asyncio.Task[object]] = set()
        self._enclave: Enclave | None = None
        self._cover: CoverTraffic | None = None
        if parts.transport is None:
            return
        self._enclave = Enclave(
            parts.transport,
            KeySource(
                parts.transport,
                parts.keys,
                parts.clock,
                self._desk,
                mirror=parts.mirror,
                sleep=parts.sleep,
                below=parts.below,
            ),
            parts.clock,
            self._desk,
            first_s=parts.first_s,
            supervisor=ExchangeSupervisor(most=parts.most_running, timer=parts.timer),
            notify=parts.notify,
        )
        if parts.cover is not None:
            records = CoverRecorder(parts.audit, parts.policy)
            self._cover = CoverTraffic(parts.cover, self._enclave, records)

    async def __aenter__(self) -> Self:
        """Return the session."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()

    @property
    def absent(self) -> FailureReason | None:
        """Why no enclave can be asked, or None where one can."""
        return self._parts.absent if self._enclave is None else None

    @property
    def audit(self) -> AuditTrail:
        """The audit trail."""
        return self._parts.audit

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._parts.policy

    def tiers(self) -> Iterator[tuple[Tier, bool]]:
        """Yield the policy's tiers, and whether each may be asked just now."""
        views = {} if self._router is None else self._router.views()
        absent = {Answerer.ENCLAVE} if self._enclave is None else set[Answerer]()
        if isinstance(self._parts.local, UnavailableLocal):
            absent.add(Answerer.LOCAL)
        for tier in self._parts.policy.rulebook.tiering.tiers:
            there = tier.id not in views or views[tier.id].available
            yield tier, there and ANSWERERS[tier.kind] not in absent

    async def decide(self, query: Query) -> Decision:
        """Inspect a query and decide where it may go.

        A what-if: nothing is sent or answered, and nothing is recorded.
        """
        case, _ = await self._decided(query)
        return case.decision

    async def outbound(self, query: Query) -> Outbound | Stays:
        """Say what would be sealed of a query, and for whom; send nothing of it.

        The enclave's key is fetched and verified, if there is none in force.

        Raises:
            EnclaveError: there is no enclave that the policy accepts.
        """
        recorder, permitted = await self._decided(query)
        for tier in permitted.permitted.tiers:
            way = permitted.by_tier[tier.id]
            if isinstance(way, AskEnclave):
                return await self._outbound(way, way.sent_of(query), query, tier)
        decision = recorder.decision
        kept = [
            way.boundary
            for way in permitted.by_tier.values()
            if isinstance(way, AskLocal)
        ]
        return Stays(rule=decision.rule, reason=decision.reason, boundary="".join(kept))

    async def ask(self, query: Query) -> Answer:
        """Answer a query, whole.

        Raises:
            ClientError: see ``curtilage.client.errors``.
        """
        stream = self.stream(query)
        async for _ in stream:
            pass
        return stream.answer

    def stream(self, query: Query) -> AnswerStream:
        """Answer a query piece by piece."""
        return AnswerStream(lambda stream: self._run(query, stream))

    async def verified_key(self) -> VerifiedKey:
        """Return the enclave key in force, verifying first if need be.

        Raises:
            EnclaveError: there is none that the policy accepts.
        """
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        return await self._enclave.verified_key()

    @property
    def unsettled(self) -> int:
        """How many exchanges and cover requests still have to run to their end."""
        running = 0 if self._enclave is None else self._enclave.running
        return running + (0 if self._cover is None else self._cover.pending)

    async def settle(self) -> None:
        """Wait until every exchange has the length that it was to have.

        A padded answer that was cancelled, or is complete long before its
        bucket is full, stays on the wire until it is; cover requests that wait are
        sent. What is done beside the questions ends as well.
        """
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._cover is not None:
            await self._cover.settle()
        if self._enclave is not None:
            await self._enclave.settle()

    async def close(self) -> None:
        """Stop the detectors, free the model, settle, close every connection.

        Being cancelled while settling cuts off what still runs.
        """
        # What could still begin something first, then what is under way, and the
        # audit trail last: whatever ends must be able to be recorded.
        self._parts.inspector.close()
        # Whoever closes has no more questions, and waits for no dead network.
        for probe in self._probes:
            probe.cancel()
        await self._parts.local.close()
        for house in self._houses.values():
            await house.close()
        try:
            await self.settle()
        finally:
            if self._cover is not None:
                await self._cover.close()
            if self._enclave is not None:
                await self._enclave.close()
            for task in self._running:
                task.cancel()
            await self._parts.audit.close()

    async def _decided(self, query: Query) -> tuple[QueryRecorder, Ways]:
        """Inspect, decide, and where the policy asks for it rewrite and do so again."""
        policy = self._parts.policy
        # First, and whole: nobody is asked anything before all of it was looked at. A
        # detector that fails or is too slow is a finding, which keeps the query home.
        inspection = await self._parts.inspector.ainspect(query)
        # What stayed home once takes the turns that follow with it: a later one may
        # say nothing that is found, and still be about what was.
        seen = Found.of(policy.rulebook, inspection)
        inspection = replace(
            inspection,
            pinned=self._pinned.holds(query, seen),
            floor=query.options.floor,
        )
        decision = decided = decide(policy.rulebook, inspection)
        step = first_step(decision)
        if isinstance(step, Rewrite):
            found = findings_asked(policy, inspection, decision)
            rewritten = deidentify(query, found, key=self._keys.of(query))
            if isinstance(rewritten, Obstacle):
                step = AskLocal(rewritten)
            else:
                # What leaves is another text than the one that was judged, so the
                # detectors and the policy judge it again, with its stand-ins left out.
                again = await self._parts.inspector.ainspect(rewritten.reading)
                second = replace(
                    rewritten.inspected(again),
                    floor=decision.permitted.routing_class,
                )
                step = after_rewriting(rewritten, decide(policy.rulebook, second))
            if isinstance(step, AskLocal):
                # What could not be replaced stays, with all that follows it.
                decided = replace(decision, route=Route.LOCAL)
        if decision.route is Route.LOCAL and self._enclave is not None:
            taint = self._pinned.taint(query, seen)
            step = await self._narrowing.step(query, taint, inspection.floor)
            if isinstance(step, AskEnclave):
                # Of the conversation, which stays, the question is what leaves.
                last = Query(messages=query.messages[-1:])
                self._pinned.leaves(last, step.allowed.routing_class)
        # Before anybody answers: a caller that goes on at once is held to it as well.
        if pins(policy.rulebook, inspection, decided):
            own = [hit for hit in decision.rules if hit.id != STICKY]
            alone = any(hit.route in {Route.BLOCK, Route.LOCAL} for hit in own)
            self._pinned.add(query, seen, own=alone or not inspection.pinned)
        elif isinstance(step, AskEnclave):
            self._pinned.leaves(query, step.allowed.routing_class)
        telemetry.decided(decision.route)
        recorder = QueryRecorder(
            self._parts.audit,
            policy,
            inspection,
            decision,
            save_transcript=self._parts.save_transcript,
        )
        return recorder, ways(policy.rulebook.tiering, decision, step)

    async def _run(
        self, query: Query, stream: AnswerStream
    ) -> AsyncGenerator[AnswerEvent]:
        began_s = monotonic()
        recorder, permitted = await self._decided(query)
        decision = recorder.decision
        if decision.route is Route.BLOCK:
            self._cover_for(query, decision)  # silence would say: blocked
            await recorder.stays(Outcome.BLOCKED)
            raise BlockedError(
                rule=decision.rule,
                reason=decision.reason,
                classes=decision.classes,
                policy_digest=decision.policy_digest,
            )
        plan = self._planned(query, permitted)
        tracing = Tracing(
            began_s=began_s,
            estimate=plan.estimate,
            why=plan.why or UNCHOSEN,
            would_choose=plan.would_choose,
        )
        try:
            answer = self._tried(recorder, permitted, plan, query, stream)
            async with aclosing(answer) as events:
                async for event in events:
                    tracing.saw(event, monotonic())
                    yield event
        finally:
            # A line that cannot be made, of too many classes say, costs no answer.
            with suppress(UsageError):
                self._trace(
                    tracing.line(
                        query,
                        decision,
                        permitted.permitted,
                        stream.told,
                        at=self._parts.clock(),
                        now_s=monotonic(),
                    )
                )

    async def _tried(
        self,
        recorder: QueryRecorder,
        permitted: Ways,
        plan: Plan,
        query: Query,
        stream: AnswerStream,
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask one after the other until one answers."""
        failures: list[AnswererError] = []
        shown = False
        for tier in plan.tiers:
            chosen = _Chosen(tier, permitted, plan, tuple(failures))
            answer = self._answered(recorder, chosen, query, stream)
            try:
                async with aclosing(answer) as events:
                    async for event in events:
                        shown = True
                        yield event
            except AnswererError as error:
                failures.append(error.alone())
            else:
                return
            telemetry.fallback(failures[-1].reason)
            if shown:
                # Another model's answer would not go on with this one.
                break
        if shown and not isinstance(failures[-1], LocalUnavailableError):
            await recorder.stays(Outcome.CUT, failures[-1].reason)
            raise IncompleteAnswerError(failures[-1].reason)
        if not any(isinstance(each, LocalUnavailableError) for each in failures):
            # Silence would say: it must stay, or nobody was asked.
            self._cover_unless_sent(query, recorder.decision, failures)
        required = query.options.require
        raise _unanswered(recorder.decision, failures, plan.refusal, required)

    def _trace(self, line: TraceLine | None) -> None:
        """Have a line written; no answer waits for the disk."""
        if line is not None and self._parts.trace is not None:
            self._beside(asyncio.to_thread(self._parts.trace, line))

    async def _probed(self, enclave: Enclave, probe: Following) -> None:
        with suppress(EnclaveError), probe:
            await enclave.probe()
            probe.there()

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
            return usual
        if self._enclave is not None:
            for probe in router.probes():
                task = self._beside(self._probed(self._enclave, probe))
                self._probes.add(task)
                task.add_done_callback(self._probes.discard)
        routed = router.route(
            permitted.permitted, query, conversation=self._keys.of(query)
        )
        choice = routed.choice
        tiers = choice.order
        if router.plan.observe:
            first = tiers[0].id if tiers else None
            return replace(usual, estimate=routed.estimate, would_choose=first)
        if choice.refusal in _TRIED_ANYWAY:
            # The model of this machine says itself what it lacks, and what to do.
            tiers = tuple(
                each
                for each in permitted.permitted.tiers
                if isinstance(permitted.by_tier[each.id], AskLocal)
                and query.options.require in {None, Require.LOCAL}
                and dict(choice.denied).get(each.id) not in _LIMITS
            )
        refusal = choice.refusal
        return Plan(
            tiers=tiers,
            why=choice.reason.value,
            fallback=routed.fallback,
            estimate=routed.estimate,
            refusal=(
                None
                if refusal is None
                else NotRoutedError(
                    refusal.value, router.remedy(routed, query.options.require)
                )
            ),
        )

    async def _noted(
        self, query: Query, answer: AsyncGenerator[AnswerEvent], *, here: bool | None
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield an answer, and remember it: it may come back as a turn.

        ``here`` says of what: of a query that had to stay, or that may leave; None of
        neither.
        """
        said: list[str] = []
        try:
            async with aclosing(answer) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        said.append(event.text)
                    yield event
        finally:
            # Whoever stops reading has read what came.
            if here is not None:
                self._pinned.answered(query, "".join(said), here=here)

    async def _answered(
        self,
        recorder: QueryRecorder,
        chosen: "_Chosen",
        query: Query,
        stream: AnswerStream,
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask the one that was chosen, and remember its answer as a turn."""
        here = chosen.ways.here
        match chosen.way:
            case AskEnclave() as way:
                answer = self._from_enclave(recorder, chosen, way, query, stream)
                # Restored, an answer holds what was replaced on the way.
                here = None if way.rewritten is not None else False
            case AskHouse() as way:
                answer = self._in_house(recorder, chosen, way, query, stream)
            case AskLocal():
                answer = self._at_home(recorder, chosen, query, stream)
        router, estimate = self._router, chosen.plan.estimate
        following = (
            router.follow(chosen.tier, estimate) if router and estimate else None
        )
        with following or nullcontext():
            async with aclosing(self._noted(query, answer, here=here)) as events:
                async for event in events:
                    if following is not None:
                        following.saw(event)
                    yield event
        if router is not None:
            router.answered(self._keys.of(query), chosen.tier)
        telemetry.answered(chosen.answerer)

    async def _from_enclave(
        self,
        recorder: QueryRecorder,
        chosen: "_Chosen",
        step: AskEnclave,
        query: Query,
        stream: AnswerStream,
    ) -> AsyncGenerator[AnswerEvent]:
        """Seal and send what ``step.allowed`` is about; yield what may be shown."""
        # No way out, or none that could be believed: as good as one that failed.
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        sent = step.sent_of(query)
        agreed = await self._require_consent(step, sent, query, chosen.tier)
        rewritten = step.rewritten
        restorer = None if rewritten is None else AnswerRestorer(rewritten.vault.values)
        # As it was asked, too: what data need, their pseudonyms need.
        classes = {*recorder.decision.classes, *step.classes}
        part = step.narrowed
        request = ChatRequest(
            allowed=step.allowed,
            tier=chosen.tier.id,
            query=sent,
            records=(
                recorder
                if part is None
                else recorder.of_part(
                    self._parts.policy, part.inspection, part.decision
                )
            ),
            requirement=requirement_for(self._parts.policy, classes),
        )
        async with aclosing(self._enclave.ask(request)) as steps:
            async for event in steps:
                # The record is on the disk and nothing is sealed yet: from here on it
                # is true that the enclave answers, and which.
                if isinstance(event, AttemptRecorded):
                    key = event.key
                    # What a person agreed to is that this release reads it; a key may
                    # have been renewed while he thought.
                    if agreed is not None and agreed != _release(key):
                        raise EnclaveError(FailureReason.UNMET_CONSENT)
                    if self._router is not None:
                        shape = key.transport
                        self._router.ready(
                            chosen.tier,
                            life_s=(
                                key.expires_at - self._parts.clock()
                            ).total_seconds(),
                            period_ms=shape.period_ms,
                            first_bucket=shape.frames_of(0) if shape.buckets else 0,
                            buckets=shape.buckets,
                        )
                    stream.provenance = chosen.provenance(
                        recorder.decision,
                        model=_release(key),
                        key=key,
                        recorded=True,
                    )
                elif restorer is None:
                    yield event
                else:
                    for restored in restorer.push(event):
                        yield restored

    async def _require_consent(
        self, way: AskEnclave, sent: Query, asked: Query, tier: Tier
    ) -> str | None:
        """Ask whoever is to agree, where the policy wants that.

        Returns the release that he agreed to, or None where nobody had to.

        Raises:
            EnclaveError: nobody agreed, so nothing is sealed.
        """
        plan = self._parts.policy.routing
        # Of a class that is named, and of every more private one: a declaration, or the
        # cut from a conversation to its question, raises the class, and what was to be
        # asked about without it would leave unasked.
        if plan is None or not any(
            way.allowed.routing_class.privacy >= each.privacy for each in plan.consent
        ):
            return None
        consents = self._parts.consents
        if consents is not None:
            shown = await self._outbound(way, sent, asked, tier)
            answer = consents(shown)
            if (await answer if isinstance(answer, Awaitable) else answer) is True:
                return shown.release
        raise EnclaveError(FailureReason.UNMET_CONSENT)

    async def _outbound(
        self, way: AskEnclave, sent: Query, asked: Query, tier: Tier
    ) -> Outbound:
        key = await self.verified_key()
        return Outbound(
            payload=sent.payload(),
            payload_digest=way.allowed.payload_digest,
            routing_class=way.allowed.routing_class,
            tier=tier.id,
            release=_release(key),
            verdict_id=key.verdict_id,
            evidence=key.tee,
            deidentified=() if way.rewritten is None else way.rewritten.counts,
            boundary=way.boundary,
            token=asked.options.consent,
        )

    async def _in_house(
        self,
        recorder: QueryRecorder,
        chosen: "_Chosen",
        way: AskHouse,
        query: Query,
        stream: AnswerStream,
    ) -> AsyncGenerator[AnswerEvent]:
        """Tell a server in the house what ``way.allowed`` is about."""
        house = self._houses[chosen.tier.id]
        # On the disk first, as for what leaves: whoever reads the trail must find every
        # machine that was told.
        await recorder.told_in_house(way.allowed)
        stream.provenance = chosen.provenance(
            recorder.decision, model=house.model_id, recorded=True
        )
        self._cover_unless_sent(query, recorder.decision, chosen.failures)
        try:
            permit = self._desk.mint_house(
                way.allowed,
                tier=chosen.tier.id,
                server_digest=house.digest,
                attempt=len(chosen.failures),
                now_ms=self._now_ms(),
            )
            async with aclosing(house.generate(permit, query)) as events:
                async for event in events:
                    yield event
        except PermitRefusedError as refused:
            # As with an enclave: another may answer, and this one was told nothing.
            raise HouseUnavailableError(
                FailureReason.NOT_PERMITTED, code=refused.refusal.value
            ) from None

    def _now_ms(self) -> int:
        return int(self._parts.clock().timestamp() * 1000)

    async def _at_home(
        self,
        recorder: QueryRecorder,
        chosen: "_Chosen",
        query: Query,
        stream: AnswerStream,
    ) -> AsyncGenerator[AnswerEvent]:
        # Nothing of what follows knows a way out: this model runs in this process.
        fallback = chosen.fallback
        stream.provenance = chosen.provenance(
            recorder.decision,
            model=self._parts.local.model_id,
            recorded=await recorder.stays(Outcome.LOCAL, fallback),
        )
        self._cover_unless_sent(query, recorder.decision, chosen.failures)
        async with aclosing(self._parts.local.generate(query)) as events:
            async for event in events:
                yield event

    def _cover_unless_sent(
        self, query: Query, decision: Decision, failures: Sequence[AnswererError]
    ) -> None:
        """Cover a query of which nothing was sent, once."""
        sent = any(
            isinstance(each, EnclaveError) and each.reason not in UNMET
            for each in failures
        )
        covered = any(isinstance(each, HouseUnavailableError) for each in failures)
        if not sent and not covered:
            self._cover_for(query, decision)

    def _cover_for(self, query: Query, decision: Decision) -> None:
        """Have a cover request sent for a query that nothing was sent of.

        One that is too large could not have left, whatever it says.
        """
        policy = self._parts.policy
        if policy.transport.cover is not None and not policy.wants_cover(decision):
            return
        # Its size class is all that goes any further; the text stays here.
        if self._cover is not None and self._enclave is not None:
            with suppress(EnclaveError, UnicodeError):
                self._cover.answered_here(self._enclave.size_class(query))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One tier that is asked, and what led to it.

    Attributes:
        tier: the tier.
        ways: all that might have been asked.
        plan: in which order they are asked, and why.
        failures: of those that were asked before it.
    """

    tier: Tier
    ways: Ways
    plan: Plan
    failures: tuple[AnswererError, ...]

    @property
    def way(self) -> Way:
        """How it is asked."""
        return self.ways.by_tier[self.tier.id]

    @property
    def answerer(self) -> Answerer:
        """What it is called where answers are told."""
        return ANSWERERS[self.tier.kind]

    @property
    def fallback(self) -> FailureReason | None:
        """Why one that might have come before does not answer."""
        return self.failures[0].reason if self.failures else self.plan.fallback

    def provenance(
        self,
        decision: Decision,
        *,
        model: str,
        key: VerifiedKey | None = None,
        recorded: bool,
    ) -> Provenance:
        """Say where the answer comes from."""
        way, why = self.way, self.plan.why
        rewritten = way.rewritten if isinstance(way, AskEnclave) else None
        return Provenance(
            route=self.answerer,
            model=model,
            classes=decision.classes,
            rule=decision.rule,
            reason=decision.reason,
            policy_digest=decision.policy_digest,
            uncertain=decision.uncertain,
            verdict_id=None if key is None else key.verdict_id,
            evidence=None if key is None else key.tee,
            fallback=self.fallback,
            recorded=recorded,
            deidentified=() if rewritten is None else rewritten.counts,
            obstacle=way.obstacle if isinstance(way, AskLocal) else None,
            boundary="" if isinstance(way, AskHouse) else way.boundary,
            tier=self.tier.id,
            why=Reason.UNAVAILABLE if self.failures and why else why,
        )


def _release(key: VerifiedKey) -> str:
    return f"{key.release_name}/{key.release_version}"


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


def _unanswered(
    decision: Decision,
    failures: Sequence[AnswererError],
    refusal: NotRoutedError | None,
    required: Require | None,
) -> ClientError:
    """Return what to tell when nobody was asked, or everybody failed."""
    if not failures:
        none = Refusal.NO_PERMITTED_TIER
        return refusal or NotRoutedError(none.value, REMEDIES[none])
    *earlier, last = failures
    if required is not None and not isinstance(last, LocalUnavailableError):
        # Whoever required one kind is told so alike, whether it was tried or not.
        unmet = Refusal.REQUIRED_UNMET
        return NotRoutedError(unmet.value, required_unmet(str(last)))
    if not earlier:
        if isinstance(last, LocalUnavailableError):
            return last.told_as(
                f"this query must stay here (rule {decision.rule!r}), but {last}"
            )
        return last
    told = [str(each) for each in failures]
    if isinstance(last, LocalUnavailableError):
        return last.told_as("; ".join(told[:-1]) + f", and on this machine: {last}")
    return last
