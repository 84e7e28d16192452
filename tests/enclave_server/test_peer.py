"""An OpenAI-compatible server as the enclave's engine."""

import asyncio
import json
import os
import traceback
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from typing_extensions import override

from curtilage.enclave_server.config import Peer
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    ModelError,
    PromptTooLongError,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatMessage
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun, Ending, Piece
from curtilage.enclave_server.ohttp.tools import ChatCall, ChatFormat, ChatTool
from curtilage.enclave_server.peer import PeerModel
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
        self.requests: list[dict[str, object]] = []
        self.left = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": NAME}, {"id": "other"}]})

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
async def served(
    engine: Engine, folder: Path, *, parallel: int = 4, queue: int = 4
) -> AsyncGenerator[PeerModel]:
    app = web.Application()
    app.router.add_get("/v1/models", engine.models)
    app.router.add_post("/v1/chat/completions", engine.chat)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    socket = folder / "engine.sock"
    await web.UnixSite(runner, str(socket)).start()
    peer = Peer(address=Listen(path=socket), name=NAME, parallel=parallel)
    model = PeerModel(peer, max_queued=queue)
    try:
        yield model
    finally:
        engine.go.set()
        await model.close()
        await runner.cleanup()


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
        os.chmod(tmp_path, 0o700)  # noqa: PTH101 - ours
    assert engine.requests == []


async def test_an_engine_that_is_gone_is_an_error_without_the_question(
    tmp_path: Path,
) -> None:
    async with served(Engine(*WHOLE), tmp_path) as model:
        pass
    with pytest.raises(ModelError) as caught:
        await answers(model)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    await model.close()


async def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    async with served(Engine(piece("From "), STOP), tmp_path) as model:
        with pytest.raises(ModelError):
            await answers(model)


# A real engine: CURTILAGE_ENGINE is its address, such as unix:/run/engine.sock or
# 127.0.0.1:8000, and CURTILAGE_ENGINE_MODEL the name of its model, whose chat template
# must know tools.


@pytest.fixture
async def real() -> AsyncGenerator[PeerModel]:
    address = os.environ.get("CURTILAGE_ENGINE", "")
    if not address:
        pytest.skip("SKIPPED LOUDLY: CURTILAGE_ENGINE names no engine to ask")
    host, _, port = address.rpartition(":")
    place = (
        Listen(path=Path(address.removeprefix("unix:")))
        if host == "unix"
        else Listen(host=host, port=int(port))
    )
    name = os.environ["CURTILAGE_ENGINE_MODEL"]
    model = PeerModel(Peer(address=place, name=name), max_queued=8)
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
    first, second = await answers(real, SHORT), await answers(real, SHORT)
    assert first == second
    begun, *pieces, ending = first
    assert begun == Begun()
    assert pieces
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
    asked = replace(SHORT, logprobs=True, top_logprobs=2, n=2, presence_penalty=0.5)
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
)


def weather(city: str, number: int) -> Iterator[ChatMessage]:
    """Yield a question about the weather, a call and its result."""
    name, arguments = f"call_{number}", json.dumps({"city": city})
    call = ChatCall(id=name, name="weather", arguments=arguments)
    yield ChatMessage(role="user", content=f"Weather in {city}?")
    yield ChatMessage(role="assistant", content="", calls=(call,))
    yield ChatMessage(role="tool", content="sunny", result_of=name)


@pytest.mark.parametrize("choice", ["required", "weather"])
async def test_a_real_engine_calls_a_tool(real: PeerModel, choice: str) -> None:
    # Three examples, as small models otherwise write about the weather first.
    cities = enumerate(("Bern", "Rome", "Oslo"))
    turns = [turn for number, city in cities for turn in weather(city, number)]
    last = ChatMessage(role="user", content="Weather in Basel?")
    asked = replace(
        SHORT,
        messages=(*turns, last),
        max_tokens=60,
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
