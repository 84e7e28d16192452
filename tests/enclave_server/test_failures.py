"""All failures to open: one answer, and no time that distinguishes them."""

import gzip
import statistics
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from time import thread_time_ns

import pytest

from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.gateway import (
    UNDECAPSULATED,
    Form,
    OuterError,
    Terms,
    open_exchange,
)
from curtilage.enclave_server.ohttp.keys import ServerKey, make_key
from curtilage.wire.hpke.suite import KEM_X25519, KEM_XWING, Suite
from curtilage.wire.shaping import UNPADDED
from support.enclave_parts import (
    CHUNKED,
    NOW,
    PLAIN,
    Answer,
    Parts,
    exchange,
    get,
    inner_request,
    make_parts,
    post,
    seal,
    serving,
)

FORMS = [PLAIN, CHUNKED]
SUITES = [
    Suite(kem_id=kem_id, kdf_id=1, aead_id=1) for kem_id in (KEM_XWING, KEM_X25519)
]
ROUNDS = 400
TRIES = 8
ORDER_8 = bytes.fromhex(
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
)
Change = Callable[[bytes, Suite], bytes]


def name_of(suite: Suite) -> str:
    return "x-wing" if suite.kem_id == KEM_XWING else "x25519"


def put(place: int, data: bytes) -> Change:
    return lambda message, _suite: message[:place] + data + message[place + len(data) :]


def at_x_part(data: bytes) -> Change:
    def change(message: bytes, suite: Suite) -> bytes:
        place = 7 + suite.nenc - 32
        return message[:place] + data + message[place + 32 :]

    return change


def flip(place: Callable[[bytes, Suite], int]) -> Change:
    def change(message: bytes, suite: Suite) -> bytes:
        changed = bytearray(message)
        changed[place(message, suite)] ^= 1
        return bytes(changed)

    return change


def cut(length: Callable[[bytes, Suite], int]) -> Change:
    return lambda message, suite: message[: length(message, suite)]


def other_kem(message: bytes, suite: Suite) -> bytes:
    other = KEM_X25519 if suite.kem_id == KEM_XWING else KEM_XWING
    return message[:1] + other.to_bytes(2) + message[3:]


# The encapsulated request's lines of the bad-input list; each keeps its key id.
CAUSES: Mapping[str, Change] = {
    "seven-octets": cut(lambda _m, _s: 7),
    "one-octet": cut(lambda _m, _s: 1),
    "half-an-enc": cut(lambda _m, s: 7 + s.nenc // 2),
    "enc-only": cut(lambda _m, s: 7 + s.nenc),
    "enc-and-15": cut(lambda _m, s: 7 + s.nenc + 15),
    "enc-and-16": cut(lambda _m, s: 7 + s.nenc + 16),
    "last-octet-missing": cut(lambda m, _s: len(m) - 1),
    "octet-too-many": lambda message, _suite: message + b"\0",
    "bit-of-the-enc": flip(lambda _m, s: 7 + s.nenc - 1),
    "bit-of-the-ciphertext": flip(lambda m, _s: len(m) - 20),
    "bit-of-the-tag": flip(lambda m, _s: len(m) - 1),
    "wrong-kem": other_kem,
    "unknown-kem": put(1, b"\x00\x10"),
    "kdf-not-offered": put(3, b"\x00\x02"),
    "aead-not-offered": put(5, b"\x00\x02"),
    "aead-export-only": put(5, b"\xff\xff"),
    "x-part-zero": at_x_part(bytes(32)),
    "x-part-of-order-8": at_x_part(ORDER_8),
    "x-part-not-canonical": at_x_part(b"\xff" * 32),
    "enc-not-sealed-to-us": put(7, b"\xa5" * 32),
}


@cache
def key() -> ServerKey:
    return make_key(now=NOW, lifetime_s=60, replay_capacity=100_000)


def message_of(key: ServerKey, suite: Suite, form: str) -> bytes:
    return seal(key, inner_request(b"x" * 400), form=form, suite=suite).message


async def answer_to(parts: Parts, raw: bytes) -> Answer:
    async with serving(parts) as address:
        return await exchange(address, raw)


@pytest.mark.parametrize("suite", SUITES, ids=name_of)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cause", CAUSES)
async def test_failure_has_the_one_answer(cause: str, form: str, suite: Suite) -> None:
    parts = await make_parts()
    message = CAUSES[cause](message_of(parts.key, suite, form), suite)
    answer = await answer_to(parts, post(message, content_type=form))
    assert answer == THE_ANSWER
    assert parts.counted() == {"unopenable": 1}
    assert parts.engine.requests == []


THE_ANSWER = Answer(
    status=422,
    head=(
        ("Server", "curtilage"),
        ("Content-Type", "application/problem+json"),
        ("Cache-Control", "no-store"),
        ("Content-Length", str(len(UNDECAPSULATED.content))),
    ),
    body=UNDECAPSULATED.content,
    pieces=(UNDECAPSULATED.content,),
)


@pytest.mark.parametrize("form", FORMS)
async def test_empty_body_has_the_one_answer(form: str) -> None:
    parts = await make_parts()
    assert await answer_to(parts, post(b"", content_type=form)) == THE_ANSWER


@pytest.mark.parametrize(("sent", "read"), [(PLAIN, CHUNKED), (CHUNKED, PLAIN)])
@pytest.mark.parametrize("suite", SUITES, ids=name_of)
async def test_wrong_label_has_the_one_answer(
    sent: str, read: str, suite: Suite
) -> None:
    parts = await make_parts()
    raw = post(message_of(parts.key, suite, sent), content_type=read)
    assert await answer_to(parts, raw) == THE_ANSWER


@pytest.mark.parametrize("form", FORMS)
async def test_only_an_unknown_key_id_is_distinguishable(form: str) -> None:
    parts = await make_parts()
    message = message_of(parts.key, SUITES[0], form)
    unknown = next(n for n in range(256) if n not in parts.key.key_ids)
    raw = post(bytes([unknown]) + message[1:], content_type=form)
    answer = await answer_to(parts, raw)
    assert answer.status == 422
    assert answer.values("Content-Type") == ["application/problem+json"]
    assert b'"https://iana.org/assignments/http-problem-types#ohttp-key"' in answer.body
    assert [name for name, _ in answer.head] == [name for name, _ in THE_ANSWER.head]


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, br"])
async def test_coded_body_is_not_decoded(coding: str) -> None:
    parts = await make_parts()
    bomb = gzip.compress(bytes(10**7)) if "gzip" in coding else zlib.compress(b"x")
    raw = post(bomb, fields=[f"Content-Encoding: {coding}"])
    assert (await answer_to(parts, raw)).status == 415


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (post(b"x", method="PUT"), 405),
        (post(b"x", method="DELETE"), 405),
        (b"CONNECT gateway:443 HTTP/1.1\r\nHost: gateway\r\n\r\n", 405),
        (post(b"", method="OPTIONS"), 405),
        (post(b"x", content_type=None), 415),
        (post(b"x", content_type=f"{CHUNKED};v=1"), 415),
        (post(b"x", content_type=f'{CHUNKED}; charset="utf-8"'), 415),
        (post(b"", content_type="text/plain"), 415),
        (post(b"", length=2**40), 413),
        (post(b"x", content_type=CHUNKED.upper()), 422),
    ],
)
async def test_the_obvious_has_its_status(raw: bytes, status: int) -> None:
    assert (await answer_to(await make_parts(), raw)).status == status


