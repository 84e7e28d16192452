"""The TCB level of a platform: Intel's levels compared with its components.

Steps 15 to 18 of a TDX quote: how a level is chosen, how several judgements
become one, and whether that is accepted. Source: Intel, "TDX DCAP Quoting Library
API" (verification of a version 4 quote, TCB level) and the description of TCB
info version 3, which say the same of the first level that matches.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import TdxExpectations
from curtilage.attest.steps import StepLog, TdxCheck
from curtilage.attest.tdx.certificates import PckPlatform
from curtilage.attest.tdx.collateral import (
    SvnLevel,
    TcbInfo,
    TcbLevel,
    TcbStatus,
    TdxModule,
    masked,
)
from curtilage.attest.tdx.endorsements import Endorsements
from curtilage.attest.tdx.quote import TdxQuote

# tee_tcb_svn: where the module's own version and its security version stand.
MODULE_SVN: Final = 0
MODULE_VERSION: Final = 1
# From here on the components speak of the processor.
FIRST_OTHER_COMPONENT: Final = 2

_OUT_OF_DATE: Final = "out of date"
_CONFIGURATION: Final = "configuration"
_HARDENING: Final = "hardening"
_REVOKED: Final = "revoked"
# What each status complains of.
_COMPLAINTS: Final = MappingProxyType(
    {
        TcbStatus.UP_TO_DATE: frozenset[str](),
        TcbStatus.SW_HARDENING_NEEDED: frozenset({_HARDENING}),
        TcbStatus.CONFIGURATION_NEEDED: frozenset({_CONFIGURATION}),
        TcbStatus.CONFIGURATION_AND_SW_HARDENING_NEEDED: frozenset(
            {_CONFIGURATION, _HARDENING}
        ),
        TcbStatus.OUT_OF_DATE: frozenset({_OUT_OF_DATE}),
        TcbStatus.OUT_OF_DATE_CONFIGURATION_NEEDED: frozenset(
            {_OUT_OF_DATE, _CONFIGURATION}
        ),
        TcbStatus.REVOKED: frozenset({_REVOKED}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Status of the platform, by all available statements.

    Attributes:
        status: what Intel says of the worst of platform, module and enclave.
        advisories: every one that is open for any of them, sorted.
        evaluation_number: the older of Intel's two statements.
    """

    status: TcbStatus
    advisories: tuple[str, ...]
    evaluation_number: int


def accepted_statuses(expectations: TdxExpectations) -> frozenset[TcbStatus]:
    """Return the accepted statuses; "Revoked" is never accepted."""
    return frozenset(
        status
        for status in TcbStatus
        if status.value in expectations.statuses and status is not TcbStatus.REVOKED
    )


def check_tcb(
    quote: TdxQuote,
    endorsements: Endorsements,
    expectations: TdxExpectations,
    log: StepLog,
) -> Judgement:
    """Compare the components with Intel's levels, and the result with the policy.

    Args:
        quote: its signature has been checked.
        endorsements: verified.
        expectations: the policy's rules.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: ``endorsement_mismatch``, ``tcb_too_low`` or ``tcb_status``.
    """
    collateral, report = endorsements.collateral, quote.report
    # 15. The TDX module is one that Intel names, by its signer and attributes.
    log.begin(TdxCheck.TDX_MODULE)
    # The module is software between domain and host, and signs nothing itself. So it
    # is identified by its measurement's signer and by what Intel says about its
    # version.
    module = _known_module(collateral.tcb, report.tee_tcb_svn)
    # 48 zeros: by Intel's convention its own signature.
    if report.mrsignerseam != module.mrsigner:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TDX module's signer is not Intel"
        )
    if masked(report.seam_attributes, module.mask) != module.attributes:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TDX module's attributes"
        )
    log.passed(module.name or "the module without a name")
    # 16. Platform, module and quoting enclave each reach one of Intel's levels: by
    # what ran when the domain was started, and by what runs now where it is reported.
    log.begin(TdxCheck.TCB_LEVEL)
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
    judgement = Judgement(
        status=converge(each.status for each in levels),
        advisories=tuple(sorted({name for each in levels for name in each.advisories})),
        # A fresh statement together with a stale one is still stale.
        evaluation_number=min(
            collateral.tcb.evaluation_number, collateral.qe.evaluation_number
        ),
    )
    # 17. Intel's judgement is no older one that is still current.
    log.begin(TdxCheck.EVALUATION_NUMBER)
    # Several judgements of Intel's are current at once, the older ones for some months
    # more. Only this number shows which one was stapled, and the operator chooses it.
    least = expectations.min_tcb_evaluation_number
    if judgement.evaluation_number < least:
        raise RefusedError(
            RefusalCode.TCB_TOO_LOW,
            f"evaluation number {judgement.evaluation_number}, at least {least} wanted",
        )
    log.passed(f"number {judgement.evaluation_number}")
    # 18. The combined status is accepted, and so are the open advisories.
    log.begin(TdxCheck.TCB_STATUS)
    # All at once, after everything was checked, so that the word shown is the whole
    # truth and not the first complaint.
    if judgement.status not in accepted_statuses(expectations):
        raise RefusedError(
            RefusalCode.TCB_STATUS, f"{judgement.status} is not accepted"
        )
    # Some holes matter to us though Intel calls the platform current enough.
    rejected = {advisory.upper() for advisory in expectations.rejected_advisories}
    found = [each for each in judgement.advisories if each.upper() in rejected]
    if found:
        raise RefusedError(RefusalCode.TCB_STATUS, f"{', '.join(found)} is open")
    log.passed(judgement.status.value)
    return judgement


