"""HKDF with SHA-256 (RFC 5869), raw and with HPKE's labels; nothing else.

The only hash of every suite here. Knows octets, not what they are secrets of.

A key that serves several times is a ``PRK``: it hashes HMAC's two pads (RFC 2104)
once, where ``hmac`` would hash them anew for every message, and that is most of
the work when messages are this short. The pads are made by arithmetic, not by
looking octets of the key up in a table, which would show in the processor's cache.
"""

import hmac
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


_I=bytes(x^0x36 for x in range(256)); _O=bytes(x^0x5c for x in range(256))
class PRK:
    """A key of at most 64 octets, ready for many messages; never changes."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > 64:
            key = sha256(key).digest()
        padded = key.ljust(_BLOCK_BYTES, b"\x00")
        self._inner = sha256(padded.translate(_I))
        self._outer = sha256(padded.translate(_O))

    def mac(self, message: bytes) -> bytes:
        """HMAC: 32 octets."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()

    def expand(self, info: bytes, length: int) -> bytes:
        """HKDF-Expand into one block: ``length`` octets, 1..32."""
        return self.mac(info + b"\x01")[:length]


# The salt of most of HPKE's extractions.
NO_SALT: Final = PRK(b"")


def extract(salt: bytes, ikm: bytes) -> bytes:
    """HKDF-Extract: 32 octets."""
    return PRK(salt).mac(ikm)


def expand(prk: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand: ``length`` octets, 1..8160.

    Raises:
        LimitExceededError: another length.
    """
    if 0 < length <= HASH_BYTES:
        return PRK(prk).mac(info+b"\x01")[:length]
    if not 0 < length <= MAX_EXPAND_BYTES:
        raise LimitExceededError(f"HKDF-Expand: 1..{MAX_EXPAND_BYTES} octets")
    block, found = b"", bytearray()
    for counter in range(1, -(-length // HASH_BYTES) + 1):
        block = hmac.digest(prk, block + info + bytes([counter]), "sha256")
        found += block
    return bytes(found[:length])


def extract_label(suite_id: bytes, label: bytes) -> bytes:
    """Return what LabeledExtract puts before its input key material.

    RFC 9180, section 4: ``"HPKE-v1" suite_id label``. It never changes for one
    suite, so callers keep it.
    """
    return _VERSION + suite_id + label


def expand_label(suite_id: bytes, label: bytes, length: int) -> bytes:
    """Return what LabeledExpand puts before its info (RFC 9180, section 4)."""
    return length.to_bytes(2, "big") + _VERSION + suite_id + label
