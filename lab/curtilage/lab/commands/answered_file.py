"""Graded answers of one local model: a file of JSON lines, read strictly.

The files contain questions and answers. The commands write one only if the user asks
for it, and no other part of this program reads one.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Final, cast

from curtilage.client.chat.answer import Delta, TokenSignal
from curtilage.client.errors import UsageError
from curtilage.lab.commands.begun_file import Begun, begun
from curtilage.lab.commands.graded_file import rows_in

_KEYS: Final = ["finish", "grade", "model", "text", "tokens"]
EXPECTED: Final = "a line that `curtilage route answer` wrote, with a grade from 0 to 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredBy:
    """The model that answered.

    Attributes:
        model_sha256: of its file, hex.
        template_sha256: of its chat template, hex.
        quantisation: as in the file's metadata; empty if it is not given.
    """

    model_sha256: str
    template_sha256: str
    quantisation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRow:
    """One answer.

    Attributes:
        text: the question.
        deltas: the answer, token by token, with how sure the model was.
        finish: how it ended.
        grade: how good it is, 0 to 1; None: not graded yet.
        model: the model that answered.
    """

    text: str = field(repr=False)
    deltas: tuple[Delta, ...] = field(repr=False)
    finish: str
    grade: float | None
    model: AnsweredBy


def line_of(row: AnsweredRow) -> bytes:
    """Return a row as a line of JSON."""
    fields = {
        "text": row.text,
        "tokens": [
            [each.text, *(part for s in each.signals for part in (s.logprob, s.margin))]
            for each in row.deltas
        ],
        "finish": row.finish,
        "grade": row.grade,
        "model": asdict(row.model),
    }
    return json.dumps(fields).encode() + b"\n"


def begun_answers(
    wanted: Path, by: AnsweredBy, settings: Mapping[str, float]
) -> AbstractContextManager[Begun[AnsweredRow]]:
    """Open the answers of an interrupted run, keyed by question; see ``begun``.

    Args:
        wanted: the file that the run writes at the end.
        by: the model that answers.
        settings: the generation settings.
    """
    return begun(wanted, {**asdict(by), **settings}, _row_of, lambda row: row.text)


def read_answered(path: Path) -> tuple[AnsweredRow, ...]:
    """Read graded answers.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: as ``rows_in``; or a line has no grade yet, or its model differs
            from that of the first line.
    """
    rows: list[AnsweredRow] = []
    for number, row in rows_in(path, _row_of, EXPECTED):
        if row.grade is None:
            raise UsageError(f"{path}, line {number}: not graded yet")
        if rows and row.model != rows[0].model:
            raise UsageError(f"{path}, line {number}: another model answered")
        rows.append(row)
    return tuple(rows)


def _row_of(value: Mapping[str, object]) -> AnsweredRow | None:
    text, finish, grade = (value.get(each) for each in ("text", "finish", "grade"))
    deltas, model = _deltas_of(value.get("tokens")), _model_of(value.get("model"))
    graded = _number_of(grade)
    if (
        sorted(value) != _KEYS
        or not isinstance(text, str)
        or finish not in {"stop", "length"}
        or not (grade is None or (graded is not None and 0 <= graded <= 1))
        or deltas is None
        or model is None
    ):
        return None
    return AnsweredRow(
        text=text, deltas=deltas, finish=str(finish), grade=graded, model=model
    )


def _deltas_of(value: object) -> tuple[Delta, ...] | None:
    if not isinstance(value, list):
        return None
    deltas = [_delta_of(each) for each in cast("list[object]", value)]
    there = [each for each in deltas if each is not None]
    return tuple(there) if len(there) == len(deltas) else None


def _delta_of(value: object) -> Delta | None:
    parts = cast("list[object]", value) if isinstance(value, list) else []
    numbers = [_number_of(each) for each in parts[1:]]
    match [*parts[:1], *numbers]:
        case [str() as text]:  # released at the end: no token belongs to it
            return Delta(text=text)
        case [str() as text, float() as logprob, float() as margin]:
            signal = TokenSignal(logprob=logprob, margin=margin)
            return Delta(text=text, signals=(signal,))
        case _:
            return None


def _model_of(value: object) -> AnsweredBy | None:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    names = ("model_sha256", "template_sha256", "quantisation")
    said = [each for name in names if isinstance(each := fields.get(name), str)]
    if set(fields) != set(names) or len(said) != len(names):
        return None
    model, template, quantisation = said
    return AnsweredBy(
        model_sha256=model, template_sha256=template, quantisation=quantisation
    )


def _number_of(value: object) -> float | None:
    # In Python, True is an int, and a NaN is a float.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
