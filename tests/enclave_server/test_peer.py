"""An OpenAI-compatible server as the enclave's engine."""

import asyncio
import json
import os
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

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
from curtilage.enclave_server.ohttp.openai_answers import (
    LOWEST_LOGPROB,
    Answer,
    Begun,
    Call,
    Ending,
    Piece,
)
from curtilage.enclave_server.ohttp.tools import (
    MAX_CALLS,
    ChatCall,
    ChatFormat,
    ChatTool,
)
from curtilage.enclave_server.peer import (
    MAX_CALL_CHARS,
    MAX_EVENT_BYTES,
    EventReader,
    PeerModel,
    request_body,
)
from curtilage.enclave_server.toml_reader import Listen

CANARY = "canary-c4f1"
CHAT = ChatCompletionRequest(messages=(ChatMessage(role="user", content=CANARY),))
NAME = "ward/model-8b"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str, index: int = 0, **more: object) -> bytes:
    choice: dict[str, object] = {"index": index, "delta": {"content": text}}
    return event(choices=[choice | more])


def finish(reason: object, index: int = 0) -> bytes:
    return event(choices=[{"index": index, "finish_reason": reason}])


def calling(index: object, arguments: object, name: object = "find") -> bytes:
    call = {"index": index, "function": {"name": name, "arguments": arguments}}
    return event(choices=[{"index": 0, "delta": {"tool_calls": [call]}}])


STOP = finish("stop")
CALLED = finish("tool_calls")
USAGE = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2})
DONE = b"data: [DONE]\n\n"
WHOLE = (piece("From "), piece("near."), STOP, USAGE, DONE)


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


def read(events: Sequence[bytes], **asked: Any) -> list[Answer]:  # noqa: ANN401 - any field
    reader = EventReader(replace(CHAT, **asked))
    return [each for data in events for each in reader.push(data)]


async def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    async with served(Engine(piece("From "), STOP), tmp_path) as model:
        with pytest.raises(ModelError):
            await answers(model)


def test_events_may_be_cut_anywhere() -> None:
    whole = b": alive\r\n\r\n" + b"".join(WHOLE).replace(b"\n", b"\r\n")
    cut = [whole[at : at + 1] for at in range(len(whole))]
    assert read(cut) == read(WHOLE)


