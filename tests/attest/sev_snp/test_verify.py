# ruff: noqa: ANN401 - fields of every type are changed by name

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import Measurement
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import EvidenceBundle, SnpEvidence, Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import AnchorKind, Expectations, TrustAnchor
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sev_snp.certificates import parse_certificate
from curtilage.attest.sev_snp.report import SIGNED_BYTES, SigningKey
from curtilage.attest.steps import Check
from curtilage.attest.verify import verify
from curtilage_dev.deployment import (
    MEASUREMENT,
    ChangeReport,
    Deployment,
    make_deployment,
)
from curtilage_dev.emulated import snp_pki
from curtilage_dev.emulated.snp_pki import CertificateFields, EmulatedPlatform, RootKeys
from curtilage_dev.emulated.snp_reports import (
    ReportFields,
    encode_signature,
    sign_report,
)

Refused = Callable[..., RefusedError]

# One offset inside every field of the signed part.
SIGNED_OFFSETS = {
    "version": 0x00,
    "guest_svn": 0x04,
    "policy": 0x08,
    "policy SMT": 0x0A,
    "family_id": 0x10,
    "image_id": 0x20,
    "vmpl": 0x30,
    "algorithm": 0x34,
    "current_tcb": 0x38,
    "platform_info": 0x40,
    "key_info": 0x48,
    "key_info reserved": 0x4C,
    "report_data": 0x50,
    "report_data end": 0x8F,
    "measurement": 0x90,
    "measurement end": 0xBF,
    "host_data": 0xC0,
    "id_key_digest": 0xE0,
    "author_key_digest": 0x110,
    "report_id": 0x140,
    "report_id_ma": 0x160,
    "reported_tcb": 0x180,
    "cpuid stepping": 0x18A,
    "reserved after cpuid": 0x18B,
    "chip_id": 0x1A0,
    "chip_id end": 0x1DF,
    "committed_tcb": 0x1E0,
    "current firmware": 0x1E8,
    "reserved": 0x1EB,
    "committed firmware": 0x1EC,
    "launch_tcb": 0x1F0,
    "mitigations": 0x1F8,
    "last signed byte": 0x29F,
}
EARLY = {
    # 3 becomes 2, in which the CPUID bytes are reserved.
    "version": RefusalCode.MALFORMED,
    "algorithm": RefusalCode.UNSUPPORTED_ALGORITHM,
    "key_info reserved": RefusalCode.MALFORMED,
    "reserved after cpuid": RefusalCode.MALFORMED,
    "reserved": RefusalCode.MALFORMED,
    "mitigations": RefusalCode.MALFORMED,
    "last signed byte": RefusalCode.MALFORMED,
}


def _cpu(bundle: EvidenceBundle) -> SnpEvidence:
    assert isinstance(bundle.cpu, SnpEvidence)
    return bundle.cpu


def _with_report(bundle: EvidenceBundle, report: bytes) -> EvidenceBundle:
    return replace(bundle, cpu=replace(_cpu(bundle), report=report))


def _flip(data: bytes, offset: int, mask: int = 1) -> bytes:
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


# --- 9: layout ----------------------------------------------------------------


@pytest.mark.parametrize("name", SIGNED_OFFSETS)
def test_flipped_bit_is_refused(
    refused: Refused, bundle: EvidenceBundle, name: str
) -> None:
    report = _flip(_cpu(bundle).report, SIGNED_OFFSETS[name])
    expected = EARLY.get(name, RefusalCode.BAD_SIGNATURE)
    assert refused(_with_report(bundle, report)).code is expected


@pytest.mark.parametrize("offset", [0x2A0, 0x2CF, 0x2E8, 0x317])
def test_flipped_signature_is_refused(
    refused: Refused, bundle: EvidenceBundle, offset: int
) -> None:
    report = _flip(_cpu(bundle).report, offset)
    assert refused(_with_report(bundle, report)).code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("r", "s"), [(0, 0), (0, 1), (2**576 - 1, 1)], ids=["zero", "r zero", "huge"]
)
def test_signature_out_of_range_is_refused(
    refused: Refused, bundle: EvidenceBundle, r: int, s: int
) -> None:
    report = _cpu(bundle).report[:SIGNED_BYTES] + encode_signature(r, s)
    assert refused(_with_report(bundle, report)).code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize("size", [0, 1183, 1185, 4096], ids=str)
def test_wrong_length_is_refused(
    refused: Refused, bundle: EvidenceBundle, size: int
) -> None:
    report = _cpu(bundle).report.ljust(size, b"\0")[:size]
    error = refused(_with_report(bundle, report))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "report layout")


