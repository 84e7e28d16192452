"""Distinguishes historical and fictional figures from living people, by a list.

"Who was Albert Einstein?" identifies no living person. A name is a figure's if all its
words are a name in the list, the text is about history, literature or ideas, and
nothing in it suggests a living bearer: a title or a role before it, a relation to the
speaker, current activities. A name that living people have too must occur with a work
of its famous bearer. The policy decides whether figures may be sent; elsewhere they
count as people.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.names.cues import (
    INITIALS,
    PERSON,
    people,
    people_in,
)
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.spans import Span

FIGURE: Final = "identifier.public.figure"

Place = tuple[int, int]
_Name = tuple[str, ...]  # its words, in the spelling of `wordlists.unaccented`

_REACH: Final = 80  # characters on either side that are searched for the figure's works
_LONGEST: Final = 7  # words in a name
_MIN_SURNAME_CHARS: Final = 3
_MIN_GENITIVE_CHARS: Final = 5
_WORD = re.compile(r"[^\W\d_]+")
_INSIDE = re.compile(r"[\s.'\u2019\-]{1,3}")  # between the words of a name
# Between several names, and before one: "Hamlet and Macbeth", "de filosofie van
# Spinoza".
_LINKS: Final = wordlists.words(
    "and und et y e en ed i s of the von van de di da du del vs or oder ou o"
)
# Makes it part of another name, a cell, a key or a tag: "@hamlet", "x=Hamlet".
_GLUED = re.compile(r"[\w@#/\\=<>|\[\]{}+~\t]")
_GOES_ON = re.compile(r"[\w@/\\=<>|\[\]{}+~\t]|[:.]\w")
_WORD_BEFORE = re.compile(r"(?P<word>[^\W\d_][\w.'\u2019\-]*)[ \t]$")
_BEGINS = re.compile(r"[.!?:;\n\"\u201c\u201e\u00ab(] ?$")
_WORD_BEHIND = re.compile(r"[ \t](?P<word>[^\W\d_][\w\-]*)")


# --- the list -----------------------------------------------------------------------


def _names(listed: str) -> Iterator[_Name]:
    for name in " ".join(listed.split()).split(","):
        if found := tuple(_WORD.findall(wordlists.unaccented(name))):
            yield found


def _around(patterns: Iterable[str]) -> re.Pattern[str]:
    every = "|".join(patterns).replace("NAME", "\0")
    return re.compile(rf"(?<!\w)(?:{every})(?!\w)")


_DATA: Final[dict[str, Any]] = dict(
    wordlists.read_data("curtilage.client.detection", "figures.toml")
)
_FULL: Final = frozenset(_names(_DATA["full"]))
_BORNE: Final = frozenset((*_names(_DATA["borne"]), *_names(_DATA["surnames"])))
_ALONE: Final = _FULL.union(_names(_DATA["alone"])) - _BORNE
_LISTED: Final = _ALONE | _BORNE
# A surname counts if the full name occurs too: "Immanuel Kant ... Kant".
_LAST: Final = frozenset(
    name[-1]
    for name in _FULL - _BORNE
    if len(name) > 1 and len(name[-1]) >= _MIN_SURNAME_CHARS
)
_FIRST: Final = frozenset(name[0] for name in _LISTED) | _LAST
_KNOWN: Final = _around(_DATA["known"])
_SUBJECT: Final = _around(_DATA["subject"])
_LESSON: Final = _around(_DATA["lesson"])
_SOMEBODY: Final = _around(
    pattern for pattern in _DATA["somebody"] if "NAME" not in pattern
)
_DEALT_WITH: Final = _around(
    pattern for pattern in _DATA["somebody"] if "NAME" in pattern
)


# --- in a text ------------------------------------------------------------------------


def with_figures(reading: Reading, named: Iterable[Span]) -> Iterator[Span]:
    """Yield people, with listed figures marked as such.

    A span with any other name, or a part of one, is still a person.
    """
    places: Sequence[Place] | None = None
    for span in named:
        if places is None:
            places = figures(reading)
        listed = span.data_class == PERSON and _is_made_of(reading.text, span, places)
        yield replace(span, data_class=FIGURE) if listed else span


def figures(reading: Reading) -> Sequence[Place]:
    """Return the positions of figures, longest names first; never a living person's."""
    text = wordlists.unaccented(reading.text)
    words = [match.span() for match in _WORD.finditer(text)]
    found = list(_listed(text, words))
    if not found or _SOMEBODY.search(text):
        return ()
    announced = {
        span.start
        for span in (*people(reading.text), *people_in(reading))
        if span.detector != INITIALS
    }
    small = reading.text.islower()
    found = [
        (place, name)
        for place, name in found
        # A title that belongs to the name is inside it: "Sir Isaac Newton".
        if place[0] not in announced
        and (small or reading.text[place[0]].isupper())
        and not _is_anothers(reading, place)
        and not _DEALT_WITH.search(_context(text, place))
    ]
    whole = {name[-1] for _, name in found if name in _FULL - _BORNE}
    # Two of them in one text are no coincidence: "Kant and Hegel".
    several = len({name for _, name in found}) > 1
    learned = _SUBJECT.search(text) is not None or any(
        _KNOWN.search(_context(text, place)) for place, _ in found
    )
    # "Explain why Napoleon is late": a full name, or another figure, is required.
    asked = several or any(len(name) > 1 for _, name in found)
    if not (learned or (asked and _LESSON.search(text))):
        return ()
    return tuple(
        place
        for place, name in found
        if name in _ALONE
        or (len(name) == 1 and name[0] in whole)
        or (several and name in _BORNE and wordlists.GIVEN.isdisjoint(name))
        or (name in _BORNE and _KNOWN.search(_context(text, place)))
    )


