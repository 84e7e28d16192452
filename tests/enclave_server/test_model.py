import asyncio
import json
import math
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import curtilage.enclave_server.model as model_module
from curtilage.enclave_server.config import EnclaveConfig, ModelChoice
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    ConfigError,
    ModelError,
    ModelUnavailableError,
    PromptTooLongError,
    SchemaPlace,
    TooLong,
)
from curtilage.enclave_server.errors import EngineCrashedError as EnclaveCrashedError
from curtilage.enclave_server.errors import EngineHungError as EnclaveHungError
from curtilage.enclave_server.model import (
    NICENESS,
    WATCH,
    Model,
    open_model,
)
from curtilage.enclave_server.ohttp.chat import (
    MAX_SEED,
    ChatCompletionRequest,
    ChatMessage,
)
from curtilage.enclave_server.ohttp.openai_answers import (
    LOWEST_LOGPROB,
    Answer,
    AnswerHead,
    Begun,
    Call,
    Ending,
    Piece,
    completion_bytes,
    encode_error,
)
from curtilage.enclave_server.ohttp.tools import ChatCall, ChatFormat, ChatTool
from curtilage.enclave_server.telemetry import Reason
from curtilage.inference.default_model import DEFAULT_SHA256, find_default_model
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineBusyError,
    EngineClosedError,
    EngineCrashedError,
    EngineFailedError,
    EngineHungError,
    EngineMemoryError,
    EngineMissingError,
    EngineRestartingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    RequestError,
    TemplateError,
)
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess, Watch
from curtilage.inference.process.starting import Starts
from curtilage.inference.protocol import (
    Called,
    CancelToken,
    Event,
    GenerateRequest,
    JsonObject,
    JsonSchema,
    NamedTool,
    Token,
    Tool,
    ToolCall,
)
from curtilage.inference.settings import DEFAULTS
from curtilage.sandbox.wall import Layer, Wall
from curtilage.wire.shaping import PADDED, UNPADDED
from curtilage_dev.scripted_engine import Script, ScriptedEngine
from support.byte_model import make_byte_model, sha256_of
from support.enclave_deployment import make_world
from support.engine_processes import engines

HEAD = AnswerHead(answer_id="chatcmpl-0", created=0, model="curtilage")
CHAT = ChatCompletionRequest(
    messages=(ChatMessage(role="user", content="canary-9", name="ann"),),
    logprobs=True,
)


async def answers_of(engine: ScriptedEngine) -> list[Answer]:
    await engine.start()
    return [answer async for answer in Model(engine).answer(CHAT)]


async def test_who_would_wait_too_long_hears_so_at_once() -> None:
    engine = ScriptedEngine(Script(pieces=["a"] * 9, delay_s=3600), turn_s=40)
    await engine.start()
    model = Model(engine)
    # Longest answers of 204.8 s: half of that is four turns of 40 s and more.
    model.keep_to(PADDED)
    waiting = [asyncio.ensure_future(anext(model.answer(CHAT))) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(BusyError):
            await anext(model.answer(CHAT))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert engine.requests == [engine.requests[0]] * 3


async def test_without_padding_there_is_no_bucket_to_end_in() -> None:
    engine = ScriptedEngine(turn_s=1e9)
    await engine.start()
    model = Model(engine)
    model.keep_to(UNPADDED)
    first = model.answer(CHAT)
    await anext(first)
    assert engine.load().wait_s == 1e9
    second = asyncio.ensure_future(anext(model.answer(CHAT)))
    await asyncio.sleep(0)
    await first.aclose()
    assert await second == Begun(prompt_tokens=7)


async def test_events_become_answers() -> None:
    answers = await answers_of(ScriptedEngine(Script(pieces=["a", "b"])))
    assert answers == [
        Begun(prompt_tokens=7),
        Piece(text="a", logprob=math.log(0.5)),
        Piece(text="b", logprob=math.log(0.5)),
        Ending(finish_reason="stop", prompt_tokens=7, completion_tokens=2),
    ]


class Impossible(ScriptedEngine):
    """Reports a token that had no probability at all."""

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        yield Token(text="a", data=b"a", logprob=-math.inf)


async def test_probability_of_zero_has_a_number() -> None:
    (piece,) = await answers_of(Impossible())
    assert piece == Piece(text="a", logprob=LOWEST_LOGPROB)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (EngineBusyError("x"), BusyError),
        (
            ContextTooLongError(prompt_tokens=1, max_tokens=1, context_tokens=1),
            PromptTooLongError,
        ),
        (RequestError("x"), ChatError),
        (TemplateError("x"), ChatError),
        (EngineClosedError("x"), ModelError),
        (EngineFailedError("x"), ModelError),
        (EngineCrashedError(-9), EnclaveCrashedError),
        (EngineHungError(), EnclaveHungError),
        (EngineRestartingError(), BusyError),
        (ModelFileError("x"), ModelUnavailableError),
        (EngineMemoryError(1), ModelUnavailableError),
    ],
)
async def test_faults_become_ours(fault: Exception, expected: type[Exception]) -> None:
    engine = ScriptedEngine(Script(pieces=[], fault=fault))
    with pytest.raises(expected) as caught:
        await answers_of(engine)
    assert type(caught.value) is expected
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None
    assert "canary" not in str(caught.value)


