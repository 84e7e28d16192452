"""One question over one connection, with every moment and every byte counted.

A measuring client: it seals and opens with the wire's own code if the connection is
sealed, and supports just enough HTTP to read a chunked answer. It ignores evidence; the
client's checks before sealing are not measured here.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from curtilage.wire import bhttp
from curtilage.wire.chunked import ChunkedResponseOpener, seal_chunked_request
from curtilage.wire.keyconfig import KeyConfig
from curtilage.wire.padding import seal_padded_request

SAID: Final = b"word"
END: Final = b"[DONE]"
OK: Final = 200
QUESTION: Final = "What is the difference between a virus and a bacterium?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to ask.

    Attributes:
        name: for display.
        address: ``host:port``.
        path: of the request line.
        key: what to seal to; None: nothing is sealed.
        padded: whether requests have size classes.
        tls: for the connection; None: plain.
        source: the loopback address to ask from; empty: any.
    """

    name: str
    address: str
    path: str
    key: KeyConfig | None = None
    padded: bool = False
    tls: ssl.SSLContext | None = None
    source: str = ""


@dataclass(slots=True, kw_only=True)
class Heard:
    """Seconds from the first step of asking on.

    Attributes:
        first_s: until the first piece of the answer could be shown.
        text_s: until the last one could.
        all_s: until the line was free again.
    """

    first_s: float = 0.0
    text_s: float = 0.0
    all_s: float = 0.0


async def ask(way: Way, *, seed: int, only_first: bool = False) -> Heard:
    """Ask once over a connection that is there already.

    Args:
        way: how.
        seed: the question's.
        only_first: hang up after the first piece.
    """
    heard = Heard()
    async with aclosing(pieces(way, _question(seed))) as answer:
        async for after_s, text in answer:
            if not heard.first_s and SAID in text:
                heard.first_s = after_s
                if only_first:
                    return heard
            if END in text:
                heard.text_s = after_s
            heard.all_s = after_s
    return heard


async def pieces(way: Way, question: bytes) -> AsyncGenerator[tuple[float, bytes]]:
    """Ask, and yield the answer's content as it can be read, with the seconds so far.

    The last piece is empty: then the line is free. Closing the iterator hangs up.

    Args:
        way: how; the connection is there before the time begins.
        question: a request's body, JSON.

    Raises:
        RuntimeError: the answer has another status than 200.
        OSError: the connection failed.
        EOFError: the answer was cut.
    """
    host, _, port = way.address.rpartition(":")
    name = None if way.tls is None else host
    reader, writer = await asyncio.open_connection(
        host,
        int(port),
        ssl=way.tls,
        server_hostname=name,
        local_addr=(way.source, 0) if way.source else None,
    )
    try:
        started = time.perf_counter()
        content, opening = _prepared(way, question)
        writer.write(_head(way, len(content)) + content)
        async with aclosing(_body(reader)) as body:
            async for piece in body:
                for text in opening.read(piece):
                    yield time.perf_counter() - started, text
        opening.finish()
        yield time.perf_counter() - started, b""
    finally:
        writer.transport.abort()


@dataclass(slots=True)
class Opening:
    """Decoder of a body's pieces into the answer's text."""

    opener: ChunkedResponseOpener | None = None
    decoder: bhttp.ResponseDecoder = field(default_factory=bhttp.ResponseDecoder)

    def read(self, piece: bytes) -> Iterator[bytes]:
        """Yield the content that a piece of the body holds."""
        if self.opener is None:
            yield piece
            return
        for plaintext in self.opener.push(piece):
            yield from self._content(plaintext)

    def finish(self) -> None:
        """Require the end of a sealed answer."""
        if self.opener is not None:
            for _ in self._content(self.opener.finish()):
                pass
            self.decoder.finish()

    def _content(self, plaintext: bytes) -> Iterator[bytes]:
        for event in self.decoder.push(plaintext):
            if isinstance(event, bhttp.ResponseHead) and event.status != OK:
                raise RuntimeError("a question of the benchmark was refused")
            if isinstance(event, bhttp.ContentChunk):
                yield event.data


def _prepared(way: Way, question: bytes) -> tuple[bytes, Opening]:
    if way.key is None:
        return question, Opening()
    request = bhttp.encode_request(
        bhttp.Request(
            method=b"POST",
            scheme=b"https",
            authority=b"curtilage.invalid",
            path=b"/v1/chat/completions",
            fields=(
                (b"content-type", b"application/json"),
                (b"date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", _now()).encode()),
            ),
            content=question,
        )
    )
    seal = seal_padded_request if way.padded else seal_chunked_request
    sealed = seal(way.key, request)
    limits = bhttp.Limits(max_content_bytes=2**24)
    return sealed.message, Opening(sealed.opener, bhttp.ResponseDecoder(limits))


def _now() -> time.struct_time:
    return time.gmtime()


def _question(seed: int) -> bytes:
    value = {
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 200,
        "stream": True,
        "seed": seed,
    }
    return json.dumps(value).encode()


def _head(way: Way, length: int) -> bytes:
    kind = "application/json" if way.key is None else "message/ohttp-chunked-req"
    incremental = "" if way.key is None else "Incremental: ?1\r\n"
    return (
        f"POST {way.path} HTTP/1.1\r\nHost: {way.address}\r\n"
        f"Content-Type: {kind}\r\n{incremental}Content-Length: {length}\r\n\r\n"
    ).encode()


async def _body(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head or b"chunked" not in head.lower():
        raise RuntimeError("a question of the benchmark was not answered")
    while True:
        length = int(await reader.readuntil(b"\r\n"), 16)
        piece = await reader.readexactly(length + 2)
        if not length:
            return
        yield piece[:-2]


@dataclass(slots=True)
class Counted:
    """Bytes that passed a line, and where to connect to pass it.

    Attributes:
        address: ``host:port``.
        up: from the client.
        down: to the client.
    """

    address: str = ""
    up: int = 0
    down: int = 0


@asynccontextmanager
async def counted(there: str) -> AsyncGenerator[Counted]:
    """Forward to ``there``, and count the bytes."""
    line = Counted()
    writers: set[asyncio.StreamWriter] = set()
    host, _, port = there.rpartition(":")

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))

        writers.update((writer, far_writer))

        async def up() -> None:
            while data := await reader.read(65536):
                line.up += len(data)
                far_writer.write(data)
            far_writer.close()

        async def down() -> None:
            while data := await far_reader.read(65536):
                line.down += len(data)
                writer.write(data)
            writer.close()

        with suppress(asyncio.CancelledError):
            await asyncio.gather(up(), down(), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    line.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
        for each in writers:
            each.close()
        await server.wait_closed()
