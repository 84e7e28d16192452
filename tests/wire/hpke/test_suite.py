import copy
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from curtilage.wire.errors import (
    ConsumedError,
    MalformedError,
    OpenError,
    UnsupportedError,
    WireError,
)
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    KEM_XWING,
    SUITES,
    PrivateKey,
    Suite,
    generate_private_key,
    private_key_from_bytes,
    public_key_bytes,
    setup_recipient,
    setup_sender,
)

# Points of small order on Curve25519: any exchange with them gives zero.
LOW_ORDER = (
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
)

X25519_SUITE = Suite(kem_id=KEM_X25519, kdf_id=1, aead_id=1)
by_suite = pytest.mark.parametrize(
    "suite", SUITES, ids=lambda suite: f"{suite.kem_id:#06x}-aead{suite.aead_id}"
)


def test_suites_are_two_kems_with_two_aeads_and_the_hybrid_first() -> None:
    assert [(s.kem_id, s.kdf_id, s.aead_id) for s in SUITES] == [
        (0x647A, 1, 1),
        (0x647A, 1, 3),
        (0x0020, 1, 1),
        (0x0020, 1, 3),
    ]
    assert [(s.npk, s.nenc, s.nk, s.nn) for s in SUITES] == [
        (1216, 1120, 16, 12),
        (1216, 1120, 32, 12),
        (32, 32, 16, 12),
        (32, 32, 32, 12),
    ]


@pytest.mark.parametrize(
    ("kem_id", "kdf_id", "aead_id"),
    [
        (0x0010, 1, 1),
        (0x0020, 2, 1),
        (0x0020, 0x0010, 1),
        (0x0020, 1, 2),
        (0x0020, 1, 0xFFFF),
    ],
    ids=["P-256", "HKDF-SHA384", "SHAKE", "AES-256-GCM", "export-only"],
)
def test_suite_refuses_other_combinations(
    kem_id: int, kdf_id: int, aead_id: int
) -> None:
    with pytest.raises(UnsupportedError):
        Suite(kem_id=kem_id, kdf_id=kdf_id, aead_id=aead_id)


def test_public_key_bytes_knows_only_our_kems() -> None:
    assert public_key_bytes(KEM_X25519) == 32
    assert public_key_bytes(KEM_XWING) == 1216
    assert public_key_bytes(0x0010) is None


def test_generate_private_key_takes_its_randomness_from_the_argument() -> None:
    key = generate_private_key(KEM_X25519, random=lambda count: b"\x07" * count)
    expected = X25519PrivateKey.from_private_bytes(b"\x07" * 32).public_key()
    assert key.public_key == expected.public_bytes_raw()
    assert generate_private_key(KEM_X25519).public_key != key.public_key


def test_private_key_refuses_unknown_kem_and_wrong_length() -> None:
    with pytest.raises(UnsupportedError):
        generate_private_key(0x0010)
    with pytest.raises(UnsupportedError):
        private_key_from_bytes(0x0010, bytes(32))
    with pytest.raises(MalformedError):
        private_key_from_bytes(KEM_X25519, bytes(31))
    with pytest.raises(MalformedError):
        private_key_from_bytes(KEM_XWING, bytes(33))


@pytest.mark.parametrize("kem_id", [KEM_X25519, KEM_XWING], ids=["X25519", "X-Wing"])
def test_private_key_is_redacted_and_not_copied(kem_id: int) -> None:
    key = private_key_from_bytes(kem_id, b"\x07" * 32)
    assert repr(key) == f"PrivateKey(kem_id={kem_id:#06x}, redacted)"
    with pytest.raises(TypeError):
        copy.copy(key)
    with pytest.raises(TypeError):
        copy.deepcopy(key)
    for protocol in range(6):
        with pytest.raises(TypeError):
            key.__reduce_ex__(protocol)


@by_suite
def test_contexts_agree(suite: Suite) -> None:
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"info")
    recipient = setup_recipient(suite, enc, key, b"info")
    assert len(enc) == suite.nenc
    for aad in (b"", b"final"):
        assert recipient.open(sender.seal(b"text", aad), aad) == b"text"
    assert sender.export(b"label", 32) == recipient.export(b"label", 32)


