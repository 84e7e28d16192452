"""Learn the shipped router and write its file and the figures of its card.

python -m evaluation.training.router.train --data DIR --out WEIGHTS
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from evaluation.training.router.heads import (
    Texts,
    design,
    logits,
    rarity,
    ridge,
    spread,
)
from evaluation.training.router.quality import interval, quality
from evaluation.training.router.sources import (
    Outcome,
    Task,
    other_tasks,
    own,
    routellm,
    tasks,
    zeroeval,
)
from evaluation.training.router.train_router import held_out_scores, parts
from sklearn.isotonic import IsotonicRegression

from curtilage.client.routing.estimate import KNOWN, THRESHOLD, prompt_tokens
from curtilage.client.routing.estimators import FILE
from curtilage.client.routing.features import VERSION
from curtilage.client.routing.ngram import Weights, prior_of
from curtilage.client.routing.refit import CHANCE, packed

# Whether a model follows a program by hand cannot be told from the program: the set
# says how much is gained on such tasks, not on which of them.
CURVE_ONLY = "crux"
_KNOTS = 12
_ROUNDS = 1000
_LEAST_ROWS = 20  # of a set in a bin, to say how sets differ there
_NINETY_FIVE = 1.96
_STEPS = 127

Numbers = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
NAMES = [each.value for each in KNOWN]


def softmax(scores: Numbers) -> Numbers:
    """Return chances of each row's logits."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def unseen_intents(known: Sequence[Task], more: Sequence[Task]) -> Numbers:
    """Return logits of each known task's rows by what was learned without the task."""
    names = sorted({row.origin for row in known})
    fold_of = dict(
        zip(names, np.random.default_rng(0).permutation(len(names)) % 5, strict=True)
    )
    folds = np.array([fold_of[row.origin] for row in known])
    here, there = (Texts([row.text for row in rows]) for rows in (known, more))
    found = np.zeros((len(known), len(NAMES)))
    for fold in range(5):
        learned, measured = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        joined = here.taken(learned).joined(there)
        labels = [known[at].intent for at in learned] + [row.intent for row in more]
        rare, (mean, wide) = rarity(joined.hashed), spread(joined.dense)
        counted = [known[at].weight for at in learned] + [row.weight for row in more]
        buckets, plain, bias, order = logits(
            *design(joined, rare, mean, wide), labels, counted
        )
        hashed, dense = design(here.taken(measured), rare, mean, wide)
        scores = hashed @ buckets + dense @ plain + bias
        found[measured] = scores[:, [order.index(name) for name in NAMES]]
    return found


def temperature(scores: Numbers, labels: npt.NDArray[np.int64]) -> float:
    """Return by what logits are divided so that chances are right as often as said."""
    rows = np.arange(len(labels))
    tried = np.geomspace(0.5, 4, 60)
    losses = [-np.log(softmax(scores / each)[rows, labels]).mean() for each in tried]
    return float(tried[int(np.argmin(losses))])


def gain_curve(scores: Numbers, gains: Numbers, sets: npt.NDArray[np.str_]) -> Floats:
    """Return scores, the gain there (never falling), and its interval's two ends.

    Every set counts the same. The interval is the mean's, and how far the sets differ
    at that score: what another kind of prompt may do.
    """
    share = {name: 1 / (sets == name).sum() for name in np.unique(sets)}
    weight = np.array([share[name] for name in sets])
    order = np.argsort(scores)
    passed = np.cumsum(weight[order]) / weight.sum()
    edges = np.searchsorted(passed, np.linspace(0, 1, _KNOTS + 1)[1:-1])
    rows: list[tuple[float, float, float]] = []
    counts: list[float] = []
    for some in np.split(order, edges):
        mean = float(np.average(gains[some], weights=weight[some]))
        error = float(gains[some].std() / len(some) ** 0.5) * _NINETY_FIVE
        apart = [
            gains[some][sets[some] == name].mean()
            for name in share
            if (sets[some] == name).sum() >= _LEAST_ROWS
        ]
        half = float(np.hypot(error, np.std(apart) if len(apart) > 1 else 0.0))
        rows.append((float(np.average(scores[some], weights=weight[some])), mean, half))
        counts.append(float(weight[some].sum()))
    knots, means, halves = np.array(rows).T
    rising = IsotonicRegression().fit_transform(knots, means, sample_weight=counts)
    curve = np.array([knots, rising, rising - halves, rising + halves])
    return np.vstack([curve[:1], np.clip(curve[1:], -1, 1)]).astype(np.float32)


