"""A detector's findings: a class and a place, never the text itself.

The text is not copied. So neither a decision, nor its explanation, nor the
audit trail can contain what a person wrote, whatever a later change prints.
"""

from dataclasses import dataclass
from enum import StrEnum


class Normalization(StrEnum):
    """The form of a text in which something was found: as written, or decoded."""

    # Offsets count characters of that form: offsets of two forms cannot be compared.
    RAW = "raw"
    NFKC = "nfkc"
    CONFUSABLE = "confusable"
    DECODED = "decoded"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The place of one text in a conversation.

    Attributes:
        message: index of the message, from 0.
        role: the message's role, one of a fixed set.
        json_path: path of the text inside the message, such as ``content``
            or ``content[2].text``; never a caller's own key.
    """

    message: int
    role: str
    json_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """One text that is, character for character, one that a policy approves.

    Attributes:
        where: its place.
        sha256: of the text in UTF-8, in hexadecimal.
    """

    where: Where
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found at one place.

    Attributes:
        data_class: a name of the class tree, such as ``financial.pan``.
        detector: who found it; a fixed name, never content.
        start: first character, an offset into the text at ``where``.
        end: one past the last character.
        score: 0 to 100; 65 and more is high confidence.
        validated: a check digit or checksum held.
        normalization: the form of the text to which the offsets belong.
        where: the text's place in the conversation.
        listed: the policy's exclusion lists that contain the found text.
    """

    data_class: str
    detector: str
    start: int
    end: int
    score: int
    validated: bool
    normalization: Normalization
    where: Where
    listed: tuple[str, ...] = ()
