"""Which language each part of a text is in; of Latin letters only.

A text is cut into sentences, and these at quotes, colons, brackets and signs of code:
what is quoted may be in another language than what quotes it. A part whose words a
covered language has is in it; the identifier judges the others. Code, tables, addresses
and names leave too few words to judge, and so are in none. The time grows with the text
only: no word is looked at more than four times.
"""

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from curtilage.client.detection.detectors.languages.identifier import load_identifier
from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from curtilage.client.detection.wordlists import GIVEN

_WORD = re.compile(r"[^\W_]*[^\W\d_][^\W_]*(?:['\u2019\-][^\W\d_]+)*")
# Digits as letters, as Arabic is written on telephones: 3andi, ma9drtch.
_CHAT_WORD = re.compile(
    r"(?=.{4})[2356789]?[a-z]+(?:[2356789][a-z]+)+|[2356789][a-z]{3,}"
)
# The stems of the WHO's international names for substances, where English has no word.
_MEDICINE = re.compile(
    r"(?:xaban|mab|tinib|sartan|statin|olol|azole|mycin|micin|cillin|oxacin|cycline|"
    r"prazole|dipine|gliptin|gliflozin|glutide|azepam|azolam|triptan|setron|profen|"
    r"parin|ciclovir|navir|buvir|dronate|thiazide)$"
)
_HUMP = re.compile(r"[a-z][A-Z]")
_DIGIT = re.compile(r"\d")
_SENTENCE_END = re.compile(r"[.!?;\u2026](?=[\s\"'\u201d\u2019)\]]|$)|\n\s*\n")
_CUT = re.compile(
    r"[,:;!?\"\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a()\[\]{}<>=|\\\n\t*#`~^+@$_&"
    r"\u2013\u2014]|[.\u2026](?!\w)|['\u2018\u2019](?=\s)|(?<=\s)['\u2018\u2019]|\s-+\s"
)
_JOINTS: Final = frozenset((" ", "/", "'", "\u2019"))
# Beside one of these a word is a piece of code, an address or a path.
_CODE_BEFORE: Final = frozenset("_$@#\\%&</-")
_CODE_AFTER: Final = frozenset("_(=\\@/")


