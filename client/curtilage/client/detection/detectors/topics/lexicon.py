"""The lexicon: words that show what a text is about.

A word alone keeps nothing local: a rule combines it with a person (``markers``). The
words are data (``data/lexicon.toml``); patterns of several words are rules in this
module.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import cast

from curtilage.client.detection.detectors.loading import loading
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.phrases import phrases_in
from curtilage.client.detection.packs import PACKS, one_of
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import bag, lowered, read_data, words

_DATA = read_data("curtilage.client.detection.detectors.topics", "lexicon.toml")
_LISTS = cast("Mapping[str, str]", _DATA["words"])
# Classes are looked up by exact word, or by the longest matching stem.
CLASSES = cast("Mapping[str, str]", _DATA["classes"])
# Of several words, in lower case; searched for if one of ``_PHRASE_WORDS`` occurs.
_PHRASES: Mapping[str, str] = {
    "special.union": r"(?:trade|labou?r) unions?|unions? (?:members?|membership|reps?|"
    r"representatives?|dues)|(?:joined|join|in) (?:the|a|our|my) union|shop stewards?",
    "special.politics": r"(?:green|labou?r|conservative|republican|democratic|"
    r"socialist|communist|political|liberal|nationalist|far-right|far-left) "
    r"part(?:y|ies)|"
    r"(?:stand|stood|standing|run|ran|running) for (?:election|office|parliament|"
    r"congress|mayor|president)|voted for|political (?:views?|opinions?|beliefs?)",
    "special.criminal": r"criminal (?:records?|convictions?|charges?|past|history)|"
    r"police record|served time|on bail|sex offenders?|convicted of",
    "special.orientation": r"came out (?:as|to)|come out (?:as|to) (?:my|his|her)|"
    r"same[- ]sex|sexual orientation",
    "special.sex_life": r"sex life|slept with|one[- ]night stand",
    "special.religion": r"converted to|(?:go|goes|went|going) to (?:church|mass|"
    r"confession)|born again|bar mitzvah|bat mitzvah",
    "special.genetic": r"(?:dna|genetic) (?:test|results?|testing)",
    "special.biometric": r"(?:face|iris|retina) scans?|finger prints?",
    "health.condition": r"eating disorders?|self harm(?:ing)?|panic attacks?|"
    r"(?:high|low) blood pressure|nervous breakdown|suicidal thoughts",
    "health.lab": r"blood (?:tests?|work|sugar|count)|(?:test|lab) results?",
}
_PHRASE = re.compile(
    "|".join(
        rf"(?P<p{at}>(?<!\w)(?:{text})(?!\w))"
        for at, text in enumerate(_PHRASES.values())
    )
)
_PHRASE_CLASSES = {f"p{at}": name for at, name in enumerate(_PHRASES)}
_PHRASE_WORDS = words(_LISTS["phrase_words"])
# Words that are as often about something else; a rule may require a higher score.
_COMMON_SCORE = 40
_COMMON_SCORES = dict.fromkeys(words(_LISTS["common"]), _COMMON_SCORE)
_WORD_SCORE = 60

_WORD = re.compile(r"[a-z][a-z0-9]*(?:-[a-z][a-z0-9]*)*")
# Most words of a text do not begin like any listed one.
_HEAD_CHARS = 3


class Lexicon:
    """The words of one language, each with its class; all in lower case."""

    def __init__(self, classes: Mapping[str, str], not_by_stem: frozenset[str]) -> None:
        """Take the words.

        Args:
            classes: by class, words and stems (``*``) of longer words.
            not_by_stem: words that match a stem and have another meaning.
        """
        self._words: dict[str, str] = {}
        stems: dict[str, str] = {}
        for name, text in classes.items():
            for word in text.split():
                if word.endswith("*"):
                    stems.setdefault(word[:-1], name)
                else:
                    self._words.setdefault(word, name)
        self._stems = stems
        self._lengths = sorted({len(stem) for stem in stems}, reverse=True)
        self._not_by_stem = not_by_stem
        self._heads = frozenset(each[:_HEAD_CHARS] for each in (*self._words, *stems))

    def class_of(self, word: str) -> str | None:
        """Return the class of one lower-case word, or None; the longest stem counts."""
        if word in self._words:
            return self._words[word]
        if word in self._not_by_stem:
            return None
        found = (
            self._stems.get(word[:length])
            for length in self._lengths
            if length <= len(word)
        )
        return next((name for name in found if name is not None), None)

    def find(
        self, text: str, pattern: re.Pattern[str]
    ) -> Iterator[tuple[str, re.Match[str]]]:
        """Yield each listed word, whole or cut at a hyphen."""
        for match in pattern.finditer(text):
            word = match[0]
            if word[:_HEAD_CHARS] not in self._heads and "-" not in word:
                continue
            name = self.class_of(word)
            if name is None and "-" in word and word not in self._not_by_stem:
                parts = map(self.class_of, word.split("-"))
                name = next((each for each in parts if each is not None), None)
            if name is not None:
                yield name, match


_ENGLISH = Lexicon(CLASSES, words(_LISTS["not_by_stem"]))
class_of = _ENGLISH.class_of


# --- the other languages: their packs ------------------------------------------------

_ANY_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LEXICONS = {
    code: Lexicon(pack.classes, pack.lists["not_by_stem"])
    for code, pack in PACKS.items()
}


@cache
def _phrases_of(code: str) -> Mapping[str, re.Pattern[str]]:
    # The first text in this language loads them.
    with loading():
        return {name: one_of(each) for name, each in PACKS[code].phrases.items()}


# Words for an organisation's own matters, and requests to keep them internal. The rules
# read lower-case text; every gap is bounded.
_OWN = re.compile(
    r"(?<!\w)(?:our|this|these|the following|attached) (?:[\w'-]+ ){0,2}?(?:internal|"
    r"proprietary|confidential|unpublished|unreleased|private|sensitive|"
    r"in-house|production|trade secret|undisclosed)(?!\w)|"
    r"(?<!\w)our (?:[\w'-]+ ){0,4}?(?:patents?|invention|pricing|revenue|"
    r"financials?|board|customers?|infrastructure|codebase|source code|repositor\w+|"
    r"monorepo|data ?cent(?:er|re)|crm|erp|clinical|procurement|compensation|"
    r"go-to-market|roadmap|chip|fab|leadership)(?!\w)|"
    r"(?<!\w)(?:internal|confidential|proprietary|unreleased) (?:[\w'-]+ ){0,2}?(?:"
    r"memos?|reports?|notes|minutes|runbooks?|documents?|documentation|docs|drafts?|"
    r"briefings?|transcripts?|recordings?|projections|codebase|sdk|postmortems?|"
    r"incidents?|designs?|spreadsheets?|decks?|rfcs?|planning|review)(?!\w)|"
    r"(?<!\w)(?:this|these|our) (?:[\w'-]+ ){0,2}?(?:employee|customer|patient|client|"
    r"applicant|personnel|payroll|crm|hr|health|ehr|member|donor)s?(?:'s?)? "
    r"(?:[\w'-]+ ){0,2}?(?:records?|data|dataset|directory|exports?|lists?|database|"
    r"information|ids?|file|table|survey|roster|sheet)(?!\w)|"
    r"(?<!\w)(?:this|these|our) (?:[\w'-]+ ){0,2}?(?:spreadsheet|dataset|database|list|"
    r"directory|export|records?|file|table|dump|log)s? (?:of|with|containing|holding|"
    r"that) (?:[\w'-]+ ){0,3}?(?:employee|customer|patient|client|applicant|member|"
    r"personal|psychotherapy|medical|biometric|salary|contact)(?!\w)"
)
_OWN_WORDS = words(_LISTS["own_words"])
_AT_HOME = re.compile(
    r"(?<!\w)(?:not|don't|don\u2019t|never|no|without|cannot|can't) (?:[\w'-]+ ){0,3}?"
    r"(?:send|sent|sending|leave|leaving|share|shared|sharing|upload\w*|transfer\w*|"
    r"external|cloud|third.part\w+)(?: [\w'-]+){0,5}? ?(?:cloud|externally|external|"
    r"outside|premises|third.part\w+|internet|services?|apis?|jurisdiction|"
    r"data ?cent(?:er|re)|company|network|transfer)(?!\w)|"
    r"(?<!\w)(?:process|processed|keep|kept|handle|handled|stay|stays|remain|remains|"
    r"run|restricted|analysis|handling)(?: [\w'-]+){0,6}? (?:on[- ]prem(?:ises)?|"
    r"locally|in[- ]house|our jurisdiction|secure enclave|sovereign \w+|"
    r"our \w+ operations|our local|data residency|local(?:ly)? only)(?!\w)|"
    r"(?<!\w)(?:must|may|should|can) not leave(?!\w)|cross-border transfer"
)
_AT_HOME_WORDS = words(_LISTS["at_home_words"])
_CONFIDENTIAL = "org.confidential"


class LexiconDetector:
    """Finds words about health, special categories, finance, law and work."""

    id = "lexicon"

    def find(self, reading: Reading) -> Iterable[Span]:
        """Yield each listed word, whole or cut at a hyphen, and internal matters."""
        text = lowered(reading.text)
        for code in reading.packs:
            yield from self.in_pack(text, code)
        if reading.english:
            for span in self._in_english(text):
                if reading.in_english(span.start, span.end):
                    yield span

    def _in_english(self, text: str) -> Iterable[Span]:
        here = bag(text)
        yield from self._confidential(text, here)
        yield from self._phrases(text, here)
        for data_class, phrase in phrases_in(text, here):
            yield self._span(data_class, phrase, _WORD_SCORE)
        for name, match in _ENGLISH.find(text, _WORD):
            yield self._span(name, match, _COMMON_SCORES.get(match[0], _WORD_SCORE))

    def in_pack(self, text: str, code: str) -> Iterable[Span]:
        """Yield each listed word and phrase of a language with a pack.

        Args:
            text: in lower case.
            code: of the language.
        """
        common = PACKS[code].lists["common"]
        for name, match in _LEXICONS[code].find(text, _ANY_WORD):
            score = _COMMON_SCORE if match[0] in common else _WORD_SCORE
            yield self._span(name, match, score)
        for name, pattern in _phrases_of(code).items():
            for match in pattern.finditer(text):
                yield self._span(name, match, _WORD_SCORE)

    def _phrases(self, text: str, here: frozenset[str]) -> Iterable[Span]:
        if _PHRASE_WORDS.isdisjoint(here):
            return
        for match in _PHRASE.finditer(text):
            yield self._span(_PHRASE_CLASSES[match.lastgroup or ""], match, _WORD_SCORE)

    def _confidential(self, text: str, here: frozenset[str]) -> Iterable[Span]:
        for gate, pattern in ((_OWN_WORDS, _OWN), (_AT_HOME_WORDS, _AT_HOME)):
            if not gate.isdisjoint(here):
                for match in pattern.finditer(text):
                    yield self._span(_CONFIDENTIAL, match, _WORD_SCORE)

    def _span(self, name: str, match: re.Match[str], score: int) -> Span:
        return Span(
            data_class=name,
            detector=self.id,
            start=match.start(),
            end=match.end(),
            score=score,
        )
