"""The key schedule of HPKE's base mode and its two contexts (RFC 9180, section 5).

Knows the shared secret, not the KEM that made it and not what is sealed. There is no
other mode: who sends is to stay unknown, so nothing of the sender's is authenticated.
"""

from functools import lru_cache
from typing import Final

from curtilage.wire.errors import ConsumedError, LimitExceededError, OpenError
from curtilage.wire.hpke.aead import AEAD, NONCE_BYTES, NumberedKey
from curtilage.wire.hpke.hkdf import (
    HASH_BYTES,
    MAX_EXPAND_BYTES,
    PRK,
    expand,
    extract,
    labeled_ikm,
    labeled_info,
)
from curtilage.wire.once import Uncopyable

# RFC 9180, section 5.2: the last sequence number is never used.
MAX_SEQUENCE: Final = 2 ** (8 * NONCE_BYTES) - 1

_MODE_BASE: Final = b"\x00"


class _Context(Uncopyable):
    """State of both sides of a context: a key, a sequence number, an exporter.

    A copy would seal two messages under one nonce, hence ``Uncopyable``.
    """

    __slots__ = ("_exporter_secret", "_key", "_sequence", "_suite_id")

    def __init__(
        self, key: NumberedKey, exporter_secret: bytes, suite_id: bytes
    ) -> None:
        self._key = key
        self._exporter_secret = exporter_secret
        self._suite_id = suite_id
        self._sequence = 0

    def export(self, context: bytes, length: int) -> bytes:
        """Derive ``length`` bytes for another use (RFC 9180, section 5.3).

        Raises:
            LimitExceededError: not 1..8160 bytes.
        """
        # The caller chooses ``context``; the label "sec" keeps what comes of it from
        # being one of the secrets below. The length has to fit its two bytes.
        if not 0 < length <= MAX_EXPAND_BYTES:
            raise LimitExceededError(f"HPKE export: 1..{MAX_EXPAND_BYTES} bytes")
        info = labeled_info(self._suite_id, b"sec", length, context)
        return expand(self._exporter_secret, info, length)

    def _next_sequence(self) -> int:
        # Before the number is used, not after: an exception between the two must
        # not leave a nonce to be used again.
        if self._sequence >= MAX_SEQUENCE:
            raise LimitExceededError("HPKE context: no sequence number is left")
        self._sequence += 1
        return self._sequence - 1


class SenderContext(_Context):
    """The sealing side of one context; sequence numbers are its own."""

    __slots__ = ()

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal the next message of this context.

        Raises:
            LimitExceededError: 2^96 - 1 messages were sealed.
        """
        return self._key.seal(self._next_sequence(), plaintext, aad)


class RecipientContext(_Context):
    """The opening side of one context; the first failure ends it.

    RFC 9180, section 5.2, would let a recipient try another ciphertext in the
    same place. No message of ours has a second try, and repeated tries would be an
    oracle.
    """

    __slots__ = ("_failed",)

    def __init__(
        self, key: NumberedKey, exporter_secret: bytes, suite_id: bytes
    ) -> None:
        super().__init__(key, exporter_secret, suite_id)
        self._failed = False

    def open(self, ciphertext: bytes, aad: bytes) -> bytes:
        """Open the next message of this context.

        Raises:
            OpenError: it was not sealed by our peer as the next message.
            ConsumedError: an earlier message did not open.
            LimitExceededError: 2^96 - 1 messages were opened.
        """
        # What follows a forged message may be genuine; it is out of order all the same.
        if self._failed:
            raise ConsumedError("an earlier message of this context did not open")
        try:
            return self._key.open(self._next_sequence(), ciphertext, aad)
        except OpenError:
            # Its number is spent: sender and recipient would count differently.
            self._failed = True
            raise


class KeySchedule:
    """The key schedule of one suite (KeySchedule); holds constants only.

    Args:
        suite_id: ``"HPKE"`` and the three identifiers.
        aead: the AEAD among them.
    """

    __slots__ = ("_aead", "_secret", "_suite_id")

    def __init__(self, suite_id: bytes, aead: AEAD) -> None:
        self._suite_id = suite_id
        self._aead = aead
        # What follows the label is the pre-shared key: in base mode, nothing.
        self._secret = labeled_ikm(suite_id, b"secret")

    def sender(self, shared_secret: bytes, info: bytes) -> SenderContext:
        """Return the context of who made ``shared_secret``."""
        return SenderContext(*self._derive(shared_secret, info), self._suite_id)

    def recipient(self, shared_secret: bytes, info: bytes) -> RecipientContext:
        """Return the context of who holds the private key."""
        return RecipientContext(*self._derive(shared_secret, info), self._suite_id)

    def _derive(self, shared_secret: bytes, info: bytes) -> tuple[NumberedKey, bytes]:
        nk = self._aead.nk
        # All three out of one secret, each by its label: who learns what was exported
        # learns nothing of the key.
        key, base_nonce, exp = _expand_inputs(self._suite_id, nk, info)
        # The shared secret is the salt and not the input (RFC 9180, section 5.1).
        secret = PRK(extract(shared_secret, self._secret))
        return (
            NumberedKey(
                self._aead,
                secret.expand(key, nk),
                secret.expand(base_nonce, NONCE_BYTES),
            ),
            secret.expand(exp, HASH_BYTES),
        )


# ``info`` is public, and the same for every request to one key configuration: what
# is kept here is no secret, and the bound keeps a stranger's headers from filling it.
@lru_cache(maxsize=64)
def _expand_inputs(suite_id: bytes, nk: int, info: bytes) -> tuple[bytes, bytes, bytes]:
    """Return what is expanded into key, base nonce and exporter secret."""
    psk_id_hash = extract(b"", labeled_ikm(suite_id, b"psk_id_hash"))
    info_hash = extract(b"", labeled_ikm(suite_id, b"info_hash", info))
    # Hashes, all of one length: no ``info`` can be chosen so that it reads as
    # another mode, or as the name of a pre-shared key.
    context = _MODE_BASE + psk_id_hash + info_hash
    return (
        labeled_info(suite_id, b"key", nk, context),
        labeled_info(suite_id, b"base_nonce", NONCE_BYTES, context),
        labeled_info(suite_id, b"exp", HASH_BYTES, context),
    )
