"""Readers of name corpora, in which tokens or slots are marked.

A text consists of its tokens with a space between them. The text is also its key,
since training reads the same files in the same way.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from curtilage.lab.evaluation.data_files import read_csv, read_text, text_at
from curtilage.lab.evaluation.rows import Gold, Row

_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PER": "PERSON",
        "PERSON": "PERSON",
        "NAME": "PERSON",
        "LOC": "LOCATION",
        "LOCATION": "LOCATION",
        "GEO-LOC": "LOCATION",
        "ORG": "ORGANIZATION",
        "CORPORATION": "ORGANIZATION",
        "GROUP": "ORGANIZATION",
    }
)
_SLOT: Final = re.compile(r"\[\s*(\w+)\s*:\s*([^\]]*)\]")
_SLOT_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "person": "PERSON",
        "place_name": "LOCATION",
        "business_name": "ORGANIZATION",
    }
)
_LEAST_FIELDS: Final = 2


def kind_of(label: str) -> str:
    """Translate a corpus's label to ours; a label without a counterpart is kept."""
    return _TYPES.get(label.upper(), label)


Token = tuple[str, str]  # a word and its label, such as B-PER


# The names of these corpora in the keys of the split.
_SPLIT_NAMES = {"sec": "sec-filings", "ewt": "uner-ewt"}


def read_columns(path: Path, corpus: str) -> Iterator[Row]:
    """Read one token per line, with its label last; a blank line ends a text."""
    yield from _rows(path, corpus, _tokens(path, word=0, label=-1))


def read_iob2(path: Path, corpus: str) -> Iterator[Row]:
    """Read ``number, word, label, …`` per line, tab-separated; ``#`` begins a note."""
    yield from _rows(path, corpus, _tokens(path, word=1, label=2))


def _tokens(path: Path, *, word: int, label: int) -> Iterator[Sequence[Token]]:
    tokens: list[Token] = []
    # Notes are only between numbered tokens; a tweet may begin with the sign.
    numbered = word == 1
    for line in (*read_text(path).split("\n"), ""):
        if (numbered and line.startswith("#")) or "-DOCSTART-" in line:
            continue
        fields = line.split("\t") if "\t" in line else line.split()
        if len(fields) >= max(_LEAST_FIELDS, label + 1) and (
            not numbered or fields[0][:1].isdigit()
        ):
            tokens.append((fields[word].strip(), fields[label].strip()))
        elif tokens:
            yield tokens
            tokens = []


def _rows(path: Path, corpus: str, texts: Iterator[Sequence[Token]]) -> Iterator[Row]:
    for number, tokens in enumerate(texts):
        text = " ".join(word for word, _ in tokens)
        yield Row(
            id=f"{corpus}:{path.name}:{number}",
            key=f"{_SPLIT_NAMES.get(corpus, corpus)}:{text}",
            text=text,
            gold=tuple(_entities(tokens)),
            tags=(corpus, path.name),
        )


def _entities(tokens: Sequence[Token]) -> Iterator[Gold]:
    """Yield the marked stretches; an I tag after another type begins a new one."""
    at, current = 0, None
    for word, label in tokens:
        kind = _TYPES.get(label.partition("-")[2].upper())
        start, end = at, at + len(word)
        at = end + 1
        if current is not None:
            if label.startswith("I") and kind == current.kind:
                current = Gold(kind=current.kind, start=current.start, end=end)
                continue
            yield current
        current = None if kind is None else Gold(kind=kind, start=start, end=end)
    if current is not None:
        yield current


def read_assistant_queries(path: Path) -> Iterator[Row]:
    """Read requests with slots inside: ``call [person : ann] at [time : six]``."""
    for number, fields in enumerate(read_csv(path)):
        text, gold = unslotted(text_at(fields, "answer_annotation"))
        if text:
            yield Row(
                id=f"nlu:{path.name}:{number}",
                key=f"nlu:{text}",
                text=text,
                gold=gold,
                tags=("nlu",),
            )


def unslotted(marked: str) -> tuple[str, tuple[Gold, ...]]:
    """Return a request without its marks, and the positions of the names in it."""
    text, at = "", 0
    gold: list[Gold] = []
    for match in _SLOT.finditer(marked):
        text += marked[at : match.start()]
        start, at = len(text), match.end()
        text += match[2].strip()
        kind = _SLOT_TYPES.get(match[1])
        if kind is not None and len(text) > start:
            gold.append(Gold(kind=kind, start=start, end=len(text)))
    return text + marked[at:], tuple(gold)
