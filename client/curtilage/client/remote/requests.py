"""Requests to the enclave: a chat, a cover request, a challenge.

Each is recorded before each attempt and then sealed anew, since no two requests may
share an encapsulated key. The permit of an attempt is minted here, where the key is
known and the record is written; no other module mints a permit to seal. The audit trail
is known here only as a protocol.
"""

import secrets
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final, Protocol

from curtilage.attest.evidence import MAX_CPU_EVIDENCE_BYTES
from curtilage.attest.requirements import Requirement
from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.chat.payload import Payload
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.answer_reader import FreshEvidence
from curtilage.client.remote.keys import RandomBelow
from curtilage.client.remote.reasons import EnclaveFailure, Unmet
from curtilage.client.remote.seal import (
    challenge_content,
    cover_content,
    seal,
    seal_challenge,
    seal_cover,
)
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.decision.decide import Allowed
from curtilage.policy.decision.permit import (
    ChallengeBinding,
    CoverBinding,
    EgressPermit,
    PermitDesk,
    PermitRefusal,
    PermitRefusedError,
    WireException,
    time_ms,
)
from curtilage.wire.shaping import TransportParameters

COVER_SHARE: Final = 12
"""Divisor of the limit on running exchanges for cover requests: two at a time, since a
relay lets one client hold four places at the gateway. The rest is for callers that wait
for an answer."""

RECENT_ANSWERS: Final = 32

NOTHING_MORE: Final = Requirement()
"""The requirement beyond the policy's own rules: none."""


class Records(Protocol):
    """Recorder of one query's steps; the audit trail, in the product."""

    async def leaves(self, allowed: Allowed, verdict_id: str) -> ReceiptSecret | None:
        """Record that a payload is about to be sealed.

        Returns the secret for its receipt, or None where no receipts are kept.

        Args:
            allowed: the payload to be sent.
            verdict_id: identifies the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not be sent.
        """
        ...

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep the verified receipt of a complete answer.

        Args:
            secret: as returned by ``leaves``.
            public_key: that verified the receipt.
            receipt: its bytes.
        """
        ...

    async def challenged(self, content: bytes, verdict_id: str) -> None:
        """Record that a challenge is about to be sealed.

        Args:
            content: its whole content.
            verdict_id: identifies the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not be sent.
        """
        ...


class RecordsCover(Protocol):
    """Recorder of cover requests."""

    async def covered(self, content: bytes, verdict_id: str) -> None:
        """Record that a cover request is about to be sealed; as ``challenged``."""
        ...


class RecentLengths:
    """Lengths of recent answers, so that cover answers have similar lengths.

    Args:
        below: randomness.
    """

    def __init__(self, below: RandomBelow = secrets.randbelow) -> None:
        self._below = below
        self._frames: deque[int] = deque(maxlen=RECENT_ANSWERS)

    def add(self, frames: int) -> None:
        """Add a complete answer's number of frames."""
        self._frames.append(frames)

    def draw_bucket(self, parameters: TransportParameters) -> int:
        """Draw the bucket of a recent answer; the shortest if there is none."""
        # Drawn from real ones: an answer of a length that real answers never have could
        # be recognised as cover. Without any, the shortest costs least.
        if not self._frames:
            return 0
        frames = self._frames[self._below(len(self._frames))]
        return bucket_like(parameters, frames)


def bucket_like(parameters: TransportParameters, frames: int) -> int:
    """Return the bucket that holds this number of frames, or the longest one."""
    # Buckets double, so a length reveals little. Only buckets listed in the evidence
    # are ever seen on the wire.
    buckets = range(parameters.buckets)
    fitting = (each for each in buckets if parameters.frames_of(each) >= frames)
    return next(fitting, max(len(buckets) - 1, 0))


@dataclass(slots=True, kw_only=True)
class ChatRequest:
    """One request for a query; a repeated query is a new request.

    Attributes:
        allowed: the proof that it may be sent.
        tier: id of the attested tier that it is for.
        payload: the inspected text.
        records: records its steps.
        requirement: what the enclave must prove for the query's data.
        attempt: how many requests the query made before.
        agreed: the release that consent was given for; None: none was necessary.
    """

    share: ClassVar[int] = 1

    allowed: Allowed
    tier: str
    payload: Payload = field(repr=False)
    records: Records
    requirement: Requirement = NOTHING_MORE
    attempt: int = 0
    agreed: str | None = None
    _permit: EgressPermit | None = field(default=None, repr=False)
    _secret: ReceiptSecret | None = field(default=None, repr=False)

    async def record(self, key: VerifiedKey) -> None:
        """Record that it is about to be sent.

        Raises:
            EnclaveError: it cannot be recorded, or consent was for another release.
        """
        # Consent is for one release; the key may have been renewed since.
        if self.agreed not in {None, key.release}:
            raise EnclaveError(Unmet.CONSENT)
        # A new secret for each attempt: two receipts with the same secret would reveal
        # that they concern the same query.
        self._secret = await self.records.leaves(self.allowed, key.verdict_id)

    def seal(
        self,
        desk: PermitDesk,
        key: VerifiedKey,
        *,
        now: datetime,
        skew: timedelta,
        exception: WireException | None,
    ) -> tuple[SealedExchange, AnswerReader]:
        """Seal it anew, with a permit of its own.

        Raises:
            PermitRefusedError: no permit was minted, or it is not valid.
        """
        # The first attempt is covered by the decision, each further one by an exception
        # of the wire protocol. Any other repetition is a bug and would send a copy.
        if self._permit is None:
            self._permit = desk.mint(
                self.allowed,
                tier=self.tier,
                enclave_key_digest=bytes.fromhex(key.key_configs_digest),
                release_digest=key.release_digest,
                attempt=self.attempt,
                now_ms=time_ms(now),
            )
        elif exception is None:
            raise PermitRefusedError(PermitRefusal.ATTEMPT)
        else:
            self._permit = desk.mint_again(
                self._permit,
                exception=exception,
                enclave_key_digest=bytes.fromhex(key.key_configs_digest),
                release_digest=key.release_digest,
                now_ms=time_ms(now),
            )
        return seal(
            self._permit,
            self.payload,
            key,
            desk=desk,
            now=now,
            skew=skew,
            secret=self._secret,
        )

    async def keep(self, key: VerifiedKey, receipt: bytes) -> None:
        """Keep the receipt of the last attempt."""
        # None: no receipts are kept, and ``seal`` drew a secret that is
        # discarded.
        if self._secret is not None:
            await self.records.receipted(self._secret, key.receipt_public_key, receipt)


