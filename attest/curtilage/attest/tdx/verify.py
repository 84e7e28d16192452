"""TDX evidence: the quote, its platform's endorsements, and what they must say.

One path for genuine and for emulated evidence; only the pinned root differs.
Every stage that has a code of its own is looked at here; then ``dcap_qvl`` is
asked as well, and must agree. Steps 1 to 3 and 11 to 21 stand here, 4 to 10 in
``endorsements``.
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
from curtilage.attest.steps import StepLog
from curtilage.attest.tdx.certificates import public_key, verify_raw_p256
from curtilage.attest.tdx.collateral import (
    QeIdentity,
    SvnLevel,
    TcbLevel,
    TcbStatus,
    parse_collateral,
)
from curtilage.attest.tdx.dcap_qvl import LibraryRules, ask_library
from curtilage.attest.tdx.endorsements import (
    Endorsements,
    check_collateral_dates,
    check_endorsements,
    endorsement_links,
)
from curtilage.attest.tdx.quote import QeReport, TdReport, TdxQuote, parse_quote
from curtilage.attest.tdx.steps import TdxCheck
from curtilage.attest.tdx.tcb import (
    MODULE_SVN,
    converge,
    find_module,
    match_level,
    match_svn,
)
from curtilage.attest.tdx.td_relations import check_td_relations

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
    """What one quote is held against.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """How current the platform is, by everything that says something of it."""

    status: TcbStatus
    advisories: tuple[str, ...]
    evaluation_number: int


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
    _check_quoting_enclave(quote, endorsements, log)
    _check_quote_signature(quote, log)
    _check_qe_identity(quote.qe, collateral.qe, log)
    _check_debugging(quote, log)
    _check_module(quote.report, endorsements, log)
    judgement = _check_level(quote, endorsements, log)
    _check_evaluation_number(judgement, rules.expectations, log)
    _check_status(judgement, rules.expectations, log)
    _check_attributes(quote.report, log)
    _ask_library(quote, endorsements, rules, now, log)
    return _claims(evidence, quote, endorsements, judgement)


def _check_quoting_enclave(
    quote: TdxQuote, endorsements: Endorsements, log: StepLog
) -> None:
    # 11. The platform's key signed the quoting enclave's report, which names
    # the attestation key.
    log.begin(TdxCheck.QUOTING_ENCLAVE)
    # The chain of trust inside a quote: Intel certified the platform's key; that signed
    # the quoting enclave's report; that names the attestation key; and that signs the
    # quote. A gap anywhere, and any key could sign a quote.
    key = endorsements.chains.pck.public_key
    if not verify_raw_p256(key, quote.qe.encoded, quote.qe_signature):
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


def _check_quote_signature(quote: TdxQuote, log: StepLog) -> None:
    # 12. That key signed header and report.
    log.begin(TdxCheck.QUOTE_SIGNATURE)
    key = public_key(quote.attestation_key)
    if not verify_raw_p256(key, quote.signed_part, quote.signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "quote signature")
    log.passed(f"ECDSA P-256 over {len(quote.signed_part)} bytes")


def _check_qe_identity(qe: QeReport, identity: QeIdentity, log: StepLog) -> None:
    # 13. The quoting enclave is Intel's, and nobody can look into it.
    log.begin(TdxCheck.QE_IDENTITY)
    # An enclave that may be debugged is signed by Intel as well; whoever debugs it
    # reads the attestation key and signs what he likes.
    if qe.attributes[0] & QE_DEBUG:
        raise RefusedError(
            RefusalCode.DEBUG_ENABLED, "the quoting enclave may be debugged"
        )
    miscselect = _masked(qe.miscselect, identity.miscselect_mask)
    attributes = _masked(qe.attributes, identity.attributes_mask)
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


def _masked(value: bytes, mask: bytes) -> bytes:
    return bytes(a & b for a, b in zip(value, mask, strict=True))


def _check_debugging(quote: TdxQuote, log: StepLog) -> None:
    # 14. Nobody may look into the trust domain.
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