def test_version_2_is_refused_unless_asked_for(
    refused: Refused, deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    bundle = deployment.bundle(lambda fields: replace(fields, version=2))
    assert refused(bundle).code is RefusalCode.UNSUPPORTED_VERSION
    rules = replace(expectations, snp=replace(expectations.snp, min_version=2))
    assert verify(encode_bundle(bundle), rules, now=now).emulated


@pytest.mark.parametrize("version", [3, 4, 5])
def test_later_versions_are_accepted(
    deployment: Deployment, expectations: Expectations, now: datetime, version: int
) -> None:
    bundle = deployment.bundle(lambda fields: replace(fields, version=version))
    assert verify(encode_bundle(bundle), expectations, now=now).emulated


# --- validly signed, yet refused ----------------------------------------------


def _set(**changes: Any) -> ChangeReport:
    return lambda fields: replace(fields, **changes)


LOW = Tcb(bl=10, tee=0, snp=22, ucode=84)
SIGNED_CASES: dict[str, tuple[ChangeReport, RefusalCode, str]] = {
    "version 6": (_set(version=6), RefusalCode.UNSUPPORTED_VERSION, "report layout"),
    "version 1": (_set(version=1), RefusalCode.UNSUPPORTED_VERSION, "report layout"),
    "policy bit 17": (_set(policy=0x10000), RefusalCode.MALFORMED, "report layout"),
    "policy bit 26": (
        _set(policy=0x30000 | 1 << 26),
        RefusalCode.MALFORMED,
        "report layout",
    ),
    "algorithm": (
        _set(algorithm=2),
        RefusalCode.UNSUPPORTED_ALGORITHM,
        "report layout",
    ),
    "reserved key info": (
        _set(signing_key=8),
        RefusalCode.MALFORMED,
        "report layout",
    ),
    "no key": (_set(signing_key=7), RefusalCode.UNSIGNED, "signing key"),
    "reserved key": (_set(signing_key=3), RefusalCode.UNSIGNED, "signing key"),
    "VLEK": (_set(signing_key=1), RefusalCode.ENDORSEMENT_MISMATCH, "signing key"),
    "other product": (
        _set(cpuid=(0x19, 0x01, 0x01)),
        RefusalCode.ENDORSEMENT_MISMATCH,
        "pinned root",
    ),
    "unknown product": (
        _set(cpuid=(0x1A, 0x12, 0x00)),
        RefusalCode.UNSUPPORTED_PRODUCT,
        "pinned root",
    ),
    "masked chip": (
        _set(mask_chip=True),
        RefusalCode.ENDORSEMENT_MISMATCH,
        "chip identity",
    ),
    "zero chip": (
        _set(chip_id=bytes(64)),
        RefusalCode.ENDORSEMENT_MISMATCH,
        "chip identity",
    ),
    "other chip": (
        _set(chip_id=bytes(63) + b"\1"),
        RefusalCode.ENDORSEMENT_MISMATCH,
        "chip identity",
    ),
    "reported TCB": (
        _set(reported_tcb=LOW),
        RefusalCode.ENDORSEMENT_MISMATCH,
        "TCB endorsement",
    ),
    "higher reported TCB": (
        _set(reported_tcb=replace(LOW, snp=24)),
        RefusalCode.ENDORSEMENT_MISMATCH,
        "TCB endorsement",
    ),
    "debug": (
        _set(policy=0x30000 | 1 << 19),
        RefusalCode.DEBUG_ENABLED,
        "guest policy",
    ),
    "migration agent": (
        _set(policy=0x30000 | 1 << 18),
        RefusalCode.MIGRATION_AGENT_ALLOWED,
        "guest policy",
    ),
    "vmpl": (_set(vmpl=1), RefusalCode.VMPL, "privilege level"),
    "committed TCB": (
        _set(committed_tcb=LOW),
        RefusalCode.TCB_TOO_LOW,
        "minimum TCB",
    ),
    "launch TCB": (_set(launch_tcb=LOW), RefusalCode.TCB_TOO_LOW, "minimum TCB"),
    "measurement": (
        _set(measurement=bytes(48)),
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        "measurement",
    ),
    "host data": (
        _set(host_data=b"\1" + bytes(31)),
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        "host data",
    ),
    "report data": (
        _set(report_data=bytes(64)),
        RefusalCode.BINDING_MISMATCH,
        "report data",
    ),
}


@pytest.mark.parametrize("name", SIGNED_CASES)
def test_validly_signed_report_is_refused(
    refused: Refused, deployment: Deployment, name: str
) -> None:
    change, code, step = SIGNED_CASES[name]
    error = refused(deployment.bundle(change))
    assert (error.code, error.step) == (code, step)


def test_host_data_is_shown_next_to_what_is_accepted(
    refused: Refused, deployment: Deployment
) -> None:
    change, *_ = SIGNED_CASES["host data"]
    error = refused(deployment.bundle(change))
    assert error.detail.startswith(f"host data 01{'00' * 31} ")
    assert error.detail.endswith(f": {'00' * 32}")


HOST_DATA = b"\1" + bytes(31)


def _released(
    deployment: Deployment, now: datetime, *measurements: dict[str, str]
) -> Deployment:
    """A deployment whose release lists these measurements."""
    listed = {Tee.EMULATED_SEV_SNP.value: measurements}
    manifest = replace(parse_manifest(deployment.manifest), measurements=listed)
    return make_deployment(deployment.platform, now=now, manifest=manifest)


@pytest.mark.parametrize(
    ("named", "data", "step"),
    [
        (HOST_DATA, HOST_DATA, None),
        (bytes(32), bytes(32), None),
        # The policy's own values are for measurements that name none.
        (HOST_DATA, bytes(32), Check.MEASUREMENT),
        (HOST_DATA, b"\2" * 32, Check.HOST_DATA),
    ],
    ids=["named", "zeros named", "the policy's", "another"],
)
def test_a_measurement_decides_about_the_host_data_that_it_names(
    deployment: Deployment, now: datetime, named: bytes, data: bytes, step: str | None
) -> None:
    launch = MEASUREMENT.hex()
    released = _released(deployment, now, {"launch": launch, "hostdata": named.hex()})
    bundle = encode_bundle(released.bundle(_set(host_data=data)))
    if step is None:
        key = verify(bundle, released.expectations(), now=now)
        assert key.claims.registers["hostdata"] == data.hex()
        return
    with pytest.raises(RefusedError) as caught:
        verify(bundle, released.expectations(), now=now)
    assert caught.value.code is RefusalCode.MEASUREMENT_NOT_ALLOWED
    assert caught.value.step == step


def test_host_data_of_another_measurement_is_refused(
    deployment: Deployment, now: datetime
) -> None:
    launch, other = MEASUREMENT.hex(), "22" * 48
    released = _released(
        deployment,
        now,
        {"launch": launch},
        {"launch": other, "hostdata": HOST_DATA.hex()},
    )
    expectations = released.expectations()
    assert verify(encode_bundle(released.bundle()), expectations, now=now).emulated
    bundle = encode_bundle(released.bundle(_set(host_data=HOST_DATA)))
    with pytest.raises(RefusedError) as caught:
        verify(bundle, expectations, now=now)
    assert caught.value.step == Check.MEASUREMENT


def test_pinned_host_data_must_hold_as_well(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    values = frozenset({bytes(32), HOST_DATA})
    pinned = {"launch": MEASUREMENT.hex(), "hostdata": HOST_DATA.hex()}
    rules = replace(
        expectations,
        snp=replace(expectations.snp, host_data=values),
        measurements={Tee.EMULATED_SEV_SNP.value: (pinned,)},
    )
    bundle = encode_bundle(deployment.bundle(_set(host_data=HOST_DATA)))
    assert verify(bundle, rules, now=now).emulated
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(deployment.bundle()), rules, now=now)
    assert caught.value.step == Check.PINNED_MEASUREMENT


def test_masked_chip_is_accepted_when_allowed(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    snp = replace(expectations.snp, allow_masked_chip=True)
    bundle = deployment.bundle(_set(chip_id=bytes(64)))
    assert verify(
        encode_bundle(bundle), replace(expectations, snp=snp), now=now
    ).emulated


def test_reserved_tcb_bytes_are_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle
) -> None:
    signed = bytearray(_cpu(bundle).report[:SIGNED_BYTES])
    signed[0x1E0 + 3] = 1
    report = sign_report(bytes(signed), deployment.platform.vek_key)
    error = refused(_with_report(bundle, report))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "minimum TCB")


