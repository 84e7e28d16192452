"""Genuine SEV-SNP evidence through the same verifier, under AMD's own roots."""

# ruff: noqa: ANN401 - fields of every type are changed by name

import base64
import hashlib
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "dev"))

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Anchor, EvidenceBundle, Release, SnpEvidence, Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import (
    VENDOR_ROOT_FINGERPRINTS,
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    LogExpectations,
    SnpExpectations,
    TrustAnchor,
)
from curtilage.attest.log.manifest import encode_manifest
from curtilage.attest.sev_snp import verify as snp
from curtilage.attest.sev_snp.certificates import AMD_ARC, parse_certificate
from curtilage.attest.sev_snp.chain import (
    CheckedList,
    VekChain,
    check_dates,
    check_issued,
    check_revocation,
)
from curtilage.attest.sev_snp.report import SigningKey, parse_report
from curtilage.attest.sev_snp.verify import SnpRules, verify_snp
from curtilage.attest.steps import Check, StepLog
from curtilage.attest.verify import verify
from curtilage.wire.shaping import PADDED
from curtilage_dev.deployment import make_manifest
from curtilage_dev.emulated.snp_pki import generate_root_keys, make_platform
from curtilage_dev.log import DevelopmentLog, new_signer, new_witness

# Inside the validity of the Milan list (6 May 2025 to 12 May 2026) and of the
# VLEK (10 December 2024 to 10 December 2025).
NOW = datetime(2025, 9, 1, tzinfo=UTC)
ANY_TCB = Tcb(bl=0, tee=0, snp=0, ucode=0)
PRODUCTS = {"Milan": "milan", "Genoa": "genoa", "Turin": "turin_vcek"}


def _pem(path: Path, index: int) -> bytes:
    certificates = x509.load_pem_x509_certificates(path.read_bytes())
    return certificates[index].public_bytes(Encoding.DER)


