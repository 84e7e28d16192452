import copy
from datetime import datetime, timedelta

import pytest

from curtilage.enclave_server.ohttp.keys import (
    MAX_KEYS,
    KeyRing,
    ReplaySet,
    ServerKey,
    make_key,
)
from curtilage.wire.keyconfig import parse_key_configs
from support.enclave_parts import NOW, is_wiped


def key(
    *, key_id: int = 7, avoid: frozenset[int] = frozenset(), late_s: int = 0
) -> ServerKey:
    return make_key(
        now=NOW + timedelta(seconds=late_s),
        lifetime_s=100,
        replay_capacity=10,
        avoid=avoid,
        random=lambda n: bytes([key_id]) * n,
    )


def test_pair_has_one_window_and_publishes_itself() -> None:
    made = key()
    start = int(NOW.timestamp())
    assert (made.not_before, made.not_after) == (start, start + 100)
    configs = parse_key_configs(made.key_configs)
    assert configs == tuple(each.config for each in made.gateway_keys)
    assert tuple(config.key_id for config in configs) == made.key_ids == (7, 8)
    assert len(made.key_configs) == 1274


def test_x_wing_comes_first_and_algorithms_are_those_of_the_design() -> None:
    first, second = parse_key_configs(key().key_configs)
    assert [
        (suite.kem_id, suite.kdf_id, suite.aead_id)
        for config in (first, second)
        for suite in config.suites()
    ] == [(0x647A, 1, 1), (0x647A, 1, 3), (0x0020, 1, 1)]


def test_two_pairs_differ() -> None:
    first, second = key(), key()
    assert not {each.config.public_key for each in first.gateway_keys} & {
        each.config.public_key for each in second.gateway_keys
    }


def test_gateway_key_is_found_by_its_id() -> None:
    made = key()
    assert made.gateway_key(8) is made.gateway_keys[1]
    with pytest.raises(KeyError):
        made.gateway_key(9)


@pytest.mark.parametrize(
    ("drawn", "avoid", "expected"),
    [
        (7, {7}, (8, 9)),
        (7, {8}, (7, 9)),
        (255, {255}, (0, 1)),
        (254, {255, 0, 1}, (254, 2)),
    ],
)
def test_key_ids_in_use_are_avoided(
    drawn: int, avoid: set[int], expected: tuple[int, int]
) -> None:
    assert key(key_id=drawn, avoid=frozenset(avoid)).key_ids == expected


def test_private_keys_are_neither_shown_nor_copied() -> None:
    made = key()
    assert repr(made) == (
        f"ServerKey(not_before={made.not_before}, not_after={made.not_after})"
    )
    for each in made.gateway_keys:
        with pytest.raises(TypeError):
            copy.copy(each.private_key)
    with pytest.raises(TypeError):
        copy.deepcopy(made)


def test_ring_is_empty_at_first() -> None:
    ring = KeyRing()
    assert ring.current is None
    assert ring.usable(NOW) == {}
    assert ring.expires_in_s(NOW) is None
    ring.expire(NOW)


def at(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_previous_pair_opens_until_its_window_ends() -> None:
    ring, first = KeyRing(), key()
    ring.install(first)
    assert ring.usable(NOW) == {7: first, 8: first}
    second = key(avoid=ring.key_ids, late_s=50)
    ring.install(second)
    assert ring.current is second
    assert ring.usable(at(99)) == {7: first, 8: first, 9: second, 10: second}
    assert not is_wiped(first)
    assert ring.usable(at(100)) == {9: second, 10: second}
    assert is_wiped(first)
    assert not is_wiped(second)
    # Dropped permanently, even if the clock goes back.
    assert ring.usable(NOW) == {9: second, 10: second}
    assert ring.usable(at(150)) == {}
    assert ring.current is None


def test_pair_is_overwritten_without_a_request_for_it() -> None:
    ring, made = KeyRing(), key()
    ring.install(made)
    assert ring.expires_in_s(at(40)) == 60
    ring.expire(at(99))
    assert not is_wiped(made)
    ring.expire(at(100))
    assert is_wiped(made)
    assert ring.expires_in_s(at(100)) is None


def test_live_key_id_cannot_be_installed_twice() -> None:
    ring = KeyRing()
    ring.install(key())
    with pytest.raises(ValueError, match="in use"):
        ring.install(key(key_id=8))
    ring.expire(at(100))
    ring.install(key(late_s=100))


def test_more_pairs_than_are_held_overwrite_the_oldest() -> None:
    ring = KeyRing()
    made: list[ServerKey] = []
    for _ in range(MAX_KEYS + 1):
        made.append(key(avoid=ring.key_ids))
        ring.install(made[-1])
    assert [is_wiped(each) for each in made] == [True] + [False] * MAX_KEYS
    assert len(ring.usable(NOW)) == 2 * MAX_KEYS


def filled(made: ServerKey) -> ServerKey:
    number = 0
    while not made.replay.is_full:
        made.replay.admit(number.to_bytes(4))
        number += 1
    return made


def test_pair_with_a_full_set_goes_once_it_has_a_successor() -> None:
    ring, first = KeyRing(), filled(key())
    ring.install(first)
    # No other key could answer, not even with a refusal inside.
    assert set(ring.usable(NOW)) == set(first.key_ids)
    second = key(avoid=ring.key_ids)
    ring.install(second)
    assert is_wiped(first)
    assert set(ring.usable(NOW)) == set(second.key_ids)


def test_pair_that_fills_after_its_successor_came_goes_at_the_next_look() -> None:
    ring, first = KeyRing(), key()
    ring.install(first)
    second = key(avoid=ring.key_ids)
    ring.install(second)
    assert len(ring.usable(NOW)) == 4
    filled(first)
    assert set(ring.usable(NOW)) == set(second.key_ids)
    assert is_wiped(first)
    assert not is_wiped(second)


@pytest.mark.parametrize(("capacity", "most"), [(1, 1), (2, 2), (10, 9), (100, 90)])
def test_replay_set_is_nearly_full_at_nine_tenths(capacity: int, most: int) -> None:
    seen = ReplaySet(capacity)
    for number in range(most):
        assert not seen.is_nearly_full
        seen.admit(number.to_bytes(4))
    assert seen.is_nearly_full


def test_replay_set_admits_each_once() -> None:
    seen = ReplaySet(2)
    assert seen.admit(b"a")
    assert not seen.admit(b"a")
    assert not seen.is_full
    assert seen.admit(b"b")
    assert not seen.admit(b"b")


def test_full_replay_set_refuses_and_forgets_nothing() -> None:
    seen = ReplaySet(1)
    assert seen.admit(b"a")
    assert seen.is_full
    assert not seen.admit(b"b")
    assert not seen.admit(b"a")


def test_cleared_replay_set_admits_nothing() -> None:
    seen = ReplaySet(2)
    seen.clear()
    assert seen.is_full
    assert not seen.admit(b"a")
