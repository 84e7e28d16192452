import string
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.bhttp import (
    ContentChunk,
    Fields,
    InformationalResponse,
    Request,
    RequestDecoder,
    RequestHead,
    Response,
    ResponseDecoder,
    decode_request,
    decode_response,
    encode_content_chunk,
    encode_content_end,
    encode_request,
    encode_request_head,
    encode_response,
    encode_response_head,
)
from curtilage.wire.errors import TruncatedError, WireError

EventT = TypeVar("EventT")

NOT_ROUND_TRIPPED = frozenset(
    b"cookie host content-length connection te upgrade keep-alive".split()
)
names = (
    st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=8)
    .map(str.encode)
    .filter(lambda name: name not in NOT_ROUND_TRIPPED)
)
values = st.binary(max_size=12).map(
    lambda value: value.translate(None, b"\r\n\x00").strip(b" \t")
)
sections = st.lists(st.tuples(names, values), max_size=4).map(tuple)
paths = st.text(string.ascii_letters + "/?=&%.", max_size=20).map(
    lambda path: b"/" + path.encode()
)
contents = st.binary(max_size=300)
requests = st.builds(
    Request,
    method=st.sampled_from([b"GET", b"POST", b"PATCH", b"M-SEARCH"]),
    scheme=st.sampled_from([b"https", b"http", b"ftp"]),
    authority=st.sampled_from([b"", b"a.invalid", b"[::1]:8443"]),
    path=paths,
    fields=sections,
    content=contents,
    trailers=sections,
)
responses = st.builds(
    Response,
    status=st.integers(min_value=200, max_value=599),
    fields=sections,
    content=contents,
    trailers=sections,
    informational=st.lists(
        st.builds(
            InformationalResponse,
            status=st.integers(min_value=100, max_value=199),
            fields=sections,
        ),
        max_size=3,
    ).map(tuple),
)


def stream(head: bytes, content: bytes, cuts: Sequence[int], trailers: Fields) -> bytes:
    edges = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    pieces = [content[a:b] for a, b in pairwise(edges)]
    return (
        head
        + b"".join(map(encode_content_chunk, pieces))
        + encode_content_end(trailers)
    )


def joined(events: Sequence[EventT]) -> tuple[list[EventT], bytes]:
    """Separate the marks from the content, whose cuts follow the input's."""
    content = b"".join(e.data for e in events if isinstance(e, ContentChunk))
    return [e for e in events if not isinstance(e, ContentChunk)], content


@given(requests, st.integers(min_value=0, max_value=50))
def test_known_request_round_trip(request: Request, padding_bytes: int) -> None:
    encoded = encode_request(request, padding_bytes=padding_bytes)
    assert decode_request(encoded) == request


@given(responses)
def test_known_response_round_trip(response: Response) -> None:
    assert decode_response(encode_response(response)) == response


@given(requests, st.lists(st.integers(min_value=0), max_size=4))
def test_indeterminate_request_round_trip(request: Request, cuts: list[int]) -> None:
    head = encode_request_head(
        RequestHead(
            method=request.method,
            scheme=request.scheme,
            authority=request.authority,
            path=request.path,
            fields=request.fields,
        )
    )
    data = stream(head, request.content, cuts, request.trailers)
    assert decode_request(data) == request


@given(responses, st.lists(st.integers(min_value=0), max_size=4))
def test_every_prefix_of_a_stream_is_truncated(
    response: Response, cuts: list[int]
) -> None:
    head = encode_response_head(response.status, response.fields)
    data = stream(head, response.content, cuts, response.trailers)
    for cut in range(len(data)):
        decoder = ResponseDecoder()
        decoder.push(data[:cut])
        with pytest.raises(TruncatedError):
            decoder.finish()


@given(requests)
def test_every_prefix_is_truncated_or_a_legal_truncation(request: Request) -> None:
    data = encode_request(request)
    untrailed = replace(request, trailers=())
    bare = replace(untrailed, content=b"")
    # The format cannot distinguish a message cut at these two points from a complete
    # one; only the encapsulation can.
    legal = {
        len(encode_request(bare)) - 2: bare,
        len(encode_request(untrailed)) - 1: untrailed,
    }
    for cut in range(len(data)):
        if cut in legal:
            assert decode_request(data[:cut]) == legal[cut]
        else:
            with pytest.raises(TruncatedError):
                decode_request(data[:cut])


@given(responses)
def test_whole_and_byte_by_byte_agree(response: Response) -> None:
    data = encode_response(response)
    whole, slow = ResponseDecoder(), ResponseDecoder()
    at_once = whole.push(data) + whole.finish()
    in_steps = [event for octet in data for event in slow.push(bytes([octet]))]
    in_steps += slow.finish()
    assert joined(at_once) == joined(in_steps)


def outcome(data: bytes, step: int) -> object:
    decoder = RequestDecoder(explicit_end=False)
    try:
        events = [
            event
            for start in range(0, len(data), step)
            for event in decoder.push(data[start : start + step])
        ]
        return joined(events + decoder.finish())
    except WireError as error:
        return type(error)


mutations = st.lists(
    st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=255)),
    max_size=4,
)


@given(requests, mutations)
def test_whole_and_byte_by_byte_agree_on_damaged_input(
    request: Request, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(encode_request(request))
    for place, octet in changes:
        data[place % len(data)] = octet
    assert outcome(bytes(data), len(data)) == outcome(bytes(data), 1)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_a_wire_error(data: bytes) -> None:
    for decode in (decode_request, decode_response):
        with suppress(WireError):
            decode(data)
