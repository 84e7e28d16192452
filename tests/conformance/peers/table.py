"""The results of the tests: one row for each peer and direction."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    """One row's place in the table.

    Attributes:
        asks: who seals the request.
        answers: who opens it.
        form: plain or chunked.
        kem: x25519 or xwing.
    """

    asks: str
    answers: str
    form: str
    kem: str


@dataclass
class Table:
    """Counts cases; records failures."""

    tried: dict[Row, int] = field(default_factory=dict[Row, int])
    wrong: dict[Row, list[str]] = field(default_factory=dict[Row, list[str]])

    @contextmanager
    def case(self, row: Row, name: str) -> Generator[None]:
        """Run one case; its exceptions are recorded in the table."""
        self.tried[row] = self.tried.get(row, 0) + 1
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the other cases still run
            said = f"{name}: {type(error).__name__} {error}".strip()
            self.wrong.setdefault(row, []).append(said)

    def lines(self) -> list[str]:
        """Return the table for display."""
        rows: list[tuple[str, ...]] = [(*Row._fields, "cases", "")]
        for row, count in self.tried.items():
            wrong = self.wrong.get(row, [])
            verdict = f"{len(wrong)} WRONG" if wrong else "ok"
            rows.append((*row, str(count), verdict))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            )
            for row in rows
        ]
        return [*table, *self._reasons()]

    def _reasons(self) -> list[str]:
        return [
            f"{' '.join(row)}: {reason}"
            for row, reasons in self.wrong.items()
            for reason in reasons
        ]
