"""Events and objects as their specifications say, cut anywhere."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.evidence import MAX_CPU_EVIDENCE_BYTES
from curtilage.client.chat.answer import (
    AnswerEvent,
    Called,
    Delta,
    Finished,
    bytes_of,
)
from curtilage.client.endpoint.openai_answers import error_object
from curtilage.client.errors import EnclaveError
from curtilage.client.remote import answer_reader as content_module
from curtilage.client.remote.answer_reader import (
    Completion,
    ContentReader,
    EventStream,
    FreshEvidence,
    Nothing,
    content_reader,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.inference.schema import KEYWORDS
from curtilage.wire.bhttp import ResponseHead
from support.cuts import PLACES, cut
from support.memory_enclave import chunk, completion, sse


@given(
    st.lists(st.sampled_from([b"\n", b":\n", b": \n\n", b":  x\n\n"]), max_size=6),
    PLACES,
)
def test_filler_between_events_changes_nothing(
    filler: list[bytes], places: list[int]
) -> None:
    events = [sse(each, done=False) for each in (chunk("a"), chunk(finish="stop"))]
    text = b"".join(filler).join([b"", *events, sse(), b""])
    reader = EventStream()
    seen = [event for piece in cut(text, places) for event in reader.push(piece)]
    assert [each.text for each in seen if isinstance(each, Delta)] == ["a"]
    assert reader.finished is not None


def read(pieces: list[bytes]) -> tuple[list[AnswerEvent], ContentReader]:
    reader = Completion()
    return [event for piece in pieces for event in reader.push(piece)], reader


def read_all(reader: ContentReader, pieces: list[bytes]) -> None:
    for piece in pieces:
        list(reader.push(piece))
    reader.end()


TEXTS = st.text(alphabet=st.sampled_from('a{}[]"\\ \n\u00e4'), max_size=30)


@given(TEXTS, st.integers(0, 9), st.integers(0, 9), PLACES)
def test_an_object_ends_where_it_ends(
    text: str, before: int, after: int, places: list[int]
) -> None:
    data = b" " * before + completion(text) + b" \n\t\r" * after
    seen, reader = read(cut(data, places))
    assert reader.finished is not None
    assert "".join(each.text for each in seen if isinstance(each, Delta)) == text


@given(TEXTS, PLACES)
def test_an_object_is_not_finished_before_its_last_byte(
    text: str, places: list[int]
) -> None:
    data = completion(text)
    reader = Completion()
    for piece in cut(data[:-1], places):
        assert list(reader.push(piece)) == []
        assert reader.finished is None
    assert list(reader.push(data[-1:]))
    assert reader.finished is not None


@pytest.mark.parametrize(
    "text",
    [
        b"{} x",
        b"{}{}",
        b"[]",
        b"} ",
        b"7 {}",
        b'{"a": 1]',
        b'"{}"',
    ],
)
def test_anything_but_an_object_is_broken(text: bytes) -> None:
    for pieces in ([text], [bytes([byte]) for byte in text]):
        with pytest.raises(EnclaveError):
            read_all(Nothing(), pieces)


@pytest.mark.parametrize(
    ("kind", "begin"), [(EventStream, b"data: "), (Completion, b'{"a": "')]
)
def test_nothing_is_held_without_end(
    kind: type[ContentReader], begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_module, "MAX_HELD_BYTES", 100)
    with pytest.raises(EnclaveError) as refused:
        read_all(kind(), [bytes([byte]) for byte in begin + b"x" * 200])
    assert refused.value.reason is EnclaveFailure.ANSWER_BROKEN


def test_no_more_is_held_of_evidence_than_evidence_has() -> None:
    reader = FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES)
    with pytest.raises(EnclaveError) as refused:
        read_all(reader, [b'{"evidence":{"a":"', *[b"x" * 1024] * 97])
    assert refused.value.reason is EnclaveFailure.ANSWER_BROKEN
    most = b'{"evidence":{"a":"%b"}}' % (b"x" * (MAX_CPU_EVIDENCE_BYTES - 8))
    read_all(FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES), [most])
    read_all(FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES), [most + b" " * 16384])


def test_filler_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "MAX_HELD_BYTES", 200)
    data = [b" " * 500, completion("a"), *[b" " * 500] * 9]
    seen, reader = read(data)
    assert reader.finished is not None
    assert [each.text for each in seen if isinstance(each, Delta)] == ["a"]


def test_content_before_any_head_is_broken() -> None:
    with pytest.raises(EnclaveError):
        ContentReader().push(b"x")
    with pytest.raises(EnclaveError):
        ContentReader().end()


def test_an_error_after_the_first_text_is_a_cut() -> None:
    reader = EventStream()
    list(reader.push(sse(chunk("a"), done=False)))
    error = json.dumps({"error": {"status": 503}}).encode()
    with pytest.raises(EnclaveError) as refused:
        list(reader.push(b"data: " + error + b"\n\n"))
    assert refused.value.reason is EnclaveFailure.ANSWER_INCOMPLETE


def of(index: object, finish: str | None = None, **delta: object) -> dict[str, object]:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"choices": [choice]}


def calling(**fields: object) -> dict[str, object]:
    function = {"name": "find", "arguments": "{}"}
    return {"index": 0, "function": function, **fields}


def streamed(*chunks: object) -> tuple[list[AnswerEvent], Finished]:
    reader = EventStream()
    return list(reader.push(sse(*chunks))), reader.end()


def test_several_answers_and_calls_are_read() -> None:
    events, end = streamed(
        of(0, role="assistant"),
        of(1, role="assistant"),
        of(1, content="b"),
        of(0, tool_calls=[calling()]),
        of(0, "tool_calls"),
        of(1, "length"),
    )
    assert events == [
        Delta(text="b", choice=1),
        Delta(text="", calls=(Called(index=0, name="find", arguments="{}"),)),
    ]
    assert (end.finish_reason, end.others) == ("tool_calls", ("length",))


BROKEN = {
    "index": [of(4, content="a"), of(4, "stop")],
    "negative": [of(-1, content="a")],
    "flag": [of(True, content="a")],
    "gap": [of(0, "stop"), of(2, "stop")],
    "filter": [of(0, "content_filter")],
    "calls": [of(0, tool_calls="x")],
    "call": [of(0, tool_calls=["x"])],
    "place": [of(0, tool_calls=[calling(index=number)]) for number in range(129)],
    "second place": [of(0, tool_calls=[calling(index=1)])],
    "same place": [of(0, tool_calls=[calling()]), of(0, tool_calls=[calling()])],
    "place as a flag": [of(0, tool_calls=[calling(index=False)])],
    "unnamed": [of(0, tool_calls=[calling(function={"arguments": "{}"})])],
    "half": [of(0, tool_calls=[calling(function={"name": "a", "arguments": '{"a'})])],
    "list": [of(0, tool_calls=[calling(function={"name": "a", "arguments": "[]"})])],
    "NaN": [
        of(0, tool_calls=[calling(function={"name": "a", "arguments": '{"b":NaN}'})])
    ],
    "no call": [of(0, content="a"), of(0, "tool_calls")],
    "another's call": [
        of(1, tool_calls=[calling()]),
        of(1, "tool_calls"),
        of(0, "tool_calls"),
    ],
}


@pytest.mark.parametrize("chunks", BROKEN.values(), ids=BROKEN)
def test_other_answers_are_broken(chunks: list[dict[str, object]]) -> None:
    with pytest.raises(EnclaveError) as refused:
        streamed(*chunks)
    assert refused.value.reason is EnclaveFailure.ANSWER_BROKEN


def test_an_answer_without_an_end_is_incomplete() -> None:
    with pytest.raises(EnclaveError) as refused:
        streamed(of(0, content="a"), of(1, content="b"), of(0, "stop"))
    assert refused.value.reason is EnclaveFailure.ANSWER_INCOMPLETE


def test_the_likeliest_tokens_are_read() -> None:
    token = {"token": "a", "logprob": -0.5}
    listed = {"content": [{**token, "top_logprobs": [token, {"token": 5}]}]}
    value = of(0, content="a")
    cast("list[dict[str, object]]", value["choices"])[0]["logprobs"] = listed
    (delta,), _ = streamed(value, of(0, "stop"))
    assert isinstance(delta, Delta)
    assert delta.tops == ((("a", -0.5),),)


@pytest.mark.parametrize(
    ("data", "token"),
    [
        ([0xE2, 0x82], b"\xe2\x82"),
        ([0xE2, 0x82, 0xAC], "\u20ac".encode()),
        ([], b"a"),
        (None, b"a"),
        ([256], b"a"),
        ([97.0], b"a"),
        ([True], b"a"),
        ("a", b"a"),
    ],
)
def test_a_token_is_its_bytes(data: object, token: bytes) -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": data}
    value = of(0, content="")
    cast("list[dict[str, object]]", value["choices"])[0]["logprobs"] = {
        "content": [{**entry, "top_logprobs": [entry]}]
    }
    # Half a character has no text.
    (delta,), _ = streamed(value, of(0, "stop"))
    assert isinstance(delta, Delta)
    assert delta.text == ""
    (pair,), ((top,),) = delta.logprobs, delta.tops
    assert bytes_of(pair[0]) == bytes_of(top[0]) == token


def test_an_error_after_a_token_without_text_is_a_cut() -> None:
    value = of(0, content="")
    cast("list[dict[str, object]]", value["choices"])[0]["logprobs"] = {
        "content": [{"token": "a", "logprob": -0.5}]
    }
    with pytest.raises(EnclaveError) as refused:
        streamed(value, {"error": {"status": 503}})
    assert refused.value.reason is EnclaveFailure.ANSWER_INCOMPLETE


NUMBERS = {"prompt_tokens": 9000, "max_tokens": 256, "context_tokens": 8192}
TOO_LONG = {"error": {"code": "context_length_exceeded", "status": 400, **NUMBERS}}


def refused_by(status: int, media_type: bytes, content: bytes) -> EnclaveError:
    head = ResponseHead(status=status, fields=((b"content-type", media_type),))
    with pytest.raises(EnclaveError) as refused:
        read_all(content_reader(head), [content])
    return refused.value


@pytest.mark.parametrize(
    ("status", "media_type", "start"),
    [
        (400, b"application/json", b""),
        (200, b"application/json", b""),
        (200, b"text/event-stream", b"data: "),
    ],
)
def test_a_text_beyond_the_enclaves_context_is_its_own_reason(
    status: int, media_type: bytes, start: bytes
) -> None:
    content = start + json.dumps(TOO_LONG).encode() + b"\n\n"
    error = refused_by(status, media_type, content)
    assert error.reason is EnclaveFailure.TOO_LONG
    assert error.limit_tokens == 8192
    assert error.code is None
    assert all(str(each) in str(error) for each in NUMBERS.values())


@pytest.mark.parametrize("number", [-1, 0, 9256, 2**31, "8192", True, None, 1.5])
def test_other_numbers_of_the_enclave_are_not_shown(number: object) -> None:
    given = {**TOO_LONG["error"], "context_tokens": number}
    error = refused_by(400, b"application/json", json.dumps({"error": given}).encode())
    assert error.reason is EnclaveFailure.TOO_LONG
    assert error.limit_tokens is None
    assert "9000" not in str(error)


def said(code: object, param: object = None) -> bytes:
    return json.dumps({"error": {"code": code, "param": param}}).encode()


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(
    "content", [b"", b"{}", said("x"), said(1, []), said("x", "canary")]
)
def test_another_refusal_of_a_request_has_its_status(
    status: int, content: bytes
) -> None:
    error = refused_by(status, b"application/json", content)
    asked = EnclaveFailure.REFUSED_QUERY
    reason = asked if status == 400 else EnclaveFailure.MODEL_FAILED
    assert (error.reason, error.code) == (reason, str(status))


@pytest.mark.parametrize(
    ("status", "content", "reason", "code"),
    [
        (400, said("out_of_range"), EnclaveFailure.REFUSED_QUERY, "out_of_range"),
        (
            400,
            said("out_of_range", "max_tokens"),
            EnclaveFailure.REFUSED_QUERY,
            "out_of_range: max_tokens",
        ),
        (500, said("engine_crashed"), EnclaveFailure.MODEL_FAILED, "engine_crashed"),
        (500, said("engine_hung"), EnclaveFailure.MODEL_FAILED, "engine_hung"),
        (503, said("model_unavailable"), EnclaveFailure.MODEL_UNAVAILABLE, None),
        (503, said("busy"), EnclaveFailure.BUSY, None),
        (504, said("time_limit"), EnclaveFailure.TIMEOUT, None),
        (418, said("engine_hung"), EnclaveFailure.REFUSED, "418"),
    ],
)
@pytest.mark.parametrize("in_head", [True, False])
def test_what_an_enclave_says_of_a_failure_is_its_reason(
    status: int, content: bytes, reason: EnclaveFailure, code: str | None, in_head: bool
) -> None:
    if not in_head:
        value = json.loads(content)
        value["error"]["status"] = status
        content = json.dumps(value).encode()
        if status == 418:
            pytest.skip("a status that no enclave sends is judged by its head")
    error = refused_by(status if in_head else 200, b"application/json", content)
    assert (error.reason, error.code) == (reason, code)


SCHEMA = "response_format.json_schema.schema"
PARAMETERS = "tools[3].function.parameters"


def of_schema(**fields: object) -> EnclaveError:
    error = {"code": "schema_not_enforced", "param": PARAMETERS, **fields}
    return refused_by(400, b"application/json", json.dumps({"error": error}).encode())


def test_the_keywords_are_those_of_the_engine() -> None:
    assert set(KEYWORDS) == content_module._KEYWORDS  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("param", [PARAMETERS, SCHEMA, "messages[12]", "tools[0]"])
def test_a_refused_schema_is_named_with_keyword_and_place(param: str) -> None:
    error = of_schema(param=param, keyword="minItems", where="$defs.[3].properties[2]")
    assert error.reason is EnclaveFailure.REFUSED_QUERY
    assert error.param == param
    said = f"(schema_not_enforced: {param}: minItems, at $defs.[3].properties[2])"
    assert str(error).endswith(said)
    # A record gets no position of the asker's.
    field = param.partition("[")[0].partition(".")[0]
    assert error.code == f"schema_not_enforced: {field}"
    status, body = error_object(error)
    assert status == 400
    assert cast("dict[str, object]", body["error"])["param"] == param


@pytest.mark.parametrize(
    "fields",
    [
        {"param": "canary"},
        {"param": "tools[canary].function.parameters"},
        {"param": "tools[12345]"},
        {"param": "messages[1].canary"},
        {"param": ["canary"]},
        {"keyword": "canary"},
        {"keyword": ["canary"]},
        {"where": "canary"},
        {"where": "properties[0].canary[1]"},
        {"where": "properties[0]canary"},
        {"where": "properties[0]." * 30 + "canary"},
        {"where": "[0]." * 100 + "[0]"},
        {"where": 5},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_other_words_about_a_schema_are_not_shown(fields: dict[str, object]) -> None:
    error = of_schema(**fields)
    assert "canary" not in f"{error}{error!r}{vars(error)}"
    assert ", at " not in str(error)
    assert error.param == (None if "param" in fields else PARAMETERS)


def test_what_passes_is_asked_again_and_what_does_not_is_not() -> None:
    assert EnclaveFailure.MODEL_FAILED.passes
    assert EnclaveFailure.MODEL_UNAVAILABLE.passes
    assert not EnclaveFailure.REFUSED_QUERY.passes
    assert EnclaveFailure.REFUSED_QUERY.counts_as is None
