"""Starts programs and always stops them; for the demo, tests and benchmarks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, cast

READY_S = 120.0
STOP_S = 8.0
POLL_S = 0.02


class ProcessError(Exception):
    """A program did not get ready; contains its last output."""


class Process:
    """One program in its own session, with its output in a folder.

    Attributes:
        name: for display.
        folder: contains ``{name}.out`` and ``{name}.err``.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.output = folder / f"{name}.out"
        self.errors = folder / f"{name}.err"
        self.started = time.monotonic()
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float = READY_S) -> dict[str, object]:
        """Wait for its line of JSON that reports readiness; return that line.

        Raises:
            ProcessError: it ended, or took too long.
        """
        while time.monotonic() < self.started + timeout_s:
            first, newline, _ = self.output.read_text("utf-8").partition("\n")
            if newline:
                return cast("dict[str, object]", json.loads(first))
            if not self.running:
                raise ProcessError(f"{self.name} ended: {self.last_words()}")
            time.sleep(POLL_S)
        raise ProcessError(f"{self.name} is not ready: {self.last_words()}")

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return the exit status."""
        return self._process.wait(timeout_s)

    def last_words(self) -> str:
        """Return the end of what it wrote on standard error."""
        return self.errors.read_text("utf-8", "replace")[-1500:].strip()

    def stop(self) -> None:
        """Ask it to stop, then kill it."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.wait()

    def kill(self) -> None:
        """Stop it at once."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Processes:
    """Several programs; leaving the block stops them, the last one first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[Process] = []

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop them all."""
        self.stop()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start ``python -m …`` with this interpreter."""
        process = Process(
            name,
            [sys.executable, *arguments],
            folder=self.folder,
            environment=environment,
        )
        self._all.append(process)
        return process

    def stop(self) -> None:
        """Stop them all, the last one first."""
        for process in reversed(self._all):
            process.send(signal.SIGTERM)
        for process in reversed(self._all):
            process.stop()
