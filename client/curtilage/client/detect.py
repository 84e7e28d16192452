"""Presidio's only door: its recognizers without its downloads and its logs.

The engine has a blank English tokenizer and no model. The registry is built
here, in code; recognizers that fetch, that drop private domains or that take
quadratic time are not in it (``recognizers`` has ours). A pattern that times
out raises instead of being skipped. Imported lazily: the extra is ``pii``.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.errors import ConfigError
from curtilage.client.findings import Span
from curtilage.client.scan import EVERY_VIEW, Equipment, own_equipment
from curtilage.client.views import Reading
from curtilage.policy.findings import View

if TYPE_CHECKING:
    from presidio_analyzer import (
        AnalyzerEngine,
        EntityRecognizer,
        RecognizerResult,
    )
    from presidio_analyzer.nlp_engine import NlpEngine

LANGUAGE = "en"
PATTERN_TIMEOUT_S = 5.0  # of one pattern; the worker's deadline is shorter
MIN_SCORE = 35  # below, Presidio guesses; digits alone are a number run anyway
VALIDATED_SCORE = 100

# What each recognizer finds, by this project's class. Not here, on purpose:
# Email (fetches the public suffix list, drops private domains: F5, F6), Url and
# InPan and UsHealthInsuranceMemberId (quadratic: F2, F3), Iban (skips a pattern
# that times out: F1), Spacy and its like (models). Ours replace them.
RECOGNIZERS: Mapping[str, str] = {
    "AbaRoutingRecognizer": "financial.aba",
    "AuMedicareRecognizer": "identifier.direct.gov_id.au_medicare",
    "AuTfnRecognizer": "identifier.direct.gov_id.au_tfn",
    "CaSinRecognizer": "identifier.direct.gov_id.ca_sin",
    "CreditCardRecognizer": "financial.pan",
    "CryptoRecognizer": "financial.crypto",
    "DateRecognizer": "identifier.quasi.date",
    "DeIdCardRecognizer": "identifier.direct.gov_id.de_id",
    "DeSocialSecurityRecognizer": "identifier.direct.gov_id.de_svnr",
    "DeTaxIdRecognizer": "identifier.direct.gov_id.de_tax_id",
    "EsNieRecognizer": "identifier.direct.gov_id.es_nie",
    "EsNifRecognizer": "identifier.direct.gov_id.es_nif",
    "FiPersonalIdentityCodeRecognizer": "identifier.direct.gov_id.fi_hetu",
    "InAadhaarRecognizer": "identifier.direct.gov_id.in_aadhaar",
    "InVoterRecognizer": "identifier.direct.gov_id.in_voter",
    "IpRecognizer": "identifier.direct.ip",
    "ItFiscalCodeRecognizer": "identifier.direct.gov_id.it_cf",
    "KrRrnRecognizer": "identifier.direct.gov_id.kr_rrn",
    "MacAddressRecognizer": "identifier.direct.mac",
    "MedicalLicenseRecognizer": "health.dea",
    "NhsRecognizer": "identifier.direct.gov_id.uk_nhs",
    "PhUmidRecognizer": "identifier.direct.gov_id.ph_umid",
    "PlPeselRecognizer": "identifier.direct.gov_id.pl_pesel",
    "SePersonnummerRecognizer": "identifier.direct.gov_id.se_pnr",
    "SgFinRecognizer": "identifier.direct.gov_id.sg_nric",
    "ThTninRecognizer": "identifier.direct.gov_id.th_tnin",
    "TrNationalIdRecognizer": "identifier.direct.gov_id.tr_tckn",
    "UkDrivingLicenceRecognizer": "identifier.direct.licence",
    "UkNinoRecognizer": "identifier.direct.gov_id.uk_nino",
    "UsItinRecognizer": "identifier.direct.gov_id.us_itin",
    "UsLicenseRecognizer": "identifier.direct.licence",
    "UsMbiRecognizer": "health.plan_id",
    "UsNpiRecognizer": "health.npi",
    "UsPassportRecognizer": "identifier.direct.passport",
    "UsSsnRecognizer": "identifier.direct.gov_id.us_ssn",
    "ZaIdNumberRecognizer": "identifier.direct.gov_id.za_id",
}
PHONE_CLASS = "identifier.direct.phone"
PHONE_ENTITY = "PHONE_NUMBER"
# Five digits, joined as the phone library joins them.
PHONE_CANDIDATE = re.compile(r"\d(?:[^\w\n]{0,4}\d){4,}")
_PHONE_MARGIN = 24
_LONG_TOKEN = re.compile(r"\S{100,}")
_NO_WORD = re.compile(r"[\W_]")
WARM_UP_TEXT = "Warm up: 1 a@b.example 192.0.2.1 2020-01-01 +1 202 555 0100."


def require_presidio() -> None:
    """Raise unless Presidio is installed.

    Raises:
        ConfigError: names the extra.
    """
    if find_spec("presidio_analyzer") is None or find_spec("spacy") is None:
        raise ConfigError(
            "the detectors are not installed: pip install 'curtilage[pii]'"
        )


def full_equipment() -> Equipment:
    """Return all detectors, Presidio's among them, warm; takes seconds.

    Raises:
        ConfigError: Presidio is not installed.
    """
    require_presidio()
    presidio = PresidioDetector()
    list(presidio.find(Reading(view=View.RAW, text=WARM_UP_TEXT)))
    return (*own_equipment(), (presidio, EVERY_VIEW - {View.COMPACT}))


class SpacyPipeline(Protocol):
    """What is used of spaCy's pipeline."""

    def memory_zone(self) -> AbstractContextManager[object]:
        """Return a zone after which no word is kept of those split in it."""
        ...


