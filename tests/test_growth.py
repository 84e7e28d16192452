"""The measure of growth separates linear from quadratic code on a busy machine."""

from collections.abc import Callable
from itertools import count

import pytest

from support.growth import LEAST, grows_at_most

LENGTHS = (2000, 8000)


def linear(length: int) -> float:
    return length / 1e5


def quadratic(length: int) -> float:
    return length**2 / 1e8


def held_up_but_every(nth: int, cost: Callable[[int], float]) -> Callable[[int], float]:
    """Return ``cost``, three times over but for each ``nth`` measurement."""
    number = count(1)
    return lambda length: cost(length) * (1 if next(number) % nth == 0 else 3)


def grows(cost: Callable[[int], float]) -> bool:
    return grows_at_most(cost, lengths=LENGTHS, factor=8, noise_s=0)


def test_undisturbed_code_is_classified() -> None:
    assert grows(linear)
    assert not grows(quadratic)


@pytest.mark.parametrize("nth", [3, 5, 7])
def test_delayed_code_is_classified(nth: int) -> None:
    assert grows(held_up_but_every(nth, linear))
    assert not grows(held_up_but_every(nth, quadratic))


def test_a_first_measurement_that_took_long_decides_nothing() -> None:
    calls = count()
    assert not grows(lambda n: quadratic(n) * (50 if next(calls) == 0 else 1))
    assert next(calls) > 2 * LEAST
