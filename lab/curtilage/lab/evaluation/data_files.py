"""Files of data as others left them: odd bytes, odd quoting, odd rows.

A row that makes no sense is passed over; a file that cannot be read at all is
an error that names the file and nothing in it.
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
    """A data set is not in the folder, or holds no readable row."""


def matching(folder: Path, *patterns: str) -> list[Path]:
    """Return a folder's files that match any pattern, sorted, each once.

    Raises:
        MissingSetError: there is none.
    """
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    files = sorted(path for path in found if path.is_file())
    if not files:
        raise MissingSetError(f"{folder.name}: no file {' or '.join(patterns)}")
    return files


def read_text(path: Path) -> str:
    """Return a file's text: UTF-8 with or without a mark, else Latin-1.

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
    """Yield a CSV file's rows by column; comma, semicolon or tab.

    Columns that a row lacks are empty; what it has too many is dropped.
    """
    text = read_text(path)
    head = text.partition("\n")[0]
    # The separator of the header is that of the file.
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
    """Return the next row, or an empty one where it cannot be parsed."""
    try:
        return next(reader, None)
    except csv.Error:
        return []


def read_json(path: Path) -> object:
    """Return a JSON file's value; None where it is no JSON."""
    try:
        value: object = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
    return value


def read_json_lines(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a file with a JSON value in each line."""
    # Not splitlines: a JSON text may hold other line ends.
    for line in read_text(path).split("\n"):
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield cast("dict[str, object]", value)


def objects(value: object) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a list, passing over everything else."""
    for each in items(value):
        if isinstance(each, dict):
            yield cast("dict[str, object]", each)


def items(value: object) -> list[object]:
    """Return a list, or an empty one for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_at(fields: Mapping[str, object], *names: str) -> str:
    """Return the first text that is not blank among these fields, as it is."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def whole_at(fields: Mapping[str, object], name: str) -> int | None:
    """Return an integer field, also one written as text; None for neither."""
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int else None
