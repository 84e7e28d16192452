"""Finds words that may be a person's name, without a model.

From certain to uncertain: an introduced name is a person (``cues``); a given name may
be one; so may every capitalised word inside a sentence that no list calls harmless.
Without a model, the uncertain ones are ``uncertain.name``: a span that must not be
replaced, so the query is kept local. With a model, ``model.detector`` weighs them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.names.cues import people, people_in
from curtilage.client.detection.detectors.names.nobody import (
    HUMP,
    is_nobody,
    is_thing,
)
from curtilage.client.detection.detectors.names.titles import titled
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.neighbours import is_carried_on
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import (
    ACRONYM_CHARS,
    ENDINGS,
    MIN_NAME_CHARS,
    bag,
    bare,
    is_known,
    is_listed,
    words,
)

UNSURE = "uncertain.name"

_WORD = re.compile(r"[^\W\d_][\w]*(?:['\u2019\-](?=[^\W\d_])[\w]+)*")
_SENTENCE_END = frozenset(".!?:;\n\r•*#>|\"\u201c\u201d([{=\t\u2013\u2014…'\u2018`/")
_CODE_BEFORE = frozenset("._$@#&%-/")
_CODE_AFTER = frozenset("_([")
# Marks of markup, paths and keys; they indicate code if other code is near.
_MARKUP = frozenset("<=\\")
_CODE = re.compile(
    r"[;{]\s*$|^\s*[}@]|\w\(\)|[=!]=|->|=>|::|\\(?:begin|frac|sum|text|left|int|alpha)|"
    r"^\s*(?:def|class|import|from \w+ import|return|function|const|let|var|public|"
    r"private|#include|package|using|SELECT|select)\b|</?(?:div|script|html|body|head|"
    r"template|span|button|input|a href)\b|```",
    re.MULTILINE,
)
_PREFIXED = re.compile(
    r"(?:Mc|Mac|O['\u2019]|D['\u2019]|De|Di|Da|La|Le|Van|Von|Fitz|"
    r"Ben|Al-|El-)[A-Z][a-zà-ÿ]+"
)
_SHORT_CHARS = 3
_VOWEL = re.compile(r"[AEIOUY]")
_ENDING_CHARS = 7
_SHOUTED_CHARS = 20
_LISTED, _UNLISTED, _UNLIKELY = 70, 60, 45
_LOWER_CASE_NAMES = wordlists.GIVEN - wordlists.NOT_IN_LOWER_CASE
_HANDLE_NAMES = frozenset(
    name
    for name in _LOWER_CASE_NAMES
    if len(name) > 3  # noqa: PLR2004 - shorter ones are part of too many words
)
_SHOUTED_SHARE = 0.6
_INITIAL_ENDINGS = tuple(
    words("""
ing ings ly ous ive ed ies ize ise ful ance ence ances ences ture tures ical ial
ally ers ors ium
""")
)
_FIRST_ENDINGS = (*ENDINGS, *_INITIAL_ENDINGS)
_JOINT = re.compile(r"['\u2019\-]")


class Why(StrEnum):
    """Why a word may be a name."""

    GIVEN = "given"  # a given name in lower case
    LISTED = "listed"  # a given name with a capital
    CAPITAL = "capital"  # a capital without another explanation
    FIRST = "first"  # the same if every word has one
    HANDLE = "handle"  # a given name inside an account name
    NOUN = "noun"  # a capital in a language that capitalises every noun


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A word that may be a name.

    Attributes:
        start: first character.
        end: one past the last character.
        score: how much it looks like one, 1 to 100.
        why: what it looks like.
    """

    start: int
    end: int
    score: int
    why: Why


