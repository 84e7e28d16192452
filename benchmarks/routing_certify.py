"""Certified thresholds and the drift alarm: how often their promises are broken.

A score that separates a weak model's good answers from bad ones is learned on one part
of graded data. From the rest, 500 at a time are drawn to choose a threshold, and the
others show what it is worth. The certified threshold is compared with the naive one:
the largest share with few enough counted errors.

The data are those of ``CURTILAGE_SHARED``: Mixtral's answers to GSM8K, and the grades
that ZeroEval's scorer gave small models.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.report import Table
from curtilage.client.routing.drift import BETS, Drift
from curtilage.lab.routing.certify import (
    Bound,
    Graded,
    auroc,
    bounds_of,
    certified,
    least_abstention,
)

ROOT: Final = Path(__file__).resolve().parents[1]
REPETITIONS: Final = 200
CALIBRATED: Final = 500
FITTED: Final = 400
BUCKETS: Final = 2048
PENALTY: Final = 3.0
MIXTRAL: Final = "mistralai/Mixtral-8x7B-Instruct-v0.1"
SMALL: Final = ("Meta-Llama-3.1-8B-Instruct", "Phi-3.5-mini-instruct", "gemma-2-2b-it")
ALPHAS: Final = (0.05, 0.10, 0.15, 0.20, 0.30)
PERIOD: Final = 20_000
RUNS: Final = 600

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One graded answer: the input of the score, and whether the answer was bad."""

    text: str
    length: int
    bad: bool


def shared() -> Path:
    """Return the folder of the provided data."""
    base = Path(os.environ.get("CURTILAGE_SHARED", str(ROOT.parent / "shared")))
    return base / "data" / "routing"


