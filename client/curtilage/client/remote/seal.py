"""Seals one permitted query; returns the sealed request and the reader of its answer.

Sans-IO. This is the only place where the payload of a query is sealed. It takes an
``EgressPermit``, which a desk mints from what ``decide`` allowed, and a
``VerifiedKey``, which only ``attest.verify`` can build. A query that ``decide`` kept
local has no permit, so it cannot be sealed. A permit is redeemed here and is valid
once: for the payload, the keys, the release and the policy that it names, and for
no others.

A cover request is sealed here too, with a permit of its own kind. Of a query it takes
only a size class: no argument could carry a word. A challenge takes random bytes and a
digest of the evidence.

Where the evidence binds a receipt key, every request carries a secret for its
receipt. ``answer_opener`` opens the answer.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.binding import NONCE_BYTES
from curtilage.attest.receipt import KEY_FIELD, SECRET_BYTES, encode_field
from curtilage.attest.verified_key import VerifiedKey, require_verified
from curtilage.client.chat.payload import Payload
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.answer_opener import AnswerReader, ReaderOf
from curtilage.client.remote.answer_reader import (
    content_reader,
    nothing_reader,
)
from curtilage.client.remote.reasons import DateRefusedError, EnclaveFailure
from curtilage.client.remote.receipts import ReceiptCheck
from curtilage.client.remote.sealed import SEAL_DOOR, SealedExchange
from curtilage.policy.decision.permit import (
    ChallengeBinding,
    CoverBinding,
    EgressBinding,
    EgressPermit,
    Permit,
    PermitDesk,
    time_ms,
)
from curtilage.wire import bhttp, keyconfig, padding
from curtilage.wire.dates import format_date
from curtilage.wire.errors import LimitExceededError, WireError
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    KDF_HKDF_SHA256,
    KEM_XWING,
    Suite,
)

# Resolves nowhere (RFC 6761, section 6.4): a mistake reveals nothing to DNS.
AUTHORITY = b"curtilage.invalid"
CHAT_PATH = b"/v1/chat/completions"
COVER_PATH = b"/v1/cover"
CHALLENGE_PATH = b"/v1/challenge"
NO_SKEW: Final = timedelta()
_USUAL_SUITE: Final = Suite(
    kem_id=KEM_XWING, kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM
)


def seal(
    permit: EgressPermit,
    payload: Payload,
    key: VerifiedKey,
    *,
    desk: PermitDesk,
    now: datetime,
    skew: timedelta = NO_SKEW,
    secret: ReceiptSecret | None = None,
) -> tuple[SealedExchange, AnswerReader]:
    """Seal the payload of one query that may be sent, to one verified key.

    Returns the request, which may be sent, and the opener of its answer.

    Args:
        permit: for this payload, to this key, now; spent by the call.
        payload: the inspected text.
        key: the enclave's key, checked again to be in force at ``now``.
        desk: that minted the permit.
        now: the time of sealing, aware.
        skew: how far the enclave's clock is ahead of ours; used only for the date
            inside the seal.
        secret: for the receipt; None: a new one that is not kept.

    Raises:
        TypeError: ``permit`` was not built by a desk, or ``key`` not by
            ``attest.verify``.
        PermitRefusedError: the permit is for another payload or key, or is no longer
            valid.
        RefusedError: the key expired between verification and sealing.
        EnclaveError: larger than the largest size class, or the key list has no suite
            that we support.
    """
    # Type checkers cover our own code; this check holds for any caller, as does the
    # desk's check of the permit. Each of the two is built in one place only.
    verified = require_verified(key)
    content = payload.content
    # Again: since the verification, a record was written to disk and, for the strictest
    # data, a challenge was answered.
    verified.usable_at(now)
    # A permit for one query seals no other: neither one edited after its inspection,
    # nor one passed in by mistake. The digests are computed from the payload that is
    # sealed and the key that it is sealed to, not taken from the caller.
    presented = EgressBinding(
        payload=hashlib.sha256(content).digest(),
        key=hashlib.sha256(verified.key_configs).digest(),
        release=verified.release_digest,
        policy=verified.expectations_digest,
    )
    desk.redeem(permit, presented, now_ms=time_ms(now))
    return _sealed(
        verified,
        _InnerRequest(
            path=CHAT_PATH, content=content, date=_date(now, skew), secret=secret
        ),
        reader_of=content_reader,
    )


def cover_content(bucket: int) -> bytes:
    """Return a cover request's whole content: the bucket for its answer to fill."""
    return b'{"bucket":%d}' % bucket


