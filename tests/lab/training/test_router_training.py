"""What is learned counts only where it beats rules and length on a set it never saw."""

import random
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip(
    "sklearn", reason="SKIPPED LOUDLY: scikit-learn comes with make test-processes"
)

from lab.training.router.heads import Texts
from lab.training.router.quality import difference
from lab.training.router.sources import Outcome, Task
from lab.training.router.train import (
    NAMES,
    Intents,
    learn_gain,
    temperature,
    weights_of,
)

WORDS = ["river", "stone", "cloud", "paper", "lamp", "window", "bread", "music"]
SETS = ("one", "two", "three")
SAID = {
    "classification": "is this spam",
    "extraction": "list all names",
    "summarisation": "sum it up",
    "generation": "write a poem",
    "transform": "translate this",
    "qa": "who is it",
    "reasoning": "prove the claim",
    "code": "debug my script",
}


def outcomes(gain: Callable[[random.Random, str], float]) -> list[Outcome]:
    """Return prompts of one length, a rare word in half of them, of three sets."""
    draw = random.Random(7)  # noqa: S311 - the same prompts each time
    made: list[Outcome] = []
    for origin in SETS:
        for _ in range(200):
            words = draw.choices(WORDS, k=9)
            words.append(draw.choice(["zebra", "horse"]))
            text = " ".join(words)
            made.append(Outcome(text, 0.0, gain(draw, text), origin))
    return made


def learned(rows: list[Outcome]) -> tuple[np.ndarray, float, dict[str, object]]:
    figures: dict[str, object] = {}
    unseen, bound = learn_gain(rows, Texts([row.text for row in rows]), figures)
    return unseen, bound, figures


@pytest.fixture(scope="module")
def intents() -> Intents:
    rows = [
        Task(f"{text} {n}", name, name) for name, text in SAID.items() for n in "ab"
    ]
    assert {row.intent for row in rows} == set(NAMES)
    return Intents(rows, Texts([row.text for row in rows]), 1.0, (0.9, 0.2))


def test_a_head_that_holds_on_sets_it_never_saw_counts(intents: Intents) -> None:
    rows = outcomes(lambda _, text: float("zebra" in text))
    unseen, bound, figures = learned(rows)
    assert bound > 0
    assert len(figures) == len(SETS)
    texts = Texts([row.text for row in rows])
    weights = weights_of(intents, rows, texts, unseen, bound)
    assert weights.heads[:, -1].any()
    assert weights.beats[1, 0] > weights.beats[1, 1]


def test_a_head_that_learned_nothing_is_not_in_the_file(intents: Intents) -> None:
    rows = outcomes(lambda draw, _: float(draw.random() < 0.5))
    unseen, bound, _ = learned(rows)
    assert bound <= 0
    texts = Texts([row.text for row in rows])
    weights = weights_of(intents, rows, texts, unseen, bound)
    assert not weights.heads[:, -1].any()
    assert weights.beats[1, 0] <= weights.beats[1, 1]


def test_a_difference_that_is_none_holds_nothing() -> None:
    draw = np.random.default_rng(0)
    scores = draw.normal(size=300)
    gains = (draw.random(300) < 0.4).astype(np.float64)
    assert difference(scores, scores, gains, rounds=50) == (0.0, 0.0)
    low, _ = difference(gains, -gains, gains, rounds=50)
    assert low > 0.5


def test_rows_of_no_weight_say_nothing_of_the_temperature() -> None:
    scores = np.array([[4.0, 0.0], [4.0, 0.0]])
    labels = np.array([0, 1])
    sure = temperature(scores, labels, np.array([1.0, 0.0]))
    unsure = temperature(scores, labels, np.array([0.5, 0.5]))
    assert sure < unsure
