"""What ``make`` runs beside the tests must run, and find what it looks for."""

import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tools import bootstrap
from tools.mutants import MUTANTS, out_of_date

from support.fakes import returns

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


PINNED = re.compile(r"^([\w.-]+==\S+)", re.MULTILINE)


def test_developers_have_exactly_the_versions_that_run() -> None:
    runtime, dev = (
        set(PINNED.findall((ROOT / "requirements" / name).read_text("utf-8")))
        for name in ("runtime.txt", "dev.txt")
    )
    assert runtime < dev
    assert not [pin for pin in runtime if pin.startswith(("pytest", "mypy", "ruff"))]


def test_an_installation_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    for name, record in (
        ("whole", "whole-1.dist-info/INSTALLER,sha256=x,4\n"),
        ("begun", "begun/__init__.py,sha256=x,4\n"),
        ("bare", None),
    ):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        if record is not None:
            (info / "RECORD").write_text(record)
    (tmp_path / "~egun").mkdir()
    bootstrap.forget_halves(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["whole-1.dist-info"]


def test_an_environment_that_was_interrupted_is_not_taken_for_whole(
    tmp_path: Path,
) -> None:
    assert not bootstrap.has_venv(tmp_path, "3.11")
    (tmp_path / "pyvenv.cfg").write_text("version = 3.11.7\n")
    assert not bootstrap.has_venv(tmp_path, "3.11")
    (tmp_path / bootstrap.STAMPS.name).write_text("{}")
    assert bootstrap.has_venv(tmp_path, "3.11")
    assert not bootstrap.has_venv(tmp_path, "3.1")
    assert not bootstrap.has_venv(tmp_path, "3.12")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES from", "install nothing"),
        ("OSError: [Errno 28] No space left on device", "free space"),
        ("Failed to establish a new connection: timed out", "package index reachable"),
        ("ninja: build stopped: subcommand failed.", "does not compile"),
        ("Segmentation fault", "run the command again"),
    ],
)
def test_a_failure_says_what_to_do(said: str, hint: str) -> None:
    assert hint in bootstrap.advice(said)


def test_progress_is_read_from_what_the_commands_print() -> None:
    assert bootstrap.compiled_share("") < 0.1
    assert bootstrap.compiled_share("[1/80] cc\n  [40/80] cc\n") == pytest.approx(0.5)
    said = "Collecting a==1\nRequirement already satisfied: b==1\n  Downloading a\n"
    assert bootstrap.collected_share(said, 0, 4) == pytest.approx(0.25)
    assert bootstrap.collected_share(said, 9, 2) == 1


def test_a_lane_that_fails_ends_the_other() -> None:
    started, ended = threading.Event(), threading.Event()

    def fails() -> None:
        started.wait()
        raise bootstrap.StepError("no")

    def compiles() -> None:
        child = bootstrap.start([sys.executable, "-c", "input()"], subprocess.PIPE)
        started.set()
        child.wait()
        ended.set()

    with pytest.raises(bootstrap.StepError, match="no"):
        bootstrap.side_by_side(fails, compiles)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("arguments", "person", "due", "asked", "told"),
    [
        (["--offer"], True, True, 1, False),
        (["--offer"], False, True, 0, True),
        ([], True, True, 0, True),
        (["--dev"], True, True, 0, True),
        (["--offer"], True, False, 0, False),
    ],
    ids=["by hand", "by a program", "for the demo", "for the tests", "nothing to do"],
)
def test_a_useful_model_is_offered_once_set_up(
    *,
    arguments: list[str],
    person: bool,
    due: bool,
    asked: int,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", *arguments])

    def run(command: list[str], **_more: object) -> None:
        started.append(command)

    def run_steps(**_more: object) -> bool:
        return due

    monkeypatch.setattr("signal.signal", returns(None))
    monkeypatch.setattr(bootstrap, "_run_steps", run_steps)
    monkeypatch.setattr(subprocess, "run", run)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", returns(person))
    assert bootstrap.main() == 0
    assert len(started) == asked
    assert all(each[-2:] == ["models", "recommend"] for each in started)
    assert ("models recommend" in capsys.readouterr().err) is told


def test_only_a_set_up_by_hand_asks() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    offer = "tools/bootstrap.py $(if $(filter setup,$(MAKECMDGOALS)),--offer)"
    assert makefile.count("--offer") == makefile.count(offer) == 1
