"""Every line of the bad-input list on chunked messages gets its answer."""

from collections.abc import Callable, Iterable

import pytest

from curtilage.wire.chunked import (
    MAX_SMALL_CHUNKS,
    ChunkedRequestOpener,
    ChunkedResponseOpener,
    open_chunked_request,
    seal_chunked_request,
)
from curtilage.wire.encapsulation import CHUNKED_LABELS, begin_request
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    OpenError,
    TruncatedError,
    WireError,
)
from curtilage.wire.hpke.suite import SUITES, Suite
from curtilage.wire.ohttp import open_request, seal_request
from support.bad_chunked import Line, Seal, all_lines, chunk, final
from support.examples import examples
from support.wire_keys import KEYS, LIVE, gateway_key

every_suite = pytest.mark.parametrize("suite", SUITES, ids=str)

NONCE = b"n"


def request_of(suite: Suite, build: Callable[[Seal], bytes]) -> bytes:
    prefix, context, _ = begin_request(
        KEYS[suite.kem_id].config, CHUNKED_LABELS, suite=suite, ephemeral=None
    )
    return prefix + build(context.seal)


def response_of(
    suite: Suite, build: Callable[[Seal], bytes]
) -> tuple[bytes, ChunkedResponseOpener, ChunkedResponseOpener]:
    """Return a response made by hand, and two openers of it."""
    _, _, secret = begin_request(
        KEYS[suite.kem_id].config, CHUNKED_LABELS, suite=suite, ephemeral=None
    )
    nonce = NONCE * secret.nonce_bytes
    keys = secret.keys(nonce)
    counter = iter(range(10_000))
    body = build(lambda plaintext, aad: keys.seal(next(counter), plaintext, aad))
    openers = ChunkedResponseOpener(secret), ChunkedResponseOpener(secret)
    return nonce + body, *openers


def answer(
    opener: ChunkedRequestOpener | ChunkedResponseOpener, pieces: Iterable[bytes]
) -> type[WireError] | None:
    try:
        for piece in pieces:
            opener.push(piece)
        opener.finish()
    except WireError as error:
        return type(error)
    return None


def cut(data: bytes) -> Iterable[bytes]:
    step = 1 if len(data) < 4096 else 1000
    return (data[start : start + step] for start in range(0, len(data), step))


@every_suite
@examples("line", list(all_lines()))
def test_request(line: Line, suite: Suite) -> None:
    message = request_of(suite, line.build)
    for pieces in ([message], cut(message)):
        opener = ChunkedRequestOpener(LIVE, limit_bytes=2**20)
        assert answer(opener, pieces) is line.error
        if line.error is not None:
            with pytest.raises(ConsumedError):
                opener.sealer()


@every_suite
@examples("line", list(all_lines()))
def test_response(line: Line, suite: Suite) -> None:
    message, whole, slow = response_of(suite, line.build)
    assert answer(whole, [message]) is line.error
    assert answer(slow, cut(message)) is line.error


@every_suite
def test_response_nonce_short(suite: Suite) -> None:
    message, opener, _ = response_of(suite, final)
    nonce_bytes = max(suite.nn, suite.nk)
    assert opener.push(message[: nonce_bytes - 1]) == []
    with pytest.raises(TruncatedError):
        opener.finish()


@every_suite
def test_response_before_the_request_ends(suite: Suite) -> None:
    message = request_of(suite, lambda s: chunk(s, b"one") + final(s, b"end"))
    opener = ChunkedRequestOpener(LIVE, limit_bytes=2**20)
    opener.push(message)
    with pytest.raises(ConsumedError):
        opener.sealer()


def test_a_million_tiny_chunks_stop_at_the_limit() -> None:
    # A request in such pieces would cost its reader far more than its bytes say.
    taken: list[bytes] = []

    def build(seal: Seal) -> bytes:
        return b"".join(chunk(seal, b"x") for _ in range(2**20 // 18))

    message = request_of(SUITES[0], build)
    opener = ChunkedRequestOpener(LIVE, limit_bytes=2**20)

    def read() -> None:
        for piece in cut(message):
            taken.extend(opener.push(piece))

    with pytest.raises(LimitExceededError, match="small chunks"):
        read()
    assert len(taken) <= MAX_SMALL_CHUNKS + 1


def test_tiny_chunks_of_an_answer_stop_at_its_length() -> None:
    def build(seal: Seal) -> bytes:
        return b"".join(chunk(seal, b"x") for _ in range(2000)) + final(seal)

    message, whole, slow = response_of(SUITES[0], build)
    assert answer(whole, [message]) is None
    assert answer(slow, cut(message)) is None


@every_suite
def test_plain_label_under_the_chunked_type(suite: Suite) -> None:
    # The media type chooses the label, so neither passes for the other.
    config = KEYS[suite.kem_id].config
    plain = seal_request(config, b"x" * 100, suite=suite).message
    streamed = seal_chunked_request(config, b"x" * 100, suite=suite).message
    with pytest.raises(WireError):
        open_chunked_request(LIVE, plain)
    with pytest.raises(WireError):
        open_request(LIVE, streamed)


@every_suite
def test_request_to_another_key_of_the_same_id(suite: Suite) -> None:
    other = gateway_key(suite.kem_id)
    message = seal_chunked_request(other.config, b"x", suite=suite).message
    opener = ChunkedRequestOpener(LIVE, limit_bytes=2**20)
    assert answer(opener, [message]) is OpenError
