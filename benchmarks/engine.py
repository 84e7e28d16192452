"""The engine with 1 to 16 clients, against serial answers and llama.cpp's server.

Each engine is a process of its own with one thread; all get the same prompts in turns,
so that other work of the machine affects all of them alike. What counts is tokens per
second of processor time, reading included. The peer that answers one after the other is
``llama_cpp.Llama``; llama.cpp's server is in ``xllamacpp``, which is not a dependency:
where it cannot be imported, its column is empty, and the note says so.

All use flash attention, which the server chooses. Ours is shipped without on
processors, where a token behind a long text takes half the time, and in a process of
its own: so it is measured too, with short and with longer questions.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.engine_peer import CONTEXT_TOKENS, DECODED
from benchmarks.report import Table, busy, host, progress
from benchmarks.shapes import Chosen, embedded, make_model, token_bytes_read
from curtilage.sandbox.parent import LARGE_PAGES

CLIENTS: Final = (1, 2, 4, 8, 16)
ROUNDS: Final = 3
ROOT: Final = Path(__file__).resolve().parents[1]
SKIPPED: Final = "SKIPPED LOUDLY: xllamacpp is not installed, so no server was measured"
OWN, PLAIN, SHIPPED = "own", "plain", "shipped"
"""Ours in the measuring process, with the server's settings and with its own; and with
these in a process of its own, as people use it."""
SERIAL, SERVER = "serial", "server"
AT_LENGTH: Final = (1, 4)
"""How many clients ask longer questions, too."""


@dataclass(slots=True)
class Measured:
    """Rounds of one engine with one number of clients."""

    per_cpu_s: list[float] = field(default_factory=list[float])
    per_s: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])


class EnginePeer:
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


def measure_engine(
    folder: Path,
    shape: str = "",
    rounds: int = ROUNDS,
    clients: Sequence[int] = CLIENTS,
) -> list[Table]:
    """Measure several numbers of clients, then the pause and the memory; some minutes.

    Each table is shown when it is there: the next one may take long.

    Args:
        folder: for a model's file.
        shape: one of ``SHAPES``; empty: the embedded model.
        rounds: of each measurement.
        clients: how many ask at a time.
    """
    peers = [OWN, SHIPPED, SERIAL, *([SERVER] if find_spec("xllamacpp") else [])]
    if SERVER not in peers:
        sys.stdout.write(f"{SKIPPED}\n")
    if shape:
        progress(f"writing a model of random weights in the shape of {shape}")
    which = make_model(shape, folder) if shape else embedded()
    tables: list[Table] = []
    for table in _tables(peers, which, rounds, clients, lengths=not shape):
        note = f"{table.note}; {host()}; {busy()}".removeprefix("; ")
        title = f"{table.title}; {which.name} model"
        tables.append(replace(table, title=title, note=note))
        progress(f"\n{tables[-1].text()}\n")
    return tables


def _tables(
    peers: list[str],
    which: Chosen,
    rounds: int,
    clients: Sequence[int],
    *,
    lengths: bool,
) -> Generator[Table]:
    rows = [(count, _measure(peers, count, which, rounds)) for count in clients]
    yield _table(rows, rounds)
    yield _waits(rows)
    # A shape's own takes a quarter of an hour.
    if lengths and {*AT_LENGTH} <= {*clients}:
        yield _lengths(dict(rows), which, max(1, rounds // 2))
    yield _pause(which, rounds)
    yield _bandwidth(which, rounds)


def _measure(
    peers: list[str], clients: int, which: Chosen, rounds: int, what: str = "load"
) -> dict[str, Measured]:
    found = {peer: Measured() for peer in peers}
    with ExitStack() as running:
        started = {
            peer: running.enter_context(run_engine(peer, clients, which))
            for peer in peers
        }
        for number in range(rounds):
            progress(f"{clients} at once: round {number + 1} of {rounds}")
            for name, peer in started.items():
                result = peer.run(what)
                found[name].per_cpu_s.append(result["tokens"] / result["cpu_s"])
                found[name].per_s.append(result["tokens"] / result["wall_s"])
                found[name].first_ms += result["first_ms"]
    return found


@contextmanager
def run_engine(peer: str, clients: int, which: Chosen) -> Generator[EnginePeer]:
    """Start an engine's process with so many places; stop it at the end."""
    command = [sys.executable, "-m", "benchmarks.engine_peer", peer, str(clients)]
    command += which.arguments()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        # All peers have what our engine's process sets.
        env=os.environ | {"GLIBC_TUNABLES": LARGE_PAGES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The library's log.
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        started = EnginePeer(process)
        started.read()
        yield started


def _ratio(found: Mapping[str, Measured], peer: str, which: str = OWN) -> float | str:
    """Return the median ratio of what ran in one round, one after the other."""
    if peer not in found:
        return "-"
    pairs = zip(found[which].per_cpu_s, found[peer].per_cpu_s, strict=True)
    return median(one / other for one, other in pairs)


def _table(rows: list[tuple[int, dict[str, Measured]]], rounds: int) -> Table:
    cells: list[tuple[str | float, ...]] = []
    for clients, found in rows:
        speeds = [
            median(found[peer].per_cpu_s) if peer in found else "-"
            for peer in (OWN, SERIAL, SERVER)
        ]
        ratios = (_ratio(found, peer) for peer in (SERIAL, SERVER))
        cells.append((str(clients), *speeds, *ratios, _ratio(found, OWN, SHIPPED)))
    return Table(
        title="Tokens per second of processor time, reading included",
        columns=(
            "at once",
            "ours",
            "serial",
            "server",
            "to serial",
            "to server",
            "shipped to ours",
        ),
        rows=tuple(cells),
        note=f"medians of {rounds} rounds in turns; 48 tokens after a question of "
        "about 200 characters; one thread"
        + ("" if SERVER in rows[0][1] else f"; {SKIPPED}"),
    )


def _lengths(
    short: Mapping[int, dict[str, Measured]], which: Chosen, rounds: int
) -> Table:
    compared = [each for each in (OWN, SHIPPED, SERVER) if each in short[AT_LENGTH[0]]]
    long = {
        clients: _measure(compared, clients, which, rounds, "long")
        for clients in AT_LENGTH
    }
    cells: list[tuple[str | float, ...]] = [
        (
            f"{name}, {clients} at once",
            median(found[clients][SHIPPED].per_cpu_s),
            _ratio(found[clients], OWN, SHIPPED),
            _ratio(found[clients], SERVER, SHIPPED),
        )
        for name, found in (("66 tokens", short), ("766 tokens", long))
        for clients in AT_LENGTH
    ]
    return Table(
        title="Ours as it is shipped: in its own process, on processors without flash "
        "attention",
        columns=("question", "tokens/s", "to ours with it", "to server"),
        rows=tuple(cells),
        note="tokens per second of processor time, as above",
    )


def _waits(rows: list[tuple[int, dict[str, Measured]]]) -> Table:
    cells: list[tuple[str | float, ...]] = []
    for clients, found in rows:
        waits = [
            median(found[peer].first_ms) if peer in found else "-"
            for peer in (OWN, SHIPPED, SERIAL, SERVER)
        ]
        cells.append((str(clients), *waits, median(found[OWN].per_s)))
    return Table(
        title="Time to first token, p50 in ms of wall time",
        columns=(
            "at once",
            "ours",
            "as shipped",
            "serial",
            "server",
            "ours, tokens/s",
        ),
        rows=tuple(cells),
    )


def _bandwidth(which: Chosen, rounds: int) -> Table:
    """Compare what decoding one answer reads with what one thread can read."""
    # In the middle of the answer, behind a question of about 80 tokens.
    context = min(CONTEXT_TOKENS, 320 // which.token_bytes + DECODED // 2)
    read = token_bytes_read(which.path, context)
    with run_engine(PLAIN, 1, which) as peer:
        found = [peer.run("decode") for _ in range(rounds)]
    rows: list[tuple[str | float, ...]] = [
        (
            f"round {number + 1}",
            1 / each["gap_s"],
            read / 1e6,
            read / each["gap_s"] / 1e9,
            each["read_per_s"] / 1e9,
            f"{read / each['gap_s'] / each['read_per_s']:.0%}",
        )
        for number, each in enumerate(found)
    ]
    return Table(
        title="The share of the memory's speed that decoding one answer reaches",
        columns=("", "tokens/s", "MB a token", "GB/s", "memory GB/s", "share"),
        rows=tuple(rows),
        note="weights and context read once a token; median gap of "
        f"{DECODED} tokens; memory: one thread reads 512 MiB, the best of five",
    )


def _pause(which: Chosen, rounds: int) -> Table:
    with run_engine(PLAIN, 5, which) as peer:
        found = [peer.run("pause") for _ in range(rounds)]
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
        columns=("measure", *(f"round {number + 1}" for number in range(rounds))),
        rows=tuple(rows),
    )
