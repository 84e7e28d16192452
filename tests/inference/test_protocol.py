from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from curtilage.inference.errors import RequestError, SchemaError
from curtilage.inference.protocol import (
    MAX_CALLS,
    MAX_ID_CHARS,
    MAX_SCHEMA_CHARS,
    MAX_TOOLS,
    CancelToken,
    ChatMessage,
    GenerateRequest,
    JsonSchema,
    NamedTool,
    Tool,
    ToolCall,
)
from curtilage.inference.sampling import SamplingSettings
from support.chains import chain

HELLO = ChatMessage(role="user", content="hello")


def test_message_refuses_an_unknown_role() -> None:
    with pytest.raises(RequestError, match="unknown role"):
        ChatMessage(role="<|im_start|>system", content="")


def test_message_refuses_lone_surrogates_without_telling_the_text() -> None:
    with pytest.raises(RequestError, match="no UTF-8 form") as refusal:
        ChatMessage(role="user", content="canary \ud800")
    assert "canary" not in chain(refusal.value)


def test_request_refuses_lone_surrogates_in_a_stop_string() -> None:
    settings = SamplingSettings(stop=("canary\udfff",))
    with pytest.raises(RequestError, match="stop string") as refusal:
        GenerateRequest(messages=(HELLO,), settings=settings)
    assert "canary" not in chain(refusal.value)


def test_request_refuses_no_message() -> None:
    with pytest.raises(RequestError, match="no message"):
        GenerateRequest(messages=())


def test_request_shows_no_content() -> None:
    assert "hello" not in repr(GenerateRequest(messages=(HELLO,)))


CALL = ToolCall(id="call_1", name="find", arguments="{}")


@pytest.mark.parametrize("name", ["", "a b", "ü", "a\n", "<tool_call>", "x" * 65])
def test_names_are_letters_digits_and_two_signs(name: str) -> None:
    for make in (
        lambda: Tool(name=name),
        lambda: ToolCall(id="1", name=name, arguments=""),
        lambda: JsonSchema(name=name, schema="{}"),
    ):
        with pytest.raises(RequestError):
            make()


def test_names_may_have_64_characters() -> None:
    Tool(name="x" * 64)


def test_a_speakers_name_is_any_text_of_64_characters() -> None:
    for name in ("A-z_0", "\u27e6PERSON_1\u27e7", "ü" * 64):
        ChatMessage(role="user", content="", name=name)
    with pytest.raises(RequestError):
        ChatMessage(role="user", content="", name="x" * 65)
    with pytest.raises(RequestError) as refusal:
        ChatMessage(role="user", content="", name="canary \ud800")
    assert "canary" not in chain(refusal.value)


def test_names_count_as_what_the_model_reads() -> None:
    message = ChatMessage(role="user", content="Hi", name="Ann")
    assert GenerateRequest(messages=(message,)).chars == 5


MAKERS: list[Callable[[str], object]] = [
    lambda text: Tool(name="a", description=text),
    lambda text: Tool(name="a", parameters='{"title": "' + text + '"}'),
    lambda text: ToolCall(id=text, name="a", arguments=""),
    lambda text: ToolCall(id="1", name="a", arguments=text),
    lambda text: JsonSchema(schema='{"title": "' + text + '"}'),
    lambda text: JsonSchema(schema="{}", description=text),
]


@pytest.mark.parametrize(
    "make",
    MAKERS,
    ids=["description", "parameters", "id", "arguments", "schema", "of a schema"],
)
def test_lone_surrogates_are_refused_without_their_text(
    make: Callable[[str], object],
) -> None:
    make("canary")
    with pytest.raises(RequestError) as refusal:
        make("canary \ud800")
    assert "canary" not in chain(refusal.value)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "canary",
        "[]",
        '{"a": NaN}',
        '{"canary": 1, "canary": 2}',
        '{"a": ' + "[" * 100 + "]" * 100 + "}",
        '{"canary": "' + "x" * MAX_SCHEMA_CHARS + '"}',
        '{"a": ' + "9" * 5000 + "}",
    ],
    ids=["empty", "no JSON", "no object", "NaN", "twice", "deep", "long", "digits"],
)
def test_a_schema_is_one_json_object(schema: str) -> None:
    for make in (
        lambda: JsonSchema(schema=schema),
        lambda: Tool(name="a", parameters=schema),
    ):
        with pytest.raises(RequestError) as refusal:
            make()
        assert "canary" not in chain(refusal.value)


