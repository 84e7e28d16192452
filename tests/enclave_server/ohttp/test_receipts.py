import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.errors import RefusedError
from curtilage.attest.receipt import (
    KEY_FIELD,
    NO_MODEL,
    RECEIPT_BYTES,
    RECEIPT_FIELD,
    Receipt,
    ReceiptExpectation,
    answer_mac,
    decode_field,
    encode_field,
    request_mac,
    verify_receipt,
)
from curtilage.enclave_server.answer.run import AnswerRun
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    ModelError,
    PromptTooLongError,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatLimits
from curtilage.enclave_server.ohttp.gateway import Form, Terms, open_exchange
from curtilage.enclave_server.ohttp.keys import (
    KeyRing,
    ReceiptTerms,
    ServerKey,
    make_key,
)
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun, Piece
from curtilage.enclave_server.ohttp.receipts import (
    MIN_FRAME_BYTES,
    ReceiptIssuer,
    offers_receipts,
    take_secret,
)
from curtilage.wire import bhttp
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from support.enclave_parts import (
    CHUNKED,
    NOW,
    QUICK,
    Sealed,
    chat_body,
    dated,
    error_code,
    inner_request,
    seal,
)
from support.padded_parts import (
    END,
    FORMS,
    HEAD,
    KEY,
    MODEL,
    REFUSED,
    RELEASE,
    play,
)

SECRET = bytes(range(32))
WITH_KEY = (*dated(), (KEY_FIELD, encode_field(SECRET)))
CANARY = "canary-8f21"
SMALLEST = replace(QUICK, frame_bytes=MIN_FRAME_BYTES)
SHAPES = {"padded": QUICK, "smallest": SMALLEST, "unpadded": UNPADDED}


def asked(content: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    return inner_request(content, fields=WITH_KEY, path=path)


def receipt_of(response: bhttp.Response) -> bytes:
    ((name, value),) = response.trailers
    assert name == RECEIPT_FIELD
    return decode_field(value, length=RECEIPT_BYTES)


def verified(
    response: bhttp.Response, content: bytes, *, key: ServerKey = KEY
) -> Receipt:
    mac = answer_mac(SECRET)
    mac.update(response.content)
    return verify_receipt(
        receipt_of(response),
        public_key=key.receipt_public_key,
        expected=ReceiptExpectation(
            status=response.status,
            earliest=int(NOW.timestamp()),
            latest=int(NOW.timestamp()),
            key_configs_digest=sha256(key.key_configs).digest(),
            release_digest=RELEASE,
            model_digests=frozenset({MODEL}),
            request_mac=request_mac(SECRET, content),
            answer_mac=mac.digest(),
        ),
    )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMS)
async def test_answer_ends_with_its_receipt(
    form: str, transport: TransportParameters, stream: bool
) -> None:
    content = chat_body(stream=stream)
    played = await play(
        Begun(),
        Piece(text="a"),
        0.02,
        Piece(text="b"),
        END,
        inner=asked(content),
        form=form,
        transport=transport,
    )
    assert played.response.status == 200
    assert verified(played.response, content).model_digest == MODEL


@pytest.mark.parametrize("transport", [QUICK, PADDED, SMALLEST])
@pytest.mark.parametrize("form", FORMS)
async def test_receipt_changes_nothing_outside(
    form: str, transport: TransportParameters
) -> None:
    content = chat_body(stream=True)
    answers = (Begun(), Piece(text="x" * 700), END)
    plain = await play(
        *answers, inner=inner_request(content), form=form, transport=transport
    )
    signed = await play(*answers, inner=asked(content), form=form, transport=transport)
    assert plain.trace == signed.trace
    assert plain.response.trailers == ()
    verified(signed.response, content)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (BusyError("x"), 503),
        (PromptTooLongError("x"), 400),
        (ModelError("x"), 500),
        (ChatError(400, "invalid_value"), 400),
    ],
)
@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMS)
async def test_answer_that_no_model_gave_says_so(
    form: str, transport: TransportParameters, fault: Exception, status: int
) -> None:
    content = chat_body()
    played = await play(fault, inner=asked(content), form=form, transport=transport)
    assert error_code(played.response)
    if transport is UNPADDED:
        assert played.response.status == status
    assert verified(played.response, content).model_digest == NO_MODEL


