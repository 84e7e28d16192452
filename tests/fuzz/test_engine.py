"""libFuzzer runs a harness, and a finding is not missed."""

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.run import summary_of

HERE = Path(__file__).resolve().parent
FINDING = """\
import sys
sys.path[:0] = sys.argv.pop(1).split()
import types
module = types.ModuleType("fuzz.fuzz_nothing")
from fuzz.common import Harness
def check(data): assert not data.startswith(b"x")
module.HARNESSES = (Harness(name="nothing_at_all", check=check),)
sys.modules[module.__name__] = module
from fuzz import engine
engine.main()
"""


def engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("atheris")
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120
    )


def test_engine_runs_a_harness_and_counts_branches() -> None:
    done = engine(
        str(HERE / "engine.py"),
        "fuzz_wire",
        "varint",
        "-runs=300",
        "-seed=1",
        "-print_final_stats=1",
    )
    assert done.returncode == 0, done.stderr
    assert summary_of(done.stderr).startswith("300 inputs, ")
    assert " 0 branches" not in summary_of(done.stderr)


def test_engine_ends_at_a_finding(tmp_path: Path) -> None:
    found = engine(
        "-c",
        FINDING,
        str(HERE.parent),
        "fuzz_nothing",
        "nothing_at_all",
        "-runs=100000",
        f"-artifact_prefix={tmp_path}/",
    )
    assert found.returncode != 0
    (artifact,) = tmp_path.iterdir()
    assert artifact.read_bytes().startswith(b"x")
