"""How current a platform is: Intel's levels held against what it has.

Knows how a level is chosen and how several judgements become one; whether the
outcome will do is ``verify``'s business. Source: Intel, "TDX DCAP Quoting Library
API" (verification of a version 4 quote, TCB level) and the description of TCB
info version 3, which say the same of the first level that matches.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from curtilage.attest.tdx.collateral import (
    SvnLevel,
    TcbInfo,
    TcbLevel,
    TcbStatus,
    TdxModule,
)
from curtilage.attest.tdx.pck import PckPlatform

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


def module_version(tee_tcb_svn: bytes) -> int:
    """Return which TDX module runs; 0 is the one before there were several."""
    # Signed by the platform. So a host cannot claim an older kind of module to be
    # judged by laxer levels.
    return tee_tcb_svn[MODULE_VERSION]


def find_module(tcb: TcbInfo, tee_tcb_svn: bytes) -> TdxModule | None:
    """Return what Intel says of the module that runs, or None if nothing."""
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
    return next(
        # Intel lists levels from the newest to the oldest, and the first that is
        # reached counts.
        (level for level in tcb.levels if _reaches(platform, tee_tcb_svn, level)),
        None,
    )


def match_svn(levels: Iterable[SvnLevel], isvsvn: int) -> SvnLevel | None:
    """Return the first level that a security version reaches."""
    return next((level for level in levels if isvsvn >= level.isvsvn), None)


def converge(statuses: Iterable[TcbStatus]) -> TcbStatus:
    """Return one status that complains of all that these complain of.

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


def _reaches(platform: PckPlatform, tee_tcb_svn: bytes, level: TcbLevel) -> bool:
    # An SGX level says nothing of the TDX module, so a platform cannot reach it as one.
    if not level.tdx or platform.pcesvn < level.pcesvn:
        return False
    # A module with a name of its own is judged by its own levels.
    first = FIRST_OTHER_COMPONENT if module_version(tee_tcb_svn) else 0
    return _all_reach(platform.svns, level.sgx) and _all_reach(
        tee_tcb_svn[first:], level.tdx[first:]
    )


def _all_reach(svns: Iterable[int], wanted: Iterable[int]) -> bool:
    # Every one of the sixteen. ``strict``: a list that is too short must not end the
    # comparison early.
    return all(svn >= least for svn, least in zip(svns, wanted, strict=True))
