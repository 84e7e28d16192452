"""What is asked of the enclave: a chat, a cover request, a challenge.

Each is recorded before each attempt and then sealed anew, since no two requests may
share an encapsulated key. Here, where the key is known and the record is written, the
permit of the attempt is minted; no other module mints one to seal. Who keeps the
records is known here as a protocol only.
"""

import secrets
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final, Protocol

from curtilage.attest.evidence import MAX_CPU_EVIDENCE_BYTES
from curtilage.attest.requirements import Requirement
from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.payload import Payload
from curtilage.client.receipt import ReceiptSecret
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.answer_reader import FreshEvidence
from curtilage.client.remote.keys import RandomBelow
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
    EgressPermit,
    PermitDesk,
    PermitRefusal,
    PermitRefusedError,
    WireException,
    time_ms,
)
from curtilage.wire.shaping import TransportParameters

COVER_SHARE: Final = 12
"""Cover requests are sent in this part of the room only, as a divisor: two at a time,
since a relay lets one client hold four places at the gateway. The rest is for those
who wait for an answer."""

RECENT_ANSWERS: Final = 32

NOTHING_MORE: Final = Requirement()
"""What is demanded of an enclave beyond the policy's own rules: nothing."""


class Records(Protocol):
    """Where the steps of one query are recorded; the audit trail, in the product."""

    async def leaves(self, allowed: Allowed, verdict_id: str) -> ReceiptSecret | None:
        """Record that a payload is about to be sealed.

        Returns the secret for its receipt, or None where no receipts are kept.

        Args:
            allowed: the payload that leaves.
            verdict_id: the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not leave.
        """
        ...

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep the verified receipt of a complete answer.

        Args:
            secret: that ``leaves`` returned.
            public_key: that the receipt was verified with.
            receipt: its bytes.
        """
        ...

    async def challenged(self, content: bytes, verdict_id: str) -> None:
        """Record that a challenge is about to be sealed.

        Args:
            content: all that it says.
            verdict_id: the evidence relied upon.

        Raises:
            EnclaveError: it cannot be recorded, so it must not leave.
        """
        ...


class RecordsCover(Protocol):
    """Where cover requests are recorded."""

    async def covered(self, content: bytes, verdict_id: str) -> None:
        """Record that a cover request is about to be sealed; as ``challenged``."""
        ...


class RecentLengths:
    """How long the last answers were, so that cover answers are as long.

    Args:
        below: randomness.
    """

    def __init__(self, below: RandomBelow = secrets.randbelow) -> None:
        self._below = below
        self._frames: deque[int] = deque(maxlen=RECENT_ANSWERS)

    def add(self, frames: int) -> None:
        """Take note of a complete answer's number of frames."""
        self._frames.append(frames)

    def draw_bucket(self, parameters: TransportParameters) -> int:
        """Draw the bucket of one of the last answers; the shortest without any."""
        # Drawn from real ones: an answer whose length fits no real answer would be
        # known for what it is. Without any, the shortest costs least.
        if not self._frames:
            return 0
        frames = self._frames[self._below(len(self._frames))]
        return bucket_like(parameters, frames)


def bucket_like(parameters: TransportParameters, frames: int) -> int:
    """Return the bucket that holds so many frames, or the longest there is."""
    # Buckets double, so that a length says little. None is invented: only those that
    # the evidence lists are ever seen on the wire.
    buckets = range(parameters.buckets)
    fitting = (each for each in buckets if parameters.frames_of(each) >= frames)
    return next(fitting, max(len(buckets) - 1, 0))