def _listed(text: str, words: Sequence[Place]) -> Iterator[tuple[Place, _Name]]:
    """Yield each longest name of the list; a genitive counts as the name."""
    at = 0
    while at < len(words):
        if not _may_begin(text[slice(*words[at])]):
            at += 1
            continue
        for end in range(min(at + _LONGEST, len(words)), at, -1):
            if not all(
                _INSIDE.fullmatch(text, words[one][1], words[one + 1][0])
                for one in range(at, end - 1)
            ):
                continue
            name = tuple(text[slice(*place)] for place in words[at:end])
            if listed := _as_listed(name):
                yield (words[at][0], words[end - 1][1]), listed
                at = end - 1
                break
        at += 1


def _may_begin(word: str) -> bool:
    return word in _FIRST or word.removesuffix("s") in _FIRST


def _as_listed(name: _Name) -> _Name | None:
    """Return a name's listed form, or None; a surname gives the full name."""
    forms = [name]
    if len(name[-1]) >= _MIN_GENITIVE_CHARS and name[-1].endswith("s"):
        forms.append((*name[:-1], name[-1].removesuffix("s")))
    for form in forms:
        if form in _LISTED or (len(form) == 1 and form[0] in _LAST):
            return form
    return None


def _context(text: str, place: Place) -> str:
    """Return the text around a name, with a mark in its place."""
    start, end = place
    ending = "s" if text[end - 1] == "s" and _is_genitive(text[start:end]) else ""
    before = text[max(0, start - _REACH) : start]
    return " ".join(f"{before}\0{ending}{text[end : end + _REACH]}".split())


def _is_genitive(found: str) -> bool:
    name = tuple(_WORD.findall(found))
    return name not in _LISTED and name[-1] not in _LAST


def _is_anothers(reading: Reading, place: Place) -> bool:
    """Return whether a name is part of a longer one, or of something other than prose.

    "Napoleon Hill", "Max Beethoven", "hamlet@example.org", "user=hamlet".
    """
    text, (start, end) = reading.text, place
    if _GLUED.search(text[max(0, start - 1) : start]) or _GOES_ON.match(text, end):
        return True
    before = _WORD_BEFORE.search(text, max(0, start - _REACH), start)
    behind = _WORD_BEHIND.match(text, end)
    return (before is not None and _is_name(reading, before, wordlists.COMMON)) or (
        # "Napoleon Hill": a capitalised ordinary word is a surname here.
        behind is not None and _is_name(reading, behind, _LINKS | wordlists.PROPER)
    )


def _is_name(
    reading: Reading, neighbour: re.Match[str], ordinary: AbstractSet[str]
) -> bool:
    """Return whether a capitalised word next to a name may be part of it."""
    word, plain = neighbour["word"], wordlists.bare(neighbour["word"])
    if not word[0].isupper() or word.isupper():
        return False
    if plain in wordlists.GIVEN:
        return True
    if any(_may_begin(part) for part in _WORD.findall(wordlists.unaccented(plain))):
        return False  # another figure, which is judged by itself
    at = neighbour.start("word")
    begins = at == 0 or _BEGINS.search(reading.text, max(0, at - 2), at) is not None
    packs = [PACKS[code] for code in reading.packs]
    return not (
        begins
        or plain in ordinary
        # In a language that capitalises every noun, a capital is no evidence.
        or any(plain in each.words or not each.capitals for each in packs)
    )


def _is_made_of(text: str, span: Span, places: Sequence[Place]) -> bool:
    """Return whether every word of a span is in a figure's name or links two names."""
    words = [match.span() for match in _WORD.finditer(text, span.start, span.end)]
    inside = [
        any(start <= word[0] and word[1] <= end for start, end in places)
        for word in words
    ]
    return any(inside) and all(
        one or text[slice(*word)].lower() in _LINKS
        for one, word in zip(inside, words, strict=True)
    )
