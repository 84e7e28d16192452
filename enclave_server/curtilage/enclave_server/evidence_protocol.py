"""The protocol between the server and the evidence process, version 3.

Exchanges over a UNIX socket, as many as the caller wants, each answered in its turn: a
server that has locked itself keeps the connection that it has. Request: one byte that
selects the kind of evidence, and 64 bytes. Response: a length (u32, big-endian) and
that many bytes of JSON; length 0 if there is no evidence. A request that is not allowed
gets no answer, and ends the connection. (Version 2 had one exchange per connection, and
no answer where there was no evidence.)

    1   CPU evidence over 64 bytes of report data; where a TPM's quote carries
        the binding, the evidence process derives the qualifying data
    2   evidence of the devices; the 64 bytes are B0, from which the process
        derives each device's nonce
    3   CPU evidence that identifies the machine; the 64 bytes are ignored
    4   evidence that identifies the devices; the same

For 3 and 4 the signed data is fixed (``identity_data``) and is no binding, so a caller
that may request only these cannot obtain evidence that passes for ours.
"""

import hashlib
import json
from typing import Final

from curtilage.attest.encoding.strict_json import parse_object
from curtilage.attest.evidence import (
    MAX_BUNDLE_BYTES,
    MAX_CPU_EVIDENCE_BYTES,
    MAX_DEVICES,
    GpuEvidence,
)
from curtilage.attest.evidence_json import device_object, parse_device

CPU_EVIDENCE: Final = 1
DEVICE_EVIDENCE: Final = 2
IDENTITY: Final = 3
DEVICE_IDENTITY: Final = 4

DATA_BYTES: Final = 64
REQUEST_BYTES: Final = 1 + DATA_BYTES
LENGTH_BYTES: Final = 4
MAX_ANSWER_BYTES: Final = {
    CPU_EVIDENCE: MAX_CPU_EVIDENCE_BYTES,
    DEVICE_EVIDENCE: MAX_BUNDLE_BYTES,
    IDENTITY: MAX_CPU_EVIDENCE_BYTES,
    DEVICE_IDENTITY: MAX_BUNDLE_BYTES,
}
"""By kind of request; a longer answer is refused unread."""

_IDENTITY: Final = b"curtilage/identity/v1\0"


def identity_data() -> bytes:
    """Return the report data that identifies a machine and binds nothing."""
    return hashlib.sha512(_IDENTITY).digest()


def encode_request(asked: int, data: bytes) -> bytes:
    """Encode a request.

    Raises:
        ValueError: not 64 bytes.
    """
    if len(data) != DATA_BYTES:
        raise ValueError(f"not {DATA_BYTES} bytes")
    return bytes([asked]) + data


def encode_answer(body: bytes) -> bytes:
    """Prefix the JSON with its length; without a body there is no evidence."""
    return len(body).to_bytes(LENGTH_BYTES) + body


def encode_devices(devices: tuple[GpuEvidence, ...]) -> bytes:
    """Encode the devices' evidence, in their order."""
    objects = [device_object(device) for device in devices]
    return json.dumps({"devices": objects}, separators=(",", ":")).encode()


def parse_devices(data: bytes) -> tuple[GpuEvidence, ...]:
    """Parse the devices' evidence; shape and sizes only.

    Raises:
        RefusedError: as for the devices of a bundle.
    """
    fields = parse_object(data, where="devices", limit_bytes=MAX_BUNDLE_BYTES)
    fields.require(("devices",))
    return tuple(
        parse_device(device) for device in fields.children("devices", limit=MAX_DEVICES)
    )
