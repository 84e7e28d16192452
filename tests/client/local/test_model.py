import asyncio
import json
import math
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent, Called, Delta, Finished
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query, Settings, ToolCall
from curtilage.client.errors import ConfigError, LocalUnavailableError, UsageError
from curtilage.client.local import model as local
from curtilage.client.local.computing import Computing
from curtilage.client.local.model import (
    NONE_CONFIGURED,
    LocalContextTooLongError,
    LocalModel,
    LocalModelBusyError,
    LocalModelCrashedError,
    LocalModelDigestError,
    LocalModelFailedError,
    LocalModelLateError,
    LocalModelMemoryError,
    LocalModelMissingError,
    resolve,
    resolve_digest,
    verify_choice,
)
from curtilage.client.local.reasons import LocalFailure, LocalModelError
from curtilage.client.local.registry.shape import read_shape
from curtilage.client.local.registry.store import NONE_REGISTERED, Registry
from curtilage.client.system.fair_queue import ASKER, MAX_WAITING, Asker
from curtilage.inference.default_model import DEFAULT_MODEL_ID, DEFAULT_SHA256
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
    TemplateError,
)
from curtilage.inference.protocol import Called as EngineCalled
from curtilage.inference.protocol import (
    CancelToken,
    Event,
    GenerateRequest,
    JsonObject,
    JsonSchema,
    NamedTool,
    Started,
)
from curtilage.inference.protocol import ToolCall as EngineCall
from curtilage_dev.scripted_engine import SCRIPTED_INFO, Script, ScriptedEngine
from support.byte_model import make_adapter, make_byte_model, sha256_of
from support.engine_processes import engines

HELLO = Query(messages=(Message(role="user", content="hello canary"),))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data")


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("models") / "byte.gguf")


async def scripted(
    *scripts: Script, answer_s: float = 60
) -> tuple[LocalModel, ScriptedEngine]:
    engine = ScriptedEngine(*scripts)
    model = LocalModel(lambda: engine, model_id="scripted", answer_s=answer_s)
    await model.start()
    return model, engine


async def collect(model: LocalModel, query: Query = HELLO) -> list[AnswerEvent]:
    async with aclosing(model.generate(query)) as events:
        return [event async for event in events]


def raising(problem: InferenceError) -> Callable[[], ScriptedEngine]:
    return lambda: ScriptedEngine(start_fault=problem)


# Which file.


