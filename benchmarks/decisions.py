"""The duration of a decision: inspection in its process, then ``decide``.

Then the processor time of the detectors alone, next to plain Presidio in the same run,
and the memory of their processes. The texts are generated here: harmless prose of a
given length with a few numbers and names in it, since detectors work hardest on
possible findings.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import psutil

from benchmarks.report import Table, quantile
from curtilage.client.chat.query import Message, Query
from curtilage.client.detection.detectors.all import scanner_of
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.inspection import Inspector
from curtilage.lab.evaluation.stock_presidio import StockPresidio, spacy_model
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.document.detection_plan import NerPlan
from curtilage.policy.document.load import load_profile

LENGTHS = (50, 300, 2000)
WARM_UP = 10  # the first ones fill caches
SPARE_WAIT_S = 60.0
_MIB = 1024 * 1024
SENTENCES = (
    "How should a small team plan its work for the next quarter? ",
    "The meeting starts at 10 and the budget is 2500 euros. ",
    "Please compare three ways to store backups of a database. ",
    "The second option costs less but needs more attention. ",
    "A colleague suggested to write the steps down first. ",
)


def measure_decisions(count: int) -> Table:
    """Measure decisions of each length, one after the other."""
    policy = load_profile("default")
    inspector = Inspector.start(policy)
    try:
        rows = [_row(inspector, length, count) for length in LENGTHS]
    finally:
        inspector.close()
    return Table(
        title=f"Decisions: {count} queries of each length",
        columns=(
            "characters",
            "p50 ms",
            "p99 ms",
            "decide alone p50 ms",
            "timed out",
        ),
        rows=tuple(rows),
        note="there and back to the detectors' process, then the pure decision",
    )


def _row(inspector: Inspector, length: int, count: int) -> tuple[str | float, ...]:
    policy = load_profile("default")
    whole: list[float] = []
    alone: list[float] = []
    late = 0
    for number in range(count + WARM_UP):
        query = Query(messages=(Message(role="user", content=_text(length, number)),))
        started = time.perf_counter()
        inspection: Inspection = inspector.inspect(query)
        inspected = time.perf_counter()
        decision = assess(policy.rulebook, inspection)
        ended = time.perf_counter()
        if number >= WARM_UP:
            whole.append((ended - started) * 1000)
            alone.append((ended - inspected) * 1000)
        late += not UNFINISHED.isdisjoint(decision.uncertain)
    return (
        str(length),
        quantile(whole, 0.5),
        quantile(whole, 0.99),
        quantile(alone, 0.5),
        float(late),
    )


def _text(length: int, number: int) -> str:
    text = f"Question {number}: "
    while len(text) < length:
        text += SENTENCES[(number + len(text)) % len(SENTENCES)]
    return text[:length]


def measure_detectors(count: int) -> Table:
    """Measure all detectors of the default profile and Presidio."""
    plain, with_spacy = StockPresidio(), StockPresidio(spacy_model())
    without, with_model = _scanner("none"), _scanner("embedded")
    rows: list[tuple[str | float, ...]] = [
        (
            str(length),
            *_quantiles(lambda text: without.scan([text]), length, count),
            *_quantiles(lambda text: with_model.scan([text]), length, count),
            *_quantiles(plain.spans, length, count),
            *_quantiles(with_spacy.spans, length, count),
        )
        for length in LENGTHS
    ]
    return Table(
        title=f"Detectors: {count} texts of each length, processor time in ms",
        columns=(
            "characters",
            "rules p50",
            "rules p99",
            "with model p50",
            "with model p99",
            "plain Presidio p50",
            "plain Presidio p99",
            "Presidio with spaCy p50",
            "Presidio with spaCy p99",
        ),
        rows=tuple(rows),
        note="in this process, one thread; every text is new to the detectors",
    )


def _scanner(engine: Literal["none", "embedded"]) -> Scanner:
    plan = load_profile("default").plan
    scanner = scanner_of(replace(plan, ner=NerPlan(engine=engine), scan="full"))
    for preload in scanner.preloads:
        preload()
    return scanner


def _quantiles(
    look: Callable[[str], object], length: int, count: int
) -> Sequence[float]:
    spent: list[float] = []
    for number in range(count + WARM_UP):
        text = _text(length, number)
        started = time.thread_time()
        look(text)
        spent.append((time.thread_time() - started) * 1000)
    return quantile(spent[WARM_UP:], 0.5), quantile(spent[WARM_UP:], 0.99)


def measure_workers() -> Table:
    """Measure the memory of the worker and of the standby worker."""
    inspector = Inspector.start(load_profile("default"))
    try:
        inspector.inspect(Query(messages=(Message(role="user", content="hello"),)))
        deadline = time.monotonic() + SPARE_WAIT_S
        while inspector.spare_pid is None and time.monotonic() < deadline:
            time.sleep(0.1)
        rows = [
            (name, psutil.Process(pid).memory_info().rss / _MIB)
            for name, pid in (
                ("worker", inspector.worker_pid),
                ("spare", inspector.spare_pid),
            )
            if pid is not None
        ]
    finally:
        inspector.close()
    return Table(
        title="Processes of the detectors",
        columns=("process", "resident MiB"),
        rows=tuple(rows),
        note="the spare is a flag of the constructor; bulk commands start none",
    )
