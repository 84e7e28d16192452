"""The engine's process for real: its answers, its wall, every way in which it ends."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest

from curtilage.inference.engine import LlamaCppEngine
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineBusyError,
    EngineClosedError,
    EngineCrashedError,
    EngineFailedError,
    EngineHungError,
    EngineMissingError,
    EngineRestartingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    RequestError,
)
from curtilage.inference.modelfile import ModelFile, verify_model_file
from curtilage.inference.process import starting
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess, Watch
from curtilage.inference.protocol import (
    Called,
    CancelToken,
    ChatMessage,
    Done,
    Engine,
    Event,
    GenerateRequest,
    JsonObject,
    Load,
    Started,
    Tool,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import ISOLATIONS, EngineSettings, Isolation
from curtilage.sandbox.parent import environment
from curtilage.sandbox.wall import Layer
from support.byte_model import make_adapter, make_byte_model, sha256_of
from support.chains import chain
from support.engine_processes import engines
from support.fakes import returns
from support.left_over import Canary, uncollected

LONG = 1800
"""Tokens of an answer that does not end by itself within a test."""
PATIENCE_S = 30
"""No test waits longer for an answer."""
QUICK = Watch(pause_s=0.05, longest_pause_s=0.1)
SETTINGS = EngineSettings(threads=1, sequences=4, max_queued=4)


def asked(text: str = "hello", *, max_tokens: int = 8) -> GenerateRequest:
    return GenerateRequest(
        messages=(ChatMessage(role="user", content=text),),
        settings=SamplingSettings(max_tokens=max_tokens, temperature=0, logprobs=True),
    )


def planned(
    path: Path, settings: EngineSettings = SETTINGS, isolation: Isolation = "shared"
) -> Plan:
    return Plan(
        model=str(path),
        sha256=sha256_of(path),
        model_id="byte",
        settings=settings,
        isolation=isolation,
    )


@asynccontextmanager
async def running(
    plan: Plan, watch: Watch = QUICK, told: list[InferenceError | None] | None = None
) -> AsyncGenerator[EngineProcess]:
    engine = EngineProcess(plan, watch=watch)
    if told is not None:
        engine.changed = told.append
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(params=ISOLATIONS)
async def apart(
    byte_model: Path, request: pytest.FixtureRequest
) -> AsyncIterator[EngineProcess]:
    async with running(planned(byte_model, isolation=request.param)) as engine:
        yield engine


async def collect(
    engine: Engine, request: GenerateRequest, cancel: CancelToken | None = None
) -> list[Event]:
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(engine.generate(request, cancel=cancel)) as events,
    ):
        return [event async for event in events]


async def begun(engine: Engine, text: str = "hello") -> "asyncio.Task[list[Event]]":
    """Return an answer that is being written and does not end."""
    started = asyncio.Event()

    async def read() -> list[Event]:
        found: list[Event] = []
        async with aclosing(engine.generate(asked(text, max_tokens=LONG))) as events:
            async for event in events:
                found.append(event)
                started.set()
        return found

    task = asyncio.create_task(read())
    await asyncio.wait(
        {task, asyncio.create_task(started.wait())}, return_when=asyncio.FIRST_COMPLETED
    )
    return task


def pid_of(engine: EngineProcess) -> int:
    assert engine.pid is not None
    return engine.pid


async def idle(engine: EngineProcess) -> None:
    while engine.load().running:  # noqa: ASYNC110 - it belongs to another process
        await asyncio.sleep(0.001)


# Answers.

REQUESTS = {
    "plain": asked(),
    "stopped": GenerateRequest(
        messages=(ChatMessage(role="user", content="ä€😀"),),
        settings=SamplingSettings(max_tokens=40, seed=3, stop=("a", "e")),
    ),
    "ranked": GenerateRequest(
        messages=(ChatMessage(role="user", content="x"),),
        settings=SamplingSettings(
            max_tokens=5, seed=1, logprobs=True, top_logprobs=3, margins=True
        ),
    ),
    "object": GenerateRequest(
        messages=(ChatMessage(role="user", content="x"),),
        settings=SamplingSettings(max_tokens=60, seed=1),
        response_format=JsonObject(),
    ),
    "call": GenerateRequest(
        messages=(ChatMessage(role="user", content="x"),),
        settings=SamplingSettings(max_tokens=200, seed=1),
        tools=(Tool(name="find"),),
        tool_choice="required",
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_answers_are_those_of_the_engine_in_this_process(
    apart: EngineProcess, byte_model: Path, name: str
) -> None:
    file = verify_model_file(byte_model, sha256_of(byte_model))
    here = LlamaCppEngine(file, model_id="byte", settings=SETTINGS)
    await here.start()
    try:
        ours = apart.info
        assert here.info == replace(
            ours, isolation="shared", ephemerality="none", paging="possible"
        )
        ends = {"shared": "overwritten", "process": "process"}
        assert ours.ephemerality == ends[ours.isolation]
        expected = await collect(here, REQUESTS[name])
    finally:
        await here.close()
    found = await collect(apart, REQUESTS[name])
    assert list(map(without_id, found)) == list(map(without_id, expected))


def without_id(event: Event) -> Event:
    """Return an event without what is drawn for each answer."""
    if not isinstance(event, Called):
        return event
    return replace(event, call=replace(event.call, id="x"))


async def test_an_adapter_is_loaded_too(byte_model: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter.gguf")
    plan = Plan(
        model=str(byte_model),
        sha256=sha256_of(byte_model),
        adapter=str(adapter),
        adapter_sha256=sha256_of(adapter),
        model_id="adapted",
        settings=SETTINGS,
    )
    async with running(plan) as engine:
        assert engine.info.adapter_sha256 == plan.adapter_sha256
        assert isinstance((await collect(engine, asked()))[-1], Done)


async def test_many_are_answered_at_once(apart: EngineProcess) -> None:
    alone = [await collect(apart, asked(str(each))) for each in range(8)]
    texts = [asked(str(each)) for each in range(8)]
    together = await asyncio.gather(*(collect(apart, each) for each in texts))
    assert [len(each) for each in together] == [len(each) for each in alone]
    assert apart.load() == Load(running=0, queued=0, max_queued=4)


async def test_more_than_the_queue_holds_are_refused(apart: EngineProcess) -> None:
    waiting = [await begun(apart) for _ in range(4)]
    queued = [asyncio.create_task(collect(apart, asked())) for _ in range(4)]
    while apart.load().queued < 4:  # noqa: ASYNC110 - they are sent one by one
        await asyncio.sleep(0)
    assert apart.load() == Load(running=4, queued=4, max_queued=4)
    assert apart.load().wait_s >= 0
    with pytest.raises(EngineBusyError):
        await collect(apart, asked())
    for task in (*waiting, *queued):
        task.cancel()
    await asyncio.gather(*waiting, *queued, return_exceptions=True)
    await idle(apart)
    assert isinstance((await collect(apart, asked()))[-1], Done)


async def test_a_refusal_has_its_numbers_and_leaves_the_others(
    apart: EngineProcess,
) -> None:
    other = await begun(apart)
    with pytest.raises(ContextTooLongError) as caught:
        await collect(apart, asked("canary-9", max_tokens=9999))
    assert caught.value.context_tokens == 2048
    assert "canary" not in chain(caught.value)
    # What only the engine can check.
    settings = SamplingSettings(logit_bias=((1 << 30, 1.0),))
    with pytest.raises(RequestError, match="cannot fulfil"):
        await collect(
            apart,
            GenerateRequest(messages=asked().messages, settings=settings),
        )
    assert not other.done()
    other.cancel()


async def test_cancelling_ends_an_answer(apart: EngineProcess) -> None:
    token = CancelToken()
    found: list[Event] = []
    request = asked(max_tokens=LONG)
    async with aclosing(apart.generate(request, cancel=token)) as events:
        async for event in events:
            found.append(event)
            token.cancel()
    done = found[-1]
    assert isinstance(done, Done)
    assert done.finish == "cancelled"
    never = await collect(apart, request, token)
    assert isinstance(never[-1], Done)
    assert never[-1].finish == "cancelled"


async def test_a_caller_that_leaves_ends_its_answer(apart: EngineProcess) -> None:
    async with aclosing(apart.generate(asked(max_tokens=LONG))) as events:
        assert isinstance(await anext(events), Started)
        assert apart.load().running == 1
    await idle(apart)
    assert isinstance((await collect(apart, asked()))[-1], Done)


# What becomes of requests.


async def test_one_whose_allocator_keeps_what_was_freed_promises_nothing(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = environment()
    monkeypatch.setattr(
        starting, "environment", returns({**usual, "PYTHONMALLOC": "pymalloc"})
    )
    async with running(planned(byte_model)) as engine:
        assert engine.info.ephemerality == "none"


# Its confinement.


async def test_the_process_is_confined(apart: EngineProcess, tmp_path: Path) -> None:
    assert apart.wall is not None
    assert Layer.SECCOMP in apart.wall.standing
    here = Path("/proc") / str(pid_of(apart))
    status = (here / "status").read_text("ascii")
    assert "\nSeccomp:\t2\n" in status
    assert "\nNoNewPrivs:\t1\n" in status
    if Layer.NAMESPACE in apart.wall.standing:
        assert not (here / "ns/net").samefile("/proc/self/ns/net")
    if Layer.FOLDERS in apart.wall.standing:
        assert not (here / "root" / tmp_path.relative_to("/")).exists()
    # What a library prints goes nowhere, and so does its memory.
    assert {(here / "fd" / each).readlink().name for each in "012"} == {"null"}
    limits = (here / "limits").read_text("ascii")
    assert "Max core file size        0                    0" in limits


ATTEMPTS = """
import os, socket, sys
from curtilage.inference.process import __main__ as process
from curtilage.sandbox import child
from curtilage.sandbox.pipe import encode_frame, read_frame, write_frame