def _lone_pem(path: Path) -> bytes:
    # By hand: the library warns of a chip's serial number, which is 0.
    return base64.b64decode("".join(path.read_text().strip().splitlines()[1:-1]))


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The folder of genuine samples."""

    folder: Path

    def root(self, product: str) -> TrustAnchor:
        path = self.folder / "roots" / f"ask_ark_{PRODUCTS[product]}.pem"
        return TrustAnchor.of_certificate(AnchorKind.AMD, product, _pem(path, 1))

    def crl(self) -> bytes:
        path = self.folder / "crl" / "milan-crl6-2025-05-06.pem"
        return x509.load_pem_x509_crl(path.read_bytes()).public_bytes(Encoding.DER)

    def evidence(self, name: str, *, vek: str = "vcek.der") -> SnpEvidence:
        kind = "milan_vlek" if vek == "vlek.der" else "milan"
        return SnpEvidence(
            tee=Tee.SEV_SNP,
            report=(self.folder / name / "report.bin").read_bytes(),
            vek=(self.folder / name / vek).read_bytes(),
            ask=_pem(self.folder / "roots" / f"ask_ark_{kind}.pem", 0),
            crl=self.crl(),
        )


@pytest.fixture(scope="module")
def samples(shared_dir: Path) -> Samples:
    folder = shared_dir / "evidence" / "sev-snp"
    if not folder.is_dir():
        pytest.skip("SKIPPED LOUDLY: no genuine SEV-SNP samples in evidence/sev-snp")
    return Samples(folder=folder)


def _rules(samples: Samples, evidence: SnpEvidence, **changes: Any) -> SnpRules:
    snp = SnpExpectations(min_tcb={"Milan": ANY_TCB}, min_version=2)
    return SnpRules(
        anchors=(samples.root("Milan"),),
        expectations=replace(snp, **changes),
        clock_skew_s=60,
        release_min_tcb={},
        measurements=({"launch": evidence.report[0x90:0xC0].hex()},),
    )


def _verify(
    evidence: SnpEvidence, rules: SnpRules, now: datetime = NOW
) -> tuple[CpuClaims, StepLog]:
    log = StepLog()
    return verify_snp(evidence, rules, now=now, log=log), log


def _refusal(
    evidence: SnpEvidence, rules: SnpRules, now: datetime = NOW
) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        _verify(evidence, rules, now)
    return caught.value


VLEK = "trustee-vlek-milan-v3-vmpl1"
DEBUG = "go-sev-guest-milan-v2-DEBUG"


def test_the_pinned_fingerprints_are_amds(samples: Samples) -> None:
    fingerprints = {name: samples.root(name).fingerprint for name in PRODUCTS}
    assert fingerprints == VENDOR_ROOT_FINGERPRINTS[AnchorKind.AMD]


@pytest.mark.parametrize(
    ("name", "measurement"),
    [
        ("virtee-milan-v2", "7a1e5c266c0108dbc9bb94fa92695132"),
        ("trustee-milan-v2", "a1f3930413247bb38cfc171579ea3c12"),
    ],
)
def test_genuine_vcek_report_is_verified(
    samples: Samples, name: str, measurement: str
) -> None:
    evidence = samples.evidence(name)
    claims, log = _verify(evidence, _rules(samples, evidence))
    assert claims.registers["launch"].startswith(measurement)
    assert [step.number for step in log.steps] == list(range(1, 15))


def test_genuine_vlek_report_is_verified(samples: Samples) -> None:
    evidence = samples.evidence(VLEK, vek="vlek.der")
    rules = _rules(
        samples,
        evidence,
        min_version=3,
        allow_vlek=True,
        allow_masked_chip=True,
        vmpl=frozenset({1}),
    )
    claims, _ = _verify(evidence, rules)
    assert claims.registers["launch"].startswith("8922ebbdd00ec2c541f36a6e7a82a877")


@pytest.mark.parametrize(
    ("forbid", "code"),
    [
        ({"allow_vlek": False}, RefusalCode.ENDORSEMENT_MISMATCH),
        ({"allow_masked_chip": False}, RefusalCode.ENDORSEMENT_MISMATCH),
        ({"vmpl": frozenset({0})}, RefusalCode.VMPL),
        ({"min_version": 4}, RefusalCode.UNSUPPORTED_VERSION),
        (
            {"min_tcb": {"Milan": Tcb(bl=4, tee=0, snp=24, ucode=218)}},
            RefusalCode.TCB_TOO_LOW,
        ),
    ],
    ids=["vlek", "masked", "vmpl", "version", "tcb"],
)
def test_genuine_vlek_report_is_refused(
    samples: Samples, forbid: dict[str, Any], code: RefusalCode
) -> None:
    evidence = samples.evidence(VLEK, vek="vlek.der")
    allow = {"allow_vlek": True, "allow_masked_chip": True, "vmpl": frozenset({1})}
    assert (
        _refusal(evidence, _rules(samples, evidence, **{**allow, **forbid})).code
        is code
    )


def test_genuine_debug_report_is_refused(samples: Samples) -> None:
    evidence = samples.evidence(DEBUG)
    error = _refusal(evidence, _rules(samples, evidence))
    assert error.code is RefusalCode.DEBUG_ENABLED


def test_genuine_version_2_is_refused_by_default(samples: Samples) -> None:
    evidence = samples.evidence("virtee-milan-v2")
    error = _refusal(evidence, _rules(samples, evidence, min_version=3))
    assert error.code is RefusalCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("form", ["legacy", "new"])
def test_edited_genuine_certificate_is_refused(samples: Samples, form: str) -> None:
    evidence = samples.evidence("trustee-milan-v2", vek=f"test-vcek-invalid-{form}.der")
    error = _refusal(evidence, _rules(samples, evidence))
    assert (error.code, error.detail) == (RefusalCode.CHAIN_INVALID, "VEK: signature")


@pytest.mark.parametrize("offset", [0x04, 0x10, 0x50, 0x90, 0xC0, 0x140, 0x1A0, 0x1E8])
def test_flipped_genuine_report_is_refused(samples: Samples, offset: int) -> None:
    evidence = samples.evidence("virtee-milan-v2")
    report = bytearray(evidence.report)
    report[offset] ^= 1
    flipped = replace(evidence, report=bytes(report))
    error = _refusal(flipped, _rules(samples, evidence))
    assert error.code is RefusalCode.BAD_SIGNATURE


def test_genuine_key_of_another_chip_is_refused(samples: Samples) -> None:
    evidence = samples.evidence("virtee-milan-v2")
    other = replace(evidence, vek=samples.evidence("trustee-milan-v2").vek)
    assert _refusal(other, _rules(samples, evidence)).code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (datetime(2026, 6, 1, tzinfo=UTC), RefusalCode.CRL_EXPIRED),
        (datetime(2025, 5, 1, tzinfo=UTC), RefusalCode.NOT_YET_VALID),
        (datetime(2030, 6, 1, tzinfo=UTC), RefusalCode.EXPIRED_ENDORSEMENT),
        (datetime(2021, 6, 1, tzinfo=UTC), RefusalCode.NOT_YET_VALID),
    ],
    ids=["list ended", "list not begun", "key expired", "key not begun"],
)
def test_genuine_evidence_at_other_times_is_refused(
    samples: Samples, now: datetime, code: RefusalCode
) -> None:
    evidence = samples.evidence("virtee-milan-v2")
    assert _refusal(evidence, _rules(samples, evidence), now).code is code


def test_genuine_list_of_another_product_is_refused(samples: Samples) -> None:
    path = samples.folder / "crl" / "genoa-crl4-2024-10-23.pem"
    genoa = x509.load_pem_x509_crl(path.read_bytes()).public_bytes(Encoding.DER)
    evidence = samples.evidence("virtee-milan-v2")
    error = _refusal(replace(evidence, crl=genoa), _rules(samples, evidence))
    assert error.code is RefusalCode.CRL_INVALID


def test_genuine_evidence_under_another_root_is_refused(samples: Samples) -> None:
    evidence = samples.evidence("virtee-milan-v2")
    rules = _rules(samples, evidence)
    untrusted = replace(rules, anchors=(samples.root("Genoa"),))
    assert _refusal(evidence, untrusted).code is RefusalCode.UNTRUSTED_ROOT
    posing = replace(samples.root("Genoa"), product="Milan")
    error = _refusal(evidence, replace(rules, anchors=(posing,)))
    assert error.code is RefusalCode.CHAIN_INVALID


def test_genuine_version_4_report_is_read(samples: Samples) -> None:
    path = samples.folder / "gce-milan-v4-novcek" / "report.bin"
    report = parse_report(path.read_bytes())
    assert (report.version, report.product) == (4, Product.MILAN)
    assert report.signing_key is SigningKey.VCEK
    assert report.chip_id.hex().startswith("12d937a2e0fa6469")


def test_genuine_turin_certificate_is_read(samples: Samples) -> None:
    der = (samples.folder / "turin-vcek-only" / "vcek_turin.der").read_bytes()
    vek = parse_certificate(der, "VEK")
    assert (vek.common_name, vek.serial, len(vek.unrecognised[AMD_ARC + "4"])) == (
        "SEV-VCEK",
        0,
        8,
    )


TURIN_NOW = datetime(2026, 3, 1, tzinfo=UTC)
TURIN_LAUNCH = (
    "6d6c354511d6f7c6d7504668903dc5bdc066a048b651840d"
    "8d03fb85299ebfa142fccf1d1b0baca496841bdf243619d4"
)
TURIN_HOST_DATA = "b3452a0ed30f1010bd32740dd1610bc63296ceb0f882f2cac3a3152d651fe7e4"
TURIN_TCB = Tcb(fmc=1, bl=1, tee=1, snp=4, ucode=81)


def _turin(samples: Samples) -> SnpEvidence:
    folder = samples.folder / "turin-v5-2026"
    return SnpEvidence(
        tee=Tee.SEV_SNP,
        report=(folder / "turin_attestation_report.bin").read_bytes(),
        vek=_lone_pem(folder / "turin_vcek.pem"),
        ask=_lone_pem(folder / "turin_ask.pem"),
        ark=_lone_pem(folder / "turin_ark.pem"),
        crl=b"",
    )


def _turin_rules(**changes: Any) -> SnpRules:
    return SnpRules(
        anchors=(TrustAnchor.of_vendor(AnchorKind.AMD, "Turin"),),
        expectations=replace(
            SnpExpectations(min_tcb={"Turin": TURIN_TCB}, min_version=5), **changes
        ),
        clock_skew_s=60,
        release_min_tcb={},
        measurements=({"launch": TURIN_LAUNCH, "hostdata": TURIN_HOST_DATA},),
    )


def test_genuine_turin_report_lacks_only_its_list(samples: Samples) -> None:
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_snp(_turin(samples), _turin_rules(), now=TURIN_NOW, log=log)
    assert caught.value.code is RefusalCode.CRL_MISSING
    assert [step.name for step in log.steps] == [
        Check.REPORT_LAYOUT,
        Check.SIGNING_KEY,
        Check.PINNED_ROOT,
        Check.CERTIFICATE_CHAIN,
        Check.CERTIFICATE_DATES,
    ]


@pytest.fixture
def turin_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's list for Turin, which is not among the samples: it revokes nothing."""

    def check(*_: object, **__: object) -> CheckedList:
        end = TURIN_NOW + timedelta(days=30)
        return CheckedList(end=end, revoked=0, fingerprint="0" * 64)

    monkeypatch.setattr(snp, "check_revocation", check)


