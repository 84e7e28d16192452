"""Answers by an OpenAI-compatible server inside the enclave's trusted boundary.

vLLM, SGLang and llama.cpp's server spread one model over several GPUs and batch by
themselves. Such a server is reached over a UNIX socket or loopback, never over a
network. It sees every question in the clear, so it must be measured and confined with
the enclave; what it keeps of a question is its own affair, and no digest of its weights
is claimed. Nothing of a question or an answer enters an error.

Whether it answers is learned from what is asked of it; while nothing is, or it fails,
its list of models is asked for.
"""

import asyncio
import json
import math
import secrets
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager, suppress
from typing import Final

import aiohttp

from curtilage.enclave_server.config import Peer
from curtilage.enclave_server.errors import (
    BusyError,
    EngineCrashedError,
    EngineHungError,
    ModelError,
    ModelUnavailableError,
    PromptTooLongError,
)
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
"""Between two looks while it starts or fails."""
IDLE_S: Final = 30.0
"""Without a word of it for so long, it is looked at."""
LIST_S: Final = 10.0
"""For its list of models."""
CONNECT_S: Final = 5.0
MAX_REFUSAL_BYTES: Final = 64 * 1024
MAX_LIST_BYTES: Final = 1024 * 1024
_OK: Final = 200
_BAD_REQUEST: Final = 400
_BUSY: Final = frozenset({429, 503})
# Another server than the one that was waited for, or a proxy in front of none.
_ABSENT: Final = frozenset({404, 502, 504})
UNREACHABLE: Final = "the engine cannot be reached"
NOT_READY: Final = "the engine is not ready"
OTHER_MODEL: Final = "the engine there has no such model"
SILENT: Final = "the engine makes no progress"
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
        self._wrong = ""
        self._loaded: Callable[[], object] = lambda: None
        self._failed: Callable[[Reason, str], object] = lambda _reason, _why: None
        self._heard_s = -math.inf
        self._doubted = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

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
    def trial(self) -> None:
        """None: nobody tries that program's walls."""

    @property
    def failing(self) -> Reason | None:
        """Why it does not answer at the moment, or None."""
        return Reason.MODEL_UNAVAILABLE if self._wrong else None

    def report_to(
        self, loaded: Callable[[], object], failed: Callable[[Reason, str], object]
    ) -> None:
        """Call back when it fails, and when it answers again.

        Args:
            loaded: called when it answers again.
            failed: called with the reason, and with one of this module's texts.
        """
        self._loaded, self._failed = loaded, failed
        if self._wrong:
            failed(Reason.MODEL_UNAVAILABLE, self._wrong)

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and answer together, as the operator states them."""
        return self._context_tokens

    def keep_to(self, transport: TransportParameters) -> None:
        """Do nothing: how long a request will wait there is not known here."""

    async def start(
        self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Wait until the server lists the model; from then on watch it.

        Raises:
            ModelError: it does not answer within ``START_S``, lists others only, or
                others can replace its socket.
        """
        left_s = START_S
        while True:
            try:
                names = await self._names()
            except ModelUnavailableError:
                # It listens before it has read the weights, or does not listen yet.
                left_s -= LOOK_S
                if left_s <= 0:
                    raise ModelError("model.address: no engine answers there") from None
                await sleep(LOOK_S)
                continue
            if self._peer.name not in names:
                raise ModelError(f"model.name: {OTHER_MODEL}")
            self._watching = asyncio.create_task(self._watch())
            return

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        """Answer one request; closing the iterator cancels it there, too.

        Raises:
            BusyError: too many requests wait, here or there.
            PromptTooLongError: its context is too small.
            ChatError: it refuses this request.
            ModelUnavailableError: it cannot be reached.
            EngineCrashedError: the connection ended during the answer.
            EngineHungError: it wrote nothing for ``Peer.stall_s``.
            ModelError: it failed in another way, or its answer is none.
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
        except (BusyError, PromptTooLongError):
            raise
        except ModelError:
            # Perhaps not only this answer failed.
            self._doubted.set()
            raise
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close every connection; the server stops what it writes for them."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _watch(self) -> None:
        """Look at it while it fails, and while nothing is heard of it."""
        while True:
            pause_s = LOOK_S if self._wrong else IDLE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._doubted.wait()
            doubted = self._doubted.is_set()
            # Before the look: what fails during it is looked at again.
            self._doubted.clear()
            if doubted or self._wrong or self._unheard_s() >= IDLE_S:
                await self._look()

    async def _look(self) -> None:
        try:
            wrong = "" if self._peer.name in await self._names() else OTHER_MODEL
        except ModelError as error:
            wrong = str(error)
        # A hung engine's server still lists its models; only an answer shows more.
        if wrong or self._wrong != SILENT:
            self._note(wrong)

    def _note(self, wrong: str) -> None:
        """Note what is wrong with it; an empty text: nothing is."""
        before, self._wrong = self._wrong, wrong
        if wrong and wrong != before:
            self._failed(Reason.MODEL_UNAVAILABLE, wrong)
        elif before and not wrong:
            self._loaded()

    def _hear(self) -> float:
        """Note that it writes; return the time until which it may pause."""
        self._note("")
        self._heard_s = asyncio.get_running_loop().time()
        return self._heard_s + self._peer.stall_s

    def _unheard_s(self) -> float:
        return asyncio.get_running_loop().time() - self._heard_s

    async def _names(self) -> frozenset[str]:
        try:
            self._require_own_socket()
            async with (
                asyncio.timeout(LIST_S),
                self._open().get(
                    self._url("models"), allow_redirects=False
                ) as response,
            ):
                if response.status != _OK:
                    raise ModelUnavailableError(NOT_READY)
                data = await response.content.read(MAX_LIST_BYTES)
        except (aiohttp.ClientError, OSError):
            raise ModelUnavailableError(UNREACHABLE) from None
        try:
            models = json.loads(data)["data"]
            return frozenset(str(model["id"]) for model in models)
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ModelError("model.address: no OpenAI-compatible engine") from None

    async def _ask(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        body = request_body(chat, self._peer.name, secrets.token_hex(16))
        until = asyncio.get_running_loop().time() + self._peer.stall_s
        with self._as_failure():
            self._require_own_socket()
            # Some send the head before the question has its turn, others with its
            # first word.
            async with asyncio.timeout_at(until):
                response = await self._open().post(
                    self._url("chat/completions"),
                    data=body,
                    headers={"Content-Type": "application/json"},
                    # A redirect leads out of the boundary.
                    allow_redirects=False,
                )
        try:
            await self._require_stream(response, chat)
            reader = EventReader(chat)
            yield Begun()
            while not reader.ended:
                with self._as_failure():
                    async with asyncio.timeout_at(until):
                        data = await response.content.readany()
                if not data:
                    raise EngineCrashedError("the engine's answer was cut off")
                events = reader.events
                for answer in reader.push(data):
                    yield answer
                # Not by each byte: comments keep a connection alive while it hangs.
                if reader.events > events:
                    until = self._hear()
        finally:
            # Not released into a pool: a closed connection is what stops the engine.
            response.close()

    async def _require_stream(
        self, response: aiohttp.ClientResponse, chat: ChatCompletionRequest
    ) -> None:
        if response.status == _OK and response.content_type == "text/event-stream":
            return
        if response.status in _BUSY:
            raise BusyError("the engine is busy")
        if response.status in _ABSENT:
            raise ModelUnavailableError(NOT_READY)
        if response.status == _BAD_REQUEST:
            with self._as_failure():
                async with asyncio.timeout(self._peer.stall_s):
                    data = await response.content.read(MAX_REFUSAL_BYTES)
            raise refusal_of(data, chat)
        raise ModelError("the engine refused the request")

    @contextmanager
    def _as_failure(self) -> Generator[None]:
        """Map the library's errors to ours, without their text."""
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
            raise ModelUnavailableError(UNREACHABLE) from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            raise EngineCrashedError("the engine ended the connection") from None
        except aiohttp.ClientError:
            raise ModelError("the engine's answer is not HTTP") from None
        except TimeoutError:
            raise self._stalled() from None
        except OSError:
            raise ModelUnavailableError(UNREACHABLE) from None

    def _stalled(self) -> ModelError:
        # Others are answered meanwhile: it waits in the queue there.
        if self._unheard_s() < self._peer.stall_s / 2:
            return BusyError("the engine is busy")
        self._note(SILENT)
        return EngineHungError(SILENT)

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
