"""Make the vectors of binding version 3 from the formula, not from our code.

Writes ``vectors.json`` next to itself. Uses only the standard library, so that it
is a second implementation of the text in ``curtilage.attest.binding``.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ORDER = [
    "key_configs",
    "not_before",
    "not_after",
    "release_digest",
    "anchor_origin",
    "anchor_size",
    "anchor_root",
    "anchor_time",
    "receipt_public_key",
    "sandbox",
    "transport_parameters",
]
X25519_ENTRY = bytes.fromhex("0029010020" + "09" * 32 + "000400010001")
X_WING_ENTRY = bytes.fromhex("04cd02647a" + "0a" * 1216 + "00080001000100010003")
# Version 1, padded, frames of 512 bytes, one in 50 ms, 64 of them or that times
# a power of two, seven such totals; and version 1, nothing shaped.
PADDED = bytes.fromhex("010102000032004007")
UNPADDED = bytes.fromhex("010200000000000000")
BARE: dict[str, Any] = {
    "key_configs": X25519_ENTRY,
    "not_before": 1790000000,
    "not_after": 1790043200,
    "release_digest": hashlib.sha256(b"release").digest(),
    "anchor_origin": "example.org/measurements",
    "anchor_size": 5,
    "anchor_root": hashlib.sha256(b"root").digest(),
    "anchor_time": 1789999000,
    "receipt_public_key": b"",
    "sandbox": b"",
    "transport_parameters": b"",
}
FULL: dict[str, Any] = {
    **BARE,
    "receipt_public_key": bytes(range(32)),
    # As octets: what they say is sandbox-v1's.
    "sandbox": b'{"a":"statement"}',
    "transport_parameters": PADDED,
}
GPUS = [("nvidia-gpu", 0, b"signed part of GPU 0"), ("nvidia-gpu", 1, b"of GPU 1")]
NONCE = hashlib.sha256(b"nonce").digest()
CASES: list[tuple[str, dict[str, Any], list[tuple[str, int, bytes]]]] = [
    ("bare", BARE, []),
    ("full", FULL, []),
    ("full with devices", FULL, GPUS),
    ("unpadded", {**FULL, "transport_parameters": UNPADDED}, []),
    ("two suites", {**FULL, "key_configs": X_WING_ENTRY + X25519_ENTRY}, []),
]


def framed(value: int | str | bytes) -> bytes:
    """Encode one input: integers in 8 bytes, the rest with its length."""
    if isinstance(value, int):
        return value.to_bytes(8, "big")
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(4, "big") + data


def quoted(report_data: bytes) -> str:
    """Compute what a TPM's quote carries for report data."""
    return hashlib.sha256(b"curtilage/tpm/v2\0" + report_data).hexdigest()


def challenged(label: bytes, b0: bytes) -> dict[str, str]:
    """Compute what answers a challenge, in a report and in a quote."""
    data = hashlib.sha512(label + b0 + framed(NONCE)).digest()
    return {
        "nonce": NONCE.hex(),
        "report_data": data.hex(),
        "qualifying_data": quoted(data),
    }


def vector(
    name: str, inputs: dict[str, Any], devices: list[tuple[str, int, bytes]]
) -> dict[str, Any]:
    """Compute one vector."""
    joined = b"".join(framed(inputs[key]) for key in ORDER)
    b0 = hashlib.sha512(b"curtilage/binding/v3\0" + joined).digest()
    tail = len(devices).to_bytes(4, "big")
    nonces: list[str] = []
    for kind, index, signed_part in devices:
        place = framed(kind) + index.to_bytes(4, "big")
        tail += place + hashlib.sha256(signed_part).digest()
        label = b"curtilage/device-nonce/v2\0"
        nonces.append(hashlib.sha256(label + b0 + place).hexdigest())
    genuine = hashlib.sha512(b"curtilage/report-data/v2\0" + b0 + tail).digest()
    label = b"curtilage/report-data-emulated/v2\0"
    emulated = hashlib.sha512(label + b0 + tail).digest()
    return {
        "name": name,
        "inputs": {
            key: {"hex": inputs[key].hex()}
            if isinstance(inputs[key], bytes)
            else inputs[key]
            for key in ORDER
        },
        "devices": [
            {"kind": kind, "index": index, "signed_part": part.hex()}
            for kind, index, part in devices
        ],
        "b0": b0.hex(),
        "report_data": genuine.hex(),
        "report_data_emulated": emulated.hex(),
        "qualifying_data": quoted(genuine),
        "qualifying_data_emulated": quoted(emulated),
        "device_nonces": nonces,
        "challenge": challenged(b"curtilage/challenge/v1\0", b0),
        "challenge_emulated": challenged(b"curtilage/challenge-emulated/v1\0", b0),
    }


def make() -> list[dict[str, Any]]:
    """Compute all vectors."""
    return [vector(name, inputs, devices) for name, inputs, devices in CASES]


if __name__ == "__main__":
    path = Path(__file__).with_name("vectors.json")
    path.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
