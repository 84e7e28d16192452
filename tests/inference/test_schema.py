import json
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from curtilage.inference.errors import SchemaError
from curtilage.inference.grammar import Grammar, Rule
from curtilage.inference.schema import (
    MAX_ENUM_VALUES,
    MAX_PROPERTIES,
    MAX_SCHEMAS,
    add_object_schema,
    add_schema,
)
from support.chains import chain
from support.examples import examples
from support.grammar_walk import Walk
from support.json_schema import is_valid
from support.schemas import SCHEMAS

TRIES = 12
FIRST = "properties[0]"
LISTED = {"$ref": "#/$defs/a"}
Schema = dict[str, Any]


def converted(schema: Schema, *, strict: bool = True) -> tuple[Grammar, Rule]:
    grammar = Grammar()
    return grammar, add_schema(grammar, schema, strict=strict)


def texts(schema: Schema, *, strict: bool = True, tries: int = TRIES) -> list[str]:
    grammar, root = converted(schema, strict=strict)
    return [Walk(grammar, seed).text(root) for seed in range(tries)]


def values(schema: Schema, *, strict: bool = True, tries: int = TRIES) -> list[Any]:
    return [json.loads(text) for text in texts(schema, strict=strict, tries=tries)]


def refusal_of(schema: Schema, *, strict: bool = True) -> SchemaError:
    with pytest.raises(SchemaError) as refusal:
        converted(schema, strict=strict)
    assert "canary" not in chain(refusal.value)
    return refusal.value


@settings(deadline=None)
@given(SCHEMAS, st.integers(0, 2**32))
def test_what_the_grammar_permits_is_valid(schema: Schema, seed: int) -> None:
    try:
        grammar, root = converted(schema)
    except SchemaError as error:
        event(error.reason)
        assume(False)
    value = json.loads(Walk(grammar, seed).text(root))
    assert is_valid(value, schema), (value, schema)


@settings(deadline=None)
@given(SCHEMAS, st.integers(0, 2**32))
def test_of_an_object_schema_only_objects_are_left(schema: Schema, seed: int) -> None:
    grammar = Grammar()
    try:
        root = add_object_schema(grammar, schema, strict=True)
    except SchemaError as error:
        event(error.reason)
        assume(False)
    value = json.loads(Walk(grammar, seed).text(root))
    assert isinstance(value, dict)
    assert is_valid(value, schema)


@examples(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {}}, {"{}"}),
        ({"properties": {"a": {"const": 1}}, "required": ["a"]}, {'{"a":1}'}),
        ({"const": {"é": [1, None, True]}}, {'{"é":[1,null,true]}'}),
        ({"enum": ["a", 1, None], "type": ["string", "null"]}, {'"a"', "null"}),
        ({"enum": [1, 1.0, 1.5, True], "type": "integer"}, {"1", "1.0"}),
        ({"type": "array", "items": False}, {"[]"}),
        ({"type": "array", "maxItems": 0}, {"[]"}),
        ({"properties": {"a": False, "b": {"const": 1}}}, {"{}", '{"b":1}'}),
        ({"type": "integer", "minimum": 9, "exclusiveMaximum": 12}, {"9", "10", "11"}),
        ({"type": "integer", "minimum": -1.5, "maximum": 1}, {"-1", "0", "1"}),
        ({"type": "integer", "minimum": -12, "exclusiveMaximum": -10}, {"-12", "-11"}),
        ({"type": "number", "minimum": 7, "maximum": 7}, {"7"}),
        ({"oneOf": [{"const": 1}]}, {"1"}),
        ({"allOf": [{"const": 1}]}, {"1"}),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"anyOf": [{"const": 1}, {"const": 2}]}},
            },
            {"1", "2"},
        ),
        (
            # The endless option is left out, the one that ends stays.
            {
                "$defs": {"a": {"properties": {"b": LISTED}, "required": ["b"]}},
                "anyOf": [LISTED, {"const": 1}],
            },
            {"1"},
        ),
    ],
)
def test_everything_that_small_schemas_permit(
    schema: Schema, expected: set[str]
) -> None:
    found = {
        json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
        for text in texts(schema, tries=60)
    }
    assert found == expected


@pytest.mark.parametrize("low", [-1000, -101, -99, -10, -1, 0, 1, 9, 10, 99])
@pytest.mark.parametrize("high", [-1000, -101, -99, -10, -1, 0, 1, 9, 10, 99, 12345])
def test_numbers_are_within_their_bounds(low: int, high: int) -> None:
    for kind in ("integer", "number"):
        schema = {"type": kind, "minimum": low, "maximum": high}
        if low > high:
            assert refusal_of(schema).keyword == ""
            continue
        found = values(schema)
        assert all(low <= value <= high for value in found)
        assert kind == "number" or all(isinstance(value, int) for value in found)


def test_optional_members_come_in_each_combination() -> None:
    schema = {
        "properties": {name: {"const": 1} for name in "abcd"},
        "required": ["b", "d"],
    }
    found = {tuple(value) for value in values(schema, tries=80)}
    assert found == {
        ("a", "b", "c", "d"),
        ("a", "b", "d"),
        ("b", "c", "d"),
        ("b", "d"),
    }


