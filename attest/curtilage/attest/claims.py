"""The claims of verified evidence, and which measurements are accepted.

Values only: nothing here verifies anything. Registers are what a machine
measured at its start; a measurement is an accepted set of registers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, Tee

Measurement = Mapping[str, str]
"""An accepted set of registers: name to lower-case hex."""

Detail = str | int | bool | tuple[str, ...]

_TDX: Final = frozenset({"mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3"})
_NITRO: Final = frozenset({"pcr0", "pcr1", "pcr2"})
REQUIRED_REGISTERS: Final[Mapping[Tee, frozenset[str]]] = MappingProxyType(
    {
        Tee.SEV_SNP: frozenset({"launch"}),
        Tee.EMULATED_SEV_SNP: frozenset({"launch"}),
        Tee.TDX: _TDX,
        Tee.EMULATED_TDX: _TDX,
        Tee.NITRO: _NITRO,
        Tee.EMULATED_NITRO: _NITRO,
        Tee.AZURE_SNP: frozenset({"launch"}),
        Tee.EMULATED_AZURE_SNP: frozenset({"launch"}),
        Tee.AZURE_TDX: frozenset({"mrtd"}),
        Tee.TPM: frozenset(),
    }
)
"""The registers that an accepted measurement must name, for each kind. Where the
binding is a quote's, one of ``IMAGE_PCRS`` at least must be named as well: what the
hardware measured there is the provider's firmware alone."""

ZERO_UNLESS_NAMED: Final = frozenset({"mrconfigid", "mrowner", "mrownerconfig"})
"""Values that a host sets freely at launch. Where they have no meaning, the zeros
of a host that set nothing are expected."""

HOST_DATA: Final = "hostdata"
"""The 32 bytes that a host sets freely at a SEV-SNP guest's launch. A measurement
that names them decides about them; otherwise they are one of the policy's values."""

IMAGE_PCRS: Final = ("pcr4", "pcr8", "pcr9", "pcr11", "pcr12", "pcr13")
"""The TPM registers that a boot image is measured into: 4 by the firmware (TCG PC
Client Platform Firmware Profile, PCR usage), 8 and 9 by GRUB, 11 to 13 by
systemd-stub (UAPI Group, Linux TPM PCR Registry). 0 to 3 and 7 say which firmware
and whose signatures, alike for every tenant; software in the guest may reset 16 and
23 and extend them to what it likes; 17 to 22 need a dynamic launch to change."""

