r"""The binding: from key configurations to the 64 bytes that a report signs.

``lp(x)`` is a u32 big-endian length and x; integers are big-endian; labels end
in one NUL byte, one label per use. Version 3 is what the project speaks:

    B0 = SHA-512("curtilage/binding/v3\0" | lp(key_configs)
         | u64 not_before | u64 not_after | lp(release_digest)
         | lp(anchor_origin) | u64 anchor_size | lp(anchor_root)
         | u64 anchor_time | lp(receipt_public_key) | lp(sandbox)
         | lp(transport_parameters))
    device_nonce = SHA-256("curtilage/device-nonce/v2\0" | B0 | lp(kind) | u32 i)
    report_data = SHA-512("curtilage/report-data/v2\0" | B0 | u32 n
         | n x (lp(kind) | u32 i | SHA-256(signed part of the device's report)))
    qualifying_data = SHA-256("curtilage/tpm/v2\0" | report_data)
    challenge = SHA-512("curtilage/challenge/v1\0" | B0 | lp(nonce))

Emulated evidence signs under "curtilage/report-data-emulated/v2\0", and answers
challenges under "curtilage/challenge-emulated/v1\0", so the same inputs never
give a report that could pass for hardware's. Where a TPM's quote carries the
binding (Azure, a TPM by itself), it carries the qualifying data of the 64 bytes.
Version 2, which a client still accepts (ADR 0084), has "curtilage/binding/v2\0", and
lp(sandbox_policy_digest) | lp(sandbox_result_digest) in place of lp(sandbox). All
that follows from B0 is the same in both, so only B0's label need tell them apart.
Version 1 ended after anchor_time and had labels of its own. Nothing speaks it any
more; it is kept, with the tests, as a known answer from outside of the encoding,
for which the three functions that take a label are public.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DIGEST_BYTES: Final = 32
B0_BYTES: Final = 64
_U32_LIMIT: Final = 2**32
_U64_LIMIT: Final = 2**64

# One label per use, each ended by a NUL that no other contains: a hash made for one
# purpose can never be presented for another.
_BASE_V2: Final = b"curtilage/binding/v2\0"
_BASE_V3: Final = b"curtilage/binding/v3\0"
_DEVICE_NONCE_V2: Final = b"curtilage/device-nonce/v2\0"
_REPORT_DATA_V2: Final = b"curtilage/report-data/v2\0"
_REPORT_DATA_EMULATED_V2: Final = b"curtilage/report-data-emulated/v2\0"
_QUALIFYING_V2: Final = b"curtilage/tpm/v2\0"
_CHALLENGE_V1: Final = b"curtilage/challenge/v1\0"
_CHALLENGE_EMULATED_V1: Final = b"curtilage/challenge-emulated/v1\0"
NONCE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingInputs:
    """The inputs that the evidence signs, besides the devices.

    Attributes:
        key_configs: the exact RFC 9458 list.
        not_before: Unix seconds.
        not_after: Unix seconds, later than ``not_before``.
        release_digest: SHA-256 of the manifest, 32 bytes.
        anchor_origin: the log's origin line.
        anchor_size: the checkpoint's tree size.
        anchor_root: the checkpoint's root hash, 32 bytes.
        anchor_time: Unix seconds.
        receipt_public_key: empty where there is none.
        sandbox: the sandbox statement's octets (version 3); empty where there is
            none.
        sandbox_policy_digest: version 2 alone; empty where there is none.
        sandbox_result_digest: version 2 alone; empty where there is none.
        transport_parameters: empty where there are none.
    """

    key_configs: bytes
    not_before: int
    not_after: int
    release_digest: bytes
    anchor_origin: str
    anchor_size: int
    anchor_root: bytes
    anchor_time: int
    receipt_public_key: bytes = b""
    sandbox: bytes = b""
    sandbox_policy_digest: bytes = b""
    sandbox_result_digest: bytes = b""
    transport_parameters: bytes = b""

    def __post_init__(self) -> None:
        """Refuse inputs that have no encoding."""
        # Lengths are encoded, so other sizes would not collide; they would be a mistake
        # of ours all the same.
        if len(self.release_digest) != DIGEST_BYTES:
            raise ValueError("release_digest is not 32 bytes")
        if len(self.anchor_root) != DIGEST_BYTES:
            raise ValueError("anchor_root is not 32 bytes")
        if self.not_after <= self.not_before:
            raise ValueError("not_after is not later than not_before")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDevice:
    """The part of a device's report that its signature covers.

    Attributes:
        kind: such as ``nvidia-gpu``.
        index: its place among its kind, from 0.
        signed_part: the signed bytes; never the signature, which is malleable.
    """

    kind: str
    index: int
    signed_part: bytes


def base_hash_v3(inputs: BindingInputs) -> bytes:
    """Return B0, 64 bytes: everything that is known before a report exists.

    Raises:
        ValueError: there are inputs of version 2, which this would leave unbound.
    """
    if inputs.sandbox_policy_digest or inputs.sandbox_result_digest:
        raise ValueError("version 3 binds a statement, and no digests of a sandbox")
    tail = (
        lp(inputs.receipt_public_key)
        + lp(inputs.sandbox)
        + lp(inputs.transport_parameters)
    )
    return hashlib.sha512(_BASE_V3 + encode_common(inputs) + tail).digest()


def base_hash_v2(inputs: BindingInputs) -> bytes:
    """Return B0 as version 2 has it, 64 bytes.

    Raises:
        ValueError: there is an input of version 3, which this would leave unbound.
    """
    if inputs.sandbox:
        raise ValueError("version 2 binds no statement about a sandbox")
    tail = (
        lp(inputs.receipt_public_key)
        + lp(inputs.sandbox_policy_digest)
        + lp(inputs.sandbox_result_digest)
        + lp(inputs.transport_parameters)
    )
    return hashlib.sha512(_BASE_V2 + encode_common(inputs) + tail).digest()


def device_nonce_v2(b0: bytes, kind: str, index: int) -> bytes:
    """Return the nonce for one device's report, 32 bytes."""
    return device_nonce_under(_DEVICE_NONCE_V2, b0, kind, index)


