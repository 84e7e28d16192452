"""A proxy between two parties that records the traffic; for demonstrations.

``python -m curtilage_dev.recorder`` runs in front of one party and shows what its
operator could see from outside: addresses, names of fields, sizes, times and the sealed
bytes. The parties themselves keep no record and do not know of this one. Bytes are
forwarded unchanged; only a copy of them is parsed.
"""

import argparse
import asyncio
import base64
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

READ_BYTES: Final = 64 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a copy; both parties refuse a head of a quarter of this."""
HEAD_END: Final = b"\r\n\r\n"
_LIVE: Final[set["asyncio.Task[None]"]] = set()


@dataclass(slots=True)
class Message:
    """One message as seen on the line: its first line, fields and content."""

    line: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    content: bytearray = field(default_factory=bytearray, repr=False)
    began: float | None = None
    whole: bool = False

    async def read(self, copy: asyncio.StreamReader) -> None:
        """Read the next message of a connection, with its content.

        Raises:
            asyncio.IncompleteReadError: the connection ended; what arrived is kept.
        """
        head = await copy.readuntil(HEAD_END)
        self.began = time.time()
        first, *lines = head[: -len(HEAD_END)].decode("latin-1").split("\r\n")
        self.line = tuple(first.split(" ", 2))
        pairs = (line.partition(":") for line in lines)
        self.fields = tuple((name, value.strip()) for name, _, value in pairs)
        values = {name.lower(): value for name, value in self.fields}
        if "transfer-encoding" not in values:
            await self._take(copy, int(values.get("content-length", "0")))
        else:
            # Each chunk: its length in hexadecimal, a line's end, the bytes and
            # another line's end; a length of 0 ends it (RFC 9112, section 7.1).
            while length := int(await copy.readuntil(b"\r\n"), 16):
                await self._take(copy, length)
                await copy.readexactly(2)
            await copy.readexactly(2)
        self.whole = True

    async def _take(self, copy: asyncio.StreamReader, count: int) -> None:
        while count:
            piece = await copy.read(min(count, READ_BYTES))
            if not piece:
                raise asyncio.IncompleteReadError(b"", count)
            self.content += piece
            count -= len(piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A recording proxy in front of one party.

    Attributes:
        host: the party's.
        port: the party's.
        towards: how to reach the party over TLS; None for plain TCP.
        write: takes one line for each exchange, after its last byte.
    """

    host: str
    port: int
    towards: ssl.SSLContext | None
    write: Callable[[str], None]

    async def connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward one connection, both ways, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a server's callback runs in a task
        _LIVE.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._pass_on(reader, writer)
        finally:
            writer.close()
            _LIVE.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer = str(writer.get_extra_info("peername")[0])
        party, to_party = await asyncio.open_connection(
            self.host, self.port, ssl=self.towards
        )
        asked = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        answered = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        watching = asyncio.create_task(self._watch(peer, asked, answered))
        ways = [
            asyncio.create_task(_copy(reader, to_party, asked)),
            asyncio.create_task(_copy(party, writer, answered)),
        ]
        try:
            # When one side disconnects, the other one is closed too: a truncation
            # must be passed on, and an answer without a reader must stop.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_party.close()
            asked.feed_eof()
            answered.feed_eof()
            await watching

    async def _watch(
        self, peer: str, asked: asyncio.StreamReader, answered: asyncio.StreamReader
    ) -> None:
        """Write a line for each exchange of a connection; nothing is pipelined."""
        while True:
            request, answer = Message(), Message()
            with suppress(
                asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError
            ):
                await request.read(asked)
                await answer.read(answered)
            if not request.line:
                return
            self.write(_line(peer, request, answer))
            if not answer.whole:
                return


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    copy: asyncio.StreamReader,
) -> None:
    while data := await reader.read(READ_BYTES):
        copy.feed_data(data)
        writer.write(data)
        await writer.drain()


def _line(peer: str, request: Message, answer: Message) -> str:
    method, path, *_ = (*request.line, "", "")
    seen = {
        "peer": peer,
        "method": method,
        "path": path,
        "header_names": [name for name, _ in request.fields],
        "request_bytes": len(request.content),
        "request_body": base64.b64encode(request.content).decode(),
        "status": int(answer.line[1]) if answer.whole else 0,
        "response_bytes": len(answer.content),
        "response_body": base64.b64encode(answer.content).decode(),
        "start": request.began,
        "first_byte": answer.began,
        "end": time.time(),
    }
    return json.dumps(seen, separators=(",", ":"))


async def _serve(options: argparse.Namespace) -> None:
    path: Path = options.record
    host, _, port = str(options.to).rpartition(":")
    inward, towards = None, None
    if options.ca is not None:
        inward = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        inward.load_cert_chain(options.certificate, options.key)
        towards = ssl.create_default_context(cafile=options.ca)

    def write(line: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    recorder = Recorder(host=host, port=int(port), towards=towards, write=write)
    server = await asyncio.start_server(recorder.connected, "127.0.0.1", 0, ssl=inward)
    own = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"ready": True, "listen": f"127.0.0.1:{own}"}) + "\n")
    sys.stdout.flush()
    await server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run in front of a party until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m curtilage_dev.recorder")
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--record", required=True, type=Path, metavar="FILE")
    parser.add_argument("--certificate", type=Path, help="own, for TLS on both sides")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--ca", type=Path, help="authority of the party's certificate")
    options = parser.parse_args(arguments)
    options.record.touch(mode=0o600)
    asyncio.run(_serve(options))


if __name__ == "__main__":
    main()
