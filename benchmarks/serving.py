"""The engine as people use it: through relay and seal, for many, for a long time.

Four measurements with real processes on loopback and one model. *Path*: one alone and
eight at once through relay and seal, with and without frames, against the engine
directly, in turns. *Complete*: when whole answers are there. *People*: questions that
come at random, at a share of what the engine can do. *Soak*: full load for a long time,
then clients that vanish in the middle of their answers; the memory must stay, and
nothing may run on.

Every asker has an address of its own: the relay divides its places by address.
"""

import asyncio
import json
import random
import re
import socket
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

import psutil

from benchmarks.added import complete_s, through_relay
from benchmarks.engine import SHIPPED, EnginePeer, run_engine
from benchmarks.engine_peer import CONTEXT_TOKENS, LEAST_QUESTIONS, TOKENS, question
from benchmarks.hearing import Way, pieces
from benchmarks.report import Table, busy, host, progress, quantile
from benchmarks.shapes import Chosen, embedded
from benchmarks.topics import TOPICS
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack

AT_ONCE: Final = 8
ROUNDS: Final = 5
PEOPLE: Final = 50
SHARE: Final = 0.6
"""Of the capacity, for the people."""
VANISHING: Final = 200
WAVE: Final = 20
SETTLE_S: Final = 30.0
IDLE_S: Final = 3.0
IDLE_CPU: Final = 0.1
"""Processor seconds per second, at most, of an enclave without requests."""
SAMPLE_S: Final = 5.0
FLAT: Final = 0.02
LENGTHS: Final = (20, 100, 400)
TEXT: Final = re.compile(rb'"delta":\s*\{"content":\s*"[^"]')
WRITTEN: Final = re.compile(rb'"completion_tokens":\s*([0-9]+)')
DONE: Final = b"[DONE]"
TAIL_BYTES: Final = 2048
FAILURES: Final = (OSError, EOFError, RuntimeError, ValueError)
MEBIBYTE: Final = 1024 * 1024
_ADDRESSES: Final = count()


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: tokens, and seconds to its first text, its last and its end."""

    tokens: int
    first_s: float
    text_s: float
    free_s: float


async def ask(way: Way, tokens: int = TOKENS) -> Answered:
    """Ask once, from an address that nobody else has at this time.

    Raises:
        RuntimeError: it was refused, or is not complete.
        OSError: the connection failed.
        EOFError: it was cut.
    """
    first_s = text_s = free_s = 0.0
    tail = b""
    async with aclosing(pieces(_from_somewhere(way), _body(tokens))) as answer:
        async for after_s, text in answer:
            # A frame may end anywhere in an event.
            tail = (tail + text)[-TAIL_BYTES:]
            if not first_s and TEXT.search(tail):
                first_s = after_s
            if not text_s and DONE in tail:
                text_s = after_s
            free_s = after_s
    counted = WRITTEN.search(tail)
    if counted is None or not text_s:
        raise RuntimeError("an answer is not complete")
    return Answered(int(counted[1]), first_s or text_s, text_s, free_s)


def _from_somewhere(way: Way) -> Way:
    number = next(_ADDRESSES)
    return replace(way, source=f"127.0.{2 + number // 250 % 250}.{1 + number % 250}")


def _body(tokens: int) -> bytes:
    value = {
        "messages": [{"role": "user", "content": question()}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
    }
    return json.dumps(value).encode()


@dataclass(slots=True)
class Rounds:
    """Several rounds of one way."""

    per_s: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])
    text_ms: list[float] = field(default_factory=list[float])
    free_ms: list[float] = field(default_factory=list[float])


def _stack(
    folder: Path, processes: Processes, which: Chosen, shape: TransportParameters
) -> Stack:
    extra = [
        f"context_tokens = {CONTEXT_TOKENS}",
        f"sequences = {AT_ONCE}",
        "[counters]",
        f'listen = "unix:{folder}/counters.sock"',
        "[limits]",
        # Its own limit is not what is measured.
        "max_connections = 256",
        "max_queue = 64",
    ]
    own = which.token_bytes == 1
    stack = Stack(
        folder=folder,
        processes=processes,
        transport=shape,
        enclave_extra="\n".join(extra),
        model=str(which.path) if own else "embedded",
        model_sha256=which.sha256 if own else "",
    )
    folder.mkdir(parents=True, exist_ok=True)
    stack.start_evidence()
    stack.publish()
    stack.start_enclave()
    stack.start_relay()
    return stack


def measure_serving(
    folder: Path, *, minutes: float, soak_minutes: float, rounds: int = ROUNDS
) -> list[Table]:
    """Measure all four; takes both times and about a quarter of an hour.

    Args:
        folder: for all files.
        minutes: of the people's questions.
        soak_minutes: of full load.
        rounds: of the comparison with the engine.
    """
    which = embedded()
    tables: list[Table] = []
    with Processes(folder) as processes:
        bare = _stack(folder / "bare", processes, which, UNPADDED)
        padded = _stack(folder / "padded", processes, which, PADDED)
        ways = {
            "relay and seal": through_relay("bare", bare),
            "with frames": through_relay("padded", padded),
        }
        # Alone, so that nobody waits for another's seals.
        for at_once in (1, AT_ONCE):
            with run_engine(SHIPPED, at_once, which) as engine:
                table, per_s = asyncio.run(_path(ways, engine, rounds, at_once))
            _keep(tables, table)
        bare.running["enclave"].stop()
        padded.start_client()
        _keep(tables, _complete(padded, rounds))
        padded.running["client"].stop()
        way = ways["with frames"]
        people = asyncio.run(_people(way, SHARE * per_s / TOKENS, minutes))
        _keep(tables, people)
        _keep(tables, asyncio.run(_soak(padded, way, soak_minutes)))
    return tables


def _keep(tables: list[Table], table: Table) -> None:
    """Take a table, and show it at once: the next one may take an hour."""
    note = f"{table.note}; embedded model; {host()}; {busy()}"
    tables.append(replace(table, note=note))
    progress(f"\n{tables[-1].text()}\n")


async def _path(
    ways: dict[str, Way], engine: EnginePeer, rounds: int, at_once: int
) -> tuple[Table, float]:
    found = {"engine": Rounds(), **{name: Rounds() for name in ways}}
    for way in ways.values():
        await ask(way)
    for number in range(rounds):
        progress(f"path, {at_once} at once: round {number + 1} of {rounds}")
        result = await asyncio.to_thread(engine.run, "load")
        found["engine"].per_s.append(result["tokens"] / result["wall_s"])
        found["engine"].first_ms += result["first_ms"]
        for name, way in ways.items():
            await _round(way, found[name], at_once)
    direct = found["engine"]
    rows: list[tuple[str | float, ...]] = []
    for name, each in found.items():
        pairs = zip(each.per_s, direct.per_s, strict=True)
        first = statistics.median(each.first_ms)
        rows.append(
            (
                name,
                statistics.median(each.per_s),
                statistics.median(one / other for one, other in pairs),
                first,
                first - statistics.median(direct.first_ms),
                statistics.median(each.text_ms) if each.text_ms else "-",
                statistics.median(each.free_ms) if each.free_ms else "-",
            )
        )
    table = Table(
        title=f"{at_once} at once, through relay and seal and directly",
        columns=(
            "way",
            "tokens/s",
            "to engine",
            "first p50 ms",
            "added ms",
            "last text ms",
            "line free ms",
        ),
        rows=tuple(rows),
        note=f"{rounds} rounds in turns, {TOKENS} tokens each; tokens/s until the last "
        "text of a round",
    )
    return table, statistics.median(found["relay and seal"].per_s)


async def _round(way: Way, found: Rounds, at_once: int) -> None:
    tokens, wall_s = 0, 0.0
    for _ in range(-(-LEAST_QUESTIONS // at_once)):
        answers = await asyncio.gather(*(ask(way) for _ in range(at_once)))
        tokens += sum(each.tokens for each in answers)
        wall_s += max(each.text_s for each in answers)
        found.first_ms += [1000 * each.first_s for each in answers]
        found.text_ms += [1000 * each.text_s for each in answers]
        found.free_ms += [1000 * each.free_s for each in answers]
    found.per_s.append(tokens / wall_s)


def _complete(stack: Stack, rounds: int) -> Table:
    """Measure when a client has a complete answer, its receipt verified."""
    complete_s(stack, 1, stream=True)
    rows: list[tuple[str | float, ...]] = []
    for length in LENGTHS:
        progress(f"complete answers of {length} tokens")
        pairs: list[tuple[float, float]] = []
        # The model may end early: then another question is asked.
        for number in range(2 * rounds):
            # No number in it: the client would keep it local.
            topic = TOPICS[number % len(TOPICS)]
            text = f"Write a long article about {topic}, with many details."
            with suppress(RuntimeError):
                pairs.append(
                    (
                        complete_s(stack, length, stream=True, text=text),
                        complete_s(stack, length, text=text),
                    )
                )
            if len(pairs) == rounds:
                break
        streamed, whole = (
            (statistics.median(each) for each in zip(*pairs, strict=True))
            if pairs
            else ("-", "-")
        )
        rows.append((length, str(len(pairs)), streamed, whole))
    return Table(
        title="A complete answer with frames, alone, its receipt verified",
        columns=("tokens", "of each", "streamed s", "not streamed s"),
        rows=tuple(rows),
        note="medians, in turns; endpoint, relay and enclave",
    )


async def _people(way: Way, per_s: float, minutes: float) -> Table:
    """Let people ask at random moments, whatever the answers."""
    answers: list[Answered] = []
    lost: list[str] = []
    asking: set[asyncio.Task[None]] = set()

    async def one() -> None:
        try:
            answers.append(await ask(way))
        except FAILURES as error:
            lost.append(type(error).__name__)

    chance = random.SystemRandom()
    began, asked, all_wait = time.monotonic(), 0, 0
    next_report = began
    while (now := time.monotonic()) < began + 60 * minutes:
        if now >= next_report:
            next_report = now + 30
            progress(
                f"people: {(now - began) / 60:.1f} of {minutes:g} minutes; "
                f"{asked} asked, {len(answers)} answered, {len(lost)} lost"
            )
        await asyncio.sleep(chance.expovariate(per_s))
        # Nobody asks again before the answer is there.
        if len(asking) == PEOPLE:
            all_wait += 1
        else:
            asked += 1
            task = asyncio.create_task(one())
            asking.add(task)
            task.add_done_callback(asking.discard)
    await asyncio.gather(*asking)
    firsts = [each.first_s for each in answers] or [float("nan")]
    ends = [each.text_s for each in answers] or [float("nan")]
    return Table(
        title=f"{PEOPLE} people who ask at random, {SHARE:.0%} of the capacity, "
        f"{minutes:g} minutes",
        columns=("asked", "lost", "first p50 s", "p95 s", "complete p50 s", "p95 s"),
        rows=(
            (
                str(asked),
                str(len(lost)),
                quantile(firsts, 0.5),
                quantile(firsts, 0.95),
                quantile(ends, 0.5),
                quantile(ends, 0.95),
            ),
        ),
        note=f"Poisson, {per_s * 60:.1f} questions a minute; {TOKENS} tokens each; "
        f"with frames; lost: {', '.join(sorted(set(lost))) or 'none'}; moments at "
        f"which all waited, and nobody could ask: {all_wait}",
    )


@dataclass(slots=True)
class Watched:
    """Resident memory over time, of one program and the processes it started."""

    process: psutil.Process
    mib: list[float] = field(default_factory=list[float])

    def family(self) -> list[psutil.Process]:
        """Return the program's processes that still run."""
        with suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def sample(self) -> None:
        """Take a sample of the memory."""
        octets = 0
        for each in self.family():
            with suppress(psutil.NoSuchProcess):
                octets += each.memory_info().rss
        self.mib.append(octets / MEBIBYTE)

    def cpu_s(self) -> float:
        """Return the processor time so far."""
        total = 0.0
        for each in self.family():
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system
        return total

    def connections(self) -> int:
        """Return how many established connections it has."""
        return sum(
            each.status == psutil.CONN_ESTABLISHED
            for member in self.family()
            for each in member.net_connections(kind="tcp")
        )


