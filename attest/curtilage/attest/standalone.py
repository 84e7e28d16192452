"""Verification of one piece of evidence by itself, under a policy.

For people who look into evidence, and for tests; no key comes out of it, so
nothing can be sealed to what is accepted here. The policy's roots, rules and
pinned measurements apply; there is no bundle, so its log, its releases and its
windows are not asked.
"""

from dataclasses import dataclass
from datetime import datetime

from curtilage.attest import bundle_checks as checks
from curtilage.attest.bundle_checks import Setting
from curtilage.attest.claims import CpuClaims, DeviceClaims
from curtilage.attest.dispatch import Accepted, verify_cpu, verify_device_report
from curtilage.attest.errors import RefusalCode, RefusedError, Step
from curtilage.attest.evidence import CpuEvidence, GpuEvidence
from curtilage.attest.expectations import Expectations
from curtilage.attest.steps import Check, StepLog, refusing


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceVerdict:
    """Content of an accepted piece of evidence.

    Attributes:
        tee: the kind of evidence, of a CPU or of a device.
        claims: what it says.
        steps: what was checked, in order.
        bound_checked: whether what it binds was compared with something; if
            not, it may have been made for anybody, at any time.
    """

    tee: str
    claims: CpuClaims | DeviceClaims
    steps: tuple[Step, ...]
    bound_checked: bool


def verify_evidence(
    evidence: CpuEvidence,
    expectations: Expectations,
    *,
    now: datetime,
    bound: bytes | None,
) -> EvidenceVerdict:
    """Verify one piece of CPU evidence.

    Args:
        evidence: unverified bytes.
        expectations: the policy; its pinned measurements of this kind are the
            only ones accepted.
        now: the time, aware.
        bound: what the evidence must bind: 64 bytes of report data, or a
            quote's qualifying data; None compares nothing.

    Raises:
        RefusedError: one step did not hold; ``steps`` ends with that one.
    """
    log = StepLog()
    setting = Setting(expectations=expectations, now=now, log=log)
    claims = refusing(log, lambda: _verify_cpu(evidence, setting, bound))
    return EvidenceVerdict(
        tee=claims.tee.value,
        claims=claims,
        steps=log.steps,
        bound_checked=bound is not None,
    )


def verify_device(
    evidence: GpuEvidence,
    expectations: Expectations,
    *,
    now: datetime,
    nonce: bytes | None,
) -> EvidenceVerdict:
    """Verify one device's evidence.

    Args:
        evidence: unverified bytes.
        expectations: the policy, which must name this kind of device.
        now: the time, aware.
        nonce: the 32 bytes that the report must carry; None compares nothing.

    Raises:
        RefusedError: one step did not hold; ``steps`` ends with that one.
    """
    log = StepLog()
    setting = Setting(expectations=expectations, now=now, log=log)
    claims = refusing(log, lambda: _verify_device(evidence, setting, nonce))
    return EvidenceVerdict(
        tee=claims.kind.value,
        claims=claims,
        steps=log.steps,
        bound_checked=nonce is not None,
    )


def _verify_cpu(
    evidence: CpuEvidence, setting: Setting, bound: bytes | None
) -> CpuClaims:
    checks.check_evidence_expectations(setting)
    checks.check_kind(evidence.tee, setting)
    # No release vouches for anything here, so only what the policy itself pins.
    measurements = setting.expectations.measurements.get(evidence.tee.value, ())
    claims = verify_cpu(
        evidence,
        setting.expectations,
        Accepted(measurements=measurements),
        now=setting.now,
        log=setting.log,
    )
    # The same lists as in a bundle: a machine that is denied is denied.
    checks.check_platform(claims.platform, setting)
    # Without something to compare, the verdict says so (``bound_checked``): such
    # evidence may have been made for anybody, at any time.
    if bound is not None:
        _compare(Check.REPORT_DATA, claims.bound, bound, setting.log)
    return claims


def _verify_device(
    evidence: GpuEvidence, setting: Setting, nonce: bytes | None
) -> DeviceClaims:
    checks.check_evidence_expectations(setting)
    setting.log.begin(Check.EVIDENCE_KIND)
    checks.check_device_kind(evidence.kind, setting)
    setting.log.passed(evidence.kind)
    claims = verify_device_report(
        evidence,
        setting.expectations,
        # A GPU is compared with the policy's golden digests; registers are the CPU's.
        Accepted(measurements=()),
        index=0,
        now=setting.now,
        log=setting.log,
    )
    if nonce is not None:
        _compare(Check.DEVICE_NONCE, claims.nonce, nonce, setting.log)
    return claims


def _compare(step: Check, signed: bytes, expected: bytes, log: StepLog) -> None:
    log.begin(step)
    # Whole, and of equal length: a prefix is not the value.
    if signed != expected:
        raise RefusedError(RefusalCode.BINDING_MISMATCH, "made for something else")
    log.passed(f"all {len(signed)} bytes are the expected ones")
