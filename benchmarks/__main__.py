"""``make bench``: run the measurements, print a table, write JSON.

Speed is told as a ratio to a peer in the same run: what the whole path costs,
against asking the engine directly. The JSON goes to ``benchmarks/out``.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.decisions import (
    measure_decisions,
    measure_detectors,
    measure_workers,
)
from benchmarks.path import measure_path
from benchmarks.report import Table, host

OUT = Path(__file__).resolve().parent / "out"


def main() -> int:
    """Run everything; return 0."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--prompts", type=int, default=20, help="prompts for each way (default: 20)"
    )
    parser.add_argument(
        "--decisions", type=int, default=300, help="queries of each length"
    )
    read = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="curtilage-bench-") as folder:
        path, memory = measure_path(Path(folder), read.prompts)
    decisions = measure_decisions(read.decisions)
    detectors, workers = measure_detectors(read.decisions), measure_workers()
    tables = [path, decisions, detectors, memory, workers]
    for table in tables:
        sys.stdout.write(f"\n{table.text()}\n")
    took = time.monotonic() - started
    sys.stdout.write(f"\nmeasured in {took:.0f} s on {host()}\n")
    _write(tables)
    return 0


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