UNDETERMINED: Final = "und"  # ISO 639-2: undetermined
_EVERY: Final = frozenset(VOCABULARIES)
_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a text, and the language that it is in.

    Attributes:
        start: first character.
        end: one past the last character.
        language: ISO 639-1, as the identifier calls it.
    """

    start: int
    end: int
    language: str


class _Word(NamedTuple):
    """A word, whose it is, and whose it cannot be; neither, where it is code."""

    start: int
    end: int
    text: str
    code: bool
    known: frozenset[str]
    excluded: frozenset[str]

    @property
    def capital(self) -> bool:
        return not self.text[0].islower()

    @property
    def name(self) -> bool:
        """Whether it may be a name, of whatever: names are in any language."""
        return not self.excluded and (
            self.capital
            or self.text in GIVEN
            or _MEDICINE.search(self.text) is not None
        )

    @property
    def long(self) -> bool:
        return self.end - self.start > 1


# --- how sure one must be: tuned on the developers' halves of the data sets -----------
# All but SHARE in the identifier's own unit, the natural logarithm of a likelihood.

SHARE: Final = 0.75  # of the words: known ones prove a language without the identifier
GRACE: Final = 4.0  # a language whose words are shipped may lie behind by this much,
KNOWN: Final = 1.0  # more for each word that it knows,
UNKNOWN: Final = 1.0  # less for each word that it does not know,
EXCLUDED: Final = 8.0  # and for each that tells of another one
# A name or a title among English ones fits any language; so do the pieces of code.
AMONG_OTHERS: Final = 6.0
IN_CODE: Final = 4.0
TITLE: Final = 10.0
SINGLE_WORD: Final = 14.0
WHOLE_TEXT: Final = 10.0  # a single word that is all there is
PAIR: Final = 18.0  # two unknown words in a row inside a sentence
CLAUSE: Final = 11.0  # three and more
_LEAST_OTHERS: Final = 3
_TITLE_WORDS: Final = 4
_LEAST_KNOWN: Final = 2
_BRIDGE: Final = 2


def stretches(text: str) -> Iterator[Stretch]:
    """Yield the parts of a text that are in some language, as far as it can be told.

    A clause of another language inside a sentence is yielded before the sentence.

    Args:
        text: any text; words in other letters than Latin ones are judged wrongly.

    Raises:
        Exception: of any kind, where the identifier cannot be loaded.
    """
    matches = list(_WORD.finditer(text))
    plain = [match[0].lower() for match in matches]
    whose = {word: _LISTED.get(word) or _whose(word) for word in set(plain)}
    # First of all, and for most texts last: a language knows every word.
    for code in VOCABULARIES:
        if matches and all(code in known for known, _ in whose.values()):
            yield Stretch(start=0, end=len(text), language=code)
            return
    known = sum(len(word) > 1 and bool(whose[word][0]) for word in plain)
    for first, last in _sentences(text, matches):
        for code in VOCABULARIES:
            if all(code in whose[word][0] for word in plain[first:last]):
                start, end = matches[first].start(), matches[last - 1].end()
                yield Stretch(start=start, end=end, language=code)
                break
        else:
            sentence = [
                _word(text, match, *whose[word])
                for match, word in zip(
                    matches[first:last], plain[first:last], strict=True
                )
            ]
            yield from _judged_sentence(text, sentence, known)


def _judged_sentence(
    text: str, sentence: Sequence[_Word], known: int
) -> Iterator[Stretch]:
    """Yield the parts of a sentence, or the whole where that is in another language."""
    parts = list(_parts(text, sentence))
    uncovered = False
    for part in parts:
        for found in _judged(part, known):
            uncovered = uncovered or found.language not in VOCABULARIES
            yield found
    # Marks between every two words leave parts that are too short to judge.
    code = sum(word.code for word in sentence) + len(parts)
    if not uncovered and len(parts) > 1 and 2 * code <= len(sentence):
        plain = [word for word in sentence if not word.code]
        language = _language(plain, known, in_code=False)
        if language is not None and language not in VOCABULARIES:
            yield _stretch(plain, language)


def _whose(word: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the languages that know a word in lower case, and those it excludes."""
    if len(word) == 1:
        return _EVERY, _NONE
    if _DIGIT.search(word):  # or code, which nobody asks whose it is
        return _NONE, _EVERY
    excluded = {code for code, each in VOCABULARIES.items() if word in each.excludes}
    known = {code for code, each in VOCABULARIES.items() if each.knows(word)}
    return frozenset(known - excluded), frozenset(excluded)


# The words that are looked at most, looked up once.
_LISTED: Final = {
    word: _whose(word) for each in VOCABULARIES.values() for word in each.listed
}


def _end_of(match: re.Match[str]) -> int:
    return match.end()


