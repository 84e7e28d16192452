"""The recorder forwards bytes unchanged, and records what it saw of them."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from curtilage_dev.recorder import Recorder
from support.tap import listening

REQUEST = b"POST /demo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
)


@dataclass
class Scene:
    """A party that answers each request with the next of its answers."""

    answers: list[bytes]
    port: int = 0
    heard: bytearray = field(default_factory=bytearray)
    lines: list[str] = field(default_factory=list[str])
    written: asyncio.Event = field(default_factory=asyncio.Event)

    async def party(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for answer in self.answers:
            self.heard += await reader.readexactly(len(REQUEST))
            writer.write(answer)
            await writer.drain()

    def write(self, line: str) -> None:
        self.lines.append(line)
        self.written.set()

    async def ask(self, requests: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for _ in range(requests):
            writer.write(REQUEST)
        answered = await reader.read(-1)
        writer.close()
        return answered

    async def seen(self) -> list[dict[str, object]]:
        await self.written.wait()
        return [json.loads(line) for line in self.lines]


@asynccontextmanager
async def scene(*answers: bytes) -> AsyncGenerator[Scene]:
    made = Scene(list(answers))
    async with listening(made.party) as there:
        recorder = Recorder(
            host="127.0.0.1", port=there, towards=None, write=made.write
        )
        async with listening(recorder.connected) as made.port:
            yield made


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["length", "chunks"])
async def test_bytes_pass_unchanged_and_are_written_down(answer: bytes) -> None:
    async with scene(answer) as made:
        assert await made.ask(1) == answer
        (seen,) = await made.seen()
    assert made.heard == REQUEST
    assert (seen["peer"], seen["method"], seen["path"]) == (
        "127.0.0.1",
        "POST",
        "/demo",
    )
    assert seen["header_names"] == ["Host", "Content-Length"]
    assert (seen["request_bytes"], seen["response_bytes"]) == (3, 5)
    assert base64.b64decode(str(seen["request_body"])) == b"abc"
    assert base64.b64decode(str(seen["response_body"])) == b"hello"
    assert seen["status"] == 200


async def test_each_exchange_of_a_connection_has_a_line() -> None:
    async with scene(WHOLE, CHUNKED) as made:
        assert await made.ask(2) == WHOLE + CHUNKED
    assert [one["response_bytes"] for one in await made.seen()] == [5, 5]


async def test_a_cut_answer_stays_cut_and_has_no_status() -> None:
    async with scene(CHUNKED[:-5]) as made:
        assert await made.ask(1) == CHUNKED[:-5]
        (seen,) = await made.seen()
    assert (seen["status"], seen["response_bytes"]) == (0, 5)
