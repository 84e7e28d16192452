"""How well a policy works: the charts of an evaluation, for a page or a file."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from curtilage.cli.report.charts import (
    Bar,
    Line,
    Point,
    bar_chart,
    line_chart,
    percent,
)
from curtilage.cli.report.evaluation_json import (
    CurvePoint,
    Measured,
    MeasuredFigure,
)

_GROUPS: Final = {
    "structured": "Structured identifiers that are noticed",
    "identifying": "Queries that identify somebody and are noticed",
    "health": "Health and special categories that are noticed",
    "privacy": "Other private queries that are noticed",
    "evasion": "Disguised identifiers that are noticed",
    "leave": "Harmless queries that may leave",
    "pupa": "Real queries with personal data",
    "fairness": "Names that are noticed, by group",
    "names": "Names, places and organisations, by collection",
    "faults": "Faults of a detector after which the query stays here",
}


def measurements(measured: Measured) -> dict[str, object]:
    """Return what the report's template shows of an evaluation, beside its figures."""
    shares = [each for each in measured.figures if each.unit == "share" and each.n]
    groups = groupby(shares, key=lambda figure: figure.group)
    return {
        "measured_intro": (
            f"Measured on {measured.date}, on the data {measured.data!r}, part "
            f"{measured.part!r}. The thin line through a bar is its 95% interval: were "
            "the measurement repeated on other data of the same kind, 95 of 100 such "
            "intervals would hold the true share. The mark above a bar is the target."
        ),
        "bars": [
            (_GROUPS[group], bar_chart(list(map(_bar, found)), title=_GROUPS[group]))
            for group, found in groups
            if group in _GROUPS
        ],
        "curve": curve_chart(measured.curve),
        "notes": list(
            dict.fromkeys(each.note for each in measured.figures if each.note)
        ),
    }


def _bar(figure: MeasuredFigure) -> Bar:
    return Bar(
        label=f"{figure.title} (n = {figure.n})",
        measured=figure.measured,
        target=figure.target if figure.sense == ">=" else None,
        stock=figure.stock,
    )


def curve_chart(points: Iterable[CurvePoint], *, file_title: str = "") -> str:
    """Draw what each setting of each threshold gives; nothing where there is none.

    Args:
        points: in any order.
        file_title: where it is to be a file of its own, what that says above.
    """
    lines: list[Line] = []
    ordered = sorted(points, key=lambda point: (point.knob, point.setting))
    for knob, settings in groupby(ordered, key=lambda point: point.knob):
        places = (
            Point(
                x=each.leave,
                y=each.recall,
                label=str(each.setting),
                hint=f"{knob} {each.setting}: recall {percent(each.recall)}, "
                f"may leave {percent(each.leave)}"
                if file_title
                else "",
            )
            for each in settings
        )
        lines.append(Line(name=knob, points=tuple(places)))
    if not lines and not file_title:
        return ""
    return line_chart(
        lines,
        title=file_title
        or "What is noticed, against what may leave, as a threshold moves",
        x="harmless queries that may leave",
        y="private queries that are noticed",
        alone=bool(file_title),
    )
