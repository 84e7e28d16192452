"""Tell whether a text is in the script and language that the detectors cover.

Patterns and checksums work in any language; words do not. A text outside is
not clean, it is unknown: ``uncertain.language``.
"""

import re
import unicodedata
from functools import lru_cache

from curtilage.client.findings import Span
from curtilage.client.views import Reading
from curtilage.client.vocabulary import words

_DETECTOR = "language"
_OBFUSCATION = "obfuscation"

# Function words that are common in one language and are no English words.
_ENGLISH = words("""
the a an and or of to in is are was were it this that for with on at by from as be
been have has had do does did not you your i me my we our he she they his her their
what which who how when where why can could would should will if but about into than
then there please
""")
# Without those that are English words too, such as "die", "son", "an".
_FOREIGN = words("""
der das und ist nicht ich mit ein eine einen einer auf für von dem wie bei auch mein
meine sie wir haben habe wurde kann oder aber wenn nach zu im le les des est dans
pour une qui que pas je mon vous nous avec sur sont mais ou où il elle ce cette ses
au aux mes ai êtes el las una por para con del como pero más yo qué cómo está es
estoy tengo hay muy sus lo gli della che è sono nel per di mio mia non questo ho
anche uma não meu minha os dos das ao em seu você het een van niet ik mijn zijn dat
voor met aan wat hoe och att det som är jag har inte på av till min mitt från nie
jest się czy jak moja mój ale dla ve bir bu için benim
""")
# One of these is enough where no English function word stands beside it.
_UNMISTAKABLE = words("""
ich nicht und für wie auch haben wurde oder wenn wir meine welche welcher warum
wieviel gibt kannst könnte möchte bitte je nous vous une avec quel quelle quels
quelles pourquoi combien êtes suis qué cómo está estoy tengo muy más cuál cuánto
dónde quiero puedo pero perché cosa della sono quanto voglio uma não meu minha você
onde quero een niet mijn zijn hoeveel waarom wanneer och är jag hur czy dlaczego için
""")
_MIN_FOREIGN_WORDS = 2
_MIN_MIXED_CHARS = 4
_WORD = re.compile(r"[^\W\d_]+")
_CF_IN_WORD = re.compile(
    "(?<=\\w)[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]+(?=\\w)|"
    "[\u202a-\u202e\u2066-\u2069]|[\U000e0000-\U000e007f]"
)
_GREEK_LOOK_ALIKES = frozenset(
    "\u03bf\u039f\u03bd\u03b9\u03ba\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u03a1\u03a4\u03a5\u03a7\u03c1"
)


@lru_cache(maxsize=4096)
def script_of(char: str) -> str:
    """Return the script of a letter as its Unicode name begins: ``LATIN``."""
    return unicodedata.name(char, "UNKNOWN").partition(" ")[0]


class LanguageDetector:
    """Find letters of other scripts, and Latin text in other languages."""

    id = _DETECTOR

    def find(self, reading: Reading) -> list[Span]:
        """Return the words that are not covered.

        One Greek letter alone is mathematics, so only two in a row count; of
        every other script one letter is enough.
        """
        spans: list[Span] = []
        if not reading.text.isascii():
            spans = [
                _span("uncertain.language", _DETECTOR, match)
                for match in _WORD.finditer(reading.text)
                if not match[0].isascii() and _is_uncovered(match[0])
            ]
        return spans or list(_foreign_words(reading.text))


def _is_uncovered(word: str) -> bool:
    if _is_mixed(word):
        return False  # a look-alike: obfuscation, found elsewhere
    scripts = [script_of(char) for char in word if not char.isascii()]
    greek = scripts.count("GREEK")
    others = [each for each in scripts if each not in _HARMLESS_SCRIPTS]
    return len(others) > 0 or greek > 1


_HARMLESS_SCRIPTS = words("""
LATIN GREEK MICRO OHM KELVIN ANGSTROM FEMININE MASCULINE MODIFIER FULLWIDTH
MATHEMATICAL DOUBLE-STRUCK SCRIPT BLACK-LETTER CIRCLED SUPERSCRIPT SUBSCRIPT
COMBINING ALEF
""")


def _foreign_words(text: str) -> list[Span]:
    words = list(_WORD.finditer(text.lower()))
    foreign = [match for match in words if match[0] in _FOREIGN]
    english = sum(match[0] in _ENGLISH for match in words)
    distinct = {match[0] for match in foreign}
    if not english:
        alone = [match for match in words if match[0] in _UNMISTAKABLE]
        if alone:
            return [_span("uncertain.language", _DETECTOR, match) for match in alone]
    if len(distinct) < _MIN_FOREIGN_WORDS or len(foreign) <= english:
        return []
    return [_span("uncertain.language", _DETECTOR, match) for match in foreign]


class ObfuscationDetector:
    """Find invisible characters inside words, and words of mixed scripts."""

    id = _OBFUSCATION

    def find(self, reading: Reading) -> list[Span]:
        """Return what a person would hardly write by accident."""
        text = reading.text
        if text.isascii():
            return []
        hidden = list(_CF_IN_WORD.finditer(text))
        mixed = [
            m for m in _WORD.finditer(text) if not m[0].isascii() and _is_mixed(m[0])
        ]
        return [_span("uncertain.obfuscation", _OBFUSCATION, m) for m in hidden + mixed]


def _is_mixed(word: str) -> bool:
    scripts = {script_of(char) for char in word}
    if "LATIN" not in scripts:
        return False
    if scripts & {"CYRILLIC", "ARMENIAN", "CHEROKEE"}:
        return True
    look_alike = not _GREEK_LOOK_ALIKES.isdisjoint(word)
    return look_alike and len(word) >= _MIN_MIXED_CHARS


def _span(name: str, detector: str, match: re.Match[str]) -> Span:
    return Span(
        data_class=name,
        detector=detector,
        start=match.start(),
        end=match.end(),
        score=100,
    )