async def test_keys_are_to_be_fetched_from_the_gateways_own_path() -> None:
    path = "/.well-known/ohttp-gateway"
    assert (await answer_to(await make_parts(), get(path))).status == 200


def failing(keys: Mapping[int, ServerKey], message: bytes, terms: Terms) -> int:
    """Open what does not open; return the thread's time for it, in ns."""
    started = thread_time_ns()
    with pytest.raises(OuterError):
        open_exchange(keys, Form.CHUNKED, message, terms)
    return thread_time_ns() - started


def rounds(messages: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    """Measure the causes in turns, so that a slow phase affects all."""
    keys = dict.fromkeys(key().key_ids, key())
    terms = Terms(chat=ChatLimits(), transport=UNPADDED, now=NOW)
    for _ in range(ROUNDS):
        for cause, message in messages.items():
            yield cause, failing(keys, message, terms)


# One message for each place where a decapsulation could end early.
TIMED = [
    "one-octet",
    "half-an-enc",
    "enc-only",
    "last-octet-missing",
    "bit-of-the-enc",
    "bit-of-the-tag",
    "wrong-kem",
    "aead-export-only",
    "x-part-zero",
]


@pytest.mark.parametrize("suite", SUITES, ids=name_of)
def test_time_does_not_disclose_why_it_failed(suite: Suite) -> None:
    message = message_of(key(), suite, CHUNKED)
    messages = {cause: CAUSES[cause](message, suite) for cause in TIMED}
    # Other work on this machine can only separate the causes: once is enough.
    assert any(is_indistinguishable(messages) for _ in range(TRIES))


def is_indistinguishable(messages: Mapping[str, bytes]) -> bool:
    times: dict[str, list[int]] = {cause: [] for cause in messages}
    for cause, elapsed in rounds(messages):
        times[cause].append(elapsed)
    # Processor time, interleaved, lower quartile: other work on this machine only adds.
    # A cause that skips decapsulation takes a tenth of it.
    quiet = {cause: statistics.quantiles(ns, n=4)[0] for cause, ns in times.items()}
    usual = quiet["bit-of-the-tag"]
    ratios = {cause: ns / usual for cause, ns in quiet.items()}
    return all(0.75 < ratio < 1.33 for ratio in ratios.values())
