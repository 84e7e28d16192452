"""The rewritten query, and the variant of it that the detectors inspect.

What the detectors find in one text is accepted for the other, and only here. So both
are built here, from one source, and differ only in their stand-ins.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import Final, final

from curtilage.client.chat.query import Query
from curtilage.client.pseudonyms.replacements import Place, is_word
from curtilage.client.pseudonyms.vault import Vault
from curtilage.client.pseudonyms.with_texts import with_texts
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.findings import Where

# Shown to the detectors for a stand-in, since a token looks like a name to them. The
# English model was trained on the first; for the other model, the second was the best
# of 17 candidates.
_READ_AS: Final = "[name]"
_READ_AS_ELSEWHERE: Final = "[x]"
# Created when the process starts and never handed out.
_BRAND: Final = object()


class RewrittenText:
    """One text, rewritten from left to right, in both variants.

    Args:
        text: of the source.
        vault: provides the stand-ins.
        english: whether the text is certainly English.
    """

    def __init__(self, text: str, vault: Vault, *, english: bool = True) -> None:
        self._text = text
        self._vault = vault
        self._read_as = _READ_AS if english else _READ_AS_ELSEWHERE
        # Of each place: where it is, what is sent there, and what is read.
        self._places: list[tuple[Place, str, str]] = []

    def replace(self, place: Place, *, alone: bool = True) -> str:
        """Replace a place behind all earlier ones; return its stand-in."""
        # From the vault only: the detectors see a plain word here, so what is sent in
        # this place is not inspected again.
        whom = self._vault.stand_in
        stand_in = whom(place.data_class, place.of(self._text), alone=alone)
        at = self._places[-1][0].end if self._places else 0
        # Attached to a bracket, a word of the source would be read as code.
        before = " " if is_word(self._text[at : place.start][-1:]) else ""
        after = " " if is_word(self._text[place.end : place.end + 1]) else ""
        self._places.append((place, stand_in, before + self._read_as + after))
        return stand_in

    def outgoing(self, start: int, end: int) -> str:
        """Return a stretch of the text as it would be sent."""
        return self._rewritten({at: sent for at, sent, _ in self._places}, start, end)

    def read(self, start: int, end: int) -> str:
        """Return a stretch of the text as the detectors inspect it."""
        return self._rewritten({at: read for at, _, read in self._places}, start, end)

    def _rewritten(self, instead: Mapping[Place, str], start: int, end: int) -> str:
        said = ""
        for place, each in instead.items():
            if start <= place.start and place.end <= end:
                said += self._text[start : place.start] + each
                start = place.end
        return said + self._text[start:end]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Deidentified:
    """A query with its findings replaced. Only ``deidentified`` builds it.

    Attributes:
        brand: proof of the builder; not stored.
        query: the query to be sent, with stand-ins.
        reading: the same with a plain word for each stand-in, for the
            detectors. All other characters are the same.
        vault: the value behind each stand-in.
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

        Stand-ins consist of a fixed word and a number, or are a shifted date; so the
        detectors saw everything that is left of the source.

        Raises:
            ValueError: another query was inspected.
        """
        if inspection.payload_digest != self.reading.payload_digest():
            raise ValueError("the inspection is about another query")
        return inspection.moved_to(self.query.payload_digest())

    def outgoing_texts(self) -> tuple[str, ...]:
        """Return every text of the query that would be sent."""
        return tuple(leaf.text for leaf in self.query.leaves())


def deidentified(
    query: Query,
    texts: Mapping[Where, RewrittenText],
    vault: Vault,
    counts: tuple[tuple[str, int], ...],
) -> Deidentified:
    """Return a query with its texts rewritten.

    Args:
        query: the inspected query.
        texts: each of its rewritten texts, by its place.
        vault: that provided the stand-ins.
        counts: how many values of each class were replaced; sorted.
    """
    return Deidentified(
        brand=_BRAND,
        query=with_texts(query, {at: each.outgoing for at, each in texts.items()}),
        reading=with_texts(query, {at: each.read for at, each in texts.items()}),
        vault=vault,
        counts=counts,
    )