@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
async def test_answer_that_broke_off_names_the_model(
    transport: TransportParameters,
) -> None:
    content = chat_body(stream=True)
    played = await play(
        *(Begun(), Piece(text="a"), RuntimeError(CANARY)),
        inner=asked(content),
        transport=transport,
    )
    assert CANARY not in played.response.content.decode()
    assert verified(played.response, content).model_digest == MODEL


async def test_model_that_began_after_the_time_limit_did_not_answer() -> None:
    content = chat_body(stream=True)
    played = await play(0.012, Begun(), END, inner=asked(content), limit_s=0.01)
    assert b"time_limit" in played.response.content
    assert verified(played.response, content).model_digest == NO_MODEL


@pytest.mark.parametrize("form", FORMS)
async def test_cover_answer_has_a_receipt(form: str) -> None:
    content = b'{"bucket":1}'
    played = await play(inner=asked(content, path=b"/v1/cover"), form=form)
    assert verified(played.response, content).model_digest == NO_MODEL


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        (inner_request(b"{", fields=WITH_KEY), "invalid_json"),
        (inner_request(b"{}", fields=(WITH_KEY[0], WITH_KEY[2])), "date"),
        (inner_request(b"{}", fields=WITH_KEY, method=b"PUT"), "method_not_allowed"),
        (inner_request(b"{}", fields=WITH_KEY, path=b"/x"), "not_found"),
    ],
)
@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMS)
async def test_refusal_has_a_receipt(
    form: str, transport: TransportParameters, inner: bytes, code: str
) -> None:
    played = await play(inner=inner, form=form, transport=transport)
    assert error_code(played.response) == code
    content = bhttp.decode_request(inner).content
    assert verified(played.response, content).model_digest == NO_MODEL


@pytest.mark.parametrize("refused", REFUSED)
async def test_refusal_without_a_key_has_no_receipt(refused: str) -> None:
    played = await play(inner=REFUSED[refused])
    assert played.response.trailers == ()


class _NoModel:
    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        assert chat.messages
        yield Begun()
        yield END


async def sealed_answer(
    key: ServerKey, sealed: Sealed, transport: TransportParameters
) -> bytes:
    terms = Terms(chat=ChatLimits(), transport=transport, now=NOW)
    keys = dict.fromkeys(key.key_ids, key)
    form = Form(sealed.content_type)
    underway = AnswerRun(
        exchange=open_exchange(keys, form, sealed.message, terms),
        model=_NoModel(),
        head=HEAD,
        accepted=0,
        limit_s=1e12,
    )
    return b"".join([piece async for piece in underway.pieces()])


async def test_replay_is_refused_with_a_receipt() -> None:
    content = chat_body()
    sealed = seal(KEY, asked(content))
    await sealed_answer(KEY, sealed, QUICK)
    response = sealed.open(await sealed_answer(KEY, sealed, QUICK))
    assert error_code(response) == "replayed"
    assert verified(response, content).model_digest == NO_MODEL


@pytest.mark.parametrize(
    "values",
    [
        (b"",),
        (b"A" * 42,),
        (b"A" * 44,),
        (encode_field(SECRET) + b"=",),
        (encode_field(bytes(31)),),
        (encode_field(bytes(33)),),
        (b"*" * 43,),
        (b"A" * 42 + b"B",),
        (encode_field(SECRET), encode_field(SECRET)),
        (encode_field(SECRET), encode_field(bytes(32))),
    ],
)
async def test_bad_or_doubled_receipt_key_is_refused(values: tuple[bytes, ...]) -> None:
    fields = (*dated(), *((KEY_FIELD, value) for value in values))
    played = await play(inner=inner_request(fields=fields))
    assert played.response.status == 400
    assert error_code(played.response) == "invalid_request"
    assert played.response.trailers == ()
    assert played.model.begun == 0


def test_receipt_key_ends_at_the_gateway() -> None:
    request = bhttp.decode_request(asked(b"{}"))
    taken, secret = take_secret(request)
    assert secret == SECRET
    assert taken == replace(request, fields=dated())
    without = bhttp.decode_request(inner_request(b"{}"))
    assert take_secret(without) == (without, b"")
    with pytest.raises(MalformedError) as caught:
        take_secret(replace(request, fields=((KEY_FIELD, b"canary"),)))
    assert "canary" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_receipts_need_room_in_a_frame() -> None:
    assert offers_receipts(UNPADDED)
    assert offers_receipts(replace(QUICK, frame_bytes=384))
    assert not offers_receipts(replace(QUICK, frame_bytes=383))


