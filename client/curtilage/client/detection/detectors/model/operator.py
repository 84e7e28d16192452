"""Loads a name model that the operator installed, from a folder, never from a hub.

It supports spaCy pipelines and transformers token classifiers, and checks the digest by
which a policy names one. It uses only what is in the folder: no download, no code that
comes with a model, no pickled weights. The operator installs both libraries; neither is
imported unless a policy names it.
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
from curtilage.client.system.files import folder_digest
from curtilage.policy.document.detection_plan import NerPlan

# The libraries read these when they are imported, so they are set before.
OFFLINE: Final[Mapping[str, str]] = {
    **telemetry.UNREPORTED,
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
STRIDE_PIECES: Final = 32  # the overlap of the windows of a long text
SPACY_SCORE: Final = 85  # spaCy's entities come without a score
_HIGHEST: Final = 100
_CERTAIN: Final = 1000


class OperatorModelError(Exception):
    """The operator's model is missing, not the named one, or not usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainOpinion:
    """An opinion with entities only.

    Attributes:
        entities: in the text's order.
    """

    entities: tuple[Entity, ...]

    @property
    def topics(self) -> Mapping[str, int]:
        """Empty: such a model knows no topics."""
        return {}

    def likelihood(self, kind: str, start: int, end: int) -> int:
        """Return certainty: this model cannot clear what a list suspects.

        Unless it recognises the word as something else.
        """
        del kind
        recognised = any(
            each.start < end and start < each.end for each in self.entities
        )
        return 0 if recognised else _CERTAIN


class _Entity(Protocol):
    label_: str
    start_char: int
    end_char: int


class _Document(Protocol):
    ents: Iterable[_Entity]


class SpacyPipeline(Protocol):
    """The part of a spaCy pipeline that is used."""

    def __call__(self, text: str) -> _Document:
        """Judge a text."""
        ...

    def memory_zone(self) -> AbstractContextManager[object]:
        """Return a zone; the words split in it are dropped at its end."""
        ...


class TransformersPipeline(Protocol):
    """The part of a token-classification pipeline that is used."""

    def __call__(self, text: str) -> Sequence[Mapping[str, Any]]:
        """Judge a text; one mapping per entity."""
        ...


@dataclass(frozen=True, slots=True)
class SpacyModel:
    """A spaCy pipeline with the policy's label map."""

    classes: Mapping[str, str]
    pipeline: SpacyPipeline = field(repr=False)
    person: str = PERSON

    def opinion(self, reading: Reading) -> PlainOpinion:
        """Return the entities whose labels the policy names."""
        # Outside a zone, spaCy keeps every word that it splits forever.
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
    """Load the model that a policy names, if its digest is the named one.

    The folder is hashed, then read again by the library: anyone who can write to it in
    between is trusted.

    Raises:
        OperatorModelError: it is missing, has another digest or no labels, or a
            library is missing or refuses it. The message says no more.
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
    except Exception:  # noqa: BLE001 - the libraries raise anything
        raise OperatorModelError("the model folder cannot be opened") from None


def _open_spacy(path: Path) -> SpacyPipeline:
    import spacy  # noqa: PLC0415 - needs the extra

    # With a path, it never takes the name for one to download.
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
    """Read one entity of a pipeline; raises if anything is missing or invalid."""
    return Entity(
        kind=str(found["entity_group"]),
        start=int(found["start"]),
        end=int(found["end"]),
        score=min(_HIGHEST, max(1, math.ceil(float(found["score"]) * _HIGHEST))),
    )
