"""Learns the shipped router and writes its file and the figures of its card.

python -m lab.training.router.train --data DIR --out WEIGHTS
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
from lab.training.router.heads import Texts, design, logits, rarity, ridge, spread
from lab.training.router.quality import difference, quality
from lab.training.router.sources import (
    Outcome,
    Task,
    office,
    other_tasks,
    own,
    routellm,
    tasks,
    zeroeval,
)
from sklearn.isotonic import IsotonicRegression

from curtilage.client.routing.estimate import (
    KNOWN,
    THRESHOLD,
    RulesEstimator,
    prompt_tokens,
    signs_of,
)
from curtilage.client.routing.estimators import FILE
from curtilage.client.routing.features import VERSION
from curtilage.client.routing.ngram import Weights, prior_of
from curtilage.lab.routing.refit import packed

# A program's text does not show whether a model can trace it by hand: the set shows how
# much is gained on such tasks, but not on which of them.
CURVE_ONLY = "crux"
_KNOTS = 12
_ROUNDS = 1000
_LEAST_ROWS = 20  # rows of a set in a bin, for differences between sets
_NINETY_FIVE = 1.96
_STEPS = 127
_LEAST_STEP = 1e-9

Numbers = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
NAMES = [each.value for each in KNOWN]


def softmax(scores: Numbers) -> Numbers:
    """Return each row's probabilities from its logits."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def unseen_intents(known: Sequence[Task], more: Sequence[Task]) -> Numbers:
    """Return logits for each known row from what was learned without its origin."""
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


def temperature(
    scores: Numbers, labels: npt.NDArray[np.int64], weights: Numbers
) -> float:
    """Return the divisor of the logits that calibrates the probabilities."""
    rows = np.arange(len(labels))
    tried = np.geomspace(0.5, 4, 60)
    losses = [
        -np.average(np.log(softmax(scores / each)[rows, labels]), weights=weights)
        for each in tried
    ]
    return float(tried[int(np.argmin(losses))])


def gain_curve(scores: Numbers, gains: Numbers, sets: npt.NDArray[np.str_]) -> Floats:
    """Return scores, the gain there (never decreasing), and its interval's two ends.

    All sets count equally. The interval includes the mean's, and the differences
    between sets at that score, as an estimate for other kinds of prompts.
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
    """Return the 2.5 percentile of the share that is right, resampling whole tasks."""
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
    """The training data for intents, and the confidence in each."""

    rows: Sequence[Task]
    texts: Texts
    temperature: float
    beats: tuple[float, float]


def learn_intents(data: Path, figures: dict[str, object]) -> Intents:
    """Learn the intents' heads, and measure them on unseen tasks."""
    known, own_rows, more = tasks(data), [*own("learn"), *office()], other_tasks(data)
    measured = [*known, *own_rows]
    scores = unseen_intents(measured, more)
    labels = np.array([NAMES.index(row.intent) for row in measured])
    right = scores.argmax(axis=1) == labels
    # Calibrated on long tasks and on short requests alike: each group counts half.
    shares = np.repeat([1 / len(known), 1 / len(own_rows)], [len(known), len(own_rows)])
    warm = temperature(scores, labels, shares)
    sure = softmax(scores / warm).max(axis=1) >= THRESHOLD
    bound = lower_bound(right[: len(known)], [row.origin for row in known])
    most_common = float(np.bincount(labels[: len(known)]).max() / len(known))
    by_rules = float(np.mean([_by_cues(row.text) == row.intent for row in known]))
    for name, part in (
        ("intent, unseen NIv2 tasks", slice(len(known))),
        ("intent, own templates unseen", slice(len(known), None)),
    ):
        figures[name] = {
            "right": round(float(right[part].mean()), 3),
            "named": round(float(sure[part].mean()), 3),
            "right where named": round(float(right[part][sure[part]].mean()), 3),
        }
    figures["intent, what its head must beat"] = {
        "lower bound": round(bound, 3),
        "most common": round(most_common, 3),
        "rules": round(by_rules, 3),
    }
    figures["learned intents from"] = {
        "tasks": len(known),
        "other prompts": len(more),
        "own requests": len(own_rows),
    }
    rows = [*measured, *more]
    beats = (bound, max(most_common, by_rules))
    return Intents(rows, Texts([row.text for row in rows]), warm, beats)


def _by_cues(text: str) -> str:
    """Return the intent that the rules find likeliest; none if there is no cue."""
    share, intent = max(
        zip(signs_of(text).shares, NAMES, strict=True), key=lambda each: each[0]
    )
    return intent if share > 0 else ""


def scored(texts: Texts, gains: Numbers, learned: Places) -> Numbers:
    """Return every row's gain from a head that was learned on some rows."""
    rare = rarity(texts.hashed[learned])
    hashed, dense = design(texts, rare, *spread(texts.dense[learned]))
    buckets, plain, bias = ridge(hashed[learned], dense[learned], gains[learned])
    return hashed @ buckets + dense @ plain + bias


