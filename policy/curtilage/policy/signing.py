r"""Detached Ed25519 signatures of policies, with a period of validity.

``lp(x)`` is a u32 big-endian length and x; numbers are u64 big-endian Unix
seconds. Signed are the bytes

    "curtilage/policy-signature/v1\0" | lp(policy_digest) | not_before
    | not_after | lp(public key)

and the file that holds the signature is canonical JSON of one line. Uses no
file and no clock: bytes and ``now`` are arguments. Setting a device's clock back
makes an expired policy valid again there.
"""

import hashlib
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from curtilage.attest.encoding.strict_json import (
    canonical_json,
    encode_base64,
    parse_object,
)
from curtilage.attest.errors import RefusedError
from curtilage.policy.decision.classes import STALE_POLICY
from curtilage.policy.decision.findings import Finding, Normalization, Where

FORMAT: Final = "curtilage/policy-signature/v1"
SIGNATURE_LIMIT_BYTES: Final = 1024  # ours have about 340
KEY_LIMIT_BYTES: Final = 4096
SIGNATURE_BYTES: Final = 64
SEED_BYTES: Final = 32
MAX_TIME: Final = 253_402_300_799  # the end of the year 9999
WARNED_BEFORE: Final = timedelta(days=14)
"""Time before a signature's expiry at which a person is warned."""
NOTHING: Final = "nothing is sent to an enclave"
UNSIGNED: Final = "the policy is not signed"

PrivateKey: TypeAlias = Ed25519PrivateKey
"""What signs policies and custody lists."""

_LABEL: Final = FORMAT.encode() + b"\0"
_KEY_ID_HEX: Final = 16
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_FIELDS: Final = frozenset(
    {"format", "policy_digest", "not_before", "not_after", "key_id", "signature"}
)
_WHOLE_QUERY: Final = Where(message=0, role="user", json_path="")


class SigningError(Exception):
    """A key or a signature file is invalid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySignature:
    """Content of a signature file; not verified.

    Attributes:
        policy_digest: ``sha256:`` and 64 hexadecimal digits.
        not_before: Unix seconds; valid from then on.
        not_after: Unix seconds; the last second in which it is valid.
        key_id: which key is said to have signed, 16 hexadecimal digits.
        signature: 64 bytes.
    """

    policy_digest: str
    not_before: int
    not_after: int
    key_id: str
    signature: bytes = field(repr=False)

    def encode(self) -> bytes:
        """Return the file's bytes: canonical JSON and a newline."""
        return (
            canonical_json(
                {
                    "format": FORMAT,
                    "policy_digest": self.policy_digest,
                    "not_before": self.not_before,
                    "not_after": self.not_after,
                    "key_id": self.key_id,
                    "signature": encode_base64(self.signature),
                }
            )
            + b"\n"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """A policy that must be signed; checked before every decision.

    Attributes:
        policy_digest: of the policy in force.
        signature: the signature file's bytes, or None where there is none.
        public_key: who must have signed, 32 bytes.
    """

    policy_digest: str
    signature: bytes | None = field(repr=False)
    public_key: bytes = field(repr=False)

    def problem(self, now: datetime) -> str | None:
        """Return why the policy is not current at ``now``, or None if it is."""
        return signature_problem(
            self.policy_digest, self.signature, self.public_key, now
        )

    def span(self) -> tuple[datetime, datetime] | None:
        """Return from when to when the signature is valid, or None without one.

        The file says so; it is authentic only where ``problem`` is None.
        """
        if self.signature is None:
            return None
        try:
            signed = parse_signature(self.signature)
        except SigningError:
            return None
        first, last = signed.not_before, signed.not_after
        return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)

    def warning(self, now: datetime) -> str | None:
        """Return what a person should know about the signature; None if all is well.

        A policy that is not current keeps every query local, and so does one whose
        signature expires: the warning starts ``WARNED_BEFORE`` the end.
        """
        problem, span = self.problem(now), self.span()
        if problem is not None:
            return f"{problem}; until it is signed (`curtilage policy sign`), {NOTHING}"
        if span is None or span[1] - now >= WARNED_BEFORE:
            return None
        days = (span[1] - now).days
        when = f"in {days} {'day' if days == 1 else 'days'}" if days else "within a day"
        end = span[1].strftime("%Y-%m-%d %H:%M UTC")
        return (
            f"the policy's signature ends {when}, on {end}; from then on, until it is "
            f"signed anew (`curtilage policy sign`), {NOTHING}"
        )


def signature_problem(
    policy_digest: str, signature: bytes | None, public_key: bytes, now: datetime
) -> str | None:
    """Return why a policy is not current, or None if it is.

    Args:
        policy_digest: of the policy in force.
        signature: the signature file's bytes, or None where there is none.
        public_key: the one key that counts, 32 bytes.
        now: with a time zone.

    Returns:
        Words without content, fit for a terminal.

    Raises:
        ValueError: ``now`` has no time zone: its meaning would be a guess.
    """
    # Local time would shift the period by hours.
    if now.tzinfo is None:
        raise ValueError("the time has no time zone")
    if signature is None:
        return UNSIGNED
    try:
        signed = parse_signature(signature)
    except SigningError as error:
        return str(error)
    foreign = _foreign(signed, policy_digest, public_key)
    if foreign is not None:
        return foreign
    # The period last: it is authentic only once the signature holds.
    second = now.timestamp()
    if second < signed.not_before:
        return "the signature of the policy is not valid yet"
    # The last second is part of the period.
    if second >= signed.not_after + 1:
        return "the signature of the policy has expired"
    return None


