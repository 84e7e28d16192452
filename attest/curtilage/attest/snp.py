"""SEV-SNP evidence: the report, its key's chain, and what both must say.

One path for genuine and for emulated evidence; only the pinned root differs.
The steps 9 to 21 are listed in ``verify``, which runs them through here, and
each is marked below.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from curtilage.attest.certificates import (
    Certificate,
    RevocationList,
    parse_certificate,
    parse_revocation_list,
    verify_ecdsa_p384,
    verify_rsa_pss,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import SnpEvidence
from curtilage.attest.expectations import SnpExpectations, TrustAnchor
from curtilage.attest.snp_report import (
    CHIP_ID_BYTES,
    POLICY_DEBUG,
    POLICY_MIGRATION_AGENT,
    SIGNED_BYTES,
    SigningKey,
    SnpReport,
    parse_report,
)
from curtilage.attest.steps import Check, StepLog
from curtilage.attest.tcb import (
    TCB_BYTES,
    Product,
    Tcb,
    encode_tcb,
    parse_tcb,
    product_named,
)

# AMD's extensions (1.3.6.1.4.1.3704.1.*).
_PRODUCT_NAME: Final = "2"
_HARDWARE_ID: Final = "4"
_DER_INTEGER: Final = 0x02
_DER_OCTET_STRING: Final = 0x04
_DER_IA5_STRING: Final = 0x16
# Which byte of a TCB version each patch level extension speaks of; the
# reserved ones (.3.4 to .3.7) speak of bytes that must be zero.
_LEVELS_MILAN_GENOA: Final = {
    "3.1": 0,
    "3.2": 1,
    "3.4": 2,
    "3.5": 3,
    "3.6": 4,
    "3.7": 5,
    "3.3": 6,
    "3.8": 7,
}
_LEVELS_TURIN: Final = {
    "3.9": 0,
    "3.1": 1,
    "3.2": 2,
    "3.3": 3,
    "3.5": 4,
    "3.6": 5,
    "3.7": 6,
    "3.8": 7,
}
# Turin's hardware id is the first 8 bytes of the report's chip id.
_TURIN_HARDWARE_ID_BYTES: Final = 8
# The levels that a certificate may leave out: reserved bytes, always zero.
_OPTIONAL_LEVELS: Final = frozenset({"3.4", "3.5", "3.6", "3.7"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpRules:
    """What one report is held against.

    Attributes:
        anchors: the pinned roots of the evidence's kind.
        expectations: the policy's rules.
        clock_skew_s: how far ahead the issuers' clocks may run.
        release_min_tcb: the release's own lowest patch levels.
        measurements: the release's launch measurements, lower-case hex.
    """

    anchors: tuple[TrustAnchor, ...]
    expectations: SnpExpectations
    clock_skew_s: int
    release_min_tcb: Mapping[Product, Tcb]
    measurements: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpClaims:
    """What a verified report says.

    Attributes:
        measurement: the launch measurement, lower-case hex.
        report_data: the 64 bytes that must be compared with the binding.
        expires_at: when a certificate or the revocation list runs out.
    """

    measurement: str
    report_data: bytes
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The three certificates of one report, root first."""

    product: Product
    ark: Certificate
    ask: Certificate
    vek: Certificate


