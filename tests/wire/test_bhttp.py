from collections.abc import Sequence
from dataclasses import replace

import pytest

from curtilage.wire.bhttp import (
    DEFAULT_LIMITS,
    ContentChunk,
    Field,
    InformationalResponse,
    Limits,
    Request,
    RequestDecoder,
    RequestHead,
    Response,
    ResponseDecoder,
    ResponseEnd,
    ResponseHead,
    decode_request,
    decode_response,
    encode_content_chunk,
    encode_content_end,
    encode_request,
    encode_request_head,
    encode_response,
    encode_response_head,
)
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    TruncatedError,
    WireError,
)
from curtilage.wire.varint import encode_varint, encode_vector

REQUEST = Request(
    method=b"POST",
    scheme=b"https",
    authority=b"curtilage.invalid",
    path=b"/v1/chat/completions",
    fields=((b"content-type", b"application/json"),),
    content=b"{}",
)
RESPONSE = Response(
    status=200,
    fields=((b"content-type", b"text/plain"),),
    content=b"hello",
    trailers=((b"x-end", b"1"),),
    informational=(InformationalResponse(status=103, fields=((b"link", b"x"),)),),
)


def control(
    method: bytes = b"GET",
    scheme: bytes = b"https",
    authority: bytes = b"a.invalid",
    path: bytes = b"/",
) -> bytes:
    return b"".join(map(encode_vector, (method, scheme, authority, path)))


def lines(fields: Sequence[Field]) -> bytes:
    return b"".join(encode_vector(n) + encode_vector(v) for n, v in fields)


def known(fields: Sequence[Field], trailers: Sequence[Field] = ()) -> bytes:
    section, end = encode_vector(lines(fields)), encode_vector(lines(trailers))
    return b"\x00" + control() + section + b"\x00" + end


def indeterminate(fields: Sequence[Field], trailers: Sequence[Field] = ()) -> bytes:
    head = b"\x02" + control() + lines(fields) + b"\x00"
    return head + b"\x00" + lines(trailers) + b"\x00"


def refuse(data: bytes, error: type[WireError] = MalformedError) -> None:
    with pytest.raises(error):
        decode_request(data)


def refuse_response(data: bytes, error: type[WireError] = MalformedError) -> None:
    with pytest.raises(error):
        decode_response(data)


# Framing.


@pytest.mark.parametrize(
    "framing",
    [b"\x01", b"\x03", b"\x04", b"\x3f", b"\xc0" + bytes(6) + b"\x04"],
    ids=["known-response", "indeterminate-response", "4", "63", "4-in-8-bytes"],
)
def test_request_refuses_other_framing(framing: bytes) -> None:
    refuse(framing + known(())[1:])


@pytest.mark.parametrize("framing", [b"\x00", b"\x02", b"\x04"])
def test_response_refuses_other_framing(framing: bytes) -> None:
    refuse_response(framing + encode_response(RESPONSE)[1:])


def test_lengths_need_not_be_minimal() -> None:
    data = (
        b"\xc0" + bytes(7) + b"\x40\x03GET" + b"\x80\x00\x00\x05https"
        b"\x40\x00" + b"\xc0" + bytes(6) + b"\x01/" + b"\x40\x00" * 3
    )
    assert decode_request(data) == Request(
        method=b"GET", scheme=b"https", authority=b"", path=b"/"
    )


@pytest.mark.parametrize(
    "data",
    [b"", b"\x40", b"\x00", b"\x00\x03GE", b"\x00\x80\x00\x00"],
    ids=["empty", "half-varint", "framing-only", "half-method", "half-length"],
)
def test_request_refuses_cut_heads(data: bytes) -> None:
    refuse(data, TruncatedError)


# Control data.


@pytest.mark.parametrize(
    "method", [b"", b"GE T", b"GET /x HTTP/1.1\r\n", b"G\x00T", b"G\xc3\x89T"]
)
def test_request_refuses_methods_that_are_no_token(method: bytes) -> None:
    refuse(b"\x00" + control(method=method) + b"\x00")
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, method=method))


@pytest.mark.parametrize("scheme", [b"", b"ht tp", b"http:", b"1http", b"http\r\n"])
def test_request_refuses_schemes_that_are_none(scheme: bytes) -> None:
    refuse(b"\x00" + control(scheme=scheme) + b"\x00")
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, scheme=scheme))


