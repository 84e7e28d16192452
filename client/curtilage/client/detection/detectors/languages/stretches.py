"""The language of each part of a text in Latin letters.

A text is split into sentences, and those at quotes, colons, brackets and signs of code,
since a quotation may be in another language than its context. A part is in a covered
language if its words are; the identifier judges the remaining parts. Code, tables,
addresses and names have too few words to judge, so they are in no language. The time is
linear in the text: no word is examined more than four times.
"""

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from curtilage.client.detection.detectors.languages.identifier import load_identifier
from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from curtilage.client.detection.packs import ENGLISH, PACKS
from curtilage.client.detection.wordlists import GIVEN

# Not from within a number: in a long one, each digit would be followed to its end.
_WORD = re.compile(r"(?<!\d)\d*[^\W\d_][^\W_]*(?:['\u2019\-][^\W\d_]+)*")
# Digits for letters, as in Arabic chat spelling: 3andi, ma9drtch.
_CHAT_WORD = re.compile(
    r"(?=.{4})[2356789]?[a-z]+(?:[2356789][a-z]+)+|[2356789][a-z]{3,}"
)
# Stems of the WHO's international names for substances that are not English words.
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
# Next to one of these, a word is a piece of code, an address or a path.
_CODE_BEFORE: Final = frozenset("_$@#\\%&</-")
_CODE_AFTER: Final = frozenset("_(=\\@/")


UNDETERMINED: Final = "und"  # ISO 639-2: undetermined
_EVERY: Final = frozenset(VOCABULARIES)
_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a text, and the languages that it may be in.

    Attributes:
        start: first character.
        end: one past the last character.
        languages: ISO 639-1 codes. Either covered ones, several if a few words belong
            to each of them; or one that is not covered.
    """

    start: int
    end: int
    languages: frozenset[str]


class _Word(NamedTuple):
    """A word with the languages that know it and exclude it; both empty for code."""

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
        """Whether it may be a name, which can occur in any language."""
        return not self.excluded and (
            self.capital
            or self.text in GIVEN
            or _MEDICINE.search(self.text) is not None
        )

    @property
    def long(self) -> bool:
        return self.end - self.start > 1


# --- thresholds: tuned on the developers' halves of the data sets ---------------------
# All except SHARE are in the identifier's unit, the natural log of a likelihood.

SHARE: Final = 0.75  # of the words; known ones then prove a language alone
GRACE: Final = 4.0  # how far a language with a vocabulary may be behind the best,
GRACE_OF_OTHERS: Final = 2.0  # the same for a language other than English,
KNOWN: Final = 1.0  # more for each word that the language knows,
UNKNOWN: Final = 1.0  # less for each word that it does not know,
CLOSE: Final = 6.0  # covered languages this close to each other are both possible
EXCLUDED: Final = 8.0  # and for each word that indicates another language
# A name or title among English ones fits any language; so do pieces of code.
AMONG_OTHERS: Final = 6.0
IN_CODE: Final = 4.0
TITLE: Final = 10.0
SINGLE_WORD: Final = 14.0
WHOLE_TEXT: Final = 10.0  # for a single word that is the whole text
PAIR: Final = 18.0  # for two unknown words in a row inside a sentence
CLAUSE: Final = 11.0  # for three and more
_LEAST_OTHERS: Final = 3
_TITLE_WORDS: Final = 4
_LEAST_KNOWN: Final = 2
_BRIDGE: Final = 2


def stretches(text: str) -> Iterator[Stretch]:
    """Yield the parts of a text with the languages that they may be in, if clear.

    A clause in another language is yielded before the sentence that contains it.

    Args:
        text: any text; words in other letters than Latin ones are judged wrongly.

    Raises:
        Exception: of any kind, if the identifier cannot be loaded.
    """
    matches = list(_WORD.finditer(text))
    plain = [match[0].lower() for match in matches]
    whose = {word: _KEPT.get(word) or _whose(word) for word in set(plain)}
    # First, and enough for most texts: one language knows every word. If two do, the
    # few words belong to both, and it is impossible to determine which was meant.
    shared = _EVERY.intersection(*(known for known, _ in whose.values()))
    if matches and shared:
        yield Stretch(start=0, end=len(text), languages=shared)
        return
    known = sum(len(word) > 1 and bool(whose[word][0]) for word in plain)
    for first, last in _sentences(text, matches):
        shared = _EVERY.intersection(*(whose[word][0] for word in plain[first:last]))
        if shared:
            start, end = matches[first].start(), matches[last - 1].end()
            yield Stretch(start=start, end=end, languages=shared)
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
    """Yield the parts of a sentence, or all of it if it is in another language."""
    parts = list(_parts(text, sentence))
    uncovered = False
    for part in parts:
        for found in _judged(part, known):
            uncovered = uncovered or found.languages.isdisjoint(VOCABULARIES)
            yield found
    # Separators between every two words leave parts that are too short to judge.
    code = sum(word.code for word in sentence) + len(parts)
    if not uncovered and len(parts) > 1 and 2 * code <= len(sentence):
        plain = [word for word in sentence if not word.code]
        languages = _languages(plain, known, in_code=False)
        if languages is not None and languages.isdisjoint(VOCABULARIES):
            yield _stretch(plain, languages)


def _whose(word: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the languages that know a word in lower case, and those it excludes."""
    if len(word) == 1:
        return _EVERY, _NONE
    if _DIGIT.search(word):  # or code, for which the language does not matter
        return _NONE, _EVERY
    excluded = {code for code, each in VOCABULARIES.items() if word in each.excludes}
    known = {code for code, each in VOCABULARIES.items() if each.knows(word)}
    if excluded and not known:  # "mujhe" excludes all of them
        excluded = set(VOCABULARIES)
    found = frozenset(known - excluded), frozenset(excluded)
    if word in _LISTED:
        _KEPT[word] = found
    return found


