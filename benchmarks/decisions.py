"""How long a decision takes: inspection in its process, then ``decide``.

Texts are made here, harmless prose of the wanted length with a few numbers and
names in it, since detectors work hardest where something might be.
"""

import time

from benchmarks.report import Table, quantile
from curtilage.client.inspection import Inspector
from curtilage.client.query import Message, Query
from curtilage.policy.decide import Inspection, decide
from curtilage.policy.load import load_profile

LENGTHS = (50, 300, 2000)
WARM_UP = 10  # the first ones fill caches
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
        decision = decide(policy, inspection)
        ended = time.perf_counter()
        if number >= WARM_UP:
            whole.append((ended - started) * 1000)
            alone.append((ended - inspected) * 1000)
        late += "uncertain.timeout" in decision.uncertain
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
