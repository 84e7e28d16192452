"""One verdict on a service's document: what of it the reader's policy checks.

Pure. Verifies the CPU evidence and every GPU's with ``attest.standalone``, then asks
the document's reader what that shows, and says it for each claim that a policy may
require.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

from curtilage.attest.claims import Claim, CpuClaims, DeviceClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import Expectations
from curtilage.attest.standalone import EvidenceVerdict, verify_device, verify_evidence
from curtilage.cli.attest.evidence_files import (
    EvidenceFiles,
    cpu_evidence,
    device_evidence,
)
from curtilage.cli.attest.foreign import contrast, dstack, near, tinfoil
from curtilage.cli.attest.foreign.published import (
    FRESHNESS,
    KEY,
    MEASUREMENT,
    PLATFORM,
    SUBJECTS,
    Carrier,
    Finding,
    Given,
    Judged,
    Published,
    Status,
    Way,
    checked,
    stated,
    unknown,
)
from curtilage.client.errors import UsageError

READERS: Final[Mapping[str, Callable[[bytes, Given], Published]]] = MappingProxyType(
    {
        "tinfoil": tinfoil.read,
        "privatemode": contrast.read,
        "dstack": dstack.read,
        "near": near.read,
    }
)
"""Each service's reader, by its name for ``--from``."""
NAMES: Final = (*(claim.value for claim in Claim), *SUBJECTS)
"""Every claim that a verdict has a row for, in order."""

_SAYS_NOTHING: Final = "the document says nothing about it"
_GPU_RELAY: Final = (
    "verified, and made for the same nonce; nothing shows that it is in this machine"
)
_OPENS_NONE: Final = "this version speaks to no such service"
# Without one of them a question could reach other software, another holder of a key, or
# a machine that was taken over since.
_FOR_A_TIER: Final = ("hardware", MEASUREMENT, KEY, FRESHNESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Whether such a service may be a tier: whether a question can reach only it.

    Attributes:
        may: it can, by what the evidence shows.
        way: how, where the document names a way.
        why: what it rests on, or why not.
    """

    may: bool
    way: Way | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The verdict on an accepted document.

    Attributes:
        form: which form of document it is.
        cpu: the verdict on the CPU evidence.
        devices: the verdicts on the GPUs.
        findings: one for each of ``NAMES``.
        tier: whether it may be a tier.
    """

    form: str
    cpu: EvidenceVerdict
    devices: tuple[EvidenceVerdict, ...]
    findings: Mapping[str, Finding]
    tier: Tier


def import_document(
    source: str, data: bytes, expectations: Expectations, given: Given
) -> Imported:
    """Verify a document.

    Args:
        source: one of ``READERS``.
        data: the document, as it was published.
        expectations: the policy's.
        given: what the reader has in addition.

    Raises:
        RefusedError: a check failed.
        UsageError: an option is missing that only the reader knows.
    """
    published = READERS[source](data, given)
    _refuse_unused(published.family, given.files)
    tee = _tee_of(published.family, expectations)
    cpu = verify_evidence(
        cpu_evidence(tee, published.files),
        expectations,
        now=given.at,
        bound=published.bound,
    )
    claims = cast("CpuClaims", cpu.claims)
    devices = _devices(published, expectations, given)
    judged = published.judge(claims)
    findings = _findings(claims, devices, judged, expectations)
    return Imported(
        form=published.form,
        cpu=cpu,
        devices=devices,
        findings=findings,
        tier=tier_of(findings, judged),
    )


def _refuse_unused(family: str, files: EvidenceFiles) -> None:
    other = (
        files.collateral
        if family == "sev-snp"
        else files.vek + files.chain + files.crl + files.certs
    )
    # An ignored file would look as if it were verified.
    if other:
        raise UsageError(f"an endorsement was named that {family} evidence has not")


def _tee_of(family: str, expectations: Expectations) -> Tee:
    """Return the kind to verify: the emulated one only if the policy takes no other."""
    emulated = Tee(f"emulated-{family}")
    accepted = expectations.required_cpu_tees
    only_emulated = emulated in accepted and family not in accepted
    return emulated if only_emulated else Tee(family)


def _devices(
    published: Published, expectations: Expectations, given: Given
) -> tuple[EvidenceVerdict, ...]:
    required = expectations.required_devices
    # A policy without GPUs has no golden values to compare them with.
    if not required:
        return ()
    kind = DeviceKind(next(iter(required)))
    if len(published.gpus) < sum(required.values()):
        raise RefusedError(
            RefusalCode.DEVICE_MISSING,
            f"{len(published.gpus)} GPU(s) in the document; the policy asks for more",
        )
    verdicts = tuple(
        verify_device(
            device_evidence(kind, EvidenceFiles(evidence=entry)),
            expectations,
            now=given.at,
            nonce=published.gpu_nonce,
        )
        for entry in published.gpus
    )
    # By the key burnt into the GPU: one that is asked twice signs two true reports.
    names = {cast("DeviceClaims", each.claims).device for each in verdicts}
    if len(names) < len(verdicts):
        raise RefusedError(RefusalCode.DEVICE_MISMATCH, "one device is named twice")
    return verdicts


def _findings(
    claims: CpuClaims,
    devices: tuple[EvidenceVerdict, ...],
    judged: Judged,
    expectations: Expectations,
) -> Mapping[str, Finding]:
    found: dict[str, Finding] = {name: unknown(_SAYS_NOTHING) for name in NAMES}
    found |= judged.findings
    # After the document's own, which must not say these of itself.
    found[Claim.HARDWARE] = (
        checked("the maker's key signed the evidence, and vouches for the machine")
        if claims.tee.isolates
        else unknown("emulated: no hardware signed it")
    )
    found[MEASUREMENT] = checked("the registers are among the policy's own")
    found[PLATFORM] = _platform(claims, expectations)
    if devices:
        found[Claim.GPU] = stated(f"{len(devices)} GPU(s): {_GPU_RELAY}")
    return MappingProxyType(found)


def _platform(claims: CpuClaims, expectations: Expectations) -> Finding:
    if not claims.platform:
        return unknown("the evidence names no machine")
    # Whether somebody can put a probe on its memory bus is up to its place.
    if expectations.platforms.allow is not None:
        return checked("the machine is one that the policy lists")
    return stated(f"machine {claims.platform}; the policy lists none")


def tier_of(findings: Mapping[str, Finding], judged: Judged) -> Tier:
    """Return whether a question could reach only this enclave.

    Args:
        findings: one for each of ``NAMES``.
        judged: with the way that the document names, if any.
    """
    if judged.way is None:
        return Tier(may=False, way=None, why=judged.no_way)
    missing = [
        name for name in _FOR_A_TIER if findings[name].status is not Status.CHECKED
    ]
    if missing:
        why = f"not checked: {', '.join(missing)}"
        return Tier(may=False, way=judged.way, why=why)
    how = {
        Carrier.OHTTP: "by OHTTP to a key configuration that a bound key signed",
        Carrier.HPKE: "sealed to a key that the evidence binds",
        Carrier.TLS: "over TLS to a key that the evidence binds",
        Carrier.MESH_CA: "to names that a bound certification authority vouches for",
    }[judged.way.by]
    return Tier(may=True, way=judged.way, why=f"{how}; {_OPENS_NONE}")
