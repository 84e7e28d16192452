import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.amd_tcb import Tcb
from curtilage.attest.azure.verify import AzureCheck, AzureRules, verify_azure
from curtilage.attest.binding import qualifying_data_v2
from curtilage.attest.claims import HOST_DATA, CpuClaims, Measurement
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import AzureEvidence, SnpEvidence, Tee
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    PlatformExpectations,
    SnpExpectations,
    TdxExpectations,
    TrustAnchor,
)
from curtilage.attest.sev_snp.verify import SnpRules
from curtilage.attest.standalone import verify_evidence
from curtilage.attest.steps import Check, StepLog
from curtilage.attest.tdx.verify import TdxRules
from curtilage.attest.tpm.quote import AlgorithmId, QuoteCheck
from curtilage_dev.deployment import make_any_deployment
from curtilage_dev.emulated.azure import (
    DEFAULT_MEASUREMENT,
    BlobFields,
    Changes,
    EmulatedAzure,
    encode_blob,
    encode_runtime,
    encode_td_report,
    make_azure,
    runtime_object,
)
from curtilage_dev.emulated.dcap import DcapKeys, generate_dcap_keys
from curtilage_dev.emulated.machines import AzureMachine, azure_machine, registers_of
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, RootKeys, make_platform
from curtilage_dev.emulated.tdx import EmulatedTdx, make_tdx_platform
from curtilage_dev.emulated.tpm import EmulatedTpm, QuoteFields, make_tpm

QUALIFYING = hashlib.sha256(b"binding").digest()


@pytest.fixture(scope="module")
def machine(platform: EmulatedPlatform) -> EmulatedAzure:
    return make_azure(platform)


@pytest.fixture(scope="module")
def evidence(machine: EmulatedAzure, now: datetime) -> AzureEvidence:
    return machine.evidence(QUALIFYING, now=now)


def _measurement(machine: EmulatedAzure, *names: str) -> dict[str, str]:
    return {name: machine.registers()[name] for name in names or ("launch", "pcr11")}


def _rules(
    machine: EmulatedAzure, measurements: tuple[Measurement, ...] | None = None
) -> AzureRules:
    anchors = (machine.anchor(),)
    accepted = (_measurement(machine),) if measurements is None else measurements
    snp = SnpRules(
        anchors=anchors,
        expectations=SnpExpectations(min_tcb={"Genoa": machine.platform.tcb}),
        clock_skew_s=60,
        release_min_tcb={},
        measurements=accepted,
    )
    tdx = TdxRules(
        anchors=anchors,
        expectations=TdxExpectations(),
        clock_skew_s=60,
        measurements=accepted,
    )
    return AzureRules(snp=snp, tdx=tdx)


def _refusal(
    evidence: AzureEvidence, rules: AzureRules, now: datetime
) -> tuple[RefusalCode, str]:
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_azure(evidence, rules, now=now, log=log)
    return caught.value.code, log.refusal(caught.value.code, "").step


def test_evidence_is_verified(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime
) -> None:
    log = StepLog()
    claims = verify_azure(evidence, _rules(machine), now=now, log=log)
    assert claims.bound == QUALIFYING
    assert dict(claims.registers) == machine.registers()
    assert claims.platform == machine.platform.chip_id.hex()
    assert claims.details["hardware"] == "emulated-sev-snp"
    assert claims.details["vm_settings"] == (
        "console-enabled",
        "secure-boot",
        "tpm-enabled",
    )
    assert [link.subject for link in claims.links[-3:]] == [
        "SEV-SNP report",
        "attestation key",
        "TPM quote",
    ]
    assert claims.links[-2].issuer == "SEV-SNP report"
    names = [step.name for step in log.steps]
    assert names[0] == AzureCheck.HCL_BLOB
    assert names.index(Check.HOST_DATA) < names.index(AzureCheck.RUNTIME_BINDING)
    assert names[-1] == QuoteCheck.MEASUREMENT
    assert Check.MEASUREMENT not in names