def seal_cover(
    permit: Permit[CoverBinding],
    key: VerifiedKey,
    *,
    desk: PermitDesk,
    size_class: int,
    bucket: int,
    now: datetime,
    skew: timedelta = NO_SKEW,
) -> tuple[SealedExchange, AnswerReader]:
    """Seal a cover request, which looks like a query of one size class.

    Args:
        permit: for one cover request to this very key; spent by the call.
        key: as for ``seal``.
        desk: that minted the permit.
        size_class: bytes of the encapsulated request; see ``size_class_of``.
        bucket: length of its answer.
        now: the time of sealing, aware.
        skew: as for ``seal``.

    Raises:
        TypeError: ``permit`` was not built by a desk as one for cover requests, or
            ``key`` not by ``attest.verify``.
        PermitRefusedError: as ``seal``.
        RefusedError: the key expired between verification and sealing.
        EnclaveError: the enclave has no such bucket, or its release is unpadded; or
            the key list has no suite that we support.
    """
    verified = require_verified(key)
    verified.usable_at(now)
    # The enclave would refuse a bucket that it does not have, and a refused request
    # covers nothing.
    if not 0 <= bucket < verified.transport.buckets:
        raise EnclaveError(EnclaveFailure.REFUSED, code="bucket")
    listed = hashlib.sha256(verified.key_configs).digest()
    presented = CoverBinding(key=listed, release=verified.release_digest)
    desk.redeem(permit, presented, now_ms=time_ms(now))
    content, date = cover_content(bucket), _date(now, skew)
    return _sealed(
        verified,
        _InnerRequest(path=COVER_PATH, content=content, date=date),
        at_least=size_class,
        reader_of=nothing_reader,
    )


def challenge_content(key: VerifiedKey, nonce: bytes) -> bytes:
    """Return a challenge's whole content: random bytes and the digest of the evidence.

    Raises:
        ValueError: the nonce is not 32 bytes.
    """
    # With the digest of the evidence, so that the answer is about this key: otherwise
    # another enclave of the same release could answer.
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
    return b'{"nonce":"%b","b0":"%b"}' % (nonce.hex().encode(), key.b0.hex().encode())


def seal_challenge(
    permit: Permit[ChallengeBinding],
    key: VerifiedKey,
    *,
    desk: PermitDesk,
    nonce: bytes,
    now: datetime,
    reader_of: ReaderOf,
    skew: timedelta = NO_SKEW,
) -> tuple[SealedExchange, AnswerReader]:
    """Seal a request for fresh evidence; from outside, it looks like a short question.

    Args:
        permit: for one challenge to this very key; spent by the call.
        key: as for ``seal``; the one to be challenged.
        desk: that minted the permit.
        nonce: 32 random bytes.
        now: the time of sealing, aware.
        reader_of: returns the reader of the evidence.
        skew: as for ``seal``.

    Raises:
        TypeError: ``permit`` was not built by a desk as one for challenges, or
            ``key`` not by ``attest.verify``.
        PermitRefusedError: as ``seal``.
        RefusedError: the key expired between verification and sealing.
        EnclaveError: the key list has no suite that we support.
    """
    verified = require_verified(key)
    verified.usable_at(now)
    content, date = challenge_content(verified, nonce), _date(now, skew)
    listed = hashlib.sha256(verified.key_configs).digest()
    presented = ChallengeBinding(key=listed, release=verified.release_digest)
    desk.redeem(permit, presented, now_ms=time_ms(now))
    return _sealed(
        verified,
        _InnerRequest(path=CHALLENGE_PATH, content=content, date=date),
        reader_of=reader_of,
    )


