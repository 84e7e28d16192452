"""Genuine evidence of Azure confidential VMs, under AMD's and Intel's own roots.

One TDX sample comes with Intel's collateral of its time; of the others everything is
checked but the quote's own signatures.
"""

import base64
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.amd_tcb import Tcb
from curtilage.attest.azure.hcl import (
    HardwareKind,
    parse_hcl,
    parse_runtime_data,
    parse_td_report,
)
from curtilage.attest.azure.verify import AzureRules, verify_azure
from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmQuote,
)
from curtilage.attest.expectations import (
    AnchorKind,
    SnpExpectations,
    TdxExpectations,
    TrustAnchor,
)
from curtilage.attest.sev_snp.verify import SnpRules
from curtilage.attest.steps import StepLog
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.tdx.verify import TdxRules
from curtilage.attest.tpm.quote import verify_quote
from support.tdx_evidence import collateral_of

# Inside the validity of the Milan list and of both keys.
NOW = datetime(2025, 9, 1, tzinfo=UTC)
ANY_TCB = Tcb(bl=0, tee=0, snp=0, ucode=0)
SAMPLES = ["evidence-v0.json", "evidence-v2.json"]
TDX_SAMPLES = ["evidence-v0.json", "evidence-v1.json"]


def _octets(value: object) -> bytes:
    """Decode what the samples hold: numbers, hex, base64url or PEM."""
    if isinstance(value, list):
        return bytes(cast("list[int]", value))
    assert isinstance(value, str)
    if value.startswith("-----"):
        # By hand: the library warns of a chip's serial number, which is 0.
        return base64.b64decode("".join(value.strip().splitlines()[1:-1]))
    if all(character in "0123456789abcdef" for character in value):
        return bytes.fromhex(value)
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


