import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatLimits
from curtilage.enclave_server.ohttp.gateway import (
    UNDECAPSULATED,
    UNKNOWN_KEY,
    UNSUPPORTED_TYPE,
    Exchange,
    Form,
    OuterAnswer,
    OuterError,
    Terms,
    form_of,
    open_exchange,
    seal_error,
)
from curtilage.enclave_server.ohttp.keys import ServerKey, make_key
from curtilage.enclave_server.ohttp.sealing import PaddedSealer, Sealer
from curtilage.wire import bhttp, chunked
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.hpke.suite import KEM_X25519, KEM_XWING, Suite
from curtilage.wire.keyconfig import SymmetricAlgorithms
from curtilage.wire.shaping import UNPADDED
from support.enclave_parts import (
    CHUNKED,
    NOW,
    PLAIN,
    Sealed,
    chat_body,
    dated,
    error_code,
    inner_request,
    seal,
)
from support.samples import Sample

CANARY = "canary-51bd"
FORMS = [PLAIN, CHUNKED]


def suite_name(suite: object) -> str:
    assert isinstance(suite, Suite)
    return f"{suite.kem_id:#x}-{suite.aead_id}"


TERMS = Terms(chat=ChatLimits(), transport=UNPADDED, now=NOW)


def fresh_key(*, key_id: int = 3, capacity: int = 10_000) -> ServerKey:
    return make_key(
        now=NOW,
        lifetime_s=100,
        replay_capacity=capacity,
        random=lambda n: bytes([key_id]) * n,
    )


KEY = fresh_key()
FIRST_SUITES = tuple(each.config.suites()[0] for each in KEY.gateway_keys)
OFFERED = tuple(suite for each in KEY.gateway_keys for suite in each.config.suites())


def open_(
    message: bytes, form: str = CHUNKED, *, key: ServerKey | None = None
) -> Exchange:
    key = key or KEY
    keys = dict.fromkeys(key.key_ids, key)
    return open_exchange(keys, Form(form), message, TERMS)


def sealer_of(exchange: Exchange) -> Sealer:
    assert not isinstance(exchange.sealer, PaddedSealer)
    return exchange.sealer


def outer(message: bytes, form: str = CHUNKED) -> OuterAnswer:
    with pytest.raises(OuterError) as caught:
        open_(message, form)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return caught.value.answer


def inner_error(sealed: Sealed, form: str = CHUNKED) -> bhttp.Response:
    exchange = open_(sealed.message, form)
    assert isinstance(exchange.asked, ChatError)
    return sealed.open(seal_error(sealer_of(exchange), exchange.asked))


@pytest.mark.parametrize("suite", OFFERED, ids=suite_name)
@pytest.mark.parametrize("form", FORMS)
def test_request_is_opened_and_its_answer_sealed(form: str, suite: Suite) -> None:
    sealed = seal(KEY, inner_request(chat_body(stream=True)), form=form, suite=suite)
    exchange = open_(sealed.message, form)
    assert isinstance(exchange.asked, ChatCompletionRequest)
    assert exchange.asked.stream
    sealer = sealer_of(exchange)
    data = sealer.begin(200, ((b"content-type", b"text/plain"),))
    data += sealer.write(b"a" * 40_000) + sealer.write(b"") + sealer.write(b"b")
    response = sealed.open(data + sealer.finish())
    assert response.status == 200
    assert response.content == b"a" * 40_000 + b"b"
    assert sealer.media_type == form.replace("req", "res")


def test_plain_answer_is_held_back_until_it_is_whole() -> None:
    sealer = sealer_of(open_(seal(KEY, form=PLAIN).message, PLAIN))
    assert sealer.begin(200, ()) + sealer.write(b"x") == b""
    assert sealer.finish()


def test_chunked_answer_can_be_sent_piece_by_piece() -> None:
    sealer = sealer_of(open_(seal(KEY).message))
    assert sealer.begin(200, ())
    assert sealer.write(b"x")


@pytest.mark.parametrize("form", FORMS)
def test_every_truncation_is_undecapsulated(form: str, sample: Sample) -> None:
    message = seal(KEY, form=form).message
    ends = sample(range(len(message)), edges=(7, 39, len(message) - 16))
    answers = {id(outer(message[:end], form)) for end in ends}
    assert answers == {id(UNDECAPSULATED)}


