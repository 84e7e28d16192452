"""What a names model says of one place in a text, whichever model it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """One entity; it holds no word of the text.

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