def test_recipient_is_over_after_one_failure() -> None:
    suite = X25519_SUITE
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"")
    recipient = setup_recipient(suite, enc, key, b"")
    sealed = sender.seal(b"text", b"")
    with pytest.raises(OpenError):
        recipient.open(sealed, b"other")
    with pytest.raises(ConsumedError):
        recipient.open(sealed, b"")


@pytest.mark.parametrize("point", LOW_ORDER, ids=["zero", "one", "order8", "order8b"])
def test_low_order_points_are_refused_on_both_sides(point: bytes) -> None:
    suite = X25519_SUITE
    with pytest.raises(MalformedError):
        setup_sender(suite, point, b"")
    recipient = setup_recipient(suite, point, generate_private_key(suite.kem_id), b"")
    with pytest.raises(OpenError):
        recipient.open(bytes(16), b"")


@by_suite
@pytest.mark.parametrize("length", [0, 31, 33, 1119, 1121, 1215, 1217])
def test_setup_refuses_keys_of_another_length(suite: Suite, length: int) -> None:
    with pytest.raises(MalformedError):
        setup_sender(suite, b"\x09" * length, b"")
    with pytest.raises(OpenError):
        setup_recipient(
            suite, b"\x09" * length, generate_private_key(suite.kem_id), b""
        )


def test_setup_recipient_refuses_a_key_of_another_kem() -> None:
    suite = X25519_SUITE
    key = generate_private_key(suite.kem_id)
    enc, _ = setup_sender(suite, key.public_key, b"")
    other = PrivateKey(kem_id=KEM_XWING, loaded=key.loaded)
    with pytest.raises(OpenError):
        setup_recipient(suite, enc, other, b"")


@by_suite
def test_an_overwritten_key_opens_nothing(suite: Suite) -> None:
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"")
    begun = setup_recipient(suite, enc, key, b"")
    key.overwrite()
    with pytest.raises(ConsumedError):
        setup_recipient(suite, enc, key, b"")
    with pytest.raises(ConsumedError):
        _ = key.loaded
    key.overwrite()
    # What was begun before has its own secrets and goes on.
    assert begun.open(sender.seal(b"text", b""), b"") == b"text"
    assert len(key.public_key) == suite.npk


@pytest.mark.parametrize("kem_id", [KEM_X25519, KEM_XWING], ids=["X25519", "X-Wing"])
def test_an_overwritten_key_is_gone(kem_id: int) -> None:
    key = generate_private_key(kem_id)
    loaded = key.loaded
    # The library clears a key when its last reference goes: ours must be it.
    assert sys.getrefcount(loaded) == 3  # the key's, ours here, the call's
    key.overwrite()
    assert sys.getrefcount(loaded) == 2


def test_an_overwritten_key_serves_no_second_encapsulation() -> None:
    ephemeral = generate_private_key(KEM_X25519)
    ephemeral.overwrite()
    recipient = generate_private_key(KEM_X25519).public_key
    with pytest.raises(ConsumedError):
        setup_sender(X25519_SUITE, recipient, b"", ephemeral=ephemeral)


@by_suite
def test_ephemeral_keys_are_for_x25519_alone(suite: Suite) -> None:
    public_key = generate_private_key(suite.kem_id).public_key
    with pytest.raises(UnsupportedError):
        setup_sender(suite, public_key, b"", ephemeral=generate_private_key(KEM_XWING))
    if suite.kem_id == KEM_XWING:
        with pytest.raises(UnsupportedError):
            setup_sender(
                suite, public_key, b"", ephemeral=generate_private_key(KEM_X25519)
            )


def test_public_keys_of_both_kems_are_distinguished() -> None:
    # Parsed keys are kept; the KEM is part of what they are kept under.
    key = generate_private_key(KEM_X25519)
    setup_sender(X25519_SUITE, key.public_key, b"")
    with pytest.raises(MalformedError):
        setup_sender(SUITES[0], key.public_key, b"")


def test_errors_hold_nothing_of_the_library() -> None:
    # Coefficients that are not below q; the library speaks of the length.
    bad = b"\xff" * 1184 + b"\x09" + bytes(31)
    with pytest.raises(WireError) as caught:
        setup_sender(SUITES[0], bad, b"")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "1184" not in str(caught.value)