# --- the hardware's own steps -------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code", "step"),
    [
        ({"policy": 0x30000 | 1 << 19}, RefusalCode.DEBUG_ENABLED, Check.GUEST_POLICY),
        ({"vmpl": 1}, RefusalCode.VMPL, Check.PRIVILEGE_LEVEL),
        ({"version": 2}, RefusalCode.UNSUPPORTED_VERSION, Check.REPORT_LAYOUT),
        (
            {"launch_tcb": Tcb(bl=1, tee=0, snp=0, ucode=0)},
            RefusalCode.TCB_TOO_LOW,
            Check.MINIMUM_TCB,
        ),
        (
            {"host_data": b"\1" * 32},
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            Check.HOST_DATA,
        ),
    ],
    ids=["debug", "vmpl", "version 2", "tcb", "host data"],
)
def test_hardware_is_held_against_every_rule(
    machine: EmulatedAzure,
    now: datetime,
    changes: dict[str, Any],
    code: RefusalCode,
    step: str,
) -> None:
    changed = Changes(report=lambda fields: replace(fields, **changes))
    bad = machine.evidence(QUALIFYING, now=now, changes=changed)
    assert _refusal(bad, _rules(machine), now) == (code, step)


def test_a_measurement_decides_about_the_host_data_that_it_names(
    machine: EmulatedAzure, now: datetime
) -> None:
    host_data = b"\1" * 32
    changed = Changes(report=lambda fields: replace(fields, host_data=host_data))
    evidence = machine.evidence(QUALIFYING, now=now, changes=changed)
    named = {**_measurement(machine), HOST_DATA: host_data.hex()}
    rules = _rules(machine, (named,))
    claims = verify_azure(evidence, rules, now=now, log=StepLog())
    assert claims.registers[HOST_DATA] == host_data.hex()
    # Another image's host data are not this one's.
    other = {**named, "pcr11": "22" * 32}
    rules = _rules(machine, (_measurement(machine), other))
    assert _refusal(evidence, rules, now) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        QuoteCheck.MEASUREMENT,
    )


def test_hardware_under_another_root_is_refused(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime
) -> None:
    rules = _rules(machine)
    rules = replace(rules, snp=replace(rules.snp, anchors=()))
    assert _refusal(evidence, rules, now) == (
        RefusalCode.UNTRUSTED_ROOT,
        Check.PINNED_ROOT,
    )


# --- one machine's report with another's quote ---------------------------------


def test_quote_of_another_vtpm_is_refused(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime
) -> None:
    other = make_tpm().quote(QuoteFields(extra_data=QUALIFYING))
    assert _refusal(replace(evidence, quote=other), _rules(machine), now) == (
        RefusalCode.BAD_SIGNATURE,
        QuoteCheck.QUOTE_SIGNATURE,
    )


def test_runtime_data_of_another_machine_are_refused(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime
) -> None:
    """The other vTPM's key and its quote, with this machine's report."""
    other = make_azure(machine.platform)
    assert isinstance(evidence.hardware, SnpEvidence)
    blob = BlobFields(
        report=evidence.hardware.report, runtime_data=other.runtime_data()
    )
    mixed = replace(
        evidence,
        hcl=encode_blob(blob),
        quote=other.tpm.quote(QuoteFields(extra_data=QUALIFYING)),
    )
    assert _refusal(mixed, _rules(machine), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.RUNTIME_BINDING,
    )


def test_blob_with_another_report_is_refused(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime
) -> None:
    other = make_azure(machine.platform).evidence(QUALIFYING, now=now)
    mixed = replace(evidence, hcl=other.hcl, quote=other.quote)
    assert _refusal(mixed, _rules(machine), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.HCL_BLOB,
    )


def test_hardware_evidence_of_another_machine_is_refused(
    machine: EmulatedAzure,
    evidence: AzureEvidence,
    root_keys: RootKeys,
    now: datetime,
) -> None:
    """The report in the blob is signed by another chip than the key's."""
    assert isinstance(evidence.hardware, SnpEvidence)
    other = make_platform(root_keys, now=now)
    hardware = replace(evidence.hardware, vek=other.vek)
    assert _refusal(replace(evidence, hardware=hardware), _rules(machine), now) == (
        RefusalCode.BAD_SIGNATURE,
        Check.REPORT_SIGNATURE,
    )


@pytest.mark.parametrize("kind", ["other kind of report", "other kind of evidence"])
def test_other_kind_of_hardware_is_refused(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime, kind: str
) -> None:
    if kind == "other kind of report":
        report = encode_td_report(bytes(64), {})
        blob = BlobFields(report=report, runtime_data=b"{}", kind=4)
        bad = replace(evidence, hcl=encode_blob(blob))
        expected = RefusalCode.BINDING_MISMATCH
    else:
        bad = replace(evidence, tee=Tee.AZURE_TDX)
        expected = RefusalCode.MALFORMED
    assert _refusal(bad, _rules(machine), now) == (expected, AzureCheck.HCL_BLOB)


# --- runtime data -------------------------------------------------------------


