"""Letters of scripts other than Latin, and words that mix scripts to look alike."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from curtilage.client.detection.wordlists import words

WORD: Final = re.compile(r"[^\W\d_]+")
_MIN_MIXED_CHARS = 4
_GREEK_LOOK_ALIKES = frozenset(
    "\u03bf\u039f\u03bd\u03b9\u03ba\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03c1"
)
_HARMLESS_SCRIPTS = words("""
LATIN GREEK MICRO OHM KELVIN ANGSTROM FEMININE MASCULINE MODIFIER FULLWIDTH
MATHEMATICAL DOUBLE-STRUCK SCRIPT BLACK-LETTER CIRCLED SUPERSCRIPT SUBSCRIPT
COMBINING ALEF
""")


@lru_cache(maxsize=4096)
def script_of(char: str) -> str:
    """Return a letter's script, the first word of its Unicode name: ``LATIN``."""
    return unicodedata.name(char, "UNKNOWN").partition(" ")[0]


def is_in_another_script(word: str) -> bool:
    """Return whether a word that is not ASCII is in a script that is not covered.

    A single Greek letter is mathematics, so at least two in a row must occur; for every
    other script, one letter is enough.
    """
    if is_mixed(word):
        return False  # a look-alike: obfuscation, which another detector finds
    scripts = [script_of(char) for char in word if not char.isascii()]
    greek = scripts.count("GREEK")
    others = [each for each in scripts if each not in _HARMLESS_SCRIPTS]
    return len(others) > 0 or greek > 1


def is_mixed(word: str) -> bool:
    """Return whether a word has look-alikes of Latin letters from another script."""
    scripts = {script_of(char) for char in word}
    if "LATIN" not in scripts:
        return False
    if scripts & {"CYRILLIC", "ARMENIAN", "CHEROKEE"}:
        return True
    look_alike = not _GREEK_LOOK_ALIKES.isdisjoint(word)
    return look_alike and len(word) >= _MIN_MIXED_CHARS
