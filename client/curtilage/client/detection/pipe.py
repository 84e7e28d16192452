"""The pipe between the client and the detectors' process, for both ends.

Length-prefixed JSON, so that a worker's output consists only of numbers and names to be
parsed: hostile texts may have compromised the worker.
"""

import json
import struct
from typing import IO, Final

_HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024  # a batch of the longest texts, escaped
READY: Final = "ready"
BROKEN: Final = "broken"
LOADING: Final = "loading"
GRACE_S: Final = 2.0  # how long a late answer is awaited before the worker is killed
SPARE: Final = "--spare"
LOAD_PROCESSOR_S: Final = 30.0
LOAD_WALL_S: Final = 120.0
"""The limit for everything that a worker loads at first use, in total."""


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
    header = _read(stream, _HEADER.size)
    if not header:
        return None
    if len(header) != _HEADER.size:
        raise ValueError("a frame's length is truncated")
    (length,) = _HEADER.unpack(header)
    # Checked before reading: a compromised worker must not fill our memory.
    if length > MAX_FRAME_BYTES:
        raise ValueError("a frame is too long")
    body = _read(stream, length)
    if len(body) != length:
        raise ValueError("a frame is truncated")
    value: object = json.loads(body)
    if value is None:
        raise ValueError("a frame is empty")
    return value


def write_frame(stream: IO[bytes], frame: bytes) -> None:
    """Write all of a frame to a pipe that has no buffer of its own.

    A buffer would keep the last data, which is a text, until something else is written.
    """
    rest = memoryview(frame)
    while rest:
        rest = rest[stream.write(rest) :]


def _read(stream: IO[bytes], size: int) -> bytearray:
    """Read so many bytes, or those before the end."""
    data = bytearray()
    while len(data) < size and (part := stream.read(size - len(data))):
        data += part
    return data
