import secrets

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from curtilage.wire.errors import OpenError
from curtilage.wire.hpke.aead import (
    AEAD_AES_128_GCM,
    AEAD_CHACHA20_POLY1305,
    AEADS,
    NONCE_BYTES,
    NumberedKey,
)

BASE_NONCE = bytes(range(NONCE_BYTES))
AES = AEADS[AEAD_AES_128_GCM]
CHACHA = AEADS[AEAD_CHACHA20_POLY1305]


@pytest.mark.parametrize("aead_id", AEADS)
def test_a_key_opens_what_it_sealed_and_nothing_else(aead_id: int) -> None:
    octets = secrets.token_bytes(AEADS[aead_id].nk)
    key = NumberedKey(AEADS[aead_id], octets, BASE_NONCE)
    sealed = key.seal(7, b"text", b"aad")
    assert key.open(7, sealed, b"aad") == b"text"
    for bad in (sealed[:-1], sealed[:3], b"", sealed + b"\x00"):
        with pytest.raises(OpenError):
            key.open(7, bad, b"aad")
    with pytest.raises(OpenError):
        key.open(7, sealed, b"")
    with pytest.raises(OpenError):
        key.open(6, sealed, b"aad")
    with pytest.raises(OpenError):
        NumberedKey(AEADS[aead_id], octets, bytes(NONCE_BYTES)).open(7, sealed, b"aad")


def test_a_key_is_the_cipher_of_its_identifier() -> None:
    aes = NumberedKey(AES, bytes(16), bytes(12)).seal(0, b"text", b"")
    assert AESGCM(bytes(16)).decrypt(bytes(12), aes, None) == b"text"
    key = NumberedKey(CHACHA, bytes(32), bytes(12))
    chacha = key.seal(0, b"text", b"")
    assert ChaCha20Poly1305(bytes(32)).decrypt(bytes(12), chacha, None) == b"text"


@pytest.mark.parametrize("number", [0, 1, 255, 256, 2**40, 2**96 - 1])
def test_the_nonce_is_the_base_nonce_xor_the_number(number: int) -> None:
    sealed = NumberedKey(AES, bytes(16), BASE_NONCE).seal(number, b"", b"")
    other = number.to_bytes(12, "big")
    nonce = bytes(a ^ b for a, b in zip(BASE_NONCE, other, strict=True))
    assert AESGCM(bytes(16)).decrypt(nonce, sealed, None) == b""


def test_a_number_that_outgrows_the_nonce_raises() -> None:
    key = NumberedKey(AES, bytes(16), BASE_NONCE)
    with pytest.raises(OverflowError):
        key.seal(2**96, b"", b"")
