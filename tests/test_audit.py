"""docs/auditing.md and the README name what is in the code, and how much of it."""

import re
from pathlib import Path
from typing import cast

import pytest
from test_doors import AT_THE_DESK
from tools import audit

from support.doors import CONTRACTS
from support.doors import parts as parts_of

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENT = audit.DOCUMENT.read_text("utf-8")
STEPS = audit.steps()


LISTS = [audit.CARRIES, audit.DEPENDS_ON]
ROWS = audit.unneeded()


def test_there_are_seven_steps_with_contracts_and_tests() -> None:
    assert [step.title[:2] for step in STEPS] == [f"{n}." for n in range(1, 8)]
    assert all(step.contracts and step.tests for step in STEPS)
    titles = {step.title for step in STEPS}
    assert (
        set(audit.files(audit.CARRIES)) | set(audit.files(audit.DEPENDS_ON)) <= titles
    )
    assert {row.step for row in ROWS} == {str(n) for n in range(1, 8)}


@pytest.mark.parametrize("heading", LISTS)
def test_what_is_to_be_read_can_be_read_in_its_time(heading: str) -> None:
    assert 0 < audit.lines_of(heading) <= audit.MOST[heading]


def test_no_file_is_in_two_lists_and_each_exists() -> None:
    read = [
        each.path
        for heading in LISTS
        for found in audit.files(heading).values()
        for each in found
    ]
    rest = [path for row in ROWS for path in row.paths]
    assert len(set(read + rest)) == len(read + rest)
    assert [path for path in (*read, *rest) if not (ROOT / path).exists()] == []
    assert [row for row in ROWS if not row.paths] == []


def test_each_module_at_the_desk_is_listed_or_proved_by_a_test() -> None:
    """Who mints, redeems, decides or inspects is on one of the three lists."""
    read = {
        each.path
        for heading in LISTS
        for found in audit.files(heading).values()
        for each in found
    }
    named = read | {path for row in ROWS for path in row.paths}
    paths = {
        f"{module.split('.')[1]}/{module.replace('.', '/')}.py"
        for modules in AT_THE_DESK.values()
        for module in modules
        if not module.startswith(("curtilage.attest", "curtilage.cli"))
    }
    assert {
        path for path in paths if not path.startswith(tuple(sorted(named)))
    } == set()


def test_make_audit_shows_the_same_lists(capsys: pytest.CaptureFixture[str]) -> None:
    audit.show_lists()
    shown = capsys.readouterr().out
    for heading in LISTS:
        assert f"{heading[3:]}: {audit.lines_of(heading):,} lines" in shown
        for found in audit.files(heading).values():
            assert all(f"{each.counted:>6,}  {each.path}\n" in shown for each in found)
    for row in ROWS:
        assert all(f"{path}: {row.test}\n" in shown for path in row.paths)


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
    sums = re.compile(r"about [\d,]+ lines, (an afternoon|a second day)")
    wrong = sums.sub(r"about 9,900 lines, \1", text)
    assert wrong != text
    assert audit.corrected(wrong) == audit.corrected(text)


def test_every_contract_and_test_that_is_named_exists() -> None:
    ids = {cast("str", each["id"]) for each in CONTRACTS if "id" in each}
    assert {name for step in STEPS for name in step.contracts} <= ids
    named = [path for step in STEPS for path in step.tests]
    named += [row.test for row in ROWS]
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_a_step_names_the_contract_that_holds_the_libraries() -> None:
    """Else one could be imported anywhere, and `make audit` would end green."""
    held = [each.get("id") for each in CONTRACTS if each["type"] == "doors"]
    assert held == ["libraries"]
    assert "libraries" in {name for step in STEPS for name in step.contracts}


def test_the_doors_that_are_shown_hold_the_libraries() -> None:
    shown = audit.libraries()
    assert "curtilage.client.endpoint.server" in shown["aiohttp"]
    assert shown["huggingface_hub"] == ["curtilage.client.local.registry.download"]


def test_every_contract_is_explained() -> None:
    section = DOCUMENT.partition("## What proves it")[2].partition("## What to see")[0]
    explained = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    assert {name for step in STEPS for name in step.contracts} == explained


def test_the_line_that_stops_a_query_is_quoted_exactly() -> None:
    path, _, line = audit.the_line()
    assert f"`{path}`:\n\n    {line}\n" in DOCUMENT
    assert f"`{line}`" in README
    assert path in README


def test_every_part_is_searched_for_ways_out() -> None:
    assert audit.parts() == sorted(part.parent.name for part in parts_of(ROOT))
