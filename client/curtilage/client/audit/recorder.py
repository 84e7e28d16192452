"""One query on its way: what was decided, and each step of it in the audit trail.

A step that lets something leave is recorded before it is taken, and not taken
if it cannot be recorded. A step that stays on this machine is taken anyway: it
shows nothing to others, and the caller learns that it is not in the trail.
"""

import hashlib
import secrets
from collections.abc import Callable
from itertools import count

from curtilage.client.audit.record import (
    QUERY_ID_BYTES,
    RECEIPT_ID_BYTES,
    TELLING,
    AuditEntry,
    Outcome,
    ReceiptEntry,
    histogram,
)
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.errors import AuditError, EnclaveError, FailureReason
from curtilage.client.receipt import ReceiptSecret, Transcript
from curtilage.policy.decision.decide import (
    Allowed,
    AllowedInHouse,
    Decision,
    Inspection,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy

COVER_RULE = "transport.cover"
"""Stands where a rule's id would: no rule of the policy decided this."""


CHALLENGE_RULE = "attestation.challenge"
"""The same for a challenge: the policy asks for it, of the enclave."""


SaveTranscript = Callable[[str, Transcript], None]
"""Takes a query's id and the exchange whose receipt was kept."""


class CoverRecorder:
    """Records the cover requests of a client.

    Args:
        trail: where they are recorded.
        policy: that asks for them.
        random: makes the id that no other record has.
    """

    def __init__(
        self,
        trail: AuditTrail,
        policy: Policy,
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._trail = trail
        self._policy_digest = policy.digest
        self._random = random

    async def covered(self, content: bytes, verdict_id: str) -> None:
        """Record that a cover request is about to be sealed; it names no query.

        Args:
            content: all that it says.
            verdict_id: the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not leave.
        """
        entry = _entry_without_query(
            self._random(QUERY_ID_BYTES),
            self._policy_digest,
            content,
            verdict_id,
            outcome=Outcome.COVER,
            rule=COVER_RULE,
        )
        await _append_or_stay(self._trail, entry)


class QueryRecorder:
    """One query, from its decision to its last step.

    Args:
        trail: where the steps are recorded.
        policy: the policy that was applied.
        inspection: what was found.
        decision: what followed from it.
        save_transcript: saves the exchange whose receipt was kept; None: it is
            not written down.
        random: makes the id that joins the records of one query.

    Attributes:
        decision: the same.
    """

    def __init__(
        self,
        trail: AuditTrail,
        policy: Policy,
        inspection: Inspection,
        decision: Decision,
        *,
        save_transcript: SaveTranscript | None = None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.decision = decision
        self._save_transcript = save_transcript
        self._trail = trail
        self._classes = histogram(inspection.findings, decision, policy.classes)
        self._messages = inspection.messages
        self._payload_digest = inspection.payload_digest
        self._approved = tuple(sorted({each.sha256 for each in inspection.approved}))
        self._random = random
        self._id = random(QUERY_ID_BYTES).hex()
        self._attempts = count(1)
        self._let_out = list[Outcome]()

    @property
    def let_out(self) -> bool:
        """Whether something of it may have been told to another machine."""
        return bool(self._let_out)

    def of_part(
        self, policy: Policy, inspection: Inspection, decision: Decision
    ) -> "QueryRecorder":
        """Return what records a part of this query that leaves without the rest.

        The record says what is in that part, and commits to it: with the classes of the
        rest, it would say that they had left.
        """
        part = QueryRecorder(
            self._trail,
            policy,
            inspection,
            decision,
            save_transcript=self._save_transcript,
            random=self._random,
        )
        part._id, part._attempts = self._id, self._attempts
        part._let_out = self._let_out
        return part

    async def leaves(self, allowed: Allowed, verdict_id: str) -> ReceiptSecret:
        """Record that a payload is about to be sealed; nothing is, if this raises.

        Returns the secret for its receipt: the organisation's, or one that
        cannot be made again where there is no key.

        Args:
            allowed: the payload that leaves, which need not be the one that was
                asked: it is this one that the record commits to.
            verdict_id: the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not leave.
        """
        entry = self._next_entry(
            Outcome.ENCLAVE, allowed.payload_digest, verdict_id=verdict_id
        )
        # First of all, and on the disk: nothing is sealed before this has returned.
        await _append_or_stay(self._trail, entry)
        self._let_out.append(Outcome.ENCLAVE)
        receipt_id = self._random(RECEIPT_ID_BYTES)
        value = await self._trail.receipt_secret(receipt_id)
        # No key to make it again: the receipt is verified all the same, and nobody can
        # later be shown what it is about.
        if value is None:
            return ReceiptSecret()
        return ReceiptSecret(
            receipt_id=receipt_id,
            # Its own: whoever writes beside it may have made another meanwhile.
            attempt=entry.attempt,
            value=value,
            transcript=None if self._save_transcript is None else Transcript(),
        )

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep a verified receipt with the record of its attempt.

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
        if self._save_transcript is not None and secret.transcript is not None:
            self._save_transcript(self._id, secret.transcript)

    async def challenged(self, content: bytes, verdict_id: str) -> None:
        """Record that a challenge is about to be sealed; it names no query.

        Args:
            content: all that it says.
            verdict_id: the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not leave.
        """
        entry = _entry_without_query(
            self._random(QUERY_ID_BYTES),
            self.decision.policy_digest,
            content,
            verdict_id,
            outcome=Outcome.CHALLENGE,
            rule=CHALLENGE_RULE,
        )
        await _append_or_stay(self._trail, entry)

    async def told_in_house(self, allowed: AllowedInHouse) -> None:
        """Record that a server in the house is about to be told a payload.

        Raises:
            EnclaveError: it cannot be recorded, so nobody is told.
        """
        # As if it left: who reads the trail must find every machine that was told.
        entry = self._next_entry(Outcome.HOUSE, allowed.payload_digest)
        await _append_or_stay(self._trail, entry)
        self._let_out.append(Outcome.HOUSE)

    async def stays(
        self, outcome: Outcome, fallback: FailureReason | None = None
    ) -> bool:
        """Record a step that sends nothing; return whether it is in the trail.

        Args:
            outcome: any that is not among ``TELLING``.
            fallback: why the tier that was chosen does not answer, or not all of it.
        """
        # Those must raise where they cannot be recorded; this only says so.
        if outcome in TELLING:
            raise ValueError("what leaves is recorded before it does")
        try:
            await self._trail.append(
                self._next_entry(outcome, self._payload_digest, fallback=fallback)
            )
        except AuditError:
            return False
        return True

    def _next_entry(
        self,
        outcome: Outcome,
        payload_digest: bytes,
        *,
        verdict_id: str = "",
        fallback: FailureReason | None = None,
    ) -> AuditEntry:
        decision = self.decision
        return AuditEntry(
            query=self._id,
            attempt=next(self._attempts),
            policy=decision.policy_digest,
            classes=self._classes,
            route=decision.route,
            outcome=outcome,
            rule=decision.rule,
            verdict=verdict_id,
            fallback="" if fallback is None else fallback.value,
            messages=self._messages,
            payload_digest=payload_digest,
            approved=self._approved,
        )


def _entry_without_query(
    entry_id: bytes,
    policy_digest: str,
    content: bytes,
    verdict_id: str,
    *,
    outcome: Outcome,
    rule: str,
) -> AuditEntry:
    """Return the record of a cover request or a challenge.

    It names no query and no class. It commits to what is said, so that one who holds
    the organisation's key can see that it says nothing else.
    """
    return AuditEntry(
        query=entry_id.hex(),
        attempt=1,
        policy=policy_digest,
        classes={},
        route=Route.ENCLAVE,
        outcome=outcome,
        rule=rule,
        verdict=verdict_id,
        messages=0,
        payload_digest=hashlib.sha256(content).digest(),
    )


async def _append_or_stay(trail: AuditTrail, entry: AuditEntry) -> None:
    """Record what is about to leave; what is not on the disk does not leave."""
    try:
        await trail.append(entry)
    except AuditError:
        raise EnclaveError(FailureReason.AUDIT_FAILED) from None