@dataclass(slots=True, kw_only=True)
class ChatRequest:
    """A query, to be asked once; whoever asks again makes another.

    Attributes:
        allowed: the proof that it may leave.
        tier: id of the attested tier that is asked.
        payload: what was inspected.
        records: where its steps are recorded.
        requirement: what the enclave must show for the query's data.
        attempt: how often the query was asked before.
    """

    share: ClassVar[int] = 1

    allowed: Allowed
    tier: str
    payload: Payload = field(repr=False)
    records: Records
    requirement: Requirement = NOTHING_MORE
    attempt: int = 0
    _permit: EgressPermit | None = field(default=None, repr=False)
    _secret: ReceiptSecret | None = field(default=None, repr=False)

    async def record(self, key: VerifiedKey) -> None:
        """Record that it leaves."""
        # A secret for each attempt: two receipts with one would show that they are
        # about the same query.
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
        """Seal it afresh, with a permit of its own.

        Raises:
            PermitRefusedError: no permit can be had, or it does not hold.
        """
        # The first by the decision, each further one by an exception of the wire. What
        # comes here again for no such reason is a mistake, and would be a second copy.
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
        # None: no receipts are kept, and the door drew a secret of its
        # own.
        if self._secret is not None:
            await self.records.receipted(self._secret, key.receipt_public_key, receipt)


@dataclass(slots=True, kw_only=True)
class CoverRequest:
    """A request that stands for a query of a size class; it holds no word of any.

    Attributes:
        size_class: octets.
        lengths: where the length of its answer is drawn.
        records: where it is recorded.
        bucket: what was drawn for this attempt.
    """

    share: ClassVar[int] = COVER_SHARE

    size_class: int
    lengths: RecentLengths
    records: RecordsCover
    bucket: int = 0

    async def record(self, key: VerifiedKey) -> None:
        """Draw how long its answer is to be, and record that it leaves.

        Raises:
            EnclaveError: also where the enclave shapes nothing.
        """
        # Without padding it would not pass for a query, and show what it is for.
        if not key.transport.buckets:
            raise EnclaveError(FailureReason.REFUSED, code="unpadded")
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
        """Seal it afresh, with a permit of its own; raises as a query's."""
        del exception
        permit = desk.mint_cover(
            enclave_key_digest=bytes.fromhex(key.key_configs_digest),
            release_digest=key.release_digest,
            now_ms=time_ms(now),
        )
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
        """Keep no receipt: it is about nothing."""


@dataclass(slots=True, kw_only=True)
class ChallengeRequest:
    """A challenge: the enclave is to show fresh evidence over random bytes.

    Attributes:
        nonce: 32 bytes.
        asked: when; the evidence counts as no younger.
        records: where it is recorded.
        answer: what reads the evidence.
    """

    share: ClassVar[int] = 1

    nonce: bytes
    asked: datetime
    records: Records
    answer: FreshEvidence = field(
        default_factory=lambda: FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES)
    )

    async def record(self, key: VerifiedKey) -> None:
        """Record that it leaves."""
        # The record commits to the nonce, so that an examiner can see that what left
        # was a challenge and no text.
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
        """Seal it, with a permit of its own; raises as a query's."""
        del exception
        permit = desk.mint_challenge(
            enclave_key_digest=bytes.fromhex(key.key_configs_digest),
            release_digest=key.release_digest,
            now_ms=time_ms(now),
        )
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
        """Keep no receipt: the evidence itself was asked for."""


Request = ChatRequest | CoverRequest | ChallengeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request as it was sealed to one key, and what follows a complete answer.

    Attributes:
        request: the request.
        key: what it was sealed to.
        lengths: where a chat's answer is noted. A cover answer is not: drawn from
            such answers, the next would only repeat what was drawn before.
    """

    request: Request
    key: VerifiedKey
    lengths: RecentLengths

    async def keep(self, receipt: bytes) -> None:
        """Keep the answer's receipt, where anybody wants it."""
        await self.request.keep(self.key, receipt)

    def ended(self, frames: int) -> None:
        """Take note of how many frames the complete answer had."""
        # A challenge always has the shortest bucket, and says nothing of answers
        # either.
        if isinstance(self.request, ChatRequest):
            self.lengths.add(frames)
