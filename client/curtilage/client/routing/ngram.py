"""The learned estimator: linear heads over hashed features of a text.

Reads one file of arrays, which must match the expected digest and contains nothing
executable. A head is used only if, by the file, its quality on held-out texts exceeded
the baseline by the lower bound of its interval; otherwise the rules are used instead.
The shipped file only has intents: their probabilities and the rules determine the gain.
Operators can fit a gain of their own (``route calibrate``). Needs numpy.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from curtilage.client.routing.estimate import (
    GAIN_SPREAD,
    KNOWN,
    THRESHOLD,
    Estimate,
    Intent,
    RouterModelError,
    RulesEstimator,
    Signs,
    answer_tokens,
    expected_gain,
    named_intent,
    prompt_tokens,
    read,
)
from curtilage.client.routing.features import (
    BUCKETS,
    DENSE,
    VERSION,
    Features,
    Floats,
    features_in,
)

# Of the shipped file; ``make train-router`` prints the next one.
SHIPPED_SHA256: Final = (
    "33a19d471ed0684a0bbd708816d0862835974a36374b00af94c045b5eb1fd122"
)
MAX_OCTETS: Final = 1_572_864
HEADS: Final = len(KNOWN) + 1  # one for each intent, then the gain
_MANY_THINGS_TOKENS: Final = 90
_LONG_TOKENS: Final = (
    2000  # from here a small model's quality declines, up to twice as many
)

# Added to the learned gain for each intent, before both are normalised. Extracting or
# sorting little is easy for a local model; many things at once are not.
_PRIOR: Final[Mapping[Intent, float]] = {Intent.CODE: 1.0, Intent.REASONING: 1.0}
_PRIOR_LONG_EXTRACTION: Final = 0.8
_RULES_PART: Final = 0.5


_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A file of weights, by shape: buckets ``B``, heads ``H``, dense features ``D``.

    Attributes:
        version: of the features that it was learned for.
        rarity: ``[B]`` factors of the buckets' counts.
        heads: ``[B, H]`` in units of ``steps``.
        steps: ``[H]``.
        mean: ``[D]`` of the dense features; ``spread``: ``[D]``.
        dense: ``[D, H]``; for the gain, those of cues are 0.
        bias: ``[H]``.
        temperature: ``[1]`` divides the intents' logits.
        scale: ``[4]`` mean and spread of the learned gain, then of the prior.
        curve: ``[4, K]`` scores, ascending; the gain there, and its interval's ends.
        beats: ``[2, 2]`` lower bound of the held-out quality, and the baseline: for the
            intents accuracy, and that of the most common one; for the gain APGR and
            that of chance, or the difference to rules and length, and 0. If the gain
            did not exceed it, its column may be zeros.
    """

    version: npt.NDArray[np.int32]
    rarity: npt.NDArray[np.float16]
    heads: npt.NDArray[np.int8]
    steps: Floats
    mean: Floats
    spread: Floats
    dense: Floats
    bias: Floats
    temperature: Floats
    scale: Floats
    curve: Floats
    beats: Floats


_SHAPES: Final[Mapping[str, tuple[tuple[int, ...], str]]] = {
    "version": ((1,), "int32"),
    "rarity": ((BUCKETS,), "float16"),
    "heads": ((BUCKETS, HEADS), "int8"),
    "steps": ((HEADS,), "float32"),
    "mean": ((len(DENSE),), "float32"),
    "spread": ((len(DENSE),), "float32"),
    "dense": ((len(DENSE), HEADS), "float32"),
    "bias": ((HEADS,), "float32"),
    "temperature": ((1,), "float32"),
    "scale": ((4,), "float32"),
    "curve": ((4,), "float32"),  # of any width
    "beats": ((2, 2), "float32"),
}


def load_weights(data: bytes, digest: str = SHIPPED_SHA256) -> Weights:
    """Parse a file of weights.

    Args:
        data: the file.
        digest: the expected SHA-256, hex.

    Raises:
        RouterModelError: another digest, wrong arrays or sizes, or other features.
    """
    # The digest first: nothing of an unknown file is parsed, not even its headers.
    if len(data) > MAX_OCTETS or sha256(data).hexdigest() != digest.lower():
        raise RouterModelError("the router's weights do not match the expected digest")
    try:
        # A pickle in the file could run any code.
        with np.load(io.BytesIO(data), allow_pickle=False) as opened:
            arrays = {name: cast("_Array", opened[name]) for name in _SHAPES}
    except Exception:  # noqa: BLE001 - zipfile, zlib and numpy raise many types
        # Without its cause: the library's message may quote the file.
        raise RouterModelError("the router's weights cannot be read") from None
    for name, (shape, kind) in _SHAPES.items():
        given = arrays[name]
        width = shape if name != "curve" else (*shape[:1], *given.shape[1:2])
        if given.shape != width or given.size == 0 or given.dtype.name != kind:
            raise RouterModelError(f"the router's {name} has a wrong size or type")
        # With a NaN every comparison is false, so that every query would look alike.
        if not np.isfinite(given).all():
            raise RouterModelError(f"the router's {name} contains NaN or infinity")
    weights = Weights(**arrays)
    if weights.version[0] != VERSION:
        raise RouterModelError("the router's weights are for other features")
    # They are divisors, and ``np.interp`` needs ascending scores and returns nonsense
    # without them, not an error.
    scales = (weights.spread, weights.temperature, weights.scale[1::2])
    if np.diff(weights.curve[0]).min(initial=1) <= 0 or np.hstack(scales).min() <= 0:
        raise RouterModelError("the router's scales are invalid")
    return weights