# Frequent words are cached. Listed ones only: the cache must not keep words that a
# user wrote.
_LISTED: Final = _NONE.union(*(each.listed for each in VOCABULARIES.values()))
_KEPT: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {}


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
    """Yield the parts between quotes, colons, brackets and signs of code."""
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
    """Yield the language of a part, and clauses in it that are in another one."""
    plain = [word for word in part if not word.code]
    languages = _languages(plain, known, in_code=2 * len(plain) <= len(part))
    if languages is None:
        return
    if not languages.isdisjoint(VOCABULARIES):
        for clause in _clauses(plain, languages):
            unknown = [word for word in clause if languages.isdisjoint(word.known)]
            shared = _EVERY.intersection(*(word.known for word in clause))
            if shared:  # "my Sohn hat Krebs"
                yield _stretch(clause, shared)
                continue
            allowance = CLAUSE if len(unknown) > _LEAST_KNOWN else PAIR
            # They were chosen for being unknown, so this is no evidence against them.
            allowance += UNKNOWN * len(unknown)
            inside = _identified(clause, unknown, allowance, around=languages)
            if inside.isdisjoint(languages):
                yield _stretch(clause, inside)
    yield _stretch(plain, languages)


def _languages(
    words: Sequence[_Word], known: int, *, in_code: bool
) -> frozenset[str] | None:
    """Return the languages that some words may be in; None if they are too few.

    Args:
        words: of one part, in order, without code.
        known: how many words of covered languages the whole text has.
        in_code: whether they are among code.
    """
    judged = _without_names(words)
    long = [word for word in judged if word.long]
    if not long:
        return None
    alone = known + len(words) == 1
    if len(long) == 1 and long[0].capital and not alone and known > 1:
        return None  # a name, or the beginning of nothing
    sure = _knowing(long)
    if len(sure) == 1:
        return sure
    if sure:
        return _identified(judged, long, GRACE, among=sure)
    if len(long) == 1:
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


