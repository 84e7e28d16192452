"""The public client: inspect, decide, then answer at home or ask the enclave.

Joins the steps; each of them lives in a module of its own. What ``decide``
kept home reaches the local model only: ``Enclave.ask`` cannot be called without
the ``Allowed`` that such a decision does not carry. A query that may leave
without its names is rewritten, inspected and decided again, and has an
``Allowed`` of its own; its answer is restored before anybody sees it.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

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
    SaveTranscript,
)
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.errors import (
    UNMET,
    BlockedError,
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
    LocalUnavailableError,
)
from curtilage.client.pinned import Found, PinnedConversations
from curtilage.client.pseudonyms.restore import AnswerRestorer
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.query import Query
from curtilage.client.remote.cover import CoverSettings, CoverTraffic
from curtilage.client.remote.draining import (
    MAX_RUNNING,
    TIMER,
    ExchangeSupervisor,
    Timer,
)
from curtilage.client.remote.enclave import (
    FIRST_EVENT_S,
    AttemptRecorded,
    Enclave,
    Notify,
    Transport,
)
from curtilage.client.remote.keys import (
    KeyMirror,
    KeySource,
    KeyStore,
    RandomBelow,
    Sleep,
)
from curtilage.client.remote.requests import ChatRequest
from curtilage.client.route import (
    AskEnclave,
    AskLocal,
    Rewrite,
    Step,
    after_enclave_failure,
    after_rewriting,
    first_step,
)
from curtilage.policy.decision.decide import Decision, Inspection, decide, pins
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import STICKY
from curtilage.policy.document.model import Policy
from curtilage.policy.expectations import requirement_for


class Inspects(Protocol):
    """What the session needs of the detectors."""

    async def ainspect(self, query: Query) -> Inspection:
        """Return everything found in a query; a failure is a finding too."""
        ...

    def close(self) -> None:
        """Stop the detectors."""
        ...


class AnswersLocally(Protocol):
    """What the session needs of the local model."""

    @property
    def model_id(self) -> str:
        """The model's name for people."""
        ...

    def generate(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        """Answer a query on this machine.

        Raises:
            LocalUnavailableError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class UnavailableLocal:
    """Stands where a local model would: says why there is none.

    Attributes:
        reason: what is missing and what to do.
        model_id: stands where a model's name would.
    """

    model_id = "none"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def generate(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        """Refuse.

        Raises:
            LocalUnavailableError: always.
        """
        del query
        for _ in ():  # makes this a generator, like a model's
            yield Delta(text="")
        raise LocalUnavailableError(self.reason)

    async def close(self) -> None:
        """Do nothing."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """What a client is made of; tests put in-memory counterparts here.

    Attributes:
        policy: what may go where.
        inspector: the detectors.
        local: the local model; where there is none, ``UnavailableLocal``.
        transport: the way to the relay, or None: everything stays.
        keys: the enclave's key and what the policy demands of it.
        audit: where each step is recorded; what cannot be recorded does not leave.
        absent: why there is no ``transport``, where there is none.
        mirror: an independent copy of the enclave's key list, if the policy
            names one.
        cover: when to send cover requests, if the policy asks for any.
        advice: what a person should know of the configuration.
        first_s: how long to wait for an enclave's answer to begin.
        most_running: how many sealed exchanges may run at a time.
        clock: the time, aware UTC.
        timer: what the pace of answers is measured by.
        sleep: waits for the time at which the enclave's key is renewed.
        below: randomness of that time.
        notify: takes what the person at this machine should know, such as that its
            clock is off; never a word of a query.
        save_transcript: saves exchanges, to prove one later.
    """

    policy: Policy
    inspector: Inspects
    local: AnswersLocally
    transport: Transport | None
    keys: KeyStore
    audit: AuditTrail
    absent: FailureReason = FailureReason.NOT_CONFIGURED
    mirror: KeyMirror | None = None
    cover: CoverSettings | None = None
    advice: str | None = None
    first_s: float = FIRST_EVENT_S
    most_running: int = MAX_RUNNING
    clock: Callable[[], datetime] = _utc_now
    timer: Timer = TIMER
    sleep: Sleep = asyncio.sleep
    below: RandomBelow = secrets.randbelow
    notify: Notify | None = None
    save_transcript: SaveTranscript | None = None


class Session:
    """One client with its detectors, its local model and its way out."""

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts
        self._pinned = PinnedConversations(
            by_content=parts.policy.rulebook.sticky == "content",
            languages=parts.policy.languages,
        )
        self._keys = ConversationKeys()
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
                mirror=parts.mirror,
                sleep=parts.sleep,
                below=parts.below,
            ),
            parts.clock,
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

    async def decide(self, query: Query) -> Decision:
        """Inspect a query and decide where it may go.

        A what-if: nothing is sent or answered, and nothing is recorded.
        """
        case, _ = await self._decided(query)
        return case.decision

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
        sent.
        """
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
        await self._parts.local.close()
        try:
            await self.settle()
        finally:
            if self._cover is not None:
                await self._cover.close()
            if self._enclave is not None:
                await self._enclave.close()
            await self._parts.audit.close()

    async def _decided(self, query: Query) -> tuple[QueryRecorder, Step]:
        """Inspect, decide, and where the policy asks for it rewrite and do so again."""
        policy = self._parts.policy
        # First, and whole: nobody is asked anything before all of it was looked at. A
        # detector that fails or is too slow is a finding, which keeps the query home.
        inspection = await self._parts.inspector.ainspect(query)
        # What stayed home once takes the turns that follow with it: a later one may
        # say nothing that is found, and still be about what was.
        seen = Found.of(policy.rulebook, inspection)
        if self._pinned.holds(query, seen):
            inspection = replace(inspection, pinned=True)
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
                second = decide(policy.rulebook, rewritten.inspected(again))
                step = after_rewriting(rewritten, second)
            if isinstance(step, AskLocal):
                # What could not be replaced stays, with all that follows it.
                decided = replace(decision, route=Route.LOCAL)
        # Before anybody answers: a caller that goes on at once is held to it as well.
        if pins(policy.rulebook, inspection, decided):
            own = [hit for hit in decision.rules if hit.id != STICKY]
            alone = any(hit.route in {Route.BLOCK, Route.LOCAL} for hit in own)
            self._pinned.add(query, seen, own=alone or not inspection.pinned)
        elif isinstance(step, AskEnclave):
            self._pinned.leaves(query)
        telemetry.decided(decision.route)
        recorder = QueryRecorder(
            self._parts.audit,
            policy,
            inspection,
            decision,
            save_transcript=self._parts.save_transcript,
        )
        return recorder, step

    async def _run(
        self, query: Query, stream: AnswerStream
    ) -> AsyncGenerator[AnswerEvent]:
        recorder, step = await self._decided(query)
        failure: EnclaveError | None = None
        if isinstance(step, AskEnclave):
            shown = False
            try:
                remote = self._from_enclave(recorder, step, query, stream)
                # Restored, an answer holds what was replaced on the way.
                here = None if step.rewritten is not None else False
                async with aclosing(self._noted(query, remote, here=here)) as events:
                    async for event in events:
                        shown = True
                        yield event
            except EnclaveError as error:
                # The only way from the enclave is home. There is no retry here, and no
                # other enclave.
                failure = error.alone()
                telemetry.fallback(error.reason)
                step = after_enclave_failure(shown=shown)
            else:
                return
        if isinstance(step, AskLocal):
            own = self._at_home(recorder, step, query, stream, failure)
            noted = self._noted(query, own, here=failure is None)
            async with aclosing(noted) as events:
                async for event in events:
                    yield event
        elif failure is not None:
            # A part of the answer was shown: another model's would not go on with it.
            await recorder.stays(Outcome.CUT, failure.reason)
            raise IncompleteAnswerError(failure.reason)
        else:
            self._cover_for(query)  # silence would say: blocked
            await recorder.stays(Outcome.BLOCKED)
            decision = recorder.decision
            raise BlockedError(
                rule=decision.rule,
                reason=decision.reason,
                classes=decision.classes,
                policy_digest=decision.policy_digest,
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

    async def _from_enclave(
        self,
        recorder: QueryRecorder,
        step: AskEnclave,
        query: Query,
        stream: AnswerStream,
    ) -> AsyncGenerator[AnswerEvent]:
        """Seal and send what ``step.allowed`` is about; yield what may be shown."""
        # No way out, or none that could be believed: as good as one that failed.
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        rewritten, restorer = step.rewritten, None
        if rewritten is not None:
            query, restorer = rewritten.query, AnswerRestorer(rewritten.vault.values)
        # As it was asked, too: what data need, their pseudonyms need.
        classes = {*recorder.decision.classes, *step.classes}
        request = ChatRequest(
            allowed=step.allowed,
            query=query,
            records=recorder,
            requirement=requirement_for(self._parts.policy, classes),
        )
        async with aclosing(self._enclave.ask(request)) as steps:
            async for event in steps:
                # The record is on the disk and nothing is sealed yet: from here on it
                # is true that the enclave answers, and which.
                if isinstance(event, AttemptRecorded):
                    key = event.key
                    stream.provenance = _provenance(
                        recorder.decision,
                        step,
                        model=f"{key.release_name}/{key.release_version}",
                        key=key,
                        recorded=True,
                    )
                elif restorer is None:
                    yield event
                else:
                    for restored in restorer.push(event):
                        yield restored
        telemetry.answered(Answerer.ENCLAVE)

    async def _at_home(
        self,
        recorder: QueryRecorder,
        step: AskLocal,
        query: Query,
        stream: AnswerStream,
        failure: EnclaveError | None,
    ) -> AsyncGenerator[AnswerEvent]:
        # Nothing of what follows knows a way out: this model runs in this process.
        decision = recorder.decision
        fallback = None if failure is None else failure.reason
        stream.provenance = _provenance(
            decision,
            step,
            model=self._parts.local.model_id,
            fallback=fallback,
            recorded=await recorder.stays(Outcome.LOCAL, fallback),
        )
        if failure is None or failure.reason in UNMET:
            self._cover_for(query)  # nothing was sent of it
        try:
            async with aclosing(self._parts.local.generate(query)) as events:
                async for event in events:
                    yield event
        except LocalUnavailableError as error:
            why = f"this query must stay here (rule {decision.rule!r}), but {error}"
            if failure is not None:
                why = f"{failure}, and on this machine: {error}"
            raise error.told_as(why) from None
        telemetry.answered(Answerer.LOCAL)

    def _cover_for(self, query: Query) -> None:
        """Have a cover request sent for a query that nothing was sent of.

        One that is too large could not have left, whatever it says.
        """
        # Its size class is all that goes any further; the text stays here.
        if self._cover is not None and self._enclave is not None:
            with suppress(EnclaveError, UnicodeError):
                self._cover.answered_here(self._enclave.size_class(query))


def _provenance(
    decision: Decision,
    step: AskEnclave | AskLocal,
    *,
    model: str,
    key: VerifiedKey | None = None,
    fallback: FailureReason | None = None,
    recorded: bool,
) -> Provenance:
    asked = step if isinstance(step, AskEnclave) else None
    rewritten = None if asked is None else asked.rewritten
    return Provenance(
        route=Answerer.LOCAL if asked is None else Answerer.ENCLAVE,
        model=model,
        classes=decision.classes,
        rule=decision.rule,
        reason=decision.reason,
        policy_digest=decision.policy_digest,
        uncertain=decision.uncertain,
        verdict_id=None if key is None else key.verdict_id,
        evidence=None if key is None else key.tee,
        fallback=fallback,
        recorded=recorded,
        deidentified=() if rewritten is None else rewritten.counts,
        obstacle=step.obstacle if isinstance(step, AskLocal) else None,
    )
