"""Register values: tpm2-tools' binary file, the marshaled lists, JSON, raw values."""

import struct
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.tpm_registers import MAX_VALUES_BYTES, read_values
from support.evidence_texts import as_json, refused, refused_form

PCRS = tuple((index, bytes([index]) * 32) for index in range(24))
FEW = (PCRS[0], PCRS[4], PCRS[11])


def nothing_selected() -> tuple[int, ...]:
    raise AssertionError("the file says which registers")


def values(file: bytes) -> object:
    return read_values(file, selected=lambda: (0, 4, 11))


def serialized(pcrs: tuple[tuple[int, bytes], ...]) -> bytes:
    """The output of tpm2-tools: the structures as dumped from memory."""
    mask = sum(1 << index for index, _ in pcrs).to_bytes(4, "little")
    selection = struct.pack("<I", 1) + struct.pack("<HB4sx", 0x0B, 3, mask)
    selection = selection.ljust(4 + 16 * 8, b"\0")
    lists = [pcrs[at : at + 8] for at in range(0, len(pcrs), 8)]
    body = struct.pack("<I", len(lists))
    for each in lists:
        body += struct.pack("<I", len(each))
        values = b"".join(struct.pack("<H64s", len(value), value) for _, value in each)
        body += values.ljust(8 * 66, b"\0")
    return selection + body


def marshaled(*lists: int, mask: bytes = b"\x11\x08\x00") -> bytes:
    values = iter(FEW)
    data = struct.pack(">IHB", 1, 0x0B, len(mask)) + mask
    for count in lists:
        data += struct.pack(">I", count)
        for _ in range(count):
            data += struct.pack(">H", 32) + next(values)[1]
    return data


@pytest.mark.parametrize(
    "file",
    [
        serialized(FEW),
        as_json({str(i): v.hex() for i, v in FEW}),
        as_json({"sha256": {f"pcr{i}": v.hex() for i, v in FEW}}),
        as_json({"pcrs": {"sha256": {str(i): v.hex() for i, v in FEW}}}),
    ],
    ids=["tpm2_quote", "JSON", "JSON with bank", "JSON with both"],
)
def test_register_values_with_indices(file: bytes) -> None:
    assert read_values(file, selected=nothing_selected) == FEW


LINES = b"".join(b"  %-2d: 0x%s\n" % (i, v.hex().upper().encode()) for i, v in FEW)


@pytest.mark.parametrize(
    "file",
    [
        LINES,
        b"sha256:\n" + LINES,
        b"sha1:\n  0 : 0x00\nsha256:\n" + LINES,
        b"quoted: ff544347\nsignature:\n  alg: rsassa\n  sig: 00\npcrs:\n  sha256:\n"
        + LINES
        + b"calcDigest: 00\n",
        ",".join(f"pcr{i}={v.hex()}" for i, v in FEW).encode(),
        f"pcr0={PCRS[0][1].hex()}".encode(),
    ],
    ids=["lines", "a bank", "tpm2_pcrread", "tpm2_quote", "commas", "one"],
)
def test_register_values_as_printed_text_are_refused(file: bytes) -> None:
    refused_form(lambda: values(file))


def test_many_register_values_of_tpm2_tools() -> None:
    assert read_values(serialized(PCRS), selected=nothing_selected) == PCRS


def test_register_values_one_after_another() -> None:
    every = b"".join(value for _, value in PCRS)
    few = b"".join(value for _, value in FEW)
    assert read_values(every, selected=nothing_selected) == PCRS
    assert values(few) == FEW
    assert values(few.hex().encode()) == FEW
    listed = as_json([value.hex() for _, value in PCRS])
    assert read_values(listed, selected=nothing_selected) == PCRS
    assert read_values(b"", selected=nothing_selected) == ()


@pytest.mark.parametrize(
    "file",
    [
        bytes(31),
        bytes(64),
        serialized(FEW)[:-1],
        serialized(FEW) + b"\0",
        b"0: 0x123",
        b'{"one": "00"}',
        b'{"0": ',
        b'{"100": "00"}',
    ],
    ids=["length", "count", "cut", "tail", "half", "name", "broken", "number"],
)
def test_other_register_values_are_refused(file: bytes) -> None:
    assert refused(lambda: values(file)) is RefusalCode.MALFORMED


@given(
    st.binary(max_size=900), st.sampled_from([b"", serialized(())[:6], marshaled()[:6]])
)
def test_any_register_values_are_read_or_refused(file: bytes, start: bytes) -> None:
    with suppress(RefusedError):
        read_values(start + file, selected=lambda: (0,))


def test_marshaled_register_values_are_read() -> None:
    for file in (marshaled(3), marshaled(2, 1), marshaled(3, mask=b"\x11\x08\0\0")):
        assert values(file) == FEW
    for wrong in (
        marshaled(3) + b"\0",
        marshaled(3)[:-1],
        marshaled(2),
        marshaled(3) + bytes(4),
        marshaled(3, mask=b"\x13\x08\x00"),
    ):
        assert refused(partial(values, wrong)) is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "file",
    [
        b'{"sha256": 5}',
        b'{"sha256": null}',
        b'{"pcrs": "00"}',
        b"[null]",
        b'{"0": "00", "0": "11"}',
        b'{"0": [',
    ],
    ids=repr,
)
def test_json_that_holds_no_register_values_is_refused(file: bytes) -> None:
    assert refused(lambda: values(file)) is RefusalCode.MALFORMED


def test_register_values_after_a_byte_order_mark_are_read() -> None:
    file = b"\xef\xbb\xbf" + b'{"0": "%b"}' % (b"11" * 32)
    assert values(file) == ((0, b"\x11" * 32),)


def test_too_many_register_values_are_refused_unread() -> None:
    file = b"0:00," * MAX_VALUES_BYTES
    assert refused(lambda: values(file)) is RefusalCode.TOO_LARGE
