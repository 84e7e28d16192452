"""HPKE (RFC 9180): the supported suites, their keys, and the setup of contexts.

Knows keys and contexts in base mode, not what is sealed with them. Every failure
of the libraries below becomes ``OpenError`` or ``MalformedError`` here, without
the library's own text. Adding a KEM means adding a line to ``_KEMS``.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final

from typing_extensions import override

from curtilage.wire.errors import (
    ConsumedError,
    MalformedError,
    OpenError,
    UnsupportedError,
)
from curtilage.wire.hpke import xwing
from curtilage.wire.hpke.aead import (
    AEAD_AES_128_GCM,
    AEAD_CHACHA20_POLY1305,
    AEADS,
    NONCE_BYTES,
    TAG_BYTES,
)
from curtilage.wire.hpke.dhkem import KEY_BYTES, DHKEMPrivateKey, DHKEMPublicKey
from curtilage.wire.hpke.key_schedule import (
    KeySchedule,
    RecipientContext,
    SenderContext,
)
from curtilage.wire.hpke.xwing import XWingPrivateKey, XWingPublicKey
from curtilage.wire.once import Uncopyable

__all__ = [
    "AEAD_AES_128_GCM",
    "AEAD_CHACHA20_POLY1305",
    "KDF_HKDF_SHA256",
    "KEM_X25519",
    "KEM_XWING",
    "SUITES",
    "TAG_BYTES",
    "PrivateKey",
    "RecipientContext",
    "SenderContext",
    "Suite",
    "generate_private_key",
    "private_key_from_bytes",
    "public_key_bytes",
    "setup_recipient",
    "setup_sender",
]

# Registered identifiers (RFC 9180, sections 7.1 and 7.2; draft-ietf-hpke-pq).
KEM_X25519: Final = 0x0020
KEM_XWING: Final = 0x647A
KDF_HKDF_SHA256: Final = 0x0001


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One supported combination of KEM, KDF and AEAD.

    Attributes:
        kem_id: registered HPKE KEM identifier.
        kdf_id: registered HPKE KDF identifier. Single-stage KDFs cannot serve:
            RFC 9458's response needs Extract and Expand.
        aead_id: registered HPKE AEAD identifier.
        npk: bytes of a public key.
        nenc: bytes of an encapsulated key.
        nk: bytes of an AEAD key.
        nn: bytes of an AEAD nonce.

    Raises:
        UnsupportedError: at construction, for any other combination.
    """

    kem_id: int
    kdf_id: int
    aead_id: int
    npk: int = field(init=False, repr=False, compare=False)
    nenc: int = field(init=False, repr=False, compare=False)
    nk: int = field(init=False, repr=False, compare=False)
    nn: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what we cannot run, so that every ``Suite`` is usable."""
        # One KDF, so that the whole part has one hash. Identifiers come from key lists
        # that anybody may have written; what is not ours reaches no library.
        supported = (
            self.kem_id in _KEMS
            and self.kdf_id == KDF_HKDF_SHA256
            and self.aead_id in AEADS
        )
        if not supported:
            raise UnsupportedError("HPKE suite not supported")
        kem, aead = _KEMS[self.kem_id], AEADS[self.aead_id]
        lengths = {"npk": kem.npk, "nenc": kem.nenc, "nk": aead.nk, "nn": NONCE_BYTES}
        # Looked up once, at construction: every message asks for all of them.
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
        # One reference, nowhere else: it is what ``overwrite`` gives up.
        self._loaded: DHKEMPrivateKey | XWingPrivateKey | None = loaded

    @property
    def loaded(self) -> DHKEMPrivateKey | XWingPrivateKey:
        """The key itself, for this folder alone.

        Raises:
            ConsumedError: it was overwritten.
        """
        if self._loaded is None:
            raise ConsumedError("this private key was overwritten")
        return self._loaded

    def overwrite(self) -> None:
        """Give the key up; from now on its use raises ``ConsumedError``.

        The library below clears a key's memory when its last reference goes,
        and we hold the only ones. Copies that Python made of the bytes it was
        loaded from are out of reach: they go when their memory is used again.
        """
        self._loaded = None

    @override
    def __repr__(self) -> str:
        """Name the KEM and nothing else."""
        return f"PrivateKey(kem_id={self.kem_id:#06x}, redacted)"


def private_key_from_bytes(kem_id: int, data: bytes) -> PrivateKey:
    """Load a private key; any string of Nsk bytes is one.

    Raises:
        UnsupportedError: the KEM is not one of ours.
        MalformedError: ``data`` has another length.
    """
    kem = _KEMS.get(kem_id)
    if kem is None:
        raise UnsupportedError("HPKE KEM not supported")
    if len(data) != kem.nsk:
        raise MalformedError(f"private key: {kem.nsk} bytes expected")
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
    # Random bytes are a key as they are. DeriveKeyPair (RFC 9180, section 7.1.3)
    # would hash them first, for sources of randomness that are not uniform.
    return private_key_from_bytes(kem_id, random(kem.nsk))


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
        public_key: the recipient's, Npk bytes; nothing else vouches for it here.
        info: binds the context to its use.
        ephemeral: an X25519 key, only for known-answer tests and keys drawn
            ahead; a second use of one reveals both messages.

    Returns:
        The encapsulated key, Nenc bytes, and the context.

    Raises:
        MalformedError: the public key is not usable.
        UnsupportedError: an ephemeral key for a KEM that takes none.
    """
    # Checked as a point before anything is computed with it (RFC 9180, section 7.1.4).
    recipient = _load_public_key(suite.kem_id, public_key)
    drawn = None if ephemeral is None else ephemeral.loaded
    # ML-KEM draws inside the library and takes no key from us.
    if isinstance(drawn, XWingPrivateKey):
        raise UnsupportedError("an ephemeral key is an X25519 key")
    secret, enc = recipient.encapsulate(None if drawn is None else drawn.key)
    return enc, _key_schedule(suite.kem_id, suite.aead_id).sender(secret, info)


def setup_recipient(
    suite: Suite, enc: bytes, private_key: PrivateKey, info: bytes
) -> RecipientContext:
    """Take up the context that a sender began (SetupBaseR).

    Succeeds for every ``enc`` of the right length; only ``open`` shows whether it
    matches. So a point of low order fails where a forged tag fails, after the same
    work.

    Raises:
        OpenError: the length of ``enc`` or the key's KEM is not this suite's.
        ConsumedError: the private key was overwritten.
    """
    # A key serves one KEM: with the same bytes under two, a flaw of the weaker
    # one would be a flaw of both.
    if private_key.kem_id != suite.kem_id:
        raise OpenError
    # No error beyond the length: an encapsulated key that is none leads to a context
    # in which nothing opens.
    secret = private_key.loaded.decapsulate(enc)
    return _key_schedule(suite.kem_id, suite.aead_id).recipient(secret, info)


# Keys are public here and parsing an ML-KEM key is expensive; a client has few peers.
# Exceptions are not cached.
@lru_cache(maxsize=16)
def _load_public_key(kem_id: int, data: bytes) -> DHKEMPublicKey | XWingPublicKey:
    return _KEMS[kem_id].public_key(data)


@cache
def _key_schedule(kem_id: int, aead_id: int) -> KeySchedule:
    # All three identifiers are in every label: what is sealed under one suite opens
    # under no other, even if the header is swapped (RFC 9180, section 5.1).
    identifiers = (kem_id, KDF_HKDF_SHA256, aead_id)
    suite_id = b"HPKE" + b"".join(one.to_bytes(2, "big") for one in identifiers)
    return KeySchedule(suite_id, AEADS[aead_id])
