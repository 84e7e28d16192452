"""Engines that a starter starts, for a server that could not start one itself."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from curtilage.inference.errors import (
    EngineCrashedError,
    EngineFailedError,
    InferenceError,
)
from curtilage.inference.process import starting
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess, Watch
from curtilage.inference.process.starter import StarterStarts
from curtilage.inference.protocol import ChatMessage, Done, Event, GenerateRequest
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import ISOLATIONS, EngineSettings, Isolation
from curtilage.sandbox.trial import Trial, engine_description
from support.byte_model import sha256_of
from support.fakes import returns

PATIENCE_S = 30
QUICK = Watch(pause_s=0.05, longest_pause_s=0.1)
SETTINGS = EngineSettings(threads=1, sequences=2, max_queued=2)
LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="SKIPPED LOUDLY: walls are tried on Linux only"
)


def planned(
    path: Path, *, tried: bool = False, isolation: Isolation = "shared"
) -> Plan:
    return Plan(
        model=str(path),
        sha256=sha256_of(path),
        model_id="byte",
        settings=SETTINGS,
        tried=tried,
        isolation=isolation,
    )


@asynccontextmanager
async def starter() -> AsyncGenerator[StarterStarts]:
    starts = StarterStarts()
    try:
        yield starts
    finally:
        starts.close()


@asynccontextmanager
async def running(
    plan: Plan, starts: StarterStarts | None = None
) -> AsyncGenerator[EngineProcess]:
    engine = EngineProcess(plan, watch=QUICK, starts=starts)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def collect(engine: EngineProcess) -> list[Event]:
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content="hello"),),
        settings=SamplingSettings(max_tokens=8, temperature=0),
    )
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(engine.generate(request)) as events,
    ):
        return [event async for event in events]


def pid_of(engine: EngineProcess) -> int:
    assert engine.pid is not None
    return engine.pid


async def replaced(engine: EngineProcess) -> None:
    """End the engine's process; return when another one answers."""
    before = engine.restarts
    os.kill(pid_of(engine), signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        while engine.restarts == before:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.001)
        while True:
            with suppress(InferenceError):
                await collect(engine)
                return


async def until_refused(engine: EngineProcess) -> None:
    while True:
        await collect(engine)


def runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while runs(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


async def test_its_engines_answer_and_are_replaced(byte_model: Path) -> None:
    async with starter() as starts, running(planned(byte_model), starts) as engine:
        assert psutil.Process(pid_of(engine)).ppid() == starts.pid
        expected = await collect(engine)
        assert isinstance(expected[-1], Done)
        for _ in range(3):
            await replaced(engine)
            assert psutil.Process(pid_of(engine)).ppid() == starts.pid
        assert await collect(engine) == expected
        last = pid_of(engine)
    assert not runs(last)
    assert not runs(starts.pid)


async def test_how_an_engine_ended_is_known(byte_model: Path) -> None:
    async with starter() as starts, running(planned(byte_model), starts) as engine:
        found: list[InferenceError | None] = []
        engine.changed = found.append
        await replaced(engine)
    (ended, *_) = found
    assert isinstance(ended, EngineCrashedError)
    assert ended.status == -signal.SIGKILL


async def test_what_cannot_be_started_is_started_later(byte_model: Path) -> None:
    async with starter() as starts:
        started = await starts.start([])
        started.to.close()
        await starts.reap(started.pid, PATIENCE_S)
        started.from_.close()
        at_most = psutil.Process(starts.pid)
        limit = at_most.rlimit(psutil.RLIMIT_NOFILE)
        # Room for one pipe, not for two.
        at_most.rlimit(psutil.RLIMIT_NOFILE, (at_most.num_fds() + 2, limit[1]))
        with pytest.raises(OSError, match="Too many open files"):
            await starts.start([])
        at_most.rlimit(psutil.RLIMIT_NOFILE, limit)
        async with running(planned(byte_model), starts) as engine:
            assert isinstance((await collect(engine))[-1], Done)


async def test_without_a_starter_no_engine_is_started(byte_model: Path) -> None:
    async with starter() as starts, running(planned(byte_model), starts) as engine:
        os.kill(starts.pid, signal.SIGKILL)
        os.kill(pid_of(engine), signal.SIGKILL)
        with pytest.raises(InferenceError):
            await until_refused(engine)
        for attempt in (starts.start([]), starts.reap(1, 0.0)):
            with pytest.raises(EngineFailedError, match="is gone"):
                await attempt


async def test_its_end_is_noticed_and_nothing_else() -> None:
    lost = asyncio.Event()
    async with starter() as starts:
        starts.watch(lost.set)
        await starts.reap((await ended(starts)).pid, PATIENCE_S)
        await asyncio.sleep(0.1)
        assert not lost.is_set()
        os.kill(starts.pid, signal.SIGKILL)
        await asyncio.wait_for(lost.wait(), PATIENCE_S)


async def test_its_engines_end_with_it() -> None:
    async with starter() as starts:
        first, second = await starts.start([]), await starts.start([])
        assert runs(first.pid)
        assert runs(second.pid)
    for each in (first, second):
        assert not runs(each.pid)
        each.to.close()
        each.from_.close()


ORPHAN = """
import asyncio, time
from curtilage.inference.process.starter import StarterStarts
async def main():
    starts = StarterStarts()
    started = await starts.start([])
    print(starts.pid, started.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_it_ends_with_the_server() -> None:
    command = (sys.executable, "-c", ORPHAN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as above:  # noqa: ASYNC220
        assert above.stdout is not None
        pids = (await asyncio.to_thread(above.stdout.readline)).split()
        above.kill()
    for pid in pids:
        await gone(int(pid))


async def test_signals_to_the_whole_group_are_the_servers_business() -> None:
    async with starter() as starts:
        started = await starts.start([])
        os.kill(starts.pid, signal.SIGTERM)
        os.kill(starts.pid, signal.SIGINT)
        os.kill(started.pid, signal.SIGTERM)
        started.to.close()
        # The engine has read the end of its plan, not a signal.
        assert await starts.reap(started.pid, 20.0) == 1
        started.from_.close()


async def test_whoever_gives_up_while_it_is_started_leaves_nothing() -> None:
    async with starter() as starts:
        starting_one = asyncio.create_task(starts.start([]))
        await asyncio.sleep(0)
        starting_one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting_one
        for pid in [each.pid for each in psutil.Process(starts.pid).children()]:
            await gone(pid)


@LINUX
async def test_processes_of_an_engine_that_has_ended_are_reaped(
    byte_model: Path,
) -> None:
    plan = planned(byte_model, isolation="process")
    long = GenerateRequest(
        messages=(ChatMessage(role="user", content="hello"),),
        settings=SamplingSettings(max_tokens=1800, temperature=0),
    )
    async with starter() as starts, running(plan, starts) as engine:
        async with aclosing(engine.generate(long)) as events:
            await anext(events)
            (worker,) = psutil.Process(pid_of(engine)).children()
            await replaced(engine)
        # As a zombie it would count against the limit of processes.
        await starts.reap((await ended(starts)).pid, PATIENCE_S)
        assert not worker.is_running()


async def ended(starts: StarterStarts) -> starting.Started:
    """Start an engine, and close its pipes."""
    started = await starts.start([])
    started.to.close()
    started.from_.close()
    return started


@LINUX
async def test_it_reaches_no_network() -> None:
    async with starter() as starts:
        started = await starts.start([])
        status = Path(f"/proc/{starts.pid}/status")
        lines = (await asyncio.to_thread(status.read_text)).splitlines()
        started.to.close()
        started.from_.close()
    assert "Seccomp:\t2" in lines


@LINUX
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_an_engine_tries_its_wall_if_the_plan_demands_it(
    byte_model: Path, isolation: Isolation
) -> None:
    plan = planned(byte_model, tried=True, isolation=isolation)
    async with starter() as starts, running(plan, starts) as engine:
        trial = engine.trial
        assert trial is not None
        assert isinstance((await collect(engine))[-1], Done)
        await replaced(engine)
        assert engine.trial == trial
        assert engine.info.paging == trial.memory
        limits = Path(f"/proc/{pid_of(engine)}/limits")
        lines = (await asyncio.to_thread(limits.read_text)).splitlines()
    if not trial.answers:
        pytest.skip("SKIPPED LOUDLY: this kernel has no Landlock or no seccomp")
    assert trial.succeeded == trial.early == ()
    assert trial.loaded == engine_description(
        os.uname().machine,
        trial.landlock,
        devices=False,
        forks=isolation == "process",
    )
    zero = [line.split()[-3:-1] for line in lines if line.startswith("Max file size")]
    assert zero == [["0", "0"]]


async def test_an_engine_that_is_not_asked_tries_nothing(byte_model: Path) -> None:
    async with running(planned(byte_model)) as engine:
        assert engine.trial is None


OTHERS = {
    "other": "found = replace(found, early=('canary-5',))",
    "succeeds": "found = replace(found, answers={'tcp': 'let through'})",
    "no trial": "found = None",
    "forgets nothing": (
        "from curtilage.inference.process import __main__ as process\n"
        "    process.overwrites_freed = lambda: False"
    ),
    "may be swapped": (
        "from curtilage.inference.process import __main__ as process\n"
        "    process._PAGING = dict.fromkeys(process._PAGING, 'possible')"
    ),
}
OTHERWISE = """
from dataclasses import replace
from curtilage.sandbox import trial
lock = trial.lock_engine
def otherwise(reads, devices):
    wall, found = lock(reads, devices)
    {change}
    return wall, found
trial.lock_engine = otherwise
from curtilage.inference.process.__main__ import main
main()
"""


@LINUX
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
async def test_another_engine_with_another_wall_never_takes_its_place(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with running(planned(byte_model, tried=True)) as engine:
        trial = engine.trial
        code = OTHERWISE.format(change=change)
        command = (sys.executable, "-B", "-P", "-c", code)
        monkeypatch.setattr(starting, "command_of", returns(command))
        os.kill(pid_of(engine), signal.SIGKILL)
        with suppress(EngineCrashedError):
            await collect(engine)
        with pytest.raises(EngineFailedError, match="no answer"):
            await collect(engine)
        assert engine.trial == trial


UNASKED = """
from dataclasses import replace
from curtilage.inference.process import __main__ as process
read = process.from_value
process.from_value = lambda kind, value: replace(read(kind, value), tried=True)
process.main()
"""


@LINUX
async def test_a_trial_that_nobody_demanded_is_refused(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (sys.executable, "-B", "-P", "-c", UNASKED)
    monkeypatch.setattr(starting, "command_of", returns(command))
    engine = EngineProcess(planned(byte_model), watch=QUICK)
    with pytest.raises(EngineFailedError, match="no answer"):
        await engine.start()
    await engine.close()


def test_what_an_engine_found_is_compared_whole() -> None:
    found = Trial(loaded={}, answers={}, landlock=6, memory="locked")
    for other in (
        replace(found, loaded={"landlock": "00"}),
        replace(found, answers={"tcp": "EPERM"}),
        replace(found, landlock=5),
        replace(found, memory="no_swap"),
        replace(found, early=("a",)),
    ):
        assert other != found
