"""The relay's refusals and their texts: constant tables.

No answer contains anything of what was refused: neither side may learn from the text
what the other side sent. The generated nginx configuration uses these texts too.
"""

import json
from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Final

PROBLEM_JSON: Final = "application/problem+json"
"""Problem details (RFC 9457); OHTTP asks for them too (RFC 9458, section 5.3)."""


@unique
class Refusal(StrEnum):
    """Why a request or an answer did not pass: a closed list."""

    MALFORMED = "malformed"
    MISDIRECTED = "misdirected"
    UNKNOWN_PATH = "unknown_path"
    METHOD = "method"
    GET_ONLY = "get_only"
    POST_ONLY = "post_only"
    ACCESS = "access"
    RATE = "rate"
    BODY_TOO_SLOW = "body_too_slow"
    BODY_TOO_LARGE = "body_too_large"
    MEDIA_TYPE = "media_type"
    CONTENT_ENCODING = "content_encoding"
    EXPECTATION = "expectation"
    EARLY_DATA = "early_data"
    INCREMENTAL = "incremental"
    BUSY = "busy"
    CLIENT_CONNECTIONS = "client_connections"
    INTERNAL = "internal"
    GATEWAY_UNREACHABLE = "gateway_unreachable"
    GATEWAY_ANSWER = "gateway_answer"
    CONNECTIONS = "connections"
    GATEWAY_TIMEOUT = "gateway_timeout"


# One status and one sentence for each, without a number, and no Retry-After: either
# would disclose how busy the relay is with other clients.
STATUS_AND_TITLE: Final[Mapping[Refusal, tuple[int, str]]] = {
    Refusal.MALFORMED: (400, "The request is not well formed."),
    Refusal.ACCESS: (401, "This relay asks for a key."),
    Refusal.UNKNOWN_PATH: (404, "No gateway has this name here."),
    Refusal.METHOD: (405, "The method is not allowed here."),
    Refusal.GET_ONLY: (405, "The method is not allowed here."),
    Refusal.POST_ONLY: (405, "The method is not allowed here."),
    Refusal.BODY_TOO_SLOW: (408, "The request's content came too slowly."),
    Refusal.BODY_TOO_LARGE: (413, "The request's content is too large."),
    Refusal.MEDIA_TYPE: (415, "Only encapsulated requests pass."),
    Refusal.CONTENT_ENCODING: (415, "No content coding is accepted."),
    Refusal.EXPECTATION: (417, "No expectation is supported."),
    Refusal.MISDIRECTED: (421, "This relay has another name."),
    Refusal.EARLY_DATA: (425, "Early data is not accepted."),
    Refusal.RATE: (429, "This client asks too often."),
    Refusal.CLIENT_CONNECTIONS: (429, "This client holds all connections it may."),
    Refusal.BUSY: (429, "The relay serves as many requests as it may."),
    Refusal.INTERNAL: (500, "The relay failed."),
    Refusal.INCREMENTAL: (501, "HTTP/1.0 has no way to stream that shows a cut."),
    Refusal.GATEWAY_UNREACHABLE: (502, "The gateway cannot be reached."),
    Refusal.GATEWAY_ANSWER: (502, "The gateway's answer may not pass."),
    Refusal.CONNECTIONS: (503, "The relay holds as many connections as it may."),
    Refusal.GATEWAY_TIMEOUT: (504, "The gateway did not answer in time."),
}
REFUSED_BY_GATEWAY: Final = "The gateway refused the request."
_MORE_FIELDS: Final[Mapping[Refusal, tuple[str, str]]] = {
    # RFC 9110, section 15.5.6: the methods of this very target.
    Refusal.METHOD: ("Allow", "GET, POST"),
    Refusal.GET_ONLY: ("Allow", "GET"),
    Refusal.POST_ONLY: ("Allow", "POST"),
    # RFC 9110, section 15.5.2: a 401 must name an authentication scheme.
    Refusal.ACCESS: ("WWW-Authenticate", "Bearer"),
    # RFC 10036, sections 4.2 and 4.1: the status, and the error type of RFC 9209.
    Refusal.BUSY: ("Proxy-Status", "relay; error=connection_limit_reached"),
    Refusal.INCREMENTAL: ("Proxy-Status", "relay; error=incremental_refused"),
}
REASONS: Final[Mapping[int, str]] = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    425: "Too Early",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class RefusedError(Exception):
    """A request or an answer must not pass.

    Attributes:
        refusal: why, as a member of the closed list.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


def status_of(refusal: Refusal) -> int:
    """Return the one status of a refusal."""
    return STATUS_AND_TITLE[refusal][0]


def title_of(refusal: Refusal) -> str:
    """Return the one sentence of a refusal."""
    return STATUS_AND_TITLE[refusal][1]


def refusal_fields(refusal: Refusal) -> list[tuple[str, str]]:
    """Return a refusal's fields, in fixed order, its length included."""
    fields = [
        ("Content-Type", PROBLEM_JSON),
        ("Content-Length", str(len(refusal_body(refusal)))),
    ]
    if refusal in _MORE_FIELDS:
        fields.append(_MORE_FIELDS[refusal])
    # A cache may store a 404, a 405 or a 501 heuristically (RFC 9110, section 15.1),
    # and then one client's mistake would be every client's answer.
    fields.append(("Cache-Control", "no-store"))
    return fields


def refusal_body(refusal: Refusal) -> bytes:
    """Return a refusal's content: constant to the byte."""
    return _problem(*STATUS_AND_TITLE[refusal])


def refused_body(status: int) -> bytes:
    """Return the content that replaces a gateway's error that must not pass."""
    return _problem(status, REFUSED_BY_GATEWAY)


def _problem(status: int, title: str) -> bytes:
    body = {"type": "about:blank", "status": status, "title": title}
    return json.dumps(body, separators=(",", ":")).encode()
