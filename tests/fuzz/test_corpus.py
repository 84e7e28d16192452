"""The corpus holds: every input that was ever worth keeping, tried again."""

import importlib
from pathlib import Path

import pytest
from fuzz.common import CORPUS, Harness
from fuzz.seeds import every_seed, evidence, file_name

HERE = Path(__file__).resolve().parent
FILES = sorted(path.stem for path in HERE.glob("fuzz_*.py"))


def harnesses_of(file: str) -> list[Harness]:
    return list(importlib.import_module(f"fuzz.{file}").HARNESSES)


HARNESSES = [harness for file in FILES for harness in harnesses_of(file)]


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_corpus_finds_nothing(harness: Harness) -> None:
    seeds = harness.seeds()
    assert len(seeds) > 1
    for data in seeds:
        harness.check(data)


def test_seeds_are_those_in_the_tree() -> None:
    for harness, name, data in every_seed():
        assert (CORPUS / harness / file_name(name)).read_bytes() == data, name


def test_seeds_of_evidence_are_there() -> None:
    for harness, name, _ in evidence():
        assert (CORPUS / harness / file_name(name)).is_file()


def test_names_are_their_own_and_every_folder_has_a_harness() -> None:
    names = [harness.name for harness in HARNESSES]
    assert len(set(names)) == len(names)
    assert {path.name for path in CORPUS.iterdir()} == set(names)
    seeds = [(harness, file_name(name)) for harness, name, _ in every_seed()]
    assert len(set(seeds)) == len(seeds)


def test_every_harness_states_its_invariant_first() -> None:
    for harness in HARNESSES:
        first = (harness.check.__doc__ or "").partition("\n")[0]
        assert first.endswith("."), harness.name


def test_corpus_is_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
