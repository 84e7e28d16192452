import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import count
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.document import GRAMMAR, Document
from curtilage.client.chat.query import (
    MAX_TOKENS_SENT,
    ROLES,
    Message,
    Query,
    Settings,
    ToolCall,
    single_query,
)
from curtilage.client.on_premises import server as on_premises

CANARY = "canary-e21b"
TEXT = st.text(max_size=30)
VALUE = st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT), max_size=3)
QUERIES = st.builds(
    Query,
    messages=st.lists(
        st.builds(
            Message,
            role=st.sampled_from(sorted(ROLES)),
            content=TEXT,
            name=st.none() | TEXT,
            calls=st.lists(
                st.builds(
                    ToolCall,
                    number=st.integers(1, 9),
                    name=TEXT,
                    arguments=VALUE.map(Document.of),
                ),
                max_size=2,
            ).map(tuple),
            result_of=st.none() | st.integers(1, 9),
        ),
        max_size=4,
    ).map(tuple),
    settings=st.builds(
        Settings,
        stop=st.lists(TEXT, max_size=3).map(tuple),
        seed=st.none() | st.integers(0, 2**32 - 1),
        temperature=st.floats(0, 2),
        top_p=st.floats(0.001, 1),
        max_tokens=st.integers(1, 32768),
        logprobs=st.booleans(),
        top_logprobs=st.integers(0, 20),
        n=st.integers(1, 4),
        presence_penalty=st.floats(-2, 2),
        frequency_penalty=st.floats(-2, 2),
        deterministic=st.booleans(),
    ),
    stream=st.booleans(),
    tools=st.lists(VALUE.map(lambda each: Document.of(each, schema=True)), max_size=2),
    tool_choice=TEXT,
    parallel_tool_calls=st.booleans(),
    response_format=st.none() | VALUE.map(lambda each: Document.of(each, schema=True)),
)


# The words of OpenAI's API that a request consists of.
API = ROLES | GRAMMAR | {"content", "messages", "role", "tools", "tool_calls"}
ENUMERATED = API | {"id", "arguments", "tool_call_id", "auto", "none", "required"}


def strings(value: object) -> list[str]:
    """Every string of a JSON value, its keys and what is JSON inside it."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return [
            text
            for name, each in members.items()
            for text in (
                name,
                *strings(
                    json.loads(cast("str", each)) if name == "arguments" else each
                ),
            )
        ]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [text for each in items for text in strings(each)]
    return []


@given(QUERIES)
def test_every_string_that_would_leave_is_inspected(query: Query) -> None:
    inspected = "\n".join(leaf.text for leaf in query.leaves())
    body: dict[str, object] = json.loads(query.payload().content)
    said = ("messages", "tools", "tool_choice", "response_format", "stop")
    for text in strings({name: body[name] for name in said if name in body}):
        assert (
            text in inspected
            or text in ENUMERATED | {*said}
            or text in {f"call_{number}" for number in range(1, 10)}
        )


# The fields that hold one of a few words, as ``openai_chat`` reads them.
WORDS: dict[tuple[object, str], Any] = {(Message, "role"): "user"}


def filled(kind: Any, marks: Iterator[int], *, schema: bool = True) -> Any:  # noqa: ANN401 -- of any type
    """Return a value of a type in which every string has a mark of its own."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return filled(
            next(each for each in inner if each is not NoneType), marks, schema=schema
        )
    if origin is tuple:
        assert inner[1:] == (...,)
        return tuple(filled(inner[0], marks, schema=schema) for _ in range(2))
    if kind is str:
        return f"mark{next(marks)}."
    if kind is Document:
        mark = [f"mark{next(marks)}." for _ in range(4)]
        number = int(f"9{next(marks):06}")
        inside = {mark[1]: [mark[2], number, {"enum": [mark[3]]}]}
        return Document.of({mark[0]: inside}, schema=schema)
    if kind in {int, float, bool}:
        return kind(1)
    if kind in {Query, Message, Settings, ToolCall}:
        hints = get_type_hints(kind)
        values: dict[str, Any] = {
            each.name: WORDS.get((kind, each.name))
            or filled(hints[each.name], marks, schema=schema)
            for each in fields(kind)
            if each.init and each.name not in {"options", "opaque"}
        }
        return cast("Any", kind)(**values)
    raise AssertionError(f"a type that holds texts of which nothing is known: {kind}")


