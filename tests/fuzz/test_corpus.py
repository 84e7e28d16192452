"""The corpus passes: every kept input, tried again."""

import importlib
import lzma
from pathlib import Path

import pytest
from fuzz import corpus
from fuzz.common import Harness, hold, try_damaged
from fuzz.seeds import every_seed, evidence, file_name

HERE = Path(__file__).resolve().parent
FILES = sorted(path.stem for path in HERE.glob("fuzz_*.py"))
DAMAGED = 100


def harnesses_of(file: str) -> list[Harness]:
    return list(importlib.import_module(f"fuzz.{file}").HARNESSES)


HARNESSES = [harness for file in FILES for harness in harnesses_of(file)]


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_corpus_finds_nothing(harness: Harness) -> None:
    inputs = corpus.inputs(harness.name)
    assert len(inputs) > 1
    for data in inputs.values():
        harness.check(data)


@pytest.mark.parametrize("file", FILES)
def test_damaged_inputs_find_nothing(file: str) -> None:
    harnesses = [
        (each, list(corpus.inputs(each.name).values())) for each in harnesses_of(file)
    ]
    assert try_damaged(file, harnesses, seed=b"\0", more=lambda n: n < DAMAGED)


def test_a_finding_is_reported_with_its_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    harness = Harness(name="nothing_at_all", check=lambda data: hold(len(data) > 9))
    assert not try_damaged(
        "fuzz_nothing", [(harness, [b""])], seed=b"\x0a", more=lambda _: True
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing_at_all: seed 0a input " in captured.err


def test_names_are_their_own_and_every_input_has_a_harness() -> None:
    names = [harness.name for harness in HARNESSES]
    assert len(set(names)) == len(names)
    broken = {path.name for path in corpus.FOUND.iterdir() if path.is_dir()}
    assert {*corpus.archived(), *corpus.made(), *broken} == set(names)
    seeds = [(harness, file_name(name)) for harness, name, _ in every_seed()]
    assert len(set(seeds)) == len(seeds)


def test_no_source_hides_an_input_of_another() -> None:
    for harness in HARNESSES:
        archived = corpus.archived().get(harness.name, {})
        made = corpus.made().get(harness.name, {})
        broke = corpus.broke(harness.name)
        every = len(archived) + len(made) + len(broke)
        assert len(corpus.inputs(harness.name)) == 1 + every, harness.name


def test_seeds_of_evidence_are_there() -> None:
    for harness, name, _ in evidence():
        assert file_name(name) in corpus.archived()[harness]


def test_archive_depends_on_names_and_content_alone() -> None:
    tar = lzma.decompress(corpus.ARCHIVE.read_bytes())
    assert tar == corpus.packed(corpus.archived())
    backwards = {
        harness: dict(reversed(list(inputs.items())))
        for harness, inputs in reversed(list(corpus.archived().items()))
    }
    assert tar == corpus.packed(backwards)


def test_every_harness_states_its_invariant_first() -> None:
    for harness in HARNESSES:
        first = (harness.check.__doc__ or "").partition("\n")[0]
        assert first.endswith("."), harness.name


def test_corpus_is_small() -> None:
    assert corpus.ARCHIVE.stat().st_size < 200_000
    inputs = [corpus.inputs(harness.name).values() for harness in HARNESSES]
    assert sum(len(data) for each in inputs for data in each) < 1_000_000
