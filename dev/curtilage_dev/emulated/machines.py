"""Emulated machines of every kind, behind one interface.

A machine runs one image, identified by a measurement of 48 bytes. The contents of its
registers depend only on the kind and the image, so that a log and a policy can name
them without the machine's keys.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, Protocol

from curtilage.attest.amd_tcb import Product
from curtilage.attest.binding import device_nonce_v2, qualifying_data_v2
from curtilage.attest.claims import Measurement
from curtilage.attest.evidence import (
    CpuEvidence,
    DeviceKind,
    GpuEvidence,
    NitroEvidence,
    Tee,
)
from curtilage.attest.expectations import TrustAnchor
from curtilage_dev.emulated import nitro
from curtilage_dev.emulated.azure import EmulatedAzure, make_azure
from curtilage_dev.emulated.dcap import generate_dcap_keys
from curtilage_dev.emulated.gpu import EmulatedGpu
from curtilage_dev.emulated.nitro import EmulatedNitro
from curtilage_dev.emulated.snp_pki import (
    EmulatedPlatform,
    generate_root_keys,
    make_platform,
)
from curtilage_dev.emulated.tdx import EmulatedTdx, make_tdx_platform

KINDS: Final = tuple(tee for tee in Tee if tee.emulated)
MAX_GPUS: Final = 8
RSA_KINDS: Final = frozenset({Tee.EMULATED_SEV_SNP, Tee.EMULATED_AZURE_SNP})
"""The kinds whose keys take seconds to make."""
# Firmware, kernel, command line; the last register belongs to the run time.
_MEASURED_RTMRS: Final = 3
_REGISTER_BYTES: Final = 48
# Azure: the registers that a unified kernel image is measured into.
_AZURE_PCRS: Final = (4, 9, 11)


class Machine(Protocol):
    """An emulated machine that makes evidence."""

    @property
    def tee(self) -> Tee:
        """The kind of its evidence."""
        ...

    def anchor(self) -> TrustAnchor:
        """Return its root as a policy pins it."""
        ...

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        """Make evidence that binds 64 bytes of report data."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpMachine:
    """A SEV-SNP machine that runs an image."""

    platform: EmulatedPlatform
    image: bytes
    tee: Tee = Tee.EMULATED_SEV_SNP

    def anchor(self) -> TrustAnchor:
        """Return its root as a policy pins it."""
        return self.platform.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        """Make evidence that binds 64 bytes of report data."""
        fields = self.platform.report_fields(
            report_data=report_data, measurement=self.image
        )
        return self.platform.evidence(fields, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxMachine:
    """A TDX machine that runs an image."""

    platform: EmulatedTdx
    tee: Tee = Tee.EMULATED_TDX

    def anchor(self) -> TrustAnchor:
        """Return its root as a policy pins it."""
        return self.platform.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        """Make evidence that binds 64 bytes of report data."""
        return self.platform.evidence(report_data, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroMachine:
    """A Nitro enclave that runs an image."""

    platform: EmulatedNitro
    image: bytes
    tee: Tee = Tee.EMULATED_NITRO

    def anchor(self) -> TrustAnchor:
        """Return its root as a policy pins it."""
        return self.platform.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        """Make evidence that binds 64 bytes of report data."""
        return self.platform.evidence(report_data, now=now, measurement=self.image)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureMachine:
    """An Azure confidential VM that runs an image."""

    platform: EmulatedAzure
    tee: Tee = Tee.EMULATED_AZURE_SNP

    def anchor(self) -> TrustAnchor:
        """Return its root as a policy pins it."""
        return self.platform.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        """Make evidence whose quote binds 64 bytes of report data."""
        return self.platform.evidence(qualifying_data_v2(report_data), now=now)


def registers_of(tee: Tee, image: bytes) -> Measurement:
    """Return what a machine of this kind measures of an image, 48 bytes.

    Raises:
        KeyError: the kind is not emulated.
    """
    return _REGISTERS[tee](image)


def image_of(tee: Tee, measurement: Measurement) -> bytes:
    """Return the image of which a machine of this kind measures these registers.

    Raises:
        ValueError: no emulated machine would.
    """
    for value in measurement.values():
        image = bytes.fromhex(value)
        if len(image) == _REGISTER_BYTES and registers_of(tee, image) == measurement:
            return image
    raise ValueError(f"no image has these registers on {tee}")


def make_machine(
    tee: Tee, image: bytes, *, now: datetime, product: Product = Product.GENOA
) -> Machine:
    """Make a machine with keys of its own; those of ``RSA_KINDS`` take seconds.

    Args:
        tee: the kind of its evidence.
        image: the measurement of what it runs, 48 bytes.
        now: from when its certificates are valid.
        product: the processor; only SEV-SNP has several.

    Raises:
        ValueError: the kind is not emulated.
    """
    if tee is Tee.EMULATED_TDX:
        return TdxMachine(platform=_tdx(image, now))
    if tee is Tee.EMULATED_NITRO:
        return NitroMachine(platform=EmulatedNitro.make(now=now), image=image)
    if tee not in RSA_KINDS:
        raise ValueError(f"{tee} is not emulated")
    platform = make_platform(generate_root_keys(), now=now, product=product)
    if tee is Tee.EMULATED_SEV_SNP:
        return SnpMachine(platform=platform, image=image)
    return azure_machine(platform, image)


def azure_machine(platform: EmulatedPlatform, image: bytes) -> AzureMachine:
    """Make an Azure VM on an emulated SEV-SNP platform."""
    machine = make_azure(platform)
    pcrs = {**machine.pcrs, **_azure_pcrs(image)}
    return AzureMachine(platform=replace(machine, measurement=image, pcrs=pcrs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of a machine, all under one root.

    Attributes:
        devices: in the order of their indices.
    """

    devices: tuple[EmulatedGpu, ...] = field(repr=False)

    def anchor(self) -> TrustAnchor:
        """Return their root as a policy pins it."""
        return self.devices[0].anchor()

    def evidence(self, b0: bytes) -> tuple[GpuEvidence, ...]:
        """Let each sign over the nonce that the binding's base gives it."""
        kind = DeviceKind.EMULATED_NVIDIA_GPU.value
        return tuple(
            device.evidence(device_nonce_v2(b0, kind, index))
            for index, device in enumerate(self.devices)
        )

    def stapled(
        self, evidence: tuple[GpuEvidence, ...], now: datetime
    ) -> tuple[GpuEvidence, ...]:
        """Staple answers about each GPU's certificates to its evidence."""
        return tuple(
            replace(each, ocsp=device.answers(each.chain, now))
            for device, each in zip(self.devices, evidence, strict=True)
        )


def stapled(machine: Machine, evidence: CpuEvidence, now: datetime) -> CpuEvidence:
    """Staple what a vendor publishes about revocation, where evidence has a place."""
    if isinstance(machine, NitroMachine) and isinstance(evidence, NitroEvidence):
        return replace(evidence, crls=machine.platform.lists(now))
    return evidence


def make_gpus(count: int, *, now: datetime) -> Gpus:
    """Make GPUs under one root.

    Raises:
        ValueError: none, or too many.
    """
    if not 1 <= count <= MAX_GPUS:
        raise ValueError(f"not 1 to {MAX_GPUS} GPUs")
    first = EmulatedGpu.make(now=now)
    others = (first.sibling(now=now) for _ in range(count - 1))
    return Gpus(devices=(first, *others))


def _snp_registers(image: bytes) -> Measurement:
    return {"launch": image.hex()}


def _tdx_registers(image: bytes) -> Measurement:
    rtmrs = {f"rtmr{n}": value.hex() for n, value in enumerate(_rtmrs(image))}
    return {"mrtd": image.hex(), **rtmrs}


def _azure_registers(image: bytes) -> Measurement:
    pcrs = {f"pcr{n}": value.hex() for n, value in _azure_pcrs(image).items()}
    return {"launch": image.hex(), **pcrs}


def _tdx(image: bytes, now: datetime) -> EmulatedTdx:
    platform = make_tdx_platform(generate_dcap_keys(), now=now)
    return replace(platform, mrtd=image, rtmr=_rtmrs(image))


def _rtmrs(image: bytes) -> tuple[bytes, ...]:
    measured = (
        hashlib.sha384(b"rtmr%d" % number + image).digest()
        for number in range(_MEASURED_RTMRS)
    )
    return (*measured, bytes(_REGISTER_BYTES))


def _azure_pcrs(image: bytes) -> Mapping[int, bytes]:
    return {
        number: hashlib.sha256(b"pcr%d" % number + image).digest()
        for number in _AZURE_PCRS
    }


_REGISTERS: Final[Mapping[Tee, Callable[[bytes], Measurement]]] = MappingProxyType(
    {
        Tee.EMULATED_SEV_SNP: _snp_registers,
        Tee.EMULATED_TDX: _tdx_registers,
        Tee.EMULATED_NITRO: nitro.registers_of,
        Tee.EMULATED_AZURE_SNP: _azure_registers,
    }
)
