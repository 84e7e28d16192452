"""Find the words that stand beside a name in the same list, row, key set or tag.

Where one of ``{'x': 2, 'y': 1}`` is somebody, the other is somebody, too, whatever a
model says: a list of names that leaves with one of them replaced tells all the
others. Pure; runs where names are found, and again over what would leave.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from curtilage.client.detection import wordlists
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.wordlists import ACRONYM_CHARS, bare, is_known, is_term

_MIN_CHARS: Final = 3
_NEAR: Final = 4
_LETTERS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]{2,})?")
_DIGITS = re.compile(r"\d+")
# What stands at a word: a line's end, or a space and a mark; behind it, what makes a
# key of it or closes a tag as well. Not what closes the whole list.
_BEFORE = re.compile(r"\n|[ \t]?(?:[^\w\s]|\d)?")
_BEHIND = re.compile(r"\n|[ \t]?(?:[^\w\s][:=>/<-]?|\d)?")
# What keeps the members of a list apart: "a, b and the c", "a-v-b", "Chidi%20Okafor".
_LINK = re.compile(
    r"(?:'?s|['\u2019])?(?:,? ?(?:and|&|or|vs?\.?|versus)(?: the)? |, |; |/|\||\t|"
    r"%20|\+|_|-|-vs?-| \| |[,;])",
    re.IGNORECASE,
)
_LOOSE = re.compile(r"\W*\s\W*")  # a comma and a space, and no "and"
_LINKING = wordlists.words("and or the v vs versus s")
# Marks that a row, a key or a tag is made of; a full stop or a comma is prose.
_STRUCTURE = frozenset("<>|{}[]=&\t\\/_*#@`0")
_QUOTES = frozenset("'\"`")
_ENDS = frozenset(".!?")

Place = tuple[int, int]


def neighbours(text: str, names: Iterable[Place]) -> Iterator[Place]:
    """Yield the places of unknown words that are beside names; none of the names.

    Args:
        text: any text.
        names: where in it people were found; a place may hold several words.
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
    ordinary = _ordinary({text[slice(*place)].lower() for place in words})
    found = _framed(text, words, taken) | _linked(text, words, inside)
    shouted = any(text[start:end].isupper() for start, end in taken)
    for at in sorted(found):
        word = text[slice(*words[at])]
        acronym = word.isupper() and len(word) <= ACRONYM_CHARS and not shouted
        known = acronym or word.lower() in ordinary
        if not inside[at] and not known and is_unknown(word):
            yield words[at]


def _ordinary(words: Collection[str]) -> frozenset[str]:
    """Return the words of the languages that know half of a text's words.

    Nobody else says here which language it is in: this runs where no identifier is.
    """
    every = frozenset[str]()
    for pack in PACKS.values():
        if 2 * len(pack.words.intersection(words)) >= len(words):
            every |= pack.words
    return every


def _framed(text: str, words: list[Place], names: list[Place]) -> set[int]:
    """Return which words have the marks around them that a whole name has."""
    frames = {_frame(text, place) for place in names}
    telling = set(filter(_tells, frames))
    if not telling:
        return set()
    return {at for at, place in enumerate(words) if _frame(text, place) in telling}


def _linked(text: str, words: list[Place], inside: list[bool]) -> set[int]:
    """Return which words a list links with a name, as long as they are unknown."""
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
    """Tell whether a word is in no vocabulary and could be a name."""
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
    """Tell of each word whether it is a part of a name; both are sorted."""
    inside: list[bool] = []
    at = 0
    for start, end in words:
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        inside.append(at < len(taken) and taken[at][0] < end)
    return inside


def _frame(text: str, place: Place) -> tuple[str, str]:
    """Return what stands right before and right behind, numbers as one digit."""
    return _edge(text, place[0], -1), _edge(text, place[1], 1)


def _edge(text: str, at: int, step: int) -> str:
    part = text[at : at + _NEAR] if step > 0 else text[max(0, at - _NEAR) : at][::-1]
    if not part:
        return "\n"  # where a text ends, so does a line
    match = (_BEHIND if step > 0 else _BEFORE).match(part)
    return _DIGITS.sub("0", match[0]) if match else ""


def _tells(frame: tuple[str, str]) -> bool:
    """Tell whether a frame is that of a row, a key or a tag, and not of prose."""
    before, after = frame
    if not before.strip(" ") or not after.strip(" "):
        return False
    quoted = before.strip(" ") == after[:1] and after[0] in _QUOTES
    # Behind a line's beginning any mark is a column's, a speaker's or an arrow.
    row = before == "\n" and after != "\n" and after not in _ENDS
    return quoted or row or not _STRUCTURE.isdisjoint({*before, *after} - {"\n"})


def _is_item(text: str, place: Place) -> bool:
    """Tell whether a word in small letters ends where a list's member would."""
    if not text[place[0]].islower():
        return True
    behind = text[place[1] : place[1] + 5]
    return not behind[:1].isspace() or _LINK.match(behind) is not None