def _quote(value: dict[str, Any]) -> TpmQuote:
    return TpmQuote(
        message=_octets(value["message"]),
        signature=_octets(value["signature"]),
        pcrs=tuple(enumerate(_octets(each) for each in value["pcrs"])),
    )


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The folder of genuine samples."""

    folder: Path

    def _pem(self, name: str) -> list[bytes]:
        path = self.folder / "sev-snp" / "roots" / name
        parsed = x509.load_pem_x509_certificates(path.read_bytes())
        return [each.public_bytes(Encoding.DER) for each in parsed]

    def evidence(self, name: str) -> AzureEvidence:
        text = (self.folder / "azure-cvm" / name).read_text()
        values = json.loads(text)
        hcl = _octets(values.get("report") or values["hcl_report"])
        ask, ark = self._pem("ask_ark_milan.pem")
        crl = self.folder / "sev-snp" / "crl" / "milan-crl6-2025-05-06.pem"
        hardware = SnpEvidence(
            tee=Tee.SEV_SNP,
            report=parse_hcl(hcl).report,
            vek=_octets(values["vcek"]),
            ask=ask,
            ark=ark,
            crl=x509.load_pem_x509_crl(crl.read_bytes()).public_bytes(Encoding.DER),
        )
        return AzureEvidence(
            tee=Tee.AZURE_SNP,
            hcl=hcl,
            hardware=hardware,
            quote=_quote(values.get("quote") or values["tpm_quote"]),
        )


@pytest.fixture(scope="module")
def samples(shared_dir: Path) -> Samples:
    folder = shared_dir / "evidence"
    if not (folder / "azure-cvm").is_dir():
        pytest.skip("SKIPPED LOUDLY: no genuine Azure samples in evidence/azure-cvm")
    return Samples(folder=folder)


def _rules(evidence: AzureEvidence, product: str = "Milan") -> AzureRules:
    report = parse_hcl(evidence.hcl).report
    launch = {"launch": report[0x90:0xC0].hex()}
    pcrs = {f"pcr{index}": value.hex() for index, value in evidence.quote.pcrs}
    snp = SnpRules(
        anchors=(TrustAnchor.of_vendor(AnchorKind.AMD, product),),
        expectations=SnpExpectations(min_tcb={"Milan": ANY_TCB}),
        clock_skew_s=60,
        release_min_tcb={},
        measurements=({**launch, **pcrs},),
    )
    tdx = TdxRules(
        anchors=(TrustAnchor.of_vendor(AnchorKind.INTEL),),
        expectations=TdxExpectations(),
        clock_skew_s=60,
        measurements=(),
    )
    return AzureRules(snp=snp, tdx=tdx)


def _verify(
    evidence: AzureEvidence, rules: AzureRules, now: datetime = NOW
) -> CpuClaims:
    return verify_azure(evidence, rules, now=now, log=StepLog())


def _refusal(
    evidence: AzureEvidence, rules: AzureRules, now: datetime = NOW
) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _verify(evidence, rules, now)
    return caught.value.code


@pytest.mark.parametrize("name", SAMPLES)
def test_genuine_evidence_is_verified(samples: Samples, name: str) -> None:
    evidence = samples.evidence(name)
    claims = _verify(evidence, _rules(evidence))
    expected = {
        "evidence-v0.json": b"challenge".hex(),
        "evidence-v2.json": "982f5c6e45df0ed3f10b6f60b02f0c83",
    }
    assert claims.bound.hex().startswith(expected[name])
    pcrs = {f"pcr{index}" for index in range(24)}
    assert set(claims.registers) == {"launch", "hostdata"} | pcrs
    assert claims.details["vm_settings"] == (
        "console-enabled",
        "secure-boot",
        "tpm-enabled",
    )
    chip_id = parse_hcl(evidence.hcl).report[0x1A0:0x1E0]
    assert claims.platform == chip_id.hex()


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (datetime(2026, 6, 1, tzinfo=UTC), RefusalCode.CRL_EXPIRED),
        (datetime(2033, 6, 1, tzinfo=UTC), RefusalCode.EXPIRED_ENDORSEMENT),
        (datetime(2025, 5, 1, tzinfo=UTC), RefusalCode.NOT_YET_VALID),
    ],
    ids=["list ended", "key expired", "list not begun"],
)
def test_genuine_evidence_at_other_times_is_refused(
    samples: Samples, now: datetime, code: RefusalCode
) -> None:
    evidence = samples.evidence("evidence-v2.json")
    assert _refusal(evidence, _rules(evidence), now) is code


def test_genuine_evidence_under_another_root_is_refused(samples: Samples) -> None:
    evidence = samples.evidence("evidence-v2.json")
    rules = _rules(evidence, "Genoa")
    assert _refusal(evidence, rules) is RefusalCode.UNTRUSTED_ROOT


def test_quote_of_another_genuine_machine_is_refused(samples: Samples) -> None:
    one, other = (samples.evidence(name) for name in SAMPLES)
    mixed = replace(one, quote=other.quote)
    assert _refusal(mixed, _rules(one)) is RefusalCode.BAD_SIGNATURE


def test_blob_of_another_genuine_machine_is_refused(samples: Samples) -> None:
    one, other = (samples.evidence(name) for name in SAMPLES)
    mixed = replace(one, hcl=other.hcl)
    assert _refusal(mixed, _rules(one)) is RefusalCode.BINDING_MISMATCH


def test_edited_runtime_data_are_refused(samples: Samples) -> None:
    evidence = samples.evidence("evidence-v2.json")
    edited = evidence.hcl.replace(b'"secure-boot":true', b'"secure-boot":null')
    assert edited != evidence.hcl
    assert (
        _refusal(replace(evidence, hcl=edited), _rules(evidence))
        is RefusalCode.BINDING_MISMATCH
    )


@pytest.mark.parametrize("offset", [32 + 0x08, 32 + 0x90, 32 + 0x1A0])
def test_flipped_hardware_report_is_refused(samples: Samples, offset: int) -> None:
    evidence = samples.evidence("evidence-v0.json")
    hcl = bytearray(evidence.hcl)
    hcl[offset] ^= 1
    report = parse_hcl(bytes(hcl)).report
    assert isinstance(evidence.hardware, SnpEvidence)
    hardware = replace(evidence.hardware, report=report)
    flipped = replace(evidence, hcl=bytes(hcl), hardware=hardware)
    assert _refusal(flipped, _rules(evidence)) is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize("name", TDX_SAMPLES)
def test_genuine_td_report_is_in_its_quote(samples: Samples, name: str) -> None:
    text = (samples.folder / "azure-cvm" / "tdx" / name).read_text()
    values = json.loads(text)
    blob = parse_hcl(_octets(values["hcl_report"]))
    assert blob.kind is HardwareKind.TDX
    report = parse_td_report(blob.report)
    quoted = parse_quote(_octets(values["td_quote"])).report
    assert quoted.report_data == report.report_data
    assert quoted.mrtd.hex() == report.registers["mrtd"]
    assert tuple(each.hex() for each in quoted.rtmr) == tuple(
        report.registers[f"rtmr{index}"] for index in range(4)
    )
    key = parse_runtime_data(blob.runtime_data).attestation_key
    quote = verify_quote(_quote(values["tpm_quote"]), key, log=StepLog())
    assert quote.extra_data == b"challenge"


def test_genuine_td_without_collateral_is_refused(samples: Samples) -> None:
    text = (samples.folder / "azure-cvm" / "tdx" / "evidence-v1.json").read_text()
    values = json.loads(text)
    evidence = AzureEvidence(
        tee=Tee.AZURE_TDX,
        hcl=_octets(values["hcl_report"]),
        hardware=TdxEvidence(
            tee=Tee.TDX, quote=_octets(values["td_quote"]), collateral=b""
        ),
        quote=_quote(values["tpm_quote"]),
    )
    assert _refusal(evidence, _rules(evidence)) is RefusalCode.COLLATERAL_INVALID


TD_NOW = datetime(2026, 3, 25, tzinfo=UTC)
MRTD = (
    "273828c46252fcbdd8ad2dd907130222b03466d52a2911d7"
    "0c1a5950895d6bd1ae451d382d5a9b1b4c0ed0e5ae9a3dbd"
)


def _td(samples: Samples) -> AzureEvidence:
    folder = samples.folder / "azure-cvm" / "tdx-whole-2026"
    values = json.loads((folder / "live-evidence.json").read_text())
    quote = _octets(values["td_quote"])
    return AzureEvidence(
        tee=Tee.AZURE_TDX,
        hcl=_octets(values["hcl_report"]),
        hardware=TdxEvidence(
            tee=Tee.TDX, quote=quote, collateral=collateral_of(folder, quote)
        ),
        quote=_quote(values["tpm_quote"]),
    )


def _td_rules(evidence: AzureEvidence, **changes: str) -> AzureRules:
    rules = _rules(evidence)
    pcrs = {f"pcr{index}": value.hex() for index, value in evidence.quote.pcrs}
    measurement = {"mrtd": MRTD, **pcrs, **changes}
    return replace(rules, tdx=replace(rules.tdx, measurements=(measurement,)))


def test_genuine_td_is_verified(samples: Samples) -> None:
    evidence = _td(samples)
    claims = _verify(evidence, _td_rules(evidence), TD_NOW)
    assert claims.registers["mrtd"] == MRTD
    # There the vTPM's registers hold what was started.
    assert {claims.registers[f"rtmr{index}"] for index in range(4)} == {"00" * 48}
    assert claims.registers["pcr4"].strip("0")
    assert claims.details["hardware"] == "tdx"
    assert claims.details["vm_settings"] == (
        "console-enabled",
        "secure-boot",
        "tpm-enabled",
        "tpm-persisted",
    )


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (datetime(2026, 3, 16, tzinfo=UTC), RefusalCode.NOT_YET_VALID),
        (datetime(2026, 4, 15, 22, 7, tzinfo=UTC), RefusalCode.COLLATERAL_EXPIRED),
    ],
    ids=["collateral not begun", "collateral ended"],
)
def test_genuine_td_at_other_times_is_refused(
    samples: Samples, now: datetime, code: RefusalCode
) -> None:
    evidence = _td(samples)
    assert _refusal(evidence, _td_rules(evidence), now) is code


@pytest.mark.parametrize("name", ["mrtd", "rtmr3", "pcr4", "pcr11"])
def test_genuine_td_with_another_register_is_refused(
    samples: Samples, name: str
) -> None:
    evidence = _td(samples)
    value = "77" * (32 if name.startswith("pcr") else 48)
    rules = _td_rules(evidence, **{name: value})
    assert _refusal(evidence, rules, TD_NOW) is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_genuine_td_under_another_root_is_refused(samples: Samples) -> None:
    evidence = _td(samples)
    rules = _td_rules(evidence)
    amd = (TrustAnchor.of_vendor(AnchorKind.AMD, "Milan"),)
    rules = replace(rules, tdx=replace(rules.tdx, anchors=amd))
    assert _refusal(evidence, rules, TD_NOW) is RefusalCode.UNTRUSTED_ROOT


def test_genuine_td_with_another_vms_parts_is_refused(samples: Samples) -> None:
    evidence = _td(samples)
    text = (samples.folder / "azure-cvm" / "tdx" / "evidence-v1.json").read_text()
    other = json.loads(text)
    mixed = replace(evidence, quote=_quote(other["tpm_quote"]))
    rules = _td_rules(evidence)
    assert _refusal(mixed, rules, TD_NOW) is RefusalCode.BAD_SIGNATURE
    mixed = replace(evidence, hcl=_octets(other["hcl_report"]))
    assert _refusal(mixed, rules, TD_NOW) is RefusalCode.BINDING_MISMATCH


@pytest.mark.parametrize("name", ["openpcc_hcl_snp_genoa.bin", "openpcc_hcl_tdx.bin"])
def test_genuine_blob_is_read(samples: Samples, name: str) -> None:
    blob = parse_hcl((samples.folder / "azure-cvm" / name).read_bytes())
    assert blob.version == 2
    assert parse_runtime_data(blob.runtime_data).attestation_key.key_size == 2048
