"""Reports held against rules alone, without a bundle, a log or a release."""

# ruff: noqa: ANN401 - fields of every type are changed by name

import contextlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import CpuClaims, Measurement
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import SnpEvidence, Tee
from curtilage.attest.expectations import (
    AnchorKind,
    SnpExpectations,
    TrustAnchor,
)
from curtilage.attest.sev_snp.report import SIGNED_BYTES, SigningKey, parse_report
from curtilage.attest.sev_snp.verify import SnpRules, verify_snp, verify_snp_platform
from curtilage.attest.steps import Check, StepLog
from curtilage_dev.emulated import snp_pki
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, RootKeys, make_platform
from curtilage_dev.emulated.snp_reports import encode_signature, sign_report
from support.examples import examples

MEASUREMENT = b"\x4d" * 48
REPORT_DATA = bytes(range(64))
ANY_TCB = Tcb(bl=0, tee=0, snp=0, ucode=0)
TURIN_TCB = Tcb(fmc=2, bl=1, tee=1, snp=4, ucode=74)
P384_ORDER = int(
    "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"
    "C7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973",
    16,
)


def _evidence(platform: EmulatedPlatform, now: datetime, **changes: Any) -> SnpEvidence:
    fields = platform.report_fields(report_data=REPORT_DATA, measurement=MEASUREMENT)
    return platform.evidence(replace(fields, **changes), now=now)


def _rules(*platforms: EmulatedPlatform, **changes: Any) -> SnpRules:
    minimum = {product.value: ANY_TCB for product in Product}
    return SnpRules(
        anchors=tuple(platform.anchor() for platform in platforms),
        expectations=replace(SnpExpectations(min_tcb=minimum), **changes),
        clock_skew_s=60,
        release_min_tcb={},
        measurements=({"launch": MEASUREMENT.hex()},),
    )


def _verify(evidence: SnpEvidence, rules: SnpRules, now: datetime) -> CpuClaims:
    return verify_snp(evidence, rules, now=now, log=StepLog())


def _refusal(
    evidence: SnpEvidence, rules: SnpRules, now: datetime
) -> tuple[RefusalCode, str]:
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_snp(evidence, rules, now=now, log=log)
    return caught.value.code, log.refusal(caught.value.code, "").step


@pytest.fixture(scope="module")
def turin(root_keys: RootKeys, now: datetime) -> EmulatedPlatform:
    return make_platform(root_keys, now=now, product=Product.TURIN, tcb=TURIN_TCB)


@pytest.fixture(scope="module")
def vlek(root_keys: RootKeys, now: datetime) -> EmulatedPlatform:
    return make_platform(root_keys, now=now, signing_key=SigningKey.VLEK)


# --- claims -------------------------------------------------------------------


