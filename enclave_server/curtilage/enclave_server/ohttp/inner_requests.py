"""The inner requests that need no model: challenge and cover. Pure.

A challenge requests fresh evidence over a nonce of the client's, before a query of the
strictest classes. It names the base of the bundle that the client verified, since a key
outlives the evidence over it. A cover request asks for an empty answer of a given
length; a client sends it in place of a query that was answered locally, so that the
absence of traffic does not disclose such queries.
"""

import re
from dataclasses import dataclass
from typing import Final

from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import json_object
from curtilage.wire.shaping import TransportParameters

LONGEST_S: Final = 60.0
"""Few answers take longer, and a dummy that does costs its sender 4 KiB."""
SHARE: Final = 4
"""The largest part of the connections that long dummies may hold."""
_HEX: Final = {
    "nonce": re.compile(r"[0-9a-f]{64}"),
    "b0": re.compile(r"[0-9a-f]{128}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRequest:
    """A request for fresh evidence.

    Attributes:
        nonce: 32 bytes, the client's.
        base: B0 of the bundle that the client holds, 64 bytes; empty for the
            newest of the key that the request was sealed to.
    """

    nonce: bytes
    base: bytes = b""


def parse_challenge_request(content: bytes) -> ChallengeRequest:
    """Parse ``{"nonce": 64 hex digits}``, with ``"b0": 128 hex digits`` or not.

    Raises:
        ChatError: status 400.
    """
    body = json_object(content)
    # Without its name, unlike in a chat request: an invented key may itself be content.
    if body.keys() - _HEX.keys():
        raise ChatError(400, "unsupported_parameter")
    base = _octets(body, "b0") if "b0" in body else b""
    return ChallengeRequest(nonce=_octets(body, "nonce"), base=base)


def _octets(body: dict[str, object], name: str) -> bytes:
    value = body.get(name)
    # By the expression: ``bytes.fromhex`` alone skips white space and accepts capitals,
    # and a challenge with two spellings would be answered twice.
    if not isinstance(value, str) or _HEX[name].fullmatch(value) is None:
        raise ChatError(400, "invalid_value", param=name)
    return bytes.fromhex(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverRequest:
    """A request for a dummy answer.

    Attributes:
        bucket: of the answer's length; 0 is the shortest.
    """

    bucket: int


def parse_cover_request(content: bytes, buckets: int) -> CoverRequest:
    """Parse ``{"bucket": k}``, where k is below ``buckets``.

    Raises:
        ChatError: status 400.
    """
    body = json_object(content)
    if body.keys() - {"bucket"}:
        raise ChatError(400, "unsupported_parameter")
    bucket = body.get("bucket")
    # bool is an int to Python, not to JSON.
    if not isinstance(bucket, int) or isinstance(bucket, bool):
        raise ChatError(400, "invalid_value", param="bucket")
    if not 0 <= bucket < buckets:
        raise ChatError(400, "out_of_range", param="bucket")
    return CoverRequest(bucket=bucket)


class CoverRoom:
    """Bounds the total length of the dummy answers in progress.

    A dummy that exceeds it gets the shortest answer, as does any request that is
    refused: it holds a place no longer than any other request may.

    Args:
        connections: the maximum number of connections.
    """

    def __init__(self, connections: int) -> None:
        self._free = max(1, connections // SHARE)

    def take(self, cover: CoverRequest, transport: TransportParameters) -> int:
        """Return the bucket to answer with; ``give_back`` it at the end."""
        # Cover is cheap to request and expensive to serve: without a bound, one sender
        # with many of the longest could hold every connection for hours.
        usual = 0
        while usual < cover.bucket:
            frames = transport.frames_of(usual + 1)
            if frames * transport.period_ms > LONGEST_S * 1000:
                break
            usual += 1
        if usual and not self._free:
            return 0
        self._free -= usual > 0
        return usual

    def give_back(self, bucket: int) -> None:
        """Record that an answer of this bucket has ended."""
        # The shortest took no room.
        self._free += bucket > 0