class Attempts(process.Server):
    def take(self, requests):
        path = os.environ["PYTHONPATH"].split(os.pathsep)[0]
        said = []
        for attempt in (
            lambda: socket.socket(),
            lambda: os.open("/tmp/left-behind", os.O_WRONLY | os.O_CREAT),
            lambda: os.fork(),
            lambda: os.kill(os.getppid(), 0),
            lambda: os.listdir("/home"),
        ):
            try:
                attempt()
                said.append("done")
            except OSError as error:
                said.append(error.errno)
        self._say(said)
        return False

# Without Python's own hook, so that only the kernel refuses.
process.refuse_network_and_files = lambda **_: None
process.Server = Attempts
process.main()
"""


async def test_the_kernel_refuses_every_way_out(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    take = EngineProcess._take  # pyright: ignore[reportPrivateUsage]

    def listen(engine: EngineProcess, value: object) -> None:
        if isinstance(value, list):
            said.append(cast("object", value))
        else:
            take(engine, value)

    monkeypatch.setattr(EngineProcess, "_take", listen)
    replaced_by(ATTEMPTS, monkeypatch)
    async with running(planned(byte_model)) as engine:
        layers = engine.wall.standing if engine.wall else frozenset[Layer]()
        while not said:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    errors = cast("list[object]", said[0])
    assert "done" not in errors[:4]
    if Layer.FOLDERS in layers:
        assert "done" not in errors


GPU = """
from dataclasses import replace
from pathlib import Path
from curtilage.inference.process import __main__ as process

