import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.signals import log_probability, most_likely, top_margin


@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=32))
def test_probabilities_add_up_to_one(row: list[float]) -> None:
    logits = np.array(row, np.float32)
    total = sum(math.exp(log_probability(logits, token)) for token in range(len(row)))
    assert total == pytest.approx(1)


def test_equal_logits_share_the_probability() -> None:
    assert log_probability(np.zeros(4, np.float32), 2) == pytest.approx(math.log(0.25))


def test_large_logits_do_not_overflow() -> None:
    assert log_probability(np.array([3e38, 0], np.float32), 0) == 0


def test_the_row_is_not_changed() -> None:
    row = np.array([1, 2], np.float32)
    log_probability(row, 0)
    assert row.tolist() == [1, 2]


@given(st.lists(st.floats(-80, 80, width=32), min_size=2, max_size=32))
def test_the_margin_is_that_of_the_two_likeliest(row: list[float]) -> None:
    first, second = sorted(row)[-1:-3:-1]
    assert top_margin(np.array(row, np.float32)) == pytest.approx(first - second)


def test_two_equal_ones_have_no_margin() -> None:
    assert top_margin(np.array([2, 7, 7], np.float32)) == 0


def test_a_single_token_is_beaten_by_none() -> None:
    assert top_margin(np.array([1], np.float32)) == math.inf


@given(st.lists(st.integers(-80, 80), min_size=1, max_size=32), st.integers(0, 40))
def test_the_likeliest_are_those_of_a_sorted_row(row: list[int], count: int) -> None:
    logits = np.array(row, np.float32)
    expected = sorted(range(len(row)), key=lambda token: -row[token])[:count]
    found = most_likely(logits, count)
    assert [token for token, _ in found] == expected
    assert [sure for _, sure in found] == pytest.approx(
        [log_probability(logits, token) for token in expected]
    )
    assert logits.tolist() == row
