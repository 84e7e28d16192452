"""One training text with what is known about it."""

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
        text: as it is typed.
        spans: not overlapping, in order.
        known: the entity types that this corpus marks; a word without a mark
            may be of any other type. Empty: nothing is known of entities.
        topics: by name, 1.0 or 0.0; a topic that is absent is not known.
        key: corpus and document, ``corpus:document``; empty where nobody asks.
    """

    text: str
    spans: tuple[Span, ...] = ()
    known: frozenset[str] = frozenset()
    topics: dict[str, float] = field(default_factory=dict)
    key: str = ""
