"""A fake gateway and a raw client, to look at the relay from outside."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from curtilage.relay.app import Relay

CANARY = "canary-4111111111111111-öffne"
SEALED = bytes(range(256)) * 4
ANSWER = bytes(reversed(range(256))) * 3
CHUNKED_REQUEST = "message/ohttp-chunked-req"
CHUNKED_ANSWER = "message/ohttp-chunked-res"
PATIENCE_S = 20.0
"""A relay that lets a test wait for longer is broken."""


@dataclass
class Message:
    """One HTTP message as raw bytes."""

    head: bytes
    body: bytes = b""
    complete: bool = True
    pieces: list[bytes] = field(default_factory=list[bytes])

    @property
    def start_line(self) -> str:
        return self.head.split(b"\r\n")[0].decode("latin-1")

    @property
    def status(self) -> int:
        return int(self.start_line.split()[1])

    @property
    def lines(self) -> list[str]:
        return [line.decode("latin-1") for line in self.head.split(b"\r\n")[1:] if line]

    @property
    def names(self) -> list[str]:
        return [line.partition(":")[0] for line in self.lines]

    def value(self, name: str) -> str | None:
        for line in self.lines:
            key, _, value = line.partition(": ")
            if key.lower() == name.lower():
                return value
        return None


async def read_message(
    reader: asyncio.StreamReader, *, to_end: bool = False
) -> Message:
    """Read one message; ``complete`` says whether its framing was closed."""
    async with asyncio.timeout(PATIENCE_S):
        return await read_message_for_ever(reader, to_end=to_end)


async def read_message_for_ever(
    reader: asyncio.StreamReader, *, to_end: bool = False
) -> Message:
    """Read one message, whenever it comes."""
    head = await reader.readuntil(b"\r\n\r\n")
    message = Message(head=head)
    length = message.value("Content-Length")
    try:
        if (message.value("Transfer-Encoding") or "").lower() == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                piece = await reader.readexactly(size)
                await reader.readexactly(2)
                message.pieces.append(piece)
                message.body += piece
            await reader.readexactly(2)
        elif length is not None:
            message.body = await reader.readexactly(int(length))
        elif to_end:
            message.body = await reader.read()
    except asyncio.IncompleteReadError as cut:
        message.body += cut.partial
        message.complete = False
    return message


Script = Callable[[asyncio.StreamWriter, Message], Awaitable[None]]


def raw_answer(
    body: bytes = ANSWER,
    *,
    status: str = "200 OK",
    kind: str | None = "message/ohttp-res",
    fields: tuple[str, ...] = (),
) -> bytes:
    lines = [f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}"]
    if kind is not None:
        lines.append(f"Content-Type: {kind}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def say(*parts: bytes) -> Script:
    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        for part in parts:
            writer.write(part)
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()

    return script


class FakeGateway:
    """A gateway made of a raw socket: records requests, sends configured answers."""

    def __init__(self) -> None:
        self.script: Script = say(raw_answer())
        self.requests: list[Message] = []
        self.connections = 0
        self.port = 0
        self._arrivals = asyncio.Semaphore(0)
        self._greetings = asyncio.Semaphore(0)

    async def greeted(self, count: int = 1) -> None:
        """Wait for so many more connections."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                await self._greetings.acquire()

    async def arrived(self, count: int = 1) -> None:
        """Wait for so many more requests."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                await self._arrivals.acquire()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        self._greetings.release()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                # The relay keeps connections; who waits for them is no test.
                message = await read_message_for_ever(reader)
                self.requests.append(message)
                self._arrivals.release()
                if not message.complete:
                    break
                await self.script(writer, message)
        writer.close()


@dataclass
class Running:
    """A relay in this process, and a raw way to talk to it."""

    relay: Relay
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, data: bytes) -> Message:
        """Send bytes over a connection of their own and read one answer."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await read_message(reader, to_end=True)
        finally:
            writer.close()

    async def get(self, path: str, *fields: str) -> Message:
        return await self.send(raw_request("GET", path, fields))

    async def post(
        self,
        path: str = "/demo",
        *fields: str,
        body: bytes = SEALED,
        kind: str = "message/ohttp-req",
    ) -> Message:
        return await self.send(
            raw_request("POST", path, (f"Content-Type: {kind}", *fields), body)
        )


def raw_request(
    method: str, target: str, fields: tuple[str, ...] = (), body: bytes | None = None
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: relay.example", *fields]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


MakeRelay = Callable[..., Awaitable[Running]]