@pytest.mark.parametrize(
    "authority",
    [b"user@a", b"a/b", b"a?b", b"a#b", b"a\\b", b"a\r\nb", b"a b", "ä".encode()],
)
def test_request_refuses_authorities_that_smuggle(authority: bytes) -> None:
    refuse(b"\x00" + control(authority=authority) + b"\x00")
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, authority=authority))


@pytest.mark.parametrize("authority", [b"", b"a:0", b"[::1]:443", b"xn--4ca.test"])
def test_request_takes_authorities_that_are_merely_odd(authority: bytes) -> None:
    data = b"\x00" + control(authority=authority) + b"\x00"
    assert decode_request(data).authority == authority


@pytest.mark.parametrize(
    "path",
    [b"", b"x", b"@host", b"https://a/", b"*", b"/a b", b"/a\r\n", b"/#f", b"/\x7f"],
)
def test_request_refuses_paths_not_in_origin_form(path: bytes) -> None:
    refuse(b"\x00" + control(path=path) + b"\x00")
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, path=path))


@pytest.mark.parametrize("path", [b"/", b"//host", b"/..", b"/a?b=%00&c"])
def test_request_takes_any_origin_form(path: bytes) -> None:
    assert decode_request(b"\x00" + control(path=path) + b"\x00").path == path


def test_request_target_of_options_and_connect() -> None:
    star = decode_request(b"\x00" + control(b"OPTIONS", path=b"*") + b"\x00")
    assert star.path == b"*"
    connect = control(b"CONNECT", scheme=b"", path=b"")
    assert decode_request(b"\x00" + connect + b"\x00").method == b"CONNECT"
    for bad in (
        control(b"CONNECT", path=b""),
        control(b"CONNECT", scheme=b""),
        control(b"CONNECT", scheme=b"", path=b"", authority=b""),
    ):
        refuse(b"\x00" + bad + b"\x00")


@pytest.mark.parametrize(
    "hosts", [[b"b.invalid"], [b"a.invalid", b"a.invalid"]], ids=["differs", "twice"]
)
def test_request_refuses_host_that_differs(hosts: list[bytes]) -> None:
    fields = tuple((b"host", host) for host in hosts)
    refuse(known(fields))
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, authority=b"a.invalid", fields=fields))


def test_request_takes_host_that_agrees() -> None:
    assert decode_request(known([(b"host", b"A.invalid")])).fields
    alone = Request(
        method=b"GET",
        scheme=b"https",
        authority=b"",
        path=b"/",
        fields=((b"host", b"b.invalid"),),
    )
    assert decode_request(encode_request(alone)) == alone


@pytest.mark.parametrize("status", [0, 99, 600, 1000, 2**30])
def test_response_refuses_status_codes_out_of_range(status: int) -> None:
    refuse_response(b"\x01" + encode_varint(status) + b"\x00")
    with pytest.raises(MalformedError):
        encode_response(replace(RESPONSE, status=status))
    with pytest.raises(MalformedError):
        encode_response_head(status, ())


def test_encode_response_refuses_interim_codes_in_the_wrong_place() -> None:
    with pytest.raises(MalformedError):
        encode_response(Response(status=103))
    for status in (99, 200):
        interim = (InformationalResponse(status=status),)
        with pytest.raises(MalformedError):
            encode_response(Response(status=200, informational=interim))


def test_switching_protocols_is_an_interim_response_without_effect() -> None:
    found = decode_response(b"\x01\x40\x65\x00\x40\xc8\x00")
    assert found.status == 200
    assert [interim.status for interim in found.informational] == [101]


def test_interim_responses_are_bounded() -> None:
    interim = encode_varint(199) + b"\x00"
    most = DEFAULT_LIMITS.max_informational
    found = decode_response(b"\x01" + interim * most + b"\x40\xc8\x00")
    assert len(found.informational) == most
    for count in (most + 1, 10_000):
        refuse_response(b"\x01" + interim * count + b"\x40\xc8\x00", LimitExceededError)


# Field lines.

