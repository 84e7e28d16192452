"""Files of data from other projects, with odd bytes, quoting or rows.

An invalid row is skipped. A file that cannot be read at all is an error that names the
file and quotes nothing from it.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from curtilage.client.errors import ConfigError

MAX_FILE_BYTES: Final = 512 * 1024 * 1024
_MAX_FIELD_CHARS: Final = 16 * 1024 * 1024


class MissingSetError(ConfigError):
    """A data set is not in the folder, or has no readable row."""


def matching(folder: Path, *patterns: str) -> list[Path]:
    """Return a folder's files that match any pattern, sorted, each once.

    Raises:
        MissingSetError: there are none.
    """
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    files = sorted(path for path in found if path.is_file())
    if not files:
        raise MissingSetError(f"{folder.name}: no file {' or '.join(patterns)}")
    return files


def read_text(path: Path) -> str:
    """Return a file's text: UTF-8 with or without a byte order mark, else Latin-1.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except OSError as failure:
        raise ConfigError(f"{path.name}: {failure.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\x00", "")


def read_csv(path: Path) -> Iterator[Mapping[str, str]]:
    """Yield a CSV file's rows by column, separated by commas, semicolons or tabs.

    Missing columns are empty, and surplus values are dropped.
    """
    text = read_text(path)
    head = text.partition("\n")[0]
    # The header's separator is the whole file's.
    delimiter = max(",;\t", key=head.count)
    csv.field_size_limit(_MAX_FIELD_CHARS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names: list[str] | None = None
    while (fields := _next_row(reader)) is not None:
        if names is None:
            names = [name.strip() for name in fields]
        elif any(fields):
            padded = [*fields, *[""] * (len(names) - len(fields))]
            yield dict(zip(names, padded, strict=False))


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row, or an empty one if it cannot be parsed."""
    try:
        return next(reader, None)
    except csv.Error:
        return []


def read_json(path: Path) -> object:
    """Return a JSON file's value; None if it is not JSON."""
    try:
        value: object = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
    return value


def read_json_lines(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a JSON Lines file."""
    # Not splitlines: a JSON text may contain other line separators.
    for line in read_text(path).split("\n"):
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield cast("dict[str, object]", value)


def objects(value: object) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a list and skip everything else."""
    for each in items(value):
        if isinstance(each, dict):
            yield cast("dict[str, object]", each)


def items(value: object) -> list[object]:
    """Return a list; empty for any other value."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_at(fields: Mapping[str, object], *names: str) -> str:
    """Return the first of these fields that is not blank, unchanged."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def whole_at(fields: Mapping[str, object], name: str) -> int | None:
    """Return an integer field, which may be written as text; None for anything else."""
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int else None
