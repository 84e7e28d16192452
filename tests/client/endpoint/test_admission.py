"""Programs that connect in great numbers, slowly, or with malformed HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import openai
import pytest
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.query import Query
from curtilage.client.endpoint import admission as gateway_door
from curtilage.client.endpoint import server as gateway
from curtilage.client.local.model import LocalModelBusyError
from curtilage.client.parts import AnswersLocally, ClientParts
from curtilage.client.session import Session
from curtilage.client.system.fair_queue import ASKER, Asker
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import Clock, key_store

CANARY = "canary-77ab"
ASK = {"messages": [{"role": "user", "content": CANARY}]}
PATH = "/v1/chat/completions"
LONG_S = 60  # until a test gives up; nothing here takes long
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\n"
)


@asynccontextmanager
async def served(local: AnswersLocally | None = None) -> AsyncGenerator[int]:
    session = Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector("financial.pan"),
            local=local or ScriptedLocal(),
            transport=None,
            keys=key_store(),
            audit=MemoryTrail(),
            clock=Clock(),
        )
    )
    async with session, gateway.serving(session, "127.0.0.1", 0) as port:
        yield port


class Program:
    """A connection whose bytes the test writes itself."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def rest(self) -> bytes:
        """Return all that comes until the endpoint closes the connection."""
        async with asyncio.timeout(LONG_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def answer(self) -> bytes:
        """Return one answer with a known length; the connection stays."""
        async with asyncio.timeout(LONG_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            return head + await self.reader.readexactly(int(length))


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Program]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Program(reader, writer)
    finally:
        writer.close()


async def asked(port: int) -> int:
    """Ask as any program does; return the status."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(LONG_S)) as session,
        session.post(f"http://127.0.0.1:{port}{PATH}", json=ASK) as response,
    ):
        await response.read()
        return response.status


HALF = {
    "nothing": b"",
    "half a head": HEAD,
    "half a content": HEAD + b"Content-Length: 100\r\n\r\n{",
}


@pytest.mark.parametrize("half", HALF.values(), ids=HALF.keys())
async def test_half_sent_requests_exclude_no_other_caller(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "affordable_connections", lambda: 16)
    async with served() as port, AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(connected(port)) for _ in range(40)]
        for program in crowd:
            program.send(half)
        assert await asked(port) == 200
        # At once: after ten seconds each would be closed for its silence.
        async with asyncio.timeout(5):
            for program in crowd[:32]:  # all but those that may wait
                assert await program.rest() == b""


async def test_silent_connections_are_closed_before_active_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "affordable_connections", lambda: 4)
    content = json.dumps(ASK).encode()
    async with served() as port, AsyncExitStack() as stack:
        speaks = await stack.enter_async_context(connected(port))
        speaks.send(HEAD + b"Content-Length: %d\r\n" % len(content))
        await asyncio.sleep(0.05)
        silent = [await stack.enter_async_context(connected(port)) for _ in range(4)]
        for program in silent[:3]:
            assert await program.rest() == b""
        speaks.send(b"\r\n" + content)
        assert (await speaks.answer()).startswith(b"HTTP/1.1 200 ")


async def test_above_the_limit_new_connections_get_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "affordable_connections", lambda: 2)
    local = Held()
    async with served(local) as port, AsyncExitStack() as stack:
        content = json.dumps(ASK).encode()
        busy: list[Program] = []
        for _ in range(2):
            busy.append(await stack.enter_async_context(connected(port)))
            busy[-1].send(HEAD + b"Content-Length: %d\r\n\r\n" % len(content))
            busy[-1].send(content)
            async with asyncio.timeout(LONG_S):
                await local.begun.get()
        late = await stack.enter_async_context(connected(port))
        head, _, body = (await late.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert json.loads(body)["error"]["type"] == "rate_limit_error"
        local.go.set()
        assert (await busy[0].answer()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("half", HALF.values(), ids=HALF.keys())
async def test_a_request_that_does_not_come_ends(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_door, "REQUEST_S", 0.05)
    async with served() as port, connected(port) as program:
        program.send(half)
        assert await program.rest() == b""


async def test_a_further_request_that_does_not_come_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as port, connected(port) as program:
        program.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await program.answer()).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(gateway_door, "REQUEST_S", 0.05)
        program.send(HEAD)
        assert await program.rest() == b""


async def test_a_client_that_does_not_read_loses_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_door, "UNREAD_S", 0.05)
    local = Endless()
    content = json.dumps({**ASK, "stream": True}).encode()
    async with served(local) as port, connected(port) as program:
        program.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        async with asyncio.timeout(LONG_S):
            await local.left.wait()


async def test_a_client_that_reads_too_slowly_loses_the_answer_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_door, "UNREAD_S", 0.3)
    local = Endless()
    content = json.dumps({**ASK, "stream": True}).encode()
    async with served(local) as port, connected(port) as program:
        program.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        async with asyncio.timeout(LONG_S):
            while not local.left.is_set():
                await program.reader.read(2**20)
                await asyncio.sleep(0.01)


MALFORMED = {
    "chunk": HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"mod' + CANARY.encode(),
    "chunk size": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + CANARY.encode()
    + b"\r\n\r\n",
    "line": CANARY.encode() + b"\r\n\r\n",
    "version": b"GET /" + CANARY.encode() + b" HTTP/9.9\r\n\r\n",
    "field": HEAD + CANARY.encode() + b"\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "both": HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_http_is_answered_in_our_words(octets: bytes) -> None:
    async with served() as port, connected(port) as program:
        program.send(octets)
        head, _, body = (await program.rest()).partition(b"\r\n\r\n")
    assert head[8:].startswith(b" 400 ")
    assert body == gateway_door.MALFORMED
    assert b"\r\nServer: curtilage\r\n" in head + b"\r\n"
    for word in (CANARY.encode(), b"Python", b"aiohttp"):
        assert word not in head


TOO_LONG = {
    "line": (
        b"GET /" + CANARY.encode() * 1000 + b" HTTP/1.1\r\n\r\n",
        414,
        "uri_too_long",
    ),
    "value": (
        HEAD + b"A: " + CANARY.encode() * 1000 + b"\r\n\r\n",
        431,
        "header_too_large",
    ),
    "name": (HEAD + CANARY.encode() * 1000 + b": a\r\n\r\n", 431, "header_too_large"),
    "fields": (HEAD + b"A: b\r\n" * 100 + b"\r\n", 431, "header_too_large"),
}


@pytest.mark.parametrize(
    ("octets", "status", "code"), TOO_LONG.values(), ids=TOO_LONG.keys()
)
async def test_a_head_that_is_too_long_is_called_that(
    octets: bytes, status: int, code: str
) -> None:
    async with served() as port, connected(port) as program:
        program.send(octets)
        head, _, body = (await program.rest()).partition(b"\r\n\r\n")
    assert head[8:].startswith(b" %d " % status)
    assert json.loads(body)["error"]["code"] == code
    assert CANARY.encode() not in head + body


async def test_a_request_announced_as_too_large_is_refused_early() -> None:
    async with served() as port, connected(port) as program:
        program.send(HEAD + b"Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n")
        answer = await program.answer()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"request_too_large" in answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("HEAD", "/healthz", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/curtilage", 200),
        ("GET", f"/v1/models/{CANARY}", 404),
        ("GET", f"/{CANARY}", 404),
        ("GET", PATH, 405),
        ("DELETE", PATH, 405),
        (CANARY, PATH, 400),
        ("POST", PATH, 400),
        ("OPTIONS", "*", 404),
    ],
)
async def test_no_answer_names_its_maker(method: str, path: str, status: int) -> None:
    async with served() as port, connected(port) as program:
        program.send(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        head, _, body = (await program.rest()).partition(b"\r\n\r\n")
    assert head[8:].startswith(b" %d " % status)
    assert b"\r\nServer: curtilage\r\n" in head
    assert CANARY.encode() not in head + body
    if status >= 400:
        reported = json.loads(body)["error"]
        assert reported.keys() == {"message", "type", "param", "code"}


async def test_a_request_may_expect_to_go_on() -> None:
    async with (
        served() as port,
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{port}{PATH}", json=ASK, expect100=True
        ) as response,
    ):
        assert response.status == 200
    async with served() as port, connected(port) as program:
        program.send(HEAD + b"Expect: more\r\nConnection: close\r\n\r\n")
        assert (await program.rest()).startswith(b"HTTP/1.1 417 ")


async def test_each_connection_asks_for_itself() -> None:
    local = Remembering()
    async with served(local) as port:
        for _ in range(2):
            async with aiohttp.ClientSession() as session:
                for _ in range(2):
                    url = f"http://127.0.0.1:{port}{PATH}"
                    async with session.post(url, json=ASK) as response:
                        await response.read()
    first, again, other, last = local.askers
    assert first is again
    assert other is last
    assert None is not first is not other


async def test_the_openai_package_asks_again_when_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "RETRY_AFTER_S", 0)
    local = BusyOnce()
    async with (
        served(local) as port,
        openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=1
        ) as client,
    ):
        answer = await client.chat.completions.create(
            model="curtilage", messages=[{"role": "user", "content": "hello"}]
        )
    assert answer.choices[0].message.content == "At home."
    assert local.times == 2


async def test_a_caller_that_must_wait_learns_how_long() -> None:
    async with (
        served(BusyOnce()) as port,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}{PATH}", json=ASK) as response,
    ):
        assert response.status == 429
        assert response.headers["Retry-After"] == str(gateway.RETRY_AFTER_S)
        reported = (await response.json())["error"]
    assert (reported["type"], reported["code"]) == (
        "rate_limit_error",
        "rate_limit_exceeded",
    )


class Held(ScriptedLocal):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.go = asyncio.Event()

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.begun.put_nowait(None)
        await self.go.wait()
        async for event in super().generate(query):
            yield event


class Endless(ScriptedLocal):
    """Answers more than any buffer holds."""

    def __init__(self) -> None:
        super().__init__(words=["word" * 16_384] * 4096)
        self.left = asyncio.Event()

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        try:
            async for event in super().generate(query):
                yield event
        finally:
            self.left.set()


class Remembering(ScriptedLocal):
    """Remembers who asked."""

    def __init__(self) -> None:
        super().__init__()
        self.askers: list[Asker | None] = []

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.askers.append(ASKER.get())
        async for event in super().generate(query):
            yield event


class BusyOnce(ScriptedLocal):
    """Has no time for the first question."""

    times = 0

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.times += 1
        if self.times == 1:
            raise LocalModelBusyError("too many queries wait for the local model")
        async for event in super().generate(query):
            yield event
