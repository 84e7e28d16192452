"""docs/auditing.md and the README name what is in the code, and how much of it."""

import re
from pathlib import Path
from typing import cast

import pytest
from tools import audit

from support.doors import CONTRACTS
from support.doors import parts as parts_of

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENT = audit.DOCUMENT.read_text("utf-8")
STEPS = audit.steps()


def test_there_are_seven_steps_with_files_contracts_and_tests() -> None:
    assert [step.title[:2] for step in STEPS] == [f"{n}." for n in range(1, 8)]
    assert all(step.files and step.contracts and step.tests for step in STEPS)


@pytest.mark.parametrize("text", [DOCUMENT, README], ids=["auditing.md", "README"])
def test_the_line_counts_are_true(text: str) -> None:
    """Where it fails: `make audit ARGS=--count` writes the right ones."""
    assert text.split("\n") == audit.corrected(text).split("\n")


@pytest.mark.parametrize("off", [-11, 11])
@pytest.mark.parametrize("text", [DOCUMENT, README], ids=["auditing.md", "README"])
def test_a_count_that_has_drifted_is_seen(text: str, off: int) -> None:
    row = re.search(r"(`client/[^|]+ \| )(\d+) \|", text)
    assert row is not None
    wrong = text.replace(row[0], f"{row[1]}{int(row[2]) + off} |")
    assert audit.corrected(wrong) != wrong


@pytest.mark.parametrize("text", [DOCUMENT, README], ids=["auditing.md", "README"])
def test_a_sum_that_has_drifted_is_seen(text: str) -> None:
    wrong = re.sub(r"about [\d,]+ lines", "about 9,900 lines", text)
    assert wrong != text
    assert audit.corrected(wrong) == audit.corrected(text)


def test_every_contract_and_test_that_is_named_exists() -> None:
    ids = {cast("str", each["id"]) for each in CONTRACTS if "id" in each}
    assert {name for step in STEPS for name in step.contracts} <= ids
    named = [path for step in STEPS for path in step.tests]
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_library_that_could_be_a_way_out_is_held_by_a_named_contract() -> None:
    """Else it could be imported anywhere, and `make audit` would end green."""
    named = {name for step in STEPS for name in step.contracts}
    plain = {"cbor2", "jinja2", "pydantic", "pyhpke", "yaml"}  # bytes in, values out
    at_the_detectors = next(each for each in CONTRACTS if each.get("id") == "apart")
    held = plain | set(cast("list[str]", at_the_detectors["forbidden_modules"]))
    for each in CONTRACTS:
        for name in cast("list[str]", each.get("protected_modules", ())):
            if not name.startswith("curtilage.") and name not in held:
                assert each.get("id") in named, name


def test_the_doors_that_are_shown_hold_the_libraries() -> None:
    shown = audit.libraries()
    assert "curtilage.client.endpoint.server" in shown["aiohttp"]
    assert shown["huggingface_hub"] == ["curtilage.client.local.download"]


def test_every_contract_is_explained() -> None:
    section = DOCUMENT.partition("## What proves it")[2].partition("## What to see")[0]
    explained = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    assert {name for step in STEPS for name in step.contracts} == explained


def test_the_line_that_stops_a_query_is_shown_as_it_stands() -> None:
    path, _, line = audit.the_line()
    assert f"`{path}`:\n\n    {line}\n" in DOCUMENT
    assert f"`{line}`" in README
    assert path in README


def test_every_part_is_searched_for_ways_out() -> None:
    assert audit.parts() == sorted(part.parent.name for part in parts_of(ROOT))