# --- expectations -------------------------------------------------------------


@pytest.mark.parametrize("component", ["bl", "tee", "snp", "ucode", "fmc"])
def test_policys_minimum_tcb_is_enforced(
    refused: Refused,
    deployment: Deployment,
    expectations: Expectations,
    component: str,
) -> None:
    tcb = deployment.platform.tcb
    higher = replace(tcb, **{component: getattr(tcb, component) + 1})
    snp = replace(expectations.snp, min_tcb={"Genoa": higher})
    error = refused(deployment.bundle(), replace(expectations, snp=snp))
    assert error.code is RefusalCode.TCB_TOO_LOW
    assert error.detail == f"reported TCB: {component}"


def test_releases_minimum_tcb_is_enforced(
    refused: Refused, deployment: Deployment, now: datetime
) -> None:
    higher = replace(deployment.platform.tcb, ucode=85)
    manifest = replace(
        parse_manifest(deployment.manifest), min_tcb={Product.GENOA: higher}
    )
    stricter = make_deployment(deployment.platform, now=now, manifest=manifest)
    error = refused(stricter.bundle(), stricter.expectations())
    assert error.code is RefusalCode.TCB_TOO_LOW


def test_product_without_a_minimum_is_refused(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations
) -> None:
    minimum = {"Milan": expectations.snp.min_tcb["Genoa"]}
    snp = replace(expectations.snp, min_tcb=minimum)
    error = refused(bundle, replace(expectations, snp=snp))
    assert error.code is RefusalCode.TCB_TOO_LOW


