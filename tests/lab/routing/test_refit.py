"""The gain, fitted to questions of one's own: better than chance, or not used."""

import random
from dataclasses import fields
from hashlib import sha256
from importlib import resources

import numpy as np
import pytest

from curtilage.client.routing.estimators import FILE, FOLDER
from curtilage.client.routing.ngram import NgramEstimator, Weights, load_weights
from curtilage.lab.routing import refit
from curtilage.lab.routing.advise import repeatable

EASY = ("rename", "restyle", "reorder", "relabel")
HARD = ("reconcile", "refute", "reconstruct", "rederive")


@pytest.fixture(scope="module")
def shipped() -> Weights:
    package = resources.files("curtilage.client.routing")
    return load_weights(package.joinpath(FOLDER, FILE).read_bytes())


def questions(count: int, seed: int = 3) -> tuple[list[str], list[float]]:
    """Questions whose verb alone says whether the strong model is needed."""
    drawn = random.Random(seed)  # noqa: S311 - repeatable, no secret
    texts: list[str] = []
    gains: list[float] = []
    for number in range(count):
        hard = drawn.random() < 0.4
        verb = drawn.choice(HARD if hard else EASY)
        texts.append(f"Please {verb} the ledger of ward {number % 7} for us.")
        gains.append(float(hard) if drawn.random() < 0.95 else float(not hard))
    return texts, gains


def test_what_can_be_learned_is_learned(shipped: Weights) -> None:
    texts, gains = questions(600)
    fitted = refit.fit(shipped, texts[:300], gains[:300])
    scores = [refit.score(fitted, text) for text in texts[300:]]
    judgement = refit.judge(scores, gains[300:], repeatable(1))
    assert judgement.apgr > 0.7
    assert judgement.apgr_low > 0.6
    assert judgement.beats_chance


def test_what_is_chance_does_not_count(shipped: Weights) -> None:
    texts, _ = questions(600)
    drawn = random.Random(5)  # noqa: S311 - repeatable, no secret
    gains = [float(drawn.random() < 0.4) for _ in texts]
    fitted = refit.fit(shipped, texts[:300], gains[:300])
    scores = [refit.score(fitted, text) for text in texts[300:]]
    judgement = refit.judge(scores, gains[300:], repeatable(1))
    assert not judgement.beats_chance
    judged = NgramEstimator(refit.judged(fitted, judgement))
    as_shipped = NgramEstimator(shipped).estimate(texts[0], 100).gain
    assert judged.estimate(texts[0], 100).gain == pytest.approx(as_shipped, abs=1e-4)


def test_before_it_is_judged_it_does_not_count(shipped: Weights) -> None:
    texts, gains = questions(200)
    fitted = NgramEstimator(refit.fit(shipped, texts, gains))
    as_shipped = NgramEstimator(shipped).estimate(texts[0], 100).gain
    assert fitted.estimate(texts[0], 100).gain == pytest.approx(as_shipped, abs=1e-4)


def test_the_file_is_one_that_the_estimator_reads(shipped: Weights) -> None:
    texts, gains = questions(400)
    fitted = refit.fit(shipped, texts, gains)
    weights = refit.judged(fitted, refit.Judgement(apgr=0.8, apgr_low=0.7))
    data = refit.packed(weights)
    again = load_weights(data, sha256(data).hexdigest())
    for each in fields(weights):
        assert np.array_equal(getattr(again, each.name), getattr(weights, each.name))
    estimator = NgramEstimator(again)
    easy, hard = (
        estimator.estimate(f"Please {verb} the ledger of ward 2 for us.", 100)
        for verb in (EASY[0], HARD[0])
    )
    assert hard.source == "ngram"
    assert hard.gain > easy.gain
    assert hard.gain_low <= hard.gain <= hard.gain_high


def test_the_intent_heads_are_unchanged(shipped: Weights) -> None:
    fitted = refit.fit(shipped, *questions(100))
    assert np.array_equal(fitted.heads[:, :-1], shipped.heads[:, :-1])
    assert np.array_equal(fitted.dense[:, :-1], shipped.dense[:, :-1])
    assert not np.array_equal(fitted.heads[:, -1], shipped.heads[:, -1])


