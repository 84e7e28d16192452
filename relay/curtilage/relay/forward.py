"""One kind of structured field: a boolean Item (RFC 9651, section 3.3.6).

Knows the grammar of a true one, parameters included; refuses all else as
absent, as the RFC says of a field that does not parse.

What may pass, and in which words: pure, and the whole of the relay's rules.

Knows paths, media types and three fields (Content-Type, the length, and
Incremental); refuses to know anything else about who asks or what for. Every
value that goes on is a constant of this module or a number; no byte of a field
that a client or a gateway wrote is ever copied to the other side.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, unique
from typing import Final

_BARE_ITEM: Final = rb"""(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[!#-+\--:<-~]+)"""
_TRUE: Final = re.compile(
    rb"\?1(?: *; *[a-z*][a-z0-9_.*-]*(?:=" + _BARE_ITEM + rb")?)*"
)


def is_true(values: Sequence[bytes]) -> bool:
    """Return whether a field is there once, and a true boolean.

    Parameters that nobody defined are ignored (RFC 9651, section 1.1).

    Args:
        values: of every field of the name.
    """
    return len(values) == 1 and (
        values[0] == b"?1" or _TRUE.fullmatch(values[0]) is not None
    )


OHTTP_KEYS: Final = "application/ohttp-keys"
OHTTP_REQUEST: Final = "message/ohttp-req"
OHTTP_RESPONSE: Final = "message/ohttp-res"
OHTTP_CHUNKED_REQUEST: Final = "message/ohttp-chunked-req"
OHTTP_CHUNKED_RESPONSE: Final = "message/ohttp-chunked-res"
PROBLEM_JSON: Final = "application/problem+json"
EVIDENCE_BUNDLE: Final = "application/vnd.curtilage.evidence-bundle+json"

GATEWAY_PATH: Final = "/.well-known/ohttp-gateway"
KEYS_PATH: Final = "/ohttp-keys"
BUNDLE_PATH: Final = "/attestation-bundle"
HEALTH_PATH: Final = "/healthz"

REQUEST_TYPES: Final = (OHTTP_REQUEST, OHTTP_CHUNKED_REQUEST)
RESPONSE_TYPES: Final = (OHTTP_RESPONSE, OHTTP_CHUNKED_RESPONSE)

MAX_KEYS_BYTES: Final = 16 * 1024
"""wire.md section 2: a client reads no longer list."""
MAX_BUNDLE_BYTES: Final = 256 * 1024
"""The longest evidence bundle a client reads."""
MAX_PROBLEM_BYTES: Final = 4096
"""A problem object is a sentence; more would be a message of another kind."""

OK: Final = 200
FIRST_ERROR: Final = 400
LAST_ERROR: Final = 599
INCREMENTAL: Final = "?1"
SERVER: Final = "curtilage-relay"

_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_HOST_PORT: Final = re.compile(rb":[0-9]*")

Received = Sequence[tuple[bytes, bytes]]
"""Fields in the order received, as aiohttp and the tests give them."""
Fields = Mapping[bytes, Sequence[bytes]]
"""Values by lower-case name: what ``index`` makes of fields received."""


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


_STATUS_AND_TITLE: Final[Mapping[Refusal, tuple[int, str]]] = {
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
    Refusal.ACCESS: ("WWW-Authenticate", "Bearer"),
    # RFC 10036, sections 3 and 5, with RFC 9209's field.
    Refusal.BUSY: ("Proxy-Status", "relay; error=connection_limit_reached"),
    Refusal.INCREMENTAL: ("Proxy-Status", "relay; error=incremental_refused"),
}
_REASONS: Final[Mapping[int, str]] = {
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
    """A request or an answer may not pass.

    Attributes:
        refusal: why, as a member of the closed list.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


@unique
class Action(Enum):
    """What a path of the relay stands for."""

    EXCHANGE = "exchange"
    KEYS = "keys"
    BUNDLE = "bundle"
    HEALTH = "health"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One path of the relay.

    Attributes:
        method: the only method it takes.
        action: what it stands for.
        gateway: the gateway's name in the configuration; empty for health.
    """

    method: str
    action: Action
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """A request before its content, as it was received.

    Attributes:
        method: as sent.
        target: the request target, undecoded.
        fields: as ``index`` gives them.
        minor: the version's last digit; -1 for any but HTTP/1.
    """

    method: str
    target: str
    fields: Fields
    minor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A request that may pass, in our own words.

    Attributes:
        place: where it goes.
        content_type: one of ``REQUEST_TYPES``; empty where nothing is sent on.
        incremental: nothing of this exchange may wait here to be whole.
        content_length: octets announced, or None.
        minor: the last digit of the client's HTTP version.
    """

    place: Place
    content_type: str
    incremental: bool
    content_length: int | None = None
    minor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """A gateway's answer that may pass, in our own words.

    Attributes:
        status: 200, or an error's.
        content_type: one of ours.
        content_length: octets announced, or None.
        incremental: the gateway answers in pieces.
        passes: the content passes; otherwise ``refused_body`` takes its place.
    """

    status: int
    content_type: str
    content_length: int | None
    incremental: bool
    passes: bool


def index(received: Received) -> Fields:
    """Return fields by their lower-case names, the values of each in order."""
    fields: dict[bytes, list[bytes]] = {}
    for name, value in received:
        fields.setdefault(name.lower(), []).append(value)
    return fields


def make_table(gateways: Iterable[str]) -> Mapping[str, Place]:
    """Return every path of the relay; matched exactly, byte for byte."""
    table = {HEALTH_PATH: Place(method="GET", action=Action.HEALTH, gateway="")}
    for name in gateways:
        for path, method, action in (
            (f"/{name}", "POST", Action.EXCHANGE),
            (f"/{name}/keys", "GET", Action.KEYS),
            (f"/{name}/bundle", "GET", Action.BUNDLE),
        ):
            table[path] = Place(method=method, action=action, gateway=name)
    return table


def find_place(
    head: RequestHead, table: Mapping[str, Place], *, hosts: frozenset[bytes]
) -> Place:
    """Find what a request is about, before anything else of it matters.

    Takes the origin form alone: an absolute form names an authority of the
    sender's choice (RFC 9112, section 3.2.2), and no client of a relay needs
    it. The query is ignored. The path is not decoded or normalised: the table
    is matched as it was sent.

    Args:
        head: the request.
        table: every path.
        hosts: names that Host may give, in lower case; none means any.

    Raises:
        RefusedError: no such place here, or not by this method.
    """
    if head.method == "CONNECT":
        raise RefusedError(Refusal.METHOD)
    if head.minor not in (0, 1) or not head.target.startswith("/"):
        raise RefusedError(Refusal.MALFORMED)
    _refuse_host(head, hosts)
    place = table.get(head.target.partition("?")[0].partition("#")[0])
    if place is None:
        raise RefusedError(Refusal.UNKNOWN_PATH)
    if head.method != place.method:
        only = place.method == "GET"
        raise RefusedError(Refusal.GET_ONLY if only else Refusal.POST_ONLY)
    return place


def admit(head: RequestHead, place: Place, *, max_request_bytes: int) -> Passage:
    """Decide whether a request may pass, before its content is read.

    Raises:
        RefusedError: it may not; the refusal is one of the closed list.
    """
    _refuse_framing(head.fields)
    if place.action is not Action.EXCHANGE:
        return Passage(place=place, content_type="", incremental=False)
    if head.fields.get(b"early-data", ()):
        # RFC 8470, section 5.2: it may be a replay, and we cannot know.
        raise RefusedError(Refusal.EARLY_DATA)
    length = content_length(head.fields)
    if length is not None and length > max_request_bytes:
        raise RefusedError(Refusal.BODY_TOO_LARGE)
    passage = Passage(
        place=place,
        content_type=_media_type(head.fields, REQUEST_TYPES, Refusal.MEDIA_TYPE),
        incremental=wants_pieces(head.fields),
        content_length=length,
        minor=head.minor,
    )
    if passage.incremental and head.minor == 0:
        raise RefusedError(Refusal.INCREMENTAL)
    return passage


def admit_answer(status: int, fields: Fields) -> AnswerHead:
    """Decide whether a gateway's answer may pass, before its content is read.

    Raises:
        RefusedError: a redirect, an odd success, a coded or unknown content, or
            one whose end could not be told from a cut.
    """
    if fields.get(b"content-encoding", ()):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    if not (fields.get(b"content-length", ()) or _is_chunked(fields)):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    if status == OK:
        kind, passes = _media_type(fields, RESPONSE_TYPES, Refusal.GATEWAY_ANSWER), True
    elif FIRST_ERROR <= status <= LAST_ERROR:
        kind = PROBLEM_JSON
        passes = list(fields.get(b"content-type", ())) == [PROBLEM_JSON.encode()]
    else:
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    return AnswerHead(
        status=status,
        content_type=kind,
        content_length=content_length(fields),
        incremental=wants_pieces(fields),
        passes=passes,
    )


def admit_copy(status: int, fields: Fields, *, media_type: str) -> None:
    """Decide whether a fetched key list or bundle may be served.

    Raises:
        RefusedError: another status, another type, or a content coding.
    """
    if status != OK or fields.get(b"content-encoding", ()):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    _media_type(fields, (media_type,), Refusal.GATEWAY_ANSWER)


def request_head(passage: Passage, *, host: str, length: int | None) -> bytes:
    """Return the whole head that goes on to the gateway: fixed order and casing.

    Args:
        passage: the request.
        host: the gateway's own, from the configuration.
        length: octets of content; None where they go on in chunks.
    """
    framing = "Transfer-Encoding: chunked" if length is None else ""
    lines = (
        f"POST {GATEWAY_PATH} HTTP/1.1",
        f"Host: {host}",
        f"Content-Type: {passage.content_type}",
        framing or f"Content-Length: {length}",
        *((f"Incremental: {INCREMENTAL}",) if passage.incremental else ()),
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def copy_request(path: str, *, host: str) -> bytes:
    """Return the request that fetches a copy of keys or bundle."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def answer_head(
    status: int, fields: Iterable[tuple[str, str]], *, date: str, close: bool
) -> bytes:
    """Return the whole head of an answer: fixed order and casing."""
    reason = _REASONS.get(status, "Refused")
    lines = [f"HTTP/1.1 {status} {reason}"]
    lines += [f"{name}: {value}" for name, value in fields]
    lines += [f"Server: {SERVER}", f"Date: {date}"]
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer_fields(head: AnswerHead, *, length: int | None) -> list[tuple[str, str]]:
    """Return all fields of an answer that go back, in fixed order.

    Args:
        head: the answer.
        length: octets of content, or None when it goes back in chunks.
    """
    fields = [("Content-Type", head.content_type)]
    if length is not None:
        fields.append(("Content-Length", str(length)))
    else:
        fields.append(("Transfer-Encoding", "chunked"))
    if head.incremental:
        fields.append(("Incremental", INCREMENTAL))
    fields.append(("Cache-Control", "no-store"))
    return fields


def status_of(refusal: Refusal) -> int:
    """Return the one status a refusal is told by."""
    return _STATUS_AND_TITLE[refusal][0]


def refusal_fields(refusal: Refusal) -> list[tuple[str, str]]:
    """Return a refusal's fields, in fixed order, its length included."""
    fields = [
        ("Content-Type", PROBLEM_JSON),
        ("Content-Length", str(len(refusal_body(refusal)))),
    ]
    if refusal in _MORE_FIELDS:
        fields.append(_MORE_FIELDS[refusal])
    fields.append(("Cache-Control", "no-store"))
    return fields


def refusal_body(refusal: Refusal) -> bytes:
    """Return a refusal's content: constant to the byte."""
    return _problem(*_STATUS_AND_TITLE[refusal])


def refused_body(status: int) -> bytes:
    """Return the content that stands for a gateway's error that may not pass."""
    return _problem(status, REFUSED_BY_GATEWAY)


def content_length(fields: Fields) -> int | None:
    """Return the announced length, or None.

    Raises:
        RefusedError: announced twice, or not a plain number.
    """
    values = fields.get(b"content-length", ())
    if not values:
        return None
    if len(values) > 1 or _LENGTH.fullmatch(values[0]) is None:
        raise RefusedError(Refusal.MALFORMED)
    return int(values[0])


def wants_pieces(fields: Fields) -> bool:
    """Return whether Incremental is there, once, and true (RFC 10036)."""
    return is_true(fields.get(b"incremental", ()))


def _refuse_host(head: RequestHead, hosts: frozenset[bytes]) -> None:
    values = head.fields.get(b"host", ())
    if len(values) > 1 or (not values and head.minor == 1):
        # RFC 9112, section 3.2: "MUST respond with a 400".
        raise RefusedError(Refusal.MALFORMED)
    if hosts and not (values and _without_port(values[0]) in hosts):
        raise RefusedError(Refusal.MISDIRECTED)


def _without_port(host: bytes) -> bytes:
    name, bracket, rest = host.rpartition(b"]")
    if not bracket:
        name, colon, port = host.partition(b":")
        rest = colon + port
    if rest and _HOST_PORT.fullmatch(rest) is None:
        return b""
    return (name + bracket).lower()


def _refuse_framing(fields: Fields) -> None:
    if fields.get(b"upgrade", ()):
        # RFC 9110, section 7.8: there is nothing here to change to.
        raise RefusedError(Refusal.MALFORMED)
    if fields.get(b"expect", ()):
        raise RefusedError(Refusal.EXPECTATION)
    if fields.get(b"content-encoding", ()):
        raise RefusedError(Refusal.CONTENT_ENCODING)
    if fields.get(b"transfer-encoding", ()) and not _is_chunked(fields):
        raise RefusedError(Refusal.MALFORMED)


def _is_chunked(fields: Fields) -> bool:
    codings = fields.get(b"transfer-encoding", ())
    return [coding.lower() for coding in codings] == [b"chunked"]


def _media_type(fields: Fields, known: tuple[str, ...], refusal: Refusal) -> str:
    """Return our own constant for the one Content-Type; parameters are refused."""
    values = fields.get(b"content-type", ())
    name = values[0].lower().decode("latin-1") if len(values) == 1 else ""
    if name not in known:
        raise RefusedError(refusal)
    return known[known.index(name)]


def _problem(status: int, title: str) -> bytes:
    body = {"type": "about:blank", "status": status, "title": title}
    return json.dumps(body, separators=(",", ":")).encode()
