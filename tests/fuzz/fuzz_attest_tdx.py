"""The parsers of ``curtilage.attest`` for TDX: quote, collateral, PCK extension.

True evidence is made anew in every process, and the input of the
last two harnesses is the damage.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Final

from fuzz.common import Harness
from fuzz.fuzz_attest import damaged, refused

from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import TdxEvidence
from curtilage.attest.expectations import TdxExpectations
from curtilage.attest.steps import StepLog
from curtilage.attest.tdx.certificates import parse_platform
from curtilage.attest.tdx.collateral import parse_collateral
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.tdx.verify import TdxRules, verify_tdx
from curtilage_dev.emulated.dcap import (
    default_platform,
    generate_dcap_keys,
    sgx_extension,
)
from curtilage_dev.emulated.tdx import TD_EXTENSION, EmulatedTdx, make_tdx_platform

NOW: Final = datetime(2027, 6, 1, 12, tzinfo=UTC)
REPORT_DATA: Final = bytes(range(64))


@cache
def platform() -> EmulatedTdx:
    """Make a platform; its keys are other ones in every process."""
    return make_tdx_platform(generate_dcap_keys(), now=NOW)


@cache
def true_evidence() -> TdxEvidence:
    """Make true evidence."""
    return platform().evidence(REPORT_DATA, now=NOW)


def verified(evidence: TdxEvidence) -> CpuClaims:
    """Verify evidence of the platform."""
    made = platform()
    rules = TdxRules(
        anchors=(made.anchor(),),
        expectations=TdxExpectations(),
        clock_skew_s=60,
        measurements=(made.measurement,),
    )
    return verify_tdx(evidence, rules, now=NOW, log=StepLog())


def check_tdx_quote(data: bytes) -> None:
    """A quote that ends where its lengths say, but for zeros, or a RefusedError."""
    if not refused(parse_quote, data):
        quote = parse_quote(data)
        assert data.startswith(quote.encoded)
        assert not any(data[len(quote.encoded) :])


def check_tdx_collateral(data: bytes) -> None:
    """Collateral, or a RefusedError."""
    refused(parse_collateral, data)


def check_pck_extension(data: bytes) -> None:
    """A platform, or a RefusedError."""
    if not refused(parse_platform, data):
        assert len(parse_platform(data).svns) == 16


def check_tdx_damaged_quote(data: bytes) -> None:
    """A damaged quote is refused, or says the same."""
    true = true_evidence()
    _hold(replace(true, quote=damaged(true.quote, data)))


def check_tdx_damaged_collateral(data: bytes) -> None:
    """Damaged collateral is refused, or changes no claim."""
    true = true_evidence()
    _hold(replace(true, collateral=damaged(true.collateral, data)))


def _hold(evidence: TdxEvidence) -> None:
    try:
        claims = verified(evidence)
    except RefusedError:
        assert evidence != true_evidence()
    else:
        assert claims == verified(true_evidence())


def tdx_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield true evidence, which is other bytes every time it is made."""
    true = true_evidence()
    yield "tdx_quote", "version 4", true.quote
    yield "tdx_quote", "padded", true.quote + bytes(70)
    fields = platform().quote_fields(REPORT_DATA)
    yield "tdx_quote", "version 5", platform().quote(replace(fields, version=5))
    report = replace(
        fields.report,
        tee_tcb_svn2=fields.report.tee_tcb_svn,
        mrservicetd=bytes(48),
        extension=TD_EXTENSION,
    )
    largest = replace(fields, version=5, report=report)
    yield "tdx_quote", "report 1.5ex", platform().quote(largest)
    yield "tdx_collateral", "true", true.collateral


def fixed_tdx_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield what is the same every time."""
    yield "pck_extension", "true", sgx_extension(default_platform())
    for name in ("tdx_damaged_quote", "tdx_damaged_collateral"):
        yield name, "nothing", b""
        yield name, "one octet", b"\0\x80\0\x41"
        yield name, "chain", b"\x05\x80\0\x41"


HARNESSES: Final = (
    Harness(name="tdx_quote", check=check_tdx_quote, max_bytes=8192),
    Harness(name="tdx_collateral", check=check_tdx_collateral, max_bytes=16384),
    Harness(name="pck_extension", check=check_pck_extension, max_bytes=1024),
    Harness(name="tdx_damaged_quote", check=check_tdx_damaged_quote, max_bytes=64),
    Harness(
        name="tdx_damaged_collateral", check=check_tdx_damaged_collateral, max_bytes=64
    ),
)
