"""Requests that no client of ours makes: what each must get, on either KEM.

The gateway's lines of the bad-input list that concern bytes. Only an unknown key
identifier may be distinguished from anything else.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from curtilage.wire import encapsulation, ohttp
from curtilage.wire.chunked import open_chunked_request, seal_chunked_request
from curtilage.wire.encapsulation import GatewayKey, reject_implicitly
from curtilage.wire.errors import (
    ConsumedError,
    OpenError,
    TruncatedError,
    UnknownKeyError,
    WireError,
)
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    KEM_XWING,
    SUITES,
    PrivateKey,
    RecipientContext,
    Suite,
    generate_private_key,
    setup_recipient,
    setup_sender,
)
from curtilage.wire.keyconfig import SymmetricAlgorithms
from curtilage.wire.ohttp import open_request, seal_request
from support.samples import Sample
from support.wire_keys import KEYS, LIVE

BHTTP = b"a request of 27 bytes here"
TEXT_OF_EVERY_REFUSAL = "the message does not open"
ORDER_8 = bytes.fromhex(
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
)

Seal = Callable[[GatewayKey], bytes]
Open = Callable[[bytes], object]

by_kem = pytest.mark.parametrize(
    "key", [KEYS[KEM_X25519], KEYS[KEM_XWING]], ids=["X25519", "X-Wing"]
)
by_suite = pytest.mark.parametrize(
    "suite", SUITES, ids=lambda suite: f"{suite.kem_id:#06x}-aead{suite.aead_id}"
)


def plain(key: GatewayKey) -> bytes:
    return seal_request(key.config, BHTTP).message


def chunked(key: GatewayKey) -> bytes:
    return seal_chunked_request(key.config, BHTTP, chunk_bytes=10).message


def open_plain(message: bytes) -> object:
    return open_request(LIVE, message)


def open_chunked(message: bytes) -> object:
    return open_chunked_request(LIVE, message)


by_form = pytest.mark.parametrize(
    ("seal", "open_"),
    [(plain, open_plain), (chunked, open_chunked)],
    ids=["plain", "chunked"],
)


def refused(open_: Open, message: bytes) -> None:
    with pytest.raises(OpenError) as caught:
        open_(message)
    assert str(caught.value) == TEXT_OF_EVERY_REFUSAL
    assert caught.value.__cause__ is None


# Round trips, so that what follows refuses for the reason it names.


@by_suite
def test_round_trip_of_every_suite(suite: Suite) -> None:
    key = KEYS[suite.kem_id]
    sealed = seal_request(key.config, BHTTP, suite=suite)
    assert len(sealed.message) == len(BHTTP) + 7 + suite.nenc + 16
    opened = open_request(LIVE, sealed.message)
    assert opened.bhttp == BHTTP
    assert sealed.opener.open(opened.sealer.seal(b"a reply")) == b"a reply"


@by_suite
def test_chunked_round_trip_of_every_suite(suite: Suite) -> None:
    sealed = seal_chunked_request(KEYS[suite.kem_id].config, BHTTP * 1000, suite=suite)
    bhttp, sealer = open_chunked_request(LIVE, sealed.message)
    assert bhttp == BHTTP * 1000
    answer = sealer.begin() + sealer.seal(b"one") + sealer.finish(b"two")
    assert sealed.opener.push(answer) == [b"one"]
    assert sealed.opener.finish() == b"two"


# Flipped bits.


def flips(message: bytes, places: Iterable[int], bits: Iterable[int]) -> list[bytes]:
    return [
        message[:at] + bytes([message[at] ^ 1 << bit]) + message[at + 1 :]
        for at in places
        for bit in bits
    ]


@by_form
@by_suite
def test_every_flipped_bit_is_refused(
    suite: Suite, seal: Seal, open_: Open, sample: Sample
) -> None:
    key = KEYS[suite.kem_id]
    only = replace(
        key.config,
        algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=suite.aead_id),),
    )
    message = seal(GatewayKey(config=only, private_key=key.private_key))
    open_(message)
    body = 7 + suite.nenc
    # All of the header and of the sealed part, all of a short enc. Of X-Wing's
    # enc one bit in every byte: each other bit costs a decapsulation more.
    sealed = sample(range(body, len(message)), edges=[len(message) - 16])
    enc = sample(range(7, body))
    bad = flips(message, [*range(7), *sealed], range(8))
    bad += flips(message, enc, range(8) if suite.nenc < 100 else (3,))
    for one in bad:
        with pytest.raises(WireError) as caught:
            open_(one)
        if one[0] not in LIVE:
            assert caught.type is UnknownKeyError
        elif one[:body] != message[:body] or open_ is open_plain:
            assert caught.type is OpenError
        # Behind the encapsulated key a chunked message has lengths, which are not
        # authenticated: a wrong one may end or overrun the message instead.


# Cut short.


@by_kem
def test_every_truncation_of_a_plain_request(key: GatewayKey) -> None:
    message = plain(key)
    step = 1 if len(message) < 200 else 7
    for cut in (*range(40), *range(40, len(message), step), len(message) - 1):
        refused(open_plain, message[:cut])
    refused(open_plain, message + b"\x00")


@by_kem
def test_every_truncation_of_a_chunked_request(key: GatewayKey) -> None:
    message = chunked(key)
    step = 1 if len(message) < 200 else 7
    for cut in (*range(40), *range(40, len(message), step), len(message) - 1):
        with pytest.raises((TruncatedError, OpenError)):
            open_chunked(message[:cut])
    refused(open_chunked, message + b"\x00")


# Another header over the same bytes.


@by_kem
@by_form
@pytest.mark.parametrize(
    ("place", "octets"),
    [
        (1, "0010"),
        (1, "0030"),
        (1, "ffff"),
        (3, "0002"),
        (3, "0010"),
        (5, "0002"),
        (5, "0003"),
        (5, "ffff"),
    ],
    ids=[
        "KEM P-256",
        "KEM of a draft",
        "KEM unknown",
        "KDF SHA-384",
        "KDF single-stage",
        "AEAD AES-256",
        "AEAD of the other suite",
        "AEAD export-only",
    ],
)
def test_another_header(
    key: GatewayKey,
    *,
    seal: Seal,
    open_: Open,
    place: int,
    octets: str,
) -> None:
    message, there = seal(key), bytes.fromhex(octets)
    assert message[place : place + 2] != there
    refused(open_, message[:place] + there + message[place + 2 :])


@by_form
def test_the_kem_of_the_other_key(seal: Seal, open_: Open) -> None:
    first, second = KEYS[KEM_X25519], KEYS[KEM_XWING]
    for key, other in ((first, second), (second, first)):
        message = seal(key)
        kem_id = other.config.kem_id.to_bytes(2, "big")
        refused(open_, message[:1] + kem_id + message[3:])
        # A chunked message may also end inside the longer encapsulated key, or
        # go on behind the shorter one with a length of anything.
        with pytest.raises(WireError) as caught:
            open_(bytes([other.config.key_id]) + message[1:])
        assert caught.type is not UnknownKeyError
        assert open_ is open_chunked or caught.type is OpenError


@by_form
def test_only_an_unknown_key_identifier_is_distinguished(
    seal: Seal, open_: Open
) -> None:
    message = seal(KEYS[KEM_XWING])
    unknown = next(one for one in range(256) if one not in LIVE)
    for end in (7, len(message)):
        with pytest.raises(UnknownKeyError):
            open_(bytes([unknown]) + message[1:end])


@by_kem
def test_what_is_sealed_for_a_header_that_is_not_offered_stays_shut(
    key: GatewayKey,
) -> None:
    """The sender knows the secret of its own ``enc``, whatever header it names."""
    for aead_id in (2, 0xFFFF):
        header = bytes([key.config.key_id]) + key.config.kem_id.to_bytes(2, "big")
        header += b"\x00\x01" + aead_id.to_bytes(2, "big")
        suite = Suite(kem_id=key.config.kem_id, kdf_id=1, aead_id=1)
        info = b"message/bhttp request\x00" + header
        enc, sender = setup_sender(suite, key.config.public_key, info)
        refused(open_plain, header + enc + sender.seal(BHTTP, b""))


# Odd encapsulated keys.


@by_form
@pytest.mark.parametrize(
    "point",
    [
        bytes(32),
        b"\x01" + bytes(31),
        ORDER_8,
        b"\xff" * 32,
        (2**255 - 19).to_bytes(32, "little"),
        (2**255 - 17).to_bytes(32, "little"),
    ],
    ids=["0", "1", "order 8", "not canonical", "p", "p + 2"],
)
@by_kem
def test_odd_points(key: GatewayKey, seal: Seal, open_: Open, point: bytes) -> None:
    message = seal(key)
    end = 7 + key.nenc
    refused(open_, message[: end - 32] + point + message[end:])


@by_form
@pytest.mark.parametrize(
    "half", [bytes(1088), b"\xff" * 1088, secrets.token_bytes(1088)]
)
def test_a_bad_ml_kem_half_reads_like_a_forged_tag(
    seal: Seal, open_: Open, half: bytes
) -> None:
    message = seal(KEYS[KEM_XWING])
    refused(open_, message[:7] + half + message[7 + 1088 :])


def test_a_low_order_point_opens_nothing_that_its_sender_can_seal() -> None:
    """With an all-zero exchange, anybody could seal to any key."""
    key = KEYS[KEM_X25519]
    suite = Suite(kem_id=KEM_X25519, kdf_id=1, aead_id=1)
    other = generate_private_key(KEM_X25519)
    header = plain(key)[:7]
    info = b"message/bhttp request\x00" + header
    # The same low-order point gives each key another secret: what fits one of
    # them was made with its private key.
    known = {
        setup_recipient(suite, bytes(32), one, info).export(b"", 32)
        for one in (key.private_key, other)
    }
    assert len(known) == 2


@by_kem
def test_our_own_public_key_as_encapsulated_key(key: GatewayKey) -> None:
    """The decoy that replaces a missing encapsulated key."""
    message = plain(key)
    decoy = key.config.public_key[-key.nenc :]
    refused(open_plain, message[:7] + decoy + message[7 + key.nenc :])


# Labels and other messages.


@by_kem
def test_each_form_under_the_label_of_the_other(key: GatewayKey) -> None:
    refused(open_plain, chunked(key))
    with pytest.raises(WireError):
        open_chunked(plain(key))
    prefix, context, _ = encapsulation.begin_request(
        key.config, encapsulation.PLAIN_LABELS, suite=None, ephemeral=None
    )
    refused(open_chunked, prefix + b"\x00" + context.seal(BHTTP, b"final"))
    prefix, context, _ = encapsulation.begin_request(
        key.config, encapsulation.CHUNKED_LABELS, suite=None, ephemeral=None
    )
    refused(open_plain, prefix + context.seal(BHTTP, b""))


@by_kem
def test_the_same_enc_under_another_header(key: GatewayKey) -> None:
    message = seal_request(key.config, BHTTP).message
    assert message[5:7] == b"\x00\x01"
    refused(open_plain, message[:5] + b"\x00\x03" + message[7:])


@pytest.mark.parametrize("open_", [open_plain, open_chunked])
def test_an_empty_body_is_no_request(open_: Open) -> None:
    with pytest.raises((OpenError, TruncatedError)):
        open_(b"")


# Key life.


@by_kem
def test_an_overwritten_key_opens_nothing(key: GatewayKey) -> None:
    private_key = generate_private_key(key.config.kem_id)
    config = replace(key.config, public_key=private_key.public_key)
    keys = {config.key_id: GatewayKey(config=config, private_key=private_key)}
    message = seal_request(config, BHTTP).message
    assert open_request(keys, message).bhttp == BHTTP
    private_key.overwrite()
    for message_ in (message, message[:20]):
        with pytest.raises(ConsumedError):
            open_request(keys, message_)


@by_kem
def test_the_key_of_another_gateway(key: GatewayKey) -> None:
    private_key = generate_private_key(key.config.kem_id)
    config = replace(key.config, public_key=private_key.public_key)
    other = {config.key_id: GatewayKey(config=config, private_key=private_key)}
    with pytest.raises(OpenError):
        open_request(other, plain(key))


# The work of a refusal.


class Counted:
    """Counts decapsulations while a message is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counting(
            suite: Suite, enc: bytes, private_key: PrivateKey, info: bytes
        ) -> RecipientContext:
            self.count += 1
            return setup_recipient(suite, enc, private_key, info)

        monkeypatch.setattr(encapsulation, "setup_recipient", counting)

    def during(self, open_: Open, message: bytes) -> int:
        before = self.count
        with pytest.raises(WireError):
            open_(message)
        return self.count - before


