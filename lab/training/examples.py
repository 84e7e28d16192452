"""A training text with its annotations."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start`` to ``end`` of a text are of one type."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class Example:
    """A text, its spans, and its topics.

    Attributes:
        text: as typed.
        spans: not overlapping, in order.
        known: the entity types that this corpus marks; an unmarked word may be of any
            other type. Empty: entities are not annotated.
        topics: by name, 1.0 or 0.0; a missing topic is unknown.
        key: corpus and document, ``corpus:document``; empty if it is not needed.
    """

    text: str
    spans: tuple[Span, ...] = ()
    known: frozenset[str] = frozenset()
    topics: dict[str, float] = field(default_factory=dict)
    key: str = ""