def test_path_is_used_with_its_digest_only(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "some.gguf"
    choice = resolve(str(path), sha256="AB" * 32, registry=registry)
    assert (choice.model_id, choice.path, choice.sha256) == ("some", path, "ab" * 32)
    for name in (str(path), "some.gguf"):
        with pytest.raises(ConfigError, match="--model-sha256"):
            resolve(name, registry=registry)


def test_a_name_refers_to_its_registered_file(
    byte_model: Path, registry: Registry
) -> None:
    registry.add("mine", byte_model, sha256_of(byte_model))
    choice = resolve("mine", registry=registry)
    assert (choice.path, choice.sha256) == (byte_model, sha256_of(byte_model))
    assert resolve("mine", sha256=sha256_of(byte_model), registry=registry) == choice
    with pytest.raises(LocalModelDigestError):
        resolve("mine", sha256="00" * 32, registry=registry)


def test_an_unknown_name_selects_no_model(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=f"{NONE_REGISTERED} 'unknown'"):
        resolve("unknown", registry=registry)


@pytest.mark.parametrize("name", [None, "default"])
def test_absent_embedded_model_is_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    def absent() -> Path:
        raise ModelFileError("the default model is not installed")

    monkeypatch.setattr(local, "find_default_model", absent)
    with pytest.raises(LocalModelMissingError, match=NONE_CONFIGURED):
        resolve(name, registry=registry)


def test_embedded_model_is_its_digest(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_default_model", lambda: Path("/somewhere"))
    choice = resolve(None, registry=registry)
    assert (choice.model_id, choice.sha256) == (DEFAULT_MODEL_ID, DEFAULT_SHA256)


# With an adapter.


def add_adapter(registry: Registry, model: Path, *, name: str = "tuned") -> str:
    path = make_adapter(model.with_name(f"{name}.gguf"))
    registry.add(name, path, sha256_of(path), base=sha256_of(model))
    return sha256_of(path)


def test_an_adapter_includes_its_base(byte_model: Path, registry: Registry) -> None:
    adapter = add_adapter(registry, byte_model)
    with pytest.raises(ConfigError, match=r"^'tuned' is an adapter"):
        resolve("tuned", registry=registry)
    digest = sha256_of(byte_model)
    assert resolve_digest(digest, adapter=adapter, registry=registry) is None
    registry.add("byte", byte_model, digest)
    choice = resolve("tuned", registry=registry)
    assert (choice.model_id, choice.path, choice.sha256) == (
        "tuned",
        byte_model,
        digest,
    )
    assert (choice.adapter, choice.adapter_sha256) == (
        byte_model.with_name("tuned.gguf"),
        adapter,
    )
    assert resolve_digest(digest, adapter=adapter, registry=registry) == choice
    plain = resolve_digest(digest, registry=registry)
    assert plain is not None
    assert plain.adapter is None
    assert resolve_digest("00" * 32, registry=registry) is None


def test_the_embedded_model_is_known_by_its_digest(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_default_model", lambda: Path("/somewhere"))
    choice = resolve_digest(DEFAULT_SHA256, registry=registry)
    assert choice == resolve(None, registry=registry)


async def test_an_adapter_answers(byte_model: Path, registry: Registry) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    adapter = add_adapter(registry, byte_model, name="answers")
    registry.add("byte", byte_model, sha256_of(byte_model))
    model = LocalModel.open(
        "answers", registry=registry, computing=Computing(threads=1)
    )
    await model.start()
    assert model.info.adapter_sha256 == adapter
    await model.close()


async def test_another_adapter_is_refused_at_start(
    byte_model: Path, registry: Registry
) -> None:
    add_adapter(registry, byte_model, name="changed")
    registry.add("byte", byte_model, sha256_of(byte_model))
    choice = resolve("changed", registry=registry)
    verify_choice(choice)
    byte_model.with_name("changed.gguf").write_bytes(b"GGUF")
    with pytest.raises(LocalModelDigestError):
        verify_choice(choice)
    with pytest.raises(LocalModelDigestError):
        await LocalModel.of(choice).start()


# Starting.


async def test_wrong_digest_is_refused_at_start(
    byte_model: Path, registry: Registry
) -> None:
    model = LocalModel.open(str(byte_model), sha256="00" * 32, registry=registry)
    with pytest.raises(LocalModelDigestError):
        await model.start()
    with pytest.raises(LocalModelFailedError, match="not running"):
        await collect(model)


async def test_missing_file_is_refused_at_start(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "none.gguf"
    model = LocalModel.open(str(path), sha256="00" * 32, registry=registry)
    with pytest.raises(LocalModelMissingError, match="cannot be opened"):
        await model.start()


async def test_missing_extra_is_named() -> None:
    model = LocalModel(raising(EngineMissingError("llama_cpp")), model_id="x")
    with pytest.raises(LocalModelMissingError, match=r"extra 'llm' \(llama_cpp\)"):
        await model.start()


async def test_who_gives_up_at_the_start_leaves_no_process(
    byte_model: Path, registry: Registry
) -> None:
    digest = sha256_of(byte_model)
    model = LocalModel.open(str(byte_model), sha256=digest, registry=registry)
    starting = asyncio.create_task(model.start())
    while not engines():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.001)
    starting.cancel()
    await asyncio.wait([starting])
    assert not engines()


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ModelFileError("bad file"), LocalModelMissingError),
        (ModelDigestError(expected="a", found="b"), LocalModelDigestError),
        (TemplateError("bad template"), LocalModelFailedError),
        (EngineFailedError("no AVX2"), LocalModelFailedError),
        (EngineCrashedError(-9), LocalModelCrashedError),
    ],
)
async def test_failed_start_is_said_in_the_clients_terms(
    problem: InferenceError, expected: type[LocalModelError]
) -> None:
    model = LocalModel(raising(problem), model_id="x")
    with pytest.raises(expected):
        await model.start()
    with pytest.raises(LocalModelFailedError):
        _ = model.info


async def test_starting_twice_is_starting_once() -> None:
    model, _ = await scripted()
    await model.start()
    assert model.info == SCRIPTED_INFO


