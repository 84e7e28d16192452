import copy
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire.errors import MalformedError, OpenError, UnsupportedError
from curtilage.wire.hpke.dhkem import DHKEMPrivateKey
from curtilage.wire.hpke.xwing import XWingPrivateKey, XWingPublicKey

SEED = bytes(range(32))
KEY = XWingPrivateKey(SEED)


@settings(max_examples=20)
@given(st.binary(min_size=32, max_size=32))
def test_both_sides_share_a_secret(seed: bytes) -> None:
    key = XWingPrivateKey(seed)
    secret, enc = XWingPublicKey(key.public_bytes).encapsulate(None)
    assert (len(key.public_bytes), len(enc), len(secret)) == (1216, 1120, 32)
    assert key.decapsulate(enc) == secret


def test_key_is_expanded_as_the_draft_says() -> None:
    expanded = hashlib.shake_256(SEED).digest(96)
    ml_kem = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    x25519 = X25519PrivateKey.from_private_bytes(expanded[64:])
    halves = ml_kem.public_key(), x25519.public_key()
    assert KEY.public_bytes == b"".join(half.public_bytes_raw() for half in halves)


def test_secret_is_combined_as_the_draft_says() -> None:
    expanded = hashlib.shake_256(SEED).digest(96)
    secret, enc = XWingPublicKey(KEY.public_bytes).encapsulate(None)
    ml_kem = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    ml_kem_secret = ml_kem.decapsulate(enc[:1088])
    shared = DHKEMPrivateKey(expanded[64:]).exchange(enc[1088:])
    public_point = KEY.public_bytes[1184:]
    parts = [
        ml_kem_secret,
        shared,
        enc[1088:],
        public_point,
        bytes.fromhex("5c2e2f2f5e5c"),
    ]
    assert secret == hashlib.sha3_256(b"".join(parts)).digest()


def test_encapsulations_share_nothing() -> None:
    public_key = XWingPublicKey(KEY.public_bytes)
    (one, first), (two, second) = (public_key.encapsulate(None) for _ in range(2))
    assert one != two
    assert first[:1088] != second[:1088]
    assert first[1088:] != second[1088:]


def test_a_bad_ml_kem_half_is_rejected_implicitly() -> None:
    secret, enc = XWingPublicKey(KEY.public_bytes).encapsulate(None)
    found = {secret}
    for bad in (bytes([enc[0] ^ 1]) + enc[1:1088], bytes(1088), b"\xff" * 1088):
        found.add(KEY.decapsulate(bad + enc[1088:]))
    # Each another secret, and each always the same.
    assert len(found) == 4
    assert KEY.decapsulate(bytes(1088) + enc[1088:]) in found


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)], ids=["0", "1"])
def test_a_low_order_x25519_half_gives_a_secret_that_only_we_can_know(
    point: bytes,
) -> None:
    secret, enc = XWingPublicKey(KEY.public_bytes).encapsulate(None)
    found = KEY.decapsulate(enc[:1088] + point)
    expanded = hashlib.shake_256(SEED).digest(96)
    ml_kem = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    # What a sender can compute, who knows the ML-KEM half and that X25519 is zero.
    zero = ml_kem.decapsulate(enc[:1088]) + bytes(32) + point + KEY.public_bytes[1184:]
    assert found not in {secret, hashlib.sha3_256(zero + b"\\.//^\\").digest()}


@pytest.mark.parametrize("length", [0, 32, 1119, 1121])
def test_decapsulate_refuses_other_lengths(length: int) -> None:
    with pytest.raises(OpenError):
        KEY.decapsulate(bytes(length))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        KEY.public_bytes[:-1],
        KEY.public_bytes + b"\x00",
        KEY.public_bytes[:1184],
        b"\xff" * 1184 + KEY.public_bytes[1184:],
        b"\x01" + bytes([KEY.public_bytes[1] & 0xF0 | 0x0D]) + KEY.public_bytes[2:],
        KEY.public_bytes[:1184] + bytes(32),
    ],
    ids=["empty", "short", "long", "ml-kem-only", "all-ff", "one-is-q", "low-order"],
)
def test_public_key_refuses(data: bytes) -> None:
    with pytest.raises(MalformedError) as caught:
        XWingPublicKey(data)
    assert caught.value.__cause__ is None
    assert "1184" not in str(caught.value)


def test_an_ephemeral_key_is_refused() -> None:
    public_key = XWingPublicKey(KEY.public_bytes)
    with pytest.raises(UnsupportedError):
        public_key.encapsulate(X25519PrivateKey.generate())


def test_private_key_is_not_copied_and_shows_nothing() -> None:
    with pytest.raises(TypeError):
        copy.copy(KEY)
    assert repr(KEY) == object.__repr__(KEY)
