"""The tier of attested enclaves: what ``Allowed`` permits is sealed and sent."""

from contextlib import aclosing

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.answering.attempt import Answers, Attempt, Status
from curtilage.client.answering.planning import Planner
from curtilage.client.chat.query import Query
from curtilage.client.conversation.pinned import PinnedConversations
from curtilage.client.errors import EnclaveError
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.restore import AnswerRestorer
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.requests import ChatRequest
from curtilage.client.route import AskEnclave
from curtilage.policy.expectations import requirement_for


class EnclaveTier:
    """Asks the enclave, with the consent that the policy requires."""

    def __init__(
        self,
        parts: ClientParts,
        enclave: Enclave | None,
        pinned: PinnedConversations,
        planner: Planner,
    ) -> None:
        self._planner = planner
        self._parts = parts
        self._enclave = enclave
        self._pinned = pinned

    async def answer(
        self, attempt: Attempt, way: AskEnclave, query: Query, status: Status
    ) -> Answers:
        """Yield the enclave's answer, its pseudonyms replaced by the values.

        Raises:
            EnclaveError: there is no answer.
        """
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        case, policy = attempt.case, self._parts.policy
        # From here on the original must not be used: ``sent`` is what was decided, with
        # values replaced or earlier turns left out.
        sent = way.instead or query
        agreed = None
        if self._planner.asks_about(way.allowed.routing_class):
            from curtilage.client.answering.steps.consent import (  # noqa: PLC0415
                agreed_release,
            )

            agreed = await agreed_release(
                self._parts.consents,
                self.verified_key,
                way,
                sent,
                tier=attempt.tier,
                token=case.options.consent,
            )
        rewritten, part = way.rewritten, way.narrowed
        # Here and not at the enclave: the values behind the pseudonyms never leave this
        # device.
        restorer = rewritten and AnswerRestorer(
            rewritten.vault.values, formatted=sent.response_format is not None
        )

        def recorded(key: VerifiedKey) -> None:
            """Count the query as sent: it is recorded, and sealed next."""
            # The record is on the disk and nothing is sealed yet. Only now does the
            # query count as sent, and is it known which release answers.
            self._pinned.leaves(sent, way.allowed.routing_class)
            if self._parts.router is not None:
                # For later choices: this enclave can begin at once.
                shape = key.transport
                self._parts.router.ready(
                    attempt.tier,
                    life_s=(key.expires_at - self._parts.clock()).total_seconds(),
                    period_ms=shape.period_ms,
                    first_bucket=shape.frames_of(0) if shape.buckets else 0,
                    buckets=shape.buckets,
                )
            status.source = attempt.provenance(
                model=key.release, key=key, recorded=True
            )

        request = ChatRequest(
            allowed=way.allowed,
            tier=attempt.tier.id,
            payload=sent.payload(),
            records=(
                case.recorder
                if part is None
                else case.recorder.of_part(policy, part.inspection, part.decision)
            ),
            # Of the original, too: pseudonyms need what the data need.
            requirement=requirement_for(
                policy, {*case.recorder.decision.classes, *way.classes}
            ),
            agreed=agreed,
        )
        async with aclosing(self._enclave.ask(request, recorded)) as events:
            async for event in events:
                # A call that was not offered would be executed by a program.
                if not sent.expects(event):
                    raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)
                for each in [event] if restorer is None else restorer.push(event):
                    yield each

    async def verified_key(self) -> VerifiedKey:
        """Return the enclave's key in force; verifies one if necessary.

        Raises:
            EnclaveError: there is none that the policy accepts.
        """
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        return await self._enclave.verified_key()