def test_edited_runtime_data_are_refused(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime
) -> None:
    hcl = evidence.hcl.replace(b'"secure-boot":true', b'"secure-boot":null')
    assert hcl != evidence.hcl
    assert _refusal(replace(evidence, hcl=hcl), _rules(machine), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.RUNTIME_BINDING,
    )


@pytest.mark.parametrize("place", [0, 31, 32, 63], ids=str)
def test_report_data_must_be_the_hash_and_zeros(
    machine: EmulatedAzure, now: datetime, place: int
) -> None:
    digest = hashlib.sha256(machine.runtime_data()).digest()
    data = bytearray(digest.ljust(64, b"\0"))
    data[place] ^= 1
    changed = Changes(report=lambda fields: replace(fields, report_data=bytes(data)))
    bad = machine.evidence(QUALIFYING, now=now, changes=changed)
    assert _refusal(bad, _rules(machine), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.RUNTIME_BINDING,
    )


def test_binding_in_the_report_is_no_binding(
    machine: EmulatedAzure, now: datetime
) -> None:
    """Report data belong to the paravisor there; ours stand in the quote."""
    data = QUALIFYING.ljust(64, b"\0")
    changed = Changes(report=lambda fields: replace(fields, report_data=data))
    bad = machine.evidence(QUALIFYING, now=now, changes=changed)
    code, _ = _refusal(bad, _rules(machine), now)
    assert code is RefusalCode.BINDING_MISMATCH


@pytest.mark.parametrize(
    "runtime_data", [b"{}", b"not JSON", b'{"keys":[],"keys":[]}'], ids=str
)
def test_vouched_for_runtime_data_must_still_name_a_key(
    machine: EmulatedAzure, now: datetime, runtime_data: bytes
) -> None:
    changed = Changes(runtime_data=runtime_data)
    bad = machine.evidence(QUALIFYING, now=now, changes=changed)
    assert _refusal(bad, _rules(machine), now) == (
        RefusalCode.MALFORMED,
        AzureCheck.RUNTIME_DATA,
    )


def test_vouched_for_weak_key_is_refused(machine: EmulatedAzure, now: datetime) -> None:
    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - must be refused
    runtime_data = encode_runtime(runtime_object(weak.public_key()))
    bad = replace(machine, tpm=EmulatedTpm(key=weak)).evidence(
        QUALIFYING, now=now, changes=Changes(runtime_data=runtime_data)
    )
    assert _refusal(bad, _rules(machine), now) == (
        RefusalCode.UNSUPPORTED_ALGORITHM,
        AzureCheck.RUNTIME_DATA,
    )


# --- the quote ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code", "step"),
    [
        (
            {"banks": (AlgorithmId.SHA1,)},
            RefusalCode.UNSUPPORTED_ALGORITHM,
            QuoteCheck.PCR_SELECTION,
        ),
        ({"selected": (11,)}, RefusalCode.MALFORMED, QuoteCheck.PCR_SELECTION),
        (
            {"pcr_digest": bytes(32)},
            RefusalCode.BAD_SIGNATURE,
            QuoteCheck.PCR_VALUES,
        ),
        ({"kind": 0x8017}, RefusalCode.MALFORMED, QuoteCheck.QUOTE_LAYOUT),
    ],
    ids=["SHA-1", "selection", "digest", "no quote"],
)
def test_quote_is_held_against_every_rule(
    machine: EmulatedAzure,
    now: datetime,
    changes: dict[str, Any],
    code: RefusalCode,
    step: str,
) -> None:
    changed = Changes(quote=lambda fields: replace(fields, **changes))
    bad = machine.evidence(QUALIFYING, now=now, changes=changed)
    assert _refusal(bad, _rules(machine), now) == (code, step)


@pytest.mark.parametrize("which", ["none", "launch only", "no launch", "pcr", "launch"])
def test_measurement_is_enforced(
    machine: EmulatedAzure, evidence: AzureEvidence, now: datetime, which: str
) -> None:
    both = _measurement(machine)
    measurements: dict[str, tuple[Mapping[str, str], ...]] = {
        "none": (),
        "launch only": (_measurement(machine, "launch"),),
        "no launch": (_measurement(machine, "pcr11"),),
        "pcr": ({**both, "pcr11": "00" * 32},),
        "launch": ({**both, "launch": "00" * 48},),
    }
    rules = _rules(machine, measurements=measurements[which])
    assert _refusal(evidence, rules, now) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        QuoteCheck.MEASUREMENT,
    )


