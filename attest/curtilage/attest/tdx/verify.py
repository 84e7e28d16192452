"""Verification of TDX evidence: the quote, its endorsements, their contents.

One path for genuine and for emulated evidence; only the pinned root differs.
Every stage that has its own code is checked here; then ``dcap_qvl`` is
asked as well, and must agree. Steps 3 to 10 stand in ``endorsements``, 15 to 18 in
``tcb``, all others here.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.claims import (
    CpuClaims,
    Detail,
    Link,
    Measurement,
    require_measurement,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import TdxEvidence
from curtilage.attest.expectations import TdxExpectations, TrustAnchor
from curtilage.attest.steps import StepLog, TdxCheck
from curtilage.attest.tdx.certificates import public_key, verify_raw_p256
from curtilage.attest.tdx.collateral import masked, parse_collateral
from curtilage.attest.tdx.dcap_qvl import LibraryRules, ask_library
from curtilage.attest.tdx.endorsements import (
    Endorsements,
    check_collateral_dates,
    check_endorsements,
    endorsement_links,
)
from curtilage.attest.tdx.quote import TdReport, TdxQuote, parse_quote
from curtilage.attest.tdx.tcb import Judgement, accepted_statuses, check_tcb

# TD attributes (Intel, "TDX Module Base Architecture Specification", ATTRIBUTES).
# Bits 0 to 7 make a domain untrusted: debugging, and profiling by the host.
TD_UNTRUSTED: Final = 0xFF
TD_DEBUG: Final = 1 << 0
TD_ICSSD: Final = 1 << 16
TD_LASS: Final = 1 << 27
TD_SEPT_VE_DISABLE: Final = 1 << 28
TD_MIGRATABLE: Final = 1 << 29
TD_PKS: Final = 1 << 30
TD_KEY_LOCKER: Final = 1 << 31
TD_PERFMON: Final = 1 << 63
# Defences against single-stepping and against stray addresses, supervisor keys,
# Key Locker, and counters that are saved for the domain: all serve the domain.
# Every other bit weakens it, or is not known here.
TD_ALLOWED: Final = (
    TD_ICSSD | TD_LASS | TD_SEPT_VE_DISABLE | TD_PKS | TD_KEY_LOCKER | TD_PERFMON
)
# The quoting enclave's attributes, first byte: may be debugged.
QE_DEBUG: Final = 0x02


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxRules:
    """The expectations of one quote.

    Attributes:
        anchors: the pinned roots of the evidence's kind.
        expectations: the policy's rules.
        clock_skew_s: how far ahead Intel's clocks may run.
        measurements: the accepted sets of registers.
    """

    anchors: tuple[TrustAnchor, ...]
    expectations: TdxExpectations
    clock_skew_s: int
    measurements: tuple[Measurement, ...]


def verify_tdx(
    evidence: TdxEvidence, rules: TdxRules, *, now: datetime, log: StepLog
) -> CpuClaims:
    """Verify a quote, its endorsements and its claims, except the report data.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        now: aware UTC.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # Last of all, for only then is it known that Intel's platform, in a state that will
    # do, is who measured.
    claims = verify_td(evidence, rules, now=now, log=log)
    # 21. What was launched is in the published release.
    log.begin(TdxCheck.MEASUREMENT)
    require_measurement(claims.registers, rules.measurements, evidence.tee)
    log.passed(f"MRTD {claims.registers['mrtd'][:16]}…")
    return claims