@pytest.mark.parametrize(
    "measured", [{}, {"emulated-sev-snp": ()}], ids=["no", "empty"]
)
def test_release_without_measurements_is_refused(
    refused: Refused,
    deployment: Deployment,
    now: datetime,
    measured: Mapping[str, tuple[Measurement, ...]],
) -> None:
    manifest = replace(parse_manifest(deployment.manifest), measurements=measured)
    empty = make_deployment(deployment.platform, now=now, manifest=manifest)
    error = refused(empty.bundle(), empty.expectations())
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_root_of_another_product_is_untrusted(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations
) -> None:
    roots = tuple(replace(root, product="Milan") for root in expectations.roots)
    error = refused(bundle, replace(expectations, roots=roots))
    assert (error.code, error.step) == (RefusalCode.UNTRUSTED_ROOT, "pinned root")


# --- other products and keys --------------------------------------------------


@pytest.mark.parametrize("product", [Product.MILAN, Product.TURIN])
def test_other_products_are_accepted(
    root_keys: RootKeys, now: datetime, product: Product
) -> None:
    fmc = 3 if product is Product.TURIN else 0
    tcb = Tcb(fmc=fmc, bl=4, tee=1, snp=24, ucode=219)
    platform = snp_pki.make_platform(root_keys, now=now, product=product, tcb=tcb)
    deployment = make_deployment(platform, now=now)
    assert verify(
        encode_bundle(deployment.bundle()), deployment.expectations(), now=now
    ).emulated


def _vlek_deployment(root_keys: RootKeys, now: datetime) -> Deployment:
    platform = snp_pki.make_platform(root_keys, now=now, signing_key=SigningKey.VLEK)
    return make_deployment(platform, now=now)


def test_vlek_is_accepted_when_allowed(root_keys: RootKeys, now: datetime) -> None:
    deployment = _vlek_deployment(root_keys, now)
    rules = deployment.expectations()
    rules = replace(
        rules, snp=replace(rules.snp, allow_vlek=True, allow_masked_chip=True)
    )
    assert verify(encode_bundle(deployment.bundle()), rules, now=now).emulated


def test_vlek_may_name_a_chip_that_it_cannot_endorse(
    root_keys: RootKeys, now: datetime
) -> None:
    deployment = _vlek_deployment(root_keys, now)
    rules = deployment.expectations()
    rules = replace(rules, snp=replace(rules.snp, allow_vlek=True))
    bundle = deployment.bundle(_set(chip_id=b"\1" * 64))
    verified = verify(encode_bundle(bundle), rules, now=now)
    assert any(step.detail.startswith("a VLEK ") for step in verified.steps)


def test_vlek_and_vcek_are_not_confused(
    refused: Refused, root_keys: RootKeys, deployment: Deployment, now: datetime
) -> None:
    allow = deployment.expectations()
    allow = replace(
        allow, snp=replace(allow.snp, allow_vlek=True, allow_masked_chip=True)
    )
    vlek = _vlek_deployment(root_keys, now).platform
    bundle = deployment.bundle()
    # The report says VCEK, the leaf is a VLEK's.
    leaf = replace(bundle, cpu=replace(_cpu(bundle), vek=vlek.vek))
    assert refused(leaf, allow).code is RefusalCode.CHAIN_INVALID
    # Leaf and report agree, the intermediate is the other one.
    middle = replace(bundle, cpu=replace(_cpu(bundle), ask=vlek.ask))
    error = refused(middle, allow)
    assert (error.code, error.detail) == (
        RefusalCode.CHAIN_INVALID,
        "ASK: unexpected name",
    )


def test_another_chips_key_is_refused(
    refused: Refused, root_keys: RootKeys, bundle: EvidenceBundle, now: datetime
) -> None:
    other = snp_pki.make_platform(root_keys, now=now)
    stolen = replace(bundle, cpu=replace(_cpu(bundle), vek=other.vek))
    assert refused(stolen).code is RefusalCode.BAD_SIGNATURE


# --- 10 to 13: the chain ------------------------------------------------------


def _vek_fields(
    platform: EmulatedPlatform, now: datetime, **changes: Any
) -> CertificateFields:
    fields = CertificateFields(
        common_name="SEV-VCEK",
        issuer_name="SEV-Genoa",
        public_key=platform.vek_key.public_key(),
        not_before=now - timedelta(days=1),
        not_after=now + timedelta(days=1),
        amd=snp_pki.amd_extensions(
            platform.product, platform.signing_key, platform.tcb, platform.chip_id
        ),
    )
    return replace(fields, **changes)


