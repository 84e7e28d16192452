"""When frames are sealed and sent."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from curtilage.enclave_server.answer.pacing import (
    READS_UNTIL,
    SEALED_BEFORE,
    SPREAD,
    Pacer,
    Timer,
)
from support.virtual_time import VirtualTime

PERIOD_S = 0.5


async def sent(
    accepted: float, timer: Timer, now: Callable[[], float], count: int = 4
) -> tuple[list[float], list[float], Pacer]:
    """Return when so many frames were sealed, and when sent."""
    pacer = Pacer(accepted, PERIOD_S, timer)
    sealed: list[float] = []
    moments: list[float] = []
    async for _ in pacer.ticks():
        sealed.append(now())
        await pacer.due()
        moments.append(now())
        if len(moments) == count:
            break
    return sealed, moments, pacer


@pytest.mark.parametrize(
    ("accepted", "first"), [(10.0, 10.5), (10.01, 11.0), (10.49, 11.0), (10.5, 11.0)]
)
async def test_all_answers_share_a_grid_and_begin_a_period_after_the_request(
    accepted: float, first: float
) -> None:
    time = VirtualTime(now=accepted)
    _, moments, pacer = await sent(accepted, time.timer, lambda: time.now)
    assert moments == pytest.approx([first + n * PERIOD_S for n in range(4)])
    assert not pacer.late


async def test_a_frame_is_sealed_before_it_is_sent() -> None:
    time = VirtualTime(now=10.0)
    sealed, moments, _ = await sent(10.0, time.timer, lambda: time.now)
    before = [one - other for one, other in zip(moments, sealed, strict=True)]
    assert before == pytest.approx([SEALED_BEFORE * PERIOD_S] * 4)


async def test_a_frame_is_sent_by_chance_a_little_later() -> None:
    time = VirtualTime(now=10.0)
    asked: list[float] = []

    def later(within_s: float) -> float:
        asked.append(within_s)
        return within_s / len(asked)

    timer = replace(time.timer, later=later)
    _, moments, _ = await sent(10.0, timer, lambda: time.now)
    most = SPREAD * PERIOD_S
    assert asked == pytest.approx([most] * 4)
    # The grid does not move with it.
    assert moments == pytest.approx(
        [10.5 + n * PERIOD_S + most / (n + 1) for n in range(4)]
    )


async def test_the_time_around_each_frame_is_reserved() -> None:
    time = VirtualTime(now=10.0)
    reserved: list[tuple[float, float]] = []

    def reserve(begin: float, end: float) -> None:
        reserved.append((begin, end))

    timer = replace(time.timer, reserve=reserve)
    _, moments, _ = await sent(10.0, timer, lambda: time.now)
    for due, (begin, end) in zip(moments, reserved, strict=False):
        assert begin == pytest.approx(due - READS_UNTIL * PERIOD_S)
        assert end == pytest.approx(due + SPREAD * PERIOD_S)


async def test_late_frames_are_sent_at_once_and_the_others_keep_their_times() -> None:
    # The second one is woken 0.7 s late, which is after the third was due.
    time = VirtualTime(now=10.0, lag_s=[0, 0, 0.8])
    _, moments, pacer = await sent(10.0, time.timer, lambda: time.now, count=5)
    assert moments == pytest.approx([10.5, 11.7, 11.7, 12.0, 12.5])
    assert pacer.late == 1


def test_without_a_frame_loop_nothing_is_delayed_or_reserved() -> None:
    timer = Timer()
    assert timer.later(1.0) == 0
    timer.reserve(0.0, 1.0)
    assert timer.sleep is asyncio.sleep
