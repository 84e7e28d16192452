import json
from dataclasses import replace
from typing import Any

import pytest

from curtilage.inference import structured
from curtilage.inference.calls import OPEN
from curtilage.inference.errors import SchemaError
from curtilage.inference.protocol import (
    ChatMessage,
    GenerateRequest,
    JsonObject,
    JsonSchema,
    NamedTool,
    Tool,
)
from curtilage.inference.structured import AnswerForm, form_of

FIND, SEND = Tool(name="find"), Tool(name="send")
SCHEMA = JsonSchema(schema='{"const": "canary"}', name="a_name", description="Its text")


def form(**fields: Any) -> AnswerForm:  # noqa: ANN401
    hello = ChatMessage(role="user", content="hello")
    return form_of(GenerateRequest(messages=(hello,), **fields))


def test_an_answer_without_demands_has_no_form() -> None:
    assert form() == AnswerForm()
    assert form().parser() is None
    assert form(tools=(FIND,), tool_choice="none") == AnswerForm()


@pytest.mark.parametrize("choice", ["none", "auto", NamedTool(name="find")])
def test_what_cannot_be_enforced_is_refused_whatever_is_chosen(choice: Any) -> None:  # noqa: ANN401
    schema = '{"type": "object", "minProperties": 1}'
    # Only converted here: that takes long where a schema is large.
    strict = Tool(name="send", parameters=schema, strict=True)
    with pytest.raises(SchemaError) as refused:
        form(tools=(FIND, strict), tool_choice=choice)
    assert refused.value.keyword == "minProperties"
    assert refused.value.field == "tools[1].function.parameters"
    form(tools=(FIND, replace(strict, strict=False)), tool_choice=choice)


def test_bounds_of_numbers_are_limited_over_all_schemas() -> None:
    many = {f"p{n}": {"type": "integer", "minimum": n} for n in range(500)}
    tool = Tool(name="find", parameters=json.dumps({"properties": many}))
    wanted = JsonSchema(schema=json.dumps({"properties": many}))
    assert form(tools=(tool,), response_format=wanted).grammar
    more = {"properties": many | {"q": {"type": "number", "maximum": 2}}}
    with pytest.raises(SchemaError, match="bounds") as refused:
        form(tools=(tool,), response_format=JsonSchema(schema=json.dumps(more)))
    # Of which the format's was converted first.
    assert refused.value.field == "tools[0].function.parameters"
    with pytest.raises(SchemaError) as refused:
        form(response_format=JsonSchema(schema='{"type": 1}'))
    assert refused.value.field == "response_format.json_schema.schema"


def test_tools_that_may_be_called_are_those_of_the_choice() -> None:
    both = (FIND, SEND)
    for choice, tools, bare in (
        ("auto", both, True),
        ("required", both, False),
        (NamedTool(name="send"), (SEND,), False),
    ):
        found = form(tools=both, tool_choice=choice)
        assert (found.tools, found.bare) == (tools, bare)
        assert ("find" in found.grammar) == (FIND in tools)
        assert found.parser() is not None


def test_an_answer_that_is_json_is_never_taken_for_a_call() -> None:
    found = form(tools=(FIND,), response_format=SCHEMA)
    assert not found.bare
    assert "canary" in found.grammar
    assert "find" in found.grammar


def test_a_named_tool_is_called_once() -> None:
    # The mark that begins a call, once and perhaps again.
    mark = f'"{"".join(c if c.isalnum() else f"{chr(92)}x{ord(c):02X}" for c in OPEN)}"'
    for fields, marks in (
        ({"tool_choice": "required"}, 2),
        ({"tool_choice": "required", "parallel_tool_calls": False}, 1),
        ({"tool_choice": NamedTool(name="find")}, 1),
    ):
        assert form(tools=(FIND,), **fields).grammar.count(mark) == marks


def test_the_model_reads_the_format() -> None:
    note = form(response_format=SCHEMA).note
    for text in (SCHEMA.schema, SCHEMA.name, SCHEMA.description):
        assert text in note
    assert "JSON" in form(response_format=JsonObject()).note


def test_a_form_shows_no_text() -> None:
    assert "canary" not in repr(form(response_format=SCHEMA))
    assert "find" not in repr(form(tools=(FIND,)))


def test_a_conversion_is_bounded_in_time() -> None:
    hello = ChatMessage(role="user", content="hello")
    asked = GenerateRequest(messages=(hello,), response_format=SCHEMA)
    times = iter([7.0, 7.0 + structured.MAX_SECONDS, 8.0 + structured.MAX_SECONDS])
    late = iter([7.0, 8.0 + structured.MAX_SECONDS])
    assert form_of(asked, lambda: next(times)).grammar
    with pytest.raises(SchemaError, match="takes too long"):
        form_of(asked, lambda: next(late))


def test_what_the_library_will_hold_is_counted() -> None:
    text = json.dumps({"type": "string", "maxLength": 1500})
    found = form(response_format=JsonSchema(schema=text))
    assert found.held_bytes == 20 * len(found.grammar) + 200 * 1500
    assert form().held_bytes == 0


TOOLS = tuple(
    Tool(name=f"server_{number % 9}__some_tool_of_it_{number}") for number in range(128)
)


def test_as_many_tools_as_there_may_be_are_accepted() -> None:
    assert form(tools=TOOLS).grammar
    # Names begin alike: as a tree, the library does not follow each.
    found = form(tools=TOOLS, tool_choice="required").grammar
    assert found.count("some") <= 9


def test_too_large_a_grammar_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = JsonSchema(schema=json.dumps({"enum": ["x" * 1000]}))
    assert form(response_format=wanted).grammar
    monkeypatch.setattr(structured, "MAX_GRAMMAR_CHARS", 500)
    for fields, place in (
        ({"response_format": wanted}, "response_format.json_schema.schema"),
        ({"tools": (FIND,)}, "tools"),
    ):
        with pytest.raises(SchemaError) as refused:
            form(**fields)
        assert refused.value.field == place
