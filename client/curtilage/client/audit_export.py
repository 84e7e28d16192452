"""Write the records of a verified log to one file, as they are or as a table."""

import csv
import io
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from curtilage.client.audit_files import open_private, told
from curtilage.client.errors import ConfigError
from curtilage.policy.audit import AuditRecord, Line, time_text

COLUMNS: Final = (
    *("seq", "time", "query", "attempt", "policy", "route", "outcome", "rule"),
    *("verdict", "fallback", "messages", "classes", "commitment", "prev"),
)

Row = Callable[[AuditRecord, bytes], bytes]


class Exporter:
    """Writes the records of a span of time; show it each verified line.

    Args:
        file: where to write.
        row: one record as it is to stand there, with its newline.
        since: the earliest time, aware, or None.
        until: the time before which, aware, or None.

    Attributes:
        written: how many records were written.
    """

    def __init__(
        self,
        file: BinaryIO,
        row: Row,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        self._file = file
        self._row = row
        self._since = since
        self._until = until
        self.written = 0

    def see(self, line: Line, data: bytes) -> None:
        """Write a line if it is a record of the span."""
        if not isinstance(line, AuditRecord):
            return
        if self._since is not None and line.time < self._since:
            return
        if self._until is not None and line.time >= self._until:
            return
        self._file.write(self._row(line, data))
        self.written += 1


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """Write a new file, which is there only if all went well.

    Raises:
        ConfigError: there is a file of this name already.
        AuditError: it cannot be written.
    """
    if path.exists():
        raise ConfigError(f"{path}: there is such a file already")
    beside = path.with_name(f".{path.name}.part")
    with told(path):
        descriptor = open_private(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        with told(path):
            beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)


def as_it_is(record: AuditRecord, data: bytes) -> bytes:
    """Return the very line, so that its hash can be checked again."""
    del record
    return data + b"\n"


def as_csv(record: AuditRecord, data: bytes) -> bytes:
    """Return a row of a table; no field of a record can begin a formula."""
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
        "commitment": record.commitment,
        "prev": record.prev,
    }
    return csv_line([values[name] for name in COLUMNS])


def csv_line(values: Iterable[str]) -> bytes:
    """Return one line of CSV (RFC 4180)."""
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()
