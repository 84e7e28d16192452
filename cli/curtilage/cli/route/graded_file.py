"""Graded questions, as a file has them: lines of JSON, read strictly."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Final

from curtilage.cli.json_lines import object_of
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.files import open_ordinary
from curtilage.client.routing.estimate import Intent

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_ROWS: Final = 200_000
_NEEDED: Final = frozenset({"text", "weak", "strong"})
_KNOWN: Final = _NEEDED | {"intent", "score"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedRow:
    """One graded question.

    Attributes:
        text: the question.
        weak: how good the home model's answer was, 0 to 1.
        strong: how good the strong tier's was, likewise.
        intent: what it asks for, where somebody said so.
        score: how easy it is, where something else than ours says so.
    """

    text: str = field(repr=False)
    weak: float
    strong: float
    intent: Intent | None = None
    score: float | None = None


def objects_in(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the number and the object of every line that is not blank.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: a line, named by its number, is no JSON object or has a key twice.
    """
    try:
        with open_ordinary(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                if number > MAX_ROWS or len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{path}, line {number}: longer than is read")
                value = object_of(line)
                if value is None:
                    raise UsageError(
                        f"{path}, line {number}: no JSON object, or a key twice"
                    )
                yield number, value
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None


def read_graded(path: Path) -> tuple[GradedRow, ...]:
    """Read graded questions.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: a line is wrong; names it by its number, never by its text. Or only
            some lines have a score.
    """
    rows: list[GradedRow] = []
    for number, value in objects_in(path):
        row = _row_of(value)
        if row is None:
            raise UsageError(
                f"{path}, line {number}: expected text, weak and strong (0 to 1), and "
                "at most intent and score"
            )
        rows.append(row)
    if len({row.score is None for row in rows}) > 1:
        raise UsageError(f"{path}: some lines have a score, and others have none")
    return tuple(rows)


def _row_of(value: dict[str, object]) -> GradedRow | None:
    text, intent, score = (value.get(each) for each in ("text", "intent", "score"))
    grades = [_number(value.get(each)) for each in ("weak", "strong")]
    weak, strong = (
        each if each is not None and 0 <= each <= 1 else None for each in grades
    )
    if (
        not value.keys() <= _KNOWN
        or not isinstance(text, str)
        or weak is None
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
    """Return a grade: a number, or true and false."""
    if not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)
