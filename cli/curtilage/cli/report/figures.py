"""How well a policy works: the charts of an evaluation, for a page or a file."""

from collections.abc import Iterable, Iterator
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
    """Yield the charts of groups; what should be low is never among what should not."""
    for group, figures in groups:
        if group not in _GROUPS:
            continue
        found = list(figures)
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
