"""An OpenAI-compatible server as the enclave's engine."""

import asyncio
import json
import os
import re
import traceback
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from typing_extensions import override

from curtilage.enclave_server import peer as peer_module
from curtilage.enclave_server.config import Peer
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    EngineCrashedError,
    EngineHungError,
    ModelError,
    ModelUnavailableError,
    PromptTooLongError,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatMessage
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun, Ending, Piece
from curtilage.enclave_server.ohttp.tools import ChatCall, ChatFormat, ChatTool
from curtilage.enclave_server.peer import (
    OTHER_MODEL,
    SILENT,
    UNREACHABLE,
    PeerModel,
)
from curtilage.enclave_server.peer_messages import request_body
from curtilage.enclave_server.telemetry import Reason
from curtilage.enclave_server.toml_reader import Listen
from support.engine_events import STOP, WHOLE, piece

CANARY = "canary-c4f1"
CHAT = ChatCompletionRequest(messages=(ChatMessage(role="user", content=CANARY),))
NAME = "ward/model-8b"


class Engine:
    """A server of OpenAI's API with one script."""

    def __init__(self, *events: bytes, status: int = 200) -> None:
        self.events = events
        self.status = status
        self.lists = NAME
        self.listed = 0
        self.requests: list[dict[str, object]] = []
        self.left = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def models(self, _request: web.Request) -> web.Response:
        self.listed += 1
        return web.json_response({"data": [{"id": self.lists}, {"id": "other"}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        if self.status != 200:
            return web.Response(status=self.status, body=b"".join(self.events))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for each in self.events:
                await response.write(each)
                await self.go.wait()
        except (ConnectionError, asyncio.CancelledError):
            self.left.set()
            raise
        return response


@asynccontextmanager
async def listening(engine: Engine, folder: Path) -> AsyncGenerator[None]:
    app = web.Application()
    app.router.add_get("/v1/models", engine.models)
    app.router.add_post("/v1/chat/completions", engine.chat)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.UnixSite(runner, str(folder / "engine.sock")).start()
    try:
        yield
    finally:
        engine.go.set()
        await runner.cleanup()


@asynccontextmanager
async def asking(
    folder: Path, *, parallel: int = 4, queue: int = 4, stall_s: float = 300
) -> AsyncGenerator[PeerModel]:
    """Yield a model of the engine that listens in this folder, if one does."""
    place = Listen(path=folder / "engine.sock")
    peer = Peer(address=place, name=NAME, parallel=parallel, stall_s=stall_s)
    model = PeerModel(peer, max_queued=queue)
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def served(
    engine: Engine,
    folder: Path,
    *,
    parallel: int = 4,
    queue: int = 4,
    stall_s: float = 300,
) -> AsyncGenerator[PeerModel]:
    asked = asking(folder, parallel=parallel, queue=queue, stall_s=stall_s)
    async with listening(engine, folder), asked as model:
        yield model


def states_of(model: PeerModel) -> asyncio.Queue[str]:
    """Return what is wrong with it, each time that this changes; empty: nothing."""
    states = asyncio.Queue[str]()

    def failed(reason: Reason, why: str) -> None:
        assert reason is Reason.MODEL_UNAVAILABLE
        assert model.failing is reason
        states.put_nowait(why)

    def loaded() -> None:
        assert model.failing is None
        states.put_nowait("")

    model.report_to(loaded, failed)
    return states


async def answers(model: PeerModel, chat: ChatCompletionRequest = CHAT) -> list[Answer]:
    return [each async for each in model.answer(chat)]


async def test_an_answer_comes_in_pieces_with_its_counts(tmp_path: Path) -> None:
    engine = Engine(*WHOLE)
    async with served(engine, tmp_path) as model:
        await model.start()
        assert await answers(model) == [
            Begun(),
            Piece(text="From "),
            Piece(text="near."),
            Ending(finish_reason="stop", prompt_tokens=5, completion_tokens=2),
        ]
        assert (model.name, model.sha256) == (NAME, "")
    (asked,) = engine.requests
    assert asked["model"] == NAME
    assert asked["messages"] == [{"role": "user", "content": CANARY}]
    assert asked["stream"] is True


async def test_the_engine_is_waited_for_until_it_lists_the_model(
    tmp_path: Path,
) -> None:
    socket = tmp_path / "engine.sock"
    model = PeerModel(Peer(address=Listen(path=socket), name=NAME), max_queued=1)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with pytest.raises(ModelError):
        await model.start(sleep=sleep)
    assert sum(slept) >= 1799
    await model.close()
    async with served(Engine(), tmp_path) as found:
        await found.start(sleep=sleep)


async def test_an_engine_without_the_model_is_refused(tmp_path: Path) -> None:
    async with served(Engine(), tmp_path):
        peer = Peer(address=Listen(path=tmp_path / "engine.sock"), name="absent")
        other = PeerModel(peer, max_queued=1)
        with pytest.raises(ModelError) as caught:
            await other.start()
        assert type(caught.value) is ModelError
        await other.close()


async def test_closing_the_iterator_stops_the_engine(tmp_path: Path) -> None:
    engine = Engine(*WHOLE)
    engine.go.clear()
    async with served(engine, tmp_path) as model:
        stream = model.answer(CHAT)
        assert await anext(stream) == Begun()
        assert await anext(stream) == Piece(text="From ")
        await stream.aclose()
        async with asyncio.timeout(10):
            await engine.left.wait()


async def test_more_than_may_wait_are_refused_as_busy(tmp_path: Path) -> None:
    engine = Engine(*WHOLE)
    engine.go.clear()
    async with served(engine, tmp_path, parallel=1, queue=1) as model:
        running = model.answer(CHAT)
        await anext(running)
        waiting = asyncio.ensure_future(answers(model))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await answers(model)
        engine.go.set()
        await running.aclose()
        assert (await waiting)[-1] == Ending(
            finish_reason="stop", prompt_tokens=5, completion_tokens=2
        )
    assert len(engine.requests) == 2


REFUSALS = [
    (503, b"", BusyError),
    (429, b"", BusyError),
    (500, CANARY.encode(), ModelError),
    (302, b"", ModelError),
    (404, CANARY.encode(), ModelUnavailableError),
    (502, b"", ModelUnavailableError),
    (504, b"", ModelUnavailableError),
    (400, b"not JSON", ChatError),
    (400, b'{"error": {"message": "bad role"}}', ChatError),
    (400, b'{"error": {"type": "exceed_context_size_error"}}', PromptTooLongError),
    (
        400,
        b'{"object": "error", "message": "maximum context length is 8192 tokens"}',
        PromptTooLongError,
    ),
]


@pytest.mark.parametrize(("status", "body", "error"), REFUSALS)
async def test_a_refusal_of_the_engine_has_its_error(
    tmp_path: Path, status: int, body: bytes, error: type[Exception]
) -> None:
    async with served(Engine(body, status=status), tmp_path) as model:
        with pytest.raises(error) as caught:
            await answers(model)
    assert type(caught.value) is error
    # Which field it is, only the engine's text says.
    assert getattr(caught.value, "param", None) is None
    assert CANARY not in "".join(traceback.format_exception(caught.value))


async def test_an_answer_of_another_type_is_refused(tmp_path: Path) -> None:
    class Json(Engine):
        @override
        async def chat(self, request: web.Request) -> web.StreamResponse:
            return web.json_response({"choices": [], "asked": request.method})

    async with served(Json(), tmp_path) as model:
        with pytest.raises(ModelError):
            await answers(model)


async def test_a_socket_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    engine = Engine(*WHOLE)
    async with served(engine, tmp_path) as model:
        os.chmod(tmp_path, 0o777)  # noqa: PTH101, S103 - ours
        with pytest.raises(ModelError):
            await answers(model)
        with pytest.raises(ModelError) as caught:
            await model.start()
        assert type(caught.value) is ModelError
        os.chmod(tmp_path, 0o700)  # noqa: PTH101 - ours
    assert engine.requests == []


async def test_an_engine_that_is_gone_is_an_error_without_the_question(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as model:
        for _ in range(2):
            with pytest.raises(ModelUnavailableError) as caught:
                await answers(model)
            assert CANARY not in "".join(traceback.format_exception(caught.value))
            # At first there is no socket, then none that anything listens at.
            async with listening(Engine(*WHOLE), tmp_path):
                pass


async def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    async with served(Engine(piece("From "), STOP), tmp_path) as model:
        with pytest.raises(EngineCrashedError):
            await answers(model)


class Dropping(Engine):
    """It ends the connection after some events, or before it says anything."""

    @override
    async def chat(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if self.events:
            await response.prepare(request)
        for each in self.events:
            await response.write(each)
        assert request.transport is not None
        request.transport.abort()
        await asyncio.Event().wait()
        return response


@pytest.mark.parametrize("events", [(), (piece("From "),)], ids=["at once", "later"])
async def test_an_engine_that_ends_the_connection_crashed(
    tmp_path: Path, events: tuple[bytes, ...]
) -> None:
    async with served(Dropping(*events), tmp_path) as model:
        with pytest.raises(EngineCrashedError) as caught:
            await answers(model)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


async def test_an_engine_that_ends_is_known_until_it_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "IDLE_S", 0.01)
    monkeypatch.setattr(peer_module, "LOOK_S", 0.01)
    engine = Engine()
    async with asking(tmp_path) as model, asyncio.timeout(20):
        async with listening(engine, tmp_path):
            await model.start()
            states = states_of(model)
            assert model.failing is None
        assert await states.get() == UNREACHABLE
        late = states_of(model)
        assert late.get_nowait() == UNREACHABLE
        async with listening(engine, tmp_path):
            assert await late.get() == ""


async def test_an_engine_that_lists_another_model_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "IDLE_S", 0.01)
    engine = Engine()
    async with served(engine, tmp_path) as model, asyncio.timeout(20):
        await model.start()
        states = states_of(model)
        engine.lists = "another"
        assert await states.get() == OTHER_MODEL


async def test_a_question_without_an_answer_has_the_engine_looked_at(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as model, asyncio.timeout(20):
        async with listening(Engine(), tmp_path):
            await model.start()
            states = states_of(model)
        with pytest.raises(ModelUnavailableError):
            await answers(model)
        assert await states.get() == UNREACHABLE


async def test_an_engine_in_use_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "IDLE_S", 0.01)
    asked = asyncio.Queue[None]()

    class InUse(PeerModel):
        @override
        def _unheard_s(self) -> float:
            asked.put_nowait(None)
            return 0.0

    engine = Engine()
    peer = Peer(address=Listen(path=tmp_path / "engine.sock"), name=NAME)
    async with listening(engine, tmp_path), asyncio.timeout(20):
        model = InUse(peer, max_queued=1)
        await model.start()
        for _ in range(3):
            await asked.get()
        assert engine.listed == 1
        await model.close()


async def test_an_engine_that_lists_nothing_in_time_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mute(Engine):
        @override
        async def models(self, _request: web.Request) -> web.Response:
            await asyncio.Event().wait()
            return web.Response()

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(peer_module, "LIST_S", 0.05)
    monkeypatch.setattr(peer_module, "START_S", 2.0)
    async with served(Mute(), tmp_path) as model, asyncio.timeout(20):
        with pytest.raises(ModelError):
            await model.start(sleep=sleep)
    assert slept == [1.0]


async def test_an_engine_that_writes_nothing_hangs_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "LOOK_S", 0.01)
    engine = Engine(*WHOLE)
    engine.go.clear()
    async with (
        served(engine, tmp_path, stall_s=0.3) as model,
        asyncio.timeout(20),
    ):
        await model.start()
        states = states_of(model)
        with pytest.raises(EngineHungError):
            await answers(model)
        assert await states.get() == SILENT
        # Its list of models says nothing about that.
        while engine.listed < 4:  # noqa: ASYNC110 - the server's own count
            await asyncio.sleep(0.01)
        assert model.failing is Reason.MODEL_UNAVAILABLE
        assert states.empty()
        engine.go.set()
        await answers(model)
        assert await states.get() == ""


class Pinging(Engine):
    """It keeps the connection alive, and writes nothing."""

    @override
    async def chat(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b": ping\n\n")
            await asyncio.sleep(0.02)


class Headless(Engine):
    """It does not even send a head."""

    @override
    async def chat(self, request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.StreamResponse()


@pytest.mark.parametrize("engine", [Pinging, Headless])
async def test_neither_comments_nor_no_head_are_an_answer(
    tmp_path: Path, engine: type[Engine]
) -> None:
    async with (
        served(engine(), tmp_path, stall_s=0.3) as model,
        asyncio.timeout(20),
    ):
        with pytest.raises(EngineHungError):
            await answers(model)


async def test_a_question_that_waits_while_others_are_answered_finds_it_busy(
    tmp_path: Path,
) -> None:
    class OneAtATime(Engine):
        @override
        async def chat(self, request: web.Request) -> web.StreamResponse:
            self.requests.append(await request.json())
            first = len(self.requests) == 1
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            while True:
                await response.write(piece("x") if first else b": wait\n\n")
                await asyncio.sleep(0.02)

    async with (
        served(OneAtATime(), tmp_path, stall_s=1) as model,
        asyncio.timeout(20),
    ):
        await model.start()
        states = states_of(model)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in model.answer(CHAT):
                begun.set()

        running = asyncio.ensure_future(read())
        await begun.wait()
        with pytest.raises(BusyError):
            await answers(model)
        assert model.failing is None
        assert states.empty()
        running.cancel()
        await asyncio.wait({running})


# A real engine: CURTILAGE_ENGINE is its address, such as unix:/run/engine.sock or
# 127.0.0.1:8000, and CURTILAGE_ENGINE_MODEL the name of its model, whose chat template
# must know tools.


def engine_address() -> Listen:
    address = os.environ["CURTILAGE_ENGINE"]
    host, _, port = address.rpartition(":")
    if host == "unix":
        return Listen(path=Path(address.removeprefix("unix:")))
    return Listen(host=host, port=int(port))


def model_name() -> str:
    return os.environ["CURTILAGE_ENGINE_MODEL"]


@pytest.fixture
async def real() -> AsyncGenerator[PeerModel]:
    if "CURTILAGE_ENGINE" not in os.environ:
        pytest.skip("SKIPPED LOUDLY: CURTILAGE_ENGINE names no engine to ask")
    model = PeerModel(Peer(address=engine_address(), name=model_name()), max_queued=8)
    await model.start()
    yield model
    await model.close()


SHORT = ChatCompletionRequest(
    messages=(ChatMessage(role="user", content="Count: one, two, three,"),),
    max_tokens=12,
    temperature=0,
    seed=7,
)


async def test_a_real_engine_answers_the_same_twice(real: PeerModel) -> None:
    begun, *pieces, ending = await answers(real, SHORT)
    assert begun == Begun()
    # vLLM may write two tokens at once.
    text, again = (
        "".join(each.text for each in answer if isinstance(each, Piece))
        for answer in (pieces, await answers(real, SHORT))
    )
    assert text
    assert text == again
    assert isinstance(ending, Ending)
    assert ending.finish_reason in {"stop", "length"}
    assert ending.prompt_tokens > 0
    assert 0 < ending.completion_tokens <= 12


async def test_a_real_engine_gives_log_probabilities(real: PeerModel) -> None:
    for answer in await answers(real, replace(SHORT, logprobs=True)):
        assert not isinstance(answer, Piece) or (answer.logprob or 0) <= 0


async def test_a_real_engine_says_that_a_text_is_too_long(real: PeerModel) -> None:
    long = ChatMessage(role="user", content="word " * 200_000)
    with pytest.raises(PromptTooLongError) as caught:
        await answers(real, replace(SHORT, messages=(long,)))
    assert caught.value.too_long is not None


async def test_a_real_engine_ends_at_a_stop_string(real: PeerModel) -> None:
    whole = await answers(real, SHORT)
    text = "".join(each.text for each in whole if isinstance(each, Piece))
    stop = text.strip()[3:5]
    cut = await answers(real, replace(SHORT, stop=(stop,)))
    said = "".join(each.text for each in cut if isinstance(each, Piece))
    assert said == text[: text.index(stop)]


async def test_a_real_engine_serves_several_at_once_and_a_cancel(
    real: PeerModel,
) -> None:
    stopped = real.answer(replace(SHORT, max_tokens=400))
    await anext(stopped)
    running = [asyncio.ensure_future(answers(real, SHORT)) for _ in range(3)]
    await stopped.aclose()
    endings = {(await each)[-1] for each in running}
    assert all(isinstance(each, Ending) for each in endings)


async def test_a_real_engine_gives_alternatives_and_several_answers(
    real: PeerModel,
) -> None:
    # vLLM refuses several answers of temperature 0.
    asked = replace(SHORT, logprobs=True, top_logprobs=2, n=2, temperature=0.5)
    asked = replace(asked, presence_penalty=0.5)
    _, *pieces, ending = await answers(real, asked)
    given = [each for each in pieces if isinstance(each, Piece)]
    assert {each.choice for each in given} == {0, 1}
    assert {len(each.top) for each in given} == {2}
    assert isinstance(ending, Ending)
    assert len(ending.reasons) == 2
    assert len(given) // 2 < ending.completion_tokens <= 24


async def test_a_real_engine_keeps_to_a_schema(real: PeerModel) -> None:
    schema = {
        "type": "object",
        "properties": {"town": {"enum": ["Bern", "Basel"]}},
        "required": ["town"],
        "additionalProperties": False,
    }
    wanted = ChatFormat(name="town", schema=json.dumps(schema), strict=True)
    asked = replace(SHORT, max_tokens=60, response_format=wanted)
    whole = await answers(real, asked)
    text = "".join(each.text for each in whole if isinstance(each, Piece))
    assert json.loads(text) in ({"town": "Bern"}, {"town": "Basel"})


WEATHER = ChatTool(
    name="weather",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        }
    ),
    strict=True,  # vLLM keeps to a schema only then
)


def weather(city: str, number: int) -> Iterator[ChatMessage]:
    """Yield a question about the weather, a call and its result."""
    name, arguments = f"call_{number}", json.dumps({"city": city})
    call = ChatCall(id=name, name="weather", arguments=arguments)
    yield ChatMessage(role="user", content=f"Weather in {city}?")
    yield ChatMessage(role="assistant", content="", calls=(call,))
    yield ChatMessage(role="tool", content="sunny", result_of=name)


def weathers() -> tuple[ChatMessage, ...]:
    # Three examples, as small models otherwise write about the weather first.
    cities = enumerate(("Bern", "Rome", "Oslo"))
    turns = [turn for number, city in cities for turn in weather(city, number)]
    return (*turns, ChatMessage(role="user", content="Weather in Basel?"))


@pytest.mark.parametrize("choice", ["required", "weather"])
async def test_a_real_engine_calls_a_tool(real: PeerModel, choice: str) -> None:
    asked = replace(
        SHORT,
        messages=weathers(),
        max_tokens=120,
        tools=(ChatTool(name="other"), WEATHER)[choice == "required" :],
        tool_choice=choice,
        parallel_tool_calls=False,
    )
    _, *pieces, ending = await answers(real, asked)
    (call,) = (each.call for each in pieces if isinstance(each, Piece) and each.call)
    assert (call.index, call.name) == (0, "weather")
    assert json.loads(call.arguments).keys() == {"city"}
    assert isinstance(ending, Ending)
    assert ending.finish_reason in {"tool_calls", "stop"}


async def test_a_real_engine_may_call_or_write(real: PeerModel) -> None:
    asked = replace(SHORT, messages=weathers(), max_tokens=120, tools=(WEATHER,))
    _, *pieces, ending = await answers(real, asked)
    assert isinstance(ending, Ending)
    given = [each for each in pieces if isinstance(each, Piece)]
    calls = [each.call for each in given if each.call]
    assert calls or any(each.text for each in given)
    assert all(json.loads(each.arguments).keys() == {"city"} for each in calls)


HITS = re.compile(r"^vllm:prefix_cache_hits_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


async def test_a_real_engine_reuses_nothing_of_an_equal_beginning(
    real: PeerModel,
) -> None:
    """With vLLM's prefix cache switched on, which its operator should not do."""
    before = await hits()
    long = ChatMessage(role="user", content="The river rises in spring. " * 20)
    asked = replace(SHORT, messages=(long,), max_tokens=2)
    for salt in ("5a17", "5a17"):
        await fetched("chat/completions", request_body(asked, model_name(), salt))
    if await hits() == before:
        pytest.skip("SKIPPED LOUDLY: this engine has no prefix cache, or does not say")
    between = await hits()
    await answers(real, asked)
    await answers(real, asked)
    assert await hits() == between


async def hits() -> float:
    """Return how many tokens the engine has found in its prefix cache so far."""
    return sum(map(float, HITS.findall(await fetched("metrics", None))))


async def fetched(path: str, body: bytes | None) -> str:
    place = engine_address()
    connector = aiohttp.UnixConnector(str(place.path)) if place.path else None
    base = "http://engine" if place.path else f"http://{place.host}:{place.port}"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(
            "GET" if body is None else "POST",
            f"{base}/{'' if body is None else 'v1/'}{path}",
            data=body,
            headers={"Content-Type": "application/json"},
        ) as response,
    ):
        return (await response.read()).decode()