BROKEN = {
    "no JSON": b"data: {\n\n",
    "no object": b"data: 1\n\n",
    "deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "an error": event(error={"message": CANARY}),
    "an error of older servers": event(object="error", message=CANARY),
    "a second answer": event(choices=[{"index": 1, "delta": {"content": "x"}}]),
    "another reason": finish("abort"),
    "a reason of another type": finish(["stop"]),
    "no reason": DONE,
    "no list of choices": event(choices={"index": 0}),
    "no index": event(choices=[{"index": True, "delta": {"content": "x"}}]),
    "no text": event(choices=[{"index": 0, "delta": {"content": ["x"]}}]),
    "text after its end": STOP + piece("x"),
    "a lone surrogate": b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n',
    "endless": b"x" * (MAX_EVENT_BYTES + 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        read([BROKEN[name]])
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def listed(*tokens: tuple[str, object]) -> dict[str, object]:
    return {"content": [{"token": text, "logprob": value} for text, value in tokens]}


def test_log_probabilities_belong_to_their_tokens() -> None:
    assert read(
        [piece("ab", logprobs=listed(("a", -1), ("b", -99999)))], logprobs=True
    ) == [
        Piece(text="a", logprob=-1.0),
        Piece(text="b", logprob=LOWEST_LOGPROB),
    ]


def test_tokens_that_are_half_a_character_are_one_piece() -> None:
    halves = listed(("\N{REPLACEMENT CHARACTER}", -1.5), ("", -0.25))
    assert read([piece("ü", logprobs=halves)], logprobs=True) == [
        Piece(text="ü", logprob=-1.75)
    ]


@pytest.mark.parametrize("given", [None, {}, listed(("a", None)), listed(("a", True))])
def test_an_answer_without_its_log_probabilities_is_refused(given: object) -> None:
    with pytest.raises(ModelError):
        read([piece("a", logprobs=given)], logprobs=True)


def alternatives(*tops: object) -> dict[str, object]:
    given = [{"token": "a", "logprob": -1, "top_logprobs": each} for each in tops]
    return {"content": given}


A = {"token": "a", "logprob": -1}
B = {"token": "\N{REPLACEMENT CHARACTER}", "logprob": -99999}


def test_alternatives_are_as_many_as_were_requested() -> None:
    events = [piece("a", logprobs=alternatives([A, B, A]))]
    two = (("a", -1.0), ("\N{REPLACEMENT CHARACTER}", LOWEST_LOGPROB))
    assert read(events, logprobs=True, top_logprobs=2) == [
        Piece(text="a", logprob=-1.0, top=two)
    ]
    assert read(events, logprobs=True) == [Piece(text="a", logprob=-1.0)]


@pytest.mark.parametrize("given", [None, [], [{"token": "a"}], [{"logprob": -1}, 7]])
def test_an_answer_without_its_alternatives_is_refused(given: object) -> None:
    with pytest.raises(ModelError):
        read([piece("a", logprobs=alternatives(given))], logprobs=True, top_logprobs=2)


def test_alternatives_to_several_tokens_at_once_are_not_claimed() -> None:
    events = [piece("ü", logprobs=alternatives([A], [A]))]
    (whole,) = read(events, logprobs=True, top_logprobs=1)
    assert whole == Piece(text="ü", logprob=-2.0)


FIND, LOSE = ChatTool(name="find"), ChatTool(name="lose")
BOTH: dict[str, Any] = {"tools": (FIND, LOSE)}


def called(index: int, arguments: str, name: str = "find") -> Piece:
    return Piece(text="", call=Call(index=index, name=name, arguments=arguments))


def test_calls_are_joined_when_the_answer_ends() -> None:
    events = [
        piece("I look."),
        calling(0, ""),
        calling(0, '{"who": "A', None),
        calling(1, None, "lose"),
        calling(0, 'nn"}'),
        CALLED,
        USAGE,
        DONE,
    ]
    reader = EventReader(replace(CHAT, **BOTH))
    *before, last = (list(reader.push(data)) for data in events[:6])
    assert [each for found in before for each in found] == [Piece(text="I look.")]
    assert last == [called(0, '{"who": "Ann"}'), called(1, "{}", "lose")]
    assert [each for data in events[6:] for each in reader.push(data)] == [
        Ending(finish_reason="tool_calls", prompt_tokens=5, completion_tokens=2)
    ]


@pytest.mark.parametrize("choice", ["auto", "required", "find"])
@pytest.mark.parametrize("end", [STOP, CALLED])
def test_a_call_may_end_with_either_reason(choice: str, end: bytes) -> None:
    events = [calling(0, "{}"), end]
    assert read(events, tool_choice=choice, **BOTH) == [called(0, "{}")]


@pytest.mark.parametrize("cut", ["", '{"who": "A'])
def test_a_call_that_the_token_limit_cut_is_omitted(cut: str) -> None:
    events = [calling(0, '{"a": 1}'), calling(1, cut), finish("length")]
    assert read(events, **BOTH) == [called(0, '{"a": 1}')]
    assert read([calling(0, cut), finish("length")], tool_choice="find", **BOTH) == []


WRONG_CALLS: dict[str, tuple[dict[str, Any], Sequence[bytes]]] = {
    "no tools": ({}, [calling(0, "{}"), CALLED]),
    "another tool": (BOTH, [calling(0, "{}", "other"), CALLED]),
    "no name": (BOTH, [calling(0, "{}", None), CALLED]),
    "none may be called": (
        BOTH | {"tool_choice": "none"},
        [calling(0, "{}"), CALLED],
    ),
    "not the chosen one": (
        BOTH | {"tool_choice": "lose"},
        [calling(0, "{}"), CALLED],
    ),
    "more than one": (
        BOTH | {"parallel_tool_calls": False},
        [calling(0, "{}"), calling(1, "{}"), CALLED],
    ),
    "the chosen one twice": (
        BOTH | {"tool_choice": "find"},
        [calling(0, "{}"), calling(1, "{}"), CALLED],
    ),
    "none, though the reason says so": (BOTH, [piece("I call."), CALLED]),
    "none, though one is required": (
        BOTH | {"tool_choice": "required"},
        [piece("I do not."), STOP],
    ),
    "none, though one is chosen": (
        BOTH | {"tool_choice": "find"},
        [piece("I do not."), STOP],
    ),
    "half of the arguments": (BOTH, [calling(0, '{"a": '), CALLED]),
    "half of earlier arguments": (
        BOTH,
        [calling(0, '{"a": '), calling(1, "{}"), finish("length")],
    ),
    "no object": (BOTH, [calling(0, "[]"), CALLED]),
    "no JSON": (BOTH, [calling(0, '{"a": NaN}'), CALLED]),
    "deep": (BOTH, [calling(0, '{"a":' * 99_999), CALLED]),
    "arguments of another type": (BOTH, [calling(0, {"a": 1})]),
    "a lone surrogate": (BOTH, [calling(0, "\ud800")]),
    "too long": (BOTH, [calling(0, "x" * (MAX_CALL_CHARS // 8))] * 9),
    "too many": (BOTH, [calling(MAX_CALLS, "{}")]),
    "before the first": (BOTH, [calling(-1, "{}")]),
    "no index": (BOTH, [calling(None, "{}")]),
    "no number": (BOTH, [calling(False, "{}")]),
    "no list": (
        BOTH,
        [event(choices=[{"index": 0, "delta": {"tool_calls": {"index": 0}}}])],
    ),
    "after its end": (BOTH, [calling(0, "{}"), CALLED, calling(1, "{}")]),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_an_error_and_is_not_given(name: str) -> None:
    asked, (*before, last) = WRONG_CALLS[name]
    reader = EventReader(replace(CHAT, **asked))
    given = [each for data in before for each in reader.push(data)]
    assert all(
        isinstance(each, Piece) and (each.call is None or name == "after its end")
        for each in given
    )
    with pytest.raises(ModelError):
        list(reader.push(last))


def test_several_answers_keep_apart_and_end_once() -> None:
    events = [
        piece("A", 1),
        piece("B"),
        piece("C", 1),
        finish("length", 1),
        STOP,
        USAGE,
        DONE,
    ]
    assert read(events, n=2) == [
        Piece(text="A", choice=1),
        Piece(text="B"),
        Piece(text="C", choice=1),
        Ending(
            finish_reason="stop",
            prompt_tokens=5,
            completion_tokens=2,
            others=("length",),
        ),
    ]


def test_answers_that_are_counted_one_by_one_are_added_up() -> None:
    *_, ending = read([STOP, USAGE, finish("stop", 1), USAGE, DONE], n=2)
    assert isinstance(ending, Ending)
    assert (ending.prompt_tokens, ending.completion_tokens) == (5, 4)


@pytest.mark.parametrize(
    "events", [[piece("x", 2)], [STOP, DONE], [finish("stop", 1), DONE]]
)
def test_more_or_fewer_answers_than_requested_are_refused(
    events: Sequence[bytes],
) -> None:
    with pytest.raises(ModelError):
        read(events, n=2)


FULL = ChatCompletionRequest(
    messages=(
        ChatMessage(role="developer", content=CANARY, name="ann"),
        ChatMessage(
            role="assistant",
            content="",
            calls=(ChatCall(id="call_1", name="find", arguments='{"who":"Ann"}'),),
        ),
        ChatMessage(role="tool", content="found", result_of="call_1"),
    ),
    max_tokens=7,
    temperature=0.5,
    top_p=0.25,
    seed=9,
    stop=("end",),
    stream=False,
    logprobs=True,
    top_logprobs=3,
    n=2,
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    tools=(
        ChatTool(
            name="find",
            description="Finds",
            parameters='{"type": "object"}',
            strict=True,
        ),
        LOSE,
    ),
    tool_choice="required",
    parallel_tool_calls=False,
    response_format=ChatFormat(
        name="x", description="An x", schema='{"type": "object"}', strict=True
    ),
)


def test_a_request_is_encoded_as_openai_does() -> None:
    schema = {"type": "object"}
    finds = {"name": "find", "description": "Finds", "parameters": schema}
    call = {"name": "find", "arguments": '{"who":"Ann"}'}
    assert json.loads(request_body(FULL, NAME)) == {
        "model": NAME,
        "messages": [
            {"role": "system", "name": "ann", "content": CANARY},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
            },
            {"role": "tool", "content": "found", "tool_call_id": "call_1"},
        ],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 9,
        "stop": ["end"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 3,
        "n": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "tools": [
            {"type": "function", "function": finds | {"strict": True}},
            {"type": "function", "function": {"name": "lose"}},
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "x",
                "description": "An x",
                "schema": schema,
                "strict": True,
            },
        },
    }


OTHER_TEXTS = {"required": "auto", '{"type": "object"}': '{"type": "array"}'}


def other_than(value: object) -> object:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return OTHER_TEXTS.get(value, value + "x")
        case _:
            raise TypeError(type(value))


def changed(value: object) -> Iterator[tuple[frozenset[str], Any]]:
    """Yield the fields on the way to each value inside, and a copy with another."""
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        for at, item in enumerate(items):
            for way, other in changed(item):
                yield way, (*items[:at], other, *items[at + 1 :])
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            for way, other in changed(getattr(value, each.name)):
                changes: dict[str, Any] = {each.name: other}
                way_in = f"{type(value).__name__}.{each.name}"
                yield way | {way_in}, replace(value, **changes)
    elif value is not None:
        yield frozenset(), other_than(value)


def test_every_field_of_a_request_reaches_the_engine() -> None:
    """Each field of the request, and of each of its parts, changes what is sent."""
    sent = request_body(FULL, NAME)
    reached: set[str] = set()
    for way, other in changed(FULL):
        # Refused instead: see ``test_no_other_engine_is_asked_to_be_deterministic``.
        plain = replace(other, deterministic=False)
        reached |= way if request_body(plain, NAME) != sent else set()
    parts = (ChatCompletionRequest, ChatMessage, ChatCall, ChatTool, ChatFormat)
    every = {f"{part.__name__}.{each.name}" for part in parts for each in fields(part)}
    # Always streamed from the engine; the gateway makes one answer of it.
    assert every - reached == {
        "ChatCompletionRequest.stream",
        "ChatCompletionRequest.deterministic",
    }


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_a_choice_and_any_json_are_passed_on(choice: str) -> None:
    chat = replace(CHAT, tool_choice=choice, response_format=ChatFormat(), **BOTH)
    body = json.loads(request_body(chat, NAME))
    assert body["tool_choice"] == choice
    assert [each["function"]["name"] for each in body["tools"]] == ["find", "lose"]
    assert body["response_format"] == {"type": "json_object"}


def test_a_named_choice_is_the_only_tool_and_required() -> None:
    chat = replace(CHAT, tool_choice="lose", **BOTH)
    body = json.loads(request_body(chat, NAME))
    assert body["tools"] == [{"type": "function", "function": {"name": "lose"}}]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)


def test_no_other_engine_is_asked_to_be_deterministic() -> None:
    with pytest.raises(ChatError) as refused:
        request_body(replace(CHAT, deterministic=True), NAME)
    error = refused.value
    assert (error.code, error.param) == ("unsupported_parameter", "deterministic")


def test_what_was_not_asked_is_not_sent() -> None:
    # Many servers refuse a choice without tools, and alternatives without logprobs.
    assert json.loads(request_body(CHAT, NAME)).keys() == {
        "model",
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "presence_penalty",
        "frequency_penalty",
        "stream",
        "stream_options",
    }


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
    with pytest.raises(PromptTooLongError):
        await answers(real, replace(SHORT, messages=(long,)))


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
