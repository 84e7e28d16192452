"""Presidio's phone recognizer, run only where it could find something (F4).

For each of its regions, it tries every position of the whole text in Python, which
takes most of the time for a text with numbers. Here it gets windows around enough
digits, and only the regions that have numbers as short as those in the window; and it
parses only those parts of a long row of digits that have a number's length. The
findings are the same.
"""

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from curtilage.client.detection.detectors.patterns.prefilter import Prefilter

if TYPE_CHECKING:
    from phonenumbers import PhoneMetadata, PhoneNumberMatch
    from presidio_analyzer import EntityRecognizer

# Five digits, joined as the phone library joins them.
PHONE_DIGITS: Final = 5
PHONE_CANDIDATE: Final = re.compile(r"\d(?:[^\w\n]{0,4}\d){4,}")
_PHONE_MARGIN: Final = 24
_NAME: Final = "PhoneRecognizer"
# With fewer digits, no other country can be dialled: two for the exit code, and at
# least six more. The test derives it from the library's tables.
ABROAD_DIGITS: Final = 8
_RUN: Final = re.compile(r"\d(?:\D{0,4}\d)*")
# Signs of another country's number, or letters that count as digits.
_SPECIAL: Final = re.compile(
    r"[+\uff0b#\uff03;~\uff5e]|"
    r"\d\W*(?:[x\uff58]|ext|\uff45\uff58\uff54|int|\uff49\uff4e\uff54|anexo|доб)",
    re.IGNORECASE,
)
# Digits and separators, without any sign in _SPECIAL.
_PLAIN: Final = re.compile(r"[0-9 ()\[\]./\-]*")
# Rules by which a number is a part of what was dialled, and not longer.
_PARTS: Final = frozenset({None, r"\1", r"\2"})
MAX_PREFIX: Final = 8  # national prefix and carrier; the test derives fewer
_DECIMAL: Final = re.compile(r"(?:0|[1-9]\d{0,2})\.\d{1,16}")  # 02. is an area code
_DOTTED: Final = re.compile(r"\d+(?:\.\d+)+")
_MAX_ABROAD: Final = 30  # exit code, country, and 17 digits at most (E.164 has 15)


def windowed_phone(language: str) -> "EntityRecognizer":
    """Return the phone recognizer, limited to windows with enough digits."""
    from phonenumbers import PhoneNumberMatcher  # noqa: PLC0415
    from presidio_analyzer import AnalysisExplanation, RecognizerResult  # noqa: PLC0415
    from presidio_analyzer.nlp_engine import NlpArtifacts  # noqa: PLC0415
    from presidio_analyzer.predefined_recognizers import (  # noqa: PLC0415
        PhoneRecognizer,
    )

    class Matcher(PhoneNumberMatcher):
        """The library's matcher, which skips rows of digits that cannot be a number.

        For a row with separators, it tries every end, for each region: for the digits
        "1/1/1/..." alone it made one attempt each, which took longer than all other
        detectors together.
        """

        @override
        def _parse_and_verify(
            self, candidate: str, offset: int
        ) -> "PhoneNumberMatch | None":
            if not may_be_number(candidate, cast("str", self.preferred_region)):
                return None
            return super()._parse_and_verify(candidate, offset)

    class Windowed(PhoneRecognizer):
        """The same recognizer on windows of the text."""

        prefilter = Prefilter(digits=PHONE_DIGITS)

        @override
        def analyze(
            self,
            text: str,
            entities: list[str],
            nlp_artifacts: NlpArtifacts | None = None,
        ) -> list[RecognizerResult]:
            """Return the phone numbers in every window."""
            del entities, nlp_artifacts  # Presidio does not use them either
            regions = cast("tuple[str, ...]", vars(self)["supported_regions"])
            places = {
                (start + match.start, start + match.end)
                for start, end in phone_windows(text)
                for region in regions_of(text[start:end], regions)
                for match in Matcher(
                    text[start:end], region, leniency=self.leniency or 0
                )
                if not is_decimal(text, start + match.start, start + match.end)
            }
            return self.remove_duplicates([self._result(*each) for each in places])

        def _result(self, start: int, end: int) -> RecognizerResult:
            return RecognizerResult(
                entity_type=self.supported_entities[0],
                start=start,
                end=end,
                score=self.SCORE,
                analysis_explanation=AnalysisExplanation(_NAME, self.SCORE),
                recognition_metadata={
                    RecognizerResult.RECOGNIZER_NAME_KEY: _NAME,
                    RecognizerResult.RECOGNIZER_IDENTIFIER_KEY: self.id,
                },
            )

    return Windowed(supported_language=language)


