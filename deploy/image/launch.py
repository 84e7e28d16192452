"""Predicts the SEV-SNP launch digest of a direct boot with measured kernel hashes.

The digest covers the firmware, a page with the hashes of kernel, initrd and command
line, and the first state of each virtual processor; so it differs with their number and
type. sev-snp-measure does the arithmetic; this module adds a check that the firmware
measures the kernel at all, and reads the large files only once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.errors import FormatError
from sevsnpmeasure.guest import snp_calc_launch_digest  # type: ignore[import-untyped]
from sevsnpmeasure.ovmf import OVMF, SectionType  # type: ignore[import-untyped]
from sevsnpmeasure.vcpu_types import CPU_SIGS  # type: ignore[import-untyped]

DEFAULT_TYPES: Final = ("EPYC-Milan", "EPYC-Genoa", "EPYC-Turin")
DEFAULT_COUNTS: Final = (1, 2, 4, 8, 16)
# The guest's SEV_FEATURES as QEMU sets them: SNP active, nothing else.
SNP_ACTIVE: Final = 0x1


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The inputs of a machine's start.

    Attributes:
        firmware: OVMF with the section for kernel hashes.
        kernel: the kernel's file.
        initrd: the initramfs' file.
        command_line: the kernel's arguments.
        firmware_digest: the firmware's own launch digest in hex, if only the end
            of it is available; else "".
    """

    firmware: Path
    kernel: Path
    initrd: Path
    command_line: str
    firmware_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """Virtual processors, as QEMU's ``-smp`` and ``-cpu`` name them."""

    count: int
    type: str


def launch_digests(
    boot: Boot, machines: Iterable[Processors], *, features: int = SNP_ACTIVE
) -> Mapping[Processors, str]:
    """Predict the launch digest (lower-case hex, 48 bytes) for each machine.

    Raises:
        FormatError: the firmware does not measure the kernel, or there is no such
            type of processor.
    """
    check_firmware(boot.firmware)
    return {each: _digest(boot, each, features) for each in machines}


def check_firmware(firmware: Path) -> None:
    """Refuse a firmware whose digest does not depend on the kernel.

    Raises:
        FormatError: it has no section for SNP kernel hashes, or is not a firmware.
    """
    try:
        measures = OVMF(str(firmware)).has_metadata_section(
            SectionType.SNP_KERNEL_HASHES
        )
    except (RuntimeError, ValueError, IndexError, AssertionError):
        raise FormatError(f"{firmware.name}: not an OVMF for SEV") from None
    if not measures:
        raise FormatError(
            f"{firmware.name}: measures no kernel hashes under SNP; take the AmdSev"
            " build (package ovmf-amdsev)"
        )


def _digest(boot: Boot, machine: Processors, features: int) -> str:
    if machine.type not in CPU_SIGS or machine.count < 1:
        raise FormatError(f"no such processors: {machine.count} x {machine.type}")
    digest: bytes = snp_calc_launch_digest(
        machine.count,
        CPU_SIGS[machine.type],
        str(boot.firmware),
        str(boot.kernel),
        str(boot.initrd),
        boot.command_line,
        features,
        boot.firmware_digest,
    )
    return digest.hex()