@pytest.mark.parametrize("suite", FIRST_SUITES, ids=suite_name)
@pytest.mark.parametrize("form", FORMS)
def test_every_bit_flip_is_refused(form: str, suite: Suite, sample: Sample) -> None:
    message = seal(KEY, form=form, suite=suite).message
    tag = len(message) - 16
    for place in sample(range(len(message)), edges=(*range(8), 7 + suite.nenc, tag)):
        # All eight bits where the curve ignores one; one bit of each byte elsewhere.
        bits = range(8) if suite.nenc < 64 else [place % 8]
        for bit in bits:
            flipped = bytearray(message)
            flipped[place] ^= 1 << bit
            other = place == 0 and flipped[0] not in KEY.key_ids
            # The highest bit of an X25519 point is ignored by the curve, but
            # HPKE binds the bytes, so it does not open either.
            expected = UNKNOWN_KEY if other else UNDECAPSULATED
            assert outer(bytes(flipped), form) is expected, (place, bit)


# Wrong values for each place of a request.
ALTERED = {
    "right-id-wrong-kem": (1, b"\x00\x10"),
    "kem-of-the-other-key": (1, None),
    "kdf-not-offered": (3, b"\x00\x02"),
    "kdf-of-one-stage": (3, b"\x00\x10"),
    "aead-not-offered": (5, b"\x00\x02"),
    "aead-export-only": (5, b"\xff\xff"),
    "other-aead": (5, b"\x00\x03"),
    "enc-zero": (7, bytes(32)),
    "enc-low-order": (7, b"\x01" + bytes(31)),
    "enc-order-8": (
        7,
        bytes.fromhex(
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
        ),
    ),
    "enc-not-canonical": (7, b"\xff" * 32),
    "ml-kem-part": (7, b"\xff" * 1088),
    "x-part-zero": (7 + 1088, bytes(32)),
    "x-part-order-8": (
        7 + 1088,
        bytes.fromhex(
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
        ),
    ),
}


def altered_message(altered: str, suite: Suite, form: str) -> bytes:
    place, data = ALTERED[altered]
    if data is None:
        other = KEM_X25519 if suite.kem_id == KEM_XWING else KEM_XWING
        data = other.to_bytes(2)
    message = seal(KEY, form=form, suite=suite).message
    return message[:place] + data + message[place + len(data) :]


@pytest.mark.parametrize("suite", FIRST_SUITES, ids=suite_name)
@pytest.mark.parametrize("altered", ALTERED)
@pytest.mark.parametrize("form", FORMS)
def test_altered_header_or_enc_is_undecapsulated(
    form: str, altered: str, suite: Suite
) -> None:
    assert outer(altered_message(altered, suite, form), form) is UNDECAPSULATED


@pytest.mark.parametrize("form", FORMS)
def test_trailing_byte_is_undecapsulated(form: str) -> None:
    assert outer(seal(KEY, form=form).message + b"\0", form) is UNDECAPSULATED


def test_suite_that_is_not_offered_is_undecapsulated() -> None:
    gateway_key = KEY.gateway_key(KEY.key_ids[1])
    narrow = replace(
        gateway_key.config,
        algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=3),),
    )
    key = replace(
        KEY,
        gateway_keys=(GatewayKey(config=narrow, private_key=gateway_key.private_key),),
    )
    message = seal(KEY, suite=FIRST_SUITES[1]).message
    with pytest.raises(OuterError) as caught:
        open_(message, key=key)
    assert caught.value.answer is UNDECAPSULATED


@pytest.mark.parametrize(("sent", "read"), [(PLAIN, CHUNKED), (CHUNKED, PLAIN)])
def test_wrong_label_is_undecapsulated(sent: str, read: str) -> None:
    assert outer(seal(KEY, form=sent).message, read) is UNDECAPSULATED


def test_request_to_another_key_of_the_same_id_is_undecapsulated() -> None:
    assert outer(seal(fresh_key()).message) is UNDECAPSULATED


def test_unknown_key_id_is_distinguishable() -> None:
    assert outer(seal(fresh_key(key_id=9)).message) is UNKNOWN_KEY
    assert UNKNOWN_KEY.status == UNDECAPSULATED.status == 422
    assert b"#ohttp-key" in UNKNOWN_KEY.content
    assert b"#ohttp-key" not in UNDECAPSULATED.content