def lower_bound(right: npt.NDArray[np.bool_], origins: Sequence[str]) -> float:
    """Return the 2.5 percentile of the share that is right, whole tasks redrawn."""
    names, place = np.unique(np.array(origins), return_inverse=True)
    hits = np.bincount(place, weights=right)
    sizes = np.bincount(place)
    draw = np.random.default_rng(0)
    drawn = [
        hits[some].sum() / sizes[some].sum()
        for some in (draw.integers(0, len(names), len(names)) for _ in range(_ROUNDS))
    ]
    return float(np.percentile(drawn, 2.5))


@dataclass(frozen=True, slots=True)
class Intents:
    """What intents are learned from, and how sure one may be of them."""

    rows: Sequence[Task]
    texts: Texts
    temperature: float
    beats: tuple[float, float]


def learn_intents(data: Path, figures: dict[str, object]) -> Intents:
    """Learn the intents' heads, and measure them on tasks that they did not see."""
    known, more = tasks(data), other_tasks(data)
    scores = unseen_intents(known, more)
    labels = np.array([NAMES.index(row.intent) for row in known])
    right = scores.argmax(axis=1) == labels
    warm = temperature(scores, labels)
    sure = softmax(scores / warm).max(axis=1) >= THRESHOLD
    bound = lower_bound(right, [row.origin for row in known])
    most_common = float(np.bincount(labels).max() / len(labels))
    figures["intent, unseen NIv2 tasks"] = {
        "right": round(float(right.mean()), 3),
        "lower bound": round(bound, 3),
        "most common": round(most_common, 3),
        "named": round(float(sure.mean()), 3),
        "right where named": round(float(right[sure].mean()), 3),
    }
    figures["learned intents from"] = {
        "tasks": len(known),
        "other prompts": len(more),
        "of them own sentences": len(own("learn")),
    }
    rows = [*known, *more]
    return Intents(rows, Texts([row.text for row in rows]), warm, (bound, most_common))


def learn_gain(
    outcomes: Sequence[Outcome], texts: Texts, figures: dict[str, object]
) -> tuple[Numbers, float]:
    """Return each row's score by what was learned without it, and the quality's bound.

    The bound is the least of all sets that it learns from, each by itself: to tell
    one set from another is no merit.
    """
    gains = np.array([row.strong - row.weak for row in outcomes])
    sets = np.array([row.origin for row in outcomes])
    split = [
        (learned[sets[learned] != CURVE_ONLY], measured)
        for learned, measured in parts([row.text for row in outcomes], "5fold", 0)
    ]
    unseen = held_out_scores(texts, gains, split)
    bounds: list[float] = []
    for name in np.unique(sets):
        here = (unseen[sets == name], gains[sets == name])
        got, (low, high) = quality(*here), interval(*here)
        figures[f"gain, {name}, all sets learned together, 5 folds"] = {
            "apgr": round(got.apgr, 3),
            "from": round(low.apgr, 3),
            "to": round(high.apgr, 3),
            "cpt50": round(got.cpt50, 1),
            "cpt80": round(got.cpt80, 1),
        }
        if name != CURVE_ONLY:
            bounds.append(low.apgr)
    return unseen, min(bounds)