def size_class_of(length: int, key: VerifiedKey | None, *, now: datetime) -> int:
    """Return the size class that a payload has, or would have, once sealed.

    Args:
        length: bytes of the payload; of a query kept local, only this is known.
        key: that it is or would be sealed to; None: assume the first suite that
            enclaves list. The classes are the same, only their limits differ.
        now: for the length of a date.

    Raises:
        EnclaveError: larger than the largest class.
    """
    suite = _USUAL_SUITE if key is None else keyconfig.choose_suite(_config(key))
    inner = _InnerRequest(path=CHAT_PATH, content=bytes(length), date=now)
    # While the key is unknown, a receipt is assumed: most enclaves give them. A wrong
    # guess moves a query near a limit by one class.
    receipts = key is None or bool(key.receipt_public_key)
    octets = len(inner.encoded(bytes(SECRET_BYTES) if receipts else None))
    try:
        return padding.size_class(suite, octets)
    except LimitExceededError:
        raise EnclaveError(EnclaveFailure.TOO_LARGE) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _InnerRequest:
    """One request before it is sealed."""

    path: bytes
    content: bytes = field(repr=False)
    date: datetime
    secret: ReceiptSecret | None = None

    def encoded(self, secret: bytes | None) -> bytes:
        """Encode it, with the secret of its receipt where there will be one."""
        # Only these fields: a client name or version would distinguish, at the enclave,
        # the queries of one client from those of others. By the date, a replay is
        # recognised once the window has passed (RFC 9458, section 6.5.1).
        fields = [
            (b"content-type", b"application/json"),
            (b"date", format_date(self.date)),
        ]
        if secret is not None:
            fields.append((KEY_FIELD, encode_field(secret)))
        return bhttp.encode_request(
            bhttp.Request(
                method=b"POST",
                scheme=b"https",
                authority=AUTHORITY,
                path=self.path,
                fields=tuple(fields),
                content=self.content,
            )
        )


def _date(now: datetime, skew: timedelta) -> datetime:
    # The skew comes from the enclave: near the year 9999, adding overflows.
    try:
        return now + skew
    except OverflowError:
        raise DateRefusedError(None) from None


def _config(key: VerifiedKey) -> keyconfig.KeyConfig:
    """Return the first configuration that we support, X-Wing if there is one.

    Raises:
        EnclaveError: the list that the evidence is bound to has none.
    """
    # The list that the evidence is bound to: a list from elsewhere, such as a mirror,
    # is never parsed here.
    try:
        configs = keyconfig.parse_key_configs(key.key_configs)
        return next(config for config in configs if config.suites())
    except (WireError, StopIteration):
        raise EnclaveError(
            EnclaveFailure.EVIDENCE_REFUSED, code="unsupported_algorithm"
        ) from None


def _sealed(
    key: VerifiedKey, inner: _InnerRequest, *, at_least: int = 0, reader_of: ReaderOf
) -> tuple[SealedExchange, AnswerReader]:
    config = _config(key)
    secret, check = None, None
    # Decided by the evidence, not by the answer: an enclave that promised receipts
    # cannot omit one and be trusted.
    if key.receipt_public_key:
        # If the organisation keeps no receipts, a new secret: the receipt is verified
        # all the same, and all requests look alike inside.
        chosen = inner.secret or ReceiptSecret()
        question = inner.path == CHAT_PATH
        secret = chosen.value
        check = ReceiptCheck(
            key, chosen, inner.content, date=inner.date, question=question
        )
    # Padded inside the seal to one of a few lengths: the length that the relay sees is
    # its class. Each call makes a new encapsulated key, so that two attempts at one
    # query have nothing in common (RFC 9458, section 6.5).
    try:
        sealed = padding.seal_padded_request(
            config, inner.encoded(secret), at_least=at_least
        )
    except LimitExceededError:
        raise EnclaveError(EnclaveFailure.TOO_LARGE) from None
    except WireError:
        raise EnclaveError(
            EnclaveFailure.EVIDENCE_REFUSED, code="unsupported_algorithm"
        ) from None
    reader = AnswerReader(sealed.opener, key.transport, reader_of, check)
    return SealedExchange(SEAL_DOOR, sealed.message, key.transport), reader
