"""X-Wing: ML-KEM-768 and X25519 together; HPKE's KEM 0x647a.

draft-connolly-cfrg-xwing-kem; draft-ietf-hpke-pq names it MLKEM768-X25519. The
secret holds while either of the two holds::

    private key  seed(32); SHAKE-256(seed, 96) = ML-KEM d z (64), X25519 key (32)
    public key   pkM(1184) pkX(32)
    enc          ctM(1088) ctX(32)
    secret       SHA3-256(ssM ssX ctX pkX label)

ML-KEM's implicit rejection stays as it is: any ctM gives some secret, a wrong one
a secret that its sender cannot know. A ctX of low order is met in the same way.
"""

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.mlkem import (
    MLKEM768PrivateKey,
    MLKEM768PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from curtilage.wire.errors import MalformedError, OpenError, UnsupportedError
from curtilage.wire.hpke.dhkem import KEY_BYTES, DHKEMPrivateKey, load_point
from curtilage.wire.once import Uncopyable

SEED_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 1216
ENC_BYTES: Final = 1120

# FIPS 203, table 3, for ML-KEM-768; the seed is d and z of its algorithm 16.
_ML_KEM_PUBLIC_BYTES: Final = 1184
_ML_KEM_ENC_BYTES: Final = 1088
_ML_KEM_SEED_BYTES: Final = 64
_LABEL: Final = b"\\.//^\\"  # the draft's, an X-wing in six characters


class XWingPublicKey:
    """A recipient's public key, both halves ready for use.

    Args:
        data: 1216 bytes.

    Raises:
        MalformedError: another length, an ML-KEM coefficient that is not below
            q, or a point of low order.
    """

    __slots__ = ("_ml_kem", "_point", "_point_bytes")

    def __init__(self, data: bytes) -> None:
        # A point of 32 bytes behind the first half: the length is the right one.
        self._point_bytes = data[_ML_KEM_PUBLIC_BYTES:]
        # ML-KEM would still hold against a listed point of low order. Refused all
        # the same: with it, the hybrid would be one KEM and call itself two.
        self._point = load_point(self._point_bytes)
        try:
            # Checks every coefficient (FIPS 203, section 7.2, modulus check).
            self._ml_kem = MLKEM768PublicKey.from_public_bytes(
                data[:_ML_KEM_PUBLIC_BYTES]
            )
        except ValueError:
            # The library's text speaks of the length, which was right.
            raise MalformedError("public key is not an ML-KEM-768 key") from None

    def encapsulate(self, ephemeral: X25519PrivateKey | None) -> tuple[bytes, bytes]:
        """Return a fresh shared secret and its encapsulation.

        Args:
            ephemeral: must be None. The ML-KEM half draws its own randomness, so
                that no message can be made twice.

        Raises:
            UnsupportedError: ``ephemeral`` is given.
        """
        if ephemeral is not None:
            raise UnsupportedError("X-Wing takes no ephemeral key")
        ml_kem_secret, ml_kem_enc = self._ml_kem.encapsulate()
        key = X25519PrivateKey.generate()
        enc = key.public_key().public_bytes_raw()
        shared = key.exchange(self._point)
        secret = _combine(ml_kem_secret, shared, enc, self._point_bytes)
        return secret, ml_kem_enc + enc


class XWingPrivateKey(Uncopyable):
    """A recipient's private key.

    Args:
        data: the seed, any 32 bytes.

    Attributes:
        public_bytes: the public key, 1216 bytes.
    """

    __slots__ = ("_ml_kem", "_x25519", "public_bytes")

    def __init__(self, data: bytes) -> None:
        # From one seed, so that the halves cannot be chosen independently.
        expanded = hashlib.shake_256(data).digest(_ML_KEM_SEED_BYTES + KEY_BYTES)
        self._ml_kem = MLKEM768PrivateKey.from_seed_bytes(expanded[:_ML_KEM_SEED_BYTES])
        self._x25519 = DHKEMPrivateKey(expanded[_ML_KEM_SEED_BYTES:])
        ml_kem_public = self._ml_kem.public_key().public_bytes_raw()
        self.public_bytes = ml_kem_public + self._x25519.public_bytes

    def decapsulate(self, enc: bytes) -> bytes:
        """Return the shared secret of ``enc``.

        Raises:
            OpenError: ``enc`` is not 1120 bytes long.
        """
        if len(enc) != ENC_BYTES:
            raise OpenError
        point = enc[_ML_KEM_ENC_BYTES:]
        # Both halves, always, so that the time does not reveal which of them is bad.
        ml_kem_secret = self._ml_kem.decapsulate(enc[:_ML_KEM_ENC_BYTES])
        shared = self._x25519.exchange(point)
        return _combine(ml_kem_secret, shared, point, self._x25519.public_bytes)


def _combine(
    ml_kem_secret: bytes, shared: bytes, point: bytes, public_point: bytes
) -> bytes:
    # X25519's ciphertext and key are hashed in because an exchange alone does not
    # commit to them. ML-KEM's are not: its own secret already does (the draft's
    # security considerations).
    parts = ml_kem_secret + shared + point + public_point + _LABEL
    return hashlib.sha3_256(parts).digest()
