"""``make bench``: run the measurements, print a table, write JSON.

Speed is reported as a ratio to a peer in the same run: the whole path, compared
with using the engine directly. The JSON goes to ``benchmarks/out``.
``make bench ARGS="added wire"`` runs the named parts alone.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.added import measure_added
from benchmarks.attest import measure_attest
from benchmarks.boundary import measure_boundary
from benchmarks.decisions import measure_decisions, measure_detectors, measure_workers
from benchmarks.egress import measure_egress
from benchmarks.engine import CLIENTS, measure_engine
from benchmarks.forgetting import measure_forgetting
from benchmarks.isolation import measure_isolation
from benchmarks.jitter import BATCHES, measure_jitter
from benchmarks.long import measure_long
from benchmarks.memory import measure_memory
from benchmarks.path import measure_path
from benchmarks.relay import measure_relay, measure_relay_memory
from benchmarks.report import Table, host
from benchmarks.routing import measure_routing
from benchmarks.routing_certify import measure_certified, measure_drift, measure_made_up
from benchmarks.routing_trace import measure_routing_trace
from benchmarks.routing_verifier import (
    measure_certified_drafts,
    measure_verdicts,
    measure_verifier_time,
)
from benchmarks.serving import measure_serving
from benchmarks.shapes import SHAPES
from benchmarks.starve import measure_starve
from benchmarks.wire import measure_wire

OUT = Path(__file__).resolve().parent / "out"
WIRE_ROUNDS = 60
ATTEST_ROUNDS = 40
ENCRYPTED = 2000


class Arguments(argparse.Namespace):
    """The parsed command line."""

    parts: list[str]
    prompts: int
    decisions: int
    requests: int
    shape: str
    rounds: int
    clients: Sequence[int]
    guesses: int
    answers: int
    batch: Sequence[int]
    shipped: bool
    minutes: float
    soak_minutes: float


Measure = Callable[[Arguments, Path], list[Table]]


PARTS: Final[Mapping[str, Measure]] = {
    "path": lambda read, folder: list(measure_path(folder, read.prompts)),
    "added": lambda _, folder: measure_added(folder),
    "decisions": lambda read, _: [
        measure_decisions(read.decisions),
        measure_detectors(read.decisions),
        measure_workers(),
    ],
    "engine": lambda read, folder: measure_engine(
        folder, read.shape, read.rounds, read.clients
    ),
    "forgetting": lambda read, folder: measure_forgetting(
        folder, read.shape, read.rounds
    ),
    "long": lambda _, __: measure_long(),
    "egress": lambda read, _: measure_egress(read.requests, ENCRYPTED),
    "memory": lambda _, folder: measure_memory(folder),
    "wire": lambda _, __: [measure_wire(WIRE_ROUNDS)],
    "relay": lambda _, __: [measure_relay(), measure_relay_memory()],
    "attest": lambda _, __: measure_attest(ATTEST_ROUNDS),
    "routing_trace": lambda _, __: measure_routing_trace(),
    "starve": lambda read, folder: measure_starve(folder, shipped=read.shipped),
    "routing": lambda _, __: [
        *measure_routing(),
        measure_certified(),
        measure_made_up(),
        measure_drift(),
        measure_verdicts(),
        measure_certified_drafts(),
        measure_verifier_time(),
    ],
    "boundary": lambda _, __: measure_boundary(),
}
LONG: Final[Mapping[str, Measure]] = {
    "isolation": lambda read, folder: measure_isolation(folder, read.guesses),
    "jitter": lambda read, folder: measure_jitter(folder, read.answers, read.batch),
    "serving": lambda read, folder: measure_serving(
        folder, minutes=read.minutes, soak_minutes=read.soak_minutes
    ),
}
"""An hour or more; measured only if they are named."""


def main() -> int:
    """Run everything, or the parts that are named; 1 if what must hold does not."""
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"{', '.join(PARTS)} (default: all of these); {', '.join(LONG)}, which "
        "take an hour or more",
    )
    parser.add_argument(
        "--prompts", type=int, default=20, help="prompts for each way (default: 20)"
    )
    parser.add_argument(
        "--decisions", type=int, default=300, help="queries of each length"
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=1_000_000,
        help="requests with faults (default: 1,000,000)",
    )
    parser.add_argument(
        "--shape",
        choices=sorted(SHAPES),
        default="",
        help="engine, forgetting: random weights of this shape instead of the "
        "embedded model",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="engine, forgetting: rounds (3)"
    )
    parser.add_argument(
        "--clients",
        type=int,
        nargs="+",
        default=CLIENTS,
        help="engine: how many ask at a time (1 2 4 8 16)",
    )
    parser.add_argument(
        "--guesses", type=int, default=400, help="isolation: of each kind (400)"
    )
    parser.add_argument(
        "--answers", type=int, default=200, help="jitter: of each kind (200)"
    )
    parser.add_argument(
        "--batch", type=int, nargs="+", default=BATCHES, help="jitter: at a time (1 8)"
    )
    parser.add_argument(
        "--shipped",
        action="store_true",
        help="starve: the embedded model and the shipped times (half an hour)",
    )
    parser.add_argument(
        "--minutes", type=float, default=10, help="serving: of 50 people (10)"
    )
    parser.add_argument(
        "--soak-minutes", type=float, default=30, help="serving: of full load (30)"
    )
    read = parser.parse_args(namespace=Arguments())
    measures = {**PARTS, **LONG}
    if unknown := sorted(set(read.parts) - set(measures)):
        parser.error(f"no such part: {', '.join(unknown)}")
    started = time.monotonic()
    tables: list[Table] = []
    for part in read.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="curtilage-bench-") as folder:
            measured = measures[part](read, Path(folder))
        for table in measured:
            sys.stdout.write(f"\n{table.text()}\n")
            sys.stdout.flush()
        tables += measured
    took = time.monotonic() - started
    sys.stdout.write(f"\nmeasured in {took:.0f} s on {host()}\n")
    _write(tables)
    return 0 if all(table.kept for table in tables) else 1


def _write(tables: list[Table]) -> None:
    OUT.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = OUT / f"{now:%Y%m%dT%H%M%SZ}.json"
    value = {
        "measured_at": now.isoformat(timespec="seconds"),
        "host": host(),
        "python": platform.python_version(),
        "tables": [table.value() for table in tables],
    }
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")
    sys.stdout.write(f"JSON: benchmarks/out/{path.name}\n")


if __name__ == "__main__":
    sys.exit(main())
