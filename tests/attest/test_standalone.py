from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from curtilage.attest import dispatch
from curtilage.attest.claims import CpuClaims, DeviceClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import SnpEvidence, Tee
from curtilage.attest.expectations import (
    Environment,
    Expectations,
    PlatformExpectations,
    TrustAnchor,
)
from curtilage.attest.standalone import EvidenceVerdict, verify_device, verify_evidence
from curtilage_dev.deployment import GPU, MEASUREMENT, Deployment
from curtilage_dev.emulated.gpu import EmulatedGpu, ordinary_expectations
from curtilage_dev.emulated.snp_pki import EmulatedPlatform

BOUND = bytes(range(64))
NONCE = bytes(range(32))
LAUNCH = {"emulated-sev-snp": ({"launch": MEASUREMENT.hex()},)}


@pytest.fixture(scope="module")
def rules(deployment: Deployment) -> Expectations:
    return replace(deployment.expectations(), measurements=LAUNCH)


@pytest.fixture(scope="module")
def evidence(platform: EmulatedPlatform, now: datetime) -> SnpEvidence:
    fields = platform.report_fields(report_data=BOUND, measurement=MEASUREMENT)
    return platform.evidence(fields, now=now)


@pytest.fixture(scope="module")
def gpu(now: datetime) -> EmulatedGpu:
    return EmulatedGpu.make(now=now)


@pytest.fixture(scope="module")
def gpu_rules(rules: Expectations, gpu: EmulatedGpu) -> Expectations:
    return replace(
        rules,
        roots=(*rules.roots, gpu.anchor()),
        required_devices={GPU.value: 1},
        gpu=ordinary_expectations(),
    )


def _refused(
    evidence: SnpEvidence,
    rules: Expectations,
    now: datetime,
    bound: bytes | None = BOUND,
) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        verify_evidence(evidence, rules, now=now, bound=bound)
    steps = caught.value.steps
    assert [step.passed for step in steps] == [True] * (len(steps) - 1) + [False]
    assert steps[-1].name == caught.value.step
    return caught.value


