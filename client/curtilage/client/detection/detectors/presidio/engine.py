"""Presidio's engine with our selection of recognizers, without downloads and logs.

The engine has a blank English tokenizer and no model. The registry is built here, in
code; recognizers that download, that drop private domains or that take quadratic time
are not in it (``patterns`` has ours). A pattern that times out raises instead of being
skipped. It is imported lazily: the extra is ``pii``.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol, cast

from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.detection.detectors.loading import OnDemand
from curtilage.client.detection.detectors.patterns.check_digits import is_no_machine
from curtilage.client.detection.detectors.patterns.number_rows import is_article
from curtilage.client.detection.detectors.patterns.prefilter import (
    Prefilter,
    Prefilters,
    any_of,
    positions,
    prefilter_named_by,
    prefilter_of,
)
from curtilage.client.detection.detectors.presidio.catalog import PHONE, RECOGNIZERS
from curtilage.client.detection.detectors.presidio.phone import windowed_phone
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.spans import Span
from curtilage.policy.decision.findings import Normalization

if TYPE_CHECKING:
    from presidio_analyzer import (
        AnalyzerEngine,
        EntityRecognizer,
        RecognizerResult,
    )
    from presidio_analyzer.nlp_engine import NlpEngine

LANGUAGE = "en"
PRESIDIO = "presidio"
PATTERN_TIMEOUT_S = 5.0  # for one pattern; the worker's deadline is shorter
MIN_SCORE = 35  # lower scores are guesses; digits alone are a number run anyway
VALIDATED_SCORE = 100

RECOGNIZER_ID = "recognizer_identifier"  # as ``RecognizerResult`` names it
PHONE_ENTITY = "PHONE_NUMBER"
_DIGIT = re.compile(r"\d")
WARM_UP = "Call 1 a@b.example 192.0.2.1 2020-01-01 phone +1 202 555 0100."
_LONG_TOKEN = re.compile(r"\S{100,}")
_NO_WORD = re.compile(r"[\W_]")


class HasMemoryZone(Protocol):
    """The part of spaCy's pipeline that is used; it has no usable type."""

    def memory_zone(self) -> AbstractContextManager[object]:
        """Return a zone; the words split in it are dropped at its end."""
        ...


_IP: Final = "identifier.direct.ip"


