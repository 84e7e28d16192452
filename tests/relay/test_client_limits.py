"""Caps for each client, counted without keeping who is who."""

import asyncio
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.relay.client_limits import CELLS, ROWS, ClientCaps, ClientLimits
from curtilage.relay.config import Limits
from support.relay_parts import MakeRelay, raw_request, read_message

SECRET = bytes(32)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(limits: ClientLimits, clock: Clock | None = None) -> ClientCaps:
    return ClientCaps(limits, clock=clock or Clock(), random=lambda size: b"x" * size)


def ask(caps: ClientCaps, address: str, count: int) -> list[bool]:
    return [caps.request(caps.find(address)) for _ in range(count)]


def test_one_address_cannot_take_all_places_at_the_gateway() -> None:
    assert ClientLimits().connections < Limits().max_upstream


def test_connections_over_the_cap_are_refused_until_one_ends() -> None:
    caps = make(ClientLimits(connections=2))
    client = caps.find("192.0.2.1")
    assert [caps.connect(client) for _ in range(3)] == [True, True, False]
    assert caps.connect(caps.find("192.0.2.2"))
    caps.disconnect(client)
    assert [caps.connect(client) for _ in range(2)] == [True, False]


def test_requests_over_the_rate_are_refused_until_time_passes() -> None:
    clock = Clock()
    caps = make(ClientLimits(requests_per_s=2.0, burst=3), clock)
    assert ask(caps, "192.0.2.1", 5) == [True, True, True, False, False]
    assert ask(caps, "192.0.2.2", 1) == [True]
    clock.now += 0.5
    assert ask(caps, "192.0.2.1", 2) == [True, False]
    clock.now += 100
    assert ask(caps, "192.0.2.1", 4) == [True, True, True, False]


def test_a_refused_request_costs_nothing_more() -> None:
    clock = Clock()
    caps = make(ClientLimits(requests_per_s=1.0, burst=1), clock)
    assert ask(caps, "192.0.2.1", 100).count(True) == 1
    clock.now += 1.0
    assert ask(caps, "192.0.2.1", 1) == [True]


def test_zero_turns_each_cap_off() -> None:
    caps = make(ClientLimits(connections=0, requests_per_s=0))
    assert all(ask(caps, "192.0.2.1", 1000))
    client = caps.find("192.0.2.1")
    assert all(caps.connect(client) for _ in range(1000))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8:0:100::1", "2001:db8:0:1ff:ffff::2", True),
        ("2001:db8:0:100::1", "2001:db8:0:200::1", False),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        ("", "somewhere", True),
    ],
)
def test_a_client_is_an_ipv4_address_or_a_56_of_ipv6(
    one: str, other: str, *, same: bool
) -> None:
    caps = make(ClientLimits())
    assert (caps.find(one) == caps.find(other)) is same


def test_secret_and_counts_are_forgotten_together() -> None:
    clock = Clock()
    secrets = iter([b"a" * 32, b"b" * 32])
    limits = ClientLimits(connections=1, requests_per_s=0.001, burst=1, rotate_s=60)
    caps = ClientCaps(limits, clock=clock, random=lambda _: next(secrets))
    old = caps.find("192.0.2.1")
    assert caps.connect(old)
    assert ask(caps, "192.0.2.1", 2) == [True, False]
    assert not caps.renew()
    clock.now += 60
    assert caps.renew()
    assert not caps.renew()
    new = caps.find("192.0.2.1")
    assert new.cells != old.cells
    assert ask(caps, "192.0.2.1", 2) == [True, False]
    assert caps.connect(new)
    assert not caps.connect(new)


def test_cells_depend_on_a_secret() -> None:
    limits = ClientLimits()
    one = ClientCaps(limits, clock=Clock())
    other = ClientCaps(limits, clock=Clock())
    assert one.find("192.0.2.1").cells != other.find("192.0.2.1").cells


