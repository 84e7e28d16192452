"""One query on its way: what was decided, and each step of it in the audit trail.

A step that lets something leave is recorded before it is taken, and not taken
if it cannot be recorded. A step that stays on this machine is taken anyway: it
shows nobody anything, and the caller is told that it is not in the trail.
"""

import hashlib
import secrets
from collections.abc import Callable

from curtilage.client.audit.record import (
    QUERY_ID_BYTES,
    RECEIPT_ID_BYTES,
    AuditEntry,
    Outcome,
    ReceiptEntry,
    histogram,
)
from curtilage.client.audit.trail import Trail
from curtilage.client.errors import AuditError, EnclaveError, FailureReason
from curtilage.client.receipt import ReceiptSecret, Transcript
from curtilage.policy.decision.decide import Allowed, Decision, Inspection
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy

COVER_RULE = "transport.cover"
"""Stands where a rule's id would: no rule of the policy decided this."""


CHALLENGE_RULE = "attestation.challenge"
"""The same for a challenge: the policy asks for it, of the enclave."""


async def record_dummy(
    trail: Trail,
    policy: Policy,
    content: bytes,
    verdict_id: str,
    *,
    outcome: Outcome = Outcome.COVER,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> None:
    """Record that a dummy or a challenge is about to be sealed.

    Nothing is, if this raises. The record names no query and no class. It
    commits to what is said, so whoever holds the organisation's key can see that
    it says nothing else.

    Args:
        trail: where it is recorded.
        policy: the policy that asks for dummies.
        content: all that the dummy says.
        verdict_id: the evidence relied upon.
        outcome: ``COVER`` or ``CHALLENGE``.
        random: makes the id that no other record has.

    Raises:
        EnclaveError: it cannot be recorded, so it must not leave.
    """
    entry = AuditEntry(
        query=random(QUERY_ID_BYTES).hex(),
        attempt=1,
        policy=policy.digest,
        classes={},
        route=Route.ENCLAVE,
        outcome=outcome,
        rule=COVER_RULE if outcome is Outcome.COVER else CHALLENGE_RULE,
        verdict=verdict_id,
        messages=0,
        payload_digest=hashlib.sha256(content).digest(),
    )
    try:
        await trail.append(entry)
    except AuditError:
        raise EnclaveError(FailureReason.AUDIT_FAILED) from None


TakeDown = Callable[[str, Transcript], None]


class Case:
    """One query, from its decision to its last step.

    Args:
        trail: where the steps are recorded.
        policy: the policy that was applied.
        inspection: what was found.
        decision: what followed from it.
        take_down: takes the exchange down whose receipt was kept, with the id
            of its query; None: nobody does.
        random: makes the id that joins the records of one query.

    Attributes:
        decision: the same.
    """

    def __init__(
        self,
        trail: Trail,
        policy: Policy,
        inspection: Inspection,
        decision: Decision,
        *,
        take_down: TakeDown | None = None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.decision = decision
        self._take_down = take_down
        self._trail = trail
        self._classes = histogram(inspection.findings, decision, policy.classes)
        self._messages = inspection.messages
        self._payload_digest = inspection.payload_digest
        self._random = random
        self._id = random(QUERY_ID_BYTES).hex()
        self._attempts = 0

    async def leaves(self, allowed: Allowed, verdict_id: str) -> ReceiptSecret:
        """Record that a payload is about to be sealed; nothing is, if this raises.

        Returns the secret for its receipt: the organisation's, or one that
        nobody can make again where there is no key.

        Args:
            allowed: the payload that leaves, which need not be the one that was
                asked: it is this one that the record commits to.
            verdict_id: the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not leave.
        """
        try:
            await self._record(
                Outcome.ENCLAVE, allowed.payload_digest, verdict_id=verdict_id
            )
        except AuditError:
            raise EnclaveError(FailureReason.AUDIT_FAILED) from None
        receipt_id = self._random(RECEIPT_ID_BYTES)
        value = await self._trail.receipt_secret(receipt_id)
        if value is None:
            return ReceiptSecret()
        return ReceiptSecret(
            receipt_id=receipt_id,
            attempt=self._attempts,
            value=value,
            transcript=None if self._take_down is None else Transcript(),
        )

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep a verified receipt beside the record of its attempt.

        Where that fails, the trail has a ``problem``; the answer is complete.
        """
        if not secret.receipt_id:
            return
        await self._trail.append_receipt(
            ReceiptEntry(
                query=self._id,
                attempt=secret.attempt,
                receipt_id=secret.receipt_id,
                public_key=public_key,
                receipt=receipt,
            )
        )
        if self._take_down is not None and secret.transcript is not None:
            self._take_down(self._id, secret.transcript)

    async def stays(
        self, outcome: Outcome, fallback: FailureReason | None = None
    ) -> bool:
        """Record a step that sends nothing; return whether it is in the trail.

        Args:
            outcome: anything but ``ENCLAVE``.
            fallback: why the enclave does not answer although it might have.
        """
        if outcome in {Outcome.ENCLAVE, Outcome.COVER, Outcome.CHALLENGE}:
            raise ValueError("what leaves is recorded before it does")
        try:
            await self._record(outcome, self._payload_digest, fallback=fallback)
        except AuditError:
            return False
        return True

    async def _record(
        self,
        outcome: Outcome,
        payload_digest: bytes,
        *,
        verdict_id: str = "",
        fallback: FailureReason | None = None,
    ) -> None:
        self._attempts += 1
        decision = self.decision
        await self._trail.append(
            AuditEntry(
                query=self._id,
                attempt=self._attempts,
                policy=decision.policy_digest,
                classes=self._classes,
                route=decision.route,
                outcome=outcome,
                rule=decision.rule,
                verdict=verdict_id,
                fallback="" if fallback is None else fallback.value,
                messages=self._messages,
                payload_digest=payload_digest,
            )
        )
