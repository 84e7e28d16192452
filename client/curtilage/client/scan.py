"""Run detectors over all readings of texts, whatever a detector does.

Knows this project's own detectors and how any detector is run: one that
raises, or answers nonsense, is a finding of its own, ``uncertain.error``.
Refuses to know where a text goes, and never repeats one: no message and no
finding holds a word of it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from curtilage.client import recognizers
from curtilage.client.credentials import HEX_TOKEN, OPAQUE_TOKEN, SECRETS
from curtilage.client.findings import Span, checked, merge, whole
from curtilage.client.language import LanguageDetector, ObfuscationDetector
from curtilage.client.lexicon import LexiconDetector, PersonMarkerDetector
from curtilage.client.names import NameDetector
from curtilage.client.pattern_rule import PatternRule
from curtilage.client.views import Reading, hidden_text, readings
from curtilage.policy.findings import View

RUN_DETECTOR = "number-run"
_MIN_RUN_DIGITS = 7
_HIGH_ENTROPY = 3.6  # bits for each character; English words stay below 3.5
_HEX_ENTROPY = 3.0
_UNDECODABLE = re.compile("[\ud800-\udfff\x00]")
EVERY_VIEW = frozenset(View)
_AS_WRITTEN = frozenset({View.RAW})
_NOT_COMPACT = EVERY_VIEW - {View.COMPACT}


class Detector(Protocol):
    """Something that looks at one reading of one text."""

    @property
    def id(self) -> str:
        """A fixed name: letters, digits, dot, dash, underscore."""
        ...

    def find(self, reading: Reading) -> Iterable[Span]:
        """Return what was found; offsets into the reading's text."""
        ...


class PatternDetector:
    """Run one rule of ours; the time it takes grows with the text only."""

    def __init__(self, rule: PatternRule) -> None:
        flags = re.UNICODE if rule.cased else re.IGNORECASE
        self._rule = rule
        self._regex = re.compile(rule.regex, flags)
        self._needs_digit = rule.gate == "0"

    @property
    def id(self) -> str:
        """The rule's name."""
        return self._rule.id

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each match that its check does not refute."""
        text, rule = reading.text, self._rule
        if not self._passes_gate(text):
            return
        for match in self._regex.finditer(text):
            holds = rule.check is not None and rule.check(match[rule.group])
            if rule.required and not holds:
                continue
            yield Span(
                data_class=rule.data_class,
                detector=rule.id,
                start=match.start(rule.group),
                end=match.end(rule.group),
                score=100 if holds else rule.score,
                validated=holds,
            )

    def _passes_gate(self, text: str) -> bool:
        gate = self._rule.gate
        if self._needs_digit:
            return _DIGIT.search(text) is not None
        return not gate or any(char in text for char in gate)


_DIGIT = re.compile(r"\d")


class NumberRunDetector:
    """Find seven digits and more that nothing else may have recognised.

    A run in the compact view counts only where the view made a digit of it:
    joining lines would otherwise turn every table into a number.
    """

    id = RUN_DETECTOR
    _run = re.compile(recognizers.NUMBER_RUN)
    _harmless = re.compile(recognizers.HARMLESS_RUN)
    _label = re.compile(recognizers.SSN_LABEL, re.IGNORECASE)

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each run, but no grouped amount and no span of years."""
        for match in self._run.finditer(reading.text):
            start, end = match.span()
            if reading.view is View.COMPACT and reading.made.isdisjoint(
                range(start, end)
            ):
                continue
            if self._is_harmless(reading.text, match):
                continue
            yield Span(
                data_class="uncertain.number_run",
                detector=self.id,
                start=start,
                end=end,
                score=100,
            )

    def _is_harmless(self, text: str, match: re.Match[str]) -> bool:
        """Tell whether a run is an amount, and nothing near it says otherwise."""
        if not self._harmless.fullmatch(match[0]):
            return False
        start = max(match.start() - recognizers.SSN_REACH, 0)
        return not self._label.search(text, start, match.end() + recognizers.SSN_REACH)


class InvisibleDetector:
    """Find characters that show nothing, in a number that can carry a text.

    One may stray into a text; a few belong to emoji, one after each picture.
    """

    id = "invisible"

    def find(self, reading: Reading) -> list[Span]:
        """Return one span from the first to the last, if they are enough."""
        if reading.text.isascii():
            return []
        found = [match for match in _INVISIBLE.finditer(reading.text) if match[1]]
        if len(found) < _MIN_INVISIBLE:
            return []
        first, last = found[0].start(1), found[-1].end(1)
        return [
            Span(
                data_class="uncertain.obfuscation",
                detector=self.id,
                start=first,
                end=last,
                score=100,
            )
        ]


_MIN_INVISIBLE = 4
_PICTURE = "[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]\ufe0f?"
# An emoji is passed over as a whole; what is left in the group stands alone.
_INVISIBLE = re.compile(
    f"{_PICTURE}(?:\u200d{_PICTURE})*|[0-9#*]\ufe0f\u20e3|"
    "([\ufe00-\ufe0f\U000e0100-\U000e01ef\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\U000e0000-\U000e007f])"
)