@pytest.mark.parametrize("schema", [False, True])
def test_no_string_of_a_query_reaches_the_payload_unread(schema: bool) -> None:
    """By the types, so that a new field is noticed; for both kinds of server."""
    marks = count(1)
    query: Query = filled(Query, marks, schema=schema)
    # A choice by name leaves the other tools out.
    whole = replace(query, tool_choice="auto")
    body = on_premises._body(whole, "m")  # pyright: ignore[reportPrivateUsage]
    payload = (query.payload().content + body).decode()
    inspected = "\n".join(leaf.text for leaf in query.leaves())
    sent = [f"mark{mark}." for mark in range(1, next(marks))]
    sent += [f"9{mark:06}" for mark in range(1, next(marks))]
    assert len(sent) > 60
    leaving = [mark for mark in sent if mark in payload]
    assert len(leaving) > 40
    assert [mark for mark in leaving if mark not in inspected] == []


@pytest.mark.parametrize(
    "text",
    [
        *("function", "user", "call_1", "none", "tool_call_id=call_1"),
        *("role=user", "a.type=function", "tools[0].type=function", "a.id=call_1"),
    ],
)
def test_a_text_that_looks_like_a_word_of_the_api_is_read(text: str) -> None:
    call = ToolCall(number=1, name=text, arguments=Document.of({}))
    turn = Message(role="user", content=text, name=text, calls=(call,))
    query = Query(messages=(turn,), settings=Settings(stop=(text,)))
    assert [leaf.text for leaf in query.leaves()] == [text, text, text, "", text]


def test_each_text_of_a_call_and_of_a_tool_has_its_place() -> None:
    query: Query = filled(Query, count(1))
    places = [(leaf.where.message, leaf.where.json_path) for leaf in query.leaves()]
    assert places == [
        (1, "tools[0].function"),
        (1, "tools[1].function"),
        *(
            (message, path)
            for message in (0, 1)
            for path in (
                "content",
                "name",
                *("tool_calls[0].function.name", "tool_calls[0].function.arguments"),
                *("tool_calls[1].function.name", "tool_calls[1].function.arguments"),
            )
        ),
        (1, "response_format"),
        (1, "tool_choice.function.name"),
        (1, "stop[0]"),
        (1, "stop[1]"),
    ]


def test_a_call_is_sent_by_its_position() -> None:
    call = ToolCall(number=7, name="find", arguments=Document('{ "a": "\\u0041" }'))
    query = Query(
        messages=(
            Message(role="assistant", content="", calls=(call,)),
            Message(role="tool", content="found", result_of=7),
        ),
        tool_choice="find",
    )
    assert sent(query)["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_7",
                    "type": "function",
                    "function": {"name": "find", "arguments": '{"a":"A"}'},
                }
            ],
        },
        {"role": "tool", "content": "found", "tool_call_id": "call_7"},
    ]
    assert sent(query)["tool_choice"] == {
        "type": "function",
        "function": {"name": "find"},
    }


def test_a_turn_says_its_calls_and_is_known_by_them() -> None:
    call = ToolCall(number=1, name="find", arguments=Document.of({"who": "Ann"}))
    turn = Message(role="assistant", content="So", calls=(call,))
    assert turn.said == "So\nfind\nwho: Ann\n"
    other = replace(call, arguments=Document.of({"who": "Bob"}))
    turns = [
        turn,
        replace(turn, calls=()),
        replace(turn, calls=(other,)),
        replace(turn, calls=(call, call)),
        replace(turn, calls=(replace(call, name="lose"),)),
        replace(turn, result_of=1),
        replace(turn, calls=(), result_of=1),
    ]
    assert len({each.encoded() for each in turns}) == len(turns)


@given(QUERIES)
def test_a_change_of_anything_changes_the_digest(query: Query) -> None:
    more = Query(
        messages=(*query.messages, Message(role="user", content="x")),
        settings=query.settings,
        stream=query.stream,
    )
    assert more.payload_digest() != query.payload_digest()


def test_the_length_is_of_all_that_is_said() -> None:
    plain = Query(messages=(Message(role="user", content="\u00fc"),))
    document = Document.of({"a": "b"}, schema=True)
    call = ToolCall(number=1, name="find", arguments=Document.of({"who": "Ann"}))
    turn = Message(role="assistant", content="", calls=(call,))
    assert plain.text_bytes == 2
    assert replace(plain, tools=(document,)).text_bytes == 2 + len('{"a":"b"}')
    assert replace(plain, response_format=document).text_bytes == 2 + len('{"a":"b"}')
    assert Query(messages=(turn,)).text_bytes == len("\nfind\nwho: Ann\n")


