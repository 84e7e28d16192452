"""A rewritten query, and the reading of it that the detectors look at.

What was found in one text is believed of another here, and nowhere else. So both are
made here, from one source, and differ in stand-ins only.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, replace
from typing import Final, final

from curtilage.client.pseudonyms.replacements import Place, is_word
from curtilage.client.pseudonyms.vault import Vault
from curtilage.client.query import Query
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.findings import Where

# What the detectors read for a stand-in: a token looks like a name to them. The English
# model learnt the first. Near the second, of 17, the other model sees fewest names.
_READ_AS: Final = "[name]"
_READ_AS_ELSEWHERE: Final = "[x]"
# Made when the process starts and never handed out.
_BRAND: Final = object()


class RewrittenText:
    """One text, rewritten from left to right, as sent and as read.

    Args:
        text: of the source.
        vault: gives the stand-ins.
        english: whether it is surely English.
    """

    def __init__(self, text: str, vault: Vault, *, english: bool = True) -> None:
        self._text = text
        self._vault = vault
        self._read_as = _READ_AS if english else _READ_AS_ELSEWHERE
        self._at = 0
        self._outgoing = self._read = ""

    def replace(self, place: Place, *, alone: bool = True) -> str:
        """Replace what is at a place, behind all places before; return by what."""
        # From the vault and nowhere else: the detectors read a plain word there, so
        # what is sent in this place is not looked at again.
        whom = self._vault.stand_in
        stand_in = whom(place.data_class, place.of(self._text), alone=alone)
        kept = self._text[self._at : place.start]
        self._outgoing += kept + stand_in
        # Glued to a bracket, a word of the source would be read as code.
        before = " " if is_word(kept[-1:]) else ""
        after = " " if is_word(self._text[place.end : place.end + 1]) else ""
        self._read += kept + before + self._read_as + after
        self._at = place.end
        return stand_in

    @property
    def outgoing(self) -> str:
        """The text that would be sent."""
        return self._outgoing + self._text[self._at :]

    @property
    def read(self) -> str:
        """The text that the detectors look at."""
        return self._read + self._text[self._at :]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Deidentified:
    """A query without what was found in it. Only ``deidentified`` builds it.

    Attributes:
        brand: shows who builds it; not kept.
        query: what would be sent: the same query with stand-ins.
        reading: the same with a plain word for each stand-in: what the
            detectors look at. Every other character is the same.
        vault: which value each stand-in hides.
        counts: how many values of each class were replaced; sorted.
    """

    brand: InitVar[object]
    query: Query
    reading: Query
    vault: Vault
    counts: tuple[tuple[str, int], ...]

    def __post_init__(self, brand: object) -> None:
        """Refuse another builder; ``dataclasses.replace`` is one."""
        if brand is not _BRAND:
            raise TypeError("only deidentified() builds a Deidentified")

    def inspected(self, inspection: Inspection) -> Inspection:
        """Return the inspection of ``reading`` as one of ``query``.

        Stand-ins are made here, of a fixed word and a number, or are a moved
        date; so what the detectors saw is all that is left of the source.

        Raises:
            ValueError: another query was inspected.
        """
        if inspection.payload_digest != self.reading.payload_digest():
            raise ValueError("the inspection is about another query")
        return inspection.moved_to(self.query.payload_digest())

    def outgoing_texts(self) -> tuple[str, ...]:
        """Return every text of the query that would leave."""
        return tuple(leaf.text for leaf in self.query.leaves())


def deidentified(
    query: Query,
    texts: Mapping[Where, RewrittenText],
    vault: Vault,
    counts: tuple[tuple[str, int], ...],
) -> Deidentified:
    """Return a query with its texts rewritten.

    Args:
        query: what was inspected.
        texts: each of its texts, by its place.
        vault: that gave the stand-ins.
        counts: how many values of each class were replaced; sorted.
    """
    return Deidentified(
        brand=_BRAND,
        query=_with_texts(query, {at: each.outgoing for at, each in texts.items()}),
        reading=_with_texts(query, {at: each.read for at, each in texts.items()}),
        vault=vault,
        counts=counts,
    )


def _with_texts(query: Query, texts: Mapping[Where, str]) -> Query:
    """Return the query with other contents; the places are those of ``leaves``."""
    contents = {
        at.message: text for at, text in texts.items() if at.json_path == "content"
    }
    messages = (
        replace(message, content=contents[index])
        for index, message in enumerate(query.messages)
    )
    return replace(query, messages=tuple(messages))
