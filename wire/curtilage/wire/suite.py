"""HPKE (RFC 9180): the suites that we speak, and the only door to pyhpke.

Knows keys and contexts in base mode, not what is sealed with them. Every failure
of the libraries below becomes ``OpenError`` or ``MalformedError`` here, without
the library's own text. Two backends give the same octets: the lean one, which
everybody gets, and pyhpke, for whoever names it. Adding a KEM means adding a line
to ``_KEMS``.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Final, Protocol, cast

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyhpke import (
    AEADId,
    CipherSuite,
    ContextInterface,
    KDFId,
    KEMId,
    KEMInterface,
    KEMKey,
    KEMKeyInterface,
    KEMKeyPair,
    PyHPKEError,
)
from pyhpke import aead as pyhpke_aead
from pyhpke import kdf as pyhpke_kdf
from typing_extensions import override

from curtilage.wire import xwing
from curtilage.wire.aead import (
    AEAD_AES_128_GCM,
    AEAD_CHACHA20_POLY1305,
    AEADS,
    NONCE_BYTES,
    TAG_BYTES,
)
from curtilage.wire.dhkem import KEY_BYTES, DHKEMPrivateKey, DHKEMPublicKey
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    OpenError,
    UnsupportedError,
)
from curtilage.wire.hkdf import MAX_EXPAND_BYTES, expand, extract
from curtilage.wire.lean import KeySchedule
from curtilage.wire.once import Uncopyable
from curtilage.wire.xwing import XWingPrivateKey, XWingPublicKey

__all__ = [
    "AEAD_AES_128_GCM",
    "AEAD_CHACHA20_POLY1305",
    "KDF_HKDF_SHA256",
    "KEM_X25519",
    "KEM_XWING",
    "SUITES",
    "TAG_BYTES",
    "Backend",
    "PrivateKey",
    "RecipientContext",
    "SenderContext",
    "Suite",
    "expand",
    "extract",
    "generate_private_key",
    "private_key_from_bytes",
    "public_key_bytes",
    "setup_recipient",
    "setup_sender",
]

KEM_X25519: Final = 0x0020
KEM_XWING: Final = 0x647A
KDF_HKDF_SHA256: Final = 0x0001


class Backend(Enum):
    """Whose code runs the key schedule; both give the same octets."""

    LEAN = auto()
    PYHPKE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _KEM:
    private_key: type[DHKEMPrivateKey | XWingPrivateKey]
    public_key: type[DHKEMPublicKey | XWingPublicKey]
    npk: int
    nsk: int
    nenc: int


_KEMS: Final = {
    KEM_XWING: _KEM(
        private_key=XWingPrivateKey,
        public_key=XWingPublicKey,
        npk=xwing.PUBLIC_KEY_BYTES,
        nsk=xwing.SEED_BYTES,
        nenc=xwing.ENC_BYTES,
    ),
    KEM_X25519: _KEM(
        private_key=DHKEMPrivateKey,
        public_key=DHKEMPublicKey,
        npk=KEY_BYTES,
        nsk=KEY_BYTES,
        nenc=KEY_BYTES,
    ),
}
_LIBRARY_AEADS: Final = {
    AEAD_AES_128_GCM: AEADId.AES128_GCM,
    AEAD_CHACHA20_POLY1305: AEADId.CHACHA20_POLY1305,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One supported combination of KEM, KDF and AEAD.

    Attributes:
        kem_id: registered HPKE KEM identifier.
        kdf_id: registered HPKE KDF identifier. Single-stage KDFs cannot serve:
            RFC 9458's response needs Extract and Expand.
        aead_id: registered HPKE AEAD identifier.
        backend: who runs it; two suites that differ in it only are equal.
        npk: octets of a public key.
        nenc: octets of an encapsulated key.
        nk: octets of an AEAD key.
        nn: octets of an AEAD nonce.

    Raises:
        UnsupportedError: at construction, for any other combination.
    """

    kem_id: int
    kdf_id: int
    aead_id: int
    backend: Backend = field(default=Backend.LEAN, compare=False)
    npk: int = field(init=False, repr=False, compare=False)
    nenc: int = field(init=False, repr=False, compare=False)
    nk: int = field(init=False, repr=False, compare=False)
    nn: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what we cannot run, so that every ``Suite`` is usable."""
        supported = (
            self.kem_id in _KEMS
            and self.kdf_id == KDF_HKDF_SHA256
            and self.aead_id in AEADS
        )
        if not supported:
            raise UnsupportedError("HPKE suite not supported")
        kem, aead = _KEMS[self.kem_id], AEADS[self.aead_id]
        lengths = {"npk": kem.npk, "nenc": kem.nenc, "nk": aead.nk, "nn": NONCE_BYTES}
        for name, octets in lengths.items():
            object.__setattr__(self, name, octets)


# In the order of our preference: what is recorded today is not to be read once
# there are quantum computers.
SUITES: Final = tuple(
    Suite(kem_id=kem_id, kdf_id=KDF_HKDF_SHA256, aead_id=aead_id)
    for kem_id in _KEMS
    for aead_id in AEADS
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
    """

    __slots__ = ("_loaded", "kem_id", "public_key")

    def __init__(
        self, *, kem_id: int, loaded: DHKEMPrivateKey | XWingPrivateKey
    ) -> None:
        self.kem_id = kem_id
        self.public_key = loaded.public_bytes
        self._loaded: DHKEMPrivateKey | XWingPrivateKey | None = loaded

    @property
    def loaded(self) -> DHKEMPrivateKey | XWingPrivateKey:
        """The key itself, for this module alone.

        Raises:
            ConsumedError: it was overwritten.
        """
        if self._loaded is None:
            raise ConsumedError("this private key was overwritten")
        return self._loaded

    def overwrite(self) -> None:
        """Give the key up; from now on its use raises ``ConsumedError``.

        The library below clears a key's memory when its last reference goes,
        and we hold the only ones. Copies that Python made of the octets it was
        loaded from are out of reach: they go when their memory is used again.
        """
        self._loaded = None

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
    return PrivateKey(kem_id=kem_id, loaded=kem.private_key(data))


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


