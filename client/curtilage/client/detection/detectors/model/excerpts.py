"""Cut out of a text what is said of somebody, to be judged by itself.

A model that reads a whole text sees the mean of it: one sentence about an
illness is lost beside a page about a library. So the sentences in which
somebody speaks or is spoken of are also read alone. Refuses to judge them.
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
# What judging them may cost: so many of a short text, and half of a long one.
LEAST_EXCERPTS: Final = 3
CHARS_FOR_ONE: Final = 400  # a text of so many characters has one excerpt more
LEAST_CHARS: Final = 160
# A sentence, a line, a turn among others (``turns.JOINT``), or of what is longer a
# hundred characters.
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
    markers: int  # words that tell of somebody


def excerpts(reading: Reading) -> tuple[str, ...]:
    """Return the excerpts of a text that are about somebody, in its order.

    Each is one sentence of at most 200 characters: beside another, even a short
    one, it would be lost again. Of many those count in which most is said of
    somebody. None where the text is one sentence: that is judged anyway.
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
    told = sorted(
        _about_people(reading), key=lambda each: (-each.markers, each.end - each.start)
    )
    for count, each in enumerate(told[:most]):
        left -= each.end - each.start
        if count and left < 0:
            return
        yield each


def _about_people(reading: Reading) -> Iterator[_Excerpt]:
    """Yield the sentences that have a word for a person outside polite frames."""
    places = sorted(span.start for span in _MARKERS.find(reading))
    for match in _SENTENCE.finditer(reading.text) if places else ():
        count = bisect_left(places, match.end()) - bisect_left(places, match.start())
        if count:
            yield _Excerpt(start=match.start(), end=match.end(), markers=count)
