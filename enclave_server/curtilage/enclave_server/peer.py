"""Answers by an OpenAI-compatible server inside the enclave's trusted boundary.

vLLM, SGLang and llama.cpp's server spread one model over several GPUs and batch by
themselves. Such a server is reached over a UNIX socket or loopback, never over a
network. It sees every question in the clear, so it must be measured and confined with
the enclave; what it keeps of a question is its own affair, and no digest of its weights
is claimed. Nothing of a question or an answer enters an error.
"""

import asyncio
import json
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Final, NoReturn, cast

import aiohttp

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
    CHOICES,
    MAX_CALLS,
    ChatFormat,
    ChatTool,
)
from curtilage.enclave_server.telemetry import Reason
from curtilage.wire.shaping import TransportParameters

START_S: Final = 1800.0
"""A model of many gigabytes is read from a disk before its server listens."""
LOOK_S: Final = 1.0
CONNECT_S: Final = 5.0
STALL_S: Final = 120.0
"""Longest pause between two pieces; the whole answer has a limit of its own."""
MAX_EVENT_BYTES: Final = 1024 * 1024
MAX_REFUSAL_BYTES: Final = 64 * 1024
MAX_LIST_BYTES: Final = 1024 * 1024
MAX_CALL_CHARS: Final = 1024 * 1024
"""Of the arguments of all calls in one answer, which are held until it ends."""
FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls"})
_OK: Final = 200
_BAD_REQUEST: Final = 400
_BUSY: Final = frozenset({429, 503})
_DONE: Final = b"[DONE]"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
# llama.cpp's server names the error's type; vLLM and SGLang only say it in words.
_TOO_LONG_TYPES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error"}
)
_TOO_LONG_WORDS: Final = "context length"


