"""Two kinds of chart as SVG text, for a page without scripts or a separate file.

The page's style sheet sets the colours: shapes have only classes, so that a page can be
dark, light or printed; a separate file includes the light style. Information in a
colour is also in a shape or a word. Every text is escaped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from curtilage.cli.report.html import rendered

_TOP: Final = 34
_BAR: Final = 12
_WRAP: Final = 46  # characters that fit in the column of labels

_LEFT: Final = 64
_LINE_WIDTH: Final = 640
_LINE_HEIGHT: Final = 320
_MARGIN: Final = 46
_TITLE: Final = 24  # above a chart in a separate file
_MARKS: Final = ("circle", "square", "diamond", "triangle", "cross", "star")
_LABELS_AT_MOST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A share with its interval, 0 to 1."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of a bar chart.

    Attributes:
        label: what was measured.
        measured: the share.
        target: the target, 0 to 1, or None.
        stock: the same for a baseline, or None.
    """

    label: str
    measured: Interval
    target: float | None = None
    stock: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a line: shares from 0 to 1, with its setting.

    Attributes:
        x: share on the horizontal axis.
        y: share on the vertical axis.
        label: shown next to some of the points, if there is room.
        hint: tooltip; none if empty.
    """

    x: float
    y: float
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named line with its points in drawing order."""

    name: str
    points: tuple[Point, ...]


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.1f}%"


def bar_chart(bars: Sequence[Bar], *, title: str, narrow: bool = False) -> str:
    """Return horizontal bars with intervals on an axis from 0 to 100%.

    Args:
        bars: from top to bottom.
        title: the chart's title.
        narrow: for a small screen, with labels above the bars.
    """
    frame = _NARROW if narrow else _BROAD
    bottom = _TOP + frame.row * len(bars)
    shapes: list[str] = []
    # Later shapes cover earlier ones, so the grid comes before the bars.
    for tenth in range(0, 11, 5 if narrow else 2):
        x = frame.left + frame.plot * tenth / 10
        shapes += (
            _rule(x, _TOP - 8, x, bottom, "grid"),
            _text(x, _TOP - 14, f"{10 * tenth}%", "tick", anchor="middle"),
        )
    for index, bar in enumerate(bars):
        shapes += _bar(bar, _TOP + frame.row * index, frame)
    return _svg(frame.width, bottom + 8, title, shapes)


def line_chart(
    lines: Sequence[Line], *, title: str, x: str, y: str, alone: bool = False
) -> str:
    """Return a line chart of two shares; the axes begin near the smallest value.

    Args:
        lines: at most four are visually distinct.
        title: the chart's title.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        alone: for a separate file, with title and colours.
    """
    points = [point for line in lines for point in line.points]
    scale = _Scale.over(points)
    height = _LINE_HEIGHT + 2 * _MARGIN
    bottom, middle = _MARGIN + _LINE_HEIGHT, _LEFT + _LINE_WIDTH / 2
    shapes = [
        *scale.grid(),
        _text(middle, bottom + 38, x, "axis", anchor="middle"),
        _text(_LEFT - 48, _MARGIN - 20, y, "axis"),
    ]
    for index, line in enumerate(lines):
        shapes += _line(line, index, scale)
    return _svg(_LEFT + _LINE_WIDTH + 170, height, title, shapes, alone=alone)


def _svg(
    width: int, height: int, title: str, shapes: Iterable[str], *, alone: bool = False
) -> str:
    name, drawn = escape(title), "".join(shapes)
    attributes = f'role="img" aria-label="{name}"><title>{name}</title>'
    if not alone:
        return f'<svg viewBox="0 0 {width} {height}" {attributes}{drawn}</svg>'
    # A file has no page around it, so it brings the colours along.
    style = f":root {{\n{rendered('colours.css')}}}\n{rendered('chart.css')}"
    above, height = -_TITLE, height + _TITLE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 {above} {width} {height}" font-family="sans-serif" {attributes}\n'
        f'<style>\n{style}</style>\n<rect style="fill: var(--paper)" '
        f'y="{above}" width="{width}" height="{height}"></rect>'
        f"{_text(_LEFT, 0, title, 'value')}{drawn}</svg>\n"
    )


