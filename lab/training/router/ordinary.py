"""Writes the ordinary traffic that ships with the router: the distribution of needs.

    python -m lab.training.router.ordinary --out client/.../weights/ordinary.json

For each kind of request in the battery, in seven languages: its share of ordinary
traffic, its tokens, and quantiles of its need of a strong model for each estimator. The
shares are an assumption about office work (docs/costs.md), and count for less the more
a device has seen of its own traffic. No word of a request is written.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from lab.training.router.battery import requests

from curtilage.client.routing.aim import REFERENCE_SCALE, tokens_of
from curtilage.client.routing.estimators import open_estimator

if TYPE_CHECKING:
    from curtilage.client.routing.estimate import Intent

SHARES = {
    "autocomplete": 10,
    "classification": 14,
    "extraction": 14,
    "rewriting": 14,
    "answering": 13,
    "either": 5,
    "code": 7,
    "reasoning": 7,
    "long": 6,
    "expert": 5,
    "planning": 5,
}
"""Percent of ordinary traffic: 65 routine, 30 hard; docs/costs.md has the kinds."""
QUANTILES = 20
_MOST_TOKENS = 512
_SHORT, _MEDIUM = 120, 1000


def length_of(tokens: int) -> str:
    """Return the class of a length."""
    if tokens <= _SHORT:
        return "short"
    return "medium" if tokens <= _MEDIUM else "long"


def spread(kind: str) -> list[dict[str, object]]:
    """Return the distribution of an estimator's needs, by intent and length."""
    estimator = open_estimator(kind)  # type: ignore[arg-type]
    cells: dict[tuple[Intent, str], list[tuple[float, float, int]]] = defaultdict(list)
    rows = requests("developed")
    count = {name: sum(row.kind == name for row in rows) for name in SHARES}
    for row in rows:
        found = estimator.estimate(row.text, _MOST_TOKENS)
        cells[found.intent, length_of(found.prompt_tokens)].append(
            (
                SHARES[row.kind] / 100 / count[row.kind],
                REFERENCE_SCALE.need(found.gain),
                tokens_of(found),
            )
        )
    made: list[dict[str, object]] = []
    for (intent, length), some in sorted(cells.items()):
        weights, needs, tokens = map(np.array, zip(*some, strict=True))
        order = np.argsort(needs)
        passed = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
        at = (np.arange(QUANTILES) + 0.5) / QUANTILES
        made.append(
            {
                "intent": intent.value,
                "length": length,
                "share": round(float(weights.sum()), 4),
                "tokens": round(float(np.average(tokens, weights=weights))),
                "quantiles": np.round(np.interp(at, passed, needs[order]), 4).tolist(),
            }
        )
    return made


def main() -> int:
    """Write the file; return 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    read = parser.parse_args()
    need = {kind: spread(kind) for kind in ("ngram", "rules")}
    read.out.write_text(json.dumps({"need": need}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
