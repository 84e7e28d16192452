"""Long texts: what a large context costs, and how long the detectors take.

Contexts: all kinds of keys and values in turns, in one process with one thread, in
processor time of that thread, so that other work of the machine affects all alike. A
context is made and cleared at several sizes: what a short answer would pay for a large
one, if the context did not begin small.

Texts: sentences of harmless prose, inspected by the default profile's detectors in
their process, whose processor time counts. One personal sentence is added at the start,
the middle or the end, and must be found.
"""

import random
import time
from statistics import median
from typing import Final

import psutil

from benchmarks.report import Table
from curtilage.client.chat.query import single_query
from curtilage.client.detection.inspection import Inspector
from curtilage.inference.default_model import find_default_model
from curtilage.inference.native import FIRST_TOKENS, Context, Model, Row
from curtilage.inference.settings import FlashAttention, KVType
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
    """Measure contexts and texts; takes about ten minutes."""
    model = Model(str(find_default_model()))
    try:
        return [_kinds(model), _sizes(model), _texts()]
    finally:
        model.free()


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
