import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import (
    DEFAULT_MAX_TOKENS,
    KNOWN_UNSUPPORTED,
    MAX_SEED,
    MODEL_ID,
    ROLES,
    ChatLimits,
    ChatMessage,
    parse_chat_completion_request,
)
from curtilage.enclave_server.ohttp.openai_answers import ERROR_CODES
from curtilage.enclave_server.ohttp.tools import ChatCall, ChatFormat, ChatTool

LIMITS = ChatLimits(max_messages=3, max_tokens=1000, max_name_chars=5, max_stop_chars=6)
CANARY = "canary-7f3a"
USER: dict[str, object] = {"role": "user", "content": "hi"}


def parse(**body: object) -> object:
    return parse_chat_completion_request(
        json.dumps({"messages": [USER], **body}).encode(), LIMITS
    )


ASSISTANT: dict[str, object] = {"role": "assistant", "content": ""}
CALL: dict[str, object] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "find", "arguments": '{"who":"Ann"}'},
}


def refusal(content: bytes, limits: ChatLimits = LIMITS) -> ChatError:
    with pytest.raises(ChatError) as caught:
        parse_chat_completion_request(content, limits)
    error = caught.value
    assert error.__suppress_context__ or error.__context__ is None
    return error


def refused(**body: object) -> tuple[str, str | None]:
    error = refusal(json.dumps({"messages": [USER], **body}).encode())
    assert error.status == 400
    return error.code, error.param


def test_request_with_everything_is_read() -> None:
    request = parse_chat_completion_request(
        json.dumps(
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "hé", "name": "ann"},
                ],
                "max_tokens": 7,
                "temperature": 0,
                "top_p": 0.5,
                "seed": -3,
                "stop": ["a", "b"],
                "stream": True,
                "logprobs": True,
            }
        ).encode(),
        LIMITS,
    )
    assert request.messages[1] == ChatMessage(role="user", content="hé", name="ann")
    assert (request.max_tokens, request.temperature, request.top_p) == (7, 0.0, 0.5)
    assert (request.seed, request.stop) == (-3, ("a", "b"))
    assert request.stream
    assert request.logprobs


def test_absent_and_null_keys_take_the_defaults() -> None:
    nulls = dict.fromkeys(
        ("max_tokens", "temperature", "top_p", "seed", "stop", "stream", "logprobs")
    )
    assert parse(**nulls) == parse()
    request = parse_chat_completion_request(
        json.dumps({"messages": [USER]}).encode(), LIMITS
    )
    assert request.max_tokens == DEFAULT_MAX_TOKENS
    assert request.seed is None
    assert not request.stream


def test_default_max_tokens_stays_within_the_limit() -> None:
    content = json.dumps({"messages": [USER]}).encode()
    assert (
        parse_chat_completion_request(content, ChatLimits(max_tokens=9)).max_tokens == 9
    )


@pytest.mark.parametrize("asked", [1000, 1001, 2**31 - 1])
def test_an_answer_is_as_long_as_the_limit_however_long_it_may_be(asked: int) -> None:
    content = json.dumps({"messages": [USER], "max_tokens": asked}).encode()
    assert parse_chat_completion_request(content, LIMITS).max_tokens == 1000


def test_one_stop_string_may_stand_alone() -> None:
    assert parse(stop="x") == parse(stop=["x"])


@pytest.mark.parametrize("role", sorted(ROLES))
def test_every_role_is_taken(role: str) -> None:
    assert parse(messages=[{"role": role, "content": ""}])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"messages"',
        b"\xff",
        b'{"messages":[],"messages":[]}',
        b'{"messages":[{"role":"user","content":"a","content":"b"}]}',
        b'{"messages":[],"temperature":NaN}',
        b'{"messages":[],"temperature":-Infinity}',
        b'{"messages":[]} x',
        b"[" * 10_000,
        b'{"seed":' + b"9" * 5000 + b"}",
    ],
    ids=[
        "empty",
        "cut",
        "array",
        "null",
        "string",
        "not-utf-8",
        "duplicate-key",
        "duplicate-key-inside",
        "nan",
        "infinity",
        "trailing",
        "deep",
        "huge-integer",
    ],
)
def test_what_is_not_one_json_object_is_refused(content: bytes) -> None:
    error = refusal(content)
    assert (error.status, error.code, error.param) == (400, "invalid_json", None)


