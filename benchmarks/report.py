"""Tables for display, and the same numbers as JSON."""

import math
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

from typing_extensions import override


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        title: what was measured.
        columns: their names.
        rows: numbers and words.
        note: below it.
        kept: what must hold does.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    note: str = ""
    kept: bool = True

    def text(self) -> str:
        """Lay the table out in columns."""
        cells = [list(self.columns)] + [[_cell(each) for each in r] for r in self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        rule = "  ".join("-" * width for width in widths)
        body = [self.title, lines[0], rule, *lines[1:]]
        return "\n".join([*body, self.note] if self.note else body)

    def value(self) -> dict[str, object]:
        """Return the table as an object for JSON."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "note": self.note}


NORMAL_95: Final = 1.96
CHANCE: Final = 0.5
NEAR_CHANCE: Final = 0.05
"""An area further away, whose interval still contains chance, needs more numbers."""


@dataclass(frozen=True, slots=True)
class Area:
    """How often one group's numbers are above another's (area under the ROC curve).

    Attributes:
        share: 0.5 is chance; 0 and 1 separate the groups.
        low: of the 95 % interval.
        high: likewise.
    """

    share: float
    low: float
    high: float

    @override
    def __str__(self) -> str:
        """Return the area, its interval and what they say."""
        said = "unclear"
        if not self.low <= CHANCE <= self.high:
            said = "DIFFERS"
        elif abs(self.share - CHANCE) <= NEAR_CHANCE:
            said = "chance"
        return f"{self.share:.3f} ({self.low:.3f} to {self.high:.3f}) {said}"


def area_above(these: Sequence[float], those: Sequence[float]) -> Area:
    """Return how often one of these is above one of those, with DeLong's interval.

    Args:
        these: two numbers at least.
        those: likewise.
    """
    ours = [fmean((a > b) + (a == b) / 2 for b in those) for a in these]
    theirs = [fmean((a > b) + (a == b) / 2 for a in these) for b in those]
    share = fmean(ours)
    spread = math.sqrt(variance(ours) / len(ours) + variance(theirs) / len(theirs))
    half = NORMAL_95 * spread
    return Area(share, max(0.0, share - half), min(1.0, share + half))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def host() -> str:
    """Say what this machine is, without naming it."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"


def busy() -> str:
    """Say how busy the machine is: processes that wanted a processor, by minutes."""
    one, five, _ = os.getloadavg()
    return f"load {one:.1f} in the last minute, {five:.1f} in five"


def progress(text: str) -> None:
    """Write a line about a measurement that takes longer than two seconds."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.2f}"
