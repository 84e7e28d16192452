"""No hop carries anything that docs/metadata.yaml does not list."""

from collections.abc import Callable, Mapping

import pytest

from support.hop_check import check_far, check_mirror, check_near
from support.hop_exchanges import APPLICATIONS
from support.hops import Capture, Hops, Pair

SEEN: Mapping[str, tuple[list[int], list[int]]] = {
    # Bundle and question; the answer's bucket is in the frames.
    "streamed": ([200, 200], [200]),
    "whole": ([200], [200]),
    "a longer class": ([200], [200]),
    "cancelled": ([200], [200]),
    "applications": ([200, 200], [200, 200]),
    "pool": ([200, 200], [200]),
    "cover": ([200, 200], [200]),
    "date corrected": ([200, 200, 200], [200, 200]),
    # Bundle, challenge and question: on the way, two questions.
    "challenged": ([200, 200, 200], [200, 200]),
    "key list": ([200], []),
    "bundle": ([200], []),
    "pool's key lists": ([200], []),
    "plain": ([200], [200]),
    "replayed": ([200], [200]),
    "does not open": ([422], [422]),
    "unknown key": ([422], [422]),
    "no such path": ([404], []),
    "no such method": ([405], []),
    "wrong type": ([415], []),
    "coded": ([415], []),
    "expectant": ([417], []),
    "too large": ([413], []),
    "too many": (4 * [200] + 4 * [429], 4 * [200]),
    "keys replaced": ([422, 200, 200], [422, 200]),
    "enclave gone": ([502], []),
}
"""Statuses near the client, and those of questions at the enclave."""


def in_order(kind: str, statuses: list[int]) -> list[int]:
    """Sort the answers to concurrent requests: they arrive in any order."""
    return sorted(statuses) if kind == "too many" else statuses


@pytest.mark.parametrize("check", [check_near, check_far, check_mirror])
def test_only_what_is_listed_passes(
    hops: Hops, check: Callable[[Hops, Capture], list[str]]
) -> None:
    found = {
        capture.kind: wrong
        for capture in hops.captures
        if (wrong := check(hops, capture))
    }
    assert found == {}


def test_every_kind_was_seen_on_the_hops_that_it_takes(hops: Hops) -> None:
    """An empty capture would pass any check."""
    seen = {
        capture.kind: (
            in_order(capture.kind, [pair.response.status for pair in capture.near]),
            # The relay's cache decides which fetches are passed on.
            [pair.response.status for pair in questions(capture.far)],
        )
        for capture in hops.captures
    }
    assert seen == SEEN
    assert sum(len(capture.mirror) for capture in hops.captures) >= 3


def test_a_challenge_differs_from_a_short_question_in_nothing(hops: Hops) -> None:
    """Same fields, same class; and its answer is one of the buckets."""
    _, challenge, question = hops.of_kind("challenged").near
    _, plain = hops.of_kind("streamed").near
    for pair in (question, plain):
        assert challenge.request.start == pair.request.start
        names = [name for name, _ in challenge.request.fields]
        assert names == [name for name, _ in pair.request.fields]
        assert len(challenge.request.body) == len(pair.request.body)
        answered = [name for name, _ in challenge.response.fields]
        assert answered == [name for name, _ in pair.response.fields]


def test_two_applications_differ_in_nothing(hops: Hops) -> None:
    first, second = hops.of_kind("applications").near
    assert first.request.start == second.request.start
    assert first.request.fields == second.request.fields
    assert len(first.request.body) == len(second.request.body)
    for tap in (hops.near, hops.far, hops.mirror):
        said = b"".join(each.data for each in tap.seen)
        assert b"/1.1" in said, "an empty capture would pass"
        for name in APPLICATIONS:
            assert name.encode() not in said


def questions(pairs: tuple[Pair, ...]) -> list[Pair]:
    return [pair for pair in pairs if pair.request.start.startswith("POST")]
