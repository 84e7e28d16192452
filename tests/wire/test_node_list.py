"""The nodes of a pool in one piece: what is a list, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.relay.forward import node_list
from curtilage.wire.errors import (
    LimitExceededError,
    MalformedError,
    TruncatedError,
    UnsupportedError,
    WireError,
)
from curtilage.wire.node_list import (
    MAX_LIST_BYTES,
    MAX_NODES,
    is_node_list,
    parse_node_list,
)


def entry(node: bytes, content: bytes = b"") -> bytes:
    return bytes([len(node)]) + node + len(content).to_bytes(4, "big") + content


def test_a_list_in_octets() -> None:
    octets = bytes.fromhex("01 0161 00000002 7b7d 0162 00000000")
    assert parse_node_list(octets) == {"a": b"{}", "b": b""}
    assert node_list({"b": b"", "a": b"{}"}) == octets


IDS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True).filter(
    lambda node: node not in {"keys", "bundle"}
)


@given(st.dictionaries(IDS, st.binary(max_size=40), min_size=1, max_size=MAX_NODES))
def test_what_a_relay_lists_a_client_reads(contents: dict[str, bytes]) -> None:
    assert parse_node_list(node_list(contents)) == contents


@given(st.binary(max_size=80))
def test_other_octets_are_a_list_or_refused(data: bytes) -> None:
    try:
        found = parse_node_list(b"\x01" + data)
    except WireError:
        return
    assert node_list(found) == b"\x01" + data, "one list, one form"


def test_a_bundle_and_a_key_list_are_no_node_lists() -> None:
    assert not is_node_list(b'{"v":3}')
    assert not is_node_list(b"")
    with pytest.raises(UnsupportedError):
        parse_node_list(b"\x04\xcd")


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        b"\x01" + entry(b""),
        b"\x01" + entry(b"A"),
        b"\x01" + entry(b"-a"),
        b"\x01" + entry(b"a/b"),
        b"\x01" + entry(b"a\n"),
        b"\x01" + entry(b"a" * 33),
        b"\x01" + entry(b"keys"),
        b"\x01" + entry(b"bundle"),
        b"\x01" + entry(b"a") + entry(b"a"),
        b"\x01" + entry(b"b") + entry(b"a"),
    ],
)
def test_ids_that_are_none_twice_or_out_of_order_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_node_list(data)


def test_every_beginning_of_a_list_is_refused_or_a_shorter_list() -> None:
    whole = b"\x01" + entry(b"a", b"{}") + entry(b"b", b"{}")
    ends = {1, len(b"\x01" + entry(b"a", b"{}"))}
    for length in range(len(whole)):
        if length not in ends:
            with pytest.raises(TruncatedError):
                parse_node_list(whole[:length])


def test_a_list_is_bounded() -> None:
    many = [f"n{number:02}".encode() for number in range(MAX_NODES + 1)]
    assert len(parse_node_list(b"\x01" + b"".join(map(entry, many[:-1])))) == MAX_NODES
    with pytest.raises(LimitExceededError):
        parse_node_list(b"\x01" + b"".join(map(entry, many)))
    with pytest.raises(LimitExceededError):
        parse_node_list(b"\x01" + bytes(MAX_LIST_BYTES))
