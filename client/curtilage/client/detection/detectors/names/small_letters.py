"""Finds surnames in lower case, as words that are in no vocabulary.

"La segunda renta de iwasaki": a word of no covered language, in a position where a name
is possible, may be one. How strongly a model must agree depends on how much the word
looks like one of the text's language, and on whether an article or the like precedes
it. Pure functions of a text; English has its own rules (``cues.asked``).

The words come from simplemma's dictionaries of word forms, which only this module
imports. Needs the extra ``pii``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from typing import Final

from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from curtilage.client.detection.detectors.loading import loading
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.packs import ENGLISH, PACKS
from curtilage.client.detection.wordlists import GIVEN, is_term, read_data, words

_DATA: Final = "curtilage.client.detection"
_DICTIONARIES: Final = "simplemma"
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019\-][^\W\d_]+)*")
_ELIDED = re.compile(r"([^\W\d_]{1,7})['\u2019](?=.{3})")
_BEFORE = re.compile(r"([^\W\d_]+|'t)[ \t]{1,2}$")
_REACH: Final = 24  # characters before a word to search for the previous one
# Tuples, because the empty string, at either end of a text, is "in" every string.
_CODE_BEFORE: Final = tuple(r"_$@#\%&</=({[.>")
_CODE_AFTER: Final = tuple(r"_(=\@/[{")
_MIN_CHARS: Final = 4
_LONG_WORD = re.compile(rf"[^\W\d_]{{{_MIN_CHARS},}}")
_FEW_UNKNOWN: Final = 6  # unknown words that any text may have
_STEM_CHARS: Final = 4
_ENDING_CHARS: Final = 4  # the longest ending by which two forms of a word differ
_GRAM: Final = 4
_NATIVE_SHARE: Final = 0.7  # of its letter sequences that the language has
_FORMED_CHARS: Final = 5
_COMPOUNDING: Final = frozenset(("de", "nl"))
_PART_CHARS: Final = 3
_INFINITIVES: Final = ("ar", "er", "ir")
_SUBSTANCE_ENDINGS: Final = ("as", "os", "es", "a", "o", "e")
# After these elided words there is a noun or a verb; after d' and qu' there may be a
# name.
_ELIDED_DETERMINERS: Final = words(
    "l s m t n c j un dell all dall nell sull quest quell"
)


class Looks(StrEnum):
    """The appearance of an unknown lower-case word."""

    FOREIGN = "small-foreign"  # no word of this language looks like it
    FOREIGN_NOUN = "small-foreign-noun"  # the same after an article
    NATIVE = "small-native"  # it may be a word that is in no list
    NATIVE_NOUN = "small-native-noun"  # the same after an article
    FORMED = "small-formed"  # the same with an ending, or made of two words
    LISTED = "small-listed"  # a dictionary has it; "silva" is one of them


def require_dictionaries() -> None:
    """Raise unless the dictionaries are installed; loads nothing.

    Raises:
        FileNotFoundError: they are not.
    """
    if find_spec(_DICTIONARIES) is None:
        raise FileNotFoundError("the dictionaries of word forms are not installed")


def unknown_small(reading: Reading) -> Iterator[tuple[int, int, Looks]]:
    """Yield each lower-case word that is in none of our lists, with its appearance."""
    codes = reading.packs
    for match in _WORD.finditer(reading.text) if codes else ():
        if not match[0].islower() or _is_code(reading.text, *match.span()):
            continue
        elided = _ELIDED.match(match[0])
        at = 0 if elided is None else elided.end()
        word = match[0][at:]
        if len(word) < _MIN_CHARS or _is_known(word, codes, english=reading.english):
            continue
        noun = (
            _is_determined(reading.text, match.start(), codes)
            if elided is None
            else elided[1] in _ELIDED_DETERMINERS
        )
        looks = (
            Looks.LISTED
            if any(_is_in_dictionary(word, code) for code in (*codes, ENGLISH))
            else _looks(word, codes, noun=noun)
        )
        yield match.start() + at, match.end(), looks


def is_prose(text: str, looks: Iterable[Looks]) -> bool:
    """Return whether unknown words with these appearances are few in a text.

    If so, they are not in code, in a text that was read backwards, or in another
    language.
    """
    unknown = sum(each is not Looks.LISTED for each in looks)
    if unknown <= _FEW_UNKNOWN:
        return True
    return 3 * unknown <= sum(1 for _ in _LONG_WORD.finditer(text))


def _looks(word: str, codes: Sequence[str], *, noun: bool) -> Looks:
    native = any(_is_native(word, code) for code in codes)
    formed = any(_is_formed(word, code) for code in codes)
    if native and (noun or formed):
        return Looks.NATIVE_NOUN if noun else Looks.FORMED
    if native or formed:
        return Looks.NATIVE
    return Looks.FOREIGN_NOUN if noun else Looks.FOREIGN


def _is_code(text: str, start: int, end: int) -> bool:
    if text[max(0, start - 1) : start] in _CODE_BEFORE:
        return True
    after = text[end : end + 1]
    glued = after == "." and text[end + 1 : end + 2].isalnum()
    return glued or after in _CODE_AFTER


def _is_determined(text: str, start: int, codes: Sequence[str]) -> bool:
    before = _BEFORE.search(text, max(0, start - _REACH), start)
    return before is not None and any(
        before[1].lower() in PACKS[code].determiners for code in codes
    )


def _is_known(word: str, codes: Sequence[str], *, english: bool) -> bool:
    if word in _every_word() or is_term(word):
        return True
    here = (*codes, ENGLISH) if english else codes
    if any(VOCABULARIES[code].knows(word) for code in here):
        return True
    # "Terazosina", "bilirubine": substances in the spelling of four languages.
    if any(is_term(word.removesuffix(each)) for each in _SUBSTANCE_ENDINGS):
        return True
    parts = word.split("-")
    return len(parts) > 1 and any(
        _is_listed(part, code) for part in parts for code in codes
    )


def _is_in_dictionary(word: str, code: str) -> bool:
    """Return whether a language has a word, and it is not also a surname."""
    plain = _dictionary(code)(word)
    if plain is None or word in GIVEN:
        return False
    # The dictionary has "García" too, capitalised, and in German every noun. "Gallares"
    # is a form of "gallar" that has not been used for centuries.
    return plain[0].islower() and not (
        plain.endswith(_INFINITIVES) and word == f"{plain}es"
    )


@cache
def _dictionary(code: str) -> Callable[[str], str | None]:
    """Return a function for a word's basic form: 4 to 15 MB, a second to load."""
    with loading():
        from simplemma.strategies import (  # noqa: PLC0415 - needs the extra
            CliticDecompositionStrategy,
            DictionaryLookupStrategy,
            StreamDictionaryFactory,
        )

        # Searched in place: a parsed dictionary is ten times as fast and as large.
        forms = DictionaryLookupStrategy(StreamDictionaryFactory(1))
        forms.get_lemma("a", code)  # loads it
        joined = CliticDecompositionStrategy(forms)  # "ayudarnos"
    return lambda word: forms.get_lemma(word, code) or joined.get_lemma(word, code)