def exams(data: Path) -> list[Outcome]:
    """Return the prompts with two published outcomes, for learning the gain."""
    return [
        *routellm(data, "mmlu"),
        *routellm(data, "gsm8k"),
        *(row for row in zeroeval(data) if row.origin in {"math-l5", CURVE_ONLY}),
    ]


def learn_gain(
    outcomes: Sequence[Outcome], texts: Texts, figures: dict[str, object]
) -> tuple[Numbers, float]:
    """Return each row's score from what was learned without its set, and the bound.

    The bound is the minimum, over all sets and both competitors (rules and length), of
    how much better the head ranks a set that it never saw. It counts if it is above 0.
    """
    gains = np.array([row.strong - row.weak for row in outcomes])
    sets = np.array([row.origin for row in outcomes])
    rules = RulesEstimator()
    rivals = {
        "rules": np.array([rules.estimate(row.text, 512).gain for row in outcomes]),
        "length": np.array([float(len(row.text)) for row in outcomes]),
    }
    unseen = np.zeros(len(outcomes))
    bounds: list[float] = []
    for name in np.unique(sets):
        measured = np.flatnonzero(sets == name)
        learned = np.flatnonzero((sets != name) & (sets != CURVE_ONLY))
        unseen[measured] = scored(texts, gains, learned)[measured]
        if name == CURVE_ONLY:
            continue
        here = {"head": unseen, **rivals}
        found: dict[str, object] = {
            f"apgr, {rival}": round(quality(each[measured], gains[measured]).apgr, 3)
            for rival, each in here.items()
        }
        for rival, each in rivals.items():
            low, high = difference(unseen[measured], each[measured], gains[measured])
            found[f"head - {rival}"] = [round(low, 3), round(high, 3)]
            bounds.append(low)
        figures[f"gain, {name}, learned from the other sets"] = found
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
    print("gain, each set unseen once", file=sys.stderr)
    outcomes = exams(read.data)
    texts = Texts([row.text for row in outcomes])
    unseen, bound = learn_gain(outcomes, texts, figures)
    print("all heads on everything", file=sys.stderr)
    weights = weights_of(intents, outcomes, texts, unseen, bound)
    data = packed(weights)
    read.out.mkdir(parents=True, exist_ok=True)
    (read.out / FILE).write_bytes(data)
    figures["temperature"] = round(intents.temperature, 3)
    figures["gain"] = {"bound": round(bound, 3), "counts": bound > 0}
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
    """Learn all heads on all rows; return the file's content.

    A gain that does not count is not in the file: there are zeros, and room for the
    gain that an operator fits to their own questions.
    """
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
    if bound <= 0:
        return _of(
            intents, (rare, mean, wide), (buckets[:, turn], plain[:, turn], bias[turn])
        )
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
    return _of(
        intents,
        (rare, mean, wide),
        (
            np.column_stack([buckets[:, turn], gain_buckets]),
            np.column_stack([plain[:, turn], gain_plain]),
            np.array([*bias[turn], gain_bias]),
        ),
        scale=np.array(scale, dtype=np.float32),
        curve=gain_curve(both, gains, sets),
        bound=bound,
    )


def _of(
    intents: Intents,
    design_of: tuple[npt.NDArray[np.float16], Floats, Floats],
    heads: tuple[Numbers, Numbers, Numbers],
    *,
    scale: Floats | None = None,
    curve: Floats | None = None,
    bound: float = 0.0,
) -> Weights:
    rare, mean, wide = design_of
    # Without a gain, its column is all zeros.
    columns, plain, bias = (
        each
        if curve is not None
        else np.concatenate([each, np.zeros_like(each[..., :1])], axis=-1)
        for each in heads
    )
    steps = np.maximum(np.abs(columns).max(axis=0) / _STEPS, _LEAST_STEP)
    return Weights(
        version=np.array([VERSION], dtype=np.int32),
        rarity=rare,
        heads=np.round(columns / steps).astype(np.int8),
        steps=steps.astype(np.float32),
        mean=mean.astype(np.float32),
        spread=wide.astype(np.float32),
        dense=plain.astype(np.float32),
        bias=bias.astype(np.float32),
        temperature=np.array([intents.temperature], dtype=np.float32),
        scale=np.array([0, 1, 0, 1], np.float32) if scale is None else scale,
        curve=np.array([[0, 1]] * 4, dtype=np.float32) if curve is None else curve,
        beats=np.array([intents.beats, (bound, 0.0)], dtype=np.float32),
    )


def _moments(values: Numbers, weight: Numbers) -> tuple[float, float]:
    mean = float(np.average(values, weights=weight))
    return mean, float(np.average((values - mean) ** 2, weights=weight) ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
