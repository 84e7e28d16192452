"""Parser of an evaluation's JSON (``curtilage evaluate --json``) for reports.

Reads only what a report shows of format 1, which ``evaluation.figures`` documents.
The file is untrusted: an invalid structure is an error.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from curtilage.cli.report.charts import Interval

FORMAT: Final = 1
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_ENTRIES: Final = 2000


class MeasuredError(Exception):
    """A file is not an evaluation; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigure:
    """One figure.

    Attributes:
        id: stable across releases.
        group: the group of figures.
        title: the title in reports.
        unit: ``share``, ``points``, ``ms``, ``ratio`` or ``count``.
        measured: value and 95% interval.
        n: number of observations; 0: not measured.
        sense: ``>=`` or ``<=``; empty without a target.
        target: in the figure's unit, or None.
        met: whether the target is met; None if undetermined.
        stock: the same for plain Presidio, or None.
        note: explanation.
    """

    id: str
    group: str
    title: str
    unit: str
    measured: Interval
    n: int
    sense: str
    target: float | None
    met: bool | None
    stock: Interval | None
    note: str

    def shown(self, value: float) -> str:
        """Return a value formatted in the figure's unit."""
        if self.unit == "share":
            return f"{100 * value:.1f}%"
        if self.unit == "points":
            return f"{100 * value:.1f} points"
        if self.unit == "ms":
            return f"{value:.2f} ms"
        return f"{value:.1f} times" if self.unit == "ratio" else f"{value:.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Result of one setting of a threshold; shares from 0 to 1."""

    knob: str
    setting: int
    recall: float
    leave: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One evaluation.

    Attributes:
        date: ISO 8601 date.
        data: the data measured.
        part: the rows measured.
        policy_digest: digest of the policy measured.
        figures: in the file's order.
        curve: likewise.
        missing: data sets that were missing.
    """

    date: str
    data: str
    part: str
    policy_digest: str
    figures: tuple[MeasuredFigure, ...]
    curve: tuple[CurvePoint, ...]
    missing: tuple[str, ...]


def parse_measured(data: bytes) -> Measured:
    """Parse an evaluation.

    Raises:
        MeasuredError: it is not an evaluation.
    """
    if len(data) > MAX_BYTES:
        raise MeasuredError(f"more than {MAX_BYTES} bytes")
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise MeasuredError("not JSON") from None
    fields = _mapping(value)
    # Another format may give a key another meaning, and the page would show wrong
    # figures.
    if fields.get("format") != FORMAT:
        raise MeasuredError(f"not an evaluation of format {FORMAT}")
    return Measured(
        date=_text(fields, "date"),
        data=_text(fields, "data"),
        part=_text(fields, "part"),
        policy_digest=_text(_mapping(fields.get("policy")), "digest"),
        figures=tuple(_figure(each) for each in _list(fields, "figures")),
        curve=tuple(
            CurvePoint(
                knob=_text(each, "knob"),
                setting=int(_number(each, "setting")),
                recall=_share(each, "recall"),
                leave=_share(each, "leave"),
            )
            for each in map(_mapping, _list(fields, "curve"))
        ),
        missing=tuple(str(each) for each in _list(fields, "missing")),
    )


def _figure(value: object) -> MeasuredFigure:
    fields = _mapping(value)
    target, met, stock = (fields.get(key) for key in ("target", "met", "stock"))
    if not isinstance(met, bool | None):
        raise MeasuredError("'met' is neither true, false nor null")
    return MeasuredFigure(
        id=_text(fields, "id"),
        group=_text(fields, "group"),
        title=_text(fields, "title"),
        unit=_text(fields, "unit"),
        measured=_interval(fields),
        n=int(_number(fields, "n")),
        sense="" if fields.get("sense") is None else _text(fields, "sense"),
        target=None if target is None else _number(fields, "target"),
        met=met,
        stock=None if stock is None else _interval(_mapping(stock)),
        note="" if fields.get("note") is None else _text(fields, "note"),
    )


def _interval(fields: Mapping[str, object]) -> Interval:
    value, low, high = (_number(fields, key) for key in ("value", "low", "high"))
    return Interval(value=value, low=low, high=high)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise MeasuredError("expected an object")
    return cast("Mapping[str, object]", value)


def _list(fields: Mapping[str, object], key: str) -> list[object]:
    value = fields.get(key)
    # Each entry becomes a part of the page; without a limit, a file could make it too
    # large to open.
    if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_ENTRIES:
        raise MeasuredError(f"{key!r} is not a list of at most {MAX_ENTRIES}")
    return cast("list[object]", value)


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise MeasuredError(f"{key!r} is not a string")
    return value


def _number(fields: Mapping[str, object], key: str) -> float:
    value = fields.get(key)
    # In Python, true is the integer 1.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MeasuredError(f"{key!r} is not a number")
    # Python accepts NaN and Infinity, which are not JSON and cannot be drawn.
    if not math.isfinite(value):
        raise MeasuredError(f"{key!r} is not finite")
    return value


def _share(fields: Mapping[str, object], key: str) -> float:
    value = _number(fields, key)
    if not 0 <= value <= 1:
        raise MeasuredError(f"{key!r} is not from 0 to 1")
    return value
