"""Variable-length integers of QUIC (RFC 9000, section 16).

The two high bits of the first byte give the width: 1, 2, 4 or 8 bytes. Longer
forms than needed are legal everywhere we read them (RFC 9292, section 3).
"""

from collections.abc import Generator
from typing import Final

from curtilage.wire.cursor import Cursor, ReceiveBuffer
from curtilage.wire.errors import MalformedError

MAX_VARINT: Final = 2**62 - 1

_WIDTHS: Final = (1, 2, 4, 8)  # in bytes, by the two high bits


def encode_varint(value: int) -> bytes:
    """Encode ``value`` in as few bytes as it needs.

    Raises:
        MalformedError: ``value`` is negative or above ``MAX_VARINT``.
    """
    if not 0 <= value <= MAX_VARINT:
        raise MalformedError("integer outside 0..2^62-1")
    # The shortest form. We read any, but a common encoding does not identify the
    # implementation.
    prefix = next(
        index for index, width in enumerate(_WIDTHS) if value < 1 << (8 * width - 2)
    )
    width = _WIDTHS[prefix]
    return (value | prefix << (8 * width - 2)).to_bytes(width, "big")


def encode_vector(data: bytes) -> bytes:
    """Encode ``data`` behind its own length."""
    return encode_varint(len(data)) + data


def read_varint(cursor: Cursor) -> int:
    """Read one integer from a complete byte string."""
    # Eight bytes at most, so the widest integer is below 2^62: a reader of a length
    # compares it with a bound and cannot overflow.
    first = cursor.take(1)
    return _value(first + cursor.take(_width(first) - 1))


def pull_varint(buffer: ReceiveBuffer) -> Generator[None, None, int]:
    """Read one integer from bytes that still arrive."""
    first = yield from buffer.pull(1)
    rest = yield from buffer.pull(_width(first) - 1)
    return _value(first + rest)


def _width(first: bytes) -> int:
    return _WIDTHS[first[0] >> 6]


def _value(encoded: bytes) -> int:
    # Without the two high bits, which said how long it is.
    return int.from_bytes(encoded, "big") & ((1 << (8 * len(encoded) - 2)) - 1)
