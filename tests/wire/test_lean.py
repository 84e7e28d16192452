"""The lean path does what pyhpke does, octet for octet, failures included."""

import copy
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire import lean
from curtilage.wire.aead import AEADS
from curtilage.wire.errors import ConsumedError, LimitExceededError, OpenError
from curtilage.wire.lean import KeySchedule, LeanRecipient, LeanSender
from curtilage.wire.suite import (
    KEM_X25519,
    SUITES,
    Backend,
    RecipientContext,
    Suite,
    generate_private_key,
    private_key_from_bytes,
    setup_recipient,
    setup_sender,
)

SEEDS = st.binary(min_size=32, max_size=32)
INFOS = st.binary(max_size=100)
MESSAGES = st.lists(
    st.tuples(st.binary(max_size=300), st.binary(max_size=40)), min_size=1, max_size=5
)
EXPORTS = st.lists(
    st.tuples(st.binary(max_size=40), st.integers(min_value=1, max_value=8160)),
    max_size=3,
)
X25519_SUITES = [suite for suite in SUITES if suite.kem_id == KEM_X25519]
LOW_ORDER = bytes.fromhex(
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
)


def name_of(value: Suite | Backend) -> str:
    if isinstance(value, Backend):
        return value.name
    return f"{value.kem_id:#06x}-aead{value.aead_id}"


by_suite = pytest.mark.parametrize("suite", SUITES, ids=name_of)
by_backends = pytest.mark.parametrize(
    ("sending", "receiving"), list(product(Backend, repeat=2)), ids=name_of
)


def test_lean_is_what_everybody_gets() -> None:
    key = generate_private_key(KEM_X25519)
    suite = Suite(kem_id=KEM_X25519, kdf_id=1, aead_id=1)
    enc, sender = setup_sender(suite, key.public_key, b"")
    assert isinstance(sender, LeanSender)
    assert isinstance(setup_recipient(suite, enc, key, b""), LeanRecipient)
    named = replace(suite, backend=Backend.PYHPKE)
    assert named == suite
    enc, sender = setup_sender(named, key.public_key, b"")
    assert type(sender).__name__ == "_PyHPKESender"
    recipient = setup_recipient(named, enc, key, b"")
    assert type(recipient).__name__ == "_PyHPKERecipient"


@by_suite
@by_backends
@settings(max_examples=20)
@given(seed=SEEDS, info=INFOS, messages=MESSAGES, exports=EXPORTS)
def test_each_opens_what_the_other_sealed(
    *,
    suite: Suite,
    sending: Backend,
    receiving: Backend,
    seed: bytes,
    info: bytes,
    messages: list[tuple[bytes, bytes]],
    exports: list[tuple[bytes, int]],
) -> None:
    key = private_key_from_bytes(suite.kem_id, seed)
    ours, theirs = (replace(suite, backend=one) for one in (sending, receiving))
    enc, sender = setup_sender(ours, key.public_key, info)
    recipient = setup_recipient(theirs, enc, key, info)
    for plaintext, aad in messages:
        assert recipient.open(sender.seal(plaintext, aad), aad) == plaintext
    for label, length in exports:
        exported = sender.export(label, length)
        assert len(exported) == length
        assert recipient.export(label, length) == exported


@pytest.mark.parametrize("suite", X25519_SUITES, ids=name_of)
@given(seed=SEEDS, ephemeral_seed=SEEDS, info=INFOS, messages=MESSAGES, exports=EXPORTS)
@settings(max_examples=50)
def test_both_seal_the_same_octets(
    *,
    suite: Suite,
    seed: bytes,
    ephemeral_seed: bytes,
    info: bytes,
    messages: list[tuple[bytes, bytes]],
    exports: list[tuple[bytes, int]],
) -> None:
    public_key = private_key_from_bytes(KEM_X25519, seed).public_key
    ephemeral = private_key_from_bytes(KEM_X25519, ephemeral_seed)
    seen: list[object] = []
    for backend in Backend:
        enc, sender = setup_sender(
            replace(suite, backend=backend), public_key, info, ephemeral=ephemeral
        )
        sealed = [sender.seal(plaintext, aad) for plaintext, aad in messages]
        exported = [sender.export(label, length) for label, length in exports]
        seen.append((enc, sealed, exported))
    assert seen[0] == seen[1]


