"""Turns examples into padded batches of similar size."""

import random  # training must repeat; nothing secret is drawn
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from examples import Example
from labels import IGNORED, LABEL_IDS, LABELS, MAX_PIECES, TOPICS, TYPES
from tokenizers import Encoding, Tokenizer, processors
from torch import Tensor

SKIP = -100  # no loss for this piece
# The pieces before and after every text: in BERT, and in XLM-R and its descendants.
_MARKS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))
_CHUNK = 3000


@dataclass(frozen=True)
class Row:
    """One encoded example.

    Attributes:
        ids: pieces.
        labels: a label for each piece, or ``SKIP``.
        free: labels that a piece marked O may have all the same, as a mask.
        topics: a value for each topic, or -1.
    """

    ids: list[int]
    labels: list[int]
    free: list[float]
    topics: list[float]


@dataclass(frozen=True)
class Batch:
    """Rows padded to one length."""

    ids: Tensor
    mask: Tensor
    labels: Tensor
    free: Tensor
    topics: Tensor


def encode(tokenizer: Tokenizer, example: Example) -> Row:
    """Return pieces, their labels and what is known."""
    made = tokenizer.encode(example.text)
    labels = [SKIP] * len(made.ids)
    if example.known:
        _label(made, example, labels)
    free = [0.0] * len(LABELS)
    free[0] = 1.0
    for kind in TYPES:
        if kind not in example.known:
            free[LABEL_IDS[f"B-{kind}"]] = free[LABEL_IDS[f"I-{kind}"]] = 1.0
    topics = [example.topics.get(name, -1.0) for name in TOPICS]
    return Row(made.ids, labels, free, topics)


def _label(made: Encoding, example: Example, labels: list[int]) -> None:
    """Mark the first piece of each word."""
    begun = -1
    for at, start, _ in words_of(example.text, made):
        number = next(
            (n for n, s in enumerate(example.spans) if s.start <= start < s.end), None
        )
        if number is None:
            labels[at] = 0
            continue
        kind = example.spans[number].type
        if kind != IGNORED:
            labels[at] = LABEL_IDS[f"{'I' if begun == number else 'B'}-{kind}"]
        begun = number


def words_of(text: str, made: Encoding) -> Iterator[tuple[int, int, int]]:
    """Yield of each word its first piece, and where in the text it starts and ends.

    Some tokenizers count the space before a word to its first piece, or make a piece
    of a space alone, which is no word.
    """
    previous, first, places = None, -1, (0, 0)
    for at, (word, (start, end)) in enumerate(
        zip(made.word_ids, made.offsets, strict=True)
    ):
        blanks = len(text[start:end]) - len(text[start:end].lstrip())
        if word is None or start + blanks == end:
            continue
        if word == previous:
            places = (places[0], end)
            continue
        if first >= 0:
            yield first, *places
        previous, first, places = word, at, (start + blanks, end)
    if first >= 0:
        yield first, *places


def tokenizer_of(path: Path) -> Tokenizer:
    """Return the tokenizer: with marks, cut at ``MAX_PIECES``, without padding."""
    made = Tokenizer.from_file(str(path))
    first, last = marks = marks_of(made)
    made.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        special_tokens=[(each, made.token_to_id(each)) for each in marks],
    )
    made.no_padding()
    made.enable_truncation(MAX_PIECES)
    return made


def marks_of(tokenizer: Tokenizer) -> tuple[str, str]:
    """Return the pieces before and after a text."""
    return next(
        pair
        for pair in _MARKS
        if all(tokenizer.token_to_id(each) is not None for each in pair)
    )


def batches(rows: Sequence[Row], source: random.Random, pieces: int) -> Iterator[Batch]:
    """Yield batches of at most ``pieces`` pieces with padding, without end."""
    while True:
        order = list(range(len(rows)))
        source.shuffle(order)
        for first in range(0, len(order), _CHUNK):
            chunk = sorted(
                order[first : first + _CHUNK], key=lambda at: len(rows[at].ids)
            )
            groups: list[list[Row]] = [[]]
            for at in chunk:
                if groups[-1] and len(rows[at].ids) * (len(groups[-1]) + 1) > pieces:
                    groups.append([])
                groups[-1].append(rows[at])
            source.shuffle(groups)
            for group in groups:
                if group:
                    yield padded(group)


def padded(rows: Sequence[Row]) -> Batch:
    """Return rows as tensors."""
    length = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(rows), length), SKIP)
    for at, row in enumerate(rows):
        ids[at, : len(row.ids)] = torch.tensor(row.ids)
        mask[at, : len(row.ids)] = 1
        labels[at, : len(row.ids)] = torch.tensor(row.labels)
    return Batch(
        ids=ids,
        mask=mask,
        labels=labels,
        free=torch.tensor([row.free for row in rows]),
        topics=torch.tensor([row.topics for row in rows]),
    )
