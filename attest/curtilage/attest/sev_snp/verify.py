"""Verification of SEV-SNP evidence: the report, its key's chain, their contents.

One path for genuine and for emulated evidence; only the pinned root differs.
The steps run in the order of ``Check``, from the report's layout to the
measurement, and each is marked below. The report data are the caller's to
compare.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from curtilage.attest.amd_tcb import Product, Tcb, encode_tcb, parse_tcb
from curtilage.attest.claims import (
    HOST_DATA,
    CpuClaims,
    Detail,
    Link,
    Measurement,
    not_listed,
    require_measurement,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import SnpEvidence
from curtilage.attest.expectations import SnpExpectations, TrustAnchor
from curtilage.attest.sev_snp.certificates import parse_certificate
from curtilage.attest.sev_snp.chain import (
    CheckedList,
    VekChain,
    build_chain,
    chain_links,
    check_dates,
    check_issued,
    check_revocation,
)
from curtilage.attest.sev_snp.report import (
    CHIP_ID_BYTES,
    POLICY_DEBUG,
    POLICY_MIGRATION_AGENT,
    SIGNED_BYTES,
    SigningKey,
    SnpReport,
    parse_report,
)
from curtilage.attest.steps import Check, StepLog
from curtilage.attest.x509.certificates import Certificate, verify_p384

# Turin's hardware id is the first 8 bytes of the report's chip id.
_TURIN_HARDWARE_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpRules:
    """The expectations of one report.

    Attributes:
        anchors: the pinned roots of the evidence's kind.
        expectations: the policy's rules.
        clock_skew_s: how far ahead the issuers' clocks may run.
        release_min_tcb: the release's own lowest patch levels; empty where
            there is no release.
        measurements: the accepted launch measurements.
    """

    anchors: tuple[TrustAnchor, ...]
    expectations: SnpExpectations
    clock_skew_s: int
    release_min_tcb: Mapping[Product, Tcb]
    measurements: tuple[Measurement, ...]


def verify_snp(
    evidence: SnpEvidence, rules: SnpRules, *, now: datetime, log: StepLog
) -> CpuClaims:
    """Verify a report, its chain and its claims, except the report data.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        now: aware UTC.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    claims = verify_snp_platform(evidence, rules, now=now, log=log)
    # Last, because only now it is known whose word the measurement is.
    log.begin(Check.MEASUREMENT)
    accepted = for_host_data(rules, claims.registers[HOST_DATA])
    require_measurement(claims.registers, accepted, claims.tee)
    log.passed(f"launch {claims.registers['launch'][:16]}… is accepted")
    return claims


def for_host_data(rules: SnpRules, host_data: str) -> tuple[Measurement, ...]:
    """Return the accepted measurements that may go with this host data, in hex.

    One that names host data decides about them itself; for the others they must be
    among the policy's.
    """
    usual = bytes.fromhex(host_data) in rules.expectations.host_data
    return tuple(each for each in rules.measurements if usual or HOST_DATA in each)