def test_evidence_by_itself_is_verified(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    verdict = verify_evidence(evidence, rules, now=now, bound=BOUND)
    assert verdict.tee == "emulated-sev-snp"
    assert isinstance(verdict.claims, CpuClaims)
    assert verdict.claims.bound == BOUND
    assert verdict.bound_checked
    names = [step.name for step in verdict.steps]
    assert names[:2] == ["expectations", "kind of evidence"]
    assert names[-3:] == ["measurement", "platform", "report data"]
    assert [step.number for step in verdict.steps] == list(range(1, len(names) + 1))


def test_what_it_binds_may_be_left_open(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    verdict = verify_evidence(evidence, rules, now=now, bound=None)
    assert not verdict.bound_checked
    assert verdict.steps[-1].name == "platform"


@pytest.mark.parametrize(
    "bound", [b"", BOUND[:32], BOUND + b"\0", BOUND[:63] + b"\0", bytes(64)]
)
def test_what_it_binds_is_compared_whole(
    evidence: SnpEvidence, rules: Expectations, now: datetime, bound: bytes
) -> None:
    error = _refused(evidence, rules, now, bound)
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


@pytest.mark.parametrize(
    "measurements",
    [{}, {"emulated-sev-snp": ()}, {"emulated-sev-snp": ({"launch": "00" * 48},)}],
    ids=["none", "empty", "another"],
)
def test_only_pinned_measurements_are_accepted(
    evidence: SnpEvidence,
    rules: Expectations,
    now: datetime,
    measurements: dict[str, Any],
) -> None:
    error = _refused(evidence, replace(rules, measurements=measurements), now)
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_machines_are_denied(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    verdict = verify_evidence(evidence, rules, now=now, bound=None)
    assert isinstance(verdict.claims, CpuClaims)
    denied = PlatformExpectations(deny=frozenset({verdict.claims.platform}))
    error = _refused(evidence, replace(rules, platforms=denied), now)
    assert error.code is RefusalCode.PLATFORM_DENIED


def test_a_policy_that_permits_nothing_accepts_nothing(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    error = _refused(evidence, replace(rules, roots=()), now)
    assert (error.code, error.step) == (RefusalCode.POLICY_INVALID, "expectations")


@pytest.mark.parametrize("part", ["release_names", "transport"])
def test_what_concerns_bundles_alone_is_not_asked(
    evidence: SnpEvidence, rules: Expectations, now: datetime, part: str
) -> None:
    changes: dict[str, Any] = {part: frozenset()}
    log = replace(rules.log, witnesses={}, public_key=b"", max_checkpoint_age_s=0)
    window = replace(rules.freshness, max_key_lifetime_s=0, max_evidence_age_s=0)
    bare = replace(rules, **changes, log=log, freshness=window)
    assert verify_evidence(evidence, bare, now=now, bound=BOUND).bound_checked


NOTHING: frozenset[Any] = frozenset()
SENSELESS: list[dict[str, Any]] = [
    {"roots": ()},
    {"required_cpu_tees": NOTHING},
    {"measurements": {"sgx": ()}},
    {"measurements": {"tdx": ({"mrtd": "00"},)}},
    {"required_devices": {"nvidia-gpu": 1}},
]
NESTED: list[tuple[str, dict[str, Any]]] = [
    ("snp", {"vmpl": NOTHING}),
    ("snp", {"max_crl_age_s": 0}),
    ("freshness", {"clock_skew_s": -1}),
]


@pytest.mark.parametrize("changes", SENSELESS, ids=str)
def test_what_concerns_evidence_is_asked(
    evidence: SnpEvidence,
    rules: Expectations,
    now: datetime,
    changes: dict[str, Any],
) -> None:
    error = _refused(evidence, replace(rules, **changes), now)
    assert (error.code, error.step) == (RefusalCode.POLICY_INVALID, "expectations")


@pytest.mark.parametrize(("part", "changes"), NESTED, ids=str)
def test_the_other_rules_about_evidence_are_asked_too(
    *,
    evidence: SnpEvidence,
    rules: Expectations,
    now: datetime,
    part: str,
    changes: dict[str, Any],
) -> None:
    inner: dict[str, Any] = {part: replace(getattr(rules, part), **changes)}
    error = _refused(evidence, replace(rules, **inner), now)
    assert error.code is RefusalCode.POLICY_INVALID


def test_a_clock_without_a_zone_is_refused(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    error = _refused(evidence, rules, now.replace(tzinfo=None))
    assert error.code is RefusalCode.POLICY_INVALID


def test_production_refuses_emulated_evidence(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    production = replace(
        rules,
        environment=Environment.PRODUCTION,
        roots=(TrustAnchor.of_vendor(type(rules.roots[0].kind)("amd"), "Genoa"),),
        required_cpu_tees=frozenset({"sev-snp"}),
        measurements={},
    )
    error = _refused(evidence, production, now)
    assert (error.code, error.step) == (
        RefusalCode.EMULATED_REFUSED,
        "kind of evidence",
    )
    lying = replace(evidence, tee=Tee.SEV_SNP)
    assert _refused(lying, production, now).code is RefusalCode.UNTRUSTED_ROOT


def test_it_is_held_against_the_given_time(
    evidence: SnpEvidence, rules: Expectations, now: datetime
) -> None:
    later = now + timedelta(days=3650)
    assert _refused(evidence, rules, later).code in {
        RefusalCode.EXPIRED_ENDORSEMENT,
        RefusalCode.CRL_EXPIRED,
    }


def test_an_unforeseen_failure_is_a_refusal(
    evidence: SnpEvidence,
    rules: Expectations,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("canary-in-an-exception")

    monkeypatch.setattr(dispatch, "verify_snp", fail)
    error = _refused(evidence, rules, now)
    assert error.code is RefusalCode.VERIFIER_UNAVAILABLE
    assert "canary" not in str(error)


# --- devices ------------------------------------------------------------------


def _device(
    gpu: EmulatedGpu, rules: Expectations, now: datetime, nonce: bytes | None = NONCE
) -> EvidenceVerdict:
    return verify_device(gpu.evidence(NONCE), rules, now=now, nonce=nonce)


def test_a_device_by_itself_is_verified(
    gpu: EmulatedGpu, gpu_rules: Expectations, now: datetime
) -> None:
    verdict = _device(gpu, gpu_rules, now)
    assert isinstance(verdict.claims, DeviceClaims)
    assert (verdict.tee, verdict.claims.nonce) == (GPU.value, NONCE)
    assert verdict.bound_checked
    assert verdict.steps[-1].name == "device nonce"
    open_ended = _device(gpu, gpu_rules, now, None)
    assert not open_ended.bound_checked
    assert open_ended.steps[-1].name != "device nonce"


@pytest.mark.parametrize("nonce", [b"", NONCE[:-1], bytes(32)])
def test_a_devices_nonce_is_compared_whole(
    gpu: EmulatedGpu, gpu_rules: Expectations, now: datetime, nonce: bytes
) -> None:
    with pytest.raises(RefusedError) as caught:
        _device(gpu, gpu_rules, now, nonce)
    assert caught.value.code is RefusalCode.BINDING_MISMATCH
    assert caught.value.step == "device nonce"


def test_a_device_must_be_of_a_kind_that_is_named(
    gpu: EmulatedGpu, gpu_rules: Expectations, now: datetime
) -> None:
    genuine = replace(gpu_rules, required_devices={"nvidia-gpu": 1})
    with pytest.raises(RefusedError) as caught:
        _device(gpu, genuine, now)
    assert caught.value.code is RefusalCode.EMULATED_REFUSED
    lying = replace(gpu.evidence(NONCE), kind=type(GPU)("nvidia-gpu"))
    with pytest.raises(RefusedError) as caught:
        verify_device(lying, gpu_rules, now=now, nonce=NONCE)
    assert caught.value.code is RefusalCode.DEVICE_MISMATCH
    with pytest.raises(RefusedError) as caught:
        verify_device(lying, genuine, now=now, nonce=NONCE)
    assert caught.value.code is RefusalCode.UNTRUSTED_ROOT
