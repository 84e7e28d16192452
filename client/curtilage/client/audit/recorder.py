"""Records one query's decision and each of its steps in the audit trail.

A step that sends something is recorded first, and not taken if it cannot be recorded. A
step on this machine is taken anyway: it discloses nothing, and the caller learns that
it is not in the trail.
"""

import hashlib
import secrets
from collections.abc import Callable
from itertools import count

from curtilage.client.audit.record import (
    QUERY_ID_BYTES,
    RECEIPT_ID_BYTES,
    SENDING,
    AuditEntry,
    Outcome,
    ReceiptEntry,
    histogram,
)
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.chat.receipt import ReceiptSecret, Transcript
from curtilage.client.errors import (
    AttemptFailure,
    AuditError,
    EnclaveError,
    FailureReason,
)
from curtilage.policy.decision.decide import (
    Allowed,
    AllowedOnPremises,
    Decision,
    Inspection,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy

COVER_RULE = "transport.cover"
"""Used in place of a rule's id: no rule of the policy decided this."""


CHALLENGE_RULE = "attestation.challenge"
"""The same for a challenge, which the policy demands of the enclave."""


SaveTranscript = Callable[[str, Transcript], None]
"""Takes a query's id and the exchange whose receipt was kept."""


class CoverRecorder:
    """Records the cover requests of a client.

    Args:
        trail: the audit trail.
        policy: that asks for cover requests.
        random: generates an id that no other record has.
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
            content: its whole content.
            verdict_id: identifies the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not be sent.
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
    """Records one query, from its decision to its last step.

    Args:
        trail: the audit trail.
        policy: the policy that was applied.
        inspection: the findings.
        decision: the decision about them.
        application: that asks; empty: no gateway serves it.
        save_transcript: saves the exchange whose receipt was kept; None: it is
            not saved.
        random: generates the id that the records of one query share.

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
        application: str = "",
        save_transcript: SaveTranscript | None = None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.decision = decision
        self._application = application
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
        """Whether any of it may have been sent to another machine."""
        return bool(self._let_out)

    def of_part(
        self, policy: Policy, inspection: Inspection, decision: Decision
    ) -> "QueryRecorder":
        """Return a recorder for a part of this query that is sent without the rest.

        The record has the classes of that part and commits to it: the classes of the
        rest would suggest that the rest was sent.
        """
        part = QueryRecorder(
            self._trail,
            policy,
            inspection,
            decision,
            application=self._application,
            save_transcript=self._save_transcript,
            random=self._random,
        )
        part._id, part._attempts = self._id, self._attempts
        part._let_out = self._let_out
        return part

    async def leaves(self, allowed: Allowed, verdict_id: str) -> ReceiptSecret:
        """Record that a payload is about to be sealed; if this raises, nothing is.

        Returns the secret for its receipt: derived from the organisation's key, or a
        random one if there is no key.

        Args:
            allowed: the payload to be sent, which may differ from the query: the record
                commits to the payload.
            verdict_id: identifies the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not be sent.
        """
        entry = self._next_entry(
            Outcome.ENCLAVE, allowed.payload_digest, verdict_id=verdict_id
        )
        # First of all, and on disk: nothing is sealed before this has returned.
        await _append_or_stay(self._trail, entry)
        self._let_out.append(Outcome.ENCLAVE)
        receipt_id = self._random(RECEIPT_ID_BYTES)
        value = await self._trail.receipt_secret(receipt_id)
        # Without a key it cannot be derived again: the receipt is verified all the
        # same, but its subject cannot be proven later.
        if value is None:
            return ReceiptSecret()
        return ReceiptSecret(
            receipt_id=receipt_id,
            # The entry's own number: a concurrent call may have recorded another.
            attempt=entry.attempt,
            value=value,
            transcript=None if self._save_transcript is None else Transcript(),
        )

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep a verified receipt with the record of its attempt.

        If that fails, the trail has a ``problem``; the answer is complete.
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
            content: its whole content.
            verdict_id: identifies the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not be sent.
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

    async def sent_on_premises(self, allowed: AllowedOnPremises) -> None:
        """Record that a payload is about to be sent to an on-premises server.

        Raises:
            EnclaveError: it cannot be recorded, so nothing is sent.
        """
        # As for the enclave: the trail must list every machine that got a payload.
        entry = self._next_entry(Outcome.ON_PREMISES, allowed.payload_digest)
        await _append_or_stay(self._trail, entry)
        self._let_out.append(Outcome.ON_PREMISES)

    async def stays(
        self, outcome: Outcome, fallback: FailureReason | None = None
    ) -> bool:
        """Record a step that sends nothing; return whether it is in the trail.

        Args:
            outcome: any that is not in ``SENDING``.
            fallback: why the chosen tier does not answer, or only in part.
        """
        # Those must raise if they cannot be recorded; this only returns it.
        if outcome in SENDING:
            raise ValueError("a disclosure must be recorded before it is made")
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
            application=self._application,
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

    It contains no query and no class. It commits to the content, so that a holder of
    the organisation's key can verify that nothing else was sent.
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
    """Record what is about to be sent; without a record on disk it must not be."""
    try:
        await trail.append(entry)
    except AuditError:
        raise EnclaveError(AttemptFailure.AUDIT_FAILED) from None
