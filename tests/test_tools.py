"""What ``make`` runs beside the tests must run, and find what it looks for."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tools.mutants import MUTANTS, out_of_date

ROOT = Path(__file__).resolve().parents[1]
BENCH = re.compile(
    r"^bench:.*\n\t@(?P<variables>(?:\w+=\S+ )*)\$\(BIN\)/python ", re.MULTILINE
)
FOUND = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
from fuzz import fuzz_wire, run
from fuzz.common import Harness, hold
fuzz_wire.HARNESSES = (Harness(name="varint", check=lambda data: hold(False)),)
sys.exit(run.main())
"""


def ran(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_benchmarks_start_as_the_makefile_starts_them() -> None:
    rule = BENCH.search((ROOT / "Makefile").read_text("utf-8"))
    assert rule is not None
    variables = dict(pair.split("=", 1) for pair in rule["variables"].split())
    done = ran("-m", "benchmarks", "--help", **variables)
    assert done.returncode == 0, done.stderr
    assert "--prompts" in done.stdout


def test_fuzzing_without_atheris_runs_and_finds_nothing() -> None:
    fuzzing = str(ROOT / "tests" / "fuzz" / "run.py")
    done = ran(fuzzing, "--seconds", "0.2", "--seed", "00", "--only", "^varint$")
    assert done.returncode == 0, done.stderr
    told = re.fullmatch(r"varint: (?P<count>[0-9]+) inputs, no finding\n", done.stdout)
    assert told is not None, done.stdout
    assert int(told["count"]) > 0


def test_a_finding_is_an_exit_status() -> None:
    done = ran("-c", FOUND, str(ROOT / "tests"), "--seed", "0a", "--only", "^varint$")
    assert done.returncode == 1
    assert "inputs, no finding" not in done.stdout
    assert "varint: seed 0a input 0: " in done.stderr


def test_every_mutant_takes_out_a_check_that_is_there() -> None:
    assert len(MUTANTS) > 100
    assert out_of_date(MUTANTS) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"old": "no such text"}, "has this 0 times"),
        ({"old": "import"}, "times"),
        ({"file": "wire/nothing.py"}, "has this 0 times"),
        ({"tests": "tests/test_nothing.py -k x"}, "is no file"),
    ],
    ids=["gone", "twice", "moved", "no test"],
)
def test_a_mutant_out_of_date_is_told(change: dict[str, str], said: str) -> None:
    (told,) = out_of_date([replace(MUTANTS[0], **change)])
    assert said in told
