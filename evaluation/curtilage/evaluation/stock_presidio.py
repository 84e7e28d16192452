"""Plain Presidio, as it comes: what this project's detectors are compared with.

Its own registry of recognizers, its own scores, a blank English tokenizer since
no model may be downloaded. Nothing of it is used to decide anything. Imported
lazily: the extra is ``pii``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.detection.worker import require_presidio

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine

THRESHOLD: Final = 35  # of 100; below, Presidio guesses
_LANGUAGE: Final = "en"
_MAX_CHARS: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StockSpan:
    """One result of Presidio.

    Attributes:
        kind: Presidio's own name of the entity.
        start: first character.
        end: one past the last.
    """

    kind: str
    start: int
    end: int


class StockPresidio:
    """The engine as its documentation sets it up, without a model."""

    def __init__(self) -> None:
        require_presidio()
        telemetry.silence_libraries()
        import tldextract  # noqa: PLC0415 - comes with Presidio

        # The list of suffixes that came with the package; the first use fetches one.
        offline = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
        setattr(tldextract, "extract", offline)  # noqa: B010 - unknown to its types
        self._engine = _stock_analyzer()

    def spans(self, text: str) -> Sequence[StockSpan]:
        """Return what it reports at the usual threshold."""
        found = self._engine.analyze(
            text, language=_LANGUAGE, score_threshold=THRESHOLD / 100
        )
        return [
            StockSpan(kind=each.entity_type, start=each.start, end=each.end)
            for each in found
        ]


def _stock_analyzer() -> "AnalyzerEngine":
    import spacy  # noqa: PLC0415
    from presidio_analyzer import AnalyzerEngine  # noqa: PLC0415
    from presidio_analyzer.nlp_engine import SpacyNlpEngine  # noqa: PLC0415

    class Blank(SpacyNlpEngine):
        """The engine of spaCy with its tokenizer only."""

        @override
        def load(self) -> None:
            """Make the tokenizer; the default would download a model."""
            blank = spacy.blank(_LANGUAGE)
            blank.max_length = _MAX_CHARS
            setattr(self, "nlp", {_LANGUAGE: blank})  # noqa: B010 - None there

    engine = Blank()
    engine.load()
    return AnalyzerEngine(
        nlp_engine=engine, log_decision_process=False, supported_languages=[_LANGUAGE]
    )