# /dev/full stands in for a GPU.
build, process.gpus = process.compute_only, lambda: ((Path("/dev/full"),), ())
def compute_only(reads, *, devices, forks):
    wall = build(reads, devices=devices, forks=forks)
    try:
        Path("/dev/full").open("r+b", buffering=0)
        said = "usable"
    except OSError:
        said = "refused"
    return type(wall)(standing=wall.standing, missing=(said,))
process.compute_only = compute_only
# The engine here has no GPU support.
load, on_cpu = process._loaded, dict(gpu_layers=0)
process._loaded = lambda plan: load(
    replace(plan, settings=replace(plan.settings, **on_cpu))
)
process.main()
"""


@pytest.mark.parametrize(("layers", "said"), [(0, "refused"), (1, "usable")])
async def test_a_gpu_is_usable_if_layers_are_computed_on_it(
    layers: int, said: str, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(GPU, monkeypatch)
    plan = planned(byte_model, replace(SETTINGS, gpu_layers=layers))
    async with running(plan) as engine:
        assert engine.wall is not None
        if Layer.LANDLOCK not in engine.wall.standing:
            pytest.skip("SKIPPED LOUDLY: without Landlock no GPU is usable")
        assert engine.wall.missing == (said,)


async def test_its_threads_give_way(byte_model: Path) -> None:
    settings = EngineSettings(threads=1, niceness=19)
    async with running(planned(byte_model, settings)) as engine:
        await collect(engine, asked())
        tasks = Path("/proc") / str(pid_of(engine)) / "task"
        nice = {
            os.getpriority(os.PRIO_PROCESS, int(each.name)) for each in tasks.iterdir()
        }
    assert 19 in nice


# Starting.


async def test_another_file_is_refused_at_start(byte_model: Path) -> None:
    plan = planned(byte_model)
    engine = EngineProcess(
        Plan(model=plan.model, sha256="00" * 32, model_id="x", settings=SETTINGS)
    )
    with pytest.raises(ModelDigestError) as caught:
        await engine.start()
    assert caught.value.found == plan.sha256
    with pytest.raises(ModelDigestError):
        await engine.start()
    assert not engines()
    await engine.close()


TAKEN_OVER = """
import sys
from curtilage.inference.process import __main__ as process
from curtilage.inference import modelfile
# As a file that has taken the process over would do.
modelfile.ModelFile.verify = modelfile.LentModel.verify = lambda file: None
sys.exit(process.main())
"""


async def test_a_process_that_was_taken_over_cannot_pass_another_file(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(TAKEN_OVER, monkeypatch)
    plan = replace(planned(byte_model), sha256="0a" * 32)
    engine = EngineProcess(plan, watch=QUICK)
    with pytest.raises(ModelDigestError) as refused:
        await engine.start()
    assert refused.value.found == sha256_of(byte_model)
    await engine.close()


async def test_nothing_is_answered_before_the_digest_is_right(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = threading.Event()
    verify = ModelFile.verify

    def late(file: ModelFile) -> None:
        hashed.wait(PATIENCE_S)
        verify(file)

    monkeypatch.setattr(ModelFile, "verify", late)
    engine = EngineProcess(planned(byte_model), watch=QUICK)
    starting = asyncio.create_task(engine.start())
    while engine.wall is None:  # noqa: ASYNC110 - it belongs to another process
        await asyncio.sleep(0.01)
    # It has loaded the file meanwhile.
    assert not starting.done()
    with pytest.raises(EngineClosedError):
        _ = engine.info
    hashed.set()
    await starting
    assert isinstance((await collect(engine, asked()))[-1], Done)
    await engine.close()


async def test_a_file_that_changes_while_it_is_loaded_is_refused(
    byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(byte_model, tmp_path / "model.gguf"))
    verify = ModelFile.verify

    def then_changed(file: ModelFile) -> None:
        verify(file)
        with path.open("r+b") as writer:
            writer.write(b"GGUF")

    monkeypatch.setattr(ModelFile, "verify", then_changed)
    engine = EngineProcess(planned(path), watch=QUICK)
    with pytest.raises(ModelFileError, match="changed"):
        await engine.start()
    await engine.close()


async def test_a_missing_file_is_refused_at_start(tmp_path: Path) -> None:
    plan = Plan(
        model=str(tmp_path / "none"), sha256="00" * 32, model_id="x", settings=SETTINGS
    )
    engine = EngineProcess(plan)
    with pytest.raises(ModelFileError, match="cannot be opened"):
        await engine.start()
    await engine.close()


def replaced_by(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        starting, "command_of", returns((sys.executable, "-B", "-P", "-c", code))
    )


async def test_a_missing_library_is_named(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; sys.modules['llama_cpp'] = None\n"
        "from curtilage.inference.process.__main__ import main; main()"
    )
    replaced_by(code, monkeypatch)
    engine = EngineProcess(planned(byte_model))
    with pytest.raises(EngineMissingError, match="llama_cpp"):
        await engine.start()
    await engine.close()


async def test_too_little_memory_ends_the_start_and_nothing_else(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2)\n"
        "from curtilage.inference.process.__main__ import main; main()"
    )
    replaced_by(code, monkeypatch)
    engine = EngineProcess(planned(byte_model))
    with pytest.raises((EngineFailedError, ModelFileError)):
        await engine.start()
    await engine.close()
    assert not engines()


ABORTS = """
import os
from curtilage.inference.process import __main__ as process
process.Server.take = lambda server, requests: requests.read(1) and os.abort()
process.main()
"""


async def test_an_abort_is_told_by_its_signal(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So llama.cpp ends when memory is out in the middle of a step."""
    replaced_by(ABORTS, monkeypatch)
    async with running(planned(byte_model)) as engine:
        with pytest.raises(EngineCrashedError) as caught:
            await collect(engine, asked())
        assert caught.value.status == -signal.SIGABRT


