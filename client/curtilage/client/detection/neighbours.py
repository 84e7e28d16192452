"""Finds words next to a name in the same list, row, key set or tag.

If one of ``{'x': 2, 'y': 1}`` is a person, the other is one too, whatever a model says:
a list of names that is sent with one of them replaced discloses all the others. Pure;
it runs where names are found, and again over the text to be sent.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from curtilage.client.detection import wordlists
from curtilage.client.detection.packs import PACKS, TITLES
from curtilage.client.detection.wordlists import (
    ACRONYM_CHARS,
    PARTICLES,
    PARTICLES_MORE,
    PARTICLES_OF_PLACES,
    bare,
    is_known,
    is_term,
    lowered,
)

_MIN_CHARS: Final = 3
_NEAR: Final = 4
_LETTERS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]{2,})?")
_DIGITS = re.compile(r"\d+")
# The context of a word: a line's end, or a space and a mark; after it also characters
# that make it a key or close a tag. Not those that close the whole list.
_BEFORE = re.compile(r"\n|[ \t]?(?:[^\w\s]|\d)?")
_BEHIND = re.compile(r"\n|[ \t]?(?:[^\w\s][:=>/<-]?|\d)?")
# Separators of list members: "a, b and the c", "a-v-b", "Chidi%20Okafor".
_LINK = re.compile(
    r"(?:'?s|['\u2019])?(?:,? ?(?:and|&|or|vs?\.?|versus)(?: the)? |, |; |/|\||\t|"
    r"%20|\+|_|-|-vs?-| \| |[,;])",
    re.IGNORECASE,
)
_LOOSE = re.compile(r"\W*\s\W*")  # a comma and a space, and no "and"
_LINKING = wordlists.words("and or the v vs versus s")
# Marks of a row, a key or a tag; a full stop or a comma indicates prose.
_STRUCTURE = frozenset("<>|{}[]=&\t\\/_*#@`0")
_QUOTES = frozenset("'\"`")
_ENDS = frozenset(".!?")

Place = tuple[int, int]


def _any_of(phrases: Iterable[str]) -> str:
    longest_first = sorted(phrases, key=len, reverse=True)
    return "|".join(map(re.escape, longest_first)).replace("'", "['\u2019]")


# "von der", "op de", "d'": join two words of one name; for text in lower case.
_SPACE: Final = r"[ \t\u00a0]{1,2}"
_CHAIN: Final = (
    rf"(?:(?:(?:{_any_of(PARTICLES)})(?:{_SPACE}(?:{_any_of(PARTICLES_MORE)})){{0,3}}|"
    rf"{_any_of(PARTICLES_OF_PLACES)}){_SPACE}|(?=(?:d|l|dell|o)['\u2019]))"
)
_WHOLE_WORD: Final = r"[^\W\d_]\w*(?:['\u2019\-][^\W\d_]\w*)*"
_CARRIED: Final = re.compile(rf"{_SPACE}{_CHAIN}(?P<word>{_WHOLE_WORD})")
_CARRYING: Final = re.compile(rf"(?<![\w.])(?P<word>{_WHOLE_WORD}){_SPACE}{_CHAIN}$")
_FURTHER: Final = re.compile(rf"{_SPACE}(?P<word>{_WHOLE_WORD})")
# A model takes the first word of "aus dem Bach" for the end of the name before it.
_SMALL_END: Final = re.compile(rf"(?:{_SPACE}[a-zà-ÿ'\u2019]{{1,6}}){{1,3}}$")
_JOINT: Final = re.compile(r"['\u2019\-]")
_REACH: Final = 60  # characters before a name that may contain another word of it
_NOT_NAMES: Final = frozenset[str]().union(
    *(each.not_names for each in TITLES.values())
)
_NOT_NAME_HEADS: Final = tuple(
    head for each in TITLES.values() for head in each.not_name_heads
)
_AND: Final = re.compile(
    rf"{_SPACE}(?:und|y|e|i|et|en|and){_SPACE}(?P<word>{_WHOLE_WORD})"
)


def neighbours(text: str, names: Iterable[Place]) -> Iterator[Place]:
    """Yield the positions of unknown words next to names; none of the names.

    Args:
        text: any text.
        names: the positions of people in it; one may span several words.
    """
    taken = sorted(names)
    if not taken:
        return
    words = [
        match.span()
        for match in _LETTERS.finditer(text)
        if match[0].lower() not in _LINKING
    ]
    inside = _inside(words, taken)
    said = {text[slice(*place)].lower() for place in words}
    ordinary = _ordinary(_languages(said))
    found = _framed(text, words, taken) | _linked(text, words, inside)
    shouted = any(text[start:end].isupper() for start, end in taken)
    for at in sorted(found):
        word = text[slice(*words[at])]
        acronym = word.isupper() and len(word) <= ACRONYM_CHARS and not shouted
        known = acronym or word.lower() in ordinary
        if not inside[at] and not known and is_unknown(word):
            yield words[at]
    yield from (place for place, surely in carried(text, taken) if surely)


def carried(text: str, names: Iterable[Place]) -> Iterator[tuple[Place, bool]]:
    """Yield words next to a name that belong to it, and whether this is certain.

    "Anna ⟦von der Osten-Sackheim⟧", "Peter ⟦am Ende⟧", "⟦Otto von⟧ Lindqvist": with the
    particles, so that the whole becomes one name. If it is not certain, a model must
    agree.

    Args:
        text: any text.
        names: the positions of people in it.
    """
    taken = sorted(names)
    if not taken:
        return
    parts = _Parts(text, taken)
    for start, end in taken:
        # Words after a lower-case name are no evidence: "döring Montag".
        if not text[start:end].islower():
            yield from parts.behind(start, parts.without_particles(start, end))
            yield from parts.before(start)


def is_carried_on(text: str, end: int) -> bool:
    """Return whether a particle joins a word ending here to a capitalised one."""
    found = _CARRIED.match(text, end)
    return found is not None and found["word"][:1].isupper()


class _Parts:
    """Searches for more of a name in a text, directly after and before it."""

    def __init__(self, text: str, taken: Collection[Place]) -> None:
        self._text = text
        self._plain = lowered(text)
        self._taken = taken
        words = {match[0] for match in _LETTERS.finditer(self._plain)}
        codes = _languages(words)
        self._ordinary = _ordinary(codes)
        # If every noun is capitalised, a capital does not mark a name.
        self._nouns = any(not PACKS[code].capitals for code in codes)

    def without_particles(self, start: int, end: int) -> int:
        """Return where a found name ends without small words: "Friederike aus"."""
        small = _SMALL_END.search(self._text, start, end)
        return end if small is None else small.start()

    def behind(self, start: int, end: int) -> Iterator[tuple[Place, bool]]:
        """Yield the rest of a name: capitalised words and those that particles join."""
        at, carries = end, self._joined_to(start) is not None
        for place, surely in self._further(at, surely=False):
            yield (at + 1, place[1]), surely
            at = place[1]
        while (joined := self._word(_CARRIED, at)) is not None:
            carries = True
            surely = not (self._nouns and self._in(joined).endswith(_NOT_NAME_HEADS))
            yield (at + 1, joined[1]), surely
            at = joined[1]
            for place, _ in self._further(at, surely=True):
                yield (at + 1, place[1]), True
                at = place[1]
        # "von Berg und Thal", "Ana y Sol": one name or two. A separate position.
        other = self._word(_AND, at) if carries or not self._nouns else None
        if other is not None:
            yield other, carries or self._goes_on(other)

    def before(self, start: int) -> Iterator[tuple[Place, bool]]:
        """Yield the words that a particle joins to the beginning of a name."""
        found = self._joined_to(start)
        if found is None or not self._text[found.start("word")].isupper():
            return
        first = bare(found["word"])
        before = self._text[: found.start("word")].rstrip()
        begins = not before or before[-1] in _ENDS
        ordinary = first in self._ordinary or first in _NOT_NAMES
        if first in wordlists.GIVEN or not (self._nouns or begins or ordinary):
            yield (found.start("word"), start), True

    def _joined_to(self, start: int) -> re.Match[str] | None:
        """Return the word that a particle joins to the word that begins here."""
        return _CARRYING.search(self._plain, max(0, start - _REACH), start)

    def _further(self, at: int, *, surely: bool) -> Iterator[tuple[Place, bool]]:
        """Yield the capitalised words that follow; only certain ones, if requested."""
        while (place := self._word(_FURTHER, at)) is not None:
            goes_on = self._goes_on(place)
            if surely and not goes_on:
                return
            yield place, goes_on
            at = place[1]

    def _word(self, pattern: re.Pattern[str], at: int) -> Place | None:
        """Return the word of a pattern, if it is written like a name and is free."""
        found = pattern.match(self._plain, at)
        if found is None:
            return None
        place = found.span("word")
        parts = _JOINT.split(self._text[slice(*place)])
        capital = any(part[:1].isupper() for part in parts[:2])
        free = not any(
            each[0] < place[1] and place[0] < each[1] for each in self._taken
        )
        named = capital and free and self._in(place) not in _NOT_NAMES
        return place if named else None

    def _goes_on(self, place: Place) -> bool:
        """Return whether a capitalised word is certainly not the next noun."""
        word = self._in(place)
        return not self._nouns or (is_unknown(word) and word not in self._ordinary)

    def _in(self, place: Place) -> str:
        return self._plain[slice(*place)]


def _ordinary(codes: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(PACKS[code].words for code in codes))


def _languages(words: Collection[str]) -> list[str]:
    """Return the languages that know half of a text's words.

    There is no other evidence of the language here: this runs without the identifier.
    """
    return [
        code
        for code, pack in PACKS.items()
        if 2 * len(pack.words.intersection(words)) >= len(words)
    ]


def _framed(text: str, words: list[Place], names: list[Place]) -> set[int]:
    """Return the words with the same marks around them as a whole name."""
    frames = {_frame(text, place) for place in names}
    structural = set(filter(_is_structural, frames))
    if not structural:
        return set()
    return {at for at, place in enumerate(words) if _frame(text, place) in structural}


def _linked(text: str, words: list[Place], inside: list[bool]) -> set[int]:
    """Return the words that a list links with a name, as long as they are unknown."""
    found: set[int] = set()
    reached = [at for at, is_name in enumerate(inside) if is_name]
    while reached:
        at = reached.pop()
        for low, high, other in ((at - 1, at, at - 1), (at, at + 1, at + 1)):
            if low < 0 or high == len(words) or inside[other] or other in found:
                continue
            between = text[words[low][1] : words[high][0]]
            if (
                _LINK.fullmatch(between)
                and (not _LOOSE.fullmatch(between) or _is_item(text, words[other]))
                and is_unknown(text[slice(*words[other])])
            ):
                found.add(other)
                reached.append(other)
    return found


def is_unknown(word: str) -> bool:
    """Return whether a word is in no vocabulary and could be a name."""
    return (
        len(word) >= _MIN_CHARS
        and not is_known(word)
        and not is_term(word)
        and bare(word) not in wordlists.BESIDE
        and bare(word) not in wordlists.PLACES
        and bare(word) not in wordlists.ORGANISATIONS
        and not bare(word).endswith(wordlists.ENDINGS)
    )


def _inside(words: list[Place], taken: list[Place]) -> list[bool]:
    """Return for each word whether it is part of a name; both lists are sorted."""
    inside: list[bool] = []
    at = 0
    for start, end in words:
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        inside.append(at < len(taken) and taken[at][0] < end)
    return inside


def _frame(text: str, place: Place) -> tuple[str, str]:
    """Return the characters directly before and after, with numbers as one digit."""
    return _edge(text, place[0], -1), _edge(text, place[1], 1)


def _edge(text: str, at: int, step: int) -> str:
    part = text[at : at + _NEAR] if step > 0 else text[max(0, at - _NEAR) : at][::-1]
    if not part:
        return "\n"  # the end of a text is the end of a line
    match = (_BEHIND if step > 0 else _BEFORE).match(part)
    return _DIGITS.sub("0", match[0]) if match else ""


def _is_structural(frame: tuple[str, str]) -> bool:
    """Return whether a frame is that of a row, a key or a tag, and not of prose."""
    before, after = frame
    if not before.strip(" ") or not after.strip(" "):
        return False
    quoted = before.strip(" ") == after[:1] and after[0] in _QUOTES
    # After a line's beginning, any mark is a column's, a speaker's or an arrow.
    row = before == "\n" and after != "\n" and after not in _ENDS
    return quoted or row or not _STRUCTURE.isdisjoint({*before, *after} - {"\n"})


def _is_item(text: str, place: Place) -> bool:
    """Return whether a lower-case word ends like a list member."""
    if not text[place[0]].islower():
        return True
    behind = text[place[1] : place[1] + 5]
    return not behind[:1].isspace() or _LINK.match(behind) is not None
