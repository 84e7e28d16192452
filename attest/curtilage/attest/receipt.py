r"""Receipts: the enclave's signed statement of what it was asked and answered.

Implements the format, the signature and the comparison; uses neither clock nor
randomness nor storage. A receipt is inside the sealed answer, so it is not visible in
transit. Big-endian:

    signed = u8 version | u16 status | u64 served_at
           | SHA-256(key_configs) | SHA-256(manifest) | SHA-256(model)
           | HMAC-SHA256(k, "request\0" | request content)
           | HMAC-SHA256(k, "answer\0" | answer content, filler included)
    receipt = signed | Ed25519("curtilage/receipt/v1\0" | signed)

``k`` is the client's own, 32 random-looking bytes, sent with the question. So a
receipt alone does not reveal what was asked, not even to someone who can guess: only
the holder of ``k`` can show that a question and an answer belong to it.

The evidence binds the signing key (``binding``) together with the keys that open the
question. A receipt does not show that the answer is true, or that the model ran
undisturbed; it is as good as the evidence behind its key.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from typing_extensions import override

from curtilage.attest.encoding.strict_json import decode_base64url, encode_base64url
from curtilage.attest.errors import RefusalCode, RefusedError

KEY_FIELD: Final = b"curtilage-receipt-key"
"""Field of the sealed request that carries ``k``, see ``encode_field``."""
RECEIPT_FIELD: Final = b"curtilage-receipt"
"""Trailer of the sealed answer that carries the receipt."""
RECEIPT_VERSION: Final = 1
SECRET_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 32
SIGNED_BYTES: Final = 1 + 2 + 8 + 5 * DIGEST_BYTES
SIGNATURE_BYTES: Final = 64
RECEIPT_BYTES: Final = SIGNED_BYTES + SIGNATURE_BYTES
NO_MODEL: Final = bytes(DIGEST_BYTES)
"""Replaces the model's digest where no model ran."""

_LABEL: Final = b"curtilage/receipt/v1\0"
_REQUEST: Final = b"request\0"
_ANSWER: Final = b"answer\0"
_LAYOUT: Final = struct.Struct(">BHQ32s32s32s32s32s")
_STATUSES: Final = range(100, 600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """An enclave's statement about one exchange.

    Attributes:
        status: of the answer, 100..599.
        served_at: when the request was opened, Unix seconds, enclave's clock.
        key_configs_digest: SHA-256 of the key list, 32 bytes.
        release_digest: SHA-256 of the release's manifest, 32 bytes.
        model_digest: SHA-256 of the model that answered, or ``NO_MODEL``.
        request_mac: of the request's content, under the client's ``k``.
        answer_mac: of the answer's content, filler included, under ``k``.
    """

    status: int
    served_at: int
    key_configs_digest: bytes
    release_digest: bytes
    model_digest: bytes
    request_mac: bytes = field(repr=False)
    answer_mac: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse values that have no encoding."""
        # What has an encoding is refused when it is made, so that what is read back is
        # never refused for its numbers alone.
        if self.status not in _STATUSES:
            raise ValueError("receipt: status outside 100..599")
        if not 0 <= self.served_at < 2**63:
            raise ValueError("receipt: time outside 63 bits")
        if any(len(value) != DIGEST_BYTES for value in self._digests()):
            raise ValueError(f"receipt: a digest is not {DIGEST_BYTES} bytes")

    def signed_part(self) -> bytes:
        """Encode what the signature covers, 171 bytes."""
        return _LAYOUT.pack(
            RECEIPT_VERSION, self.status, self.served_at, *self._digests()
        )

    def _digests(self) -> tuple[bytes, ...]:
        return (
            self.key_configs_digest,
            self.release_digest,
            self.model_digest,
            self.request_mac,
            self.answer_mac,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptExpectation:
    """Values that a receipt must have to be the one for an exchange.

    Attributes:
        status: of the answer that came.
        earliest: Unix seconds; served before this, it is another exchange's.
        latest: Unix seconds, included.
        key_configs_digest: SHA-256 of the list that was sealed to.
        release_digest: SHA-256 of the manifest that was verified.
        model_digests: the release's models; one of them ran, or none.
        none_ran: whether none may have run: not so for a whole completion.
        request_mac: over the content that was sent.
        answer_mac: over the content that came.
    """

    status: int
    earliest: int
    latest: int
    key_configs_digest: bytes
    release_digest: bytes
    model_digests: frozenset[bytes]
    none_ran: bool = True
    request_mac: bytes = field(repr=False)
    answer_mac: bytes = field(repr=False)


class ReceiptKey:
    """The private key: signs until it is overwritten; never shown.

    Made from 32 random bytes, the seed of RFC 8032, section 5.1.5.
    """

    __slots__ = ("_loaded", "public_key")

    def __init__(self, seed: bytes) -> None:
        self._loaded: Ed25519PrivateKey | None = Ed25519PrivateKey.from_private_bytes(
            seed
        )
        self.public_key: Final = self._loaded.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> "ReceiptKey":
        """Generate a key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, signed_part: bytes) -> bytes:
        """Return the signature over the label and ``signed_part``, 64 bytes.

        Raises:
            ValueError: the key was overwritten.
        """
        if self._loaded is None:
            raise ValueError("this receipt key was overwritten")
        return self._loaded.sign(_LABEL + signed_part)

    def overwrite(self) -> None:
        """Release the key; the library then clears its memory."""
        # Python cannot overwrite bytes of a library's key; without a reference, OpenSSL
        # frees and clears it.
        self._loaded = None

    @override
    def __repr__(self) -> str:
        """Return only the name of the type."""
        return "ReceiptKey(redacted)"

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        # A copy would outlive ``overwrite``.
        raise TypeError("a ReceiptKey is not copied")


