"""pyhpke as an oracle: in both directions, and byte for byte."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
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
from support.pyhpke_peer import pyhpke_recipient, pyhpke_sender

SEEDS = st.binary(min_size=32, max_size=32)
INFOS = st.binary(max_size=100)
MESSAGES = st.lists(
    st.tuples(st.binary(max_size=300), st.binary(max_size=40)), min_size=1, max_size=5
)
EXPORTS = st.lists(
    st.tuples(st.binary(max_size=40), st.integers(min_value=1, max_value=8160)),
    max_size=3,
)
Contexts: TypeAlias = Callable[[Suite, bytes, bytes], tuple[Any, Any]]

by_suite = pytest.mark.parametrize(
    "suite", SUITES, ids=lambda suite: f"{suite.kem_id:#06x}-aead{suite.aead_id}"
)


def we_send(suite: Suite, seed: bytes, info: bytes) -> tuple[Any, Any]:
    public_key = private_key_from_bytes(suite.kem_id, seed).public_key
    enc, sender = setup_sender(suite, public_key, info)
    return sender, pyhpke_recipient(suite, enc, seed, info)


def pyhpke_sends(suite: Suite, seed: bytes, info: bytes) -> tuple[Any, Any]:
    key = private_key_from_bytes(suite.kem_id, seed)
    enc, sender = pyhpke_sender(suite, key.public_key, info)
    return sender, setup_recipient(suite, enc, key, info)


@by_suite
@pytest.mark.parametrize("contexts", [we_send, pyhpke_sends])
@settings(max_examples=20)
@given(seed=SEEDS, info=INFOS, messages=MESSAGES, exports=EXPORTS)
def test_each_opens_what_the_other_sealed(
    *,
    suite: Suite,
    contexts: Contexts,
    seed: bytes,
    info: bytes,
    messages: list[tuple[bytes, bytes]],
    exports: list[tuple[bytes, int]],
) -> None:
    sender, recipient = contexts(suite, seed, info)
    for plaintext, aad in messages:
        assert recipient.open(sender.seal(plaintext, aad), aad) == plaintext
    for label, length in exports:
        exported = sender.export(label, length)
        assert len(exported) == length
        assert recipient.export(label, length) == exported


@pytest.mark.parametrize("aead_id", [1, 3])
@given(seed=SEEDS, ephemeral_seed=SEEDS, info=INFOS, messages=MESSAGES, exports=EXPORTS)
@settings(max_examples=50)
def test_both_seal_the_same_bytes(
    *,
    aead_id: int,
    seed: bytes,
    ephemeral_seed: bytes,
    info: bytes,
    messages: list[tuple[bytes, bytes]],
    exports: list[tuple[bytes, int]],
) -> None:
    suite = Suite(kem_id=KEM_X25519, kdf_id=1, aead_id=aead_id)
    public_key = private_key_from_bytes(KEM_X25519, seed).public_key
    ephemeral = private_key_from_bytes(KEM_X25519, ephemeral_seed)
    begun: list[tuple[bytes, Any]] = [
        setup_sender(suite, public_key, info, ephemeral=ephemeral),
        pyhpke_sender(suite, public_key, info, ephemeral_seed=ephemeral_seed),
    ]
    seen: list[object] = []
    for enc, sender in begun:
        sealed = [sender.seal(plaintext, aad) for plaintext, aad in messages]
        exported = [sender.export(label, length) for label, length in exports]
        seen.append((enc, sealed, exported))
    assert seen[0] == seen[1]
