"""The relay's rules: what may pass and in which form. Pure functions.

Knows paths, media types and three fields (Content-Type, the length, and Incremental),
and nothing else about clients or their purpose. Every value that is sent on is a
constant of this module or a number; no byte of a field that a client or a gateway
wrote is ever copied to the other side. Refusals and their texts are in ``refusals``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from curtilage.relay.refusals import PROBLEM_JSON, REASONS, Refusal, RefusedError

OHTTP_KEYS: Final = "application/ohttp-keys"
OHTTP_REQUEST: Final = "message/ohttp-req"
OHTTP_RESPONSE: Final = "message/ohttp-res"
OHTTP_CHUNKED_REQUEST: Final = "message/ohttp-chunked-req"
OHTTP_CHUNKED_RESPONSE: Final = "message/ohttp-chunked-res"
EVIDENCE_BUNDLE: Final = "application/vnd.curtilage.evidence-bundle+json"
KEY_LISTS: Final = "application/vnd.curtilage.key-lists"
EVIDENCE_BUNDLES: Final = "application/vnd.curtilage.evidence-bundles"

GATEWAY_PATH: Final = "/.well-known/ohttp-gateway"
KEYS_PATH: Final = "/ohttp-keys"
BUNDLE_PATH: Final = "/attestation-bundle"
HEALTH_PATH: Final = "/healthz"

REQUEST_TYPES: Final = (OHTTP_REQUEST, OHTTP_CHUNKED_REQUEST)
RESPONSE_TYPES: Final = (OHTTP_RESPONSE, OHTTP_CHUNKED_RESPONSE)

MAX_KEYS_BYTES: Final = 16 * 1024
"""Of a key list; clients do not read a longer one."""
MAX_BUNDLE_BYTES: Final = 256 * 1024
"""The longest evidence bundle a client reads."""
MAX_NODES: Final = 32
"""Of a pool; clients do not read a longer list."""
MAX_LIST_BYTES: Final = 4 * 1024 * 1024
MAX_PROBLEM_BYTES: Final = 4096
"""A problem object is one sentence; a longer one is another kind of message."""

OK: Final = 200
FIRST_ERROR: Final = 400
LAST_ERROR: Final = 599
INCREMENTAL: Final = "?1"
SERVER: Final = "curtilage-relay"

# A boolean Item (RFC 9651, section 3.3.6): true, then any parameters, each a key with
# an optional bare item: a string, or the characters that a number, token, date, another
# boolean or a byte sequence consists of.
_BARE_ITEM: Final = rb"""(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[!#-+\--:<-~]+)"""
_TRUE: Final = re.compile(
    rb"\?1(?: *; *[a-z*][a-z0-9_.*-]*(?:=" + _BARE_ITEM + rb")?)*"
)
# Digits only, and few enough for 64 bits: where a longer number overflows, another
# server sees another end.
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_HOST_PORT: Final = re.compile(rb":[0-9]*")

Received = Sequence[tuple[bytes, bytes]]
"""Fields in the order received, as aiohttp and the tests give them."""
Fields = Mapping[bytes, Sequence[bytes]]
"""Values by lower-case name, as ``index`` returns them."""


@unique
class Action(Enum):
    """Purpose of a path of the relay."""

    EXCHANGE = "exchange"
    KEYS = "keys"
    BUNDLE = "bundle"
    HEALTH = "health"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path of the relay.

    Attributes:
        method: the only method it takes.
        action: what it is for.
        gateway: the gateway's name in the configuration; empty for health.
    """

    method: str
    action: Action
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request, as received.

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
    """A request that may pass, in the relay's own terms.

    Attributes:
        route: where it goes.
        content_type: one of ``REQUEST_TYPES``; empty where nothing is sent on.
        incremental: no part of this exchange may be held back until it is whole.
        content_length: bytes announced, or None.
        minor: the last digit of the client's HTTP version.
    """

    route: Route
    content_type: str
    incremental: bool
    content_length: int | None = None
    minor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """A gateway's answer that may pass, in the relay's own terms.

    Attributes:
        status: 200, or an error's.
        content_type: one of ours.
        content_length: bytes announced, or None.
        incremental: the gateway answers in pieces.
        passes: the content passes; otherwise ``refused_body`` replaces it.
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


def make_table(
    gateways: Iterable[str], pools: Iterable[str] = ()
) -> Mapping[str, Route]:
    """Return every path of the relay; matched exactly, byte for byte.

    Args:
        gateways: their names; a pool's node is ``pool/node``.
        pools: their names.
    """
    table = {HEALTH_PATH: Route(method="GET", action=Action.HEALTH, gateway="")}
    fetched = [*pools]
    for name in gateways:
        table[f"/{name}"] = Route(method="POST", action=Action.EXCHANGE, gateway=name)
        # A client's fetch must not disclose which node it will ask, so a single node
        # has nothing to fetch.
        if "/" not in name:
            fetched.append(name)
    for name in fetched:
        for path, action in (("keys", Action.KEYS), ("bundle", Action.BUNDLE)):
            table[f"/{name}/{path}"] = Route(method="GET", action=action, gateway=name)
    return table


def find_route(
    head: RequestHead, table: Mapping[str, Route], *, hosts: frozenset[bytes]
) -> Route:
    """Find the route of a request; this comes before all other checks.

    Accepts only the origin form. RFC 9112, section 3.2.2, requires a server to accept
    the absolute form too; that names an authority of the sender's choice, and no client
    of a relay needs it. The query is ignored. The path is neither decoded nor
    normalised: it is compared as it was sent.

    Args:
        head: the request.
        table: every path.
        hosts: names that Host may give, in lower case; none means any.

    Raises:
        RefusedError: there is no such path, or not with this method.
    """
    # A tunnel would make us an open proxy; its target has no path to look up either
    # (RFC 9112, section 3.2.3), so it is checked before the target is read.
    if head.method == "CONNECT":
        raise RefusedError(Refusal.METHOD)
    if head.minor not in (0, 1) or not head.target.startswith("/"):
        raise RefusedError(Refusal.MALFORMED)
    named = head.fields.get(b"host", ())
    if len(named) > 1 or (not named and head.minor == 1):
        # RFC 9112, section 3.2: "MUST respond with a 400". With two names, a server in
        # front may have checked the other one.
        raise RefusedError(Refusal.MALFORMED)
    # A page whose name was made to resolve to us (DNS rebinding) still sends its own.
    if hosts and not (named and _without_port(named[0]) in hosts):
        raise RefusedError(Refusal.MISDIRECTED)
    # No decoding, no "..": two readings of one path are how filters are bypassed. A
    # query is dropped: passed on, it would be a channel from the client to the gateway.
    route = table.get(head.target.partition("?")[0].partition("#")[0])
    if route is None:
        raise RefusedError(Refusal.UNKNOWN_PATH)
    if head.method != route.method:
        only = route.method == "GET"
        raise RefusedError(Refusal.GET_ONLY if only else Refusal.POST_ONLY)
    return route


def admit(head: RequestHead, route: Route, *, max_request_bytes: int) -> Passage:
    """Decide whether a request may pass, before its content is read.

    Raises:
        RefusedError: it may not; the refusal is one of the closed list.
    """
    fields = head.fields
    # On every path: a GET whose end two servers see in two places smuggles as well.
    _refuse_framing(fields)
    if route.action is not Action.EXCHANGE:
        return Passage(route=route, content_type="", incremental=False)
    if fields.get(b"early-data", ()):
        # RFC 8470, section 5.2: it may be a replay, which we cannot detect.
        raise RefusedError(Refusal.EARLY_DATA)
    length = content_length(fields)
    # By the announced length, before any of it is read; the rest is counted.
    if length is not None and length > max_request_bytes:
        raise RefusedError(Refusal.BODY_TOO_LARGE)
    passage = Passage(
        route=route,
        content_type=_media_type(fields, REQUEST_TYPES, Refusal.MEDIA_TYPE),
        incremental=wants_pieces(fields),
        content_length=length,
        minor=head.minor,
    )
    # HTTP/1.0 ends a stream by closing: a truncation would look like the end.
    if passage.incremental and head.minor == 0:
        raise RefusedError(Refusal.INCREMENTAL)
    return passage


def admit_answer(status: int, fields: Fields) -> AnswerHead:
    """Decide whether a gateway's answer may pass, before its content is read.

    Raises:
        RefusedError: a redirect, an unexpected success, a coded or unknown content,
            or one whose truncation could not be detected.
    """
    # A coded answer would pass with another length than was sealed, or be decoded here.
    if fields.get(b"content-encoding", ()):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    # With neither, the content ends with the connection (RFC 9112, section 6.3), and a
    # truncated answer looks complete.
    if not (fields.get(b"content-length", ()) or _is_chunked(fields)):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    if status == OK:
        kind, passes = _media_type(fields, RESPONSE_TYPES, Refusal.GATEWAY_ANSWER), True
    elif FIRST_ERROR <= status <= LAST_ERROR:
        # RFC 9458, section 5.2: a gateway reports outside the seal what it could not
        # open. Its status passes; its content only if it is a problem object.
        kind = PROBLEM_JSON
        passes = list(fields.get(b"content-type", ())) == [PROBLEM_JSON.encode()]
    else:
        # A redirect would send a sealed request where the gateway likes; other
        # successes mean nothing to an exchange.
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
    # All clients get one copy: an error or a coding would reach all of them.
    if status != OK or fields.get(b"content-encoding", ()):
        raise RefusedError(Refusal.GATEWAY_ANSWER)
    _media_type(fields, (media_type,), Refusal.GATEWAY_ANSWER)


def request_head(passage: Passage, *, host: str, length: int | None) -> bytes:
    """Return the complete head that is sent to the gateway: fixed order and casing.

    Args:
        passage: the request.
        host: the gateway's own, from the configuration.
        length: bytes of content; None if they are sent in chunks.
    """
    # RFC 9458, section 6.2: a relay must not add what might identify a client (Via and
    # Forwarded are its examples), and should not pass on fields that it does not know.
    # So nothing that was received is copied: the same lines in the same order for every
    # client.
    framing = "Transfer-Encoding: chunked" if length is None else ""
    lines = (
        f"POST {GATEWAY_PATH} HTTP/1.1",
        f"Host: {host}",
        f"Content-Type: {passage.content_type}",
        framing or f"Content-Length: {length}",
        *((f"Incremental: {INCREMENTAL}",) if passage.incremental else ()),
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def node_list(contents: Mapping[str, bytes]) -> bytes:
    """Return what a pool's nodes serve as one list (docs/protocol.md, "Pools")."""
    # In the order of the ids, whatever the configuration's: one list for all clients.
    return b"\x01" + b"".join(
        bytes([len(node)]) + node.encode() + len(content).to_bytes(4, "big") + content
        for node, content in sorted(contents.items())
    )


def copy_request(path: str, *, host: str) -> bytes:
    """Return the request that fetches a copy of keys or bundle."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def answer_head(
    status: int, fields: Iterable[tuple[str, str]], *, date: str, close: bool
) -> bytes:
    """Return the complete head of an answer: fixed order and casing."""
    # Our own reason phrase: a gateway could write anything after its status.
    reason = REASONS.get(status, "Refused")
    lines = [f"HTTP/1.1 {status} {reason}"]
    lines += [f"{name}: {value}" for name, value in fields]
    lines += [f"Server: {SERVER}", f"Date: {date}"]
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer_fields(head: AnswerHead, *, length: int | None) -> list[tuple[str, str]]:
    """Return all fields of an answer that are sent back, in fixed order.

    Args:
        head: the answer.
        length: bytes of content, or None when it is sent in chunks.
    """
    fields = [("Content-Type", head.content_type)]
    if length is not None:
        fields.append(("Content-Length", str(length)))
    else:
        fields.append(("Transfer-Encoding", "chunked"))
    if head.incremental:
        # RFC 10036, section 3, requires it on each message: a proxy between us and the
        # client must not wait for the end either.
        fields.append(("Incremental", INCREMENTAL))
    # A cache in front of us would store one client's answer, and serve it to another.
    fields.append(("Cache-Control", "no-store"))
    return fields


def content_length(fields: Fields) -> int | None:
    """Return the announced length, or None.

    Raises:
        RefusedError: announced twice, or not a plain number.
    """
    values = fields.get(b"content-length", ())
    if not values:
        return None
    # RFC 9112, section 6.3: with two lengths, two servers may each use another one. And
    # int() accepts a sign, spaces and underscores, which other parsers refuse.
    if len(values) > 1 or _LENGTH.fullmatch(values[0]) is None:
        raise RefusedError(Refusal.MALFORMED)
    return int(values[0])


def wants_pieces(fields: Fields) -> bool:
    """Return whether Incremental is present, once, and true (RFC 10036).

    Undefined parameters are not an error, and a field that does not parse is treated as
    absent (RFC 9651, section 2).
    """
    values = fields.get(b"incremental", ())
    # Nearly every one is the plain text, which needs no regular expression.
    return len(values) == 1 and (
        values[0] == b"?1" or _TRUE.fullmatch(values[0]) is not None
    )


def _without_port(host: bytes) -> bytes:
    # In brackets: an IPv6 address, whose colons do not start a port (RFC 3986, 3.2.2).
    name, bracket, rest = host.rpartition(b"]")
    if not bracket:
        name, colon, port = host.partition(b":")
        rest = colon + port
    if rest and _HOST_PORT.fullmatch(rest) is None:
        return b""
    return (name + bracket).lower()


def _refuse_framing(fields: Fields) -> None:
    if fields.get(b"upgrade", ()):
        # RFC 9110, section 7.8: there is no other protocol to switch to.
        raise RefusedError(Refusal.MALFORMED)
    if fields.get(b"expect", ()):
        # RFC 9110, section 10.1.1: 417. An interim answer would be sent before we know
        # whether the gateway takes the request.
        raise RefusedError(Refusal.EXPECTATION)
    if fields.get(b"content-encoding", ()):
        # Sealed content does not compress; coded content would have to be decoded here
        # to be bounded, and a kilobyte may decode to gigabytes.
        raise RefusedError(Refusal.CONTENT_ENCODING)
    if fields.get(b"transfer-encoding", ()) and not _is_chunked(fields):
        # RFC 9112, sections 6.1 and 6.3: two servers that disagree about the codings
        # disagree about the end, and one request smuggles another.
        raise RefusedError(Refusal.MALFORMED)


def _is_chunked(fields: Fields) -> bool:
    # Once, and as the only coding: RFC 9112, section 6.1 forbids applying it twice.
    codings = fields.get(b"transfer-encoding", ())
    return [coding.lower() for coding in codings] == [b"chunked"]


def _media_type(fields: Fields, known: tuple[str, ...], refusal: Refusal) -> str:
    """Return our own constant for the only Content-Type; parameters are refused."""
    # A parameter, or an unusual case of letters, could carry a mark from one side to
    # the other; so the constant is sent on, never the received text.
    values = fields.get(b"content-type", ())
    name = values[0].lower().decode("latin-1") if len(values) == 1 else ""
    if name not in known:
        raise RefusedError(refusal)
    return known[known.index(name)]
