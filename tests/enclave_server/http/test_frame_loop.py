"""The event loop of frames: exact waits, and reserved times without events."""

import asyncio
import selectors
import socket
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from curtilage.enclave_server.http.frame_loop import FrameSelector, frame_loop


@dataclass
class Clock:
    """A clock that moves by sleeping."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list[float])

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def selector(
    clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> Generator[FrameSelector]:
    """A selector with one descriptor that can be read."""
    found = FrameSelector(clock.time, clock.sleep)
    found.register(pair[0], selectors.EVENT_READ)
    pair[1].send(b"x")
    yield found
    found.close()


def test_events_are_returned_as_by_any_selector(
    selector: FrameSelector, clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    assert len(selector.select(5)) == 1
    assert len(selector.select()) == 1
    pair[0].recv(1)
    assert selector.select(0) == []
    assert selector.select(0.0001) == []
    assert not clock.slept


def test_in_reserved_time_no_event_is_returned(
    selector: FrameSelector, clock: Clock
) -> None:
    selector.reserve(90, 110)
    # Until the next timer of the loop is due, or to the end.
    assert selector.select(3) == []
    assert selector.select(0) == []
    assert selector.select(60) == []
    assert clock.slept == [3, 7]
    assert len(selector.select(0)) == 1


def test_without_a_timer_reserved_time_is_waited_for(
    selector: FrameSelector, clock: Clock
) -> None:
    selector.reserve(90, 110)
    assert selector.select() == []
    assert clock.slept == [10]
    assert len(selector.select()) == 1


def test_before_reserved_time_events_are_returned_and_none_is_waited_for_longer(
    clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    with FrameSelector(clock.time, clock.sleep) as selector:
        selector.register(pair[0], selectors.EVENT_READ)
        selector.reserve(100.01, 110)
        # Nothing comes: the call ends where the reserved time begins.
        assert selector.select() == []
        assert selector.select(60) == []
        pair[1].send(b"x")
        assert len(selector.select()) == 1


def test_times_that_follow_are_all_reserved_and_overlapping_ones_once(
    selector: FrameSelector, clock: Clock
) -> None:
    for begin in (90, 90, 120, 100, 120):
        selector.reserve(begin, begin + 20)
    assert selector.select() == []
    assert clock.now == 110
    assert len(selector.select(0)) == 1
    clock.now = 125
    assert selector.select(0) == []
    clock.now = 141
    assert len(selector.select(0)) == 1


def test_what_is_due_in_reserved_time_runs_before_events() -> None:
    make_loop, timer = frame_loop()

    async def run() -> list[str]:
        order: list[str] = []
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            now = timer.clock()
            timer.reserve(now, now + 1)
            theirs.send(b"x")
            read = asyncio.Event()
            loop.add_reader(ours, read.set)
            loop.call_at(now + 0.05, order.append, "a frame")
            await read.wait()
            order.append("an event")
            loop.remove_reader(ours)
        return order

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run()) == ["a frame", "an event"]


def test_a_frame_is_delayed_within_its_limit_and_not_always_alike() -> None:
    _, timer = frame_loop()
    found = [timer.later(0.002) for _ in range(50)]
    assert all(0 <= each <= 0.002 for each in found)
    assert len(set(found)) > 1