@dataclass(slots=True, kw_only=True)
class CoverRequest:
    """A dummy request in place of a query of a size class; contains no text of any.

    Attributes:
        size_class: in bytes.
        lengths: from which the length of its answer is drawn.
        records: records it.
        bucket: drawn for this attempt.
    """

    share: ClassVar[int] = COVER_SHARE

    size_class: int
    lengths: RecentLengths
    records: RecordsCover
    bucket: int = 0

    async def record(self, key: VerifiedKey) -> None:
        """Draw the length of its answer, and record that it is about to be sent.

        Raises:
            EnclaveError: also where the enclave's release is unpadded.
        """
        # Without padding it would not look like a query and would reveal its purpose.
        if not key.transport.buckets:
            raise EnclaveError(EnclaveFailure.REFUSED, code="unpadded")
        self.bucket = self.lengths.draw_bucket(key.transport)
        await self.records.covered(cover_content(self.bucket), key.verdict_id)

    def seal(
        self,
        desk: PermitDesk,
        key: VerifiedKey,
        *,
        now: datetime,
        skew: timedelta,
        exception: WireException | None,
    ) -> tuple[SealedExchange, AnswerReader]:
        """Seal it anew, with a permit of its own; raises as a query's ``seal``."""
        del exception
        listed = bytes.fromhex(key.key_configs_digest)
        binding = CoverBinding(key=listed, release=key.release_digest)
        permit = desk.mint_without_query(binding, now_ms=time_ms(now))
        return seal_cover(
            permit,
            key,
            desk=desk,
            size_class=self.size_class,
            bucket=self.bucket,
            now=now,
            skew=skew,
        )

    async def keep(self, key: VerifiedKey, receipt: bytes) -> None:
        """Keep no receipt: there is no content to prove."""


@dataclass(slots=True, kw_only=True)
class ChallengeRequest:
    """A challenge: the enclave must return fresh evidence over random bytes.

    Attributes:
        nonce: 32 bytes.
        asked: time of the request; the evidence counts as no younger.
        records: records it.
        answer: reads the evidence.
    """

    share: ClassVar[int] = 1

    nonce: bytes
    asked: datetime
    records: Records
    answer: FreshEvidence = field(
        default_factory=lambda: FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES)
    )

    async def record(self, key: VerifiedKey) -> None:
        """Record that it is about to be sent."""
        # The record commits to the nonce, so that an examiner can see that a challenge
        # was sent and no text.
        content = challenge_content(key, self.nonce)
        await self.records.challenged(content, key.verdict_id)

    def seal(
        self,
        desk: PermitDesk,
        key: VerifiedKey,
        *,
        now: datetime,
        skew: timedelta,
        exception: WireException | None,
    ) -> tuple[SealedExchange, AnswerReader]:
        """Seal it, with a permit of its own; raises as a query's ``seal``."""
        del exception
        listed = bytes.fromhex(key.key_configs_digest)
        binding = ChallengeBinding(key=listed, release=key.release_digest)
        permit = desk.mint_without_query(binding, now_ms=time_ms(now))
        return seal_challenge(
            permit,
            key,
            desk=desk,
            nonce=self.nonce,
            now=now,
            reader_of=self.answer.read,
            skew=skew,
        )

    async def keep(self, key: VerifiedKey, receipt: bytes) -> None:
        """Keep no receipt: the evidence itself is the result."""


Request = ChatRequest | CoverRequest | ChallengeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request sealed to one key, and what follows a complete answer.

    Attributes:
        request: the request.
        key: that it was sealed to.
        lengths: where a chat's answer length is recorded. Cover answers are not
            recorded: the next ones would only repeat what was drawn before.
    """

    request: Request
    key: VerifiedKey
    lengths: RecentLengths

    async def keep(self, receipt: bytes) -> None:
        """Keep the answer's receipt, if the request wants one."""
        await self.request.keep(self.key, receipt)

    def ended(self, frames: int) -> None:
        """Record the number of frames of the complete answer."""
        # A challenge always has the shortest bucket, which says nothing about the
        # length of answers.
        if isinstance(self.request, ChatRequest):
            self.lengths.add(frames)