class NameDetector:
    """Finds names and possible names in raw text."""

    id = "name"

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield people and suspects; each word is one span."""
        yield from people(reading.text)
        yield from people_in(reading)
        yield from titled(reading)
        for each in suspects(reading):
            yield Span(
                data_class=UNSURE,
                detector=f"name-{each.why}",
                start=each.start,
                end=each.end,
                score=each.score,
            )


def suspects(reading: Reading) -> Iterator[Suspect]:
    """Yield every word that may be a name; each word is one suspect.

    In a language that capitalises every noun, a capital means next to nothing.
    """
    text = reading.text
    ordinary = [PACKS[code].words for code in reading.packs]
    nouns = not all(PACKS[code].capitals for code in reading.packs)
    shouted = _is_shouted(text)
    # Only once: otherwise every word between marks would search the whole text again.
    in_code = not _MARKUP.isdisjoint(text) and _CODE.search(text) is not None
    plain_words = "_" not in text and _LOWER_CASE_NAMES.isdisjoint(bag(text))
    before: re.Match[str] | None = None
    for match in _WORD.finditer(text):
        last, before = before, match
        if plain_words and match[0].islower():
            continue
        if (
            ordinary
            and any(match[0].lower() in each for each in ordinary)
            and not _begins_name(text, match)
        ):
            continue
        found = _suspicion(text, match, last, shouted=shouted, in_code=in_code)
        if found is not None and not (
            is_nobody(text, *match.span()) or is_thing(reading, *match.span())
        ):
            why, score = found
            if nouns and why in (Why.CAPITAL, Why.FIRST):
                why = Why.NOUN
            yield Suspect(start=match.start(), end=match.end(), why=why, score=score)


def _suspicion(
    text: str,
    match: re.Match[str],
    before: re.Match[str] | None,
    *,
    shouted: bool,
    in_code: bool,
) -> tuple[Why, int] | None:
    """Return why a word looks like a name, and how much."""
    word = match[0]
    if word.islower():
        return _lower_case_suspicion(word)
    if not word[0].isupper():
        return _handle_suspicion(word)
    plain = bare(word)
    acronym = word.isupper() and len(word) <= _SHORT_CHARS and not shouted
    if plain in wordlists.GIVEN:
        # ED is a department as well as a given name.
        return (Why.CAPITAL, _UNLIKELY) if acronym else (Why.LISTED, _LISTED)
    if len(plain) < MIN_NAME_CHARS or _is_code(text, match, in_code=in_code):
        return None
    if word.isupper():
        return _capitals_suspicion(word, shouted=shouted)
    return _capital_suspicion(text, match, before)


def _capital_suspicion(
    text: str, match: re.Match[str], before: re.Match[str] | None
) -> tuple[Why, int] | None:
    """Judge a word that has a capital but is not all capitals."""
    word = match[0]
    plain = bare(word)
    if not _JOINT.sub("", word[1:]).islower():
        if _PREFIXED.fullmatch(word):
            return Why.CAPITAL, _UNLISTED
        return _joined_suspicion(word)
    if _begins_sentence(text, match):
        return None if _is_harmless_first(plain) else (Why.FIRST, _UNLIKELY)
    if plain in wordlists.AMBIGUOUS and not _in_heading(before):
        return Why.CAPITAL, _UNLIKELY
    if is_known(word) or plain.endswith(ENDINGS):
        return None
    return Why.CAPITAL, _UNLISTED


def _begins_name(text: str, match: re.Match[str]) -> bool:
    """Return whether a capitalised ordinary word may be a given name: "Malte von".

    "malte" is a verb, which is not capitalised inside a sentence.
    """
    return (
        match[0][0].isupper()
        and is_carried_on(text, match.end())
        and not _begins_sentence(text, match)
    )


def _in_heading(before: re.Match[str] | None) -> bool:
    """Return whether the word before is capitalised too and is not a name."""
    return (
        before is not None
        and before[0][0].isupper()
        and before[0][1:].islower()
        and bare(before[0]) in wordlists.COMMON
    )


def _lower_case_suspicion(word: str) -> tuple[Why, int] | None:
    plain = bare(word)
    if plain in _LOWER_CASE_NAMES and not is_listed(plain):
        return Why.GIVEN, _UNLIKELY
    return _handle_suspicion(word) if "_" in word else None


def _handle_suspicion(word: str) -> tuple[Why, int] | None:
    """Judge ``john_smith``, ``johnSmith42``: a name inside an account name."""
    parts = [part.lower() for part in HUMP.findall(word)]
    if len(parts) > 1 and not _HANDLE_NAMES.isdisjoint(parts):
        return Why.HANDLE, _UNLIKELY
    return None


def _capitals_suspicion(word: str, *, shouted: bool) -> tuple[Why, int] | None:
    if not shouted:
        # IBS-SSS and CVVHDF are acronyms; SIVAKUMAR is a name.
        parts = _JOINT.split(word)
        if all(len(part) <= ACRONYM_CHARS for part in parts) or not _VOWEL.search(word):
            return None
    if is_known(word) or bare(word).endswith(ENDINGS):
        return None
    return Why.CAPITAL, _UNLIKELY


def _joined_suspicion(word: str) -> tuple[Why, int] | None:
    """Judge ``Anne-Marie``, ``Smith-Jones``, ``JavaScript`` and ``McKay``."""
    parts = _JOINT.split(word)
    if len(parts) == 1:
        # CamelCase: a product, a program's identifier, or a handle.
        return _handle_suspicion(word)
    unknown = any(
        part[0].isupper() and part[1:].islower() and not is_known(part)
        for part in parts
    )
    return (Why.CAPITAL, _UNLISTED) if unknown else None


def _is_code(text: str, match: re.Match[str], *, in_code: bool) -> bool:
    """Return whether a word is attached to characters of program code."""
    start, end = match.span()
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    if before in _MARKUP or after in _MARKUP:
        return in_code
    glued_dot = after == "." and end + 1 < len(text) and text[end + 1].isalnum()
    return (
        before in _CODE_BEFORE or before.isdigit() or after in _CODE_AFTER or glued_dot
    )


def _begins_sentence(text: str, match: re.Match[str]) -> bool:
    at = match.start() - 1
    while at >= 0 and text[at] == " ":
        at -= 1
    if at < 0 or text[at] in _SENTENCE_END:
        return not _is_abbreviated(text, at)
    # "1) Name" and "- Name" begin a sentence too.
    return text[at] in ")-]" and (at == 0 or not text[at - 1].isalpha())


def _is_abbreviated(text: str, at: int) -> bool:
    """Return whether the full stop ends an initial: ``J. Doe``."""
    return (
        at >= 1
        and text[at] == "."
        and text[at - 1].isupper()
        and (at == 1 or not text[at - 2].isalnum())
        and text[at - 1] != "I"
    )


def _is_harmless_first(plain: str) -> bool:
    if plain in wordlists.AMBIGUOUS or is_known(plain):
        return True
    return len(plain) >= _ENDING_CHARS and plain.endswith(_FIRST_ENDINGS)


def _is_shouted(text: str) -> bool:
    """Return whether a text is written in capitals, so that they mean nothing."""
    capitals = sum(map(str.isupper, text))
    if capitals < _SHOUTED_CHARS * _SHOUTED_SHARE:
        return False
    letters = sum(map(str.isalpha, text))
    return letters >= _SHOUTED_CHARS and capitals > _SHOUTED_SHARE * letters
