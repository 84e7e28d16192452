"""Find people by the words around them, without a model.

A title, an introduction, a greeting, a closing line or initials stand before a
name in any text. What follows counts as a person unless it is an ordinary word.
"""

import re
from collections.abc import Iterator

from curtilage.client.detection import wordlists
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import bag, bare, is_known, words

PERSON = "identifier.direct.person"

_PRODUCTS = words(
    "word excel office access teams paint windows outlook sql project visio degree"
)
_NAME = r"[^\W\d_][\w'\u2019\-]{1,30}"
_TITLE = re.compile(
    r"(?<!\w)(?:mr|mrs|ms|mx|dr|prof|rev|sgt|capt|lt|"
    rf"hon)\.?[ \t]{{1,2}}(?!\w+ ?[=(])({_NAME})|"
    r"(?<!\w)(?:Miss|Professor|Doctor|Sir|Dame|Madam|Nurse|Judge|"
    r"Captain|Sergeant|Officer|Senator|"
    r"Herr|Frau|Monsieur|Madame|Señora?|"
    r"Signora?)[ \t]{1,2}([A-ZÀ-Þ][\w'\u2019\-]{1,30})",
    re.IGNORECASE,
)
_INTRODUCED = re.compile(
    r"(?<!\w)(?:(?:my|his|her|their|patient|client|customer|"
    r"employee|full|first|last|maiden|legal)(?:'s|\u2019s)?"
    r"(?: \w{2,10})? name(?: is|'s|\u2019s|:| was)|name:|this is|"
    r"i am called|(?:is|was|are) (?:named|called)|"
    r"(?<!file)(?<!user)named|"
    r"call me|known as|addressed? to|signed,?|regards,?|sincerely,?|cheers,|attn:?|"
    r"(?:patient|client|employee|applicant|claimant|tenant|resident|"
    r"plaintiff|defendant|customer|student|"
    r"beneficiary|insured|borrower|cardholder|account holder|payee|"
    r"recipient|sender)(?: name)?(?: is|:|'s name is)?|"
    r"(?:my|his|her|our|their) (?:\w{2,10} )?(?:mother|father|mom|"
    r"mum|dad|son|daughter|wife|husband|partner|sister|brother|"
    r"boyfriend|girlfriend|friend|boss|manager|colleague|coworker|"
    r"doctor|neighbou?r|uncle|aunt|cousin|niece|nephew)[, ]*)"
    rf"[ \t\n]{{0,2}}[\"'\u201c]?({_NAME})",
    re.IGNORECASE,
)
# ``sumOfArray``: what a program calls something, unlike ``McKay``.
_IDENTIFIER = re.compile(r"[a-z][A-Z]|\d|_")
_PREFIXES = (
    "Mc",
    "Mac",
    "De",
    "Di",
    "Da",
    "Du",
    "La",
    "Le",
    "Lo",
    "Van",
    "Von",
    "Fitz",
)
# One to three words alone at the end of a letter, and after a greeting.
_CLOSED = re.compile(
    r"(?<!\w)(?:regards|best|wishes|sincerely|thanks|thank you|thx|cheers|yours|"
    r"truly|faithfully|love|xoxo|cordially|respectfully)[,!.]?[ \t]*\r?\n\s{0,8}"
    rf"(?:[-\u2013\u2014~*][ \t]?)?({_NAME})(?=(?:[ \t]+[\w.'\u2019\-]{{1,30}}){{0,3}}"
    r"[ \t,.]*(?:\r?\n|$))",
    re.IGNORECASE,
)
_GREETED = re.compile(
    rf"(?<!\w)(?:dear|hi|hello|hey)[ \t]({_NAME})"
    r"(?=(?: [\w.'\u2019\-]{1,30}){0,2}[ \t]?(?:[,!:\n]|$))",
    re.IGNORECASE,
)
_THANKED = re.compile(
    rf"(?<!\w)(?:thanks|thank you|thx|ty|bye|sorry|cheers),? ({_NAME})"
    r"(?=[ \t]?(?:[!.,\n]|$))|"
    rf"(?<!\w)(?:i am|i['\u2019]?m) ({_NAME}) (?:from|here)(?!\w)",
    re.IGNORECASE,
)
_THANKS = words("thanks thank thx ty bye sorry cheers from here")
# Who shall do it, in a program's comment: any word there is a person.
_TODO = re.compile(r"(?<!\w)(?:TODO|FIXME|XXX|HACK)\(@?([^\W\d_][\w.\-]{1,30})\)")
# "J. Doe", "J. R. R. Doe": capitals only, or every "e.g. this" would be one.
_INITIALS = re.compile(
    r"(?<![\w.])(?:[A-ZÀ-Þ]\.[ \t]?){1,3}"
    r"(?:(?:van|von|de|der|den|la|al|bin|di|du)[ \t]){0,2}"
    r"([A-ZÀ-Þ][^\W\d_A-Z][\w'\u2019\-]{1,30})"
)