def test_without_a_schema_any_value_comes() -> None:
    kinds = {type(value) for value in values({}, tries=200)}
    assert kinds == {str, int, float, bool, dict, list, type(None)}
    assert all(isinstance(value, dict) for value in values({"type": "object"}))
    lengths = {len(value) for value in values({"type": "object"}, tries=50)}
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("schema", "keyword", "where"),
    [
        *(
            ({"properties": {"canary": {"type": kind, word: value}}}, word, FIRST)
            for kind, word, value in [
                ("string", "pattern", "canary"),
                ("string", "format", "canary"),
                ("string", "maxLength", 2001),
                ("string", "minLength", 2001),
                ("array", "uniqueItems", True),
                ("array", "contains", {}),
                ("array", "prefixItems", []),
                ("array", "maxItems", 2001),
                ("object", "patternProperties", {}),
                ("object", "minProperties", 1),
                ("object", "propertyNames", {}),
                ("object", "dependentRequired", {}),
                ("number", "multipleOf", 3),
                ("number", "exclusiveMinimum", 3),
                ("number", "exclusiveMaximum", 3),
                ("number", "minimum", 0.5),
                ("number", "maximum", 0.5),
                ("integer", "multipleOf", 3),
                ("integer", "minimum", 10**16),
                ("integer", "maximum", -(10**16)),
                ("null", "not", {}),
                ("null", "if", {}),
            ]
        ),
        ({"items": {"oneOf": [{"const": 1}, {"const": 2}]}}, "oneOf", "items"),
        ({"anyOf": [{}, {"allOf": [{}, {}]}]}, "allOf", "anyOf[1]"),
        ({"anyOf": [{"const": 1}], "type": "object"}, "type", ""),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}, "not", "$defs.[0]"),
        ({"enum": [1], "minimum": 3}, "minimum", ""),
        ({"canary": 1}, "", ""),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_enforced_is_refused_if_strict(
    schema: Schema,
    keyword: str,
    where: str,
) -> None:
    error = refusal_of(schema)
    assert (error.keyword, error.where) == (keyword, where)
    assert texts(schema, strict=False)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "canary"}, "type"),
        ({"type": []}, "type"),
        ({"type": None}, "type"),
        ({"type": [["canary"]]}, "type"),
        ({"properties": []}, "properties"),
        ({"properties": {"canary": "canary"}}, ""),
        ({"required": "canary", "type": "object"}, "required"),
        ({"required": [1], "type": "object"}, "required"),
        ({"required": ["canary", "canary"], "type": "object"}, "required"),
        ({"additionalProperties": 1, "type": "object"}, "additionalProperties"),
        ({"items": [{}], "type": "array"}, ""),
        ({"minItems": -1, "type": "array"}, "minItems"),
        ({"minItems": True, "type": "array"}, "minItems"),
        ({"maxLength": 1.5, "type": "string"}, "maxLength"),
        ({"minimum": "canary", "type": "integer"}, "minimum"),
        ({"minimum": True, "type": "number"}, "minimum"),
        ({"enum": []}, "enum"),
        ({"enum": "canary"}, "enum"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": {}}, "anyOf"),
        ({"$ref": 1}, "$ref"),
        ({"$ref": "canary"}, "$ref"),
        ({"$ref": "https://canary.example/"}, "$ref"),
        ({"$ref": "#/$defs/canary"}, "$ref"),
        ({"$ref": "#/$defs/1", "$defs": [{}]}, "$ref"),
        ({"$ref": "#/title/x", "title": "canary"}, "$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"anyOf": [{"$ref": "#/anyOf/1"}, {"$ref": "#/anyOf/0"}]}, "$ref"),
        ({"anyOf": [{"$ref": "#"}, {"const": "canary"}]}, "$ref"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, ""),
        ({"properties": {"canary": False}, "required": ["canary"]}, ""),
        ({"required": ["canary"], "additionalProperties": False}, ""),
        ({"type": "array", "minItems": 2, "maxItems": 1}, ""),
        ({"type": "string", "minLength": 2, "maxLength": 1}, ""),
        ({"enum": ["canary"], "type": "null"}, ""),
        ({"properties": {str(n): {} for n in range(MAX_PROPERTIES + 1)}}, ""),
        ({"enum": list(range(MAX_ENUM_VALUES + 1))}, ""),
        ({"anyOf": [{}] * MAX_SCHEMAS}, ""),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_malformed_or_permits_nothing_is_refused(
    schema: Schema,
    keyword: str,
    *,
    strict: bool,
) -> None:
    assert refusal_of(schema, strict=strict).keyword == keyword


def test_a_schema_that_is_not_strict_is_enforced_as_far_as_it_can_be() -> None:
    schema = {
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date", "minLength": 4},
            "share": {"type": "number", "maximum": 0.5},
            "either": {"oneOf": [{"const": 1}, {"const": 2}]},
        },
        "required": ["when", "share", "either"],
        "x-canary": True,
    }
    for value in values(schema, strict=False):
        assert isinstance(value["when"], str)
        assert len(value["when"]) >= 4
        assert isinstance(value["share"], int | float)
        assert value["either"] in {1, 2}


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "string"}, "type"),
        ({"const": 1}, "type"),
        ({"anyOf": [{"type": "array"}, {"enum": ["{"]}]}, "type"),
    ],
    ids=str,
)
def test_arguments_must_be_an_object(schema: Schema, keyword: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        add_object_schema(Grammar(), schema, strict=False)
    assert refusal.value.keyword == keyword
