"""The layout of a SEV-SNP attestation report, versions 2 to 5.

1184 bytes, little-endian (AMD 56860, table "ATTESTATION_REPORT"). Knows where
each field lies and which bytes must be zero; trusts nothing.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from curtilage.attest.amd_tcb import Product, product_of_cpu
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError

REPORT_BYTES: Final = 0x4A0
SIGNED_BYTES: Final = 0x2A0
# R and S take 72 bytes each, little-endian; a P-384 number needs 48.
SIGNATURE_NUMBER_BYTES: Final = 72
REPORT_DATA_BYTES: Final = 64
MEASUREMENT_BYTES: Final = 48
CHIP_ID_BYTES: Final = 64
OLDEST_VERSION: Final = 2
NEWEST_VERSION: Final = 5
FIRST_VERSION_WITH_CPUID: Final = 3
FIRST_VERSION_WITH_MITIGATIONS: Final = 5
ECDSA_P384_SHA384: Final = 1

POLICY_ALWAYS_ONE: Final = 1 << 17
# Set at launch and signed ever since (AMD 56860, "Guest Policy"): a migration agent may
# be given the guest's memory, and debugging lets the host decrypt it.
POLICY_MIGRATION_AGENT: Final = 1 << 18
POLICY_DEBUG: Final = 1 << 19
POLICY_FIRST_RESERVED_BIT: Final = 26
# The other bits of the guest policy: what it allows, or asks of the platform.
POLICY_WORDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        16: "smt_allowed",
        20: "single_socket",
        21: "cxl_allowed",
        22: "aes_256_xts",
        23: "rapl_off",
        24: "ciphertext_hiding",
        25: "page_swap_off",
    }
)
# Bits of the platform information. The alias check is what shows that memory
# was looked through for addresses that a manipulated module maps twice.
PLATFORM_WORDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "smt",
        1: "tsme",
        2: "ecc",
        3: "rapl_off",
        4: "ciphertext_hiding",
        5: "alias_check",
        7: "tio",
    }
)
_KEY_INFO_AUTHOR_KEY: Final = 1 << 0
_KEY_INFO_MASK_CHIP: Final = 1 << 1
_KEY_INFO_FIRST_RESERVED_BIT: Final = 5

# AMD 56860, table "ATTESTATION_REPORT", field by field.
OFFSET_VERSION: Final = 0x00
OFFSET_GUEST_SVN: Final = 0x04
OFFSET_POLICY: Final = 0x08
OFFSET_FAMILY_ID: Final = 0x10
OFFSET_IMAGE_ID: Final = 0x20
OFFSET_VMPL: Final = 0x30
OFFSET_ALGORITHM: Final = 0x34
OFFSET_CURRENT_TCB: Final = 0x38
OFFSET_PLATFORM_INFO: Final = 0x40
OFFSET_KEY_INFO: Final = 0x48
OFFSET_REPORT_DATA: Final = 0x50
OFFSET_MEASUREMENT: Final = 0x90
OFFSET_HOST_DATA: Final = 0xC0
OFFSET_ID_KEY_DIGEST: Final = 0xE0
OFFSET_AUTHOR_KEY_DIGEST: Final = 0x110
OFFSET_REPORT_ID: Final = 0x140
OFFSET_REPORT_ID_MA: Final = 0x160
OFFSET_REPORTED_TCB: Final = 0x180
OFFSET_CPUID: Final = 0x188
OFFSET_CHIP_ID: Final = 0x1A0
OFFSET_COMMITTED_TCB: Final = 0x1E0
OFFSET_CURRENT_FIRMWARE: Final = 0x1E8
OFFSET_COMMITTED_FIRMWARE: Final = 0x1EC
OFFSET_LAUNCH_TCB: Final = 0x1F0
OFFSET_MITIGATIONS: Final = 0x1F8
_END_OF_MITIGATIONS: Final = 0x208
_END_OF_CPUID: Final = 0x18B
_END_OF_SIGNATURE: Final = SIGNED_BYTES + 2 * SIGNATURE_NUMBER_BYTES


class SigningKey(IntEnum):
    """The key that signed, as the report's key info names it."""

    # AMD 56860, SIGNING_KEY; 2 to 6 are reserved.
    VCEK = 0
    VLEK = 1
    NONE = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpReport:
    """The fields of a report that verification uses; unverified.

    Attributes:
        version: 2 to 5.
        guest_svn: the guest owner's own version number.
        policy: the guest policy's 64 bits.
        family_id: 16 bytes that the guest's owner chose.
        image_id: 16 bytes that the guest's owner chose.
        vmpl: privilege level of the requester, 0 to 3.
        platform_info: 64 bits about the machine.
        signing_key: the kind of key, or None for a reserved number.
        chip_masked: the host hides which chip this is.
        author_key: the identity key was signed by an author's key.
        report_data: 64 bytes that the guest chose.
        measurement: launch measurement, 48 bytes.
        host_data: 32 bytes that the host chose at launch.
        id_key_digest: SHA-384 of the identity block's key, 48 bytes, or zeros.
        author_key_digest: SHA-384 of the author's key, 48 bytes, or zeros.
        report_id: names this guest as long as it runs, 32 bytes.
        current_tcb: what runs now, 8 bytes.
        reported_tcb: what the signing key was derived for, 8 bytes.
        committed_tcb: what cannot be rolled back any more, 8 bytes.
        launch_tcb: what ran when the guest was started, 8 bytes.
        current_firmware: major, minor and build number.
        committed_firmware: major, minor and build number.
        mitigations: bits of the mitigations at launch and now, or None before
            version 5.
        cpu: family, model and stepping, or None in version 2.
        chip_id: 64 bytes, zero if masked.
        signed_part: the bytes that the signature covers.
        signature_r: ECDSA's r.
        signature_s: ECDSA's s; (r, n-s) verifies too, so never use a
            signature as an identity.
    """

    version: int
    guest_svn: int
    policy: int
    family_id: bytes
    image_id: bytes
    vmpl: int
    platform_info: int
    signing_key: SigningKey | None
    chip_masked: bool
    author_key: bool
    report_data: bytes
    measurement: bytes
    host_data: bytes
    id_key_digest: bytes
    author_key_digest: bytes
    report_id: bytes
    current_tcb: bytes
    reported_tcb: bytes
    committed_tcb: bytes
    launch_tcb: bytes
    current_firmware: tuple[int, int, int]
    committed_firmware: tuple[int, int, int]
    mitigations: tuple[int, int] | None
    cpu: tuple[int, int, int] | None
    chip_id: bytes
    signed_part: bytes = field(repr=False)
    signature_r: int
    signature_s: int

    @property
    def policy_words(self) -> tuple[str, ...]:
        """The bits of the guest policy, in words."""
        return tuple(
            word for bit, word in POLICY_WORDS.items() if self.policy >> bit & 1
        )

    @property
    def platform_words(self) -> tuple[str, ...]:
        """The platform information, in words."""
        return tuple(
            word
            for bit, word in PLATFORM_WORDS.items()
            if self.platform_info >> bit & 1
        )

    @property
    def product(self) -> Product | None:
        """The product that the report names; version 2 names none."""
        return None if self.cpu is None else product_of_cpu(*self.cpu[:2])


