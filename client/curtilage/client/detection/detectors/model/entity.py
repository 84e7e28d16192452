"""What a names model says of a text, whichever model it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from curtilage.client.detection.detectors.readings import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """What is judged as one.

    Attributes:
        text: any text; a longer one than the model takes is looked at in windows
            that overlap.
        beside: passages of it whose topics count as well: the highest of each. Names
            in them are looked for in the text only.
    """

    text: str = field(repr=False)
    beside: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One place in a text that names somebody or something; holds no word of it.

    Attributes:
        kind: as the model calls it, ``PERSON``.
        start: first character.
        end: one past the last character.
        score: 1 to 100; the embedded model's are 50 and more: how much likelier
            its surest word is of this kind than of none.
    """

    kind: str
    start: int
    end: int
    score: int


class Opinion(Protocol):
    """What a model says of one text."""

    @property
    def entities(self) -> Sequence[Entity]:
        """What it sees, in the text's order."""
        ...

    @property
    def topics(self) -> Mapping[str, int]:
        """What the text tells of somebody, 0 to 100 each."""
        ...

    def likelihood(self, kind: str, start: int, end: int) -> int:
        """Return how likely a word in a place is of a kind, in thousandths."""
        ...


class NameModel(Protocol):
    """A model that can be asked."""

    @property
    def classes(self) -> Mapping[str, str]:
        """The data class of each kind it knows."""
        ...

    @property
    def person(self) -> str:
        """The kind that is a person."""
        ...

    def opinion(self, reading: Reading) -> Opinion:
        """Judge one text."""
        ...