def _foreign(
    signed: PolicySignature, policy_digest: str, public_key: bytes
) -> str | None:
    # The id is only for a better message: it is short, and the signature below decides.
    if signed.key_id != key_id(public_key):
        return f"another key signed the policy: {signed.key_id}"
    if signed.policy_digest != policy_digest:
        return "the signature is for another policy, or the policy was changed"
    message = _message(policy_digest, signed.not_before, signed.not_after, public_key)
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signed.signature, message)
    except InvalidSignature:
        return "the signature of the policy is forged"
    return None


def sign_policy(
    policy_digest: str, key: Ed25519PrivateKey, *, not_before: int, not_after: int
) -> PolicySignature:
    """Sign a policy's digest for a span of time.

    Args:
        policy_digest: of a policy that was loaded.
        key: the signer's.
        not_before: Unix seconds, at least 0.
        not_after: Unix seconds, not before ``not_before``.

    Raises:
        ValueError: the span is empty or out of range, or it is no digest.
    """
    if not 0 <= not_before <= not_after <= MAX_TIME:
        raise ValueError("the signature would never be valid")
    if not _DIGEST.fullmatch(policy_digest):
        raise ValueError("not the digest of a policy")
    public_key = public_bytes(key)
    return PolicySignature(
        policy_digest=policy_digest,
        not_before=not_before,
        not_after=not_after,
        key_id=key_id(public_key),
        signature=key.sign(_message(policy_digest, not_before, not_after, public_key)),
    )


def parse_signature(data: bytes) -> PolicySignature:
    """Read a signature file; nothing of it is verified.

    Only the one canonical spelling is read, so two files that differ are two
    signatures.

    Raises:
        SigningError: not such a file.
    """
    try:
        fields = parse_object(data, where="it", limit_bytes=SIGNATURE_LIMIT_BYTES)
        fields.require(_FIELDS)
        if fields.text("format", limit=64) != FORMAT:
            raise SigningError(f"not a policy signature: the format is not {FORMAT}")
        signature = fields.octets("signature", limit=SIGNATURE_BYTES)
        digest = fields.text("policy_digest", limit=71)
        signer = fields.text("key_id", limit=_KEY_ID_HEX)
        named = _DIGEST.fullmatch(digest) and re.fullmatch(r"[0-9a-f]{16}", signer)
        if len(signature) != SIGNATURE_BYTES or not named:
            raise SigningError("not a policy signature: a field has the wrong size")
        read = PolicySignature(
            policy_digest=digest,
            not_before=fields.integer("not_before", maximum=MAX_TIME),
            not_after=fields.integer("not_after", maximum=MAX_TIME),
            key_id=signer,
            signature=signature,
        )
    except RefusedError as error:
        raise SigningError(f"not a policy signature: {error.detail}") from None
    # Only one spelling, so that comparing two files compares two signatures.
    if read.encode() != data:
        raise SigningError("not a policy signature: it is not canonical JSON")
    return read


def _message(
    policy_digest: str, not_before: int, not_after: int, public_key: bytes
) -> bytes:
    # The signer's key is part of it: a second key, made to fit this signature, would
    # need another message.
    span = struct.pack(">QQ", not_before, not_after)
    return _LABEL + _lp(policy_digest.encode()) + span + _lp(public_key)


def _lp(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def key_id(public_key: bytes) -> str:
    """Return the short name of a key: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:_KEY_ID_HEX]


def stale_finding() -> Finding:
    """Return the finding that keeps a query local while a policy is not current."""
    return Finding(
        data_class=STALE_POLICY,
        detector="policy",
        start=0,
        end=0,
        score=100,
        validated=False,
        normalization=Normalization.RAW,
        where=_WHOLE_QUERY,
    )


def generate_key(
    *, random: Callable[[int], bytes] = secrets.token_bytes
) -> Ed25519PrivateKey:
    """Make a signing key."""
    return Ed25519PrivateKey.from_private_bytes(random(SEED_BYTES))


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of a key's public half."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """Return a private key as PEM (PKCS #8), not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """Return a key's public half as PEM."""
    return key.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )


def parse_private_key(pem: bytes) -> Ed25519PrivateKey:
    """Read an Ed25519 private key from PEM.

    Raises:
        SigningError: anything else; the message holds nothing of it.
    """
    try:
        key = load_pem_private_key(_bounded(pem), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SigningError("not an unencrypted private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError("not an Ed25519 key")
    return key


def parse_public_key(pem: bytes) -> bytes:
    """Read an Ed25519 public key from PEM; return its 32 bytes.

    Raises:
        SigningError: anything else, a private key included: it does not belong
            where policies are checked.
    """
    try:
        key = load_pem_public_key(_bounded(pem))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SigningError("not a public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SigningError("not an Ed25519 key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _bounded(pem: bytes) -> bytes:
    # Before the library parses: a path given by mistake may be of any file.
    if len(pem) > KEY_LIMIT_BYTES:
        raise SigningError(f"a key file has at most {KEY_LIMIT_BYTES} bytes")
    return pem