BAD_FIELDS = {
    "empty-name-known": (b"", b"x"),
    "upper-case": (b"Accept", b"x"),
    "space-in-name": (b"a b", b"x"),
    "colon-in-name": (b"a:b", b"x"),
    "nul-in-name": (b"a\x00", b"x"),
    "newline-behind-name": (b"abc\n", b"x"),
    "crlf-in-name": (b"a\r\nb", b"x"),
    "non-ascii-name": ("ä".encode(), b"x"),
    "colon-alone": (b":", b"x"),
    "method": (b":method", b"GET"),
    "scheme": (b":scheme", b"https"),
    "authority": (b":authority", b"a"),
    "path": (b":path", b"/"),
    "status": (b":status", b"200"),
    "cr": (b"a", b"x\ry"),
    "lf": (b"a", b"x\ny"),
    "nul": (b"a", b"x\x00y"),
    "leading-space": (b"a", b" x"),
    "trailing-space": (b"a", b"x "),
    "leading-tab": (b"a", b"\tx"),
    "trailing-tab": (b"a", b"x\t"),
    "space-only": (b"a", b" "),
    "trailing-newline": (b"a", b"x\n"),
}
by_bad_field = pytest.mark.parametrize(
    "field", BAD_FIELDS.values(), ids=BAD_FIELDS.keys()
)


@by_bad_field
def test_fields_that_are_not_permitted_are_refused(field: Field) -> None:
    refuse(known([field]))
    refuse(known((), [field]))
    refuse_response(b"\x01\x40\xc8" + encode_vector(lines([field])))
    refuse_response(b"\x01\x40\x67" + encode_vector(lines([field])) + b"\x40\xc8\x00")


@by_bad_field
def test_fields_that_are_not_permitted_are_refused_indeterminate(field: Field) -> None:
    if field[0]:
        refuse(indeterminate([field]))
        refuse(indeterminate((), [field]))


@by_bad_field
def test_fields_that_are_not_permitted_are_never_encoded(field: Field) -> None:
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, fields=(field,)))
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, trailers=(field,)))
    with pytest.raises(MalformedError):
        encode_response(replace(RESPONSE, fields=(field,)))
    with pytest.raises(MalformedError):
        encode_response(replace(RESPONSE, trailers=(field,)))
    with pytest.raises(MalformedError):
        encode_response_head(200, [field])
    with pytest.raises(MalformedError):
        encode_content_end([field])


@pytest.mark.parametrize("value", [b"", b"x", b"a \t b", b"\x01\xff", b"\x7f"])
def test_field_values_may_be_anything_else(value: bytes) -> None:
    for build in (known, indeterminate):
        found = decode_request(build([(b"a", value)], [(b"b", value)]))
        assert found.fields == ((b"a", value),)
        assert found.trailers == ((b"b", value),)


def test_unknown_pseudo_fields_come_first_and_never_in_trailers() -> None:
    protocol, other = (b":protocol", b"websocket"), (b"a", b"1")
    for build in (known, indeterminate):
        assert decode_request(build([protocol, other])).fields == (protocol, other)
        refuse(build([other, protocol]))
        refuse(build((), [protocol]))


def test_cookie_lines_come_joined() -> None:
    cookies = [(b"cookie", b"a=%d" % number) for number in range(3)]
    fields = [(b"x", b"1"), cookies[0], (b"y", b"2"), *cookies[1:], (b"z", b"3")]
    for build in (known, indeterminate):
        assert decode_request(build(fields)).fields == (
            (b"x", b"1"),
            (b"cookie", b"a=0; a=1; a=2"),
            (b"y", b"2"),
            (b"z", b"3"),
        )


@pytest.mark.parametrize(
    ("lines_of", "joined"),
    [
        ((b"a=1", b""), b"a=1"),
        ((b"", b"a=1", b"", b"b=2", b""), b"a=1; b=2"),
        ((b"", b""), b""),
    ],
)
def test_empty_cookie_lines_leave_nothing_behind(
    lines_of: tuple[bytes, ...], joined: bytes
) -> None:
    found = decode_request(known([(b"cookie", line) for line in lines_of]))
    assert found.fields == ((b"cookie", joined),)
    assert decode_request(encode_request(found)) == found


def test_connection_fields_are_dropped_when_encoding() -> None:
    names = [b"keep-alive", b"te", b"transfer-encoding", b"upgrade", b"x-hop"]
    fields = (
        *((name, b"1") for name in names),
        (b"connection", b"close, X-Hop"),
        (b"proxy-connection", b"close"),
        (b"kept", b"1"),
    )
    request = decode_request(encode_request(replace(REQUEST, fields=fields)))
    assert request.fields == ((b"kept", b"1"),)
    response = decode_response(encode_response(replace(RESPONSE, fields=fields)))
    assert response.fields == ((b"kept", b"1"),)


