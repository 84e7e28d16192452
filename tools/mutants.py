"""Take out refusals one by one; the tests named for each must then fail.

Works on a copy of the tree, so that nothing here is ever changed. The list,
``mutants.toml``, is a sample of the refusals in every part, not all of them:
those that matter most. ``make test-removal`` runs it;
if a check was moved and the list was not updated, it reports that before it runs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = sorted(path.parent.name for path in ROOT.glob("*/curtilage"))
COPIED = (
    *PARTS,
    "dev",
    "tests",
    "docs",
    "requirements",
    "deploy",
    "benchmarks",
    "tools",
)
FILES = ("pyproject.toml", "README.md", "compose.yaml", "Makefile")


@dataclass(frozen=True)
class Mutant:
    """One check taken out.

    Attributes:
        file: that contains it.
        old: the check's text; must occur exactly once.
        new: its replacement.
        tests: must fail then; arguments of pytest, split on spaces.
    """

    file: str
    old: str
    new: str
    tests: str

    @property
    def name(self) -> str:
        """The check, in one line."""
        return f"{Path(self.file).stem}: {' '.join(self.old.split())[:60]}"


def _listed(file: Path) -> tuple[Mutant, ...]:
    tables = tomllib.loads(file.read_text("utf-8"))["mutant"]
    return tuple(Mutant(**table) for table in tables)


MUTANTS = _listed(Path(__file__).with_suffix(".toml"))


def out_of_date(mutants: Iterable[Mutant]) -> list[str]:
    """Return the entries of the list that no longer match.

    A check must occur in its file once, so that it is the one that is removed, and
    the first word of ``tests`` must be a file: for a missing path pytest ends with
    an error, and an error is not a failed test.
    """
    wrong: list[str] = []
    for mutant in mutants:
        file = ROOT / mutant.file
        count = file.read_text("utf-8").count(mutant.old) if file.is_file() else 0
        if count != 1:
            wrong.append(f"{mutant.file} has this {count} times: {mutant.name}")
        tests = mutant.tests.split()[0]
        if not (ROOT / tests).is_file():
            wrong.append(f"{tests} is no file: {mutant.name}")
    return wrong


def main() -> int:
    """Return 1 if a mutant survived, 2 if the list is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose name has a word")
    words = parser.parse_args().words
    chosen = [m for m in MUTANTS if not words or any(w in m.name for w in words)]
    if stale := out_of_date(MUTANTS):
        _say("tools/mutants.toml is out of date:\n" + "\n".join(stale))
        return 2
    survived: list[str] = []
    with tempfile.TemporaryDirectory(prefix="curtilage-mutants-") as scratch:
        tree = _copy(Path(scratch))
        for number, mutant in enumerate(chosen, start=1):
            started = time.monotonic()
            red = _is_red(tree, mutant)
            outcome = "red, as it must" if red else "SURVIVED"
            took = time.monotonic() - started
            _say(f"[{number}/{len(chosen)}] {outcome}, {took:.0f} s  {mutant.name}")
            survived += [] if red else [mutant.name]
    _say(f"{len(chosen) - len(survived)} passed, {len(survived)} failed")
    return 1 if survived else 0


def _copy(tree: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in FILES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tree / name)
    return tree


def _is_red(tree: Path, mutant: Mutant) -> bool:
    file = tree / mutant.file
    text = file.read_text("utf-8")
    try:
        file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--exhaustive"]
        command += ["-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *mutant.tests.split()],
            cwd=tree,
            env=_environment(tree),
            capture_output=True,
            check=False,
        )
    finally:
        file.write_text(text, "utf-8")
    return done.returncode == 1


def _environment(tree: Path) -> dict[str, str]:
    paths = os.pathsep.join(str(tree / part) for part in PARTS)
    shared = os.environ.get("CURTILAGE_SHARED", str(ROOT.parent / "shared"))
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
        "CURTILAGE_SHARED": shared,
    }


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