def _bar(bar: Bar, top: int, frame: "_Frame") -> Iterator[str]:
    first, *more = _wrapped(bar.label)
    if frame.above:
        yield _text(frame.left, top + 12, first, "label")
        if more:
            yield _text(frame.left, top + 27, more[0], "label")
        top += frame.above
    else:
        middle = top + frame.row / 2
        right = frame.left - 12
        yield _text(right, middle + (-3 if more else 4), first, "label", anchor="end")
        if more:
            yield _text(right, middle + 12, more[0], "label", anchor="end")
    height = frame.row - frame.above
    own_top = top + (5 if bar.stock else (height - _BAR) // 2)
    yield from _measure(bar.measured, own_top, _BAR, "own", frame)
    if bar.stock is not None:
        yield from _measure(bar.stock, own_top + _BAR + 3, _BAR - 4, "stock", frame)
    if bar.target is not None:
        x = frame.left + frame.plot * bar.target
        yield _rule(x, top + 1, x, top + height - 5, "target")
        yield (f'<path class="target-mark" d="M{x:.1f} {top + 3} l-5 -6 h10 z"></path>')
    share, right = percent(bar.measured.value), frame.left + frame.plot + 14
    middle = top + height / 2
    yield _text(right, middle + (4 if bar.stock is None else -4), share, "value")
    if bar.stock is not None:
        yield _text(right, middle + 12, f"plain {percent(bar.stock.value)}", "tick")


def _measure(
    measured: Interval, top: float, height: int, kind: str, frame: "_Frame"
) -> Iterator[str]:
    width = frame.plot * measured.value
    yield (
        f'<rect class="{kind}" x="{frame.left}" y="{top}" width="{width:.1f}" '
        f'height="{height}" rx="2"></rect>'
    )
    # The file is untrusted, and its limits are only known to be finite: a whisker must
    # not leave the chart.
    ends = (max(0.0, measured.low), min(1.0, measured.high))
    low, high = (frame.left + frame.plot * each for each in ends)
    middle = top + height / 2
    yield _rule(low, middle, high, middle, "whisker")
    for end in (low, high):
        yield _rule(end, middle - 4, end, middle + 4, "whisker")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Layout of a bar chart, in user units.

    Attributes:
        left: left edge of the bars.
        plot: length of a bar of 100%.
        width: total width.
        row: height of a bar with its label.
        above: part of the row's height for the label; 0 if the label is on the left.
    """

    left: int
    plot: int
    width: int
    row: int
    above: int


_BROAD: Final = _Frame(left=330, plot=420, width=860, row=40, above=0)
_NARROW: Final = _Frame(left=16, plot=235, width=350, row=72, above=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Two axes from a round share below the data to 1."""

    least_x: float
    least_y: float

    @classmethod
    def over(cls, points: Sequence[Point]) -> "_Scale":
        return cls(
            least_x=_round_below([point.x for point in points]),
            least_y=_round_below([point.y for point in points]),
        )

    def x(self, share: float) -> float:
        return _LEFT + _LINE_WIDTH * (share - self.least_x) / (1 - self.least_x)

    def y(self, share: float) -> float:
        down = (1 - share) / (1 - self.least_y)
        return _MARGIN + _LINE_HEIGHT * down

    def grid(self) -> Iterator[str]:
        bottom, right = _MARGIN + _LINE_HEIGHT, _LEFT + _LINE_WIDTH
        for share in _ticks(self.least_x):
            x = self.x(share)
            yield _rule(x, _MARGIN, x, bottom, "grid")
            yield _text(x, bottom + 18, f"{100 * share:.0f}%", "tick", anchor="middle")
        for share in _ticks(self.least_y):
            y = self.y(share)
            yield _rule(_LEFT, y, right, y, "grid")
            yield _text(_LEFT - 8, y + 4, f"{100 * share:.0f}%", "tick", anchor="end")


def _round_below(values: Sequence[float]) -> float:
    """Return a multiple of 0.1 or 0.05 below all values, at most 0.9."""
    least = min(values, default=0.0)
    step = 20 if least > 0.8 else 10  # noqa: PLR2004 - a narrow range, finer steps
    # At most 0.9: with all values near 1, the axis would have no length, and ``_Scale``
    # would divide by 0.
    return max(0.0, min(0.9, int(least * step - 1e-9) / step))


def _ticks(least: float) -> Iterator[float]:
    steps = 5
    for index in range(steps + 1):
        yield least + (1 - least) * index / steps


def _line(line: Line, index: int, scale: _Scale) -> Iterator[str]:
    # A shape for each line as well as a colour: a printed or colour-blind reader cannot
    # rely on colours.
    kind = f"series{index % len(_MARKS)}"
    places = [(scale.x(point.x), scale.y(point.y)) for point in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline class="line {kind}" points="{path}"></polyline>'
    # Labels on every point would overlap and be unreadable.
    every = -(-len(places) // _LABELS_AT_MOST)
    # Labels of neighbouring lines are on different sides.
    offset, above = ((8, -8), (-26, 18))[index % 2]
    for number, (x, y) in enumerate(places):
        yield _mark(_MARKS[index % len(_MARKS)], x, y, kind, line.points[number].hint)
        if number % every == 0 or number == len(places) - 1:
            yield _text(x + offset, y + above, line.points[number].label, "point")
    top = _MARGIN + 14 + 24 * index
    yield _mark(_MARKS[index % len(_MARKS)], _LEFT + _LINE_WIDTH + 24, top - 4, kind)
    yield _text(_LEFT + _LINE_WIDTH + 36, top, line.name, "label")


def _mark(shape: str, x: float, y: float, kind: str, hint: str = "") -> str:
    title = f"<title>{escape(hint)}</title>" if hint else ""
    if shape == "circle":
        place = f'cx="{x:.1f}" cy="{y:.1f}"'
        return f'<circle class="mark {kind}" {place} r="4">{title}</circle>'
    outlines = {
        "square": "m-4 -4 h8 v8 h-8 z",
        "diamond": "m0 -6 l6 6 l-6 6 l-6 -6 z",
        "triangle": "m0 -6 l6 10 h-12 z",
        "cross": "m-5 -5 l10 10 m0 -10 l-10 10",
        "star": "m0 -6 v12 m-6 -6 h12 m-2 -4 l-8 8 m0 -8 l8 8",
    }
    path = f"M{x:.1f} {y:.1f} {outlines[shape]}"
    return f'<path class="mark {kind}" d="{path}">{title}</path>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return (
        f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" '
        f'x2="{x2:.1f}" y2="{y2:.1f}"></line>'
    )


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _wrapped(label: str) -> list[str]:
    """Return a label in one or two lines, truncated if necessary."""
    if len(label) <= _WRAP:
        return [label]
    at = label.rfind(" ", 0, _WRAP + 1)
    at = at if at > 0 else _WRAP
    rest = label[at:].strip()
    return [label[:at], rest if len(rest) <= _WRAP else rest[: _WRAP - 1] + "…"]