def refuse(recipient: RecipientContext, ciphertext: bytes, aad: bytes) -> None:
    with pytest.raises(OpenError) as caught:
        recipient.open(ciphertext, aad)
    assert caught.value.__cause__ is None
    assert str(caught.value) == "the message does not open"
    with pytest.raises(ConsumedError):
        recipient.open(ciphertext, aad)


@by_suite
@pytest.mark.parametrize("backend", Backend, ids=name_of)
@settings(max_examples=30)
@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_what_is_wrong_fails_alike(
    suite: Suite, backend: Backend, place: int, bit: int
) -> None:
    suite = replace(suite, backend=backend)
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"info")
    sealed = sender.seal(b"text", b"aad")

    def flip(data: bytes) -> bytes:
        at = place % len(data)
        return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]

    refuse(setup_recipient(suite, enc, key, b"info"), flip(sealed), b"aad")
    refuse(setup_recipient(suite, enc, key, b"info"), sealed, flip(b"aad"))
    refuse(setup_recipient(suite, enc, key, b"info"), sealed[:-1], b"aad")
    refuse(setup_recipient(suite, enc, key, b"info"), b"", b"aad")
    refuse(setup_recipient(suite, enc, key, flip(b"info")), sealed, b"aad")
    refuse(setup_recipient(suite, flip(enc), key, b"info"), sealed, b"aad")
    other = generate_private_key(suite.kem_id)
    refuse(setup_recipient(suite, enc, other, b"info"), sealed, b"aad")


@by_suite
@pytest.mark.parametrize("backend", Backend, ids=name_of)
def test_a_low_order_point_fails_where_a_forged_tag_fails(
    suite: Suite, backend: Backend
) -> None:
    suite = replace(suite, backend=backend)
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"info")
    low = enc[:-32] + LOW_ORDER
    recipient = setup_recipient(suite, low, key, b"info")
    refuse(recipient, sender.seal(b"text", b""), b"")


def test_second_message_does_not_open_first() -> None:
    suite = SUITES[0]
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"")
    _, second = sender.seal(b"one", b""), sender.seal(b"two", b"")
    refuse(setup_recipient(suite, enc, key, b""), second, b"")


@by_suite
@pytest.mark.parametrize("backend", Backend, ids=name_of)
@pytest.mark.parametrize("length", [-1, 0, 255 * 32 + 1])
def test_export_bounds_its_length(suite: Suite, backend: Backend, length: int) -> None:
    suite = replace(suite, backend=backend)
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"")
    for context in (sender, setup_recipient(suite, enc, key, b"")):
        with pytest.raises(LimitExceededError):
            context.export(b"label", length)
        assert len(context.export(b"label", 255 * 32)) == 255 * 32


def lean_pair() -> tuple[LeanSender, LeanRecipient]:
    schedule = KeySchedule(b"HPKE\x00\x20\x00\x01\x00\x01", AEADS[1])
    return schedule.sender(bytes(32), b""), schedule.recipient(bytes(32), b"")


def test_the_last_sequence_number_is_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # RFC 9180, section 5.2: IncrementSeq fails at (1 << (8 * Nn)) - 1.
    assert lean.MAX_SEQUENCE == 2**96 - 1
    monkeypatch.setattr(lean, "MAX_SEQUENCE", 2)
    sender, recipient = lean_pair()
    assert recipient.open(sender.seal(b"one", b""), b"") == b"one"
    last = sender.seal(b"two", b"")
    assert recipient.open(last, b"") == b"two"
    for _ in range(2):
        with pytest.raises(LimitExceededError):
            sender.seal(b"three", b"")
        with pytest.raises(LimitExceededError):
            recipient.open(last, b"")


def test_every_nonce_is_another() -> None:
    sender, _ = lean_pair()
    assert len({sender.seal(b"", b"") for _ in range(300)}) == 300


def test_contexts_are_not_copied_and_show_nothing() -> None:
    for context in lean_pair():
        with pytest.raises(TypeError):
            copy.copy(context)
        assert repr(context).startswith("<curtilage.wire.lean.Lean")


def test_contexts_of_one_schedule_share_nothing_that_changes() -> None:
    schedule = KeySchedule(b"HPKE\x00\x20\x00\x01\x00\x01", AEADS[1])
    first, second = (schedule.sender(bytes(32), b"") for _ in range(2))
    sealed = first.seal(b"text", b"")
    assert first.seal(b"text", b"") != sealed
    assert second.seal(b"text", b"") == sealed
