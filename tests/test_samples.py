"""The sample of many places: tests/support/samples.py."""

import pytest

from support.samples import Sample

PLACES = range(1000)
some, every = Sample(every=False), Sample(every=True)


def test_every_place_is_tried_where_that_is_asked_for() -> None:
    assert every(PLACES, size=1) == list(PLACES)


def test_a_short_list_is_tried_whole() -> None:
    assert some(range(10), size=10) == list(range(10))


def test_the_ends_and_edges_are_always_tried() -> None:
    tried = some(PLACES, edges=(39, 500), size=1)
    assert {0, 1, 38, 39, 499, 500, 998, 999} <= set(tried)
    assert len(tried) <= 9
    assert tried == sorted(set(tried))


def test_the_sample_is_the_same_in_each_run() -> None:
    first = some(PLACES)
    assert first == some(PLACES)
    assert 48 <= len(first) <= 52


def test_a_test_that_takes_a_sample_is_of_the_exhaustive_run(
    request: pytest.FixtureRequest, sample: Sample
) -> None:
    assert request.node.get_closest_marker("exhaustive") is not None
    assert sample.every is request.config.getoption("--exhaustive")
