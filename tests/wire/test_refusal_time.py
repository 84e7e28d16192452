"""How long a refusal takes says nothing about its cause.

Every cause is tried 2,000 times, in turns with a forged tag, in processor time of
this thread. Distinguishable means: in nine pairs of ten, one of the two took more than
a fifth longer than the other. Noise affects both alike, so it can only make that
rarer; omitting an exchange or a key schedule, a fifth of the work or more, always
causes it. ``test_refusals`` counts the work without a clock.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

import pytest

from curtilage.wire.chunked import open_chunked_request, seal_chunked_request
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.errors import WireError
from curtilage.wire.hpke.suite import KEM_X25519, KEM_XWING
from curtilage.wire.ohttp import open_request, seal_request
from support.wire_keys import KEYS, LIVE

TRIES = 2000
FACTOR = 1.2
SHARE = 0.9
BHTTP = bytes(1000)

Open = Callable[[bytes], object]


def open_plain(message: bytes) -> object:
    return open_request(LIVE, message)


def open_chunked(message: bytes) -> object:
    return open_chunked_request(LIVE, message)


def took_ns(open_: Open, message: bytes) -> int:
    started = time.thread_time_ns()
    try:
        open_(message)
    except WireError:
        return time.thread_time_ns() - started
    raise AssertionError


def share_slower(faster: list[int], slower: list[int]) -> float:
    """Return how often one of ``slower`` outlasts one of ``faster`` by the factor.

    This is the statistic of Mann and Whitney, over the number of pairs.
    """
    ordered = sorted(FACTOR * one for one in faster)
    wins = sum(bisect_left(ordered, one) for one in slower)
    return wins / (len(faster) * len(slower))


def measure(open_: Open, messages: Mapping[str, bytes]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {name: [] for name in messages}
    for _ in range(TRIES):
        for name, message in messages.items():
            times[name].append(took_ns(open_, message))
    return times


def distinguishable(open_: Open, causes: Mapping[str, bytes]) -> set[str]:
    """Name the causes that can be distinguished from a forged tag."""
    times = measure(open_, causes)
    forged = times.pop("forged tag")
    return {
        name
        for name, taken in times.items()
        if max(share_slower(taken, forged), share_slower(forged, taken)) > SHARE
    }


def forge(message: bytes) -> bytes:
    return message[:-1] + bytes([message[-1] ^ 1])


def causes_of(message: bytes, key: GatewayKey) -> dict[str, bytes]:
    end = 7 + key.nenc
    return {
        "forged tag": forge(message),
        "low order": message[: end - 32] + bytes(32) + message[end:],
        "another enc": message[:7] + bytes(key.nenc - 1) + b"\x09" + message[end:],
        "another KEM": message[:1] + b"\x00\x10" + message[3:],
        "another AEAD": message[:5] + b"\xff\xff" + message[7:],
        "cut inside enc": message[: end - 1],
        "cut behind enc": message[: end + 3],
    }


def sealed(form: str, key: GatewayKey) -> bytes:
    if form == "plain":
        return seal_request(key.config, BHTTP).message
    return seal_chunked_request(key.config, BHTTP).message


by_kem = pytest.mark.parametrize(
    "kem_id", [KEM_X25519, KEM_XWING], ids=["X25519", "X-Wing"]
)


@by_kem
def test_no_cause_of_a_refusal_shows_in_its_time(kem_id: int) -> None:
    key = KEYS[kem_id]
    message = seal_request(key.config, BHTTP).message
    assert distinguishable(open_plain, causes_of(message, key)) == set()


@by_kem
def test_nor_in_the_chunked_form(kem_id: int) -> None:
    key = KEYS[kem_id]
    message = seal_chunked_request(key.config, BHTTP).message
    causes = causes_of(message, key)
    some = {n: causes[n] for n in ("forged tag", "low order", "cut inside enc")}
    assert distinguishable(open_chunked, some) == set()


def test_the_statistic_sees_work_that_is_left_out() -> None:
    # In ns: a refusal without its exchange, one without its key schedule, and one
    # with as much noise as there is signal.
    whole = [60_000 + 100 * (number % 50) for number in range(TRIES)]
    assert share_slower([one // 4 for one in whole], whole) == 1
    assert share_slower([one * 2 // 3 for one in whole], whole) == 1
    assert share_slower(whole, whole) == 0
    assert share_slower([*whole[:1000], *(9 * one for one in whole)], whole) < SHARE
