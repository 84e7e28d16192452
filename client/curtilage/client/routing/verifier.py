"""Verifier: judges whether a draft of the local model is good enough as the answer.

For each look (after 16, 32 and 64 tokens, and at the end) a head computes a probability
from the features. The first look above the threshold accepts the draft; the first one
far below it rejects it. The threshold comes from graded answers and is valid for this
rule as a whole: a larger threshold accepts a subset of the same drafts, so each draft
has one score, and repeated looks do not weaken the guarantee.

Pure, and its only output is yes or no: it determines neither the tier that is asked
instead, nor whether any may be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from curtilage.client.chat.answer import Delta, Finished
from curtilage.client.routing.answer_features import NAMES, Draft, Seen

LOOKS: Final = (16, 32, 64)
"""Numbers of tokens after which a draft is judged; and once more at its end."""
REJECTED_BELOW: Final = 0.5
"""Below this part of the threshold, a draft is rejected early."""
_MOST: Final = 30.0  # of a logit; beyond it the probability is 0 or 1


@unique
class Verdict(StrEnum):
    """The judgement of a draft; the last two are final."""

    WAIT = "wait"
    ACCEPT = "accept"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A logistic regression over normalised features.

    Attributes:
        mean: of each feature in the training data.
        spread: likewise, above 0.
        weights: of each normalised feature.
        bias: added to their sum.

    Raises:
        ValueError: wrong number of features, or a number is not finite.
    """

    mean: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def __post_init__(self) -> None:
        """Refuse parameters that would make scores meaningless."""
        rows = (self.mean, self.spread, self.weights)
        if any(len(row) != len(NAMES) for row in rows):
            raise ValueError("a head has a wrong number of features")
        if not all(map(math.isfinite, (*self.mean, *self.weights, self.bias))) or not (
            all(0 < each < math.inf for each in self.spread)
        ):
            raise ValueError("a head's numbers must be finite, and its spreads above 0")

    def probability(self, seen: Seen) -> float:
        """Return the probability that the answer is good; 0 if it is not sound."""
        # Fail closed: without the model's certainty, or with broken JSON, a head's
        # number has no meaning.
        if not seen.sound:
            return 0.0
        rows = zip(seen.values, self.mean, self.spread, self.weights, strict=True)
        logit = self.bias + sum(w * (v - m) / s for v, m, s, w in rows)
        # Clamped: the exponential of a large number raises OverflowError, in the middle
        # of an answer.
        return 1 / (1 + math.exp(-max(-_MOST, min(_MOST, logit))))


class Verifier:
    """Judges one draft.

    Args:
        heads: one for each look and one for the end, for the model that writes it.
        threshold: a probability above it accepts; from ``Thresholds``.
        question: the question: the last turn of its sender.

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
        """Process a piece of the draft; return the verdict so far."""
        if self.verdict is Verdict.WAIT:
            self._draft.add(delta)
            if (reached := looks_reached(self._draft)) > self._looked:
                # One piece may pass several looks at once; only the last one is judged,
                # as when the threshold was certified.
                self._looked = reached
                self._judge(self._heads[reached - 1].probability(self._draft.seen()))
        return self.verdict

    def end(self, finished: Finished) -> Verdict:
        """Process the end of the draft; never returns ``WAIT``."""
        if self.verdict is Verdict.WAIT:
            seen = self._draft.seen(finish_reason=finished.finish_reason)
            self._judge(self._heads[-1].probability(seen))
            # Between the two limits at the end: the certificate only covers scores
            # above the threshold.
            if self.verdict is Verdict.WAIT:
                self.verdict = Verdict.REJECT
        return self.verdict

    def _judge(self, probability: float) -> None:
        if probability > self._threshold:
            self.verdict = Verdict.ACCEPT
        elif probability <= REJECTED_BELOW * self._threshold:
            self.verdict = Verdict.REJECT


def looks_reached(draft: Draft) -> int:
    """Return the number of looks that a draft has reached; 0 while it is JSON."""
    # Half of a JSON value is never valid, so an early look would reject every such
    # draft.
    return 0 if draft.wants_json else sum(each <= draft.tokens for each in LOOKS)