class OpaqueDetector:
    """Find tokens that look random, and encodings that hide text."""

    id = "opaque"
    _token = re.compile(OPAQUE_TOKEN)
    _hex = re.compile(HEX_TOKEN, re.IGNORECASE)

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield random tokens as secrets, hidden text as obfuscation."""
        for match in self._hex.finditer(reading.text):
            if entropy(match[0].lower()) >= _HEX_ENTROPY:
                yield self._span("secret.high_entropy", match)
        for match in self._token.finditer(reading.text):
            if hidden_text(match[0]) is not None:
                yield self._span("uncertain.obfuscation", match)
            elif _is_random(match[0]):
                yield self._span("uncertain.opaque_blob", match)

    def _span(self, name: str, match: re.Match[str]) -> Span:
        return Span(
            data_class=name,
            detector=self.id,
            start=match.start(),
            end=match.end(),
            score=70,
        )


def entropy(text: str) -> float:
    """Return the Shannon entropy of a text's characters, in bits for each."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


def _is_random(token: str) -> bool:
    """Tell whether a token mixes letters and digits as no word or path does."""
    parts = re.split(r"[/_\-+]", token)
    longest = max(parts, key=len)
    kinds = sum(
        any(test(char) for char in longest)
        for test in (str.isdigit, str.islower, str.isupper)
    )
    return len(longest) >= 20 and kinds == 3 and entropy(longest) >= _HIGH_ENTROPY  # noqa: PLR2004 - shape of a token


class UndecodableDetector:
    """Find characters that are no text: lone surrogates, NUL."""

    id = "undecodable"

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each of them."""
        for match in _UNDECODABLE.finditer(reading.text):
            yield Span(
                data_class="uncertain.undecodable",
                detector=self.id,
                start=match.start(),
                end=match.end(),
                score=100,
            )


Equipment = tuple[tuple[Detector, frozenset[View]], ...]


def own_equipment() -> Equipment:
    """Return this project's own detectors, each with the views it reads."""
    patterns = [
        (PatternDetector(rule), EVERY_VIEW if _is_checked(rule) else _NOT_COMPACT)
        for rule in (*recognizers.PATTERNS, *SECRETS)
    ]
    return (
        (UndecodableDetector(), _AS_WRITTEN),
        (ObfuscationDetector(), _AS_WRITTEN),
        (InvisibleDetector(), _AS_WRITTEN),
        (LanguageDetector(), _NOT_COMPACT - {View.NFKC, View.DECODED}),
        (NumberRunDetector(), EVERY_VIEW),
        *patterns,
        (OpaqueDetector(), _AS_WRITTEN),
        (LexiconDetector(), _NOT_COMPACT),
        (PersonMarkerDetector(), _AS_WRITTEN),
        (NameDetector(), _AS_WRITTEN),
    )


def _is_checked(rule: PatternRule) -> bool:
    spelled = ("identifier.direct.email", "secret.password")
    return rule.required or rule.data_class in spelled


def scan(texts: Sequence[str], equipment: Equipment) -> list[tuple[Span, ...]]:
    """Return what all detectors find in each text of one conversation.

    Special words about nobody are a topic, not a person's data.
    """
    found = [merge(_scan_one(text, equipment)) for text in texts]
    if any(_is_personal(span) for spans in found for span in spans):
        return found
    return [tuple(map(_as_topic, spans)) for spans in found]


def _is_personal(span: Span) -> bool:
    return span.data_class == "marker.first_person" or span.data_class.startswith(
        ("identifier.direct.", "uncertain.")
    )


def _as_topic(span: Span) -> Span:
    if span.detector != LexiconDetector.id or not span.data_class.startswith(
        "special."
    ):
        return span
    return Span(
        data_class="topic.special",
        detector=span.detector,
        start=span.start,
        end=span.end,
        score=min(span.score, 40),
        view=span.view,
    )


def _scan_one(text: str, equipment: Equipment) -> Iterator[Span]:
    try:
        read = tuple(readings(text))
    except Exception:  # noqa: BLE001 - a text that cannot be read is uncertain
        yield whole("uncertain.error", "readings", len(text))
        read = (Reading(view=View.RAW, text=text),)
    digits = _digit_words(text)
    if any(reading.cut for reading in read):
        yield whole("uncertain.oversize", "readings", len(text))
    for reading in read:
        same = reading.view is not View.RAW and _digit_words(reading.text) == digits
        for detector, views in equipment:
            if reading.view in views and not (same and is_numeric(detector)):
                yield from run(detector, reading)


def _digit_words(text: str) -> list[str]:
    return [word for word in text.split() if _DIGIT.search(word)]


def is_numeric(detector: Detector) -> bool:
    """Tell whether a detector looks at numbers only, and takes its time.

    Such a one need not see a reading whose numbers are those of the raw text.
    """
    return getattr(detector, "numeric", False) is True


def run(detector: Detector, reading: Reading) -> Iterator[Span]:
    """Yield what one detector finds; a failure of any kind is a finding.

    The exception is dropped unread: its message may hold the text.
    """
    try:
        spans = checked(detector.find(reading), length=len(reading.text))
    except TimeoutError:
        spans = (whole("uncertain.timeout", "detectors", len(reading.text)),)
    except Exception:  # noqa: BLE001 - whatever went wrong, the text is uncertain
        spans = (whole("uncertain.error", "detectors", len(reading.text)),)
    for span in spans:
        yield span if reading.view is View.RAW else _in_view(span, reading.view)


def _in_view(span: Span, view: View) -> Span:
    return Span(
        data_class=span.data_class,
        detector=span.detector,
        start=span.start,
        end=span.end,
        score=span.score,
        validated=span.validated,
        view=view,
    )
