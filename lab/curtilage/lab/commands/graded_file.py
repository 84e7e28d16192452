"""Graded questions: a file of JSON lines, read strictly."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from curtilage.cli.json_lines import object_of
from curtilage.cli.terminal import plural
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.routing.estimate import Intent
from curtilage.client.system.files import open_ordinary

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_ROWS: Final = 200_000
_NEEDED: Final = frozenset({"text", "weak", "strong"})
_ANSWERS: Final = ("weak_answer", "strong_answer")
_KNOWN: Final = _NEEDED | {"intent", "score", *_ANSWERS}
_EXPECTED: Final = (
    "text, weak and strong (0 to 1), and at most intent, score and the answers"
)

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedRow:
    """One graded question.

    Attributes:
        text: the question.
        weak: how good the local model's answer was, 0 to 1.
        strong: how good the strong tier's answer was, likewise.
        intent: the kind of request, if it was labelled.
        score: how easy the question is, if another estimator scored it.
    """

    text: str = field(repr=False)
    weak: float
    strong: float
    intent: Intent | None = None
    score: float | None = None


def rows_in(
    path: Path, row_of: Callable[[dict[str, object]], Row | None], expected: str
) -> Iterator[tuple[int, Row]]:
    """Yield the number and the row of every line that is not blank.

    Args:
        path: a file of JSON lines.
        row_of: parses a line's object; None: it is invalid.
        expected: a description of a valid line, for people.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: a line is not a JSON object, has a key twice, or is invalid. The
            message has the line's number and never its text.
    """
    try:
        with open_ordinary(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                if number > MAX_ROWS or len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{path}, line {number}: longer than the limit")
                value = object_of(line)
                if value is None:
                    raise UsageError(
                        f"{path}, line {number}: not a JSON object, or a repeated key"
                    )
                row = row_of(value)
                if row is None:
                    raise UsageError(f"{path}, line {number}: expected {expected}")
                yield number, row
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None


def pair_line(text: str, *, weak: float, strong: float) -> bytes:
    """Return a graded line for a question that both sides answered."""
    return _line({"text": text, "weak": weak, "strong": strong})


def open_line(text: str, *, weak_answer: str, strong_answer: str) -> bytes:
    """Return a line with both answers, for a person to grade."""
    return _line(
        {
            "text": text,
            "weak": None,
            "strong": None,
            "weak_answer": weak_answer,
            "strong_answer": strong_answer,
        }
    )


def _line(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def read_graded(
    path: Path, notify: Callable[[str], None] = lambda _: None
) -> tuple[GradedRow, ...]:
    """Read graded questions, without duplicates.

    Equal questions become one, with the mean of their grades: a fit that has seen one
    of them has seen them all, and the bounds assume independent questions.

    Args:
        path: the file.
        notify: receives a notice about repeated questions.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: as ``rows_in``; or a line has no grades yet, or only some lines have
            a score.
    """
    rows: list[GradedRow] = []
    read: Iterator[tuple[int, GradedRow | _Ungraded]]
    read = rows_in(path, _row_of, _EXPECTED)
    for number, row in read:
        if isinstance(row, _Ungraded):
            raise UsageError(f"{path}, line {number}: not graded yet")
        rows.append(row)
    if len({row.score is None for row in rows}) > 1:
        raise UsageError(f"{path}: some lines have a score, and others have none")
    found: dict[str, list[GradedRow]] = {}
    for row in rows:
        found.setdefault(same_question(row.text), []).append(row)
    if len(found) < len(rows):
        notify(
            f"{path}: {len(rows)} lines have {len(found)} different "
            f"{plural(len(found), 'question')}; equal ones count as one, with the mean "
            "of their grades"
        )
    return tuple(map(_joined, found.values()))


def same_question(text: str) -> str:
    """Return a key that equal questions share: it ignores whitespace and case."""
    return " ".join(text.split()).casefold()


def _joined(rows: Sequence[GradedRow]) -> GradedRow:
    scores = [row.score for row in rows if row.score is not None]
    return replace(
        rows[0],
        weak=fmean(row.weak for row in rows),
        strong=fmean(row.strong for row in rows),
        score=fmean(scores) if scores else None,
    )


@dataclass(frozen=True, slots=True)
class _Ungraded:
    """A line with a grade that is still null."""


def _row_of(value: dict[str, object]) -> GradedRow | _Ungraded | None:
    text, intent, score = (value.get(each) for each in ("text", "intent", "score"))
    grades = [_number(value.get(each)) for each in ("weak", "strong")]
    weak, strong = (
        each if each is not None and 0 <= each <= 1 else None for each in grades
    )
    if (
        not value.keys() <= _KNOWN
        or not isinstance(text, str)
        or not all(isinstance(value.get(each, ""), str) for each in _ANSWERS)
    ):
        return None
    if value.keys() >= _NEEDED and None in (value["weak"], value["strong"]):
        return _Ungraded()
    if (
        weak is None
        or strong is None
        or not (intent is None or intent in tuple(Intent))
        or not (score is None or _number(score) is not None)
    ):
        return None
    return GradedRow(
        text=text,
        weak=weak,
        strong=strong,
        intent=None if intent is None else Intent(str(intent)),
        score=None if score is None else _number(score),
    )


def _number(value: object) -> float | None:
    """Return a grade, given as a number or as true or false."""
    if not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)
