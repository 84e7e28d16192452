import json
from typing import Any, cast

import pytest

from curtilage.client.chat.openai_chat import parse_completion_request, query_from
from curtilage.client.chat.openai_tools import (
    MAX_CALLS,
    MAX_DEPTH,
    MAX_JSON_BYTES,
    MAX_TOOLS,
)
from curtilage.client.chat.query import Query
from curtilage.client.errors import UsageError

CANARY = "canary-77d3"
USER: dict[str, object] = {"role": "user", "content": "hello"}


def parsed(**fields: object) -> Query:
    return parse_completion_request(
        json.dumps({"messages": [USER], **fields}).encode()
    ).query


def tool(**function: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "find", **function}}


def call(
    called: str, arguments: object = "{}", **function: object
) -> dict[str, object]:
    function = {"name": "find", "arguments": arguments, **function}
    return {"id": called, "type": "function", "function": function}


def refused(**fields: object) -> tuple[str | None, str]:
    with pytest.raises(UsageError) as caught:
        parsed(**fields)
    assert CANARY not in f"{caught.value} {caught.value.param}"
    return caught.value.param, caught.value.code


def calls(*of: dict[str, object], result: str = "") -> list[dict[str, object]]:
    turns: list[dict[str, object]] = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": list(of)},
    ]
    if result:
        turns.append({"role": "tool", "content": "found", "tool_call_id": result})
    return turns


SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}}}


def test_an_id_may_return_in_another_turn() -> None:
    turn = calls(call("a"), result="a")[1:]
    query = parsed(messages=[USER, *turn, *turn])
    assert [message.result_of for message in query.messages] == [None, None, 1, None, 2]


def test_tools_are_taken_as_they_are_sent() -> None:
    given = tool(description="Finds people", parameters=SCHEMA, strict=True)
    query = parsed(
        tools=[given, tool(name="lose", description=None)],
        tool_choice={"type": "function", "function": {"name": "lose"}},
        parallel_tool_calls=False,
    )
    body = json.loads(query.payload().content)
    assert body["tools"] == [given, tool(name="lose")]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "lose"}}
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_a_choice_is_taken(choice: str) -> None:
    assert parsed(tools=[tool()], tool_choice=choice).tool_choice == choice


@pytest.mark.parametrize("choice", ["none", "auto", None])
def test_without_tools_there_is_no_choice(choice: str | None) -> None:
    assert parsed(tools=[], tool_choice=choice).tool_choice == "auto"


def test_calls_and_results_are_known_by_their_position() -> None:
    first = calls(call(CANARY, '{"who": "Ann"}'), call("b"), result="b")
    second = calls(call("b"), result="b")[1:]
    query = parsed(messages=[*first, *second])
    turns = query.messages
    assert [each.number for each in turns[1].calls] == [1, 2]
    assert turns[2].result_of == 2
    assert [each.number for each in turns[3].calls] == [3]
    assert turns[4].result_of == 3
    assert turns[1].calls[0].arguments.value() == {"who": "Ann"}
    assert CANARY.encode() not in query.payload().content


def test_a_tools_turn_without_an_id_is_a_text() -> None:
    turns = [*calls(call("a")), {"role": "tool", "content": "found"}]
    assert parsed(messages=turns).messages[2].result_of is None


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ({"type": "text"}, None),
        (None, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        ),
    ],
)
def test_formats_are_taken(wanted: object, sent: object) -> None:
    query = parsed(response_format=wanted)
    assert json.loads(query.payload().content).get("response_format") == sent


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels - 1):
        value = [value]
    return value


