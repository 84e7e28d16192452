# pyright: reportPrivateUsage=false
import ast
import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from curtilage import enclave_server
from curtilage.enclave_server.answer.run import AnswerRun, _as_chat_error
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    EnclaveError,
    EngineCrashedError,
    EngineHungError,
    ModelError,
    ModelUnavailableError,
    PromptTooLongError,
    TooLong,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatMessage
from curtilage.enclave_server.ohttp.gateway import Exchange
from curtilage.enclave_server.ohttp.openai_answers import (
    ERROR_CODES,
    Answer,
    AnswerHead,
    Begun,
    Ending,
    Piece,
    encode_completion,
    encode_error,
    error_event,
    error_type,
    last_events_bytes,
    piece_event,
)
from curtilage.enclave_server.telemetry import Event
from curtilage.wire.bhttp import Fields

HEAD = AnswerHead(answer_id="chatcmpl-1", created=3, model="m")
END = Ending(finish_reason="stop", prompt_tokens=2, completion_tokens=1)


class OpenSealer:
    """Seals nothing, so that the order of the parts is visible."""

    media_type = "x"

    def begin(self, status: int, fields: Fields) -> bytes:
        assert all(name.islower() and value for name, value in fields)
        return b"[%d]" % status

    def write(self, content: bytes) -> bytes:
        return content

    def finish(self) -> bytes:
        return b"[end]"


class Playing:
    """Answers with what it is given; an exception is raised."""

    def __init__(self, answers: Sequence[Answer | Exception], delay_s: float) -> None:
        self.answers = answers
        self.delay_s = delay_s
        self.closed = False

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        assert chat.messages
        try:
            for answer in self.answers:
                await asyncio.sleep(self.delay_s)
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self.closed = True


async def play(
    *answers: Answer | Exception,
    stream: bool = True,
    logprobs: bool = False,
    delay_s: float = 0,
    limit_s: float = 600,
) -> tuple[list[bytes], Event]:
    chat = ChatCompletionRequest(
        messages=(ChatMessage(role="user", content="hi"),),
        stream=stream,
        logprobs=logprobs,
    )
    model = Playing(answers, delay_s)
    underway = AnswerRun(
        exchange=Exchange(asked=chat, sealer=OpenSealer()),
        model=model,
        head=HEAD,
        accepted=asyncio.get_running_loop().time(),
        limit_s=limit_s,
    )
    pieces = [piece async for piece in underway.pieces()]
    assert model.closed
    return pieces, underway.outcome


async def test_stream_goes_out_as_it_comes() -> None:
    pieces, outcome = await play(Begun(), Piece(text="a"), Piece(text=""), END)
    assert len(pieces) == 3
    assert pieces[0].startswith(b"[200]data: ")
    assert b'"content":"a"' in pieces[1]
    assert pieces[2].endswith(b"data: [DONE]\n\n[end]")
    assert outcome is Event.ANSWERED


async def test_token_without_text_is_sent_when_its_probability_was_requested() -> None:
    pieces, _ = await play(Begun(), Piece(text="", logprob=-1.0), END, logprobs=True)
    assert b'"logprob":-1.0' in pieces[1]


async def test_whole_answer_goes_out_at_once() -> None:
    pieces, outcome = await play(
        Begun(), Piece(text="a"), Piece(text="b"), END, stream=False
    )
    (piece,) = pieces
    assert b'"content":"ab"' in piece
    assert outcome is Event.ANSWERED


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (BusyError("x"), 503, Event.BUSY),
        (PromptTooLongError("x"), 400, Event.INNER_REFUSED),
        (ChatError(400, "invalid_value"), 400, Event.INNER_REFUSED),
        (ModelError("x"), 500, Event.ANSWER_FAILED),
        (EnclaveError("x"), 500, Event.ANSWER_FAILED),
        (ChatError(400, "never_heard_of"), 500, Event.INNER_REFUSED),
        (RuntimeError("canary"), 500, Event.ANSWER_FAILED),
        (KeyError("canary"), 500, Event.ANSWER_FAILED),
    ],
)
async def test_failure_before_the_first_token_has_its_status(
    stream: bool, error: Exception, status: int, outcome: Event
) -> None:
    pieces, counted = await play(error, stream=stream)
    (piece,) = pieces
    assert piece.startswith(b'[%d]{"error":' % status)
    assert piece.endswith(b"[end]")
    assert b"canary" not in piece
    assert counted is outcome


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineCrashedError("x"), 500, "engine_crashed"),
        (EngineHungError("x"), 500, "engine_hung"),
        (ModelUnavailableError("x"), 503, "model_unavailable"),
    ],
)
def test_an_engine_that_is_lost_has_its_code(
    error: ModelError, status: int, code: str
) -> None:
    refusal = _as_chat_error(error)
    assert (refusal.status, refusal.code) == (status, code)
    # To be tried again, perhaps by another enclave.
    assert bool(refusal.fields) == (status == 503)


