"""Contexts and the key schedule: what fails, and that all of it fails alike."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire.errors import ConsumedError, LimitExceededError, OpenError
from curtilage.wire.hpke import key_schedule
from curtilage.wire.hpke.aead import AEADS
from curtilage.wire.hpke.key_schedule import (
    KeySchedule,
    RecipientContext,
    SenderContext,
)
from curtilage.wire.hpke.suite import (
    SUITES,
    Suite,
    generate_private_key,
    setup_recipient,
    setup_sender,
)

LOW_ORDER = bytes.fromhex(
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
)


by_suite = pytest.mark.parametrize(
    "suite", SUITES, ids=lambda suite: f"{suite.kem_id:#06x}-aead{suite.aead_id}"
)


def refuse(recipient: RecipientContext, ciphertext: bytes, aad: bytes) -> None:
    with pytest.raises(OpenError) as caught:
        recipient.open(ciphertext, aad)
    assert caught.value.__cause__ is None
    assert str(caught.value) == str(OpenError())
    with pytest.raises(ConsumedError):
        recipient.open(ciphertext, aad)


@by_suite
@settings(max_examples=30)
@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_what_is_wrong_fails_alike(suite: Suite, place: int, bit: int) -> None:
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
def test_a_low_order_point_fails_where_a_forged_tag_fails(suite: Suite) -> None:
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
@pytest.mark.parametrize("length", [-1, 0, 255 * 32 + 1])
def test_export_bounds_its_length(suite: Suite, length: int) -> None:
    key = generate_private_key(suite.kem_id)
    enc, sender = setup_sender(suite, key.public_key, b"")
    for context in (sender, setup_recipient(suite, enc, key, b"")):
        with pytest.raises(LimitExceededError):
            context.export(b"label", length)
        assert len(context.export(b"label", 255 * 32)) == 255 * 32


def base_pair() -> tuple[SenderContext, RecipientContext]:
    schedule = KeySchedule(b"HPKE\x00\x20\x00\x01\x00\x01", AEADS[1])
    return schedule.sender(bytes(32), b""), schedule.recipient(bytes(32), b"")


def test_the_last_sequence_number_is_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # RFC 9180, section 5.2: IncrementSeq fails at (1 << (8 * Nn)) - 1.
    assert key_schedule.MAX_SEQUENCE == 2**96 - 1
    monkeypatch.setattr(key_schedule, "MAX_SEQUENCE", 2)
    sender, recipient = base_pair()
    assert recipient.open(sender.seal(b"one", b""), b"") == b"one"
    last = sender.seal(b"two", b"")
    assert recipient.open(last, b"") == b"two"
    for _ in range(2):
        with pytest.raises(LimitExceededError):
            sender.seal(b"three", b"")
        with pytest.raises(LimitExceededError):
            recipient.open(last, b"")


def test_every_nonce_is_another() -> None:
    sender, _ = base_pair()
    assert len({sender.seal(b"", b"") for _ in range(300)}) == 300


def test_contexts_are_not_copied_and_show_nothing() -> None:
    for context in base_pair():
        with pytest.raises(TypeError):
            copy.copy(context)
        assert repr(context).startswith("<curtilage.wire.hpke.key_schedule.")


def test_contexts_of_one_schedule_share_nothing_that_changes() -> None:
    schedule = KeySchedule(b"HPKE\x00\x20\x00\x01\x00\x01", AEADS[1])
    first, second = (schedule.sender(bytes(32), b"") for _ in range(2))
    sealed = first.seal(b"text", b"")
    assert first.seal(b"text", b"") != sealed
    assert second.seal(b"text", b"") == sealed