def verify_snp(
    evidence: SnpEvidence, rules: SnpRules, *, now: datetime, log: StepLog
) -> SnpClaims:
    """Verify a report, its chain and its claims, except the report data.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        now: aware UTC.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    report = _check_layout(evidence, rules.expectations, log)
    vek = _check_signing_key(evidence, report, rules.expectations, log)
    chain = _check_pinned_root(evidence, report, vek, rules.anchors, log)
    _check_chain(chain, report, log)
    _check_dates(chain, now, log)
    crl = _check_revocation(evidence, chain, rules, now, log)
    _check_signature(report, chain.vek, log)
    _check_chip(report, chain, rules.expectations, log)
    _check_endorsed_tcb(report, chain, log)
    _check_guest_policy(report, log)
    _check_privilege_level(report, rules.expectations, log)
    _check_minimum_tcb(report, chain.product, rules, log)
    _check_measurement(report, rules, log)
    return SnpClaims(
        measurement=report.measurement.hex(),
        report_data=report.report_data,
        expires_at=_expiry(chain, crl, rules.expectations),
    )


def _check_layout(
    evidence: SnpEvidence, expectations: SnpExpectations, log: StepLog
) -> SnpReport:
    # 9. Exact length, fixed bits, reserved bytes, version.
    log.begin(Check.REPORT_LAYOUT)
    report = parse_report(evidence.report)
    if report.version < expectations.min_version:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"version {report.version}, at least {expectations.min_version} wanted",
        )
    log.passed(f"version {report.version}, {len(evidence.report)} bytes")
    return report


def _check_signing_key(
    evidence: SnpEvidence,
    report: SnpReport,
    expectations: SnpExpectations,
    log: StepLog,
) -> Certificate:
    # 10. The report, the leaf and the policy agree on the kind of key.
    log.begin(Check.SIGNING_KEY)
    if report.signing_key not in {SigningKey.VCEK, SigningKey.VLEK}:
        raise RefusedError(RefusalCode.UNSIGNED, "the report names no signing key")
    kind = SigningKey(report.signing_key)
    if kind is SigningKey.VLEK and not expectations.allow_vlek:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "signed by a VLEK, which is not allowed"
        )
    vek = parse_certificate(evidence.vek, "VEK")
    if vek.common_name != f"SEV-{kind.name}":
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, f"the certificate is no {kind.name}'s"
        )
    log.passed(kind.name)
    return vek


def _check_pinned_root(
    evidence: SnpEvidence,
    report: SnpReport,
    vek: Certificate,
    anchors: tuple[TrustAnchor, ...],
    log: StepLog,
) -> _Chain:
    # 11. The root comes from the policy, chosen by product; none is served.
    log.begin(Check.PINNED_ROOT)
    named = product_named(_text_extension(vek, _PRODUCT_NAME))
    product = report.product or named
    if product is not named:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "report and key name two products"
        )
    anchor = next((a for a in anchors if a.product == product.value), None)
    if anchor is None:
        raise RefusedError(
            RefusalCode.UNTRUSTED_ROOT, f"no {evidence.tee} root is pinned"
        )
    chain = _Chain(
        product=product,
        ark=parse_certificate(anchor.certificate_der, "ARK"),
        ask=parse_certificate(evidence.ask, "ASK"),
        vek=vek,
    )
    log.passed(f"ARK-{product}, sha256 {anchor.fingerprint[:16]}")
    return chain


def _check_chain(chain: _Chain, report: SnpReport, log: StepLog) -> None:
    # 12. Names, key usage and the three RSA-4096 PSS signatures.
    log.begin(Check.CERTIFICATE_CHAIN)
    vlek = "VLEK-" if report.signing_key is SigningKey.VLEK else ""
    if chain.ark.common_name != f"ARK-{chain.product}":
        raise RefusedError(RefusalCode.CHAIN_INVALID, "ARK: unexpected name")
    if chain.ask.common_name != f"SEV-{vlek}{chain.product}":
        raise RefusedError(RefusalCode.CHAIN_INVALID, "ASK: unexpected name")
    for name, authority in (("ARK", chain.ark), ("ASK", chain.ask)):
        if not (authority.is_ca and authority.signs_certificates):
            raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: no authority")
    if chain.vek.is_ca:
        raise RefusedError(RefusalCode.CHAIN_INVALID, "VEK: is an authority")
    _verify_issued("ARK", chain.ark, chain.ark)
    _verify_issued("ASK", chain.ask, chain.ark)
    _verify_issued("VEK", chain.vek, chain.ask)
    log.passed("ARK, ASK, VEK: three RSA-4096 signatures")


def _verify_issued(name: str, child: Certificate, issuer: Certificate) -> None:
    if child.issuer != issuer.subject:
        raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: issuer's name")
    if not child.pss:
        raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: not RSASSA-PSS")
    if not verify_rsa_pss(issuer.public_key, child.signed_part, child.signature):
        raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: signature")


def _check_dates(chain: _Chain, now: datetime, log: StepLog) -> None:
    # 13. All three certificates are valid now.
    log.begin(Check.CERTIFICATE_DATES)
    for name, certificate in (
        ("ARK", chain.ark),
        ("ASK", chain.ask),
        ("VEK", chain.vek),
    ):
        if now < certificate.not_before:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{name} is not valid yet")
        if now > certificate.not_after:
            raise RefusedError(RefusalCode.EXPIRED_ENDORSEMENT, f"{name} has expired")
    log.passed(f"valid until {_first_end(chain):%Y-%m-%d}")


def _check_revocation(
    evidence: SnpEvidence,
    chain: _Chain,
    rules: SnpRules,
    now: datetime,
    log: StepLog,
) -> RevocationList:
    # 14. A current list of the root's; it speaks of intermediates, for AMD
    # revokes no single chip's key: the minimum TCB does that work.
    log.begin(Check.REVOCATION)
    if not evidence.crl:
        raise RefusedError(RefusalCode.CRL_MISSING, "no revocation list was served")
    crl = parse_revocation_list(evidence.crl)
    if crl.issuer != chain.ark.subject:
        raise RefusedError(RefusalCode.CRL_INVALID, "issued by someone else")
    if not verify_rsa_pss(chain.ark.public_key, crl.signed_part, crl.signature):
        raise RefusedError(RefusalCode.CRL_INVALID, "signature")
    end = _crl_end(crl, rules.expectations)
    if crl.issued > now + timedelta(seconds=rules.clock_skew_s):
        raise RefusedError(RefusalCode.NOT_YET_VALID, "the list is not valid yet")
    if now > end:
        raise RefusedError(RefusalCode.CRL_EXPIRED, f"current until {end:%Y-%m-%d}")
    if {chain.ark.serial, chain.ask.serial} & crl.revoked:
        raise RefusedError(RefusalCode.REVOKED, "a certificate of the chain is revoked")
    log.passed(f"current until {end:%Y-%m-%d}, {len(crl.revoked)} revoked")
    return crl


def _crl_end(crl: RevocationList, expectations: SnpExpectations) -> datetime:
    if crl.next_update is None:
        raise RefusedError(RefusalCode.CRL_INVALID, "the list never ends")
    age = timedelta(seconds=expectations.max_crl_age_s)
    return min(crl.next_update, crl.issued + age)


def _check_signature(report: SnpReport, vek: Certificate, log: StepLog) -> None:
    # 15. The chip's key signed the report.
    log.begin(Check.REPORT_SIGNATURE)
    signature = encode_dss_signature(report.signature_r, report.signature_s)
    if not verify_ecdsa_p384(vek.public_key, report.signed_part, signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "report signature")
    log.passed(f"ECDSA P-384 over {SIGNED_BYTES} bytes")


def _check_chip(
    report: SnpReport, chain: _Chain, expectations: SnpExpectations, log: StepLog
) -> None:
    # 16. The key was made for the chip that the report names.
    log.begin(Check.CHIP_IDENTITY)
    if report.chip_masked or not any(report.chip_id):
        if not expectations.allow_masked_chip:
            raise RefusedError(
                RefusalCode.ENDORSEMENT_MISMATCH, "the chip id is masked"
            )
        log.passed("masked, which is allowed")
        return
    if report.signing_key is SigningKey.VLEK:
        log.passed("a VLEK names no chip")
        return
    turin = chain.product is Product.TURIN
    length = _TURIN_HARDWARE_ID_BYTES if turin else CHIP_ID_BYTES
    if _hardware_id(chain.vek, length) != report.chip_id[:length]:
        raise RefusedError(RefusalCode.ENDORSEMENT_MISMATCH, "key of another chip")
    log.passed(f"chip {report.chip_id[:8].hex()}")


def _check_endorsed_tcb(report: SnpReport, chain: _Chain, log: StepLog) -> None:
    # 17. The key was derived for the patch levels that the report names.
    log.begin(Check.TCB_ENDORSEMENT)
    tcb = parse_tcb(report.reported_tcb, chain.product)
    levels = _LEVELS_TURIN if chain.product is Product.TURIN else _LEVELS_MILAN_GENOA
    if _endorsed_levels(chain.vek, levels) != encode_tcb(tcb, chain.product):
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH,
            f"reported TCB ({tcb.describe()}) is not the key's",
        )
    log.passed(tcb.describe())


def _check_guest_policy(report: SnpReport, log: StepLog) -> None:
    # 18. Nobody may read the guest's memory by design.
    log.begin(Check.GUEST_POLICY)
    if report.policy & POLICY_DEBUG:
        raise RefusedError(RefusalCode.DEBUG_ENABLED, "the host may debug the guest")
    if report.policy & POLICY_MIGRATION_AGENT:
        raise RefusedError(
            RefusalCode.MIGRATION_AGENT_ALLOWED, "a migration agent may take the guest"
        )
    log.passed(f"{report.policy:#x}: no debugging, no migration agent")


def _check_privilege_level(
    report: SnpReport, expectations: SnpExpectations, log: StepLog
) -> None:
    # 19. The report was asked for at an allowed privilege level.
    log.begin(Check.PRIVILEGE_LEVEL)
    if report.vmpl not in expectations.vmpl:
        raise RefusedError(RefusalCode.VMPL, f"VMPL {report.vmpl} is not allowed")
    log.passed(f"VMPL {report.vmpl}")


def _check_minimum_tcb(
    report: SnpReport, product: Product, rules: SnpRules, log: StepLog
) -> None:
    # 20. Firmware is recent, cannot be rolled back, and was so at launch.
    log.begin(Check.MINIMUM_TCB)
    minimum = rules.expectations.min_tcb.get(product.value)
    if minimum is None:
        raise RefusedError(RefusalCode.TCB_TOO_LOW, f"no minimum for {product}")
    for name, raw in (
        ("reported", report.reported_tcb),
        ("committed", report.committed_tcb),
        ("launch", report.launch_tcb),
    ):
        tcb = parse_tcb(raw, product)
        low = tcb.short_of(minimum) + tcb.short_of(
            rules.release_min_tcb.get(product, minimum)
        )
        if low:
            raise RefusedError(
                RefusalCode.TCB_TOO_LOW, f"{name} TCB: {', '.join(sorted(set(low)))}"
            )
    log.passed("reported, committed and launch TCB suffice")


def _check_measurement(report: SnpReport, rules: SnpRules, log: StepLog) -> None:
    # 21. What was launched is in the published release.
    log.begin(Check.MEASUREMENT)
    measurement = report.measurement.hex()
    if measurement not in rules.measurements:
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED, f"{measurement[:16]}… is not released"
        )
    if report.host_data not in rules.expectations.host_data:
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED, "host data is not an expected value"
        )
    log.passed(f"{measurement[:16]}… is in the release")


def _expiry(
    chain: _Chain, crl: RevocationList, expectations: SnpExpectations
) -> datetime:
    return min(_first_end(chain), _crl_end(crl, expectations))


def _first_end(chain: _Chain) -> datetime:
    return min(c.not_after for c in (chain.ark, chain.ask, chain.vek))


def _text_extension(vek: Certificate, name: str) -> str:
    raw = _der_value(vek.amd.get(name, b""), _DER_IA5_STRING)
    # Bytes that are no ASCII come out as U+FFFD, which no product name holds.
    return raw.decode("ascii", errors="replace")


def _hardware_id(vek: Certificate, length: int) -> bytes:
    """Return the chip's id: the raw bytes, or in newer keys an OCTET STRING."""
    raw = vek.amd.get(_HARDWARE_ID, b"")
    if len(raw) == length:
        return raw
    return _der_value(raw, _DER_OCTET_STRING)


def _endorsed_levels(vek: Certificate, levels: Mapping[str, int]) -> bytes:
    endorsed = bytearray(TCB_BYTES)
    for name, index in levels.items():
        if name in vek.amd or name not in _OPTIONAL_LEVELS:
            endorsed[index] = _level(vek.amd.get(name, b""))
    return bytes(endorsed)


def _level(der: bytes) -> int:
    """Read a patch level: a DER INTEGER from 0 to 255, shortest form."""
    value = _der_value(der, _DER_INTEGER)
    number = int.from_bytes(value, "big", signed=True)
    shortest = 1 if number < 0x80 else 2  # noqa: PLR2004 - the sign bit
    if not 0 <= number <= 0xFF or len(value) != shortest:  # noqa: PLR2004 - one byte
        raise RefusedError(RefusalCode.CHAIN_INVALID, "VEK: patch level")
    return number


def _der_value(der: bytes, tag: int) -> bytes:
    """Return the content of one short DER value that fills the extension."""
    if len(der) < 2 or der[0] != tag or der[1] != len(der) - 2:  # noqa: PLR2004
        raise RefusedError(RefusalCode.CHAIN_INVALID, "VEK: malformed extension")
    return der[2:]