@by_form
@by_kem
def test_every_refusal_decapsulates_once(
    key: GatewayKey,
    *,
    seal: Seal,
    open_: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message, counted = seal(key), Counted(monkeypatch)
    end = 7 + key.nenc
    causes = {
        "a forged tag": message[:-1] + bytes([message[-1] ^ 1]),
        "another KEM": message[:1] + b"\x00\x10" + message[3:],
        "another AEAD": message[:5] + b"\xff\xff" + message[7:],
        "low order": message[: end - 32] + bytes(32) + message[end:],
        "cut inside enc": message[: end - 1],
        "cut behind the header": message[:7],
        "cut behind enc": message[:end],
    }
    seen = {name: counted.during(open_, cause) for name, cause in causes.items()}
    assert seen == dict.fromkeys(causes, 1)


@by_kem
def test_a_cut_header_costs_as_much(
    key: GatewayKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    assert counted.during(open_plain, plain(key)[:3]) == 1


@by_kem
def test_implicit_rejection_opens_nothing_and_raises_nothing(key: GatewayKey) -> None:
    for header in (plain(key)[:7], b"", bytes(7)):
        reject_implicitly(key, header, encapsulation.PLAIN_LABELS)


def test_select_key_refuses_what_has_no_header() -> None:
    with pytest.raises(OpenError):
        encapsulation.select_key(LIVE, b"")
    assert ohttp.GatewayKey is GatewayKey
