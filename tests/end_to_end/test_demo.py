"""The demo when it is interrupted: no process and no file is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path is limited to about 100 characters, so not tmp_path.
    with tempfile.TemporaryDirectory(prefix="demo") as name:
        yield Path(name)


@pytest.mark.model
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_a_stopped_demo_leaves_nothing(number: signal.Signals, folder: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(folder)}
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
    assert list(folder.iterdir()) == []


def test_too_long_a_path_for_a_socket_is_reported(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 100)
    long.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "curtilage.cli", "demo", "--ask", "What is HIV?"],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "TMPDIR": str(long)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "could not start" in done.stdout
    assert " TMPDIR " in done.stdout
    assert list(long.iterdir()) == []


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
