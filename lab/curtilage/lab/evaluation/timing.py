"""Figures about time and sockets: the cost of an inspection, and its connections.

CPU time is for the detectors alone, all threads, in this process, and alternates with
plain Presidio text by text. Wall time includes the way to the worker and back. Each
text is inspected three times and the best time counts, which reduces the effect of
other load on the machine.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from curtilage.client.chat.query import Query, single_query
from curtilage.client.detection.detectors.all import scanner_of
from curtilage.lab.evaluation.bench import Bench
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.statistics import quantile_estimate, share, share_of
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Ner, Policy, full_scan

LENGTHS: Final = (50, 300, 2000)
TEXTS: Final = 200  # per length; the 99th of only a hundred could be a single outlier
PASSES: Final = 3
_WARM_UP: Final = 20
_ASKED_LENGTH: Final = 300  # the targets are for about this length
_WITHOUT: Final = Target.at_most(5.0)
_WITH: Final = Target.at_most(15.0)
_FASTER: Final = Target.at_least(3.0)
_SHORT_CHARS: Final = 60
_SETS: Final = ("clinc150", "banking77", "gsm8k", "mt-bench", "arena-hard")
_NOTE: Final = (
    "latency: cpu is of the detectors alone, in one process; wall is through the "
    "worker; best of three passes; exact intervals of order statistics"
)

Look = Callable[[str], object]


class TimedInspector(Protocol):
    """Interface of the timed detectors with their worker."""

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id."""
        ...

    def inspect(self, query: Query) -> Inspection:
        """Return everything found in a query."""
        ...

    def close(self) -> None:
        """Stop the worker."""
        ...


Start = Callable[[Policy], TimedInspector]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Detectors with one of the two ways to find names.

    Attributes:
        id: part of the figures' ids.
        title: for people.
        policy: determines what is run.
        target: for the CPU time of a text of 300 characters.
    """

    id: str
    title: str
    policy: Policy
    target: Target


def in_process(policy: Policy) -> Look:
    """Return a policy's detectors, in this process; takes seconds."""
    scanner = scanner_of(policy.plan)
    for preload in scanner.preloads:
        preload()
    return lambda text: scanner.scan((text,))


def without_model(policy: Policy) -> Policy:
    """Return the same policy with rules instead of a model to find names."""
    document = policy.document.model_copy(update={"ner": Ner(engine="none")})
    return replace(policy, document=document)


def best_ms(
    looks: Sequence[Look], texts: Sequence[str], clock: Callable[[], float]
) -> list[list[float]]:
    """Return for each way the best time of each text over all passes.

    The ways alternate at each text, so that other load on the machine affects them
    alike. Added line ends make each text new in each pass, since texts may be cached.
    """
    for text in texts[:_WARM_UP]:
        for look in looks:
            look(text)
    best = [[float("inf")] * len(texts) for _ in looks]
    for number in range(1, PASSES + 1):
        for at, text in enumerate(texts):
            for way, look in enumerate(looks):
                unseen = text + "\n" * number
                started = clock()
                look(unseen)
                taken = (clock() - started) * 1000
                best[way][at] = min(best[way][at], taken)
    return best


def texts_of(rows: Sequence[str], length: int, count: int) -> list[str]:
    """Return texts of about a length: whole ones first, then joined and cut ones."""
    whole = [text for text in rows if 0.8 * length <= len(text) <= 1.2 * length]
    made = whole[:count]
    at = 0
    while rows and len(made) < count:
        text = ""
        while len(text) < length:
            text += rows[at % len(rows)] + "\n"
            at += 1
        made.append(text[:length])
    return made


