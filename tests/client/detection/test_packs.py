"""Each pack against texts of its own: ``packs/de.toml`` for German."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from curtilage.client.detection.detectors.names.capitals import Why, suspects
from curtilage.client.detection.detectors.names.cues import people_in
from curtilage.client.detection.detectors.topics.lexicon import LexiconDetector
from curtilage.client.detection.detectors.topics.markers import PersonMarkerDetector
from curtilage.client.detection.packs import PACKS, one_of
from curtilage.policy.document.values import COVERED_LANGUAGES
from support.equipment import as_written
from support.examples import examples

TEXTS: dict[str, dict[str, Any]] = {
    path.stem: tomllib.loads(path.read_text("utf-8"))
    for path in sorted((Path(__file__).parent / "packs").glob("*.toml"))
}
SENSITIVE = ("health.", "special.", "topic.")
KINDS = {
    "health": ("health.",),
    "special": ("special.",),
    "affairs": ("topic.",),
    "confidential": ("org.confidential",),
    "somebody": ("marker.first_person",),
    "case": ("marker.case",),
}


def classes_of(text: str) -> set[str]:
    reading = as_written(text)
    return {
        span.data_class
        for detector in (LexiconDetector(), PersonMarkerDetector())
        for span in detector.find(reading)
    }


def by_language(name: str) -> dict[str, list[Any]]:
    return {code: texts[name] for code, texts in TEXTS.items()}


@examples(
    ("kind", "text"),
    {
        code: [(kind, text) for kind in KINDS for text in texts[kind]]
        for code, texts in TEXTS.items()
    },
)
def test_each_kind_is_found_in_its_sentences(kind: str, text: str) -> None:
    assert any(each.startswith(KINDS[kind]) for each in classes_of(text))


@examples("text", by_language("nobody"))
def test_impersonal_statements_are_not_personal(text: str) -> None:
    found = classes_of(text)
    sensitive = any(each.startswith(SENSITIVE) for each in found)
    assert not (sensitive and "marker.first_person" in found)


@examples(
    ("code", "text"),
    {
        code: [
            (code, each[0] if kind == "names" else each)
            for kind in (*KINDS, "nobody", "names")
            for each in texts[kind]
        ]
        for code, texts in TEXTS.items()
    },
)
def test_a_text_is_in_its_language(code: str, text: str) -> None:
    assert code in as_written(text).packs


@examples(
    ("code", "text"),
    {code: [(code, each) for each in texts["other"]] for code, texts in TEXTS.items()},
)
def test_a_language_near_it_is_another(code: str, text: str) -> None:
    assert code not in as_written(text).packs


@examples(("text", "name"), by_language("names"))
def test_who_is_announced_is_found(text: str, name: str) -> None:
    found = {text[each.start : each.end] for each in people_in(as_written(text))}
    assert name in found


@examples("text", by_language("things"))
def test_what_is_called_after_somebody_is_a_thing(text: str) -> None:
    reading = as_written(text)
    assert not list(people_in(reading))
    # In German any noun is one, for a model to judge.
    assert all(each.why is Why.NOUN for each in suspects(reading))


def test_every_covered_language_has_a_pack_and_texts() -> None:
    assert {"en", *PACKS} == COVERED_LANGUAGES.keys()
    assert PACKS.keys() == TEXTS.keys()


@pytest.mark.parametrize("code", PACKS)
def test_patterns_are_for_text_in_lower_case(code: str) -> None:
    pack = PACKS[code]
    patterns = [
        each
        for lists in (pack.markers, pack.phrases, pack.names)
        for every in lists.values()
        for each in every
    ]
    letters = re.compile(r"\\.|[^\W\d_]")
    wrong = [
        each
        for each in patterns
        if any(found[0].isupper() for found in letters.finditer(each))
    ]
    assert not wrong


@pytest.mark.parametrize("code", PACKS)
def test_no_gap_is_open(code: str) -> None:
    """A repeat without a bound, next to another one, takes quadratic time."""
    pack = PACKS[code]
    for lists in (pack.markers, pack.phrases, pack.names):
        for every in lists.values():
            for each in every:
                assert not re.search(r"(?:\)|\]|\.|\\[wsSWdD])[*+]", each), each


def test_one_of_nothing_matches_nothing() -> None:
    assert not one_of(()).search("")