async def test_model_is_named_by_its_engine() -> None:
    engine = ScriptedEngine()
    await engine.start()
    model = Model(engine)
    assert (model.name, model.sha256) == ("scripted", "00" * 32)
    await model.close()
    with pytest.raises(EngineClosedError):
        _ = model.name


def choosing(folder: Path, choice: ModelChoice) -> EnclaveConfig:
    return replace(make_world(folder).config, model=choice)


def embedded(sha256: str = "") -> ModelChoice:
    return ModelChoice(
        path=None, sha256=sha256, context_tokens=256, threads=1, sequences=1
    )


def starting(
    monkeypatch: pytest.MonkeyPatch, fault: InferenceError | None
) -> list[Plan]:
    """Replace the process by a scripted engine; return the plans that it gets."""
    plans: list[Plan] = []

    class Scripted(ScriptedEngine):
        is_running = fault is None

        def __init__(self, plan: Plan, *, watch: Watch, starts: Starts | None) -> None:
            assert watch is WATCH
            assert plan.tried is (starts is not None)
            plans.append(plan)
            super().__init__(start_fault=fault)

    monkeypatch.setattr(model_module, "EngineProcess", Scripted)
    return plans


@pytest.mark.parametrize(
    ("fault", "expected", "words"),
    [
        (EngineMissingError("llama_cpp"), ModelError, "'llm'"),
        (ModelFileError("not there"), ModelError, "cannot be loaded: not there"),
        (EngineCrashedError(-9), ModelError, "signal 9"),
        (
            ModelDigestError(expected="11", found="22"),
            ConfigError,
            r"^model\.sha256: .* not 11$",
        ),
    ],
)
async def test_why_it_cannot_start_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: InferenceError,
    expected: type[Exception],
    words: str,
) -> None:
    starting(monkeypatch, fault)
    with pytest.raises(expected, match=words) as caught:
        await open_model(choosing(tmp_path, replace(embedded(), path=tmp_path / "m")))
    assert type(caught.value) is expected


async def test_other_digest_than_the_defaults_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model\.sha256: .* default's$"):
        await open_model(choosing(tmp_path, embedded("11" * 32)))


async def test_an_absent_default_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> Path:
        raise ModelFileError("not installed")

    monkeypatch.setattr(model_module, "find_default_model", absent)
    with pytest.raises(ModelError, match="not installed"):
        await open_model(choosing(tmp_path, embedded()))


async def test_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF and more")
    choice = ModelChoice(
        path=path, sha256="11" * 32, context_tokens=256, threads=1, sequences=1
    )
    with pytest.raises(ConfigError, match=rf"^model\.sha256: .* not {choice.sha256}$"):
        await open_model(choosing(tmp_path, choice))
    assert not engines()


