"""Refits the learned gain to an operator's own graded questions, on this device.

Only the gain's head changes; the part that recognises intents stays as shipped. A ridge
regression over some hundred or thousand questions is small in its dual form: as many
unknowns as questions, whatever the number of buckets. ``judge`` measures its value on
questions outside the fit and stores it in the file, where the estimator reads it.

With few questions, one half is too small to judge by. Then each question is scored by
fits that excluded it (``cross_scores``), and all of them judge: whether such a fit
ranks better than chance, and than another estimator on the same questions
(``compare``).
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from curtilage.client.routing.estimate import prompt_tokens
from curtilage.client.routing.features import (
    BUCKETS,
    CUES,
    DENSE,
    Features,
    Floats,
    features_of,
)
from curtilage.client.routing.ngram import (
    Weights,
    chances_of,
    even_dense,
    prior_of,
    raw_scores,
    standard_gain,
)
from curtilage.lab.routing.certify import MOST_FITTED

CHANCE: Final = 0.5
PENALTY: Final = 15.0
DENSE_SCALE: Final = 0.07  # of a dense number; a text's hashed ones have norm 1
PLAIN: Final = len(DENSE) - CUES  # dense numbers that the gain is predicted from
_STEPS: Final = 127
_MOST_KNOTS: Final = 12
_IN_A_BIN: Final = 40
_NINETY_FIVE: Final = 1.96
_BINS: Final = 10
_ROUNDS: Final = 1000
_LEAST_SPREAD: Final = 1e-3
_NO_PRIOR: Final = 1e6

Numbers = npt.NDArray[np.float64]
Draw = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The value of an estimator on questions outside its fit.

    Attributes:
        apgr: the mean share of the gap between the models that is recovered, over all
            shares of strong calls; chance has 0.5.
        apgr_low: the lower end of its 95 % interval.
    """

    apgr: float
    apgr_low: float

    @property
    def beats_chance(self) -> bool:
        """Whether it may be used at all."""
        return self.apgr_low > CHANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between two estimators' rankings of the same questions.

    Attributes:
        apgr: of the other.
        by: APGR of the one minus that of the other.
        low: the lower end of the difference's 95 % interval.
        high: its upper end.
    """

    apgr: float
    by: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether it is better with confidence, and not only on these questions."""
        return self.low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The quality of an estimator's ranking of questions outside its fit.

    Attributes:
        judgement: by itself.
        against: by the name of each other estimator.
    """

    judgement: Judgement
    against: Mapping[str, Difference]

    @property
    def better(self) -> bool:
        """Whether it should be used.

        It must beat chance with confidence, and each of the others by its measured
        value, which is the better guess of the two. Confidence in the difference takes
        many hundred questions; until then, the difference is reported as not shown.
        """
        return self.judgement.beats_chance and all(
            each.by > 0 for each in self.against.values()
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Questions:
    """Questions in the form that a fit needs, read once for several fits.

    Attributes:
        weights: as shipped, or fitted before.
        places: the buckets that each question fills.
        values: its values there.
        plain: its dense numbers, scaled.
        priors: the gain that its intents predict.
        gram: the inner products of all pairs.
    """

    weights: Weights = field(repr=False)
    places: tuple[npt.NDArray[Any], ...] = field(repr=False)
    values: tuple[Numbers, ...] = field(repr=False)
    plain: Numbers = field(repr=False)
    priors: Numbers = field(repr=False)
    gram: Numbers = field(repr=False)

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self.places)


def read(weights: Weights, texts: Sequence[str]) -> Questions:
    """Read at most ``MOST_FITTED`` questions.

    Args:
        weights: as shipped, or fitted before.
        texts: the questions.
    """
    texts = texts[:MOST_FITTED]
    made = [features_of(text) for text in texts]
    hashed = [_hashed(weights, each) for each in made]
    plain = np.array(
        [even_dense(each.dense, weights.mean, weights.spread)[:PLAIN] for each in made]
    ).astype(np.float64)
    plain *= DENSE_SCALE
    gram = plain @ plain.T
    places = np.concatenate([each.places for each in made])
    counts = np.concatenate(hashed)
    starts = np.cumsum([0, *(len(each) for each in hashed)])[:-1]
    spread_out = np.zeros(BUCKETS)
    for row, (each, values) in enumerate(zip(made, hashed, strict=True)):
        spread_out[each.places] = values
        gram[row] += np.add.reduceat(counts * spread_out[places], starts)
        spread_out[each.places] = 0.0
    priors = [
        _prior(weights, raw_scores(weights, each), text)
        for each, text in zip(made, texts, strict=True)
    ]
    return Questions(
        weights=weights,
        places=tuple(each.places for each in made),
        values=tuple(hashed),
        plain=plain,
        priors=np.array(priors),
        gram=gram,
    )


def fit(weights: Weights, texts: Sequence[str], gains: Sequence[float]) -> Weights:
    """Return weights with a refitted gain; whether it beats chance is not known yet.

    Args:
        weights: as shipped, or fitted before.
        texts: questions.
        gains: for each, how much better the strong tier's answer was, -1 to 1.
    """
    return fit_to(read(weights, texts), gains)


def fit_to(
    questions: Questions,
    gains: Sequence[float],
    rows: npt.NDArray[np.int64] | None = None,
) -> Weights:
    """Fit to questions that were already read.

    Args:
        questions: all of them.
        gains: of all of them, as for ``fit``.
        rows: which to use; None: all.
    """
    weights = questions.weights
    rows = np.arange(len(questions)) if rows is None else rows
    wanted = np.array(gains, dtype=np.float64)[rows]
    taken: list[int] = rows.tolist()
    places = [questions.places[row] for row in taken]
    hashed = [questions.values[row] for row in taken]
    plain, priors = questions.plain[rows], questions.priors[rows]
    # (H H' + P P' + penalty) a = y; a bucket's weights are its column times a.
    gram = questions.gram[np.ix_(rows, rows)]
    inverse = np.linalg.inv(gram + PENALTY * np.eye(len(rows)))
    bias = float(wanted.mean())
    dual: Numbers = inverse @ (wanted - bias)
    head = np.bincount(
        np.concatenate(places),
        weights=np.concatenate(hashed) * np.repeat(dual, [*map(len, hashed)]),
        minlength=BUCKETS,
    )
    dense = np.concatenate([dual @ plain * DENSE_SCALE, np.zeros(CUES)])
    step = max(float(np.abs(head).max()) / _STEPS, 1e-12)
    # Leave-one-out scores have a closed form for ridge regression; no refit is needed.
    unseen: Numbers = wanted - dual / np.diag(inverse)
    # The intents' own prediction may count as much as the learned gain, half as much,
    # or not at all: a larger spread gives it less weight.
    tried = [
        np.array([*_moments(unseen), priors.mean(), spread], dtype=np.float32)
        for spread in (_NO_PRIOR, 2 * _spread(priors), _spread(priors))
    ]
    ranked = [_standard(unseen, priors, scale) for scale in tried]
    best = max(range(len(tried)), key=lambda at: _apgr(ranked[at], wanted))
    scale, both = tried[best], ranked[best]
    return replace(
        weights,
        heads=_with_last(weights.heads, np.round(head / step).astype(np.int8)),
        steps=_with_last(weights.steps, np.float32(step)),
        dense=_with_last(weights.dense, dense.astype(np.float32)),
        bias=_with_last(weights.bias, np.float32(bias)),
        scale=scale,
        curve=_curve(both, wanted),
        beats=np.array([weights.beats[0], (0.0, CHANCE)], dtype=np.float32),
    )


def cross_scores(
    questions: Questions,
    gains: Sequence[float],
    draw: Draw,
    *,
    folds: int,
    repeats: int,
) -> Iterator[Numbers]:
    """Yield the score of each question by a fit that excluded it.

    Args:
        questions: all of them.
        gains: as for ``fit``.
        draw: for the partition.
        folds: the number of parts; each fit uses all but one.
        repeats: how often this is done, each time with a new partition.
    """
    count = len(questions)
    for _ in range(repeats):
        scores = np.zeros(count)
        order = np.argsort([draw() for _ in range(count)], kind="stable")
        for part in np.array_split(order, folds):
            others = np.setdiff1d(order, part)
            scores[part] = _scored(questions, fit_to(questions, gains, others), part)
        yield scores


def _scored(
    questions: Questions, fitted: Weights, rows: npt.NDArray[np.int64]
) -> Numbers:
    """Return the result of ``score`` for questions that were already read."""
    head = fitted.heads[:, -1].astype(np.float64) * float(fitted.steps[-1])
    dense = fitted.dense[:PLAIN, -1].astype(np.float64) / DENSE_SCALE
    taken: list[int] = rows.tolist()
    hashed = [
        float(questions.values[row] @ head[questions.places[row]]) for row in taken
    ]
    learned = np.array(hashed) + questions.plain[rows] @ dense + float(fitted.bias[-1])
    return _standard(learned, questions.priors[rows], fitted.scale)


def score(weights: Weights, text: str) -> float:
    """Return how much a question needs the strong tier; no unit, larger is more."""
    raw = raw_scores(weights, features_of(text))
    return standard_gain(float(raw[-1]), _prior(weights, raw, text), weights.scale)


def judge(scores: Sequence[float], gains: Sequence[float], draw: Draw) -> Judgement:
    """Return the value of scores.

    Args:
        scores: of questions outside the fit.
        gains: of the same questions; their sum is above 0.
        draw: for the bootstrap.
    """
    return compare([scores], {}, gains, draw).judgement


def compare(
    scores: Sequence[Sequence[float] | Numbers],
    others: Mapping[str, Sequence[float]],
    gains: Sequence[float],
    draw: Draw,
) -> Ranking:
    """Return the value of scores, by themselves and compared with other scores.

    Args:
        scores: from ``cross_scores``; the value is the mean over several.
        others: the scores of other estimators on the same questions, by name.
        gains: of the same questions; their sum is above 0.
        draw: for the bootstrap; all estimators get the same samples.
    """
    own, wanted = [np.array(each) for each in scores], np.array(gains)
    rivals = {name: np.array(each) for name, each in others.items()}
    every = np.arange(len(wanted))

    def worth(rows: npt.NDArray[np.int64]) -> list[float]:
        if wanted[rows].sum() <= 0:
            # A sample in which the strong tier is no better counts against the
            # estimator.
            return [0.0] + [-1.0] * len(rivals)
        mine = float(np.mean([_apgr(each[rows], wanted[rows]) for each in own]))
        theirs = [_apgr(each[rows], wanted[rows]) for each in rivals.values()]
        return [mine, *(mine - each for each in theirs)]

    drawn = np.array(
        [
            worth(np.array([int(draw() * len(every)) for _ in every]))
            for _ in range(_ROUNDS)
        ]
    )
    lows, highs = np.quantile(drawn, (0.025, 0.975), axis=0)
    apgr, *differences = worth(every)
    return Ranking(
        judgement=Judgement(apgr=apgr, apgr_low=float(lows[0])),
        against={
            name: Difference(
                apgr=apgr - by, by=by, low=float(lows[at]), high=float(highs[at])
            )
            for at, (name, by) in enumerate(
                zip(rivals, differences, strict=True), start=1
            )
        },
    )


def judged(weights: Weights, judgement: Judgement) -> Weights:
    """Return weights with their measured value; below chance, the rules decide."""
    beats = np.array([weights.beats[0], (judgement.apgr_low, CHANCE)], dtype=np.float32)
    return replace(weights, beats=beats)


def packed(weights: Weights) -> bytes:
    """Return the file of weights, as ``ngram.load_weights`` reads it."""
    file = io.BytesIO()
    arrays: dict[str, Any] = {
        each.name: getattr(weights, each.name) for each in fields(weights)
    }
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _hashed(weights: Weights, features: Features) -> Numbers:
    rare = weights.rarity[features.places].astype(np.float64)
    counts = features.counts * rare
    norm = float(np.sqrt((counts * counts).sum()))
    return np.asarray(counts / norm if norm else counts, dtype=np.float64)


def _prior(weights: Weights, raw: Floats, text: str) -> float:
    return prior_of(chances_of(weights, raw), prompt_tokens(text))


def _moments(values: Numbers) -> tuple[float, float]:
    return float(values.mean()), _spread(values)


def _spread(values: Numbers) -> float:
    return max(float(values.std()), _LEAST_SPREAD)


def _standard(learned: Numbers, priors: Numbers, scale: Floats) -> Numbers:
    pairs = zip(learned, priors, strict=True)
    return np.array(
        [standard_gain(float(one), float(prior), scale) for one, prior in pairs]
    )


def _apgr(scores: Numbers, gains: Numbers) -> float:
    # Equal scores imply no order: each of them has the mean gain of all.
    _, same = np.unique(scores, return_inverse=True)
    even = (np.bincount(same, weights=gains) / np.bincount(same))[same]
    order = np.argsort(-scores, kind="stable")
    reached = np.concatenate([[0.0], np.cumsum(even[order])])
    # With no gap there is nothing to recover; the caller checked that there is one.
    reached /= max(float(gains.sum()), _LEAST_SPREAD)
    shares = np.linspace(0, 1, _BINS + 1)
    curve = reached[np.round(shares * len(order)).astype(int)]
    return float(((curve[1:] + curve[:-1]) / 2).mean())


def _curve(scores: Numbers, gains: Numbers) -> Floats:
    """Return scores, the gain there (never decreasing), and its interval's two ends."""
    order = np.argsort(scores)
    knots = max(2, min(_MOST_KNOTS, len(order) // _IN_A_BIN))
    # A block below its predecessor is merged with it: pool adjacent violators.
    blocks: list[npt.NDArray[np.int64]] = []
    for part in np.array_split(order, knots):
        block = part
        while blocks and (
            gains[blocks[-1]].mean() >= gains[block].mean()
            or scores[blocks[-1]].mean() >= scores[block].mean()
        ):
            block = np.concatenate([blocks.pop(), block])
        blocks.append(block)
    rows: list[tuple[float, float, float]] = []
    for block in blocks:
        half = _NINETY_FIVE * float(gains[block].std()) / len(block) ** 0.5
        rows.append((float(scores[block].mean()), float(gains[block].mean()), half))
    at, mean, half = np.array(rows).T
    levels = np.clip([mean, mean - half, mean + half], -1, 1)
    return np.vstack([at[None], levels]).astype(np.float32)


def _with_last(values: npt.NDArray[Any], last: npt.ArrayLike) -> npt.NDArray[Any]:
    changed = values.copy()
    changed[..., -1] = last
    return changed
