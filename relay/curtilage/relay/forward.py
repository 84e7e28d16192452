"""What may pass, and in which words: pure, and the whole of the relay's rules.

Knows paths, media types and three fields (Content-Type, the length, and
Incremental); refuses to know anything else about who asks or what for. Every
value that goes on is a constant of this module or a number; no byte of a field
that a client or a gateway wrote is ever copied to the other side.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, unique
from typing import Final

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

Fields = Sequence[tuple[bytes, bytes]]
"""Fields in the order received, as aiohttp and the tests give them."""


@unique
class Refusal(StrEnum):
    """Why a request or an answer did not pass: a closed list."""

    MALFORMED = "malformed"
    UNKNOWN_PATH = "unknown_path"
    METHOD = "method"
    BODY_TOO_SLOW = "body_too_slow"
    BODY_TOO_LARGE = "body_too_large"
    MEDIA_TYPE = "media_type"
    CONTENT_ENCODING = "content_encoding"
    EXPECTATION = "expectation"
    EARLY_DATA = "early_data"
    BUSY = "busy"
    INTERNAL = "internal"
    GATEWAY_UNREACHABLE = "gateway_unreachable"
    GATEWAY_ANSWER = "gateway_answer"
    CONNECTIONS = "connections"
    GATEWAY_TIMEOUT = "gateway_timeout"


_STATUS_AND_TITLE: Final[Mapping[Refusal, tuple[int, str]]] = {
    Refusal.MALFORMED: (400, "The request is not well formed."),
    Refusal.UNKNOWN_PATH: (404, "No gateway has this name here."),
    Refusal.METHOD: (405, "The method is not allowed here."),
    Refusal.BODY_TOO_SLOW: (408, "The request's content came too slowly."),
    Refusal.BODY_TOO_LARGE: (413, "The request's content is too large."),
    Refusal.MEDIA_TYPE: (415, "Only encapsulated requests pass."),
    Refusal.CONTENT_ENCODING: (415, "No content coding is accepted."),
    Refusal.EXPECTATION: (417, "No expectation is supported."),
    Refusal.EARLY_DATA: (425, "Early data is not accepted."),
    Refusal.BUSY: (429, "The relay serves as many requests as it may."),
    Refusal.INTERNAL: (500, "The relay failed."),
    Refusal.GATEWAY_UNREACHABLE: (502, "The gateway cannot be reached."),
    Refusal.GATEWAY_ANSWER: (502, "The gateway's answer may not pass."),
    Refusal.CONNECTIONS: (503, "The relay holds as many connections as it may."),
    Refusal.GATEWAY_TIMEOUT: (504, "The gateway did not answer in time."),
}
REFUSED_BY_GATEWAY: Final = "The gateway refused the request."


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
        fields: names and values in order.
    """

    method: str
    target: str
    fields: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A request that may pass, in our own words.

    Attributes:
        place: where it goes.
        content_type: one of ``REQUEST_TYPES``; empty where nothing is sent on.
        incremental: the client wants the answer's pieces as they come.
    """

    place: Place
    content_type: str
    incremental: bool


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


def target_path(target: str) -> str | None:
    """Return a request target's path; query and authority are ignored.

    Takes the origin form and the absolute form (RFC 9112, section 3.2.2). The
    path is not decoded or normalised: the table is matched as it was sent.

    Returns:
        None for the authority form, the asterisk form and anything else.
    """
    if not target.startswith("/"):
        scheme, mark, rest = target.partition("://")
        if not mark or scheme.lower() not in {"http", "https"}:
            return None
        _, slash, path = rest.partition("?")[0].partition("/")
        target = slash + path
    return target.partition("?")[0].partition("#")[0]


def admit(
    head: RequestHead, table: Mapping[str, Place], *, max_request_bytes: int
) -> Passage:
    """Decide whether a request may pass, before its content is read.

    Raises:
        RefusedError: it may not; the refusal is one of the closed list.
    """
    place = table.get(target_path(head.target) or "")
    if place is None:
        raise RefusedError(Refusal.UNKNOWN_PATH)
    if head.method != place.method:
        raise RefusedError(Refusal.METHOD)
    _refuse_framing(head.fields)
    if place.action is not Action.EXCHANGE:
        return Passage(place=place, content_type="", incremental=False)
    if _values(head.fields, b"early-data"):
        # RFC 8470, section 5.2: it may be a replay, and we cannot know.
        raise RefusedError(Refusal.EARLY_DATA)
    length = content_length(head.fields)
    if length is not None and length > max_request_bytes:
        raise RefusedError(Refusal.BODY_TOO_LARGE)
    return Passage(
        place=place,
        content_type=_media_type(head.fields, REQUEST_TYPES, Refusal.MEDIA_TYPE),
        incremental=wants_pieces(head.fields),
    )


def admit_answer(status: int, fields: Fields) -> AnswerHead:
    """Decide whether a gateway's answer may pass, before its content is read.

    Raises:
        RefusedError: a redirect, an odd success, a coded or unknown content.
    """
    if _values(fields, b"content-encoding"):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    if status == OK:
        kind, passes = _media_type(fields, RESPONSE_TYPES, Refusal.GATEWAY_ANSWER), True
    elif FIRST_ERROR <= status <= LAST_ERROR:
        kind = PROBLEM_JSON
        passes = _values(fields, b"content-type") == [PROBLEM_JSON.encode()]
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
    if status != OK or _values(fields, b"content-encoding"):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    _media_type(fields, (media_type,), Refusal.GATEWAY_ANSWER)


def request_fields(passage: Passage, *, length: int) -> list[tuple[str, str]]:
    """Return all fields that go on to the gateway, in fixed order.

    Host is the connection's.
    """
    fields = [("Content-Type", passage.content_type), ("Content-Length", str(length))]
    if passage.incremental:
        fields.append(("Incremental", INCREMENTAL))
    return fields


def answer_fields(head: AnswerHead, *, length: int | None) -> list[tuple[str, str]]:
    """Return all fields of an answer that go back, in fixed order.

    Args:
        head: the answer.
        length: octets of content, or None when the connection frames it.
    """
    fields = [("Content-Type", head.content_type)]
    if length is not None:
        fields.append(("Content-Length", str(length)))
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
        ("Cache-Control", "no-store"),
    ]
    if refusal is Refusal.METHOD:
        fields.append(("Allow", "GET, POST"))
    if refusal is Refusal.BUSY:
        # draft-ietf-ohai-chunked-ohttp, by RFC 9209's name for it.
        fields.append(("Proxy-Status", "relay; error=connection_limit_reached"))
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
    values = _values(fields, b"content-length")
    if not values:
        return None
    if len(values) > 1 or not (values[0].isdigit() and values[0].isascii()):
        raise RefusedError(Refusal.MALFORMED)
    return int(values[0])


def wants_pieces(fields: Fields) -> bool:
    """Return whether Incremental is there, once, and exactly ``?1``."""
    return _values(fields, b"incremental") == [INCREMENTAL.encode()]


def _refuse_framing(fields: Fields) -> None:
    if _values(fields, b"expect"):
        raise RefusedError(Refusal.EXPECTATION)
    if _values(fields, b"content-encoding"):
        raise RefusedError(Refusal.CONTENT_ENCODING)
    codings = _values(fields, b"transfer-encoding")
    if codings and [coding.lower() for coding in codings] != [b"chunked"]:
        raise RefusedError(Refusal.MALFORMED)


def _media_type(fields: Fields, known: tuple[str, ...], refusal: Refusal) -> str:
    """Return our own constant for the one Content-Type; parameters are refused."""
    values = _values(fields, b"content-type")
    for name in known:
        if len(values) == 1 and values[0].lower() == name.encode():
            return name
    raise RefusedError(refusal)


def _values(fields: Fields, name: bytes) -> list[bytes]:
    return [value for key, value in fields if key.lower() == name]


def _problem(status: int, title: str) -> bytes:
    body = {"type": "about:blank", "status": status, "title": title}
    return json.dumps(body, separators=(",", ":")).encode()
