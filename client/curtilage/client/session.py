"""A session: one client with everything that it runs, from its start to its end.

The way of a query is ``answering.pipeline``. Here are the parts that outlive a query,
their health, and the order in which they are closed.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.answering.attempt import ANSWERERS
from curtilage.client.answering.pipeline import Pipeline
from curtilage.client.audit.recorder import CoverRecorder
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.chat.answer import Answer, Answerer
from curtilage.client.chat.model_names import ModelNames
from curtilage.client.chat.openai_chat import NAMES
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.query import Query
from curtilage.client.conversation.kept import UNSAVED_AT_END
from curtilage.client.conversation.pinned import (
    Contents,
    Digests,
    PinnedConversations,
)
from curtilage.client.errors import FailureReason, UsageError
from curtilage.client.failure_texts import NO_QUEUE
from curtilage.client.health import (
    PARTS,
    Condition,
    Evidence,
    Health,
    Part,
    Reason,
)
from curtilage.client.local.models_file import ModelsFile
from curtilage.client.parts import ClientParts, UnavailableLocal, demonstrates
from curtilage.client.remote.cover import CoverTraffic
from curtilage.client.remote.draining import ExchangeSupervisor
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.keys import KeySource
from curtilage.client.route import AskEnclave, AskLocal
from curtilage.client.routing.router import Router
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.permit import KEY_BYTES, PermitDesk
from curtilage.policy.decision.tiers import Tier, TierKind
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import WARNED_BEFORE, Currency

if TYPE_CHECKING:  # optional steps, which are not imported until a query needs them
    from curtilage.client.consent import Outbound, Stays
    from curtilage.client.queue.deferring import Deferring


class Session:
    """One client with its detectors, its local model and its way out."""

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts
        contents: Callable[[Digests], Contents] | None = None
        if parts.policy.rulebook.sticky == "content":
            from curtilage.client.conversation.contents import (  # noqa: PLC0415
                KeptContents,
            )

            contents = partial(KeptContents, languages=parts.policy.languages)
        self._pinned = PinnedConversations(
            contents=contents,
            by_message=parts.policy.routing is not None,
            kept=parts.kept,
            now_s=lambda: parts.clock().timestamp(),
        )
        # The only key of this process's permits; no other object holds it.
        desk = PermitDesk(secrets.token_bytes(KEY_BYTES), secrets.token_bytes)
        self._enclave = _enclave(parts, desk)
        self._cover: CoverTraffic | None = None
        if self._enclave is not None and parts.cover is not None:
            records = CoverRecorder(parts.audit, parts.policy)
            self._cover = CoverTraffic(parts.cover, self._enclave, records)
        self._queue = _queue(self, parts, way_out=self._enclave is not None)
        self._pipeline = Pipeline(
            parts,
            desk,
            self._enclave,
            self._cover,
            pinned=self._pinned,
            queue=self._queue,
        )
        self._observer = self._pipeline.observer
        self._evidence = Evidence()
        self._tiers = telemetry.names(
            each.id for each in parts.policy.rulebook.tiering.tiers
        )

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

    @property
    def router(self) -> Router | None:
        """The router that chooses among tiers; None: the policy chooses nothing."""
        return self._parts.router

    @property
    def local_model(self) -> str:
        """The local model's name for people."""
        return self._parts.local.model_id

    @property
    def demonstration(self) -> bool:
        """Whether the local model only shows that the path works."""
        return self._parts.demonstration

    @property
    def names(self) -> ModelNames:
        """The names of models that requests may use."""
        return NAMES if self._parts.named is None else self._parts.named.names

    def named(self, model: str) -> dict[str, object]:
        """Return what ``/v1/models`` says about a local model of the file.

        Raises:
            LocalModelError: there is none of this name.
        """
        local = self._parts.local_for(RoutingOptions(local_model=model))
        return {"local_model": local.model_id, "demonstration": demonstrates(local)}

    async def replace_models(self, file: ModelsFile) -> bool:
        """Take the local models and aliases of another file; see ``NamedModels``.

        Returns:
            Whether all were taken; those that were not are reported.

        Raises:
            ConfigError: it is wrong; nothing is changed.
            LocalUnavailableError: a model of it is not here; nothing is changed.
        """
        return self._parts.named is None or await self._parts.named.replace(file)

    @property
    def queue(self) -> "Deferring":
        """The questions that wait for an answer.

        Raises:
            UsageError: the policy lets none wait.
        """
        if self._queue is None:
            raise UsageError(NO_QUEUE, param="defer")
        return self._queue

    def health(self) -> Health:
        """Return how this client is: each of its parts, and which tiers can answer."""
        parts, now = self._parts, self._parts.clock()
        failing = self._observer.failing
        problem = parts.audit.problem
        audit = Condition(
            part=Part.AUDIT, reason=None if problem is None else Reason.AUDIT_FAILED
        )
        queue = self._queue is not None and self._queue.failing
        detectors = parts.detectors().condition
        signature = _signature(parts.currency, now)
        absent = {Answerer.ENCLAVE} if self._enclave is None else set[Answerer]()
        if isinstance(parts.local, UnavailableLocal):
            absent.add(Answerer.LOCAL)
        if audit.reason is not None:
            # What cannot be recorded is sent to no other machine.
            absent |= {Answerer.ENCLAVE, Answerer.ON_PREMISES}
        if detectors.reason or signature.reason is Reason.POLICY_NOT_CURRENT:
            # Every query is kept local, whatever it says.
            absent.add(Answerer.ENCLAVE)
        views = {} if parts.router is None else parts.router.views()
        tiers: list[tuple[Tier, bool]] = []
        for tier in parts.policy.rulebook.tiering.tiers:
            # With a router, the breaker decides when a tier is asked again.
            there = views[tier.id].available if tier.id in views else True
            if parts.router is None and tier.kind is not TierKind.IN_PROCESS:
                there = tier.id not in failing
            tiers.append((tier, there and ANSWERERS[tier.kind] not in absent))
        return Health(
            conditions=(
                *self._elsewhere(now),
                *(
                    Condition(
                        part=Part.ON_PREMISES,
                        tier=self._tiers[tier.id],
                        reason=failing.get(tier.id),
                    )
                    for tier in parts.policy.rulebook.tiering.tiers
                    if tier.kind is TierKind.ON_PREMISES
                ),
                self._model(),
                detectors,
                audit,
                Condition(
                    part=Part.QUEUE, reason=Reason.QUEUE_FAILED if queue else None
                ),
                signature,
            ),
            tiers=tuple(tiers),
        )

    def _elsewhere(self, now: datetime) -> Iterator[Condition]:
        """Yield how the way out is: the relay, the enclave, its evidence."""
        if self._enclave is None:
            return
        wrong = {
            PARTS[self._observer.failing[tier.id]]: self._observer.failing[tier.id]
            for tier in self._parts.policy.rulebook.tiering.tiers
            if tier.kind is TierKind.ATTESTED and tier.id in self._observer.failing
        }
        for part in (Part.RELAY, Part.ENCLAVE):
            yield Condition(part=part, reason=wrong.get(part))
        evidence = self._evidence.condition(self._enclave.evidence_until, now)
        # That it was refused says more than that it ends.
        yield replace(evidence, reason=wrong.get(Part.EVIDENCE, evidence.reason))

    def _model(self) -> Condition:
        local = self._parts.local
        if isinstance(local, UnavailableLocal):
            return Condition(part=Part.MODEL, reason=Reason.MODEL_MISSING)
        failing = self._observer.failing
        wrong = (
            failing.get(tier.id)
            for tier in self._parts.policy.rulebook.tiering.tiers
            if tier.kind is TierKind.IN_PROCESS
        )
        digests = local.digests
        loaded = digests is not None and digests[1] is not None
        return Condition(
            part=Part.MODEL, reason=next(filter(None, wrong), None), mark=int(loaded)
        )

    async def look(self) -> None:
        """Find out whether the enclave is there, without any question."""
        await self._pipeline.probes.look()

    async def decide(self, query: Query) -> Decision:
        """Inspect a query and decide where it may go.

        A what-if: nothing is sent or answered, and nothing is recorded.
        """
        case = await self._pipeline.decided(query)
        return case.recorder.decision

    async def outbound(self, query: Query) -> "Outbound | Stays":
        """Say what would be sealed of a query, and for whom; send nothing of it.

        The enclave's key is fetched and verified, if there is none in force.

        Raises:
            EnclaveError: there is no enclave that the policy accepts.
        """
        from curtilage.client.answering.steps.consent import outbound  # noqa: PLC0415
        from curtilage.client.consent import Stays  # noqa: PLC0415

        case = await self._pipeline.decided(query)
        ways = case.ways
        for tier in ways.permitted.tiers:
            way = ways.by_tier[tier.id]
            if isinstance(way, AskEnclave):
                key = await self.verified_key()
                sent = way.instead or query
                token = query.options.consent
                return outbound(key, way, sent, tier=tier, token=token)
        decision = case.recorder.decision
        kept = [
            way.boundary for way in ways.by_tier.values() if isinstance(way, AskLocal)
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
        stream = AnswerStream(
            partial(self._pipeline.run, query),
            answer_id=f"chatcmpl-{secrets.token_hex(12)}",
        )
        if self._parts.policy.routing is not None:
            budget_ms = self._parts.policy.routing.budgets.first_signal_ms
            stream.first_signal_s = budget_ms / 1000
        return stream

    def feedback(self, answer_id: str, *, good: bool) -> None:
        """Say whether an answer was good; once, of one of the last few thousand.

        It is counted by who gave the answer, and the trace has a line of it.

        Args:
            answer_id: ``Answer.id``; in the endpoint's answer its ``id``.
            good: whether it was.

        Raises:
            UsageError: no such answer is remembered.
        """
        now = self._parts.clock()
        self._pipeline.trace(self._observer.graded(answer_id, good=good, now=now))

    async def verified_key(self) -> VerifiedKey:
        """Return the enclave key in force, verifying first if need be.

        Raises:
            EnclaveError: there is none that the policy accepts.
        """
        return await self._pipeline.enclave.verified_key()

    @property
    def unsettled(self) -> int:
        """Number of exchanges and cover requests that have not yet run to their end."""
        running = 0 if self._enclave is None else self._enclave.running
        return running + (0 if self._cover is None else self._cover.pending)

    async def settle(self) -> None:
        """Wait until every exchange has its full length.

        A padded answer that was cancelled, or is complete long before its bucket is
        full, continues until it is; pending cover requests are sent. Background tasks
        end as well.
        """
        await self._pipeline.background.settle()
        if self._cover is not None:
            await self._cover.settle()
        if self._enclave is not None:
            await self._enclave.settle()

    async def close(self) -> None:
        """Stop the detectors, free the model, settle, close every connection.

        Being cancelled while settling cuts off what still runs.
        """
        # First what could begin something new, then what is under way, and the audit
        # trail last: everything that ends must be recorded.
        if self._queue is not None:
            await self._queue.close()
        self._parts.inspector.close()
        # A caller that closes has no more questions, and waits for no dead network.
        self._pipeline.probes.stop()
        await self._pipeline.close()
        try:
            await self.settle()
        finally:
            if self._cover is not None:
                await self._cover.close()
            if self._enclave is not None:
                await self._enclave.close()
            self._pipeline.background.close()
            saved = await asyncio.to_thread(self._pinned.close)
            if not saved and self._parts.notify is not None:
                self._parts.notify(UNSAVED_AT_END)
            await self._parts.audit.close()


def _enclave(parts: ClientParts, desk: PermitDesk) -> Enclave | None:
    """Return the way out; None: there is none."""
    if parts.transport is None:
        return None
    return Enclave(
        parts.transport,
        KeySource(
            parts.transport,
            parts.keys,
            parts.clock,
            desk,
            mirror=parts.mirror,
            sleep=parts.sleep,
            below=parts.below,
        ),
        parts.clock,
        desk,
        first_s=parts.first_s,
        supervisor=ExchangeSupervisor(most=parts.most_running, timer=parts.timer),
        notify=parts.notify,
        # One budget for all second attempts: if each kind had its own, a failure of all
        # would cause as many.
        retries=None if parts.router is None else parts.router.retries,
    )


def _queue(
    session: Session, parts: ClientParts, *, way_out: bool
) -> "Deferring | None":
    """Return the queue, if the policy has one."""
    plan = parts.policy.routing
    if plan is None or parts.queue is None:
        return None
    from curtilage.client.queue.deferring import Deferring  # noqa: PLC0415

    return Deferring(
        parts.queue,
        plan.ttl_s,
        session,
        now_ms=parts.now_ms,
        sleep=parts.sleep,
        below=parts.below,
        way_out=way_out,
        notify=parts.notify,
    )


def _signature(currency: Currency | None, now: datetime) -> Condition:
    """Return how the policy's signature is; where none is demanded, all is well."""
    if currency is None:
        return Condition(part=Part.POLICY)
    span = currency.span()
    if span is None or currency.problem(now) is not None:
        return Condition(part=Part.POLICY, reason=Reason.POLICY_NOT_CURRENT)
    until = span[1]
    reason = Reason.POLICY_EXPIRING if until - now < WARNED_BEFORE else None
    return Condition(part=Part.POLICY, reason=reason, until=until)