@pytest.mark.usefixtures("turin_list")
def test_all_else_of_the_genuine_turin_report_is_verified(samples: Samples) -> None:
    claims, log = _verify(_turin(samples), _turin_rules(), TURIN_NOW)
    assert [step.number for step in log.steps] == list(range(1, 15))
    assert claims.registers == {"launch": TURIN_LAUNCH, "hostdata": TURIN_HOST_DATA}
    assert claims.platform.startswith("59790fb1c39f35c1")
    expected = {
        "product": "Turin",
        "version": 5,
        "signer": "VCEK",
        "cpu": "family 0x1a, model 0x2, stepping 0x1",
        "reported_tcb": "fmc 1, bl 1, tee 1, snp 4, ucode 81",
        "launch_mitigations": "0x000000000000003f",
        "current_mitigations": "0x000000000000003f",
    }
    assert {name: claims.details[name] for name in expected} == expected


@pytest.mark.usefixtures("turin_list")
@pytest.mark.parametrize("component", ["fmc", "bl", "tee", "snp", "ucode"])
def test_genuine_turin_firmware_below_the_minimum_is_refused(
    samples: Samples, component: str
) -> None:
    higher = replace(TURIN_TCB, **{component: getattr(TURIN_TCB, component) + 1})
    rules = _turin_rules(min_tcb={"Turin": higher})
    error = _refusal(_turin(samples), rules, TURIN_NOW)
    assert error.code is RefusalCode.TCB_TOO_LOW


