"""What went wrong in other people's parsers, one test each.

netty-incubator-codec-ohttp's history, ohttpy and hand-written peers; what
concerns keys, gateways and relays is tested where those are.
"""

import gc
import tracemalloc

import pytest

from curtilage.wire.bhttp import (
    Request,
    RequestDecoder,
    ResponseDecoder,
    decode_request,
    encode_content_chunk,
    encode_request,
    encode_response_head,
)
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
    TruncatedError,
    WireError,
)
from curtilage.wire.hpke.suite import SUITES, Suite
from curtilage.wire.ohttp import open_request, seal_request
from curtilage.wire.varint import encode_varint
from support.bad_bhttp import control, known
from support.wire_keys import KEYS, LIVE

every_suite = pytest.mark.parametrize("suite", SUITES, ids=str)


@every_suite
def test_chunk_nonces_do_not_wrap(suite: Suite) -> None:
    # GHSA-g762-h86w-8749: a counter of 32 bits came back to the first nonce.
    config = KEYS[suite.kem_id].config
    _, _, secret = begin_request(config, CHUNKED_LABELS, suite=suite, ephemeral=None)
    keys = secret.keys(bytes(secret.nonce_bytes))
    far = [0, *(2**bits for bits in (8, 16, 31, 32, 63, 64, 95))]
    assert len({keys.seal(counter, b"", b"") for counter in far}) == len(far)
    with pytest.raises(OverflowError):
        keys.seal(2 ** (8 * suite.nn), b"", b"")


@pytest.mark.parametrize("part", ["method", "scheme", "authority", "path"])
def test_control_data_injects_no_line(part: str) -> None:
    smuggled = b"/x HTTP/1.1\r\nhost: other\r\n\r\nGET /y"
    data = b"\0" + control(**{part: smuggled}) + bytes(3)
    with pytest.raises(MalformedError):
        decode_request(data)


def test_body_that_ends_without_its_final_chunk_is_seen() -> None:
    config = KEYS[SUITES[0].kem_id].config
    message = seal_chunked_request(config, bytes(40), chunk_bytes=20).message
    with pytest.raises(TruncatedError):
        open_chunked_request(LIVE, message[: -len(b"\0") - 20 - 16])


@every_suite
def test_failed_setup_gives_no_secret(suite: Suite) -> None:
    # An HPKE failure once went on with an empty secret.
    config = KEYS[suite.kem_id].config
    plain = seal_request(config, b"x", suite=suite).message
    streamed = seal_chunked_request(config, b"x", suite=suite).message
    end = 7 + suite.nenc
    with pytest.raises(OpenError):
        open_request(LIVE, plain[:7] + bytes(suite.nenc) + plain[end:])
    with pytest.raises(OpenError):
        open_chunked_request(LIVE, streamed[:7] + bytes(suite.nenc) + streamed[end:])


def test_failed_parse_lets_go_of_what_it_held() -> None:
    def fail() -> None:
        decoder = RequestDecoder()
        decoder.push(b"\0" + control() + encode_varint(60_000) + b"\x3f" * 50_000)
        with pytest.raises(LimitExceededError):
            decoder.push(b"\x3f" * 10_000)

    fail()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            fail()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000


def test_errors_say_nothing_of_the_message() -> None:
    canary = b"canary-2518"
    for data in (
        b"\0" + control(path=canary),
        known((b"a", canary + b"\n")),
        known((canary.upper(), b"x")),
        known(content=canary)[:-5],
    ):
        with pytest.raises(WireError) as caught:
            decode_request(data)
        chain = [caught.value, caught.value.__cause__, caught.value.__context__]
        assert "canary" not in repr(chain).lower()


@pytest.mark.parametrize("framing", [0, 2])
def test_section_boundary_hit_exactly_makes_progress(framing: int) -> None:
    # A parser that came to a boundary with nothing left once looped for ever.
    whole = bytes([framing]) + control() + b"\0\0\0"
    decoder = RequestDecoder()
    for octet in whole:
        decoder.push(bytes([octet]))
        decoder.push(b"")
    decoder.finish()


@pytest.mark.parametrize("octet", [0x00, 0x3F, 0x40, 0x7F, 0x80, 0xC0, 0xFF])
def test_corrupt_section_boundary_ends_in_an_answer(octet: int) -> None:
    # Fed again and again, a parse may only end, never spin.
    valid = known((b"a", b"b"), trailers=[(b"c", b"d")])
    for place in range(len(valid)):
        data = valid[:place] + bytes([octet]) + valid[place + 1 :]
        decoder = RequestDecoder()
        try:
            for start in range(len(data)):
                decoder.push(data[start : start + 1])
            decoder.finish()
        except WireError:
            with pytest.raises(ConsumedError):
                decoder.push(b"\0")


@pytest.mark.parametrize("first", [0x40, 0x80, 0xC0, 0xFF])
def test_lengths_do_not_overflow(first: int) -> None:
    # Read as a signed number, the largest of each width would be negative.
    width = 1 << (first >> 6)
    largest = bytes([first | 0x3F]) + b"\xff" * (width - 1)
    for before in (b"\0", b"\2" + control(), b"\0" + control() + b"\0"):
        decoder = RequestDecoder()
        try:
            decoder.push(before + largest)
        except LimitExceededError:
            continue
        with pytest.raises(TruncatedError):
            decoder.finish()


def test_request_line_is_bounded() -> None:
    decoder = RequestDecoder()
    with pytest.raises(LimitExceededError):
        decoder.push(b"\0\4POST\5https\1a" + encode_varint(8193))


def test_upper_case_names_are_not_taken() -> None:
    with pytest.raises(MalformedError):
        decode_request(known((b"Content-Type", b"text/plain")))
    with pytest.raises(MalformedError):
        encode_response_head(200, ((b"Content-Type", b"text/plain"),))


def test_empty_value_does_not_end_an_indeterminate_section() -> None:
    decoder = ResponseDecoder()
    head, *_ = decoder.push(encode_response_head(200, ((b"a", b""), (b"b", b"1"))))
    assert "status=200" in repr(head)
    assert decoder.push(encode_content_chunk(b"c"))


@every_suite
def test_labels_are_not_mixed(suite: Suite) -> None:
    # One library sealed with the plain label under the chunked media type.
    config = KEYS[suite.kem_id].config
    prefix, context, _ = begin_request(
        config, PLAIN_LABELS, suite=suite, ephemeral=None
    )
    with pytest.raises(OpenError):
        open_chunked_request(LIVE, prefix + b"\0" + context.seal(b"x", b"final"))


def test_undecryptable_response_is_no_empty_answer() -> None:
    # The same library returned 200 with an empty body.
    config = KEYS[SUITES[0].kem_id].config
    opener = seal_chunked_request(config, b"x").opener
    opener.push(bytes(16))
    with pytest.raises(WireError):
        opener.push(b"\x20" + bytes(32))
    with pytest.raises(ConsumedError):
        opener.finish()


def test_reencoded_request_is_the_same_request() -> None:
    request = Request(
        method=b"POST",
        scheme=b"https",
        authority=b"a.invalid",
        path=b"/x",
        fields=((b"a", b""), (b"b", b"1")),
        content=b"c",
        trailers=((b"d", b""),),
    )
    assert decode_request(encode_request(request)) == request
