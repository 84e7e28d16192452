"""Dispatches each kind of evidence to its verifier.

Each is imported when it is first needed, for some need an extra of this package:
where that is missing, the answer is ``verifier_unavailable``, never a check less.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import CpuClaims, DeviceClaims, Measurement
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
)
from curtilage.attest.expectations import Expectations, anchors_for
from curtilage.attest.log.manifest import GpuRelease, ReleaseManifest
from curtilage.attest.sev_snp.verify import SnpRules, verify_snp
from curtilage.attest.steps import StepLog

if TYPE_CHECKING:
    from curtilage.attest.tdx.verify import TdxRules

_ClaimsT = TypeVar("_ClaimsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Values to verify evidence against, in addition to the policy's own rules.

    Attributes:
        measurements: the accepted measurements of the evidence's kind.
        min_tcb: a release's own lowest patch levels.
        gpu: the GPUs that a release may use.
    """

    measurements: tuple[Measurement, ...]
    min_tcb: Mapping[Product, Tcb] = field(default_factory=dict[Product, Tcb])
    gpu: GpuRelease = field(default_factory=GpuRelease)

    @classmethod
    def of_release(cls, manifest: ReleaseManifest, tee: str) -> "Accepted":
        """Return what a release says about one kind of evidence."""
        return cls(
            # A kind that the release does not name has no accepted measurement.
            measurements=manifest.measurements.get(tee, ()),
            min_tcb=manifest.min_tcb,
            gpu=manifest.gpu,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    """One verifier's arguments, other than the evidence."""

    expectations: Expectations
    accepted: Accepted
    now: datetime
    log: StepLog

    @property
    def skew_s(self) -> int:
        return self.expectations.freshness.clock_skew_s


def verify_cpu(
    evidence: CpuEvidence,
    expectations: Expectations,
    accepted: Accepted,
    *,
    now: datetime,
    log: StepLog,
) -> CpuClaims:
    """Verify CPU evidence of any kind, except what it binds.

    Raises:
        RefusedError: the first step that does not hold.
    """
    arguments = _Arguments(
        expectations=expectations, accepted=accepted, now=now, log=log
    )
    return _available(lambda: _verify_cpu(evidence, arguments))


def verify_device_report(
    evidence: GpuEvidence,
    expectations: Expectations,
    accepted: Accepted,
    *,
    index: int,
    now: datetime,
    log: StepLog,
) -> DeviceClaims:
    """Verify device evidence of any kind, except its nonce.

    Raises:
        RefusedError: the first step that does not hold.
    """
    arguments = _Arguments(
        expectations=expectations, accepted=accepted, now=now, log=log
    )
    return _available(lambda: _verify_gpu(evidence, arguments, index))


def _available(verifier: Callable[[], _ClaimsT]) -> _ClaimsT:
    try:
        return verifier()
    # Never a check less: who lacks a verifier's extra refuses that kind, whatever the
    # policy says of it.
    except ImportError:
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "the verifier's extra is not installed"
        ) from None


def _verify_cpu(evidence: CpuEvidence, arguments: _Arguments) -> CpuClaims:
    # By the type that the parser made, so by the kind that step 3 has checked; each
    # branch takes the roots of that kind alone.
    if isinstance(evidence, SnpEvidence):
        snp = _snp_rules(evidence, arguments)
        return verify_snp(evidence, snp, now=arguments.now, log=arguments.log)
    if isinstance(evidence, TdxEvidence):
        from curtilage.attest.tdx.verify import verify_tdx  # noqa: PLC0415 - as above

        tdx = _tdx_rules(evidence, arguments)
        return verify_tdx(evidence, tdx, now=arguments.now, log=arguments.log)
    if isinstance(evidence, NitroEvidence):
        from curtilage.attest.nitro.verify import (  # noqa: PLC0415 - as above
            NitroRules,
            verify_nitro,
        )

        nitro = NitroRules(
            anchors=anchors_for(arguments.expectations.roots, evidence.tee),
            clock_skew_s=arguments.skew_s,
            # A Nitro document carries a signed time, so its own age is asked besides
            # the anchor's.
            max_age_s=arguments.expectations.freshness.max_evidence_age_s,
            measurements=arguments.accepted.measurements,
            revocation=arguments.expectations.nitro.revocation,
        )
        return verify_nitro(evidence, nitro, now=arguments.now, log=arguments.log)
    if isinstance(evidence, AzureEvidence):
        from curtilage.attest.azure.verify import (  # noqa: PLC0415 - as above
            AzureRules,
            verify_azure,
        )

        # Both sets of rules are made, and one is used: which hardware is below, only
        # the evidence says.
        azure = AzureRules(
            snp=_snp_rules(evidence, arguments),
            tdx=_tdx_rules(evidence, arguments),
        )
        return verify_azure(evidence, azure, now=arguments.now, log=arguments.log)
    from curtilage.attest.tpm.verify import TpmRules, verify_tpm  # noqa: PLC0415 - as above

    tpm = TpmRules(
        anchors=anchors_for(arguments.expectations.roots, evidence.tee),
        measurements=arguments.accepted.measurements,
    )
    return verify_tpm(evidence, tpm, log=arguments.log)


def _snp_rules(
    evidence: SnpEvidence | AzureEvidence, arguments: _Arguments
) -> SnpRules:
    expectations = arguments.expectations
    return SnpRules(
        # Of Azure's kind for Azure's evidence: the hardware inside is judged by the
        # roots of the kind that the policy named.
        anchors=anchors_for(expectations.roots, evidence.tee),
        expectations=expectations.snp,
        clock_skew_s=arguments.skew_s,
        release_min_tcb=arguments.accepted.min_tcb,
        measurements=arguments.accepted.measurements,
    )


def _tdx_rules(
    evidence: TdxEvidence | AzureEvidence, arguments: _Arguments
) -> "TdxRules":
    from curtilage.attest.tdx.verify import TdxRules  # noqa: PLC0415 - see the module's text

    expectations = arguments.expectations
    return TdxRules(
        anchors=anchors_for(expectations.roots, evidence.tee),
        expectations=expectations.tdx,
        clock_skew_s=arguments.skew_s,
        measurements=arguments.accepted.measurements,
    )


def _verify_gpu(
    evidence: GpuEvidence, arguments: _Arguments, index: int
) -> DeviceClaims:
    from curtilage.attest.nvidia.verify import GpuRules, verify_gpu  # noqa: PLC0415 - as above

    expectations, released = arguments.expectations, arguments.accepted.gpu
    rules = GpuRules(
        anchors=anchors_for(expectations.roots, evidence.kind),
        # A release narrows what the policy accepts and cannot widen it.
        expectations=replace(
            expectations.gpu,
            drivers=_common(expectations.gpu.drivers, released.drivers),
            vbioses=_common(expectations.gpu.vbioses, released.vbioses),
            golden=_common(expectations.gpu.golden, released.golden),
        ),
        clock_skew_s=arguments.skew_s,
    )
    return verify_gpu(
        evidence, rules, index=index, now=arguments.now, log=arguments.log
    )


def _common(policy: frozenset[str], release: tuple[str, ...]) -> frozenset[str]:
    """Return what both accept; where a release has no list, the policy's."""
    # An empty list says nothing, it does not say "none": so a release without GPUs need
    # not list any.
    if not release:
        return policy
    # NVIDIA writes VBIOS versions in capitals and in small letters; two spellings are
    # one version.
    released = {each.lower() for each in release}
    return frozenset(each for each in policy if each.lower() in released)