def test_connection_fields_do_not_make_a_message_invalid() -> None:
    fields = ((b"connection", b"upgrade"), (b"upgrade", b"h2c"), (b"te", b"gzip"))
    assert decode_request(known(fields)).fields == fields


@pytest.mark.parametrize("value", [b"1", b"3", b"+2", b"-2", b"2 ,2", b"", b"0x2"])
def test_request_refuses_content_length_that_differs(value: bytes) -> None:
    fields = ((b"content-length", value),)
    head = b"\x00" + control() + encode_vector(lines(fields))
    refuse(head + b"\x02{}\x00")
    with pytest.raises(MalformedError):
        encode_request(replace(REQUEST, fields=fields))


@pytest.mark.parametrize(("value", "content"), [(b"2", b"{}"), (b"0", b"")])
def test_request_takes_content_length_that_agrees(value: bytes, content: bytes) -> None:
    request = replace(REQUEST, fields=((b"content-length", value),), content=content)
    assert decode_request(encode_request(request)) == request


# Sections, content, padding, truncation.


def test_field_line_must_end_with_its_section() -> None:
    head = b"\x00" + control()
    line = lines([(b"a", b"1")])
    assert decode_request(head + encode_vector(line)).fields == ((b"a", b"1"),)
    for section in (line[:-1], line + b"\x01", line + b"\x01b", line + b"\x40"):
        refuse(head + encode_vector(section) + b"\x00\x00")


@pytest.mark.parametrize("length", [2**62 - 1, 2**30, 64 * 1024 + 1])
def test_huge_lengths_are_refused_before_any_octet_is_awaited(length: int) -> None:
    huge = encode_varint(length)
    for data in (
        b"\x00" + huge,
        b"\x00" + control() + huge,
        b"\x02" + control() + huge,
        b"\x02" + control() + b"\x01a" + huge,
        b"\x02" + control() + b"\x01a\x01b\x01c" + huge,
    ):
        with pytest.raises(LimitExceededError):
            RequestDecoder().push(data)


def test_content_is_bounded_in_both_framings() -> None:
    limits = Limits(max_content_bytes=5)
    request = replace(REQUEST, content=b"12345")
    assert decode_request(encode_request(request), limits) == request
    with pytest.raises(LimitExceededError):
        decode_request(encode_request(replace(request, content=b"123456")), limits)
    with pytest.raises(LimitExceededError):
        decode_request(b"\x02" + control() + b"\x00\x03abc\x03def\x00\x00", limits)


def test_fields_are_bounded_in_number() -> None:
    for build in (known, indeterminate):
        most = [(b"a", b"")] * DEFAULT_LIMITS.max_fields
        assert len(decode_request(build(most)).fields) == len(most)
        refuse(build([*most, (b"a", b"")]), LimitExceededError)
        wide = Limits(max_section_bytes=10**6)
        with pytest.raises(LimitExceededError):
            decode_request(build([(b"a", b"")] * 100_000), wide)


def test_field_sections_are_bounded_in_size() -> None:
    for build in (known, indeterminate):
        refuse(build([(b"a", b"x" * 65_536)]), LimitExceededError)
        refuse(build([(b"a", b"x" * 22_000)] * 3), LimitExceededError)
        assert decode_request(build([(b"a", b"x" * 65_000)])).fields


def test_content_of_indeterminate_length_needs_its_terminator() -> None:
    head = b"\x02" + control() + b"\x00"
    assert decode_request(head + b"\x02ab\x01c\x00").content == b"abc"
    refuse(head + b"\x02ab\x01c", TruncatedError)
    refuse(head + b"\x02a", TruncatedError)


def test_zero_length_chunk_ends_the_content() -> None:
    head = b"\x02" + control() + b"\x00\x01a\x00"
    # What looks like one more chunk is read as a trailer, then as padding.
    refuse(head + b"\x02bc", TruncatedError)
    refuse(head + b"\x00\x01", MalformedError)


def test_padding_must_be_zero_and_is_bounded() -> None:
    data = encode_request(REQUEST, padding_bytes=100)
    assert decode_request(data) == REQUEST
    assert data == encode_request(REQUEST) + bytes(100)
    refuse(data + b"\x01")
    refuse(data[:-50] + b"\x01" + bytes(49))
    limits = Limits(max_padding_bytes=100)
    assert decode_request(data, limits) == REQUEST
    with pytest.raises(LimitExceededError):
        decode_request(data + b"\x00", limits)
    with pytest.raises(MalformedError):
        encode_request(REQUEST, padding_bytes=-1)


