"""The operator's aim, as a threshold on ordinary traffic.

Pure. An estimate predicts how much a strong model would improve an answer. The share of
ordinary questions with a smaller need is its rank; questions up to the aim's rank are
answered locally. Ordinary traffic is a histogram: the shipped one at first, then
increasingly that of this device. It contains counts and sizes, and no text.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isnan
from typing import Final

from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.health import PRIORS
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.routing_settings import Aim, AimKind

REFERENCE: Final = PRIORS[TierKind.IN_PROCESS].quality_permille / 1000
"""Share of ordinary questions solved by the model that gains are relative to."""
STRONG: Final = PRIORS[TierKind.ATTESTED].quality_permille / 1000
"""The same for the strong model that it is compared with."""

BINS: Final = 100
# Smaller, and a few unusual questions of a new device would move the line. Larger,
# and the line would follow a device's own traffic too slowly (docs/decisions/0061).
SHIPPED_WEIGHT: Final = 300.0
"""Number of questions of this device with the same weight as the shipped histogram."""
HALF_LIFE: Final = 2000.0
"""Number of questions after which an earlier one counts half."""
_KEEP: Final = 0.5 ** (1 / HALF_LIFE)
_FILE: Final = "ordinary.json"


@dataclass(frozen=True, slots=True)
class Scale:
    """The meaning of an estimator's gain: the two models between which it was learned.

    Attributes:
        weak: share of ordinary questions that the weaker one solves, 0 to 1.
        strong: the same of the stronger one.
    """

    weak: float = REFERENCE
    strong: float = STRONG

    def need(self, gain: float) -> float:
        """Return the share of such questions that only the stronger model solves.

        Relative to all that the weaker one does not solve; -1 to 1. Below 0: the weaker
        one is expected to be better.
        """
        span = self.strong - self.weak
        # ``not span > 0`` and not ``span <= 0``: a NaN must end here, too, and keep the
        # question local.
        if not span > 0 or not self.weak < 1 or isnan(gain):
            return 0.0
        # An operator's own curve may return gains beyond what the two models allow; a
        # need is a share of the questions.
        return max(-1.0, min(1.0, gain * (1 - self.weak) / span))

    def gain_of(self, need: float) -> float:
        """Return the gain for a need: the inverse of ``need``."""
        span = self.strong - self.weak
        return need * span / (1 - self.weak) if span > 0 and self.weak < 1 else 0.0

    def solved(self, quality: float, need: float) -> float:
        """Return the share of questions with this need that a model solves.

        A model that is better than the weaker one fails on the same proportion of those
        that the weaker one does not solve; a worse one solves the same proportion of
        those that it solves. The mean need of ordinary traffic is ``1 - weak``, and
        there the mean result is ``quality``.

        Args:
            quality: share of ordinary questions that the model solves.
            need: as ``need`` returns it.
        """
        # Two formulas that agree at ``quality == weak``: otherwise a slightly better
        # model would change many decisions at once.
        if quality >= self.weak:
            return 1 - need * (1 - quality) / (1 - self.weak) if self.weak < 1 else 1.0
        return (1 - need) * quality / self.weak


REFERENCE_SCALE: Final = Scale()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two tiers that are compared: the best local tier, and an enclave.

    Attributes:
        local: share of ordinary questions that the local tier solves.
        strong: the same of the enclave's model.
        local_price: per token of the local tier, in millionths of a dollar.
        strong_price: the same of the enclave.
    """

    local: float
    strong: float
    local_price: float
    strong_price: float