async def test_closing_ends_what_is_being_loaded(byte_model: Path) -> None:
    engine = EngineProcess(planned(byte_model))
    starting = asyncio.create_task(engine.start())
    while engine.pid is None:  # noqa: ASYNC110 - the task starts it
        await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineClosedError):
        await starting
    assert not engines()
    with pytest.raises(EngineClosedError):
        await engine.start()


async def test_what_was_not_started_answers_nothing(byte_model: Path) -> None:
    engine = EngineProcess(planned(byte_model))
    with pytest.raises(EngineClosedError):
        await collect(engine, asked())
    with pytest.raises(EngineClosedError):
        _ = engine.info
    assert engine.load() == Load(running=0, queued=0, max_queued=4)
    await engine.close()


# Ending.


async def test_closing_ends_every_answer_and_the_process(byte_model: Path) -> None:
    async with running(planned(byte_model)) as engine:
        answers = [await begun(engine) for _ in range(2)]
        pid = pid_of(engine)
    for each in answers:
        with pytest.raises(EngineClosedError):
            await each
    assert not psutil.pid_exists(pid)
    with pytest.raises(EngineClosedError):
        await collect(engine, asked())


async def test_a_crash_is_told_to_each_and_the_next_is_answered(
    byte_model: Path,
) -> None:
    told: list[InferenceError | None] = []
    async with running(planned(byte_model), told=told) as engine:
        answers = [await begun(engine, f"canary-{each}") for each in range(3)]
        first = pid_of(engine)
        os.kill(first, signal.SIGKILL)
        for each in answers:
            with pytest.raises(EngineCrashedError, match="signal 9") as caught:
                await each
            assert caught.value.status == -signal.SIGKILL
            assert "canary" not in chain(caught.value)
        # It waits for the new process.
        assert isinstance((await collect(engine, asked()))[-1], Done)
        assert pid_of(engine) != first
        assert engine.restarts == 1
        assert [type(each) for each in told] == [EngineCrashedError, type(None)]
        assert engine.load() == Load(running=0, queued=0, max_queued=4)