def _check_module(report: TdReport, endorsements: Endorsements, log: StepLog) -> None:
    # 15. The TDX module is one that Intel names, by its signer and attributes.
    log.begin(TdxCheck.TDX_MODULE)
    # The module is software: it stands between domain and host, and signs nothing
    # itself. So it is known by its measurement's signer and by what Intel says of its
    # version.
    module = find_module(endorsements.collateral.tcb, report.tee_tcb_svn)
    if module is None:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TCB info knows no such TDX module"
        )
    # 48 zeros: by Intel's convention its own signature.
    if report.mrsignerseam != module.mrsigner:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TDX module's signer is not Intel"
        )
    if _masked(report.seam_attributes, module.mask) != module.attributes:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TDX module's attributes"
        )
    log.passed(module.name or "the module without a name")


def _check_level(
    quote: TdxQuote, endorsements: Endorsements, log: StepLog
) -> _Judgement:
    # 16. Platform, module and quoting enclave each reach one of Intel's levels: by
    # what ran when the domain was started, and by what runs now where that is told.
    log.begin(TdxCheck.TCB_LEVEL)
    collateral, report = endorsements.collateral, quote.report
    of_enclave = match_svn(collateral.qe.levels, quote.qe.isvsvn)
    reached = _levels_reached(endorsements, report.tee_tcb_svn)
    # A module can be updated under a running domain (TD-preserving update): the first
    # number is from the start, the second from now. The worse of both counts.
    if report.tee_tcb_svn2 is not None:
        reached += _levels_reached(endorsements, report.tee_tcb_svn2)
    if of_enclave is None:
        raise RefusedError(
            RefusalCode.TCB_TOO_LOW, "the quoting enclave reaches no level"
        )
    levels = (*reached, of_enclave)
    log.passed(f"platform {reached[0].status}, {len(levels) - 1} more")
    advisories = frozenset[str]().union(*(each.advisories for each in levels))
    return _Judgement(
        status=converge(each.status for each in levels),
        advisories=tuple(sorted(advisories)),
        # The older of the two statements: a fresh one beside a stale one is still
        # stale.
        evaluation_number=min(
            collateral.tcb.evaluation_number, collateral.qe.evaluation_number
        ),
    )


def _levels_reached(
    endorsements: Endorsements, svn: bytes
) -> tuple[TcbLevel | SvnLevel, ...]:
    """Return the level of the platform, and of its module where that has its own."""
    tcb = endorsements.collateral.tcb
    level = match_level(tcb, endorsements.platform, svn)
    if level is None:
        raise RefusedError(RefusalCode.TCB_TOO_LOW, "the platform reaches no level")
    module = find_module(tcb, svn)
    # Not the same as in step 15: there by what runs at launch, here for the second
    # number as well.
    if module is None:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TCB info knows no such TDX module"
        )
    # The unnamed module has no levels of its own: its version is among the platform's
    # components.
    if not module.name:
        return (level,)
    of_module = match_svn(module.levels, svn[MODULE_SVN])
    if of_module is None:
        raise RefusedError(RefusalCode.TCB_TOO_LOW, "the TDX module reaches no level")
    return level, of_module


def _check_evaluation_number(
    judgement: _Judgement, expectations: TdxExpectations, log: StepLog
) -> None:
    # 17. Intel's judgement is no older one that is still current.
    log.begin(TdxCheck.EVALUATION_NUMBER)
    # Several judgements of Intel's are current at once, the older ones for some months
    # more. Only this number tells which one was stapled, and the operator chooses it.
    least = expectations.min_tcb_evaluation_number
    if judgement.evaluation_number < least:
        raise RefusedError(
            RefusalCode.TCB_TOO_LOW,
            f"evaluation number {judgement.evaluation_number}, at least {least} wanted",
        )
    log.passed(f"number {judgement.evaluation_number}")


def _check_status(
    judgement: _Judgement, expectations: TdxExpectations, log: StepLog
) -> None:
    # 18. The status of all together will do, and so do the open advisories.
    log.begin(TdxCheck.TCB_STATUS)
    # All at once, after everything was looked at, so that the word shown is the whole
    # truth and not the first complaint.
    if judgement.status not in _accepted(expectations):
        raise RefusedError(
            RefusalCode.TCB_STATUS, f"{judgement.status} is not accepted"
        )
    # Some holes matter to us though Intel calls the platform current enough.
    rejected = {advisory.upper() for advisory in expectations.rejected_advisories}
    found = [each for each in judgement.advisories if each.upper() in rejected]
    if found:
        raise RefusedError(RefusalCode.TCB_STATUS, f"{', '.join(found)} is open")
    log.passed(judgement.status.value)