class PeerModel:
    """A running OpenAI-compatible server, with the interface that the gateway uses.

    Args:
        peer: its address, its model's name and how much it may be given at once.
        max_queued: how many requests may wait here for their turn.
        context_tokens: of its model.
    """

    def __init__(
        self, peer: Peer, *, max_queued: int, context_tokens: int = 4096
    ) -> None:
        self._peer = peer
        self._context_tokens = context_tokens
        self._max_queued = max_queued
        self._waiting = 0
        self._free = asyncio.Semaphore(peer.parallel)
        self._session: aiohttp.ClientSession | None = None  # noqa: TID251 - a door

    @property
    def name(self) -> str:
        """The model's display name."""
        return self._peer.name

    @property
    def sha256(self) -> str:
        """Empty: another program loaded the weights, so no digest is claimed."""
        return ""

    @property
    def info(self) -> None:
        """None: what becomes of requests there is not known here."""

    @property
    def gaps(self) -> str:
        """Empty: another program runs the engine."""
        return ""

    @property
    def failing(self) -> None:
        """None: whether that program answers is not watched."""

    def report_to(
        self, loaded: Callable[[], object], failed: Callable[[Reason, str], object]
    ) -> None:
        """Do nothing: another program runs the engine."""

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and answer together, as the operator states them."""
        return self._context_tokens

    def keep_to(self, transport: TransportParameters) -> None:
        """Do nothing: how long a request will wait there is not known here."""

    async def start(
        self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Wait until the server lists the model.

        Raises:
            ModelError: it does not answer within ``START_S``, or lists others only.
        """
        left_s = START_S
        while True:
            try:
                names = await self._names()
            except BusyError:
                # It listens before it has read the weights, or does not listen yet.
                left_s -= LOOK_S
                if left_s <= 0:
                    raise ModelError("model.address: no engine answers there") from None
                await sleep(LOOK_S)
                continue
            if self._peer.name not in names:
                raise ModelError("model.name: the engine there has no such model")
            return

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        """Answer one request; closing the iterator cancels it there, too.

        Raises:
            BusyError: too many requests wait, here or there.
            PromptTooLongError: its context is too small.
            ChatError: it refuses this request.
            ModelError: it failed, or its answer is none.
        """
        if self._free.locked() and self._waiting >= self._max_queued:
            raise BusyError("too many requests are waiting")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            async with aclosing(self._ask(chat)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close every connection; the server stops what it writes for them."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _names(self) -> frozenset[str]:
        with _as_failure(BusyError):
            async with self._open().get(
                self._url("models"), allow_redirects=False
            ) as response:
                if response.status != _OK:
                    raise BusyError("the engine is not ready")
                data = await response.content.read(MAX_LIST_BYTES)
        try:
            models = json.loads(data)["data"]
            return frozenset(str(model["id"]) for model in models)
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ModelError("model.address: no OpenAI-compatible engine") from None

    async def _ask(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        with _as_failure(ModelError):
            self._require_own_socket()
            response = await self._open().post(
                self._url("chat/completions"),
                data=request_body(chat, self._peer.name),
                headers={"Content-Type": "application/json"},
                # A redirect leads out of the boundary.
                allow_redirects=False,
            )
        try:
            await _require_stream(response)
            reader = EventReader(chat)
            yield Begun()
            while not reader.ended:
                with _as_failure(ModelError):
                    async with asyncio.timeout(STALL_S):
                        data = await response.content.readany()
                if not data:
                    raise ModelError("the engine's answer was cut off")
                for answer in reader.push(data):
                    yield answer
        finally:
            # Not released into a pool: a closed connection is what stops the engine.
            response.close()

    def _url(self, path: str) -> str:
        address = self._peer.address
        host = f"[{address.host}]" if ":" in address.host else address.host
        place = "localhost" if address.path is not None else f"{host}:{address.port}"
        return f"http://{place}/v1/{path}"

    def _require_own_socket(self) -> None:
        """Refuse a socket in a folder where another account could replace it."""
        path = self._peer.address.path
        if path is not None and (
            path.parent.stat().st_mode & _OTHERS_WRITE
            or not stat.S_ISSOCK(path.stat().st_mode)
        ):
            raise ModelError("model.address: others can replace the engine's socket")

    def _open(self) -> aiohttp.ClientSession:  # noqa: TID251 - a door
        if self._session is None:
            path = self._peer.address.path
            connector: aiohttp.BaseConnector = (
                aiohttp.TCPConnector(force_close=True, limit=0)  # noqa: TID251 - a door
                if path is None
                else aiohttp.UnixConnector(  # noqa: TID251 - a door
                    str(path), force_close=True, limit=0
                )
            )
            self._session = aiohttp.ClientSession(  # noqa: TID251 - a door
                connector=connector,
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=CONNECT_S, sock_connect=CONNECT_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Otherwise a small body could unpack to gigabytes.
                auto_decompress=False,
                # A proxy from the environment would be outside.
                trust_env=False,
            )
        return self._session


def request_body(chat: ChatCompletionRequest, name: str) -> bytes:
    """Encode a request for the engine: every field of it.

    Raises:
        ChatError: it has to be deterministic, which other engines do not promise.
    """
    if chat.deterministic:
        raise ChatError(400, "unsupported_parameter", param="deterministic")
    body: dict[str, object] = {
        "model": name,
        "messages": [*map(_message, chat.messages)],
        "max_tokens": chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
        "n": chat.n,
        "presence_penalty": chat.presence_penalty,
        "frequency_penalty": chat.frequency_penalty,
        # Always: frames are filled as the text comes, also for an answer that is asked
        # for whole.
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if chat.seed is not None:
        body["seed"] = chat.seed
    if chat.stop:
        body["stop"] = list(chat.stop)
    if chat.logprobs:
        body["logprobs"] = True
    if chat.top_logprobs:
        # Not 0: llama.cpp's server would then send no log-probability at all.
        body["top_logprobs"] = chat.top_logprobs
    if chat.tools:
        body |= _tool_fields(chat)
    if chat.response_format is not None:
        body["response_format"] = _format(chat.response_format)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _message(message: ChatMessage) -> dict[str, object]:
    turn: dict[str, object] = {
        # Most chat templates know only "system"; OpenAI renamed it.
        "role": "system" if message.role == "developer" else message.role,
        "content": message.content,
    }
    if message.name is not None:
        turn["name"] = message.name
    if message.calls:
        turn["tool_calls"] = [
            {
                "id": each.id,
                "type": "function",
                "function": {"name": each.name, "arguments": each.arguments},
            }
            for each in message.calls
        ]
    if message.result_of:
        turn["tool_call_id"] = message.result_of
    return turn


def _callable(chat: ChatCompletionRequest) -> tuple[tuple[ChatTool, ...], bool]:
    """Return the tools that an answer may call, and whether it may call several."""
    match chat.tool_choice:
        case "none":
            return (), False
        case "auto" | "required":
            return chat.tools, chat.parallel_tool_calls
        case name:
            # A named choice is one call: so our own engine does it.
            return tuple(each for each in chat.tools if each.name == name), False


def _tool_fields(chat: ChatCompletionRequest) -> dict[str, object]:
    offered, several = _callable(chat)
    # llama.cpp's server ignores a choice by name. A call of the only tool is the same.
    named = chat.tool_choice not in CHOICES
    return {
        "tools": [*map(_tool, offered or chat.tools)],
        "tool_choice": "required" if named else chat.tool_choice,
        "parallel_tool_calls": several,
    }


def _tool(tool: ChatTool) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = json.loads(tool.parameters)
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _format(wanted: ChatFormat) -> dict[str, object]:
    if not wanted.name:
        return {"type": "json_object"}
    described: dict[str, object] = {
        "name": wanted.name,
        "schema": json.loads(wanted.schema),
    }
    if wanted.description:
        described["description"] = wanted.description
    if wanted.strict:
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


class EventReader:
    """Turns the engine's server-sent events into answers. Pure; bounded.

    Args:
        chat: the request that they answer.

    Attributes:
        ended: the end mark was read.
    """

    def __init__(self, chat: ChatCompletionRequest) -> None:
        self._choices = tuple(_ChoiceReader(chat, number) for number in range(chat.n))
        self._held = bytearray()
        self._usage = (0, 0)
        self.ended = False

    def push(self, data: bytes) -> Iterator[Answer]:
        """Yield what ``data`` completes.

        Raises:
            ModelError: an error of the engine, or no answer of the expected form.
        """
        self._held += data
        *lines, rest = self._held.split(b"\n")
        self._held = rest
        if len(rest) > MAX_EVENT_BYTES:
            _broken()
        for line in lines:
            name, _, value = bytes(line).rstrip(b"\r").partition(b":")
            # Comments keep the connection alive; these servers put an event in a line.
            if name == b"data" and not self.ended:
                yield from self._event(value.removeprefix(b" "))

    def _event(self, data: bytes) -> Iterator[Answer]:
        if data == _DONE:
            self.ended = True
            yield self._ending()
            return
        chunk = _object(data)
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise ModelError("the engine reported an error")
        choices = _listed(chunk.get("choices"))
        usage = _member(chunk, "usage")
        if usage is not None:
            # llama.cpp's server counts each of several answers in an event of its own,
            # others all of them in one.
            alone = len(self._choices) > 1 and not choices
            before = self._usage[1] if alone else 0
            self._usage = (
                _count(_member(usage, "prompt_tokens")),
                before + _count(_member(usage, "completion_tokens")),
            )
        for choice in choices:
            yield from self._choice_of(choice).read(choice)

    def _choice_of(self, choice: object) -> "_ChoiceReader":
        index = _member(choice, "index")
        number = 0 if index is None else _index(index)
        # One that was not requested would be mixed into the others.
        if number >= len(self._choices):
            _broken()
        return self._choices[number]

    def _ending(self) -> Ending:
        first, *others = (each.finish for each in self._choices)
        # Without a finish reason the answer is incomplete in spite of the mark.
        if not all((first, *others)):
            _broken()
        prompt, completion = self._usage
        return Ending(
            finish_reason=first,
            prompt_tokens=prompt,
            completion_tokens=completion,
            others=tuple(others),
        )


@dataclass(slots=True)
class _Call:
    """A call of which pieces have arrived."""

    name: str = field(default="", repr=False)
    pieces: list[str] = field(default_factory=list[str], repr=False)

    @property
    def arguments(self) -> str:
        """The pieces, joined; an object without members if there are none."""
        return "".join(self.pieces) or "{}"

    @property
    def is_whole(self) -> bool:
        """Whether the engine wrote all of its arguments."""
        return bool(self.pieces) and _is_json_object(self.arguments)


class _ChoiceReader:
    """Reads one of the answers to a request.

    Args:
        chat: the request.
        number: of the answer, from 0.

    Attributes:
        finish: the finish reason; empty until it was read.
    """

    def __init__(self, chat: ChatCompletionRequest, number: int) -> None:
        self._chat = chat
        self._number = number
        self._calls: dict[int, _Call] = {}
        self._call_chars = 0
        self.finish = ""

    def read(self, choice: object) -> Iterator[Piece]:
        """Yield the text of one event; calls when the answer finishes.

        Raises:
            ModelError: it has another form, or calls what it may not.
        """
        delta, reason = _member(choice, "delta"), _member(choice, "finish_reason")
        text = _text(_member(delta, "content"))
        calls = _listed(_member(delta, "tool_calls"))
        if self.finish and (text or calls):
            _broken()
        if text:
            yield from self._pieces(text, _member(choice, "logprobs"))
        for call in calls:
            self._take_call(call)
        if reason is not None and not self.finish:
            # "abort" or "content_filter" would be a part of an answer.
            if not isinstance(reason, str) or reason not in FINISH_REASONS:
                _broken()
            self.finish = reason
            yield from self._called(reason)

    def _take_call(self, piece: object) -> None:
        """Take a piece of a call: an application must not execute half of it."""
        index = _index(_member(piece, "index"))
        if index >= MAX_CALLS:
            _broken()
        call = self._calls.setdefault(index, _Call())
        function = _member(piece, "function")
        # Some servers repeat the name with each piece, others send null.
        call.name = _text(_member(function, "name")) or call.name
        if arguments := _text(_member(function, "arguments")):
            self._call_chars += len(arguments)
            call.pieces.append(arguments)
        if self._call_chars > MAX_CALL_CHARS:
            _broken()

    def _called(self, reason: str) -> Iterator[Piece]:
        calls = [
            call for _, call in sorted(self._calls.items(), key=lambda each: each[0])
        ]
        self._calls.clear()
        # The token limit may have cut the last one. Our own engine omits it, too.
        if reason == "length" and calls and not calls[-1].is_whole:
            calls.pop()
        must = self._chat.tool_choice not in {"none", "auto"}
        if not calls and (reason == "tool_calls" or (must and reason == "stop")):
            raise ModelError("the engine did not call a tool as it had to")
        offered, several = _callable(self._chat)
        if len(calls) > 1 and not several:
            raise ModelError("the engine called more tools than one")
        for index, call in enumerate(calls):
            if call.name not in {each.name for each in offered}:
                raise ModelError("the engine called a tool that it was not offered")
            if not _is_json_object(call.arguments):
                raise ModelError("the engine called a tool without valid arguments")
            called = Call(index=index, name=call.name, arguments=call.arguments)
            yield Piece(text="", choice=self._number, call=called)

    def _pieces(self, text: str, logprobs: object) -> Iterator[Piece]:
        if not self._chat.logprobs:
            yield Piece(text=text, choice=self._number)
            return
        pieces = [
            Piece(
                text=_text(_member(entry, "token")),
                logprob=_logprob(_member(entry, "logprob")),
                top=self._top(entry),
                choice=self._number,
            )
            for entry in _listed(_member(logprobs, "content"))
        ]
        if not pieces:
            _broken()
        # Tokens that are half a character do not add up to the text; then the text is
        # one piece, with the probability of all of them together. Alternatives to all
        # of them together are not known.
        if "".join(each.text for each in pieces) == text:
            yield from pieces
            return
        total = sum(each.logprob or 0 for each in pieces)
        yield Piece(
            text=text,
            logprob=max(total, LOWEST_LOGPROB),
            top=pieces[0].top if len(pieces) == 1 else (),
            choice=self._number,
        )

    def _top(self, entry: object) -> tuple[tuple[str, float], ...]:
        # Some servers send more than was requested, and unrequested.
        most = self._chat.top_logprobs
        listed = _listed(_member(entry, "top_logprobs"))[:most]
        if most and not listed:
            _broken()
        return tuple(
            (_text(_member(each, "token")), _logprob(_member(each, "logprob")))
            for each in listed
        )


async def _require_stream(response: aiohttp.ClientResponse) -> None:
    if response.status == _OK and response.content_type == "text/event-stream":
        return
    if response.status in _BUSY:
        raise BusyError("the engine is busy")
    if response.status == _BAD_REQUEST:
        with _as_failure(ModelError):
            data = await response.content.read(MAX_REFUSAL_BYTES)
        if _says_too_long(data):
            raise PromptTooLongError("the engine's context is too small")
        # Which field it refuses is only in its words.
        raise ChatError(400, "invalid_value")
    raise ModelError("the engine refused the request")


def _says_too_long(data: bytes) -> bool:
    """Return whether a refusal is about the context; its text is not kept."""
    try:
        refusal: object = json.loads(data)
    except (ValueError, RecursionError):
        return False
    error = _member(refusal, "error") or refusal
    kinds = (_member(error, "type"), _member(error, "code"))
    said = _member(error, "message")
    return any(each in _TOO_LONG_TYPES for each in kinds if isinstance(each, str)) or (
        isinstance(said, str) and _TOO_LONG_WORDS in said
    )


@contextmanager
def _as_failure(failure: type[ModelError]) -> Generator[None]:
    """Map the library's errors to ours, without their text."""
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError):
        raise failure("the engine cannot be reached") from None


def _broken() -> NoReturn:
    raise ModelError("the engine's answer has another form")


def _object(data: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise ModelError("the engine's answer is not JSON") from None
    if not isinstance(value, dict):
        _broken()
    return cast("dict[str, object]", value)


def _member(value: object, key: str) -> object:
    if not isinstance(value, dict):
        return None
    return cast("dict[str, object]", value).get(key)


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _logprob(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _broken()
    # Servers report an impossible token with -9999, or with -inf, which is not JSON.
    return max(min(float(value), 0.0), LOWEST_LOGPROB)


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        _broken()
    return cast("list[object]", value)


def _index(value: object) -> int:
    # True is 1 to Python.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _broken()
    return value


def _text(value: object) -> str:
    """Return a text that has a UTF-8 form; an empty one for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        _broken()
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ModelError("the engine's answer has another form") from None
    return value


def _is_json_object(text: str) -> bool:
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse_constant(_name: str) -> NoReturn:
    # NaN is Python's, not JSON.
    raise ValueError
