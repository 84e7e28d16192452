import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.errors import RequestError
from curtilage.inference.sampling import (
    SEED_MODULUS,
    SamplingSettings,
    choose_seed,
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"seed": 2**64},
        {"seed": -(2**64)},
        {"stop": ("",)},
        {"stop": ("x" * 1025,)},
        {"stop": tuple("abcdefghijklmnopq")},
        {"logprobs": True, "top_logprobs": 21},
        {"logprobs": True, "top_logprobs": -1},
        {"top_logprobs": 1},
        {"frequency_penalty": 2.1},
        {"frequency_penalty": -2.1},
        {"frequency_penalty": math.nan},
        {"presence_penalty": 2.1},
        {"presence_penalty": -2.1},
        {"presence_penalty": math.nan},
        {"logit_bias": ((5, 100.5),)},
        {"logit_bias": ((5, -100.5),)},
        {"logit_bias": ((5, math.nan),)},
        {"logit_bias": ((-1, 1.0),)},
        {"logit_bias": ((2**31, 1.0),)},
        {"logit_bias": ((5, 1.0), (5, -1.0))},
        {"logit_bias": tuple((token, 1.0) for token in range(1025))},
    ],
    ids=lambda settings: str(settings)[:40],
)
def test_settings_refuse_what_is_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        SamplingSettings(**wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"max_tokens": 1},
        {"temperature": 0.0},
        {"temperature": 2.0},
        {"top_p": 1.0},
        {"seed": 2**63},
        {"seed": -1},
        {"stop": tuple("abcdefghijklmnop")},
        {"logprobs": True, "top_logprobs": 20},
        {"frequency_penalty": -2.0, "presence_penalty": 2.0},
        {"logit_bias": ((0, -100.0), (2**31 - 1, 100.0))},
        {"logit_bias": tuple((token, 1.0) for token in range(1024))},
    ],
    ids=lambda settings: str(settings)[:40],
)
def test_settings_accept_the_ends_of_each_range(right: dict[str, Any]) -> None:
    SamplingSettings(**right)


def test_settings_show_no_stop_string() -> None:
    assert "canary" not in repr(SamplingSettings(stop=("canary",)))


@given(st.integers(min_value=-(2**63), max_value=2**64 - 1))
def test_chosen_seed_is_one_the_library_takes_literally(seed: int) -> None:
    assert 0 <= choose_seed(seed) < SEED_MODULUS
    assert choose_seed(seed) == choose_seed(seed)


def test_missing_seed_is_drawn() -> None:
    assert choose_seed(None, random=lambda size: b"\x01" * size) == (
        int.from_bytes(b"\x01" * 8, "big") % SEED_MODULUS
    )


def test_missing_seeds_differ() -> None:
    assert len({choose_seed(None) for _ in range(8)}) > 1
