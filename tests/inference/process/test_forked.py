"""A process for each request, for real: what each may do, and how each ends."""

import asyncio
import os
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from curtilage.inference.errors import (
    EngineCrashedError,
    EngineFailedError,
    EngineHungError,
    RequestError,
)
from curtilage.inference.process import starting
from curtilage.inference.process.codec import Plan, to_value
from curtilage.inference.process.forked import CANCEL_BYTES, Replies
from curtilage.inference.process.parent import EngineProcess, Watch
from curtilage.inference.protocol import (
    ChatMessage,
    Done,
    Event,
    GenerateRequest,
    JsonObject,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from curtilage.sandbox.pipe import FrameReader, encode_frame
from curtilage.sandbox.wall import Layer
from support.byte_model import FIRST_BYTE, sha256_of
from support.fakes import returns
from support.memory_scan import Forms, forms_of, hits

LONG = 1800
"""Tokens of an answer that does not end by itself within a test."""
PATIENCE_S = 30
QUICK = Watch(pause_s=0.05, longest_pause_s=0.1)
CANARY = 'violet-"lantern"-orchard-pebble'


def asked(text: str = "hello", *, max_tokens: int = LONG) -> GenerateRequest:
    return GenerateRequest(
        messages=(ChatMessage(role="user", content=text),),
        settings=SamplingSettings(max_tokens=max_tokens, temperature=0),
    )


def planned(path: Path, *, gpu_layers: int = 0) -> Plan:
    return Plan(
        model=str(path),
        sha256=sha256_of(path),
        model_id="byte",
        settings=EngineSettings(threads=1, sequences=2, gpu_layers=gpu_layers),
        isolation="process",
    )


@asynccontextmanager
async def running(plan: Plan, watch: Watch = QUICK) -> AsyncGenerator[EngineProcess]:
    engine = EngineProcess(plan, watch=watch)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def collect(engine: EngineProcess, request: GenerateRequest) -> list[Event]:
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(engine.generate(request)) as events,
    ):
        return [event async for event in events]


async def begun(
    engine: EngineProcess, text: str = "hello"
) -> "asyncio.Task[list[Event]]":
    """Return an answer of which something was written."""
    started = asyncio.Event()

    async def read() -> list[Event]:
        found: list[Event] = []
        async with aclosing(engine.generate(asked(text))) as events:
            async for event in events:
                found.append(event)
                started.set()
        return found

    task = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE_S):
        await started.wait()
    return task