def verify_snp_platform(
    evidence: SnpEvidence, rules: SnpRules, *, now: datetime, log: StepLog
) -> CpuClaims:
    """Verify everything but the measurement; Azure's evidence needs more for it.

    Cheap steps before expensive ones, and the signer before the contents: until the
    signature is verified, a field of the report decides only which key must have
    signed it.

    Raises:
        RefusedError: the first step that does not hold.
    """
    expectations = rules.expectations
    # Exact length, fixed bits, reserved bytes, version.
    log.begin(Check.REPORT_LAYOUT)
    report = parse_report(evidence.report)
    # Old versions name no processor, so only the certificate would say what the patch
    # levels mean.
    if report.version < expectations.min_version:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"version {report.version}, at least {expectations.min_version} wanted",
        )
    log.passed(f"version {report.version}, {len(evidence.report)} bytes")
    # The report, the leaf and the policy agree on the kind of key.
    vek = _check_signing_key(evidence, report, expectations, log)
    # The root comes from the policy, chosen by product; a served one is used only where
    # it is the pinned one.
    log.begin(Check.PINNED_ROOT)
    chain = build_chain(evidence, report, vek, rules.anchors)
    log.passed(f"ARK-{chain.product}, sha256 {chain.ark.fingerprint[:16]}")
    # Names, key usage and the three RSA-4096 PSS signatures.
    log.begin(Check.CERTIFICATE_CHAIN)
    check_issued(chain)
    log.passed("ARK, ASK, VEK: three RSA-4096 signatures")
    log.begin(Check.CERTIFICATE_DATES)
    check_dates(chain, now=now)
    log.passed(f"valid until {chain.first_end:%Y-%m-%d}")
    # A current list of the root's names neither root nor intermediate.
    log.begin(Check.REVOCATION)
    revocation = check_revocation(
        evidence.crl,
        chain,
        max_age_s=expectations.max_crl_age_s,
        clock_skew_s=rules.clock_skew_s,
        now=now,
    )
    log.passed(f"current until {revocation.end:%Y-%m-%d}, {revocation.revoked} revoked")
    # The chip's key signed the report.
    log.begin(Check.REPORT_SIGNATURE)
    # The report has bare little-endian numbers, the library wants DER. Numbers beyond
    # the curve's order come out as "does not hold".
    signature = encode_dss_signature(report.signature_r, report.signature_s)
    if not verify_p384(vek.public_key, report.signed_part, signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "report signature")
    log.passed(f"ECDSA P-384 over {SIGNED_BYTES} bytes")
    # From here on the report is authentic; it is compared with the key's certificate,
    # and then against the policy. The key was made for the chip that it names.
    _check_chip(report, chain, expectations, log)
    # The key was derived for the patch levels that the report names.
    log.begin(Check.TCB_ENDORSEMENT)
    # The key is derived from the chip's secret and these levels (AMD 57230). A host
    # that claims newer firmware than runs gets a key for which AMD issues no such
    # certificate.
    tcb = parse_tcb(report.reported_tcb, chain.product)
    if chain.endorsed_tcb() != encode_tcb(tcb, chain.product):
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH,
            f"reported TCB ({tcb.describe()}) is not the key's",
        )
    log.passed(tcb.describe())
    # The guest's policy must not permit reading its memory.
    log.begin(Check.GUEST_POLICY)
    # Not a matter of the policy: no setting of ours turns it off.
    if report.policy & POLICY_DEBUG:
        raise RefusedError(RefusalCode.DEBUG_ENABLED, "the host may debug the guest")
    if report.policy & POLICY_MIGRATION_AGENT:
        raise RefusedError(
            RefusalCode.MIGRATION_AGENT_ALLOWED, "a migration agent may take the guest"
        )
    log.passed(f"{report.policy:#x}: no debugging, no migration agent")
    # The report was asked for at an allowed privilege level.
    log.begin(Check.PRIVILEGE_LEVEL)
    # Software at a lower privilege in the same guest, such as a container below a
    # paravisor, may ask for reports as well, and choose their report data.
    if report.vmpl not in expectations.vmpl:
        raise RefusedError(RefusalCode.VMPL, f"VMPL {report.vmpl} is not allowed")
    log.passed(f"VMPL {report.vmpl}")
    # Firmware is recent, cannot be rolled back, and was so at launch.
    _check_minimum_tcb(report, chain.product, rules, log)
    # The host set nothing at launch that the policy does not expect.
    log.begin(Check.HOST_DATA)
    # The host writes these 32 bytes at launch, and the launch measurement does not
    # cover them: an image that reads its configuration from there would run under the
    # host's orders.
    host_data = report.host_data.hex()
    expected = {each.hex() for each in expectations.host_data}
    expected |= {each[HOST_DATA] for each in rules.measurements if HOST_DATA in each}
    if host_data not in expected:
        said = f"host data {host_data} is not an expected value"
        raise not_listed(said, expected)
    log.passed("an expected value")
    return _claims(evidence, report, chain, revocation)


def _check_signing_key(
    evidence: SnpEvidence,
    report: SnpReport,
    expectations: SnpExpectations,
    log: StepLog,
) -> Certificate:
    log.begin(Check.SIGNING_KEY)
    kind = report.signing_key
    # A host may ask the firmware for an unsigned report (AMD 56860, SIGNING_KEY 7). Its
    # signature is zeros, and the rest of it looks valid.
    if kind is None or kind is SigningKey.NONE:
        raise RefusedError(RefusalCode.UNSIGNED, "the report names no signing key")
    # A provider loads its VLEK into many chips: if it is extracted from one chip, an
    # attacker can sign for all of that provider's chips.
    if kind is SigningKey.VLEK and not expectations.allow_vlek:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "signed by a VLEK, which is not allowed"
        )
    # The report says which kind of key signed it, and the certificate which kind it is:
    # both must say the same, or the chip's rules would be applied to a provider's key.
    vek = parse_certificate(evidence.vek, "VEK")
    if vek.common_name != f"SEV-{kind.name}":
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, f"the certificate is no {kind.name}'s"
        )
    log.passed(kind.name)
    return vek


