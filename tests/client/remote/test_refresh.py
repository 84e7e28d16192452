"""The times of fetches reveal nothing about the times of queries."""

import asyncio
from datetime import datetime, timedelta

import pytest
from typing_extensions import override

from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import EnclaveError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.fetch_order import RELAY, FetchOrder
from curtilage.client.remote.keys import (
    EARLIEST,
    LEAST_RETRY_S,
    RETRY,
    SPREAD,
    KeySource,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import NOW, WINDOW, MemoryEnclave, key_store
from support.permits import new_desk
from support.virtual_time import VirtualTime

QUERY = Query(messages=(Message(role="user", content="hello"),), stream=True)
DRAWS = (2**31, 2**30, 2**32 - 1, 0, 2**29, 2**31, 3, 2**30)
HOURS = 3600.0


class Timed(MemoryEnclave):
    """Notes when its bundle was fetched, and renews its evidence each time."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self.time = time
        self.fetched_at: list[float] = []
        self.fails_from: int | None = None
        self.hold: asyncio.Event | None = None

    @override
    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        order.take(RELAY)
        self.fetched_at.append(self.time.now)
        if self.hold is not None:
            await self.hold.wait()
        if self.fails_from is not None and len(self.fetched_at) > self.fails_from:
            raise EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
        return self.bundle

    def renew(self) -> None:
        """Make keys of the next window."""
        self.rotate((self.rotations * 7) % 90)


class Bench:
    """A session on virtual time; keys live for eleven hours from ``NOW``."""

    def __init__(self) -> None:
        self.time = VirtualTime(now=0.0)
        self.enclave = Timed(self.time)
        self.drawn = list(DRAWS)
        self.book = key_store()
        self.session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=ScriptedInspector(),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=self.book,
                audit=MemoryTrail(),
                clock=self.clock,
                sleep=self.time.sleep,
                below=self.below,
            )
        )

    def clock(self) -> datetime:
        return NOW + timedelta(seconds=self.time.now)

    def below(self, bound: int) -> int:
        assert bound == 2**32
        return self.drawn.pop(0)

    async def until(self, seconds: float) -> None:
        """Let time pass, and others do what they do at their times."""
        await self.time.sleep(seconds - self.time.now)

    async def run(self, *asked_at: float, end: float = 10.9 * HOURS) -> list[float]:
        """Ask at these times; return when evidence was fetched."""
        await self.session.verified_key()
        for moment in sorted(asked_at):
            await self.until(moment)
            await self.session.ask(QUERY)
        await self.until(end)
        await self.session.close()
        return self.enclave.fetched_at


async def test_fetches_come_at_the_same_times_with_and_without_queries() -> None:
    quiet = await Bench().run()
    few = await Bench().run(10.0, 3 * HOURS)
    many = await Bench().run(*(600.0 * number for number in range(1, 65)))
    assert len(quiet) > 2, "the first, and renewals"
    assert quiet == few == many


async def test_a_key_is_renewed_after_four_fifths_of_its_life() -> None:
    fetched = await Bench().run()
    life_s = (WINDOW - timedelta(hours=1)).total_seconds()
    share = fetched[1] / life_s
    assert share == pytest.approx(EARLIEST + SPREAD / 2)
    assert EARLIEST <= share < EARLIEST + SPREAD


async def test_the_time_is_drawn_when_the_key_is_accepted() -> None:
    bench = Bench()
    await bench.session.verified_key()
    await asyncio.sleep(0)
    left = len(bench.drawn)
    assert left == len(DRAWS) - 1
    await bench.session.ask(QUERY)
    assert len(bench.drawn) == left, "a query draws nothing"
    await bench.session.close()


async def test_the_old_key_serves_on_when_a_renewal_fails() -> None:
    bench = Bench()
    bench.enclave.fails_from = 1
    key = await bench.session.verified_key()
    await bench.until(10.5 * HOURS)
    assert len(bench.enclave.fetched_at) > 2, "it was tried again"
    assert await bench.session.verified_key() is key
    waits = [
        later - earlier
        for earlier, later in zip(
            bench.enclave.fetched_at[1:], bench.enclave.fetched_at[2:], strict=False
        )
    ]
    life_s = (WINDOW - timedelta(hours=1)).total_seconds()
    assert all(wait >= LEAST_RETRY_S for wait in waits)
    assert all(RETRY / 2 <= wait / life_s < 3 * RETRY / 2 for wait in waits)
    await bench.until(11 * HOURS)
    with pytest.raises(EnclaveError):
        await bench.session.verified_key()
    await bench.session.close()


async def test_a_renewed_key_takes_the_old_ones_place() -> None:
    bench = Bench()
    old = await bench.session.verified_key()
    bench.enclave.renew()
    await bench.until(9.5 * HOURS)
    fresh = await bench.session.verified_key()
    assert fresh.key_configs != old.key_configs
    assert len(bench.enclave.fetched_at) == 2, "no query had to wait for it"
    await bench.session.close()


async def test_a_refused_renewal_takes_nothing_away() -> None:
    bench = Bench()
    key = await bench.session.verified_key()
    bench.enclave.bundle = b"{}"
    await bench.until(9.5 * HOURS)
    assert len(bench.enclave.fetched_at) > 1
    assert await bench.session.verified_key() is key
    await bench.session.close()


async def test_two_fetches_at_a_time_are_one() -> None:
    bench = Bench()
    bench.enclave.hold = asyncio.Event()
    waiting = [asyncio.create_task(bench.session.verified_key()) for _ in range(5)]
    await asyncio.sleep(0)
    bench.enclave.hold.set()
    keys = await asyncio.gather(*waiting)
    assert all(key is keys[0] for key in keys)
    assert len(bench.enclave.fetched_at) == 1
    await bench.session.close()


async def test_a_query_does_not_wait_for_a_renewal() -> None:
    bench = Bench()
    key = await bench.session.verified_key()
    bench.enclave.hold = asyncio.Event()
    await bench.until(9.5 * HOURS)
    assert len(bench.enclave.fetched_at) == 2, "one renewal hangs"
    assert await bench.session.verified_key() is key
    bench.enclave.hold.set()
    await bench.session.close()


async def test_a_renewal_that_others_have_done_fetches_nothing() -> None:
    """The key in force ends while a renewal waits its turn."""
    bench = Bench()
    await bench.session.verified_key()
    bench.enclave.hold = asyncio.Event()
    await bench.until(9.5 * HOURS)
    bench.enclave.renew()
    bench.time.now = 11 * HOURS + 30
    waiting = asyncio.create_task(bench.session.verified_key())
    await asyncio.sleep(0)
    bench.enclave.hold.set()
    fresh = await waiting
    assert len(bench.enclave.fetched_at) == 2
    assert fresh.expires_at > bench.clock()
    await bench.session.close()


async def test_a_key_that_is_not_in_force_any_more_is_not_renewed() -> None:
    bench = Bench()
    old = await bench.session.verified_key()
    bench.enclave.renew()
    fresh = bench.book.renew(bench.enclave.bundle, NOW)
    keys = KeySource(bench.enclave, bench.book, bench.clock, new_desk())
    assert await keys.renew(old) is fresh
    assert len(bench.enclave.fetched_at) == 1
    await bench.session.close()


async def test_closing_ends_all_renewals() -> None:
    bench = Bench()
    await bench.session.verified_key()
    await bench.session.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_key_at_its_end_is_not_renewed_without_a_pause() -> None:
    time = VirtualTime(now=11 * HOURS - 0.5)
    enclave = Timed(time)
    enclave.fails_from = 1

    def clock() -> datetime:
        return NOW + timedelta(seconds=time.now)

    keys = KeySource(enclave, key_store(), clock, new_desk(), sleep=time.sleep)
    await keys.current()
    await time.sleep(600.0)
    await keys.close()
    asked = enclave.fetched_at[1:]
    assert 1 < len(asked) <= 10
    assert asked[1] - asked[0] >= LEAST_RETRY_S
