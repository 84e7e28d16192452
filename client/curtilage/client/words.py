"""Tell ordinary words from others, by list and by ending."""

import re

from curtilage.client import given_names, vocabulary
from curtilage.client.vocabulary import words

MIN_NAME_CHARS = 2
# No name ends so, of what looks like a word that is not listed.
ENDINGS = tuple(
    words("""
tion tions sion sions ment ments ness ity ities ism isms ics logy logical graphy
graphic metry sis ware hood ship ships ology ological ically izing ising ized ised
ized ization able ible ably ibly less ously ously fully ative atively
""")
)
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
_LISTED = vocabulary.COMMON | vocabulary.PROPER | given_names.AMBIGUOUS
_MARKS = re.compile(r"['\-]")
_TOKEN = re.compile(r"\w+")


def bag(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, without marks.

    A rule that begins with a word need not run where that word is not.
    """
    return frozenset(_TOKEN.findall(text.lower()))


def lowered(text: str) -> str:
    """Return a text in lower case, of the same length: places stay places."""
    plain = text.lower()
    if len(plain) == len(text):
        return plain
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def bare(word: str) -> str:
    """Return a word in lower case, without a possessive ending."""
    plain = word.lower().replace("\u2019", "'")
    return plain.removesuffix("'s").removesuffix("'")


def is_listed(plain: str) -> bool:
    """Tell whether a bare word is an ordinary one, exactly as listed."""
    return plain in _LISTED


def is_known(word: str) -> bool:
    """Tell whether a word is a listed one, perhaps inflected, and no given name."""
    plain = bare(word)
    if plain in given_names.GIVEN:
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
