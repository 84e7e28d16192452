"""Write the records of a verified log to one file, as they are or as a table."""

import csv
import io
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from curtilage.client.audit.directory import as_audit_error
from curtilage.client.audit.record import AuditRecord, Line, time_text
from curtilage.client.audit.span import Span
from curtilage.client.errors import ConfigError
from curtilage.client.files import write_private_atomically

COLUMNS: Final = (
    *("seq", "time", "query", "attempt", "policy", "route", "outcome", "rule"),
    *("verdict", "fallback", "messages", "classes", "approved", "commitment", "prev"),
)

Row = Callable[[AuditRecord, bytes], bytes]


class Exporter:
    """Writes the records of a span of time; show it each verified line, then end.

    Args:
        file: where to write; nothing else writes to it meanwhile.
        row: one record as it is to stand there, with its newline.
        span: which records; none of its lines was shown yet.

    Attributes:
        written: how many records were written.
        by_position: how many of these have a time outside of the span, and may lie
            in it all the same, since the clock went back.
    """

    def __init__(self, file: BinaryIO, row: Row, span: Span) -> None:
        self._file = file
        self._row = row
        self._span = span
        self._size = self._end = file.tell()
        self._open = (0, 0)
        self.written = self.by_position = 0

    def see(self, line: Line, data: bytes) -> None:
        """Write a line if it may be a record of the span."""
        # Written as it comes, and cut back in ``end``: that a line lies behind the span
        # is known only once a later one is seen, and a log may be larger than memory.
        self._span.see(line)
        if isinstance(line, AuditRecord) and self._span.begun:
            self._size += self._file.write(self._row(line, data))
            written, by_position = self._open
            outside = not self._span.holds(line.time)
            self._open = (written + 1, by_position + outside)
        if self._span.reached:
            self.written, self.by_position = self._open
            self._end = self._size

    def end(self) -> None:
        """Take back what turned out to lie behind the span."""
        self._file.truncate(self._end)


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """Write a new file, which is there only if all went well.

    Raises:
        ConfigError: there is a file of this name already.
        AuditError: it cannot be written.
    """
    if path.exists():
        raise ConfigError(f"{path}: there is such a file already")
    with as_audit_error(path), write_private_atomically(path) as file:
        yield file


def as_it_is(record: AuditRecord, data: bytes) -> bytes:
    """Return the very line, so that its hash can be checked again."""
    del record
    return data + b"\n"


def as_csv(record: AuditRecord, data: bytes) -> bytes:
    """Return a row of a table; no field of a record can begin a formula."""
    # A spreadsheet takes what begins with "=", "+", "-" or "@" for a formula, and may
    # fetch what it names. A record's fields are empty, or begin with a letter or digit.
    del data
    classes = " ".join(f"{name}={count}" for name, count in record.classes.items())
    values: dict[str, str] = {
        "seq": str(record.seq),
        "time": time_text(record.time),
        "query": record.query,
        "attempt": str(record.attempt),
        "policy": record.policy,
        "route": record.route.value,
        "outcome": record.outcome.value,
        "rule": record.rule,
        "verdict": record.verdict,
        "fallback": record.fallback,
        "messages": str(record.messages),
        "classes": classes,
        "approved": " ".join(record.approved),
        "commitment": record.commitment,
        "prev": record.prev,
    }
    return csv_line([values[name] for name in COLUMNS])


def csv_line(values: Iterable[str]) -> bytes:
    """Return one line of CSV (RFC 4180)."""
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()