def replaced_by(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (sys.executable, "-B", "-P", "-c", code)
    monkeypatch.setattr(starting, "command_of", returns(command))


def workers(engine: EngineProcess) -> list[int]:
    assert engine.pid is not None
    return [each.pid for each in psutil.Process(engine.pid).children()]


def fields(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return {name: value.strip() for name, _, value in (x.partition(":") for x in lines)}


def pipes(pid: int) -> set[str]:
    opened: set[str] = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # of this folder itself
            opened.add(each.readlink().name)
    return {each for each in opened if each.startswith("pipe:")}


async def until_gone(pids: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(map(psutil.pid_exists, pids)):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.01)


async def until_stopped_with(pid: int, form: str, forms: Forms) -> None:
    """Stop a process at a moment at which it holds a form of the text."""
    async with asyncio.timeout(PATIENCE_S):
        os.kill(pid, signal.SIGSTOP)
        while form not in hits(pid, forms):
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.01)
            os.kill(pid, signal.SIGSTOP)


async def test_a_request_is_in_its_own_process_and_ends_with_it(
    byte_model: Path,
) -> None:
    forms = forms_of(CANARY, lambda code: code + FIRST_BYTE)
    async with running(planned(byte_model)) as engine:
        assert engine.pid is not None
        assert workers(engine) == []
        answer = await begun(engine, CANARY)
        (worker,) = workers(engine)
        await until_stopped_with(worker, "tokens of 32 bits", forms)
        try:
            # What it was forked from has read no text.
            assert hits(engine.pid, forms, everything=True) == {}
        finally:
            os.kill(worker, signal.SIGCONT)
        answer.cancel()
        await asyncio.wait({answer})
        await until_gone([worker])
        assert isinstance((await collect(engine, asked(max_tokens=4)))[-1], Done)
        assert engine.restarts == 0


async def test_a_worker_may_do_less_than_what_it_was_forked_from(
    byte_model: Path,
) -> None:
    async with running(planned(byte_model)) as engine:
        assert engine.wall is not None
        if Layer.SECCOMP not in engine.wall.standing:
            pytest.skip(f"SKIPPED LOUDLY: no filter here: {engine.wall.missing}")
        assert engine.pid is not None
        answer = await begun(engine)
        (worker,) = workers(engine)
        above, below = fields(engine.pid), fields(worker)
        ours = int(fields(os.getpid())["Seccomp_filters"])
        assert int(above["Seccomp_filters"]) == ours + 1
        assert int(below["Seccomp_filters"]) == ours + 2
        # The pipe for answers, and no longer the one that others' requests come from.
        with_us = [len(pipes(os.getpid()) & pipes(x)) for x in (engine.pid, worker)]
        assert with_us == [2, 1]
        if engine.info.paging == "locked":
            assert int(below["VmLck"].split()[0]) > 0
        answer.cancel()


async def test_a_worker_that_is_killed_ends_its_own_request_only(
    byte_model: Path,
) -> None:
    async with running(planned(byte_model)) as engine:
        first = await begun(engine)
        (worker,) = workers(engine)
        other = await begun(engine)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(EngineFailedError):
            await first
        assert isinstance((await collect(engine, asked(max_tokens=4)))[-1], Done)
        assert engine.restarts == 0
        # On a busy machine it may have ended; it has not failed.
        assert not other.done() or isinstance(other.result()[-1], Done)
        other.cancel()


NO_MORE = """
import os, errno
from curtilage.inference.process import __main__ as process
keeper = process._keeper
def short(*given):
    from curtilage.inference.process import forked
    fork, count = forked._forked, [0]
    def fails():
        count[0] += 1
        # The first one is for the start. Then every other one fails.
        if count[0] > 1 and count[0] % 2 == 0:
            raise OSError(errno.EAGAIN, "no more")
        return fork()
    forked._forked = fails
    return keeper(*given)
process._keeper = short
process.main()
"""


async def test_a_request_waits_while_no_process_can_be_forked(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(NO_MORE, monkeypatch)
    async with running(planned(byte_model)) as engine:
        answers = await asyncio.gather(
            *(collect(engine, asked(max_tokens=4)) for _ in range(4))
        )
        assert all(isinstance(each[-1], Done) for each in answers)
        assert engine.restarts == 0


ONE_DIES = """
import os
from curtilage.inference.process import __main__ as process
keeper = process._keeper
def one_dies(*given):
    from curtilage.inference.process import forked
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    confine = forked.Shared.confine
    def dies(shared, above):
        try:
            os.read(reading, 1)
        except BlockingIOError:
            return confine(shared, above)
        os._exit(1)
    forked.Shared.confine = dies
    prepared = keeper(*given)
    os.write(writing, b"x")
    return prepared
process._keeper = one_dies
process.main()
"""


async def test_another_worker_reads_what_one_that_ended_had_not_begun_to_read(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(ONE_DIES, monkeypatch)
    async with running(planned(byte_model)) as engine:
        assert isinstance((await collect(engine, asked(max_tokens=4)))[-1], Done)
        assert engine.restarts == 0


async def test_an_end_is_reported_when_the_process_has_ended(byte_model: Path) -> None:
    async with running(planned(byte_model)) as engine:
        for _ in range(5):
            assert isinstance((await collect(engine, asked(max_tokens=4)))[-1], Done)
            # Not soon afterwards: with it ends the memory that held the request.
            assert workers(engine) == []


ONE_WAITS = """
import threading
from curtilage.inference.process import __main__ as process
keeper = process._keeper
def waits(*given):
    from curtilage.inference.process import forked
    forked._PULSE_S, forked.IDLE_PULSES = 0.02, 10
    answer = forked.answer
    def wait(loaded, request, *more, **named):
        if request.response_format is not None:
            threading.Event().wait()
        return answer(loaded, request, *more, **named)
    forked.answer = wait
    return keeper(*given)
process._keeper = waits
process.main()
"""


async def test_a_worker_that_does_nothing_ends_while_others_go_on(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(ONE_WAITS, monkeypatch)
    async with running(planned(byte_model)) as engine:
        other = await begun(engine)
        with pytest.raises(EngineFailedError):
            await collect(engine, replace(asked(), response_format=JsonObject()))
        assert not other.done()
        assert engine.restarts == 0
        other.cancel()


async def test_workers_end_with_what_they_were_forked_from(byte_model: Path) -> None:
    async with running(planned(byte_model)) as engine:
        answers = [await begun(engine) for _ in range(2)]
        waiting = asyncio.create_task(collect(engine, asked()))
        while len(left := workers(engine)) < 3:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        os.kill(left[0], signal.SIGSTOP)  # even one that does nothing any more
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        for each in (*answers, waiting):
            with pytest.raises(EngineCrashedError):
                await each
        try:
            await until_gone(left)
        finally:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


async def test_no_more_compute_than_there_are_places(byte_model: Path) -> None:
    async with running(planned(byte_model)) as engine:
        answers = [await begun(engine) for _ in range(2)]
        third = asyncio.create_task(begun(engine))
        while len(workers(engine)) < 3:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert not third.done(), "it has begun"
        answers[0].cancel()
        last = await third
        for each in (answers[1], last):
            each.cancel()


async def test_one_that_waits_is_cancelled(byte_model: Path) -> None:
    async with running(planned(byte_model)) as engine:
        answers = [await begun(engine) for _ in range(2)]
        waiting = asyncio.create_task(collect(engine, asked()))
        while len(left := workers(engine)) < 3:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        waiting.cancel()
        await until_gone(left[2:])
        assert not any(each.done() for each in answers)
        for each in answers:
            each.cancel()


async def test_a_worker_that_stands_still_is_noticed(byte_model: Path) -> None:
    watch = Watch(quiet_s=0.4, pause_s=0.05)
    async with running(planned(byte_model), watch) as engine:
        answer = await begun(engine)
        (worker,) = workers(engine)
        os.kill(worker, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(EngineHungError):
                await answer
        await until_gone([worker])
        assert isinstance((await collect(engine, asked(max_tokens=4)))[-1], Done)


GRAMMARS_STALL = """
import threading
from curtilage.inference.process import __main__ as process
keeper = process._keeper
def stalls(*given):
    from curtilage.inference.native import Sampler
    from curtilage.inference.process import forked
    forked._PULSE_S, forked.LONGEST_DRAW_S = 0.02, 0.3
    draw = Sampler.draw
    def stall(sampler, *more):
        if sampler._grammar is not None:
            threading.Event().wait()
        return draw(sampler, *more)
    Sampler.draw = stall
    return keeper(*given)
process._keeper = stalls
process.main()
"""


async def test_a_draw_that_does_not_end_ends_its_own_request_only(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(GRAMMARS_STALL, monkeypatch)
    async with running(planned(byte_model)) as engine:
        other = await begun(engine)
        with pytest.raises(EngineFailedError):
            await collect(engine, replace(asked(), response_format=JsonObject()))
        assert not other.done()
        assert engine.restarts == 0
        other.cancel()


NO_TIME = """
from curtilage.inference.process import __main__ as process
keeper = process._keeper
def hurried(*given):
    from curtilage.inference import engine
    engine.DRAWS_S = engine.DRAW_S = 0.0
    return keeper(*given)
process._keeper = hurried
process.main()
"""


async def test_an_answer_that_takes_too_long_to_draw_ends(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(NO_TIME, monkeypatch)
    async with running(planned(byte_model)) as engine:
        with pytest.raises(RequestError, match="cannot fulfil"):
            await collect(engine, replace(asked(), response_format=JsonObject()))
        # One without a grammar has nothing that could take long.
        assert isinstance((await collect(engine, asked(max_tokens=4)))[-1], Done)


async def test_layers_on_a_gpu_are_refused(byte_model: Path) -> None:
    engine = EngineProcess(planned(byte_model, gpu_layers=1))
    with pytest.raises(EngineFailedError, match="GPU"):
        await engine.start()
    await engine.close()


async def test_a_context_that_cannot_be_made_ends_the_start(byte_model: Path) -> None:
    plan = planned(byte_model)
    # Its heads have 16 numbers, and a block is 32.
    quantised = replace(plan.settings, kv_type="q8_0")
    engine = EngineProcess(replace(plan, settings=quantised))
    with pytest.raises(EngineFailedError, match="cannot compute"):
        await engine.start()
    await engine.close()


def test_no_request_is_as_short_as_a_cancellation() -> None:
    least = GenerateRequest(
        messages=(ChatMessage(role="user", content=""),), settings=SamplingSettings()
    )
    header = 4
    assert len(encode_frame([1, to_value(least)])) - header > CANCEL_BYTES
    assert len(encode_frame([2**63 - 1])) - header <= CANCEL_BYTES


def test_frames_of_several_do_not_mix() -> None:
    reading, writing = os.pipe()
    found: list[object] = []
    with os.fdopen(writing, "wb", buffering=0) as stream:
        replies = Replies(stream)
        values = [[number, str(number) * 200_000] for number in range(6)]
        threads = [threading.Thread(target=replies.say, args=(x,)) for x in values]
        for thread in threads:
            thread.daemon = True
            thread.start()
        try:
            reader = FrameReader(1 << 20)
            while len(found) < len(values):
                assert select.select([reading], [], [], PATIENCE_S)[0]
                found += reader.feed(os.read(reading, 1 << 16))
        finally:
            # Who still writes gets an error.
            os.close(reading)
        for thread in threads:
            thread.join()
    assert sorted(found, key=str) == sorted(values, key=str)


def test_a_turn_that_does_not_end_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as stream:
        replies = Replies(stream)
        writer = threading.Thread(target=replies.say, args=("x" * 200_000,))
        writer.start()
        # The first byte is there, so its turn has begun; it waits for a reader.
        data = os.read(reading, 1)
        began = time.monotonic()
        assert not replies.say("y", patience_s=0.05)
        assert time.monotonic() - began < PATIENCE_S
        reader = FrameReader(1 << 20)
        found = reader.feed(data)
        while not found:
            found = reader.feed(os.read(reading, 1 << 16))
        writer.join()
        assert replies.say("y", patience_s=0.05)
    with suppress(OSError):
        os.close(reading)