@pytest.mark.parametrize("form", FORMS)
def test_same_request_twice_is_refused_inside(form: str) -> None:
    sealed = seal(KEY, form=form)
    assert isinstance(open_(sealed.message, form).asked, ChatCompletionRequest)
    response = inner_error(sealed, form)
    assert (response.status, error_code(response)) == (400, "replayed")


def test_request_that_does_not_open_is_not_remembered() -> None:
    message = seal(KEY).message
    outer(message[:-1] + bytes([message[-1] ^ 1]))
    assert isinstance(open_(message).asked, ChatCompletionRequest)


def test_full_replay_set_refuses_inside() -> None:
    key = fresh_key(capacity=1)
    assert isinstance(open_(seal(key).message, key=key).asked, ChatCompletionRequest)
    sealed = seal(key)
    exchange = open_(sealed.message, key=key)
    assert isinstance(exchange.asked, ChatError)
    response = sealed.open(seal_error(sealer_of(exchange), exchange.asked))
    assert (response.status, error_code(response)) == (503, "busy")
    assert (b"retry-after", b"10") in response.fields


@pytest.mark.parametrize(
    ("method", "scheme", "authority", "path", "status"),
    [
        (b"POST", b"http", b"curtilage.invalid", b"/v1/chat/completions", 404),
        (b"POST", b"https", b"curtilage.invalid.", b"/v1/chat/completions", 404),
        (b"POST", b"https", b"curtilage.invalid:443", b"/v1/chat/completions", 404),
        (b"POST", b"https", b"example.com", b"/v1/chat/completions", 404),
        (b"POST", b"https", b"127.0.0.1", b"/v1/chat/completions", 404),
        (b"POST", b"https", b"", b"/v1/chat/completions", 404),
        (b"POST", b"https", b"curtilage.invalid", b"/v1/chat/completions?x=1", 404),
        (b"POST", b"https", b"curtilage.invalid", b"/v1/chat/completions/", 404),
        (b"POST", b"https", b"curtilage.invalid", b"/v1/../v1/chat/completions", 404),
        (b"POST", b"https", b"curtilage.invalid", b"//v1/chat/completions", 404),
        (b"POST", b"https", b"curtilage.invalid", b"/healthz", 404),
        (b"GET", b"https", b"curtilage.invalid", b"/v1/chat/completions", 405),
        (b"post", b"https", b"curtilage.invalid", b"/v1/chat/completions", 405),
        (b"TRACE", b"https", b"curtilage.invalid", b"/v1/chat/completions", 405),
    ],
)
def test_dispatch_is_an_exact_table(
    method: bytes, scheme: bytes, authority: bytes, path: bytes, status: int
) -> None:
    inner = inner_request(method=method, scheme=scheme, authority=authority, path=path)
    response = inner_error(seal(KEY, inner))
    assert response.status == status
    assert ((b"allow", b"POST") in response.fields) == (status == 405)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ((), 415, "unsupported_media_type"),
        (((b"content-type", b"text/plain"),), 415, "unsupported_media_type"),
        (
            ((b"content-type", b"application/json; charset=latin-1"),),
            415,
            "unsupported_media_type",
        ),
        ((*(((b"content-type", b"application/json"),) * 2),), 415, None),
        (
            ((b"content-type", b"application/json"), (b"content-encoding", b"gzip")),
            415,
            "unsupported_media_type",
        ),
        (
            ((b"content-type", b"application/json"), (b"expect", b"100-continue")),
            417,
            "expectation_failed",
        ),
    ],
    ids=["none", "text", "latin-1", "twice", "encoded", "expect"],
)
def test_inner_fields_that_change_the_meaning_are_refused(
    fields: tuple[tuple[bytes, bytes], ...], status: int, code: str | None
) -> None:
    response = inner_error(seal(KEY, inner_request(fields=dated(fields))))
    assert response.status == status
    assert code in {None, error_code(response)}
    assert (b"content-type", b"application/json") in response.fields


@pytest.mark.parametrize(
    "value", [b"Application/JSON", b"application/json; charset=UTF-8"]
)
def test_json_by_another_spelling_is_taken(value: bytes) -> None:
    sealed = seal(KEY, inner_request(fields=dated(((b"content-type", value),))))
    assert isinstance(open_(sealed.message).asked, ChatCompletionRequest)