class PresidioDetector:
    """Run Presidio's pattern and phone recognizers over one text.

    What ``AnalyzerEngine.analyze`` does, in its order, except that words are
    split only after something was found: findings are the same, since words
    only raise scores. The test compares both.
    """

    numeric = True

    def __init__(self) -> None:
        telemetry.silence_libraries()
        self._engine, self._classes = _open_engine()
        self._pipeline = blank_pipeline(self._engine.nlp_engine)
        self._no_words = self._engine.nlp_engine.process_text("", LANGUAGE)
        self._recognizers = self._engine.registry.get_recognizers(
            language=LANGUAGE, all_fields=True
        )

    @property
    def id(self) -> str:
        """One name for all of Presidio's recognizers."""
        return "presidio"

    @property
    def engine(self) -> "AnalyzerEngine":
        """The engine whose results these are; for comparison."""
        return self._engine

    @property
    def recognizers(self) -> "Sequence[EntityRecognizer]":
        """All that runs; for a look."""
        return self._recognizers

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield what is at least likely, or validated.

        Every recognizer in the registry needs a digit, so a text without one
        is not looked at; MAC addresses of letters alone are found by ours.
        """
        if any(char.isdigit() for char in reading.text):
            yield from self.spans_of(self._analyze(reading.text))

    def spans_of(self, results: "Iterable[RecognizerResult]") -> Iterator[Span]:
        """Yield the results that count, in this project's classes."""
        for result in results:
            score = min(math.ceil(result.score * 100), VALIDATED_SCORE)
            if score >= MIN_SCORE:
                yield Span(
                    data_class=self._classes[result.entity_type],
                    detector=self.id,
                    start=result.start,
                    end=result.end,
                    score=score,
                    validated=score == VALIDATED_SCORE,
                )

    def _analyze(self, text: str) -> "list[RecognizerResult]":
        results = [
            result
            for recognizer in self._recognizers
            for result in recognizer.analyze(
                text, recognizer.supported_entities, self._no_words
            )
        ]
        if not results:
            return []
        # Every word that spaCy splits goes into a store of its own, for good,
        # unless it is split inside a zone; the words are gone with the zone.
        with self._pipeline.memory_zone():
            results = self._engine.context_aware_enhancer.enhance_using_context(
                text=text,
                raw_results=results,
                nlp_artifacts=self._engine.nlp_engine.process_text(text, LANGUAGE),
                recognizers=self._recognizers,
            )
        return type(self._recognizers[0]).remove_duplicates(results)