@given(data=st.binary(min_size=1, max_size=4), place=st.integers(0, 2599))
def test_any_change_of_the_blob_is_refused_or_changes_nothing(
    machine: EmulatedAzure,
    evidence: AzureEvidence,
    now: datetime,
    data: bytes,
    place: int,
) -> None:
    hcl = bytearray(evidence.hcl)
    hcl[place : place + len(data)] = data
    changed = replace(evidence, hcl=bytes(hcl[: len(evidence.hcl)]))
    rules = _rules(machine)
    true = verify_azure(evidence, rules, now=now, log=StepLog())
    with contextlib.suppress(RefusedError):
        claims = verify_azure(changed, rules, now=now, log=StepLog())
        # Only the header's version, 1 or 2, is free: nothing signs it.
        assert replace(claims, details={}) == replace(true, details={})


# --- through the doors --------------------------------------------------------


@pytest.fixture(scope="module")
def expectations(platform: EmulatedPlatform, now: datetime) -> Expectations:
    """Return a policy that pins one such machine's registers."""
    machine = azure_machine(platform, DEFAULT_MEASUREMENT)
    rules = make_any_deployment(machine, now=now).expectations()
    pinned = registers_of(machine.tee, DEFAULT_MEASUREMENT)
    return replace(rules, measurements={machine.tee.value: (pinned,)})


@pytest.fixture(scope="module")
def whole(platform: EmulatedPlatform) -> AzureMachine:
    return azure_machine(platform, DEFAULT_MEASUREMENT)


def test_qualifying_data_are_compared(
    expectations: Expectations, whole: AzureMachine, now: datetime
) -> None:
    evidence = whole.evidence(bytes(64), now=now)
    bound = qualifying_data_v2(bytes(64))
    verdict = verify_evidence(evidence, expectations, now=now, bound=bound)
    assert verdict.bound_checked
    assert verdict.claims.links[-1].subject == "TPM quote"
    for wrong in (bytes(64), bound[:16], bound[:16] + bytes(16), bound + b"\0", b""):
        with pytest.raises(RefusedError) as caught:
            verify_evidence(evidence, expectations, now=now, bound=wrong)
        assert caught.value.code is RefusalCode.BINDING_MISMATCH
        assert caught.value.step == Check.REPORT_DATA


def test_emulated_machine_is_refused_in_production(
    expectations: Expectations, whole: AzureMachine, now: datetime
) -> None:
    production = replace(expectations, environment=Environment.PRODUCTION)
    with pytest.raises(RefusedError) as caught:
        verify_evidence(
            whole.evidence(bytes(64), now=now), production, now=now, bound=None
        )
    assert caught.value.code is RefusalCode.EMULATED_REFUSED


def test_machine_that_says_it_is_genuine_is_refused(
    expectations: Expectations, whole: AzureMachine, now: datetime
) -> None:
    """Emulated evidence under the genuine name finds no root."""
    evidence = whole.evidence(bytes(64), now=now)
    assert isinstance(evidence, AzureEvidence)
    assert isinstance(evidence.hardware, SnpEvidence)
    lying = replace(
        evidence,
        tee=Tee.AZURE_SNP,
        hardware=replace(evidence.hardware, tee=Tee.SEV_SNP),
    )
    roots = (TrustAnchor.of_vendor(AnchorKind.AMD, "Genoa"), *expectations.roots)
    rules = replace(
        expectations,
        roots=roots,
        required_cpu_tees=frozenset({"azure-snp", whole.tee.value}),
    )
    with pytest.raises(RefusedError) as caught:
        verify_evidence(lying, rules, now=now, bound=None)
    assert caught.value.code is RefusalCode.UNTRUSTED_ROOT


def test_denied_platform_is_refused(
    expectations: Expectations, whole: AzureMachine, now: datetime
) -> None:
    chip = whole.platform.platform.chip_id.hex()
    denied = replace(
        expectations, platforms=PlatformExpectations(deny=frozenset({chip}))
    )
    with pytest.raises(RefusedError) as caught:
        verify_evidence(whole.evidence(bytes(64), now=now), denied, now=now, bound=None)
    assert caught.value.code is RefusalCode.PLATFORM_DENIED


# --- TDX ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def dcap_keys() -> DcapKeys:
    return generate_dcap_keys()


@pytest.fixture(scope="module")
def trust_domain(dcap_keys: DcapKeys, now: datetime) -> EmulatedTdx:
    return make_tdx_platform(dcap_keys, now=now)