@cache
def _every_word() -> frozenset[str]:
    """Return the words of all covered languages, as listed."""
    with loading():
        return frozenset[str]().union(
            VOCABULARIES[ENGLISH].listed,
            *(pack.words | pack.everyday for pack in PACKS.values()),
            # These show nothing about a language's spelling, since many are loanwords.
            *map(words, read_data(_DATA, "everyday.toml").values()),
        )


def _is_native(word: str, code: str) -> bool:
    """Return whether a word's spelling fits a language."""
    if any(stem in _stems(code) for stem in _stems_of(word)):
        return True
    grams = _grams_of(word)
    return sum(gram in _grams(code) for gram in grams) > _NATIVE_SHARE * len(grams)


def _is_formed(word: str, code: str) -> bool:
    """Return whether a word ends like an ordinary word's form, or combines two."""
    pack = PACKS[code]
    if len(word) >= _FORMED_CHARS and word.endswith(pack.inflections):
        return True
    return code in _COMPOUNDING and any(
        _is_listed(word[:at], code) and _is_listed(word[at:].removeprefix("s"), code)
        for at in range(_PART_CHARS, len(word) - _PART_CHARS + 1)
    )


def _is_listed(word: str, code: str) -> bool:
    return word in PACKS[code].words or word in PACKS[code].everyday


def _stems_of(word: str) -> Iterator[str]:
    for length in range(max(_STEM_CHARS, len(word) - _ENDING_CHARS), len(word) + 1):
        yield word[:length]


def _grams_of(word: str) -> list[str]:
    marked = f" {word} "
    return [marked[at : at + _GRAM] for at in range(len(marked) - _GRAM + 1)]


@cache
def _stems(code: str) -> frozenset[str]:
    pack = PACKS[code]
    with loading():
        return frozenset(
            stem for word in pack.words | pack.everyday for stem in _stems_of(word)
        )


@cache
def _grams(code: str) -> frozenset[str]:
    pack = PACKS[code]
    with loading():
        return frozenset(
            gram for word in pack.words | pack.everyday for gram in _grams_of(word)
        )