def _open_engine() -> "tuple[AnalyzerEngine, dict[str, str]]":
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry  # noqa: PLC0415

    chosen, classes = _recognizers()
    registry = RecognizerRegistry(recognizers=chosen, supported_languages=[LANGUAGE])
    engine = AnalyzerEngine(
        registry=registry,
        nlp_engine=_blank_engine(),
        log_decision_process=False,
        supported_languages=[LANGUAGE],
    )
    return engine, classes


def _recognizers() -> "tuple[list[EntityRecognizer], dict[str, str]]":
    from presidio_analyzer import predefined_recognizers  # noqa: PLC0415

    # Recognizers are filtered by language, and a Polish number is one in an
    # English text too; so all of them claim to be English.
    chosen: list[EntityRecognizer] = [_windowed_phone()]
    classes = {PHONE_ENTITY: PHONE_CLASS}
    for name, data_class in RECOGNIZERS.items():
        made = getattr(predefined_recognizers, name)(supported_language=LANGUAGE)
        chosen.append(strict_recognizer(made))
        classes[made.supported_entities[0]] = data_class
    return chosen, classes


def _windowed_phone() -> "EntityRecognizer":
    """Return the phone recognizer, looking only where enough digits are (F4).

    It tries every position of the whole text once for each of eight regions.
    """
    from presidio_analyzer import RecognizerResult  # noqa: PLC0415
    from presidio_analyzer.nlp_engine import NlpArtifacts  # noqa: PLC0415
    from presidio_analyzer.predefined_recognizers import (  # noqa: PLC0415
        PhoneRecognizer,
    )

    class Windowed(PhoneRecognizer):
        """The same recognizer on windows of the text."""

        @override
        def analyze(
            self,
            text: str,
            entities: list[str],
            nlp_artifacts: NlpArtifacts | None = None,
        ) -> list[RecognizerResult]:
            """Return the phone numbers in every window."""
            del nlp_artifacts  # not used there either
            results: list[RecognizerResult] = []
            for start, end in phone_windows(text):
                for found in super().analyze(text[start:end], entities):
                    found.start += start
                    found.end += start
                    results.append(found)
            return self.remove_duplicates(results)

    return Windowed(supported_language=LANGUAGE)


def phone_windows(text: str) -> list[tuple[int, int]]:
    """Return where a phone number could be, with room around, not overlapping."""
    windows: list[tuple[int, int]] = []
    for match in PHONE_CANDIDATE.finditer(text):
        start = max(match.start() - _PHONE_MARGIN, 0)
        end = min(match.end() + _PHONE_MARGIN, len(text))
        if windows and start <= windows[-1][1]:
            start = windows.pop()[0]
        windows.append((start, end))
    return windows


class _Pattern(Protocol):
    regex: str
    score: float


class Patterned(Protocol):
    """What is used of a recognizer that runs patterns."""

    name: str
    context: list[str] | None
    patterns: list[_Pattern]
    supported_entities: list[str]
    global_regex_flags: int

    def validate_result(self, pattern_text: str) -> bool | None:
        """Tell whether a check holds; None: there is none."""
        ...

    def invalidate_result(self, pattern_text: str) -> bool | None:
        """Tell whether a match is ruled out; None: nothing is known."""
        ...