@pytest.mark.usefixtures("turin_list")
def test_genuine_turin_report_with_other_host_data_is_refused(
    samples: Samples,
) -> None:
    launch = ({"launch": TURIN_LAUNCH},)
    rules = replace(_turin_rules(), measurements=launch)
    error = _refusal(_turin(samples), rules, TURIN_NOW)
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


@pytest.mark.usefixtures("turin_list")
@pytest.mark.parametrize("offset", [0x50, 0x90, 0xC0, 0x1A0, 0x1F8, 0x200])
def test_flipped_genuine_turin_report_is_refused(samples: Samples, offset: int) -> None:
    report = bytearray(_turin(samples).report)
    report[offset] ^= 1
    flipped = replace(_turin(samples), report=bytes(report))
    error = _refusal(flipped, _turin_rules(), TURIN_NOW)
    assert error.code is RefusalCode.BAD_SIGNATURE


def _chain(samples: Samples, roots: str, vek: bytes, product: Product) -> VekChain:
    path = samples.folder / "roots" / f"ask_ark_{roots}.pem"
    return VekChain(
        product=product,
        vlek=roots.endswith("_vlek"),
        provider="",
        ark=parse_certificate(_pem(path, 1), "ARK"),
        ask=parse_certificate(_pem(path, 0), "ASK"),
        vek=parse_certificate(vek, "VEK"),
    )