class NgramEstimator:
    """Estimates by rules and by learned weights, as far as these are used.

    Args:
        weights: the learned weights.
        threshold: the confidence from which an intent is named.
    """

    def __init__(self, weights: Weights, threshold: float = THRESHOLD) -> None:
        self._weights = weights
        self._threshold = threshold
        self._rules = RulesEstimator(threshold)
        curve = cast("list[list[float]]", weights.curve.tolist())
        self._knots, *self._levels = curve
        # The lower bound, not the mean: a head that only seems better on a small sample
        # is not used.
        self._knows_intent, self._knows_gain = (
            bool(bound > chance) for bound, chance in weights.beats
        )

    def estimate(self, query_text: str, max_tokens: int) -> Estimate:
        """Return the learned estimate, completed by the rules."""
        tokens, (request, signs) = prompt_tokens(query_text), read(query_text)
        # The text is read once for both: reading it takes more than half of the time of
        # an estimate (docs/costs.md).
        ruled = self._rules.judge(signs, tokens, max_tokens)
        if not (self._knows_intent or self._knows_gain):
            return ruled
        raw = raw_scores(self._weights, features_in(request, signs))
        intent, confidence = ruled.intent, ruled.intent_confidence
        gains: tuple[float, ...] = (ruled.gain, ruled.gain_low, ruled.gain_high)
        chances = chances_of(self._weights, raw)
        if self._knows_intent:
            both = cast("list[float]", with_rules(chances, signs).tolist())
            intent, confidence = named_intent(both, self._threshold)
            gain = expected_gain(both, signs)
            gains = (gain, gain - GAIN_SPREAD, gain + GAIN_SPREAD)
        if self._knows_gain:
            given = chances
            if not self._knows_intent:
                certain = [each is ruled.intent for each in KNOWN]
                given = np.array(certain, dtype=np.float32)
            score = standard_gain(
                float(raw[-1]), prior_of(given, tokens), self._weights.scale
            )
            gains = tuple(
                float(np.interp(score, self._knots, level)) for level in self._levels
            )
        return Estimate(
            intent=intent,
            intent_confidence=confidence,
            gain=gains[0],
            gain_low=max(-1.0, gains[1]),
            gain_high=min(1.0, gains[2]),
            source="ngram",
            prompt_tokens=tokens,
            answer_tokens=answer_tokens(intent, tokens, max_tokens),
        )


def with_rules(chances: Floats, signs: Signs) -> Floats:
    """Return the probability of each intent by the heads and the cues together.

    Without cues, the heads' probabilities are used. The heads alone, learned from long
    tasks, are too uncertain about short requests.
    """
    shares = np.array(signs.shares, dtype=np.float32)
    ruled = shares + (1.0 - shares.sum()) * chances
    return cast("Floats", (1.0 - _RULES_PART) * chances + _RULES_PART * ruled)


def raw_scores(weights: Weights, features: Features) -> Floats:
    """Return each head's score of a text: ``[H]``."""
    counts: Floats = features.counts * weights.rarity[features.places].astype(
        np.float32
    )
    # Norm 1: otherwise a long text would have larger scores than a short one that says
    # the same.
    norm = float(np.sqrt((counts * counts).sum()))
    if norm:
        counts /= norm
    hashed = (
        counts @ weights.heads[features.places].astype(np.float32)
    ) * weights.steps
    even = even_dense(features.dense, weights.mean, weights.spread)
    return cast("Floats", hashed + even @ weights.dense + weights.bias)


def even_dense(dense: Floats, mean: Floats, spread: Floats) -> Floats:
    """Normalise dense features, each clamped to four of its spreads."""
    # One unusual number, such as a text of only digits, must not outweigh all words.
    even: Floats = np.clip((dense - mean) / spread, -4, 4).astype(np.float32)
    return even


def prior_of(chances: Floats, tokens: int) -> float:
    """Return the gain that a text's probable intents alone suggest."""
    prior = sum(
        _PRIOR.get(each, 0.0) * float(p) for each, p in zip(KNOWN, chances, strict=True)
    )
    if tokens > _MANY_THINGS_TOKENS:
        prior += _PRIOR_LONG_EXTRACTION * float(chances[KNOWN.index(Intent.EXTRACTION)])
    return max(prior, min(1.0, max(0.0, (tokens - _LONG_TOKENS) / _LONG_TOKENS)))


def standard_gain(learned: float, prior: float, scale: Floats) -> float:
    """Return the sum of learned gain and prior, each normalised."""
    mean, spread, prior_mean, prior_spread = map(float, scale)
    return (learned - mean) / spread + (prior - prior_mean) / prior_spread


def chances_of(weights: Weights, raw: Floats) -> Floats:
    """Return the probability of each intent, by the heads' scores."""
    logits = raw[:-1] / weights.temperature[0]
    # Less the maximum, which cancels out: the exponential of a large logit would be
    # infinite.
    powers: Floats = np.exp(logits - logits.max())
    return cast("Floats", powers / powers.sum())
