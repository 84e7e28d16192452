"""DHKEM(X25519, HKDF-SHA256) of RFC 9180, section 4.1; KEM 0x0020.

Knows points and shared secrets. Takes every encapsulated key of 32 bytes: one of
low order is answered with a secret that its sender cannot know, after the same
work, so that it fails where and when a forged tag fails.
"""

from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from curtilage.wire.errors import MalformedError, OpenError
from curtilage.wire.hpke.hkdf import expand, extract, labeled_ikm, labeled_info
from curtilage.wire.once import Uncopyable

KEY_BYTES: Final = 32  # Npk, Nsk and Nenc, and Nsecret (RFC 9180, section 7.1)

# The KEM's own suite identifier, so that its secrets are none of HPKE's, whose
# labels begin with "HPKE" in this place (RFC 9180, section 4.1).
_SUITE_ID: Final = b"KEM\x00\x20"
_EAE_PRK: Final = labeled_ikm(_SUITE_ID, b"eae_prk")
_SHARED_SECRET: Final = labeled_info(_SUITE_ID, b"shared_secret", KEY_BYTES)

_P: Final = 2**255 - 19
# The u-coordinates of the points of order 1, 2, 4 and 8 on Curve25519 and its
# twist, below 2^255; 0 and 1 have a second spelling there. X25519 ignores the
# topmost bit (RFC 7748, section 5). An exchange with any other point is not zero.
_LOW_ORDER_U: Final = (
    0,
    1,
    _P - 1,
    _P,
    _P + 1,
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
)
_LOW_ORDER: Final = frozenset(
    (u + top).to_bytes(KEY_BYTES, "little") for u in _LOW_ORDER_U for top in (0, 2**255)
)


def is_low_order(point: bytes) -> bool:
    """Return whether X25519 with ``point`` gives zero for every private key."""
    return point in _LOW_ORDER


def load_point(data: bytes) -> X25519PublicKey:
    """Load a recipient's public key.

    Raises:
        MalformedError: not 32 bytes, or a point of low order.
    """
    # With such a "key" every sender would compute zero, and an attacker who put it in
    # the list could read every question (RFC 9180, section 7.1.4).
    if len(data) != KEY_BYTES or is_low_order(data):
        raise MalformedError("public key is not a usable point")
    return X25519PublicKey.from_public_bytes(data)


class DHKEMPublicKey:
    """A recipient's public key, ready for use.

    Args:
        data: 32 bytes.

    Raises:
        MalformedError: not 32 bytes, or a point of low order.
    """

    __slots__ = ("_bytes", "_point")

    def __init__(self, data: bytes) -> None:
        self._point = load_point(data)
        self._bytes = data

    def encapsulate(self, ephemeral: X25519PrivateKey | None) -> tuple[bytes, bytes]:
        """Return a fresh shared secret and its encapsulation.

        Args:
            ephemeral: by default drawn here; a second use of one gives the same
                secret again.
        """
        key = X25519PrivateKey.generate() if ephemeral is None else ephemeral
        enc = key.public_key().public_bytes_raw()
        return _extract_and_expand(key.exchange(self._point), enc + self._bytes), enc


class DHKEMPrivateKey(Uncopyable):
    """A recipient's private key.

    Args:
        data: any 32 bytes.

    Attributes:
        key: as an ephemeral key, in known-answer tests and the self-test.
        public_bytes: the public key, 32 bytes.
    """

    __slots__ = ("key", "public_bytes")

    def __init__(self, data: bytes) -> None:
        self.key = X25519PrivateKey.from_private_bytes(data)
        # Once: pkRm goes into every secret, and deriving it costs an exchange.
        self.public_bytes = self.key.public_key().public_bytes_raw()

    def exchange(self, point: bytes) -> bytes:
        """Run X25519 with a peer's 32 bytes.

        A point of low order is replaced by our own: no one else can compute the
        result.
        """
        # RFC 9180, section 7.1.4, aborts the protocol on such a point. Aborting
        # here, a microsecond after it arrived, would reveal to the sender which of
        # its bytes was at fault; the context of this secret opens nothing.
        usable = self.public_bytes if point in _LOW_ORDER else point
        return self.key.exchange(X25519PublicKey.from_public_bytes(usable))

    def decapsulate(self, enc: bytes) -> bytes:
        """Return the shared secret of ``enc``.

        Raises:
            OpenError: ``enc`` is not 32 bytes long.
        """
        if len(enc) != KEY_BYTES:
            raise OpenError
        return _extract_and_expand(self.exchange(enc), enc + self.public_bytes)


def _extract_and_expand(dh: bytes, kem_context: bytes) -> bytes:
    # ExtractAndExpand (RFC 9180, section 4.1). kem_context is enc pkRm, both as they
    # were sent: X25519 takes two spellings of one point for the same, and a secret
    # over the exchange alone would let either stand for the other.
    prk = extract(b"", _EAE_PRK + dh)
    return expand(prk, _SHARED_SECRET + kem_context, KEY_BYTES)