class Traffic:
    """A histogram of ordinary questions by their need of a strong model.

    Args:
        shipped: for each bin of need, its share of the questions, and their mean
            number of tokens, answers included.
    """

    def __init__(self, shipped: Iterable[tuple[float, float]]) -> None:
        rows = tuple(shipped)
        whole = sum(share for share, _ in rows)
        if len(rows) != BINS or not whole > 0:
            raise ValueError(f"ordinary traffic has {BINS} bins, not all of them empty")
        self._weights = [SHIPPED_WEIGHT * share / whole for share, _ in rows]
        self._tokens = [
            weight * tokens
            for weight, (_, tokens) in zip(self._weights, rows, strict=True)
        ]

    def saw(self, need: float, tokens: int) -> None:
        """Count one question of this device; earlier ones lose weight.

        Args:
            need: as ``Scale.need`` returns it.
            tokens: of question and answer.
        """
        # All bins decay, so that their sum stays finite and the share of each bin
        # follows recent questions.
        self._weights = [_KEEP * each for each in self._weights]
        self._tokens = [_KEEP * each for each in self._tokens]
        place = _bin(need)
        self._weights[place] += 1
        self._tokens[place] += tokens

    def rank(self, need: float) -> float:
        """Return the share of ordinary questions with a smaller need, 0 to 1."""
        place = _bin(need)
        below = sum(self._weights[:place])
        # Interpolated: otherwise all questions of one bin would have the same rank, and
        # a small change of the aim would have no effect, or a large one.
        within = _within(need * BINS - place) * self._weights[place]
        return (below + within) / sum(self._weights)

    def need(self, rank: float) -> float:
        """Return the need at a rank: the inverse of ``rank``, except at its ends."""
        if rank <= 0:
            return -1.0  # no question needs less, so all are sent
        if rank >= 1:
            return 1.0  # no question needs more
        left = rank * sum(self._weights)
        for place, weight in enumerate(self._weights):
            # An empty bin has no place for a rank, and dividing by its weight would
            # fail.
            if left <= weight and weight > 0:
                return (place + left / weight) / BINS
            left -= weight
        return 1.0

    def line(self, aim: Aim, pair: Pair, scale: Scale) -> float:
        """Return the rank up to which questions are answered locally, 0 to 1.

        Args:
            aim: the operator's.
            pair: the two tiers.
            scale: the meaning of the estimator's gain.
        """
        match aim.kind:
            case AimKind.LOCAL_PERCENT:
                return aim.value / 100
            case AimKind.QUALITY_LOSS_PERMILLE:
                return self._line_of_loss(aim.value / 1000, pair, scale)
            case AimKind.COST_PER_1000:
                return self._line_of_cost(1000.0 * aim.value, pair)

    def _line_of_loss(self, most: float, pair: Pair, scale: Scale) -> float:
        """Return the largest rank at which the mean loss is within this limit."""
        whole, lost, rank = sum(self._weights), 0.0, 0.0
        for place, weight in enumerate(self._weights):
            need = (place + 0.5) / BINS
            loss = scale.solved(pair.strong, need) - scale.solved(pair.local, need)
            share = weight / whole
            # Where the strong model is worse (a negative loss), this is false: such
            # questions are answered locally without using up the limit.
            if loss * share > most - lost:
                return rank + (most - lost) / loss
            # A gain in one bin does not pay for a loss in another: the operator named a
            # limit for what is lost.
            lost += max(0.0, loss) * share
            rank += share
        return 1.0

    def _line_of_cost(self, most: float, pair: Pair) -> float:
        """Return the smallest rank above which the enclave costs no more than this.

        Args:
            most: for a thousand questions, in millionths of a dollar.
            pair: the two tiers.
        """
        left = most / 1000 * sum(self._weights)
        # Local answers cost something as well, such as energy, so the budget first pays
        # for all of them.
        left -= pair.local_price * sum(self._tokens)
        if left <= 0:
            return 1.0  # local answers alone cost more: nothing is sent
        extra, above = pair.strong_price - pair.local_price, 0.0
        # From the neediest question downwards: the budget buys the answers that improve
        # most.
        for weight, tokens in zip(
            reversed(self._weights), reversed(self._tokens), strict=True
        ):
            cost = extra * tokens
            if cost > left:
                above += left / cost * weight
                break
            left -= cost
            above += weight
        return _within(1 - above / sum(self._weights))


def traffic_of(source: str) -> Traffic:
    """Return the shipped ordinary traffic, ranked by an estimator.

    Args:
        source: ``Estimate.source``.
    """
    shipped = _shipped()
    return Traffic(shipped.get(source, shipped["rules"]))


def tokens_of(estimate: Estimate) -> int:
    """Return the approximate number of tokens of a question and its answer."""
    return estimate.prompt_tokens + estimate.answer_tokens


@cache
def _shipped() -> Mapping[str, tuple[tuple[float, float], ...]]:
    """Return the shipped histograms by estimator.

    For each kind of question (an intent and a class of length), the file has its share
    of ordinary traffic, its tokens, and evenly spaced quantiles of its need.
    """
    folder = resources.files("curtilage.client.routing").joinpath("weights")
    read = json.loads(folder.joinpath(_FILE).read_text("utf-8"))
    made: dict[str, tuple[tuple[float, float], ...]] = {}
    for source, kinds in read["need"].items():
        shares, tokens = [0.0] * BINS, [0.0] * BINS
        for kind in kinds:
            # Each quantile stands for an equal part of its kind, so the file needs no
            # counts of single questions.
            for need in kind["quantiles"]:
                part = kind["share"] / len(kind["quantiles"])
                shares[_bin(need)] += part
                tokens[_bin(need)] += part * kind["tokens"]
        made[source] = tuple(
            (share, each / share if share else 0.0)
            for share, each in zip(shares, tokens, strict=True)
        )
    return made


def _bin(need: float) -> int:
    return min(BINS - 1, int(BINS * _within(need)))


def _within(value: float) -> float:
    """Clamp a number to 0 to 1; NaN becomes 0, which keeps a question local."""
    return min(1.0, value) if value > 0 else 0.0
