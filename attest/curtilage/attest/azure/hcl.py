"""The blob that Azure's paravisor (HCL) leaves in NV index 0x01400001.

Little-endian: a header of 32 bytes, 1184 bytes for the hardware's report, 20
bytes about the runtime data, then the runtime data itself, a JSON text whose
SHA-256 the hardware's report carries; zeros up to the index's size. Only the
hardware's report and, through it, the JSON are authenticated: the fields in
between must be exactly what they can only be.

On Intel the hardware's report is a TDREPORT of 1024 bytes (Intel TDX Module ABI,
TDREPORT_STRUCT): REPORTMACSTRUCT 256, TEE_TCB_INFO 239, reserved 17, TDINFO 512. It
is read as far as a TD quote repeats it. Its MAC can be checked only on the machine
that made it, so nothing in it is trusted: its contents must also be in a verified
quote.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from curtilage.attest.encoding.strict_json import (
    Fields,
    decode_base64url,
    malformed,
    parse_object,
    too_large,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.sev_snp.report import REPORT_BYTES

MAGIC: Final = b"HCLA"
VERSIONS: Final = (1, 2)
# The request that this form of the blob was made for.
_REQUEST_AK_CERTIFICATE: Final = 2
_RUNTIME_VERSION: Final = 1
_HASH_SHA256: Final = 1
_HEADER: Final = struct.Struct("<4s4I12s")
_RUNTIME: Final = struct.Struct("<5I")
_RUNTIME_AT: Final = _HEADER.size + REPORT_BYTES
RUNTIME_DATA_AT: Final = _RUNTIME_AT + _RUNTIME.size
# The JSON takes 1100 to 1300 bytes; the index itself has 2600.
MAX_RUNTIME_DATA_BYTES: Final = 8192
ATTESTATION_KEY_ID: Final = "HCLAkPub"
_MAX_KEYS: Final = 8
# 4096 bits in base64url.
_MAX_NUMBER_CHARACTERS: Final = 684
_EXPONENT: Final = "AQAB"
# What the paravisor says of its configuration, where it says it.
_FLAGS: Final = (
    "console-enabled",
    "secure-boot",
    "tpm-enabled",
    "tpm-persisted",
    "filtered-vpci-devices-allowed",
)

TD_REPORT_BYTES: Final = 1024
TEE_TYPE_TDX: Final = 0x81
REPORT_DATA_AT: Final = 128
REPORT_DATA_BYTES: Final = 64
DIGEST_BYTES: Final = 48
# In TDINFO, after the attributes and XFAM, 8 bytes each; in this order.
REGISTERS_AT: Final = 512 + 16
REGISTERS: Final = (
    "mrtd",
    "mrconfigid",
    "mrowner",
    "mrownerconfig",
    "rtmr0",
    "rtmr1",
    "rtmr2",
    "rtmr3",
)


class HardwareKind(IntEnum):
    """Whose report the blob holds; the numbers are the blob's own."""

    SNP = 2
    TDX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HclBlob:
    """The parts of a blob; unverified.

    Attributes:
        version: of the header, 1 or 2.
        kind: whose report it is.
        report: 1184 bytes of SEV-SNP, or a TDREPORT of 1024 bytes.
        runtime_data: the JSON text as it was hashed.
    """

    version: int
    kind: HardwareKind
    report: bytes = field(repr=False)
    runtime_data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeData:
    """Statements of the paravisor; true once the hardware vouches for the text.

    Attributes:
        attestation_key: the vTPM's key that signs quotes (HCLAkPub).
        flags: settings of the machine that are on.
    """

    attestation_key: rsa.RSAPublicKey
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TdReport:
    """The fields of a TDREPORT that a quote repeats; unverified.

    Attributes:
        report_data: 64 bytes that the guest chose.
        registers: the measurement registers by name, lower-case hex.
    """

    report_data: bytes
    registers: Mapping[str, str] = field(repr=False)


def parse_hcl(data: bytes) -> HclBlob:
    """Split a blob; shape only, nothing is verified.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version`` or
            ``unsupported_algorithm``.
    """
    if len(data) < RUNTIME_DATA_AT:
        raise malformed(f"HCL blob has {len(data)} bytes")
    # The guest can write the index as well: the owner of the machine controls these
    # bytes.
    magic, version, used, request, status, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise malformed("HCL blob: other magic")
    if version not in VERSIONS:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, f"HCL version {version}")
    # None of these fields is signed. They are fixed, so that nothing can be written
    # into them and be taken for Azure's.
    if request != _REQUEST_AK_CERTIFICATE or status or any(reserved):
        raise malformed("HCL blob: header")
    kind, size = _parse_runtime_header(data)
    end = RUNTIME_DATA_AT + size
    # Three statements of one length, and zeros up to the index's end: bytes in between
    # would be hashed by one reader and passed over by another.
    if used != end or end > len(data) or any(data[end:]):
        raise malformed("HCL blob: sizes do not agree")
    report = data[_HEADER.size : _RUNTIME_AT]
    if kind is HardwareKind.TDX:
        # The area is as large as SEV-SNP's report; a TDREPORT leaves 160 bytes over.
        if any(report[TD_REPORT_BYTES:]):
            raise malformed("HCL blob: bytes after the TDREPORT are not zero")
        report = report[:TD_REPORT_BYTES]
    return HclBlob(
        version=version,
        kind=kind,
        report=report,
        runtime_data=data[RUNTIME_DATA_AT:end],
    )