def _levels_reached(
    endorsements: Endorsements, svn: bytes
) -> tuple[TcbLevel | SvnLevel, ...]:
    """Return the level of the platform, and of its module where that has its own."""
    tcb = endorsements.collateral.tcb
    level = match_level(tcb, endorsements.platform, svn)
    if level is None:
        raise RefusedError(RefusalCode.TCB_TOO_LOW, "the platform reaches no level")
    # Looked for again, for a module that was updated has a number of its own.
    module = _known_module(tcb, svn)
    # The unnamed module has no levels of its own: its version is among the platform's
    # components.
    if not module.name:
        return (level,)
    of_module = match_svn(module.levels, svn[MODULE_SVN])
    if of_module is None:
        raise RefusedError(RefusalCode.TCB_TOO_LOW, "the TDX module reaches no level")
    return level, of_module


def _known_module(tcb: TcbInfo, tee_tcb_svn: bytes) -> TdxModule:
    module = find_module(tcb, tee_tcb_svn)
    if module is None:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the TCB info knows no such TDX module"
        )
    return module


def module_version(tee_tcb_svn: bytes) -> int:
    """Return which TDX module runs; 0 is the one before there were several."""
    # Signed by the platform. So a host cannot claim an older kind of module to be
    # judged by laxer levels.
    return tee_tcb_svn[MODULE_VERSION]


def find_module(tcb: TcbInfo, tee_tcb_svn: bytes) -> TdxModule | None:
    """Return Intel's statement about the module that runs, or None."""
    version = module_version(tee_tcb_svn)
    if version == 0:
        return tcb.module
    # Intel spells the version in hex, and not always in capitals.
    name = f"TDX_{version:02X}"
    return next((each for each in tcb.modules if each.name.upper() == name), None)


def match_level(
    tcb: TcbInfo, platform: PckPlatform, tee_tcb_svn: bytes
) -> TcbLevel | None:
    """Return the first level that the platform reaches in everything."""
    # A module with a name of its own is judged by its own levels, so of the components
    # of TDX only those count that speak of the processor.
    first = FIRST_OTHER_COMPONENT if module_version(tee_tcb_svn) else 0
    # Intel lists levels from the newest to the oldest, and the first that is reached
    # counts.
    for level in tcb.levels:
        if (
            # An SGX level says nothing of the TDX module, so a platform cannot reach it
            # as one.
            level.tdx
            and platform.pcesvn >= level.pcesvn
            and _all_reach(platform.svns, level.sgx)
            and _all_reach(tee_tcb_svn[first:], level.tdx[first:])
        ):
            return level
    return None


def match_svn(levels: Iterable[SvnLevel], isvsvn: int) -> SvnLevel | None:
    """Return the first level that a security version reaches."""
    return next((level for level in levels if isvsvn >= level.isvsvn), None)


def converge(statuses: Iterable[TcbStatus]) -> TcbStatus:
    """Return one status that covers the complaints of all of these.

    Whatever is out of date needs no word about hardening any more, and whatever
    is revoked no other word at all.
    """
    # The worst of all, not an average: a current processor does not mend an outdated
    # module.
    complaints = frozenset[str]().union(*(_COMPLAINTS[each] for each in statuses))
    if _REVOKED in complaints:
        return TcbStatus.REVOKED
    if _OUT_OF_DATE in complaints:
        complaints -= {_HARDENING}
    return next(status for status, of in _COMPLAINTS.items() if of == complaints)


def _all_reach(svns: Iterable[int], wanted: Iterable[int]) -> bool:
    # Every one of the sixteen. ``strict``: a list that is too short must not end the
    # comparison early.
    return all(svn >= least for svn, least in zip(svns, wanted, strict=True))
