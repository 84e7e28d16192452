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
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Final

import aiohttp

from curtilage.enclave_server.config import Peer
from curtilage.enclave_server.errors import BusyError, ModelError
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun
from curtilage.enclave_server.peer_messages import (
    EventReader,
    refusal_of,
    request_body,
)
from curtilage.enclave_server.telemetry import Reason
from curtilage.wire.shaping import TransportParameters

START_S: Final = 1800.0
"""A model of many gigabytes is read from a disk before its server listens."""
LOOK_S: Final = 1.0
CONNECT_S: Final = 5.0
STALL_S: Final = 120.0
"""Longest pause between two pieces; the whole answer has a limit of its own."""
MAX_REFUSAL_BYTES: Final = 64 * 1024
MAX_LIST_BYTES: Final = 1024 * 1024
_OK: Final = 200
_BAD_REQUEST: Final = 400
_BUSY: Final = frozenset({429, 503})
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


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
            await _require_stream(response, chat)
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


async def _require_stream(
    response: aiohttp.ClientResponse, chat: ChatCompletionRequest
) -> None:
    if response.status == _OK and response.content_type == "text/event-stream":
        return
    if response.status in _BUSY:
        raise BusyError("the engine is busy")
    if response.status == _BAD_REQUEST:
        with _as_failure(ModelError):
            data = await response.content.read(MAX_REFUSAL_BYTES)
        raise refusal_of(data, chat)
    raise ModelError("the engine refused the request")


@contextmanager
def _as_failure(failure: type[ModelError]) -> Generator[None]:
    """Map the library's errors to ours, without their text."""
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError):
        raise failure("the engine cannot be reached") from None