def test_an_error_of_a_schema_says_keyword_and_place() -> None:
    error = SchemaError("has it", keyword="minimum", where="properties[2]")
    assert (error.keyword, error.where) == ("minimum", "properties[2]")
    assert "minimum" in str(error)
    assert "properties[2]" in str(error)


def test_an_id_has_a_length() -> None:
    ToolCall(id="x" * MAX_ID_CHARS, name="a", arguments="")
    for wrong in ("", "x" * (MAX_ID_CHARS + 1)):
        with pytest.raises(RequestError):
            ToolCall(id=wrong, name="a", arguments="")


def test_calls_are_the_assistants_and_results_the_tools() -> None:
    ChatMessage(role="assistant", content="", tool_calls=(CALL,))
    ChatMessage(role="tool", content="", tool_call_id="call_1")
    with pytest.raises(RequestError):
        ChatMessage(role="user", content="", tool_calls=(CALL,))
    with pytest.raises(RequestError):
        ChatMessage(role="user", content="", tool_call_id="call_1")
    with pytest.raises(RequestError):
        ChatMessage(role="assistant", content="", tool_calls=(CALL,) * (MAX_CALLS + 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": (Tool(name="a"), Tool(name="a", description="another"))},
        {"tools": tuple(Tool(name=f"a{n}") for n in range(MAX_TOOLS + 1))},
        {"tool_choice": "required"},
        {"tool_choice": NamedTool(name="a")},
        {"tool_choice": NamedTool(name="auto"), "tools": (Tool(name="a"),)},
        {"messages": (ChatMessage(role="tool", content="", tool_call_id="1"),)},
        {
            "messages": (
                ChatMessage(role="assistant", content="", tool_calls=(CALL,) * 2),
            )
        },
    ],
    ids=["two names", "many", "none", "not one", "auto", "no call", "two ids"],
)
def test_request_refuses_what_does_not_fit_together(fields: dict[str, Any]) -> None:
    made: dict[str, Any] = {"messages": (HELLO,)} | fields
    with pytest.raises(RequestError):
        GenerateRequest(**made)


def test_request_takes_tools_and_their_results() -> None:
    request = GenerateRequest(
        messages=(
            HELLO,
            ChatMessage(role="assistant", content="", tool_calls=(CALL,)),
            ChatMessage(role="tool", content="canary", tool_call_id="call_1"),
        ),
        tools=(Tool(name="find", description="canary"), Tool(name="auto")),
        tool_choice=NamedTool(name="auto"),
        response_format=JsonSchema(schema='{"title": "canary"}'),
    )
    assert "canary" not in repr(request)
    assert "call_1" not in repr(request)


WORDS = "x" * 9


@pytest.mark.parametrize(
    ("fields", "chars"),
    [
        ({}, 0),
        ({"messages": (HELLO, ChatMessage(role="user", content=WORDS))}, 9),
        (
            {
                "messages": (
                    HELLO,
                    ChatMessage(
                        role="assistant",
                        content="",
                        tool_calls=(ToolCall(id="1", name="find", arguments=WORDS),),
                    ),
                )
            },
            13,
        ),
        ({"tools": (Tool(name="f", description=WORDS, parameters="{}"),)}, 12),
        (
            {
                "tools": (Tool(name="f", description=WORDS, parameters="{}"),),
                "tool_choice": "none",
            },
            0,
        ),
        (
            {
                "response_format": JsonSchema(
                    schema="{}", name="f", description=WORDS, strict=False
                )
            },
            12,
        ),
    ],
    ids=["nothing", "message", "call", "tool", "no tool", "schema"],
)
def test_all_that_the_model_reads_counts(fields: dict[str, Any], chars: int) -> None:
    given: dict[str, Any] = {"messages": (HELLO,)} | fields
    assert GenerateRequest(**given).chars == len(HELLO.content) + chars


def test_cancel_calls_back_once() -> None:
    token = CancelToken()
    calls: list[int] = []
    token.subscribe(lambda: calls.append(1))
    assert not token.cancelled
    token.cancel()
    token.cancel()
    assert (token.cancelled, calls) == (True, [1])


def test_subscribing_late_calls_back_at_once() -> None:
    token = CancelToken()
    calls: list[int] = []
    token.cancel()
    token.subscribe(lambda: calls.append(1))
    assert calls == [1]


def test_who_unsubscribed_is_not_called_back() -> None:
    token = CancelToken()
    calls: list[int] = []
    callback = partial(calls.append, 1)
    token.subscribe(callback)
    token.unsubscribe(callback)
    token.unsubscribe(callback)
    token.cancel()
    assert calls == []
