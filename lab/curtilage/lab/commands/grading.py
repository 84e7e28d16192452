"""Whether an answer is what was expected, and how two sides do on the same tasks."""

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
MAX_ANSWER_CHARS: Final = 8000  # of an answer, so much is looked at
LEVEL: Final = 0.05
_EDGES: Final = " \t\r\n.!\"'`*"
_LETTER: Final = re.compile(r"(?<![A-Za-z0-9])\(?([A-J])\)?(?![A-Za-z0-9'])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an answer must be.

    Attributes:
        kind: ``equals`` (case, blanks and a full stop aside), ``contains`` (case
            aside), ``regex`` (found somewhere), ``json`` (an object in the answer has
            these fields), ``choice`` (the last letter that stands alone).
        value: a text, or the fields.
    """

    kind: str
    value: str | Mapping[str, object] = field(repr=False)

    def met_by(self, answer: str) -> bool:
        """Tell whether an answer is right."""
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
        text: what is asked.
        task: what kind of work it is, in the file's words.
        expected: what the answer must be.
    """

    text: str = field(repr=False)
    task: str
    expected: Expected = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two sides on the same questions.

    Attributes:
        task: which.
        count: questions that both answered.
        a: how many of them A had right.
        b: how many B.
        difference: B less A, as a share of the questions.
        low: it lies between this
        high: and this, with 95 % confidence.
        p_value: of McNemar's exact test: such a difference, or a larger one, comes by
            chance so often where both are equally good.
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
    """A question that may be graded by a person.

    Attributes:
        text: what is asked.
        task: what kind of work it is, in the file's words.
        expected: what the answer must be; None: somebody will say how good it is.
    """

    text: str = field(repr=False)
    task: str
    expected: Expected | None = field(repr=False)


def read_asked(path: Path) -> tuple[Asked, ...]:
    """Read questions, of which some say what their answer must be.

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
    """Return the JSON objects that begin somewhere in a text, outermost ones."""
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
    """Compare two sides, of which each pair says whether A and B were right.

    The interval is exact and a little wide: that of what only A, and that of what only
    B had right, each with half of the doubt. So it is never a point, however few the
    questions, and no luck of a bootstrap is in it.
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