def _knowing(long: Sequence[_Word]) -> frozenset[str]:
    """Return the languages that know enough of some words; empty if none does."""
    # Names occur in any language: "mi prima Uxue se casa".
    telling = [word for word in long if word.known or not word.name]
    knows = {code: sum(code in each.known for each in telling) for code in VOCABULARIES}
    most = max(knows.values())
    sure = {code for code, count in knows.items() if count == most}
    if sure != {ENGLISH} and most > _LEAST_OTHERS:
        # Their lists are shorter, and related languages share most words.
        sure = {code for code, count in knows.items() if count >= most - 1}
    enough = SHARE * len(long if sure == {ENGLISH} else telling)
    if not telling or most < enough:
        return _NONE
    return frozenset(sure.difference(*(word.excluded for word in long)))


def _without_names(words: Sequence[_Word]) -> Sequence[_Word]:
    """Return the words without capitals, except the first, if enough remain."""
    kept = [word for at, word in enumerate(words) if not (at and word.name)]
    long = [word for word in kept if word.long]
    enough = _LEAST_OTHERS if any(not word.known for word in long) else _LEAST_KNOWN
    return kept if len(long) >= enough else words


def _identified(
    words: Sequence[_Word],
    long: Sequence[_Word],
    allowance: float,
    *,
    among: AbstractSet[str] = _EVERY,
    around: AbstractSet[str] = _NONE,
) -> frozenset[str]:
    """Return the covered languages that are close enough to the best, or the best.

    Args:
        words: the words that the identifier gets.
        long: those of them that count for or against a language.
        allowance: how far English may be behind any other language.
        among: the covered languages that are possible.
        around: the languages of the sentence that contains them, if any.
    """
    scores = load_identifier().scores(" ".join(word.text for word in words))
    others = [code for code in scores if code not in VOCABULARIES]
    best = max(others, key=scores.__getitem__)
    fits: dict[str, float] = {}
    near: set[str] = set()
    for code in among:
        excluded = sum(code in word.excluded for word in long)
        known = sum(code in word.known for word in long)
        unknown = len(long) - known - excluded
        evidence = KNOWN * known - UNKNOWN * unknown
        fits[code] = scores[code] + evidence - EXCLUDED * excluded
        # Only English and the languages of the sentence around get the full allowance.
        full = code == ENGLISH or (code in around and not excluded)
        room = allowance if full else min(allowance, GRACE_OF_OTHERS)
        # To the identifier, rare Spanish words look Galician: frequent words decide.
        certain = not excluded and (code in around or known > unknown)
        related = PACKS[code].near if certain and code in PACKS else _NONE
        other = max(scores[each] for each in others if each not in related)
        if scores[code] + max(room + evidence, 0) - EXCLUDED * excluded >= other:
            near.add(code)
    if not near:
        nearest = max(fits, key=fits.__getitem__)
        return frozenset({best if scores[best] > scores[nearest] else UNDETERMINED})
    least = max(fits[code] for code in near) - CLOSE
    # English is assumed wherever it is possible; it may contain foreign words.
    return frozenset(
        code
        for code in near
        if fits[code] >= least - (allowance if code == ENGLISH else 0)
    )


def _clauses(
    words: Sequence[_Word], languages: frozenset[str]
) -> Iterator[Sequence[_Word]]:
    """Yield runs of two or more words that no language of a part knows.

    Two known words, or names, may be in between: ``ik ben her zwanger``.
    """
    run: list[_Word] = []
    last = 0  # the run's length up to its last unknown word
    count = 0  # how many of those are unknown
    for word in words:
        if languages.isdisjoint(word.known) and (word.known or not word.name):
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


def _stretch(words: Sequence[_Word], languages: frozenset[str]) -> Stretch:
    return Stretch(start=words[0].start, end=words[-1].end, languages=languages)