GIVES_UP = """
from curtilage.inference.errors import EngineMemoryError
from curtilage.inference.process import __main__ as process
loaded = process._loaded
def fails(plan):
    engine = loaded(plan)
    def fail(*arguments):
        raise EngineMemoryError(1024)
    def advance(loaded):
        engine._context = fail
        fail()
    engine._advance = advance
    return engine
process._loaded = fails
process.main()
"""


async def test_an_engine_without_memory_is_replaced(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be answered any more: an engine gives up for good."""
    with monkeypatch.context() as patch:
        replaced_by(GIVES_UP, patch)
        engine = EngineProcess(planned(byte_model), watch=QUICK)
        await engine.start()
    with pytest.raises(EngineFailedError):
        await collect(engine, asked())
    while engine.restarts == 0:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.001)
    assert isinstance((await collect(engine, asked()))[-1], Done)
    await engine.close()


async def test_a_process_that_stands_still_is_replaced(byte_model: Path) -> None:
    watch = Watch(quiet_s=0.4, pause_s=0.05)
    async with running(planned(byte_model), watch) as engine:
        answer = await begun(engine)
        os.kill(pid_of(engine), signal.SIGSTOP)
        async with asyncio.timeout(30):
            with pytest.raises(EngineHungError):
                await answer
            assert isinstance((await collect(engine, asked()))[-1], Done)


SPINS = """
from curtilage.inference.process import __main__ as process
loaded = process._loaded
def spins(plan):
    engine = loaded(plan)
    def spin(loaded):
        while True: pass
    engine._advance = spin
    return engine
process._loaded = spins
process.main()
"""


async def test_a_process_that_computes_without_end_is_replaced(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(SPINS, monkeypatch)
    watch = Watch(quiet_s=0.4, busy_s=0.5)
    async with running(planned(byte_model), watch) as engine:
        with pytest.raises(EngineHungError):
            await collect(engine, asked())


DRAWS = """
import threading
from curtilage.inference.process import __main__ as process
process._PULSE_S = 0.02
loaded = process._loaded
def draws(plan):
    from curtilage.inference.native import Sampler
    Sampler.draw = lambda *_: threading.Event().wait()
    return loaded(plan)
process._loaded = draws
process.main()
"""


async def test_a_process_that_draws_a_token_for_too_long_is_replaced(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call stops the library then, and it may compute: that alone is no progress."""
    replaced_by(DRAWS, monkeypatch)
    async with running(planned(byte_model), Watch(draw_s=0.3)) as engine:
        with pytest.raises(EngineHungError):
            await collect(engine, asked())


SLOW_DRAWS = DRAWS.replace("threading.Event().wait()", "slow(*_)").replace(
    "    Sampler.draw =",
    """
    import time
    draw = Sampler.draw
    def slow(*arguments):
        time.sleep(0.1)
        return draw(*arguments)
    Sampler.draw =""",
)


async def test_many_draws_together_may_take_longer(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(SLOW_DRAWS, monkeypatch)
    async with running(planned(byte_model), Watch(draw_s=0.5)) as engine:
        assert isinstance((await collect(engine, asked()))[-1], Done)
        assert engine.restarts == 0


async def test_a_draw_that_goes_on_is_no_progress(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(DRAWS, monkeypatch)
    watch = Watch(quiet_s=0.4, draw_s=1000.0)
    async with running(planned(byte_model), watch) as engine:
        with pytest.raises(EngineHungError):
            await collect(engine, asked())


CONVERTS = """
import os, sys, threading, time
from curtilage.inference.errors import RequestError
from curtilage.inference.process import __main__ as process
form_of, busy = process.form_of, threading.Lock()
def converts(request, clock):
    alone = busy.acquire(blocking=False)
    nice = os.getpriority(os.PRIO_PROCESS, 0) >= 5
    quick = sys.getswitchinterval() < 0.001
    wanted = request.messages[0].content != "cancelled"
    if not (alone and nice and quick and wanted and clock is time.thread_time):
        raise RequestError("the conversion is not as it should be")
    time.sleep(0.2)
    busy.release()
    return form_of(request, clock)
process.form_of = converts
process.main()
"""


async def test_schemas_are_converted_one_at_a_time_and_yield_to_others(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(CONVERTS, monkeypatch)
    plan = planned(byte_model, replace(SETTINGS, niceness=5))
    async with running(plan) as engine:
        wanted = replace(asked(), response_format=JsonObject())
        answers = [asyncio.create_task(collect(engine, wanted)) for _ in range(3)]
        cancel = CancelToken()
        unwanted = replace(asked("cancelled"), response_format=JsonObject())
        last = asyncio.create_task(collect(engine, unwanted, cancel))
        await asyncio.sleep(0)
        cancel.cancel()
        for each in (*answers, last):
            assert isinstance((await each)[-1], Done)
        (end,) = await last
        assert isinstance(end, Done)
        assert end.finish == "cancelled"


async def test_an_idle_process_is_not_hung(byte_model: Path) -> None:
    watch = Watch(quiet_s=0.08)
    async with running(planned(byte_model), watch) as engine:
        first = pid_of(engine)
        await asyncio.sleep(0.5)
        assert isinstance((await collect(engine, asked()))[-1], Done)
        assert (pid_of(engine), engine.restarts) == (first, 0)


async def test_a_vanished_model_is_said_and_read_again_when_it_is_back(
    byte_model: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(byte_model, tmp_path / "model.gguf"))
    told: list[InferenceError | None] = []
    async with running(planned(path), told=told) as engine:
        answer = await begun(engine)
        await asyncio.to_thread(path.unlink)
        os.kill(pid_of(engine), signal.SIGKILL)
        with pytest.raises(EngineCrashedError):
            await answer
        with pytest.raises(ModelFileError, match="cannot be opened"):
            await collect(engine, asked())
        # At once: nobody waits for what is known to fail.
        with pytest.raises(ModelFileError):
            await collect(engine, asked())
        shutil.copy(byte_model, path)
        async with asyncio.timeout(30):
            while told[-1] is not None:  # noqa: ASYNC110 - it is tried at intervals
                await asyncio.sleep(0.01)
        assert isinstance((await collect(engine, asked()))[-1], Done)


async def test_a_process_that_cannot_be_started_is_started_later(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All descriptors, threads or processes of the account may be in use."""
    told: list[InferenceError | None] = []
    start = cast("Callable[..., object]", subprocess.Popen)
    refused: list[bool] = []

    def starts(*arguments: object, **named: object) -> object:
        if len(refused) < 2:
            refused.append(True)
            raise OSError(errno.EMFILE, "canary-9")
        return start(*arguments, **named)

    async with running(planned(byte_model), told=told) as engine:
        monkeypatch.setattr(subprocess, "Popen", starts)
        os.kill(pid_of(engine), signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while len(told) < 4:  # noqa: ASYNC110 - it is tried at intervals
                await asyncio.sleep(0.01)
        assert isinstance((await collect(engine, asked()))[-1], Done)
    assert [type(each) for each in told[1:]] == [EngineFailedError] * 2 + [type(None)]
    assert "canary" not in repr(told)


async def test_another_model_never_takes_its_place(
    byte_model: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(byte_model, tmp_path / "model.gguf"))
    async with running(planned(path)) as engine:
        make_byte_model(path, layers=1)
        os.kill(pid_of(engine), signal.SIGKILL)
        with pytest.raises((EngineCrashedError, ModelDigestError)):
            await collect(engine, asked())
        for _ in range(2):
            with pytest.raises(ModelDigestError):
                await collect(engine, asked())
        assert engine.info.model_sha256 == sha256_of(byte_model)


async def test_while_it_is_started_again_a_request_waits_only_so_long(
    byte_model: Path,
) -> None:
    async with running(planned(byte_model), Watch(patience_s=0)) as engine:
        pid = pid_of(engine)
        os.kill(pid, signal.SIGKILL)
        while engine.pid == pid:  # noqa: ASYNC110 - it belongs to another process
            await asyncio.sleep(0)
        with pytest.raises(EngineRestartingError):
            await collect(engine, asked())


# A process that does not do what ours does.

LIES = """
import json, struct, sys
from curtilage.inference.process import __main__ as process
def lie(server, requests):
    process.read_frame(requests)
    said = {lie}
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    length = {length} or len(body)
    server._replies.write(struct.pack(">I", length) + body)
    return True
process.Server.take = lie
process.main()
"""


TOP = [{"": "TopLogprob", "data": "", "logprob": 0.0}]


@pytest.mark.parametrize(
    ("lie", "length"),
    [
        (b"\xff\xff", 0),
        (b"x", 1 << 30),
        ([1, {"": "Other", "text": "canary-9"}], 0),
        ([1, {"": "Token", "text": 5}], 0),
        ([2, {"": "Started", "prompt_tokens": 1}], 0),
        ([1], 0),
        ([[1], 1], 0),
        ("canary-9", 0),
        (9, 0),
        ([1, {"": "Token", "text": "", "top": TOP}], 0),
        ({"steps": "canary-9"}, 0),
        ([True, {"": "Started", "prompt_tokens": 1}], 0),
        ([1, {"error": "RequestError", "text": "canary-9"}], 0),
    ],
)
async def test_anything_but_an_answer_ends_the_process(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, lie: object, length: int
) -> None:
    replaced_by(LIES.format(lie=repr(lie), length=length), monkeypatch)
    async with running(planned(byte_model)) as engine:
        pid = pid_of(engine)
        with pytest.raises(EngineFailedError, match="no answer") as caught:
            await collect(engine, asked())
        assert "canary" not in chain(caught.value)
        while psutil.pid_exists(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


FLOODS = """
from curtilage.inference.process import __main__ as process
def flood(server, requests):
    process.read_frame(requests)
    for _ in range({count}):
        server._say([1, {event}])
    return True
process.Server.take = flood
process.main()
"""
LARGE = '"x" * (1 << 20)'
CALL = f'{{"": "ToolCall", "id": "1", "name": "f", "arguments": {LARGE}}}'


@pytest.mark.parametrize(
    ("count", "event"),
    [
        (1000, '{"": "Token", "text": "x"}'),
        (5, f'{{"": "Token", "text": {LARGE}}}'),
        (5, f'{{"": "Called", "index": 0, "call": {CALL}}}'),
    ],
)
async def test_more_than_an_answer_can_have_ends_the_process(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, count: int, event: str
) -> None:
    replaced_by(FLOODS.format(count=count, event=event), monkeypatch)
    async with running(planned(byte_model)) as engine:
        with pytest.raises(EngineFailedError, match="no answer"):
            await collect(engine, asked())


CLAIMS = """
from dataclasses import replace
from curtilage.inference.process import __main__ as process
to_value = process.to_value
process.to_value = lambda info: to_value(replace(info, {field}="11" * 32))
process.main()
"""


@pytest.mark.parametrize("field", ["model_sha256", "adapter_sha256"])
async def test_a_process_that_names_another_model_is_not_used(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    replaced_by(CLAIMS.format(field=field), monkeypatch)
    engine = EngineProcess(planned(byte_model))
    with pytest.raises(EngineFailedError, match="no answer"):
        await engine.start()
    await engine.close()


APART = """
from dataclasses import replace
from curtilage.inference.process import __main__ as process
to_value = process.to_value
process.to_value = lambda info: to_value(replace(info, isolation="process"))
process.main()
"""


async def test_a_process_that_separates_requests_in_another_way_is_not_used(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_by(APART, monkeypatch)
    engine = EngineProcess(planned(byte_model))
    with pytest.raises(EngineFailedError, match="no answer"):
        await engine.start()
    await engine.close()


async def test_a_new_process_with_another_template_is_not_used(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(planned(byte_model)) as engine:
        replaced_by(CLAIMS.format(field="template_sha256"), monkeypatch)
        os.kill(pid_of(engine), signal.SIGKILL)
        with suppress(EngineCrashedError):
            await collect(engine, asked())
        with pytest.raises(EngineFailedError, match="no answer"):
            await collect(engine, asked())


# Nothing is left behind.

ORPHAN = """
import asyncio, sys, time
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess
from curtilage.inference.settings import EngineSettings
async def main():
    settings = EngineSettings(threads=1)
    plan = Plan(model=sys.argv[1], sha256=sys.argv[2], model_id="x", settings=settings)
    engine = EngineProcess(plan)
    await engine.start()
    print(engine.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_it_ends_with_its_parent(byte_model: Path) -> None:
    command = (sys.executable, "-c", ORPHAN, str(byte_model), sha256_of(byte_model))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as above:  # noqa: ASYNC220
        assert above.stdout is not None
        pid = int(await asyncio.to_thread(above.stdout.readline))
        assert psutil.pid_exists(pid)
        above.kill()
        async with asyncio.timeout(30):
            while runs(pid):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)


def runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def left_early(engine: Engine, canary: Canary) -> None:
    request = asked(canary.text("left"), max_tokens=LONG)
    async with aclosing(engine.generate(request)) as events:
        await anext(events)


async def whole(engine: Engine, canary: Canary) -> None:
    await collect(engine, asked(canary.text("whole")))


async def refused(engine: Engine, canary: Canary) -> None:
    with suppress(InferenceError):
        await collect(engine, asked(canary.text("refused"), max_tokens=9999))


async def crashed(engine: Engine, canary: Canary) -> None:
    assert isinstance(engine, EngineProcess)
    async with aclosing(
        engine.generate(asked(canary.text("crashed"), max_tokens=LONG))
    ) as events:
        await anext(events)
        os.kill(pid_of(engine), signal.SIGKILL)
        with suppress(InferenceError):
            async for _ in events:
                pass


@pytest.mark.parametrize(
    "end", [whole, left_early, refused, crashed], ids=lambda end: end.__name__
)
async def test_no_question_is_left_in_the_parent(
    apart: EngineProcess, end: Callable[[Engine, Canary], Awaitable[None]]
) -> None:
    canary = Canary()
    with uncollected():
        await end(apart, canary)
        await idle(apart)
        assert canary.holders() == {}