def parse_report(data: bytes) -> SnpReport:
    """Parse a report's fields; checks the form, not the signature.

    Raises:
        RefusedError: ``malformed``, ``unsupported_version`` or
            ``unsupported_algorithm``.
    """
    # Exact. Bytes behind the report are not signed, and two verifiers that truncate
    # them differently would disagree on what they saw.
    if len(data) != REPORT_BYTES:
        raise malformed(f"report has {len(data)} bytes, not {REPORT_BYTES}")
    version = _u32(data, OFFSET_VERSION)
    # A version beyond those known may have given a reserved byte a meaning.
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, f"version {version}")
    # The only algorithm that exists. If it were taken from the report, its author would
    # choose how it is checked.
    if _u32(data, OFFSET_ALGORITHM) != ECDSA_P384_SHA384:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, "not ECDSA P-384 with SHA-384"
        )
    _check_fixed_bits(data, version)
    key_info = _u32(data, OFFSET_KEY_INFO)
    # Bits 2 to 4 (AMD 56860, "ATTESTATION_REPORT", SIGNING_KEY); 2 to 6 are reserved.
    key_number = key_info >> 2 & 0b111
    cpu = None
    if version >= FIRST_VERSION_WITH_CPUID:
        family, model, stepping = data[OFFSET_CPUID:_END_OF_CPUID]
        cpu = family, model, stepping
    mitigations = None
    if version >= FIRST_VERSION_WITH_MITIGATIONS:
        launch, current = OFFSET_MITIGATIONS, OFFSET_MITIGATIONS + 8
        mitigations = _u64(data, launch), _u64(data, current)
    return SnpReport(
        version=version,
        guest_svn=_u32(data, OFFSET_GUEST_SVN),
        policy=_u64(data, OFFSET_POLICY),
        family_id=data[OFFSET_FAMILY_ID:OFFSET_IMAGE_ID],
        image_id=data[OFFSET_IMAGE_ID:OFFSET_VMPL],
        vmpl=_u32(data, OFFSET_VMPL),
        platform_info=_u64(data, OFFSET_PLATFORM_INFO),
        signing_key=SigningKey(key_number) if key_number in {0, 1, 7} else None,
        chip_masked=bool(key_info & _KEY_INFO_MASK_CHIP),
        author_key=bool(key_info & _KEY_INFO_AUTHOR_KEY),
        report_data=data[OFFSET_REPORT_DATA:OFFSET_MEASUREMENT],
        measurement=data[OFFSET_MEASUREMENT:OFFSET_HOST_DATA],
        host_data=data[OFFSET_HOST_DATA:OFFSET_ID_KEY_DIGEST],
        id_key_digest=data[OFFSET_ID_KEY_DIGEST:OFFSET_AUTHOR_KEY_DIGEST],
        author_key_digest=data[OFFSET_AUTHOR_KEY_DIGEST:OFFSET_REPORT_ID],
        report_id=data[OFFSET_REPORT_ID:OFFSET_REPORT_ID_MA],
        current_tcb=data[OFFSET_CURRENT_TCB:OFFSET_PLATFORM_INFO],
        reported_tcb=data[OFFSET_REPORTED_TCB:OFFSET_CPUID],
        committed_tcb=data[OFFSET_COMMITTED_TCB:OFFSET_CURRENT_FIRMWARE],
        launch_tcb=data[OFFSET_LAUNCH_TCB:OFFSET_MITIGATIONS],
        current_firmware=_firmware(data, OFFSET_CURRENT_FIRMWARE),
        committed_firmware=_firmware(data, OFFSET_COMMITTED_FIRMWARE),
        mitigations=mitigations,
        cpu=cpu,
        # 64 bytes on every product, of which Turin uses eight.
        chip_id=data[OFFSET_CHIP_ID : OFFSET_CHIP_ID + CHIP_ID_BYTES],
        signed_part=data[:SIGNED_BYTES],
        signature_r=_signature_number(data, SIGNED_BYTES),
        signature_s=_signature_number(data, SIGNED_BYTES + SIGNATURE_NUMBER_BYTES),
    )


