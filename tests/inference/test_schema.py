import json
from datetime import date, datetime, time
from ipaddress import IPv4Address
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from curtilage.inference.errors import SchemaError, SchemaFault
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
    walk = Walk(grammar)
    return [walk.text(root, seed) for seed in range(tries)]


def values(schema: Schema, *, strict: bool = True, tries: int = TRIES) -> list[Any]:
    return [json.loads(text) for text in texts(schema, strict=strict, tries=tries)]


def refusal_of(schema: Schema, *, strict: bool = True) -> SchemaError:
    with pytest.raises(SchemaError) as refusal:
        converted(schema, strict=strict)
    assert "canary" not in chain(refusal.value)
    # Another reason would not leave the engine's process.
    assert isinstance(refusal.value.reason, SchemaFault)
    return refusal.value


@settings(deadline=None)
@given(SCHEMAS, st.integers(0, 2**32))
def test_what_the_grammar_permits_is_valid(schema: Schema, seed: int) -> None:
    try:
        grammar, root = converted(schema)
    except SchemaError as error:
        event(error.reason)
        assume(False)
    value = json.loads(Walk(grammar).text(root, seed))
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
    value = json.loads(Walk(grammar).text(root, seed))
    assert is_valid(value, schema)
    assert isinstance(value, dict)


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
    kinds: set[type] = {type(value) for value in values({}, tries=200)}
    assert kinds == {str, int, float, bool, dict, list, type(None)}
    assert all(isinstance(value, dict) for value in values({"type": "object"}))
    lengths = {len(value) for value in values({"type": "object"}, tries=50)}
    assert len(lengths) > 1


OF_ONE_TYPE: list[tuple[str, str, object]] = [
    ("string", "pattern", "canary"),
    ("string", "format", "canary"),
    ("string", "format", ["date"]),
    ("integer", "format", "date"),
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
NOT_ENFORCED: list[tuple[Schema, str, str]] = [
    *(
        ({"properties": {"canary": {"type": kind, word: value}}}, word, FIRST)
        for kind, word, value in OF_ONE_TYPE
    ),
    ({"items": {"oneOf": [{"const": 1}, {"const": 2}]}}, "oneOf", "items"),
    ({"anyOf": [{}, {"allOf": [{}, {}]}]}, "allOf", "anyOf[1]"),
    ({"anyOf": [{"const": 1}], "type": "object"}, "type", ""),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}, "not", "$defs.[0]"),
    ({"enum": [1], "minimum": 3}, "minimum", ""),
    ({"type": ["integer", "null"], "format": "date"}, "format", ""),
    ({"type": "string", "format": "date", "maxLength": 9}, "maxLength", ""),
    ({"canary": 1}, "", ""),
]


@pytest.mark.parametrize(("schema", "keyword", "where"), NOT_ENFORCED, ids=str)
def test_what_is_not_enforced_is_refused_if_strict(
    schema: Schema,
    keyword: str,
    where: str,
) -> None:
    error = refusal_of(schema)
    assert (error.keyword, error.where) == (keyword, where)
    assert texts(schema, strict=False)


MALFORMED: list[tuple[Schema, str]] = [
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
    (
        {
            "$ref": "#/$defs/0",
            "$defs": {
                str(each): {"$ref": f"#/$defs/{each + 1}"} for each in range(500)
            },
        },
        "",
    ),
    ({"anyOf": [{"type": "string", "maxLength": 2000}] * 11}, ""),
]


def shortened(value: object) -> str:
    return str(value)[:60]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("schema", "keyword"), MALFORMED, ids=shortened)
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


def test_repetitions_are_bounded_over_all_schemas_of_a_grammar() -> None:
    grammar = Grammar()
    for _ in range(10):
        add_schema(grammar, {"type": "string", "maxLength": 2000}, strict=True)
    with pytest.raises(SchemaError):
        add_schema(grammar, {"type": "array", "minItems": 1}, strict=True)


def of_format(name: str) -> list[str]:
    return values({"type": "string", "format": name}, tries=300)


def test_dates_and_times_exist() -> None:
    for text in of_format("date"):
        assert date.fromisoformat(text).isoformat() == text
    for text in of_format("time"):
        assert time.fromisoformat(text).tzinfo is not None
    for text in of_format("date-time"):
        assert datetime.fromisoformat(text).tzinfo is not None


def test_a_leap_day_is_in_a_leap_year() -> None:
    days = [text for text in of_format("date") if text.endswith("-02-29")]
    assert days
    assert {text[2:4] == "00" for text in days} == {True, False}


def test_addresses_and_identifiers_are_read() -> None:
    for text in of_format("ipv4"):
        assert str(IPv4Address(text)) == text
    for text in of_format("uuid"):
        assert str(UUID(text)) == text.lower()


def test_a_format_restricts_texts_alone() -> None:
    found = values({"type": ["string", "null"], "format": "date"}, tries=20)
    assert None in found
    for value in found:
        assert value is None or date.fromisoformat(value).isoformat() == value


def test_the_default_of_a_keyword_is_accepted() -> None:
    assert values({"type": "array", "uniqueItems": False})
