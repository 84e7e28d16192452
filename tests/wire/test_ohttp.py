import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire import encapsulation
from curtilage.wire.chunked import open_chunked_request, seal_chunked_request
from curtilage.wire.encapsulation import (
    CHUNKED_LABELS,
    PLAIN_LABELS,
    begin_request,
)
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    OpenError,
    UnknownKeyError,
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
)
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms
from curtilage.wire.ohttp import (
    GatewayKey,
    OpenedRequest,
    SealedRequest,
    open_request,
    seal_request,
)
from support.samples import Sample


def gateway_key(key_id: int = 1, *aead_ids: int) -> GatewayKey:
    private_key = generate_private_key(KEM_X25519)
    config = KeyConfig(
        key_id=key_id,
        kem_id=KEM_X25519,
        public_key=private_key.public_key,
        algorithms=tuple(
            SymmetricAlgorithms(kdf_id=1, aead_id=aead_id)
            for aead_id in aead_ids or (1, 3)
        ),
    )
    return GatewayKey(config=config, private_key=private_key)


KEY = gateway_key()
KEYS = {1: KEY}
EPHEMERAL = generate_private_key(KEM_X25519)
BHTTP = b"a request of 27 bytes here"
REPLY = b"a reply"
X25519_SUITES = tuple(suite for suite in SUITES if suite.kem_id == KEM_X25519)
by_suite = pytest.mark.parametrize(
    "suite", X25519_SUITES, ids=lambda suite: f"aead{suite.aead_id}"
)


def seal(suite: Suite = X25519_SUITES[0]) -> SealedRequest:
    """Seal the same request each time, so that openers can be had again."""
    return seal_request(KEY.config, BHTTP, suite=suite, ephemeral=EPHEMERAL)


def flips(message: bytes, sample: Sample) -> list[bytes]:
    """Flip each bit of some bytes, those of the header and at each edge among them."""
    places = sample(range(len(message)), edges=(*range(8), 39, len(message) - 16))
    return [
        message[:place] + bytes([message[place] ^ 1 << bit]) + message[place + 1 :]
        for place in places
        for bit in range(8)
    ]


@by_suite
def test_round_trip(suite: Suite) -> None:
    sealed = seal_request(KEY.config, BHTTP, suite=suite)
    assert len(sealed.message) == len(BHTTP) + 55
    opened = open_request(KEYS, sealed.message)
    assert opened.bhttp == BHTTP
    reply = opened.sealer.seal(REPLY)
    assert len(reply) == suite.nk + len(REPLY) + 16
    assert sealed.opener.open(reply) == REPLY


@given(st.binary(max_size=500), st.binary(max_size=500))
def test_round_trip_of_any_content(bhttp: bytes, reply: bytes) -> None:
    sealed = seal_request(KEY.config, bhttp)
    opened = open_request(KEYS, sealed.message)
    assert opened.bhttp == bhttp
    assert sealed.opener.open(opened.sealer.seal(reply)) == reply


def test_seal_request_takes_the_first_suite_of_the_gateway() -> None:
    key = gateway_key(7, 3, 1)
    message = seal_request(key.config, BHTTP).message
    assert message[:7].hex() == "07002000010003"
    assert open_request({7: key}, message).bhttp == BHTTP


def test_two_requests_share_nothing() -> None:
    first, second = (seal_request(KEY.config, BHTTP).message for _ in range(2))
    assert first[7:39] != second[7:39]
    assert first[39:] != second[39:]


@by_suite
def test_every_flipped_bit_of_a_request_is_refused(
    suite: Suite, sample: Sample
) -> None:
    whole = seal_request(KEY.config, BHTTP, suite=suite).message
    for message in flips(whole, sample):
        with pytest.raises((OpenError, UnknownKeyError)) as caught:
            open_request(KEYS, message)
        # Only another key identifier may be distinguished.
        assert caught.type is (OpenError if message[0] == 1 else UnknownKeyError)


