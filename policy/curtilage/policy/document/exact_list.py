"""Exact lists: files of up to a million values or records, none of them readable.

The file is one line that names the format, one line of JSON (``_Header``), then
tables, each of unsigned 64-bit numbers, little-endian, ascending: the first eight
bytes of HMAC-SHA256 under the policy's salt. One table for each way of comparing
holds the values that count alone; where columns count together, one holds the
values of each column, and one the combinations that are a row of the source.

A run of words that is not in a table of ``n`` matches by accident with a
probability of ``n`` in 2**64. With file and salt one can confirm a guess, and no
more; but the numbers of a small range (cards, social security numbers) can all be
guessed, so keep both secret.
"""

import hmac
import json
import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from itertools import pairwise
from typing import Final, Literal, TypeAlias, cast, get_args

from curtilage.policy.document.dictionaries import MAX_ENTRY_CHARS, folded

Compare: TypeAlias = Literal["text", "digits", "date"]
"""Ways to compare values: by letters and digits; by digits, leading zeros aside;
or as a day, however it is written."""

COMPARISONS: Final[tuple[Compare, ...]] = get_args(Compare)
MAGIC: Final = b"curtilage-exact-list 1\n"
MAX_TABLE_ENTRIES: Final = 5_000_000
MAX_COLUMNS: Final = 8
NO_ENTRY: Final = "no entry is left"
OTHER_SALT: Final = "the exact list was made with another salt"
MAX_TOGETHER: Final = 3
MAX_WORDS: Final = 8
"""A value is at most so many words in a row."""
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_LIST_BYTES: Final = 8 * MAX_TABLE_ENTRIES + len(MAGIC) + MAX_HEADER_BYTES
DEFAULT_NEAR: Final = 200
MAX_NEAR: Final = 1000
_KEY_CHECK: Final = b"\x00curtilage exact list"
_TOGETHER: Final = b"\x00together"
_WORD = re.compile(r"[^\W_]+")
_DIGIT = re.compile(r"\d")
_ORDINAL = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th|er|e|o)?")
_JOINING: Final = frozenset({"de", "del", "do", "of", "the", "di"})
_EIGHT = 8
_YEARS: Final = range(1850, 2101)
# The first letters that distinguish the months of seven languages.
_MONTHS: Final = (
    ("jan", "gen", "ene", "janv"),
    ("feb", "fev", "fév", "febbr"),
    ("mar", "mär", "maa", "mrt"),
    ("apr", "avr", "abr"),
    ("may", "mai", "mei", "mag"),
    ("jun", "giu", "juin"),
    ("jul", "lug", "juil"),
    ("aug", "aou", "aoû", "ago"),
    ("sep", "set"),
    ("oct", "okt", "ott", "out"),
    ("nov",),
    ("dec", "dez", "déc", "dic"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the source.

    Attributes:
        name: as the source calls it.
        compare: how its values are compared.
    """

    name: str
    compare: Compare


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The second line of a file.

    Attributes:
        key_check: detects a wrong salt, with which nothing would ever be found.
        near: how far apart values that count together may be, in characters.
        columns: those that are used.
        alone: which of them count alone, by index.
        together: which of them count together, by index.
        lengths: those that values have that are compared by their text, so that
            others need not be looked up.
        wordy: the most words of a value that is compared by its text and has no
            digit.
        tables: how many entries each table has: those of ``alone`` by comparison,
            those of each column that counts together, those of ``together``.
    """

    key_check: str
    near: int
    columns: tuple[Column, ...]
    alone: tuple[int, ...]
    together: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    wordy: int
    tables: tuple[int, ...]


def value_words(value: str) -> list[str]:
    """Return the words of a value, folded, as they are found in a text."""
    return _WORD.findall(folded(value).replace("_", " "))


def forms(words: Sequence[str], compare: Compare) -> tuple[str, ...]:
    """Return what words in a row are compared by; nothing where they are none such.

    A day may be read in two ways (3/4/1980), and so has two forms.
    """
    joined = "".join(words)
    if compare == "text":
        return (joined,)
    if compare == "date":
        return _days(words)
    plain = joined if joined.isdecimal() else ""
    return (plain.lstrip("0"),) if plain.strip("0") else ()


def _days(words: Sequence[str]) -> tuple[str, ...]:
    # The day or the year is last, in every order: most runs end here.
    if not _DIGIT.match(words[-1]):
        return ()
    if len(words) == 1 and len(words[0]) == _EIGHT and words[0].isdecimal():
        all_ = words[0]
        parts = ((all_[:4], all_[4:6], all_[6:]), (all_[:2], all_[2:4], all_[4:]))
        found = {each for part in parts for each in _days(part)}
        return tuple(sorted(found))
    words = [words[0], *(word for word in words[1:] if word not in _JOINING)]
    parts_wanted = 3
    if len(words) != parts_wanted:
        return ()
    orders = ((0, 1, 2), (2, 1, 0), (2, 0, 1))  # positions of year, month, day
    found = set[str]()
    for year_at, month_at, day_at in orders:
        day = _ORDINAL.fullmatch(words[day_at])
        month = _month(words[month_at])
        if day is None or month is None:
            continue
        for year in _years(words[year_at]):
            try:
                found.add(date(year, month, int(day[1])).isoformat())
            except ValueError:
                continue
    return tuple(sorted(found))


def _month(word: str) -> int | None:
    if word.isdecimal():
        return int(word) if len(word) <= len("12") else None
    for number, starts in enumerate(_MONTHS, start=1):
        if word.startswith(starts):
            return number
    return None


def _years(word: str) -> Iterator[int]:
    if not word.isdecimal():
        return
    if len(word) == len("1980") and int(word) in _YEARS:
        yield int(word)
    elif len(word) == len("80"):
        yield 1900 + int(word)
        yield 2000 + int(word)


def digest_of_value(form: str, compare: Compare, *, salt: bytes) -> int:
    """Return the digest of a value's form: 64 bits of its HMAC."""
    # A value compared by its text has the digest of ``dictionaries.edm_entry``,
    # truncated; the others have a prefix that no letters and digits can equal.
    label = "" if compare == "text" else f"\x00{compare}\x00"
    return _cut(hmac.digest(salt, (label + form).encode(), "sha256"))


def digest_of_row(number: int, values: Iterable[int], *, salt: bytes) -> int:
    """Return the digest of one row's values in the combination of this number."""
    parts = b"".join(value.to_bytes(_EIGHT) for value in values)
    return _cut(hmac.digest(salt, _TOGETHER + bytes([number]) + parts, "sha256"))


def _cut(digest: bytes) -> int:
    return int.from_bytes(digest[:_EIGHT])


# --- made ---------------------------------------------------------------------


class ExactListWriter:
    """Builds the file from rows, of which it keeps only digests."""

    def __init__(
        self,
        *,
        salt: bytes,
        columns: Sequence[Column],
        alone: Sequence[int],
        together: Sequence[Sequence[int]] = (),
        near: int = DEFAULT_NEAR,
    ) -> None:
        """Start a list.

        Args:
            salt: the policy's.
            columns: of the source.
            alone: columns whose values count by themselves, by index.
            together: columns that count together, by index, two or three each.
            near: how far apart such values may be, in characters.

        Raises:
            ValueError: too many columns, or too far apart.
        """
        used = {each for group in together for each in group}
        sizes = {len(group) for group in together}
        if not 0 < len(columns) <= MAX_COLUMNS or not 0 < near <= MAX_NEAR:
            raise ValueError(f"1 to {MAX_COLUMNS} columns, 1 to {MAX_NEAR} characters")
        if not sizes <= set(range(2, MAX_TOGETHER + 1)):
            raise ValueError(f"2 to {MAX_TOGETHER} columns count together")
        self._salt = salt
        self._near = near
        self._columns = tuple(columns)
        self._alone_columns = tuple(alone)
        self._together_columns = tuple(tuple(group) for group in together)
        self._alone = {each: array("Q") for each in COMPARISONS}
        self._parts = {at: array("Q") for at in sorted(used)}
        self._rows = [array("Q") for _ in together]
        self._lengths = set[int]()
        self._wordy = 0

    def add_alone(self, column: int, value: str) -> bool:
        """Take a value that counts by itself; False: it is none such."""
        digests = self._digests(column, value)
        self._alone[self._columns[column].compare].extend(digests)
        return bool(digests)

    def add_together(self, number: int, values: Sequence[str]) -> bool:
        """Take one row's values of a combination; False: one of them is none such."""
        group = self._together_columns[number]
        found = [
            self._digests(at, value) for at, value in zip(group, values, strict=True)
        ]
        if not all(found):
            return False
        for at, digests in zip(group, found, strict=True):
            self._parts[at].extend(digests)
        rows: list[tuple[int, ...]] = [()]
        for digests in found:
            rows = [(*row, each) for row in rows for each in digests]
        self._rows[number].extend(
            digest_of_row(number, row, salt=self._salt) for row in rows
        )
        return True

    def encode(self) -> bytes:
        """Return the file.

        Raises:
            ValueError: it has no entry, or too many.
        """
        tables = [
            _ascending(each)
            for each in (*self._alone.values(), *self._parts.values(), *self._rows)
        ]
        count = sum(map(len, tables))
        if not any(map(len, (*self._alone.values(), *self._rows))):
            raise ValueError(NO_ENTRY)
        if count > MAX_TABLE_ENTRIES:
            raise ValueError(f"more than {MAX_TABLE_ENTRIES:,} entries in all tables")
        header = _Header(
            key_check=_key_check(self._salt),
            near=self._near,
            columns=self._columns,
            alone=self._alone_columns,
            together=self._together_columns,
            lengths=tuple(sorted(self._lengths)),
            wordy=self._wordy,
            tables=tuple(map(len, tables)),
        )
        line = json.dumps(asdict(header), separators=(",", ":")).encode() + b"\n"
        return b"".join((MAGIC, line, *tables))

    def _digests(self, column: int, value: str) -> list[int]:
        compare = self._columns[column].compare
        words = value_words(value)
        if not words or len(words) > MAX_WORDS or len("".join(words)) > MAX_ENTRY_CHARS:
            return []
        found = forms(words, compare)
        if compare == "text":
            self._lengths.add(len("".join(words)))
            if not _DIGIT.search("".join(words)):
                self._wordy = max(self._wordy, len(words))
        return [digest_of_value(form, compare, salt=self._salt) for form in found]


def _ascending(values: "array[int]") -> "array[int]":
    """Return the values in order, each once, as they lie in a file."""
    made = array("Q")
    last = -1
    for value in sorted(values):
        if value != last:
            made.append(value)
        last = value
    if sys.byteorder == "big":
        made.byteswap()
    return made


def _key_check(salt: bytes) -> str:
    return hmac.digest(salt, _KEY_CHECK, "sha256")[:_EIGHT].hex()


# --- read ---------------------------------------------------------------------


def is_exact_list(content: bytes) -> bool:
    """Return whether a file is marked as an exact list, not as a list of words."""
    return content.startswith(MAGIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactList:
    """A file that was read; takes 8 bytes an entry, and a few thousand more.

    Attributes:
        columns: of the source.
        alone: the values that count by themselves, a table for each comparison.
        together: the columns of each combination, by index.
        parts: the values of each column that counts together.
        rows: a table for each combination.
        near: how far apart values that count together may stand, in characters.
        lengths: of the values that are compared by their text; empty: any.
        wordy: the most words of such a value, where it has no digit.
    """

    columns: tuple[Column, ...]
    alone: Mapping[Compare, Sequence[int]] = field(repr=False)
    together: tuple[tuple[int, ...], ...] = ()
    parts: Mapping[int, Sequence[int]] = field(
        default_factory=dict[int, Sequence[int]], repr=False
    )
    rows: tuple[Sequence[int], ...] = field(default=(), repr=False)
    near: int = DEFAULT_NEAR
    lengths: frozenset[int] = frozenset()
    wordy: int = MAX_WORDS

    @classmethod
    def parse(cls, content: bytes, *, salt: bytes) -> "ExactList":
        """Read a file.

        Raises:
            ValueError: it is none, or was made under another salt; no message
                holds anything of it.
        """
        if not is_exact_list(content):
            raise ValueError("the file is no exact list")
        end = content.find(b"\n", len(MAGIC), len(MAGIC) + MAX_HEADER_BYTES) + 1
        header = _header(content[len(MAGIC) : end])
        # Under another salt nothing would ever be found, silently.
        if not hmac.compare_digest(header.key_check, _key_check(salt)):
            raise ValueError(OTHER_SALT)
        if len(content) - end != _EIGHT * sum(header.tables):
            raise ValueError("the exact list is cut, or longer than it says")
        tables: list[Sequence[int]] = []
        body, at = memoryview(content)[end:], 0
        for count in header.tables:
            tables.append(_table(body[at : at + _EIGHT * count]))
            at += _EIGHT * count
        used = sorted({each for group in header.together for each in group})
        first, second = len(COMPARISONS), len(COMPARISONS) + len(used)
        if len(tables) != second + len(header.together):
            raise ValueError("the exact list has another number of tables")
        return cls(
            columns=header.columns,
            alone=dict(zip(COMPARISONS, tables[:first], strict=True)),
            together=header.together,
            parts=dict(zip(used, tables[first:second], strict=True)),
            rows=tuple(tables[second:]),
            near=header.near,
            lengths=frozenset(header.lengths),
            wordy=header.wordy,
        )

    @classmethod
    def of_digests(cls, entries: Iterable[str]) -> "ExactList":
        """Return the list of an older file: lines of ``dictionaries.edm_entry``."""
        cut = array("Q", sorted({_cut(bytes.fromhex(each)) for each in entries}))
        return cls(columns=(Column(name="value", compare="text"),), alone={"text": cut})

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Names and numbers of what counts: columns alone, then combinations."""
        used = {name: len(table) for name, table in self.alone.items() if len(table)}
        named = [("values", sum(used.values()))] if used else []
        for group, table in zip(self.together, self.rows, strict=True):
            named.append(
                (" with ".join(self.columns[at].name for at in group), len(table))
            )
        return tuple(named)

    def places(self, text: str, *, salt: bytes) -> Iterator[tuple[int, int]]:
        """Yield the places of values: those that count alone, then those together.

        One to eight words in a row, at most three characters between two of them.
        """
        found: dict[int, list[tuple[int, int, int]]] = {at: [] for at in self.parts}
        words = list(_WORD.finditer(text))
        folds = [value_words(word[0]) for word in words]
        compared: list[Compare] = [
            each
            for each in COMPARISONS
            if len(self.alone.get(each, ()))
            or any(self.columns[at].compare == each for at in self.parts)
        ]
        for at in range(len(words)):
            for end, run in _runs(words, folds, at):
                place = (words[at].start(), end)
                for compare, digest in self._digests(run, compared, salt):
                    if _holds(self.alone.get(compare, ()), digest):
                        yield place
                    for column, table in self.parts.items():
                        alike = self.columns[column].compare == compare
                        if alike and _holds(table, digest):
                            found[column].append((*place, digest))
        for number, group in enumerate(self.together):
            yield from self._near_each_other(number, group, found, salt)

    def _digests(
        self, run: Sequence[str], compared: Sequence[Compare], salt: bytes
    ) -> Iterator[tuple[Compare, int]]:
        for compare in compared:
            if compare != "text" or self._possible(run):
                for form in forms(run, compare):
                    yield compare, digest_of_value(form, compare, salt=salt)

    def _possible(self, run: Sequence[str]) -> bool:
        """Return whether words can be a value; avoids most of the hashing."""
        if self.lengths and sum(map(len, run)) not in self.lengths:
            return False
        # A number may be written in groups, and a name in one word more than the
        # source has (Mc Donald).
        return len(run) <= self.wordy + 1 or any(map(_DIGIT.search, run))

    def _near_each_other(
        self,
        number: int,
        group: tuple[int, ...],
        found: Mapping[int, Sequence[tuple[int, int, int]]],
        salt: bytes,
    ) -> Iterator[tuple[int, int]]:
        """Yield the places of values of one row, each value's own."""
        places = set[tuple[int, int]]()
        chosen: list[tuple[tuple[int, int, int], ...]] = [
            (each,) for each in found[group[0]]
        ]
        for column in group[1:]:
            starts = [each[0] for each in found[column]]
            longer: list[tuple[tuple[int, int, int], ...]] = []
            for row in chosen:
                least = min(each[0] for each in row)
                most = max(each[1] for each in row)
                # Only what can be near: otherwise a page of names would take the
                # square of its length.
                at = bisect_left(starts, least - self.near - MAX_ENTRY_CHARS)
                while at < len(starts) and starts[at] <= most + self.near:
                    each = found[column][at]
                    gap = max(each[0] - most, least - each[1])
                    apart = all(each[1] <= a or b <= each[0] for a, b, _ in row)
                    if gap <= self.near and apart:
                        longer.append((*row, each))
                    at += 1
            chosen = longer
        for row in chosen:
            digest = digest_of_row(number, (each[2] for each in row), salt=salt)
            if _holds(self.rows[number], digest):
                places |= {each[:2] for each in row}
        yield from sorted(places)


def _runs(
    words: Sequence[re.Match[str]], folds: Sequence[list[str]], at: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the ends and the words of what begins at one word."""
    max_gap = 3
    run: list[str] = []
    end = words[at].start()
    for word, parts in zip(
        words[at : at + MAX_WORDS], folds[at : at + MAX_WORDS], strict=True
    ):
        if run and word.start() - end > max_gap:
            return
        run, end = [*run, *parts], word.end()
        if sum(map(len, run)) > MAX_ENTRY_CHARS:
            return
        if run:
            yield end, run


def _holds(table: Sequence[int], digest: int) -> bool:
    at = bisect_left(table, digest)
    return at < len(table) and table[at] == digest


def _table(body: memoryview) -> Sequence[int]:
    table: Sequence[int] = body.cast("Q")
    if sys.byteorder == "big":
        swapped = array("Q", bytes(body))
        swapped.byteswap()
        table = swapped
    # Out of order, some would silently not be found.
    if not all(one < other for one, other in pairwise(table)):
        raise ValueError("a table of the exact list is not in order")
    return table


def _header(line: bytes) -> _Header:
    """Read the second line.

    Raises:
        ValueError: it is invalid; the message has no details.
    """
    try:
        given = cast("dict[str, object]", json.loads(line))
        made = _Header(
            key_check=str(given["key_check"]),
            near=cast("int", given["near"]),
            columns=tuple(
                Column(name=str(each["name"]), compare=cast("Compare", each["compare"]))
                for each in cast("list[dict[str, object]]", given["columns"])
            ),
            alone=tuple(cast("list[int]", given["alone"])),
            together=tuple(map(tuple, cast("list[list[int]]", given["together"]))),
            lengths=tuple(cast("list[int]", given["lengths"])),
            wordy=cast("int", given["wordy"]),
            tables=tuple(cast("list[int]", given["tables"])),
        )
        numbers = (
            made.near,
            made.wordy,
            *made.alone,
            *made.tables,
            *(at for group in made.together for at in group),
            *made.lengths,
        )
        known = range(len(made.columns))
        right = (
            given.keys() == {each.name for each in fields(_Header)}
            and made.key_check.isascii()
            and all(type(each) is int and each >= 0 for each in numbers)
            and 0 < made.near <= MAX_NEAR
            and 0 < len(made.columns) <= MAX_COLUMNS
            and all(each.compare in COMPARISONS for each in made.columns)
            and all(at in known for group in made.together for at in group)
            and all(1 < len(group) <= MAX_TOGETHER for group in made.together)
            and sum(made.tables) <= MAX_TABLE_ENTRIES
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("the header of the exact list is not one") from None
    if not right:
        raise ValueError("the header of the exact list is not one")
    return made
