"""``curtilage policy list-make``: build an exact list from a table.

A row is read, hashed and dropped: no value is written, printed or kept. Messages about
unusable rows contain only the line and the reason, never a value.
"""

import codecs
import csv
import io
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Final, cast

from curtilage.cli.declared import Arguments
from curtilage.cli.options import file_errors
from curtilage.cli.terminal import DONE, err_again, out, out_json
from curtilage.client.detection.wordlists import ACRONYMS, GIVEN, is_known
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.system.files import (
    open_ordinary,
    read_text,
    write_private_atomically,
)
from curtilage.policy.document.dictionaries import MAX_ENTRY_CHARS, MIN_SALT_BYTES
from curtilage.policy.document.exact_list import (
    COMPARISONS,
    MAX_COLUMNS,
    MAX_WORDS,
    Column,
    Compare,
    ExactList,
    ExactListWriter,
    forms,
    value_words,
)

SALT_BYTES: Final = 32
MAX_SALT_FILE_BYTES: Final = 1024
# Shorter values match ordinary text by chance, and every such question would be kept
# local.
MIN_CHARS: Final = 4
MIN_DIGITS: Final = 6
SHOWN_ROWS: Final = 20_000
ORDINARY: Final = "an ordinary word or given name"
TOO_SHORT: Final = "too short"
OTHER_WIDTH: Final = "a different number of columns"
Choice = tuple[tuple[str, Compare], ...]


def run(arguments: Arguments) -> int:
    """Make the list; exit 2 if the table is invalid, or yields no entry."""
    alone = [_choice(each) for each in arguments.column]
    together = [_choice(each) for each in arguments.together]
    if not alone and not together:
        raise UsageError("name the columns: --column NAME, or --together NAME,NAME")
    if any(len(each) != 1 for each in alone):
        raise UsageError("--column takes one name; for combinations use --together")
    if any(compare == "date" for ((_, compare),) in alone):
        raise UsageError("a date alone identifies no person: --together NAME,DAY:date")
    salt = _salt(arguments.salt_file)
    made = _read(arguments, alone, together, salt)
    try:
        content = made.writer.encode()
    except ValueError as error:
        counts = "; ".join(made.counts())
        raise ConfigError(f"{arguments.file}: {error} ({counts})") from None
    path = Path(arguments.out)
    # Private and complete or not at all: with the salt, the digests of a list can be
    # tested against guesses.
    with file_errors(path), write_private_atomically(path) as file:
        file.write(content)
    # Counted in the encoded file, as a client will read it: equal values are one entry.
    entries = sum(n for _, n in ExactList.parse(content, salt=salt).counts)
    kept = arguments.salt_file
    if arguments.json:
        out_json(
            {
                "file": str(path),
                "rows": made.rows,
                "entries": entries,
                "bytes": len(content),
                "taken": dict(made.taken),
                "refused": {name: dict(why) for name, why in made.refused.items()},
                # Shown only if it is not in a file: the output may be logged.
                "salt": None if kept else salt.hex(),
            }
        )
        return DONE
    out(f"{path}: {made.rows:,} rows, {entries:,} entries, {len(content):,} bytes")
    for line in made.counts():
        out(f"  {line}")
    out(f"  false matches: fewer than one in {2**64 // entries:,}")
    shown = f'"…"   # as {kept} has it' if kept else f'"{salt.hex()}"'
    name = path.stem.lower()
    out(
        f"In the policy, next to that file:\ndetectors:\n- id: {name}\n  kind: edm\n"
        f"  class: org.edm.{name}\n  file: {path.name}\n  salt: {shown}\n"
        "  base_score: 95"
    )
    return DONE


def _read(
    arguments: Arguments,
    alone: Sequence[Choice],
    together: Sequence[Choice],
    salt: bytes,
) -> "_Made":
    """Read the table row by row."""
    if len(arguments.delimiter) != 1:
        raise UsageError("--delimiter must be one character")
    with ExitStack() as closing:
        source = sys.stdin.buffer
        if arguments.file != "-":
            with file_errors(arguments.file):
                source = closing.enter_context(open_ordinary(Path(arguments.file)))
        try:
            encoding = codecs.lookup(arguments.encoding).name
        except LookupError:
            raise UsageError(f"no such encoding: {arguments.encoding}") from None
        # A byte order mark would become part of the first column's name.
        encoding = "utf-8-sig" if encoding == "utf-8" else encoding
        text = io.TextIOWrapper(source, encoding=encoding)
        # Strict: a quote in the wrong place would otherwise join several rows into one
        # value.
        read = csv.reader(text, delimiter=arguments.delimiter, strict=True)
        rows = _rows(read, arguments.file)
        first = next(rows, None)
        if first is None:
            raise ConfigError(f"{arguments.file}: the table is empty")
        head = [name.strip() for name in first]
        if arguments.no_header:
            head = [str(at) for at in range(1, len(first) + 1)]
            rows = chain([first], rows)
        made = _Made(head, alone, together, salt=salt, near=arguments.near)
        for number, row in enumerate(rows, start=1):
            made.take(row)
            if number % SHOWN_ROWS == 0 and sys.stderr.isatty():
                err_again(f"{number:,} rows")
    return made


