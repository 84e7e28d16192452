"""How levels are chosen, and how several judgements become one."""

import itertools
from dataclasses import replace

import pytest

from curtilage.attest.tdx.collateral import (
    SvnLevel,
    TcbInfo,
    TcbStatus,
    TdxModule,
    parse_collateral,
)
from curtilage.attest.tdx.tcb import (
    converge,
    find_module,
    match_level,
    match_svn,
)
from curtilage_dev.emulated.collateral import make_module
from curtilage_dev.emulated.dcap import default_platform
from support.tdx_evidence import (
    NOW,
    emulated,
    platform,
    verified,
    with_report,
    with_tcb,
)
from support.tdx_library import library_accepts

UP = TcbStatus.UP_TO_DATE
SW = TcbStatus.SW_HARDENING_NEEDED
CONFIG = TcbStatus.CONFIGURATION_NEEDED
BOTH = TcbStatus.CONFIGURATION_AND_SW_HARDENING_NEEDED
OLD = TcbStatus.OUT_OF_DATE
OLD_CONFIG = TcbStatus.OUT_OF_DATE_CONFIGURATION_NEEDED
REVOKED = TcbStatus.REVOKED


def _parsed(modules: tuple[TdxModule, ...]) -> TcbInfo:
    collateral = emulated(collateral=with_tcb(modules=modules)).collateral
    return parse_collateral(collateral).tcb


@pytest.mark.parametrize(
    ("statuses", "together"),
    [
        ((UP,), UP),
        ((UP, UP, UP), UP),
        ((SW, UP), SW),
        ((CONFIG, UP), CONFIG),
        ((BOTH, UP), BOTH),
        ((UP, OLD), OLD),
        ((SW, OLD), OLD),
        ((CONFIG, OLD), OLD_CONFIG),
        ((BOTH, OLD), OLD_CONFIG),
        ((OLD, OLD), OLD),
        ((OLD_CONFIG, OLD), OLD_CONFIG),
        ((OLD_CONFIG, UP), OLD_CONFIG),
    ],
    ids=str,
)
def test_judgements_become_one(
    statuses: tuple[TcbStatus, ...], together: TcbStatus
) -> None:
    for order in itertools.permutations(statuses):
        assert converge(order) is together


def test_what_is_revoked_is_nothing_else() -> None:
    for status in TcbStatus:
        assert converge([status, REVOKED]) is REVOKED
        assert converge([REVOKED, status, OLD]) is REVOKED


def test_every_pair_of_judgements_becomes_one() -> None:
    for one, other in itertools.product(TcbStatus, repeat=2):
        assert converge([one, other]) is converge([other, one])


def test_the_first_level_that_is_reached_counts() -> None:
    levels = tuple(
        SvnLevel(isvsvn=svn, status=status, advisories=())
        for svn, status in ((6, UP), (4, OLD), (2, REVOKED))
    )
    found = {svn: match_svn(levels, svn) for svn in range(1, 8)}
    assert found[1] is None
    assert found[2] is found[3] is levels[2]
    assert found[4] is found[5] is levels[1]
    assert found[6] is found[7] is levels[0]


def test_modules_are_found_by_their_version() -> None:
    named = (make_module("TDX_01", ()), make_module("tdx_0a", ()))
    tcb = _parsed(named)
    read = {
        version: find_module(tcb, bytes([0, version]).ljust(16, b"\0"))
        for version in (0, 1, 2, 10)
    }
    assert read[0] is not None
    assert read[0].name == ""
    assert (read[1], read[2], read[10]) == (named[0], None, named[1])


def test_a_platform_reaches_a_level_in_everything_or_not_at_all() -> None:
    tcb = parse_collateral(emulated().collateral).tcb
    good = default_platform()
    svn = platform().quote_fields(bytes(64)).report.tee_tcb_svn
    assert match_level(tcb, good, svn) is tcb.levels[0]
    for index in range(16):
        if not tcb.levels[0].sgx[index]:
            continue
        svns = list(good.svns)
        svns[index] = tcb.levels[0].sgx[index] - 1
        lower = replace(good, svns=tuple(svns))
        assert match_level(tcb, lower, svn) is not tcb.levels[0], index
    # A larger component elsewhere makes up for nothing.
    high = replace(good, svns=(255, 0, *good.svns[2:]))
    assert match_level(tcb, high, svn) is None


def test_a_named_module_is_judged_by_its_own_levels_alone() -> None:
    # The platform's level wants 5 of the unnamed module; the named one has 3.
    modules = (make_module("TDX_01", ((3, UP),)),)
    evidence = emulated(
        quote=with_report(tee_tcb_svn=bytes([3, 1, 3]).ljust(16, b"\0")),
        collateral=with_tcb(modules=modules),
    )
    assert verified(evidence).details["tcb_status"] == "UpToDate"
    assert library_accepts(evidence, NOW)