def _td_evidence(
    machine: EmulatedAzure,
    trust_domain: EmulatedTdx,
    now: datetime,
    *,
    registers: Mapping[str, str] | None = None,
    report_data: bytes | None = None,
) -> AzureEvidence:
    """Quote a TD whose report data vouch for the machine's runtime data."""
    runtime_data = machine.runtime_data()
    data = hashlib.sha256(runtime_data).digest().ljust(64, b"\0")
    hardware = trust_domain.evidence(data, now=now)
    report = encode_td_report(
        report_data or data, {**trust_domain.measurement, **(registers or {})}
    )
    blob = BlobFields(report=report, runtime_data=runtime_data, kind=4)
    return AzureEvidence(
        tee=Tee.AZURE_TDX,
        hcl=encode_blob(blob),
        # The kind says only which roots apply; no kind of ours is both.
        hardware=replace(hardware, tee=Tee.TDX),
        quote=machine.tpm.quote(QuoteFields(extra_data=QUALIFYING)),
    )


def _td_rules(machine: EmulatedAzure, trust_domain: EmulatedTdx) -> AzureRules:
    rules = _rules(machine)
    measurement = {
        "mrtd": trust_domain.mrtd.hex(),
        **_measurement(machine, "pcr11"),
    }
    anchors = (trust_domain.anchor(),)
    tdx = replace(rules.tdx, anchors=anchors, measurements=(measurement,))
    return replace(rules, tdx=tdx)


def _verify_td(evidence: AzureEvidence, rules: AzureRules, now: datetime) -> CpuClaims:
    return verify_azure(evidence, rules, now=now, log=StepLog())


def test_td_evidence_is_verified(
    machine: EmulatedAzure, trust_domain: EmulatedTdx, now: datetime
) -> None:
    evidence = _td_evidence(machine, trust_domain, now)
    claims = _verify_td(evidence, _td_rules(machine, trust_domain), now)
    assert claims.bound == QUALIFYING
    assert claims.registers["mrtd"] == trust_domain.mrtd.hex()
    assert claims.registers["pcr11"] == machine.registers()["pcr11"]
    assert claims.details["hardware"] == "tdx"


@pytest.mark.parametrize(
    "name", ["mrtd", "rtmr0", "rtmr3", "mrconfigid", "mrowner", "mrownerconfig"]
)
def test_td_report_with_other_registers_is_refused(
    machine: EmulatedAzure, trust_domain: EmulatedTdx, now: datetime, name: str
) -> None:
    bad = _td_evidence(machine, trust_domain, now, registers={name: "77" * 48})
    assert _refusal(bad, _td_rules(machine, trust_domain), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.TD_REPORT,
    )


def test_td_report_with_other_report_data_is_refused(
    machine: EmulatedAzure, trust_domain: EmulatedTdx, now: datetime
) -> None:
    bad = _td_evidence(machine, trust_domain, now, report_data=b"\1" * 64)
    assert _refusal(bad, _td_rules(machine, trust_domain), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.TD_REPORT,
    )


def test_td_quote_with_another_kind_of_report_is_refused(
    machine: EmulatedAzure, trust_domain: EmulatedTdx, now: datetime
) -> None:
    """Everything else holds: the quote vouches for these runtime data."""
    evidence = _td_evidence(machine, trust_domain, now)
    blob = BlobFields(report=bytes(1184), runtime_data=machine.runtime_data())
    bad = replace(evidence, hcl=encode_blob(blob))
    assert _refusal(bad, _td_rules(machine, trust_domain), now) == (
        RefusalCode.BINDING_MISMATCH,
        AzureCheck.HCL_BLOB,
    )


def test_td_quote_under_another_root_is_refused(
    machine: EmulatedAzure, trust_domain: EmulatedTdx, now: datetime
) -> None:
    rules = _td_rules(machine, trust_domain)
    rules = replace(rules, tdx=replace(rules.tdx, anchors=()))
    code, _ = _refusal(_td_evidence(machine, trust_domain, now), rules, now)
    assert code is RefusalCode.UNTRUSTED_ROOT


def test_td_measurement_is_enforced(
    machine: EmulatedAzure, trust_domain: EmulatedTdx, now: datetime
) -> None:
    rules = _td_rules(machine, trust_domain)
    firmware = {"mrtd": trust_domain.mrtd.hex()}
    rules = replace(rules, tdx=replace(rules.tdx, measurements=(firmware,)))
    code, _ = _refusal(_td_evidence(machine, trust_domain, now), rules, now)
    assert code is RefusalCode.MEASUREMENT_NOT_ALLOWED
