"""Frames over the pipes of a confined process, for both ends.

Length-prefixed JSON, so that the process's output consists only of values to be parsed:
a hostile text may have compromised it.
"""

import json
import struct
from typing import IO, Final

_HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024  # a batch of the longest texts, escaped


def encode_frame(value: object) -> bytes:
    """Return a value as JSON after its length, 4 bytes, big-endian."""
    # ASCII: as an escape, a lone surrogate passes, which UTF-8 cannot represent.
    body = json.dumps(value, separators=(",", ":")).encode("ascii")
    return _HEADER.pack(len(body)) + body


def read_frame(stream: IO[bytes]) -> object | None:
    """Read one value; None at the end of the stream.

    Raises:
        ValueError: cut, too long, or not JSON.
    """
    length = read_length(stream)
    return None if length is None else read_body(stream, length)


def read_length(stream: IO[bytes]) -> int | None:
    """Read the length of the next frame, in bytes; None at the end of the stream.

    Raises:
        ValueError: cut, or too long.
    """
    header = _read(stream, _HEADER.size)
    if not header:
        return None
    if len(header) != _HEADER.size:
        raise ValueError("a frame's length is truncated")
    return _length(header, MAX_FRAME_BYTES)


def read_body(stream: IO[bytes], length: int) -> object:
    """Read the rest of a frame, after ``read_length``; return its value.

    Raises:
        ValueError: cut, or not JSON.
    """
    body = _read(stream, length)
    if len(body) != length:
        raise ValueError("a frame is truncated")
    return _decoded(body)


class FrameReader:
    """Cuts frames from bytes as they arrive, for an event loop.

    Args:
        max_bytes: the longest frame that is accepted.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> list[object]:
        """Take more bytes; return the values that are complete now.

        Raises:
            ValueError: a frame is too long, or not JSON.
        """
        self._data += data
        values: list[object] = []
        begin, start = 0, _HEADER.size
        while len(self._data) >= start:
            end = start + _length(self._data[begin:start], self._max_bytes)
            if len(self._data) < end:
                break
            values.append(_decoded(self._data[start:end]))
            begin, start = end, end + _HEADER.size
        # Deleted alone, what was read would stay in the same memory before the rest.
        self._data[:begin] = bytes(begin)
        del self._data[:begin]
        return values


def write_frame(stream: IO[bytes], frame: bytes) -> None:
    """Write all of a frame to a pipe that has no buffer of its own.

    A buffer would keep the last data, which is a text, until something else is written.
    """
    rest = memoryview(frame)
    while rest:
        rest = rest[stream.write(rest) :]


def _length(header: bytearray, max_bytes: int) -> int:
    (length,) = _HEADER.unpack(header)
    # Checked before reading: a compromised process must not fill our memory.
    if length > max_bytes:
        raise ValueError("a frame is too long")
    return int(length)


def _decoded(body: bytearray) -> object:
    try:
        value: object = json.loads(body)
    finally:
        body[:] = bytes(len(body))
    if value is None:
        raise ValueError("a frame is empty")
    return value


def _read(stream: IO[bytes], size: int) -> bytearray:
    """Read so many bytes, or those before the end."""
    data = bytearray()
    while len(data) < size and (part := stream.read(size - len(data))):
        data += part
    return data
