"""Finds family members in a sentence of two languages.

"My abuela tiene azúcar again": no rule of either language matches, since each runs only
on parts in its language. Words about health are searched for in the family word's
language too. The words are data (``data/mixed.toml``).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.lexicon import (
    LexiconDetector,
    class_of,
)
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import COMMON, lowered, read_data, words

_DATA: Final = read_data("curtilage.client.detection.detectors.topics", "mixed.toml")
_KIN: Final = {code: words(text) for code, text in _DATA["kin"].items()}
ANY_KIN: Final = frozenset[str]().union(*_KIN.values())
_SMALL: Final = {code: words(text) for code, text in _DATA["small"].items()}
_BEFORE: Final = {code: words(text) for code, text in _DATA["before"].items()}
_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LEXICON: Final = LexiconDetector()
_HEALTH: Final = "health."
_SCORE: Final = 60
_LEAST: Final = 2  # function words of another language; one may belong to a name
_AROUND: Final = 150  # characters on either side that are searched for them


def _vocabulary(code: str) -> frozenset[str]:
    return _KIN[code] | (PACKS[code].words if code in PACKS else COMMON | _SMALL[code])


_KNOWN: Final = {code: _vocabulary(code) for code in _KIN}


def family_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of family words among words of another language.

    Args:
        text: in lower case.
    """
    for match, _ in _families(text):
        yield match.span()


def health_in(text: str) -> Iterator[Span]:
    """Yield words about health near a family word, in the family word's languages.

    Args:
        text: in lower case.
    """
    found: dict[str, Sequence[Span]] = {}
    for match, own in _families(text):
        first, end = max(match.start() - _AROUND, 0), match.end() + _AROUND
        for code in own:
            if code not in found:
                found[code] = tuple(_health_words(text, code))
            yield from (
                span for span in found[code] if first <= span.start and span.end <= end
            )


def _health_words(text: str, code: str) -> Iterator[Span]:
    return (span for span in _listed(text, code) if span.data_class.startswith(_HEALTH))


def _listed(text: str, code: str) -> Iterator[Span]:
    if code in PACKS:
        yield from _LEXICON.in_pack(text, code)
        return
    for match in _WORD.finditer(text):
        name = class_of(match[0])
        if name is not None:
            yield Span(
                data_class=name,
                detector=_LEXICON.id,
                start=match.start(),
                end=match.end(),
                score=_SCORE,
            )


def _families(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    before = ""
    for match in _WORD.finditer(text):
        said, before = before, match[0]
        if match[0] not in ANY_KIN:
            continue
        own = [code for code, each in _KIN.items() if match[0] in each]
        usual = any(said in _BEFORE[code] for code in own)
        others = [code for code in _SMALL if match[0] not in _KNOWN[code]]
        around = text[max(match.start() - _AROUND, 0) : match.end() + _AROUND]
        # A word of the family word's language is no evidence of another one.
        here = {each[0] for each in _WORD.finditer(around)}.difference(
            *(_KNOWN[code] for code in own)
        )
        if any(
            len(here & _SMALL[code]) >= _LEAST or (not usual and said in _BEFORE[code])
            for code in others
        ):
            yield match, own


class MixedDetector:
    """Finds words about health in the language of a family word."""

    id = "mixed"

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield words about health near a family word of another language."""
        yield from health_in(lowered(reading.text))
