"""Which parts of a text are to be replaced: whole words, wherever they stand.

Pure. Turns what a detector found into a place with clean edges, keeps places
apart, and finds the same value again where no detector looked for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from curtilage.client.obstacles import KeptHomeError, Obstacle
from curtilage.client.vault import POSSESSIVE, TITLES, kind_of
from curtilage.client.vocabulary import COMMON, words
from curtilage.policy.findings import Finding

_PERSON: Final = "PERSON"
_MIN_PART_CHARS: Final = 3
_MIN_DIGITS: Final = 5
# Words inside names that are no name: they stay where they stand alone.
_PARTICLES: Final = words(
    "and the von van der den del dos das della ben bin ibn abu san sri jnr snr iii"
)
_JOINERS: Final = "-'\u2019"
_WORD_CHAR: Final = re.compile(r"\w")
_EDGE_MARKS: Final = re.compile(r"^[\W_]+|[\W_]+$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A part of one text that is to be replaced, and what it is.

    Attributes:
        start: first character.
        end: one past the last character.
        data_class: the class that was found there.
    """

    start: int
    end: int
    data_class: str

    def of(self, text: str) -> str:
        """Return what stands there."""
        return text[self.start : self.end]


def fitted(text: str, finding: Finding) -> Place:
    """Return the words of a finding: whole ones, without titles and marks.

    Raises:
        KeptHomeError: it lies outside the text, or holds no letter or digit.
    """
    if not 0 <= finding.start < finding.end <= len(text):
        raise KeptHomeError(Obstacle.NO_STAND_IN)
    start, end = _whole_words(text, finding.start, finding.end)
    if kind_of(finding.data_class) == _PERSON:
        start, end = _bare_name(text, *_joined_name(text, start, end))
    if not text[start:end].strip():
        raise KeptHomeError(Obstacle.NO_STAND_IN)
    return Place(start=start, end=end, data_class=finding.data_class)


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Drop white space at the edges; take in words that the edges cut."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end and is_word(text[start]):
        start = _word_start(text, start)
    if start < end and is_word(text[end - 1]):
        end = _word_end(text, end)
    return start, end


def _word_start(text: str, at: int) -> int:
    while at > 0 and is_word(text[at - 1]):
        at -= 1
    return at


def _word_end(text: str, at: int) -> int:
    while at < len(text) and is_word(text[at]):
        at += 1
    return at


def is_word(char: str) -> bool:
    """Tell whether a character belongs to a word; an empty text is none."""
    return _WORD_CHAR.fullmatch(char) is not None


def _joined_name(text: str, start: int, end: int) -> tuple[int, int]:
    """Take in the other half of ``Anne-Marie``: both begin with a capital."""
    while text[end : end + 1] in _JOINERS and text[end + 1 : end + 2].isupper():
        end = _word_end(text, end + 1)
    while start > 1 and text[start - 1] in _JOINERS and text[start].isupper():
        earlier = _word_start(text, start - 1)
        if not text[earlier].isupper():
            break
        start = earlier
    return start, end


def _bare_name(text: str, start: int, end: int) -> tuple[int, int]:
    """Leave titles, a possessive and marks at the edges outside a name."""
    name = text[start:end]
    if title := TITLES.match(name):
        start += title.end()
    name = text[start:end]
    if possessive := POSSESSIVE.search(name):
        end = start + possessive.start()
    marks = list(_EDGE_MARKS.finditer(text[start:end]))
    for match in reversed(marks):
        if match.start():
            end = start + match.start()
        else:
            start += match.end()
    return start, end


def apart(places: Iterable[Place]) -> list[Place]:
    """Return places that do not overlap: of two, the one around the other.

    Two of one class that cross become one; neighbours stay two.

    Raises:
        KeptHomeError: two of different classes cross.
    """
    kept: list[Place] = []
    for place in sorted(places, key=lambda each: (each.start, -each.end)):
        last = kept[-1] if kept else None
        if last is None or place.start >= last.end:
            kept.append(place)
        elif place.end <= last.end:
            continue
        elif place.data_class == last.data_class:
            kept[-1] = replace(last, end=place.end)
        else:
            raise KeptHomeError(Obstacle.OVERLAP)
    return kept


class Occurrences:
    """Finds values again: whole words, in any case and spacing.

    An ordinary word that is a name elsewhere ("will", "may") is a name where it
    has a capital only. Of a name of several words each counts alone as well,
    written as in the name or in capitals. A short number ("45") is what it was
    found to be in its place alone.

    Args:
        values: each value as it stands in a text, and its class.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        telling = {each: name for each, name in values.items() if _is_telling(each)}
        spaced = {_spaced(each): name for each, name in telling.items()}
        self._values = _Forms(spaced, flags=re.IGNORECASE)
        self._parts = _Forms(
            {
                re.escape(form): name
                for value, name in telling.items()
                if kind_of(name) == _PERSON
                for part in _parts(value)
                for form in (part, part.capitalize(), part.upper())
            }
        )

    def places(self, text: str) -> Iterator[Place]:
        """Yield every place at which one of them stands; they may overlap."""
        for place in self._values.places(text):
            if not _is_ordinary(place.of(text)):
                yield place
        yield from self._parts.places(text)


class _Forms:
    """Regular expressions, each of one class, that match whole words."""

    def __init__(self, classes: Mapping[str, str], *, flags: int = 0) -> None:
        longest_first = sorted(classes, key=len, reverse=True)
        self._classes = [classes[form] for form in longest_first]
        groups = "|".join(f"({form})" for form in longest_first)
        # A value may begin or end with a mark: "+1 202".
        self._regex = re.compile(rf"(?<!\w)(?:{groups or '(?!)'})(?!\w)", flags)

    def places(self, text: str) -> Iterator[Place]:
        for match in self._regex.finditer(text):
            data_class = self._classes[(match.lastindex or 1) - 1]
            yield Place(start=match.start(), end=match.end(), data_class=data_class)


def _spaced(value: str) -> str:
    return r"\s+".join(map(re.escape, value.split()))


def _parts(value: str) -> Iterator[str]:
    """Yield the words of a name of several, and the halves of joined ones."""
    found = [_EDGE_MARKS.sub("", word) for word in value.split()]
    halves = [half for word in found if "-" in word for half in word.split("-")]
    for part in (*found, *halves) if len(found) + len(halves) > 1 else ():
        if len(part) >= _MIN_PART_CHARS and part.lower() not in _PARTICLES:
            yield part


def _is_telling(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= _MIN_DIGITS or any(char.isalpha() for char in value)


def _is_ordinary(word: str) -> bool:
    return word.islower() and word in COMMON
