import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.nvidia.spdm import parse_spdm_report
from curtilage_dev.emulated.gpu import (
    EmulatedGpu,
    encode_opaque,
    encode_record,
    encode_report,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
NONCE = b"\x41" * 32
SIGNATURE = b"\x53" * 96
FIELDS = EmulatedGpu.make(now=NOW).fields(NONCE)
REPORT = encode_report(FIELDS) + SIGNATURE
RECORD_AT = 37 + 8


def _report(**changes: Any) -> bytes:  # noqa: ANN401 - fields of every type
    return encode_report(replace(FIELDS, **changes)) + SIGNATURE


def _refused(data: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        parse_spdm_report(data)
    return caught.value


def test_parse_takes_a_report_apart() -> None:
    report = parse_spdm_report(REPORT)
    assert report.nonce == NONCE
    assert report.responder_nonce == FIELDS.responder_nonce
    assert report.record == encode_record(FIELDS.blocks)
    assert [(b.index, b.value) for b in report.blocks] == list(FIELDS.blocks)
    assert {block.value_type for block in report.blocks} == {1}
    assert tuple(report.opaque.items()) == FIELDS.opaque
    assert report.signed_part + report.signature == REPORT
    assert report.signature == SIGNATURE


def test_any_slot_may_sign() -> None:
    response = bytes((0x11, 0x60, 0, 3))
    assert parse_spdm_report(_report(slot=3, response=response)).nonce == NONCE


def test_bytes_behind_the_signature_are_counted() -> None:
    for tail in (bytes(1), bytes(3), b"\1" * 12):
        refusal = _refused(REPORT + tail)
        assert refusal.code is RefusalCode.MALFORMED
        assert refusal.detail.startswith(f"report: {len(tail)} byte(s) ")


@pytest.mark.parametrize("version", [0x10, 0x12, 0x13, 0x00])
@pytest.mark.parametrize("message", ["request", "response"])
def test_another_version_is_refused(message: str, version: int) -> None:
    head = bytes([version]) + getattr(FIELDS, message)[1:]
    assert _refused(_report(**{message: head})).code is RefusalCode.UNSUPPORTED_VERSION


def _with_size(where: int, size: int) -> bytes:
    """A first block of which one size says one less than there is."""
    data = bytearray(REPORT)
    struct.pack_into("<H", data, where, size)
    return bytes(data)


def _counted(count: int) -> bytes:
    data = bytearray(REPORT)
    data[37 + 4] = count
    return bytes(data)


FRAMES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "request alone": lambda: REPORT[:37],
    "no signature": lambda: REPORT[:-96],
    "short signature": lambda: REPORT[:-1],
    "padding": lambda: REPORT + b"\0",
    "padding of a page": lambda: REPORT.ljust(8192, b"\0"),
    "bytes before the signature": lambda: _report(more=b"\0"),
    "another request": lambda: _report(request=bytes((0x11, 0xE1, 1, 0xFF))),
    "no signature asked for": lambda: _report(request=bytes((0x11, 0xE0, 0, 0xFF))),
    "reserved attributes": lambda: _report(request=bytes((0x11, 0xE0, 3, 0xFF))),
    "one measurement": lambda: _report(request=bytes((0x11, 0xE0, 1, 1))),
    "number of measurements": lambda: _report(request=bytes((0x11, 0xE0, 1, 0))),
    "another response": lambda: _report(response=bytes((0x11, 0x61, 0, 0))),
    "an error": lambda: _report(response=bytes((0x11, 0x7F, 0, 0))),
    "another slot": lambda: _report(slot=1),
    "reserved slot": lambda: _report(slot=0x10),
    "no measurements": lambda: _report(blocks=()),
    "count too low": lambda: _counted(63),
    "count too high": lambda: _counted(65),
    "index twice": lambda: _report(blocks=((1, bytes(48)), (1, bytes(48)))),
    "index 0": lambda: _report(blocks=((0, bytes(48)),)),
    "index 255": lambda: _report(blocks=((255, bytes(48)),)),
    "specification": lambda: _report(specification=2),
    "value's size": lambda: _with_size(RECORD_AT + 5, 47),
    "block's size": lambda: _with_size(RECORD_AT + 2, 50),
    "opaque twice": lambda: _report(opaque=((3, b"a\0"), (3, b"b\0"))),
    "opaque truncated": lambda: _opaque(encode_opaque(((3, b"abc"),))[:-1]),
    "opaque cut header": lambda: _opaque(b"\x03\x00\x01"),
}


def _opaque(data: bytes) -> bytes:
    """A report whose opaque data is exactly this."""
    without = encode_report(replace(FIELDS, opaque=()))
    return without[:-2] + struct.pack("<H", len(data)) + data + SIGNATURE


@pytest.mark.parametrize("name", FRAMES)
def test_another_frame_is_refused(name: str) -> None:
    assert _refused(FRAMES[name]()).code is RefusalCode.MALFORMED


def test_values_may_have_any_size() -> None:
    report = parse_spdm_report(_report(blocks=((1, b""), (254, bytes(300)))))
    assert [len(block.value) for block in report.blocks] == [0, 300]


def test_opaque_data_may_be_missing() -> None:
    assert parse_spdm_report(_report(opaque=())).opaque == {}


@given(st.integers(0, len(REPORT) - 1))
def test_every_prefix_is_refused(size: int) -> None:
    assert _refused(REPORT[:size]).code is RefusalCode.MALFORMED


@given(st.binary(max_size=400))
def test_any_bytes_give_a_value_or_a_refusal(data: bytes) -> None:
    with suppress(RefusedError):
        parse_spdm_report(REPORT[:4] + data)


@given(st.integers(0, len(REPORT)), st.integers(0, 8), st.binary(max_size=8))
def test_what_is_read_is_all_that_there_is(at: int, drop: int, insert: bytes) -> None:
    data = REPORT[:at] + insert + REPORT[at + drop :]
    with suppress(RefusedError):
        report = parse_spdm_report(data)
        assert report.signed_part + report.signature == data
        blocks = tuple((block.index, block.value) for block in report.blocks)
        assert len(encode_record(blocks)) == len(report.record)
        assert encode_opaque(tuple(report.opaque.items())) in data