class SenderContext(Protocol):
    """The sealing side of one HPKE context; sequence numbers are its own."""

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal the next message of this context."""
        ...

    def export(self, label: bytes, length: int) -> bytes:
        """Derive ``length`` octets, 1..8160, for another use."""
        ...


class RecipientContext(Protocol):
    """The opening side of one HPKE context; the first failure ends it."""

    def open(self, ciphertext: bytes, aad: bytes) -> bytes:
        """Open the next message of this context.

        Raises:
            OpenError: it was not sealed by our peer as the next message.
            ConsumedError: an earlier message did not open.
        """
        ...

    def export(self, label: bytes, length: int) -> bytes:
        """Derive ``length`` octets, 1..8160, for another use."""
        ...


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
        ephemeral: an X25519 key, only for known-answer tests and keys drawn
            ahead; a second use of one reveals both messages.

    Returns:
        The encapsulated key, Nenc octets, and the context.

    Raises:
        MalformedError: the public key is not usable.
        UnsupportedError: an ephemeral key for a KEM that takes none.
    """
    recipient = _load_public_key(suite.kem_id, public_key)
    drawn = None if ephemeral is None else _x25519_key(ephemeral)
    if suite.backend is Backend.PYHPKE:
        return _pyhpke_sender(suite, recipient, info, drawn)
    secret, enc = recipient.encapsulate(drawn)
    return enc, _key_schedule(suite.kem_id, suite.aead_id).sender(secret, info)


def setup_recipient(
    suite: Suite, enc: bytes, private_key: PrivateKey, info: bytes
) -> RecipientContext:
    """Take up the context that a sender began (SetupBaseR).

    Succeeds for every ``enc`` of the right length; only ``open`` tells whether it
    fits. So a point of low order fails where a forged tag fails, after the same
    work.

    Raises:
        OpenError: the length of ``enc`` or the key's KEM is not this suite's.
        ConsumedError: the private key was overwritten.
    """
    if private_key.kem_id != suite.kem_id:
        raise OpenError
    key = private_key.loaded
    if suite.backend is Backend.PYHPKE:
        return _pyhpke_recipient(suite, enc, key, info)
    secret = key.decapsulate(enc)
    return _key_schedule(suite.kem_id, suite.aead_id).recipient(secret, info)


# Keys are public here and parsing an ML-KEM key is dear; a client has few peers.
@lru_cache(maxsize=16)
def _load_public_key(kem_id: int, data: bytes) -> DHKEMPublicKey | XWingPublicKey:
    return _KEMS[kem_id].public_key(data)


def _x25519_key(ephemeral: PrivateKey) -> X25519PrivateKey:
    if not isinstance(ephemeral.loaded, DHKEMPrivateKey):
        raise UnsupportedError("an ephemeral key is an X25519 key")
    return ephemeral.loaded.key


@cache
def _key_schedule(kem_id: int, aead_id: int) -> KeySchedule:
    identifiers = (kem_id, KDF_HKDF_SHA256, aead_id)
    suite_id = b"HPKE" + b"".join(one.to_bytes(2, "big") for one in identifiers)
    return KeySchedule(suite_id, AEADS[aead_id])


