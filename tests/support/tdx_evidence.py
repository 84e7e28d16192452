"""Emulated and genuine TDX evidence, and what to hold it against."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import TdxEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TdxExpectations, TrustAnchor
from curtilage.attest.steps import StepLog
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.tdx.verify import TdxRules, verify_tdx
from curtilage_dev.emulated.dcap import CollateralFields, generate_dcap_keys
from curtilage_dev.emulated.tdx import (
    ChangeCollateral,
    ChangeQuote,
    EmulatedTdx,
    QuoteFields,
    make_tdx_platform,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
REPORT_DATA = bytes(range(64))

Change = Callable[[QuoteFields], QuoteFields]


@cache
def platform() -> EmulatedTdx:
    return make_tdx_platform(generate_dcap_keys(), now=NOW)


def emulated(
    *,
    quote: ChangeQuote = lambda fields: fields,
    collateral: ChangeCollateral = lambda fields: fields,
    made_by: EmulatedTdx | None = None,
) -> TdxEvidence:
    """Return evidence of the shared platform, changed before it is signed."""
    maker = made_by or platform()
    return maker.evidence(REPORT_DATA, now=NOW, quote=quote, collateral=collateral)


def rules(
    made_by: EmulatedTdx | None = None, expectations: TdxExpectations | None = None
) -> TdxRules:
    maker = made_by or platform()
    return TdxRules(
        anchors=(maker.anchor(),),
        expectations=expectations or TdxExpectations(),
        clock_skew_s=60,
        measurements=(maker.measurement,),
    )


def verified(
    evidence: TdxEvidence, held_against: TdxRules | None = None, *, now: datetime = NOW
) -> CpuClaims:
    return verify_tdx(evidence, held_against or rules(), now=now, log=StepLog())


def refused(
    evidence: TdxEvidence, held_against: TdxRules | None = None, *, now: datetime = NOW
) -> RefusedError:
    """Verify something that must be refused; return why, and at which step."""
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_tdx(evidence, held_against or rules(), now=now, log=log)
    return log.refusal(caught.value.code, caught.value.detail)


def with_report(**changes: object) -> ChangeQuote:
    """Change fields of the TD report."""

    def change(fields: QuoteFields) -> QuoteFields:
        report = replace(fields.report, **changes)  # type: ignore[arg-type] # by name
        return replace(fields, report=report)

    return change


def extended(**changes: object) -> ChangeQuote:
    """Make a version 5 quote around a TD report 1.5, and change that."""

    def change(fields: QuoteFields) -> QuoteFields:
        values = {
            "tee_tcb_svn2": fields.report.tee_tcb_svn,
            "mrservicetd": bytes(48),
            **changes,
        }
        return replace(with_report(**values)(fields), version=5)

    return change


def with_qe(**changes: object) -> ChangeQuote:
    """Change fields of the quoting enclave's report."""

    def change(fields: QuoteFields) -> QuoteFields:
        return replace(fields, qe=replace(fields.qe, **changes))  # type: ignore[arg-type] # by name

    return change


def with_tcb(**changes: object) -> ChangeCollateral:
    """Change fields of the TCB info."""

    def change(fields: CollateralFields) -> CollateralFields:
        return replace(fields, tcb=replace(fields.tcb, **changes))  # type: ignore[arg-type] # by name

    return change


def with_identity(**changes: object) -> ChangeCollateral:
    """Change fields of the QE identity."""

    def change(fields: CollateralFields) -> CollateralFields:
        return replace(fields, qe=replace(fields.qe, **changes))  # type: ignore[arg-type] # by name

    return change


def edited(evidence: TdxEvidence, **changes: object) -> TdxEvidence:
    """Change keys of the collateral after it was signed; None removes one."""
    document = json.loads(evidence.collateral) | changes
    kept = {name: value for name, value in document.items() if value is not None}
    return replace(evidence, collateral=json.dumps(kept).encode())


def flipped(data: bytes, offset: int, mask: int = 1) -> bytes:
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