@pytest.mark.parametrize(
    ("cpus", "threads", "expected"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (16, 64, 15)]
)
async def test_engine_leaves_the_frames_a_cpu_and_its_turn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cpus: int,
    threads: int,
    expected: int,
) -> None:
    plans = starting(monkeypatch, None)
    monkeypatch.setattr(model_module, "available_cpus", lambda: cpus)
    monkeypatch.setattr(model_module, "find_default_model", lambda: tmp_path / "m")
    choice = replace(
        embedded(),
        threads=threads,
        sequences=3,
        kv_type="q8_0",
        flash_attention="on",
        gpu_layers=5,
        isolation="process",
    )
    await (await open_model(choosing(tmp_path, choice))).close()
    (plan,) = plans
    assert (plan.sha256, plan.model) == (DEFAULT_SHA256, f"{tmp_path}/m")
    settings = plan.settings
    assert (settings.threads, settings.niceness) == (expected, NICENESS)
    assert settings.sequences == 3
    assert (settings.kv_type, settings.flash_attention) == ("q8_0", "on")
    assert settings.gpu_layers == 5
    assert plan.isolation == "process"


Said = list[tuple[Reason, str] | None]


@asynccontextmanager
async def lost_and_found(
    path: Path, folder: Path
) -> AsyncGenerator[tuple[Model, Said]]:
    choice = ModelChoice(
        path=path, sha256=sha256_of(path), context_tokens=256, threads=1, sequences=1
    )
    model = await open_model(choosing(folder, choice))
    assert isinstance(model, Model)
    said: Said = []

    def failed(reason: Reason, why: str) -> None:
        said.append((reason, why))

    model.report_to(lambda: said.append(None), failed)
    try:
        yield model, said
    finally:
        await model.close()


def kill_it() -> None:
    (pid,) = engines()
    os.kill(pid, signal.SIGKILL)


