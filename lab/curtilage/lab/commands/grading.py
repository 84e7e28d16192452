"""Grades answers against what is expected, and compares two sides on the same tasks."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from typing import Final, cast

from curtilage.client.errors import UsageError
from curtilage.client.routing.bounds import lower_bound, upper_bound
from curtilage.lab.commands.graded_file import Row, rows_in

KINDS: Final = ("equals", "contains", "regex", "json", "choice")
MAX_ANSWER_CHARS: Final = 8000  # only this much of an answer is examined
LEVEL: Final = 0.05
_EDGES: Final = " \t\r\n.!\"'`*"
_LETTER: Final = re.compile(r"(?<![A-Za-z0-9])\(?([A-J])\)?(?![A-Za-z0-9'])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected answer.

    Attributes:
        kind: ``equals`` (ignoring case, surrounding whitespace and a full stop),
            ``contains`` (ignoring case), ``regex`` (a match anywhere), ``json`` (an
            object in the answer has these fields), ``choice`` (the last letter that is
            a word of its own).
        value: a text, or the fields.
    """

    kind: str
    value: str | Mapping[str, object] = field(repr=False)

    def met_by(self, answer: str) -> bool:
        """Return whether an answer is correct."""
        answer = answer[:MAX_ANSWER_CHARS]
        if not isinstance(self.value, str):
            return any(self.value.items() <= each.items() for each in _objects(answer))
        match self.kind:
            case "equals":
                return _plain(answer) == _plain(self.value)
            case "contains":
                return self.value.casefold() in answer.casefold()
            case "choice":
                letters = _LETTER.findall(answer)
                return bool(letters) and letters[-1] == self.value
            case _:
                return re.search(self.value, answer) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of a file.

    Attributes:
        text: the question itself.
        task: the kind of work, as the file names it.
        expected: what the answer must be.
    """

    text: str = field(repr=False)
    task: str
    expected: Expected = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two sides compared on the same questions.

    Attributes:
        task: the kind of work.
        count: questions that both answered.
        a: how many A answered correctly.
        b: how many B answered correctly.
        difference: B minus A, as a share of the questions.
        low: lower end of the 95 % confidence interval.
        high: upper end of the interval.
        p_value: of McNemar's exact test: the probability of such a difference, or a
            larger one, if both are equally good.
    """

    task: str
    count: int
    a: int
    b: int
    difference: float
    low: float
    high: float
    p_value: float


def read_questions(path: Path) -> tuple[Question, ...]:
    """Read questions.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: as ``rows_in``; or there is no question.
    """
    expected = f"text, expect (one of {', '.join(KINDS)}), and at most task"
    return _some(path, _question_of, expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that a person may have to grade.

    Attributes:
        text: the question itself.
        task: the kind of work, as the file names it.
        expected: what the answer must be; None: a person will grade it.
    """

    text: str = field(repr=False)
    task: str
    expected: Expected | None = field(repr=False)


def read_asked(path: Path) -> tuple[Asked, ...]:
    """Read questions, some of which have an expected answer.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: as ``rows_in``; or there is no question.
    """
    expected = f"text, and at most task and expect (one of {', '.join(KINDS)})"
    return _some(path, _asked_of, expected)


def _some(
    path: Path, row_of: Callable[[dict[str, object]], Row | None], expected: str
) -> tuple[Row, ...]:
    rows = tuple(row for _, row in rows_in(path, row_of, expected))
    if not rows:
        raise UsageError(f"{path}: holds no question")
    return rows


def _asked_of(value: Mapping[str, object]) -> Asked | None:
    text, wanted = value.get("text"), value.get("expect")
    task = value.get("task", "all")
    expected = None if wanted is None else _expected_of(wanted)
    if (
        not value.keys() <= {"text", "task", "expect"}
        or not isinstance(text, str)
        or not isinstance(task, str)
        or (expected is None and wanted is not None)
    ):
        return None
    return Asked(text=text, task=task, expected=expected)


def _question_of(value: Mapping[str, object]) -> Question | None:
    asked = _asked_of(value)
    if asked is None or asked.expected is None:
        return None
    return Question(text=asked.text, task=asked.task, expected=asked.expected)


def _expected_of(value: object) -> Expected | None:
    said = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    kind, what = next(iter(said.items()), ("", None))
    if len(said) != 1 or kind not in KINDS:
        return None
    if kind == "json":
        fields = cast("dict[str, object]", what) if isinstance(what, dict) else None
        return None if fields is None else Expected(kind=kind, value=fields)
    if not isinstance(what, str) or (
        kind == "choice" and not _LETTER.fullmatch(what)
    ):  # fmt: skip
        return None
    if kind == "regex":
        try:
            re.compile(what)
        except re.error:
            return None
    return Expected(kind=kind, value=what)


def _plain(text: str) -> str:
    return " ".join(text.strip(_EDGES).casefold().split())


def _objects(text: str) -> list[dict[str, object]]:
    """Return the outermost JSON objects that begin anywhere in a text."""
    found: list[dict[str, object]] = []
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            found.append(cast("dict[str, object]", value))
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found


def compared(task: str, pairs: Sequence[tuple[bool, bool]]) -> Paired:
    """Compare two sides; each pair says whether A and B were correct.

    The interval is exact and slightly wide. It combines the interval for questions that
    only A answered correctly with the one for B, each with half of the error. So it
    never collapses to a point, however few the questions, and needs no bootstrap.
    """
    count = len(pairs)
    only_a = sum(a and not b for a, b in pairs)
    only_b = sum(b and not a for a, b in pairs)
    least_a, most_a = _bounds(only_a, count)
    least_b, most_b = _bounds(only_b, count)
    apart = only_a + only_b
    fewer = sum(comb(apart, each) for each in range(min(only_a, only_b) + 1))
    return Paired(
        task=task,
        count=count,
        a=sum(a for a, _ in pairs),
        b=sum(b for _, b in pairs),
        difference=(only_b - only_a) / count if count else 0.0,
        low=least_b - most_a,
        high=most_b - least_a,
        p_value=min(1.0, 2 * fewer / 2**apart),
    )


def _bounds(count: int, of: int) -> tuple[float, float]:
    return lower_bound(count, of, LEVEL / 4), upper_bound(count, of, LEVEL / 4)