class PresidioOnDemand:
    """Presidio's recognizers, loaded for the first text with a digit.

    All their matches contain one, and loading them takes longer than everything else.
    """

    numeric = True
    prefilter = Prefilter(digits=1)

    def __init__(self, names: Sequence[str]) -> None:
        """Check as much as possible without loading them.

        Args:
            names: as for ``PresidioDetector``.

        Raises:
            ImportError: Presidio is not installed.
            ValueError: a name is not in the table.
        """
        _require_known(names)
        if find_spec("presidio_analyzer") is None:
            raise ImportError("Presidio is not installed")
        self._detector = OnDemand(partial(_warm_detector, names))

    @property
    def id(self) -> str:
        """One name for all of Presidio's recognizers."""
        return PRESIDIO

    def preload(self) -> None:
        """Load them now."""
        self._detector.get()

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield the findings of ``PresidioDetector``.

        Raises:
            RuntimeError: they could not be loaded.
        """
        if _DIGIT.search(reading.text):
            yield from self._detector.get().find(reading)


def _warm_detector(names: Sequence[str]) -> "PresidioDetector":
    detector = PresidioDetector(names)
    # Words are split only after a finding; the first time, that is slow too.
    warm_up = Reading(normalization=Normalization.RAW, text=WARM_UP)
    for _ in detector.find(warm_up):
        pass
    return detector


class PresidioDetector:
    """Runs Presidio's pattern and phone recognizers over one text.

    It does what ``AnalyzerEngine.analyze`` does, in the same order, with two
    exceptions. Words are split only after something was found, which does not change
    the findings, since words only raise scores. And a recognizer runs only if its
    patterns could match. The test compares both.
    """

    numeric = True
    # All recognizers' matches contain a digit, except for a few of letters alone (MAC
    # addresses), which our own detectors find.
    prefilter = Prefilter(digits=1)

    def __init__(self, names: Sequence[str] = tuple(RECOGNIZERS)) -> None:
        """Open the engine with some of the recognizers of the table.

        Args:
            names: class names, at least one.

        Raises:
            ImportError: Presidio is not installed.
            ValueError: a name is not in the table.
        """
        telemetry.silence_libraries()
        self._engine, self._classes = _open_engine(names)
        self._pipeline = blank_pipeline(self._engine.nlp_engine)
        self._no_words = self._engine.nlp_engine.process_text("", LANGUAGE)
        self._recognizers = self._engine.registry.get_recognizers(
            language=LANGUAGE, all_fields=True
        )
        self._prefilters = Prefilters([*map(prefilter_named_by, self._recognizers)])
        self._contexts = {
            each.id: frozenset(map(_plain_lower, each.context or ()))
            for each in self._recognizers
        }

    @property
    def id(self) -> str:
        """One name for all of Presidio's recognizers."""
        return PRESIDIO

    @property
    def engine(self) -> "AnalyzerEngine":
        """The engine that these results come from; for comparison."""
        return self._engine

    @property
    def recognizers(self) -> "Sequence[EntityRecognizer]":
        """The recognizers that run; for inspection."""
        return self._recognizers

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield the likely or validated results; nothing without a digit."""
        if _DIGIT.search(reading.text):
            for span in self.spans_of(self._analyze(reading.text)):
                # A person may have a number of thirteen digits; labelled as an EAN, it
                # is a thing's.
                if is_article(reading.text, span.start, span.end):
                    continue
                # This machine, or any: 127.0.0.1, 0.0.0.0.
                named = reading.text[span.start : span.end]
                if span.data_class == _IP and is_no_machine(named):
                    continue
                yield span

    def spans_of(self, results: "Iterable[RecognizerResult]") -> Iterator[Span]:
        """Yield the results that count, with this project's classes."""
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
        asked = [
            self._recognizers[at] for at in positions(self._prefilters.passed(text))
        ]
        results = [
            result
            for recognizer in asked
            for result in recognizer.analyze(
                text, recognizer.supported_entities, self._no_words
            )
        ]
        if self._may_gain(text, results):
            results = self._enhanced(text, results)
        return type(self._recognizers[0]).remove_duplicates(results)

    def _may_gain(self, text: str, results: "Sequence[RecognizerResult]") -> bool:
        """Return whether a word in the text could raise a score.

        Only a word with a context word of the recognizer can, so the text contains it.
        """
        noted = (
            cast("Mapping[str, str] | None", vars(result)["recognition_metadata"]) or {}
            for result in results
        )
        asked = {each[RECOGNIZER_ID] for each in noted if RECOGNIZER_ID in each}
        if not asked:
            return False
        lowered = _plain_lower(text)
        return any(word in lowered for each in asked for word in self._contexts[each])

    def _enhanced(
        self, text: str, results: "list[RecognizerResult]"
    ) -> "list[RecognizerResult]":
        # spaCy keeps every word that it splits forever, unless it is split inside a
        # zone; the words are dropped with the zone.
        with self._pipeline.memory_zone():
            return self._engine.context_aware_enhancer.enhance_using_context(
                text=text,
                raw_results=results,
                nlp_artifacts=self._engine.nlp_engine.process_text(text, LANGUAGE),
                recognizers=self._recognizers,
            )


def _plain_lower(text: str) -> str:
    """Return lower case with one form of sigma, wherever its word ends."""
    return text.lower().replace("\u03c2", "\u03c3")


def _open_engine(names: Sequence[str]) -> "tuple[AnalyzerEngine, dict[str, str]]":
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry  # noqa: PLC0415

    chosen, classes = _recognizers(names)
    registry = RecognizerRegistry(recognizers=chosen, supported_languages=[LANGUAGE])
    engine = AnalyzerEngine(
        registry=registry,
        nlp_engine=blank_engine(),
        log_decision_process=False,
        supported_languages=[LANGUAGE],
    )
    return engine, classes