async def test_a_lost_engine_is_reported_and_replaced(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    path = make_byte_model(tmp_path / "m.gguf")
    async with lost_and_found(path, tmp_path) as (model, said):
        assert not model.failing
        answer = model.answer(replace(CHAT, max_tokens=100))
        assert isinstance(await anext(answer), Begun)
        kill_it()
        with pytest.raises(EnclaveCrashedError):
            async for _ in answer:
                pass
        assert model.failing is Reason.ENGINE_CRASHED
        # Until another one answers, whoever asks is told to come later, at once.
        with pytest.raises(BusyError):
            await anext(model.answer(CHAT))
        while model.failing:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        assert model.sha256 == sha256_of(path)
        assert [each async for each in model.answer(replace(CHAT, max_tokens=1))]
        why = "the engine's process ended (signal 9)"
        assert said == [(Reason.ENGINE_CRASHED, why), None]
    assert not engines()


@pytest.mark.parametrize("what", ["gone", "another"])
async def test_a_model_that_cannot_be_loaded_again_is_said(
    tmp_path: Path, what: str
) -> None:
    pytest.importorskip("llama_cpp")
    path = make_byte_model(tmp_path / "m.gguf")
    async with lost_and_found(path, tmp_path) as (model, said):
        digest = model.sha256
        if what == "gone":
            path.unlink()
        else:
            make_byte_model(path, layers=1)
        kill_it()
        while model.failing is not Reason.MODEL_UNAVAILABLE:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        with pytest.raises(ModelUnavailableError):
            await anext(model.answer(CHAT))
        # What the evidence names never changes.
        assert model.sha256 == digest
        assert None not in said


@pytest.mark.parametrize(
    ("wall", "gaps"),
    [
        (Wall(standing=frozenset(Layer)), ""),
        (
            Wall(standing=frozenset({Layer.SECCOMP}), missing=("seccomp: no",)),
            "look up paths on every mounted file system (seccomp: no)",
        ),
        (None, ""),
    ],
)
async def test_a_wall_with_gaps_is_said(wall: Wall | None, gaps: str) -> None:
    engine = EngineProcess(Plan(model="m", sha256="", model_id="", settings=DEFAULTS))
    engine._wall = wall  # pyright: ignore[reportPrivateUsage] - as the process reports it
    assert Model(engine).gaps == gaps
    assert not Model(ScriptedEngine()).gaps


async def test_the_engine_says_what_becomes_of_requests() -> None:
    engine = ScriptedEngine()
    await engine.start()
    assert Model(engine).info is engine.info
    await engine.close()


@pytest.mark.parametrize(
    ("asked", "memory", "words"),
    [(2049, None, "more than the 2048"), (2048, 1 << 20, "MiB are available")],
)
async def test_a_context_that_cannot_be_had_is_refused_before_loading(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: int,
    memory: int | None,
    words: str,
) -> None:
    monkeypatch.setattr(model_module, "EngineProcess", None)  # is never made
    monkeypatch.setattr(model_module, "available_memory", lambda: memory)
    path = make_byte_model(tmp_path / "byte.gguf")
    choice = replace(
        embedded(sha256_of(path)), path=path, context_tokens=asked, threads=1
    )
    with pytest.raises(ConfigError, match=rf"^model\.context_tokens: .*{words}"):
        await open_model(choosing(tmp_path, choice))


async def test_an_unasked_context_is_the_models_and_told_before_loading(
    tmp_path: Path,
) -> None:
    pytest.importorskip("llama_cpp")
    lines: list[str] = []
    path = make_byte_model(tmp_path / "byte.gguf")
    choice = replace(embedded(sha256_of(path)), path=path, context_tokens=None)
    model = await open_model(choosing(tmp_path, choice), sized=lines.append)
    assert model.context_tokens == 2048
    await model.close()
    (line,) = lines
    assert line.startswith("local model byte: context 2,048 tokens (trained for 2,048;")


async def test_a_text_that_is_too_long_is_refused_with_its_numbers() -> None:
    too_long = ContextTooLongError(prompt_tokens=70, max_tokens=8, context_tokens=64)
    with pytest.raises(PromptTooLongError) as caught:
        await answers_of(ScriptedEngine(Script(pieces=[], fault=too_long)))
    assert caught.value.too_long == TooLong(
        prompt_tokens=70, max_tokens=8, context_tokens=64
    )


@pytest.mark.model
@pytest.mark.parametrize("by_path", [False, True], ids=["embedded", "by-path"])
async def test_real_model_answers(tmp_path: Path, *, by_path: bool) -> None:
    pytest.importorskip("llama_cpp")
    try:
        path = find_default_model()
    except ModelFileError as error:
        pytest.skip(f"SKIPPED LOUDLY: {error}")
    choice = replace(
        embedded(DEFAULT_SHA256), path=path if by_path else None, context_tokens=512
    )
    model = await open_model(choosing(tmp_path, choice))
    chat = replace(CHAT, max_tokens=3, temperature=0.0)
    answers = [answer async for answer in model.answer(chat)]
    await model.close()
    assert isinstance(answers[0], Begun)
    assert answers[0].prompt_tokens > 0
    assert isinstance(answers[-1], Ending)
    assert answers[-1].completion_tokens == 3


FIND = ChatTool(
    name="find", description="Finds", parameters='{"type": "object"}', strict=True
)
CALLED = ToolCall(id="x", name="find", arguments='{"who": "Ann"}')


async def asked_of(engine: ScriptedEngine, chat: ChatCompletionRequest) -> list[Answer]:
    await engine.start()
    return [answer async for answer in Model(engine).answer(chat)]


async def test_everything_asked_reaches_the_engine() -> None:
    engine = ScriptedEngine()
    call = ChatCall(id="call_1", name="find", arguments="{}")
    chat = replace(
        CHAT,
        messages=(
            ChatMessage(role="assistant", content="", calls=(call,)),
            ChatMessage(role="tool", content="found", result_of="call_1"),
        ),
        tools=(FIND, ChatTool(name="lose")),
        tool_choice="find",
        parallel_tool_calls=False,
        response_format=ChatFormat(name="x", schema="{}", strict=True),
        top_logprobs=2,
        presence_penalty=0.5,
        frequency_penalty=-1,
    )
    await asked_of(engine, chat)
    (asked,) = engine.requests
    assert asked.tools == (
        Tool(
            name="find",
            description="Finds",
            parameters='{"type": "object"}',
            strict=True,
        ),
        Tool(name="lose"),
    )
    assert asked.tool_choice == NamedTool(name="find")
    assert not asked.parallel_tool_calls
    assert asked.response_format == JsonSchema(name="x", schema="{}", strict=True)
    assert asked.messages[0].tool_calls == (
        ToolCall(id="call_1", name="find", arguments="{}"),
    )
    assert asked.messages[1].tool_call_id == "call_1"
    settings = asked.settings
    assert (settings.top_logprobs, settings.presence_penalty) == (2, 0.5)
    assert settings.frequency_penalty == -1


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
async def test_a_choice_and_any_json_reach_the_engine(choice: str) -> None:
    engine = ScriptedEngine()
    wanted = ChatFormat()
    chat = replace(CHAT, tools=(FIND,), tool_choice=choice, response_format=wanted)
    await asked_of(engine, chat)
    assert engine.requests[0].tool_choice == choice
    assert engine.requests[0].response_format == JsonObject()


async def test_a_call_is_a_piece() -> None:
    engine = ScriptedEngine(Script(pieces=(CALLED,)))
    answers = await asked_of(engine, replace(CHAT, tools=(FIND,), logprobs=False))
    _, token, called, ending = answers
    assert token == Piece(text="")
    assert called == Piece(
        text="", call=Call(index=0, name="find", arguments='{"who": "Ann"}')
    )
    assert isinstance(ending, Ending)
    assert ending.finish_reason == "tool_calls"


@pytest.mark.parametrize(("tools", "choice"), [((), "auto"), ((FIND,), "none")])
async def test_a_call_that_was_not_offered_is_a_failure(
    tools: tuple[ChatTool, ...], choice: str
) -> None:
    class Calling(ScriptedEngine):
        @override
        async def generate(
            self, request: GenerateRequest, *, cancel: CancelToken | None = None
        ) -> AsyncGenerator[Event]:
            yield Called(index=0, call=CALLED)

    with pytest.raises(ModelError):
        await asked_of(Calling(), replace(CHAT, tools=tools, tool_choice=choice))


@pytest.mark.parametrize(
    ("seed", "seeds"),
    [(None, [None, None]), (5, [5, 6]), (MAX_SEED, [MAX_SEED, -MAX_SEED - 1])],
)
async def test_several_answers_begin_and_end_once(
    seed: int | None, seeds: list[int | None]
) -> None:
    engine = ScriptedEngine(
        Script(pieces=("a",)), Script(pieces=("b", "c"), finish="length")
    )
    chat = replace(CHAT, n=2, seed=seed, logprobs=False)
    answers = await asked_of(engine, chat)
    assert answers == [
        Begun(prompt_tokens=7),
        Piece(text="a"),
        Piece(text="b", choice=1),
        Piece(text="c", choice=1),
        Ending(
            finish_reason="stop",
            prompt_tokens=7,
            completion_tokens=3,
            others=("length",),
        ),
    ]
    assert [each.settings.seed for each in engine.requests] == seeds


@pytest.mark.parametrize(
    ("sequences", "running"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (16, 4)]
)
async def test_several_answers_take_half_of_the_sequences(
    sequences: int, running: int
) -> None:
    engine = ScriptedEngine(Script(delay_s=3600), sequences=sequences)
    await engine.start()
    async with aclosing(Model(engine).answer(replace(CHAT, n=4))) as answers:
        assert await anext(answers) == Begun(prompt_tokens=7)
        await asyncio.sleep(0)
        assert (engine.load().running, engine.load().queued) == (running, 0)
    assert engine.load().running == 0
    assert len(asyncio.all_tasks()) == 1


async def test_several_answers_have_one_place_while_others_are_answered() -> None:
    engine = ScriptedEngine(Script(delay_s=3600), sequences=4)
    await engine.start()
    model = Model(engine)
    async with AsyncExitStack() as asked:
        for n, running, queued in ((1, 1, 0), (2, 3, 0), (4, 4, 0), (4, 4, 1)):
            answers = model.answer(replace(CHAT, n=n))
            await asked.enter_async_context(aclosing(answers))
            begun = asyncio.ensure_future(anext(answers))
            for _ in range(4):
                await asyncio.sleep(0)
            # Not 2 and 5: three such questions filled the queue of a whole enclave.
            assert (engine.load().running, engine.load().queued) == (running, queued)
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)


