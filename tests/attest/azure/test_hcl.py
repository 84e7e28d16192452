import contextlib
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.azure.hcl import (
    MAX_RUNTIME_DATA_BYTES,
    RUNTIME_DATA_AT,
    TD_REPORT_BYTES,
    HardwareKind,
    parse_hcl,
    parse_runtime_data,
    parse_td_report,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage_dev.emulated.azure import (
    BlobFields,
    encode_blob,
    encode_runtime,
    runtime_object,
)

KEY = rsa.RSAPublicNumbers(e=65537, n=2**2047 + 1).public_key()
RUNTIME = encode_runtime(runtime_object(KEY))
KEYS = cast("list[dict[str, object]]", runtime_object(KEY)["keys"])
REPORT = bytes(range(256)) * 4 + bytes(range(160))
FIELDS = BlobFields(report=REPORT, runtime_data=RUNTIME)


def _refusal(data: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        parse_hcl(data)
    return caught.value


@pytest.mark.parametrize("version", [1, 2])
def test_blob_is_split(version: int) -> None:
    blob = parse_hcl(encode_blob(replace(FIELDS, version=version)))
    assert (blob.version, blob.kind) == (version, HardwareKind.SNP)
    assert (blob.report, blob.runtime_data) == (REPORT, RUNTIME)


def test_blob_without_padding_is_split() -> None:
    blob = parse_hcl(encode_blob(replace(FIELDS, blob_bytes=0)))
    assert blob.runtime_data == RUNTIME


def test_td_report_is_split() -> None:
    report = REPORT[:TD_REPORT_BYTES]
    blob = parse_hcl(encode_blob(replace(FIELDS, report=report, kind=4)))
    assert (blob.kind, blob.report) == (HardwareKind.TDX, report)


CASES: dict[str, tuple[dict[str, Any], RefusalCode]] = {
    "magic": ({"magic": b"HCLB"}, RefusalCode.MALFORMED),
    "version 0": ({"version": 0}, RefusalCode.UNSUPPORTED_VERSION),
    "version 3": ({"version": 3}, RefusalCode.UNSUPPORTED_VERSION),
    "request": ({"request": 3}, RefusalCode.MALFORMED),
    "runtime version": ({"runtime_version": 2}, RefusalCode.UNSUPPORTED_VERSION),
    "SHA-384": ({"hash_type": 2}, RefusalCode.UNSUPPORTED_ALGORITHM),
    "no hash": ({"hash_type": 0}, RefusalCode.UNSUPPORTED_ALGORITHM),
    "VBS": ({"kind": 1}, RefusalCode.MALFORMED),
    "after a TDREPORT": ({"kind": 4}, RefusalCode.MALFORMED),
    "size too large": ({"size": 2000}, RefusalCode.MALFORMED),
    "size too small": ({"size": len(RUNTIME) - 1}, RefusalCode.MALFORMED),
    "huge": (
        {"runtime_data": b" " * (MAX_RUNTIME_DATA_BYTES + 1)},
        RefusalCode.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_blob_is_refused(name: str) -> None:
    changes, code = CASES[name]
    assert _refusal(encode_blob(replace(FIELDS, **changes))).code is code


@pytest.mark.parametrize(
    "offset",
    [8, 16, 20, 31, 1216, -1],
    ids=["used", "status", "reserved", "reserved end", "runtime size", "padding"],
)
def test_changed_header_is_refused(offset: int) -> None:
    blob = bytearray(encode_blob(FIELDS))
    blob[offset] ^= 1
    assert _refusal(bytes(blob)).code is RefusalCode.MALFORMED


def test_every_cut_blob_is_refused() -> None:
    blob = encode_blob(replace(FIELDS, blob_bytes=0))
    for size in (0, 31, 32, 1215, RUNTIME_DATA_AT - 1, RUNTIME_DATA_AT, len(blob) - 1):
        assert _refusal(blob[:size]).code is RefusalCode.MALFORMED


@given(st.binary(max_size=64), st.integers(0, 1300))
def test_any_bytes_are_split_or_refused(data: bytes, place: int) -> None:
    blob = bytearray(encode_blob(FIELDS))
    blob[place : place + len(data)] = data
    with contextlib.suppress(RefusedError):
        parse_hcl(bytes(blob))


# --- runtime data -------------------------------------------------------------


def test_runtime_data_name_the_key() -> None:
    runtime = parse_runtime_data(RUNTIME)
    assert runtime.attestation_key == KEY
    assert runtime.flags == ("console-enabled", "secure-boot", "tpm-enabled")


def test_members_that_are_not_known_are_let_through() -> None:
    value = {**runtime_object(KEY), "more": {"to": ["come"]}}
    del value["vm-configuration"]
    runtime = parse_runtime_data(encode_runtime(value))
    assert (runtime.attestation_key, runtime.flags) == (KEY, ())


def _with_key(**changes: object) -> bytes:
    return _with(keys=[{**KEYS[0], **changes}, *KEYS[1:]])


NO_KEYS: list[object] = []


def _with(**changes: object) -> bytes:
    return encode_runtime({**runtime_object(KEY), **changes})


def _number(bits: int) -> str:
    text = json.loads(_with_key())["keys"][0]["n"]
    assert isinstance(text, str)
    return text[: bits // 6]


RUNTIME_CASES: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "array": b"[]",
    "no keys": encode_runtime({"user-data": ""}),
    "keys no array": _with(keys={}),
    "key no object": _with(keys=["HCLAkPub"]),
    "key without a name": _with(keys=[{"kty": "RSA"}]),
    "key missing": _with_key(kid="HCLOther"),
    "key twice": _with(keys=KEYS * 2),
    "many keys": _with(keys=[{"kid": "x"}] * 9),
    "other kind": _with_key(kty="EC"),
    "other exponent": _with_key(e="Aw"),
    "exponent padded": _with_key(e="AQAB=="),
    "number missing": _with_key(n=None),
    "number empty": _with_key(n=""),
    "number padded": _with_key(n=_number(2048) + "="),
    "number standard": _with_key(n="+" * 342),
    "number not canonical": _with_key(n="AB"),
    "number even": _with_key(n="gA"),
    "number long": _with_key(n="A" * 685),
    "number not ASCII": _with_key(n="é" * 10),
    "duplicate member": RUNTIME.replace(b'{"keys"', b'{"keys":[],"keys"', 1),
    "settings no object": _with(**{"vm-configuration": NO_KEYS}),
    "setting no boolean": _with(**{"vm-configuration": {"secure-boot": 1}}),
}


@pytest.mark.parametrize("name", RUNTIME_CASES)
def test_runtime_data_are_refused(name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_runtime_data(RUNTIME_CASES[name])
    assert caught.value.code in {RefusalCode.MALFORMED, RefusalCode.TOO_LARGE}


@given(st.binary(max_size=64), st.integers(0, len(RUNTIME)))
def test_any_runtime_data_are_read_or_refused(data: bytes, place: int) -> None:
    text = RUNTIME[:place] + data + RUNTIME[place + len(data) :]
    with contextlib.suppress(RefusedError):
        parse_runtime_data(text)


# --- TDREPORT -----------------------------------------------------------------


def test_td_report_is_read() -> None:
    data = bytearray(TD_REPORT_BYTES)
    data[0] = 0x81
    data[128:192] = bytes(range(64))
    for number in range(8):
        start = 528 + 48 * number
        data[start : start + 48] = bytes([number + 1]) * 48
    report = parse_td_report(bytes(data))
    assert report.report_data == bytes(range(64))
    assert {name: value[:2] for name, value in report.registers.items()} == {
        "mrtd": "01",
        "mrconfigid": "02",
        "mrowner": "03",
        "mrownerconfig": "04",
        "rtmr0": "05",
        "rtmr1": "06",
        "rtmr2": "07",
        "rtmr3": "08",
    }


@pytest.mark.parametrize("data", [b"", bytes(1024), b"\x81" + bytes(1022)])
def test_td_report_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_td_report(data)
    assert caught.value.code is RefusalCode.MALFORMED
