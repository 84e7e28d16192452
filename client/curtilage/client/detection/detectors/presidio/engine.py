"""Presidio's only door: its recognizers without its downloads and its logs.

The engine has a blank English tokenizer and no model. The registry is built
here, in code; recognizers that fetch, that drop private domains or that take
quadratic time are not in it (``patterns`` has ours). A pattern that times
out raises instead of being skipped. Imported lazily: the extra is ``pii``.
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
PATTERN_TIMEOUT_S = 5.0  # of one pattern; the worker's deadline is shorter
MIN_SCORE = 35  # below, Presidio guesses; digits alone are a number run anyway
VALIDATED_SCORE = 100

RECOGNIZER_ID = "recognizer_identifier"  # ``RecognizerResult`` names it so
PHONE_ENTITY = "PHONE_NUMBER"
_DIGIT = re.compile(r"\d")
WARM_UP = "Call 1 a@b.example 192.0.2.1 2020-01-01 phone +1 202 555 0100."
_LONG_TOKEN = re.compile(r"\S{100,}")
_NO_WORD = re.compile(r"[\W_]")


class HasMemoryZone(Protocol):
    """What is used of spaCy's pipeline; its own type of this method is unknown."""

    def memory_zone(self) -> AbstractContextManager[object]:
        """Return a zone after which no word is kept of those split in it."""
        ...


_IP: Final = "identifier.direct.ip"


class PresidioOnDemand:
    """Presidio's recognizers, loaded when a text with a digit comes.

    Every match of theirs holds one, and loading them takes longer than all else.
    """

    numeric = True
    prefilter = Prefilter(digits=1)

    def __init__(self, names: Sequence[str]) -> None:
        """Check what can be checked without loading them.

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
        """Yield what ``PresidioDetector`` does.

        Raises:
            RuntimeError: they could not be loaded.
        """
        if _DIGIT.search(reading.text):
            yield from self._detector.get().find(reading)


def _warm_detector(names: Sequence[str]) -> "PresidioDetector":
    detector = PresidioDetector(names)
    # Words are split where something was found: that too is slow the first time.
    warm_up = Reading(normalization=Normalization.RAW, text=WARM_UP)
    for _ in detector.find(warm_up):
        pass
    return detector


class PresidioDetector:
    """Run Presidio's pattern and phone recognizers over one text.

    What ``AnalyzerEngine.analyze`` does, in its order, except that words are
    split only after something was found: findings are the same, since words
    only raise scores; and a recognizer is asked only where its patterns could
    match. The test compares both.
    """

    numeric = True
    # Every recognizer's matches hold a digit, but for a few of letters alone
    # (MAC addresses), that ours find.
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
        """The engine whose results these are; for comparison."""
        return self._engine

    @property
    def recognizers(self) -> "Sequence[EntityRecognizer]":
        """All that runs; for a look."""
        return self._recognizers

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield what is at least likely, or validated; nothing without a digit."""
        if _DIGIT.search(reading.text):
            for span in self.spans_of(self._analyze(reading.text)):
                # Thirteen digits are a person's somewhere; called an EAN, a thing's.
                if is_article(reading.text, span.start, span.end):
                    continue
                # This very machine, or any: 127.0.0.1, 0.0.0.0.
                named = reading.text[span.start : span.end]
                if span.data_class == _IP and is_no_machine(named):
                    continue
                yield span

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
        """Tell whether a word in the text could raise a score.

        One counts that holds a context word of the recognizer, so the text does.
        """
        told = (
            cast("Mapping[str, str] | None", vars(result)["recognition_metadata"]) or {}
            for result in results
        )
        asked = {each[RECOGNIZER_ID] for each in told if RECOGNIZER_ID in each}
        if not asked:
            return False
        lowered = _plain_lower(text)
        return any(word in lowered for each in asked for word in self._contexts[each])

    def _enhanced(
        self, text: str, results: "list[RecognizerResult]"
    ) -> "list[RecognizerResult]":
        # Every word that spaCy splits goes into a store of its own, for good,
        # unless it is split inside a zone; the words are gone with the zone.
        with self._pipeline.memory_zone():
            return self._engine.context_aware_enhancer.enhance_using_context(
                text=text,
                raw_results=results,
                nlp_artifacts=self._engine.nlp_engine.process_text(text, LANGUAGE),
                recognizers=self._recognizers,
            )


def _plain_lower(text: str) -> str:
    """Return lower case; a sigma is the same wherever its word ends."""
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
    # Recognizers are filtered by language, and a Polish number is one in an
    # English text too; so all of them claim to be English.
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
    """Return a match's score after its checks, as Presidio has it."""
    if recognizer.invalidate_result(found):
        return 0.0
    valid = recognizer.validate_result(found)
    return score if valid is None else float(valid)


def blank_pipeline(engine: "NlpEngine") -> "HasMemoryZone":
    """Return the tokenizer inside the engine, whose words must not pile up."""
    pipelines = cast("Mapping[str, HasMemoryZone]", vars(engine)["nlp"])
    return pipelines[LANGUAGE]


def loosen(text: str) -> str:
    """Return a text in which no token is long, of the same length.

    spaCy strips punctuation from a token a character at a time: a long run of
    it takes quadratic time. Words stay as they are.
    """
    return _LONG_TOKEN.sub(lambda match: _NO_WORD.sub(" ", match[0]), text)


def blank_engine() -> "NlpEngine":
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
