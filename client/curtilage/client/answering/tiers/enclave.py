"""The tier of attested enclaves: what ``Allowed`` permits is sealed and sent."""

from contextlib import aclosing

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.answering.attempt import Answers, Attempt, Status, release_of
from curtilage.client.conversation.pinned import PinnedConversations
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.restore import AnswerRestorer
from curtilage.client.query import Query
from curtilage.client.remote.enclave import AttemptRecorded, Enclave
from curtilage.client.remote.requests import ChatRequest
from curtilage.client.route import AskEnclave
from curtilage.policy.decision.tiers import RoutingClass, Tier
from curtilage.policy.expectations import requirement_for


class EnclaveTier:
    """Asks the enclave, with the consent that the policy requires.

    Args:
        parts: what the client is made of.
        enclave: the way out; None: there is none.
        pinned: remembers what was sent of a conversation.
    """

    def __init__(
        self, parts: ClientParts, enclave: Enclave | None, pinned: PinnedConversations
    ) -> None:
        self._parts = parts
        self._enclave = enclave
        self._pinned = pinned

    async def answer(
        self, attempt: Attempt, way: AskEnclave, status: Status
    ) -> Answers:
        """Yield the enclave's answer, its pseudonyms replaced by the values.

        Raises:
            EnclaveError: there is no answer.
        """
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        case, policy = attempt.case, self._parts.policy
        sent = way.sent_of(case.query)
        agreed = await self._agreed(attempt, way, sent)
        restorer = (
            None
            if way.rewritten is None
            else AnswerRestorer(way.rewritten.vault.values)
        )
        recorder, part = case.recorder, way.narrowed
        if part is not None:
            recorder = recorder.of_part(policy, part.inspection, part.decision)
        request = ChatRequest(
            allowed=way.allowed,
            tier=attempt.tier.id,
            payload=sent.payload(),
            records=recorder,
            # Of the original, too: pseudonyms need what the data need.
            requirement=requirement_for(
                policy, {*case.recorder.decision.classes, *way.classes}
            ),
        )
        async with aclosing(self._enclave.ask(request)) as steps:
            async for event in steps:
                if isinstance(event, AttemptRecorded):
                    # Consent is for one release; the key may have been renewed since.
                    if agreed is not None and agreed != release_of(event.key):
                        raise EnclaveError(FailureReason.UNMET_CONSENT)
                    # The record is on the disk and nothing is sealed yet. Only now does
                    # the query count as sent, and is it known which release answers.
                    self._pinned.leaves(sent, way.allowed.routing_class)
                    self._note_ready(attempt.tier, event.key)
                    status.set_source(
                        attempt.provenance(
                            model=release_of(event.key), key=event.key, recorded=True
                        )
                    )
                elif restorer is None:
                    yield event
                else:
                    for restored in restorer.push(event):
                        yield restored

    async def _agreed(
        self, attempt: Attempt, way: AskEnclave, sent: Query
    ) -> str | None:
        """Return the release that consent was given for; None: none is required.

        Raises:
            EnclaveError: consent was not given, so nothing is sealed.
        """
        if not self.asks_about(way.allowed.routing_class):
            return None
        from curtilage.client.answering.steps.consent import (  # noqa: PLC0415
            agreed_release,
            outbound,
        )

        consents = self._parts.consents
        if consents is None:
            raise EnclaveError(FailureReason.UNMET_CONSENT)
        key = await self.verified_key()
        asked = attempt.case.query
        return await agreed_release(
            consents, outbound(key, way, sent, tier=attempt.tier, asked=asked)
        )

    def asks_about(self, routing_class: RoutingClass) -> bool:
        """Return whether a query of a class is sent only with consent."""
        plan = self._parts.policy.routing
        return plan is not None and plan.asks_first(routing_class)

    async def verified_key(self) -> VerifiedKey:
        """Return the enclave's key in force; verifies one if necessary.

        Raises:
            EnclaveError: there is none that the policy accepts.
        """
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        return await self._enclave.verified_key()

    def _note_ready(self, tier: Tier, key: VerifiedKey) -> None:
        """Note for later choices that this enclave can begin at once."""
        if self._parts.router is None:
            return
        shape = key.transport
        self._parts.router.ready(
            tier,
            life_s=(key.expires_at - self._parts.clock()).total_seconds(),
            period_ms=shape.period_ms,
            first_bucket=shape.frames_of(0) if shape.buckets else 0,
            buckets=shape.buckets,
        )
