import hashlib
import json
import runpy
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from curtilage.attest.binding import (
    BindingInputs,
    SignedDevice,
    base_hash_v2,
    base_hash_v3,
    challenge_report_data,
    device_nonce_v2,
    lp,
    qualifying_data_v2,
    report_data_v2,
)
from curtilage.wire.shaping import PADDED, UNPADDED
from support.binding_v1 import (
    base_hash_v1,
    device_nonce_v1,
    qualifying_data_v1,
    report_data_v1,
)

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
Base = Callable[[BindingInputs], bytes]
BASES: dict[str, Base] = {"binding-v2": base_hash_v2, "binding-v3": base_hash_v3}
INPUTS = BindingInputs(
    key_configs=b"keys",
    not_before=1,
    not_after=2,
    release_digest=bytes(32),
    anchor_origin="example.org/log",
    anchor_size=3,
    anchor_root=bytes(32),
    anchor_time=4,
)
PLAIN = {"not_before", "not_after", "anchor_origin", "anchor_size", "anchor_time"}
GPU = SignedDevice(kind="nvidia-gpu", index=0, signed_part=b"report")


def _vectors(version: str) -> list[dict[str, Any]]:
    text = (VECTORS / version / "vectors.json").read_text()
    made: list[dict[str, Any]] = json.loads(text)
    return made


@pytest.mark.parametrize("version", BASES)
def test_vectors_are_what_the_script_makes(version: str) -> None:
    made = runpy.run_path(str(next((VECTORS / version).glob("make*.py"))))["make"]()
    assert _vectors(version) == made


@pytest.mark.parametrize(
    ("version", "vector"),
    [(version, vector) for version in BASES for vector in _vectors(version)],
    ids=lambda value: value if isinstance(value, str) else value["name"],
)
def test_the_binding_matches_the_vectors(version: str, vector: dict[str, Any]) -> None:
    texts: dict[str, Any] = vector["inputs"]
    values: dict[str, Any] = {
        name: texts[name] if name in PLAIN else bytes.fromhex(texts[name]["hex"])
        for name in texts
    }
    inputs = BindingInputs(**values)
    devices = tuple(
        SignedDevice(
            kind=device["kind"],
            index=device["index"],
            signed_part=bytes.fromhex(device["signed_part"]),
        )
        for device in vector["devices"]
    )
    b0 = BASES[version](inputs)
    assert b0.hex() == vector["b0"]
    assert report_data_v2(b0, devices, emulated=False).hex() == vector["report_data"]
    emulated = report_data_v2(b0, devices, emulated=True)
    assert emulated.hex() == vector["report_data_emulated"]
    genuine = report_data_v2(b0, devices, emulated=False)
    assert qualifying_data_v2(genuine).hex() == vector["qualifying_data"]
    assert qualifying_data_v2(emulated).hex() == vector["qualifying_data_emulated"]
    nonces = [device_nonce_v2(b0, d.kind, d.index).hex() for d in devices]
    assert nonces == vector["device_nonces"]
    for name, flag in (("challenge", False), ("challenge_emulated", True)):
        expected: dict[str, str] = vector[name]
        nonce = bytes.fromhex(expected["nonce"])
        data = challenge_report_data(b0, nonce, emulated=flag)
        assert data.hex() == expected["report_data"]
        assert qualifying_data_v2(data).hex() == expected["qualifying_data"]


CHANGES: dict[str, Any] = {
    "key_configs": b"keyz",
    "not_before": 0,
    "not_after": 3,
    "release_digest": bytes(31) + b"\1",
    "anchor_origin": "example.org/lag",
    "anchor_size": 4,
    "anchor_root": bytes(31) + b"\1",
    "anchor_time": 5,
    "receipt_public_key": b"\0",
    "transport_parameters": b"\0",
}
OWN: dict[str, dict[str, Any]] = {
    "binding-v2": {"sandbox_policy_digest": b"\0", "sandbox_result_digest": b"\0"},
    "binding-v3": {"sandbox": b"\0"},
}


@pytest.mark.parametrize(
    ("version", "name"),
    [(each, name) for each in BASES for name in CHANGES | OWN[each]],
)
def test_every_input_changes_the_binding(version: str, name: str) -> None:
    base, value = BASES[version], (CHANGES | OWN[version])[name]
    assert base(replace(INPUTS, **{name: value})) != base(INPUTS)


@pytest.mark.parametrize(
    ("version", "other"), [("binding-v2", "binding-v3"), ("binding-v3", "binding-v2")]
)
def test_an_input_of_the_other_version_is_not_left_unbound(
    version: str, other: str
) -> None:
    for name, value in OWN[other].items():
        with pytest.raises(ValueError, match="sandbox"):
            BASES[version](replace(INPUTS, **{name: value}))


def test_every_field_is_an_input_of_a_version() -> None:
    named = set(CHANGES).union(*OWN.values())
    assert {field.name for field in fields(BindingInputs)} == named


