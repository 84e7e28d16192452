"""Finds people by the words around them, without a model.

A title, an introduction, a greeting, a closing line or initials occur before a name.
The word after them counts as a person unless it is an ordinary word.
"""

import re
from collections.abc import Iterator
from typing import Final

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import (
    bag,
    bare,
    is_known,
    is_term,
    lowered,
    words,
)

PERSON = "identifier.direct.person"
# Found by a word that may precede any other word too; a model may clear them.
ROLE = "name-role"
KEYED = "name-keyed"
INITIALS = "name-initials"  # nothing introduces them

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
_ROLES = (
    r"patient|client|employee|applicant|claimant|tenant|resident|"
    r"plaintiff|defendant|customer|student|"
    r"beneficiary|insured|borrower|cardholder|account holder|payee|"
    r"recipient|sender"
)
_INTRODUCED = re.compile(
    r"(?<!\w)(?:(?:my|his|her|their|patient|client|customer|"
    r"employee|full|first|last|maiden|legal)(?:'s|\u2019s)?"
    r"(?: \w{2,10})? name(?: is|'s|\u2019s|:| was)|name:|this is|"
    r"i am called|(?:is|was|are) (?:named|called)|"
    r"(?<!file)(?<!user)named|"
    r"call me|known as|addressed? to|signed,?|regards,?|sincerely,?|cheers,|attn:?|"
    rf"(?:{_ROLES})(?: name| is|:|'s name is| name is| name:))"
    rf"[ \t\n]{{0,2}}[\"'\u201c]?({_NAME})",
    re.IGNORECASE,
)
# "tenant okonkwo" and "tenant rights": the word alone does not decide.
_ROLE = re.compile(
    rf"(?<!\w)(?:(?:{_ROLES})[ \t\n]{{1,2}}|"
    r"(?:my|his|her|our|their) (?:\w{2,10} )?(?:mother|father|mom|"
    r"mum|dad|son|daughter|wife|husband|partner|sister|brother|"
    r"boyfriend|girlfriend|friend|boss|manager|colleague|coworker|"
    r"doctor|neighbou?r|uncle|aunt|cousin|niece|nephew)[, ]*[ \t\n]{0,2})"
    rf"[\"'\u201c]?({_NAME})",
    re.IGNORECASE,
)
# Keys, columns, tags and folders that contain a name: "tenant=x", "<ln>x</ln>".
_KEYED = re.compile(
    r"(?<![^\W\d_])(?:(?:first|last|sur|given|family|full|user|patient|client|tenant|"
    r"customer|employee|contact)[_\- ]?name|[fl]n|surname|tenant|patient|client|"
    r"customer|employee|applicant|plaintiff|defendant|owner|author|assignee|reviewer|name)"
    rf"(?:[\"']?[ \t]?[=:][ \t]?[\"']?|>[ \t]?)({_NAME}(?:%20{_NAME})?)|"
    rf"[\\/](?:Users|home)[\\/]{{1,2}}({_NAME})|"
    rf"(?<!\w)(?:in re|ex parte|estate of|matter of|widow of|u\.?/o)[ \t]({_NAME})",
    re.IGNORECASE,
)
# ``sumOfArray``: a program's identifier, unlike ``McKay``.
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
# One to three words alone at the end of a letter or after a greeting.
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
# The person responsible, in a program's comment; any word there is a person.
_TODO = re.compile(r"(?<!\w)(?:TODO|FIXME|XXX|HACK)\(@?([^\W\d_][\w.\-]{1,30})\)")
# "J. Doe", "J. R. R. Doe": capitals only, else every "e.g. this" would match.
_INITIALS = re.compile(
    r"(?<![\w.])(?:[A-ZÀ-Þ]\.[ \t]?){1,3}"
    r"(?:(?:van|von|de|der|den|la|al|bin|di|du)[ \t]){0,2}"
    r"([A-ZÀ-Þ][^\W\d_A-Z][\w'\u2019\-]{1,30})"
)


_ONLY_TITLES = ("mrs", "mx")  # only for a person, whatever word follows
_KEY_MARK = re.compile(r"[=:>\\/]|\b(?:re|parte|of)\b", re.IGNORECASE)
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
    """Yield the people that the words before them introduce; one word each."""
    here = bag(text)
    if not _TITLES.isdisjoint(here):
        for match in _TITLE.finditer(text):
            yield from _titled(match)
    if not _HEADS.isdisjoint(here):
        yield from _named(_INTRODUCED, "name-introduced", text, 70)
        yield from _named(_ROLE, ROLE, text, 70)
    if _KEY_MARK.search(text):
        yield from _named(_KEYED, KEYED, text, 65)
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
                yield _span(INITIALS, match.span(), 65)


