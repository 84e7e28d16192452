"""Lists the code that the promise rests on, and runs its proofs: `make audit`.

The three lists are in docs/auditing.md: what carries the promise, what that depends on,
and what need not be trusted. They are read from there, and their lines are counted
again in the code. The doors are those of pyproject.toml. Then ruff's list of banned
modules, the import contracts and the tests that the document names are run, and nothing
else.

``make audit ARGS=--count`` writes the counts of today into the documents.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "auditing.md"
FRONT = ROOT / "README.md"
SETTINGS = ROOT / "pyproject.toml"
THE_LINE = (
    "policy/curtilage/policy/decision/decide.py",
    "if decisive.route is Route.ENCLAVE:",
)
BANS = "[tool.ruff.lint.flake8-tidy-imports.banned-api]"
# A contract's own tables belong to its section.
_SECTION = re.compile(r"\n(?=\[(?!tool\.importlinter\.contracts\.))")
DOORS = "[tool.curtilage.doors"
_ROW = re.compile(r"^\| (?P<first>[^|]*)\| (?P<second>[^|]*) \| (?P<third>[^|]*) \|$")
_CODE = re.compile(r"`([^`]+)`")
_COUNTED = re.compile(r"(`([\w./]+)`(?:\]\(\S+\))? \| )([\d,]+)(?= \|)")
CARRIES = "## What carries the promise"
DEPENDS_ON = "## What it depends on"
NOT_TRUSTED = "## What need not be trusted"
MOST = {CARRIES: 2170, DEPENDS_ON: 1980}
"""The most lines of the two lists: an afternoon, and a second day."""
_SUMS = {
    CARRIES: re.compile(r"(about )([\d,]+)(?= lines, an afternoon)"),
    DEPENDS_ON: re.compile(r"(about )([\d,]+)(?= lines, a second day)"),
}


@dataclass(frozen=True)
class File:
    """One row of the document's list.

    Attributes:
        path: a file, or a folder of files of Python, below the root.
        said: how many lines the document says it has.
        counted: how many it has.
    """

    path: str
    said: int
    counted: int

    @property
    def agrees(self) -> bool:
        """Whether the document is right, to the line or rounded to ten."""
        return self.said in {self.counted, round(self.counted, -1)}


@dataclass(frozen=True)
class Step:
    """One step of the audit: its title, and what proves it."""

    title: str
    contracts: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Unneeded:
    """One row of what need not be trusted.

    Attributes:
        step: to which step it belongs.
        paths: files and folders.
        test: the one that would fail, were the promise broken there.
    """

    step: str
    paths: tuple[str, ...]
    test: str


def steps(text: str | None = None) -> tuple[Step, ...]:
    """Return the document's steps.

    Args:
        text: the document, where it is not the one in the tree.
    """
    text = DOCUMENT.read_text("utf-8") if text is None else text
    return tuple(
        Step(first, tuple(_CODE.findall(second)), tuple(_CODE.findall(third)))
        for first, second, third in _rows(text, "## What proves it")
        if first[:1].isdigit()
    )


def files(heading: str) -> dict[str, tuple[File, ...]]:
    """Return what is to be read, by steps, counted anew.

    Args:
        heading: ``CARRIES`` or ``DEPENDS_ON``.
    """
    chosen = {name for step in steps() for name in step.contracts}
    found: dict[str, tuple[File, ...]] = {}
    title = ""
    for first, second, third in _rows(DOCUMENT.read_text("utf-8"), heading):
        title = first or title
        for path in _CODE.findall(second):
            said = int(third.replace(",", ""))
            more = (File(path, said, count(path, chosen)),)
            found[title] = (*found.get(title, ()), *more)
    return found


def lines_of(heading: str) -> int:
    """Return how many lines of code a list has; names in the settings do not count."""
    return sum(
        each.counted
        for found in files(heading).values()
        for each in found
        if ROOT / each.path != SETTINGS
    )


def unneeded() -> tuple[Unneeded, ...]:
    """Return what need not be trusted, with the test that proves it for each."""
    rows: list[Unneeded] = []
    for first, second, third in _rows(DOCUMENT.read_text("utf-8"), NOT_TRUSTED):
        step = first or (rows[-1].step if rows else "")
        (test,) = _CODE.findall(third)
        paths = tuple(each for each in _CODE.findall(second) if "/" in each)
        rows.append(Unneeded(step, paths, test))
    return tuple(rows)


def _rows(text: str, heading: str) -> list[tuple[str, str, str]]:
    """Return the cells of the tables of three columns below a heading."""
    section = text.partition(f"{heading}\n")[2].partition("\n## ")[0]
    found = (_ROW.match(line) for line in section.splitlines())
    return [
        (row["first"].strip(), row["second"].strip(), row["third"].strip())
        for row in found
        if row is not None and _CODE.search(row["second"])
    ]


def count(path: str, contracts: set[str]) -> int:
    """Return the lines of a file, or of a folder's files together.

    Of the settings only what the audit is about: bans, doors, the contracts.
    """
    place = ROOT / path
    if place == SETTINGS:
        return len(_of_settings(contracts))
    found = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    found = [file for file in found if file.is_file()]  # a lost one has no lines
    return sum(len(file.read_text("utf-8").splitlines()) for file in found)


def _of_settings(contracts: set[str]) -> list[str]:
    """Return the lines of the settings' sections that matter here."""
    kept: list[str] = []
    for section in _SECTION.split(SETTINGS.read_text("utf-8")):
        named = re.search(r'^id = "([^"]+)"', section, re.MULTILINE)
        if section.startswith((BANS, DOORS)) or (named and named[1] in contracts):
            kept += section.rstrip().splitlines()
    return kept


