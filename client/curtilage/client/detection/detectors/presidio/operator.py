"""The operator's own recognizers, run as Presidio does, but without skipping any.

``AnalyzerEngine`` itself runs them, with its own context words, thresholds and removal
of duplicates. There are two differences: a pattern that times out raises, and patterns
run in linear time if RE2 reads them as ``regex`` does. Python recognizers are loaded
here, inside the sandbox of the detectors' process.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import (
    distribution,  # noqa: TID251 - a door
)
from typing import TYPE_CHECKING, Any, Final, cast

from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.detection.detectors.patterns.re2 import (
    ODD_SPACE,
    LinearPattern,
    linear,
)
from curtilage.client.detection.detectors.presidio.engine import (
    LANGUAGE,
    PATTERN_TIMEOUT_S,
    RECOGNIZER_ID,
    Patterned,
    blank_engine,
    blank_pipeline,
)
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.spans import MAX_SCORE, Span
from curtilage.policy.document.detection_plan import PresidioPlan
from curtilage.policy.document.recognizers import GROUP

if TYPE_CHECKING:
    from presidio_analyzer import EntityRecognizer, RecognizerResult

YAML: Final = "presidio.recognizers"


class OperatorRecognizers:
    """The recognizers of one source."""

    def __init__(
        self,
        name: str,
        recognizers: "Sequence[EntityRecognizer]",
        classes: Mapping[str, str],
    ) -> None:
        """Open an engine with the recognizers.

        Raises:
            ImportError: Presidio is not installed.
            ValueError: there is none, or one of their entities has no class.
        """
        from presidio_analyzer import (  # noqa: PLC0415
            AnalyzerEngine,
            RecognizerRegistry,
        )

        telemetry.silence_libraries()
        found = {entity for each in recognizers for entity in each.supported_entities}
        if not found or not found <= classes.keys():
            raise ValueError("a recognizer finds what the policy has no class for")
        for each in recognizers:
            # Recognizers are filtered by language; these examine every text.
            each.supported_language = LANGUAGE
        self._name, self._classes = name, classes
        self._engine = AnalyzerEngine(
            registry=RecognizerRegistry(
                recognizers=[*recognizers], supported_languages=[LANGUAGE]
            ),
            nlp_engine=blank_engine(),
            supported_languages=[LANGUAGE],
        )
        self._pipeline = blank_pipeline(self._engine.nlp_engine)

    @property
    def id(self) -> str:
        """The name of their source."""
        return self._name

    def results(self, text: str) -> "list[RecognizerResult]":
        """Return the results of ``AnalyzerEngine.analyze``."""
        # Outside a zone, spaCy keeps every word that it splits forever.
        with self._pipeline.memory_zone():
            return self._engine.analyze(text, language=LANGUAGE)

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield the results, with this project's classes."""
        for result in self.results(reading.text):
            yield Span(
                # An entity that it did not declare raises, as it should.
                data_class=self._classes[result.entity_type],
                detector=self._name,
                start=result.start,
                end=result.end,
                score=min(max(math.ceil(result.score * 100), 1), MAX_SCORE),
            )


def from_yaml(plan: PresidioPlan) -> OperatorRecognizers:
    """Build the recognizers from a policy's file.

    Raises:
        Exception: of any kind, if one of them is invalid.
    """
    made = [pattern_recognizer(json.loads(each)) for each in plan.recognizers]
    return OperatorRecognizers(YAML, made, dict(plan.classes))


def from_entry_point(
    plan: PresidioPlan, point: tuple[str, str, str]
) -> OperatorRecognizers:
    """Load a recognizer in Python: a class, an instance, or a function that makes some.

    Raises:
        Exception: it is not installed, has another version, or raises.
    """
    from presidio_analyzer import EntityRecognizer  # noqa: PLC0415

    name, package, version = point
    installed = distribution(package)
    if installed.version != version:
        raise LookupError("another version is installed than the policy names")
    (entry,) = installed.entry_points.select(group=GROUP, name=name)
    loaded: Any = entry.load()
    made: Any = loaded if isinstance(loaded, EntityRecognizer) else loaded()
    several: list[Any] = [*made] if isinstance(made, Sequence) else [made]
    if not all(isinstance(each, EntityRecognizer) for each in several):
        raise TypeError("an entry point made no recognizer")
    return OperatorRecognizers(f"presidio.{name}", several, dict(plan.classes))


def pattern_recognizer(fields: Mapping[str, Any]) -> "EntityRecognizer":
    """Return Presidio's pattern recognizer, changed to skip nothing (F1)."""
    import regex  # noqa: PLC0415 - Presidio's own dependency; it knows timeouts
    from presidio_analyzer import (  # noqa: PLC0415
        EntityRecognizer,
        Pattern,
        PatternRecognizer,
        RecognizerResult,
    )
    from presidio_analyzer.nlp_engine import NlpArtifacts  # noqa: PLC0415

    name, entity = str(fields["name"]), str(fields["entity"])
    compiled: list[tuple[LinearPattern | None, Any, float]] = []

    class Unskipped(PatternRecognizer):
        """Presidio's recognizer, in which a pattern's timeout is an error."""

        @override
        def analyze(
            self,
            text: str,
            entities: list[str],
            nlp_artifacts: NlpArtifacts | None = None,
            regex_flags: int | None = None,
        ) -> list[RecognizerResult]:
            """Return every match of every pattern."""
            alike = text.isascii() and not ODD_SPACE.search(text)
            found = [
                RecognizerResult(
                    entity_type=entity,
                    start=start,
                    end=end,
                    score=score,
                    analysis_explanation=self.build_regex_explanation(
                        name, "", "", score, False, flags
                    ),
                    recognition_metadata={
                        RecognizerResult.RECOGNIZER_NAME_KEY: name,
                        RECOGNIZER_ID: self.id,
                    },
                )
                for fast, slow, score in compiled
                if score > 0
                for start, end in (
                    fast.spans(text)
                    if fast is not None and alike
                    else (
                        match.span()
                        for match in slow.finditer(text, timeout=PATTERN_TIMEOUT_S)
                        if match[0]
                    )
                )
            ]
            return EntityRecognizer.remove_duplicates(found)

    made = Unskipped(
        supported_entity=entity,
        name=name,
        supported_language=LANGUAGE,
        patterns=[Pattern(**each) for each in fields["patterns"]],
        deny_list=fields["deny_list"],
        deny_list_score=fields["deny_list_score"],
        context=fields["context"],
    )
    made.score_thresholds = fields["score_thresholds"]
    flags = cast("int", made.global_regex_flags)
    compiled += [
        (linear(each.regex), regex.compile(each.regex, flags), each.score)
        for each in cast("Patterned", made).patterns
    ]
    return made