def _accepted(expectations: TdxExpectations) -> frozenset[TcbStatus]:
    """Return the statuses that will do; what is revoked never will."""
    return frozenset(
        status
        for status in TcbStatus
        if status.value in expectations.statuses and status is not TcbStatus.REVOKED
    )


def _check_attributes(report: TdReport, log: StepLog) -> None:
    # 19. The host can neither move the domain elsewhere nor startle it with
    # pages that are not there; nobody else has a say in it.
    log.begin(TdxCheck.TD_ATTRIBUTES)
    attributes = report.td_attributes
    # Another platform would get the memory, and this evidence says nothing of it.
    if attributes & TD_MIGRATABLE:
        raise RefusedError(
            RefusalCode.MIGRATION_AGENT_ALLOWED, "the trust domain may be migrated"
        )
    check_td_relations(report)
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


def _ask_library(
    quote: TdxQuote,
    endorsements: Endorsements,
    rules: TdxRules,
    now: datetime,
    log: StepLog,
) -> None:
    # 20. The library agrees. What it alone refuses has to do with what a
    # platform is worth, for all else has been looked at above.
    log.begin(TdxCheck.SECOND_OPINION)
    ask_library(
        quote.encoded,
        endorsements.collateral,
        LibraryRules(
            # The same pinned root, by name, and not whichever the library has built in.
            root=endorsements.chains.root.encoded,
            statuses=_accepted(rules.expectations),
            min_evaluation_number=rules.expectations.min_tcb_evaluation_number,
            rejected_advisories=rules.expectations.rejected_advisories,
        ),
        # Our allowance for Intel's clocks is none of the library's.
        now=max(now, endorsements.latest_issue),
        code=RefusalCode.TCB_STATUS,
    )
    log.passed("dcap-qvl agrees")


def _claims(
    evidence: TdxEvidence,
    quote: TdxQuote,
    endorsements: Endorsements,
    judgement: _Judgement,
) -> CpuClaims:
    platform = endorsements.platform
    has_ppid = any(platform.ppid)
    return CpuClaims(
        tee=evidence.tee,
        registers=_registers(quote.report),
        bound=quote.report.report_data,
        expires_at=endorsements.expires_at,
        details=_details(quote, endorsements, judgement, has_ppid=has_ppid),
        links=(*endorsement_links(endorsements), *_links(quote, endorsements)),
        # The FMSPC names a model of processor and no machine, so it is none.
        platform=platform.ppid.hex() if has_ppid else "",
    )


def _registers(report: TdReport) -> dict[str, str]:
    registers = {
        "mrtd": report.mrtd,
        "mrconfigid": report.mrconfigid,
        "mrowner": report.mrowner,
        "mrownerconfig": report.mrownerconfig,
        "mrseam": report.mrseam,
    }
    registers |= {f"rtmr{number}": value for number, value in enumerate(report.rtmr)}
    return {name: value.hex() for name, value in registers.items()}


def _details(
    quote: TdxQuote,
    endorsements: Endorsements,
    judgement: _Judgement,
    *,
    has_ppid: bool,
) -> dict[str, Detail]:
    details: dict[str, Detail] = {
        "quote_version": quote.version,
        "fmspc": endorsements.platform.fmspc.hex(),
        "platform_is": "ppid" if has_ppid else "unnamed",
        "tcb_status": judgement.status.value,
        "tcb_evaluation_number": judgement.evaluation_number,
        "advisories": judgement.advisories,
        "tee_tcb_svn": quote.report.tee_tcb_svn.hex(),
        "td_attributes": f"{quote.report.td_attributes:016x}",
        "xfam": quote.report.xfam[::-1].hex(),
    }
    extension = quote.report.extension
    if extension is not None and any(extension.td_id):
        details["td_id"] = extension.td_id.hex()
    return details


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
