"""The cover request: asks for an answer that says nothing, of a given length.

A client sends it in place of a question that it answered at home, so that
silence does not say that there was one. No model takes part.
"""

from dataclasses import dataclass
from typing import Final

from curtilage.enclave_server.chat import json_object
from curtilage.enclave_server.errors import ChatError
from curtilage.wire.shaping import TransportParameters

LONGEST_S: Final = 60.0
"""Few answers take longer, and a dummy that does costs its sender 4 KiB."""
SHARE: Final = 4
"""Not more than this part of the connections is held by dummies for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverRequest:
    """What to pretend.

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
    if not isinstance(bucket, int) or isinstance(bucket, bool):
        raise ChatError(400, "invalid_value", param="bucket")
    if not 0 <= bucket < buckets:
        raise ChatError(400, "out_of_range", param="bucket")
    return CoverRequest(bucket=bucket)


class CoverRoom:
    """How long the answers of dummies are, all together.

    A dummy that finds no room gets the shortest answer, as does any request that is
    refused: it holds a place no longer than whatever else anybody may send.

    Args:
        connections: that there may be at once.
    """

    def __init__(self, connections: int) -> None:
        self._free = max(1, connections // SHARE)

    def take(self, cover: CoverRequest, transport: TransportParameters) -> int:
        """Return the bucket to answer with; ``give_back`` it when it is over."""
        usual = 0
        while usual < cover.bucket and _seconds(transport, usual + 1) <= LONGEST_S:
            usual += 1
        if usual and not self._free:
            return 0
        self._free -= usual > 0
        return usual

    def give_back(self, bucket: int) -> None:
        """Note that an answer of this bucket has ended."""
        self._free += bucket > 0


def _seconds(transport: TransportParameters, bucket: int) -> float:
    return transport.frames_of(bucket) * transport.period_ms / 1000