@pytest.fixture
def with_vek(
    deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> Callable[..., EvidenceBundle]:
    """Issue another certificate for the same key, by the same authority."""

    def issue(**changes: Any) -> EvidenceBundle:
        platform = deployment.platform
        vek = snp_pki.make_certificate(
            _vek_fields(platform, now, **changes), platform.root_keys.ask
        )
        return replace(bundle, cpu=replace(_cpu(bundle), vek=vek))

    return issue


@pytest.fixture
def with_ask(
    deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> Callable[..., EvidenceBundle]:
    """Issue another intermediate for the same key, by the same root."""

    def issue(
        issuer: rsa.RSAPrivateKey | None = None, **changes: Any
    ) -> EvidenceBundle:
        keys = deployment.platform.root_keys
        fields = CertificateFields(
            common_name="SEV-Genoa",
            issuer_name="ARK-Genoa",
            public_key=keys.ask.public_key(),
            not_before=now - timedelta(days=1),
            not_after=now + timedelta(days=1),
            serial=9,
            authority=True,
        )
        ask = snp_pki.make_certificate(replace(fields, **changes), issuer or keys.ark)
        return replace(bundle, cpu=replace(_cpu(bundle), ask=ask))

    return issue


def test_reissued_certificates_are_accepted(
    with_vek: Callable[..., EvidenceBundle],
    with_ask: Callable[..., EvidenceBundle],
    expectations: Expectations,
    now: datetime,
) -> None:
    assert verify(encode_bundle(with_vek()), expectations, now=now).emulated
    assert verify(encode_bundle(with_vek(serial=5)), expectations, now=now).emulated
    assert verify(encode_bundle(with_ask()), expectations, now=now).emulated


def test_chain_of_other_keys_is_refused(
    refused: Refused,
    deployment: Deployment,
    with_ask: Callable[..., EvidenceBundle],
) -> None:
    forged = with_ask(issuer=deployment.platform.root_keys.ask)
    error = refused(forged)
    assert (error.code, error.detail) == (RefusalCode.CHAIN_INVALID, "ASK: signature")


def test_flipped_certificate_is_refused(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    for name in ("vek", "ask"):
        der = getattr(_cpu(bundle), name)
        changes: dict[str, Any] = {name: _flip(der, len(der) - 520)}
        error = refused(replace(bundle, cpu=replace(_cpu(bundle), **changes)))
        assert error.code in {RefusalCode.CHAIN_INVALID, RefusalCode.NOT_YET_VALID}


@pytest.mark.parametrize("name", ["vek", "ask"])
@pytest.mark.parametrize("damage", ["empty", "cut", "trailing", "text"])
def test_certificate_that_is_none_is_refused(
    refused: Refused, bundle: EvidenceBundle, name: str, damage: str
) -> None:
    der: bytes = getattr(_cpu(bundle), name)
    damaged = {"empty": b"", "cut": der[:-1], "trailing": der + b"\0", "text": b"x"}
    changes: dict[str, Any] = {name: damaged[damage]}
    error = refused(replace(bundle, cpu=replace(_cpu(bundle), **changes)))
    assert error.code is RefusalCode.CHAIN_INVALID


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"issuer_name": "SEV-Milan"}, "VEK: issuer's name"),
        ({"authority": True}, "VEK: is an authority"),
    ],
    ids=["issuer", "authority"],
)
def test_leaf_is_refused(
    refused: Refused,
    with_vek: Callable[..., EvidenceBundle],
    changes: dict[str, Any],
    detail: str,
) -> None:
    error = refused(with_vek(**changes))
    assert (error.code, error.detail) == (RefusalCode.CHAIN_INVALID, detail)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"common_name": "SEV-Milan"}, "ASK: unexpected name"),
        ({"issuer_name": "ARK-Milan"}, "ASK: issuer's name"),
        ({"authority": False}, "ASK: no authority"),
    ],
    ids=["name", "issuer", "authority"],
)
def test_intermediate_is_refused(
    refused: Refused,
    with_ask: Callable[..., EvidenceBundle],
    changes: dict[str, Any],
    detail: str,
) -> None:
    error = refused(with_ask(**changes))
    assert (error.code, error.detail) == (RefusalCode.CHAIN_INVALID, detail)


def _with_exponent(key: rsa.RSAPrivateKey, exponent: int) -> rsa.RSAPrivateKey:
    numbers = key.private_numbers()
    p, q = numbers.p, numbers.q
    d = pow(exponent, -1, math.lcm(p - 1, q - 1))
    return rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=d,
        dmp1=d % (p - 1),
        dmq1=d % (q - 1),
        iqmp=numbers.iqmp,
        public_numbers=rsa.RSAPublicNumbers(exponent, p * q),
    ).private_key()


@pytest.mark.parametrize("which", ["bits", "exponent"])
def test_weak_intermediate_is_refused(
    refused: Refused,
    deployment: Deployment,
    with_ask: Callable[..., EvidenceBundle],
    now: datetime,
    which: str,
) -> None:
    """Even though the root vouches for it, and its signature would hold."""
    if which == "bits":
        weak = rsa.generate_private_key(65537, 2048)
    else:
        weak = _with_exponent(deployment.platform.root_keys.ask, 65539)
    vek = snp_pki.make_certificate(_vek_fields(deployment.platform, now), weak)
    chain = with_ask(public_key=weak.public_key())
    chain = replace(chain, cpu=replace(_cpu(chain), vek=vek))
    error = refused(chain)
    assert (error.code, error.detail) == (RefusalCode.CHAIN_INVALID, "VEK: signature")


