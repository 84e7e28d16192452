import builtins
import tracemalloc
from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.encoding.cbor import (
    MAX_DEPTH,
    MAX_ITEMS,
    CborValue,
    decode,
    encode_octets,
)
from curtilage.attest.errors import RefusalCode, RefusedError

LIMIT = 4096
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64 - 1),
    st.text(max_size=20),
    st.binary(max_size=40),
)
KEYS = st.one_of(st.integers(-(2**64), 2**64 - 1), st.text(max_size=8))
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=5),
    st.dictionaries(KEYS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3))),
)


def _refused(data: bytes, *, canonical: bool = False) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        decode(data, where="item", limit_bytes=LIMIT, canonical=canonical)
    return caught.value


@given(VALUES)
def test_decode_reads_what_was_encoded(value: CborValue) -> None:
    data = cbor2.dumps(value)
    assert decode(data, where="item", limit_bytes=65536, canonical=True) == value


@given(VALUES)
def test_every_prefix_is_refused(value: CborValue) -> None:
    data = cbor2.dumps(value)
    for size in range(len(data)):
        assert _refused(data[:size]).code is RefusalCode.MALFORMED


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_refusal(data: bytes) -> None:
    with suppress(RefusedError):
        decode(data, where="item", limit_bytes=LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        "c11a514b67b0",  # 1: a date
        "c249010000000000000000",  # 2: a large number
        "c482271903e8",  # 4: a decimal fraction
        "c5821b7fffffffffffffff03",  # 5: a number as long as memory
        "d818456449455446",  # 24: CBOR in bytes
        "d81c80",  # 28: something shared
        "d81d00",  # 29: a reference to it
        "d823625e2b",  # 35: an expression
        "d28443a10126a0445465737440",  # 18: COSE_Sign1
        "d90102820101",  # 258: a set
        "d9d9f7f6",  # 55799: CBOR itself
        "9fd400ff",  # 20 to 22, whose first bytes are like those of false and null
        "9fd541aaff",
        "9fd600ff",
    ],
    ids=lambda text: text[:6],
)
def test_a_tag_is_refused(text: str) -> None:
    assert _refused(bytes.fromhex(text)).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "text",
    ["f7", "f0", "f8ff", "f90000", "fa00000000", "fb0000000000000000", "ff", "1f"],
)
def test_floats_and_simple_values_are_refused(text: str) -> None:
    assert _refused(bytes.fromhex(text)).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "text", ["a201000100", "bf01000100ff", "a2616100616100", "a1a1"], ids=str
)
def test_duplicate_keys_are_refused(text: str) -> None:
    assert _refused(bytes.fromhex(text)).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "text", ["a1410000", "a1800000", "a1a00000", "a1f600", "a1f500"], ids=str
)
def test_keys_are_numbers_or_texts(text: str) -> None:
    error = _refused(bytes.fromhex(text))
    assert error.code is RefusalCode.MALFORMED
    assert "key" in error.detail


@pytest.mark.parametrize("text", ["5f4100ff", "7f6161ff"], ids=["bytes", "text"])
def test_strings_in_pieces_are_refused(text: str) -> None:
    assert _refused(bytes.fromhex(text)).code is RefusalCode.MALFORMED


@pytest.mark.parametrize("head", ["1c", "3d", "5c", "7e", "9d", "bf00fe"])
def test_reserved_lengths_are_refused(head: str) -> None:
    data = bytes.fromhex(head) + bytes(128)
    for canonical in (False, True):
        assert _refused(data, canonical=canonical).code is RefusalCode.MALFORMED


@pytest.mark.parametrize("text", ["4100", "6161", "1900"])
def test_what_is_missing_is_reported(text: str) -> None:
    assert _refused(bytes.fromhex(text)[:-1]).detail == "item: truncated"


def test_text_that_is_no_utf8_is_refused() -> None:
    assert _refused(b"\x61\xff").code is RefusalCode.MALFORMED


def test_trailing_bytes_are_refused() -> None:
    assert _refused(b"\x00\x00").detail == "item: trailing bytes"


def test_size_is_looked_at_first() -> None:
    assert _refused(bytes(LIMIT + 1)).code is RefusalCode.TOO_LARGE


@pytest.mark.parametrize("opening", [b"\x81", b"\x9f", b"\xa1\x00", b"\xbf\x00"])
def test_nesting_is_bounded(opening: bytes) -> None:
    assert "levels" in _refused(opening * (MAX_DEPTH + 1)).detail
    assert "levels" in _refused(opening * 1000).detail


def test_the_deepest_nesting_is_accepted() -> None:
    data = b"\x81" * MAX_DEPTH + b"\x00"
    assert decode(data, where="item", limit_bytes=LIMIT) == [[[[0]]]]


@pytest.mark.parametrize(
    "head", ["9bffffffffffffffff", "bbffffffffffffffff", "9affffffff", "9f"]
)
def test_too_many_items_are_refused(head: str) -> None:
    data = bytes.fromhex(head) + bytes(2 * MAX_ITEMS)
    assert _refused(data).code is RefusalCode.TOO_LARGE


def test_a_length_beyond_the_input_costs_nothing() -> None:
    for head in ("5bffffffffffffffff", "7bffffffffffffffff", "5affffffff"):
        tracemalloc.start()
        assert _refused(bytes.fromhex(head)).code is RefusalCode.MALFORMED
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20


@pytest.mark.parametrize(
    "text", ["1817", "190017", "1a00000017", "a1180100", "9f00ff", "bfff", "581700"]
)
def test_canonical_refuses_longer_forms(text: str) -> None:
    assert _refused(bytes.fromhex(text), canonical=True).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1817", 23),
        ("1a00000017", 23),
        ("9f00ff", [0]),
        ("bfff", {}),
        ("580100", b"\0"),
    ],
)
def test_longer_forms_are_read_where_not_forbidden(text: str, value: CborValue) -> None:
    assert decode(bytes.fromhex(text), where="item", limit_bytes=LIMIT) == value


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65535, 65536])
def test_encode_octets_is_the_shortest_form(size: int) -> None:
    data = bytes(size)
    assert encode_octets(data) == cbor2.dumps(data)


def test_without_the_library_everything_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true_import = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if name == "cbor2":
            raise ImportError(name)
        return true_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert _refused(b"\x00").code is RefusalCode.VERIFIER_UNAVAILABLE
