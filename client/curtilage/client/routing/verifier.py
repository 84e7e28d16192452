"""Whether a draft of the home model is good enough to be the answer.

A head for each look (after 16, 32 and 64 tokens, and at the end) makes a probability of
what is seen; the first look that is above the threshold accepts the draft, the first
that lies far below it rejects it. The threshold comes from graded answers and holds for
this rule as a whole: for a larger threshold a part of the same drafts is
accepted, so a draft has one score, and nothing is lost by looking often.

Pure, and it can only say yes or no: neither what is to be asked instead, nor whether
anybody may be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from curtilage.client.answer import Delta, Finished
from curtilage.client.routing.answer_features import NAMES, Draft, Seen

LOOKS: Final = (16, 32, 64)
"""After so many tokens a draft is looked at; and once more at its end."""
REJECTED_BELOW: Final = 0.5
"""A draft of less than this part of the threshold is not worth waiting for."""
_MOST: Final = 30.0  # of a logit; beyond it the probability is 0 or 1


@unique
class Verdict(StrEnum):
    """What is known of a draft; the last two are final."""

    WAIT = "wait"
    ACCEPT = "accept"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A logistic regression over evened features.

    Attributes:
        mean: of each feature, where it was learned.
        spread: likewise, above 0.
        weights: of each feature, evened.
        bias: added to their sum.

    Raises:
        ValueError: it is of other features, or a number is none.
    """

    mean: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def __post_init__(self) -> None:
        """Refuse what would make a score of no meaning."""
        rows = (self.mean, self.spread, self.weights)
        if any(len(row) != len(NAMES) for row in rows):
            raise ValueError("a head has another number of features")
        if not all(map(math.isfinite, (*self.mean, *self.weights, self.bias))) or not (
            all(0 < each < math.inf for each in self.spread)
        ):
            raise ValueError("a head's numbers are finite, and its spreads above 0")

    def probability(self, seen: Seen) -> float:
        """Return how likely the answer is good; 0 of one that is not sound."""
        if not seen.sound:
            return 0.0
        rows = zip(seen.values, self.mean, self.spread, self.weights, strict=True)
        logit = self.bias + sum(w * (v - m) / s for v, m, s, w in rows)
        return 1 / (1 + math.exp(-max(-_MOST, min(_MOST, logit))))


class Verifier:
    """Judges one draft.

    Args:
        heads: one for each look and one for the end, of the model that writes it.
        threshold: a probability above it accepts; from ``Thresholds``.
        question: what was asked: the last turn of its sender.

    Attributes:
        verdict: so far.
    """

    def __init__(
        self, heads: Sequence[Head], threshold: float, *, question: str
    ) -> None:
        self._heads = heads
        self._threshold = threshold
        self._draft = Draft(question)
        self._looked = 0
        self.verdict = Verdict.WAIT

    @property
    def wants_json(self) -> bool:
        """Whether the question asks for JSON."""
        return self._draft.wants_json

    def feed(self, delta: Delta) -> Verdict:
        """Take a piece of the draft; the verdict so far."""
        if self.verdict is Verdict.WAIT:
            self._draft.add(delta)
            if (reached := looks_reached(self._draft)) > self._looked:
                self._looked = reached
                self._judge(self._heads[reached - 1].probability(self._draft.seen()))
        return self.verdict

    def end(self, finished: Finished) -> Verdict:
        """Take the end of the draft; never ``WAIT``."""
        if self.verdict is Verdict.WAIT:
            seen = self._draft.seen(finish_reason=finished.finish_reason)
            self._judge(self._heads[-1].probability(seen))
            if self.verdict is Verdict.WAIT:
                self.verdict = Verdict.REJECT
        return self.verdict

    def _judge(self, probability: float) -> None:
        if probability > self._threshold:
            self.verdict = Verdict.ACCEPT
        elif probability <= REJECTED_BELOW * self._threshold:
            self.verdict = Verdict.REJECT


def looks_reached(draft: Draft) -> int:
    """Return how many looks a draft has come to; of pieces of JSON there is none."""
    return 0 if draft.wants_json else sum(each <= draft.tokens for each in LOOKS)
