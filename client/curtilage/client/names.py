"""Find what may be a person's name, without a model.

Three rules, from sure to unsure: a title or an introduction before a word is a
person; a given name is perhaps one; and so is every capital inside a sentence
that no list calls harmless. The unsure ones are ``uncertain.name``: a span
nobody should replace, and a query that stays home.
"""

import re
from collections.abc import Iterator

from curtilage.client import given_names, vocabulary
from curtilage.client.findings import Span
from curtilage.client.views import Reading
from curtilage.client.vocabulary import words

_PERSON = "identifier.direct.person"
_UNSURE = "uncertain.name"

_WORD = re.compile(r"[^\W\d_][\w]*(?:['\u2019\-](?=[^\W\d_])[\w]+)*")
_SENTENCE_END = frozenset(".!?:;\n\r•*#>|\"\u201c\u201d([{=\t\u2013\u2014…'\u2018`/")
_CODE_BEFORE = frozenset("._$@#\\<&%=-/")
_CODE_AFTER = frozenset("_(=<[\\")
_PREFIXED = re.compile(
    r"(?:Mc|Mac|O['\u2019]|D['\u2019]|De|Di|Da|La|Le|Van|Von|Fitz|"
    r"Ben|Al-|El-)[A-Z][a-zà-ÿ]+"
)
_ACRONYM_CHARS = 5
_ENDING_CHARS = 7
_SHOUTED_CHARS = 20
_LISTED, _UNLISTED, _UNLIKELY = 70, 60, 45
_LOWER_CASE_NAMES = given_names.GIVEN - given_names.NOT_IN_LOWER_CASE
_SHOUTED_SHARE = 0.6
_MIN_NAME_CHARS = 2
_ENDINGS = tuple(
    words("""
tion tions sion sions ment ments ness ity ities ism isms ics logy logical graphy
graphic metry sis ware hood ship ships ology ological ically izing ising ized ised
ization able ible ably ibly less ously ously fully ative atively
""")
)
_INITIAL_ENDINGS = tuple(
    words("""
ing ings ly ous ive ed ies ize ise ful ance ence ances ences ture tures ical ial
ally ers ors ium
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
_PRODUCTS = words(
    "word excel office access teams paint windows outlook sql project visio degree"
)
_TITLE = re.compile(
    r"(?<!\w)(?:mr|mrs|ms|mx|dr|prof|rev|sgt|capt|lt|"
    r"hon)\.?[ \t]{1,2}(?!\w+ ?[=(])([^\W\d_][\w'\u2019\-]{1,30})|"
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
    r"[ \t\n]{0,2}[\"'\u201c]?([^\W\d_][\w'\u2019\-]{1,30})",
    re.IGNORECASE,
)


class NameDetector:
    """Find names and what may be names, in raw text."""

    id = "name"

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield people and suspects; one word is one span."""
        text = reading.text
        yield from _titled(text)
        yield from _introduced(text)
        words = list(_WORD.finditer(text))
        shouted = _is_shouted(text)
        for index, match in enumerate(words):
            score = _suspicion(
                text, match, words[index - 1] if index else None, shouted=shouted
            )
            if score:
                yield _span(
                    _UNSURE,
                    f"name-{'capital' if match[0][0].isupper() else 'given'}",
                    match.span(),
                    score,
                )


def _titled(text: str) -> Iterator[Span]:
    for match in _TITLE.finditer(text):
        group = 1 if match[1] else 2
        word = match[group]
        if word[0].isupper() and not _is_product(word):
            yield _span(_PERSON, "name-title", match.span(group), 80)
        elif word.islower() and not _is_known(word):
            yield _span(_PERSON, "name-title", match.span(group), 65)


def _introduced(text: str) -> Iterator[Span]:
    for match in _INTRODUCED.finditer(text):
        word = match[1]
        plain = _bare(word)
        if plain in given_names.GIVEN or not _is_known(word):
            yield _span(_PERSON, "name-introduced", match.span(1), 70)


def _is_product(word: str) -> bool:
    """Tell whether "MS Word" and its kind is meant, not a person."""
    return _bare(word) in _PRODUCTS


def _suspicion(
    text: str, match: re.Match[str], before: re.Match[str] | None, *, shouted: bool
) -> int:
    """Return how much a word looks like a name, 0 to 100."""
    word = match[0]
    plain = _bare(word)
    if not word[0].isupper():
        return _lower_case_suspicion(plain)
    if plain in given_names.GIVEN:
        return _LISTED
    if len(plain) < _MIN_NAME_CHARS or _is_code(text, match):
        return 0
    if word.isupper():
        return _capitals_suspicion(word, shouted=shouted)
    return _capital_suspicion(text, match, before)


def _capital_suspicion(
    text: str, match: re.Match[str], before: re.Match[str] | None
) -> int:
    """Judge a word with a capital that is not all capitals."""
    word = match[0]
    plain = _bare(word)
    if not re.sub(r"[\u2019'\-]", "", word[1:]).islower():
        return _UNLISTED if _PREFIXED.fullmatch(word) else _joined_suspicion(word)
    if _begins_sentence(text, match):
        return 0 if _is_harmless_first(plain) else _UNLIKELY
    if plain in given_names.AMBIGUOUS and not _in_heading(before):
        return _UNLIKELY
    return 0 if _is_known(word) or plain.endswith(_ENDINGS) else _UNLISTED


def _in_heading(before: re.Match[str] | None) -> bool:
    """Tell whether the word before has a capital too and is no name."""
    return (
        before is not None
        and before[0][0].isupper()
        and before[0][1:].islower()
        and _bare(before[0]) in vocabulary.COMMON
    )


def _lower_case_suspicion(plain: str) -> int:
    given = plain in _LOWER_CASE_NAMES
    return _UNLIKELY if given and not _is_listed(plain) else 0


def _capitals_suspicion(word: str, *, shouted: bool) -> int:
    if len(word) <= _ACRONYM_CHARS and not shouted:
        return 0
    return 0 if _is_known(word) or _bare(word).endswith(_ENDINGS) else _UNLIKELY


def _joined_suspicion(word: str) -> int:
    """Judge ``Anne-Marie``, ``Smith-Jones``, ``JavaScript`` and ``McKay``."""
    parts = re.split(r"['\u2019\-]", word)
    if len(parts) == 1:
        return 0  # CamelCase: a product or an identifier of a program
    unknown = [
        part
        for part in parts
        if part[0].isupper() and part[1:].islower() and not _is_known(part)
    ]
    return _UNLISTED if unknown else 0


def _is_code(text: str, match: re.Match[str]) -> bool:
    """Tell whether a word is glued to marks that programs are made of."""
    start, end = match.span()
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
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
    # "1) Name" and "- Name" begin one too.
    return text[at] in ")-]" and (at == 0 or not text[at - 1].isalpha())


def _is_abbreviated(text: str, at: int) -> bool:
    """Tell whether the full stop ends an initial: ``J. Doe``."""
    return (
        at >= 1
        and text[at] == "."
        and text[at - 1].isupper()
        and (at == 1 or not text[at - 2].isalnum())
        and text[at - 1] != "I"
    )


def _is_harmless_first(plain: str) -> bool:
    if plain in given_names.AMBIGUOUS or _is_known(plain):
        return True
    return len(plain) >= _ENDING_CHARS and plain.endswith(
        (*_ENDINGS, *_INITIAL_ENDINGS)
    )


def _is_shouted(text: str) -> bool:
    """Tell whether a text is written in capitals, so that they mean nothing."""
    letters = sum(char.isalpha() for char in text)
    capitals = sum(char.isupper() for char in text)
    return letters >= _SHOUTED_CHARS and capitals > _SHOUTED_SHARE * letters


def _bare(word: str) -> str:
    plain = word.lower().replace("\u2019", "'")
    return plain.removesuffix("'s").removesuffix("'")


def _is_known(word: str) -> bool:
    """Tell whether a word is a listed one, perhaps inflected, and no given name."""
    plain = _bare(word)
    if plain in given_names.GIVEN:
        return False
    if _is_listed(plain):
        return True
    if "-" in plain or "'" in plain:
        return all(
            _is_listed(part) or len(part) < _MIN_NAME_CHARS
            for part in re.split(r"['\-]", plain)
        )
    bases = (
        plain.removesuffix(end) + new
        for end, new in _INFLECTIONS
        if plain.endswith(end)
    )
    return any(len(base) > _MIN_NAME_CHARS and _is_listed(base) for base in bases)


def _is_listed(plain: str) -> bool:
    return (
        plain in vocabulary.COMMON
        or plain in vocabulary.PROPER
        or plain in given_names.AMBIGUOUS
    )


def _span(name: str, detector: str, place: tuple[int, int], score: int) -> Span:
    return Span(
        data_class=name, detector=detector, start=place[0], end=place[1], score=score
    )
