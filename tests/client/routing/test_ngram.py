"""The learned estimator: what it says, what it refuses, and when the rules speak."""

import io
from dataclasses import replace
from hashlib import sha256
from importlib import resources

import numpy as np
import pytest

from curtilage.client.routing.estimate import (
    KNOWN,
    ROUTINE_INTENTS,
    Intent,
    RouterModelError,
    RulesEstimator,
    signs_of,
)
from curtilage.client.routing.ngram import (
    MAX_OCTETS,
    SHIPPED_SHA256,
    NgramEstimator,
    Weights,
    load_weights,
    with_rules,
)

MOST = 512
SHIPPED = resources.files("curtilage.client.routing").joinpath("weights", "router.npz")
PLAIN = {
    "Classify this review as positive or negative: great!": Intent.CLASSIFICATION,
    "Summarise this text in one sentence: The museum opened.": Intent.SUMMARISATION,
    "Write a Python function that merges two sorted lists.": Intent.CODE,
    "Fasse das in zwei Sätzen zusammen: Das Museum ist offen.": Intent.SUMMARISATION,
    "Écris une fonction Python qui trie une liste.": Intent.CODE,
    "Traduce al inglés: el perro duerme.": Intent.TRANSFORM,
    "Scrivi una poesia sul mare.": Intent.GENERATION,
    "Wat is de hoofdstad van België?": Intent.QA,
    "Resolva 5x + 2 = 17 passo a passo.": Intent.REASONING,
}


@pytest.fixture(scope="module")
def shipped() -> Weights:
    return load_weights(SHIPPED.read_bytes())


def test_the_shipped_file_is_the_one_that_is_named_and_small() -> None:
    data = SHIPPED.read_bytes()
    assert sha256(data).hexdigest() == SHIPPED_SHA256
    assert len(data) <= MAX_OCTETS


@pytest.mark.parametrize("text", PLAIN)
def test_plain_requests_of_several_languages(shipped: Weights, text: str) -> None:
    assert NgramEstimator(shipped).estimate(text, MOST).intent is PLAIN[text]


def test_code_gains_more_than_sorting(shipped: Weights) -> None:
    code, sorting = (
        NgramEstimator(shipped).estimate(text, MOST)
        for text in ("Write a C++ parser for JSON.", "Is this review positive? Great!")
    )
    assert code.gain_low > sorting.gain_high


def test_a_gain_lies_in_its_interval(shipped: Weights) -> None:
    result = NgramEstimator(shipped).estimate("What is the capital of France?", MOST)
    assert -1 <= result.gain_low <= result.gain <= result.gain_high <= 1


def fitted(weights: Weights) -> Weights:
    """Return weights with a gain of an operator's own: the same for everything."""
    heads = weights.heads.copy()
    heads[:, -1] = 1
    return replace(
        weights,
        heads=heads,
        steps=np.array([*weights.steps[:-1], 0.01], np.float32),
        curve=np.array([[-3, 3], [0.4, 0.4], [0.3, 0.3], [0.5, 0.5]], np.float32),
        beats=np.array([weights.beats[0], (0.6, 0.5)], np.float32),
    )


def test_the_shipped_file_holds_no_learned_gain(shipped: Weights) -> None:
    assert not shipped.heads[:, -1].any()
    assert not shipped.dense[:, -1].any()
    assert shipped.beats[1, 0] <= shipped.beats[1, 1]


def test_a_gain_of_ones_own_is_used(shipped: Weights) -> None:
    text = "What is the capital of France?"
    without, own = (
        NgramEstimator(weights).estimate(text, MOST)
        for weights in (shipped, fitted(shipped))
    )
    assert own.intent is without.intent
    assert without.gain < 0.2
    result = (own.gain_low, own.gain, own.gain_high)
    assert result == pytest.approx((0.3, 0.4, 0.5))


def test_what_is_too_long_to_overlook_gains_more(shipped: Weights) -> None:
    task = "Summarise this. " + "It rained. " * 20
    long = task + "It rained. " * 4000
    gains = [NgramEstimator(shipped).estimate(text, MOST).gain for text in (task, long)]
    assert gains[0] < gains[1]


def test_a_head_that_did_not_beat_chance_leaves_it_to_the_rules(
    shipped: Weights,
) -> None:
    text = "Write a Python function that sorts a list"
    chance = replace(shipped, beats=np.array([[0.4, 0.4], [0.5, 0.5]], np.float32))
    by_rules = RulesEstimator().estimate(text, MOST)
    assert NgramEstimator(chance).estimate(text, MOST) == by_rules


def test_each_head_is_judged_by_itself(shipped: Weights) -> None:
    text = "Write a Python function that sorts a list"
    by_rules = RulesEstimator().estimate(text, MOST)
    own = fitted(shipped)
    gain = replace(own, beats=np.array([[0.3, 0.4], [0.6, 0.5]], np.float32))
    intent = replace(own, beats=np.array([[0.8, 0.4], [0.4, 0.5]], np.float32))
    result = NgramEstimator(gain).estimate(text, MOST)
    assert (result.intent_confidence, result.source) == (
        by_rules.intent_confidence,
        "ngram",
    )
    assert NgramEstimator(intent).estimate(text, MOST) == (
        NgramEstimator(shipped).estimate(text, MOST)
    )


