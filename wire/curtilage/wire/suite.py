"""HPKE (RFC 9180): the suites that we speak, and the only door to pyhpke.

Knows keys and contexts in base mode, not what is sealed with them. Every failure
of the libraries below becomes ``OpenError`` or ``MalformedError`` here, without
the library's own text. Adding a KEM means adding a line to ``_KEMS``.
"""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from pyhpke import (
    AEADId,
    CipherSuite,
    ContextInterface,
    KDFId,
    KEMId,
    KEMKey,
    KEMKeyPair,
    PyHPKEError,
)
from typing_extensions import override

from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    OpenError,
    UnsupportedError,
)
from curtilage.wire.once import Uncopyable

KEM_X25519: Final = 0x0020
KDF_HKDF_SHA256: Final = 0x0001
AEAD_AES_128_GCM: Final = 0x0001
AEAD_CHACHA20_POLY1305: Final = 0x0003

TAG_BYTES: Final = 16  # both AEADs
HASH_BYTES: Final = 32  # SHA-256


@dataclass(frozen=True, slots=True, kw_only=True)
class _KEM:
    library_id: KEMId
    npk: int
    nsk: int
    nenc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _AEAD:
    library_id: AEADId
    cipher: type[AESGCM | ChaCha20Poly1305]
    nk: int
    nn: int