def _check_fixed_bits(data: bytes, version: int) -> None:
    policy = _u64(data, OFFSET_POLICY)
    # Fixed by AMD 56860. A report of real firmware has it, so one without is of
    # something else.
    if not policy & POLICY_ALWAYS_ONE:
        raise malformed("policy bit 17 is not one")
    # A bit that has no meaning yet may be the one that will permit something.
    if policy >> POLICY_FIRST_RESERVED_BIT:
        raise malformed("reserved policy bits are not zero")
    if _u32(data, OFFSET_KEY_INFO) >> _KEY_INFO_FIRST_RESERVED_BIT:
        raise malformed("reserved key info bits are not zero")
    # Version 3 put the processor's name, and version 5 the mitigation vectors, where
    # older ones have zeros.
    has_cpuid = version >= FIRST_VERSION_WITH_CPUID
    has_mitigations = version >= FIRST_VERSION_WITH_MITIGATIONS
    reserved = (
        (OFFSET_KEY_INFO + 4, OFFSET_REPORT_DATA),
        (_END_OF_CPUID if has_cpuid else OFFSET_CPUID, OFFSET_CHIP_ID),
        (OFFSET_CURRENT_FIRMWARE + 3, OFFSET_COMMITTED_FIRMWARE),
        (OFFSET_COMMITTED_FIRMWARE + 3, OFFSET_LAUNCH_TCB),
        (
            _END_OF_MITIGATIONS if has_mitigations else OFFSET_MITIGATIONS,
            SIGNED_BYTES,
        ),
        (_END_OF_SIGNATURE, REPORT_BYTES),
    )
    # Zero today in every genuine report. Any other value would be signed, but never
    # checked.
    for start, end in reserved:
        if any(data[start:end]):
            raise malformed(f"bytes {start:#x} to {end - 1:#x} are not zero")


def _firmware(data: bytes, offset: int) -> tuple[int, int, int]:
    # Little-endian like everything else: the build number comes first.
    build, minor, major = data[offset : offset + 3]
    return major, minor, build


def _signature_number(data: bytes, offset: int) -> int:
    # All 72 bytes: a value in the upper 24 makes the number too large for P-384, so
    # padding cannot be a second encoding of one signature.
    return int.from_bytes(data[offset : offset + SIGNATURE_NUMBER_BYTES], "little")


def _u32(data: bytes, offset: int) -> int:
    (value,) = struct.unpack_from("<I", data, offset)
    return int(value)


def _u64(data: bytes, offset: int) -> int:
    (value,) = struct.unpack_from("<Q", data, offset)
    return int(value)
