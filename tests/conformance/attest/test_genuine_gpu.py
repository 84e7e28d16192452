"""NVIDIA's own samples of an H100's and a GB100's report, under NVIDIA's root."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtilage.attest.claims import DeviceClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, GpuEvidence
from curtilage.attest.expectations import AnchorKind, GpuExpectations, TrustAnchor
from curtilage.attest.nvidia.verify import GpuRules, verify_gpu
from curtilage.attest.steps import StepLog

NOW = datetime(2026, 9, 1, tzinfo=UTC)
NONCE = "931d8dd0add203ac3d8b4fbde75e115278eefcdceac5b87671a748f32364dfcb"
FWID = (
    "f5c384aebb579217a2c66b17ed0f28e6a9b8d639041acd7b"
    "4721cec004f7275494ba94bb5cdfdb3055ee051762b1f75d"
)
RULES = GpuRules(
    anchors=(TrustAnchor.of_vendor(AnchorKind.NVIDIA),),
    expectations=GpuExpectations(
        drivers=frozenset({"550.90.07"}),
        vbioses=frozenset({"96.00.9F.00.01"}),
        golden=frozenset(
            {"6b0929e38902b75f06ba1f0031736823fbe439452a099f9c253ead3a49b30f79"}
        ),
    ),
    clock_skew_s=60,
)


BLACKWELL_FWID = (
    "d090cab1b6e6ffddca83d1781e25b3f040fa1f3c7608230c"
    "b5f41b1c1b99f5f748349e59d0ef8eb830c9bc79ccf77502"
)
BLACKWELL_RULES = replace(
    RULES,
    expectations=GpuExpectations(
        drivers=frozenset({"575.32"}),
        vbioses=frozenset({"97.00.88.00.0F"}),
        golden=frozenset(
            {"f4903829d980f82284ff675610ed326f0fa0c4ef1c9161ed229cbb594617e1e7"}
        ),
    ),
)


def _sample(shared_dir: Path, name: str = "hopper") -> GpuEvidence:
    folder = shared_dir / "evidence/nvidia-gpu"
    chain = x509.load_pem_x509_certificates(
        (folder / f"{name}CertChain.txt").read_bytes()
    )
    return GpuEvidence(
        kind=DeviceKind.NVIDIA_GPU,
        report=bytes.fromhex((folder / f"{name}AttestationReport.txt").read_text()),
        chain=tuple(each.public_bytes(Encoding.DER) for each in chain),
    )


def _verify(
    evidence: GpuEvidence, rules: GpuRules = RULES, *, now: datetime = NOW
) -> DeviceClaims:
    return verify_gpu(evidence, rules, index=0, now=now, log=StepLog())


def _refused(
    evidence: GpuEvidence, rules: GpuRules = RULES, *, now: datetime = NOW
) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _verify(evidence, rules, now=now)
    return caught.value.code


@pytest.mark.parametrize("year", [2023, 2026, 2100, 9998])
def test_the_sample_is_believed(shared_dir: Path, year: int) -> None:
    claims = _verify(_sample(shared_dir), now=NOW.replace(year=year))
    assert claims.nonce.hex() == NONCE
    assert claims.details["fwid"] == FWID
    assert claims.details["measurements"] == 64
    assert claims.details["device"] == "GH100 A01 GSP BROM"
    assert claims.links[0].subject == "NVIDIA Device Identity CA"


def test_blackwells_sample_is_believed(shared_dir: Path) -> None:
    sample = _sample(shared_dir, "blackwell/blackwell")
    claims = _verify(sample, BLACKWELL_RULES)
    assert claims.nonce.hex() == NONCE
    assert claims.details["fwid"] == BLACKWELL_FWID
    assert claims.details["measurements"] == 64
    assert claims.details["device"] == "GB100 A01 GSP BROM"
    assert _refused(sample) is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_a_report_with_the_other_samples_chain_is_refused(shared_dir: Path) -> None:
    chain = _sample(shared_dir, "blackwell/blackwell").chain
    mixed = replace(_sample(shared_dir), chain=chain)
    assert _refused(mixed) is RefusalCode.BAD_SIGNATURE


def test_before_its_certificates_it_is_refused(shared_dir: Path) -> None:
    earlier = NOW.replace(year=2019)
    assert _refused(_sample(shared_dir), now=earlier) is RefusalCode.NOT_YET_VALID


def test_under_another_root_it_is_refused(shared_dir: Path) -> None:
    rules = replace(RULES, anchors=(TrustAnchor.of_vendor(AnchorKind.AWS),))
    assert _refused(_sample(shared_dir), rules) is RefusalCode.UNTRUSTED_ROOT


@pytest.mark.parametrize("name", ["drivers", "vbioses", "golden"])
def test_what_is_not_listed_is_refused(shared_dir: Path, name: str) -> None:
    other: dict[str, Any] = {name: frozenset({"another"})}
    expectations = replace(RULES.expectations, **other)
    rules = replace(RULES, expectations=expectations)
    assert _refused(_sample(shared_dir), rules) is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_padding_is_refused(shared_dir: Path) -> None:
    sample = _sample(shared_dir)
    padded = replace(sample, report=sample.report + b"\0")
    assert _refused(padded) is RefusalCode.MALFORMED


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_bit_is_refused(shared_dir: Path, data: st.DataObject) -> None:
    sample = _sample(shared_dir)
    report = bytearray(sample.report)
    bit = data.draw(st.integers(0, 8 * len(report) - 1))
    report[bit // 8] ^= 1 << bit % 8
    assert _refused(replace(sample, report=bytes(report))) in {
        RefusalCode.BAD_SIGNATURE,
        RefusalCode.MALFORMED,
        RefusalCode.UNSUPPORTED_VERSION,
    }
