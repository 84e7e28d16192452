"""Alternatives that begin alike are one rule: nothing more is permitted, nor less."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from curtilage.inference import grammar
from curtilage.inference.errors import SchemaError
from curtilage.inference.grammar import Grammar, Rule
from curtilage.inference.schema import add_object_schema, add_schema
from curtilage.inference.value_rules import BLOCK
from support.grammar_stacks import Stacks
from support.grammar_walk import Walk
from support.schemas import SCHEMAS

Schema = dict[str, Any]
FEW = 60
"""Stacks of a schema that is read without doubt."""


def converted(schema: Schema) -> tuple[Grammar, Rule]:
    rules = Grammar()
    return rules, add_schema(rules, schema, strict=True)


def permits(schema: Schema, *values: object) -> list[bool]:
    stacks = Stacks(*converted(schema))
    return [
        stacks.permits(json.dumps(value, separators=(",", ":"))) for value in values
    ]


OPTIONS = ["#/$defs/a~1b", "#/$defs/c"]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.sampled_from(OPTIONS), st.integers(0, 2**32))
def test_a_choice_permits_what_each_of_its_options_does(
    schema: Schema, option: str, seed: int
) -> None:
    parts = {"$defs": schema["$defs"]}
    try:
        alone = converted({"$ref": option, **parts})
        together = converted({"anyOf": [{"$ref": each} for each in OPTIONS], **parts})
    except SchemaError:
        assume(False)
    text = Walk(alone[0]).text(alone[1], seed)
    assert Stacks(*together).permits(text)


def test_a_choice_of_objects_is_read_member_by_member() -> None:
    """Of each member it is known which objects are still meant."""
    schema: Schema = {
        "anyOf": [
            {
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a"],
            },
            {
                "properties": {"a": {"type": ["string", "null"]}, "c": {"const": 1}},
                "required": ["a", "c"],
            },
            {"properties": {"b": {"type": "integer"}, "a": {"enum": ["x", "y"]}}},
        ]
    }
    right: list[object] = [
        {"a": "z"}, {"a": "z", "b": 1}, {"a": None, "c": 1}, {"a": "x", "c": 1}, {},
        {"b": 1}, {"b": 1, "a": "y"}, {"a": "x"}, {"a": "x", "b": 2},
    ]  # fmt: skip
    wrong: list[object] = [
        {"a": None}, {"a": None, "b": 1}, {"a": "z", "b": 1, "c": 1}, {"c": 1},
        {"b": 1, "a": "z"}, {"a": 1}, {"b": None},
    ]  # fmt: skip
    assert all(permits(schema, *right))
    assert not any(permits(schema, *wrong))


def test_listed_values_lead_to_what_follows_each() -> None:
    def of(kind: object, **more: Schema) -> Schema:
        return {
            "properties": {"kind": kind, **more},
            "required": ["kind", *more],
        }

    schema: Schema = {
        "anyOf": [
            of({"enum": [1, "one"]}, a={"const": 1}),
            of({"enum": [12, "one"]}, b={"const": 2}),
            of({"type": "integer", "minimum": 12}, c={"const": 3}),
        ]
    }
    assert (
        permits(
            schema,
            {"kind": 1, "a": 1},
            {"kind": "one", "a": 1},
            {"kind": "one", "b": 2},
            {"kind": 12, "b": 2},
            {"kind": 12, "c": 3},
            {"kind": 1, "b": 2},
            {"kind": "one", "c": 3},
            {"kind": 1, "c": 3},
        )
        == [True] * 5 + [False] * 3
    )


def test_arrays_are_told_apart_by_their_items() -> None:
    schema: Schema = {
        "anyOf": [
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            {"type": "array", "items": {"type": "null"}, "maxItems": 0},
        ]
    }
    assert permits(schema, [], [1], [1, 2, 3], ["a", "b"]) == [True] * 4
    assert permits(schema, ["a", 1], ["a", "b", "c"], [None]) == [False] * 3
    assert converted(schema)[0].stacks <= FEW


def union(count: int) -> Schema:
    """Return models told apart by a tag, as pydantic writes them; each has the next."""
    models = {
        f"Model{number}": {
            "type": "object",
            "title": f"Model{number}",
            "properties": {
                "id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "kind": {"const": f"model_{number}", "type": "string"},
                "next": {"anyOf": [{"$ref": "#/$defs/Any"}, {"type": "null"}]},
                f"only_{number}": {"type": "integer"},
            },
            "required": ["kind", "next"],
        }
        for number in range(count)
    }
    any_of = [{"$ref": f"#/$defs/{name}"} for name in models]
    return {
        "$defs": {**models, "Any": {"anyOf": any_of}},
        "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/Any"}}},
        "required": ["all"],
    }


USUAL: list[Schema] = [
    union(40),
    {"enum": [f"value {number}" for number in range(1000)]},
    {"properties": {f"name_{number}": {"type": "string"} for number in range(100)}},
    {
        "anyOf": [
            {"properties": {f"field_{number}": {} for number in range(first, 30)}}
            for first in range(20)
        ]
    },
    # A value of any kind, by itself, as many libraries write it.
    {
        "anyOf": [
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
            {"type": ["string", "number", "boolean", "null"]},
        ]
    },
    {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}, {}]},
    {
        "anyOf": [
            {"type": "string", "minLength": 2 * number, "maxLength": 2 * number + 1}
            for number in range(60)
        ]
    },
]


@pytest.mark.parametrize("schema", USUAL, ids=range(len(USUAL)))
def test_usual_schemas_are_read_without_doubt(schema: Schema) -> None:
    rules, root = converted(schema)
    assert rules.stacks <= FEW
    assert len(rules.gbnf(root)) <= 96 * 1024


def test_optional_members_beyond_a_block_come_in_each_combination() -> None:
    names = [f"n{number}" for number in range(2 * BLOCK + 5)]
    schema: Schema = {"properties": {name: {"const": 1} for name in names}}
    for wanted in (
        names, [], names[:1], names[-1:], names[1 :: BLOCK // 2],
        [names[BLOCK - 1], names[BLOCK], names[-1]], names[BLOCK:],
    ):  # fmt: skip
        assert permits(schema, dict.fromkeys(wanted, 1)) == [True]
    assert permits(schema, {names[BLOCK]: 1, names[0]: 1}) == [False]
    needed = {**schema, "required": [names[BLOCK + 2]]}
    assert permits(needed, {names[0]: 1, names[BLOCK + 2]: 1, names[-1]: 1}) == [True]
    assert permits(needed, {names[0]: 1, names[-1]: 1}) == [False]


def doubled(levels: int, wide: int) -> Schema:
    """Return a schema whose options are the next level, twice or more, down to one."""
    parts: Schema = {
        str(level): {"anyOf": [{"$ref": f"#/$defs/{level + 1}"}] * wide}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(levels): {"type": "object"}}}


def test_what_is_referred_to_often_is_converted_once() -> None:
    for add in (add_schema, add_object_schema):
        rules = Grammar()
        add(rules, doubled(30, 2), strict=True)
        add(rules, doubled(4, 100), strict=True)
        # Each level for itself would be 2 to the power of 30.
        assert rules.steps < 20_000


def test_equal_options_are_one() -> None:
    items = {"type": "array", "minItems": 1, "items": {"const": 1}}
    rules, _ = converted({"anyOf": [{"type": "array", "items": items}] * 200})
    assert rules.stacks <= FEW


COSTLY: list[Schema] = [
    # Each of many choices has a long list.
    {
        "$defs": {"long": {"enum": list(range(990))}},
        "properties": {
            f"p{number}": {
                "anyOf": [
                    {"$ref": "#/$defs/long"},
                    {"type": "string", "maxLength": number},
                ]
            }
            for number in range(180)
        },
    },
    # Each set of objects has others next to it.
    {
        "anyOf": [
            {
                "properties": {
                    f"k{(place * step) % 97}": {"type": "string"}
                    for place in range(1, 40)
                }
            }
            for step in range(1, 26)
        ]
    },
]


@pytest.mark.parametrize("schema", COSTLY, ids=range(len(COSTLY)))
def test_what_takes_too_long_is_refused(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar, "MAX_STEPS", 400_000)
    with pytest.raises(SchemaError, match="takes too long"):
        add_schema(Grammar(), schema, strict=False)
