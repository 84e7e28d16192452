import json

from curtilage.inference.calls import written_call
from curtilage.inference.protocol import ChatMessage, Tool, ToolCall
from curtilage.inference.turns import (
    into_first_turn,
    plain_turns,
    tool_text,
    tools_note,
    with_names,
    with_note,
)

SCHEMA = '{"type": "object", "properties": {"b": {}, "a": {"const": 1.50}}}'
TOOL = Tool(name="find", description='Finds "it"\n', parameters=SCHEMA)


def turn(content: str, role: str = "user", **fields: object) -> ChatMessage:
    return ChatMessage(role=role, content=content, **fields)  # type: ignore[arg-type]


def call(number: int, name: str = "find") -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=f'{{"n": {number}}}')


def test_a_tool_is_openais_json_with_the_schema_as_it_came() -> None:
    assert SCHEMA in tool_text(TOOL)
    assert json.loads(tool_text(TOOL)) == {
        "type": "function",
        "function": {
            "name": "find",
            "description": 'Finds "it"\n',
            "parameters": json.loads(SCHEMA),
        },
    }


def test_the_note_has_each_tool_and_the_form() -> None:
    note = tools_note([TOOL, Tool(name="other")])
    assert tool_text(TOOL) in note
    assert tool_text(Tool(name="other")) in note
    assert written_call("NAME", "ARGUMENTS") in note


def test_a_note_goes_to_the_last_system_message() -> None:
    turns = [turn("S", "system"), turn("D", "developer"), turn("Hi")]
    assert with_note(turns, "N", "usual") == [
        turns[0],
        turn("D\n\nN", "developer"),
        turns[2],
    ]
    assert with_note(turns[2:], "N", "usual") == [
        turn("usual\n\nN", "system"),
        turns[2],
    ]
    assert with_note([turn("", "system")], "N", "usual") == [turn("N", "system")]
    assert with_note(turns, "", "usual") == turns
    assert with_note(turns[2:], "", "usual") == [turn("usual", "system"), turns[2]]
    assert into_first_turn(turns[2:], "N") == [turn("N\n\nHi")]
    assert into_first_turn(turns, "") == turns


def test_names_are_written_in_front() -> None:
    turns = [turn("Hi", name="Ann"), turn("it", "tool", name="find"), turn("a")]
    assert with_names(turns) == [turn("Ann: Hi"), *turns[1:]]


def test_calls_and_results_become_plain_turns() -> None:
    turns = [
        turn("Hi"),
        turn("Yes.", "assistant", tool_calls=(call(1), call(2, "other"))),
        turn("two", "tool", tool_call_id="call_2"),
        turn("one", "tool", tool_call_id="call_1"),
        turn("", "assistant", tool_calls=(call(3),)),
        turn("three", "tool", tool_call_id="call_3"),
        turn("Thanks"),
    ]
    first, second = written_call("find", '{"n": 1}'), written_call("other", '{"n": 2}')
    assert plain_turns(turns) == [
        turn("Hi"),
        turn(f"Yes.\n{first}\n{second}", "assistant"),
        turn("The result of other:\ntwo\n\nThe result of find:\none"),
        turn(written_call("find", '{"n": 3}'), "assistant"),
        turn("The result of find:\nthree"),
        turn("Thanks"),
    ]


def test_a_result_without_a_call_has_its_own_name_or_none() -> None:
    assert plain_turns(
        [turn("a", "tool", name="find"), turn("b"), turn("c", "tool")]
    ) == [
        turn("The result of find:\na"),
        turn("b"),
        turn("The result:\nc"),
    ]