class ContentMac:
    """HMAC-SHA256 over content as it comes; pieces may be cut anywhere."""

    __slots__ = ("_mac",)

    def __init__(self, secret: bytes, label: bytes) -> None:
        # A short secret could be tried out, and a receipt would confirm a guess of the
        # question.
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"receipt secret is not {SECRET_BYTES} bytes")
        # Request and answer have labels of their own, so the value of one is never that
        # of the other, even for equal content.
        self._mac = hmac.new(secret, label, hashlib.sha256)

    def update(self, content: bytes) -> None:
        """Add the next piece."""
        self._mac.update(content)

    def digest(self) -> bytes:
        """Return the value over what was added so far, 32 bytes."""
        return self._mac.digest()


def answer_mac(secret: bytes) -> ContentMac:
    """Start the value over an answer's content, filler included."""
    return ContentMac(secret, _ANSWER)


def request_mac(secret: bytes, content: bytes) -> bytes:
    """Return the value over a request's content, 32 bytes."""
    mac = ContentMac(secret, _REQUEST)
    mac.update(content)
    return mac.digest()


def sign_receipt(fields: Receipt, private_key: ReceiptKey) -> bytes:
    """Return the receipt's 235 bytes.

    Raises:
        ValueError: the key was overwritten.
    """
    signed = fields.signed_part()
    return signed + private_key.sign(signed)


def open_receipt(data: bytes, *, public_key: bytes) -> Receipt:
    """Verify a receipt's signature and return what it says.

    Does not check that it is the receipt of a certain exchange; see
    ``verify_receipt``.

    Args:
        data: 235 bytes.
        public_key: 32 bytes, as the evidence binds it.

    Raises:
        RefusedError: ``receipt_invalid``.
    """
    # Exact, and the version before the signature: another version has another layout
    # under the same label.
    if len(data) != RECEIPT_BYTES:
        raise _invalid(f"not {RECEIPT_BYTES} bytes")
    signed, signature = data[:SIGNED_BYTES], data[SIGNED_BYTES:]
    if signed[0] != RECEIPT_VERSION:
        raise _invalid(f"version is not {RECEIPT_VERSION}")
    # Before a field is read: data that the enclave did not sign is not authentic.
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key)
        # The label keeps apart what this key signs: no receipt is ever a signature over
        # something else of ours.
        key.verify(signature, _LABEL + signed)
    except (InvalidSignature, ValueError):
        raise _invalid("the signature does not hold") from None
    _, status, served_at, *digests = _LAYOUT.unpack(signed)
    key_configs, release, model, request, answer = digests
    try:
        return Receipt(
            status=status,
            served_at=served_at,
            key_configs_digest=key_configs,
            release_digest=release,
            model_digest=model,
            request_mac=request,
            answer_mac=answer,
        )
    except ValueError:
        raise _invalid("a number is out of its range") from None


def verify_receipt(
    data: bytes, *, public_key: bytes, expected: ReceiptExpectation
) -> Receipt:
    """Verify that a receipt is the one for an exchange.

    Args:
        data: as it came.
        public_key: 32 bytes, of the ``VerifiedKey`` that was sealed to.
        expected: what the client knows of the exchange.

    Raises:
        RefusedError: ``receipt_invalid``; the detail names what differs.
    """
    receipt = open_receipt(data, public_key=public_key)
    # Each comparison prevents one substitution by the operator of the enclave's
    # machine: an error's receipt behind an answer, an old one, one under other keys, of
    # another release, of another model.
    if receipt.status != expected.status:
        raise _invalid("another status")
    if not expected.earliest <= receipt.served_at <= expected.latest:
        raise _invalid("served at another time")
    if receipt.key_configs_digest != expected.key_configs_digest:
        raise _invalid("another key list")
    if receipt.release_digest != expected.release_digest:
        raise _invalid("another release")
    # Zeros say that no model ran, as for an error; for a complete answer they are not
    # accepted.
    none = frozenset({NO_MODEL} if expected.none_ran else ())
    if receipt.model_digest not in expected.model_digests | none:
        raise _invalid("a model that is not in the release")
    # In constant time, like every comparison with a value under a secret key.
    if not hmac.compare_digest(receipt.request_mac, expected.request_mac):
        raise _invalid("another question")
    if not hmac.compare_digest(receipt.answer_mac, expected.answer_mac):
        raise _invalid("another answer")
    return receipt


def encode_field(value: bytes) -> bytes:
    """Encode ``k`` or a receipt as a field's value, base64url without padding."""
    return encode_base64url(value).encode("ascii")


def decode_field(value: bytes, *, length: int) -> bytes:
    """Decode a field's value of exactly ``length`` bytes; canonical encoding only.

    Raises:
        RefusedError: ``receipt_invalid``.
    """
    try:
        # One spelling, so that equal values are equal bytes.
        data = decode_base64url(value.decode("ascii"), "field")
    except (UnicodeDecodeError, RefusedError):
        raise _invalid("not base64url") from None
    if len(data) != length:
        raise _invalid(f"not {length} bytes in base64url")
    return data


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.RECEIPT_INVALID, f"receipt: {detail}")
