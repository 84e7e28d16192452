"""Writes the records of a verified log to one file, as lines or as a table."""

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
from curtilage.client.system.files import write_private_atomically

COLUMNS: Final = (
    *("seq", "time", "query", "attempt", "policy", "route", "outcome", "rule"),
    *("verdict", "fallback", "messages", "classes", "approved", "commitment", "prev"),
    "application",
)
ALREADY_THERE: Final = "this file already exists"

Row = Callable[[AuditRecord, bytes], bytes]


class Exporter:
    """Writes the records of a period; pass it each verified line, then call ``end``.

    Args:
        file: where to write; not written to by others meanwhile.
        row: formats one record, with its newline.
        span: selects the records; no line was passed to it yet.

    Attributes:
        written: number of records written.
        by_position: how many of these have a time outside the period, and may belong
            to it all the same, since the clock went back.
    """

    def __init__(self, file: BinaryIO, row: Row, span: Span) -> None:
        self._file = file
        self._row = row
        self._span = span
        self._size = self._end = file.tell()
        self._open = (0, 0)
        self.written = self.by_position = 0

    def see(self, line: Line, data: bytes) -> None:
        """Write a line if it may be a record of the period."""
        # Written at once and truncated in ``end``: only a later line shows that a line
        # is behind the period, and a log may be larger than memory.
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
        """Remove records that turned out to be behind the period."""
        self._file.truncate(self._end)


def refuse_taken(name: Path | str | None) -> None:
    """Refuse the name of a file that is there, before the work that is to fill it.

    Args:
        name: of the file; None: none is to be written.

    Raises:
        ConfigError: there is a file of this name already.
    """
    if name is not None and Path(name).exists():
        raise ConfigError(f"{name}: {ALREADY_THERE}")


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """Write a new file, which is only created if all went well.

    Raises:
        ConfigError: a file of this name exists.
        AuditError: it cannot be written.
    """
    refuse_taken(path)
    with as_audit_error(path), write_private_atomically(path) as file:
        yield file


def as_it_is(record: AuditRecord, data: bytes) -> bytes:
    """Return the unchanged line, so that its hash can be checked again."""
    del record
    return data + b"\n"


def as_csv(record: AuditRecord, data: bytes) -> bytes:
    """Return a row of a table; no field of a record can start a formula."""
    # A spreadsheet evaluates text that begins with "=", "+", "-" or "@" as a formula,
    # which may load remote content. A record's fields are empty or begin with a letter
    # or digit.
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
        "application": record.application,
    }
    return csv_line([values[name] for name in COLUMNS])


def csv_line(values: Iterable[str]) -> bytes:
    """Return one line of CSV (RFC 4180)."""
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()
