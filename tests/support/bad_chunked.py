"""Chunked Oblivious HTTP messages that must not open, with the expected error.

An entry is the body after the head of a message: of a request, after its header
and encapsulated key; of a response, after its nonce. The caller passes the function
that seals each chunk. The tests pass every entry to the opener of each direction, with
every suite; the fuzz harness starts from them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from curtilage.wire.chunked import MAX_CHUNK_BYTES
from curtilage.wire.errors import (
    LimitExceededError,
    OpenError,
    TruncatedError,
    WireError,
)
from curtilage.wire.varint import encode_varint, encode_vector

# Seals the next chunk of a message: plaintext, associated data.
Seal: TypeAlias = Callable[[bytes, bytes], bytes]

FINAL: Final = b"final"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the list.

    Attributes:
        name: the line, and which of its cases.
        build: makes the body.
        error: the exception that it must raise; none if it is valid.
    """

    name: str
    build: Callable[[Seal], bytes]
    error: type[WireError] | None


def chunk(seal: Seal, plaintext: bytes, aad: bytes = b"") -> bytes:
    """Return the next chunk, not marked final."""
    return encode_vector(seal(plaintext, aad))


def final(seal: Seal, plaintext: bytes = b"", aad: bytes = FINAL) -> bytes:
    """Return the next chunk, marked final."""
    return b"\0" + seal(plaintext, aad)


def ordered(order: list[int]) -> Callable[[Seal], bytes]:
    """Return a body of three chunks, a final one last, in another order."""

    def build(seal: Seal) -> bytes:
        parts = [chunk(seal, b"one"), chunk(seal, b"two"), chunk(seal, b"three")]
        parts.append(final(seal, b"end"))
        return b"".join(parts[number] for number in order)

    return build


def raw(body: bytes) -> Callable[[Seal], bytes]:
    """Return a body in which nothing is sealed."""
    return lambda _: body


def long_form(width: int) -> Callable[[Seal], bytes]:
    """Return a body whose lengths are all of ``width`` octets."""
    mark = {2: 1, 4: 2, 8: 3}[width] << (8 * width - 2)

    def build(seal: Seal) -> bytes:
        sealed = seal(b"abc", b"")
        ahead = (mark | len(sealed)).to_bytes(width, "big")
        return ahead + sealed + mark.to_bytes(width, "big") + seal(b"", FINAL)

    return build


def all_lines() -> Iterator[Line]:
    """Yield every line."""
    for name, build, error in _TABLE:
        yield Line(name=name, build=build, error=error)
    for length in range(1, 17):
        junk = encode_varint(length) + bytes(64)
        yield Line(name=f"length {length}", build=raw(junk), error=OpenError)
    for length in (MAX_CHUNK_BYTES + 17, 2**20, 2**32, 2**62 - 1):
        far = encode_varint(length)
        yield Line(name=f"length {length}", build=raw(far), error=LimitExceededError)
    for width in (2, 4, 8):
        yield Line(
            name=f"non-minimal length of {width} octets",
            build=long_form(width),
            error=None,
        )
    for name, order, error in _ORDERS:
        yield Line(name=name, build=ordered(order), error=error)


_TABLE: Final[list[tuple[str, Callable[[Seal], bytes], type[WireError] | None]]] = [
    ("nothing", lambda _: b"", TruncatedError),
    ("no final, abort at a chunk boundary", lambda s: chunk(s, b"x"), TruncatedError),
    ("stall mid-chunk", lambda s: chunk(s, b"x" * 50)[:-1], TruncatedError),
    ("stall in a length", lambda s: chunk(s, b"x") + b"\x40", TruncatedError),
    ("final first", lambda s: final(s, b"all"), None),
    ("final empty", lambda s: chunk(s, b"x") + final(s), None),
    ("final mark alone", lambda _: b"\0", TruncatedError),
    ("final of less than a tag", lambda _: b"\0" + bytes(15), TruncatedError),
    ("data after final", lambda s: final(s) + b"x", OpenError),
    ("chunk after final", lambda s: final(s) + chunk(s, b"x"), OpenError),
    ("final after final", lambda s: final(s) + final(s), OpenError),
    ("empty non-final", lambda s: chunk(s, b"") + final(s), OpenError),
    ('final with aad ""', lambda s: final(s, aad=b""), OpenError),
    ('non-final with "final"', lambda s: chunk(s, b"x", FINAL) + final(s), OpenError),
    ("final said by its length alone", lambda s: b"\0" + s(b"x", b""), OpenError),
    (
        "largest chunk",
        lambda s: chunk(s, bytes(MAX_CHUNK_BYTES)) + final(s, bytes(MAX_CHUNK_BYTES)),
        None,
    ),
    (
        "chunk of one octet too many",
        lambda s: chunk(s, bytes(MAX_CHUNK_BYTES + 1)) + final(s),
        LimitExceededError,
    ),
    (
        "final of one octet too many",
        lambda s: final(s, bytes(MAX_CHUNK_BYTES + 1)),
        LimitExceededError,
    ),
    (
        "tiny chunks",
        lambda s: b"".join(chunk(s, b"x") for _ in range(60)) + final(s),
        None,
    ),
]

_ORDERS: Final[list[tuple[str, list[int], type[WireError] | None]]] = [
    ("in order", [0, 1, 2, 3], None),
    ("swapped", [1, 0, 2, 3], OpenError),
    ("duplicated", [0, 0, 1, 2, 3], OpenError),
    ("first dropped", [1, 2, 3], OpenError),
    ("middle dropped", [0, 2, 3], OpenError),
    ("last but final dropped", [0, 1, 3], OpenError),
    ("final dropped", [0, 1, 2], TruncatedError),
]