def test_root_that_did_not_sign_itself_is_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> None:
    keys = deployment.platform.root_keys
    fields = CertificateFields(
        common_name="ARK-Genoa",
        issuer_name="ARK-Genoa",
        public_key=keys.ark.public_key(),
        not_before=now - timedelta(days=1),
        not_after=now + timedelta(days=1),
        serial=1,
        authority=True,
    )
    rules = deployment.expectations()

    def pinned(der: bytes) -> Expectations:
        root = TrustAnchor.of_certificate(AnchorKind.EMULATED, "Genoa", der)
        return replace(rules, roots=(root,))

    forged = snp_pki.make_certificate(fields, keys.ask)
    assert refused(bundle, pinned(forged)).detail == "ARK: signature"
    named = snp_pki.make_certificate(replace(fields, common_name="ARK-Milan"), keys.ark)
    assert refused(bundle, pinned(named)).detail == "ARK: unexpected name"
    plain = snp_pki.make_certificate(replace(fields, authority=False), keys.ark)
    assert refused(bundle, pinned(plain)).detail == "ARK: no authority"
    assert refused(bundle, pinned(b"x")).code is RefusalCode.CHAIN_INVALID


def _pkcs1_certificate(platform: EmulatedPlatform, now: datetime) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(snp_pki.distinguished_name("SEV-VCEK"))
        .issuer_name(snp_pki.distinguished_name("SEV-Genoa"))
        .public_key(platform.vek_key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
    extensions = _vek_fields(platform, now).amd
    for name, value in extensions.items():
        oid = x509.ObjectIdentifier("1.3.6.1.4.1.3704.1." + name)
        builder = builder.add_extension(
            x509.UnrecognizedExtension(oid, value), critical=False
        )
    signed = builder.sign(
        platform.root_keys.ask, hashes.SHA384(), rsa_padding=padding.PKCS1v15()
    )
    return signed.public_bytes(serialization.Encoding.DER)


def test_pkcs1_signature_is_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> None:
    vek = _pkcs1_certificate(deployment.platform, now)
    error = refused(replace(bundle, cpu=replace(_cpu(bundle), vek=vek)))
    assert error.code is RefusalCode.CHAIN_INVALID
    assert error.detail.startswith("VEK: ")
    assert error.detail.endswith("RSASSA-PSS")


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()).public_key(),
        rsa.generate_private_key(65537, 2048).public_key(),
    ],
    ids=["P-256", "RSA"],
)
def test_leaf_with_another_kind_of_key_is_refused(
    refused: Refused,
    with_vek: Callable[..., EvidenceBundle],
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
) -> None:
    error = refused(with_vek(public_key=key))
    assert error.code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize("which", ["vek", "ask"])
@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        (1, 2, RefusalCode.NOT_YET_VALID),
        (-2, -1, RefusalCode.EXPIRED_ENDORSEMENT),
    ],
    ids=["future", "expired"],
)
def test_certificate_dates_are_enforced(  # noqa: PLR0917 - fixtures and cases
    refused: Refused,
    with_vek: Callable[..., EvidenceBundle],
    with_ask: Callable[..., EvidenceBundle],
    now: datetime,
    which: str,
    start: int,
    end: int,
    code: RefusalCode,
) -> None:
    issue = with_vek if which == "vek" else with_ask
    dated = issue(
        not_before=now + timedelta(days=start), not_after=now + timedelta(days=end)
    )
    error = refused(dated)
    assert (error.code, error.step) == (code, "certificate dates")


def test_expiry_is_the_certificates_end(
    with_vek: Callable[..., EvidenceBundle], expectations: Expectations, now: datetime
) -> None:
    ending = now + timedelta(minutes=5)
    verified = verify(encode_bundle(with_vek(not_after=ending)), expectations, now=now)
    assert verified.expires_at == ending


# --- 14: revocation -----------------------------------------------------------


def _with_crl(bundle: EvidenceBundle, crl: bytes) -> EvidenceBundle:
    return replace(bundle, cpu=replace(_cpu(bundle), crl=crl))


def test_missing_list_is_refused(refused: Refused, bundle: EvidenceBundle) -> None:
    assert refused(_with_crl(bundle, b"")).code is RefusalCode.CRL_MISSING


def test_list_that_is_none_is_refused(refused: Refused, bundle: EvidenceBundle) -> None:
    assert refused(_with_crl(bundle, b"x")).code is RefusalCode.CRL_INVALID
    cut = _cpu(bundle).crl[:-1]
    assert refused(_with_crl(bundle, cut)).code is RefusalCode.CRL_INVALID


