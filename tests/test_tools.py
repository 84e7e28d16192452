"""What ``make`` runs besides the tests must run, and find what it looks for."""

import ctypes
import os
import re
import subprocess
import sys
import threading
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from tools import bootstrap, progress, slim
from tools.mutants import MUTANTS, out_of_date

from support.fakes import returns

ROOT = Path(__file__).resolve().parents[1]
BENCH = re.compile(
    r"^bench:.*\n\t@\$\(SETUP\).*\n\t@(?P<variables>(?:\w+=\S+ )*)\$\(BIN\)/python ",
    re.MULTILINE,
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
    reported = re.fullmatch(
        r"varint: (?P<count>[0-9]+) inputs, no finding\n", done.stdout
    )
    assert reported is not None, done.stdout
    assert int(reported["count"]) > 0


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
def test_a_mutant_out_of_date_is_reported(change: dict[str, str], said: str) -> None:
    (reported,) = out_of_date([replace(MUTANTS[0], **change)])
    assert said in reported


def pins(path: Path) -> dict[str, set[str]]:
    """Return the versions of each package; of markers more than one may come."""
    found: dict[str, set[str]] = {}
    for name, version in bootstrap.PIN.findall(path.read_text("utf-8")):
        found.setdefault(name, set()).add(version)
    return found


def test_no_two_requirement_files_disagree_about_a_version() -> None:
    everywhere: dict[str, tuple[set[str], str]] = {}
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        for name, versions in pins(path).items():
            first, where = everywhere.setdefault(name, (versions, path.name))
            assert versions == first, f"{name}: {path.name} and {where}"
    assert len(everywhere) > 100


def test_what_runs_has_all_that_the_demo_has_and_no_tool() -> None:
    demo, runtime = (
        pins(ROOT / "requirements" / f"{name}.txt") for name in ("demo", "runtime")
    )
    assert demo.keys() < runtime.keys()
    assert not runtime.keys() & {"pytest", "mypy", "ruff", "scipy", "cmake"}


@pytest.mark.parametrize("name", bootstrap.GROUPS_USUAL_S)
def test_everything_of_a_group_is_pinned_by_hash(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)


def test_a_target_names_groups_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = {
        name
        for line in re.findall(r"@\$\(SETUP\)([a-z ]*)", makefile)
        for name in line.split()
    }
    everything = re.search(r"^ALL := (.*)$", makefile, re.MULTILINE)
    assert everything is not None
    assert named <= set(everything[1].split())
    assert set(everything[1].split()) == bootstrap.GROUPS_USUAL_S.keys()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert groups["dependency-groups"].keys() | {"runtime"} == set(
        bootstrap.GROUPS_USUAL_S
    )


def test_an_unknown_group_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bootstrap", "tests"])
    assert bootstrap.main() == 2
    assert "no such group" in capsys.readouterr().err


def test_what_is_not_used_of_a_wheel_is_removed(tmp_path: Path) -> None:
    kept = [
        "cryptography_vectors/HPKE/a.json",
        "cryptography_vectors/__init__.py",
        "numpy/__init__.py",
        "onnxruntime/capi/onnxruntime_pybind11_state.so",
        "phonenumbers/data/region_DE.py",
    ]
    removed = [
        "cryptography_vectors/HMAC/a.txt",
        "cryptography_vectors/x509/a.pem",
        "lib/libllama.so",
        "numpy/linalg/tests/test_linalg.py",
        "onnxruntime/capi/libonnxruntime.so.1.28.0",
        "phonenumbers/geodata/data0.py",
    ]
    for name in (*kept, *removed):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    slim.slim(tmp_path)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in left) == kept


def test_copies_of_a_library_become_one_file(tmp_path: Path) -> None:
    for name, content in (("a.so", b"1"), ("a.so.0", b"1"), ("b.so", b"2")):
        (tmp_path / name).write_bytes(content)
    slim.link_copies(tmp_path)
    slim.link_copies(tmp_path)
    one, same, other = sorted(tmp_path.iterdir())
    assert one.samefile(same)
    assert not one.samefile(other)
    assert [path.read_bytes() for path in (one, same, other)] == [b"1", b"1", b"2"]


def test_a_library_without_symbols_for_debuggers_works(tmp_path: Path) -> None:
    library, source = tmp_path / "some.so", tmp_path / "some.c"
    source.write_text("int answer(void) { return 42; }\n")
    command = ["gcc", "-g", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    before = library.stat().st_size
    assert slim.has_symbols(library)
    slim.slim(tmp_path)
    assert not slim.has_symbols(library)
    assert library.stat().st_size < before
    assert ctypes.CDLL(str(library)).answer() == 42
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.c", "some.so"]


def test_a_library_that_auditwheel_changed_is_left_alone(tmp_path: Path) -> None:
    for name in ("numpy/core.so", "numpy.libs/blas.so", "blis/cy.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x7fELF")
    libraries = tmp_path.rglob("*.so")
    changed = [each for each in libraries if slim.may_be_stripped(each, tmp_path)]
    assert [path.name for path in changed] == ["cy.so"]


@pytest.mark.parametrize("name", ["demo", "lab", "runtime"])
def test_what_packages_require_and_never_use_is_not_installed(name: str) -> None:
    installed = pins(ROOT / "requirements" / f"{name}.txt").keys()
    assert not installed & {"diskcache", "hf-xet", "setuptools"}


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
    assert progress.compiled_share("") < 0.1
    assert progress.compiled_share("[1/80] cc\n  [40/80] cc\n") == pytest.approx(0.5)
    said = "Collecting a==1\nRequirement already satisfied: b==1\n  Downloading a\n"
    assert progress.collected_share(said, 0, 4) == pytest.approx(0.25)
    assert progress.collected_share(said, 9, 2) == 1


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
    ("arguments", "person", "due", "asked", "reported"),
    [
        (["runtime", "--offer"], True, True, 1, False),
        (["runtime", "--offer"], False, True, 0, True),
        ([], True, True, 0, True),
        (["runtime", "test"], True, True, 0, True),
        (["runtime", "--offer"], True, False, 0, False),
    ],
    ids=["by hand", "by a program", "for the demo", "for the tests", "nothing to do"],
)
def test_a_useful_model_is_offered_once_set_up(
    *,
    arguments: list[str],
    person: bool,
    due: bool,
    asked: int,
    reported: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["bootstrap", *arguments])

    def run(command: list[str], **_more: object) -> None:
        started.append(command)

    def run_steps(groups: list[str]) -> bool:
        assert groups == [name for name in arguments if name != "--offer"]
        return due

    monkeypatch.setattr("signal.signal", returns(None))
    monkeypatch.setattr(bootstrap, "_run_steps", run_steps)
    monkeypatch.setattr(subprocess, "run", run)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", returns(person))
    assert bootstrap.main() == 0
    assert len(started) == asked
    assert all(each[-2:] == ["models", "recommend"] for each in started)
    assert ("models recommend" in capsys.readouterr().err) is reported


def test_only_a_set_up_by_hand_asks() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    offer = "$(SETUP) runtime $(if $(filter setup,$(MAKECMDGOALS)),--offer)"
    assert makefile.count("--offer") == makefile.count(offer) == 1
