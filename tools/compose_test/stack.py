"""One compose project: up, down, its containers, programs run inside them."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tools.compose_test.engine import Engine
from tools.compose_test.errors import FailedError

if TYPE_CHECKING:
    import subprocess

PYTHON: Final = "/usr/bin/python3.11"
UP_S: Final = 180
RESTART_S: Final = 120.0
HEALTHY: Final = "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A compose project.

    Attributes:
        engine: runs it.
        file: the compose file.
        folder: what its relative paths begin at.
        profile: the chosen profile; empty: none.
        variables: for the file.
    """

    engine: Engine
    file: Path
    folder: Path
    profile: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run one command of compose, whatever comes of it."""
        profile = ["--profile", self.profile] if self.profile else []
        return self.engine.run(
            "compose",
            *("-f", str(self.file), "--project-directory", str(self.folder)),
            *profile,
            *arguments,
            variables=self.variables,
        )

    def get(self, *arguments: str) -> str:
        """Run one command of compose and return its output.

        Raises:
            FailedError: it failed.
        """
        done = self.run(*arguments)
        if done.returncode != 0:
            words, said = " ".join(arguments[:3]), done.stderr or done.stdout
            raise FailedError(f"{self.file.name}: compose {words}: {said[-800:]}")
        return done.stdout.strip()

    def up(self, *services: str) -> None:
        """Start it, and wait until all parts are healthy.

        Raises:
            FailedError: one is not; with the last words of each.
        """
        done = self.run("up", "-d", "--wait", "--wait-timeout", str(UP_S), *services)
        if done.returncode != 0:
            shown = self.run("ps", "-a").stdout
            raise FailedError(
                f"{self.file.name}: not healthy\n{done.stderr[-1500:]}\n{shown}"
            )

    def down(self) -> None:
        """Stop it, and remove its containers, networks and volumes."""
        self.run("down", "--volumes", "--timeout", "3", "--remove-orphans")

    def container(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container.

        Raises:
            FailedError: it has none.
        """
        name = self.get("ps", "-a", "-q", service)
        if not name:
            raise FailedError(f"{service}: no container")
        return self.engine.inspect(name)

    def processes(self, service: str) -> Sequence[int]:
        """Return the process numbers of a service, as this machine has them."""
        shown = self.engine.get("top", self.container(service)["Id"], "-eo", "pid")
        return [int(line) for line in shown.splitlines()[1:]]

    def python(self, service: str, code: str) -> "subprocess.CompletedProcess[str]":
        """Run a program in a service's container, confined as the service is."""
        return self.run(
            *("exec", "-T", service, PYTHON, "-I", "-B", "-c", code),
        )

    def crash(self, service: str) -> None:
        """Kill all processes of a service; wait until it is healthy again.

        Raises:
            FailedError: it does not come back by itself.
        """
        before = self.container(service)
        for number in self.processes(service):
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.wait_for(service, restarts=int(before["RestartCount"]) + 1)

    def wait_for(self, service: str, *, restarts: int) -> None:
        """Wait until a service is healthy, having been restarted so often.

        Raises:
            FailedError: the time is up.
        """
        until = time.monotonic() + RESTART_S
        while time.monotonic() < until:
            found = self.container(service)
            state = cast("dict[str, Any]", found["State"])
            health = state.get("Health", {}).get("Status")
            if int(found["RestartCount"]) >= restarts and health == HEALTHY:
                return
            time.sleep(0.5)
        raise FailedError(f"{service}: killed, and not healthy again by itself")
