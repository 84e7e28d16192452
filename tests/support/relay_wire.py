"""Raw bytes on both sides of a relay: a scripted gateway and a plain client.

Blocking sockets and threads, so that every byte is where the test put it. The
time limits here only end what hangs; no test compares them with anything.
"""

import contextlib
import queue
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

HANG_S = 20.0
SEALED = bytes(range(256)) * 4
ANSWER = bytes(reversed(range(256))) * 3
REQUEST_TYPE = "message/ohttp-req"
CHUNKED_REQUEST = "message/ohttp-chunked-req"
ANSWER_TYPE = "message/ohttp-res"
CHUNKED_ANSWER = "message/ohttp-chunked-res"
HOST = "relay.example"


class Wire:
    """One connection, read in the units of HTTP/1.1."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(HANG_S)
        self.socket = connection
        self.seen = b""
        self.idle = False
        self._ahead = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def more(self) -> bytes:
        """Take what is there; nothing at the end of the stream."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        try:
            data = self.socket.recv(65536)
        except (ConnectionError, ssl.SSLError):
            data = b""
        self.seen += data
        return data

    def until(self, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            if not (piece := self.more()):
                return data
            data += piece
        taken, _, self._ahead = data.partition(mark)
        return taken + mark

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (piece := self.more()):
                return data
            data += piece
        self._ahead = data[count:] + self._ahead
        return data[:count]

    def chunk(self) -> bytes | None:
        """Read one chunk; None where the framing broke off."""
        line = self.until(b"\r\n")
        if not line.endswith(b"\r\n"):
            return None
        size = int(line, 16)
        piece = self.exactly(size)
        if len(piece) < size or self.exactly(2) != b"\r\n":
            return None
        return piece

    def ended(self) -> bool:
        """Wait for the end; whether nothing more came before it."""
        return self.more() == b""

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing came, not even the end, for so long."""
        return not select.select([self.socket], [], [], seconds)[0]

    def is_quiet(self) -> bool:
        """Whether it waits for a next request, and none has come."""
        try:
            return self.idle and not select.select([self.socket], [], [], 0)[0]
        except (OSError, ValueError):
            return True  # closed meanwhile

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def reset(self) -> None:
        """Close so that the peer sees a reset."""
        option = struct.pack("ii", 1, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        self.socket.close()


@dataclass(kw_only=True)
class Head:
    """The head of a message, as it was sent."""

    raw: bytes

    @property
    def start_line(self) -> str:
        return self.raw.split(b"\r\n")[0].decode("latin-1")

    @property
    def status(self) -> int:
        return int(self.start_line.split()[1])

    @property
    def lines(self) -> list[str]:
        return [line.decode("latin-1") for line in self.raw.split(b"\r\n")[1:] if line]

    @property
    def names(self) -> list[str]:
        return [line.partition(":")[0] for line in self.lines]

    def value(self, name: str) -> str | None:
        for line in self.lines:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None


@dataclass(kw_only=True)
class Answer(Head):
    """A whole answer as a client got it."""

    body: bytes
    complete: bool


def read_head(wire: Wire) -> Head:
    return Head(raw=wire.until(b"\r\n\r\n"))


def read_body(wire: Wire, head: Head) -> tuple[bytes, bool]:
    """Read a content by its framing; whether that was closed."""
    length = head.value("Content-Length")
    if (head.value("Transfer-Encoding") or "").lower() == "chunked":
        body = b""
        while piece := wire.chunk():
            body += piece
        return body, piece is not None
    if length is not None:
        body = wire.exactly(int(length))
        return body, len(body) == int(length)
    return b"".join(iter(wire.more, b"")), True


def read_answer(wire: Wire) -> Answer:
    """Read a final answer; informational ones before it are skipped."""
    head = read_head(wire)
    while head.raw.startswith(b"HTTP/1.1 1"):
        head = read_head(wire)
    assert head.raw.endswith(b"\r\n\r\n"), "the connection ended without an answer"
    body, complete = read_body(wire, head)
    return Answer(raw=head.raw, body=body, complete=complete)


def raw_request(
    *fields: str,
    method: str = "POST",
    target: str = "/demo",
    body: bytes | None = SEALED,
    kind: str | None = REQUEST_TYPE,
    host: str = HOST,
) -> bytes:
    """Write a request; its length is announced unless ``body`` is None."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *fields]
    if kind is not None:
        lines.append(f"Content-Type: {kind}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def raw_answer(
    *fields: str,
    status: str = "200 OK",
    kind: str | None = ANSWER_TYPE,
    body: bytes | None = ANSWER,
) -> bytes:
    """Write an answer; its length is announced unless ``body`` is None."""
    lines = [f"HTTP/1.1 {status}", *fields]
    if kind is not None:
        lines.append(f"Content-Type: {kind}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def one_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass(kw_only=True)
class Exchange:
    """One request at the gateway, while it is being answered."""

    wire: Wire
    head: Head
    connection: int
    body: bytes = b""
    complete: bool = False
    lost: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        """Read the content; a request without framing has none."""
        if {"Content-Length", "Transfer-Encoding"} & set(self.head.names):
            self.body, self.complete = read_body(self.wire, self.head)
        else:
            self.complete = True


Script = Callable[[Exchange], None]


def say(*parts: bytes) -> Script:
    """Read the request, say these bytes."""

    def script(exchange: Exchange) -> None:
        exchange.read()
        for part in parts:
            exchange.wire.send(part)

    return script


def say_and_close(*parts: bytes) -> Script:
    """Read the request, say these bytes, close in the middle."""

    def script(exchange: Exchange) -> None:
        say(*parts)(exchange)
        exchange.wire.close()

    return script


class Gateway:
    """A gateway that keeps exact bytes and does as the test's script says."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._next: queue.Queue[Exchange] = queue.Queue()
        self._open: list[Wire] = []
        self.forget()
        threading.Thread(target=self._accept, daemon=True).start()

    def settle(self) -> None:
        """Wait until what relays sent so far was read: no test sees another's."""
        knock = Wire(socket.create_connection(("127.0.0.1", self.port)))
        knock.close()
        end = time.monotonic() + HANG_S
        while time.monotonic() < end and not all(
            wire.is_quiet() for wire in list(self._open)
        ):
            time.sleep(0.001)

    def forget(self) -> None:
        """Begin a new test: the default script, nothing seen."""
        self.script: Script = say(raw_answer())
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self._next = queue.Queue()

    def arrival(self) -> Exchange:
        """Wait for the next request's head."""
        return self._next.get(timeout=HANG_S)

    def drop_connections(self) -> None:
        """Close every connection that a relay keeps."""
        for wire in list(self._open):
            wire.close()

    def close(self) -> None:
        self.drop_connections()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(
                    target=self._serve,
                    args=(connection, self.connections),
                    daemon=True,
                ).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            wire = Wire(connection)
            wire.socket.settimeout(None)
            self._open.append(wire)
            try:
                for exchange in self._exchanges(wire, number):
                    self.exchanges.append(exchange)
                    self._next.put(exchange)
                    self.script(exchange)
            finally:
                self._open.remove(wire)
                wire.close()
        connection.close()

    def _exchanges(self, wire: Wire, number: int) -> Iterator[Exchange]:
        while True:
            wire.idle = True
            head = read_head(wire)
            wire.idle = False
            if not head.raw.endswith(b"\r\n\r\n"):
                return
            yield Exchange(wire=wire, head=head, connection=number)
