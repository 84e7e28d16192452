"""Emulated SEV-SNP reports: any field, in the genuine layout, then signed."""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from curtilage.attest.amd_tcb import Product, Tcb, encode_tcb
from curtilage.attest.sev_snp import report as layout

# SMT allowed, and bit 17, which is always one.
DEFAULT_POLICY: Final = 0x30000
# SMT, ECC and the alias check are on.
DEFAULT_PLATFORM_INFO: Final = 0x25
_FIRMWARE: Final = bytes((40, 55, 1))
_CPUID: Final = {
    Product.MILAN: (0x19, 0x01, 0x01),
    Product.GENOA: (0x19, 0x11, 0x01),
    Product.TURIN: (0x1A, 0x02, 0x01),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFields:
    """The content of a report, before it is signed.

    Attributes:
        report_data: 64 bytes that the guest chooses.
        measurement: 48 bytes.
        product: chooses TCB layout and CPUID.
        signing_key: written into the key info.
        chip_id: 64 bytes.
        reported_tcb: must be the key's for a report to verify.
        committed_tcb: must not be lower than the minimum.
        launch_tcb: must not be lower than the minimum.
        version: 2 to 5 exist.
        policy: guest policy bits.
        vmpl: 0 to 3.
        host_data: 32 bytes.
        algorithm: 1 is ECDSA P-384 with SHA-384.
        mask_chip: the key info's bit.
        cpuid: family, model, stepping; None takes the product's.
        current_tcb: what runs now; None takes the reported levels.
        platform_info: bits about the machine.
        mitigations: at launch and now; written from version 5 on.
        id_key_digest: 48 bytes.
        author_key_digest: 48 bytes; others than zeros set the key info's bit.
        patches: bytes at offsets, written last, for states that have no field.
    """

    report_data: bytes
    measurement: bytes
    product: Product
    signing_key: layout.SigningKey | int
    chip_id: bytes
    reported_tcb: Tcb
    committed_tcb: Tcb
    launch_tcb: Tcb
    version: int = 3
    policy: int = DEFAULT_POLICY
    vmpl: int = 0
    host_data: bytes = bytes(32)
    algorithm: int = layout.ECDSA_P384_SHA384
    mask_chip: bool = False
    cpuid: tuple[int, int, int] | None = None
    current_tcb: Tcb | None = None
    platform_info: int = DEFAULT_PLATFORM_INFO
    mitigations: tuple[int, int] = (0x1F, 0x3F)
    id_key_digest: bytes = bytes(48)
    author_key_digest: bytes = bytes(48)
    patches: Mapping[int, bytes] = field(default_factory=dict[int, bytes])


def encode_report(fields: ReportFields) -> bytes:
    """Write the signed part of a report, 672 bytes."""
    data = bytearray(layout.SIGNED_BYTES)
    author = any(fields.author_key_digest)
    key_info = fields.signing_key << 2 | fields.mask_chip << 1 | author
    reported = encode_tcb(fields.reported_tcb, fields.product)
    current = encode_tcb(fields.current_tcb or fields.reported_tcb, fields.product)
    struct.pack_into("<IIQ", data, 0, fields.version, 0, fields.policy)
    struct.pack_into("<II", data, layout.OFFSET_VMPL, fields.vmpl, fields.algorithm)
    struct.pack_into(
        "<QI", data, layout.OFFSET_PLATFORM_INFO, fields.platform_info, key_info
    )
    values = {
        layout.OFFSET_CURRENT_TCB: current,
        layout.OFFSET_REPORT_DATA: fields.report_data,
        layout.OFFSET_MEASUREMENT: fields.measurement,
        layout.OFFSET_HOST_DATA: fields.host_data,
        layout.OFFSET_ID_KEY_DIGEST: fields.id_key_digest,
        layout.OFFSET_AUTHOR_KEY_DIGEST: fields.author_key_digest,
        layout.OFFSET_REPORT_ID: hashlib.sha256(fields.chip_id).digest(),
        layout.OFFSET_REPORT_ID_MA: b"\xff" * 32,
        layout.OFFSET_REPORTED_TCB: reported,
        layout.OFFSET_CHIP_ID: fields.chip_id,
        layout.OFFSET_COMMITTED_TCB: encode_tcb(fields.committed_tcb, fields.product),
        layout.OFFSET_CURRENT_FIRMWARE: _FIRMWARE,
        layout.OFFSET_COMMITTED_FIRMWARE: _FIRMWARE,
        layout.OFFSET_LAUNCH_TCB: encode_tcb(fields.launch_tcb, fields.product),
    }
    if fields.version >= layout.FIRST_VERSION_WITH_CPUID:
        values[layout.OFFSET_CPUID] = bytes(fields.cpuid or _CPUID[fields.product])
    if fields.version >= layout.FIRST_VERSION_WITH_MITIGATIONS:
        values[layout.OFFSET_MITIGATIONS] = struct.pack("<QQ", *fields.mitigations)
    for offset, value in (*values.items(), *fields.patches.items()):
        data[offset : offset + len(value)] = value
    return bytes(data)


def sign_report(signed_part: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Append a signature as the firmware does; returns 1184 bytes."""
    r, s = decode_dss_signature(key.sign(signed_part, ec.ECDSA(hashes.SHA384())))
    return signed_part + encode_signature(r, s)


def encode_signature(r: int, s: int) -> bytes:
    """Write (r, s) as a report carries it: 72 bytes each, then zeros."""
    size = layout.SIGNATURE_NUMBER_BYTES
    numbers = r.to_bytes(size, "little") + s.to_bytes(size, "little")
    return numbers.ljust(layout.REPORT_BYTES - layout.SIGNED_BYTES, b"\0")