def strict_recognizer(inner: Patterned) -> "EntityRecognizer":
    """Return a recognizer with the same patterns whose timeouts raise (F1).

    Presidio catches a pattern's timeout, logs it and goes on without it: the
    text then counts as clean.
    """
    from presidio_analyzer import (  # noqa: PLC0415
        AnalysisExplanation,
        LocalRecognizer,
        PatternRecognizer,
        RecognizerResult,
    )
    from presidio_analyzer.nlp_engine import NlpArtifacts  # noqa: PLC0415

    if getattr(type(inner), "analyze", None) is not PatternRecognizer.analyze:
        raise TypeError(f"{type(inner).__name__} does not run patterns as others do")
    regex = import_module("regex")  # Presidio's own dependency; it knows timeouts
    patterns = [
        (regex.compile(each.regex, inner.global_regex_flags), each.score)
        for each in inner.patterns
    ]
    entity, name = inner.supported_entities[0], inner.name

    class Strict(LocalRecognizer):
        """The same recognizer, except that it never skips a pattern."""

        @override
        def load(self) -> None:
            """Do nothing: there is nothing to load."""

        @override
        def analyze(
            self,
            text: str,
            entities: list[str],
            nlp_artifacts: NlpArtifacts | None = None,
        ) -> list[RecognizerResult]:
            """Return every match whose check does not refute it."""
            return [
                RecognizerResult(
                    entity_type=entity,
                    start=match.start(),
                    end=match.end(),
                    score=score,
                    # Context words are noted in it; it ends here.
                    analysis_explanation=AnalysisExplanation(name, base),
                    recognition_metadata={
                        RecognizerResult.RECOGNIZER_NAME_KEY: name,
                        RecognizerResult.RECOGNIZER_IDENTIFIER_KEY: self.id,
                    },
                )
                for pattern, base in patterns
                for match in pattern.finditer(text, timeout=PATTERN_TIMEOUT_S)
                if match[0] and (score := _score_of(inner, match[0], base)) > 0
            ]

    return Strict(
        supported_entities=[entity],
        name=name,
        supported_language=LANGUAGE,
        context=inner.context,
    )


def _score_of(recognizer: Patterned, found: str, score: float) -> float:
    """Return a match's score after its checks, as Presidio has it."""
    if recognizer.invalidate_result(found):
        return 0.0
    valid = recognizer.validate_result(found)
    return score if valid is None else float(valid)


def blank_pipeline(engine: "NlpEngine") -> "SpacyPipeline":
    """Return the tokenizer inside the engine, whose words must not pile up."""
    pipelines = cast("Mapping[str, SpacyPipeline]", vars(engine)["nlp"])
    return pipelines[LANGUAGE]


def loosen(text: str) -> str:
    """Return a text in which no token is long, of the same length.

    spaCy strips punctuation from a token a character at a time: a long run of
    it takes quadratic time. Words stay as they are.
    """
    return _LONG_TOKEN.sub(lambda match: _NO_WORD.sub(" ", match[0]), text)


def _blank_engine() -> "NlpEngine":
    """Return an engine that splits words and loads nothing.

    A blank pipeline has empty lemmas, by which context words would silently
    never match; the lower-case word stands in.
    """
    import spacy  # noqa: PLC0415
    from presidio_analyzer.nlp_engine import (  # noqa: PLC0415
        NlpArtifacts,
        SpacyNlpEngine,
    )
    from spacy.tokens import Doc  # noqa: PLC0415

    class Blank(SpacyNlpEngine):
        """Words only; no model, no download."""

        @override
        def load(self) -> None:
            """Make the tokenizer; it takes no file beyond spaCy's own."""
            blank = spacy.blank(LANGUAGE)
            blank.max_length = 10_000_000  # our own limit is lower, and tells
            setattr(self, "nlp", {LANGUAGE: blank})  # noqa: B010 - declared as None there

        @override
        def process_text(self, text: str, language: str) -> NlpArtifacts:
            """Split a text into words, in linear time."""
            return super().process_text(loosen(text), language)

        @override
        def _doc_to_nlp_artifact(self, doc: Doc, language: str) -> NlpArtifacts:
            return NlpArtifacts(
                entities=[],
                tokens=doc,
                tokens_indices=[token.idx for token in doc],
                lemmas=[token.lower_ for token in doc],
                nlp_engine=self,
                language=language,
                scores=[],
            )

    return Blank()