def responses() -> Iterator[tuple[str, str, bool]]:
    """Yield GSM8K's questions, Mixtral's answers, and whether each is right."""
    with (shared() / "routellm" / "gsm8k_responses.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield row["prompt"], row[f"{MIXTRAL}_response"], row[MIXTRAL] == "True"


def mixtral() -> list[Answered]:
    """Return Mixtral's answers to GSM8K."""
    return [
        Answered(text=f"{prompt}\n{said}", length=len(said), bad=not right)
        for prompt, said, right in responses()
    ]


def zeroeval(model: str) -> list[Answered]:
    """Return the questions of ZeroEval with the grade and the length of an answer."""
    answered: list[Answered] = []
    path = shared() / "zeroeval" / "labels_derived.jsonl"
    for line in path.read_text("utf-8").splitlines():
        row = cast("dict[str, Any]", json.loads(line))
        if model in row["correct"]:
            answered.append(
                Answered(
                    text=f"{row['task']}\n{row['prompt']}",
                    length=row["out_chars"][model],
                    bad=not row["correct"][model],
                )
            )
    return answered


def _features(items: Sequence[Answered]) -> Floats:
    """Return hashed words, their pairs, and the answer's length; one row each."""
    rows = np.zeros((len(items), BUCKETS + 2))
    for at, item in enumerate(items):
        words = item.text.lower().split()
        for piece in (*words, *map(" ".join, pairwise(words))):
            rows[at, crc32(piece.encode("utf-8", "surrogatepass")) % BUCKETS] += 1
        rows[at, :BUCKETS] = np.log1p(rows[at, :BUCKETS])
        rows[at, :BUCKETS] /= np.linalg.norm(rows[at, :BUCKETS]) or 1.0
        rows[at, BUCKETS] = np.log1p(item.length) / 8
        rows[at, BUCKETS + 1] = 1.0
    return rows


def scored(items: Sequence[Answered], seed: int = 7) -> list[Graded]:
    """Learn a score on some items, by ridge; return the others with their scores."""
    order = _shuffled(len(items), seed)
    rows = _features([items[at] for at in order])
    good = np.array([float(not items[at].bad) for at in order])
    fit, rest = slice(0, FITTED), slice(FITTED, None)
    gram = rows[fit].T @ rows[fit] + PENALTY * np.eye(rows.shape[1])
    scores = rows[rest] @ np.linalg.solve(gram, rows[fit].T @ good[fit])
    return [
        Graded(score=float(score), bad=not right)
        for score, right in zip(scores, good[rest], strict=True)
    ]


def _shuffled(count: int, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(count).tolist()
    return order


def naive(bounds: Sequence[Bound], alpha: float) -> Bound | None:
    """Return the largest share with few enough counted errors."""
    held = [
        each
        for each in bounds
        if each.accepted and each.errors <= alpha * each.accepted
    ]
    return max(held, key=lambda each: each.accepted, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    share: float
    risk: float
    broken: bool


def tried(
    graded: Sequence[Graded],
    alpha: float,
    choose: Callable[[Sequence[Bound], float], Bound | None],
) -> Iterator[_Outcome]:
    """Yield the outcome of each threshold that a sample of the graded answers chose."""
    for seed in range(REPETITIONS):
        order = _shuffled(len(graded), seed)
        chosen = choose(bounds_of([graded[at] for at in order[:CALIBRATED]]), alpha)
        if chosen is None:
            yield _Outcome(share=0.0, risk=0.0, broken=False)
            continue
        # Measured on everything known of the population: the other answers alone are
        # few, and their luck would be attributed to the threshold.
        taken = [each.bad for each in graded if each.score > chosen.threshold]
        risk = sum(taken) / max(1, len(taken))
        yield _Outcome(share=len(taken) / len(graded), risk=risk, broken=risk > alpha)


KEPT: Final = (
    *("answers", "alpha", "least abstention"),
    *("accepted", "errors among them", "broken %"),
)


def kept_row(
    name: str, graded: Sequence[Graded], alpha: float
) -> tuple[str | float, ...]:
    """Return a row of ``KEPT``: the outcomes of certified thresholds."""
    outcomes = list(tried(graded, alpha, certified))
    return (
        f"{name} (AUROC {auroc(graded):.2f})",
        alpha,
        least_abstention(fmean(each.bad for each in graded), alpha),
        fmean(each.share for each in outcomes),
        fmean(each.risk for each in outcomes),
        100 * fmean(each.broken for each in outcomes),
    )


def measure_certified() -> Table:
    """Measure how often a threshold keeps its promise on real answers."""
    sets = {"Mixtral, GSM8K": mixtral()} | {
        f"{model}, ZeroEval": zeroeval(model) for model in SMALL
    }
    rows: list[tuple[str | float, ...]] = []
    for name, items in sets.items():
        graded = scored(items)
        for alpha in ALPHAS:
            theirs = list(tried(graded, alpha, naive))
            rows.append(
                (
                    *kept_row(name, graded, alpha),
                    fmean(each.share for each in theirs),
                    100 * fmean(each.broken for each in theirs),
                )
            )
    return Table(
        title=f"Certified thresholds: {CALIBRATED} graded, {REPETITIONS} repetitions",
        columns=(*KEPT, "naive: accepted", "naive: broken %"),
        rows=tuple(rows),
        note="broken: errors beyond alpha on all answers that had no part in the score",
    )


def measure_made_up() -> Table:
    """Measure the same for data where every threshold's true error rate is known."""
    rows: list[tuple[str | float, ...]] = []
    for alpha in (0.10, 0.15, 0.20):
        outcomes = {
            name: [_made_up(seed, alpha, choose) for seed in range(REPETITIONS)]
            for name, choose in (("certified", certified), ("naive", naive))
        }
        rows.append(
            (
                f"{alpha:.2f}",
                fmean(each.share for each in outcomes["certified"]),
                100 * fmean(each.broken for each in outcomes["certified"]),
                fmean(each.share for each in outcomes["naive"]),
                100 * fmean(each.broken for each in outcomes["naive"]),
            )
        )
    return Table(
        title=f"Certified thresholds, made-up answers: {CALIBRATED} graded",
        columns=("alpha", "accepted", "broken %", "naive: accepted", "naive: broken %"),
        rows=tuple(rows),
        note="of each answer the chance to be bad is known, and so every true rate",
    )


def _made_up(
    seed: int,
    alpha: float,
    choose: Callable[[Sequence[Bound], float], Bound | None],
    rate: float = 0.2,
) -> _Outcome:
    drawn = np.random.default_rng(seed)
    ease = drawn.random(CALIBRATED)
    bad = drawn.random(CALIBRATED) < 2 * rate * (1 - ease)
    graded = [
        Graded(score=float(score), bad=bool(wrong))
        for score, wrong in zip(ease, bad, strict=True)
    ]
    chosen = choose(bounds_of(graded), alpha)
    if chosen is None:
        return _Outcome(share=0.0, risk=0.0, broken=False)
    start = max(chosen.threshold, 0.0)
    risk = rate * (1 - start)
    return _Outcome(share=1 - start, risk=risk, broken=risk > alpha)


def measure_drift() -> Table:
    """Measure how soon the alarm follows a drop in quality, and the false alarms."""
    rows: list[tuple[str | float, ...]] = []
    for promised in (0.85, 0.95):
        for lost in (0.0, 0.02, 0.05, 0.10):
            rung = _first_alarms(promised, promised - lost)
            heard = [each for each in rung if each is not None]
            rows.append(
                (
                    f"{promised:.2f}",
                    100 * lost,
                    100 * len(heard) / len(rung),
                    float(median(heard)) if heard else float("nan"),
                )
            )
    return Table(
        title=f"Drift alarm: {RUNS} runs of {PERIOD:,} graded answers",
        columns=("promised", "points lost", "rung %", "after, median"),
        rows=tuple(rows),
        note="nothing lost: that is the share of false alarms",
    )


def _first_alarms(promised: float, quality: float) -> list[int | None]:
    # Like ``Drift.after``, for many runs at once; compared with it below.
    good = np.random.default_rng(11).random((RUNS, PERIOD)) < quality
    odds = promised / (1 - promised)
    evidence = np.zeros((RUNS, PERIOD))
    for bet in BETS:
        lost, won = float(np.log(1 - bet)), float(np.log(1 + bet * odds))
        steps: Floats = lost * good + won * ~good
        evidence += np.exp(np.minimum(np.cumsum(steps, axis=1), 700.0))
    evidence /= len(BETS)
    last = Drift(promised=promised).after(float(each) for each in good[0])
    if not np.isclose(last.evidence, evidence[0, -1], rtol=1e-6):
        raise AssertionError("the benchmark's process is not the product's")
    over = evidence >= 1 / 0.01
    return [int(row.argmax()) + 1 if row.any() else None for row in over]
