"""Finds pictures (emoji) of an illness, a treatment or a person.

"👵 💉 again" means "grandma had an injection again", and "result: 🩸" is similar. The
pictures and words are data (``data/pictures.toml``).
"""

import re
from collections.abc import Iterator
from typing import Final

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.mixed import ANY_KIN
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import bag, lowered, read_data

_DATA: Final = read_data("curtilage.client.detection.detectors.topics", "pictures.toml")
_HEALTH: Final = "health.condition"
_SOMEBODY: Final = "marker.first_person"
_SCORE: Final = 60
_JOINER: Final = "\u200d"


def _one_of(text: str) -> re.Pattern[str]:
    longest = sorted(text.split(), key=len, reverse=True)
    # A picture joined to another one is a different picture: a person at a computer.
    return re.compile(
        rf"(?<!{_JOINER})(?:{'|'.join(longest)})[\U0001f3fb-\U0001f3ff]?"
        rf"(?:{_JOINER}[\u2640\u2642])?\ufe0f?(?!{_JOINER})"
    )


_SURE: Final = _one_of(_DATA["health"]["sure"])
_OTHERS: Final = _one_of(_DATA["health"]["others"])
_PEOPLE: Final = _one_of(_DATA["people"]["all"])


def _words(text: str) -> str:
    entries = (re.escape(each).replace(r"\|", " ") for each in text.split())
    return rf"(?<![^\W_])(?:{'|'.join(entries)})(?![^\W_])"


# One or two words may be in between: "Ergebnis da: 🩸".
_RESULT: Final = re.compile(
    rf"{_words(_DATA['words']['results'])}(?: [^\W_]{{1,10}}){{0,2}} ?[:=]? {{0,2}}"
    rf"(?={_SURE.pattern}|{_OTHERS.pattern})"
)
_OWN: Final = re.compile(_words(_DATA["words"]["own"]))
_TIMES: Final = re.compile(_words(_DATA["words"]["times"]))


class PictureDetector:
    """Finds pictures of an illness or a treatment, and of people next to them."""

    id = "picture"
    beyond_ascii = True

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each of them; people only if there is one about health as well."""
        text = reading.text
        if text.isascii():
            return
        people = [match.span() for match in _PEOPLE.finditer(text)]
        health = [match.span() for match in _SURE.finditer(text)]
        others = [match.span() for match in _OTHERS.finditer(text)]
        if others or health:
            words = lowered(text)
            results = [match.span() for match in _RESULT.finditer(words)]
            people += results
            if health or (others and (people or _about_somebody(words))):
                health += others
        for start, end in health:
            yield self._span(_HEALTH, start, end)
        for start, end in people:
            if any((start, end) != place for place in health):
                yield self._span(_SOMEBODY, start, end)

    def _span(self, name: str, start: int, end: int) -> Span:
        return Span(
            data_class=name, detector=self.id, start=start, end=end, score=_SCORE
        )


def _about_somebody(text: str) -> bool:
    """Return whether words indicate the person that a picture is about."""
    if not ANY_KIN.isdisjoint(bag(text)):
        return True
    return _OWN.search(text) is not None and _TIMES.search(text) is not None
