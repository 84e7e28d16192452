"""HKDF with SHA-256 (RFC 5869), raw and with HPKE's labels; nothing else.

The only hash of every suite here. Knows octets, not what they are secrets of.

HMAC (RFC 2104) is written out, for two reasons of cost. A key that serves several
times is a ``PRK``, which hashes HMAC's two pads once. And the library's own HMAC
looks its algorithm up anew for every message, which for messages as short as ours
is more work than the hashing. The pads are made by arithmetic, not by looking
octets of the key up in a table, which would show in the processor's cache.
"""

from hashlib import sha256
from typing import Final

from curtilage.wire.errors import LimitExceededError

HASH_BYTES: Final = 32  # SHA-256

# One octet counts the blocks (RFC 5869, section 2.3).
MAX_EXPAND_BYTES: Final = 255 * HASH_BYTES

_VERSION: Final = b"HPKE-v1"
_BLOCK_BYTES: Final = 64
_INNER_PAD: Final = int.from_bytes(b"\x36" * _BLOCK_BYTES, "big")
_OUTER_PAD: Final = int.from_bytes(b"\x5c" * _BLOCK_BYTES, "big")
_INNER_REST: Final = b"\x36" * (_BLOCK_BYTES - HASH_BYTES)
_OUTER_REST: Final = b"\x5c" * (_BLOCK_BYTES - HASH_BYTES)
_INNER_HALF: Final = int.from_bytes(_INNER_REST, "big")
_OUTER_HALF: Final = int.from_bytes(_OUTER_REST, "big")


class PRK:
    """A key of HMAC with SHA-256, ready for many messages; never changes."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        inner, outer = _pads(key)
        self._inner = sha256(inner)
        self._outer = sha256(outer)

    def mac(self, message: bytes) -> bytes:
        """HMAC: 32 octets.

        With ``one_block(info)`` for a message, these are the first 32 octets of
        HKDF-Expand with ``info``.
        """
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


def extract(salt: bytes, ikm: bytes) -> bytes:
    """HKDF-Extract: 32 octets."""
    inner, outer = _pads(salt)
    return sha256(outer + sha256(inner + ikm).digest()).digest()


def expand(prk: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand: ``length`` octets, 1..8160.

    Raises:
        LimitExceededError: another length.
    """
    if 0 < length <= HASH_BYTES:
        return extract(prk, one_block(info))[:length]
    if not 0 < length <= MAX_EXPAND_BYTES:
        raise LimitExceededError(f"HKDF-Expand: 1..{MAX_EXPAND_BYTES} octets")
    key, block, found = PRK(prk), b"", bytearray()
    for counter in range(1, -(-length // HASH_BYTES) + 1):
        block = key.mac(block + info + bytes([counter]))
        found += block
    return bytes(found[:length])


def one_block(info: bytes) -> bytes:
    """Return the message that is the first block of HKDF-Expand with ``info``."""
    return info + b"\x01"


def extract_label(suite_id: bytes, label: bytes) -> bytes:
    """Return what LabeledExtract puts before its input key material.

    RFC 9180, section 4: ``"HPKE-v1" suite_id label``. It never changes for one
    suite, so callers keep it.
    """
    return _VERSION + suite_id + label


def expand_label(suite_id: bytes, label: bytes, length: int) -> bytes:
    """Return what LabeledExpand puts before its info (RFC 9180, section 4)."""
    return length.to_bytes(2, "big") + _VERSION + suite_id + label


def _pads(key: bytes) -> tuple[bytes, bytes]:
    if len(key) != HASH_BYTES:
        if len(key) > _BLOCK_BYTES:
            key = sha256(key).digest()
        padded = int.from_bytes(key.ljust(_BLOCK_BYTES, b"\x00"), "big")
        return (
            (padded ^ _INNER_PAD).to_bytes(_BLOCK_BYTES, "big"),
            (padded ^ _OUTER_PAD).to_bytes(_BLOCK_BYTES, "big"),
        )
    # A hash, as nearly all keys are: the other half of its block is all pad.
    half = int.from_bytes(key, "big")
    return (
        (half ^ _INNER_HALF).to_bytes(HASH_BYTES, "big") + _INNER_REST,
        (half ^ _OUTER_HALF).to_bytes(HASH_BYTES, "big") + _OUTER_REST,
    )


# The salt of most of HPKE's extractions.
NO_SALT: Final = PRK(b"")