_TITLES = words("""
mr mrs ms mx dr prof rev sgt capt lt hon miss professor doctor sir dame madam nurse
judge captain sergeant officer senator herr frau monsieur madame señor señora signor
signora
""")
_HEADS = words("""
name this named called call known address addressed signed regards sincerely cheers
attn patient client employee applicant claimant tenant resident plaintiff defendant
customer student beneficiary insured borrower cardholder holder payee recipient sender
mother father mom mum dad son daughter wife husband partner sister brother boyfriend
girlfriend friend boss manager colleague coworker doctor neighbor neighbour uncle aunt
cousin niece nephew
""")
_CLOSINGS = words("""
regards best wishes sincerely thanks you thx cheers yours truly faithfully love xoxo
cordially respectfully
""")
_GREETINGS = words("dear hi hello hey")


def people(text: str) -> Iterator[Span]:
    """Yield whoever is called a person by the words before; one word each."""
    here = bag(text)
    if not _TITLES.isdisjoint(here):
        for match in _TITLE.finditer(text):
            yield from _titled(match)
    if not _HEADS.isdisjoint(here):
        yield from _named(_INTRODUCED, "name-introduced", text, 70)
    yield from _in_letters(text, here)
    yield from _in_marks(text)


def _in_letters(text: str, here: frozenset[str]) -> Iterator[Span]:
    if not _GREETINGS.isdisjoint(here):
        yield from _named(_GREETED, "name-greeting", text, 65)
    if not _THANKS.isdisjoint(here):
        yield from _named(_THANKED, "name-greeting", text, 65)
    if "\n" in text and not _CLOSINGS.isdisjoint(here):
        yield from _named(_CLOSED, "name-closing", text, 65)


def _in_marks(text: str) -> Iterator[Span]:
    if "(" in text:
        for match in _TODO.finditer(text):
            yield _span("name-introduced", match.span(1), 70)
    if "." in text:
        for match in _INITIALS.finditer(text):
            if match[0][0] != "I" and _may_be_name(match[1]):
                yield _span("name-initials", match.span(), 65)


def _titled(match: re.Match[str]) -> Iterator[Span]:
    group = 1 if match[1] else 2
    word = match[group]
    if word[0].isupper() and bare(word) not in _PRODUCTS:
        yield _span("name-title", match.span(group), 80)
    elif word.islower() and not is_known(word):
        yield _span("name-title", match.span(group), 65)


def _named(
    pattern: re.Pattern[str], detector: str, text: str, score: int
) -> Iterator[Span]:
    for match in pattern.finditer(text):
        group = match.lastindex or 0
        if _may_be_name(match[group]):
            yield _span(detector, match.span(group), score)


def _may_be_name(word: str) -> bool:
    if _IDENTIFIER.search(word) and not word.startswith(_PREFIXES):
        return False
    return bare(word) in wordlists.GIVEN or not is_known(word)


def _span(detector: str, place: tuple[int, int], score: int) -> Span:
    return Span(
        data_class=PERSON,
        detector=detector,
        start=place[0],
        end=place[1],
        score=score,
    )
