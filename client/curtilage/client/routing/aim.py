"""The operator's aim as a line through ordinary traffic.

Pure. An estimate says how much a strong model would add to a question. How much that is
among ordinary questions is its rank; the aim says up to which rank questions are
answered locally. Ordinary traffic is a histogram: at first the shipped one, then more
and more that of this device. It holds counts and sizes, and no word of a question.
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
from curtilage.policy.document.routing_plan import Aim, AimKind

REFERENCE: Final = PRIORS[TierKind.IN_PROCESS].quality_permille / 1000
"""Share of ordinary questions that the model solves for which gains are stated."""
STRONG: Final = PRIORS[TierKind.ATTESTED].quality_permille / 1000
"""The same of the strong model with which it is compared."""

BINS: Final = 100
SHIPPED_WEIGHT: Final = 300.0
"""As many questions of this device weigh as much as the shipped histogram."""
HALF_LIFE: Final = 2000.0
"""After as many questions an earlier one counts half."""
_KEEP: Final = 0.5 ** (1 / HALF_LIFE)
_FILE: Final = "ordinary.json"


@dataclass(frozen=True, slots=True)
class Scale:
    """What an estimator's gain means: between which two models it was learned.

    Attributes:
        weak: share of ordinary questions that the weaker one solves, 0 to 1.
        strong: the same of the stronger one.
    """

    weak: float = REFERENCE
    strong: float = STRONG

    def need(self, gain: float) -> float:
        """Return the share of such questions that only the stronger model solves.

        In proportion to what the weaker one fails in all; -1 to 1. Below 0: the weaker
        one is expected to be better.
        """
        span = self.strong - self.weak
        if not span > 0 or not self.weak < 1 or isnan(gain):
            return 0.0
        return max(-1.0, min(1.0, gain * (1 - self.weak) / span))

    def gain_of(self, need: float) -> float:
        """Return the gain of a need: the inverse of ``need``."""
        span = self.strong - self.weak
        return need * span / (1 - self.weak) if span > 0 and self.weak < 1 else 0.0

    def solved(self, quality: float, need: float) -> float:
        """Return what share of questions of some need a model solves.

        A model that is better than the weaker one fails in the same proportion of what
        that fails; one that is worse solves in the same proportion of what that solves.
        Over ordinary traffic, whose mean need is ``1 - weak``, the mean is ``quality``.

        Args:
            quality: share of ordinary questions that the model solves.
            need: as ``need`` returns it.
        """
        if quality >= self.weak:
            return 1 - need * (1 - quality) / (1 - self.weak) if self.weak < 1 else 1.0
        return (1 - need) * quality / self.weak


REFERENCE_SCALE: Final = Scale()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two between which the line is drawn: the best local tier, and an enclave.

    Attributes:
        local: share of ordinary questions that the local one solves.
        strong: the same of the enclave's model.
        local_price: of one token there, in millionths of a dollar.
        strong_price: the same of the enclave.
    """

    local: float
    strong: float
    local_price: float
    strong_price: float


