"""The examples of RFC 9292, section 5, decoded, encoded and truncated."""

from collections.abc import Callable
from typing import Any

import pytest

from curtilage.wire.bhttp import (
    Request,
    RequestHead,
    decode_request,
    decode_response,
    encode_content_chunk,
    encode_content_end,
    encode_request,
    encode_request_head,
    encode_response,
    encode_response_head,
)

Load = Callable[[str], Any]
FIELDS = (
    (b"user-agent", b"curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"),
    (b"host", b"www.example.com"),
    (b"accept-language", b"en, mi"),
)
REQUEST = Request(
    method=b"GET", scheme=b"https", authority=b"", path=b"/hello.txt", fields=FIELDS
)


@pytest.fixture(scope="module")
def examples(load_vectors: Load) -> dict[str, bytes]:
    return {
        example["name"]: bytes.fromhex(example["hex"])
        for example in load_vectors("rfc9292/examples.json")["examples"]
    }


def test_known_length_request(examples: dict[str, bytes]) -> None:
    data = examples["ex-bink-request"]
    assert decode_request(data) == REQUEST
    assert encode_request(REQUEST) == data
    # The RFC: the last two bytes "can each be removed".
    assert decode_request(data[:-1]) == decode_request(data[:-2]) == REQUEST


def test_indeterminate_length_request(examples: dict[str, bytes]) -> None:
    data = examples["ex-bini-request"]
    head = RequestHead(
        method=b"GET", scheme=b"https", authority=b"", path=b"/hello.txt", fields=FIELDS
    )
    assert encode_request_head(head) + encode_content_end() + bytes(10) == data
    # The RFC: "anything up to 12 bytes can be removed from this message".
    for cut in range(13):
        assert decode_request(data[: len(data) - cut]) == REQUEST


def test_response_with_informational_responses(examples: dict[str, bytes]) -> None:
    data = examples["ex-bini-response"]
    found = decode_response(data)
    assert found.status == 200
    assert [interim.status for interim in found.informational] == [102, 103]
    assert found.informational[0].fields == ((b"running", b'"sleep 15"'),)
    assert found.content.endswith(b"trailing CRLF.\r\n")
    assert len(found.fields) == 8
    head = encode_response_head(
        found.status, found.fields, informational=found.informational
    )
    content = encode_content_chunk(found.content) + encode_content_end()
    assert head + content == data


def test_known_length_response_with_trailers(examples: dict[str, bytes]) -> None:
    data = examples["ex-bink-chunked"]
    found = decode_response(data)
    assert found.content == b"This content contains CRLF.\r\n"
    assert found.trailers == ((b"trailer", b"text"),)
    assert encode_response(found) == data