@pytest.mark.parametrize(
    ("problem", "code", "reason"),
    [
        (EngineCrashedError(-9), "local_crashed", LocalFailure.CRASHED),
        (EngineHungError(), "local_hung", LocalFailure.HUNG),
        (EngineRestartingError(), "local_restarting", LocalFailure.RESTARTING),
        (ModelFileError("gone"), "local_model_missing", LocalFailure.UNAVAILABLE),
        (
            ModelDigestError(expected="a", found="b"),
            "local_model_changed",
            LocalFailure.UNAVAILABLE,
        ),
        (EngineBusyError("full"), "rate_limit_exceeded", LocalFailure.BUSY),
    ],
)
async def test_how_an_engine_ends_has_a_code(
    problem: InferenceError, code: str, reason: LocalFailure
) -> None:
    model, _ = await scripted(Script(pieces=[], fault=problem))
    with pytest.raises(LocalModelError) as caught:
        await collect(model)
    assert (caught.value.code, caught.value.reason) == (code, reason)
    if isinstance(problem, EngineCrashedError | EngineHungError):
        assert str(caught.value).endswith("; ask again")


# How much it reads at once.


async def test_a_context_that_cannot_be_had_is_refused_at_start(
    byte_model: Path, registry: Registry
) -> None:
    digest = sha256_of(byte_model)
    model = LocalModel.open(
        str(byte_model), sha256=digest, registry=registry, context_tokens=2049
    )
    with pytest.raises(ConfigError, match="2049"):
        await model.start()


@pytest.mark.parametrize(("asked", "tokens"), [(None, 2048), (2048, 2048), (512, 512)])
async def test_the_context_is_reported(
    byte_model: Path, registry: Registry, asked: int | None, tokens: int
) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    digest = sha256_of(byte_model)
    model = LocalModel.open(
        str(byte_model), sha256=digest, registry=registry, context_tokens=asked
    )
    await model.start()
    try:
        assert model.context_tokens == tokens
    finally:
        await model.close()


async def test_the_context_is_told_before_the_model_is_loaded(
    byte_model: Path, registry: Registry
) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    lines: list[str] = []
    model = LocalModel.open(
        str(byte_model),
        sha256=sha256_of(byte_model),
        registry=registry,
        # Too wide for this model, which the library says once it is loaded.
        computing=Computing(kv_type="q8_0"),
        sized=lines.append,
    )
    with pytest.raises(LocalModelFailedError):
        await model.start()
    (line,) = lines
    assert line.startswith("local model byte: context 2,048 tokens (trained for 2,048;")


@pytest.mark.parametrize(
    ("computing", "words"),
    [
        (Computing(kv_type="q8_0"), "kv_type f16"),
        (Computing(gpu_layers=1), "without GPU support"),
    ],
)
async def test_what_the_engine_cannot_compute_is_refused_at_start(
    byte_model: Path, registry: Registry, computing: Computing, words: str
) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    model = LocalModel.open(
        str(byte_model),
        sha256=sha256_of(byte_model),
        registry=registry,
        computing=computing,
    )
    with pytest.raises(LocalModelFailedError, match=words):
        await model.start()


def test_the_context_is_not_known_before_the_start() -> None:
    model = LocalModel(ScriptedEngine, model_id="x")
    assert model.context_tokens is None
    assert not model.sha256


# Loaded while questions are answered.


async def test_a_question_waits_for_what_is_being_loaded() -> None:
    go = threading.Event()

    def slowly() -> ScriptedEngine:
        go.wait(60)
        return ScriptedEngine()

    model = LocalModel(slowly, model_id="x")
    model.warm()
    asked = asyncio.ensure_future(collect(model))
    given_up = asyncio.ensure_future(collect(model))
    await asyncio.sleep(0)
    given_up.cancel()  # cancelling one caller stops no other's model
    await asyncio.wait([given_up])
    assert not asked.done()
    go.set()
    assert isinstance((await asked)[-1], Finished)
    await model.close()


async def test_a_failed_load_is_reported_to_every_caller(
    byte_model: Path, registry: Registry
) -> None:
    model = LocalModel.open(str(byte_model), sha256="00" * 32, registry=registry)
    assert (model.sha256, model.context_tokens) == ("00" * 32, 2048)
    told: list[str] = []
    model.warm(told.append)
    for _ in range(2):
        with pytest.raises(LocalUnavailableError, match="is another file"):
            await collect(model)
    await model.close()
    # Without a question too: a server would look ready.
    (line,) = told
    assert line.startswith("the local model is not loaded: ")
    assert "is another file" in line