def test_genuine_turin_chain_is_verified(samples: Samples) -> None:
    folder = samples.folder / "turin-vcek-only"
    der = (folder / "vcek_turin.der").read_bytes()
    chain = _chain(samples, "turin_vcek", der, Product.TURIN)
    check_issued(chain)
    check_dates(chain, now=NOW)
    assert chain.hardware_id(8).hex() == "1e550a8ee5cf9f4d"
    assert chain.endorsed_tcb() == bytes([0, 0, 0, 0, 0, 0, 0, 9])
    served = _pem(folder / "cert_chain_turin", 1)
    assert samples.root("Turin").fingerprint == hashlib.sha256(served).hexdigest()
    other = replace(chain, product=Product.GENOA)
    with pytest.raises(RefusedError):
        check_issued(other)


@pytest.mark.parametrize(
    ("roots", "product"),
    [
        ("milan_vlek", Product.MILAN),
        ("genoa_vlek", Product.GENOA),
        ("turin_vlek", Product.TURIN),
        ("genoa", Product.GENOA),
    ],
)
def test_genuine_intermediates_are_the_roots(
    samples: Samples, roots: str, product: Product
) -> None:
    """The key below is Turin's, so it is the first that does not fit."""
    der = (samples.folder / "turin-vcek-only" / "vcek_turin.der").read_bytes()
    with pytest.raises(RefusedError) as caught:
        check_issued(_chain(samples, roots, der, product))
    assert caught.value.detail == "VEK: issuer's name"


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (datetime(2025, 1, 1, tzinfo=UTC), None),
        (datetime(2025, 12, 1, tzinfo=UTC), RefusalCode.CRL_EXPIRED),
    ],
    ids=["current", "ended"],
)
def test_genuine_genoa_list_revokes_another_intermediate(
    samples: Samples, now: datetime, code: RefusalCode | None
) -> None:
    path = samples.folder / "crl" / "genoa-crl4-2024-10-23.pem"
    genoa = x509.load_pem_x509_crl(path.read_bytes()).public_bytes(Encoding.DER)
    der = (samples.folder / "turin-vcek-only" / "vcek_turin.der").read_bytes()
    chain = _chain(samples, "genoa", der, Product.GENOA)
    limits = {"max_age_s": 400 * 86400, "clock_skew_s": 60}
    if code is None:
        assert check_revocation(genoa, chain, **limits, now=now).revoked == 1
        old = replace(chain, ask=replace(chain.ask, serial=0x20001))
        with pytest.raises(RefusedError) as caught:
            check_revocation(genoa, old, **limits, now=now)
        assert caught.value.code is RefusalCode.REVOKED
        return
    with pytest.raises(RefusedError) as caught:
        check_revocation(genoa, chain, **limits, now=now)
    assert caught.value.code is code