MEBI = 2**20
SLOW = {
    "objects": b'{"a":[' + b"{}," * (MEBI // 3) + b"1]}",
    "arrays": b'{"a":[' + b"[]," * (MEBI // 3) + b"1]}",
    "integers": b'{"a":[' + b"1," * (MEBI // 2) + b"1]}",
    "strings": b'{"a":[' + b'"",' * (MEBI // 3) + b"1]}",
    "keys": b"{" + b",".join(b'"%x":1' % n for n in range(100_000)) + b"}",
    "number": b'{"seed":0.' + b"1" * MEBI + b"}",
    "behind-escapes": b'{"b":"\\\\\\"\\\\","a":[' + b"{}," * 9000 + b"1]}",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("slow", SLOW)
def test_what_would_take_long_is_refused_unparsed(slow: str) -> None:
    error = refusal(SLOW[slow])
    assert (error.status, error.code, error.param) == (400, "too_complex", None)


def called(*arguments: str) -> bytes:
    calls = [
        {
            "type": "function",
            "id": f"{number}",
            "function": {"name": "f", "arguments": each},
        }
        for number, each in enumerate(arguments)
    ]
    turn = {"role": "assistant", "content": "", "tool_calls": calls}
    return json.dumps({"messages": [{"role": "user", "content": "Hi"}, turn]}).encode()


NUMBERS = '{"a":[' + "1," * 4000 + "1]}"
"""Half of the structure that all arguments may have."""


@pytest.mark.parametrize(
    "arguments",
    [
        [NUMBERS] * 3,
        ['{"a":"' + "x" * 9 + '"'] + [NUMBERS] * 3,  # a cut one hides no other
        ['"', NUMBERS, NUMBERS, NUMBERS],
        ['{"a":[' + '"",' * 4000 + "1]}"] * 3,
    ],
)
def test_arguments_that_would_take_long_together_are_refused_unparsed(
    arguments: list[str],
) -> None:
    error = refusal(called(*arguments))
    assert (error.code, error.param) == ("too_complex", "tool_calls")


def test_arguments_may_have_long_texts() -> None:
    text = json.dumps({"a": '{}[],:1 "' * 6000})
    chat = parse_chat_completion_request(called(NUMBERS, *[text] * 9), ChatLimits())
    assert len(chat.messages[1].calls) == 10


TEXTS = {
    "braces": "{}[],:1" * 60_000,
    "quotes": '"' * 200_000,
    "backslashes": "\\" * 200_000,
    "both": '\\"' * 100_000,
    "odd": '\\\\\\"{},\n' * 20_000,
    "lines": "\n" * 200_000,
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_may_hold_whatever_it_likes(text: str) -> None:
    body = {"messages": [{"role": "user", "content": TEXTS[text]}]}
    for indent in (None, 1):
        content = json.dumps(body, indent=indent).encode()
        chat = parse_chat_completion_request(content, ChatLimits())
        assert chat.messages[0].content == TEXTS[text]


def test_most_messages_that_are_taken_are_not_too_complex() -> None:
    limits = ChatLimits()
    message = {"role": "user", "content": 'a "word" {}', "name": "ann"}
    body = {"messages": [message] * limits.max_messages, "stop": ["a", "b"]}
    content = json.dumps(body, indent=2).encode()
    assert (
        len(parse_chat_completion_request(content, limits).messages)
        == limits.max_messages
    )


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        (None, "invalid_value", "messages"),
        (list[str](), "invalid_value", "messages"),
        (dict[str, str](), "invalid_value", "messages"),
        ("hi", "invalid_value", "messages"),
        (["hi"], "invalid_value", "messages"),
        ([USER] * 4, "too_many_messages", "messages"),
        ([{"content": "hi"}], "invalid_value", "role"),
        ([{"role": 1, "content": "hi"}], "invalid_value", "role"),
        ([{"role": "User", "content": "hi"}], "invalid_value", "role"),
        ([{"role": ["user"], "content": "hi"}], "invalid_value", "role"),
        ([{"role": "user"}], "invalid_value", "content"),
        ([{"role": "user", "content": None}], "invalid_value", "content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "invalid_value", "content"),
        ([{"role": "user", "content": "\ud800"}], "invalid_value", "content"),
        ([{**USER, "name": 1}], "invalid_value", "name"),
        ([{**USER, "name": ""}], "invalid_value", "name"),
        ([{**USER, "name": "abcdef"}], "invalid_value", "name"),
        ([{**USER, "tool_calls": [CALL]}], "invalid_value", "tool_calls"),
        ([{**USER, "tool_call_id": "a"}], "invalid_value", "tool_call_id"),
        ([{**ASSISTANT, "tool_call_id": "a"}], "invalid_value", "tool_call_id"),
        ([{**ASSISTANT, "tool_calls": list[str]()}], "invalid_value", "tool_calls"),
        ([{**ASSISTANT, "tool_calls": [CALL] * 129}], "invalid_value", "tool_calls"),
        ([{**ASSISTANT, "tool_calls": [CANARY]}], "invalid_value", "tool_calls"),
        *(
            ([{**ASSISTANT, "tool_calls": [{**CALL, **wrong}]}], code, "tool_calls")
            for wrong, code in (
                ({CANARY: 1}, "unsupported_parameter"),
                ({"type": "custom"}, "invalid_value"),
                ({"id": None}, "invalid_value"),
                ({"function": CANARY}, "invalid_value"),
                ({"function": {"name": "a b", "arguments": "{}"}}, "invalid_value"),
                ({"function": {"name": "f", "arguments": "[]"}}, "invalid_value"),
                ({"function": {"name": "f", "arguments": CANARY}}, "invalid_value"),
                ({"function": {"name": "f", "arguments": 1}}, "invalid_value"),
                (
                    {"function": {"name": "f", "arguments": '{"a":' * 99_999}},
                    "too_complex",
                ),
                (
                    {"function": {"name": "f", "arguments": "{}", CANARY: 1}},
                    "unsupported_parameter",
                ),
            )
        ),
        ([{**USER, CANARY: 1}], "unsupported_parameter", None),
    ],
)
def test_messages_out_of_shape_are_refused(
    messages: object, code: str, param: str | None
) -> None:
    assert refused(messages=messages) == (code, param)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("max_tokens", 0, "out_of_range"),
        ("max_tokens", 2**31, "out_of_range"),
        ("max_tokens", 1.0, "invalid_value"),
        ("max_tokens", True, "invalid_value"),
        ("max_tokens", "5", "invalid_value"),
        ("temperature", -0.01, "out_of_range"),
        ("temperature", 2.01, "out_of_range"),
        ("temperature", 10**400, "out_of_range"),
        ("temperature", "1", "invalid_value"),
        ("temperature", False, "invalid_value"),
        ("top_p", 0, "out_of_range"),
        ("top_p", 1.01, "out_of_range"),
        ("seed", MAX_SEED + 1, "out_of_range"),
        ("seed", -MAX_SEED - 2, "out_of_range"),
        ("seed", 1.5, "invalid_value"),
        ("stop", "", "out_of_range"),
        ("stop", ["a"] * 5, "out_of_range"),
        ("stop", "abcdefg", "out_of_range"),
        ("stop", [1], "invalid_value"),
        ("stop", 1, "invalid_value"),
        ("stop", "\udfff", "invalid_value"),
        ("stream", 1, "invalid_value"),
        ("stream", "true", "invalid_value"),
        ("logprobs", 5, "invalid_value"),
    ],
)
def test_value_outside_its_range_is_refused(key: str, value: object, code: str) -> None:
    assert refused(**{key: value}) == (code, key)


def test_number_beyond_float_is_refused() -> None:
    error = refusal(b'{"messages":[{"role":"user","content":""}],"top_p":1e999}')
    assert (error.code, error.param) == ("out_of_range", "top_p")


def test_parse_chat_takes_the_one_model_by_name() -> None:
    assert parse(model=MODEL_ID) == parse()
    error = refusal(json.dumps({"messages": [USER], "model": CANARY}).encode())
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert CANARY not in str(error)


@pytest.mark.parametrize("key", sorted(KNOWN_UNSUPPORTED))
def test_known_key_is_refused_by_name(key: str) -> None:
    assert refused(**{key: None}) == ("unsupported_parameter", key)


def test_unknown_key_is_refused_without_its_name() -> None:
    error = refusal(json.dumps({"messages": [USER], CANARY: 1}).encode())
    assert (error.code, error.param) == ("unsupported_parameter", None)
    assert CANARY not in f"{error!r}{error}{error.args}"


def test_requests_do_not_show_text() -> None:
    request = parse(messages=[{**USER, "content": CANARY}], stop="stops")
    assert CANARY not in repr(request)
    assert "stops" not in repr(request)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["messages", "role", "content", "name", "stop", "seed", "top_p", "max_tokens"]
)


# Hypothesis builds its table of characters at the first draw, which is slow.
PATIENT = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)


@PATIENT
@given(st.binary() | st.dictionaries(KEYS, JSON).map(lambda v: json.dumps(v).encode()))
def test_any_bytes_give_a_request_or_a_refusal(content: bytes) -> None:
    code: str | None = None
    try:
        parse_chat_completion_request(content, LIMITS)
    except ChatError as error:
        code = error.code
    assert code is None or code in ERROR_CODES


@PATIENT
@given(
    text=st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    escaped=st.booleans(),
)
def test_any_text_arrives_unchanged(text: str, *, escaped: bool) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    content = json.dumps(body, ensure_ascii=escaped).encode()
    assert parse_chat_completion_request(content, LIMITS).messages[0].content == text


def function(**fields: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "find", **fields}}


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels - 1):
        value = [value]
    return value


