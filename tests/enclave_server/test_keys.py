import copy
from datetime import timedelta

import pytest

from curtilage.enclave_server.keys import KeyRing, ServerKey, make_key
from curtilage.enclave_server.replay import ReplaySet
from curtilage.wire.keyconfig import parse_key_configs
from support.enclave_parts import NOW


def key(*, key_id: int = 7, avoid: int | None = None, late_s: int = 0) -> ServerKey:
    return make_key(
        now=NOW + timedelta(seconds=late_s),
        lifetime_s=100,
        replay_capacity=10,
        avoid=avoid,
        random=lambda n: bytes([key_id]) * n,
    )


def test_key_has_a_window_and_publishes_itself() -> None:
    made = key()
    start = int(NOW.timestamp())
    assert (made.not_before, made.not_after) == (start, start + 100)
    (config,) = parse_key_configs(made.key_configs)
    assert config == made.gateway_key.config
    assert config.key_id == made.key_id == 7
    assert [
        (suite.kem_id, suite.kdf_id, suite.aead_id) for suite in config.suites()
    ] == [
        (0x0020, 1, 1),
        (0x0020, 1, 3),
    ]


def test_two_keys_differ() -> None:
    assert key().key_configs != key().key_configs


@pytest.mark.parametrize(("drawn", "expected"), [(7, 8), (255, 0)])
def test_key_id_in_use_is_avoided(drawn: int, expected: int) -> None:
    assert key(key_id=drawn, avoid=drawn).key_id == expected


def test_private_key_is_neither_shown_nor_copied() -> None:
    made = key()
    assert repr(made) == (
        f"ServerKey(not_before={made.not_before}, not_after={made.not_after})"
    )
    with pytest.raises(TypeError):
        copy.copy(made.gateway_key.private_key)
    with pytest.raises(TypeError):
        copy.deepcopy(made)


def test_ring_is_empty_at_first() -> None:
    ring = KeyRing()
    assert ring.current is None
    assert ring.usable(NOW) == {}


def test_previous_key_opens_until_its_window_ends() -> None:
    ring, first, second = KeyRing(), key(), key(avoid=7, late_s=50)
    ring.install(first)
    assert ring.usable(NOW) == {7: first}
    ring.install(second)
    assert ring.current is second
    assert ring.usable(NOW + timedelta(seconds=99)) == {7: first, 8: second}
    assert ring.usable(NOW + timedelta(seconds=100)) == {8: second}
    # Dropped for good, also when the clock goes back.
    assert ring.usable(NOW) == {8: second}
    assert ring.usable(NOW + timedelta(seconds=150)) == {}


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
