"""What llama.cpp would hold at once is counted before it reads a grammar."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from curtilage.inference.errors import SchemaError
from curtilage.inference.grammar import Grammar
from curtilage.inference.schema import add_schema
from curtilage.inference.stacks import MAX_ALIKE, MAX_STACKS, Held, Openings, Stacks
from support.grammar_stacks import Stacks as Read
from support.grammar_walk import Walk
from support.schemas import SCHEMAS

Schema = dict[str, Any]


def held_at_most(schema: Schema, seed: int) -> tuple[int, int]:
    """Return how many stacks a text of a schema needs, and the bound of the schema."""
    grammar = Grammar()
    root = add_schema(grammar, schema, strict=True)
    text = Walk(grammar).text(root, seed)
    return max(Read(grammar, root).counts(text)), grammar.stacks


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.integers(0, 2**32))
def test_no_text_needs_more_stacks_than_its_schema_says(
    schema: Schema, seed: int
) -> None:
    try:
        needed, bound = held_at_most(schema, seed)
    except SchemaError:
        assume(False)
    assert needed <= bound <= MAX_STACKS


def shortened(schema: Schema) -> str:
    return str(schema)[:60]


def of(**properties: Schema) -> Schema:
    return {"properties": properties, "required": [*properties]}


LEAVES: list[Schema] = [
    {},
    {"type": "object"},
    {"type": "string"},
    {"type": "string", "minLength": 1, "maxLength": 3},
    *({"type": "string", "format": name} for name in ("date", "time", "date-time")),
    *({"type": "string", "format": name} for name in ("ipv4", "uuid")),
    {"type": "integer"},
    {"type": "number"},
    *(
        {"type": kind, "minimum": low, "maximum": high}
        for kind in ("integer", "number")
        for low, high in [(-123456, 98765), (17, 12345), (0, 10**15), (-5, -1), (9, 9)]
    ),
    {"enum": [1, 12, 123, "a", "ab", "ba", None, True, [1], {"a": 1}]},
]
TOGETHER: list[Schema] = [
    # Some that begin alike, and differ later.
    {"anyOf": [of(a=first, b=each) for each in LEAVES[2:8]]}
    for first in ({"type": "string"}, {"type": "array", "items": {"type": "integer"}})
] + [
    {"anyOf": [of(a=each, b={"const": 1}) for each in LEAVES[2:]]},
    {"anyOf": [{"type": "array", "items": of(a=each)} for each in LEAVES[2:8]]},
    {"anyOf": [{"additionalProperties": each} for each in LEAVES[2:9]]},
    {"anyOf": [of(a={}), {"additionalProperties": {"type": "integer"}}]},
    {"anyOf": [of(a={"enum": [1, "x"]}, b={}), of(a={"enum": ["x", "y"]})]},
    {"properties": {f"name {number}": {} for number in range(150)}},
]


@pytest.mark.parametrize("schema", LEAVES + TOGETHER, ids=shortened)
def test_what_is_held_within_each_kind_is_as_said(schema: Schema) -> None:
    for seed in range(12):
        needed, bound = held_at_most(schema, seed)
        assert needed <= bound


def nested(levels: int, options: list[Schema]) -> Schema:
    """Return arrays in arrays: each level has these options, of the next one."""
    parts = {
        str(level): {
            "anyOf": [
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"anyOf": [{"$ref": f"#/$defs/{level + 1}"}, option]},
                }
                for option in options
            ]
        }
        for level in range(levels)
    }
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(levels): {"const": 1}}}


def constants(count: int) -> list[Schema]:
    return [{"const": f"value {number}"} for number in range(count)]


MANY: list[Schema] = [
    nested(4, constants(16)),
    nested(2, constants(9)),
    {"anyOf": [{"type": "array", "items": each} for each in constants(MAX_ALIKE + 1)]},
    # Without end: each level is within the one before.
    {
        "anyOf": [
            {"type": "array", "items": {"anyOf": [{"$ref": "#"}, each]}}
            for each in constants(2)
        ]
    },
    # Each level waits for all of a long list, in each of its arrays.
    {
        "$defs": {"long": {"enum": [chr(0x4E00 + number) for number in range(900)]}},
        "anyOf": [
            {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/long"}, each]}}
            for each in constants(2)
        ],
    },
]


@pytest.mark.parametrize("schema", MANY, ids=range(len(MANY)))
def test_too_many_alternatives_that_begin_alike_are_refused(schema: Schema) -> None:
    with pytest.raises(SchemaError, match="begin alike") as refused:
        add_schema(Grammar(), schema, strict=False)
    assert "value" not in str(refused.value)


def test_as_many_as_are_permitted_are_accepted() -> None:
    for schema in (
        nested(2, constants(8)),
        {"anyOf": [{"type": "array", "items": each} for each in constants(MAX_ALIKE)]},
        nested(12, constants(1)),
    ):
        needed, bound = held_at_most(schema, 1)
        assert needed <= bound <= MAX_STACKS


# The sums.


def stacks() -> Stacks:
    return Stacks(lambda _steps: None)


def test_what_is_held_together_is_added_and_else_the_most_counts() -> None:
    known = stacks()
    known.say("root", ["a", "a", Held(1, 1)], ["b"])
    known.say("a", [Held(2, 5)], [Held(3, 1)])
    known.say("b", [Held(6, 10)])
    assert known.most("root") == Held(7, 11)


def test_a_part_within_itself_is_no_more_than_it_is_unless_it_is_added() -> None:
    known = stacks()
    known.say("root", ["a"])
    known.say("a", [Held(1, 3)], ["root"], ["b"])
    known.say("b", ["a"])
    assert known.most("root") == Held(1, 3)
    known.say("b", ["a", Held(1, 1)])
    with pytest.raises(SchemaError, match="begin alike"):
        known.most("root")


@pytest.mark.parametrize("held", [Held(MAX_ALIKE + 1, 1), Held(1, MAX_STACKS + 1)])
def test_both_numbers_are_bounded(held: Held) -> None:
    known = stacks()
    known.say("root", [held])
    with pytest.raises(SchemaError):
        known.most("root")


def test_the_sums_are_work_too() -> None:
    counted: list[int] = []
    known = Stacks(counted.append)
    known.say("root", [Held(1, 1)] * 50)
    known.most("root")
    assert sum(counted) >= 100


def test_openings_are_told_apart_by_their_first_character() -> None:
    one, other = Openings(), Openings()
    one.add("[", "a")
    other.add("[", "b")
    other.add("{", "c")
    one.take(other)
    assert one.groups == [("a", "b"), ("c",)]
