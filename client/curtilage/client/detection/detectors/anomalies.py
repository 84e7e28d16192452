"""Detectors for what cannot be judged, and for what no pattern names.

Runs of digits, random tokens and hidden characters identify or hide something, without
showing what it is. Each detector takes time linear in the text.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from curtilage.client.detection.detectors.languages.identifier import (
    load_identifier,
    require_identifier,
)
from curtilage.client.detection.detectors.languages.scripts import (
    WORD,
    is_in_another_script,
    is_mixed,
)
from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from curtilage.client.detection.detectors.patterns import number_rows
from curtilage.client.detection.detectors.patterns.check_digits import dictated_cards
from curtilage.client.detection.detectors.patterns.government_ids import NATIONAL_LABEL
from curtilage.client.detection.detectors.patterns.prefilter import (
    Prefilter,
    prefilter_of,
)
from curtilage.client.detection.detectors.patterns.secrets import (
    HEX_TOKEN,
    OPAQUE_TOKEN,
)
from curtilage.client.detection.detectors.readings import (
    ENCODED_WORD,
    Reading,
    hidden_text,
    word_text,
)
from curtilage.client.detection.spans import MAX_SCORE, Span
from curtilage.policy.decision.findings import Normalization

_OBFUSCATION = "obfuscation"
_LANGUAGE: Final = "uncertain.language"

_CF_IN_WORD = re.compile(
    "(?<=\\w)[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]+(?=\\w)|"
    "[\u202a-\u202e\u2066-\u2069]|[\U000e0000-\U000e007f]"
)


class LanguageDetector:
    """Finds letters of other scripts, and parts of a text in other languages."""

    id = "language"

    def __init__(self, languages: Collection[str]) -> None:
        """Check that the language identifier is installed.

        Args:
            languages: those that the policy names, as ISO 639-1; all of them covered.

        Raises:
            ValueError: there is no vocabulary for one of them.
            Exception: of any kind, if the identifier is not installed.
        """
        if not VOCABULARIES.keys() >= set(languages):
            raise ValueError("a language that is named is not covered")
        self._languages = frozenset(languages)
        require_identifier()

    def preload(self) -> None:
        """Load the language identifier, which a text of known words never needs."""
        load_identifier()

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield the words, or else the parts of the text, in languages not covered."""
        text = reading.text
        places = []
        if not text.isascii():
            places = [
                match.span()
                for match in WORD.finditer(text)
                if not match[0].isascii() and is_in_another_script(match[0])
            ]
        # The identifier knows only Latin letters, and the query is kept local already.
        for start, end in places or (
            (each.start, each.end)
            for each in reading.stretches
            if each.languages.isdisjoint(self._languages)
        ):
            yield Span(
                data_class=_LANGUAGE,
                detector=self.id,
                start=start,
                end=end,
                score=MAX_SCORE,
            )


class ObfuscationDetector:
    """Finds invisible characters inside words, and words of mixed scripts."""

    id = _OBFUSCATION
    beyond_ascii = True

    def find(self, reading: Reading) -> list[Span]:
        """Return what a person is unlikely to write by accident."""
        text = reading.text
        if text.isascii():
            return []
        hidden = list(_CF_IN_WORD.finditer(text))
        mixed = [
            m for m in WORD.finditer(text) if not m[0].isascii() and is_mixed(m[0])
        ]
        return [
            _span("uncertain.obfuscation", _OBFUSCATION, match.span())
            for match in hidden + mixed
        ]


def _span(
    name: str, detector: str, place: tuple[int, int], score: int = MAX_SCORE
) -> Span:
    return Span(
        data_class=name, detector=detector, start=place[0], end=place[1], score=score
    )


RUN_DETECTOR = "number-run"
_HIGH_ENTROPY = 3.6  # bits per character; English words stay below 3.5
_HEX_ENTROPY = 3.0
_UNDECODABLE = re.compile("[\ud800-\udfff\x00]")
# A digest with its algorithm and exactly its length names public bytes: an image, a
# package (OCI image specification, "Digests"). It is not a key; other rules handle a
# word before it that says so.
_DIGEST = re.compile(
    r"(?<![^\W_])(?:sha256[:-][0-9a-f]{64}|sha512[:-][0-9a-f]{128}|sha1[:-][0-9a-f]{40})"
    r"(?![0-9a-zA-Z])"
)


def _digests(text: str) -> list[tuple[int, int]]:
    return [each.span() for each in _DIGEST.finditer(text)] if "sha" in text else []


class NumberRunDetector:
    """Finds seven or more digits that no other detector may have recognised.

    A run in the compact reading counts only if that reading made one of its digits:
    otherwise joined lines would turn every table into a number.
    """

    id = RUN_DETECTOR
    prefilter = prefilter_of(number_rows.NUMBER_RUN)
    _run = re.compile(number_rows.NUMBER_RUN)
    _harmless = re.compile(number_rows.HARMLESS_RUN)
    _public = re.compile(number_rows.PUBLIC)
    _social = re.compile(number_rows.SSN_LABEL, re.IGNORECASE)
    _label = re.compile(
        rf"{number_rows.NUMBER_LABEL}|(?<!\w)(?:{NATIONAL_LABEL})(?!\w)", re.IGNORECASE
    )

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each run that is a number, judging by its form or by a label nearby."""
        compact = reading.normalization is Normalization.COMPACT
        public = [each.span() for each in self._public.finditer(reading.text)]
        public += _digests(reading.text)
        for match in self._run.finditer(reading.text):
            if any(low <= match.start() and match.end() <= up for low, up in public):
                continue
            made = not reading.made.isdisjoint(range(*match.span()))
            if (made or not compact) and self._is_number(reading.text, match, made):
                yield _span("uncertain.number_run", self.id, match.span())

    def _is_number(self, text: str, match: re.Match[str], made: bool) -> bool:
        """Return whether a run is a person's number rather than a list or an amount."""
        row = number_rows.Row(text, *match.span())
        # Spelled-out digits are a number, with or without commas between them.
        if made and not self._harmless.fullmatch(match[0]):
            return not number_rows.is_counting(match[0])
        if row.is_number() or _near(self._social, match, number_rows.SSN_REACH):
            return True
        return row.digits() >= number_rows.MIN_DIGITS and _near(
            self._label, match, number_rows.LABEL_REACH
        )