def latency(
    bench: Bench, start: Start, detectors: Callable[[Policy], Look]
) -> Iterator[Figure]:
    """Yield CPU and wall time by length, and the ratio to plain Presidio."""
    texts = [row.text for name in _SETS for row in bench.sample(bench.rows(name))[:800]]
    if not texts:
        return
    spread = texts[:: max(len(texts) // 1000, 1)]
    for mode in _modes(bench.policy):
        bench.notify(f"latency {mode.title}")
        look = detectors(mode.policy)
        inspector = start(mode.policy)
        try:
            yield from _by_length(mode, look, inspector, spread)
        finally:
            inspector.close()
        yield from _compared(bench, mode, look)


def _modes(policy: Policy) -> Iterator[Mode]:
    patient = full_scan(policy)
    # The policy's own scan setting: what it may skip costs nothing.
    document = patient.document.model_copy(update={"scan": policy.document.scan})
    as_used = replace(patient, document=document)
    yield Mode(
        id="rules",
        title="without names model",
        policy=without_model(as_used),
        target=_WITHOUT,
    )
    if policy.document.ner.engine != "none":
        yield Mode(id="model", title="with names model", policy=as_used, target=_WITH)


def _by_length(
    mode: Mode, look: Look, inspector: TimedInspector, texts: Sequence[str]
) -> Iterator[Figure]:
    for length in LENGTHS:
        chosen = texts_of(texts, length, TEXTS)
        (cpu,) = best_ms([look], chosen, time.process_time)
        (wall,) = best_ms(
            [lambda text: inspector.inspect(single_query(text))],
            chosen,
            time.perf_counter,
        )
        for kind, values in (("cpu", cpu), ("wall", wall)):
            for q, name in ((0.5, "p50"), (0.99, "p99")):
                asked_for = (name, kind, length) == ("p99", "cpu", _ASKED_LENGTH)
                yield Figure(
                    id=f"latency.{mode.id}.{length}.{name}_{kind}",
                    title=f"{mode.title}, {length} chars, {name} {kind}",
                    estimate=quantile_estimate(values, q),
                    unit="ms",
                    target=mode.target if asked_for else None,
                    note=_NOTE,
                )


def _compared(bench: Bench, mode: Mode, look: Look) -> Iterator[Figure]:
    """Yield how many times faster than each Presidio clean short queries are."""
    short = [row for row in bench.rows("clinc150") if len(row.text) <= _SHORT_CHARS]
    clean = [
        each.row.text
        for each in bench.judge(bench.sample(short)[: 2 * TEXTS], "clean short queries")
        if each.decision.route is Route.ENCLAVE and not each.inspection.findings
    ][:TEXTS]
    if not clean or not bench.stocks:
        return
    looks = [look, *(stock.spans for stock in bench.stocks)]
    ours, *theirs = best_ms(looks, clean, time.process_time)
    named = (("stock", "plain Presidio"), ("stock_model", "Presidio with a model"))
    yield _short(mode.id, mode.title, ours)
    for (name, title), values in zip(named, theirs, strict=False):
        ratios = [
            their / our for our, their in zip(ours, values, strict=True) if our > 0
        ]
        # The model reads every word of a short query; plain Presidio has no model.
        asked_for = (mode.id, name) == ("rules", "stock")
        yield Figure(
            id=f"latency.{mode.id}.faster{'' if name == 'stock' else '_model'}",
            title=f"{mode.title}: times faster than {title}",
            estimate=quantile_estimate(ratios, 0.5),
            unit="ratio",
            target=_FASTER if asked_for else None,
        )
        yield _short(f"{mode.id}.{name}", f"  {title}", values)


def _short(name: str, title: str, values: Sequence[float]) -> Figure:
    return Figure(
        id=f"latency.{name}.short_p50_cpu",
        title=f"{title}, clean short queries, p50 cpu",
        estimate=quantile_estimate(values, 0.5),
        unit="ms",
    )


# --- deadlines --------------------------------------------------------------------

AT_ONCE: Final = 4  # the load under which a deadline must hold
_LONG: Final = (2_000, 20_000)  # characters; the longest accepted by default
_LONG_SETS: Final = ("arena-hard", "routing", "code-prompts", "tatqa-tables")


def deadline(bench: Bench, start: Start) -> Figure:
    """Count long prompts that miss the policy's own deadline, four at a time."""
    texts = [row.text for name in _LONG_SETS for row in bench.sample(bench.rows(name))]
    count = min(bench.limit, TEXTS) if texts else 0
    least, most = _LONG
    prompts = [
        texts_of(texts[at * 7 % len(texts) :] + texts, length, 1)[0]
        for at in range(count)
        for length in (least + (most - least) * at // count,)
    ]
    load = os.getloadavg()[0]
    inspectors = [start(bench.policy) for _ in range(AT_ONCE)]
    bench.notify("long prompts, four at once")

    def lost(number: int) -> list[bool]:
        found = (
            inspectors[number].inspect(single_query(text))
            for text in prompts[number::AT_ONCE]
        )
        decisions = (assess(bench.policy.rulebook, each) for each in found)
        return [not UNFINISHED.isdisjoint(each.uncertain) for each in decisions]

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = [
                each for part in pool.map(lost, range(AT_ONCE)) for each in part
            ]
    finally:
        for inspector in inspectors:
            inspector.close()
    return Figure(
        id="deadline.lost",
        title="prompts of 2,000 to 20,000 characters lost to a deadline",
        estimate=share_of(outcomes),
        target=Target.at_most(0.01),
        note=f"deadline: under the policy's own limits, {AT_ONCE} detectors at work at "
        f"once; load before {load:.1f} on {os.cpu_count()} processors",
    )


# --- sockets ----------------------------------------------------------------------

_LEAVES: Final = frozenset(
    {
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendto",
    }
)


class SocketCount:
    """Counts every socket that this process opens or uses while it is on.

    There is one instance only, since an audit hook cannot be removed.
    """

    def __init__(self) -> None:
        self.on = False
        self.seen = 0
        sys.addaudithook(self.hear)

    def hear(self, event: str, args: tuple[object, ...]) -> None:
        """Count an event of the interpreter's audit, if it is about a socket."""
        del args
        if self.on and event in _LEAVES:
            self.seen += 1


def sockets(bench: Bench, start: Start, count: SocketCount) -> Figure:
    """Count sockets, here and in a worker, during decisions on texts of every set."""
    rows = [row for name in _SETS for row in bench.rows(name)[:40]]
    bench.notify("sockets")
    inspector = start(full_scan(bench.policy))
    count.seen, count.on = 0, True
    try:
        for row in rows:
            assess(bench.policy.rulebook, inspector.inspect(single_query(row.text)))
        held = worker_sockets(inspector.worker_pid)
    finally:
        count.on = False
        inspector.close()
    opened = count.seen + held
    bound = share(0, len(rows)) if rows else share(0, 0)
    return Figure(
        id="sockets.opened",
        title="sockets opened while deciding",
        estimate=replace(bound, value=float(opened), low=opened, high=opened),
        unit="count",
        target=Target.at_most(0),
        note="sockets: an audit hook here, and the sockets that the worker holds; "
        "the worker's own hook refuses to open any",
    )


def worker_sockets(pid: int | None) -> int:
    """Return how many sockets a process has; 0 if the system does not report it."""
    folder = Path(f"/proc/{pid}/fd")
    if pid is None or not folder.is_dir():
        return 0
    return sum(_is_socket(link) for link in folder.iterdir())


def _is_socket(link: Path) -> bool:
    try:
        return str(link.readlink()).startswith("socket:")
    except OSError:
        return False  # closed in the meantime
