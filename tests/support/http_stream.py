"""Strict parser of a recorded HTTP/1.1 stream: every byte must have a meaning."""

import re
from dataclasses import dataclass, field, replace

_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([^\r\n]*)")
_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")


class StreamError(Exception):
    """The bytes are not exactly a sequence of complete HTTP messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpMessage:
    """One message.

    Attributes:
        start: the request or status line.
        fields: names as written, and values, in order.
        body: its content.
        pieces: the content as it was cut for transfer.
    """

    start: str
    fields: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    pieces: tuple[bytes, ...] = field(repr=False)

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.start.split(" ")[1])

    def value(self, name: str) -> str | None:
        """Return the one value of a field; its name in lower case."""
        values = [value for key, value in self.fields if key.lower() == name]
        if len(values) > 1:
            raise StreamError(f"{name} occurs twice")
        return values[0] if values else None


def read_requests(data: bytes, *, cut: bool = False) -> list[HttpMessage]:
    """Read a client's side of a connection.

    Args:
        data: all of it.
        cut: whether the last request's body may be incomplete: a refused client
            need not send the rest.

    Raises:
        StreamError: an octet has no meaning, or a message is not whole.
    """
    return _read(data, cut=cut)


def read_responses(data: bytes) -> list[HttpMessage]:
    """Read a server's side of a connection.

    Raises:
        StreamError: an octet has no meaning, or a message is not whole.
    """
    messages = _read(data, cut=False)
    if not all(message.start.startswith("HTTP/1.1 ") for message in messages):
        raise StreamError("no status line")
    return messages


def _read(data: bytes, *, cut: bool) -> list[HttpMessage]:
    messages: list[HttpMessage] = []
    while data:
        message, data = _one(data, cut=cut)
        messages.append(message)
    return messages


def _one(data: bytes, *, cut: bool) -> tuple[HttpMessage, bytes]:
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        raise StreamError("a head without its end")
    start, *lines = head.decode("latin-1").split("\r\n")
    found = [_LINE.fullmatch(line) for line in lines]
    fields = tuple((match[1], match[2]) for match in found if match)
    if len(fields) != len(lines):
        raise StreamError("a line that is no field")
    message = HttpMessage(start=start, fields=fields, body=b"", pieces=())
    pieces, rest = _content(message, rest, cut=cut)
    return replace(message, body=b"".join(pieces), pieces=tuple(pieces)), rest


def _content(
    message: HttpMessage, rest: bytes, *, cut: bool
) -> tuple[list[bytes], bytes]:
    coding = message.value("transfer-encoding")
    length = message.value("content-length")
    if coding is not None:
        if coding != "chunked" or length is not None:
            raise StreamError("a length in two ways")
        return _chunks(rest)
    count = int(length or "0")
    if len(rest) < count and not cut:
        raise StreamError("a body without its end")
    return [rest[:count]] if count else [], rest[count:]


def _chunks(rest: bytes) -> tuple[list[bytes], bytes]:
    pieces: list[bytes] = []
    while True:
        size, end, rest = rest.partition(b"\r\n")
        if not end or not _SIZE.fullmatch(size):
            raise StreamError("no size of a chunk; an extension counts as none")
        count = int(size, 16)
        piece, end, rest = rest[:count], rest[count : count + 2], rest[count + 2 :]
        if end != b"\r\n" or len(piece) != count:
            raise StreamError("a chunk without its end")
        if not count:
            return pieces, rest
        pieces.append(piece)
