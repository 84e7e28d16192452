"""What counts as a right answer, and how two sides are compared."""

import json
from pathlib import Path
from typing import cast

import pytest

from curtilage.client.errors import UsageError
from curtilage.lab.commands.grading import (
    KINDS,
    Expected,
    compared,
    read_questions,
)


@pytest.mark.parametrize(
    ("kind", "value", "answer", "right"),
    [
        ("equals", "spam", " Spam.\n", True),
        ("equals", "spam", "It is spam", False),
        ("equals", "two words", "Two  words", True),
        ("contains", "56", "7 * 8 = 56.", True),
        ("contains", "Paris", "it is paris", True),
        ("contains", "56", "65", False),
        ("regex", r"2026-\d\d", "On 2026-07.", True),
        ("regex", r"^yes$", "no", False),
        ("choice", "B", "The answer is (B).", True),
        ("choice", "B", "A is wrong, so it is B", True),
        ("choice", "B", "Because of A", False),
        ("choice", "B", "", False),
        ("json", {"name": "A. Weber"}, '{"name": "A. Weber", "age": 3}', True),
        ("json", {"name": "A"}, 'Here: ```json\n{"name": "A"}\n```', True),
        ("json", {"name": "A"}, '{"name": "B"}', False),
        ("json", {"name": "A"}, '{"name": "A"', False),
        ("json", {"a": 1}, "{} {broken {} {" + '"a": 1}', True),
    ],
)
def test_what_is_right(kind: str, value: object, answer: str, right: bool) -> None:
    expected = cast("str | dict[str, object]", value)
    assert Expected(kind=kind, value=expected).met_by(answer) is right


def test_of_a_long_answer_the_beginning_counts() -> None:
    assert not Expected(kind="contains", value="end").met_by("a" * 8000 + "end")


def test_what_is_expected_is_not_shown() -> None:
    assert "Weber" not in repr(Expected(kind="equals", value="Weber"))


def written(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), "utf-8")
    return path


def test_questions_are_read(tmp_path: Path) -> None:
    values = dict.fromkeys(KINDS, "B") | {"json": {"a": 1}}
    lines = [
        {"text": "?", "task": kind, "expect": {kind: value}}
        for kind, value in values.items()
    ]
    read = read_questions(
        written(tmp_path, *lines, {"text": "?", "expect": {"equals": ""}})
    )
    assert [each.expected.kind for each in read[:-1]] == list(KINDS)
    assert read[-1].task == "all"


@pytest.mark.parametrize(
    "line",
    [
        {"text": "?"},
        {"expect": {"equals": "a"}},
        {"text": "?", "expect": {}},
        {"text": "?", "expect": {"equals": "a", "contains": "b"}},
        {"text": "?", "expect": {"likes": "a"}},
        {"text": "?", "expect": {"regex": "("}},
        {"text": "?", "expect": {"choice": "yes"}},
        {"text": "?", "expect": {"json": "a"}},
        {"text": "?", "expect": {"equals": 4}},
        {"text": "?", "expect": "a"},
        {"text": "?", "expect": {"equals": "a"}, "task": 3},
        {"text": "?", "expect": {"equals": "a"}, "system": "b"},
    ],
    ids=str,
)
def test_what_is_no_question_is_named(line: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 1"):
        read_questions(written(tmp_path, line))


def test_an_empty_file_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no question"):
        read_questions(written(tmp_path))


def test_the_difference_is_that_of_the_pairs() -> None:
    pairs = [(True, True)] * 60 + [(True, False)] * 10 + [(False, True)] * 30
    found = compared("sums", pairs)
    assert (found.a, found.b, found.count) == (70, 90, 100)
    assert found.difference == pytest.approx(0.2)
    assert found.low < 0.2 < found.high
    # The exact test of 10 against 30: 0.0022215...
    assert found.p_value == pytest.approx(0.002222, rel=1e-3)


def test_few_questions_give_a_wide_interval() -> None:
    found = compared("sums", [(True, True)] * 5)
    assert found.low < -0.5
    assert found.high > 0.5
    assert found.p_value == 1


def test_many_equal_questions_give_a_narrow_interval() -> None:
    found = compared("sums", [(True, True)] * 1000)
    assert -0.01 < found.low < 0 < found.high < 0.01


def test_of_nothing_nothing_is_known() -> None:
    found = compared("sums", [])
    assert (found.low, found.high) == (-1, 1)