def _flipped(data: bytes) -> list[bytes]:
    return [
        data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        for place in range(len(data))
    ]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        *((version, "key_configs") for version in BASES),
        *((version, "transport_parameters") for version in BASES),
        ("binding-v3", "sandbox"),
    ],
)
def test_every_byte_changes_the_binding(version: str, name: str) -> None:
    """Of the longest list that we publish, the encoded parameters, a statement."""
    vectors = _vectors(version)
    (vector,) = [each for each in vectors if each["name"] == "two suites"]
    data = bytes.fromhex(vector["inputs"][name]["hex"])
    values: list[dict[str, Any]] = [{name: each} for each in [data, *_flipped(data)]]
    changed = [replace(INPUTS, **each) for each in values]
    assert len({BASES[version](each) for each in changed}) == len(data) + 1


@pytest.mark.parametrize("version", BASES)
def test_vectors_hold_what_the_wire_encodes(version: str) -> None:
    vectors = _vectors(version)
    bound = {each["inputs"]["transport_parameters"]["hex"] for each in vectors}
    assert bound == {"", PADDED.encode().hex(), UNPADDED.encode().hex()}


def test_bytes_do_not_move_between_fields() -> None:
    one = replace(INPUTS, receipt_public_key=b"ab")
    two = replace(INPUTS, receipt_public_key=b"a", sandbox_policy_digest=b"b")
    assert base_hash_v2(one) != base_hash_v2(two)
    two = replace(INPUTS, receipt_public_key=b"a", sandbox=b"b")
    assert base_hash_v3(one) != base_hash_v3(two)


def test_labels_keep_the_uses_apart() -> None:
    b0 = base_hash_v3(INPUTS)
    values = {
        b0,
        base_hash_v2(INPUTS),
        base_hash_v1(INPUTS),
        report_data_v1(b0, (), emulated=False),
        report_data_v1(b0, (), emulated=True),
        report_data_v2(b0, (), emulated=False),
        report_data_v2(b0, (), emulated=True),
        device_nonce_v1(b0, "gpu", 0),
        device_nonce_v2(b0, "gpu", 0),
        qualifying_data_v1(b0),
        qualifying_data_v2(b0),
        challenge_report_data(b0, bytes(32), emulated=False),
        challenge_report_data(b0, bytes(32), emulated=True),
    }
    assert len(values) == 13


def test_a_challenge_covers_its_nonce_and_the_binding() -> None:
    b0 = base_hash_v2(INPUTS)
    other = base_hash_v2(replace(INPUTS, anchor_time=5))
    values = {
        challenge_report_data(base, nonce, emulated=False)
        for base in (b0, other)
        for nonce in (bytes(32), bytes(31) + b"\1")
    }
    assert len(values) == 4


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_challenge_takes_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match=r"^nonce .* 32 bytes$"):
        challenge_report_data(bytes(64), bytes(length), emulated=False)


def test_a_challenge_needs_a_whole_base_hash() -> None:
    with pytest.raises(ValueError, match="B0 is not 64 bytes"):
        challenge_report_data(bytes(63), bytes(32), emulated=False)


def test_devices_are_bound_in_order() -> None:
    b0 = base_hash_v2(INPUTS)
    second = replace(GPU, index=1)
    values = {
        report_data_v2(b0, devices, emulated=False)
        for devices in ([], [GPU], [second], [GPU, second], [second, GPU], [GPU, GPU])
    }
    assert len(values) == 6


def test_version_1_is_a_known_answer() -> None:
    """Recomputed from the formula; the outside vector is a conformance test."""
    plain = (
        b"attested-inference/binding/v1\0"
        b"\0\0\0\4keys"
        + (1).to_bytes(8, "big")
        + (2).to_bytes(8, "big")
        + b"\0\0\0\x20"
        + bytes(32)
        + b"\0\0\0\x0fexample.org/log"
        + (3).to_bytes(8, "big")
        + b"\0\0\0\x20"
        + bytes(32)
        + (4).to_bytes(8, "big")
    )
    assert base_hash_v1(INPUTS) == hashlib.sha512(plain).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"release_digest": bytes(31)},
        {"anchor_root": bytes(33)},
        {"not_after": 1},
    ],
    ids=["release", "root", "window"],
)
def test_inputs_without_an_encoding_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(INPUTS, **change)


@pytest.mark.parametrize(
    "make",
    [
        lambda: base_hash_v3(replace(INPUTS, anchor_time=2**64)),
        lambda: base_hash_v3(replace(INPUTS, not_before=-1)),
        lambda: device_nonce_v2(bytes(64), "gpu", 2**32),
        lambda: device_nonce_v2(bytes(64), "gpu", -1),
        lambda: device_nonce_v2(bytes(63), "gpu", 0),
        lambda: report_data_v2(bytes(65), (), emulated=False),
    ],
    ids=["u64", "negative", "u32", "negative index", "short B0", "long B0"],
)
def test_numbers_and_hashes_are_bounded(make: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError, match=r"bits|64 bytes"):
        make()


def test_length_prefix_is_four_bytes() -> None:
    assert lp(b"ab") == b"\0\0\0\2ab"
