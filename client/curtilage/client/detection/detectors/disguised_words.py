"""Restores words with separated letters or with digits for letters, in all languages.

"k-r-e-b-s", "H I V p o s i t i v", "schw4nger". A result must be a word of a covered
language, so that headings, chess moves, sequences and names of games are not changed at
random. People can read these disguises; lists and models cannot.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final, cast

from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.wordlists import (
    COMMON,
    GIVEN,
    is_known,
    read_data,
    unaccented,
)

_ENGLISH: Final = cast(
    "Mapping[str, str]",
    read_data("curtilage.client.detection.detectors.topics", "lexicon.toml")["classes"],
)
# Keys are words without accents; a word that is listed without accents maps to itself.
_WORDS: Final[dict[str, str]] = {}
_TOPICS: Final[dict[str, str]] = {}
_STEMS: Final[dict[str, str]] = {}


def _take(words: Iterable[str], found: dict[str, str]) -> None:
    for word in words:
        plain = unaccented(word)
        # If a language has the word without accents, it is read as typed.
        if word == plain or plain not in found:
            found[plain] = word


for _pack in PACKS.values():
    _take(sorted(_pack.words), _WORDS)
for _classes in (_ENGLISH, *(pack.classes for pack in PACKS.values())):
    for _listed in map(str.split, _classes.values()):
        _take((word for word in _listed if word[-1] != "*"), _TOPICS)
        _take((word[:-1] for word in _listed if word[-1] == "*"), _STEMS)
# Also words in phrases; "f[üu]e?r" in them shows how an umlaut is typed.
_UMLAUT: Final = re.compile(r"\[([^\W\d_])\w*\](?:e\?)?")
for _phrases in (each for pack in PACKS.values() for each in pack.phrases.values()):
    for _phrase in _phrases:
        for _part in re.findall(r"[^\W\d_]{5,}", _UMLAUT.sub(r"\1", _phrase)):
            if unaccented(_part) not in _WORDS:
                _TOPICS.setdefault(unaccented(_part), _part)

_LEAST_STEM: Final = 4
_STEM_LENGTHS: Final = sorted(
    {len(stem) for stem in _STEMS if len(stem) >= _LEAST_STEM}, reverse=True
)
# Beginnings of words: a word that begins otherwise need not be looked up.
_HEAD_CHARS: Final = 4
_HEADS: Final = frozenset(
    word[:_HEAD_CHARS] for words in (_WORDS, _TOPICS, _STEMS, COMMON) for word in words
)
_LEAST_TOPIC: Final = 3  # "HIV", "sex"
_LEAST_WORD: Final = 4
_LEAST_SENTENCE: Final = 16  # letters that are unlikely to form words by chance
_LONGEST: Final = 28


def _topic(plain: str) -> str | None:
    """Return a topic word in its normal spelling, or None."""
    if len(plain) < _LEAST_TOPIC or plain[:_HEAD_CHARS] not in _HEADS:
        return None
    if plain in _TOPICS or plain in _STEMS:
        return _TOPICS.get(plain) or _STEMS[plain]
    for length in _STEM_LENGTHS:
        if length <= len(plain) and plain[:length] in _STEMS:
            return _STEMS[plain[:length]] + plain[length:]
    return None


def _word(plain: str) -> str | None:
    """Return a word of a covered language in its normal spelling, or None."""
    found = _TOPICS.get(plain) or _WORDS.get(plain)
    if found is None and plain[:_HEAD_CHARS] in _HEADS:
        return plain if plain in COMMON or is_known(plain) else _topic(plain)
    return found


# --- separated letters ------------------------------------------------------------

_SIGN: Final = r"[^\W_]"
_GAPS: Final = re.compile(
    rf"(?<![\w.@/\\-]){_SIGN}(?:[ \t]{{1,3}}{_SIGN}){{2,79}}(?![\w'\u2019@])"
)
_MARKS: Final = re.compile(
    rf"(?<![\w.@/\\-]){_SIGN}(?P<mark>[ ]?[._\-*/|+~·,][ ]?){_SIGN}"
    rf"(?:(?P=mark){_SIGN}){{1,79}}(?!\w)"
)
_WIDE: Final = re.compile(r"[ \t]{2,}")
_NUCLEOTIDES: Final = frozenset("acgtun")
# Words of one letter, which may occur next to separated ones.
_SINGLE: Final = frozenset("aeoyiu")
_LEAST_GIVEN: Final = 4
_LEAST_SURNAME: Final = 3


def _joined(match: re.Match[str]) -> str:
    """Return a row of letters as the words that it spells, or unchanged."""
    groups = _WIDE.split(match[0]) if _WIDE.search(match[0]) else [match[0]]
    if any(len(each) == 1 for each in groups):
        groups = [match[0]]  # equally spaced
    read: list[str] = []
    named = False
    for group in groups:
        letters = "".join(re.findall(_SIGN, group))
        words = _said(letters)
        if words is None and named and len(letters) >= _LEAST_SURNAME:
            words = letters
        named = unaccented(letters) in GIVEN
        read.append(group if words is None else words)
    return " ".join(read)


def _said(letters: str) -> str | None:
    """Return the consecutive words that the letters spell, or None."""
    digits = sum(map(str.isdigit, letters))
    if 2 * digits >= len(letters) or _NUCLEOTIDES.issuperset(letters.lower()):
        return None
    for plain in _undone(unaccented(letters)):
        ends = _cut(plain)
        if ends is not None:
            return _spelled(letters, plain, ends)
    plain = unaccented(letters)
    for end in range(len(plain), _LEAST_GIVEN - 1, -1):
        rest = len(plain) - end
        if plain[:end] in GIVEN and (not rest or rest >= _LEAST_SURNAME):
            return f"{letters[:end]} {letters[end:]}".rstrip()
    return None


def _cut(plain: str) -> list[int] | None:
    """Return the ends of the words that the letters spell without a rest, or None.

    It prefers few and long words; one of them must be certain.
    """
    costs = [(0.0, 0)] + [(_NEVER, 0)] * len(plain)
    for start in range(len(plain)):
        before = costs[start][0]
        if before >= _NEVER:
            continue
        begun = plain[start : start + _HEAD_CHARS] in _HEADS
        for end in range(start + 1, start + (_LONGEST if begun else _HEAD_CHARS)):
            if end <= len(plain):
                cost = before + _cost(plain[start:end])
                costs[end] = min(costs[end], (cost, start))
    ends: list[int] = []
    at = len(plain)
    while at and costs[at][0] < _NEVER:
        ends.append(at)
        at = costs[at][1]
    if at:
        return None
    ends.reverse()
    parts = [plain[start:end] for start, end in zip((0, *ends), ends, strict=False)]
    long = [part for part in parts if len(part) > 1]
    sure = any(map(_topic, long)) or (
        len(plain) >= (_LEAST_WORD if len(long) == 1 else _LEAST_SENTENCE)
    )
    enough = sum(map(len, long)) >= _LEAST_TOPIC * len(long)
    inside = any(len(part) == 1 for part in parts[1:-1])
    return ends if sure and enough and not inside else None


# The weight of a word: few listed words are likelier than many, or than an ending.
_LITTLE: Final = 0.5
_LISTED: Final = 1.0
_DERIVED: Final = 1.8
_SHORT: Final = 2.0
_NEVER: Final = 1000.0


def _cost(part: str) -> float:
    if len(part) == 1:
        return _LITTLE if part in _SINGLE else _NEVER
    if part in _WORDS or part in _TOPICS:
        return _LISTED if len(part) >= _LEAST_TOPIC else _SHORT
    return _NEVER if _word(part) is None else _DERIVED


def _spelled(letters: str, plain: str, ends: list[int]) -> str:
    words: list[str] = []
    for start, end in zip((0, *ends), ends, strict=False):
        written, found = letters[start:end], _word(plain[start:end])
        kept = written if found is None or unaccented(written) == found else found
        words.append(_cased(kept, written))
    return " ".join(words)


# --- digits for letters -----------------------------------------------------------

_FOR: Final[Mapping[str, str]] = {
    "0": "o", "1": "il", "3": "e", "4": "a", "5": "s", "6": "g", "7": "t", "8": "b",
    "9": "g", "@": "a", "$": "s", "€": "e", "!": "i",
}  # fmt: skip
_MOST_DOUBTS: Final = 3  # signs that may be either of two letters
_LEET: Final = re.compile(
    r"(?<![\w@/#&=.\\+:-])[\w@$€!]{3,32}(?![\w@/=\\(\[]|\.\w|-[0-9a-f]{4}-)"
)
_LEETED: Final = re.compile(r"[013456789@$€!]")
_AT_END: Final = re.compile(r"[0-9!]+$")


def _undone(plain: str) -> Iterator[str]:
    """Yield the possible spellings once digits are replaced by letters."""
    if plain.isalpha():
        yield plain
    elif sum(len(_FOR.get(char, "")) > 1 for char in plain) <= _MOST_DOUBTS:
        for each in product(*(_FOR.get(char, char) for char in plain)):
            yield "".join(each)


def _unleeted(match: re.Match[str]) -> str:
    """Return a word with its digits replaced by letters, or unchanged."""
    token = match[0].rstrip("!")
    tail = match[0][len(token) :]
    signs = len(_LEETED.findall(token))
    letters = sum(map(str.isalpha, token))
    if not signs or letters < max(signs, 2) or "_" in token:
        return match[0]
    stem = _AT_END.sub("", token)
    if len(token) - len(stem) == signs and (signs > 1 or _word(unaccented(stem))):
        return match[0]  # "covid19", "vitamin2"
    for plain in _undone(unaccented(token)):
        found = _topic(plain) or (_word(plain) if len(plain) >= _LEAST_WORD else None)
        if found is not None:
            return _cased(found, token) + tail
    return match[0]


def _cased(word: str, written: str) -> str:
    """Return a word with the capitals of its written form."""
    if written.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if written[:1].isupper() else word


def respelled(text: str) -> str:
    """Return a text with separated words joined and digits in words replaced.

    Takes time linear in the text: the lengths of rows and words are bounded.
    """
    text = _GAPS.sub(_joined, text)
    text = _MARKS.sub(_joined, text)
    return _LEET.sub(_unleeted, text) if _LEETED.search(text) else text