def _sentences(text: str, words: Sequence[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Yield the first word of each sentence, and one past its last."""
    first = 0
    for match in _SENTENCE_END.finditer(text):
        last = bisect(words, match.end(), lo=first, key=_end_of)
        if last > first:
            yield first, last
        first = last
    if first < len(words):
        yield first, len(words)


def _word(
    text: str, match: re.Match[str], known: frozenset[str], excluded: frozenset[str]
) -> _Word:
    found, start, end = match[0], match.start(), match.end()
    after = text[end : end + 1]
    if (
        text[start - 1 : start] in _CODE_BEFORE
        or after in _CODE_AFTER
        or (after == "." and text[end + 1 : end + 2].isalnum())
        or (text[start - 1 : start] == "." and text[start - 2 : start - 1].isalnum())
        or _HUMP.search(found)
        or (_DIGIT.search(found) and not _CHAT_WORD.fullmatch(found))
    ):
        return _Word(start, end, found, True, _NONE, _NONE)
    return _Word(start, end, found, False, known, excluded)


def _parts(text: str, sentence: Sequence[_Word]) -> Iterator[Sequence[_Word]]:
    """Yield what stands between quotes, colons, brackets and signs of code."""
    first = 0
    for at, (word, after) in enumerate(pairwise(sentence), 1):
        between = text[word.end : after.start]
        if between not in _JOINTS and (
            len(between) == 1 or _CUT.search(text, word.end, after.start)
        ):
            yield sentence[first:at]
            first = at
    yield sentence[first:]


def _judged(part: Sequence[_Word], known: int) -> Iterator[Stretch]:
    """Yield the language of a part, and clauses inside it that are in another one."""
    plain = [word for word in part if not word.code]
    language = _language(plain, known, in_code=2 * len(plain) <= len(part))
    if language is None:
        return
    if language in VOCABULARIES:
        for clause in _clauses(plain, language):
            unknown = [word for word in clause if language not in word.known]
            allowance = CLAUSE if len(unknown) > _LEAST_KNOWN else PAIR
            # Chosen for being unknown, so that this says nothing against them.
            allowance += UNKNOWN * len(unknown)
            inside = _identified(clause, unknown, allowance)
            if inside not in VOCABULARIES:
                yield _stretch(clause, inside)
    yield _stretch(plain, language)


def _language(words: Sequence[_Word], known: int, *, in_code: bool) -> str | None:
    """Return the language of some words together; None where they are too few.

    Args:
        words: of one part, in its order, without code.
        known: how many words of covered languages the whole text has.
        in_code: whether they stand among code.
    """
    judged = _without_names(words)
    long = [word for word in judged if word.long]
    if not long:
        return None
    for code in VOCABULARIES:
        knows = sum(code in word.known for word in long)
        if knows >= SHARE * len(long) and not any(code in w.excluded for w in long):
            return code
    if len(long) == 1:
        alone = known + len(words) == 1
        if long[0].capital and not alone:
            return None  # a name, or the first word of nothing
        return _identified(judged, long, WHOLE_TEXT if alone else SINGLE_WORD)
    allowance = GRACE + IN_CODE * in_code
    if not any(word.excluded for word in long):
        elsewhere = known - sum(bool(word.known) for word in long)
        title = len(words) <= _TITLE_WORDS and all(word.name for word in words)
        allowance += TITLE * title
        if elsewhere >= _LEAST_OTHERS:
            single = sum(not word.known for word in long) == 1
            allowance = SINGLE_WORD if single else allowance + AMONG_OTHERS
    return _identified(judged, long, allowance)


def _without_names(words: Sequence[_Word]) -> Sequence[_Word]:
    """Return the words without capitals, but for the first, if enough are left."""
    kept = [word for at, word in enumerate(words) if not (at and word.name)]
    long = [word for word in kept if word.long]
    enough = _LEAST_OTHERS if any(not word.known for word in long) else _LEAST_KNOWN
    return kept if len(long) >= enough else words


def _identified(words: Sequence[_Word], long: Sequence[_Word], allowance: float) -> str:
    """Return the covered language that is near enough to the best, or the best.

    Args:
        words: what the identifier is shown.
        long: those of them that count for or against a language.
        allowance: how far a covered language may lie behind any other.
    """
    scores = load_identifier().scores(" ".join(word.text for word in words))
    others = [code for code in scores if code not in VOCABULARIES]
    best = max(others, key=scores.__getitem__)
    margins: dict[str, float] = {}
    for code in VOCABULARIES:
        excluded = sum(code in word.excluded for word in long)
        known = sum(code in word.known for word in long)
        unknown = len(long) - known - excluded
        margins[code] = (
            scores[code]
            - scores[best]
            + max(allowance + KNOWN * known - UNKNOWN * unknown, 0)
            - EXCLUDED * excluded
        )
    nearest = max(margins, key=margins.__getitem__)
    if margins[nearest] >= 0:
        return nearest
    return best if scores[best] > scores[nearest] else UNDETERMINED


def _clauses(words: Sequence[_Word], language: str) -> Iterator[Sequence[_Word]]:
    """Yield runs of two words and more that a language does not know.

    Two that it knows, or names, may stand between: ``ik ben her zwanger``.
    """
    run: list[_Word] = []
    last = 0  # how many words of the run there are up to the last unknown one
    count = 0  # of those, how many are unknown
    for word in words:
        if language not in word.known and not word.name:
            run.append(word)
            last, count = len(run), count + 1
        elif run and len(run) - last < _BRIDGE:
            run.append(word)
        else:
            if count > 1:
                yield run[:last]
            run, last, count = [], 0, 0
    if count > 1:
        yield run[:last]


def _stretch(words: Sequence[_Word], language: str) -> Stretch:
    return Stretch(start=words[0].start, end=words[-1].end, language=language)
