"""The verifier: how well it separates good drafts from bad ones, and its cost.

Mixtral's answers to GSM8K (``CURTILAGE_SHARED``) are text alone. For your own model,
there is also how sure it was of each token: ``curtilage route answer`` writes such a
file, and ``CURTILAGE_ANSWERED`` names it.
"""

import os
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.report import Table, quantile
from benchmarks.routing_certify import KEPT, kept_row, mixtral, responses, scored
from curtilage.client.chat.answer import Delta, TokenSignal
from curtilage.client.routing.answer_features import MAX_CHARS, NAMES
from curtilage.client.routing.verifier import Head
from curtilage.lab.commands.answered_file import read_answered
from curtilage.lab.routing.answer_heads import Looks, fit_heads
from curtilage.lab.routing.certify import Graded, auroc
from curtilage.lab.routing.scores import looks_at, score_by

SPLITS: Final = 20
SIGNALS: Final = frozenset(NAMES[: NAMES.index("log characters")])
ALPHAS: Final = (0.10, 0.15, 0.20, 0.30)

GOOD: Final = 0.5
CAP_MS: Final = 30.0

Marked = tuple[Looks, bool]


def texts() -> list[Marked]:
    """Return Mixtral's answers as the verifier sees them, and whether each is right."""
    nothing = (TokenSignal(logprob=0.0, margin=0.0),)  # the same for each token
    return [
        (looks_at(prompt, [Delta(text=said, signals=nothing)], "stop"), right)
        for prompt, said, right in responses()
    ]


def recorded() -> list[Marked]:
    """Return your own model's answers likewise; none if there is no file."""
    path = os.environ.get("CURTILAGE_ANSWERED")
    return [
        (looks_at(row.text, row.deltas, row.finish), (row.grade or 0) >= GOOD)
        for row in (read_answered(Path(path)) if path else ())
    ]


def only(answers: Sequence[Marked], names: Collection[str]) -> list[Marked]:
    """Return answers reduced to some of their features."""
    kept = [name in names for name in NAMES]
    return [
        (
            tuple(
                (
                    at,
                    replace(
                        seen,
                        values=tuple(
                            value if keep else 0.0
                            for value, keep in zip(seen.values, kept, strict=True)
                        ),
                    ),
                )
                for at, seen in looks
            ),
            good,
        )
        for looks, good in answers
    ]


def judged(answers: Sequence[Marked], seed: int, share: float = 0.5) -> list[Graded]:
    """Learn heads from a part of some answers; return the scores of the others."""
    order = list(range(len(answers)))
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable, no secret
    part = int(share * len(order))
    known, rest = order[:part], order[part:]
    heads = fit_heads(
        [answers[at][0] for at in known], [answers[at][1] for at in known]
    )
    return [
        Graded(score=score_by(heads, answers[at][0]), bad=not answers[at][1])
        for at in rest
    ]


def measure_verdicts() -> Table:
    """Measure how often a good answer has a larger score than a bad one."""
    rows: list[tuple[str | float, ...]] = []
    words = fmean(auroc(scored(mixtral(), seed)) for seed in range(3))
    sets = {"Mixtral, GSM8K": texts(), "own model, recorded": recorded()}
    for name, answers in sets.items():
        if not answers:
            continue
        text = _auroc(only(answers, set(NAMES) - SIGNALS))
        has_signals = name.startswith("own")
        rows.append(
            (
                f"{name} ({len(answers)})",
                fmean(good for _, good in answers),
                float("nan") if has_signals else words,
                *text,
                *(_auroc(only(answers, SIGNALS)) if has_signals else _NONE),
                *(_auroc(answers) if has_signals else _NONE),
            )
        )
    return Table(
        title=f"Verifier: AUROC on the half that taught nothing, {SPLITS} splits",
        columns=(
            "answers",
            "good",
            "hashed words",
            *("features of the text", "from", "to"),
            *("sureness alone", "from", "to"),
            *("both", "from", "to"),
        ),
        rows=tuple(rows),
        note="from, to: of the splits, 95 of 100; CURTILAGE_ANSWERED names own answers",
    )


_NONE: Final = (float("nan"),) * 3


def _auroc(answers: Sequence[Marked]) -> tuple[float, float, float]:
    found = sorted(auroc(judged(answers, seed)) for seed in range(SPLITS))
    return fmean(found), quantile(found, 0.025), quantile(found, 0.975)


def measure_certified_drafts() -> Table:
    """Measure how often a certified threshold of the verifier breaks its promise."""
    rows: list[tuple[str | float, ...]] = []
    for name, answers in (("Mixtral, GSM8K", texts()), ("own model", recorded())):
        if not answers:
            continue
        graded = judged(answers, seed=7, share=0.3)
        rows += [kept_row(name, graded, alpha) for alpha in ALPHAS]
    return Table(
        title="Verifier: certified thresholds, 500 graded, 200 repetitions",
        columns=KEPT,
        rows=tuple(rows),
        note="broken: errors beyond alpha on all answers that had no part in the score",
    )


def measure_verifier_time() -> Table:
    """Measure all looks at one draft: real ones, and texts that are slow to match."""
    answers = texts()
    heads = fit_heads([looks for looks, _ in answers], [good for _, good in answers])
    drafts = {
        "Mixtral's answers": [each.text for each in mixtral()[:300]],
        "8,000 characters of prose": ["It is as it was said before, and so on. " * 200],
        "8,000 digits": ["7" * MAX_CHARS],
        "8,000 characters of sums": ["12 * 3 + " * (MAX_CHARS // 9)],
        "8,000 brackets": ["[" * MAX_CHARS],
    }
    rows: list[tuple[str | float, ...]] = []
    for name, pieces in drafts.items():
        taken = [
            _look_ms(heads, text) for text in pieces for _ in range(300 // len(pieces))
        ]
        rows.append((name, quantile(taken, 0.5), quantile(taken, 0.99), CAP_MS))
    return Table(
        title="Verifier: processor time of all looks at one draft, ms",
        columns=("draft", "p50", "p99", "aim, p99"),
        rows=tuple(rows),
        note="512 tokens each; the work of adding a piece is in it",
    )


def _look_ms(heads: Sequence[Head], text: str) -> float:
    signal = (TokenSignal(logprob=-0.5, margin=1.0),)
    step = max(1, len(text) // 512)
    pieces = [
        Delta(text=text[at : at + step], signals=signal)
        for at in range(0, len(text), step)
    ]
    began = time.thread_time()
    # A verifier that decides only at its end makes every look.
    score_by(heads, looks_at("Why?", pieces, "stop"))
    return (time.thread_time() - began) * 1000