async def test_key_without_receipts_answers_without() -> None:
    key = make_key(now=NOW, lifetime_s=60, replay_capacity=10)
    assert key.receipt_public_key == b""
    sealed = seal(key, asked(chat_body()))
    response = sealed.open(await sealed_answer(key, sealed, QUICK))
    assert response.status == 200
    assert response.trailers == ()


def with_receipts() -> ServerKey:
    return make_key(
        now=NOW,
        lifetime_s=60,
        replay_capacity=10,
        receipts=ReceiptTerms(release_digest=RELEASE, model_digest=MODEL),
    )


async def test_key_that_was_rotated_still_signs_with_its_own() -> None:
    """Red team 13: the key rotates between verify and seal."""
    ring, old, new = KeyRing(), with_receipts(), with_receipts()
    while set(old.key_ids) & set(new.key_ids):
        new = with_receipts()
    ring.install(old)
    content = chat_body()
    sealed = seal(old, asked(content))
    ring.install(new)
    response = sealed.open(await sealed_answer(old, sealed, QUICK))
    verified(response, content, key=old)
    with pytest.raises(RefusedError, match="signature"):
        verified(response, content, key=new)


async def test_answer_under_way_is_signed_though_its_key_ends_meanwhile() -> None:
    ring, key = KeyRing(), with_receipts()
    ring.install(key)
    sealed = seal(key, asked(chat_body()))
    terms = Terms(chat=ChatLimits(), transport=QUICK, now=NOW)
    exchange = open_exchange(ring.usable(NOW), Form(CHUNKED), sealed.message, terms)
    ring.expire(NOW + timedelta(seconds=60))
    assert ring.current is None
    underway = AnswerRun(
        exchange=exchange, model=_NoModel(), head=HEAD, accepted=0, limit_s=1e12
    )
    response = sealed.open(b"".join([piece async for piece in underway.pieces()]))
    verified(response, chat_body(), key=key)
    # Nothing new is signed from then on.
    assert key.receipts is not None
    assert key.receipts.begin(SECRET, b"", 0).trailers() == ()


def test_issuer_and_receipts_show_nothing() -> None:
    issuer = ReceiptIssuer(key_configs=b"k", release_digest=RELEASE, model_digest=MODEL)
    receipt = issuer.begin(SECRET, CANARY.encode(), 3)
    receipt.add(CANARY.encode())
    shown = repr((issuer, receipt, KEY))
    assert CANARY not in shown
    assert SECRET.hex() not in shown
    ((_, value),) = receipt.trailers()
    assert CANARY.encode() not in value


@settings(max_examples=40)
@given(
    pieces=st.lists(st.text(max_size=60), max_size=8),
    form=st.sampled_from(FORMS),
    stream=st.booleans(),
    shape=st.sampled_from(sorted(SHAPES)),
)
async def test_receipt_holds_for_any_answer(
    pieces: list[str], form: str, stream: bool, shape: str
) -> None:
    content = chat_body(stream=stream)
    texts = [Piece(text=text) for text in pieces]
    played = await play(
        Begun(), *texts, END, inner=asked(content), form=form, transport=SHAPES[shape]
    )
    assert verified(played.response, content).model_digest == MODEL
    wrong = replace(played.response, content=played.response.content + b" ")
    with pytest.raises(RefusedError, match="another answer"):
        verified(wrong, content)
    with pytest.raises(RefusedError, match="another question"):
        verified(played.response, content + json.dumps(1).encode())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", FORMS)
async def test_longest_answer_has_room_for_its_receipt(form: str, stream: bool) -> None:
    shape = replace(SMALLEST, first_bucket=4, buckets=3)
    content = chat_body(stream=stream)
    pieces = [Piece(text="x" * 40) for _ in range(400)]
    played = await play(
        Begun(),
        *pieces,
        END,
        inner=asked(content),
        form=form,
        transport=shape,
    )
    assert b'"length"' in played.response.content
    assert played.batches == 4
    assert verified(played.response, content).model_digest == MODEL