def test_padding_is_bounded_across_pieces() -> None:
    decoder = RequestDecoder(Limits(max_padding_bytes=3))
    decoder.push(encode_request(REQUEST) + b"\x00\x00")
    decoder.push(b"\x00")
    with pytest.raises(LimitExceededError):
        decoder.push(b"\x00")


@pytest.mark.parametrize("framing", [b"\x00", b"\x02"], ids=["known", "indeterminate"])
def test_request_may_be_truncated_at_two_points_only(framing: bytes) -> None:
    message = framing + control() + b"\x00\x00\x00"
    whole = decode_request(message)
    legal = {len(message) - 2, len(message) - 1}
    for cut in range(len(message)):
        if cut in legal:
            assert decode_request(message[:cut]) == whole
        else:
            refuse(message[:cut], TruncatedError)


def test_request_that_ends_before_its_header_section_is_refused() -> None:
    refuse(b"\x00" + control(), TruncatedError)
    refuse_response(b"\x01\x40\xc8", TruncatedError)


@pytest.mark.parametrize("framing", [b"\x01", b"\x03"], ids=["known", "indeterminate"])
def test_stream_decoder_requires_the_explicit_end(framing: bytes) -> None:
    for message in (framing + b"\x40\xc8\x00", framing + b"\x40\xc8\x00\x00"):
        assert decode_response(message) == Response(status=200)
        decoder = ResponseDecoder()
        decoder.push(message)
        with pytest.raises(TruncatedError):
            decoder.finish()


# Streams.


def test_streamed_response_round_trip() -> None:
    decoder = ResponseDecoder()
    fields = ((b"content-type", b"text/event-stream"),)
    head = encode_response_head(200, fields)
    assert decoder.push(head) == [ResponseHead(status=200, fields=fields)]
    assert decoder.push(encode_content_chunk(b"one")) == [ContentChunk(data=b"one")]
    split = encode_content_chunk(b"twothree")
    assert decoder.push(split[:4]) == [ContentChunk(data=b"two")]
    assert decoder.push(split[4:]) == [ContentChunk(data=b"three")]
    assert decoder.push(encode_content_end()) == [ResponseEnd()]
    assert decoder.push(bytes(10)) == []
    assert decoder.finish() == []


def test_streamed_response_may_begin_with_interim_responses() -> None:
    interim = (
        InformationalResponse(status=102),
        InformationalResponse(status=103, fields=((b"link", b"x"),)),
    )
    head = encode_response_head(200, (), informational=interim)
    (found,) = ResponseDecoder().push(head)
    assert found == ResponseHead(status=200, informational=interim)
    with pytest.raises(MalformedError):
        encode_response_head(
            200, (), informational=(InformationalResponse(status=200),)
        )


def test_content_chunk_and_end_are_the_bytes_of_the_format() -> None:
    assert encode_content_chunk(b"ab") == b"\x02ab"
    assert encode_content_end() == b"\x00\x00"
    assert encode_content_end([(b"a", b"1")]) == b"\x00\x01a\x011\x00"
    with pytest.raises(MalformedError):
        encode_content_chunk(b"")


def test_request_head_begins_an_indeterminate_request() -> None:
    head = RequestHead(
        method=b"GET", scheme=b"https", authority=b"a.invalid", path=b"/"
    )
    data = encode_request_head(head) + encode_content_chunk(b"x") + encode_content_end()
    assert decode_request(data) == Request(
        method=b"GET",
        scheme=b"https",
        authority=b"a.invalid",
        path=b"/",
        content=b"x",
    )


def test_failed_decoder_stays_failed() -> None:
    decoder = ResponseDecoder()
    with pytest.raises(MalformedError):
        decoder.push(b"\x07")
    with pytest.raises(ConsumedError):
        decoder.push(b"\x01")
    with pytest.raises(ConsumedError):
        decoder.finish()


def test_content_never_shows_in_repr() -> None:
    canary = b"canary-7391"
    fields = ((b"x", canary),)
    shown = repr(
        (
            replace(REQUEST, path=b"/" + canary, fields=fields, content=canary),
            replace(RESPONSE, fields=fields, content=canary, trailers=fields),
            RequestDecoder().push(known(fields)),
            ContentChunk(data=canary),
            ResponseDecoder().push(encode_response_head(200, fields)),
        )
    )
    assert "canary" not in shown