@by_suite
def test_every_flipped_bit_of_a_response_is_refused(
    suite: Suite, sample: Sample
) -> None:
    reply = open_request(KEYS, seal(suite).message).sealer.seal(REPLY)
    assert seal(suite).opener.open(reply) == REPLY
    for message in flips(reply, sample):
        opener = seal(suite).opener
        with pytest.raises(OpenError):
            opener.open(message)


def test_every_prefix_of_a_request_is_refused_alike() -> None:
    message = seal_request(KEY.config, BHTTP).message
    for cut in range(len(message)):
        with pytest.raises(OpenError):
            open_request(KEYS, message[:cut])
    with pytest.raises(OpenError):
        open_request(KEYS, message + b"\x00")


def test_every_prefix_of_a_response_is_refused_alike() -> None:
    reply = open_request(KEYS, seal().message).sealer.seal(REPLY)
    for cut in range(len(reply)):
        opener = seal().opener
        with pytest.raises(OpenError):
            opener.open(reply[:cut])


def test_all_failures_but_the_unknown_key_read_the_same() -> None:
    message = seal_request(KEY.config, BHTTP).message
    causes = [
        b"",
        message[:6],
        message[:20],
        message[:-1],
        b"\x01\x00\x21" + message[3:],
        message[:7] + bytes(32) + message[39:],
        message[:-1] + bytes([message[-1] ^ 1]),
    ]
    seen: set[tuple[type[WireError], str]] = set()
    for cause in causes:
        with pytest.raises(WireError) as caught:
            open_request(KEYS, cause)
        seen.add((caught.type, str(caught.value)))
    assert seen == {(OpenError, str(OpenError()))}


@pytest.mark.parametrize(
    "header",
    [
        "01001000010001",
        "01647a00010001",
        "01002000020001",
        "01002000010002",
        "0100200001ffff",
        "01002000010003",
    ],
    ids=["P-256", "X-Wing", "SHA-384", "AES-256", "export-only", "not-offered"],
)
def test_open_request_refuses_suites_not_offered(header: str) -> None:
    key = gateway_key(1, 1)
    message = seal_request(key.config, BHTTP).message
    with pytest.raises(OpenError):
        open_request({1: key}, bytes.fromhex(header) + message[7:])


@pytest.mark.parametrize(
    "enc",
    [
        bytes(32),
        bytes.fromhex(
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
        ),
        b"\xff" * 32,
    ],
    ids=["zero", "order-8", "not-canonical"],
)
def test_open_request_refuses_odd_encapsulated_keys(enc: bytes) -> None:
    message = seal_request(KEY.config, BHTTP).message
    with pytest.raises(OpenError):
        open_request(KEYS, message[:7] + enc + message[39:])


def test_open_request_refuses_the_key_of_another() -> None:
    message = seal_request(KEY.config, BHTTP).message
    with pytest.raises(OpenError):
        open_request({1: gateway_key()}, message)
    with pytest.raises(UnknownKeyError):
        open_request({2: gateway_key(2)}, message)
    with pytest.raises(UnknownKeyError):
        open_request({}, message)


def test_open_request_chooses_among_live_keys() -> None:
    keys = {1: KEY, 2: gateway_key(2)}
    for key_id, key in keys.items():
        message = seal_request(key.config, BHTTP).message
        assert message[0] == key_id
        assert open_request(keys, message).bhttp == BHTTP


def test_plain_label_does_not_pass_as_chunked() -> None:
    prefix, context, _ = begin_request(
        KEY.config, PLAIN_LABELS, suite=None, ephemeral=None
    )
    with pytest.raises(OpenError):
        open_chunked_request(KEYS, prefix + b"\x00" + context.seal(BHTTP, b"final"))


def test_chunked_label_does_not_pass_as_plain() -> None:
    prefix, context, _ = begin_request(
        KEY.config, CHUNKED_LABELS, suite=None, ephemeral=None
    )
    with pytest.raises(OpenError):
        open_request(KEYS, prefix + context.seal(BHTTP, b""))


def test_response_labels_differ() -> None:
    assert PLAIN_LABELS.response != CHUNKED_LABELS.response