def test_inner_fields_of_no_use_are_ignored() -> None:
    fields = (
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer x"),
        (b"x-unknown", b"y"),
    )
    sealed = seal(KEY, inner_request(fields=dated(fields)))
    assert isinstance(open_(sealed.message).asked, ChatCompletionRequest)


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"\x01",
        b"\x04",
        inner_request()[:-30],
        inner_request() + b"\x01",
        bhttp.encode_response(bhttp.Response(status=200)),
    ],
    ids=["empty", "response", "framing-4", "cut", "bad-padding", "whole-response"],
)
@pytest.mark.parametrize("form", FORMS)
def test_inner_message_that_is_no_request_is_refused_inside(
    form: str, inner: bytes
) -> None:
    response = inner_error(seal(KEY, inner, form=form), form)
    assert (response.status, error_code(response)) == (400, "invalid_request")


def test_inner_errors_hold_no_content() -> None:
    inner = inner_request(chat_body(**{CANARY: 1}), path=b"/v1/chat/completions")
    sealed = seal(KEY, inner)
    exchange = open_(sealed.message)
    assert CANARY not in repr(exchange) + repr(exchange.asked)
    assert isinstance(exchange.asked, ChatError)
    response = sealed.open(seal_error(sealer_of(exchange), exchange.asked))
    assert CANARY.encode() not in response.content


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["application/json"],
        ["message/ohttp-res"],
        ["message/ohttp-chunked-req; a=b"],
        ["message/ohttp-req", "message/ohttp-req"],
        ["message/ohttp-req, message/ohttp-req"],
    ],
)
def test_other_content_types_are_unsupported(values: list[str]) -> None:
    with pytest.raises(OuterError) as caught:
        form_of(values)
    assert caught.value.answer is UNSUPPORTED_TYPE


def test_content_type_is_read_without_regard_to_case() -> None:
    assert form_of(["Message/OHTTP-Req"]) is Form.PLAIN
    assert form_of([" message/ohttp-chunked-req\t"]) is Form.CHUNKED


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(FORMS), st.booleans())
def test_any_bytes_give_one_of_two_answers(data: bytes, form: str, known: bool) -> None:
    message = bytes([KEY.key_ids[0]]) + data if known else data
    answer = outer(message, form)
    if not message or message[0] in KEY.key_ids:
        assert answer is UNDECAPSULATED
    else:
        assert answer in {UNKNOWN_KEY, UNDECAPSULATED}


def indeterminate(chunks: int) -> bytes:
    """A request whose content has this many chunks of binary HTTP."""
    head = bhttp.encode_request_head(
        bhttp.RequestHead(
            method=b"POST",
            scheme=b"https",
            authority=b"curtilage.invalid",
            path=b"/v1/chat/completions",
            fields=dated(),
        )
    )
    content = chat_body()
    cuts = [content, *[b" "] * (chunks - 1)]
    pieces = b"".join(bhttp.encode_content_chunk(cut) for cut in cuts)
    return head + pieces + bhttp.encode_content_end()


@pytest.mark.parametrize(("chunks", "code"), [(512, ""), (513, "invalid_request")])
def test_content_comes_in_a_bounded_number_of_chunks(chunks: int, code: str) -> None:
    asked = open_(seal(KEY, indeterminate(chunks)).message).asked
    assert (asked.code if isinstance(asked, ChatError) else "") == code


def test_message_of_tiny_chunks_is_not_opened_to_its_end() -> None:
    config = KEY.gateway_keys[0].config
    inner = inner_request(b" " * 20_000 + chat_body())
    few = chunked.seal_chunked_request(config, inner, chunk_bytes=1024).message
    assert isinstance(open_(few).asked, ChatCompletionRequest)
    many = chunked.seal_chunked_request(config, inner, chunk_bytes=1).message
    assert outer(many) is UNDECAPSULATED


@pytest.mark.parametrize("form", FORMS)
def test_largest_of_our_own_messages_is_within_all_bounds(form: str) -> None:
    text = 'a "quoted" \\ line {[,:]}\n' * 30_000
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    opened = open_(seal(KEY, inner_request(body), form=form).message, form)
    assert isinstance(opened.asked, ChatCompletionRequest)
    assert opened.asked.messages[0].content == text
