"""Charts of an evaluation, for a page or a file."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from curtilage.cli.report.charts import Bar, Line, Point, bar_chart, line_chart, percent
from curtilage.cli.report.evaluation_json import CurvePoint, Measured, MeasuredFigure

_CODES: Final = {
    "GPE": "countries, states and cities",
    "NRP": "nationalities, religious and political groups",
    "LOC": "other places",
    "ORG": "organisations",
    "counsel-chat": "questions to counsellors, collected in public",
    "clinc150": "requests to an assistant",
    "banking77": "questions of bank customers",
    "arena-hard": "hard everyday prompts",
    "MTS": "conversations of doctors with patients",
    "PUPA": "real prompts with personal data",
}
_GROUPS: Final = {
    "structured": "Structured identifiers detected",
    "identifying": "Identifying queries detected",
    "health": "Health and special categories detected",
    "privacy": "Other private queries detected",
    "evasion": "Disguised identifiers detected",
    "leave": "Harmless queries that may be sent",
    "pupa": "Real queries with personal data",
    "fairness": "Names detected, by group",
    "names": "Names, places and organisations, by collection",
    "faults": "Detector failures after which the query is kept local",
}


def measurements(measured: Measured) -> dict[str, object]:
    """Return the template values of an evaluation, in addition to its figures."""
    # Only shares have the axis of the charts; a figure with n = 0 was not measured, and
    # a bar of 0 % would look like a result.
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
            (
                title,
                bar_chart(found, title=title),
                bar_chart(found, title=title, narrow=True),
            )
            for title, found in _charts(groups)
        ],
        "stock": any(each.stock is not None for each in shares),
        "targets": any(
            each.target is not None and each.sense == ">=" for each in shares
        ),
        "glossary": [
            (code, meaning)
            for code, meaning in _CODES.items()
            if any(code in figure.title for figure in measured.figures)
        ],
        "curve": curve_chart(measured.curve),
        "notes": list(
            dict.fromkeys(each.note for each in measured.figures if each.note)
        ),
    }


def _charts(
    groups: Iterable[tuple[str, Iterable[MeasuredFigure]]],
) -> Iterator[tuple[str, list[Bar]]]:
    """Yield the charts of groups; figures where less is better have their own."""
    for group, figures in groups:
        # A group of a later version has no title here; its figures are in the table of
        # the page.
        if group not in _GROUPS:
            continue
        found = list(figures)
        # Apart: in one chart, a long bar would be good in one row and bad in the next.
        high = [_bar(each) for each in found if each.sense != "<="]
        low = [_bar(each) for each in found if each.sense == "<="]
        if high:
            yield _GROUPS[group], high
        if low:
            yield f"{_GROUPS[group]}: of these, less is better", low


def _bar(figure: MeasuredFigure) -> Bar:
    return Bar(
        label=f"{figure.title} (n = {figure.n})",
        measured=figure.measured,
        target=figure.target if figure.sense == ">=" else None,
        stock=figure.stock,
    )


def curve_chart(points: Iterable[CurvePoint], *, file_title: str = "") -> str:
    """Draw the results of each threshold's settings; empty without points.

    Args:
        points: in any order.
        file_title: title, if the chart is for a separate file.
    """
    lines: list[Line] = []
    # ``groupby`` only groups neighbours, and a line needs its points in order.
    ordered = sorted(points, key=lambda point: (point.knob, point.setting))
    for knob, settings in groupby(ordered, key=lambda point: point.knob):
        places = (
            Point(
                x=each.leave,
                y=each.recall,
                label=str(each.setting),
                hint=f"{knob} {each.setting}: recall {percent(each.recall)}, "
                f"may be sent {percent(each.leave)}"
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
        title=file_title or "Detection against what may be sent, for each threshold",
        x="harmless queries that may be sent",
        y="private queries detected",
        alone=bool(file_title),
    )
