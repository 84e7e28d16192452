"""The outside vector of binding version 1."""

import hashlib
import json
import struct
from pathlib import Path

import pytest

from curtilage.attest.binding import (
    BindingInputs,
    SignedDevice,
)
from support.binding_v1 import (
    base_hash_v1,
    device_nonce_v1,
    qualifying_data_v1,
    report_data_v1,
)


@pytest.fixture(scope="module")
def vector(shared_dir: Path) -> dict[str, str]:
    path = shared_dir / "evidence" / "binding-v1-vector.json"
    if not path.is_file():
        pytest.skip("SKIPPED LOUDLY: no evidence/binding-v1-vector.json")
    loaded: dict[str, str] = json.loads(path.read_text())
    return loaded


def test_binding_v1_is_the_known_answer(vector: dict[str, str]) -> None:
    key_config = bytes.fromhex(vector["key_config"])
    b0 = base_hash_v1(
        BindingInputs(
            key_configs=struct.pack(">H", len(key_config)) + key_config,
            not_before=1790000000,
            not_after=1790043200,
            release_digest=hashlib.sha256(b"release").digest(),
            anchor_origin="example.org/measurements",
            anchor_size=5,
            anchor_root=hashlib.sha256(b"root").digest(),
            anchor_time=1789999000,
        )
    )
    gpu = SignedDevice(
        kind="nvidia-gpu", index=0, signed_part=b"signed part of GPU report"
    )
    report_data = report_data_v1(b0, [gpu], emulated=False)
    assert b0.hex() == vector["b0"]
    assert device_nonce_v1(b0, "nvidia-gpu", 0).hex() == vector["gpu_nonce"]
    assert report_data.hex() == vector["report_data"]
    bare = report_data_v1(b0, [], emulated=False)
    assert bare.hex() == vector["report_data_no_device"]
    assert qualifying_data_v1(report_data).hex() == vector["tpm_qualifying"]
    emulated = report_data_v1(b0, [gpu], emulated=True).hex()
    assert emulated.startswith("77d8e03eff4fabd1")
    assert emulated.endswith("ecf4c6a2")
