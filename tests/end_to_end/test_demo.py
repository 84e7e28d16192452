"""The demo as a person stops it: nothing is left running, nothing left lying."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

DEVELOPMENT = Path(__file__).resolve().parents[2] / "dev"


@pytest.mark.model
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_a_stopped_demo_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "curtilage.cli", "demo", "--ask", "What is HIV?"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    started = wait_for_processes(process.pid)
    os.kill(process.pid, number)
    if number is signal.SIGINT:  # a terminal sends it to the whole group
        os.killpg(process.pid, number)
    assert process.wait(30) == 130
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def wait_for_processes(pid: int) -> list[psutil.Process]:
    """Wait until some of the parties run."""
    until = time.monotonic() + 60
    parent = psutil.Process(pid)
    while time.monotonic() < until:
        running = parent.children(recursive=True)
        if len(running) >= 3:
            return running
        time.sleep(0.05)
    raise AssertionError("the demo did not start")