async def test_another_answer_begins_when_a_place_becomes_free() -> None:
    slow, quick = Script(delay_s=3600), Script(pieces=["a"] * 200, delay_s=0.002)
    engine = ScriptedEngine(slow, slow, slow, quick, sequences=4)
    await engine.start()
    model = Model(engine)
    others = [model.answer(CHAT) for _ in range(3)]
    for other in others:
        await anext(other)
    async with aclosing(model.answer(replace(CHAT, n=2))) as answers:
        await anext(answers)
        for _ in range(3):
            await anext(answers)
        assert (engine.load().running, len(engine.requests)) == (4, 4)
        await others[0].aclose()
        pieces = [each async for each in answers if isinstance(each, Piece)]
    # Both were written at the same time, not one after the other.
    first = [at for at, piece in enumerate(pieces) if piece.choice == 0]
    second = [at for at, piece in enumerate(pieces) if piece.choice == 1]
    assert (len(first), len(second)) == (197, 200)
    assert second[0] < first[-1]
    for other in others[1:]:
        await other.aclose()


async def test_several_answers_come_piece_by_piece() -> None:
    engine = ScriptedEngine(
        Script(pieces=("a", "b"), delay_s=0.02),
        Script(pieces=("c",), delay_s=0.03, finish="length"),
        sequences=4,
    )
    chat = replace(CHAT, n=2, logprobs=False)
    begun, *pieces, end = await asked_of(engine, chat)
    assert begun == Begun(prompt_tokens=7)
    assert pieces == [
        Piece(text="a"),
        Piece(text="c", choice=1),
        Piece(text="b"),
    ]
    assert end == Ending(
        finish_reason="stop",
        prompt_tokens=7,
        completion_tokens=3,
        others=("length",),
    )