_KEMS: Final = {
    KEM_X25519: _KEM(
        library_id=KEMId.DHKEM_X25519_HKDF_SHA256, npk=32, nsk=32, nenc=32
    ),
}
_AEADS: Final = {
    AEAD_AES_128_GCM: _AEAD(library_id=AEADId.AES128_GCM, cipher=AESGCM, nk=16, nn=12),
    AEAD_CHACHA20_POLY1305: _AEAD(
        library_id=AEADId.CHACHA20_POLY1305, cipher=ChaCha20Poly1305, nk=32, nn=12
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One supported combination of KEM, KDF and AEAD.

    Attributes:
        kem_id: registered HPKE KEM identifier.
        kdf_id: registered HPKE KDF identifier. Single-stage KDFs cannot serve:
            RFC 9458's response needs Extract and Expand.
        aead_id: registered HPKE AEAD identifier.

    Raises:
        UnsupportedError: at construction, for any other combination.
    """

    kem_id: int
    kdf_id: int
    aead_id: int

    def __post_init__(self) -> None:
        """Refuse what we cannot run, so that every ``Suite`` is usable."""
        supported = (
            self.kem_id in _KEMS
            and self.kdf_id == KDF_HKDF_SHA256
            and self.aead_id in _AEADS
        )
        if not supported:
            raise UnsupportedError("HPKE suite not supported")

    @property
    def npk(self) -> int:
        """Octets of a public key."""
        return _KEMS[self.kem_id].npk

    @property
    def nenc(self) -> int:
        """Octets of an encapsulated key."""
        return _KEMS[self.kem_id].nenc

    @property
    def nk(self) -> int:
        """Octets of an AEAD key."""
        return _AEADS[self.aead_id].nk

    @property
    def nn(self) -> int:
        """Octets of an AEAD nonce."""
        return _AEADS[self.aead_id].nn


SUITES: Final = tuple(
    Suite(kem_id=kem_id, kdf_id=KDF_HKDF_SHA256, aead_id=aead_id)
    for kem_id in _KEMS
    for aead_id in _AEADS
)


def public_key_bytes(kem_id: int) -> int | None:
    """Return the public key length of a KEM, or None if we do not support it."""
    kem = _KEMS.get(kem_id)
    return None if kem is None else kem.npk


class PrivateKey(Uncopyable):
    """A private key for one KEM, with its public key; never shown, never copied.

    Attributes:
        kem_id: the KEM that the key belongs to.
        public_key: the public key as it goes on the wire.
        library_pair: the HPKE library's objects, for this module alone.
    """

    __slots__ = ("kem_id", "library_pair", "public_key")

    def __init__(self, *, kem_id: int, library_pair: KEMKeyPair) -> None:
        self.kem_id = kem_id
        self.library_pair = library_pair
        self.public_key = library_pair.public_key.to_public_bytes()

    @override
    def __repr__(self) -> str:
        """Name the KEM and nothing else."""
        return f"PrivateKey(kem_id={self.kem_id:#06x}, redacted)"


def private_key_from_bytes(kem_id: int, data: bytes) -> PrivateKey:
    """Load a private key; any string of Nsk octets is one.

    Raises:
        UnsupportedError: the KEM is not one of ours.
        MalformedError: ``data`` has another length.
    """
    kem = _KEMS.get(kem_id)
    if kem is None:
        raise UnsupportedError("HPKE KEM not supported")
    if len(data) != kem.nsk:
        raise MalformedError(f"private key: {kem.nsk} octets expected")
    private_key = _kem_suite(kem_id).kem.deserialize_private_key(data)
    public_key = KEMKey.from_pyca_cryptography_key(private_key.raw.public_key())
    return PrivateKey(kem_id=kem_id, library_pair=KEMKeyPair(private_key, public_key))


def generate_private_key(
    kem_id: int, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> PrivateKey:
    """Draw a new private key.

    Raises:
        UnsupportedError: the KEM is not one of ours.
    """
    kem = _KEMS.get(kem_id)
    if kem is None:
        raise UnsupportedError("HPKE KEM not supported")
    return private_key_from_bytes(kem_id, random(kem.nsk))


class SenderContext:
    """The sealing side of one HPKE context; sequence numbers are its own."""

    __slots__ = ("_context",)

    def __init__(self, context: ContextInterface) -> None:
        self._context = context

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal the next message of this context."""
        return self._context.seal(plaintext, aad)

    def export(self, label: bytes, length: int) -> bytes:
        """Derive ``length`` octets for another use (RFC 9180, section 5.3)."""
        return _export(self._context, label, length)


class RecipientContext:
    """The opening side of one HPKE context.

    The library moves its sequence number before it decrypts, so that after a
    failure the true ciphertext would fail as well: the first failure ends the
    context (RFC 9180, section 5.2, moves it on success only).
    """

    __slots__ = ("_context", "_failed")

    def __init__(self, context: ContextInterface) -> None:
        self._context = context
        self._failed = False

    def open(self, ciphertext: bytes, aad: bytes) -> bytes:
        """Open the next message of this context.

        Raises:
            OpenError: it was not sealed by our peer as the next message.
            ConsumedError: an earlier message did not open.
        """
        if self._failed:
            raise ConsumedError("an earlier message of this context did not open")
        try:
            return self._context.open(ciphertext, aad)
        except PyHPKEError:
            self._failed = True
            raise OpenError from None

    def export(self, label: bytes, length: int) -> bytes:
        """Derive ``length`` octets for another use (RFC 9180, section 5.3)."""
        return _export(self._context, label, length)


def setup_sender(
    suite: Suite,
    public_key: bytes,
    info: bytes,
    *,
    ephemeral: PrivateKey | None = None,
) -> tuple[bytes, SenderContext]:
    """Begin a context towards the holder of ``public_key`` (SetupBaseS).

    Args:
        suite: what to speak.
        public_key: the recipient's, Npk octets; nothing else vouches for it here.
        info: binds the context to its use.
        ephemeral: only for known-answer tests and keys drawn ahead; a second use
            of one reveals both messages.

    Returns:
        The encapsulated key, Nenc octets, and the context.

    Raises:
        MalformedError: the public key is no usable point.
    """
    library = _library(suite)
    try:
        recipient = library.kem.deserialize_public_key(public_key)
        enc, context = library.create_sender_context(
            recipient, info, eks=None if ephemeral is None else ephemeral.library_pair
        )
    except (PyHPKEError, ValueError):
        # ValueError: a wrong length, or a point of low order, whose exchange
        # gives an all-zero secret.
        raise MalformedError("public key is not a usable point") from None
    return enc, SenderContext(context)


def setup_recipient(
    suite: Suite, enc: bytes, private_key: PrivateKey, info: bytes
) -> RecipientContext:
    """Take up the context that a sender began (SetupBaseR).

    Succeeds for most wrong inputs; only ``open`` tells whether they fit.

    Raises:
        OpenError: ``enc`` or the key does not belong to this suite.
    """
    if private_key.kem_id != suite.kem_id:
        raise OpenError
    try:
        context = _library(suite).create_recipient_context(
            enc, private_key.library_pair.private_key, info
        )
    except (PyHPKEError, ValueError):
        raise OpenError from None
    return RecipientContext(context)


class AEADKey:
    """One AEAD key outside an HPKE context; the caller owns the nonces."""

    __slots__ = ("_cipher",)

    def __init__(self, suite: Suite, key: bytes) -> None:
        self._cipher = _AEADS[suite.aead_id].cipher(key)

    def seal(self, nonce: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """Seal one message; a nonce must never come twice."""
        return self._cipher.encrypt(nonce, plaintext, aad)

    def open(self, nonce: bytes, ciphertext: bytes, aad: bytes) -> bytes:
        """Open one message.

        Raises:
            OpenError: for every cause alike.
        """
        try:
            return self._cipher.decrypt(nonce, ciphertext, aad)
        except InvalidTag:
            raise OpenError from None


def extract(salt: bytes, ikm: bytes) -> bytes:
    """HKDF-Extract with SHA-256 (RFC 5869), without HPKE's labels."""
    return hmac.digest(salt, ikm, "sha256")


def expand(prk: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand with SHA-256 (RFC 5869), one block: at most 32 octets.

    The AEAD keys and nonces of every suite here fit into one block.
    """
    if not 0 < length <= HASH_BYTES:
        raise LimitExceededError(f"HKDF-Expand: 1..{HASH_BYTES} octets")
    return hmac.digest(prk, info + b"\x01", "sha256")[:length]


def _export(context: ContextInterface, label: bytes, length: int) -> bytes:
    if not 0 < length <= 255 * HASH_BYTES:
        raise LimitExceededError("HPKE export: 1..8160 octets")
    return context.export(label, length)


@cache
def _library(suite: Suite) -> CipherSuite:
    return CipherSuite.new(
        _KEMS[suite.kem_id].library_id,
        KDFId.HKDF_SHA256,
        _AEADS[suite.aead_id].library_id,
    )


def _kem_suite(kem_id: int) -> CipherSuite:
    # Keys belong to the KEM alone; any suite with it will do.
    return _library(next(suite for suite in SUITES if suite.kem_id == kem_id))
