"""Cuts out the sentences of a text that are about a person, to judge them separately.

A model averages over the text that it reads: one sentence about an illness is lost next
to a page about a library. So sentences in which a person speaks or is mentioned are
also judged alone. This module does not judge them.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.markers import PersonMarkerDetector

MAX_CHARS: Final = 200  # of one excerpt
MAX_EXCERPTS: Final = 8
# Limits on the cost: this many for a short text, and half of the length of a long one.
LEAST_EXCERPTS: Final = 3
CHARS_FOR_ONE: Final = 400  # one excerpt more for each so many characters of text
LEAST_CHARS: Final = 160
# A sentence, a line, a turn (``turns.JOINT``), or a hundred characters of a longer
# stretch.
_SENTENCE = re.compile(
    r"[^\n\x1e]{1,200}?(?:[.!?](?=\s)|(?=\x1e)|$)|"
    r"[^\n\x1e]{1,100}(?!\S)|[^\n\x1e]{1,100}",
    re.MULTILINE,
)
_MARKERS = PersonMarkerDetector()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excerpt:
    start: int
    end: int
    markers: int  # words that refer to a person


def excerpts(reading: Reading) -> tuple[str, ...]:
    """Return the excerpts of a text that are about a person, in order.

    Each is one sentence of at most 200 characters: next to another one, even a short
    one, it would be lost again. If there are many, those with the most words about a
    person are chosen. None if the text is one sentence, which is judged anyway.
    """
    text = reading.text
    whole = text.strip()
    first = _SENTENCE.search(text)
    if first is None or len(whole) <= len(first[0].strip()):
        return ()
    best = sorted(_afforded(reading), key=lambda each: each.start)
    cut = (text[each.start : each.end].strip() for each in best)
    return tuple(each for each in cut if each != whole)


def _afforded(reading: Reading) -> Iterator[_Excerpt]:
    text = reading.text
    most = min(MAX_EXCERPTS, LEAST_EXCERPTS + len(text) // CHARS_FOR_ONE)
    left = max(LEAST_CHARS, len(text) // 2)
    ranked = sorted(
        _about_people(reading), key=lambda each: (-each.markers, each.end - each.start)
    )
    for count, each in enumerate(ranked[:most]):
        left -= each.end - each.start
        if count and left < 0:
            return
        yield each


def _about_people(reading: Reading) -> Iterator[_Excerpt]:
    """Yield the sentences with a word for a person outside polite phrases."""
    places = sorted(span.start for span in _MARKERS.find(reading))
    for match in _SENTENCE.finditer(reading.text) if places else ():
        count = bisect_left(places, match.end()) - bisect_left(places, match.start())
        if count:
            yield _Excerpt(start=match.start(), end=match.end(), markers=count)
