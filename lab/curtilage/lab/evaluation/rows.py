"""One row of a data set, and the split that training and measuring share.

A row has a text and its authors' marks. Its id has a file name and a number and none of
its words, so it is safe to show. Its key may contain the text, and only determines the
part that the row belongs to.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

HELD_OUT_TENTHS: Final = 3


class Part(StrEnum):
    """The part of the rows that is measured."""

    ALL = "all"
    DEVELOPED = "developed"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """Characters ``start`` to ``end`` of a row's text, marked by its authors.

    Attributes:
        kind: the set's own label, such as ``CREDIT_CARD``.
        start: first character.
        end: one past the last.
    """

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One text of a data set.

    Attributes:
        id: set, file and number; safe to show.
        key: determines the part; empty for rows that are never trained on.
        text: the query.
        gold: the marks, in the text's order.
        tags: other properties: a file, a kind of text, a group of people.
        units: values that identify a person, if no offsets are given.
    """

    id: str
    key: str = field(repr=False)
    text: str = field(repr=False)
    gold: tuple[Gold, ...] = ()
    tags: tuple[str, ...] = ()
    units: tuple[str, ...] = field(default=(), repr=False)

    def value(self, gold: Gold) -> str:
        """Return the marked characters."""
        return self.text[gold.start : gold.end]


def held_out(key: str) -> bool:
    """Return whether the row with this key is held out; 3 of 10 are."""
    digest = hashlib.sha256(f"curtilage-split:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 10 < HELD_OUT_TENTHS


def in_part(row: Row, part: Part) -> bool:
    """Return whether a row belongs to a part; a row without a key is held out."""
    if part is Part.ALL:
        return True
    kept = not row.key or held_out(row.key)
    return kept is (part is Part.HELD_OUT)


def marked_as(rows: Iterable[Row], kinds: frozenset[str]) -> list[Row]:
    """Return the rows with marks of these kinds, without their other marks."""
    found = (
        (row, tuple(gold for gold in row.gold if gold.kind in kinds)) for row in rows
    )
    # Verdicts are cached by id, together with the marks; so the id must differ.
    return [
        replace(row, id=f"{row.id}:marked", gold=gold) for row, gold in found if gold
    ]


def sampled(rows: Iterable[Row], limit: int) -> tuple[Row, ...]:
    """Return at most ``limit`` rows, always the same ones, in their order."""
    every = tuple(rows)
    if len(every) <= limit:
        return every

    def lot(row: Row) -> bytes:
        return hashlib.sha256(f"curtilage-sample:{row.id}".encode()).digest()

    # By hash and not by position, since sets are often sorted by subject.
    chosen = {row.id for row in sorted(every, key=lot)[:limit]}
    return tuple(row for row in every if row.id in chosen)


def sampled_each(rows: Sequence[Row], tags: Sequence[str], limit: int) -> list[Row]:
    """Return a sample in which each of ``tags`` has an equal share of the limit.

    Small groups are included whole. A row counts for the first of ``tags`` that it has.
    """
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        group = next((tag for tag in tags if tag in row.tags), None)
        if group is not None:
            groups[group].append(row)
    share = max(limit // len(tags), 1)
    return [row for tag in tags for row in sampled(groups[tag], share)]