def _recognizers(
    names: Sequence[str],
) -> "tuple[list[EntityRecognizer], dict[str, str]]":
    from presidio_analyzer import predefined_recognizers  # noqa: PLC0415

    _require_known(names)
    # Recognizers are filtered by language, but a Polish number counts in an English
    # text too; so all of them claim to be English.
    chosen: list[EntityRecognizer] = []
    classes: dict[str, str] = {}
    for name in names:
        if name == PHONE:
            chosen.append(windowed_phone(LANGUAGE))
            classes[PHONE_ENTITY] = RECOGNIZERS[PHONE]
            continue
        made = getattr(predefined_recognizers, name)(supported_language=LANGUAGE)
        chosen.append(strict_recognizer(made))
        classes[made.supported_entities[0]] = RECOGNIZERS[name]
    return chosen, classes


def _require_known(names: Sequence[str]) -> None:
    if not names or not RECOGNIZERS.keys() >= set(names):
        raise ValueError("a recognizer is not in the table")


class _Pattern(Protocol):
    regex: str
    score: float


class Patterned(Protocol):
    """The part of a recognizer with patterns that is used."""

    name: str
    context: list[str] | None
    patterns: list[_Pattern]
    supported_entities: list[str]
    global_regex_flags: int

    def validate_result(self, pattern_text: str) -> bool | None:
        """Return whether a check holds; None: there is none."""
        ...

    def invalidate_result(self, pattern_text: str) -> bool | None:
        """Return whether a match is ruled out; None: unknown."""
        ...


def strict_recognizer(inner: Patterned) -> "EntityRecognizer":
    """Return a recognizer with the same patterns whose timeouts raise (F1).

    Presidio catches a pattern's timeout, logs it and continues without it: the text
    would then count as clean.
    """
    import regex  # noqa: PLC0415 - Presidio's own dependency; it knows timeouts
    from presidio_analyzer import (  # noqa: PLC0415
        AnalysisExplanation,
        LocalRecognizer,
        PatternRecognizer,
        RecognizerResult,
    )
    from presidio_analyzer.nlp_engine import NlpArtifacts  # noqa: PLC0415

    if getattr(type(inner), "analyze", None) is not PatternRecognizer.analyze:
        raise TypeError(f"{type(inner).__name__} does not run patterns as others do")
    patterns = [
        (regex.compile(each.regex, inner.global_regex_flags), each.score)
        for each in inner.patterns
    ]
    entity, name = inner.supported_entities[0], inner.name
    needed = any_of(
        prefilter_of(each.regex, flags=re.IGNORECASE) for each in inner.patterns
    )

    class Strict(LocalRecognizer):
        """The same recognizer, except that it never skips a pattern."""

        prefilter = needed

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
            """Return every match that its check does not refute."""
            return [
                RecognizerResult(
                    entity_type=entity,
                    start=match.start(),
                    end=match.end(),
                    score=score,
                    # Presidio notes context words in it; it is dropped with the result.
                    analysis_explanation=AnalysisExplanation(name, base),
                    recognition_metadata={
                        RecognizerResult.RECOGNIZER_NAME_KEY: name,
                        RECOGNIZER_ID: self.id,
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
    """Return a match's score after its checks, computed as in Presidio."""
    if recognizer.invalidate_result(found):
        return 0.0
    valid = recognizer.validate_result(found)
    return score if valid is None else float(valid)


def blank_pipeline(engine: "NlpEngine") -> "HasMemoryZone":
    """Return the tokenizer in the engine, whose words must not accumulate."""
    pipelines = cast("Mapping[str, HasMemoryZone]", vars(engine)["nlp"])
    return pipelines[LANGUAGE]


def loosen(text: str) -> str:
    """Return a text of the same length in which no token is long.

    spaCy strips punctuation from a token one character at a time, so a long run of it
    takes quadratic time. Words are unchanged.
    """
    return _LONG_TOKEN.sub(lambda match: _NO_WORD.sub(" ", match[0]), text)


def blank_engine() -> "NlpEngine":
    """Return an engine that splits words and loads no model.

    A blank pipeline has empty lemmas, so context words would silently never match; the
    lower-case word replaces the lemma.
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
            """Create the tokenizer; it reads only spaCy's own files."""
            blank = spacy.blank(LANGUAGE)
            blank.max_length = 10_000_000  # our own limit is lower, and reported
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