def main() -> int:
    """Learn, measure on what was held out, write; return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    read = parser.parse_args()
    figures: dict[str, object] = {}
    print("intents, each task unseen once (minutes)", file=sys.stderr)
    intents = learn_intents(read.data, figures)
    print("gain, each fifth unseen once", file=sys.stderr)
    outcomes = [
        *routellm(read.data, "mmlu"),
        *routellm(read.data, "gsm8k"),
        *(row for row in zeroeval(read.data) if row.origin in {"math-l5", CURVE_ONLY}),
    ]
    texts = Texts([row.text for row in outcomes])
    unseen, bound = learn_gain(outcomes, texts, figures)
    print("all heads on everything", file=sys.stderr)
    weights = weights_of(intents, outcomes, texts, unseen, bound)
    data = packed(weights)
    read.out.mkdir(parents=True, exist_ok=True)
    (read.out / FILE).write_bytes(data)
    figures["temperature"] = round(intents.temperature, 3)
    figures["curve"] = np.round(weights.curve.astype(float), 3).tolist()
    figures["prompts with two outcomes"] = len(outcomes)
    figures["octets"] = len(data)
    print(json.dumps(figures, indent=1))
    print(f"SHIPPED_SHA256 of ngram.py: {hashlib.sha256(data).hexdigest()}")
    return 0


def weights_of(
    intents: Intents,
    outcomes: Sequence[Outcome],
    texts: Texts,
    unseen: Numbers,
    bound: float,
) -> Weights:
    """Learn all heads on all rows; return what the file holds."""
    joined = intents.texts.joined(texts)
    rare, (mean, wide) = rarity(joined.hashed), spread(joined.dense)
    buckets, plain, bias, order = logits(
        *design(intents.texts, rare, mean, wide),
        [row.intent for row in intents.rows],
        [row.weight for row in intents.rows],
    )
    turn = [order.index(name) for name in NAMES]
    gains = np.array([row.strong - row.weak for row in outcomes])
    sets = np.array([row.origin for row in outcomes])
    hashed, dense = design(texts, rare, mean, wide)
    learned = np.flatnonzero(sets != CURVE_ONLY)
    gain_buckets, gain_plain, gain_bias = ridge(
        hashed[learned], dense[learned], gains[learned]
    )
    raw = (hashed @ buckets + dense @ plain + bias)[:, turn]
    priors = np.array(
        [
            prior_of(chances.astype(np.float32), prompt_tokens(row.text))
            for chances, row in zip(
                softmax(raw / intents.temperature), outcomes, strict=True
            )
        ]
    )
    share = {name: 1 / (sets == name).sum() for name in np.unique(sets)}
    weight = np.array([share[name] for name in sets])
    scale = [*_moments(unseen, weight), *_moments(priors, weight)]
    both = (unseen - scale[0]) / scale[1] + (priors - scale[2]) / scale[3]
    columns = np.column_stack([buckets[:, turn], gain_buckets])
    steps = np.abs(columns).max(axis=0) / _STEPS
    return Weights(
        version=np.array([VERSION], dtype=np.int32),
        rarity=rare,
        heads=np.round(columns / steps).astype(np.int8),
        steps=steps.astype(np.float32),
        mean=mean.astype(np.float32),
        spread=wide.astype(np.float32),
        dense=np.column_stack([plain[:, turn], gain_plain]).astype(np.float32),
        bias=np.array([*bias[turn], gain_bias], dtype=np.float32),
        temperature=np.array([intents.temperature], dtype=np.float32),
        scale=np.array(scale, dtype=np.float32),
        curve=gain_curve(both, gains, sets),
        beats=np.array([intents.beats, (bound, CHANCE)], dtype=np.float32),
    )


def _moments(values: Numbers, weight: Numbers) -> tuple[float, float]:
    mean = float(np.average(values, weights=weight))
    return mean, float(np.average((values - mean) ** 2, weights=weight) ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
