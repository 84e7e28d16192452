"""The user's own texts with the required route: a sheet to label, read and measured.

A file is a table (CSV; comma, semicolon or tab) or JSON Lines, in UTF-8, with::

    text   the query
    must   "stays", "may leave", or "names only": it may leave without its names
    names  what must not leave, separated by |; in JSON, a list is accepted too
    spans  in JSON, for exact positions: [[first, past, kind], …] in characters

Rows with an empty ``must`` are not labelled yet, and are counted. Errors name a file
and a line and never quote the text: the user can look it up.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from curtilage.client.errors import ConfigError
from curtilage.lab.evaluation.bench import Bench, Wanted
from curtilage.lab.evaluation.data_files import items, read_text, text_at
from curtilage.lab.evaluation.figures import Figure
from curtilage.lab.evaluation.identifiers import leaks
from curtilage.lab.evaluation.rows import Gold, Row

LABELS: Final[Mapping[str, Wanted]] = MappingProxyType(
    {
        "stays": Wanted.HOME,
        "may leave": Wanted.LEAVES,
        "names only": Wanted.NAMELESS,
    }
)
COLUMNS: Final = ("text", "must", "names")
_NAME: Final = "NAME"
# A spreadsheet reads a cell with this prefix as a formula and may run it (OWASP, "CSV
# Injection"). An apostrophe in front makes it text, and is removed when read back.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "'")
_MAX_FIELD_CHARS: Final = 16 * 1024 * 1024

Line = tuple[int, Mapping[str, object]]  # a row's first line number and its fields


def read_labelled(path: Path) -> tuple[tuple[Row, ...], int]:
    """Return the labelled rows of a file, and the number of rows without a label.

    Raises:
        ConfigError: a row is invalid, or none is labelled; names the line.
    """
    rows: list[Row] = []
    waiting = 0
    for number, fields in _lines(path):
        if not text_at(fields, "must"):
            waiting += bool(text_at(fields, "text"))
            continue
        try:
            rows.append(_row(f"{path.name}:{number}", fields))
        except ValueError as error:
            raise ConfigError(f"{path.name}, line {number}: {error}") from None
    if not rows:
        raise ConfigError(f"{path.name}: no row is labelled (column 'must')")
    return tuple(rows), waiting


def write_sheet(source: Path, target: Path) -> int:
    """Write texts into a new sheet for labels; return how many.

    The texts are the lines of a file, or its column or field ``text``. Only the owner
    can read the sheet, and nothing is written anywhere else.

    Raises:
        ConfigError: the source has no text, or the sheet exists or cannot be created.
    """
    if source.suffix in {".csv", ".jsonl"}:
        texts = [text_at(fields, "text") for _, fields in _lines(source)]
    else:
        texts = [line.strip() for line in read_text(source).split("\n")]
    texts = [text for text in texts if text]
    if not texts:
        raise ConfigError(f"{source.name}: no text in it")
    try:
        # Never overwrite labels that were already given.
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as failure:
        raise ConfigError(f"{target}: {failure.strerror}") from None
    # The byte order mark shows a spreadsheet that this is UTF-8.
    with os.fdopen(handle, "w", encoding="utf-8-sig", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(COLUMNS)
        sheet.writerows(
            (f"'{text}" if text.startswith(_FORMULA) else text, "", "")
            for text in texts
        )
    return len(texts)


def _lines(path: Path) -> Iterator[Line]:
    """Yield the rows of a table or of JSON Lines, each with its first line's number."""
    text = read_text(path)
    if path.suffix == ".csv":
        yield from _table(path, text)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _object(path, number, line)


def _table(path: Path, text: str) -> Iterator[Line]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    head = text.partition("\n")[0]
    # The header's separator is the whole file's.
    delimiter = max(",;\t", key=head.count)
    names = [
        name.strip().casefold()
        for row in csv.reader([head], delimiter=delimiter)
        for name in row
    ]
    if "text" not in names:
        raise ConfigError(f"{path.name}, line 1: no column 'text'")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    begins = 1
    try:
        for fields in reader:
            if begins > 1 and any(fields):
                yield begins, dict(zip(names, map(_unguarded, fields), strict=False))
            begins = reader.line_num + 1
    except csv.Error:
        raise ConfigError(f"{path.name}, line {begins}: not a row of CSV") from None


def _object(path: Path, number: int, line: str) -> Mapping[str, object]:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name}, line {number}: not a JSON object")
    return cast("dict[str, object]", value)


def _unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def _row(name: str, fields: Mapping[str, object]) -> Row:
    """Return a labelled row.

    Raises:
        ValueError: it is invalid; the message says why and quotes nothing.
    """
    text = text_at(fields, "text")
    label = " ".join(text_at(fields, "must").casefold().split())
    if not text:
        raise ValueError("no text")
    if label not in LABELS:
        raise ValueError(f"'must' is none of {', '.join(LABELS)}")
    names = fields.get("names")
    listed = names.split("|") if isinstance(names, str) else items(names)
    gold = [*_named(text, listed)]
    for span in items(fields.get("spans")):
        match items(span):
            case [int(start), int(end), str(kind)] if 0 <= start < end <= len(text):
                gold.append(Gold(kind=kind, start=start, end=end))
            case _:
                raise ValueError("a span is not [first, past, kind] within the text")
    if label == "names only" and not gold:
        raise ValueError("'names only', and no name or span says which")
    return Row(id=name, key="", text=text, gold=tuple(gold), tags=(label,))


def _named(text: str, names: Sequence[object]) -> Iterator[Gold]:
    for name in names:
        wanted = name.strip() if isinstance(name, str) else ""
        found = list(re.finditer(re.escape(wanted), text, re.IGNORECASE))
        if wanted and not found:
            raise ValueError("a name is not in the text")
        for match in found if wanted else ():
            yield Gold(kind=_NAME, start=match.start(), end=match.end())


def own(bench: Bench) -> Iterator[Figure]:
    """Yield for each label how many of the user's own texts end as they must."""
    rows = [row for row in bench.own if bench.has(row)]
    for label, wanted in LABELS.items():
        part = [row for row in rows if label in row.tags]
        if part:
            yield bench.figure(
                f"own.{label.replace(' ', '_')}", f"must: {label}", part, wanted
            )
    marked = [row for row in rows if row.gold]
    if marked:
        kinds = frozenset(gold.kind for row in marked for gold in row.gold)
        yield from leaks(bench, "own.leak", "names and spans that leave", marked, kinds)