async def test_one_of_several_answers_that_fails_ends_the_others() -> None:
    fault = EngineFailedError("broken")
    engine = ScriptedEngine(
        Script(delay_s=3600), Script(fault=fault, fault_after=1), sequences=4
    )
    with pytest.raises(ModelError):
        await asked_of(engine, replace(CHAT, n=2))
    assert engine.load().running == 0
    assert len(asyncio.all_tasks()) == 1


async def test_the_likeliest_tokens_are_reported() -> None:
    script = Script(pieces=("a",), probability=0.75, second="b")
    answers = await asked_of(ScriptedEngine(script), replace(CHAT, top_logprobs=2))
    piece = answers[1]
    assert isinstance(piece, Piece)
    assert piece.top == (("a", math.log(0.75)), ("b", math.log(0.25)))


LISTS = {"enum": list(range(1001))}
DEEP = '{"properties": {"a": ' * 12 + '{"type": "canary"}' + "}}" * 12
UNENFORCED = '{"type": "object", "properties": {"canary": {"minProperties": 1}}}'
FORMAT = "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("fields", "code", "param", "place"),
    [
        (
            {"tools": (FIND, ChatTool(name="b", parameters=UNENFORCED, strict=True))},
            "schema_not_enforced",
            "tools[1].function.parameters",
            SchemaPlace(keyword="minProperties", where="properties[0]"),
        ),
        (
            {"response_format": ChatFormat(name="a", schema='{"items": 1}')},
            "schema_invalid",
            FORMAT,
            SchemaPlace(where="items"),
        ),
        (
            {"response_format": ChatFormat(name="a", schema=json.dumps(LISTS))},
            "schema_too_large",
            FORMAT,
            SchemaPlace(),
        ),
        (
            {"response_format": ChatFormat(name="a", schema=DEEP)},
            "schema_invalid",
            FORMAT,
            # A longer path has no room.
            SchemaPlace(keyword="type"),
        ),
    ],
    ids=["not enforced", "invalid", "large", "deep"],
)
async def test_a_schema_that_is_refused_is_the_senders_fault(
    fields: dict[str, Any], code: str, param: str, place: SchemaPlace
) -> None:
    with pytest.raises(ChatError) as caught:
        await asked_of(ScriptedEngine(), replace(CHAT, **fields))
    error = caught.value
    assert (error.status, error.code, error.param) == (400, code, param)
    assert error.place == place
    assert error.alone().place == place
    assert len(encode_error(error)) < completion_bytes(HEAD)
    reported = json.loads(encode_error(error))["error"]
    assert (reported["keyword"], reported["where"]) == (place.keyword, place.where)
    assert "canary" not in f"{error!r}{reported}"


async def test_a_text_that_the_engine_refuses_is_named_by_its_place() -> None:
    turns = (*CHAT.messages, ChatMessage(role="user", content="canary \ud800"))
    with pytest.raises(ChatError) as caught:
        await asked_of(ScriptedEngine(), replace(CHAT, messages=turns))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "messages[1]")
