"""Padding of requests to a few size classes before they are sealed.

Knows the sizes of encapsulated requests, not what is in them. All requests of a
class have the same byte count, cut into chunks at the same places, whichever
KEM they are sealed with. What is longer than the last class is not sent.
"""

from typing import Final

from curtilage.wire.chunked import (
    MAX_CHUNK_BYTES,
    SealedChunkedRequest,
    seal_request_chunks,
)
from curtilage.wire.encapsulation import HEADER_BYTES
from curtilage.wire.errors import LimitExceededError
from curtilage.wire.hpke.suite import TAG_BYTES, PrivateKey, Suite
from curtilage.wire.keyconfig import KeyConfig, choose_suite

__all__ = ["SIZE_CLASSES", "capacity", "seal_padded_request", "size_class"]

# Bytes of the encapsulated request; 1 MiB is what gateways commonly take. Four times
# as large from class to class: the fewer there are, the less a length says, and the
# dearest request costs four times its own size.
SIZE_CLASSES: Final = (4096, 16384, 65536, 262144, 1048576)

# A chunk of 2^14 bytes has a length of 4 bytes ahead of it, since with its tag
# it no longer fits into 14 bits; the final one has a single zero byte.
_FULL_CHUNK_BYTES: Final = 4 + MAX_CHUNK_BYTES + TAG_BYTES
_FINAL_OVERHEAD: Final = 1 + TAG_BYTES


def capacity(suite: Suite, octets: int) -> int:
    """Return how long a binary HTTP request one class holds with this suite."""
    return sum(_layout(suite, octets))


def size_class(suite: Suite, bhttp_octets: int, *, at_least: int = 0) -> int:
    """Return the smallest class that holds a request, in bytes once sealed.

    Args:
        suite: the KEM's encapsulated key takes its part of the class.
        bhttp_octets: length of the binary HTTP request without padding.
        at_least: the class is not below this, in bytes.

    Raises:
        LimitExceededError: it is too long for the last class, or no class is as
            large as ``at_least``.
    """
    for octets in SIZE_CLASSES:
        if octets >= at_least and bhttp_octets <= capacity(suite, octets):
            return octets
    raise LimitExceededError(
        f"no class from {at_least} to {SIZE_CLASSES[-1]} bytes holds this request"
    )


def seal_padded_request(
    config: KeyConfig,
    bhttp: bytes,
    *,
    suite: Suite | None = None,
    ephemeral: PrivateKey | None = None,
    at_least: int = 0,
) -> SealedChunkedRequest:
    """Encapsulate one request so that its length is exactly a class.

    Args:
        config: the gateway's; that it is the right one was settled before.
        bhttp: a binary HTTP request; zeros follow it inside the seal
            (RFC 9292, section 3.8).
        suite: one that ``config`` offers; by default its first that we support.
        ephemeral: only for known-answer tests; see ``setup_sender``.
        at_least: the class is not below this, in bytes.

    Raises:
        LimitExceededError: too long for the last class, or no class is as large
            as ``at_least``.
        UnsupportedError: no suite in common, or ``suite`` is not offered.
        MalformedError: the gateway's public key is no usable point.
    """
    chosen = choose_suite(config) if suite is None else suite
    octets = size_class(chosen, len(bhttp), at_least=at_least)
    layout = _layout(chosen, octets)
    # Inside the seal, where RFC 9292, section 3.8, permits it: the relay could
    # distinguish padding outside from the rest.
    padded = bhttp.ljust(sum(layout), b"\0")
    # Cut at the same places for every request of a class: the lengths of chunks are
    # readable on the way, and so would be where the question ends.
    chunks: list[bytes] = []
    start = 0
    for size in layout:
        chunks.append(padded[start : start + size])
        start += size
    return seal_request_chunks(config, chunks, suite=chosen, ephemeral=ephemeral)


def _layout(suite: Suite, octets: int) -> tuple[int, ...]:
    """Return the plaintext bytes of each chunk of one class.

    Full chunks, and a final one with the rest. The rest of every class is short
    enough for one chunk with either KEM, as a test shows.
    """
    # A larger encapsulated key takes its part of the class: with either KEM, a request
    # is as long as with the other.
    room = octets - HEADER_BYTES - suite.nenc - _FINAL_OVERHEAD
    full, rest = divmod(room, _FULL_CHUNK_BYTES)
    return (*(MAX_CHUNK_BYTES for _ in range(full)), rest)