# Genuine evidence; dates from its SOURCE.md.
GENUINE = {
    "v4": ("v4-uptodate-2025", datetime(2025, 6, 25, tzinfo=UTC)),
    "v5": ("go-v5-2026", datetime(2026, 2, 20, tzinfo=UTC)),
    "v5 too low": ("v5-tcb-too-low-2026", datetime(2026, 2, 20, tzinfo=UTC)),
    "debug": ("DEBUG-v4-2023", datetime(2023, 7, 1, tzinfo=UTC)),
    "no level": ("go-v4-2023-no-level", datetime(2023, 7, 1, tzinfo=UTC)),
    "sgx": ("sgx", datetime(2025, 6, 25, tzinfo=UTC)),
}


def genuine(shared_dir: Path, name: str) -> tuple[TdxEvidence, datetime]:
    """Return genuine evidence and a moment at which it was current."""
    folder, moment = GENUINE[name]
    here = shared_dir / "evidence" / "tdx"
    quote = (here / folder / "quote.bin").read_bytes()
    stapled = here / folder / "collateral.json"
    collateral = stapled.read_bytes() if stapled.exists() else _assembled(here)
    return TdxEvidence(tee=Tee.TDX, quote=quote, collateral=collateral), moment


def _assembled(here: Path) -> bytes:
    """Put a TCB info as Intel's service answers into collateral of its time."""
    document = json.loads((here / "v5-tcb-too-low-2026/collateral.json").read_bytes())
    answer = (here / "go-v5-2026/tcbinfo_response.json").read_text()
    document["tcb_info"], document["tcb_info_signature"] = _signed(answer, "tcbInfo")
    return json.dumps(document).encode()


def _signed(answer: str, name: str) -> tuple[str, str]:
    """Return the text that Intel signed, as it is in an answer, and the signature."""
    start = answer.index(f'"{name}":') + len(f'"{name}":')
    signed = answer[start : answer.rindex(',"signature"')]
    return signed, json.loads(answer)["signature"]


def collateral_of(folder: Path, quote: bytes) -> bytes:
    """Put the answers of Intel's service, a file each, into one collateral."""
    tcb = (folder / "tcb_info_90c06f000000.json").read_text()
    identity = (folder / "td_qe_identity.json").read_text()
    tcb_info, tcb_signature = _signed(tcb, "tcbInfo")
    qe_identity, qe_signature = _signed(identity, "enclaveIdentity")
    chain = parse_quote(quote).pck_chain.decode()
    # The key's own certificate is first; the rest issued it, and its list.
    authorities = "-----BEGIN".join(["", *chain.split("-----BEGIN")[2:]])
    document = {
        "pck_crl_issuer_chain": authorities.rstrip("\0"),
        "root_ca_crl": (folder / "root_ca_crl.der").read_bytes().hex(),
        "pck_crl": (folder / "pck_crl_platform.der").read_bytes().hex(),
        "tcb_info_issuer_chain": (folder / "tcb_signing_chain.pem").read_text(),
        "tcb_info": tcb_info,
        "tcb_info_signature": tcb_signature,
        "qe_identity_issuer_chain": (
            folder / "qe_identity_signing_chain.pem"
        ).read_text(),
        "qe_identity": qe_identity,
        "qe_identity_signature": qe_signature,
    }
    return json.dumps(document).encode()


def intel_rules(
    *measurements: dict[str, str], expectations: TdxExpectations | None = None
) -> TdxRules:
    """Return rules that pin Intel's root by its fingerprint alone."""
    return TdxRules(
        anchors=(TrustAnchor.of_vendor(AnchorKind.INTEL),),
        expectations=expectations or TdxExpectations(),
        clock_skew_s=60,
        measurements=measurements,
    )


def measurement_of(claims: CpuClaims) -> dict[str, str]:
    """Return the registers that a policy must name, as the claims have them."""
    names = ("mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3")
    return {name: claims.registers[name] for name in names}
