"""The draw of a node: even, without a favourite, and no way to choose by hiding."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.verify import VerifiedKey
from curtilage.client.remote.nodes import (
    BUSY_FOR,
    FAILED_FOR,
    GATEWAY,
    Draw,
    Node,
    bundles_of,
    key_lists_of,
)
from curtilage.relay.forward import node_list
from support.memory_enclave import NOW, MemoryEnclave, verified

SECOND = timedelta(seconds=1)


@cache
def node_key(number: int) -> VerifiedKey:
    return verified(MemoryEnclave(key_id=number + 1))


def nodes(count: int) -> list[Node]:
    return [Node(f"n{number}", node_key(number % 4)) for number in range(count)]


def anybody(key: VerifiedKey) -> bool:
    del key
    return True


def only(*keys: VerifiedKey) -> Callable[[VerifiedKey], bool]:
    return lambda key: any(key is each for each in keys)


class Scripted:
    """Draws the configured index, and records from how many."""

    def __init__(self) -> None:
        self.chosen = 0
        self.bounds: list[int] = []

    def __call__(self, bound: int) -> int:
        self.bounds.append(bound)
        return self.chosen % bound


class Bench:
    """A draw of which every outcome can be asked for."""

    def __init__(self, count: int, missing: int = 0) -> None:
        self.below = Scripted()
        self.draw = Draw(self.below)
        self.verified = nodes(count)
        self.missing = missing
        self.now = NOW
        self.meets: Callable[[VerifiedKey], bool] = anybody
        self.other_than: str | None = None

    def chances(self) -> dict[str, int]:
        """Return how many of all outcomes lead to which node."""
        found: Counter[str] = Counter()
        for chosen in range(60):  # a multiple of 1 to 6
            self.below.chosen = chosen
            node = self.draw.node(
                self.verified,
                self.missing,
                self.now,
                meets=self.meets,
                other_than=self.other_than,
            )
            found["none" if node is None else node.id] += 1
        return dict(found)

    def fail(self, *numbers: int, busy: bool = False) -> None:
        for number in numbers:
            self.draw.failed(f"n{number}", self.now, busy=busy)


def test_every_node_has_the_same_chance() -> None:
    assert Bench(3).chances() == {"n0": 20, "n1": 20, "n2": 20}


def test_the_one_enclave_of_a_gateway_is_drawn_without_a_draw() -> None:
    """So that nothing changes for it, and no randomness is spent."""
    bench = Bench(1)
    bench.fail(0)
    assert bench.chances() == {"n0": 60}
    assert bench.below.bounds == []


@pytest.mark.parametrize(("busy", "lasts"), [(False, FAILED_FOR), (True, BUSY_FOR)])
def test_a_node_that_failed_is_left_out_for_a_while(
    busy: bool, lasts: timedelta
) -> None:
    bench = Bench(3)
    bench.fail(1, busy=busy)
    bench.now += lasts - SECOND
    assert bench.chances() == {"n0": 30, "n2": 30}
    bench.now += SECOND
    assert len(bench.chances()) == 3


def test_a_busy_node_does_not_come_back_sooner_than_one_that_failed() -> None:
    bench = Bench(3)
    bench.fail(1)
    bench.fail(1, busy=True)
    bench.now += BUSY_FOR
    assert len(bench.chances()) == 2


def test_a_clock_that_is_set_back_leaves_no_node_out() -> None:
    bench = Bench(3)
    bench.fail(1)
    bench.now -= timedelta(days=1)
    assert len(bench.chances()) == 3


def test_half_are_always_left_of_those_that_failed_longest_ago() -> None:
    bench = Bench(4)
    bench.fail(0, 1)
    assert bench.chances() == {"n2": 30, "n3": 30}
    bench.now += SECOND
    bench.fail(2)
    assert bench.chances() == {"n0": 30, "n3": 30}
    bench.now += SECOND
    bench.fail(3, 0)
    assert bench.chances() == {"n1": 30, "n2": 30}


def test_with_fewer_than_half_verified_none_is_drawn() -> None:
    assert Bench(2, missing=2).chances() == {"n0": 30, "n1": 30}
    assert Bench(2, missing=3).chances() == {"none": 60}


def test_the_missing_count_where_nodes_fail_as_well() -> None:
    """Otherwise a party on the path could choose half of half of them."""
    bench = Bench(3, missing=1)
    bench.fail(0)
    assert bench.chances() == {"n1": 30, "n2": 30}
    bench.now += SECOND
    bench.fail(1)
    assert bench.chances() == {"n0": 30, "n2": 30}


def test_only_nodes_that_meet_the_demand_are_drawn() -> None:
    bench = Bench(4)
    bench.meets = only(node_key(0), node_key(1))
    assert bench.chances() == {"n0": 30, "n1": 30}


def test_nodes_that_do_not_meet_the_demand_do_not_count() -> None:
    bench = Bench(4, missing=1)
    bench.meets = only(node_key(0))
    assert bench.chances() == {"n0": 60}
    bench.missing = 2
    assert bench.chances() == {"none": 60}


def test_if_no_node_meets_the_demand_one_is_drawn_to_report_it() -> None:
    bench = Bench(2)
    bench.meets = only()
    assert len(bench.chances()) == 2


def test_after_a_failure_another_node_is_drawn() -> None:
    bench = Bench(3)
    bench.other_than = "n0"
    assert bench.chances() == {"n1": 30, "n2": 30}
    alone = Bench(1)
    alone.other_than = "n0"
    assert alone.chances() == {"none": 60}


class Shuffled:
    """Draws evenly and the same each time: from a counter, by SHA-256."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, bound: int) -> int:
        self.count += 1
        digest = sha256(self.count.to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big") % bound


@pytest.mark.parametrize(
    ("count", "hidden"),
    [
        *((2, 0), (2, 1), (3, 0), (3, 1), (4, 1), (4, 2), (5, 1), (5, 2), (6, 2)),
        *((6, 3), (8, 2), (8, 3), (8, 4), (32, 8), (32, 15), (32, 16)),
    ],
)
@pytest.mark.parametrize("apart_s", [0, 20, 90])
def test_a_relay_that_fails_all_but_one_gains_no_more_by_the_second_attempt(
    count: int, hidden: int, apart_s: int
) -> None:
    draw, shown, now = Draw(Shuffled()), nodes(count - hidden), NOW
    attempts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    runs = 600
    for _ in range(runs):
        now += apart_s * SECOND
        failed: str | None = None
        for attempt in attempts:
            node = draw.node(shown, hidden, now, meets=anybody, other_than=failed)
            if node is None:
                break
            attempt[node.id] += 1
            if node.id == "n0":  # the only one that the relay lets answer
                break
            draw.failed(node.id, now, busy=False)
            failed = node.id
    for attempt in attempts:
        # By chance more than that share now and then, and not by as much as this.
        assert attempt["n0"] <= (2 / count + 0.07) * max(attempt.total(), 1)
    # With nothing hidden the second attempt is made.
    assert hidden or count == 1 or attempts[1].total() > 0


def test_a_second_attempt_needs_half_of_the_nodes_without_the_first() -> None:
    bench = Bench(2, missing=2)
    bench.other_than = "n0"
    assert bench.chances() == {"none": 60}
    bench = Bench(2)
    bench.other_than = "n0"
    assert bench.chances() == {"n1": 60}
    bench = Bench(3, missing=1)
    bench.fail(0)
    bench.other_than = "n0"
    assert bench.chances() == {"n1": 30, "n2": 30}


def test_after_a_failure_the_longest_out_come_back_before_it_does() -> None:
    bench = Bench(4)
    bench.fail(0, 1)
    bench.now += SECOND
    bench.fail(2)
    bench.other_than = "n2"
    assert bench.chances() == {"n0": 30, "n3": 30}


@given(
    st.integers(min_value=1, max_value=6).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.integers(min_value=0, max_value=6),
            st.frozensets(st.integers(min_value=0, max_value=count - 1)),
            st.none() | st.integers(min_value=0, max_value=count - 1),
        )
    )
)
def test_taking_nodes_out_at_most_doubles_a_nodes_chance(
    case: tuple[int, int, frozenset[int], int | None],
) -> None:
    count, missing, failed, first = case
    bench = Bench(count, missing)
    bench.fail(*failed)
    if first is not None:
        bench.fail(first)
        bench.other_than = f"n{first}"
    chances = bench.chances()
    if chances.pop("none", None) is None:
        assert max(chances.values()) <= 2 * 60 / (count + missing)


def test_anything_but_a_list_is_a_single_bundle() -> None:
    assert bundles_of(b'{"v":3}') == {GATEWAY: b'{"v":3}'}
    assert bundles_of(b"\x01\x01") == {GATEWAY: b"\x01\x01"}, "verified, and refused"
    assert bundles_of(node_list({"a": b"1", "b": b""})) == {"a": b"1", "b": b""}


def test_a_mirror_of_a_pool_serves_a_list_of_its_nodes() -> None:
    assert key_lists_of(b"keys", pool=False) == {GATEWAY: b"keys"}
    assert key_lists_of(node_list({"a": b"keys"}), pool=True) == {"a": b"keys"}
    with pytest.raises(RefusedError) as refused:
        key_lists_of(b"keys", pool=True)
    assert refused.value.code is RefusalCode.KEY_INCONSISTENT
