"""Binary HTTP messages (RFC 9292): whole decoding, whole and streamed encoding.

We send known-length requests, never truncated, because a deployed gateway
rejects anything else; answers that are still being made go out with
indeterminate length. Whatever we encode obeys the rules that we decode by.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from curtilage.wire.bhttp_decoder import (
    FRAMING_INDETERMINATE_REQUEST,
    FRAMING_INDETERMINATE_RESPONSE,
    FRAMING_REQUEST,
    FRAMING_RESPONSE,
    MAX_FINAL_STATUS,
    MIN_FINAL_STATUS,
    MIN_INFORMATIONAL_STATUS,
    RequestDecoder,
    ResponseDecoder,
)
from curtilage.wire.errors import MalformedError
from curtilage.wire.fields import (
    Field,
    validate_content_length,
    validate_fields,
    validate_host,
    validate_request_target,
    without_connection_fields,
)
from curtilage.wire.messages import (
    DEFAULT_LIMITS,
    ContentChunk,
    Fields,
    InformationalResponse,
    Limits,
    Request,
    RequestEnd,
    RequestEvent,
    RequestHead,
    Response,
    ResponseEnd,
    ResponseEvent,
    ResponseHead,
)
from curtilage.wire.varint import encode_varint, encode_vector

__all__ = [
    "DEFAULT_LIMITS",
    "ContentChunk",
    "Field",
    "Fields",
    "InformationalResponse",
    "Limits",
    "Request",
    "RequestDecoder",
    "RequestEnd",
    "RequestEvent",
    "RequestHead",
    "Response",
    "ResponseDecoder",
    "ResponseEnd",
    "ResponseEvent",
    "ResponseHead",
    "decode_request",
    "decode_response",
    "encode_content_chunk",
    "encode_content_end",
    "encode_request",
    "encode_request_head",
    "encode_response",
    "encode_response_head",
]

HeadT = TypeVar("HeadT", RequestHead, ResponseHead)
EndT = TypeVar("EndT", RequestEnd, ResponseEnd)


def encode_request(request: Request, *, padding_bytes: int = 0) -> bytes:
    """Encode a request with known lengths, untruncated (section 3.1).

    Connection fields are dropped. Limits are the recipient's business.

    Args:
        request: what to encode.
        padding_bytes: zeros to append.

    Raises:
        MalformedError: a value breaks the rules, or the padding is negative.
    """
    # ``bytes`` of a negative number would raise an error that is none of ours.
    if padding_bytes < 0:
        raise MalformedError("padding of a negative length")
    control = _request_control(request)
    # A length that disagrees with the content is how requests are smuggled where the
    # other end writes HTTP/1.1 from what it decoded (RFC 9112, section 11.2).
    validate_content_length(request.fields, len(request.content))
    return b"".join(
        (
            encode_varint(FRAMING_REQUEST),
            control,
            _known_section(request.fields),
            encode_vector(request.content),
            # Written also where there are none: section 3.8 lets an encoder leave it
            # out, but not every deployed gateway reads what it then sends.
            _known_section(request.trailers, trailers=True),
            bytes(padding_bytes),
        )
    )


def encode_response(response: Response) -> bytes:
    """Encode a response with known lengths, untruncated (section 3.1).

    Raises:
        MalformedError: a value breaks the rules.
    """
    parts = [encode_varint(FRAMING_RESPONSE)]
    # Each interim response has a status below 200 and a field section; the first
    # status that is not below says that there are no more (section 3.5.1).
    for interim in response.informational:
        parts.append(_informational_status(interim.status))
        parts.append(_known_section(interim.fields))
    parts += (
        _final_status(response.status),
        _known_section(response.fields),
        encode_vector(response.content),
        _known_section(response.trailers, trailers=True),
    )
    return b"".join(parts)


def encode_request_head(head: RequestHead) -> bytes:
    """Begin a request of indeterminate length (section 3.2).

    Content chunks and the content's end must follow. Our client never sends
    this form; other people's clients do.

    Raises:
        MalformedError: a value breaks the rules.
    """
    # A Content-Length is not compared: the content is not here yet. Who decodes does.
    framing = encode_varint(FRAMING_INDETERMINATE_REQUEST)
    return framing + _request_control(head) + _indeterminate_section(head.fields)


def encode_response_head(
    status: int,
    fields: Iterable[Field],
    *,
    informational: Iterable[InformationalResponse] = (),
) -> bytes:
    """Begin a response of indeterminate length (section 3.2).

    Content chunks and the content's end must follow.

    Args:
        status: 200..599.
        fields: header lines; connection fields among them are dropped.
        informational: interim responses, which come first.

    Raises:
        MalformedError: a value breaks the rules.
    """
    parts = [encode_varint(FRAMING_INDETERMINATE_RESPONSE)]
    for interim in informational:
        parts.append(_informational_status(interim.status))
        parts.append(_indeterminate_section(interim.fields))
    parts += (_final_status(status), _indeterminate_section(fields))
    return b"".join(parts)


def encode_content_chunk(data: bytes) -> bytes:
    """Encode some content of a message of indeterminate length.

    Raises:
        MalformedError: ``data`` is empty, which would read as the end.
    """
    # A chunk of length 0 ends the content (section 3.7), and what is encoded behind it
    # would be read as trailers.
    if not data:
        raise MalformedError("content chunk without content")
    return encode_vector(data)


def encode_content_end(trailers: Iterable[Field] = ()) -> bytes:
    """End the content, and with it a message of indeterminate length.

    Raises:
        MalformedError: a trailer breaks the rules.
    """
    # Two zeros where there are no trailers. Both could be left out at the end of a
    # message (section 3.8), but then a cut would look like an end.
    return encode_varint(0) + _indeterminate_section(trailers, trailers=True)


def decode_request(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Request:
    """Decode one complete request, of known or indeterminate length.

    Takes the truncations of RFC 9292, section 3.8. Cookie lines come joined.

    Raises:
        TruncatedError: ``data`` ends too soon.
        MalformedError: the request is invalid (section 4).
        LimitExceededError: it exceeds one of the limits.
    """
    # Whole: where it ends was said by what it came in, and a cut cannot pass for it.
    decoder = RequestDecoder(limits, explicit_end=False)
    head, content, end = _assemble(
        decoder.push(data) + decoder.finish(), RequestHead, RequestEnd
    )
    return Request(
        method=head.method,
        scheme=head.scheme,
        authority=head.authority,
        path=head.path,
        fields=head.fields,
        content=content,
        trailers=end.trailers,
    )


def decode_response(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Response:
    """Decode one complete response, of known or indeterminate length.

    Takes the truncations of RFC 9292, section 3.8.

    Raises:
        TruncatedError: ``data`` ends too soon.
        MalformedError: the response is invalid (section 4).
        LimitExceededError: it exceeds one of the limits.
    """
    decoder = ResponseDecoder(limits, explicit_end=False)
    head, content, end = _assemble(
        decoder.push(data) + decoder.finish(), ResponseHead, ResponseEnd
    )
    return Response(
        status=head.status,
        fields=head.fields,
        content=content,
        trailers=end.trailers,
        informational=head.informational,
    )


def _request_control(head: Request | RequestHead) -> bytes:
    validate_request_target(head.method, head.scheme, head.authority, head.path)
    # If two places name a host, two readers may rely on different ones.
    validate_host(head.authority, head.fields)
    # In this order and each with its length (section 3.4); none is ever left out.
    values = (head.method, head.scheme, head.authority, head.path)
    return b"".join(encode_vector(value) for value in values)


def _final_status(status: int) -> bytes:
    # Below 200 it would be read as an interim response, with another one to follow.
    if not MIN_FINAL_STATUS <= status <= MAX_FINAL_STATUS:
        raise MalformedError("final status code outside 200..599")
    return encode_varint(status)


def _informational_status(status: int) -> bytes:
    if not MIN_INFORMATIONAL_STATUS <= status < MIN_FINAL_STATUS:
        raise MalformedError("informational status code outside 100..199")
    return encode_varint(status)


def _known_section(fields: Iterable[Field], *, trailers: bool = False) -> bytes:
    return encode_vector(_lines(fields, trailers=trailers))


def _indeterminate_section(fields: Iterable[Field], *, trailers: bool = False) -> bytes:
    # A field name of length 0, which no field has, ends the section (section 3.6).
    return _lines(fields, trailers=trailers) + encode_varint(0)


def _lines(fields: Iterable[Field], *, trailers: bool) -> bytes:
    # Dropped before they are judged: a caller that passes an HTTP/1.1 message on may
    # hand over fields that concern a connection which ends here.
    sent = without_connection_fields(fields)
    validate_fields(sent, trailers=trailers)
    return b"".join(encode_vector(name) + encode_vector(value) for name, value in sent)


def _assemble(
    events: Sequence[ContentChunk | HeadT | EndT],
    head_type: type[HeadT],
    end_type: type[EndT],
) -> tuple[HeadT, bytes, EndT]:
    # A finished decoder has given exactly one head and one end.
    (head,) = [event for event in events if isinstance(event, head_type)]
    (end,) = [event for event in events if isinstance(event, end_type)]
    pieces = [event.data for event in events if isinstance(event, ContentChunk)]
    return head, b"".join(pieces), end