_SHOWN_DIGITS: Final = 8
_SHA384_HEX: Final = 96
_SHA256_HEX: Final = 64
_TPM_PCRS: Final = frozenset(f"pcr{number}" for number in range(24))
_NITRO_PCRS: Final = frozenset(f"pcr{number}" for number in range(32))
_SNP: Final = frozenset({"launch", HOST_DATA})
_TDX_NAMES: Final = _TDX | ZERO_UNLESS_NAMED | {"mrseam"}
_NAMES: Final[Mapping[Tee, frozenset[str]]] = MappingProxyType(
    {
        Tee.SEV_SNP: _SNP,
        Tee.EMULATED_SEV_SNP: _SNP,
        Tee.TDX: _TDX_NAMES,
        Tee.EMULATED_TDX: _TDX_NAMES,
        Tee.NITRO: _NITRO_PCRS,
        Tee.EMULATED_NITRO: _NITRO_PCRS,
        Tee.AZURE_SNP: _SNP | _TPM_PCRS,
        Tee.EMULATED_AZURE_SNP: _SNP | _TPM_PCRS,
        Tee.AZURE_TDX: _TDX_NAMES | _TPM_PCRS,
        Tee.TPM: _TPM_PCRS,
    }
)
# Of any length, since registers of both hashes are compared with it.
_ZEROS: Final = re.compile(r"0*")
_ONE_OF: Final = f"{', '.join(IMAGE_PCRS[:-1])} or {IMAGE_PCRS[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of the chain of trust; links are listed root first.

    Attributes:
        subject: who or what is vouched for.
        issuer: who vouches.
        role: what the subject is in the chain, in a few words.
        fingerprint: SHA-256 of the statement, lower-case hex.
        not_after: when it ends; None where it says nothing about that.
    """

    subject: str
    issuer: str
    role: str
    fingerprint: str
    not_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClaims:
    """The claims of verified CPU evidence.

    Attributes:
        tee: the kind of evidence.
        registers: name to lower-case hex. SEV-SNP: ``launch``, ``hostdata``; TDX:
            ``mrtd``, ``rtmr0`` to ``rtmr3``, ``mrconfigid``, ``mrowner``,
            ``mrownerconfig``, ``mrseam``; Nitro and TPM: ``pcr0`` and so on;
            Azure: the hardware's, and the quote's registers.
        bound: what the evidence signed for us: 64 bytes of report data, or a
            quote's qualifying data.
        expires_at: when the first certificate, list or collateral runs out.
        details: what else it says, for people; public.
        links: who vouches for what, root first.
        platform: which machine: a chip id or a PPID in hex, a Nitro module id; ""
            where the evidence names none.
    """

    tee: Tee
    registers: Mapping[str, str]
    bound: bytes
    expires_at: datetime
    details: Mapping[str, Detail] = field(default_factory=dict[str, Detail])
    links: tuple[Link, ...] = ()
    platform: str = ""

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        # A dictionary inside a frozen value could still be changed, after it was
        # compared.
        object.__setattr__(self, "registers", MappingProxyType(dict(self.registers)))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaims:
    """The claims of verified device evidence.

    Attributes:
        kind: the kind of device.
        index: its place among the bundle's devices of its kind, from 0.
        signed_part: the bytes that its signature covers.
        nonce: the 32 bytes that must be the ones derived from the binding.
        expires_at: when the first certificate runs out.
        device: SHA-256 of the device's own key (SubjectPublicKeyInfo), in hex:
            which device this is.
        details: what else it says, for people; public.
        links: who vouches for what, root first.
    """

    kind: DeviceKind
    index: int
    signed_part: bytes = field(repr=False)
    nonce: bytes = field(repr=False)
    expires_at: datetime
    device: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict[str, Detail])
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        """Make the mapping immutable."""
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))


def measurement_problem(measurement: Measurement, tee: Tee) -> str | None:
    """Say why a measurement could never accept evidence of this kind.

    Returns:
        A few words, or None: it names the registers that it must, and each has
        the length of its digest.
    """
    # Names and lengths first: no machine has a misspelt register, or its absence would
    # go unnoticed.
    for name, value in measurement.items():
        if name not in _NAMES[tee]:
            return "names a register that does not exist in such evidence"
        # A digest of another length can never be equal; said here, it is a mistake that
        # an author can mend.
        if len(value) != _register_length(name, tee):
            return f"{name} is not {_register_length(name, tee)} hex digits"
    # A measurement that names pcr4 and not the launch register would accept any
    # firmware below it.
    missing = sorted(REQUIRED_REGISTERS[tee] - set(measurement))
    if missing:
        return f"names no {', no '.join(missing)}"
    return _image_problem(measurement, tee) if tee.quoted else None


def _image_problem(measurement: Measurement, tee: Tee) -> str | None:
    # Without one of them a measurement would accept every image below that provider's
    # firmware, and any tenant could be us.
    named = [measurement[name] for name in IMAGE_PCRS if name in measurement]
    if not named:
        return f"names no TPM register of the image: {_ONE_OF}"
    # A register that nothing was measured into is zero, whatever runs. A TPM by
    # itself proves nothing anyway, and a simulated one may have measured nothing.
    if tee is not Tee.TPM and all(map(_ZEROS.fullmatch, named)):
        return f"names no TPM register of the image ({_ONE_OF}) but with zeros"
    return None


def _register_length(name: str, tee: Tee) -> int:
    # A TPM's bank is SHA-256, and host data have 32 bytes; everything else is SHA-384.
    # Nitro names its registers alike, and measures with SHA-384.
    tpm = tee.quoted and name in _TPM_PCRS
    return _SHA256_HEX if tpm or name == HOST_DATA else _SHA384_HEX


def measurement_matches(
    registers: Mapping[str, str], accepted: Iterable[Measurement], tee: Tee
) -> bool:
    """Return whether one accepted measurement matches these registers.

    Every register that it names must be there and equal; it must name those of
    ``REQUIRED_REGISTERS``, and what a host may set freely is zero unless it is
    named. Nothing accepted means: no.
    """
    return any(
        # Asked again at every comparison: a release's manifest is parsed without
        # knowing kinds, so this is where its measurements are judged.
        measurement_problem(each, tee) is None and _matches(registers, each)
        for each in accepted
    )


def require_measurement(
    registers: Mapping[str, str], accepted: Iterable[Measurement], tee: Tee
) -> None:
    """Refuse registers that ``measurement_matches`` does not accept.

    The refusal has whole values, of all that are not zero: there an operator
    reads what to publish in a release, or to pin. Next to them it has the accepted
    measurement that is closest, and where the two differ first.

    Raises:
        RefusedError: ``measurement_not_allowed``.
    """
    if measurement_matches(registers, accepted := list(accepted), tee):
        return
    measured = ", ".join(
        f"{name} {value}"
        for name, value in sorted(registers.items())
        # Zeros carry no information, and there are many; the rest is public, since a
        # machine's owner publishes it.
        if not _ZEROS.fullmatch(value)
    )
    raise RefusedError(
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        f"not accepted: {measured}; {difference(registers, accepted, tee)}",
    )


def not_listed(said: str, accepted: Iterable[str]) -> RefusedError:
    """Return the refusal of a value, with all that would have been accepted.

    Args:
        said: the value, whole, and that it is not accepted.
        accepted: what the rules list; an operator compares.
    """
    return RefusedError(
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        f"{said}: {', '.join(sorted(accepted)) or 'none'}",
    )


def difference(
    registers: Mapping[str, str], accepted: Sequence[Measurement], tee: Tee
) -> str:
    """Describe the closest accepted measurement and where it differs.

    Args:
        registers: which none of ``accepted`` matches.
        accepted: the measurements.
        tee: the kind of evidence.
    """
    if not accepted:
        return "none is accepted"
    closest = max(
        accepted,
        key=lambda each: sum(
            a == b
            for name, value in each.items()
            for a, b in zip(registers.get(name, ""), value, strict=False)
        ),
    )
    if (problem := measurement_problem(closest, tee)) is not None:
        return f"what is accepted matches nothing: it {problem}"
    # Zeros, where a measurement does not name what a host may set.
    wanted = dict.fromkeys(ZERO_UNLESS_NAMED & set(registers), "") | dict(closest)
    for name, value in sorted(wanted.items()):
        measured = registers.get(name)
        if measured is None:
            return f"accepted: {name} {value}; the evidence has no {name}"
        if not value and not _ZEROS.fullmatch(measured):
            return f"accepted: {name} of zeros alone"
        if value and measured != value:
            of = f" (the closest of {len(accepted)})" if len(accepted) > 1 else ""
            return f"accepted{of}: {name} {value}; {first_difference(measured, value)}"
    return "accepted: no such kind of evidence"


def first_difference(measured: str, accepted: str) -> str:
    """Show where two values first differ: that digit in brackets, a few around it."""
    pairs = enumerate(zip(measured, accepted, strict=False))
    shorter = min(len(measured), len(accepted))
    at = next((at for at, (one, other) in pairs if one != other), shorter)
    first, last = max(at - _SHOWN_DIGITS, 0), at + 1 + _SHOWN_DIGITS

    def shown(value: str) -> str:
        text = f"{value[first:at]}[{value[at : at + 1]}]{value[at + 1 : last]}"
        return f"{'…' if first else ''}{text}{'…' if value[last:] else ''}"

    return (
        f"they differ from digit {at + 1} on: {shown(measured)}, not {shown(accepted)}"
    )


def _matches(registers: Mapping[str, str], measurement: Measurement) -> bool:
    # What a measurement names must be there. A register that evidence leaves out is no
    # match for anything.
    if any(registers.get(name) != value for name, value in measurement.items()):
        return False
    return all(
        # Missing is zero: kinds of evidence without such fields have nothing that a
        # host could set.
        _ZEROS.fullmatch(registers.get(name, ""))
        for name in ZERO_UNLESS_NAMED - set(measurement)
    )


class Claim(StrEnum):
    """Properties that a data class may require of an enclave; names are stable."""

    HARDWARE = "hardware"
    GPU = "gpu"
    WEIGHTS = "weights"
    NO_WRITE = "no_write"
    ISOLATION = "isolation"
    EPHEMERALITY = "ephemerality"
    CUSTODY = "custody"