def _parse_runtime_header(data: bytes) -> tuple[HardwareKind, int]:
    whole, version, kind, digest, size = _RUNTIME.unpack_from(data, _RUNTIME_AT)
    if version != _RUNTIME_VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, f"HCL runtime data version {version}"
        )
    if digest != _HASH_SHA256:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, "HCL runtime data: not SHA-256"
        )
    # Which rules apply is decided by the evidence's kind; the blob may only agree.
    if kind not in set(HardwareKind):
        raise malformed("HCL blob: unknown kind of hardware report")
    # The size is in no signature: it decides which bytes are hashed, so it must be what
    # the other one says.
    if whole != _RUNTIME.size + size:
        raise malformed("HCL blob: sizes do not agree")
    # Before the JSON is parsed.
    if size > MAX_RUNTIME_DATA_BYTES:
        raise too_large("HCL runtime data")
    return HardwareKind(kind), size


def parse_runtime_data(data: bytes) -> RuntimeData:
    """Read the JSON text; call only after the hardware vouched for it.

    Members that are not known here are let through, for the paravisor adds
    some now and then; duplicate ones are refused, and the key must be unique.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    fields = parse_object(
        data, where="runtime data", limit_bytes=MAX_RUNTIME_DATA_BYTES
    )
    keys = [
        key
        for key in fields.children("keys", limit=_MAX_KEYS)
        if key.text("kid", limit=64) == ATTESTATION_KEY_ID
    ]
    # Two keys of one name: which of them signed the quote would be for the sender to
    # choose.
    if len(keys) != 1:
        raise malformed(f"runtime data: not exactly one {ATTESTATION_KEY_ID}")
    attestation_key = _rsa_key(keys[0])
    flags: tuple[str, ...] = ()
    if "vm-configuration" in fields.names:
        settings = fields.child("vm-configuration")
        # Shown to people and compared with nothing: an image must not rely on what the
        # host configured.
        flags = tuple(
            name for name in _FLAGS if name in settings.names and settings.flag(name)
        )
    return RuntimeData(attestation_key=attestation_key, flags=flags)


def _rsa_key(fields: Fields) -> rsa.RSAPublicKey:
    """Read a JSON Web Key (RFC 7518, section 6.3.1)."""
    # The exponent by its one spelling. A huge one would cost seconds, and with 1
    # anybody could write signatures.
    if fields.text("kty", limit=16) != "RSA" or fields.text("e", limit=16) != _EXPONENT:
        raise malformed(f"{ATTESTATION_KEY_ID}: not RSA with the exponent 65537")
    modulus = decode_base64url(
        fields.text("n", limit=_MAX_NUMBER_CHARACTERS), ATTESTATION_KEY_ID
    )
    numbers = rsa.RSAPublicNumbers(65537, int.from_bytes(modulus, "big"))
    try:
        return numbers.public_key()
    except ValueError:
        raise malformed(f"{ATTESTATION_KEY_ID}: not a key") from None


def parse_td_report(data: bytes) -> TdReport:
    """Read a TDREPORT; shape only.

    Raises:
        RefusedError: ``malformed``: another length, or no TDX report.
    """
    # Exact, as everywhere: nothing of it is signed for us.
    if len(data) != TD_REPORT_BYTES:
        raise malformed(f"TDREPORT has {len(data)} bytes, not {TD_REPORT_BYTES}")
    # REPORTTYPE (Intel TDX Module ABI): an SGX report has the same frame.
    if data[0] != TEE_TYPE_TDX:
        raise malformed("TDREPORT: other type")
    registers = {
        name: data[start : start + DIGEST_BYTES].hex()
        for name, start in zip(
            REGISTERS,
            range(REGISTERS_AT, TD_REPORT_BYTES, DIGEST_BYTES),
            strict=False,
        )
    }
    return TdReport(
        report_data=data[REPORT_DATA_AT : REPORT_DATA_AT + REPORT_DATA_BYTES],
        registers=registers,
    )