@pytest.mark.parametrize("order", ["as served by AMD", "the other way round"])
def test_genuine_root_is_pinned_by_its_fingerprint(
    samples: Samples, order: str
) -> None:
    evidence = samples.evidence("virtee-milan-v2")
    root = samples.root("Milan").certificate_der
    served = replace(evidence, ark=root)
    if order == "the other way round":
        served = replace(evidence, ask=root, ark=evidence.ask)
    rules = replace(
        _rules(samples, evidence),
        anchors=(TrustAnchor.of_vendor(AnchorKind.AMD, "Milan"),),
    )
    claims, _ = _verify(served, rules)
    assert claims.links[0].fingerprint == samples.root("Milan").fingerprint
    assert _refusal(evidence, rules).code is RefusalCode.UNTRUSTED_ROOT


# --- the whole of verify ------------------------------------------------------


def _whole(
    samples: Samples, evidence: SnpEvidence
) -> tuple[EvidenceBundle, Expectations]:
    """Combine genuine evidence with a log of ours that lists its measurement."""
    measured = {"sev-snp": ({"launch": evidence.report[0x90:0xC0].hex()},)}
    manifest = encode_manifest(replace(make_manifest(NOW), measurements=measured))
    witness = new_witness("witness.example")
    log = DevelopmentLog(
        signer=new_signer("log.example"), witnesses=(witness,), leaves=(manifest, b"2")
    )
    moment = int(NOW.timestamp())
    bundle = EvidenceBundle(
        key_configs=b"keys",
        not_before=moment,
        not_after=moment + 3600,
        release=Release(manifest=manifest, proof=log.proof(0, NOW)),
        anchor=Anchor(
            origin="log.example",
            size=2,
            root=log.root,
            time=moment,
            checkpoint=log.checkpoint(NOW),
        ),
        cpu=evidence,
    )
    expectations = Expectations(
        environment=Environment.DEVELOPMENT,
        roots=(samples.root("Milan"),),
        required_cpu_tees=frozenset({"sev-snp"}),
        release_names=frozenset({"curtilage-enclave"}),
        log=LogExpectations(
            origin="log.example",
            public_key=log.signer.public.public_key,
            witnesses={"witness.example": witness.public.public_key},
            quorum=1,
            max_checkpoint_age_s=3600,
        ),
        snp=_rules(samples, evidence).expectations,
        freshness=FreshnessExpectations(),
        transport=frozenset({PADDED}),
        digest="sha256:test",
    )
    return bundle, expectations


def test_genuine_evidence_fails_only_at_its_report_data(samples: Samples) -> None:
    """Its report data was chosen by others, so every step up to that one passes."""
    bundle, expectations = _whole(samples, samples.evidence("virtee-milan-v2"))
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(bundle), expectations, now=NOW)
    assert caught.value.code is RefusalCode.BINDING_MISMATCH
    passed = [step.passed for step in caught.value.steps]
    assert passed == [True] * (len(passed) - 1) + [False]
    assert caught.value.step == Check.REPORT_DATA


def test_genuine_evidence_that_claims_emulation_is_refused(samples: Samples) -> None:
    genuine = samples.evidence("virtee-milan-v2")
    lying = replace(genuine, tee=Tee.EMULATED_SEV_SNP)
    bundle, expectations = _whole(samples, lying)
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(bundle), expectations, now=NOW)
    assert caught.value.code is RefusalCode.EMULATED_REFUSED


def test_emulated_evidence_under_amds_root_is_refused(samples: Samples) -> None:
    """The reverse of the wrong root: our chain, with its own true signatures."""
    platform = make_platform(
        generate_root_keys(), now=NOW, product=Product.MILAN, tcb=ANY_TCB
    )
    fields = platform.report_fields(report_data=bytes(64), measurement=bytes(48))
    emulated = platform.evidence(fields, now=NOW)
    lying = replace(emulated, tee=Tee.SEV_SNP)
    error = _refusal(lying, _rules(samples, lying))
    assert (error.code, error.detail) == (
        RefusalCode.CHAIN_INVALID,
        "ASK: issuer's name",
    )
    bundle, expectations = _whole(samples, lying)
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(bundle), expectations, now=NOW)
    assert caught.value.code is RefusalCode.CHAIN_INVALID