def test_claims_say_what_the_report_says(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(
        platform,
        now,
        policy=0x30000 | 1 << 21 | 1 << 24,
        platform_info=0b10110101,
        id_key_digest=b"\x1d" * 48,
        author_key_digest=b"\xa0" * 48,
        current_tcb=replace(platform.tcb, ucode=99),
    )
    claims = _verify(evidence, _rules(platform), now)
    assert claims.tee is Tee.EMULATED_SEV_SNP
    assert dict(claims.registers) == {
        "launch": MEASUREMENT.hex(),
        "hostdata": "00" * 32,
    }
    assert claims.bound == REPORT_DATA
    assert claims.platform == platform.chip_id.hex()
    expected: dict[str, object] = {
        "product": "Genoa",
        "version": 3,
        "vmpl": 0,
        "signer": "VCEK",
        "guest_svn": 0,
        "guest_policy": ("smt_allowed", "cxl_allowed", "ciphertext_hiding"),
        "platform_info": ("smt", "ecc", "ciphertext_hiding", "alias_check", "tio"),
        "firmware": "1.55.40",
        "committed_firmware": "1.55.40",
        "cpu": "family 0x19, model 0x11, stepping 0x1",
        "id_key_digest": "1d" * 48,
        "author_key_digest": "a0" * 48,
        "reported_tcb": "fmc 0, bl 10, tee 0, snp 23, ucode 84",
        "current_tcb": "fmc 0, bl 10, tee 0, snp 23, ucode 99",
    }
    assert {name: claims.details[name] for name in expected} == expected
    assert "provider" not in claims.details
    assert "launch_mitigations" not in claims.details


def test_links_lead_from_the_root_to_the_report(
    platform: EmulatedPlatform, now: datetime
) -> None:
    claims = _verify(_evidence(platform, now), _rules(platform), now)
    assert [(link.subject, link.issuer) for link in claims.links] == [
        ("ARK-Genoa", "ARK-Genoa"),
        ("revocation list", "ARK-Genoa"),
        ("SEV-Genoa", "ARK-Genoa"),
        ("SEV-VCEK", "SEV-Genoa"),
        ("SEV-SNP report", "SEV-VCEK"),
    ]
    assert claims.links[0].fingerprint == platform.anchor().fingerprint
    assert claims.links[0].role.endswith("for Genoa")
    ends = [link.not_after for link in claims.links]
    assert ends[-1] is None
    assert claims.expires_at == min(end for end in ends if end is not None)
    assert claims.expires_at == now + snp_pki.CRL_LIFE


def test_measurement_is_the_last_step(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(platform, now)
    log = StepLog()
    claims = verify_snp_platform(evidence, _rules(platform), now=now, log=log)
    assert claims.registers["launch"] == MEASUREMENT.hex()
    assert log.steps[-1].name == Check.HOST_DATA
    empty: Measurement = {}
    for refused in (empty, {"launch": "00" * 48}, {"pcr0": ""}, None):
        accepted = () if refused is None else (refused,)
        rules = replace(_rules(platform), measurements=accepted)
        assert _refusal(evidence, rules, now) == (
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            Check.MEASUREMENT,
        )


# --- versions -----------------------------------------------------------------


@pytest.mark.parametrize("product", list(Product))
def test_version_2_takes_its_product_from_the_certificate(
    root_keys: RootKeys, now: datetime, product: Product
) -> None:
    tcb = TURIN_TCB if product is Product.TURIN else snp_pki.DEFAULT_TCB
    made = make_platform(root_keys, now=now, product=product, tcb=tcb)
    evidence = _evidence(made, now, version=2)
    claims = _verify(evidence, _rules(made, min_version=2), now)
    assert claims.details["product"] == product.value
    assert "cpu" not in claims.details
    assert _refusal(evidence, _rules(made), now) == (
        RefusalCode.UNSUPPORTED_VERSION,
        Check.REPORT_LAYOUT,
    )


def test_version_5_reports_mitigations(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(platform, now, version=5, mitigations=(0x5, 2**63))
    claims = _verify(evidence, _rules(platform), now)
    assert claims.details["launch_mitigations"] == "0x0000000000000005"
    assert claims.details["current_mitigations"] == "0x8000000000000000"


def test_turins_version_5_with_the_host_data_of_its_measurement(
    turin: EmulatedPlatform, now: datetime
) -> None:
    host_data, mitigations = b"\xb3" * 32, (0x3F, 0x3F)
    evidence = _evidence(
        turin, now, version=5, mitigations=mitigations, host_data=host_data
    )
    measurement = {"launch": MEASUREMENT.hex(), "hostdata": host_data.hex()}
    rules = replace(_rules(turin, min_version=5), measurements=(measurement,))
    claims = _verify(evidence, rules, now)
    assert claims.registers == measurement
    assert (claims.details["product"], claims.details["version"]) == ("Turin", 5)
    assert _refusal(evidence, _rules(turin), now) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        Check.HOST_DATA,
    )


@pytest.mark.parametrize("version", [0, 1, 6, 2**32 - 1])
def test_report_of_an_unknown_version_is_not_read(
    platform: EmulatedPlatform, now: datetime, version: int
) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_report(_evidence(platform, now, version=version).report)
    assert caught.value.code is RefusalCode.UNSUPPORTED_VERSION


# First and last byte of every range that must be zero, and the versions in
# which it must.
ZEROS = {
    "key info": (0x4C, 0x4F, (2, 3, 4, 5)),
    "cpuid": (0x188, 0x18A, (2,)),
    "after cpuid": (0x18B, 0x19F, (2, 3, 4, 5)),
    "after current firmware": (0x1EB, 0x1EB, (2, 3, 4, 5)),
    "after committed firmware": (0x1EF, 0x1EF, (2, 3, 4, 5)),
    "mitigations": (0x1F8, 0x207, (2, 3, 4)),
    "rest": (0x208, 0x29F, (2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_reserved_bytes_must_be_zero(
    platform: EmulatedPlatform, now: datetime, version: int, name: str
) -> None:
    first, last, versions = ZEROS[name]
    rules = _rules(platform, min_version=2)
    for place in (first, last):
        evidence = _evidence(platform, now, version=version, patches={place: b"\x01"})
        if version in versions:
            assert _refusal(evidence, rules, now) == (
                RefusalCode.MALFORMED,
                Check.REPORT_LAYOUT,
            )
        else:
            assert parse_report(evidence.report).version == version


def test_bytes_after_the_signature_must_be_zero(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(platform, now)
    for place in (0x330, 0x49F):
        report = bytearray(evidence.report)
        report[place] = 1
        bad = replace(evidence, report=bytes(report))
        assert _refusal(bad, _rules(platform), now) == (
            RefusalCode.MALFORMED,
            Check.REPORT_LAYOUT,
        )


@pytest.mark.parametrize("bit", [16, 20, 21, 22, 23, 24, 25])
def test_other_policy_bits_are_free(
    platform: EmulatedPlatform, now: datetime, bit: int
) -> None:
    evidence = _evidence(platform, now, policy=1 << 17 | 1 << bit | 0x1F)
    claims = _verify(evidence, _rules(platform), now)
    policy = claims.details["guest_policy"]
    assert isinstance(policy, tuple)
    assert len(policy) == 1


@examples("bit", range(26, 64))
def test_reserved_policy_bits_must_be_zero(
    platform: EmulatedPlatform, now: datetime, bit: int
) -> None:
    evidence = _evidence(platform, now, policy=1 << 17 | 1 << bit)
    assert _refusal(evidence, _rules(platform), now)[0] is RefusalCode.MALFORMED


@pytest.mark.parametrize("vmpl", [1, 2, 3, 4, 0xFFFFFFFF])
def test_privilege_levels_are_refused(
    platform: EmulatedPlatform, now: datetime, vmpl: int
) -> None:
    """Reports that the host requested contain 0xFFFFFFFF."""
    evidence = _evidence(platform, now, vmpl=vmpl)
    assert _refusal(evidence, _rules(platform), now) == (
        RefusalCode.VMPL,
        Check.PRIVILEGE_LEVEL,
    )


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7])
def test_other_signing_keys_are_none(
    platform: EmulatedPlatform, now: datetime, number: int
) -> None:
    evidence = _evidence(platform, now, signing_key=number)
    assert _refusal(evidence, _rules(platform), now) == (
        RefusalCode.UNSIGNED,
        Check.SIGNING_KEY,
    )


# --- TCB ----------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reported_tcb", "committed_tcb", "launch_tcb"])
def test_low_tcb_is_refused(root_keys: RootKeys, now: datetime, field: str) -> None:
    """The key vouches for the reported levels, so they are lowered there too."""
    low = replace(snp_pki.DEFAULT_TCB, snp=22)
    reported = low if field == "reported_tcb" else snp_pki.DEFAULT_TCB
    made = make_platform(root_keys, now=now, tcb=reported)
    levels = {"committed_tcb": snp_pki.DEFAULT_TCB, "launch_tcb": snp_pki.DEFAULT_TCB}
    evidence = _evidence(made, now, **{**levels, field: low})
    rules = _rules(made, min_tcb={"Genoa": snp_pki.DEFAULT_TCB})
    assert _refusal(evidence, rules, now) == (
        RefusalCode.TCB_TOO_LOW,
        Check.MINIMUM_TCB,
    )


@pytest.mark.parametrize("whose", ["policy", "release"])
def test_both_minimums_are_enforced(
    platform: EmulatedPlatform, now: datetime, whose: str
) -> None:
    """A low minimum of the one does not stand in for the other's."""
    high = replace(platform.tcb, ucode=platform.tcb.ucode + 1)
    policy, release = (high, ANY_TCB) if whose == "policy" else (ANY_TCB, high)
    rules = replace(
        _rules(platform, min_tcb={"Genoa": policy}),
        release_min_tcb={Product.GENOA: release},
    )
    assert _refusal(_evidence(platform, now), rules, now) == (
        RefusalCode.TCB_TOO_LOW,
        Check.MINIMUM_TCB,
    )


def test_low_current_tcb_proves_nothing(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(platform, now, current_tcb=ANY_TCB)
    rules = _rules(platform, min_tcb={"Genoa": snp_pki.DEFAULT_TCB})
    assert _verify(evidence, rules, now).bound == REPORT_DATA


@pytest.mark.parametrize("offset", [0x38, 0x1E0, 0x1F0])
def test_reserved_bytes_of_a_tcb_must_be_zero(
    platform: EmulatedPlatform, now: datetime, offset: int
) -> None:
    evidence = _evidence(platform, now, patches={offset + 3: b"\x01"})
    assert _refusal(evidence, _rules(platform), now) == (
        RefusalCode.MALFORMED,
        Check.MINIMUM_TCB,
    )


@pytest.mark.parametrize("component", ["fmc", "bl", "tee", "snp", "ucode"])
def test_turins_levels_have_their_own_places(
    turin: EmulatedPlatform, now: datetime, component: str
) -> None:
    higher = replace(TURIN_TCB, **{component: getattr(TURIN_TCB, component) + 1})
    evidence = _evidence(turin, now)
    enough = _rules(turin, min_tcb={"Turin": TURIN_TCB})
    assert _verify(evidence, enough, now).bound == REPORT_DATA
    rules = _rules(turin, min_tcb={"Turin": higher})
    assert _refusal(evidence, rules, now)[0] is RefusalCode.TCB_TOO_LOW
    lied = _evidence(turin, now, reported_tcb=higher)
    assert _refusal(lied, _rules(turin), now) == (
        RefusalCode.ENDORSEMENT_MISMATCH,
        Check.TCB_ENDORSEMENT,
    )


# --- the chip -----------------------------------------------------------------


def _reissued(
    platform: EmulatedPlatform, evidence: SnpEvidence, now: datetime, **amd: bytes
) -> SnpEvidence:
    """Certify the same key with other extensions."""
    extensions = snp_pki.amd_extensions(
        platform.product, platform.signing_key, platform.tcb, platform.chip_id
    )
    fields = snp_pki.CertificateFields(
        common_name=f"SEV-{platform.signing_key.name}",
        issuer_name=f"SEV-{platform.product}",
        public_key=platform.vek_key.public_key(),
        not_before=now - timedelta(days=1),
        not_after=now + timedelta(days=1),
        amd={**extensions, **{name.lstrip("_"): each for name, each in amd.items()}},
    )
    vek = snp_pki.make_certificate(fields, platform.root_keys.ask)
    return replace(evidence, vek=vek)


@pytest.mark.parametrize("wrapped", [False, True], ids=["raw", "octet string"])
def test_turins_hardware_id_has_8_bytes(
    turin: EmulatedPlatform, now: datetime, *, wrapped: bool
) -> None:
    identity = turin.chip_id[:8]
    value = b"\x04\x08" + identity if wrapped else identity
    evidence = _reissued(turin, _evidence(turin, now), now, _4=value)
    assert _verify(evidence, _rules(turin), now).platform == turin.chip_id.hex()
    other = bytes(8) if not wrapped else b"\x04\x08" + bytes(8)
    evidence = _reissued(turin, _evidence(turin, now), now, _4=other)
    assert _refusal(evidence, _rules(turin), now) == (
        RefusalCode.ENDORSEMENT_MISMATCH,
        Check.CHIP_IDENTITY,
    )


@pytest.mark.parametrize("tag", [b"\x03\x40", b"\x04\x3f", b"\x04\x41"])
def test_badly_wrapped_hardware_id_is_refused(
    platform: EmulatedPlatform, now: datetime, tag: bytes
) -> None:
    value = tag + platform.chip_id
    evidence = _reissued(platform, _evidence(platform, now), now, _4=value)
    assert _refusal(evidence, _rules(platform), now) == (
        RefusalCode.CHAIN_INVALID,
        Check.CHIP_IDENTITY,
    )


def test_masked_chip_is_no_platform(platform: EmulatedPlatform, now: datetime) -> None:
    evidence = _evidence(platform, now, chip_id=bytes(64))
    claims = _verify(evidence, _rules(platform, allow_masked_chip=True), now)
    assert claims.platform == ""


def test_permission_to_mask_is_none_to_name_another_chip(
    platform: EmulatedPlatform, now: datetime
) -> None:
    rules = _rules(platform, allow_masked_chip=True)
    evidence = _evidence(platform, now, mask_chip=True)
    assert _verify(evidence, rules, now).platform == platform.chip_id.hex()
    other = _evidence(platform, now, mask_chip=True, chip_id=b"\x01" * 64)
    assert _refusal(other, rules, now) == (
        RefusalCode.ENDORSEMENT_MISMATCH,
        Check.CHIP_IDENTITY,
    )


def test_vlek_names_its_provider(vlek: EmulatedPlatform, now: datetime) -> None:
    rules = _rules(vlek, allow_vlek=True, allow_masked_chip=True)
    claims = _verify(_evidence(vlek, now), rules, now)
    assert claims.details["signer"] == "VLEK"
    assert claims.details["provider"] == "CN=emulated.example"
    assert claims.platform == ""
    assert claims.links[3].role.startswith("a provider's key")


@pytest.mark.parametrize("forbidden", ["allow_vlek", "allow_masked_chip"])
def test_vlek_needs_both_permissions(
    vlek: EmulatedPlatform, now: datetime, forbidden: str
) -> None:
    allowed = {"allow_vlek": True, "allow_masked_chip": True, forbidden: False}
    code, _ = _refusal(_evidence(vlek, now), _rules(vlek, **allowed), now)
    assert code is RefusalCode.ENDORSEMENT_MISMATCH


@pytest.mark.parametrize("name", ["SEV-VLEK", "SEV-Genoa", "x"])
def test_key_with_another_name_is_refused(
    platform: EmulatedPlatform, now: datetime, name: str
) -> None:
    """Even where the authority of chips' keys vouches for it."""
    fields = snp_pki.CertificateFields(
        common_name=name,
        issuer_name="SEV-Genoa",
        public_key=platform.vek_key.public_key(),
        not_before=now,
        not_after=now + timedelta(days=1),
        amd=snp_pki.amd_extensions(
            platform.product, platform.signing_key, platform.tcb, platform.chip_id
        ),
    )
    vek = snp_pki.make_certificate(fields, platform.root_keys.ask)
    evidence = replace(_evidence(platform, now), vek=vek)
    assert _refusal(evidence, _rules(platform), now) == (
        RefusalCode.CHAIN_INVALID,
        Check.SIGNING_KEY,
    )


@pytest.mark.parametrize("left_out", ["constraints", "usage"])
def test_intermediate_needs_both_marks_of_an_authority(
    platform: EmulatedPlatform, now: datetime, left_out: str
) -> None:
    fields = snp_pki.CertificateFields(
        common_name="SEV-Genoa",
        issuer_name="ARK-Genoa",
        public_key=platform.root_keys.ask.public_key(),
        not_before=now,
        not_after=now + timedelta(days=1),
        serial=9,
        authority=True,
    )
    evidence = _evidence(platform, now)
    whole = snp_pki.make_certificate(fields, platform.root_keys.ark)
    assert _verify(replace(evidence, ask=whole), _rules(platform), now).links
    lacking = snp_pki.make_certificate(
        replace(fields, left_out=left_out), platform.root_keys.ark
    )
    assert _refusal(replace(evidence, ask=lacking), _rules(platform), now) == (
        RefusalCode.CHAIN_INVALID,
        Check.CERTIFICATE_CHAIN,
    )


# --- roots --------------------------------------------------------------------


def _served(
    evidence: SnpEvidence, platform: EmulatedPlatform
) -> dict[str, SnpEvidence]:
    return {
        "not served": evidence,
        "served": replace(evidence, ark=platform.ark),
        "served the other way round": replace(
            evidence, ark=evidence.ask, ask=platform.ark
        ),
    }


@pytest.mark.parametrize(
    "order", ["not served", "served", "served the other way round"]
)
def test_pinned_root_is_used_whatever_is_served(
    platform: EmulatedPlatform, now: datetime, order: str
) -> None:
    evidence = _served(_evidence(platform, now), platform)[order]
    assert _verify(evidence, _rules(platform), now).bound == REPORT_DATA


def _fingerprint_only(platform: EmulatedPlatform) -> SnpRules:
    anchor = replace(platform.anchor(), certificate_der=b"")
    return replace(_rules(platform), anchors=(anchor,))


@pytest.mark.parametrize("order", ["served", "served the other way round"])
def test_served_root_is_used_where_its_fingerprint_is_pinned(
    platform: EmulatedPlatform, now: datetime, order: str
) -> None:
    evidence = _served(_evidence(platform, now), platform)[order]
    assert _verify(evidence, _fingerprint_only(platform), now).bound == REPORT_DATA


def test_other_served_root_is_never_used(
    platform: EmulatedPlatform,
    root_keys: RootKeys,
    other_root_keys: RootKeys,
    now: datetime,
) -> None:
    """A whole chain of an attacker's own, every signature of it true."""
    forged = make_platform(other_root_keys, now=now)
    evidence = replace(_evidence(forged, now), ark=forged.ark)
    assert _refusal(evidence, _fingerprint_only(platform), now) == (
        RefusalCode.UNTRUSTED_ROOT,
        Check.PINNED_ROOT,
    )
    swapped = replace(evidence, ark=evidence.ask, ask=forged.ark)
    for served in (evidence, swapped):
        assert _refusal(served, _rules(platform), now) == (
            RefusalCode.UNTRUSTED_ROOT,
            Check.PINNED_ROOT,
        )
    assert _refusal(replace(evidence, ark=b""), _rules(platform), now) == (
        RefusalCode.CHAIN_INVALID,
        Check.CERTIFICATE_CHAIN,
    )
    assert root_keys is not other_root_keys


def test_a_root_that_came_is_looked_at_though_the_policy_has_it(
    platform: EmulatedPlatform, now: datetime
) -> None:
    """Whatever is accepted is published, and nothing in it may be just anything."""
    smuggled = replace(_evidence(platform, now), ark=b"any bytes")
    assert _refusal(smuggled, _rules(platform), now) == (
        RefusalCode.UNTRUSTED_ROOT,
        Check.PINNED_ROOT,
    )


def test_fingerprint_without_a_root_is_not_enough(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(platform, now)
    assert _refusal(evidence, _fingerprint_only(platform), now) == (
        RefusalCode.UNTRUSTED_ROOT,
        Check.PINNED_ROOT,
    )


def test_root_is_chosen_by_product(
    platform: EmulatedPlatform, turin: EmulatedPlatform, now: datetime
) -> None:
    rules = _rules(turin, platform)
    assert _verify(_evidence(platform, now), rules, now).details["product"] == "Genoa"
    assert _verify(_evidence(turin, now), rules, now).details["product"] == "Turin"
    lied = TrustAnchor.of_certificate(AnchorKind.EMULATED, "Genoa", turin.ark)
    rules = replace(_rules(), anchors=(lied,))
    assert _refusal(_evidence(platform, now), rules, now) == (
        RefusalCode.CHAIN_INVALID,
        Check.CERTIFICATE_CHAIN,
    )


def _why(evidence: SnpEvidence, rules: SnpRules, now: datetime) -> str:
    with pytest.raises(RefusedError) as caught:
        verify_snp(evidence, rules, now=now, log=StepLog())
    assert caught.value.code is RefusalCode.UNTRUSTED_ROOT
    return caught.value.detail


def test_why_there_is_no_root_is_said(
    platform: EmulatedPlatform,
    turin: EmulatedPlatform,
    other_root_keys: RootKeys,
    now: datetime,
) -> None:
    """It is not always the policy that lacks one."""
    evidence = _evidence(platform, now)
    pinned = _fingerprint_only(platform)
    absent = _why(evidence, _rules(turin), now)
    withheld = _why(evidence, pinned, now)
    forged = make_platform(other_root_keys, now=now)
    other = replace(evidence, ark=forged.ark)
    foreign = _why(other, pinned, now)
    assert absent.startswith("no ")
    assert "evidence" in withheld
    assert "that came" in foreign
    assert all(" pinned for Genoa" in why for why in (absent, withheld, foreign))


@pytest.mark.parametrize("served", [True, False], ids=["served", "not served"])
def test_each_of_two_roots_of_one_product_is_used(
    platform: EmulatedPlatform,
    other_root_keys: RootKeys,
    now: datetime,
    *,
    served: bool,
) -> None:
    """Two machines for development; their order in the policy does not matter."""
    second = make_platform(other_root_keys, now=now)
    for rules in (_rules(platform, second), _rules(second, platform)):
        for machine in (platform, second):
            evidence = _evidence(machine, now)
            if served:
                evidence = replace(evidence, ark=machine.ark)
            assert _verify(evidence, rules, now).bound == REPORT_DATA
            swapped = replace(evidence, ark=evidence.ask, ask=evidence.ark)
            if served:
                assert _verify(swapped, rules, now).bound == REPORT_DATA


def test_a_pinned_root_that_is_none_is_passed_over(
    platform: EmulatedPlatform, now: datetime
) -> None:
    rubbish = TrustAnchor.of_certificate(AnchorKind.EMULATED, "Genoa", b"0")
    rules = replace(_rules(), anchors=(rubbish, platform.anchor()))
    evidence = _evidence(platform, now)
    assert _verify(evidence, rules, now).bound == REPORT_DATA
    for anchors in ((rubbish,), (rubbish, rubbish)):
        refused = _refusal(evidence, replace(rules, anchors=anchors), now)
        assert refused[0] is RefusalCode.CHAIN_INVALID
    broken = replace(evidence, ask=b"0")
    assert _refusal(broken, rules, now)[0] is RefusalCode.CHAIN_INVALID


def test_no_root_at_all_is_refused(platform: EmulatedPlatform, now: datetime) -> None:
    assert _refusal(_evidence(platform, now), _rules(), now) == (
        RefusalCode.UNTRUSTED_ROOT,
        Check.PINNED_ROOT,
    )


@pytest.mark.parametrize(
    "value", [b"\x16\x05other", b"\x0c\x01x", b"\x16\x02x"], ids=["text", "tag", "cut"]
)
def test_provider_is_read_or_refused(
    platform: EmulatedPlatform, now: datetime, value: bytes
) -> None:
    evidence = _reissued(platform, _evidence(platform, now), now, _5=value)
    if value[0] == 0x16 and len(value) == value[1] + 2:
        assert _verify(evidence, _rules(platform), now).details["provider"] == "other"
    else:
        assert _refusal(evidence, _rules(platform), now) == (
            RefusalCode.CHAIN_INVALID,
            Check.PINNED_ROOT,
        )


# --- malleability and any bytes -----------------------------------------------


def test_other_spelling_of_a_signature_changes_nothing(
    platform: EmulatedPlatform, now: datetime
) -> None:
    """(r, n-s) verifies too, so nothing may be known by its signature."""
    evidence = _evidence(platform, now)
    report = parse_report(evidence.report)
    spelled = encode_signature(report.signature_r, P384_ORDER - report.signature_s)
    other = replace(evidence, report=evidence.report[:SIGNED_BYTES] + spelled)
    assert other.report != evidence.report
    rules = _rules(platform)
    assert _verify(other, rules, now) == _verify(evidence, rules, now)


@pytest.mark.parametrize(
    "curve", [ec.SECP256R1(), ec.SECP521R1()], ids=["P-256", "P-521"]
)
def test_report_truly_signed_on_another_curve_is_refused(
    platform: EmulatedPlatform, now: datetime, curve: ec.EllipticCurve
) -> None:
    """The chain vouches for the key, and the signature holds under it."""
    key = ec.generate_private_key(curve)
    fields = snp_pki.CertificateFields(
        common_name="SEV-VCEK",
        issuer_name="SEV-Genoa",
        public_key=key.public_key(),
        not_before=now,
        not_after=now + timedelta(days=1),
        amd=snp_pki.amd_extensions(
            platform.product, platform.signing_key, platform.tcb, platform.chip_id
        ),
    )
    evidence = _evidence(platform, now)
    other = replace(
        evidence,
        report=sign_report(evidence.report[:SIGNED_BYTES], key),
        vek=snp_pki.make_certificate(fields, platform.root_keys.ask),
    )
    assert _refusal(other, _rules(platform), now) == (
        RefusalCode.BAD_SIGNATURE,
        Check.REPORT_SIGNATURE,
    )


def test_report_signed_by_another_key_is_refused(
    platform: EmulatedPlatform, now: datetime
) -> None:
    evidence = _evidence(platform, now)
    stranger = ec.generate_private_key(ec.SECP384R1())
    report = sign_report(evidence.report[:SIGNED_BYTES], stranger)
    assert _refusal(replace(evidence, report=report), _rules(platform), now) == (
        RefusalCode.BAD_SIGNATURE,
        Check.REPORT_SIGNATURE,
    )


@pytest.fixture(scope="module")
def true(platform: EmulatedPlatform, now: datetime) -> SnpEvidence:
    return replace(_evidence(platform, now), ark=platform.ark)


@settings(max_examples=200)
@given(
    name=st.sampled_from(["report", "vek", "ask", "crl", "ark"]),
    place=st.integers(0, 2000),
    data=st.binary(min_size=1, max_size=4),
)
def test_any_change_is_refused_or_changes_nothing(  # noqa: PLR0917 - fixtures
    platform: EmulatedPlatform,
    true: SnpEvidence,
    now: datetime,
    name: str,
    place: int,
    data: bytes,
) -> None:
    value = bytearray(getattr(true, name))
    value[place : place + len(data)] = data
    changes: dict[str, Any] = {name: bytes(value)}
    rules = _rules(platform)
    with contextlib.suppress(RefusedError):
        claims = _verify(replace(true, **changes), rules, now)
        assert claims == _verify(true, rules, now)


@given(
    data=st.binary(max_size=64),
    name=st.sampled_from(["report", "vek", "ask", "crl", "ark"]),
)
def test_any_bytes_are_refused_or_change_nothing(
    platform: EmulatedPlatform,
    true: SnpEvidence,
    now: datetime,
    data: bytes,
    name: str,
) -> None:
    changes: dict[str, Any] = {name: data}
    with contextlib.suppress(RefusedError):
        claims = _verify(replace(true, **changes), _rules(platform), now)
        assert claims.bound == REPORT_DATA


@pytest.mark.parametrize(
    ("crl_end", "key_end", "expected"),
    [(1, 2, 1), (2, 1, 1)],
    ids=["list first", "key first"],
)
def test_expiry_is_the_first_end(
    platform: EmulatedPlatform,
    now: datetime,
    crl_end: int,
    key_end: int,
    expected: int,
) -> None:
    evidence = _evidence(platform, now)
    crl = snp_pki.make_crl(
        platform.root_keys.ark,
        "ARK-Genoa",
        issued=now,
        next_update=now + timedelta(hours=crl_end),
    )
    fields = snp_pki.CertificateFields(
        common_name="SEV-VCEK",
        issuer_name="SEV-Genoa",
        public_key=platform.vek_key.public_key(),
        not_before=now,
        not_after=now + timedelta(hours=key_end),
        amd=snp_pki.amd_extensions(
            platform.product, platform.signing_key, platform.tcb, platform.chip_id
        ),
    )
    vek = snp_pki.make_certificate(fields, platform.root_keys.ask)
    claims = _verify(replace(evidence, vek=vek, crl=crl), _rules(platform), now)
    assert claims.expires_at == now + timedelta(hours=expected)


def _dated(
    platform: EmulatedPlatform,
    now: datetime,
    which: str,
    start: timedelta,
    end: timedelta,
) -> tuple[SnpEvidence, SnpRules]:
    """Certify one of the three keys anew, from some time to some other."""
    keys = platform.root_keys
    amd: dict[str, bytes] = {}
    names: dict[str, tuple[str, str, Any, rsa.RSAPrivateKey]] = {
        "ark": ("ARK-Genoa", "ARK-Genoa", keys.ark.public_key(), keys.ark),
        "ask": ("SEV-Genoa", "ARK-Genoa", keys.ask.public_key(), keys.ark),
        "vek": ("SEV-VCEK", "SEV-Genoa", platform.vek_key.public_key(), keys.ask),
    }
    name, issuer, key, signer = names[which]
    if which == "vek":
        amd = snp_pki.amd_extensions(
            platform.product, platform.signing_key, platform.tcb, platform.chip_id
        )
    fields = snp_pki.CertificateFields(
        common_name=name,
        issuer_name=issuer,
        public_key=key,
        not_before=now + start,
        not_after=now + end,
        serial=9,
        authority=which != "vek",
        amd=amd,
    )
    der, evidence = snp_pki.make_certificate(fields, signer), _evidence(platform, now)
    if which == "ark":
        root = TrustAnchor.of_certificate(AnchorKind.EMULATED, "Genoa", der)
        return evidence, replace(_rules(), anchors=(root,))
    changes: dict[str, Any] = {which: der}
    return replace(evidence, **changes), _rules(platform)


@pytest.mark.parametrize("which", ["ark", "ask", "vek"])
def test_each_of_the_three_certificates_must_be_valid_and_may_end_first(
    platform: EmulatedPlatform, now: datetime, which: str
) -> None:
    """A pinned root expires as well; only this step checks it again."""
    second, hour = timedelta(seconds=1), timedelta(hours=1)
    evidence, rules = _dated(platform, now, which, -hour, hour)
    assert _verify(evidence, rules, now).expires_at == now + hour
    evidence, rules = _dated(platform, now, which, -hour, -second)
    assert _refusal(evidence, rules, now) == (
        RefusalCode.EXPIRED_ENDORSEMENT,
        Check.CERTIFICATE_DATES,
    )
    evidence, rules = _dated(platform, now, which, second, hour)
    assert _refusal(evidence, rules, now) == (
        RefusalCode.NOT_YET_VALID,
        Check.CERTIFICATE_DATES,
    )
