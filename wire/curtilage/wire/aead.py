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


class NumberedKey:
    """One AEAD key for messages numbered from 0, outside an HPKE context.

    The nonce of a message is the base nonce XOR its number. The caller sees to it
    that no number comes twice.

    Args:
        aead_id: one of ``AEADS``.
        key: as many octets as that one takes.
        base_nonce: 12 octets.
    """

    __slots__ = ("_base_nonce", "_cipher")

    def __init__(self, aead_id: int, key: bytes, base_nonce: bytes) -> None:
        self._cipher = AEADS[aead_id].cipher(key)
        self._base_nonce = int.from_bytes(base_nonce, "big")

    def seal(self, number: int, plaintext: bytes, aad: bytes) -> bytes:
        """Seal the message with this number."""
        # A number that outgrew the nonce would raise here instead of wrapping.
        nonce = (self._base_nonce ^ number).to_bytes(NONCE_BYTES, "big")
        return self._cipher.encrypt(nonce, plaintext, aad)

    def open(self, number: int, ciphertext: bytes, aad: bytes) -> bytes:
        """Open the message with this number.

        Raises:
            OpenError: for every cause alike.
        """
        nonce = (self._base_nonce ^ number).to_bytes(NONCE_BYTES, "big")
        try:
            return self._cipher.decrypt(nonce, ciphertext, aad)
        except InvalidTag:
            raise OpenError from None