class _Made:
    """The list under construction, with counts; no value is kept."""

    def __init__(
        self,
        head: Sequence[str],
        alone: Sequence[Choice],
        together: Sequence[Choice],
        *,
        salt: bytes,
        near: int,
    ) -> None:
        columns = list(
            dict.fromkeys(each for one in (*alone, *together) for each in one)
        )
        # Checked before any row is hashed: a mistyped column would yield an empty list
        # that protects nothing.
        missing = [name for name, _ in columns if name not in head]
        if missing:
            raise UsageError(f"no such column: {', '.join(missing)} (of {len(head)})")
        if len(columns) > MAX_COLUMNS:
            raise UsageError(f"at most {MAX_COLUMNS} columns")
        self._columns = columns
        self._at = [head.index(name) for name, _ in columns]
        self._width = len(head)
        self._alone = [columns.index(one) for (one,) in alone]
        self._together = [tuple(map(columns.index, each)) for each in together]
        try:
            self.writer = ExactListWriter(
                salt=salt,
                columns=[Column(name=name, compare=how) for name, how in columns],
                alone=self._alone,
                together=self._together,
                near=near,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        self.rows = 0
        self.taken = Counter[str]({self._name((at,)): 0 for at in self._alone})
        self.taken.update({self._name(group): 0 for group in self._together})
        self.refused: dict[str, Counter[str]] = {name: Counter() for name in self.taken}

    def take(self, row: Sequence[str]) -> None:
        """Add one row."""
        self.rows += 1
        # A shifted row would put a value into the wrong column.
        if len(row) != self._width:
            for refused in self.refused.values():
                refused[OTHER_WIDTH] += 1
            return
        values = [row[at] for at in self._at]
        for at in self._alone:
            name, compare = self._name((at,)), self._columns[at][1]
            why = _why_not(values[at], compare) or _why_not_alone(values[at])
            if not why and self.writer.add_alone(at, values[at]):
                self.taken[name] += 1
            else:
                # Counted by reason and column, never with the value.
                self.refused[name][why or "not comparable this way"] += 1
        for number, group in enumerate(self._together):
            name = self._name(group)
            whys = [_why_not(values[at], self._columns[at][1]) for at in group]
            why = next(filter(None, whys), "")
            if not why and self.writer.add_together(
                number, [values[at] for at in group]
            ):
                self.taken[name] += 1
            else:
                self.refused[name][why or "not comparable this way"] += 1

    def counts(self) -> Iterator[str]:
        """Yield lines with the counts of accepted and refused values."""
        for name, taken in self.taken.items():
            refused = self.refused[name]
            more = ", ".join(f"{n:,} {why}" for why, n in sorted(refused.items()))
            yield f"{name}: {taken:,} taken" + (
                f", {refused.total():,} refused ({more})" if more else ""
            )

    def _name(self, group: Sequence[int]) -> str:
        return " with ".join(self._columns[at][0] for at in group)


def _why_not(value: str, compare: Compare) -> str:
    """Return why a value could never match; empty: it could."""
    words = value_words(value)
    if not words:
        return "empty"
    if len(words) > MAX_WORDS or len("".join(words)) > MAX_ENTRY_CHARS:
        return f"more than {MAX_WORDS} words"
    if not forms(words, compare):
        return "not a date" if compare == "date" else "not digits"
    return ""


def _why_not_alone(value: str) -> str:
    """Return why a value alone would match ordinary text; empty: it would not."""
    words = value_words(value)
    joined = "".join(words)
    if len(joined) < (MIN_DIGITS if joined.isdecimal() else MIN_CHARS):
        return TOO_SHORT
    # Several words in this order hardly occur by chance.
    if len(words) > 1:
        return ""
    ordinary = joined in ACRONYMS or joined in GIVEN or is_known(joined)
    return ORDINARY if ordinary else ""


def _choice(text: str) -> Choice:
    """Parse ``NAME``, ``NAME:COMPARE``, or several of them separated by commas."""
    found: list[tuple[str, Compare]] = []
    for each in text.split(","):
        name, colon, how = each.rpartition(":")
        # A column's name may contain a colon.
        known = colon and how in COMPARISONS
        found.append(
            (name.strip(), cast("Compare", how)) if known else (each.strip(), "text")
        )
    if len({name for name, _ in found}) != len(found):
        raise UsageError("a column is repeated")
    return tuple(found)


def _salt(file: str | None) -> bytes:
    """Return a new salt, or the one in a file, which is created if missing."""
    if file is None:
        return secrets.token_bytes(SALT_BYTES)
    path = Path(file)
    if not path.exists():
        salt = secrets.token_bytes(SALT_BYTES)
        with file_errors(path), write_private_atomically(path) as made:
            made.write(f"{salt.hex()}\n".encode())
        return salt
    try:
        salt = bytes.fromhex(read_text(path, MAX_SALT_FILE_BYTES).strip())
    except ValueError:
        raise ConfigError(f"{path}: not a salt in hexadecimal digits") from None
    # A short salt could be guessed together with the values.
    if not MIN_SALT_BYTES <= len(salt) <= 2 * SALT_BYTES:
        raise ConfigError(f"{path}: a salt has {MIN_SALT_BYTES} to 64 bytes")
    return salt


def _rows(rows: Iterator[list[str]], source: str) -> Iterator[list[str]]:
    """Yield the non-empty rows; an error names the line, without its text."""
    line = 0
    while True:
        line += 1
        try:
            row = next(rows)
        except StopIteration:
            return
        # Without the library's message, which may quote the row.
        except csv.Error:
            raise ConfigError(f"{source}: row {line} is not CSV") from None
        except UnicodeDecodeError:
            raise ConfigError(
                f"{source}: near row {line}: not in this encoding (--encoding)"
            ) from None
        if row:
            yield row
