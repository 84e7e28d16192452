"""What the engine's process leaves of questions, and what it costs to leave nothing.

Four processes answer the same questions in turns: one that forgets nothing, for which
a switch of the tests replaces what forgets; the usual one; the enclave's, which also
limits itself and has tried to get out; and one that forks a process for each request.
Their memory is read from outside, as root can. Processor time is that of all their
threads and processes.
"""

import asyncio
import os
import sys
import time
from array import array
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from benchmarks.engine_peer import question
from benchmarks.report import Table, busy, host, progress
from benchmarks.shapes import Chosen, embedded, make_model
from curtilage.inference.native import Model
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess
from curtilage.inference.protocol import ChatMessage, GenerateRequest, Token
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings, Isolation
from curtilage.sandbox.parent import FORGETTING
from support.memory_scan import WIPING_OFF, Forms, forms_of, hits

KEPT, WIPED, APART = "forgets nothing", "overwrites", "a process each"
TRIED: Final = "overwrites, as in an enclave"
CLIENTS: Final = (1, 4)
EACH: Final = 3
"""Questions of each client in a round."""
TOKENS: Final = 48
SEQUENCES: Final = 4
CANARY: Final = 'violet "lantern" orchard pebble harbour thimble meadow saddle'
LOOK_S: Final = 0.1
SHORT, ENDLESS = 8, 1000
SETTLE_S: Final = 0.5
MEBIBYTE: Final = 1024
"""In the units of the kernel's file."""


@dataclass(slots=True)
class _Measured:
    """Rounds of one mode with one number of clients."""

    per_cpu_s: list[float] = field(default_factory=list[float])
    per_s: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])
    most_mib: float = 0.0


def measure_forgetting(folder: Path, shape: str = "", rounds: int = 3) -> list[Table]:
    """Measure what each mode leaves and costs; some minutes.

    Args:
        folder: for a model's file.
        shape: one of ``SHAPES``; empty: the embedded model.
        rounds: of each number of clients.
    """
    which = make_model(shape, folder) if shape else embedded()
    return asyncio.run(_measure(which, rounds))


async def _measure(which: Chosen, rounds: int) -> list[Table]:
    found = {(count, mode): _Measured() for count in CLIENTS for mode in _MODES}
    async with AsyncExitStack() as running:
        engines: dict[str, EngineProcess] = {}
        for mode, isolation in _MODES.items():
            with _switched_off(mode == KEPT):
                plan = _plan(which, isolation, tried=mode == TRIED)
                engines[mode] = EngineProcess(plan)
                await engines[mode].start()
            running.push_async_callback(engines[mode].close)
        for count in CLIENTS:
            for number in range(rounds):
                progress(f"{count} at once: round {number + 1} of {rounds}")
                for mode, engine in engines.items():
                    await _round(engine, count, found[count, mode])
        left = await _left(engines, _forms(which))
    note = f"{which.name} model; {host()}; {busy()}"
    return [
        Table(
            title=f"Copies of a question {SETTLE_S} s after its answer, while another "
            "is being answered",
            columns=("mode", "as text", "as tokens"),
            rows=tuple((mode, *counts) for mode, counts in left.items()),
            note=f"of all forms of text, and of numbers of 32 and 64 bits; {note}",
        ),
        _costs(found, rounds, note),
    ]


_MODES: Final[Mapping[str, Isolation]] = {
    KEPT: "shared",
    WIPED: "shared",
    TRIED: "shared",
    APART: "process",
}


def _costs(found: Mapping[tuple[int, str], _Measured], rounds: int, note: str) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for (count, mode), measured in found.items():
        first = found[count, KEPT].per_cpu_s
        pairs = zip(measured.per_cpu_s, first, strict=True)
        rows.append(
            (
                f"{count} at once, {mode}",
                median(measured.per_cpu_s),
                median(one / other for one, other in pairs),
                median(measured.per_s),
                median(measured.first_ms),
                measured.most_mib,
            )
        )
    return Table(
        title="What each mode costs",
        columns=(
            "mode",
            "tokens/s of processor time",
            "to one that forgets nothing",
            "tokens/s",
            "first token, ms",
            "memory, MiB",
        ),
        rows=tuple(rows),
        note=f"medians of {rounds} rounds in turns; {TOKENS} tokens after a question "
        f"of about 200 characters; one thread for a decode; memory: the most of all "
        f"its processes together, shared pages once; {note}",
    )


