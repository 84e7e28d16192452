"""What an engine of others is asked, and how its answers are read."""

import json
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import pytest

from curtilage.enclave_server.errors import (
    ChatError,
    ModelError,
    PromptTooLongError,
    TooLong,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatMessage
from curtilage.enclave_server.ohttp.openai_answers import (
    LOWEST_LOGPROB,
    Answer,
    Call,
    Ending,
    Piece,
)
from curtilage.enclave_server.ohttp.tools import (
    MAX_CALLS,
    ChatCall,
    ChatFormat,
    ChatTool,
)
from curtilage.enclave_server.peer_messages import (
    MAX_CALL_CHARS,
    MAX_EVENT_BYTES,
    EventReader,
    refusal_of,
    request_body,
)
from support.engine_events import (
    CALLED,
    DONE,
    STOP,
    USAGE,
    WHOLE,
    calling,
    event,
    finish,
    piece,
)
from support.too_long import LENGTH, TOO_LONG, TooLongSaid, said

CANARY = "canary-c4f1"
CHAT = ChatCompletionRequest(messages=(ChatMessage(role="user", content=CANARY),))
NAME = "ward/model-8b"
SALT = "5a17"


def read(events: Sequence[bytes], **asked: Any) -> list[Answer]:  # noqa: ANN401 - any field
    reader = EventReader(replace(CHAT, **asked))
    return [each for data in events for each in reader.push(data)]


def test_events_may_be_cut_anywhere() -> None:
    whole = b": alive\r\n\r\n" + b"".join(WHOLE).replace(b"\n", b"\r\n")
    cut = [whole[at : at + 1] for at in range(len(whole))]
    assert read(cut) == read(WHOLE)


BROKEN = {
    "no JSON": b"data: {\n\n",
    "no object": b"data: 1\n\n",
    "deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "an error": event(error={"message": CANARY}),
    "an error of older servers": event(object="error", message=CANARY),
    "a second answer": event(choices=[{"index": 1, "delta": {"content": "x"}}]),
    "another reason": finish("abort"),
    "a reason of another type": finish(["stop"]),
    "no reason": DONE,
    "no list of choices": event(choices={"index": 0}),
    "no index": event(choices=[{"index": True, "delta": {"content": "x"}}]),
    "no text": event(choices=[{"index": 0, "delta": {"content": ["x"]}}]),
    "text after its end": STOP + piece("x"),
    "a lone surrogate": b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n',
    "endless": b"x" * (MAX_EVENT_BYTES + 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        read([BROKEN[name]])
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def listed(*tokens: tuple[str, object]) -> dict[str, object]:
    return {"content": [{"token": text, "logprob": value} for text, value in tokens]}


def test_log_probabilities_belong_to_their_tokens() -> None:
    assert read(
        [piece("ab", logprobs=listed(("a", -1), ("b", -99999)))], logprobs=True
    ) == [
        Piece(text="a", logprob=-1.0),
        Piece(text="b", logprob=LOWEST_LOGPROB),
    ]


def test_tokens_that_are_half_a_character_are_one_piece() -> None:
    halves = listed(("\N{REPLACEMENT CHARACTER}", -1.5), ("", -0.25))
    assert read([piece("ü", logprobs=halves)], logprobs=True) == [
        Piece(text="ü", logprob=-1.75)
    ]


@pytest.mark.parametrize("given", [None, {}, listed(("a", None)), listed(("a", True))])
def test_an_answer_without_its_log_probabilities_is_refused(given: object) -> None:
    with pytest.raises(ModelError):
        read([piece("a", logprobs=given)], logprobs=True)


def alternatives(*tops: object) -> dict[str, object]:
    given = [{"token": "a", "logprob": -1, "top_logprobs": each} for each in tops]
    return {"content": given}


A = {"token": "a", "logprob": -1}
B = {"token": "\N{REPLACEMENT CHARACTER}", "logprob": -99999}


def test_alternatives_are_as_many_as_were_requested() -> None:
    events = [piece("a", logprobs=alternatives([A, B, A]))]
    two = (("a", -1.0), ("\N{REPLACEMENT CHARACTER}", LOWEST_LOGPROB))
    assert read(events, logprobs=True, top_logprobs=2) == [
        Piece(text="a", logprob=-1.0, top=two)
    ]
    assert read(events, logprobs=True) == [Piece(text="a", logprob=-1.0)]


@pytest.mark.parametrize("given", [None, [], [{"token": "a"}], [{"logprob": -1}, 7]])
def test_an_answer_without_its_alternatives_is_refused(given: object) -> None:
    with pytest.raises(ModelError):
        read([piece("a", logprobs=alternatives(given))], logprobs=True, top_logprobs=2)


def test_alternatives_to_several_tokens_at_once_are_not_claimed() -> None:
    events = [piece("ü", logprobs=alternatives([A], [A]))]
    (whole,) = read(events, logprobs=True, top_logprobs=1)
    assert whole == Piece(text="ü", logprob=-2.0)


FIND, LOSE = ChatTool(name="find"), ChatTool(name="lose")
BOTH: dict[str, Any] = {"tools": (FIND, LOSE)}


def called(index: int, arguments: str, name: str = "find") -> Piece:
    return Piece(text="", call=Call(index=index, name=name, arguments=arguments))


def test_calls_are_joined_when_the_answer_ends() -> None:
    events = [
        piece("I look."),
        calling(0, ""),
        calling(0, '{"who": "A', None),
        calling(1, None, "lose"),
        calling(0, 'nn"}'),
        CALLED,
        USAGE,
        DONE,
    ]
    reader = EventReader(replace(CHAT, **BOTH))
    *before, last = (list(reader.push(data)) for data in events[:6])
    assert [each for found in before for each in found] == [Piece(text="I look.")]
    assert last == [called(0, '{"who": "Ann"}'), called(1, "{}", "lose")]
    assert [each for data in events[6:] for each in reader.push(data)] == [
        Ending(finish_reason="tool_calls", prompt_tokens=5, completion_tokens=2)
    ]


@pytest.mark.parametrize("choice", ["auto", "required", "find"])
@pytest.mark.parametrize("end", [STOP, CALLED])
def test_a_call_may_end_with_either_reason(choice: str, end: bytes) -> None:
    events = [calling(0, "{}"), end]
    assert read(events, tool_choice=choice, **BOTH) == [called(0, "{}")]


@pytest.mark.parametrize("cut", ["", '{"who": "A'])
def test_a_call_that_the_token_limit_cut_is_omitted(cut: str) -> None:
    events = [calling(0, '{"a": 1}'), calling(1, cut), finish("length")]
    assert read(events, **BOTH) == [called(0, '{"a": 1}')]
    assert read([calling(0, cut), finish("length")], tool_choice="find", **BOTH) == []


WRONG_CALLS: dict[str, tuple[dict[str, Any], Sequence[bytes]]] = {
    "no tools": ({}, [calling(0, "{}"), CALLED]),
    "another tool": (BOTH, [calling(0, "{}", "other"), CALLED]),
    "no name": (BOTH, [calling(0, "{}", None), CALLED]),
    "none may be called": (
        BOTH | {"tool_choice": "none"},
        [calling(0, "{}"), CALLED],
    ),
    "not the chosen one": (
        BOTH | {"tool_choice": "lose"},
        [calling(0, "{}"), CALLED],
    ),
    "more than one": (
        BOTH | {"parallel_tool_calls": False},
        [calling(0, "{}"), calling(1, "{}"), CALLED],
    ),
    "the chosen one twice": (
        BOTH | {"tool_choice": "find"},
        [calling(0, "{}"), calling(1, "{}"), CALLED],
    ),
    "none, though the reason says so": (BOTH, [piece("I call."), CALLED]),
    "none, though one is required": (
        BOTH | {"tool_choice": "required"},
        [piece("I do not."), STOP],
    ),
    "none, though one is chosen": (
        BOTH | {"tool_choice": "find"},
        [piece("I do not."), STOP],
    ),
    "half of the arguments": (BOTH, [calling(0, '{"a": '), CALLED]),
    "half of earlier arguments": (
        BOTH,
        [calling(0, '{"a": '), calling(1, "{}"), finish("length")],
    ),
    "no object": (BOTH, [calling(0, "[]"), CALLED]),
    "no JSON": (BOTH, [calling(0, '{"a": NaN}'), CALLED]),
    "deep": (BOTH, [calling(0, '{"a":' * 99_999), CALLED]),
    "arguments of another type": (BOTH, [calling(0, {"a": 1})]),
    "a lone surrogate": (BOTH, [calling(0, "\ud800")]),
    "too long": (BOTH, [calling(0, "x" * (MAX_CALL_CHARS // 8))] * 9),
    "too many": (BOTH, [calling(MAX_CALLS, "{}")]),
    "before the first": (BOTH, [calling(-1, "{}")]),
    "no index": (BOTH, [calling(None, "{}")]),
    "no number": (BOTH, [calling(False, "{}")]),
    "no list": (
        BOTH,
        [event(choices=[{"index": 0, "delta": {"tool_calls": {"index": 0}}}])],
    ),
    "after its end": (BOTH, [calling(0, "{}"), CALLED, calling(1, "{}")]),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_an_error_and_is_not_given(name: str) -> None:
    asked, (*before, last) = WRONG_CALLS[name]
    reader = EventReader(replace(CHAT, **asked))
    given = [each for data in before for each in reader.push(data)]
    assert all(
        isinstance(each, Piece) and (each.call is None or name == "after its end")
        for each in given
    )
    with pytest.raises(ModelError):
        list(reader.push(last))


def test_several_answers_keep_apart_and_end_once() -> None:
    events = [
        piece("A", 1),
        piece("B"),
        piece("C", 1),
        finish("length", 1),
        STOP,
        USAGE,
        DONE,
    ]
    assert read(events, n=2) == [
        Piece(text="A", choice=1),
        Piece(text="B"),
        Piece(text="C", choice=1),
        Ending(
            finish_reason="stop",
            prompt_tokens=5,
            completion_tokens=2,
            others=("length",),
        ),
    ]


def test_answers_that_are_counted_one_by_one_are_added_up() -> None:
    *_, ending = read([STOP, USAGE, finish("stop", 1), USAGE, DONE], n=2)
    assert isinstance(ending, Ending)
    assert (ending.prompt_tokens, ending.completion_tokens) == (5, 4)


@pytest.mark.parametrize(
    "events", [[piece("x", 2)], [STOP, DONE], [finish("stop", 1), DONE]]
)
def test_more_or_fewer_answers_than_requested_are_refused(
    events: Sequence[bytes],
) -> None:
    with pytest.raises(ModelError):
        read(events, n=2)


FULL = ChatCompletionRequest(
    messages=(
        ChatMessage(role="developer", content=CANARY, name="ann"),
        ChatMessage(
            role="assistant",
            content="",
            calls=(ChatCall(id="call_1", name="find", arguments='{"who":"Ann"}'),),
        ),
        ChatMessage(role="tool", content="found", result_of="call_1"),
    ),
    max_tokens=7,
    temperature=0.5,
    top_p=0.25,
    seed=9,
    stop=("end",),
    stream=False,
    logprobs=True,
    top_logprobs=3,
    n=2,
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    tools=(
        ChatTool(
            name="find",
            description="Finds",
            parameters='{"type": "object"}',
            strict=True,
        ),
        LOSE,
    ),
    tool_choice="required",
    parallel_tool_calls=False,
    response_format=ChatFormat(
        name="x", description="An x", schema='{"type": "object"}', strict=True
    ),
)


def test_a_request_is_encoded_as_openai_does() -> None:
    schema = {"type": "object"}
    finds = {"name": "find", "description": "Finds", "parameters": schema}
    call = {"name": "find", "arguments": '{"who":"Ann"}'}
    assert json.loads(request_body(FULL, NAME, SALT)) == {
        "model": NAME,
        "messages": [
            {"role": "system", "name": "ann", "content": CANARY},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
            },
            {"role": "tool", "content": "found", "tool_call_id": "call_1"},
        ],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 9,
        "stop": ["end"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_salt": SALT,
        "cache_prompt": False,
        "logprobs": True,
        "top_logprobs": 3,
        "n": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "tools": [
            {"type": "function", "function": finds | {"strict": True}},
            {"type": "function", "function": {"name": "lose"}},
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "x",
                "description": "An x",
                "schema": schema,
                "strict": True,
            },
        },
    }


OTHER_TEXTS = {"required": "auto", '{"type": "object"}': '{"type": "array"}'}


def other_than(value: object) -> object:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return OTHER_TEXTS.get(value, value + "x")
        case _:
            raise TypeError(type(value))


def changed(value: object) -> Iterator[tuple[frozenset[str], Any]]:
    """Yield the fields on the way to each value inside, and a copy with another."""
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        for at, item in enumerate(items):
            for way, other in changed(item):
                yield way, (*items[:at], other, *items[at + 1 :])
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            for way, other in changed(getattr(value, each.name)):
                changes: dict[str, Any] = {each.name: other}
                way_in = f"{type(value).__name__}.{each.name}"
                yield way | {way_in}, replace(value, **changes)
    elif value is not None:
        yield frozenset(), other_than(value)


def test_every_field_of_a_request_reaches_the_engine() -> None:
    """Each field of the request, and of each of its parts, changes what is sent."""
    sent = request_body(FULL, NAME, SALT)
    reached: set[str] = set()
    for way, other in changed(FULL):
        # Refused instead: see ``test_no_other_engine_is_asked_to_be_deterministic``.
        plain = replace(other, deterministic=False)
        reached |= way if request_body(plain, NAME, SALT) != sent else set()
    parts = (ChatCompletionRequest, ChatMessage, ChatCall, ChatTool, ChatFormat)
    every = {f"{part.__name__}.{each.name}" for part in parts for each in fields(part)}
    # Always streamed from the engine; the gateway makes one answer of it.
    assert every - reached == {
        "ChatCompletionRequest.stream",
        "ChatCompletionRequest.deterministic",
    }


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_a_choice_and_any_json_are_passed_on(choice: str) -> None:
    chat = replace(CHAT, tool_choice=choice, response_format=ChatFormat(), **BOTH)
    body = json.loads(request_body(chat, NAME, SALT))
    assert body["tool_choice"] == choice
    assert [each["function"]["name"] for each in body["tools"]] == ["find", "lose"]
    assert body["response_format"] == {"type": "json_object"}


def test_a_named_choice_is_the_only_tool_and_required() -> None:
    chat = replace(CHAT, tool_choice="lose", **BOTH)
    body = json.loads(request_body(chat, NAME, SALT))
    assert body["tools"] == [{"type": "function", "function": {"name": "lose"}}]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)


def test_no_other_engine_is_asked_to_be_deterministic() -> None:
    with pytest.raises(ChatError) as refused:
        request_body(replace(CHAT, deterministic=True), NAME, SALT)
    error = refused.value
    assert (error.code, error.param) == ("unsupported_parameter", "deterministic")


def test_what_was_not_asked_is_not_sent() -> None:
    # Many servers refuse a choice without tools, and alternatives without logprobs.
    assert json.loads(request_body(CHAT, NAME, SALT)).keys() == {
        "model",
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "presence_penalty",
        "frequency_penalty",
        "stream",
        "stream_options",
        "cache_salt",
        "cache_prompt",
    }


@pytest.mark.parametrize("case", TOO_LONG, ids=lambda each: each.id)
def test_a_text_that_is_too_long_is_known_with_its_numbers(case: TooLongSaid) -> None:
    chat = replace(CHAT, max_tokens=5000)
    error = refusal_of(json.dumps(case.body).encode(), chat)
    assert isinstance(error, PromptTooLongError)
    if case.prompt is None or case.context is None:
        assert error.too_long is None
        return
    assert error.too_long == TooLong(
        prompt_tokens=case.prompt, max_tokens=5000, context_tokens=case.context
    )


@pytest.mark.parametrize(
    ("prompt", "context", "max_tokens"),
    [(10, 20, 10), (0, 5, 10), (-1, 5, 10), (2**31, 5, 10), (10, 0, 10)],
)
def test_numbers_by_which_nothing_is_too_long_are_not_passed_on(
    prompt: int, context: int, max_tokens: int
) -> None:
    numbers = {"n_prompt_tokens": prompt, "n_ctx": context}
    body = {"error": {"type": "exceed_context_size_error", **numbers}}
    chat = replace(CHAT, max_tokens=max_tokens)
    error = refusal_of(json.dumps(body).encode(), chat)
    assert isinstance(error, PromptTooLongError)
    assert error.too_long is None


def test_numbers_in_a_quoted_question_are_not_those_of_the_engine() -> None:
    quoted = f"bad: {LENGTH} and your request has 12 input tokens"
    chat = replace(CHAT, max_tokens=5000)
    error = refusal_of(json.dumps(said(quoted)).encode(), chat)
    assert isinstance(error, PromptTooLongError)
    assert error.too_long is None


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b"[]", b'{"error": "too long"}'])
def test_another_refusal_is_about_a_value(body: bytes) -> None:
    error = refusal_of(body, CHAT)
    assert isinstance(error, ChatError)
    assert (error.status, error.code) == (400, "invalid_value")