def schema_format(**fields: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "x", **fields}}


def test_tools_and_formats_are_read() -> None:
    content = json.dumps(
        {
            "messages": [
                {**ASSISTANT, "tool_calls": [CALL]},
                {"role": "tool", "content": "found", "tool_call_id": "call_1"},
            ],
            "tools": [
                function(description="Finds", parameters={"a": "\u00e4"}, strict=True),
                function(name="lose", parameters=None),
            ],
            "tool_choice": {"type": "function", "function": {"name": "lose"}},
            "parallel_tool_calls": False,
            "response_format": schema_format(schema={"b": 1}, strict=True),
            "n": 3,
            "logprobs": True,
            "top_logprobs": 2,
            "presence_penalty": -0.5,
            "frequency_penalty": 2,
            "deterministic": True,
        }
    ).encode()
    request = parse_chat_completion_request(content, LIMITS)
    call = ChatCall(id="call_1", name="find", arguments='{"who":"Ann"}')
    assert request.messages == (
        ChatMessage(role="assistant", content="", calls=(call,)),
        ChatMessage(role="tool", content="found", result_of="call_1"),
    )
    assert request.tools == (
        ChatTool(
            name="find", description="Finds", parameters='{"a": "\u00e4"}', strict=True
        ),
        ChatTool(name="lose"),
    )
    assert request.tool_choice == "lose"
    assert not request.parallel_tool_calls
    assert request.response_format == ChatFormat(
        name="x", schema='{"b": 1}', strict=True
    )
    assert (request.n, request.top_logprobs) == (3, 2)
    assert (request.presence_penalty, request.frequency_penalty) == (-0.5, 2)
    assert request.deterministic
    assert "Ann" not in repr(request)