def the_line() -> tuple[str, int, str]:
    """Return the place and text of the line that stops a regulated query."""
    path, start = THE_LINE
    for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1):
        if line.strip().startswith(start):
            return path, number, line.strip()
    raise LookupError(f"{path}: no line that begins with {start!r}")


def doors() -> dict[str, dict[str, str]]:
    """Return every door that the linters know: module, what it uses, why."""
    tool = cast("dict[str, Any]", tomllib.loads(SETTINGS.read_text("utf-8"))["tool"])
    return cast("dict[str, dict[str, str]]", tool["curtilage"]["doors"])


def libraries() -> dict[str, list[str]]:
    """Return who may import each library: the table of the contract ``libraries``."""
    tool = cast("dict[str, Any]", tomllib.loads(SETTINGS.read_text("utf-8"))["tool"])
    contracts = cast("list[dict[str, Any]]", tool["importlinter"]["contracts"])
    (table,) = (each["doors"] for each in contracts if each["type"] == "doors")
    return {
        library: importers
        for library, importers in cast("dict[str, list[str]]", table).items()
        if not library.startswith("curtilage.")
    }


def corrected(text: str) -> str:
    """Return a document with today's counts, rounded to ten, where it was wrong.

    The sums are rounded to a hundred.
    """
    contracts = {name for step in steps() for name in step.contracts}

    def right(match: re.Match[str]) -> str:
        said = int(match[3].replace(",", ""))
        file = File(match[2], said, count(match[2], contracts))
        return match[0] if file.agrees else f"{match[1]}{round(file.counted, -1):,}"

    text = _COUNTED.sub(right, text)
    for heading, pattern in _SUMS.items():
        text = pattern.sub(rf"\g<1>{round(lines_of(heading), -2):,}", text)
    return text


def parts() -> list[str]:
    """Return the folders of the product's parts."""
    return sorted(path.parent.name for path in ROOT.glob("*/curtilage"))


def main() -> int:
    """Show the list, run the proofs; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", action="store_true", help="write today's counts")
    documents = {path: path.read_text("utf-8") for path in (FRONT, DOCUMENT)}
    if parser.parse_args().count:
        for path, text in documents.items():
            path.write_text(corrected(text), "utf-8")
        return 0
    found = steps()
    _show(found)
    drifted = [p.name for p, text in documents.items() if corrected(text) != text]
    contracts = sorted({name for step in found for name in step.contracts})
    tests = sorted(
        {path for step in found for path in step.tests}
        | {each.test for each in unneeded()}
    )
    chosen = [word for name in contracts for word in ("--contract", name)]
    runs = (
        (
            "banned ways out, in every part",
            ["ruff", "check", "--select=TID251", *parts()],
        ),
        ("import contracts", ["lint-imports", "--no-logo", *chosen]),
        ("tests", ["python", "-m", "pytest", "-q", *tests]),
    )
    failed = [what for what, command in runs if not _run(what, command)]
    failed += [f"the counts in {name} (make audit ARGS=--count)" for name in drifted]
    _say(f"\nnot proven: {', '.join(failed)}" if failed else "\nall of it holds")
    return 1 if failed else 0


def _show(found: tuple[Step, ...]) -> None:
    path, number, line = the_line()
    _say(f"the line that stops a regulated query: {path}:{number}\n    {line}")
    show_lists()
    _say("\nSteps, and what proves them")
    for step in found:
        _say(f"  {step.title}: {', '.join((*step.contracts, *step.tests))}")
    _say("\nDoors: who may use a way out, and what for; everything else is banned")
    for module, uses in sorted(doors().items()):
        for name, reason in uses.items():
            _say(f"  {module.removeprefix('curtilage.'):<36} {name}: {reason}")
    _say("\nLibraries, and which modules may import each")
    for library, importers in sorted(libraries().items()):
        for module in importers:
            _say(f"  {module.removeprefix('curtilage.'):<36} {library}")


def show_lists() -> None:
    """Show the three lists of the document."""
    for heading in (CARRIES, DEPENDS_ON):
        total = lines_of(heading)
        _say(f"\n{heading[3:]}: {total:,} lines (docs/auditing.md)")
        for title, read in files(heading).items():
            _say(title)
            for each in read:
                _say(f"  {each.counted:>6,}  {each.path}")
    _say(f"\n{NOT_TRUSTED[3:]}, and the test that proves it")
    for row in unneeded():
        for path in row.paths:
            _say(f"  {row.step[:1]}  {path}: {row.test}")


def _run(what: str, command: list[str]) -> bool:
    """Run a program of the virtual environment; return whether it succeeded."""
    _say(f"\n== {what}")
    started = time.monotonic()
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], cwd=ROOT, check=False)
    took = time.monotonic() - started
    _say(f"== {what}: {'held' if done.returncode == 0 else 'FAILED'}, {took:.0f} s")
    return done.returncode == 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    sys.exit(main())
