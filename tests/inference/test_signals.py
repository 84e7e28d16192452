import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.signals import log_probability


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