JSON = "response_format.json_schema"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": CANARY}, "tools", "invalid_request"),
        ({"tools": [tool()] * (MAX_TOOLS + 1)}, "tools", "invalid_request"),
        ({"tools": [CANARY]}, "tools[0]", "invalid_request"),
        ({"tools": [{"type": "custom"}]}, "tools[0]", "unsupported_parameter"),
        (
            {"tools": [tool(), {**tool(), CANARY: 1}]},
            "tools[1]",
            "unsupported_parameter",
        ),
        (
            {"tools": [tool(**{CANARY: 1})]},
            "tools[0].function",
            "unsupported_parameter",
        ),
        ({"tools": [tool(name="a b")]}, "tools[0].function.name", "invalid_request"),
        ({"tools": [tool(name="a" * 65)]}, "tools[0].function.name", "invalid_request"),
        ({"tools": [tool(), tool()]}, "tools[1].function.name", "invalid_request"),
        (
            {"tools": [tool(description=1)]},
            "tools[0].function.description",
            "invalid_request",
        ),
        (
            {"tools": [tool(parameters=[])]},
            "tools[0].function.parameters",
            "invalid_request",
        ),
        ({"tools": [tool(strict=1)]}, "tools[0].function.strict", "invalid_request"),
        (
            {"tools": [tool(parameters={"a": deep(MAX_DEPTH)})]},
            "tools[0].function",
            "invalid_request",
        ),
        (
            {"tools": [tool(description="x" * MAX_JSON_BYTES)]},
            "tools[0].function",
            "invalid_request",
        ),
        (
            {"tools": [tool(parameters={"a": float("inf")})]},
            "tools[0].function",
            "invalid_request",
        ),
        ({"tool_choice": CANARY}, "tool_choice", "invalid_request"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_request"),
        ({"tool_choice": 5}, "tool_choice", "invalid_request"),
        (
            {"tool_choice": {"type": "allowed_tools"}},
            "tool_choice",
            "unsupported_parameter",
        ),
        (
            {
                "tools": [tool()],
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            "tool_choice.function.name",
            "invalid_request",
        ),
        (
            # Its name is the word for another choice.
            {
                "tools": [tool(name="none")],
                "tool_choice": {"type": "function", "function": {"name": "none"}},
            },
            "tool_choice.function.name",
            "invalid_request",
        ),
        ({"response_format": CANARY}, "response_format", "invalid_request"),
        (
            {"response_format": {"type": "x"}},
            "response_format",
            "unsupported_parameter",
        ),
        (
            {"response_format": {"type": "json_object", CANARY: 1}},
            "response_format",
            "unsupported_parameter",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            f"{JSON}.name",
            "invalid_request",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": [CANARY]},
                }
            },
            f"{JSON}.schema",
            "invalid_request",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", CANARY: 1},
                }
            },
            JSON,
            "unsupported_parameter",
        ),
    ],
)
def test_what_is_invalid_is_refused(
    fields: dict[str, object], param: str, code: str
) -> None:
    assert refused(**fields) == (param, code)


CALLS = "messages[1].tool_calls"


@pytest.mark.parametrize(
    ("turns", "param", "code"),
    [
        (calls(*[call("a")] * (MAX_CALLS + 1)), CALLS, "invalid_request"),
        (calls(cast("Any", CANARY)), f"{CALLS}[0]", "invalid_request"),
        (
            calls({**call("a"), "type": "custom"}),
            f"{CALLS}[0]",
            "unsupported_parameter",
        ),
        (calls({**call("a"), CANARY: 1}), f"{CALLS}[0]", "unsupported_parameter"),
        (calls({**call("a"), "id": None}), f"{CALLS}[0].id", "invalid_request"),
        (calls({**call("a"), "id": ""}), f"{CALLS}[0].id", "invalid_request"),
        (calls(call("a"), call("a")), f"{CALLS}[1].id", "invalid_request"),
        (
            calls(call("a", **{CANARY: 1})),
            f"{CALLS}[0].function",
            "unsupported_parameter",
        ),
        (
            calls(call("a", name=CANARY + "!")),
            f"{CALLS}[0].function.name",
            "invalid_request",
        ),
        *(
            (
                calls(call("a"), call("b", arguments)),
                f"{CALLS}[1].function.arguments",
                "invalid_request",
            )
            for arguments in (
                *("", CANARY, "[]", '{"a": 1', '{"a": 1, "a": 2}'),
                *('{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}"),
                *("[" * 100_000, json.dumps({"a": deep(MAX_DEPTH)})),
                json.dumps({"a": "x" * MAX_JSON_BYTES}),
            )
        ),
        (calls(call("a"), result="b"), "messages[2].tool_call_id", "invalid_request"),
    ],
)
def test_calls_that_are_invalid_are_refused(
    turns: list[dict[str, object]], param: str, code: str
) -> None:
    assert refused(messages=turns) == (param, code)


def test_a_result_before_its_call_is_refused() -> None:
    turns = calls(call("a"), result="a")
    assert refused(messages=[turns[0], turns[2], turns[1]]) == (
        "messages[1].tool_call_id",
        "invalid_request",
    )


def test_a_library_call_takes_the_same() -> None:
    query = query_from(
        calls(call("a"), result="a"),
        {"tools": [tool()], "n": 2, "response_format": {"type": "json_object"}},
        stream=False,
    )
    assert query.settings.n == 2
    assert len(query.tools) == 1
    assert query.messages[2].result_of == 1