def verify_td(
    evidence: TdxEvidence, rules: TdxRules, *, now: datetime, log: StepLog
) -> CpuClaims:
    """Verify all of ``verify_tdx`` but the measurement.

    For evidence in which the quote is one half, and whose registers are compared
    together with the other half's.

    Raises:
        RefusedError: the first step that does not hold.
    """
    skew = timedelta(seconds=rules.clock_skew_s)
    # Shape first, then who signed, then what was said. Until the signature of step 12
    # holds, nothing of the report is more than somebody's claim.
    # 1. Exact lengths everywhere, version, kind of key, kind of TEE.
    log.begin(TdxCheck.QUOTE_LAYOUT)
    quote = parse_quote(evidence.quote)
    log.passed(
        f"version {quote.version}, TD report {quote.report.version},"
        f" {len(quote.encoded)} bytes"
    )
    # 2. The collateral's JSON, and the two JSON texts inside.
    log.begin(TdxCheck.COLLATERAL_LAYOUT)
    collateral = parse_collateral(evidence.collateral)
    log.passed(f"{len(collateral.tcb.levels)} levels")
    # 3 to 10. Who vouches for the platform, and what Intel says of it.
    check_collateral_dates(collateral, now, skew, log)
    endorsements = check_endorsements(
        quote.pck_chain, collateral, rules.anchors, now=now, skew=skew, log=log
    )
    # 11 to 13. The platform's key vouches for the key that signed the quote.
    _check_signatures(quote, endorsements, log)
    # 14. The trust domain must not be debuggable.
    log.begin(TdxCheck.DEBUGGING)
    # The whole of the first byte and not bit 0 alone (Intel TDX module ABI, ATTRIBUTES,
    # group TUD): any bit there puts the domain into the host's hands.
    bits = quote.report.td_attributes & TD_UNTRUSTED
    if bits:
        what = "debug" if bits & TD_DEBUG else "profile"
        raise RefusedError(
            RefusalCode.DEBUG_ENABLED, f"the host may {what} the trust domain"
        )
    log.passed("neither debugging nor profiling")
    # 15 to 18. What runs is Intel's, and current enough for the policy.
    judgement = check_tcb(quote, endorsements, rules.expectations, log)
    # 19. The host can neither move the domain elsewhere nor startle it with pages that
    # are not there; no other party has control over it.
    _check_attributes(quote.report, log)
    # 20. The library agrees. What it alone refuses has to do with what a
    # platform is worth, since everything else has been checked above.
    log.begin(TdxCheck.SECOND_OPINION)
    ask_library(
        quote.encoded,
        collateral,
        LibraryRules(
            # The same pinned root, by name, and not whichever the library has built in.
            root=endorsements.chains.root.encoded,
            statuses=accepted_statuses(rules.expectations),
            min_evaluation_number=rules.expectations.min_tcb_evaluation_number,
            rejected_advisories=rules.expectations.rejected_advisories,
        ),
        # Our allowance for Intel's clocks is none of the library's.
        now=max(now, endorsements.latest_issue),
        code=RefusalCode.TCB_STATUS,
    )
    log.passed("dcap-qvl agrees")
    return _claims(evidence, quote, endorsements, judgement)


def _check_signatures(
    quote: TdxQuote, endorsements: Endorsements, log: StepLog
) -> None:
    """Verify the chain of trust inside a quote.

    Intel certified the platform's key; that signed the quoting enclave's report; that
    names the attestation key; and that signs the quote. A gap anywhere, and any key
    could sign a quote.
    """
    # 11. The platform's key signed the quoting enclave's report, which names
    # the attestation key.
    log.begin(TdxCheck.QUOTING_ENCLAVE)
    pck_key = endorsements.chains.pck.public_key
    if not verify_raw_p256(pck_key, quote.qe.encoded, quote.qe_signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "quoting enclave's report")
    # Intel DCAP: SHA-256 over key and authentication data, and 32 zeros. The zeros are
    # compared too: they are signed, and could carry something else.
    named = quote.attestation_key + quote.qe_authentication_data
    expected = hashlib.sha256(named).digest().ljust(len(quote.qe.report_data), b"\0")
    if quote.qe.report_data != expected:
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, "the enclave names another attestation key"
        )
    log.passed("its report is signed and names the attestation key")
    # 12. That key signed header and report.
    log.begin(TdxCheck.QUOTE_SIGNATURE)
    key = public_key(quote.attestation_key)
    if not verify_raw_p256(key, quote.signed_part, quote.signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "quote signature")
    log.passed(f"ECDSA P-256 over {len(quote.signed_part)} bytes")
    # 13. The quoting enclave is Intel's, and not debuggable.
    log.begin(TdxCheck.QE_IDENTITY)
    qe, identity = quote.qe, endorsements.collateral.qe
    # Intel also signs enclaves that may be debugged; a debugger can read the
    # attestation key and sign anything with it.
    if qe.attributes[0] & QE_DEBUG:
        raise RefusedError(
            RefusalCode.DEBUG_ENABLED, "the quoting enclave may be debugged"
        )
    miscselect = masked(qe.miscselect, identity.miscselect_mask)
    attributes = masked(qe.attributes, identity.attributes_mask)
    # By Intel's masks: only the bits that Intel says matter. MRENCLAVE is not among
    # them, for it changes with every release of the enclave; signer, product and
    # security version do not.
    pairs = {
        "MISCSELECT": (miscselect, identity.miscselect),
        "attributes": (attributes, identity.attributes),
        "MRSIGNER": (qe.mrsigner, identity.mrsigner),
        "ISVPRODID": (qe.isvprodid, identity.isvprodid),
    }
    for name, (found, wanted) in pairs.items():
        if found != wanted:
            raise RefusedError(
                RefusalCode.ENDORSEMENT_MISMATCH,
                f"another quoting enclave's {name}",
            )
    log.passed(f"ISVPRODID {qe.isvprodid}, ISVSVN {qe.isvsvn}")


def _check_attributes(report: TdReport, log: StepLog) -> None:
    log.begin(TdxCheck.TD_ATTRIBUTES)
    attributes = report.td_attributes
    # Another platform would get the memory, and this evidence says nothing of it.
    if attributes & TD_MIGRATABLE:
        raise RefusedError(
            RefusalCode.MIGRATION_AGENT_ALLOWED, "the trust domain may be migrated"
        )
    _check_relations(report)
    # Without it the host removes a page and so raises a #VE inside the guest at an
    # instruction of its choice; Linux refuses to start in such a domain, other software
    # may not.
    if not attributes & TD_SEPT_VE_DISABLE:
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED, "SEPT_VE_DISABLE is not set"
        )
    # A bit that gets a meaning after this was written must not be let in by then.
    if attributes & ~TD_ALLOWED:
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            f"attributes {attributes:#018x} have unknown bits",
        )
    log.passed(f"{attributes:#018x}")


