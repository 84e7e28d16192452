"""A name model's opinion on a text, for any model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from curtilage.client.detection.detectors.readings import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """A text to be judged as one.

    Attributes:
        text: any text; if it is longer than the model's input, it is examined in
            overlapping windows.
        excerpts: passages of it whose topics are judged too; the highest score counts.
            Names are searched for in ``text`` only.
    """

    text: str = field(repr=False)
    excerpts: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A place in a text that names a person or a thing, without its words.

    Attributes:
        kind: the model's own label, such as ``PERSON``.
        start: first character.
        end: one past the last character.
        score: 1 to 100; the embedded model's are 50 and more: how much likelier its
            most certain word is of this kind than of none.
    """

    kind: str
    start: int
    end: int
    score: int


class Opinion(Protocol):
    """A model's opinion on one text."""

    @property
    def entities(self) -> Sequence[Entity]:
        """The entities, in the text's order."""
        ...

    @property
    def topics(self) -> Mapping[str, int]:
        """The topics that the text discloses about a person, 0 to 100 each."""
        ...

    def likelihood(self, kind: str, start: int, end: int) -> int:
        """Return how likely a word at a position is of a kind, in thousandths."""
        ...


class NameModel(Protocol):
    """A model that judges texts."""

    @property
    def classes(self) -> Mapping[str, str]:
        """The data class of each kind that it knows."""
        ...

    @property
    def person(self) -> str:
        """The kind for people."""
        ...

    def opinion(self, reading: Reading) -> Opinion:
        """Judge one text."""
        ...