def test_the_same_questions_make_the_same_file(shipped: Weights) -> None:
    texts, gains = questions(100)
    one, other = (refit.fit(shipped, texts, gains) for _ in range(2))
    assert refit.packed(one) == refit.packed(other)


def test_questions_that_are_all_alike_make_a_file(shipped: Weights) -> None:
    fitted = refit.fit(shipped, ["the same"] * 90, [0.0, 1.0] * 45)
    data = refit.packed(fitted)
    assert load_weights(data, sha256(data).hexdigest()).curve.shape[1] == 1


def test_a_gap_that_may_be_none_is_not_beaten() -> None:
    # One better answer and one worse in fifty: drawn again, there may be no gap.
    gains = [1.0, 1.0, -1.0] + [0.0] * 47
    judgement = refit.judge([1.0, 0.9, 0.0] + [0.5] * 47, gains, repeatable(1))
    assert not judgement.beats_chance


def test_no_question_judges_a_fit_that_it_had_a_part_in(shipped: Weights) -> None:
    texts, gains = questions(60)
    other = [1.0 - gains[0], *gains[1:]]
    read = refit.read(shipped, texts)

    def scores(given: list[float]) -> list[np.ndarray]:
        cut = repeatable(2)
        return list(refit.cross_scores(read, given, cut, folds=5, repeats=3))

    pairs = [*zip(scores(gains), scores(other), strict=True)]
    assert len(pairs) == 3
    for one, changed in pairs:
        # Its own grade is nothing to its score; of others' it is.
        assert one[0] == changed[0]
        assert not np.array_equal(one, changed)


def test_what_was_read_scores_as_its_text_does(shipped: Weights) -> None:
    texts, gains = questions(80)
    read = refit.read(shipped, texts)
    (crossed,) = refit.cross_scores(read, gains, repeatable(2), folds=2, repeats=1)
    draw = repeatable(2)
    order = np.argsort([draw() for _ in texts], kind="stable")
    first, second = np.array_split(order, 2)
    fitted = refit.fit_to(read, gains, np.sort(second))
    rows: list[int] = first.tolist()
    for row in rows:
        assert crossed[row] == pytest.approx(refit.score(fitted, texts[row]), abs=1e-3)


def test_another_estimator_is_compared_on_the_same_questions() -> None:
    drawn = random.Random(6)  # noqa: S311 - repeatable, no secret
    gains = [float(drawn.random() < 0.3) for _ in range(300)]
    good = [gain + drawn.random() for gain in gains]
    worse = [gain + 4 * drawn.random() for gain in gains]
    found = refit.compare(
        [good], {"worse": worse, "same": good}, gains, repeatable(1)
    ).against
    assert found["worse"].shown
    assert found["worse"].low < found["worse"].by < found["worse"].high
    assert (found["same"].by, found["same"].low, found["same"].high) == (0, 0, 0)


def test_equal_scores_rank_nothing_in_whatever_order_they_come() -> None:
    gains = [1.0] * 50 + [0.0] * 50
    assert refit.judge([0.0] * 100, gains, repeatable(1)).apgr == pytest.approx(0.5)
    assert refit.judge(gains, gains, repeatable(1)).apgr > 0.7


def test_better_is_than_chance_surely_and_than_all_others_by_what_was_seen() -> None:
    def ranking(apgr_low: float, *by: float) -> refit.Ranking:
        return refit.Ranking(
            judgement=refit.Judgement(apgr=0.7, apgr_low=apgr_low),
            against={
                str(at): refit.Difference(apgr=0.6, by=each, low=-1, high=1)
                for at, each in enumerate(by)
            },
        )

    assert ranking(0.51, 0.1, 0.1).better
    assert not ranking(0.5, 0.1, 0.1).better
    assert not ranking(0.51, 0.1, 0.0).better
