"""The two supported AEADs, and a key of either whose messages are numbered."""

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from curtilage.wire.errors import OpenError

# Registered identifiers (RFC 9180, section 7.3).
AEAD_AES_128_GCM: Final = 0x0001
AEAD_CHACHA20_POLY1305: Final = 0x0003

TAG_BYTES: Final = 16  # both AEADs
NONCE_BYTES: Final = 12  # both AEADs


@dataclass(frozen=True, slots=True, kw_only=True)
class AEAD:
    """One AEAD.

    Attributes:
        cipher: makes the cipher of a key.
        nk: bytes of a key.
    """

    cipher: type[AESGCM | ChaCha20Poly1305]
    nk: int


# AES-128-GCM first: processors have instructions for it, and every implementation
# of RFC 9458 that we met has it.
AEADS: Final = {
    AEAD_AES_128_GCM: AEAD(cipher=AESGCM, nk=16),
    AEAD_CHACHA20_POLY1305: AEAD(cipher=ChaCha20Poly1305, nk=32),
}


class NumberedKey:
    """One AEAD key for messages numbered from 0.

    The nonce of a message is the base nonce XOR its number: ComputeNonce of RFC
    9180, section 5.2, which the response of chunked Oblivious HTTP takes over. The
    caller sees to it that no number comes twice: two messages under one nonce give
    away their difference and, with AES-GCM, the key that authenticates.

    Args:
        aead: whose key it is.
        key: as many bytes as that one takes.
        base_nonce: 12 bytes.
    """

    __slots__ = ("_base_nonce", "_cipher")

    def __init__(self, aead: AEAD, key: bytes, base_nonce: bytes) -> None:
        self._cipher = aead.cipher(key)
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
            # Without the cause: a traceback that distinguishes a short ciphertext
            # from a forged one would be an oracle.
            raise OpenError from None
