"""HKDF with SHA-256 (RFC 5869), and HPKE's labels for it (RFC 9180, section 4).

The only hash of every suite here. HMAC and HKDF are those of ``cryptography``; what
is ours is the order of the bytes that go in. Knows no secret's meaning.
"""

from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from curtilage.wire.errors import LimitExceededError

HASH_BYTES: Final = 32  # SHA-256

# One byte counts the blocks (RFC 5869, section 2.3).
MAX_EXPAND_BYTES: Final = 255 * HASH_BYTES

# In every labelled input: HPKE's secrets share no input with those of any other
# protocol that runs HKDF under the same key (RFC 9180, section 4).
_VERSION: Final = b"HPKE-v1"
_SHA256: Final = SHA256()
_NO_SALT: Final = HMAC(b"", _SHA256)


class PRK:
    """A pseudorandom key, as Extract gives it, for several short expansions.

    HMAC takes its key in once, and every expansion begins with a copy of that state:
    a third of the time of a new ``HKDFExpand`` for each, and a message takes five.

    Args:
        prk: 32 bytes.
    """

    __slots__ = ("_hmac",)

    def __init__(self, prk: bytes) -> None:
        self._hmac = HMAC(prk, _SHA256)

    def expand(self, info: bytes, length: int) -> bytes:
        """HKDF-Expand: ``length`` bytes, 1..32; what is beyond is not given."""
        hmac = self._hmac.copy()
        # T(1) = HMAC(PRK, T(0) info 01), and T(0) is empty (RFC 5869, section 2.3).
        hmac.update(info + b"\x01")
        return hmac.finalize()[:length]


def extract(salt: bytes, ikm: bytes) -> bytes:
    """HKDF-Extract: 32 bytes."""
    # HMAC(salt, IKM) (RFC 5869, section 2.2). Half of HPKE's extractions have no salt.
    hmac = HMAC(salt, _SHA256) if salt else _NO_SALT.copy()
    hmac.update(ikm)
    return hmac.finalize()


def expand(prk: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand: ``length`` bytes, 1..8160.

    Raises:
        LimitExceededError: another length.
    """
    if not 0 < length <= MAX_EXPAND_BYTES:
        raise LimitExceededError(f"HKDF-Expand: 1..{MAX_EXPAND_BYTES} bytes")
    return HKDFExpand(_SHA256, length, info).derive(prk)


def labeled_ikm(suite_id: bytes, label: bytes, ikm: bytes = b"") -> bytes:
    """Return what LabeledExtract extracts from (RFC 9180, section 4).

    The variable part is last: without ``ikm`` it is a prefix that a suite keeps.
    """
    return _VERSION + suite_id + label + ikm


def labeled_info(
    suite_id: bytes, label: bytes, length: int, info: bytes = b""
) -> bytes:
    """Return what LabeledExpand expands with (RFC 9180, section 4).

    The length is part of it: of two outputs for one label, neither is a prefix of
    the other. Without ``info`` it is a prefix that a suite keeps.
    """
    return length.to_bytes(2, "big") + _VERSION + suite_id + label + info
