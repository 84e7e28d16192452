"""Learns the heads of a verifier from graded answers of one model, on this device.

There is one head for each look and one for the end: logistic regressions over some
twenty features, for which a few hundred answers are enough. The certificate must use
other answers. Needs numpy (extras ``pii``, ``llm``).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from curtilage.client.routing.answer_features import NAMES, Seen
from curtilage.client.routing.verifier import LOOKS, Head

Looks = tuple[tuple[int, Seen], ...]
"""The result of ``scores.looks_at``."""
LEAST: Final = 80
"""Minimum number of answers at a look for a head of its own."""

_PENALTY: Final = 20.0  # ridge: the weight of a squared coefficient in the objective
_LEAST_SPREAD: Final = 1e-3
_STEPS: Final = 30
_MOST: Final = 30.0

Numbers = npt.NDArray[np.float64]


def fit_heads(answers: Sequence[Looks], good: Sequence[bool]) -> tuple[Head, ...]:
    """Return a head for each look and one for the end.

    Args:
        answers: the features of each; unsound ones are ignored.
        good: whether each was good enough.

    Raises:
        ValueError: none of the sound ones was good, or all of them were.
    """
    rows: list[list[tuple[float, ...]]] = [[] for _ in range(len(LOOKS) + 1)]
    marks: list[list[bool]] = [[] for _ in rows]
    for looks, mark in zip(answers, good, strict=True):
        for at, seen in looks:
            if seen.sound:
                rows[at].append(seen.values)
                marks[at].append(mark)
    if len(set(marks[-1])) < 2:  # noqa: PLR2004 - good and bad ones
        raise ValueError("there are no good answers, or no bad ones")
    end = _fitted(rows[-1], marks[-1])
    # The last head is the next best: it was learned for the same features, and the
    # certificate covers its quality at this look.
    return (
        *(
            _fitted(row, mark) if len(row) >= LEAST and len(set(mark)) > 1 else end
            for row, mark in zip(rows[:-1], marks[:-1], strict=True)
        ),
        end,
    )


def _fitted(rows: Sequence[tuple[float, ...]], marks: Sequence[bool]) -> Head:
    """Return a logistic regression, by Newton's method with ridge regularisation."""
    values: Numbers = np.array(rows, dtype=np.float64)
    wanted: Numbers = np.array(marks, dtype=np.float64)
    mean: Numbers = values.mean(axis=0)
    spread: Numbers = np.maximum(values.std(axis=0), _LEAST_SPREAD)
    even = np.column_stack([(values - mean) / spread, np.ones(len(rows))])
    penalty = np.diag([_PENALTY] * len(NAMES) + [1e-9])  # the bias is not penalised
    weights: Numbers = np.zeros(len(NAMES) + 1)
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(even @ weights, -_MOST, _MOST)))
        slope = even.T @ (wanted - chance) - penalty @ weights
        bend = (even.T * (chance * (1 - chance))) @ even + penalty
        step = np.linalg.solve(bend, slope)
        weights += step
        if float(np.abs(step).max()) < 1e-9:  # noqa: PLR2004
            break
    return Head(
        mean=tuple(mean.tolist()),
        spread=tuple(spread.tolist()),
        weights=tuple(weights[:-1].tolist()),
        bias=float(weights[-1]),
    )