def report_data_v2(
    b0: bytes, devices: Sequence[SignedDevice], *, emulated: bool
) -> bytes:
    """Return the 64 bytes that the CPU's report must carry."""
    # An emulator signs with our own keys. Under a label of its own it could never make
    # what hardware makes, even if its root were pinned by mistake.
    label = _REPORT_DATA_EMULATED_V2 if emulated else _REPORT_DATA_V2
    return report_data_under(label, b0, devices)


def qualifying_data_v2(report_data: bytes) -> bytes:
    """Return the qualifying data of a TPM quote over report data, 32 bytes."""
    return hashlib.sha256(_QUALIFYING_V2 + report_data).digest()


def challenge_report_data(b0: bytes, nonce: bytes, *, emulated: bool) -> bytes:
    """Return the 64 bytes of report data that answer a challenge.

    Args:
        b0: the base hash of the bundle whose key the challenge was sealed to.
        nonce: 32 bytes, fresh.
        emulated: whether the evidence is not backed by hardware.
    """
    _check_b0(b0)
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"nonce is not {NONCE_BYTES} bytes")
    label = _CHALLENGE_EMULATED_V1 if emulated else _CHALLENGE_V1
    return hashlib.sha512(label + b0 + lp(nonce)).digest()


def lp(data: bytes) -> bytes:
    """Prefix bytes with their length, u32 big-endian."""
    # Every field with its length. Without, "ab" + "c" and "a" + "bc" would be bound
    # alike, and a byte could move from the key list into the time.
    return _u32(len(data)) + data


def encode_common(inputs: BindingInputs) -> bytes:
    """Encode the fields that every version of the binding begins with."""
    return (
        lp(inputs.key_configs)
        + _u64(inputs.not_before)
        + _u64(inputs.not_after)
        + lp(inputs.release_digest)
        + lp(inputs.anchor_origin.encode("utf-8"))
        + _u64(inputs.anchor_size)
        + lp(inputs.anchor_root)
        + _u64(inputs.anchor_time)
    )


def device_nonce_under(label: bytes, b0: bytes, kind: str, index: int) -> bytes:
    """Return one version's nonce for a device's report, 32 bytes."""
    _check_b0(b0)
    return hashlib.sha256(label + b0 + lp(kind.encode()) + _u32(index)).digest()


def report_data_under(
    label: bytes, b0: bytes, devices: Sequence[SignedDevice]
) -> bytes:
    """Return one version's report data, 64 bytes."""
    _check_b0(b0)
    parts = b"".join(
        lp(device.kind.encode())
        + _u32(device.index)
        # Of fixed length, so a device's part cannot run into the next one's; and their
        # number comes first, so none can be left off at the end.
        + hashlib.sha256(device.signed_part).digest()
        for device in devices
    )
    return hashlib.sha512(label + b0 + _u32(len(devices)) + parts).digest()


def _check_b0(b0: bytes) -> None:
    # The one part without a length in front: it needs none as long as it is exactly
    # this.
    if len(b0) != B0_BYTES:
        raise ValueError("B0 is not 64 bytes")


def _u32(number: int) -> bytes:
    if not 0 <= number < _U32_LIMIT:
        raise ValueError("number does not fit 32 bits")
    return struct.pack(">I", number)


def _u64(number: int) -> bytes:
    if not 0 <= number < _U64_LIMIT:
        raise ValueError("number does not fit 64 bits")
    return struct.pack(">Q", number)
