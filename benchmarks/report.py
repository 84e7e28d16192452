"""Tables for display, and the same numbers as JSON."""

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: a title, column names, rows of numbers and words."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    note: str = ""

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


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def host() -> str:
    """Say what this machine is, without naming it."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.2f}"