@asynccontextmanager
async def _sampling(watched: Sequence[Watched], title: str) -> AsyncGenerator[None]:
    async def sample() -> None:
        for number in count():
            for each in watched:
                each.sample()
            if number % 12 == 0:
                now = ", ".join(f"{each.mib[-1]:.1f} MiB" for each in watched)
                progress(f"{title}: {number * SAMPLE_S / 60:.0f} minutes; {now}")
            await asyncio.sleep(SAMPLE_S)

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _soak(stack: Stack, way: Way, minutes: float) -> Table:
    names = ("enclave", "relay")
    watched = [Watched(psutil.Process(stack.running[name].pid)) for name in names]
    answered, failed = 0, list[str]()
    end = time.monotonic() + 60 * minutes

    async def client() -> None:
        nonlocal answered
        while time.monotonic() < end:
            try:
                await ask(way)
                answered += 1
            except FAILURES as error:
                failed.append(type(error).__name__)
                await asyncio.sleep(1)

    async with _sampling(watched, "soak"):
        await asyncio.gather(*(client() for _ in range(2 * AT_ONCE)))
        loaded = len(watched[0].mib)
        for begun in range(0, VANISHING, WAVE):
            progress(f"vanishing: {begun} of {VANISHING}")
            await asyncio.gather(*(_vanish(way) for _ in range(WAVE)))
    left_cpu = await _left(watched)
    left = [each.connections() for each in watched]
    await ask(way)
    rows: list[tuple[str | float, ...]] = []
    for name, each, connections in zip(names, watched, left, strict=True):
        each.sample()
        # The first third fills caches and pools.
        steady = each.mib[loaded // 3 : loaded]
        quarter = max(1, len(steady) // 4)
        before = statistics.median(steady[:quarter])
        after = statistics.median(steady[-quarter:])
        growth = after / before - 1
        flat = max(after, each.mib[-1]) <= (1 + FLAT) * before
        rows.append(
            (
                name,
                before,
                after,
                f"{growth:+.1%} {'flat' if flat else 'NOT FLAT'}",
                each.mib[-1],
                str(connections),
            )
        )
    return Table(
        title=f"Full load for {minutes:g} minutes, then {VANISHING} who vanish",
        columns=(
            "process",
            "MiB before",
            "after",
            "change",
            "at the end",
            "lines left",
        ),
        rows=tuple(rows),
        note=f"{answered} answers, {len(failed)} failed "
        f"({', '.join(sorted(set(failed))) or 'none'}); with its children; before: the "
        "median of the second third's beginning; afterwards "
        f"{left_cpu:.2f} processor seconds per second "
        f"({'nothing runs on' if left_cpu <= IDLE_CPU else 'SOMETHING RUNS ON'}), and "
        f"a question was answered; counters: {_counted(stack)}",
    )


async def _vanish(way: Way) -> None:
    """Ask for a long answer, and hang up at its first text."""
    with suppress(*FAILURES):
        async with aclosing(pieces(_from_somewhere(way), _body(400))) as answer:
            async for _, text in answer:
                if TEXT.search(text):
                    return


async def _left(watched: Sequence[Watched]) -> float:
    """Wait until nothing computes, at most ``SETTLE_S``; return the last rate."""
    rate = 0.0
    for _ in range(int(SETTLE_S / IDLE_S)):
        before = sum(each.cpu_s() for each in watched)
        await asyncio.sleep(IDLE_S)
        rate = (sum(each.cpu_s() for each in watched) - before) / IDLE_S
        if rate <= IDLE_CPU:
            break
    return rate


def _counted(stack: Stack) -> str:
    """Return the enclave's exact counts of what must not happen."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(stack.folder / "counters.sock"))
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    found = [
        re.search(rf'event="{name}"}} ([0-9]+)', text)
        for name in ("internal_error", "malformed_http")
    ]
    return ", ".join(
        f"{name} {'?' if each is None else each[1]}"
        for name, each in zip(("internal_error", "malformed_http"), found, strict=True)
    )
