"""What the demonstration takes for JSON of its schema."""

import pytest

from curtilage_dev.together import Together


def found(answer: str) -> bool:
    return Together(alone_s=(), both_s=0, sent=0, answer=answer).as_expected


def test_an_object_of_the_schema_is_expected() -> None:
    assert found('{"device": "printer", "floor": 3, "urgent": false}')


@pytest.mark.parametrize(
    "answer", ["", "printer", "[]", '{"device": "printer"}', '{"device": "pr']
)
def test_anything_else_is_not(answer: str) -> None:
    assert not found(answer)