def _check_relations(report: TdReport) -> None:
    """Refuse a domain that another party controls, or controlled.

    One of ours has no service domain bound to it, was never migrated, is not divided
    into virtual machines and has no device inside. What shows any of that is refused,
    even where it might be harmless: none of it is measured, so it cannot be checked
    here. A TD report 1.0 does not mention it, and a 1.5 only service domains.
    """
    # A service domain, such as one for migration, may read and write the domain's
    # state. Its hash is in no measurement that a release names.
    if report.mrservicetd is not None and any(report.mrservicetd):
        raise _agent("a service domain is bound to it")
    extension = report.extension
    if extension is None:
        return
    # The fields of bindings and of the first platform are filled in with the attribute
    # SERVTD_EXT alone, which is refused as well, but then also where the domain was
    # never migrated: the two are not distinguished.
    if any(extension.current_servicetd + extension.current_servicetd_attributes):
        raise _agent("a service domain is bound to it")
    if any(extension.init_servicetd + extension.init_servicetd_attributes):
        raise _agent("a service domain was bound to it")
    # Made elsewhere and moved here: what was measured, was measured by a platform of
    # which this evidence says nothing.
    if any(extension.init_cpusvn + extension.init_tee_tcb_svn + extension.init_model):
        raise _agent("it may have been made on another platform")
    # TD partitioning: several virtual machines in one domain share its measurements,
    # and any of them may ask for a quote with report data of its own.
    if extension.vmid:
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            f"virtual machine {extension.vmid} inside the trust domain asked",
        )
    # A device inside may read the domain's memory, and it was not verified here.
    if any(extension.device_info):
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED, "the trust domain has devices"
        )


def _agent(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.MIGRATION_AGENT_ALLOWED, detail)


def _claims(
    evidence: TdxEvidence,
    quote: TdxQuote,
    endorsements: Endorsements,
    judgement: Judgement,
) -> CpuClaims:
    report, platform = quote.report, endorsements.platform
    registers = {
        "mrtd": report.mrtd,
        "mrconfigid": report.mrconfigid,
        "mrowner": report.mrowner,
        "mrownerconfig": report.mrownerconfig,
        "mrseam": report.mrseam,
    }
    registers |= {f"rtmr{number}": value for number, value in enumerate(report.rtmr)}
    # The FMSPC would name a model of processor and no machine.
    has_ppid = any(platform.ppid)
    details: dict[str, Detail] = {
        "quote_version": quote.version,
        "fmspc": platform.fmspc.hex(),
        "platform_is": "ppid" if has_ppid else "unnamed",
        "tcb_status": judgement.status.value,
        "tcb_evaluation_number": judgement.evaluation_number,
        "advisories": judgement.advisories,
        "tee_tcb_svn": report.tee_tcb_svn.hex(),
        "td_attributes": f"{report.td_attributes:016x}",
        "xfam": report.xfam[::-1].hex(),
    }
    extension = report.extension
    if extension is not None and any(extension.td_id):
        details["td_id"] = extension.td_id.hex()
    return CpuClaims(
        tee=evidence.tee,
        registers={name: value.hex() for name, value in registers.items()},
        bound=report.report_data,
        expires_at=endorsements.expires_at,
        details=details,
        links=(*endorsement_links(endorsements), *_links(quote, endorsements)),
        platform=platform.ppid.hex() if has_ppid else "",
    )


def _links(quote: TdxQuote, endorsements: Endorsements) -> tuple[Link, ...]:
    chains, collateral = endorsements.chains, endorsements.collateral
    signer, platform = chains.tcb_signer.common_name, chains.pck.common_name
    enclave = "Intel's quoting enclave"
    return (
        _link(
            f"TCB info of FMSPC {collateral.tcb.fmspc.hex()}",
            signer,
            "says how current such platforms are",
            collateral.tcb_info.encode("utf-8"),
            collateral.tcb.next_update,
        ),
        _link(
            "QE identity",
            signer,
            "says which quoting enclave is genuine",
            collateral.qe_identity.encode("utf-8"),
            collateral.qe.next_update,
        ),
        _link(enclave, platform, "signs quotes on this platform", quote.qe.encoded),
        _link(
            f"trust domain of MRTD {quote.report.mrtd[:8].hex()}…",
            enclave,
            "what runs",
            quote.signed_part,
        ),
    )


def _link(
    subject: str,
    issuer: str,
    role: str,
    statement: bytes,
    not_after: datetime | None = None,
) -> Link:
    return Link(
        subject=subject,
        issuer=issuer,
        role=role,
        fingerprint=hashlib.sha256(statement).hexdigest(),
        not_after=not_after,
    )
