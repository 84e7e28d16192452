"""The cover request: asks for an answer that says nothing, of a given length.

A client sends it in place of a question that it answered at home, so that
silence does not say that there was one. No model takes part.
"""

from dataclasses import dataclass

from curtilage.enclave_server.chat import json_object
from curtilage.enclave_server.errors import ChatError


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
