"""The engine with 1 to 16 clients, against serial answers and llama.cpp's server.

Each engine is a process of its own with one thread; all get the same prompts in turns,
so that other work of the machine affects all of them alike. What counts is tokens per
second of processor time, reading included. The peer that answers one after the other is
``llama_cpp.Llama``; llama.cpp's server is in ``xllamacpp``, which is not a dependency:
where it cannot be imported, its column is empty, and the note says so.
"""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.report import Table

CLIENTS: Final = (1, 2, 4, 8, 16)
ROUNDS: Final = 3
ROOT: Final = Path(__file__).resolve().parents[1]
SKIPPED: Final = "SKIPPED LOUDLY: xllamacpp is not installed, so no server was measured"
OWN, SERIAL, SERVER = "own", "serial", "server"


@dataclass(slots=True)
class Measured:
    """Rounds of one engine with one number of clients."""

    per_cpu_s: list[float] = field(default_factory=list[float])
    per_s: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])


class _Peer:
    """A running engine process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, what: str) -> dict[str, Any]:
        """Run a round, and return what it printed."""
        if self._process.stdin is None:
            raise RuntimeError("the engine's process takes no lines")
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return dict(json.loads(self.read()))

    def read(self) -> str:
        """Return the next line."""
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise RuntimeError("an engine's process ended")
        return line


def measure_engine() -> list[Table]:
    """Measure all numbers of clients, then the pause; takes some minutes."""
    peers = [OWN, SERIAL, *([SERVER] if find_spec("xllamacpp") else [])]
    if SERVER not in peers:
        sys.stdout.write(f"{SKIPPED}\n")
    rows = [(clients, _measure(peers, clients)) for clients in CLIENTS]
    return [_table(rows), _waits(rows), _pause()]


def _measure(peers: list[str], clients: int) -> dict[str, Measured]:
    found = {peer: Measured() for peer in peers}
    with ExitStack() as running:
        started = {peer: running.enter_context(_run(peer, clients)) for peer in peers}
        for _ in range(ROUNDS):
            for name, peer in started.items():
                result = peer.run("load")
                found[name].per_cpu_s.append(result["tokens"] / result["cpu_s"])
                found[name].per_s.append(result["tokens"] / result["wall_s"])
                found[name].first_ms += result["first_ms"]
    return found


@contextmanager
def _run(peer: str, clients: int) -> Generator[_Peer]:
    command = [sys.executable, "-m", "benchmarks.engine_peer", peer, str(clients)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The library's log.
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        started = _Peer(process)
        started.read()
        yield started


def _ratio(found: Mapping[str, Measured], peer: str) -> float | str:
    """Return the median ratio of what ran in one round, one after the other."""
    if peer not in found:
        return "-"
    pairs = zip(found[OWN].per_cpu_s, found[peer].per_cpu_s, strict=True)
    return median(own / other for own, other in pairs)


def _table(rows: list[tuple[int, dict[str, Measured]]]) -> Table:
    cells: list[tuple[str | float, ...]] = []
    for clients, found in rows:
        speeds = [
            median(found[peer].per_cpu_s) if peer in found else "-"
            for peer in (OWN, SERIAL, SERVER)
        ]
        cells.append(
            (str(clients), *speeds, _ratio(found, SERIAL), _ratio(found, SERVER))
        )
    return Table(
        title="Tokens per second of processor time, reading included",
        columns=("at once", "ours", "serial", "server", "to serial", "to server"),
        rows=tuple(cells),
        note=f"medians of {ROUNDS} rounds in turns; 48 tokens after 80; one thread; "
        "the embedded model" + ("" if SERVER in rows[0][1] else f"; {SKIPPED}"),
    )


def _waits(rows: list[tuple[int, dict[str, Measured]]]) -> Table:
    cells: list[tuple[str | float, ...]] = []
    for clients, found in rows:
        waits = [
            median(found[peer].first_ms) if peer in found else "-"
            for peer in (OWN, SERIAL, SERVER)
        ]
        cells.append((str(clients), *waits, median(found[OWN].per_s)))
    return Table(
        title="Time to first token, p50 in ms of wall time",
        columns=("at once", "ours", "serial", "server", "ours, tokens/s"),
        rows=tuple(cells),
    )


def _pause() -> Table:
    with _run(OWN, 5) as peer:
        found = [peer.run("pause") for _ in range(ROUNDS)]
    rows: list[tuple[str | float, ...]] = [
        (title, *(each[name] for each in found))
        for title, name in (
            ("longest pause of four answers before", "before_ms"),
            ("and while a prompt of 900 tokens is read", "while_ms"),
            ("the first in processor time", "before_cpu_ms"),
            ("the second in processor time", "while_cpu_ms"),
            ("from that question to its first token", "read_ms"),
        )
    ]
    return Table(
        title="The pause that a long prompt causes, in ms",
        columns=("measure", *(f"round {number + 1}" for number in range(ROUNDS))),
        rows=tuple(rows),
    )
