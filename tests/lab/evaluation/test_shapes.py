"""Generated texts: the same in each run, held out, and measured as they should be."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from curtilage.client.chat.query import Query
from curtilage.client.detection.inspection import prepare
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.wordlists import is_known
from curtilage.lab.evaluation.bench import Bench
from curtilage.lab.evaluation.data_files import items
from curtilage.lab.evaluation.figures import Figure
from curtilage.lab.evaluation.made_up import texts
from curtilage.lab.evaluation.rows import Part
from curtilage.lab.evaluation.shapes import MADE, made, shapes
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.document.load import load_profile

LANGUAGES = tuple(str(fields["lang"]) for fields in texts("shapes"))
(ENGLISH,) = texts("shapes", "en")
EN_GIVEN = [str(each) for each in items(ENGLISH["given"])]
GIVEN = "|".join(EN_GIVEN)
NOTHING = r"(?!)"
LARGE = ("title", "particle", "lower", "dictated", "code", "secret", "budget", "kin")
NAMES = ("title", "lower")
POLICY = load_profile("default")


class Pattern:
    """Detectors that find what one pattern matches, as people, and nothing else."""

    advice: str | None = None

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        for query in queries:
            prepared = prepare(query, POLICY.limits)
            found = [
                _person(match)
                for text in prepared.texts
                for match in re.finditer(self._pattern, text)
            ]
            yield prepared.with_findings(found)


def _person(match: re.Match[str]) -> Finding:
    return Finding(
        data_class="identifier.direct.person",
        detector="made-up",
        start=match.start(),
        end=match.end(),
        score=90,
        validated=False,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )


def figures(pattern: str, part: Part = Part.ALL) -> dict[str, Figure]:
    bench = Bench(
        data=Path(),
        part=part,
        limit=4,
        policy=POLICY,
        inspectors=[Pattern(pattern)],
    )
    return {each.id: each for each in shapes(bench)}


def test_all_seven_languages_have_templates() -> None:
    assert set(LANGUAGES) == {"en", *PACKS}


@pytest.mark.parametrize("shape", LARGE)
def test_each_language_has_five_hundred_different_texts(shape: str) -> None:
    for lang in LANGUAGES:
        rows = made(shape, lang, MADE)
        assert len({row.text for row in rows}) >= 500
        assert not any("{" in row.text for row in rows)
        assert rows == made(shape, lang, MADE)


@pytest.mark.parametrize("shape", NAMES)
def test_what_is_marked_is_a_surname_of_no_word_list(shape: str) -> None:
    for lang in LANGUAGES:
        names = [row.value(row.gold[0]) for row in made(shape, lang, MADE)]
        known = [
            name
            for name in names
            if is_known(name) or (lang in PACKS and name.lower() in PACKS[lang].words)
        ]
        assert not known
        assert len(set(names)) >= 100


def test_detectors_that_find_nothing_keep_nothing() -> None:
    found = figures(NOTHING)
    for lang in LANGUAGES:
        assert found[f"shapes.title.{lang}"].estimate.value == 0
        assert found[f"shapes.secret.{lang}"].met is False
        assert found[f"shapes.budget.{lang}"].estimate.value == 0
        assert found[f"shapes.harmless.{lang}"].estimate.value == 1
        # No text has a token, so none lost its names and kept the rest.
        assert found[f"shapes.usable.{lang}"].estimate.value == 0


@pytest.mark.parametrize(
    ("pattern", "usable"),
    [
        (rf"(?:{GIVEN})(?: [A-Z][a-z]+)?", True),
        # Findings of ordinary words, a word of each template.
        (rf"(?:{GIVEN})(?: [A-Z][a-z]+)?|Summary|Friday|badge|Subject|again", False),
    ],
)
def test_a_rewritten_text_is_usable_where_only_names_are_replaced(
    pattern: str, *, usable: bool
) -> None:
    estimate = figures(pattern)["shapes.usable.en"].estimate
    assert estimate.n == 5 * len(EN_GIVEN)
    assert (estimate.value > 0) is usable


def test_they_are_held_out() -> None:
    found = figures(NOTHING, Part.DEVELOPED).values()
    assert not any(each.estimate.n for each in found)