ROUTINE = [
    "Finish the phrase: Please find attached the",
    "What does PDF stand for?",
    "How many minutes are in a day?",
    "Fix the grammar: 'She dont has the keys.'",
    "Make this more polite: Send it.",
    "Rate the urgency from 1 to 5: the door is stuck",
    "Which department should this go to? My invoice is wrong.",
    "Extract all dates from: seen on 3 May, again on 9 June.",
    "Is this a complaint, an order or a question? Where is my parcel?",
    "Traduis en anglais : La porte est fermée.",
    "Wofür steht die Abkürzung AG?",
    "¿Cuántos días tiene un año?",
    "Vul aan: Met vriendelijke",
    "Corrige: Eles vai embora.",
    "A quale ufficio va? La fattura è sbagliata.",
]
HARD = [
    "Write a Python function that merges two sorted lists and explain its complexity.",
    "A train leaves at 9:10 and travels 140 km at 80 km/h. When does it arrive?",
    "Compare renting and buying over ten years and recommend one, with your reasons.",
    "Beurteile, ob der Vermieter wegen Mietrückstand kündigen kann.",
    "Planifie la migration du serveur : étapes, risques, dépendances.",
    "Un padre tiene 40 años y su hijo 10. ¿Cuándo tendrá el doble de edad?",
]


@pytest.mark.parametrize("text", ROUTINE)
def test_routine_work_is_named_and_gains_little(shipped: Weights, text: str) -> None:
    result = NgramEstimator(shipped).estimate(text, MOST)
    assert result.intent in ROUTINE_INTENTS
    assert result.gain < 0.2


@pytest.mark.parametrize("text", HARD)
def test_hard_work_gains_more_than_any_routine(shipped: Weights, text: str) -> None:
    estimator = NgramEstimator(shipped)
    most = max(estimator.estimate(each, MOST).gain for each in ROUTINE)
    assert estimator.estimate(text, MOST).gain > most


def test_gains_are_hardly_ever_equal(shipped: Weights) -> None:
    estimator = NgramEstimator(shipped)
    gains = [estimator.estimate(text, MOST).gain for text in (*ROUTINE, *HARD)]
    assert len(set(gains)) == len(gains)


def test_what_neither_knows_alone_is_known_by_both() -> None:
    signs = signs_of("Rate it from 1 to 5")
    even = np.full(len(KNOWN), 1 / len(KNOWN), np.float32)
    both = with_rules(even, signs)
    assert both.sum() == pytest.approx(1)
    assert KNOWN[int(both.argmax())] is Intent.CLASSIFICATION


@pytest.mark.parametrize(
    "text",
    ["", "a" * 1_000_000, "\0" * 5000, "\ud800" * 5000],
    ids=["none", "one word", "NULs", "lone surrogates"],
)
def test_hostile_texts_get_an_estimate(shipped: Weights, text: str) -> None:
    result = NgramEstimator(shipped).estimate(text, MOST)
    assert -1 <= result.gain_low <= result.gain_high <= 1


def test_another_file_than_the_named_one_is_refused() -> None:
    changed = bytearray(SHIPPED.read_bytes())
    changed[-1] ^= 1
    with pytest.raises(RouterModelError, match="expected digest"):
        load_weights(bytes(changed))


def test_a_file_that_is_too_long_is_refused_though_it_was_named() -> None:
    data = bytes(MAX_OCTETS + 1)
    with pytest.raises(RouterModelError, match="expected digest"):
        load_weights(data, sha256(data).hexdigest())


def arrays_of(weights: Weights) -> dict[str, np.ndarray]:
    return {name: getattr(weights, name) for name in Weights.__slots__}


def refused(arrays: dict[str, np.ndarray]) -> str:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=True, **arrays)
    data = file.getvalue()
    with pytest.raises(RouterModelError) as caught:
        load_weights(data, sha256(data).hexdigest())
    return str(caught.value)


def test_an_object_that_could_run_is_not_unpacked(shipped: Weights) -> None:
    arrays = arrays_of(shipped) | {"bias": np.array([object()], dtype=object)}
    assert "cannot be read" in refused(arrays)


@pytest.mark.parametrize("name", Weights.__slots__)
def test_a_missing_array_is_refused(shipped: Weights, name: str) -> None:
    arrays = arrays_of(shipped)
    del arrays[name]
    assert "cannot be read" in refused(arrays)


@pytest.mark.parametrize("name", Weights.__slots__)
def test_an_array_of_another_size_is_refused(shipped: Weights, name: str) -> None:
    arrays = arrays_of(shipped)
    arrays[name] = arrays[name][:0]
    assert f"router's {name} has a wrong size" in refused(arrays)


def test_what_is_no_number_is_refused(shipped: Weights) -> None:
    bias = np.full_like(shipped.bias, np.nan)
    assert "NaN" in refused(arrays_of(replace(shipped, bias=bias)))


def test_weights_for_other_features_are_refused(shipped: Weights) -> None:
    changed = replace(shipped, version=shipped.version + 1)
    assert "other features" in refused(arrays_of(changed))


@pytest.mark.parametrize("name", ["spread", "temperature", "scale"])
def test_a_scale_of_nothing_is_refused(shipped: Weights, name: str) -> None:
    arrays = arrays_of(shipped)
    arrays[name] = np.zeros_like(arrays[name])
    assert "scales" in refused(arrays)


def test_a_curve_that_goes_back_is_refused(shipped: Weights) -> None:
    changed = replace(shipped, curve=np.ascontiguousarray(shipped.curve[:, ::-1]))
    assert "scales" in refused(arrays_of(changed))