class Traffic:
    """Ordinary questions by how much they need a strong model.

    Args:
        shipped: of each bin of need, what share of questions is in it, and how many
            tokens these have with their answers, in the mean.
    """

    def __init__(self, shipped: Iterable[tuple[float, float]]) -> None:
        rows = tuple(shipped)
        whole = sum(share for share, _ in rows)
        if len(rows) != BINS or not whole > 0:
            raise ValueError(f"ordinary traffic has {BINS} bins, and something in them")
        self._weights = [SHIPPED_WEIGHT * share / whole for share, _ in rows]
        self._tokens = [
            weight * tokens
            for weight, (_, tokens) in zip(self._weights, rows, strict=True)
        ]

    def saw(self, need: float, tokens: int) -> None:
        """Count one question of this device; those before it count for less.

        Args:
            need: as ``Scale.need`` returns it.
            tokens: of question and answer.
        """
        self._weights = [_KEEP * each for each in self._weights]
        self._tokens = [_KEEP * each for each in self._tokens]
        place = _bin(need)
        self._weights[place] += 1
        self._tokens[place] += tokens

    def rank(self, need: float) -> float:
        """Return the share of ordinary questions that need less, 0 to 1."""
        place = _bin(need)
        below = sum(self._weights[:place])
        within = _within(need * BINS - place) * self._weights[place]
        return (below + within) / sum(self._weights)

    def need(self, rank: float) -> float:
        """Return the need at a rank: the inverse of ``rank``, but for its ends."""
        if rank <= 0:
            return -1.0  # nothing needs less, and so everything is sent
        if rank >= 1:
            return 1.0  # nothing needs more
        left = rank * sum(self._weights)
        for place, weight in enumerate(self._weights):
            if left <= weight and weight > 0:
                return (place + left / weight) / BINS
            left -= weight
        return 1.0

    def line(self, aim: Aim, pair: Pair, scale: Scale) -> float:
        """Return up to which rank questions are answered locally, 0 to 1.

        Args:
            aim: the operator's.
            pair: the two tiers.
            scale: what the estimator's gain means.
        """
        match aim.kind:
            case AimKind.LOCAL_PERCENT:
                return aim.value / 100
            case AimKind.QUALITY_LOSS_PERMILLE:
                return self._line_of_loss(aim.value / 1000, pair, scale)
            case AimKind.COST_PER_1000:
                return self._line_of_cost(1000.0 * aim.value, pair)

    def _line_of_loss(self, most: float, pair: Pair, scale: Scale) -> float:
        """Return the largest rank below which no more than this is lost in the mean."""
        whole, lost, rank = sum(self._weights), 0.0, 0.0
        for place, weight in enumerate(self._weights):
            need = (place + 0.5) / BINS
            loss = scale.solved(pair.strong, need) - scale.solved(pair.local, need)
            share = weight / whole
            if loss * share > most - lost:
                return rank + (most - lost) / loss
            lost += max(0.0, loss) * share
            rank += share
        return 1.0

    def _line_of_cost(self, most: float, pair: Pair) -> float:
        """Return the least rank from which up the enclave costs no more than this.

        Args:
            most: of a thousand questions, in millionths of a dollar.
            pair: the two tiers.
        """
        left = most / 1000 * sum(self._weights)
        left -= pair.local_price * sum(self._tokens)
        if left <= 0:
            return 1.0  # the local answers alone cost more: nothing is sent
        dearer, above = pair.strong_price - pair.local_price, 0.0
        for weight, tokens in zip(
            reversed(self._weights), reversed(self._tokens), strict=True
        ):
            cost = dearer * tokens
            if cost > left:
                above += left / cost * weight
                break
            left -= cost
            above += weight
        return _within(1 - above / sum(self._weights))


def traffic_of(source: str) -> Traffic:
    """Return the shipped ordinary traffic, as an estimator ranks it.

    Args:
        source: ``Estimate.source``.
    """
    shipped = _shipped()
    return Traffic(shipped.get(source, shipped["rules"]))


def tokens_of(estimate: Estimate) -> int:
    """Return how many tokens a question has with its answer, about."""
    return estimate.prompt_tokens + estimate.answer_tokens


@cache
def _shipped() -> Mapping[str, tuple[tuple[float, float], ...]]:
    """Return the shipped histograms by estimator.

    Of each kind of question (an intent, and a class of length) the file has its share
    of ordinary traffic, its tokens, and quantiles of its need, evenly spaced.
    """
    folder = resources.files("curtilage.client.routing").joinpath("weights")
    read = json.loads(folder.joinpath(_FILE).read_text("utf-8"))
    made: dict[str, tuple[tuple[float, float], ...]] = {}
    for source, kinds in read["need"].items():
        shares, tokens = [0.0] * BINS, [0.0] * BINS
        for kind in kinds:
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
    """Return a number in 0 to 1; what is no number counts as 0, and stays local."""
    return min(1.0, value) if value > 0 else 0.0
