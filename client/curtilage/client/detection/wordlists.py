"""Words that are not names, names that are common enough to list, and their look-up.

The lists are data (``data/words.toml``), read once; a detector's own lists are in its
folder. A name that is not listed is found by a capital, by a model, or not at all.
"""

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final, cast


def words(text: str) -> frozenset[str]:
    """Return the words of a list that is written as text."""
    return frozenset(text.split())


def read_data(package: str, name: str) -> Mapping[str, Any]:
    """Read a TOML file in a package's folder ``data``, so that lists are not code."""
    file = resources.files(package).joinpath("data", name)
    return tomllib.loads(file.read_text("utf-8"))


_WORDS: Final = read_data("curtilage.client.detection", "words.toml")
_LISTS: Final = cast("Mapping[str, str]", _WORDS)
ENGLISH_TITLES: Final = cast("Mapping[str, Any]", _WORDS["titles"])
COMMON: Final = words(_LISTS["common"])
ACRONYMS: Final = words(_LISTS["acronyms"])
PROPER: Final = words(_LISTS["proper"])
GIVEN: Final = words(_LISTS["given"]) | words(_LISTS["given_more"])
AMBIGUOUS: Final = words(_LISTS["ambiguous"])
NOT_IN_LOWER_CASE: Final = words(_LISTS["not_in_lower_case"])
ENDINGS: Final = tuple(words(_LISTS["endings"]))
PARTICLES: Final = words(_LISTS["particles"])
PARTICLES_MORE: Final = words(_LISTS["particles_more"])
PARTICLES_OF_PLACES: Final = cast("Sequence[str]", _WORDS["particles_of_places"])

_THING_NAMES: Final = cast(
    "Mapping[str, str]", read_data("curtilage.client.detection", "nobody.toml")
)
EPONYMS: Final = words(_THING_NAMES["eponyms"])
THINGS: Final = words(_THING_NAMES["things"])
AILMENTS: Final = words(_THING_NAMES["ailments"])
HEADS: Final = words(_THING_NAMES["heads"])
OWN_HEADS: Final = words(_THING_NAMES["own_heads"])
SURE_HEADS: Final = words(_THING_NAMES["sure_heads"])
BETWEEN: Final = words(_THING_NAMES["between"])
SPECIES: Final = words(_THING_NAMES["species"])
PLACES: Final = words(_THING_NAMES["places"])
ORGANISATIONS: Final = words(_THING_NAMES["organisations"])
REGIONS: Final = words(_THING_NAMES["regions"])
UNSURE_ENDINGS: Final = tuple(words(_THING_NAMES["unsure_endings"]))
_TERMS: Final = words(_THING_NAMES["terms"])
_TERM_ENDINGS: Final = tuple(words(_THING_NAMES["term_endings"]))

# Verbs, greetings and headings next to a name, which are not names themselves.
BESIDE: Final = frozenset[str]().union(
    *map(
        words,
        cast(
            "Mapping[str, str]",
            read_data("curtilage.client.detection", "beside_names.toml"),
        ).values(),
    )
)

MIN_NAME_CHARS = 2
ACRONYM_CHARS: Final = 5  # at most; longer ones in capitals may be a name
_INFLECTIONS = (
    ("ies", "y"),
    ("ied", "y"),
    ("es", ""),
    ("s", ""),
    ("ing", ""),
    ("ing", "e"),
    ("ed", ""),
    ("ed", "e"),
    ("er", ""),
    ("er", "e"),
    ("ers", ""),
    ("ers", "e"),
    ("ly", ""),
    ("est", ""),
    ("y", ""),
    ("al", ""),
    ("n't", ""),
    ("d", ""),
    ("r", ""),
)
_LISTED = COMMON | PROPER | AMBIGUOUS
_MARKS = re.compile(r"['\-]")
_TOKEN = re.compile(r"\w+")


def bag(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, without marks.

    A rule that begins with a word can be skipped if the word is missing.
    """
    return frozenset(_TOKEN.findall(text.lower()))


def lowered(text: str) -> str:
    """Return a text in lower case, of the same length, so that positions hold."""
    plain = text.lower()
    if len(plain) == len(text):
        return plain
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def unaccented(text: str) -> str:
    """Return a text in lower case and without accents, of the same length.

    As people type it. A letter with a combining accent keeps it.
    """
    if text.isascii():
        return text.lower()
    return "".join(
        low if len(low := unicodedata.normalize("NFD", char)[0].lower()) == 1 else char
        for char in text
    )


def bare(word: str) -> str:
    """Return a word in lower case, without a possessive ending."""
    plain = word.lower().replace("\u2019", "'")
    return plain.removesuffix("'s").removesuffix("'")


def is_listed(plain: str) -> bool:
    """Return whether a bare word is an ordinary one, exactly as listed."""
    return plain in _LISTED


def is_term(word: str) -> bool:
    """Return whether a word is a drug, an illness, a substance or a clinical object."""
    plain = bare(word)
    return any(
        each in _TERMS or each.endswith(_TERM_ENDINGS)
        for each in {plain, plain.removesuffix("s")}
    )


def is_known(word: str) -> bool:
    """Return whether a word is listed, possibly inflected, and not a given name."""
    plain = bare(word)
    if plain in GIVEN:
        return False
    if plain in _LISTED:
        return True
    if "-" in plain or "'" in plain:
        return all(
            part in _LISTED or len(part) < MIN_NAME_CHARS
            for part in _MARKS.split(plain)
        )
    return any(
        base in _LISTED
        for end, new in _INFLECTIONS
        if plain.endswith(end)
        and len(base := plain.removesuffix(end) + new) > MIN_NAME_CHARS
    )
