"""Long texts: what a large context costs, how long detectors and an answer take.

Contexts: all kinds of keys and values in turns, in one process with one thread, in
processor time of that thread, so that other work of the machine affects all alike. A
context is made and cleared at several sizes: what a short answer would pay for a large
one, if the context did not begin small. Flash attention on and off is compared at
several lengths, alone and with others in the batch.

Answers: the embedded model reads a text and writes a few tokens, where it fits; where
it does not, the error says how long it is.

Texts: sentences of harmless prose, inspected by the default profile's detectors in
their process, whose processor time counts. One personal sentence is added at the start,
the middle or the end, and must be found.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from statistics import median
from typing import Final

import psutil

from benchmarks.report import Table, progress
from curtilage.client.chat.query import single_query
from curtilage.client.detection.inspection import Inspector
from curtilage.inference.default_model import DEFAULT_SHA256, find_default_model
from curtilage.inference.errors import ContextTooLongError
from curtilage.inference.native import FIRST_TOKENS, Context, Model, Row
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess
from curtilage.inference.protocol import ChatMessage, GenerateRequest, Started
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings, FlashAttention, KVType
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.findings import Finding
from curtilage.policy.document.load import load_policy, profile_text

KINDS: Final[tuple[tuple[KVType, FlashAttention], ...]] = (
    ("f16", "off"),
    ("f16", "on"),
    ("q8_0", "on"),
    ("q4_0", "on"),
)
FILLED: Final = (256, 1024)
"""Tokens that are in the context when the others are written."""
WRITTEN: Final = 24
MARKS: Final[Mapping[int, Sequence[int]]] = {
    1: (100, 500, 1_500, 4_000),
    8: (100, 500, 1_500),
}
"""Tokens in the context of each answer, by how many answers there are at once."""
STEPS: Final = 12
ANSWERED: Final = (20_000, 35_000, 200_000)
ROUNDS: Final = 3
CHUNK: Final = 128
SIZES: Final = (2048, 4096, 8192, 32_768)
TEXTS: Final = (5_000, 20_000, 50_000, 100_000, 200_000)
MEBIBYTE: Final = 1024 * 1024
SENTENCES: Final = (
    "The river rises slowly in spring when the snow on the hills begins to melt.",
    "A good bridge carries its load without anyone noticing it.",
    "The engine compares two lists and keeps the shorter one.",
    "Bread needs time, warmth and patience more than any secret.",
    "Each chapter begins with a question and ends with another.",
    "Most of the software was written before the standard was published.",
    "Wind turbines turn slowly above the flat land near the coast.",
)
PLANTED: Final = "Please call Mrs Margaret Holloway at margaret.holloway@example.org."


def measure_long() -> list[Table]:
    """Measure contexts, answers and texts; takes about a quarter of an hour."""
    model = Model(str(find_default_model()))
    try:
        tables = [_kinds(model), _attention(model), _sizes(model)]
    finally:
        model.free()
    return [*tables, asyncio.run(_answers()), _texts()]


def _kinds(model: Model) -> Table:
    prompt = model.tokenize(" ".join(prose(30_000)), special=False)
    rounds: dict[tuple[KVType, FlashAttention, int], list[tuple[float, ...]]] = {}
    sizes: dict[tuple[KVType, FlashAttention, int], int] = {}
    for _ in range(ROUNDS):
        for kv_type, flash in KINDS:
            for filled in FILLED:
                key = kv_type, flash, filled
                context = Context(
                    model,
                    tokens=max(FILLED) + WRITTEN,
                    threads=1,
                    kv_type=kv_type,
                    flash_attention=flash,
                )
                context.open(0, tokens=filled + WRITTEN)
                rounds.setdefault(key, []).append(_speeds(context, prompt[:filled]))
                sizes[key] = len(context.save(0).view)
                context.free()
    usual = KINDS[0]

    def ratio(key: tuple[KVType, FlashAttention, int], at: int) -> float:
        # Of each round by itself: what the machine does otherwise changes over time.
        pairs = zip(rounds[key], rounds[*usual, key[2]], strict=True)
        return median(mine[at] / others[at] for mine, others in pairs)

    return Table(
        title=f"Keys and values, {ROUNDS} rounds, one thread",
        columns=(
            "kv_type, flash_attention",
            "tokens in context",
            "MiB",
            "read, tokens/cpu-s",
            "read / f16 off",
            "written, tokens/cpu-s",
            "written / f16 off",
        ),
        rows=tuple(
            (
                f"{key[0]}, {key[1]}",
                key[2],
                sizes[key] / MEBIBYTE,
                median(each[0] for each in rounds[key]),
                ratio(key, 0),
                median(each[1] for each in rounds[key]),
                ratio(key, 1),
            )
            for key in rounds
        ),
    )


def _speeds(context: Context, tokens: list[int]) -> tuple[float, float]:
    began = time.thread_time()
    for start in range(0, len(tokens), CHUNK):
        piece = tokens[start : start + CHUNK]
        context.decode(
            [Row(token, start + at, 0, False) for at, token in enumerate(piece)]
        )
    read_s = time.thread_time() - began
    began = time.thread_time()
    for at, token in enumerate(tokens[:WRITTEN]):
        context.decode([Row(token, len(tokens) + at, 0, True)])
    return len(tokens) / read_s, WRITTEN / (time.thread_time() - began)


def _attention(model: Model) -> Table:
    """Compare flash attention on and off, by length and by answers at once."""
    rows: list[tuple[str | float, ...]] = []
    for sequences, lengths in MARKS.items():
        found = [_at(model, flash, sequences, lengths) for flash in ("on", "off")]
        for mark, on, off in zip(lengths, *found, strict=True):
            name = f"{mark:,}, {sequences}"
            rows.append((name, *on, *off, off[1] / on[1]))
    return Table(
        title="Flash attention on and off, ms of processor time, one thread",
        columns=(
            "tokens in context, answers at once",
            "on: read a token",
            "write a step",
            "off: read a token",
            "write a step",
            "off / on, write",
        ),
        rows=tuple(rows),
        note=f"medians of {STEPS} steps",
    )


def _at(
    model: Model, flash: FlashAttention, sequences: int, lengths: Sequence[int]
) -> list[tuple[float, float]]:
    """Return ms for reading a token up to each length, and for a step behind it."""
    size = lengths[-1] + CHUNK
    context = Context(
        model, tokens=size, threads=1, sequences=sequences, flash_attention=flash
    )
    for sequence in range(sequences):
        context.open(sequence, tokens=size)
    order = random.Random(11)  # noqa: S311 - not a secret
    found: list[tuple[float, float]] = []
    filled = 0
    for length in lengths:
        progress(f"flash attention {flash}, {sequences} at once, {length} tokens")
        began, read = time.thread_time(), 0
        while filled < length:
            count = min(CHUNK, length - filled)
            for sequence in range(sequences):
                rows = [
                    Row(order.randrange(100, 40_000), filled + at, sequence, False)
                    for at in range(count)
                ]
                context.decode(rows)
                read += count
            filled += count
        read_ms = 1000 * (time.thread_time() - began) / read
        steps: list[float] = []
        for _ in range(STEPS):
            began = time.thread_time()
            context.decode([Row(5, filled, each, True) for each in range(sequences)])
            context.drop_logits()
            steps.append(1000 * (time.thread_time() - began))
            filled += 1
        found.append((read_ms, median(steps)))
    context.free()
    return found


async def _answers() -> Table:
    """Let the embedded model answer texts as long as its context, and a longer one."""
    engine = EngineProcess(
        Plan(
            model=str(find_default_model()),
            sha256=DEFAULT_SHA256,
            model_id="default",
            settings=EngineSettings(context_tokens=SIZES[2], threads=1),
        )
    )
    await engine.start()
    rows: list[tuple[str | float, ...]] = []
    try:
        for chars in ANSWERED:
            progress(f"an answer to {chars:,} characters")
            rows.append((f"{chars:,}", *await _answer(engine, chars)))
    finally:
        await engine.close()
    return Table(
        title=f"A text in the embedded model's {SIZES[2]:,} tokens, and one beyond",
        columns=("characters", "tokens", "first token, s", "end, s"),
        rows=tuple(rows),
        note=f"{WRITTEN} tokens written; one thread, wall time",
    )


async def _answer(engine: EngineProcess, chars: int) -> tuple[str | float, ...]:
    text = f"{' '.join(prose(chars))} What is said of bread?"
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content=text),),
        settings=SamplingSettings(max_tokens=WRITTEN, temperature=0),
    )
    began, first_s, tokens = time.perf_counter(), 0.0, 0
    try:
        async with aclosing(engine.generate(request)) as events:
            async for event in events:
                match event:
                    case Started(prompt_tokens=tokens):
                        pass
                    case _:
                        first_s = first_s or time.perf_counter() - began
    except ContextTooLongError as error:
        said = f"refused: {error.prompt_tokens:,} and {error.max_tokens} tokens"
        return said, f"context {error.context_tokens:,}", "-"
    return f"{tokens:,}", first_s, time.perf_counter() - began


def _sizes(model: Model) -> Table:
    """Measure what a context of a size costs that is made anew for each answer."""
    rows: list[tuple[str | float, ...]] = []
    for size in SIZES:
        context = Context(model, tokens=size, threads=1)
        times: list[float] = []
        for _ in range(2 * ROUNDS):
            began = time.thread_time()
            context.open(0, tokens=size)
            context.decode([Row(5, 0, 0, True)])
            context.clear()
            times.append(1000 * (time.thread_time() - began))
        context.free()
        rows.append((size, median(times)))
    return Table(
        title=f"A context of a size, opened and cleared; it begins with {FIRST_TOKENS}",
        columns=("tokens", "ms of processor time"),
        rows=tuple(rows),
    )


def _texts() -> Table:
    # Time by the clock is what else runs here; processor time is what is measured.
    text = profile_text("default")
    patient = text.replace("deadline_wall_ms: 30000", "deadline_wall_ms: 600000")
    inspector = Inspector.start(load_policy(patient), spare=False)
    rows: list[tuple[str | float, ...]] = []
    try:
        for chars in TEXTS:
            sentences = prose(chars)
            cpu_s, wall_s = _timed(inspector, " ".join(sentences))
            found = [_finds(inspector, sentences, share) for share in (0.0, 0.5, 1.0)]
            process = psutil.Process(inspector.worker_pid)
            rows.append(
                (
                    chars,
                    cpu_s,
                    wall_s,
                    process.memory_info().rss / MEBIBYTE,
                    f"{sum(found)} of {len(found)}",
                )
            )
    finally:
        inspector.close()
    return Table(
        title="Harmless prose, inspected",
        columns=("characters", "cpu-s", "s", "MiB of the process", "planted, found"),
        rows=tuple(rows),
    )


def _timed(inspector: Inspector, text: str) -> tuple[float, float]:
    worker = psutil.Process(inspector.worker_pid)

    def used_s() -> float:
        times = worker.cpu_times()
        return float(times.user + times.system)

    before_s, began = used_s(), time.perf_counter()
    _findings(inspector, text)
    took_s = time.perf_counter() - began
    return used_s() - before_s, took_s


def _finds(inspector: Inspector, sentences: list[str], share: float) -> bool:
    text = list(sentences)
    text.insert(round(share * len(text)), PLANTED)
    whole = " ".join(text)
    place = whole.index(PLANTED)
    found = {
        each.data_class
        for each in _findings(inspector, whole)
        if 0 <= each.start - place <= len(PLANTED)
    }
    return found >= {"identifier.direct.person", "identifier.direct.email"}


def _findings(inspector: Inspector, text: str) -> tuple[Finding, ...]:
    findings = inspector.inspect(single_query(text)).findings
    if unfinished := UNFINISHED.intersection(each.data_class for each in findings):
        raise RuntimeError(f"not examined: {', '.join(unfinished)}")
    return findings


def prose(chars: int) -> list[str]:
    """Return sentences of harmless prose, in an order that does not repeat."""
    order = random.Random(11)  # noqa: S311 - not a secret
    sentences: list[str] = []
    length = 0
    while length < chars:
        sentences.append(order.choice(SENTENCES))
        length += len(sentences[-1]) + 1
    return sentences
