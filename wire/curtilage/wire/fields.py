"""Validation of field lines and control data.

The rules of RFC 9292, sections 3.4 to 3.6, and of the RFC 9113 sections that it
names. Both directions obey them: nothing that we would refuse is ever encoded,
so no value can smuggle a line into somebody's HTTP/1.1.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from curtilage.wire.errors import MalformedError

Field: TypeAlias = tuple[bytes, bytes]

# RFC 9110, section 5.6.2. A name is in lower case (RFC 9292, section 3.6): a reader
# that compares it with case would miss ``Host`` where another one finds it.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_METHOD: Final = re.compile(_TOKEN)
_NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
# RFC 9113, section 8.2.1: no NUL, CR or LF anywhere, no space or tab at either end.
_VALUE: Final = re.compile(rb"(?:[^\x00\r\n\t ](?:[^\x00\r\n]*[^\x00\r\n\t ])?)?")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*")
# No userinfo (RFC 9110, section 4.2.4) and none of the characters that end an
# authority in some parser.
_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=:%\[\]]*")
# Origin form, visible ASCII. Without ``#``: a fragment is the client's own affair, and
# some servers cut there and others do not (RFC 9110, section 4.2.5).
_PATH: Final = re.compile(rb"/[!-\"$-~]*")

# They are sent as control data (RFC 9292, section 3.6), once. As an additional field,
# each would be a second method or path for a reader that reads fields first.
_CONTROL_NAMES: Final = frozenset(
    {b":method", b":scheme", b":authority", b":path", b":status"}
)
# RFC 9110, section 7.6.1; the fields that Connection nominates come on top.
_CONNECTION_FIELDS: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)


def validate_fields(fields: Iterable[Field], *, trailers: bool) -> None:
    """Check one field section (RFC 9292, section 3.6).

    Raises:
        MalformedError: a name or value is not permitted, or a pseudo-field
            follows another field, is in trailers, or repeats control data.
    """
    pseudo_may_follow = not trailers
    for name, value in fields:
        # fullmatch, since ``$`` would let a trailing newline through.
        if _NAME.fullmatch(name) is None:
            raise MalformedError("field name is not a lower-case token")
        if name in _CONTROL_NAMES:
            raise MalformedError("control data sent as a field")
        if _VALUE.fullmatch(value) is None:
            raise MalformedError("field value holds CR, LF, NUL or outer whitespace")
        # RFC 9113, section 8.3: pseudo-fields stand ahead of all others, or a reader
        # that stops looking at the first field would not see them.
        if not name.startswith(b":"):
            pseudo_may_follow = False
        elif not pseudo_may_follow:
            raise MalformedError("pseudo-field out of place")


def validate_request_target(
    method: bytes, scheme: bytes, authority: bytes, path: bytes
) -> None:
    """Check request control data (RFC 9292, section 3.4).

    Says nothing about whether the target exists or may be reached.

    Raises:
        MalformedError: a value is not one that HTTP/2 permits (RFC 9113,
            sections 8.3.1 and 8.5).
    """
    if _METHOD.fullmatch(method) is None:
        raise MalformedError("method is not a token")
    if _AUTHORITY.fullmatch(authority) is None:
        raise MalformedError("authority holds characters not permitted")
    # RFC 9113, section 8.5: the one request that has no scheme and no path.
    if method == b"CONNECT":
        if scheme or path or not authority:
            raise MalformedError("CONNECT takes an authority and nothing else")
        return
    if _SCHEME.fullmatch(scheme) is None:
        raise MalformedError("scheme is not a URI scheme")
    # RFC 9110, section 7.1: the server as a whole, for OPTIONS alone.
    asterisk = method == b"OPTIONS" and path == b"*"
    if not asterisk and _PATH.fullmatch(path) is None:
        raise MalformedError("path is not in origin form")


def validate_host(authority: bytes, fields: Iterable[Field]) -> None:
    """Check that Host names what the authority names (RFC 9113, 8.3.1).

    Raises:
        MalformedError: two Host fields, or one that differs.
    """
    # Two names for one request are how a cache or a router is made to serve the one
    # and a server the other. Case does not count in a host (RFC 3986, section 3.2.2).
    hosts = _values(b"host", fields)
    if len(hosts) > 1:
        raise MalformedError("more than one Host field")
    if hosts and authority and hosts[0].lower() != authority.lower():
        raise MalformedError("Host differs from the authority")


def validate_content_length(fields: Iterable[Field], content_bytes: int) -> None:
    """Check a request's Content-Length, if any (RFC 9113, section 8.1.1).

    Raises:
        MalformedError: it is not the decimal length of the content.
    """
    # Compared as text: ``int`` would take "+5", "5_0" and " 5", which other readers of
    # the same field do not. Several that agree are one.
    for value in _values(b"content-length", fields):
        if value.lstrip(b"0") != str(content_bytes).encode().lstrip(b"0") or not value:
            raise MalformedError("Content-Length differs from the content")


def join_cookies(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Join all Cookie lines at the place of the first (RFC 9113, 8.2.3).

    Empty ones are left out: joined, a last one would end the value with a space,
    which no value may.
    """
    cookies = _values(b"cookie", fields)
    if len(cookies) <= 1:
        return tuple(fields)
    first = next(i for i, (name, _) in enumerate(fields) if name == b"cookie")
    others = [field for field in fields[first:] if field[0] != b"cookie"]
    return (*fields[:first], (b"cookie", b"; ".join(filter(None, cookies))), *others)


def without_connection_fields(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Drop what concerns one connection only (RFC 9292, section 3.6)."""
    kept = tuple(fields)
    nominated = {
        name.strip(b" \t").lower()
        for value in _values(b"connection", kept)
        for name in value.split(b",")
    }
    # What Connection nominates, as section 7.6.1 has every intermediary do: passed on,
    # "Connection: te" would take a field away from the next one instead.
    dropped = _CONNECTION_FIELDS | nominated
    return tuple(field for field in kept if field[0] not in dropped)


def _values(name: bytes, fields: Iterable[Field]) -> list[bytes]:
    return [value for field_name, value in fields if field_name == name]
