"""Runs all our pattern rules over a reading; most of them never start.

A rule's expression runs only if the text has what every match of it contains: a digit,
a long enough run of digits, a character, a word. All words are searched at once
(``prefilter``), so a rule that does not apply costs next to nothing. A prefilter never
hides a match: it is derived from the expression, or a test derives from the expression
what its matches must contain. The time of the rules that run is linear in the text.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from curtilage.client.detection.detectors.loading import loading
from curtilage.client.detection.detectors.patterns.prefilter import (
    Prefilter,
    Prefilters,
    positions,
    prefilter_of,
)
from curtilage.client.detection.detectors.patterns.rule import ANY_DIGIT, PatternRule
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.spans import MAX_SCORE, Span
from curtilage.policy.decision.findings import Normalization

_SPOKEN_DIGITS = 3  # "the card is one of two" has no number
SHORT = 3  # characters: a shorter word of a prefilter is in too many texts
_DIGIT = re.compile(r"\d")
# As far apart as the widest rule allows digits to be.
_DIGIT_RUN = re.compile(r"\d(?:(?:\W|_){0,8}\d)*")
_MIXED = re.compile(r"\d(?:[^\W\d_]|(?<=[^\W\d_]\d))")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """A compiled rule."""

    rule: PatternRule
    everywhere: bool
    compiled: list[re.Pattern[str]] = field(
        default_factory=list[re.Pattern[str]], repr=False
    )

    @property
    def regex(self) -> re.Pattern[str]:
        """The expression, compiled at first use, since most rules never start."""
        if not self.compiled:
            flags = re.UNICODE if self.rule.cased else re.IGNORECASE
            with loading():
                self.compiled.append(re.compile(self.rule.regex, flags))
        return self.compiled[0]


class _Shown:
    """Properties of a text for quick checks, each computed once and only if needed."""

    __slots__ = ("_longest_run", "_mixed", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._longest_run: int | None = None
        self._mixed: bool | None = None

    def passes(self, rule: PatternRule) -> bool:
        """Return whether a rule could match, apart from its words."""
        if rule.digits and rule.digits > self.longest_run():
            return False
        if rule.mixed and not self.mixed():
            return False
        if not rule.gate or rule.gate == ANY_DIGIT:
            return True
        return any(char in self.text for char in rule.gate)

    def longest_run(self) -> int:
        """Return the number of digits in the longest run."""
        if self._longest_run is None:
            self._longest_run = _longest_run(self.text)
        return self._longest_run

    def mixed(self) -> bool:
        """Return whether a letter is directly next to a digit."""
        if self._mixed is None:
            self._mixed = _MIXED.search(self.text) is not None
        return self._mixed


class PatternSet:
    """One detector for many rules; a finding has the name of its rule."""

    id = "patterns"

    def __init__(self, rules: Iterable[PatternRule]) -> None:
        self._rules = [_compiled(rule) for rule in rules]
        # Two prefilters for each: derived from the expression, and written by its
        # author.
        read = [
            prefilter_of(each.rule.regex, flags=0 if each.rule.cased else re.IGNORECASE)
            for each in self._rules
        ]
        self._prefilters = Prefilters(
            [*read, *(_written(each.rule) for each in self._rules)]
        )

    def preload(self) -> None:
        """Compile every rule now."""
        with loading():
            for each in self._rules:
                _ = each.regex

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each match that its check does not refute."""
        text = reading.text
        both = self._prefilters.passed(text)
        mask = both & (both >> len(self._rules))
        if not mask:
            return
        shown = _Shown(text)
        compact = reading.normalization is Normalization.COMPACT
        for at in positions(mask):
            compiled = self._rules[at]
            if not shown.passes(compiled.rule):
                continue
            if compiled.everywhere or not compact:
                yield from _matches(compiled, text)
            elif compiled.rule.spoken and reading.made:
                yield from (
                    span
                    for span in _matches(compiled, text)
                    if len(reading.made.intersection(range(span.start, span.end)))
                    >= _SPOKEN_DIGITS
                )


def _written(rule: PatternRule) -> Prefilter:
    """Return the prefilter that a rule's author wrote."""
    digits = max(rule.digits, rule.gate == ANY_DIGIT or rule.mixed)
    signs = "" if rule.gate == ANY_DIGIT else rule.gate
    return Prefilter(digits=digits, words=frozenset(rule.words or signs))


def fold(text: str) -> str:
    """Return a text in which a prefilter's word is found as ``re`` finds it.

    Without regard to case, ``re`` equates the dotted and the dotless i, the long s and
    the Kelvin sign with their plain letters.
    """
    if text.isascii():
        return text.lower()
    return text.translate(_PLAIN).lower()


_PLAIN = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}


def _compiled(rule: PatternRule) -> _Compiled:
    short = [word for word in rule.words if len(word) < SHORT or word != fold(word)]
    if short:
        raise ValueError(
            f"rule {rule.id}: a word of its gate is short or no lower case"
        )
    return _Compiled(rule=rule, everywhere=rule.everywhere or rule.required)


def _longest_run(text: str) -> int:
    """Return the number of digits in the longest run; 0 if there is none."""
    if _DIGIT.search(text) is None:
        return 0
    runs = (match[0] for match in _DIGIT_RUN.finditer(text))
    return max(sum(map(str.isdecimal, run)) for run in runs)


def _matches(compiled: _Compiled, text: str) -> Iterator[Span]:
    rule = compiled.rule
    for match in compiled.regex.finditer(text):
        holds = rule.check is not None and rule.check(match[rule.group])
        if rule.required and not holds:
            continue
        yield Span(
            data_class=rule.data_class,
            detector=rule.id,
            start=match.start(rule.group),
            end=match.end(rule.group),
            score=MAX_SCORE if holds else rule.score,
            validated=holds,
        )
