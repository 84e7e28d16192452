"""A curve as SVG: recall upwards, the share that may leave to the right."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Self

from curtilage.evaluation.figures import CurvePoint

WIDTH: Final = 720
HEIGHT: Final = 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 180, 40, 60
# Okabe and Ito's palette: told apart by colour-blind readers too.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_STEPS: Final = 5
_OPENING: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
    f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    'font-family="sans-serif" font-size="13">'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Two axes that end at 1 and begin at a tenth below all points."""

    least_x: float
    least_y: float

    @classmethod
    def around(cls, points: Sequence[CurvePoint]) -> Self:
        """Return axes that hold all points."""
        return cls(
            least_x=_tenth_below(point.leave for point in points),
            least_y=_tenth_below(point.recall for point in points),
        )

    def x(self, share: float) -> float:
        """Return how far to the right a share stands."""
        right = (share - self.least_x) / (1 - self.least_x)
        return round(_LEFT + right * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, share: float) -> float:
        """Return how far down a share stands."""
        up = (share - self.least_y) / (1 - self.least_y)
        return round(HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM), 1)

    def drawn(self) -> list[str]:
        """Return the grid, its numbers, and what the axes mean."""
        left, right = self.x(self.least_x), self.x(1)
        low, high = self.y(self.least_y), self.y(1)
        parts: list[str] = []
        for step in range(_STEPS + 1):
            across = self.least_x + (1 - self.least_x) * step / _STEPS
            upward = self.least_y + (1 - self.least_y) * step / _STEPS
            x, y = self.x(across), self.y(upward)
            parts += [
                f'<line x1="{x}" y1="{low}" x2="{x}" y2="{high}" stroke="#dddddd"/>',
                f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>',
                _label(x, low + 18, f"{100 * across:.0f}%", "middle"),
                _label(left - 8, y + 4, f"{100 * upward:.0f}%", "end"),
            ]
        middle = (left + right) / 2
        return [
            *parts,
            _label(middle, HEIGHT - 14, "harmless queries that may leave", "middle"),
            _label(left - 8, high - 10, "recall", "end"),
        ]


def curve_svg(points: Sequence[CurvePoint], title: str) -> str:
    """Return a drawing of the curve, a line for each knob; no outside resource."""
    axes = _Axes.around(points)
    parts = [
        _OPENING,
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _label(_LEFT, 16, title, "start"),
        *axes.drawn(),
    ]
    for number, knob in enumerate(dict.fromkeys(point.knob for point in points)):
        colour = _COLOURS[number % len(_COLOURS)]
        chosen = [point for point in points if point.knob == knob]
        parts += _line(axes, chosen, colour)
        x, y = WIDTH - _RIGHT + 20, _TOP + 20 + 22 * number
        parts += [
            f'<rect x="{x}" y="{y - 7}" width="14" height="4" fill="{colour}"/>',
            _label(x + 22, y, knob, "start"),
        ]
    return "\n".join([*parts, "</svg>", ""])


def _line(axes: _Axes, points: Sequence[CurvePoint], colour: str) -> list[str]:
    places = [(axes.x(point.leave), axes.y(point.recall)) for point in points]
    path = " ".join(f"{x},{y}" for x, y in places)
    dots = [
        f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"><title>{escape(_told(point))}'
        "</title></circle>"
        for point, (x, y) in zip(points, places, strict=True)
    ]
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *dots,
    ]


def _told(point: CurvePoint) -> str:
    return (
        f"{point.knob} {point.setting}: recall {100 * point.recall:.1f}%, "
        f"may leave {100 * point.leave:.1f}%"
    )


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _tenth_below(shares: Iterable[float]) -> float:
    return max(0.0, min(0.9, math.floor(10 * min(shares, default=0.0)) / 10))
