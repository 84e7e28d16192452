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
from typing import Final, NoReturn, cast

import aiohttp

from curtilage.enclave_server.config import Peer
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    ModelError,
    PromptTooLongError,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun, Ending, Piece
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
FINISH_REASONS: Final = frozenset({"stop", "length"})
LOWEST_LOGPROB: Final = -9999.0
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
    """

    def __init__(self, peer: Peer, *, max_queued: int) -> None:
        self._peer = peer
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
        _refuse_unbuilt(chat)
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
            reader = EventReader(logprobs=chat.logprobs)
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


def _refuse_unbuilt(chat: ChatCompletionRequest) -> None:
    """Refuse what is not passed on yet: it must not be ignored.

    Raises:
        ChatError: 400; the request uses it.
    """
    unbuilt = {
        "tools": chat.tools,
        "tool_calls": any(each.calls for each in chat.messages),
        "tool_call_id": any(each.result_of for each in chat.messages),
        "response_format": chat.response_format,
        "n": chat.n > 1,
        "top_logprobs": chat.top_logprobs,
        "presence_penalty": chat.presence_penalty,
        "frequency_penalty": chat.frequency_penalty,
    }
    for name, used in unbuilt.items():
        if used:
            raise ChatError(400, "unsupported_parameter", param=name)


def request_body(chat: ChatCompletionRequest, name: str) -> bytes:
    """Encode a request for the engine: every field but those that are refused."""
    body: dict[str, object] = {
        "model": name,
        "messages": [
            {
                # Most chat templates know only "system"; OpenAI renamed it.
                "role": "system" if each.role == "developer" else each.role,
                **({} if each.name is None else {"name": each.name}),
                "content": each.content,
            }
            for each in chat.messages
        ],
        "max_tokens": chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
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
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class EventReader:
    """Turns the engine's server-sent events into answers. Pure; bounded.

    Args:
        logprobs: whether they were asked for.

    Attributes:
        ended: the end mark was read.
    """

    def __init__(self, *, logprobs: bool) -> None:
        self._logprobs = logprobs
        self._held = bytearray()
        self._finish = ""
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
            name, _, value = line.rstrip(b"\r").partition(b":")
            # Comments keep the connection alive; these servers put an event in a line.
            if name == b"data" and not self.ended:
                yield from self._event(bytes(value).removeprefix(b" "))

    def _event(self, data: bytes) -> Iterator[Answer]:
        if data == _DONE:
            self.ended = True
            # Without a finish reason the answer is incomplete in spite of the mark.
            if not self._finish:
                _broken()
            prompt, completion = self._usage
            yield Ending(
                finish_reason=self._finish,
                prompt_tokens=prompt,
                completion_tokens=completion,
            )
            return
        chunk = _object(data)
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise ModelError("the engine reported an error")
        usage = _member(chunk, "usage")
        if usage is not None:
            self._usage = (
                _count(_member(usage, "prompt_tokens")),
                _count(_member(usage, "completion_tokens")),
            )
        choices = chunk.get("choices")
        for choice in (
            cast("list[object]", choices) if isinstance(choices, list) else ()
        ):
            yield from self._choice(choice)

    def _choice(self, choice: object) -> Iterator[Piece]:
        # One answer was requested. A second one would be mixed into it.
        if _member(choice, "index") not in {0, None}:
            _broken()
        text = _member(_member(choice, "delta"), "content")
        if isinstance(text, str) and text:
            yield from self._pieces(text, _member(choice, "logprobs"))
        reason = _member(choice, "finish_reason")
        if reason is not None:
            # "abort" or "content_filter" would be a part of an answer.
            if reason not in FINISH_REASONS:
                _broken()
            self._finish = str(reason)

    def _pieces(self, text: str, logprobs: object) -> Iterator[Piece]:
        _encodable(text)
        if not self._logprobs:
            yield Piece(text=text)
            return
        listed = _member(logprobs, "content")
        entries = [
            (_member(entry, "token"), _logprob(_member(entry, "logprob")))
            for entry in (
                cast("list[object]", listed) if isinstance(listed, list) else ()
            )
        ]
        if not entries:
            _broken()
        # Tokens that are half a character do not add up to the text; then the text is
        # one piece, with the probability of all of them together.
        if "".join(str(token) for token, _ in entries) == text:
            for token, value in entries:
                yield Piece(text=str(token), logprob=value)
        else:
            total = max(sum(value for _, value in entries), LOWEST_LOGPROB)
            yield Piece(text=text, logprob=total)


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
        raise ChatError(400, "invalid_value", param="messages")
    raise ModelError("the engine refused the request")


def _says_too_long(data: bytes) -> bool:
    """Return whether a refusal is about the context; its text is not kept."""
    try:
        refusal: object = json.loads(data)
    except (ValueError, RecursionError):
        return False
    error = _member(refusal, "error") or refusal
    kinds = {_member(error, "type"), _member(error, "code")}
    said = _member(error, "message")
    return bool(kinds & _TOO_LONG_TYPES) or (
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


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ModelError("the engine's answer has another form") from None
