"""What the demonstration takes for JSON of its schema."""

import pytest

from curtilage_dev.together import SCHEMA, SIDES, TYPES, Together

RIGHT = '{"item": "printer", "floor": 3, "urgent": false}'


def found(**answers: str) -> bool:
    return Together(alone_s=(), both_s=0, sent=0, answers=answers).as_expected


def test_an_object_of_the_schema_is_expected_of_each_side() -> None:
    assert found(local=RIGHT, enclave=RIGHT)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "printer",
        "[]",
        '{"item": "printer"}',
        '{"item": "pr',
        RIGHT.replace('"printer"', "3"),
        RIGHT.replace("3", '"3"'),
        RIGHT.replace("3", "3.5"),
        RIGHT.replace("3", "true"),
        RIGHT.replace("false", "0"),
        RIGHT.replace("false", "null"),
        RIGHT.replace("}", ', "more": 1}'),
    ],
)
@pytest.mark.parametrize("side", SIDES)
def test_anything_else_of_either_is_not(side: str, answer: str) -> None:
    assert not found(**{**dict.fromkeys(SIDES, RIGHT), side: answer})


def test_one_side_is_not_enough() -> None:
    assert not found(local=RIGHT)


def test_the_types_are_those_of_the_schema() -> None:
    words = {str: "string", int: "integer", bool: "boolean"}
    assert {name: words[each] for name, each in TYPES.items()} == {
        name: each["type"] for name, each in SCHEMA["properties"].items()
    }
    assert sorted(SCHEMA["required"]) == sorted(TYPES)