@pytest.mark.parametrize("error", [ModelError("x"), RuntimeError("canary")])
async def test_failure_in_mid_stream_ends_the_stream(error: Exception) -> None:
    pieces, outcome = await play(Begun(), Piece(text="a"), error)
    assert pieces[-1] == error_event(ChatError(500, "internal_error")) + b"[end]"
    assert outcome is Event.ANSWER_FAILED


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_without_an_ending_is_a_failure(stream: bool) -> None:
    pieces, outcome = await play(Begun(), Piece(text="a"), stream=stream)
    assert b"internal_error" in pieces[-1]
    assert pieces[-1].endswith(b"[end]")
    assert outcome is Event.ANSWER_FAILED


async def test_deadline_ends_the_answer() -> None:
    pieces, outcome = await play(
        Begun(), Piece(text="a"), END, delay_s=600, limit_s=0.05
    )
    assert b"time_limit" in pieces[-1]
    assert outcome is Event.ANSWER_FAILED


async def test_refused_request_does_not_reach_the_model() -> None:
    model = Playing([], 0)
    for code, outcome in (("replayed", Event.REPLAYED), ("busy", Event.BUSY)):
        underway = AnswerRun(
            exchange=Exchange(asked=ChatError(400, code), sealer=OpenSealer()),
            model=model,
            head=HEAD,
            accepted=asyncio.get_running_loop().time(),
            limit_s=0,
        )
        (piece,) = [piece async for piece in underway.pieces()]
        assert code.encode() in piece
        assert underway.outcome is outcome
    assert not model.closed


@pytest.mark.parametrize("stream", [False, True])
async def test_text_that_cannot_be_encoded_is_a_sealed_failure(stream: bool) -> None:
    pieces, outcome = await play(Begun(), Piece(text="\ud800"), END, stream=stream)
    assert b"internal_error" in pieces[-1]
    assert pieces[-1].endswith(b"[end]")
    assert outcome is Event.ANSWER_FAILED


def codes_raised() -> set[str]:
    """Find the code of every ``ChatError(status, code)`` in the sources."""
    calls = [
        node
        for path in Path(enclave_server.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "ChatError"
    ]
    assert len(calls) > 30
    codes = [call.args[1] for call in calls]
    # A computed code could not be checked here.
    assert all(isinstance(code, ast.Constant) for code in codes)
    return {str(code.value) for code in codes if isinstance(code, ast.Constant)}


def test_every_code_that_is_raised_has_a_message() -> None:
    assert codes_raised() == ERROR_CODES


@pytest.mark.parametrize("code", sorted(ERROR_CODES))
def test_every_error_has_openais_shape(code: str) -> None:
    error = ChatError(500, code, param="stop")
    (event,) = error_event(error).decode().removeprefix("data: ").splitlines()[:1]
    reported = json.loads(event)["error"]
    assert set(reported) == {"message", "type", "param", "code", "status"}
    assert (reported["code"], reported["param"], reported["status"]) == (
        code,
        "stop",
        500,
    )
    assert reported["type"] == "server_error"
    if error_type(error) == b"application/json":
        assert json.loads(encode_error(error))["error"] == reported


def test_a_text_that_is_too_long_is_reported_with_its_numbers() -> None:
    too_long = TooLong(prompt_tokens=9000, max_tokens=256, context_tokens=8192)
    error = _as_chat_error(PromptTooLongError("x", too_long))
    reported = json.loads(encode_error(error))["error"]
    assert (reported["code"], reported["status"]) == ("context_length_exceeded", 400)
    assert all(str(each) in reported["message"] for each in (9000, 256, 8192))
    numbers = {key: reported[key] for key in asdict(too_long)}
    assert numbers == asdict(too_long)
    # In a stream as well, and no longer than what room is kept for.
    assert b"9000" in error_event(error)
    most = TooLong(prompt_tokens=2**31, max_tokens=2**31, context_tokens=2**31)
    longest = encode_error(_as_chat_error(PromptTooLongError("x", most)))
    assert len(longest) < last_events_bytes(HEAD)
    assert "9000" not in repr(error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("date", "https://iana.org/assignments/http-problem-types#date"),
        ("replayed", "about:blank"),
    ],
)
def test_an_error_in_the_message_is_reported_as_a_problem(code: str, kind: str) -> None:
    error = ChatError(400, code)
    assert error_type(error) == b"application/problem+json"
    problem = json.loads(encode_error(error))
    assert (problem["type"], problem["code"], problem["status"]) == (kind, code, 400)


def test_client_errors_are_distinguishable() -> None:
    error = json.loads(encode_error(ChatError(400, "invalid_json")))["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] is None


def test_text_of_any_kind_stays_one_event() -> None:
    event = piece_event(HEAD, Piece(text="a\n\ndata: [DONE]\r\n\u2028é"))
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")
    assert b"\r" not in event


def test_completion_without_probabilities_says_null() -> None:
    body = json.loads(encode_completion(HEAD, [Piece(text="a")], END, logprobs=False))
    assert body["choices"][0]["logprobs"] is None


def test_pieces_do_not_show_text() -> None:
    assert "secret" not in repr(Piece(text="secret", logprob=-0.5))