def test_no_address_and_no_hash_of_one_is_kept() -> None:
    caps = make(ClientLimits())
    for number in range(200):
        client = caps.find(f"192.0.2.{number}")
        assert caps.connect(client)
        assert caps.request(client)
        assert "192.0.2" not in repr(client)
    kept = [item for item in gc.get_referents(caps) if not callable(item)]
    assert "192.0.2" not in repr(kept)


def test_the_table_does_not_grow_and_locks_no_one_out() -> None:
    # Ten thousand greedy addresses of one attacker; a quiet client all the same.
    caps = make(ClientLimits(requests_per_s=1.0, burst=2))
    size = ROWS * CELLS
    for number in range(2000):
        address = f"198.{number // 65536}.{number // 256 % 256}.{number % 256}"
        ask(caps, address, 3)
    counts = [len(vars(caps)[name]) for name in ("_open", "_spent", "_seen")]
    assert counts == [size, size, size]
    refused = sum(
        not caps.request(caps.find(f"203.0.113.{number}")) for number in range(256)
    )
    assert refused <= 6  # expected: 256 * (2000/8192)**4, which is below 1


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["192.0.2.1", "::1"])), max_size=30
    )
)
def test_counts_never_fall_below_nothing(steps: list[tuple[bool, str]]) -> None:
    caps = make(ClientLimits(connections=3))
    held: dict[str, int] = {"192.0.2.1": 0, "::1": 0}
    for connect, address in steps:
        client = caps.find(address)
        if connect:
            assert caps.connect(client) is (held[address] < 3)
            held[address] = min(held[address] + 1, 3)
        elif held[address]:
            caps.disconnect(client)
            held[address] -= 1


# Through the door


async def test_relay_refuses_connections_of_one_client_over_its_cap(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(clients={"connections": 2, "requests_per_s": 0})
    held = [await relay.connect() for _ in range(2)]
    await asyncio.sleep(0.05)
    third, writer = await relay.connect()
    async with asyncio.timeout(5):
        answer = await read_message(third)
        assert await third.read() == b""
    writer.close()
    assert (answer.status, answer.complete) == (429, True)
    assert b"holds all connections" in answer.body
    held[0][1].close()
    await asyncio.sleep(0.05)
    assert (await relay.post()).status == 200
    held[1][1].close()


async def test_relay_refuses_requests_of_one_client_over_its_rate(
    make_relay: MakeRelay,
) -> None:
    caps = {"connections": 0, "requests_per_s": 0.001, "burst": 2}
    relay = await make_relay(clients=caps)
    assert (await relay.post()).status == 200
    assert (await relay.get("/nowhere")).status == 404
    answer = await relay.post()
    assert answer.status == 429
    assert b"asks too often" in answer.body
    # Health checks are not counted.
    assert [(await relay.get("/healthz")).status for _ in range(5)] == [200] * 5


async def test_requests_of_one_connection_are_counted_too(
    make_relay: MakeRelay,
) -> None:
    caps = {"connections": 0, "requests_per_s": 0.001, "burst": 3}
    relay = await make_relay(clients=caps)
    reader, writer = await relay.connect()
    request = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), b"x")
    writer.write(request * 4)
    async with asyncio.timeout(5):
        statuses = [(await read_message(reader)).status for _ in range(4)]
    writer.close()
    assert statuses == [200, 200, 200, 429]


async def test_caps_are_off_behind_a_unix_socket(
    make_relay: MakeRelay, tmp_path: object
) -> None:
    path = f"{tmp_path}/relay.sock"
    caps = {"connections": 1, "requests_per_s": 0.001, "burst": 1}
    await make_relay(listen=f"unix:{path}", clients=caps)
    connections = [await asyncio.open_unix_connection(path) for _ in range(3)]
    for reader, writer in connections:
        writer.write(
            raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), b"x")
        )
        async with asyncio.timeout(5):
            assert (await read_message(reader)).status == 200
        writer.close()
