"""The two AEADs that we speak, and one key of either outside HPKE."""

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from curtilage.wire.errors import OpenError

AEAD_AES_128_GCM: Final = 0x0001
AEAD_CHACHA20_POLY1305: Final = 0x0003

TAG_BYTES: Final = 16  # both AEADs
NONCE_BYTES: Final = 12  # both AEADs

Cipher = AESGCM | ChaCha20Poly1305


@dataclass(frozen=True, slots=True, kw_only=True)
class AEAD:
    """One AEAD.

    Attributes:
        cipher: makes the cipher of a key.
        nk: octets of a key.
    """

    cipher: type[Cipher]
    nk: int


AEADS: Final = {
    AEAD_AES_128_GCM: AEAD(cipher=AESGCM, nk=16),
    AEAD_CHACHA20_POLY1305: AEAD(cipher=ChaCha20Poly1305, nk=32),
}


class AEADKey:
    """One AEAD key outside an HPKE context; the caller owns the nonces.

    Args:
        aead_id: one of ``AEADS``.
        key: as many octets as that one takes.
    """

    __slots__ = ("_cipher",)

    def __init__(self, aead_id: int, key: bytes) -> None:
        self._cipher = AEADS[aead_id].cipher(key)

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
