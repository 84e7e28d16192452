"""How well a policy works, for a report: charts and a table of an evaluation."""

from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Final

from curtilage.cli.report.charts import Bar, Line, Point, bar_chart, line_chart
from curtilage.cli.report.evaluation_json import Measured, MeasuredFigure
from curtilage.cli.report.html import section, table

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


def measurements(measured: Measured | None, policy_digest: str) -> str:
    """Return the section on what was measured, under which policy."""
    if measured is None:
        return section(
            "How well it works",
            "No measurement was given for this page. `curtilage evaluate` makes one, "
            "and `curtilage policy report --evaluation` shows it here.",
            "",
        )
    same = measured.policy_digest == policy_digest
    warning = (
        ""
        if same
        else '<p class="warning">Measured under another policy than that of this '
        f"page: <code>{escape(measured.policy_digest)}</code>.</p>"
    )
    intro = (
        f"Measured on {measured.date}, on the data {measured.data!r}, part "
        f"{measured.part!r}. The thin line through a bar is its 95% interval: were the "
        "measurement repeated on other data of the same kind, 95 of 100 such intervals "
        "would hold the true share. The mark above a bar is the target."
    )
    body = warning + _charts(measured) + _curve(measured) + _figures(measured)
    if measured.missing:
        missing = escape(", ".join(measured.missing))
        body += f'<p class="warning">Not measured, data missing: {missing}.</p>'
    return section("How well it works", intro, body)


def _charts(measured: Measured) -> str:
    shares = [each for each in measured.figures if each.unit == "share" and each.n]
    parts: list[str] = []
    for group, figures in groupby(shares, key=lambda figure: figure.group):
        if group not in _GROUPS:
            continue
        title = _GROUPS[group]
        chart = bar_chart([_bar(figure) for figure in figures], title=title)
        parts.append(
            f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>"
        )
    return _legend() + "".join(parts) if parts else ""


def _bar(figure: MeasuredFigure) -> Bar:
    at_least = figure.target if figure.sense == ">=" else None
    return Bar(
        label=f"{figure.title} (n = {figure.n})",
        measured=figure.measured,
        target=at_least,
        stock=figure.stock,
    )


def _legend() -> str:
    return (
        '<p class="legend"><span class="key own"></span> this policy '
        '<span class="key stock"></span> plain Presidio, on the same data '
        '<span class="key-target">▼</span> target</p>'
    )


def _curve(measured: Measured) -> str:
    if not measured.curve:
        return ""
    lines: list[Line] = []
    ordered = sorted(measured.curve, key=lambda point: point.knob)
    for knob, points in groupby(ordered, key=lambda point: point.knob):
        by_setting = sorted(points, key=lambda point: point.setting)
        places = (
            Point(x=p.leave, y=p.recall, label=str(p.setting)) for p in by_setting
        )
        lines.append(Line(name=knob, points=tuple(places)))
    chart = line_chart(
        lines,
        title="What is noticed, against what may leave, as a threshold moves",
        x="harmless queries that may leave",
        y="private queries that are noticed",
    )
    return (
        "<figure><figcaption>What a threshold buys: further up, more is noticed; "
        "further right, more of the harmless may leave. The numbers are the "
        f"settings.</figcaption>{chart}</figure>"
    )


def _figures(measured: Measured) -> str:
    rows = [_figure_row(figure) for figure in measured.figures]
    head = ["What was measured", "Value", "95% interval", "n", "Target", "Presidio"]
    return (
        "<h3>All figures</h3>" + table(head, rows, "figures") + _notes(measured.figures)
    )


def _figure_row(figure: MeasuredFigure) -> list[str]:
    title = escape(figure.title)
    if not figure.n:
        return [title, "not measured", "", "0", "", ""]
    low, high = figure.measured.low, figure.measured.high
    stock = figure.stock
    return [
        title,
        escape(figure.shown(figure.measured.value)),
        escape(f"{figure.shown(low)} to {figure.shown(high)}"),
        f"{figure.n:,}",
        _target(figure),
        "" if stock is None else escape(figure.shown(stock.value)),
    ]


def _target(figure: MeasuredFigure) -> str:
    if figure.target is None:
        return ""
    sense = "at least" if figure.sense == ">=" else "at most"
    told = escape(f"{sense} {figure.shown(figure.target)}")
    if figure.met is None:
        return told
    kind, word = ("met", "met") if figure.met else ("unmet", "not met")
    return f'{told} <span class="{kind}">{word}</span>'


def _notes(figures: Iterable[MeasuredFigure]) -> str:
    notes = dict.fromkeys(each.note for each in figures if each.note)
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="small">{items}</ul>' if items else ""
