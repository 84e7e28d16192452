"""Measures the gain estimator's recipe on your own rows.

    python -m lab.training.router.train_router --data FILE.jsonl --protocol 5fold

A row is ``{"text": ..., "weak": 0 or 1, "strong": 0 or 1}``. ``split:N`` learns from N
rows and measures on the others, three times with different rows (``--seeds``);
``5fold`` measures each row by what was learned from the other four fifths. Prints APGR,
CPT50 and CPT80 with 95 % intervals (resampled rows). Repeated texts are kept in one
part.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from lab.training.router.heads import Texts, design, rarity, ridge, spread
from lab.training.router.quality import Quality, interval, quality

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt, and how good each model's answer was: 0 to 1."""

    text: str
    weak: float
    strong: float


def read_rows(path: Path) -> list[Row]:
    """Read rows from a file of JSON lines."""
    made: list[Row] = []
    for line in path.read_text("utf-8").splitlines():
        if line.strip():
            value = json.loads(line)
            made.append(
                Row(str(value["text"]), float(value["weak"]), float(value["strong"]))
            )
    return made


def parts(
    texts: Sequence[str], protocol: str, seed: int
) -> Iterator[tuple[Places, Places]]:
    """Yield the rows to learn from and the rows to measure.

    Raises:
        ValueError: the protocol is neither ``5fold`` nor ``split:N``.
    """
    first = {text: at for at, text in reversed(list(enumerate(texts)))}
    names = np.array([first[text] for text in texts])
    order = np.random.default_rng(seed).permutation(len(texts))
    kind, _, count = protocol.partition(":")
    if kind == "split" and count.isdecimal() and 0 < int(count) < len(texts):
        learned = np.isin(names, names[order[: int(count)]])
        # Other rows with a repeated text are neither learned from nor measured.
        yield order[: int(count)], np.flatnonzero(~learned)
    elif protocol == "5fold":
        fold = np.empty(len(texts), dtype=int)
        fold[order] = np.arange(len(texts)) % 5
        fold = fold[names]
        for each in range(5):
            yield np.flatnonzero(fold != each), np.flatnonzero(fold == each)
    else:
        raise ValueError("the protocol is 5fold or split:N, N below the rows")


def held_out_scores(
    texts: Texts, gains: Numbers, split: Sequence[tuple[Places, Places]]
) -> Numbers:
    """Return each measured row's score; NaN for rows in no measured part."""
    scores = np.full(len(gains), np.nan)
    for learned, measured in split:
        rare = rarity(texts.hashed[learned])
        mean, wide = spread(texts.dense[learned])
        hashed, dense = design(texts, rare, mean, wide)
        buckets, plain, bias = ridge(hashed[learned], dense[learned], gains[learned])
        scores[measured] = hashed[measured] @ buckets + dense[measured] @ plain + bias
    return scores


def measure(
    rows: Sequence[Row], protocol: str, seeds: int
) -> tuple[Quality, Quality, Quality]:
    """Return the figures, the mean over all seeds, and the ends of their intervals."""
    texts = Texts([row.text for row in rows])
    gains = np.array([row.strong - row.weak for row in rows])
    each: list[tuple[Quality, Quality, Quality]] = []
    for seed in range(seeds):
        split = list(parts([row.text for row in rows], protocol, seed))
        scores = held_out_scores(texts, gains, split)
        seen = ~np.isnan(scores)
        here = (scores[seen], gains[seen])
        each.append((quality(*here), *interval(*here, seed=seed)))
    means = np.mean(
        [[[q.apgr, q.cpt50, q.cpt80] for q in triple] for triple in each], axis=0
    )
    found, low, high = (Quality(*map(float, row)) for row in means)
    return found, low, high


def main() -> int:
    """Measure, print, return 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FILE.jsonl")
    parser.add_argument("--protocol", default="5fold", metavar="5fold|split:N")
    parser.add_argument("--seeds", type=int, help="default: 3 for split, 1 for 5fold")
    read = parser.parse_args()
    rows = read_rows(read.data)
    seeds = read.seeds or (3 if read.protocol.startswith("split") else 1)
    found, low, high = measure(rows, read.protocol, seeds)
    print(f"rows {len(rows)}, protocol {read.protocol}, seeds {seeds}")
    for name in ("apgr", "cpt50", "cpt80"):
        values = [getattr(each, name) for each in (found, low, high)]
        places = 3 if name == "apgr" else 1
        shown, least, most = (f"{value:.{places}f}" for value in values)
        print(f"{name.upper():6} {shown} [{least}, {most}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
