"""``cryptography``'s own one-shot HPKE, as an oracle in both directions.

Its code is another one than ours and than pyhpke's; that counts most for X-Wing,
which pyhpke does not have.
"""

import hashlib

import pytest
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire.hpke.suite import (
    KEM_X25519,
    SUITES,
    Suite,
    private_key_from_bytes,
    setup_recipient,
    setup_sender,
)

AEADS = {1: hpke.AEAD.AES_128_GCM, 3: hpke.AEAD.CHACHA20_POLY1305}
SEEDS = st.binary(min_size=32, max_size=32)

by_suite = pytest.mark.parametrize(
    "suite",
    SUITES,
    ids=lambda suite: f"{suite.kem_id:#06x}-{suite.aead_id}",
)


def their_suite(suite: Suite) -> hpke.Suite:
    classical = suite.kem_id == KEM_X25519
    kem = hpke.KEM.X25519 if classical else hpke.KEM.MLKEM768_X25519
    return hpke.Suite(kem, hpke.KDF.HKDF_SHA256, AEADS[suite.aead_id])


def their_key(
    suite: Suite, seed: bytes
) -> X25519PrivateKey | hpke.MLKEM768X25519PrivateKey:
    if suite.kem_id == KEM_X25519:
        return X25519PrivateKey.from_private_bytes(seed)
    expanded = hashlib.shake_256(seed).digest(96)
    return hpke.MLKEM768X25519PrivateKey(
        MLKEM768PrivateKey.from_seed_bytes(expanded[:64]),
        X25519PrivateKey.from_private_bytes(expanded[64:]),
    )


@by_suite
@settings(max_examples=25)
@given(seed=SEEDS, info=st.binary(max_size=80), text=st.binary(max_size=300))
def test_we_open_what_the_library_sealed(
    suite: Suite, seed: bytes, info: bytes, text: bytes
) -> None:
    public_key = their_key(suite, seed).public_key()
    sealed = their_suite(suite).encrypt(text, public_key, info)
    enc, ciphertext = sealed[: suite.nenc], sealed[suite.nenc :]
    key = private_key_from_bytes(suite.kem_id, seed)
    assert setup_recipient(suite, enc, key, info).open(ciphertext, b"") == text


@by_suite
@settings(max_examples=25)
@given(seed=SEEDS, info=st.binary(max_size=80), text=st.binary(max_size=300))
def test_the_library_opens_what_we_sealed(
    suite: Suite, seed: bytes, info: bytes, text: bytes
) -> None:
    key = private_key_from_bytes(suite.kem_id, seed)
    enc, sender = setup_sender(suite, key.public_key, info)
    sealed = enc + sender.seal(text, b"")
    private_key = their_key(suite, seed)
    assert their_suite(suite).decrypt(sealed, private_key, info) == text