@contextmanager
def _switched_off(off: bool) -> Generator[None]:
    """Start what is started meanwhile without forgetting."""
    if not off:
        yield
        return
    kept = dict(FORGETTING)
    FORGETTING.clear()
    # The paths of this process become those of the one that it starts.
    sys.path.insert(0, str(WIPING_OFF))
    try:
        yield
    finally:
        sys.path.remove(str(WIPING_OFF))
        FORGETTING.update(kept)


def _plan(which: Chosen, isolation: Isolation, *, tried: bool) -> Plan:
    return Plan(
        model=str(which.path),
        sha256=which.sha256,
        model_id=which.name,
        settings=EngineSettings(
            context_tokens=1536, threads=1, sequences=SEQUENCES, max_queued=64
        ),
        isolation=isolation,
        tried=tried,
    )


async def _ask(
    engine: EngineProcess, text: str, most: int = TOKENS
) -> tuple[int, float]:
    """Return how many tokens were written, and when the first came, in seconds."""
    began = time.perf_counter()
    tokens, first_s = 0, 0.0
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content=text),),
        settings=SamplingSettings(max_tokens=most, temperature=0),
    )
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            if isinstance(event, Token):
                first_s = first_s or time.perf_counter() - began
                tokens += 1
    return tokens, first_s


async def _round(engine: EngineProcess, clients: int, into: _Measured) -> None:
    async def client() -> list[tuple[int, float]]:
        return [await _ask(engine, question()) for _ in range(EACH)]

    looking = asyncio.create_task(_look(engine, into))
    wall, cpu = time.perf_counter(), _cpu_s(engine)
    answers = await asyncio.gather(*(client() for _ in range(clients)))
    while len(_processes(engine)) > 1:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.005)
    cpu_s, wall_s = _cpu_s(engine) - cpu, time.perf_counter() - wall
    looking.cancel()
    tokens = sum(count for each in answers for count, _ in each)
    into.per_cpu_s.append(tokens / cpu_s)
    into.per_s.append(tokens / wall_s)
    into.first_ms += [1000 * first_s for each in answers for _, first_s in each]


async def _look(engine: EngineProcess, into: _Measured) -> None:
    """Note how much memory is used, at intervals."""
    while True:
        used = sum(map(_share_mib, _processes(engine)))
        into.most_mib = max(into.most_mib, used)
        await asyncio.sleep(LOOK_S)


def _processes(engine: EngineProcess) -> list[int]:
    above = psutil.Process(engine.pid)
    return [above.pid, *(each.pid for each in above.children(recursive=True))]


def _share_mib(pid: int) -> float:
    """Return a process's memory, of a page that n have the n-th part."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
        words = next(line.split() for line in lines if line.startswith("Pss:"))
        return int(words[1]) / MEBIBYTE
    return 0.0  # it has ended


def _cpu_s(engine: EngineProcess) -> float:
    """Return the processor time of a process and of its children that have ended."""
    return sum(psutil.Process(engine.pid).cpu_times()[:4])


def _forms(which: Chosen) -> tuple[Forms, Forms]:
    """Return the forms of the canary as text, and as the model's tokens."""
    texts = {
        name: form
        for name, form in forms_of(CANARY, int).items()
        if not name.startswith("tokens")
    }
    model = Model(os.fspath(which.path))
    # As in the middle of a line. The first and the last may be others there.
    tokens = model.tokenize(f" {CANARY}", special=False)[1:-1]
    model.free()
    return texts, {kind: array(kind, tokens).tobytes() for kind in ("i", "q")}


async def _left(
    engines: Mapping[str, EngineProcess], forms: tuple[Forms, Forms]
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for mode, engine in engines.items():
        other = asyncio.create_task(_ask(engine, question(), ENDLESS))
        await _ask(engine, f"Write one line with {CANARY}, please.", SHORT)
        await asyncio.sleep(SETTLE_S)
        found[mode] = tuple(
            sum(
                sum(hits(pid, each, everything=True).values())
                for pid in _processes(engine)
            )
            for each in forms
        )
        other.cancel()
        await asyncio.wait({other})
    return found