def _titled(match: re.Match[str]) -> Iterator[Span]:
    group = 1 if match[1] else 2
    word = match[group]
    if word[0].isupper() and bare(word) not in _PRODUCTS:
        yield _span("name-title", match.span(group), 80)
    elif word.islower() and match[0].lower().startswith(_ONLY_TITLES):
        yield _span("name-title", match.span(group), 65)
    elif word.islower() and not is_known(word):
        # "dr okonkwo" is a person; "nurse practitioners" may not be.
        yield _span("name-title" if group == 1 else ROLE, match.span(group), 65)


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


# An unknown word after a verb for people, or for things as well, or before a verb that
# people do.
_UNKNOWN = r"([^\W\d_]{3,30})"
_ASKED = re.compile(
    # "The text reads", "an answer shorter": no one is asked.
    r"(?<![\w.@/])(?<!the )(?<!this )(?<! an )(?<!your )(?:ask|tell|remind|invite|call|"
    r"phone|e-?mail|text|message|pay|thank|meet|"
    r"contact|notify|inform|warn|help|hire|fire|promote|sue|evict|owe|visit|marry|"
    r"divorce|congratulate|convince|persuade|answer|ping|interview|pick up|let|told|"
    r"(?:write|wrote|writing|note|letter|e-?mail|reply|talk|speak|spoke|answer|message|"
    r"say|said|invoice|belong) (?:to|from|with))"
    r"(?:s|d|ed|ing)?[ \t]{1,2}"
    rf"{_UNKNOWN}(?!\w|\.\w|[/@_=(-])",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"(?<![\w.@/])(?:let|gave|give|send|sent|lend|lent|show|showed|told|paid|met|saw|see|"
    r"forgive|mention|quote|report|blame|cc|bcc|above|below|beside|against|than|that|why|"
    r"did|does|has|is|was|when|if|because|to|from|by|with|for|of|and|or|about|"
    r"grep(?: -\w+)*)[ \t]{1,2}"
    rf"{_UNKNOWN}(?!\w|\.\w|[/@_=(-])",
    re.IGNORECASE,
)
_DOING = re.compile(
    rf"(?<![\w.@/_-]){_UNKNOWN}(?:['\u2019]s)?[ \t]{{1,2}}(?:has|had|wants|wanted|"
    r"needs|says|said|told|asked|asks|called|calls|refuses|refused|lost|owes|owed|paid|pays|"
    r"never|got|left|came|comes|keeps|thinks|lives|moved|works|was|is|did|complained|"
    r"signed)(?!\w)",
    re.IGNORECASE,
)


def asked(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield unknown words where a person is likely to be named.

    Each comes with whether only people are mentioned in this way: "ask okonkwo to pay",
    but not "a letter from okonkwo". The syntax is only a hint, and a model must agree;
    without one, there are too many to suspect.
    """
    for pattern in (_ASKED, _LINKED, _DOING):
        for match in pattern.finditer(text):
            word = match[1]
            small = word[1:] if pattern is _ASKED else word
            if small.islower() and not is_known(word) and not is_term(word):
                yield *match.span(1), pattern is _ASKED


# --- the other languages: the rules of their packs ----------------------------------


def _packed(code: str) -> re.Pattern[str]:
    names = PACKS[code].names
    before = "|".join((*names["introduced"], *names["greeted"])) or "(?!)"
    closed = "|".join(names["closed"]) or "(?!)"
    # With letters of any case: the name itself is read as written.
    return re.compile(
        rf"(?<!\w)(?:(?:{before}):?[ \t]{{1,2}}[\"\u201e\u201c\u00ab]?|"
        # Not consumed, since it may introduce a name itself ("Hallo Frau Maier").
        rf"(?:{closed})[,!.]?[ \t]*\r?\n\s{{0,8}})(?=({_NAME}))"
    )


_PACKED: Final = {code: _packed(code) for code in PACKS}


def people_in(reading: Reading) -> Iterator[Span]:
    """Yield the people introduced in one of a text's other languages; one word each.

    A word that is not written like a name there counts only if a model agrees.
    """
    plain = lowered(reading.text)
    for code in reading.packs:
        pack = PACKS[code]
        for match in _PACKED[code].finditer(plain):
            if match[1] in pack.words or is_known(match[1]):
                continue
            sure = pack.capitals and reading.text[match.start(1)].isupper()
            detector = "name-introduced" if sure else ROLE
            yield _span(detector, match.span(1), 70 if sure else 65)


def _span(detector: str, place: tuple[int, int], score: int) -> Span:
    return Span(
        data_class=PERSON,
        detector=detector,
        start=place[0],
        end=place[1],
        score=score,
    )
