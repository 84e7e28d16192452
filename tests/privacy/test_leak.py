"""Sizes and gaps of padded answers disclose nothing; unpadded ones, much.

The real enclave server in a separate process gives 200 answers of ten kinds; the test
sees what the relay sees. The period is short, so that a run takes seconds;
``python -m benchmarks.leak`` does the same with the released one.
"""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.leak import (
    CONFIDENCE,
    LengthAttack,
    Trace,
    Way,
    chance,
    leak_enclave,
    record,
)
from support.leak_model import classify

PADDED = TransportParameters(frame_bytes=512, period_ms=10, first_bucket=48, buckets=7)
"""Ten milliseconds, since this test's own machine keeps no faster pace reliably."""
PAUSE_MS = 0.8
"""Between tokens: the longest answer takes half of the first bucket's time."""
AT_ONCE = 10
MORE_RECORDINGS = 2
MORE_CONFIDENCE = 0.99
SHUFFLES = 199


def recorded(parameters: TransportParameters, folder: Path) -> list[Trace]:
    async def run() -> list[Trace]:
        async with leak_enclave(parameters, PAUSE_MS, folder) as address:
            frames = parameters.first_bucket or None
            return await record(Way(address=address), at_once=AT_ONCE, frames=frames)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    return recorded(PADDED, tmp_path_factory.mktemp("padded"))


@pytest.fixture(scope="module")
def unpadded(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    return recorded(UNPADDED, tmp_path_factory.mktemp("unpadded"))


def test_all_padded_answers_have_the_same_sizes(padded: list[Trace]) -> None:
    assert len(padded) >= 200
    assert len({trace.sizes for trace in padded}) == 1
    # They are not the same answers: how many tokens they have differs twofold.
    counts = [len(trace.tokens) for trace in padded]
    assert max(counts) > 2 * min(counts)


def test_a_classifier_wins_on_unpadded_answers(unpadded: list[Trace]) -> None:
    """A classifier that fails on unpadded answers too would prove nothing."""
    assert classify(unpadded) > 0.6


def test_a_classifier_guesses_on_padded_answers(
    padded: list[Trace], tmp_path: Path
) -> None:
    """What it gets right lies in the interval of chance, which has two sides.

    Even guessing lies outside once in twenty times, and a machine that is busy
    in step with our questions does so more often. A leak is there at every
    recording: so only where the first one is outside, two new ones decide, taken
    together. Where nothing leaks, they are outside as well once in 2,000 runs.
    """
    first = classify(padded)
    if is_chance(first, len(padded)):
        return
    again = [recorded(PADDED, tmp_path) for _ in range(MORE_RECORDINGS)]
    rate = float(np.mean([classify(traces) for traces in again]))
    count = sum(map(len, again))
    assert is_chance(rate, count, MORE_CONFIDENCE), (first, rate)


def is_chance(rate: float, count: int, confidence: float = CONFIDENCE) -> bool:
    low, high = chance(count, confidence)
    return low <= rate <= high


def test_token_lengths_come_out_of_unpadded_answers(unpadded: list[Trace]) -> None:
    assert LengthAttack(unpadded).correlation() > 0.9


@pytest.mark.parametrize("mode", ["padded", "unpadded"])
def test_token_lengths_against_shuffled_ones(
    mode: str, request: pytest.FixtureRequest
) -> None:
    """With padding, the true order fits no better than any other."""
    attack = LengthAttack(request.getfixturevalue(mode))
    draw = np.random.default_rng(7)
    others = [attack.correlation(draw) for _ in range(SHUFFLES)]
    fits_best = attack.correlation() > max(others)
    assert fits_best is (mode == "unpadded")