class Loading(ScriptedEngine):
    """An engine that loads for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.closed = asyncio.Event(), False

    @override
    async def start(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()

    @override
    async def close(self) -> None:
        self.closed = True


async def test_closing_ends_what_is_being_loaded() -> None:
    engine = Loading()
    model = LocalModel(lambda: engine, model_id="x")
    model.warm()
    waiting = asyncio.create_task(collect(model))
    await engine.begun.wait()
    async with asyncio.timeout(30):
        await model.close()
        with pytest.raises(LocalModelFailedError, match="not running"):
            await waiting
    assert engine.closed
    with pytest.raises(LocalModelFailedError, match="not running"):
        await collect(model)


# Memory that is short.


async def test_weights_that_memory_does_not_hold_are_not_loaded(
    byte_model: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "available_memory", lambda: 1 << 10)
    digest = sha256_of(byte_model)
    model = LocalModel.open(str(byte_model), sha256=digest, registry=registry)
    with pytest.raises(LocalModelMemoryError, match="models recommend") as error:
        await model.start()
    assert error.value.code == "local_out_of_memory"
    # Left alone for a while, and then tried again.
    with pytest.raises(LocalModelMemoryError):
        await collect(model)
    monkeypatch.setattr(local, "AGAIN_S", 0.0)
    with pytest.raises(LocalModelMemoryError):
        await model.start()
    monkeypatch.undo()
    assert isinstance((await collect(model))[-1], Finished)
    await model.close()


@pytest.mark.parametrize(("asked", "tokens"), [(None, 1024), (2048, None)])
async def test_a_default_context_shrinks_with_memory(
    byte_model: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    asked: int | None,
    tokens: int | None,
) -> None:
    size_bytes = len(await asyncio.to_thread(byte_model.read_bytes))
    shape = read_shape(byte_model)
    assert shape is not None
    room = shape.memory_bytes(size_bytes, 1500)
    monkeypatch.setattr(local, "available_memory", lambda: room)
    model = LocalModel.open(
        str(byte_model),
        sha256=sha256_of(byte_model),
        registry=registry,
        context_tokens=asked,
    )
    if tokens is None:
        with pytest.raises(ConfigError, match="memory"):
            await model.start()
        return
    await model.start()
    assert model.context_tokens == tokens
    await model.close()


@pytest.mark.parametrize(
    ("contexts", "asked", "sequences"),
    [(3, None, 1), (6, None, 1), (7, None, 2), (13, 5, 5)],
)
async def test_queries_at_a_time_are_as_many_as_memory_holds(  # noqa: PLR0917
    byte_model: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    contexts: int,
    asked: int | None,
    sequences: int,
) -> None:
    size_bytes = len(await asyncio.to_thread(byte_model.read_bytes))
    shape = read_shape(byte_model)
    assert shape is not None
    room = shape.memory_bytes(size_bytes, shape.trained_context, contexts=contexts)
    monkeypatch.setattr(local, "available_memory", lambda: room)
    model = LocalModel.open(
        str(byte_model),
        sha256=sha256_of(byte_model),
        registry=registry,
        sequences=asked,
    )
    await model.start()
    assert model.info.sequences == sequences
    await model.close()


async def test_as_many_queries_are_answered_at_a_time_as_the_engine_can() -> None:
    engine = ScriptedEngine(Script(pieces=["a"] * 9, delay_s=3600), sequences=2)
    model = LocalModel(lambda: engine, model_id="x")
    await model.start()
    tasks = [asyncio.create_task(collect(model)) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert (engine.load().running, engine.load().queued) == (2, 0)
    tasks[0].cancel()
    await asyncio.sleep(0.05)
    assert len(engine.requests) == 3
    assert engine.load().running == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await model.close()


async def test_an_engine_that_memory_ended_is_started_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = [
        ScriptedEngine(Script(fault=EngineMemoryError(1024), fault_after=1)),
        ScriptedEngine(),
    ]
    model = LocalModel(lambda: engines.pop(0), model_id="x")
    await model.start()
    with pytest.raises(LocalModelMemoryError):
        await collect(model)
    with pytest.raises(LocalModelMemoryError):
        await collect(model)
    assert len(engines) == 1
    monkeypatch.setattr(model, "_again_s", 0.0)
    assert isinstance((await collect(model))[-1], Finished)
    assert not engines


# Answering.


async def test_answer_comes_in_pieces() -> None:
    model, engine = await scripted(Script(pieces=("a", "", "b"), prompt_tokens=5))
    assert await collect(model) == [
        Delta(text="a", prompt_tokens=5),
        Delta(text="b"),
        Finished(finish_reason="stop", prompt_tokens=5, completion_tokens=3),
    ]
    assert engine.requests[0].messages[0].content == "hello canary"


async def test_settings_are_handed_on() -> None:
    model, engine = await scripted()
    settings = Settings(
        max_tokens=9, temperature=0.5, top_p=0.4, seed=3, stop=("x",), logprobs=True
    )
    events = await collect(model, Query(messages=HELLO.messages, settings=settings))
    asked = engine.requests[0].settings
    assert (asked.max_tokens, asked.temperature, asked.top_p) == (9, 0.5, 0.4)
    assert (asked.seed, asked.stop, asked.logprobs) == (3, ("x",), True)
    assert isinstance(events[0], Delta)
    assert events[0].logprobs[0][0] == "Hello"


async def test_it_says_which_model_and_template_run() -> None:
    model = LocalModel(ScriptedEngine, model_id="scripted")
    before = model.digests
    await model.start()
    assert before is None
    running = (SCRIPTED_INFO.model_sha256, SCRIPTED_INFO.template_sha256)
    assert model.digests == running
    await model.close()
    assert model.digests != running


async def test_signals_come_apart_from_logprobs() -> None:
    model, _ = await scripted(Script(pieces=("a",), probability=0.8))
    async with aclosing(model.generate(HELLO, signals=True)) as events:
        first = await anext(events)
    assert isinstance(first, Delta)
    assert first.logprobs == ()
    (signal,) = first.signals
    assert signal.logprob == pytest.approx(math.log(0.8))
    assert signal.margin == pytest.approx(math.log(4))


async def test_signals_are_only_returned_on_request() -> None:
    model, engine = await scripted()
    settings = Settings(logprobs=True)
    events = await collect(model, Query(messages=HELLO.messages, settings=settings))
    assert all(each.signals == () for each in events if isinstance(each, Delta))
    assert not engine.requests[0].settings.margins


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (EngineBusyError("busy"), LocalModelBusyError),
        (EngineClosedError("closed"), LocalModelFailedError),
        (EngineFailedError("failed"), LocalModelFailedError),
        (TemplateError("refused"), LocalModelFailedError),
    ],
)
async def test_engine_errors_are_said_in_the_clients_terms(
    problem: InferenceError, expected: type[LocalModelError]
) -> None:
    model, _ = await scripted(Script(fault=problem))
    with pytest.raises(expected) as failure:
        await collect(model)
    assert isinstance(failure.value, LocalUnavailableError)
    assert "canary" not in repr(failure.value)


async def test_overflow_keeps_its_counts() -> None:
    fault = ContextTooLongError(prompt_tokens=5, max_tokens=6, context_tokens=7)
    model, _ = await scripted(Script(fault=fault))
    with pytest.raises(LocalContextTooLongError) as failure:
        await collect(model)
    error = failure.value
    assert (error.prompt_tokens, error.max_tokens, error.context_tokens) == (5, 6, 7)


@pytest.mark.parametrize(
    "query",
    [
        Query(messages=()),
        Query(messages=(Message(role="user", content="canary \ud800"),)),
        Query(messages=HELLO.messages, settings=Settings(max_tokens=0)),
    ],
    ids=["no message", "surrogate", "no tokens"],
)
async def test_wrong_request_is_the_users_error(query: Query) -> None:
    model, _ = await scripted()
    with pytest.raises(UsageError) as failure:
        await collect(model, query)
    assert "canary" not in repr(failure.value)


UNENFORCED: dict[str, object] = {
    "properties": {"canary": {"type": "object", "minProperties": 1}}
}
STRICT: dict[str, object] = {
    "name": "lose",
    "parameters": {"type": "object", **UNENFORCED},
    "strict": True,
}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        (
            {"tools": [{"name": "find"}, STRICT]},
            "tools[1].function.parameters",
            "minProperties, at properties[0]",
        ),
        (
            {"response_format": {"name": "x", "schema": UNENFORCED, "strict": True}},
            "response_format.json_schema.schema",
            "minProperties, at properties[0]",
        ),
        (
            {"response_format": {"name": "x", "schema": {"items": 1}}},
            "response_format.json_schema.schema",
            "at items",
        ),
        (
            {"tools": [{"name": "a", "parameters": {"enum": [1] * 32_000}}]},
            "tools[0]",
            "characters",
        ),
        ({"messages": ["hi", "canary \ud800"]}, "messages[1]", "UTF-8"),
        ({"stop": ("canary \ud800",)}, "stop", "UTF-8"),
    ],
)
async def test_an_error_of_the_request_names_its_field(
    fields: dict[str, Any], field: str, said: str
) -> None:
    turns = fields.get("messages", ["hello"])
    wanted = fields.get("response_format")
    query = Query(
        messages=tuple(Message(role="user", content=each) for each in turns),
        settings=Settings(stop=fields.get("stop", ())),
        tools=tuple(map(document, fields.get("tools", ()))),
        response_format=wanted
        and document({"type": "json_schema", "json_schema": wanted}),
    )
    model, _ = await scripted()
    with pytest.raises(UsageError) as failure:
        await collect(model, query)
    assert failure.value.param == field
    assert str(failure.value).startswith(f"{field}: ")
    assert said in str(failure.value)
    assert "canary" not in repr(failure.value)


async def test_stopped_engine_gives_no_complete_answer() -> None:
    model, _ = await scripted(Script(finish="cancelled"))
    with pytest.raises(LocalModelFailedError, match="stopped"):
        await collect(model)


async def test_an_answer_that_takes_too_long_is_stopped_and_the_next_one_runs() -> None:
    endless = Script(pieces=["word "] * 10_000, delay_s=0.01)
    model, engine = await scripted(endless, Script(), answer_s=0.1)
    with pytest.raises(LocalModelLateError, match=r"within 0\.1 s: ask for") as caught:
        await collect(model)
    assert (caught.value.code, caught.value.http_status) == ("local_late", 504)
    assert caught.value.reason is LocalFailure.LATE
    assert engine.cancelled
    assert engine.load().running == 0
    assert isinstance((await collect(model))[-1], Finished)


async def test_the_time_limit_does_not_count_waiting_for_a_turn() -> None:
    slow = Script(pieces=["word "] * 10, delay_s=0.03)
    model, _ = await scripted(slow, answer_s=2)
    answers = await asyncio.gather(*(collect(model) for _ in range(8)))
    assert all(isinstance(each[-1], Finished) for each in answers)


async def test_closing_the_iterator_closes_the_engines() -> None:
    model, engine = await scripted()
    events = model.generate(HELLO)
    await anext(events)
    await events.aclose()
    assert engine.cancelled == 1
    assert engine.load().running == 0


def asking(max_tokens: int) -> Query:
    return Query(messages=HELLO.messages, settings=Settings(max_tokens=max_tokens))


async def test_many_long_answers_exclude_no_other_caller() -> None:
    model, engine = await scripted()
    first = model.generate(asking(1500))
    await anext(first)
    crowd = [asyncio.create_task(collect(model, asking(1500))) for _ in range(30)]
    await asyncio.sleep(0)
    single = asyncio.create_task(collect(model, asking(300)))
    await asyncio.sleep(0)
    await first.aclose()
    assert (await single)[-1] == Finished(
        finish_reason="stop", prompt_tokens=7, completion_tokens=4
    )
    answered = [request.settings.max_tokens for request in engine.requests]
    assert answered.index(300) == 1
    assert len(await asyncio.gather(*crowd)) == len(crowd)


async def test_beyond_all_bounds_some_may_ask_later() -> None:
    model, _ = await scripted()
    first = model.generate(asking(9))
    await anext(first)
    crowd = [asyncio.create_task(collect(model)) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    await first.aclose()
    answers = await asyncio.gather(*crowd, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [LocalModelBusyError]


async def test_closed_model_answers_nothing() -> None:
    model, _ = await scripted()
    await model.close()
    await model.close()
    with pytest.raises(LocalModelFailedError):
        await collect(model)


async def test_real_engine_answers(byte_model: Path, registry: Registry) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    registry.add("byte", byte_model, sha256_of(byte_model))
    model = LocalModel.open("byte", registry=registry, computing=Computing(threads=1))
    await model.start()
    settings = Settings(max_tokens=8, seed=1)
    events = await collect(model, Query(messages=HELLO.messages, settings=settings))
    await model.close()
    assert isinstance(events[-1], Finished)
    assert events[-1].completion_tokens == 8


@pytest.mark.model
async def test_embedded_model_answers(registry: Registry) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    try:
        model = LocalModel.open(registry=registry)
    except LocalModelMissingError as problem:
        pytest.skip(f"SKIPPED LOUDLY: {problem}")
    await model.start()
    assert model.info.model_sha256 == DEFAULT_SHA256
    settings = Settings(max_tokens=16, temperature=0)
    events = await collect(model, Query(messages=HELLO.messages, settings=settings))
    await model.close()
    assert isinstance(events[-1], Finished)


# Tools, formats, several answers.

FIND: dict[str, object] = {
    "name": "find",
    "description": "Finds",
    "parameters": {"type": "object", "properties": {"who": {"type": "string"}}},
    "strict": True,
}
WANTED: dict[str, object] = {
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True},
}


def document(value: object) -> Document:
    return Document.of(value, schema=True)


async def test_everything_asked_reaches_the_engine() -> None:
    model, engine = await scripted()
    call = ToolCall(number=1, name="find", arguments=Document.of({"who": "Ann"}))
    query = Query(
        messages=(
            *HELLO.messages,
            Message(role="assistant", content="", calls=(call,)),
            Message(role="tool", content="nobody", result_of=1),
        ),
        settings=Settings(
            logprobs=True,
            top_logprobs=2,
            presence_penalty=0.5,
            frequency_penalty=-0.25,
        ),
        tools=(document(FIND), document({"name": "lose"})),
        tool_choice="find",
        parallel_tool_calls=False,
        response_format=document(WANTED),
    )
    await collect(model, query)
    (asked,) = engine.requests
    assert [(each.name, each.description, each.strict) for each in asked.tools] == [
        ("find", "Finds", True),
        ("lose", "", False),
    ]
    assert json.loads(asked.tools[0].parameters) == FIND["parameters"]
    assert asked.tool_choice == NamedTool(name="find")
    assert not asked.parallel_tool_calls
    assert asked.response_format == JsonSchema(
        name="x", schema='{"type": "object"}', strict=True
    )
    (earlier,) = asked.messages[1].tool_calls
    assert (earlier.id, earlier.name, earlier.arguments) == (
        "call_1",
        "find",
        '{"who":"Ann"}',
    )
    assert asked.messages[2].tool_call_id == "call_1"
    settings = asked.settings
    assert (settings.logprobs, settings.top_logprobs) == (True, 2)
    assert (settings.presence_penalty, settings.frequency_penalty) == (0.5, -0.25)


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
async def test_a_choice_reaches_the_engine(choice: str) -> None:
    model, engine = await scripted()
    query = replace(HELLO, tools=(document(FIND),), tool_choice=choice)
    await collect(model, query)
    assert engine.requests[0].tool_choice == choice


async def test_any_json_is_asked_for() -> None:
    model, engine = await scripted()
    wanted = document({"type": "json_object"})
    await collect(model, replace(HELLO, response_format=wanted))
    assert engine.requests[0].response_format == JsonObject()


CALLED = EngineCall(id="x", name="find", arguments='{"who": "Ann"}')


async def test_a_call_is_an_event() -> None:
    model, _ = await scripted(Script(pieces=("So ", CALLED, CALLED)))
    text, *calls, end = await collect(model, replace(HELLO, tools=(document(FIND),)))
    assert text == Delta(text="So ", prompt_tokens=7)
    assert calls == [
        Delta(
            text="",
            calls=(Called(index=index, name="find", arguments='{"who": "Ann"}'),),
        )
        for index in (0, 1)
    ]
    assert isinstance(end, Finished)
    assert end.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ((), "auto"),
        ((document(FIND),), "none"),
        ((document(FIND), document({**FIND, "name": "lose"})), "lose"),
    ],
    ids=["no tools", "none chosen", "another chosen"],
)
async def test_a_call_that_was_not_offered_is_a_failure(
    tools: tuple[Document, ...], choice: str
) -> None:
    class Calling(ScriptedEngine):
        @override
        async def generate(
            self, request: GenerateRequest, *, cancel: CancelToken | None = None
        ) -> AsyncGenerator[Event]:
            yield Started(prompt_tokens=1)
            yield EngineCalled(index=0, call=CALLED)

    model = LocalModel(Calling, model_id="scripted")
    await model.start()
    with pytest.raises(LocalModelFailedError):
        await collect(model, replace(HELLO, tools=tools, tool_choice=choice))


async def test_several_answers_follow_each_other() -> None:
    model, engine = await scripted(
        Script(pieces=("a", "b")), Script(pieces=("c",), finish="length")
    )
    query = replace(HELLO, settings=Settings(n=2, seed=5))
    *pieces, end = await collect(model, query)
    assert [(each.choice, each.text) for each in pieces if isinstance(each, Delta)] == [
        (0, "a"),
        (0, "b"),
        (1, "c"),
    ]
    assert end == Finished(
        finish_reason="stop",
        prompt_tokens=7,
        completion_tokens=3,
        others=("length",),
    )
    assert [each.settings.seed for each in engine.requests] == [5, 6]


SEVERAL = replace(HELLO, settings=Settings(n=2))


async def several(*scripts: Script) -> tuple[LocalModel, ScriptedEngine]:
    """A model that answers two at a time."""
    engine = ScriptedEngine(*scripts, sequences=2)
    model = LocalModel(lambda: engine, model_id="x")
    await model.start()
    return model, engine


async def test_several_answers_are_written_at_the_same_time() -> None:
    model, engine = await several(
        Script(pieces=("a", "b"), delay_s=0.02), Script(pieces=("c",), delay_s=0.03)
    )
    *pieces, end = await collect(model, SEVERAL)
    texts = [(each.choice, each.text) for each in pieces if isinstance(each, Delta)]
    assert texts == [(0, "a"), (1, "c"), (0, "b")]
    assert isinstance(end, Finished)
    assert (end.completion_tokens, end.others) == (3, ("stop",))
    assert engine.load().running == 0


@pytest.mark.parametrize(("tokens", "place"), [(600, 2), (901, 3)])
async def test_several_answers_take_the_place_of_no_other_caller(
    tokens: int, place: int
) -> None:
    model, engine = await several(Script(pieces=["a"] * 3, delay_s=0.01))

    async def asks(query: Query) -> None:
        # A connection of the endpoint.
        ASKER.set(Asker())
        await collect(model, query)

    settings = Settings(n=4, max_tokens=900)
    many = asyncio.create_task(asks(replace(HELLO, settings=settings)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asks(asking(tokens))
    await many
    limits = [each.settings.max_tokens for each in engine.requests]
    assert limits.index(tokens) == place
    assert len(limits) == 5


async def test_closing_the_iterator_ends_several_answers() -> None:
    slow = Script(delay_s=3600)
    model, engine = await several(Script(), slow, Script())
    async with aclosing(model.generate(SEVERAL)) as events:
        await anext(events)
        assert engine.load().running == 2
    assert engine.load().running == 0
    # Both turns were given back.
    assert len(await collect(model, SEVERAL)) > 0


async def test_one_of_several_answers_that_fails_ends_the_others() -> None:
    fault = EngineFailedError("broken")
    model, engine = await several(
        Script(delay_s=3600), Script(fault=fault, fault_after=1)
    )
    events = model.generate(SEVERAL)
    assert await anext(events) == Delta(text="Hello", choice=1, prompt_tokens=7)
    with pytest.raises(LocalModelFailedError):
        await anext(events)
    assert engine.load().running == 0


async def test_without_the_end_of_one_several_answers_have_none() -> None:
    model, _ = await several(Script(), Script(finish="cancelled"))
    with pytest.raises(LocalModelFailedError, match="stopped"):
        await collect(model, SEVERAL)


async def test_the_likeliest_tokens_are_reported() -> None:
    model, _ = await scripted(Script(pieces=("a",), probability=0.75, second="b"))
    query = replace(HELLO, settings=Settings(logprobs=True, top_logprobs=2))
    piece, _ = await collect(model, query)
    assert isinstance(piece, Delta)
    assert piece.logprobs == (("a", math.log(0.75)),)
    assert piece.tops == ((("a", math.log(0.75)), ("b", math.log(0.25))),)