def _check_chip(
    report: SnpReport, chain: VekChain, expectations: SnpExpectations, log: StepLog
) -> None:
    log.begin(Check.CHIP_IDENTITY)
    # Two ways to hide: the host's setting MASK_CHIP_ID, and zeros. A report that hides
    # its chip can be of any chip, also of one that was taken apart.
    hidden = not any(report.chip_id)
    if (report.chip_masked or hidden) and not expectations.allow_masked_chip:
        raise RefusedError(RefusalCode.ENDORSEMENT_MISMATCH, "the chip id is masked")
    if hidden:
        log.passed("masked, which is allowed")
        return
    # Its certificate names the provider instead. That is why a policy must ask for such
    # keys.
    if report.signing_key is SigningKey.VLEK:
        log.passed("a VLEK names no chip")
        return
    turin = chain.product is Product.TURIN
    length = _TURIN_HARDWARE_ID_BYTES if turin else CHIP_ID_BYTES
    # The certificate of one chip and the report of another: without this, one chip
    # whose key was extracted would sign for every platform of its product.
    if chain.hardware_id(length) != report.chip_id[:length]:
        raise RefusedError(RefusalCode.ENDORSEMENT_MISMATCH, "key of another chip")
    log.passed(f"chip {report.chip_id[:8].hex()}")


def _check_minimum_tcb(
    report: SnpReport, product: Product, rules: SnpRules, log: StepLog
) -> None:
    log.begin(Check.MINIMUM_TCB)
    # A product of which the policy says nothing has no level that suffices.
    minimum = rules.expectations.min_tcb.get(product.value)
    if minimum is None:
        raise RefusedError(RefusalCode.TCB_TOO_LOW, f"no minimum for {product}")
    # The current TCB is only shown to people; a host can roll it back, so it proves
    # nothing, but its form is fixed.
    parse_tcb(report.current_tcb, product)
    for name, raw in (
        # Reported: what the key was made for. Committed: the lowest that the host can
        # go back to. Launch: what ran when memory was measured; firmware that was
        # updated afterwards measured with the old.
        ("reported", report.reported_tcb),
        ("committed", report.committed_tcb),
        ("launch", report.launch_tcb),
    ):
        tcb = parse_tcb(raw, product)
        # Both minimums: a release may need a newer firmware than the policy, and a
        # policy a newer one than the release. Neither lowers the other.
        low = tcb.short_of(minimum) + tcb.short_of(
            rules.release_min_tcb.get(product, minimum)
        )
        if low:
            raise RefusedError(
                RefusalCode.TCB_TOO_LOW, f"{name} TCB: {', '.join(sorted(set(low)))}"
            )
    log.passed("reported, committed and launch TCB suffice")


def _claims(
    evidence: SnpEvidence,
    report: SnpReport,
    chain: VekChain,
    revocation: CheckedList,
) -> CpuClaims:
    emulated = evidence.tee.emulated
    own = Link(
        subject="SEV-SNP report",
        issuer=chain.vek.common_name,
        role="what the chip says of the machine",
        fingerprint=hashlib.sha256(report.signed_part).hexdigest(),
        not_after=None,
    )
    return CpuClaims(
        tee=evidence.tee,
        registers={
            "launch": report.measurement.hex(),
            HOST_DATA: report.host_data.hex(),
        },
        bound=report.report_data,
        expires_at=min(chain.first_end, revocation.end),
        details=_details(report, chain),
        links=(*chain_links(chain, revocation, emulated=emulated), own),
        # Signed by the key in any case; where that is a chip's own, its certificate
        # names it too, and the two were compared.
        platform=report.chip_id.hex() if any(report.chip_id) else "",
    )


def _details(report: SnpReport, chain: VekChain) -> dict[str, Detail]:
    details: dict[str, Detail] = {
        "product": chain.product.value,
        "version": report.version,
        "vmpl": report.vmpl,
        "signer": "VLEK" if chain.vlek else "VCEK",
        "debug": False,
        "guest_svn": report.guest_svn,
        "guest_policy": report.policy_words,
        "platform_info": report.platform_words,
        "firmware": _dotted(report.current_firmware),
        "committed_firmware": _dotted(report.committed_firmware),
        "report_id": report.report_id.hex(),
    }
    levels = {
        "reported_tcb": report.reported_tcb,
        "current_tcb": report.current_tcb,
        "committed_tcb": report.committed_tcb,
        "launch_tcb": report.launch_tcb,
    }
    for name, raw in levels.items():
        details[name] = parse_tcb(raw, chain.product).describe()
    # What the guest's owner put into its identity block, if anything.
    identity = {
        "family_id": report.family_id,
        "image_id": report.image_id,
        "id_key_digest": report.id_key_digest,
        "author_key_digest": report.author_key_digest if report.author_key else b"",
    }
    details |= {name: value.hex() for name, value in identity.items() if any(value)}
    if chain.provider:
        details["provider"] = chain.provider
    if report.cpu is not None:
        details["cpu"] = "family {:#x}, model {:#x}, stepping {:#x}".format(*report.cpu)
    if report.mitigations is not None:
        launch, current = report.mitigations
        details["launch_mitigations"] = f"{launch:#018x}"
        details["current_mitigations"] = f"{current:#018x}"
    return details


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(str(number) for number in version)
