"""The same prompts, sent to the engine and through the whole path.

The peer is the same engine with the same model, used directly; the whole path is client
endpoint, relay and enclave server as processes on loopback.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.report import Table, quantile
from benchmarks.topics import TOPICS
from curtilage.inference.default_model import (
    DEFAULT_MODEL_ID,
    DEFAULT_SHA256,
    find_default_model,
)
from curtilage.inference.engine import LlamaCppEngine
from curtilage.inference.modelfile import verify_model_file
from curtilage.inference.protocol import ChatMessage, GenerateRequest, Token
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from curtilage_dev.asking import open_answer
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack

MAX_TOKENS = 48
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds to the first token and to the end."""

    first_s: float
    total_s: float


def measure_path(folder: Path, prompts: int) -> tuple[Table, Table]:
    """Measure both ways; return the comparison and the memory of each process."""
    texts = [f"Explain {topic} in two sentences." for topic in _topics(prompts)]
    with Processes(folder) as processes:
        stack = Stack(folder=folder, processes=processes, record=False)
        stack.start_all()
        direct, through = asyncio.run(_both(stack, texts))
        memory = _memory(stack)
    return _comparison(direct, through), memory


def _topics(count: int) -> Iterator[str]:
    for number in range(count):
        yield TOPICS[number % len(TOPICS)]


async def _both(stack: Stack, texts: list[str]) -> tuple[list[Timing], list[Timing]]:
    """Ask in turns, so that a machine's other load falls on both ways alike."""
    model = verify_model_file(find_default_model(), DEFAULT_SHA256)
    # As the enclave server: the same context, the same threads.
    engine = LlamaCppEngine(
        model,
        model_id=DEFAULT_MODEL_ID,
        settings=EngineSettings(context_tokens=4096, threads=2),
    )
    await engine.start()
    try:
        await _generate(engine, "Say hello.")
        # The first query fetches and verifies the key.
        await asyncio.to_thread(_ask, stack, "Say hello.")
        direct: list[Timing] = []
        through: list[Timing] = []
        for text in texts:
            direct.append(await _generate(engine, text))
            through.append(await asyncio.to_thread(_ask, stack, text))
        return direct, through
    finally:
        await engine.close()


async def _generate(engine: LlamaCppEngine, text: str) -> Timing:
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content=text),),
        settings=SamplingSettings(max_tokens=MAX_TOKENS, temperature=0),
    )
    started, first = time.perf_counter(), 0.0
    async for event in engine.generate(request):
        if isinstance(event, Token) and event.text and not first:
            first = time.perf_counter() - started
    return Timing(first, time.perf_counter() - started)


def _ask(stack: Stack, text: str) -> Timing:
    started, first = time.perf_counter(), 0.0
    with open_answer(stack.client_url, text, max_tokens=MAX_TOKENS) as response:
        if response.headers["x-curtilage-route"] != "enclave":
            raise RuntimeError("a prompt of the benchmark was answered locally")
        for line in response:
            if not first and b'"content": "' in line and b'"content": ""' not in line:
                first = time.perf_counter() - started
    return Timing(first, time.perf_counter() - started)


def _comparison(direct: list[Timing], through: list[Timing]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    measures: list[tuple[str, Callable[[Timing], float]]] = [
        ("time to first token", lambda timing: timing.first_s * 1000),
        ("total time", lambda timing: timing.total_s * 1000),
    ]
    for name, of in measures:
        one, other = [of(t) for t in direct], [of(t) for t in through]
        for title, share in (("p50", 0.5), ("p90", 0.9)):
            a, b = quantile(one, share), quantile(other, share)
            rows.append((f"{name}, {title}", a, b, b / a, b - a))
        added = [b - a for a, b in zip(one, other, strict=True)]
        rows.append((f"{name}, median of pairs", "", "", "", median(added)))
    return Table(
        title=f"The path: {len(direct)} prompts, {MAX_TOKENS} tokens at most",
        columns=("measure", "engine ms", "whole path ms", "ratio", "added ms"),
        rows=tuple(rows),
        note="whole path: client endpoint, relay, enclave; processes on loopback; "
        "answers padded as released",
    )


def _memory(stack: Stack) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for name, process in stack.running.items():
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        for member in family:
            peak = _peak_bytes(member)
            title = name if member.pid == process.pid else f"{name}: detectors"
            rows.append((title, member.memory_info().rss / MEBIBYTE, peak / MEBIBYTE))
    return Table(
        title="Memory of each process",
        columns=("process", "now MiB", "peak MiB"),
        rows=tuple(rows),
        note="resident set; the model file is mapped and counts where it was touched",
    )


def _peak_bytes(process: psutil.Process) -> int:
    """Return the peak resident set (Linux: VmHWM), else the present one."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)