def _crl(
    deployment: Deployment, now: datetime, issuer: str = "ARK-Genoa", **changes: Any
) -> bytes:
    values: dict[str, Any] = {
        "issued": now - timedelta(days=1),
        "next_update": now + timedelta(days=1),
        **changes,
    }
    return snp_pki.make_crl(deployment.platform.root_keys.ark, issuer, **values)


def test_list_of_another_authority_is_refused(
    refused: Refused,
    deployment: Deployment,
    bundle: EvidenceBundle,
    now: datetime,
) -> None:
    named = _crl(deployment, now, issuer="ARK-Milan")
    assert refused(_with_crl(bundle, named)).detail.startswith("issued by ")
    forged = snp_pki.make_crl(
        deployment.platform.root_keys.ask,
        "ARK-Genoa",
        issued=now - timedelta(days=1),
        next_update=now + timedelta(days=1),
    )
    error = refused(_with_crl(bundle, forged))
    assert (error.code, error.detail) == (RefusalCode.CRL_INVALID, "signature")


def test_stale_list_is_refused(
    refused: Refused,
    deployment: Deployment,
    bundle: EvidenceBundle,
    expectations: Expectations,
    now: datetime,
) -> None:
    # At its very second: a key that is usable until then cannot be had.
    ended = _crl(deployment, now, next_update=now)
    assert refused(_with_crl(bundle, ended)).code is RefusalCode.CRL_EXPIRED
    last = _crl(deployment, now, next_update=now + timedelta(seconds=1))
    key = verify(encode_bundle(_with_crl(bundle, last)), expectations, now=now)
    key.usable_at(now)
    rules = replace(expectations, snp=replace(expectations.snp, max_crl_age_s=86400))
    old = _with_crl(bundle, _crl(deployment, now))
    assert refused(old, rules).code is RefusalCode.CRL_EXPIRED


def test_list_of_the_future_is_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> None:
    future = _crl(deployment, now, issued=now + timedelta(seconds=61))
    assert refused(_with_crl(bundle, future)).code is RefusalCode.NOT_YET_VALID


@pytest.mark.parametrize("serial", [snp_pki.ASK_SERIAL, snp_pki.ASK_SERIAL - 1])
def test_revoked_authority_is_refused(
    refused: Refused,
    deployment: Deployment,
    bundle: EvidenceBundle,
    now: datetime,
    serial: int,
) -> None:
    crl = _crl(deployment, now, revoked=[7, serial])
    assert refused(_with_crl(bundle, crl)).code is RefusalCode.REVOKED


def test_list_that_revokes_others_is_accepted(
    deployment: Deployment,
    bundle: EvidenceBundle,
    expectations: Expectations,
    now: datetime,
) -> None:
    crl = _crl(deployment, now, revoked=[7])
    assert verify(encode_bundle(_with_crl(bundle, crl)), expectations, now=now).emulated


def test_partial_list_is_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> None:
    only_leaves = x509.IssuingDistributionPoint(
        full_name=None,
        relative_name=None,
        only_contains_user_certs=True,
        only_contains_ca_certs=False,
        only_some_reasons=None,
        indirect_crl=False,
        only_contains_attribute_certs=False,
    )
    signed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(snp_pki.distinguished_name("ARK-Genoa"))
        .last_update(now - timedelta(days=1))
        .next_update(now + timedelta(days=1))
        .add_extension(only_leaves, critical=True)
        .sign(
            deployment.platform.root_keys.ark,
            hashes.SHA384(),
            rsa_padding=padding.PSS(padding.MGF1(hashes.SHA384()), 48),
        )
    )
    crl = signed.public_bytes(serialization.Encoding.DER)
    error = refused(_with_crl(bundle, crl))
    assert (error.code, error.detail) == (
        RefusalCode.CRL_INVALID,
        "CRL: critical extension",
    )


def _content(der: bytes) -> bytes:
    return der[2 + max(der[1] - 0x80, 0) :]


def _sequence(content: bytes) -> bytes:
    size = len(content)
    if size > 0xFF:
        return b"\x30\x82" + struct.pack(">H", size) + content
    return b"\x30\x81" + bytes([size]) + content


def test_list_without_an_end_is_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle, now: datetime
) -> None:
    """RFC 5280 demands nextUpdate; its grammar does not, and no builder obeys."""
    der = _crl(deployment, now)
    parsed = x509.load_der_x509_crl(der)
    body = parsed.tbs_certlist_bytes
    end = parsed.next_update_utc
    assert end is not None
    time = b"\x17\x0d" + end.strftime("%y%m%d%H%M%SZ").encode()
    assert body.count(time) == 1
    shorter = _sequence(_content(body).replace(time, b""))
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    key = deployment.platform.root_keys.ark
    signature = key.sign(shorter, scheme, hashes.SHA384())
    algorithm = _content(der)[len(body) : -len(signature)]
    crl = _sequence(shorter + algorithm + signature)
    error = refused(_with_crl(bundle, crl))
    assert error.code is RefusalCode.CRL_INVALID
    assert error.detail.endswith(" no expiry date")


