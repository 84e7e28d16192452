"""The public client: inspect, decide, then answer at home or ask the enclave.

Joins the steps; each of them lives in a module of its own. What ``decide``
kept home reaches the local model only: ``Remote.ask`` cannot be called without
the ``Allowed`` that such a decision does not carry. A query that may leave
without its names is rewritten, inspected and decided again, and has an
``Allowed`` of its own; its answer is restored before anybody sees it.
"""

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
from curtilage.client.audit.recorder import Case, TakeDown, record_dummy
from curtilage.client.audit.trail import Trail
from curtilage.client.errors import (
    UNMET,
    BlockedError,
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
    LocalUnavailableError,
)
from curtilage.client.pinned import Pins
from curtilage.client.pseudonyms.restore import AnswerRestorer
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.query import Query
from curtilage.client.receipt import ReceiptSecret
from curtilage.client.remote.cover import Cover, CoverSettings
from curtilage.client.remote.draining import MAX_RUNNING, TIMER, Drains, Timer
from curtilage.client.remote.enclave import (
    FIRST_EVENT_S,
    Departure,
    Remote,
    Renewal,
    Tell,
)
from curtilage.client.remote.keys import EnclaveBook, Refresher
from curtilage.client.remote.transport import KeyMirror, Transport
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
        book: the enclave's key and what the policy demands of it.
        audit: where each step is recorded; what cannot be recorded does not leave.
        absent: why there is no ``transport``, where there is none.
        mirror: an independent copy of the enclave's key list, if the policy
            names one.
        cover: when to send dummies, if the policy asks for any.
        advice: what a person should be told of the configuration.
        first_s: how long to wait for an enclave's answer to begin.
        most_running: how many sealed exchanges may run at a time.
        clock: the time, aware UTC.
        timer: what the pace of answers is measured by.
        tell: told what the person at this machine should know, such as that its
            clock is off; never a word of a query.
        renewal: makes what renews the enclave's key.
        take_down: takes exchanges down, for whoever wants to prove one later.
    """

    policy: Policy
    inspector: Inspects
    local: AnswersLocally
    transport: Transport | None
    book: EnclaveBook
    audit: Trail
    absent: FailureReason = FailureReason.NOT_CONFIGURED
    mirror: KeyMirror | None = None
    cover: CoverSettings | None = None
    advice: str | None = None
    first_s: float = FIRST_EVENT_S
    most_running: int = MAX_RUNNING
    clock: Callable[[], datetime] = _utc_now
    timer: Timer = TIMER
    tell: Tell | None = None
    renewal: Renewal = Refresher
    take_down: TakeDown | None = None


class Session:
    """One client with its detectors, its local model and its way out."""

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts
        self._pins = Pins()
        self._keys = ConversationKeys()
        self._remote: Remote | None = None
        self._cover: Cover | None = None
        if parts.transport is not None:
            self._remote = Remote(
                parts.transport,
                parts.book,
                parts.clock,
                first_s=parts.first_s,
                mirror=parts.mirror,
                drains=Drains(most=parts.most_running, timer=parts.timer),
                tell=parts.tell,
                renewal=parts.renewal,
            )
            if parts.cover is not None:
                self._cover = Cover(parts.cover, self._send_dummy)

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
        return self._parts.absent if self._remote is None else None

    @property
    def audit(self) -> Trail:
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
        if self._remote is None:
            raise EnclaveError(self._parts.absent)
        return await self._remote.verified_key()

    @property
    def unsettled(self) -> int:
        """How many exchanges and dummies still have to run to their end."""
        running = 0 if self._remote is None else self._remote.running
        return running + (0 if self._cover is None else self._cover.pending)

    async def settle(self) -> None:
        """Wait until every exchange has the length that it was to have.

        A padded answer that was cancelled, or is complete long before its
        bucket is full, stays on the wire until it is; dummies that wait are sent.
        """
        if self._cover is not None:
            await self._cover.settle()
        if self._remote is not None:
            await self._remote.settle()

    async def close(self) -> None:
        """Stop the detectors, free the model, settle, close every connection.

        Being cancelled while settling cuts off what still runs.
        """
        self._parts.inspector.close()
        await self._parts.local.close()
        try:
            await self.settle()
        finally:
            if self._cover is not None:
                await self._cover.close()
            if self._remote is not None:
                await self._remote.close()
            await self._parts.audit.close()

    async def _decided(self, query: Query) -> tuple[Case, Step]:
        policy = self._parts.policy
        inspection = await self._parts.inspector.ainspect(query)
        if self._pins.holds(query):
            inspection = replace(inspection, pinned=True)
        decision = decided = decide(policy, inspection)
        step = first_step(decision)
        if isinstance(step, Rewrite):
            step = await self._rewritten(query, inspection, decision)
            if isinstance(step, AskLocal):
                # What could not be replaced stays, with all that follows it.
                decided = replace(decision, route=Route.LOCAL)
        if pins(policy, inspection, decided):
            self._pins.add(query)
        telemetry.decided(decision.route)
        parts = self._parts
        case = Case(
            parts.audit, policy, inspection, decision, take_down=parts.take_down
        )
        return case, step

    async def _rewritten(
        self, query: Query, inspection: Inspection, decision: Decision
    ) -> Step:
        """Replace what was found, and let the detectors and the policy judge it."""
        policy = self._parts.policy
        found = findings_asked(policy, inspection, decision)
        rewritten = deidentify(query, found, key=self._keys.of(query))
        if isinstance(rewritten, Obstacle):
            return AskLocal(rewritten)
        again = await self._parts.inspector.ainspect(rewritten.reading)
        return after_rewriting(rewritten, decide(policy, rewritten.inspected(again)))

    async def _run(
        self, query: Query, stream: AnswerStream
    ) -> AsyncGenerator[AnswerEvent]:
        case, step = await self._decided(query)
        failure: EnclaveError | None = None
        if isinstance(step, AskEnclave):
            shown = False
            try:
                remote = self._from_enclave(case, step, query, stream)
                async with aclosing(remote) as events:
                    async for event in events:
                        shown = True
                        yield event
            except EnclaveError as error:
                failure = error.alone()
                telemetry.fallback(error.reason)
                step = after_enclave_failure(shown=shown)
            else:
                return
        if isinstance(step, AskLocal):
            own = self._at_home(case, step, query, stream, failure)
            async with aclosing(own) as events:
                async for event in events:
                    yield event
        else:
            if failure is None:
                self._cover_for(query)  # silence would say: blocked
            await _refuse(case, failure)

    async def _from_enclave(
        self, case: Case, step: AskEnclave, query: Query, stream: AnswerStream
    ) -> AsyncGenerator[AnswerEvent]:
        """Seal and send what ``step.allowed`` is about; yield what may be shown."""
        if self._remote is None:
            raise EnclaveError(self._parts.absent)
        rewritten, restorer = step.rewritten, None
        # As it was asked, too: what data need, their pseudonyms need.
        classes = {*case.decision.classes, *step.classes}
        if rewritten is not None:
            query, restorer = rewritten.query, AnswerRestorer(rewritten.vault.values)

        async def recorded(key: VerifiedKey) -> ReceiptSecret:
            secret = await case.leaves(step.allowed, key.verdict_id)
            stream.provenance = _provenance(
                case.decision,
                step,
                model=f"{key.release_name}/{key.release_version}",
                key=key,
                recorded=True,
            )
            return secret

        async def kept(key: VerifiedKey, secret: ReceiptSecret, receipt: bytes) -> None:
            await case.receipted(secret, key.receipt_public_key, receipt)

        departure = Departure(
            before=recorded,
            kept=kept,
            requirement=requirement_for(self._parts.policy, classes),
            before_challenge=self._record_challenge,
        )
        answer = self._remote.ask(step.allowed, query, departure)
        async with aclosing(answer) as events:
            async for event in events:
                for told in (event,) if restorer is None else restorer.push(event):
                    yield told
        telemetry.answered(Answerer.ENCLAVE)

    async def _at_home(
        self,
        case: Case,
        step: AskLocal,
        query: Query,
        stream: AnswerStream,
        failure: EnclaveError | None,
    ) -> AsyncGenerator[AnswerEvent]:
        fallback = None if failure is None else failure.reason
        stream.provenance = _provenance(
            case.decision,
            step,
            model=self._parts.local.model_id,
            fallback=fallback,
            recorded=await case.stays(Outcome.LOCAL, fallback),
        )
        if failure is None or failure.reason in UNMET:
            self._cover_for(query)  # nothing was sent of it
        try:
            async with aclosing(self._parts.local.generate(query)) as events:
                async for event in events:
                    yield event
        except LocalUnavailableError as error:
            raise error.told_as(_nobody(case.decision, failure, error)) from None
        telemetry.answered(Answerer.LOCAL)

    def _cover_for(self, query: Query) -> None:
        """Have a dummy sent for a query that nothing was sent of.

        One that is too large could not have left, whatever it says.
        """
        if self._cover is not None and self._remote is not None:
            with suppress(EnclaveError, UnicodeError):
                self._cover.answered_here(self._remote.size_class(query))

    async def _record_challenge(self, key: VerifiedKey, content: bytes) -> None:
        parts = self._parts
        await record_dummy(
            parts.audit,
            parts.policy,
            content,
            key.verdict_id,
            outcome=Outcome.CHALLENGE,
        )

    async def _send_dummy(self, size_class: int) -> None:
        parts = self._parts

        async def recorded(key: VerifiedKey, content: bytes) -> None:
            await record_dummy(parts.audit, parts.policy, content, key.verdict_id)

        if self._remote is not None:
            await self._remote.cover(size_class, before=recorded)


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


async def _refuse(case: Case, failure: EnclaveError | None) -> None:
    if failure is not None:
        await case.stays(Outcome.CUT, failure.reason)
        raise IncompleteAnswerError(failure.reason)
    await case.stays(Outcome.BLOCKED)
    decision = case.decision
    raise BlockedError(
        rule=decision.rule,
        reason=decision.reason,
        classes=decision.classes,
        policy_digest=decision.policy_digest,
    )


def _nobody(
    decision: Decision, failure: EnclaveError | None, error: LocalUnavailableError
) -> str:
    if failure is not None:
        return f"{failure}, and on this machine: {error}"
    return f"this query must stay here (rule {decision.rule!r}), but {error}"