@pytest.mark.parametrize(
    ("wanted", "read"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, ChatFormat()),
        (schema_format(), ChatFormat(name="x", schema="{}")),
    ],
)
def test_formats_are_read(wanted: object, read: ChatFormat | None) -> None:
    content = json.dumps({"messages": [USER], "response_format": wanted}).encode()
    request = parse_chat_completion_request(content, LIMITS)
    assert request.response_format == read


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"n": 5}, "out_of_range", "n"),
        ({"n": 0}, "out_of_range", "n"),
        ({"top_logprobs": 1}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "out_of_range", "top_logprobs"),
        ({"presence_penalty": 2.5}, "out_of_range", "presence_penalty"),
        ({"frequency_penalty": -2.5}, "out_of_range", "frequency_penalty"),
        ({"parallel_tool_calls": 1}, "invalid_value", "parallel_tool_calls"),
        ({"deterministic": 1}, "invalid_value", "deterministic"),
        ({"tools": CANARY}, "invalid_value", "tools"),
        ({"tools": [function()] * 2}, "invalid_value", "tools"),
        ({"tools": [function()] * 129}, "invalid_value", "tools"),
        ({"tools": [CANARY]}, "invalid_value", "tools"),
        ({"tools": [{"type": "custom"}]}, "invalid_value", "tools"),
        ({"tools": [{**function(), CANARY: 1}]}, "unsupported_parameter", "tools"),
        ({"tools": [function(**{CANARY: 1})]}, "unsupported_parameter", "tools"),
        ({"tools": [function(name="a b")]}, "invalid_value", "tools"),
        ({"tools": [function(description=1)]}, "invalid_value", "tools"),
        ({"tools": [function(description="\ud800")]}, "invalid_value", "tools"),
        ({"tools": [function(strict="yes")]}, "invalid_value", "tools"),
        ({"tools": [function(parameters=[])]}, "invalid_value", "tools"),
        ({"tools": [function(parameters={"a": deep(40)})]}, "invalid_value", "tools"),
        (
            {"tools": [function(parameters={"a": "x" * 65536})]},
            "out_of_range",
            "tools",
        ),
        (
            {"tools": [function(parameters={"a": "\ud800"})]},
            "invalid_value",
            "tools",
        ),
        ({"tool_choice": CANARY}, "invalid_value", "tool_choice"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"tool_choice": function()}, "invalid_value", "tool_choice"),
        (
            {"tools": [function(name="none")], "tool_choice": function(name="none")},
            "invalid_value",
            "tool_choice",
        ),
        ({"response_format": {"type": CANARY}}, "invalid_value", "response_format"),
        (
            {"response_format": {"type": "json_schema"}},
            "invalid_value",
            "response_format",
        ),
        (
            {"response_format": {"type": "json_object", "json_schema": {}}},
            "invalid_value",
            "response_format",
        ),
        (
            {"response_format": schema_format(**{CANARY: 1})},
            "unsupported_parameter",
            "response_format",
        ),
        (
            {"response_format": schema_format(schema=[])},
            "invalid_value",
            "response_format",
        ),
    ],
)
def test_tools_out_of_shape_are_refused(
    body: dict[str, object], code: str, param: str
) -> None:
    assert refused(**body) == (code, param)


def test_an_infinite_number_in_a_schema_is_refused() -> None:
    content = json.dumps(
        {"messages": [USER], "tools": [function(parameters={"a": "INF"})]}
    )
    error = refusal(content.replace('"INF"', "1e999").encode())
    assert (error.code, error.param) == ("out_of_range", "tools")
