"""HTTP messages as values, whole and as the events of a stream.

Bytes that may be content (and fields and paths may) never show in ``repr``.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from curtilage.wire.fields import Field

Fields: TypeAlias = tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a decoder; beyond them, ``LimitExceededError``.

    Attributes:
        max_control_bytes: each of method, scheme, authority and path. URIs of
            8,000 bytes are what RFC 9110, section 4.1, asks everybody to take.
        max_fields: lines of one field section; HTTP servers stop at about 100.
        max_section_bytes: one field section. 64 KiB holds the largest header
            that common HTTP servers accept, and is buffered before it is read.
        max_informational: interim responses ahead of the final one. Each one
            costs the sender a few bytes, so only the count can bound them.
        max_content_bytes: all content. The largest request class is 1 MiB, the
            longest padded answer 4,096 frames of 512 bytes; 8 MiB is four
            times that.
        max_content_chunks: of a message of indeterminate length. A chunk costs
            its sender two bytes and us a few hundred; even token by token, no
            answer has more than these.
        max_padding_bytes: zeros behind the message. A request of the largest
            class may be all padding but for its head, and so may a plain answer
            of the longest bucket, 2 MiB.
        max_message_bytes: everything together, counted before it is parsed.
    """

    max_control_bytes: int = 8 * 1024
    max_fields: int = 128
    max_section_bytes: int = 64 * 1024
    max_informational: int = 16
    max_content_bytes: int = 8 * 1024 * 1024
    max_content_chunks: int = 64 * 1024
    max_padding_bytes: int = 4 * 1024 * 1024
    max_message_bytes: int = 16 * 1024 * 1024


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, complete.

    Attributes:
        method: a token, case-sensitive.
        scheme: a URI scheme; empty for CONNECT only.
        authority: host and port, or empty.
        path: origin form with its query, ``*`` for OPTIONS, empty for CONNECT.
        fields: header lines in order, lower-case names.
        content: the body.
        trailers: trailer lines in order.
    """

    method: bytes
    scheme: bytes
    authority: bytes
    # A path may hold a query string, a field a cookie: no less content than the body.
    path: bytes = field(repr=False)
    fields: Fields = field(default=(), repr=False)
    content: bytes = field(default=b"", repr=False)
    trailers: Fields = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationalResponse:
    """One interim response; without effect here, 101 included.

    Attributes:
        status: 100..199.
        fields: header lines in order, lower-case names.
    """

    status: int
    fields: Fields = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response, complete.

    Attributes:
        status: 200..599; there is no reason phrase.
        fields: header lines in order, lower-case names.
        content: the body.
        trailers: trailer lines in order.
        informational: interim responses in order.
    """

    status: int
    fields: Fields = field(default=(), repr=False)
    content: bytes = field(default=b"", repr=False)
    trailers: Fields = field(default=(), repr=False)
    informational: tuple[InformationalResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """Event: control data and header section of a request; see ``Request``."""

    method: bytes
    scheme: bytes
    authority: bytes
    path: bytes = field(repr=False)
    fields: Fields = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Event: status and header section of a response; see ``Response``."""

    status: int
    fields: Fields = field(default=(), repr=False)
    informational: tuple[InformationalResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentChunk:
    """Event: some content, at least one byte, cut wherever it arrived."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEnd:
    """Event: the request is over; only padding may follow."""

    trailers: Fields = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnd:
    """Event: the response is over; only padding may follow."""

    trailers: Fields = field(default=(), repr=False)


RequestEvent: TypeAlias = RequestHead | ContentChunk | RequestEnd
ResponseEvent: TypeAlias = ResponseHead | ContentChunk | ResponseEnd