def _near(label: re.Pattern[str], match: re.Match[str], reach: int) -> bool:
    start = max(match.start() - reach, 0)
    return label.search(match.string, start, match.end() + reach) is not None


class DictatedNumberDetector:
    """Finds numbers that are given in parts, with words between them.

    This is how people dictate: "5425 (pause) 2334 …", "First: 412", "is my social". A
    check digit must hold, or a nearby label must name a number of that many digits; the
    words between are ignored.
    """

    id = "told-number"
    prefilter = Prefilter(digits=number_rows.MIN_DIGITS)
    _labels = tuple(
        (re.compile(rf"(?<![^\W_])(?:{label})(?![^\W\d_])", re.IGNORECASE), counts)
        for label, counts in number_rows.DICTATED_LABELS
    )

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each card, and each row of groups that belongs to a label."""
        text = reading.text
        rows = [row for row in number_rows.dictated(text) if len(row) > 1]
        if not rows:
            return
        for row in rows:
            for first, last in dictated_cards([text[start:end] for start, end in row]):
                place = row[first][0], row[last][1]
                yield replace(_span("financial.pan", self.id, place), validated=True)
        groups = [group for row in rows for group in row]
        for label, counts in self._labels:
            for match in label.finditer(text):
                found = number_rows.called(groups, match.span(), counts)
                if found is not None:
                    yield _span("uncertain.number_run", self.id, found)


class InvisibleDetector:
    """Finds characters that show nothing, in a number that can carry a text.

    A single one may occur by accident; an emoji may contain a few of them.
    """

    id = "invisible"
    beyond_ascii = True

    def find(self, reading: Reading) -> list[Span]:
        """Return one span from the first to the last, if there are enough."""
        if reading.text.isascii():
            return []
        found = [match for match in _INVISIBLE.finditer(reading.text) if match[1]]
        if len(found) < _MIN_INVISIBLE:
            return []
        place = found[0].start(1), found[-1].end(1)
        return [_span("uncertain.obfuscation", self.id, place)]


_MIN_INVISIBLE = 4
_PICTURE = "[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]\ufe0f?"
# Emoji are matched as a whole; the group matches only the remaining characters.
_INVISIBLE = re.compile(
    f"{_PICTURE}(?:\u200d{_PICTURE})*|[0-9#*]\ufe0f\u20e3|"
    "([\ufe00-\ufe0f\U000e0100-\U000e01ef\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\U000e0000-\U000e007f])"
)


class OpaqueDetector:
    """Finds tokens that look random, and encodings that hide text."""

    id = "opaque"
    _token = re.compile(OPAQUE_TOKEN)
    _hex = re.compile(HEX_TOKEN, re.IGNORECASE)

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield random tokens as secrets, and hidden text as obfuscation."""
        # Hexadecimal tokens consist of the same characters, so one search finds both.
        tokens = list(self._token.finditer(reading.text))
        if not tokens:
            return
        digests = _digests(reading.text)
        for match in self._hex.finditer(reading.text):
            if any(low < match.start() and match.end() == up for low, up in digests):
                continue
            if entropy(match[0].lower()) >= _HEX_ENTROPY:
                yield _span("secret.high_entropy", self.id, match.span(), 70)
        for match in tokens:
            if hidden_text(match[0]) is not None:
                yield _span("uncertain.obfuscation", self.id, match.span(), 70)
            elif _is_random(match[0]):
                yield _span("uncertain.opaque_blob", self.id, match.span(), 70)


def entropy(text: str) -> float:
    """Return the Shannon entropy of a text's characters, in bits per character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


def _is_random(token: str) -> bool:
    """Return whether a token mixes letters and digits as no word or path does."""
    parts = re.split(r"[/_\-+]", token)
    longest = max(parts, key=len)
    kinds = sum(
        any(test(char) for char in longest)
        for test in (str.isdigit, str.islower, str.isupper)
    )
    return len(longest) >= 20 and kinds == 3 and entropy(longest) >= _HIGH_ENTROPY  # noqa: PLR2004 - shape of a token


class UndecodableDetector:
    """Finds undecodable text: lone surrogates, NUL, unknown encoded words."""

    id = "undecodable"

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each of them."""
        if "=?" in reading.text:
            for word in ENCODED_WORD.finditer(reading.text):
                if word_text(word) is None:
                    yield _span("uncertain.undecodable", self.id, word.span())
        if reading.text.isascii() and "\0" not in reading.text:
            return
        for match in _UNDECODABLE.finditer(reading.text):
            yield _span("uncertain.undecodable", self.id, match.span())