# --- 16 and 17: AMD's extensions ----------------------------------------------


def _amd(deployment: Deployment, **changes: bytes | None) -> dict[str, bytes]:
    platform = deployment.platform
    known: dict[str, bytes | None] = {
        **snp_pki.amd_extensions(
            platform.product, platform.signing_key, platform.tcb, platform.chip_id
        ),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return {name: value for name, value in known.items() if value is not None}


def test_wrapped_hardware_id_is_accepted(
    deployment: Deployment,
    with_vek: Callable[..., EvidenceBundle],
    expectations: Expectations,
    now: datetime,
) -> None:
    wrapped = b"\x04\x40" + deployment.platform.chip_id
    amd = {**_amd(deployment), "4": wrapped}
    assert verify(encode_bundle(with_vek(amd=amd)), expectations, now=now).emulated


def test_unused_levels_may_be_missing(
    deployment: Deployment,
    with_vek: Callable[..., EvidenceBundle],
    expectations: Expectations,
    now: datetime,
) -> None:
    amd = {k: v for k, v in _amd(deployment).items() if k not in {"3.4", "3.7"}}
    assert verify(encode_bundle(with_vek(amd=amd)), expectations, now=now).emulated


EXTENSION_CASES: dict[str, tuple[str, bytes | None, RefusalCode]] = {
    "no product": ("2", None, RefusalCode.CHAIN_INVALID),
    "unknown product": ("2", b"\x16\x05Genua", RefusalCode.UNSUPPORTED_PRODUCT),
    "product not ASCII": ("2", b"\x16\x05Geno\xff", RefusalCode.UNSUPPORTED_PRODUCT),
    "product cut": ("2", b"\x16\x06Genoa", RefusalCode.CHAIN_INVALID),
    "other product": ("2", b"\x16\x05Milan", RefusalCode.ENDORSEMENT_MISMATCH),
    "no chip": ("4", None, RefusalCode.CHAIN_INVALID),
    "short chip": ("4", bytes(63), RefusalCode.CHAIN_INVALID),
    "other chip": ("4", bytes(64), RefusalCode.ENDORSEMENT_MISMATCH),
    "no level": ("3.8", None, RefusalCode.CHAIN_INVALID),
    "level is no integer": ("3.8", b"\x04\x01\x54", RefusalCode.CHAIN_INVALID),
    "level is long": ("3.8", b"\x02\x02\x00\x54", RefusalCode.CHAIN_INVALID),
    "level is negative": ("3.8", b"\x02\x01\xd4", RefusalCode.CHAIN_INVALID),
    "level is too large": ("3.8", b"\x02\x02\x01\x54", RefusalCode.CHAIN_INVALID),
    "level is empty": ("3.8", b"\x02\x00", RefusalCode.CHAIN_INVALID),
    "level differs": ("3.8", b"\x02\x01\x55", RefusalCode.ENDORSEMENT_MISMATCH),
    "unused level": ("3.5", b"\x02\x01\x01", RefusalCode.ENDORSEMENT_MISMATCH),
}


@pytest.mark.parametrize("name", EXTENSION_CASES)
def test_extension_is_refused(
    refused: Refused,
    deployment: Deployment,
    with_vek: Callable[..., EvidenceBundle],
    name: str,
) -> None:
    extension, value, code = EXTENSION_CASES[name]
    amd = _amd(deployment)
    if value is None:
        del amd[extension]
    else:
        amd[extension] = value
    assert refused(with_vek(amd=amd)).code is code


# --- reading ------------------------------------------------------------------


def test_zero_serial_is_read_without_a_warning(platform: EmulatedPlatform) -> None:
    vek = parse_certificate(platform.vek, "VEK")
    assert vek.serial == 0
    with pytest.warns(Warning, match="serial number"):
        parsed = x509.load_der_x509_certificate(platform.vek)
    assert vek.signed_part == parsed.tbs_certificate_bytes


def test_serial_set_to_one_does_not_verify(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    """What the reader changes for itself must not pass as signed."""
    vek = _flip(_cpu(bundle).vek, 15)
    error = refused(replace(bundle, cpu=replace(_cpu(bundle), vek=vek)))
    assert error.detail == "VEK: signature"


def test_two_common_names_are_none(platform: EmulatedPlatform, now: datetime) -> None:
    name = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "SEV-VCEK"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "SEV-VCEK"),
        ]
    )
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(platform.vek_key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now)
        .sign(platform.vek_key, hashes.SHA384())
    )
    der = signed.public_bytes(serialization.Encoding.DER)
    assert parse_certificate(der, "VEK").common_name == ""


def test_report_fields_are_as_emulated(platform: EmulatedPlatform) -> None:
    fields = platform.report_fields(report_data=bytes(64), measurement=bytes(48))
    assert isinstance(fields, ReportFields)
    assert fields.launch_tcb == platform.tcb
