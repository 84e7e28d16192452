"""Graded questions: read strictly, and none of their text is ever printed."""

import json
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.routing.estimate import Intent
from curtilage.lab.commands.graded_file import GradedRow, read_graded

CANARY = "canary-17c2"


def written(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "graded.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), "utf-8")
    return path


def test_a_row_is_a_text_and_two_grades(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"text": "a", "weak": 1, "strong": True},
        {"text": "b", "weak": 0.25, "strong": False, "intent": "code"},
    )
    assert read_graded(path) == (
        GradedRow(text="a", weak=1.0, strong=1.0),
        GradedRow(text="b", weak=0.25, strong=0.0, intent=Intent.CODE),
    )


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "graded.jsonl"
    path.write_bytes(b'\n{"text": "a", "weak": 0, "strong": 1}\n \n')
    assert len(read_graded(path)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"text": 1},
        {"weak": 1.5},
        {"weak": "1"},
        {"strong": -0.1},
        {"strong": None},
        {"intent": "poetry"},
        {"score": "high"},
        {"score": float("nan")},
        {"note": "what is this"},
    ],
    ids=str,
)
def test_what_is_no_row_is_named_by_its_line(
    change: dict[str, object], tmp_path: Path
) -> None:
    good = {"text": CANARY, "weak": 1, "strong": 1}
    path = written(tmp_path, good, good | change)
    with pytest.raises(UsageError, match="line 2") as refused:
        read_graded(path)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"text": "a", "weak": 0, "weak": 1, "strong": 1}',
    ],
)
def test_what_is_no_object_is_named_by_its_line(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "graded.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(UsageError, match="line 1: not a JSON"):
        read_graded(path)


def test_a_line_beyond_the_bound_is_not_read(tmp_path: Path) -> None:
    row = {"text": "a" * 2**20, "weak": 1, "strong": 1}
    with pytest.raises(UsageError, match="line 1: longer"):
        read_graded(written(tmp_path, row))


def test_scores_are_there_for_all_or_none(tmp_path: Path) -> None:
    row = {"text": "a", "weak": 1, "strong": 1}
    with pytest.raises(UsageError, match="lines have a score"):
        read_graded(written(tmp_path, row, row | {"score": 1}))


def test_a_file_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_graded(tmp_path / "graded.jsonl")