def is_decimal(text: str, start: int, end: int) -> bool:
    """Return whether a match is a decimal, or a part of a version or of an OID.

    Seven digits of this kind are still a number run if nothing explains them.
    """
    return _DECIMAL.fullmatch(text, start, end) is not None or (
        _DOTTED.fullmatch(text, start, end) is not None
        and (text[start - 1 : start] in {".", "\\"} or text[end : end + 1] == ".")
        and (text[start - 2 : start - 1] + text[end + 1 : end + 2]).isalnum()
    )


def phone_windows(text: str) -> list[tuple[int, int]]:
    """Return where a phone number is possible, with margins, not overlapping."""
    windows: list[tuple[int, int]] = []
    for match in PHONE_CANDIDATE.finditer(text):
        start = max(match.start() - _PHONE_MARGIN, 0)
        end = min(match.end() + _PHONE_MARGIN, len(text))
        if windows and start <= windows[-1][1]:
            start = windows.pop()[0]
        windows.append((start, end))
    return windows


def regions_of(window: str, regions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the regions in which a number in a window could be valid.

    A region is excluded if there are too few digits for its shortest number and for a
    call abroad.
    """
    runs = (match[0] for match in _RUN.finditer(window))
    longest = max((sum(map(str.isdecimal, run)) for run in runs), default=0)
    if longest >= ABROAD_DIGITS or _SPECIAL.search(window):
        return regions
    return tuple(each for each in regions if least_digits(each) <= longest)


def may_be_number(candidate: str, region: str) -> bool:
    """Return whether a row of digits has the length of a number, domestic or abroad.

    True for everything that is not plain, such as a number with an extension.
    """
    if not _PLAIN.fullmatch(candidate):
        return True
    digits = "".join(filter(str.isdecimal, candidate))
    if least_digits(region) <= len(digits) <= _most_digits(region):
        return True
    return ABROAD_DIGITS <= len(digits) <= _MAX_ABROAD and _leads_abroad(region, digits)


@cache
def least_digits(region: str) -> int:
    """Return the length of a region's shortest number in digits; 0: not known.

    Countries with the same calling code share their numbers.
    """
    from phonenumbers import (  # noqa: PLC0415 - the extra
        COUNTRY_CODE_TO_REGION_CODE,
        PhoneMetadata,
    )

    own = PhoneMetadata.metadata_for_region(region)
    if own is None or own.national_prefix_transform_rule not in _PARTS:
        return 0
    sharing = COUNTRY_CODE_TO_REGION_CODE[own.country_code or 0]
    return min(map(_shortest, map(PhoneMetadata.metadata_for_region, sharing)))


@cache
def _most_digits(region: str) -> int:
    """Return the length of a region's longest number in digits, with all prefixes."""
    from phonenumbers import (  # noqa: PLC0415 - the extra
        COUNTRY_CODE_TO_REGION_CODE,
        PhoneMetadata,
    )

    if not least_digits(region):
        return sys.maxsize
    code = cast("PhoneMetadata", PhoneMetadata.metadata_for_region(region)).country_code
    longest = max(
        max(metadata.general_desc.possible_length)
        for each in COUNTRY_CODE_TO_REGION_CODE[code or 0]
        if (metadata := PhoneMetadata.metadata_for_region(each)) is not None
        and metadata.general_desc is not None
    )
    # The library strips a national prefix before and after the country's code.
    return len(str(code)) + longest + 2 * _prefix_digits(region)


def _prefix_digits(region: str) -> int:
    """Return the most digits that can precede a national number."""
    from phonenumbers import PhoneMetadata  # noqa: PLC0415 - the extra

    own = PhoneMetadata.metadata_for_region(region)
    prefix = None if own is None else own.national_prefix_for_parsing
    choices = (prefix or "").split("|")
    plain = all(each.isdecimal() or not each for each in choices)
    return max(map(len, choices)) if plain else MAX_PREFIX


def _leads_abroad(region: str, digits: str) -> bool:
    from phonenumbers import PhoneMetadata  # noqa: PLC0415 - the extra

    own = PhoneMetadata.metadata_for_region(region)
    way_out = None if own is None else own.international_prefix
    return way_out is None or re.match(way_out, digits) is not None


def _shortest(metadata: "PhoneMetadata | None") -> int:
    general = None if metadata is None else metadata.general_desc
    return 0 if general is None else min(general.possible_length)
