"""Features are the same everywhere, and of bounded size for hostile texts."""

from hashlib import sha256

import numpy as np
import pytest

from curtilage.client.routing.features import BUCKETS, DENSE, features_of

TEXT = "Summarise: Müller's 3 cats don't sleep; why? (a) cold\n(b) `noise`"
# Weights are learned for these numbers: another digest needs another ``VERSION``.
DIGEST = "fc526aef33cb6d398d89ea11c8de741ef66ea9eb58f003e1a756c4243009e407"


def test_a_fixed_text_has_the_features_that_weights_were_learned_for() -> None:
    made = features_of(TEXT)
    # In steps that no processor's logarithm differs by.
    steps = [np.round(each * 4096) for each in (made.places, made.counts, made.dense)]
    octets = b"".join(each.astype("<i8").tobytes() for each in steps)
    assert sha256(octets).hexdigest() == DIGEST


def test_words_and_the_same_letters_inside_of_others_fall_apart() -> None:
    apart, inside = (set(features_of(text).places) for text in ("cat", "concatenate"))
    assert apart - inside


def test_the_order_of_words_counts() -> None:
    one, other = (features_of(text) for text in ("dog bites man", "man bites dog"))
    assert set(one.places) != set(other.places)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "a" * 1_000_000,
        "\0" * 5000,
        "\ud800" * 5000,
        "İ" * 5000,
        "😀" * 5000,
    ],
    ids=["none", "space", "a", "one word", "NULs", "surrogates", "growing", "wide"],
)
def test_hostile_texts_have_finite_features_in_range(text: str) -> None:
    made = features_of(text)
    assert made.dense.shape == (len(DENSE),)
    assert np.isfinite(made.dense).all()
    assert made.places.max(initial=0) < BUCKETS
    assert len(made.places) == len(made.counts)
