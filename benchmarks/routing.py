"""The duration of an estimate, and its quality on data held out of training.

Quality needs the provided data sets (``CURTILAGE_SHARED``, default ``../shared``);
without them, the table says so. The training's own entry points measure it, run as
programs, so the output is what users get with their own rows.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from benchmarks.report import Table, quantile
from curtilage.client.routing.estimators import open_estimator

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 1000
_LIMIT_S = 1800
_SENTENCE = "Please compare 3 ways to store backups; which one isn't slow, and why? "
TEXTS: Final[Mapping[str, str]] = {
    "60 characters": _SENTENCE[:60],
    "1.2 kB": (_SENTENCE * 20)[:1200],
    "200 kB": (_SENTENCE * 4000)[:200_000],
}
AIMS: Final[Mapping[str, str]] = {
    "mmlu, split:1531": ">= .64, <= 31, <= 64",
    "gsm8k, 5fold": ">= .64, <= 33, <= 57",
    "intent, unseen NIv2 tasks": ">= .80",
    "steady": ">= .95",
    "battery, shipped, all": "above rules, length",
    "battery, shipped, still kept local": ">= .95",
}


def measure_routing() -> list[Table]:
    """Measure the time of an estimate, then the router's quality."""
    return [_times(), _quality()]


def _times() -> Table:
    rows: list[tuple[str | float, ...]] = []
    for kind in ("ngram", "rules"):
        estimator = open_estimator(kind)
        for name, text in TEXTS.items():
            took: list[float] = []
            for _ in range(ROUNDS):
                began = time.thread_time()
                estimator.estimate(text, 512)
                took.append((time.thread_time() - began) * 1000)
            rows.append((f"{kind}, {name}", quantile(took, 0.5), quantile(took, 0.99)))
    return Table(
        title="Routing: intent and gain of one query, processor time (aim: p99 2 ms)",
        columns=("text", "p50 ms", "p99 ms"),
        rows=tuple(rows),
    )


def _quality() -> Table:
    title = "Routing: quality on what was held out of training"
    data = Path(os.environ.get("CURTILAGE_SHARED", ROOT.parent / "shared")) / "data"
    if not (data / "routing").is_dir():
        note = "NOT MEASURED: the data sets are not there; set CURTILAGE_SHARED"
        return Table(title=title, columns=("set",), rows=(("none",),), note=note)
    entry = "lab.training.router.measure"
    done = subprocess.run(
        [sys.executable, "-m", entry, "--data", str(data), "--all"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    figures = cast("dict[str, dict[str, object]]", json.loads(done.stdout))
    rows = [
        (name, _shown(value), AIMS.get(name, ""))
        for name, value in figures.items()
        if name != "learned intents from"
    ]
    return Table(
        title=title,
        columns=("set", "measured", "aim"),
        rows=tuple(rows),
        note="[figure, low, high]: 95 %, rows redrawn; named: the share over .70",
    )


def _shown(value: Mapping[str, object]) -> str:
    return "; ".join(f"{name} {each}" for name, each in value.items())
