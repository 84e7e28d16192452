import subprocess
import sys
from pathlib import Path

HARNESS = Path(__file__).resolve().parents[1] / "fuzz" / "fuzz_wire.py"


def test_fuzz_harness_runs_and_finds_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(HARNESS), "--seconds", "1", "--seed", "00"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "no finding" in done.stdout
