"""Load a names model that the operator installed, from a folder, never a hub.

Knows spaCy pipelines and transformers token classifiers, and the digest by
which a policy names one. Refuses everything that is not in the folder: no
download, no code that comes with a model, no pickled weights. Both libraries
are the operator's to install; neither is imported before it is named.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

from curtilage.client import telemetry
from curtilage.client.detection.detectors.model.entity import Entity
from curtilage.client.detection.detectors.names.cues import PERSON
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.errors import ConfigError
from curtilage.client.files import folder_digest
from curtilage.policy.document.detection_plan import NerPlan

# Read by the libraries when they are imported; set before that happens.
OFFLINE: Final[Mapping[str, str]] = {
    **telemetry.UNREPORTED,
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
STRIDE_PIECES: Final = 32  # windows of a long text overlap by so much
SPACY_SCORE: Final = 85  # spaCy's entities come without one
_HIGHEST: Final = 100
_CERTAIN: Final = 1000


class OperatorModelError(Exception):
    """The operator's model is not there, not the one named, or not usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainOpinion:
    """Entities, and nothing about any other word.

    Attributes:
        entities: in the text's order.
    """

    entities: tuple[Entity, ...]

    @property
    def topics(self) -> Mapping[str, int]:
        """Nothing: such a model knows no topics."""
        return {}

    def likelihood(self, kind: str, start: int, end: int) -> int:
        """Return certainty: what a list suspects, this model cannot clear.

        Unless it says what it is.
        """
        del kind
        told = any(each.start < end and start < each.end for each in self.entities)
        return 0 if told else _CERTAIN


class _Entity(Protocol):
    label_: str
    start_char: int
    end_char: int


class _Document(Protocol):
    ents: Iterable[_Entity]


class SpacyPipeline(Protocol):
    """What is used of a spaCy pipeline."""

    def __call__(self, text: str) -> _Document:
        """Judge a text."""
        ...

    def memory_zone(self) -> AbstractContextManager[object]:
        """Return a zone after which no word is kept of those split in it."""
        ...


class TransformersPipeline(Protocol):
    """What is used of a token-classification pipeline."""

    def __call__(self, text: str) -> Sequence[Mapping[str, Any]]:
        """Judge a text; one mapping for each entity."""
        ...


@dataclass(frozen=True, slots=True)
class SpacyModel:
    """A spaCy pipeline with the policy's label map."""

    classes: Mapping[str, str]
    pipeline: SpacyPipeline = field(repr=False)
    person: str = PERSON

    def opinion(self, reading: Reading) -> PlainOpinion:
        """Return the entities whose labels the policy names."""
        # Every word that spaCy splits outside a zone is kept for good.
        with self.pipeline.memory_zone():
            found = tuple(
                Entity(
                    kind=each.label_,
                    start=each.start_char,
                    end=each.end_char,
                    score=SPACY_SCORE,
                )
                for each in self.pipeline(reading.text).ents
                if each.label_ in self.classes
            )
        return PlainOpinion(entities=found)


@dataclass(frozen=True, slots=True)
class TransformersModel:
    """A token classifier with the policy's label map."""

    classes: Mapping[str, str]
    pipeline: TransformersPipeline = field(repr=False)
    person: str = PERSON

    def opinion(self, reading: Reading) -> PlainOpinion:
        """Return the entities whose labels the policy names."""
        found = (_entity(each) for each in self.pipeline(reading.text))
        return PlainOpinion(
            entities=tuple(each for each in found if each.kind in self.classes)
        )


def open_operator_model(plan: NerPlan) -> SpacyModel | TransformersModel:
    """Load the model that a policy names, if it is that one.

    The folder is hashed, then read again by the library: whoever may write to
    it in between is trusted.

    Raises:
        OperatorModelError: not there, another digest, no labels, or a library
            that is missing or refuses; says no more.
    """
    if not plan.labels:
        raise OperatorModelError("the policy maps none of the model's labels")
    path = Path(plan.path)
    if not plan.path or not path.is_dir():
        raise OperatorModelError("the policy's model folder is not there")
    try:
        digest = folder_digest(path)
    except ConfigError as error:
        raise OperatorModelError(f"the model folder {error}") from None
    if digest != plan.sha256:
        raise OperatorModelError("the model folder is not the one that was named")
    os.environ.update(OFFLINE)
    telemetry.silence_libraries()
    classes = dict(plan.labels)
    try:
        if plan.engine == "spacy":
            return SpacyModel(classes, _open_spacy(path))
        return TransformersModel(classes, _open_transformers(path))
    except Exception:  # noqa: BLE001 - the libraries raise what they like
        raise OperatorModelError("the model folder cannot be opened") from None


def _open_spacy(path: Path) -> SpacyPipeline:
    import spacy  # noqa: PLC0415 - needs the extra

    # A path is never taken for a name to download.
    return cast("SpacyPipeline", spacy.load(path))


def _open_transformers(path: Path) -> TransformersPipeline:
    import transformers  # noqa: PLC0415 # pyright: ignore[reportMissingImports]

    library: Any = transformers
    only_here = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = library.AutoTokenizer.from_pretrained(
        str(path), use_fast=True, **only_here
    )
    model = library.AutoModelForTokenClassification.from_pretrained(
        str(path), use_safetensors=True, **only_here
    )
    made = library.pipeline(
        "token-classification",
        model=model,
        tokenizer=tokenizer,
        aggregation_strategy="max",
        stride=STRIDE_PIECES,
        device=-1,
    )
    return cast("TransformersPipeline", made)


def _entity(found: Mapping[str, Any]) -> Entity:
    """Read one entity of a pipeline; whatever is missing or odd raises."""
    return Entity(
        kind=str(found["entity_group"]),
        start=int(found["start"]),
        end=int(found["end"]),
        score=min(_HIGHEST, max(1, math.ceil(float(found["score"]) * _HIGHEST))),
    )