# pyhpke, for whoever names it.


class _PyHPKESender(Uncopyable):
    __slots__ = ("_context",)

    def __init__(self, context: ContextInterface) -> None:
        self._context = context

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        return self._context.seal(plaintext, aad)

    def export(self, label: bytes, length: int) -> bytes:
        return _export(self._context, label, length)


class _PyHPKERecipient(Uncopyable):
    # The library moves its sequence number before it decrypts, so that after a
    # failure the true ciphertext would fail as well: a failure ends the context.

    __slots__ = ("_context", "_failed")

    def __init__(self, context: ContextInterface) -> None:
        self._context = context
        self._failed = False

    def open(self, ciphertext: bytes, aad: bytes) -> bytes:
        if self._failed:
            raise ConsumedError("an earlier message of this context did not open")
        try:
            return self._context.open(ciphertext, aad)
        except PyHPKEError:
            self._failed = True
            raise OpenError from None

    def export(self, label: bytes, length: int) -> bytes:
        return _export(self._context, label, length)


class _XWingKey(KEMKeyInterface):
    """A key of X-Wing, of either kind, in the library's clothes."""


class _XWingKEM(KEMInterface):
    """X-Wing as a KEM of the library, which reads no more than this of one."""

    @property
    @override
    def id(self) -> KEMId:
        # The library's enumeration is closed, but only ``value`` is read.
        return cast("KEMId", SimpleNamespace(value=KEM_XWING))

    @override
    def encap(
        self,
        pkr: KEMKeyInterface,
        sks: KEMKeyInterface | None = None,
        eks: KEMKeyPair | None = None,
    ) -> tuple[bytes, bytes]:
        ephemeral = None if eks is None else eks.private_key.raw
        return cast("XWingPublicKey", pkr.raw).encapsulate(ephemeral)

    @override
    def decap(
        self, enc: bytes, skr: KEMKeyInterface, pks: KEMKeyInterface | None = None
    ) -> bytes:
        return cast("XWingPrivateKey", skr.raw).decapsulate(enc)


def _pyhpke_sender(
    suite: Suite,
    recipient: DHKEMPublicKey | XWingPublicKey,
    info: bytes,
    ephemeral: X25519PrivateKey | None,
) -> tuple[bytes, SenderContext]:
    if isinstance(recipient, XWingPublicKey):
        key: KEMKeyInterface = _XWingKey(recipient)
    else:
        key = KEMKey.from_pyca_cryptography_key(recipient.point)
    pair = None if ephemeral is None else _pyhpke_pair(ephemeral)
    enc, context = _library(suite.kem_id, suite.aead_id).create_sender_context(
        key, info, eks=pair
    )
    return enc, _PyHPKESender(context)


def _pyhpke_recipient(
    suite: Suite, enc: bytes, key: DHKEMPrivateKey | XWingPrivateKey, info: bytes
) -> RecipientContext:
    if isinstance(key, XWingPrivateKey):
        library_key: KEMKeyInterface = _XWingKey(key)
    else:
        library_key = _pyhpke_pair(key.key).private_key
    library = _library(suite.kem_id, suite.aead_id)
    try:
        return _PyHPKERecipient(
            library.create_recipient_context(enc, library_key, info)
        )
    except (PyHPKEError, ValueError):
        # A point of low order. The lean path has an answer that fails later.
        schedule = _key_schedule(suite.kem_id, suite.aead_id)
        return schedule.recipient(key.decapsulate(enc), info)


def _pyhpke_pair(key: X25519PrivateKey) -> KEMKeyPair:
    load = KEMKey.from_pyca_cryptography_key
    return KEMKeyPair(load(key), load(key.public_key()))


def _export(context: ContextInterface, label: bytes, length: int) -> bytes:
    if not 0 < length <= MAX_EXPAND_BYTES:
        raise LimitExceededError(f"HPKE export: 1..{MAX_EXPAND_BYTES} octets")
    return context.export(label, length)


@cache
def _library(kem_id: int, aead_id: int) -> CipherSuite:
    aead = _LIBRARY_AEADS[aead_id]
    if kem_id == KEM_XWING:
        # ``CipherSuite.new`` knows the library's own KEMs only. Its KDF gets its
        # suite identifier at every use; this one is never read.
        return CipherSuite(
            _XWingKEM(), pyhpke_kdf.KDF(KDFId.HKDF_SHA256, b""), pyhpke_aead.AEAD(aead)
        )
    return CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, aead)