def test_no_repr_holds_a_text() -> None:
    query = Query(
        messages=(Message(role="user", content=CANARY, name=CANARY),),
        settings=Settings(stop=(CANARY,)),
    )
    assert CANARY not in repr(query) + repr(list(query.leaves()))
    assert "mark" not in repr(filled(Query, count(1)))


def test_a_lone_surrogate_has_no_payload() -> None:
    query = Query(messages=(Message(role="user", content="\ud800"),))
    with pytest.raises(UnicodeEncodeError):
        query.payload()


# A social security number, digits of a card, an age with its months.
TELLING = Settings(
    seed=412683397,
    temperature=0.412683397,
    top_p=0.5425233430109903,
    max_tokens=3397,
)


def sent(query: Query) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(query.payload().content)
    return body


def asked(text: str, **settings: Any) -> Query:  # noqa: ANN401 -- as Settings has them
    return replace(single_query(text), settings=Settings(**settings))


@given(QUERIES)
def test_of_numbers_only_coarse_ones_leave(query: Query) -> None:
    # Everything in the payload that is no text, so that a new one is noticed.
    body = sent(query)
    del body["messages"], body["stream"]
    for name in ("stop", "logprobs", "tools", "tool_choice", "response_format"):
        body.pop(name, None)
    assert body.pop("parallel_tool_calls", True) is query.parallel_tool_calls
    for name in ("presence_penalty", "frequency_penalty"):
        assert body.pop(name, 0) in {number / 10 for number in range(-20, 21)}
    assert body.pop("n", 1) == query.settings.n
    assert body.pop("deterministic", False) is query.settings.deterministic
    assert body.pop("top_logprobs", 0) == query.settings.top_logprobs
    assert body.pop("max_tokens") in MAX_TOKENS_SENT
    assert 100 * body.pop("temperature") == pytest.approx(
        100 * query.settings.temperature, abs=0.51
    )
    assert body.pop("top_p") in {number / 100 for number in range(1, 101)}
    assert ("seed" in body) == (query.settings.seed is not None)
    assert 0 <= body.pop("seed", 0) < 2**32
    assert body == {}


def test_no_digits_of_a_number_that_says_something_leave() -> None:
    payload = (
        replace(single_query("What is a prime?"), settings=TELLING).payload().content
    )
    for digits in (b"412683397", b"0.412", b"0.5425", b"3397"):
        assert digits not in payload


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0}, {"temperature": 1.25, "top_p": 0.9, "max_tokens": 150}],
    ids=["default", "greedy", "usual"],
)
def test_usual_numbers_leave_as_they_are(settings: dict[str, float]) -> None:
    body, given_ = sent(asked("x", **settings)), Settings(**cast("Any", settings))
    assert body["temperature"] == given_.temperature
    assert body["top_p"] == given_.top_p
    assert body["max_tokens"] == given_.max_tokens


@pytest.mark.parametrize(
    ("limit", "leaving"),
    [(1, 1), (7, 7), (11, 10), (17, 16), (512, 512), (3397, 3072), (32768, 32768)],
)
def test_a_limit_that_leaves_is_never_above_the_callers(
    limit: int, leaving: int
) -> None:
    assert sent(asked("x", max_tokens=limit))["max_tokens"] == leaving


def test_a_tiny_share_is_not_rounded_to_none() -> None:
    assert sent(asked("x", top_p=0.001))["top_p"] == 0.01


def test_one_seed_and_one_question_leave_as_one_payload() -> None:
    assert asked("x", seed=7).payload().content == asked("x", seed=7).payload().content


@pytest.mark.parametrize(
    "other",
    [asked("x", seed=8), asked("y", seed=7), asked("x", seed=7, max_tokens=9)],
    ids=["seed", "question", "setting"],
)
def test_a_seed_joins_no_two_payloads(other: Query) -> None:
    assert sent(other)["seed"] != sent(asked("x", seed=7))["seed"]


def test_a_seed_joins_no_two_processes() -> None:
    # Two programs that ask the same with the same seed.
    program = (
        "from curtilage.client.chat.query import Message, Query, Settings; print(Query("
        "messages=(Message(role='user', content='x'),), settings=Settings(seed=7)"
        ").payload().content.decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout)["messages"] == sent(asked("x", seed=7))["messages"]
    assert json.loads(done.stdout)["seed"] != sent(asked("x", seed=7))["seed"]