def test_messages_of_the_other_form_are_refused() -> None:
    with pytest.raises(OpenError):
        open_request(KEYS, seal_chunked_request(KEY.config, BHTTP).message)
    with pytest.raises(WireError):
        open_chunked_request(KEYS, seal_request(KEY.config, BHTTP).message)


def test_opener_refuses_the_response_to_another_request() -> None:
    first, second = (seal_request(KEY.config, BHTTP) for _ in range(2))
    reply = open_request(KEYS, second.message).sealer.seal(REPLY)
    with pytest.raises(OpenError):
        first.opener.open(reply)


def test_opener_works_once() -> None:
    sealed = seal_request(KEY.config, BHTTP)
    reply = open_request(KEYS, sealed.message).sealer.seal(REPLY)
    sealed.opener.open(reply)
    with pytest.raises(ConsumedError):
        sealed.opener.open(reply)


def test_opener_is_spent_by_a_failure() -> None:
    sealed = seal_request(KEY.config, BHTTP)
    reply = open_request(KEYS, sealed.message).sealer.seal(REPLY)
    with pytest.raises(OpenError):
        sealed.opener.open(b"")
    with pytest.raises(ConsumedError):
        sealed.opener.open(reply)


def test_sealer_works_once() -> None:
    sealer = opened().sealer
    sealer.seal(REPLY)
    with pytest.raises(ConsumedError):
        sealer.seal(REPLY)


def opened() -> OpenedRequest:
    return open_request(KEYS, seal_request(KEY.config, BHTTP).message)


def test_sealer_refuses_a_nonce_of_another_length() -> None:
    with pytest.raises(MalformedError):
        opened().sealer.seal(REPLY, random=lambda count: bytes(count - 1))


def test_one_shot_objects_are_not_copied() -> None:
    sealed = seal_request(KEY.config, BHTTP)
    for thing in (sealed.opener, opened().sealer):
        with pytest.raises(TypeError):
            copy.copy(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(thing)


def test_seal_request_refuses_suites_that_are_not_offered() -> None:
    with pytest.raises(UnsupportedError):
        seal_request(gateway_key(1, 1).config, BHTTP, suite=X25519_SUITES[1])
    with pytest.raises(UnsupportedError):
        seal_request(gateway_key(1, 2).config, BHTTP)


def test_seal_request_refuses_a_key_of_low_order() -> None:
    with pytest.raises(MalformedError):
        seal_request(replace(KEY.config, public_key=bytes(32)), BHTTP)


def test_gateway_key_refuses_halves_that_differ() -> None:
    with pytest.raises(MalformedError):
        GatewayKey(config=KEY.config, private_key=generate_private_key(KEM_X25519))
    other = PrivateKey(kem_id=KEM_XWING, loaded=KEY.private_key.loaded)
    with pytest.raises(MalformedError):
        GatewayKey(config=KEY.config, private_key=other)


def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer = opened().sealer
    monkeypatch.setattr("curtilage.wire.ohttp.MAX_MESSAGE_BYTES", 10)
    with pytest.raises(LimitExceededError):
        seal_request(KEY.config, bytes(11))
    with pytest.raises(LimitExceededError):
        sealer.seal(bytes(11))
    assert encapsulation.MAX_MESSAGE_BYTES == 2**30


def test_nothing_secret_shows_in_repr() -> None:
    key = private_key_from_bytes(KEM_X25519, b"canary-canary-canary-canary-cana")
    config = replace(KEY.config, public_key=key.public_key)
    gateway = GatewayKey(config=config, private_key=key)
    sealed = seal_request(config, b"canary", ephemeral=key)
    request = open_request({1: gateway}, sealed.message)
    assert "canary" not in repr((gateway, sealed, request, request.sealer))
    assert sealed.message.hex() not in repr(sealed)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_request_or_a_wire_error(data: bytes) -> None:
    with pytest.raises((OpenError, UnknownKeyError)):
        open_request(KEYS, data)
    with pytest.raises(OpenError):
        seal_request(KEY.config, BHTTP).opener.open(data)
