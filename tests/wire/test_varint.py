from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.cursor import Cursor, PushParser, ReceiveBuffer
from curtilage.wire.errors import MalformedError, TruncatedError
from curtilage.wire.varint import (
    MAX_VARINT,
    encode_varint,
    encode_vector,
    pull_varint,
    read_varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (37, "25"),
        (63, "3f"),
        (64, "4040"),
        (15293, "7bbd"),
        (16383, "7fff"),
        (16384, "80004000"),
        (494878333, "9d7f3e7d"),
        (2**30 - 1, "bfffffff"),
        (2**30, "c000000040000000"),
        (151288809941952652, "c2197c5eff14e88c"),
        (MAX_VARINT, "ffffffffffffffff"),
    ],
)
def test_encode_varint_uses_the_shortest_form(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(Cursor(bytes.fromhex(encoded))) == value


@pytest.mark.parametrize("encoded", ["25", "4025", "80000025", "c000000000000025"])
def test_read_varint_takes_longer_forms(encoded: str) -> None:
    assert read_varint(Cursor(bytes.fromhex(encoded))) == 37


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_encode_varint_refuses_what_does_not_fit(value: int) -> None:
    with pytest.raises(MalformedError):
        encode_varint(value)


@given(st.integers(min_value=0, max_value=MAX_VARINT))
def test_varint_round_trip_and_truncation(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(Cursor(encoded)) == value
    for cut in range(len(encoded)):
        with pytest.raises(TruncatedError):
            read_varint(Cursor(encoded[:cut]))


@given(st.integers(min_value=0, max_value=MAX_VARINT))
def test_pull_varint_agrees_byte_by_byte(value: int) -> None:
    buffer = ReceiveBuffer(limit_bytes=8)
    found: list[int] = []

    def steps() -> Generator[None, None, None]:
        found.append((yield from pull_varint(buffer)))

    parser: PushParser[None] = PushParser(buffer, steps())
    for octet in encode_varint(value):
        parser.push(bytes([octet]))
    assert found == [value]


def test_encode_vector_prefixes_the_length() -> None:
    assert encode_vector(b"abc") == b"\x03abc"
    assert encode_vector(bytes(64))[:3] == b"\x40\x40\x00"
