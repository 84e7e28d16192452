"""Made-up drafts of a local model, and thresholds for judging them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from curtilage.client.chat.answer import Delta, Finished, TokenSignal
from curtilage.client.routing.answer_features import FEATURES_SHA256, NAMES
from curtilage.client.routing.thresholds import Thresholds
from curtilage.client.routing.verifier import LOOKS, Head
from curtilage.lab.routing.certify import GRID
from curtilage_dev.scripted_engine import SCRIPTED_INFO

STOPPED: Final = Finished(finish_reason="stop", prompt_tokens=9, completion_tokens=9)


def head_of(name: str = "logprob mean", *, weight: float = 1.0, bias: float) -> Head:
    """Return a head that looks at one feature alone."""
    weights = tuple(weight * (each == name) for each in NAMES)
    return Head(mean=(0.0,) * len(NAMES), spread=(1.0,) * len(NAMES), weights=weights,
                bias=bias)  # fmt: skip


SURE: Final = (head_of(bias=2.0),) * (len(LOOKS) + 1)
"""Of a model that is sure, .88; of tokens of probability 1/2, .79; of 1 %, .07."""

THRESHOLDS: Final = Thresholds(
    model_sha256=SCRIPTED_INFO.model_sha256,
    template_sha256=SCRIPTED_INFO.template_sha256,
    features_sha256=FEATURES_SHA256,
    quantisation="Q4_K_M",
    alpha=0.1,
    delta=0.05,
    grid=GRID,
    share=0.5,
    threshold=0.6,
    graded=1000,
    bad=300,
    accepted=500,
    errors=20,
    heads=SURE,
)
"""For the scripted engine: half of the drafts are accepted, and 4 % of those bad."""


def thresholds(**changes: object) -> Thresholds:
    """Return ``THRESHOLDS``, changed."""
    return replace(THRESHOLDS, **changes)  # type: ignore[arg-type]


def written(*pieces: str, probability: float = 0.99) -> Iterator[Delta]:
    """Yield a draft, of which each piece is a token of a probability."""
    margin = abs(math.log(probability) - math.log(1 - probability))
    signal = TokenSignal(logprob=math.log(probability), margin=margin)
    return (Delta(text=piece, signals=(signal,)) for piece in pieces)
