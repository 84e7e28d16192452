"""What is on its way to the enclave: a question, a dummy, a challenge.

Each is sealed anew for each attempt, and each is recorded before it leaves. What
the policy demands of the enclave for a question's data is held against the key
twice: before anything is recorded, and at the moment of sealing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from curtilage.attest.claims import Requirement
from curtilage.attest.verify import VerifiedKey
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.query import Query
from curtilage.client.receipt import ReceiptSecret
from curtilage.client.remote.answer_reader import FreshEvidence
from curtilage.client.remote.draining import Keep
from curtilage.client.remote.seal import (
    AnswerReader,
    challenge_content,
    cover_content,
    seal,
    seal_challenge,
    seal_cover,
    size_class_of,
)
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.decision.decide import Allowed

COVER_SHARE: Final = 12
"""Dummies are sent in this part of the room only, as a divisor: two at a time, since a
relay lets one client hold four places at the gateway. The rest is for questions."""
NOTHING_MORE: Final = Requirement()
"""What is demanded of an enclave beyond the policy's own rules: nothing."""

Clock = Callable[[], datetime]
Before = Callable[[VerifiedKey], Awaitable[ReceiptSecret | None]]
"""Is awaited before a query is sealed to a key; what it raises stops that. Returns
the secret for the receipt, or None for one that nobody keeps."""

BeforeOther = Callable[[VerifiedKey, bytes], Awaitable[None]]
"""The same for what is no query; told what it says, too."""

Kept = Callable[[VerifiedKey, ReceiptSecret, bytes], Awaitable[None]]
"""Keeps a verified receipt, with the key and the secret that it belongs to."""

Meet = Callable[[VerifiedKey, timedelta], Awaitable[None]]
"""Raises unless the enclave meets what is demanded; may ask it first."""


async def keep_nothing(key: VerifiedKey, secret: ReceiptSecret, receipt: bytes) -> None:
    """Keep no receipt."""
    del key, secret, receipt


@dataclass(slots=True, kw_only=True)
class Question:
    """A query.

    Attributes:
        allowed: the proof that it may leave.
        query: what was inspected.
        before: records that it leaves.
        kept: keeps its receipt.
        meet: asks of the enclave what the query's data need.
        met: raises unless that still holds.
        clock: the time.
        share: of the room, as a divisor.
    """

    allowed: Allowed
    query: Query
    before: Before
    kept: Kept
    meet: Meet
    met: Callable[[VerifiedKey], None]
    clock: Clock
    share: int = 1
    _secret: ReceiptSecret | None = field(default=None, repr=False)

    async def prepare(self, key: VerifiedKey, skew: timedelta) -> None:
        """Demand, then record that it leaves; what is too large does not."""
        size_class_of(self.query, key, now=self.clock())
        await self.meet(key, skew)
        self._secret = await self.before(key)

    def sealed(
        self, key: VerifiedKey, skew: timedelta
    ) -> tuple[SealedExchange, AnswerReader]:
        """Seal it afresh."""
        self.met(key)
        now = self.clock()
        return seal(
            self.allowed, self.query, key, now=now, skew=skew, secret=self._secret
        )

    def keep(self, key: VerifiedKey) -> Keep | None:
        """Return what keeps this attempt's receipt."""
        if self._secret is None:
            return None
        return partial(self.kept, key, self._secret)


@dataclass(slots=True, kw_only=True)
class Dummy:
    """A dummy that stands for a query of a size class.

    Attributes:
        size_class: octets.
        bucket_of: draws how long its answer is to be.
        before: records that it leaves.
        clock: the time.
        share: of the room, as a divisor.
        bucket: what was drawn.
    """

    size_class: int
    bucket_of: Callable[[VerifiedKey], int]
    before: BeforeOther
    clock: Clock
    share: int = COVER_SHARE
    bucket: int = 0

    async def prepare(self, key: VerifiedKey, skew: timedelta) -> None:
        """Draw how long its answer is to be, and record that it leaves."""
        del skew
        if not key.transport.buckets:
            raise EnclaveError(FailureReason.REFUSED, code="unpadded")
        self.bucket = self.bucket_of(key)
        await self.before(key, cover_content(self.bucket))

    def sealed(
        self, key: VerifiedKey, skew: timedelta
    ) -> tuple[SealedExchange, AnswerReader]:
        """Seal it afresh."""
        return seal_cover(
            key,
            size_class=self.size_class,
            bucket=self.bucket,
            now=self.clock(),
            skew=skew,
        )

    def keep(self, key: VerifiedKey) -> None:
        """Keep no receipt: it is about nothing."""
        del key


@dataclass(slots=True, kw_only=True)
class Challenge:
    """A challenge: the enclave is to show fresh evidence over random bytes.

    Attributes:
        nonce: 32 bytes.
        before: records that it leaves.
        clock: the time.
        answer: what reads the evidence.
        share: of the room, as a divisor.
    """

    nonce: bytes
    before: BeforeOther
    clock: Clock
    answer: FreshEvidence = field(default_factory=FreshEvidence)
    share: int = 1

    async def prepare(self, key: VerifiedKey, skew: timedelta) -> None:
        """Record that it leaves."""
        del skew
        await self.before(key, challenge_content(key, self.nonce))

    def sealed(
        self, key: VerifiedKey, skew: timedelta
    ) -> tuple[SealedExchange, AnswerReader]:
        """Seal it."""
        return seal_challenge(
            key,
            nonce=self.nonce,
            now=self.clock(),
            reader_of=self.answer.read,
            skew=skew,
        )

    def keep(self, key: VerifiedKey) -> None:
        """Keep no receipt: the evidence itself was asked for."""
        del key


Errand = Question | Dummy | Challenge
