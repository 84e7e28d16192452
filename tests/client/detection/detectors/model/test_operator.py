import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from curtilage.client.detection.detectors.model import operator as operator_models
from curtilage.client.detection.detectors.model.detector import (
    MissingModelDetector,
    NerDetector,
    ner_detectors,
)
from curtilage.client.detection.detectors.model.operator import (
    OperatorModelError,
    SpacyModel,
    TransformersModel,
    open_operator_model,
)
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import run
from curtilage.client.system.files import folder_digest
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.detection_plan import Engine, NerPlan

spacy = pytest.importorskip("spacy", reason="SKIPPED LOUDLY: needs the extra pii")
PERSON = "identifier.direct.person"
CANARY = "zq7canary4711"
TEXT = "The Bogdana Ilieva of Plovdiv met Quendy."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that knows two names, on disk."""
    path = tmp_path_factory.mktemp("spacy") / "pipeline"
    pipeline: Any = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns(
        [
            {"label": "PERSON", "pattern": "Bogdana Ilieva"},
            {"label": "GPE", "pattern": "Plovdiv"},
            {"label": "EVENT", "pattern": "met"},
        ]
    )
    pipeline.to_disk(path)
    return path


def plan(
    folder: Path,
    *,
    engine: Engine = "spacy",
    sha256: str | None = None,
    labels: tuple[tuple[str, str], ...] = (
        ("PERSON", PERSON),
        ("GPE", "identifier.quasi.city"),
    ),
) -> NerPlan:
    return NerPlan(
        engine=engine,
        path=str(folder),
        sha256=folder_digest(folder) if sha256 is None else sha256,
        labels=labels,
    )


def raw(text: str) -> Reading:
    return Reading(normalization=Normalization.RAW, text=text)


def classes_of(chosen: NerPlan, text: str) -> dict[str, str]:
    """What is found, by the words that it covers."""
    ((detector, views),) = ner_detectors(chosen)
    assert views == frozenset({Normalization.RAW})
    spans = run(detector, raw(text))
    return {text[each.start : each.end]: each.data_class for each in spans}


# --- spaCy --------------------------------------------------------------------


def test_spacy_labels_become_classes(folder: Path) -> None:
    found = classes_of(plan(folder), TEXT)
    assert found["Bogdana Ilieva of Plovdiv"] == PERSON
    assert found["Plovdiv"] == "identifier.quasi.city"
    assert "met" not in found


def test_what_lists_suspect_such_a_model_cannot_clear(folder: Path) -> None:
    assert classes_of(plan(folder), TEXT)["Quendy"] == PERSON


def test_no_word_stays_in_the_pipeline(folder: Path) -> None:
    model = open_operator_model(plan(folder))
    assert isinstance(model, SpacyModel)
    store: Any = model.pipeline
    model.opinion(raw("warm up"))
    before = len(store.vocab.strings)
    model.opinion(raw(f"a word {CANARY}x nobody knows"))
    assert len(store.vocab.strings) == before


def test_loading_sets_the_libraries_offline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in operator_models.OFFLINE:
        monkeypatch.setenv(name, "0")
    open_operator_model(plan(folder))
    assert {name: os.environ[name] for name in operator_models.OFFLINE} == dict(
        operator_models.OFFLINE
    )


# --- transformers, with a library as a stub --------------------------------


class Library(SimpleNamespace):
    """Notes how it was called; judges every text alike."""

    def __init__(self, answer: object) -> None:
        calls: list[tuple[str, dict[str, object]]] = []

        def pipeline(task: str, **options: object) -> Callable[[str], object]:
            calls.append((task, options))
            return lambda _: answer

        super().__init__(
            calls=calls,
            AutoTokenizer=self._loader("tokenizer", calls),
            AutoModelForTokenClassification=self._loader("model", calls),
            pipeline=pipeline,
        )

    @staticmethod
    def _loader(name: str, calls: list[tuple[str, dict[str, object]]]) -> object:
        def load(path: str, **options: object) -> str:
            calls.append((name, {"path": path, **options}))
            return name

        return SimpleNamespace(from_pretrained=load)


FOUND = [
    {"entity_group": "PER", "score": 0.871, "word": "x", "start": 4, "end": 18},
    {"entity_group": "MISC", "score": 0.9, "word": "x", "start": 0, "end": 3},
]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library(FOUND)
    monkeypatch.setitem(sys.modules, "transformers", made)  # pyright: ignore[reportArgumentType] - a module in shape
    return made


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def transformers_plan(weights: Path) -> NerPlan:
    return plan(weights, engine="transformers", labels=(("PER", PERSON),))


def test_transformers_labels_become_classes(library: Library, weights: Path) -> None:
    del library
    model = open_operator_model(transformers_plan(weights))
    assert isinstance(model, TransformersModel)
    (entity,) = model.opinion(raw(TEXT)).entities
    assert (entity.kind, entity.start, entity.end) == ("PER", 4, 18)
    assert entity.score == 88
    found = classes_of(transformers_plan(weights), TEXT)
    # What "of" joins to a name is part of it.
    assert found["Bogdana Ilieva of Plovdiv"] == PERSON


def test_transformers_loads_only_what_is_there(library: Library, weights: Path) -> None:
    open_operator_model(transformers_plan(weights))
    (_, tokenizer), (_, model), (task, pipeline) = library.calls
    for options in (tokenizer, model):
        assert options["path"] == str(weights)
        assert options["local_files_only"] is True
        assert options["trust_remote_code"] is False
    assert model["use_safetensors"] is True
    assert task == "token-classification"
    assert pipeline["stride"] == operator_models.STRIDE_PIECES


@pytest.mark.parametrize(
    "answer",
    [
        [{"score": 1.0, "start": 0, "end": 3}],
        [{"entity_group": "PER", "score": 1.0, "start": 0, "end": None}],
        [{"entity_group": "PER", "score": 1.0, "start": 0, "end": 9999}],
        [{"entity_group": "PER", "score": float("nan"), "start": 0, "end": 3}],
        None,
    ],
    ids=["no label", "no end", "outside", "no number", "nothing"],
)
def test_an_odd_answer_is_an_error(
    answer: object, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", Library(answer))  # pyright: ignore[reportArgumentType] - a module in shape
    assert "uncertain.error" in classes_of(transformers_plan(weights), TEXT).values()


def test_without_the_library_every_text_is_an_error(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert classes_of(transformers_plan(weights), TEXT) == {TEXT: "uncertain.error"}


# --- what is refused ----------------------------------------------------------


def test_another_digest_is_refused(folder: Path) -> None:
    with pytest.raises(OperatorModelError, match="not the one"):
        open_operator_model(plan(folder, sha256="00" * 32))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorModelError, match="not there"):
        open_operator_model(plan(tmp_path / "none", sha256="00" * 32))


def test_an_empty_path_is_not_the_working_folder(tmp_path: Path) -> None:
    chosen = NerPlan(
        engine="spacy", sha256=folder_digest(tmp_path), labels=(("A", "B"),)
    )
    with pytest.raises(OperatorModelError, match="not there"):
        open_operator_model(chosen)


def test_a_model_without_labels_is_refused(folder: Path) -> None:
    with pytest.raises(OperatorModelError, match="labels"):
        open_operator_model(plan(folder, labels=()))


def test_a_folder_that_is_no_pipeline_is_refused(weights: Path) -> None:
    with pytest.raises(OperatorModelError, match="cannot be opened"):
        open_operator_model(plan(weights))


@pytest.mark.parametrize(
    "broken",
    [
        NerPlan(
            engine="spacy", path="/nowhere", sha256="00" * 32, labels=(("A", "B"),)
        ),
        NerPlan(engine="transformers", path="/nowhere", sha256="", labels=()),
    ],
    ids=["spacy", "transformers"],
)
def test_a_model_that_cannot_be_loaded_fails_on_every_text(broken: NerPlan) -> None:
    ((detector, _),) = ner_detectors(broken)
    assert isinstance(detector, MissingModelDetector)
    for text in ("hello", "", TEXT):
        (span,) = run(detector, raw(text))
        assert span.data_class == "uncertain.error"


# --- the digest ---------------------------------------------------------------


def test_errors_hold_no_path(tmp_path: Path) -> None:
    for chosen in (plan(tmp_path), plan(tmp_path, sha256="11" * 32)):
        with pytest.raises(OperatorModelError) as caught:
            open_operator_model(chosen)
        assert str(tmp_path) not in str(caught.value)
        assert caught.value.__cause__ is None


def test_ner_detector_serves_operator_models(folder: Path) -> None:
    ((detector, _),) = ner_detectors(plan(folder))
    assert isinstance(detector, NerDetector)
