"""TDX evidence: what is accepted, what tampering does, genuine samples."""

import errno
import json
import os
import resource
import socket
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import TdxEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TdxExpectations, TrustAnchor
from curtilage.attest.steps import StepLog, TdxCheck
from curtilage.attest.tdx import quote as layout
from curtilage.attest.tdx.collateral import parse_collateral
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.tdx.verify import TdxRules, verify_tdx
from curtilage_dev.emulated.dcap import (
    CollateralFields,
    default_platform,
    generate_dcap_keys,
    pem,
)
from curtilage_dev.emulated.tdx import (
    TD_EXTENSION,
    ChangeCollateral,
    ChangeQuote,
    QuoteFields,
    make_tdx_platform,
)
from support.tdx_evidence import (
    NOW,
    REPORT_DATA,
    edited,
    emulated,
    extended,
    flipped,
    genuine,
    intel_rules,
    measurement_of,
    platform,
    refused,
    rules,
    verified,
    with_identity,
    with_report,
    with_tcb,
)
from support.tdx_library import library_accepts

DAY = timedelta(days=1)
SAMPLE = emulated()


def _as_version_5(fields: QuoteFields) -> QuoteFields:
    return replace(fields, version=5)


def _unchanged(fields: QuoteFields) -> QuoteFields:
    return fields


def _list_ends(end: datetime) -> ChangeCollateral:
    def change(fields: CollateralFields) -> CollateralFields:
        assert fields.pck_list is not None
        return replace(fields, pck_list=replace(fields.pck_list, next_update=end))

    return change


def _root_list_ends(end: datetime) -> ChangeCollateral:
    def change(fields: CollateralFields) -> CollateralFields:
        assert fields.root_list is not None
        return replace(fields, root_list=replace(fields.root_list, next_update=end))

    return change


# --- what is accepted ---------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [_unchanged, _as_version_5, extended(), extended(extension=TD_EXTENSION)],
    ids=[
        "version 4",
        "version 5, report 1.0",
        "version 5, report 1.5",
        "version 5, report 1.5ex",
    ],
)
def test_emulated_quotes_are_accepted(change: ChangeQuote) -> None:
    evidence = emulated(quote=change)
    claims = verified(evidence)
    assert claims.tee is Tee.EMULATED_TDX
    assert claims.bound == REPORT_DATA
    assert claims.platform == default_platform().ppid.hex()
    assert measurement_of(claims) == platform().measurement
    assert library_accepts(evidence, NOW)


def test_claims_say_what_the_quote_says() -> None:
    words = {
        "mrseam": b"\1" * 48,
        "mrconfigid": b"\2" * 48,
        "mrowner": b"\3" * 48,
        "mrownerconfig": b"\4" * 48,
    }
    evidence = emulated(quote=with_report(**words))
    named = platform().measurement | {
        name: value.hex() for name, value in words.items()
    }
    claims = verified(evidence, replace(rules(), measurements=(named,)))
    assert dict(claims.registers) == named
    assert dict(claims.details) == {
        "quote_version": 4,
        "fmspc": "90c06f000000",
        "platform_is": "ppid",
        "tcb_status": "UpToDate",
        "tcb_evaluation_number": 18,
        "advisories": (),
        "tee_tcb_svn": "06010300000000000000000000000000",
        "td_attributes": "0000000010000000",
        "xfam": "00000000000602e7",
    }


def test_the_launch_is_named_where_the_quote_names_it() -> None:
    plain = verified(emulated(quote=extended()))
    claims = verified(emulated(quote=extended(extension=TD_EXTENSION)))
    td_id = {"td_id": bytes(range(32)).hex()}
    assert dict(claims.details) == dict(plain.details) | td_id
    assert claims.registers == plain.registers
    unnamed = replace(TD_EXTENSION, td_id=bytes(32))
    claims = verified(emulated(quote=extended(extension=unnamed)))
    assert dict(claims.details) == dict(plain.details)


@pytest.mark.parametrize(
    ("change", "report"),
    [
        (_as_version_5, "1.0"),
        (extended(), "1.5"),
        (extended(extension=TD_EXTENSION), "1.5ex"),
    ],
    ids=["1.0", "1.5", "1.5ex"],
)
def test_the_first_step_names_the_report(change: ChangeQuote, report: str) -> None:
    log = StepLog()
    verify_tdx(emulated(quote=change), rules(), now=NOW, log=log)
    assert f"version 5, TD report {report}, " in log.steps[0].detail


def test_steps_are_numbered_as_they_run() -> None:
    log = StepLog()
    verify_tdx(SAMPLE, rules(), now=NOW, log=log)
    assert [step.name for step in log.steps] == [step.value for step in TdxCheck]
    assert [step.number for step in log.steps] == list(range(1, 22))
    assert all(step.passed and step.detail for step in log.steps)


def test_links_lead_from_the_root_to_the_domain() -> None:
    claims = verified(SAMPLE)
    subjects = [link.subject for link in claims.links]
    assert subjects[0] == "Intel SGX Root CA"
    assert " MRTD 3d3d" in subjects[-1]
    assert claims.links[0].fingerprint == platform().anchor().fingerprint
    known = {"the policy"}
    for link in claims.links:
        assert link.issuer in known, link.subject
        known.add(link.subject)
    assert all(len(link.fingerprint) == 64 for link in claims.links)


@pytest.mark.parametrize(
    "change",
    [
        with_tcb(next_update=NOW + DAY),
        with_identity(next_update=NOW + DAY),
        _root_list_ends(NOW + DAY),
        _list_ends(NOW + DAY),
    ],
    ids=["TCB info", "QE identity", "root list", "PCK list"],
)
def test_the_earliest_end_is_the_end(change: ChangeCollateral) -> None:
    assert verified(SAMPLE).expires_at == NOW + 30 * DAY
    assert verified(emulated(collateral=change)).expires_at == NOW + DAY


@pytest.mark.parametrize("role", ["root", "authority", "pck", "signer"])
def test_a_certificate_may_end_first(role: str) -> None:
    maker = make_tdx_platform(
        generate_dcap_keys(),
        now=NOW,
        change=lambda each, fields: (
            replace(fields, not_after=NOW + DAY) if each == role else fields
        ),
    )
    claims = verified(emulated(made_by=maker), rules(maker))
    assert claims.expires_at == NOW + DAY


def test_evidence_lasts_to_its_last_second() -> None:
    end = NOW + 30 * DAY
    verified(SAMPLE, now=end - timedelta(seconds=1))
    assert refused(SAMPLE, now=end).code is RefusalCode.COLLATERAL_EXPIRED
    first = emulated(collateral=_list_ends(NOW + DAY))
    verified(first, now=NOW + DAY - timedelta(seconds=1))
    assert refused(first, now=NOW + DAY).code is RefusalCode.CRL_EXPIRED


# --- the pinned root ----------------------------------------------------------


def _anchored(*anchors: TrustAnchor) -> TdxRules:
    return replace(rules(), anchors=anchors)


def test_another_root_is_refused() -> None:
    other = make_tdx_platform(generate_dcap_keys(), now=NOW)
    for anchors in (
        (),
        (other.anchor(),),
        (TrustAnchor.of_vendor(AnchorKind.INTEL),),
    ):
        error = refused(SAMPLE, _anchored(*anchors))
        assert (error.code, error.step) == (
            RefusalCode.UNTRUSTED_ROOT,
            "pinned root",
        )


def test_a_served_root_is_trusted_only_by_its_fingerprint() -> None:
    whole = platform().anchor()
    verified(SAMPLE, _anchored(replace(whole, certificate_der=b"")))
    other = make_tdx_platform(generate_dcap_keys(), now=NOW).anchor()
    verified(SAMPLE, _anchored(other, whole))
    # The certificate that is pinned is not the one whose fingerprint is.
    forged = replace(other, certificate_der=whole.certificate_der)
    assert refused(SAMPLE, _anchored(forged)).code is RefusalCode.UNTRUSTED_ROOT


@pytest.mark.parametrize(
    "name",
    ["pck_crl_issuer_chain", "tcb_info_issuer_chain", "qe_identity_issuer_chain"],
)
def test_collateral_of_another_root_is_refused(name: str) -> None:
    other = make_tdx_platform(generate_dcap_keys(), now=NOW)
    theirs = json.loads(emulated(made_by=other).collateral)
    error = refused(edited(SAMPLE, **{name: theirs[name]}))
    assert (error.code, error.step) == (RefusalCode.UNTRUSTED_ROOT, "pinned root")


@pytest.mark.parametrize(
    "name",
    ["pck_crl_issuer_chain", "tcb_info_issuer_chain", "qe_identity_issuer_chain"],
)
def test_a_chain_of_another_shape_is_refused(name: str) -> None:
    made = platform().provisioning
    for chain in (
        "",
        "words",
        pem(made.root),
        pem(made.signer, made.signer, made.root),
    ):
        error = refused(edited(SAMPLE, **{name: chain}))
        assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, "certificates")


def test_a_leaf_in_place_of_a_signer_is_refused() -> None:
    made = platform().provisioning
    for name in ("tcb_info_issuer_chain", "qe_identity_issuer_chain"):
        for wrong in (made.pck, made.authority, made.root):
            error = refused(edited(SAMPLE, **{name: pem(wrong, made.root)}))
            assert error.code is RefusalCode.CHAIN_INVALID
    for wrong in (made.pck, made.signer, made.root):
        chain = pem(wrong, made.root)
        error = refused(edited(SAMPLE, pck_crl_issuer_chain=chain))
        assert error.code is RefusalCode.CHAIN_INVALID


def test_another_platforms_chain_is_refused() -> None:
    other = make_tdx_platform(platform().provisioning.keys, now=NOW - DAY)
    # Same keys, so they differ only in the root's bytes.
    chain = other.provisioning.pck_chain()
    evidence = emulated(quote=lambda fields: replace(fields, pck_chain=chain))
    assert refused(evidence).code is RefusalCode.UNTRUSTED_ROOT


# --- tampering ----------------------------------------------------------------

REPORT_AT = layout.HEADER_BYTES
LENGTH_AT = REPORT_AT + layout.TD_REPORT_10_BYTES
SIGNATURE_AT = LENGTH_AT + 4
KEY_AT = SIGNATURE_AT + layout.SIGNATURE_BYTES
QE_AT = KEY_AT + layout.PUBLIC_KEY_BYTES + 6
QE_SIGNATURE_AT = QE_AT + layout.QE_REPORT_BYTES
AUTHENTICATION_AT = QE_SIGNATURE_AT + layout.SIGNATURE_BYTES + 2
CHAIN_AT = AUTHENTICATION_AT + layout.AUTHENTICATION_DATA_BYTES + 6
# One offset inside every field, and what its change must be refused as.
FLIPS = {
    # Version 4 becomes 5, in which a body has a type and a size: these are neither.
    "version": (0x00, RefusalCode.MALFORMED),
    "version's end": (0x01, RefusalCode.UNSUPPORTED_VERSION),
    "key type": (0x02, RefusalCode.UNSUPPORTED_ALGORITHM),
    "TEE type": (0x04, RefusalCode.UNSUPPORTED_PRODUCT),
    "reserved 1": (0x08, RefusalCode.BAD_SIGNATURE),
    "reserved 2": (0x0A, RefusalCode.BAD_SIGNATURE),
    "vendor": (layout.OFFSET_VENDOR, RefusalCode.UNSUPPORTED_PRODUCT),
    "user data": (layout.OFFSET_USER_DATA, RefusalCode.BAD_SIGNATURE),
    "user data's end": (0x2F, RefusalCode.BAD_SIGNATURE),
    **{
        name: (REPORT_AT + offset, RefusalCode.BAD_SIGNATURE)
        for name, offset in {
            "tee_tcb_svn": layout.OFFSET_TEE_TCB_SVN,
            "mrseam": layout.OFFSET_MRSEAM,
            "mrsignerseam": layout.OFFSET_MRSIGNERSEAM,
            "seam_attributes": layout.OFFSET_SEAM_ATTRIBUTES,
            "td_attributes": layout.OFFSET_TD_ATTRIBUTES,
            "xfam": layout.OFFSET_XFAM,
            "mrtd": layout.OFFSET_MRTD,
            "mrconfigid": layout.OFFSET_MRCONFIGID,
            "mrowner": layout.OFFSET_MROWNER,
            "mrownerconfig": layout.OFFSET_MROWNERCONFIG,
            "rtmr0": layout.OFFSET_RTMR,
            "rtmr1": layout.OFFSET_RTMR + 48,
            "rtmr2": layout.OFFSET_RTMR + 96,
            "rtmr3": layout.OFFSET_RTMR + 144,
            "report_data": layout.OFFSET_REPORT_DATA,
            "report_data's end": layout.TD_REPORT_10_BYTES - 1,
        }.items()
    },
    "signature data length": (LENGTH_AT, RefusalCode.MALFORMED),
    "signature r": (SIGNATURE_AT, RefusalCode.BAD_SIGNATURE),
    "signature s": (SIGNATURE_AT + 63, RefusalCode.BAD_SIGNATURE),
    "attestation key x": (KEY_AT, RefusalCode.BAD_SIGNATURE),
    "attestation key y": (KEY_AT + 63, RefusalCode.BAD_SIGNATURE),
    "outer type": (QE_AT - 6, RefusalCode.MALFORMED),
    "outer length": (QE_AT - 4, RefusalCode.MALFORMED),
    **{
        name: (QE_AT + offset, RefusalCode.BAD_SIGNATURE)
        for name, offset in {
            "QE cpusvn": layout.OFFSET_QE_CPUSVN,
            "QE miscselect": layout.OFFSET_QE_MISCSELECT,
            "QE reserved": 20,
            "QE attributes": layout.OFFSET_QE_ATTRIBUTES,
            "QE mrenclave": layout.OFFSET_QE_MRENCLAVE,
            "QE mrsigner": layout.OFFSET_QE_MRSIGNER,
            "QE isvprodid": layout.OFFSET_QE_ISVPRODID,
            "QE isvsvn": layout.OFFSET_QE_ISVSVN,
            "QE report data": layout.OFFSET_QE_REPORT_DATA,
            "QE report data's end": layout.QE_REPORT_BYTES - 1,
        }.items()
    },
    "QE signature r": (QE_SIGNATURE_AT, RefusalCode.BAD_SIGNATURE),
    "QE signature s": (QE_SIGNATURE_AT + 63, RefusalCode.BAD_SIGNATURE),
    "authentication data length": (AUTHENTICATION_AT - 2, RefusalCode.MALFORMED),
    "authentication data": (AUTHENTICATION_AT, RefusalCode.BAD_SIGNATURE),
    "inner type": (CHAIN_AT - 6, RefusalCode.MALFORMED),
    "inner length": (CHAIN_AT - 4, RefusalCode.MALFORMED),
    "PCK chain": (CHAIN_AT, RefusalCode.MALFORMED),
    "PCK certificate": (CHAIN_AT + 400, RefusalCode.CHAIN_INVALID),
}


@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_bit_is_refused(name: str) -> None:
    offset, code = FLIPS[name]
    assert refused(replace(SAMPLE, quote=flipped(SAMPLE.quote, offset))).code is code


@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_bit_of_a_genuine_quote_is_refused(
    shared_dir: Path, name: str
) -> None:
    offset, code = FLIPS[name]
    evidence, now = genuine(shared_dir, "v4")
    changed = replace(evidence, quote=flipped(evidence.quote, offset))
    assert refused(changed, intel_rules(), now=now).code is code


def test_another_domains_signature_is_refused() -> None:
    other = emulated(quote=with_report(mrtd=b"\1" * 48)).quote
    mixed = SAMPLE.quote[:SIGNATURE_AT] + other[SIGNATURE_AT:]
    error = refused(replace(SAMPLE, quote=mixed))
    assert (error.code, error.step) == (RefusalCode.BAD_SIGNATURE, "quote signature")


def test_another_attestation_key_is_refused() -> None:
    # A whole quote of another platform's attestation key, around this one's
    # enclave report: the report names the key.
    keys = platform().provisioning.keys
    other = replace(keys, attestation=generate_dcap_keys().attestation)
    made = replace(platform().provisioning, keys=other)
    theirs = replace(platform(), provisioning=made)
    quote = emulated(made_by=theirs).quote
    mixed = quote[:QE_AT] + SAMPLE.quote[QE_AT:]
    error = refused(replace(SAMPLE, quote=mixed))
    assert (error.code, error.step) == (RefusalCode.BAD_SIGNATURE, "quoting enclave")


def test_the_other_half_of_a_signature_pair_changes_no_claim() -> None:
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    s = int.from_bytes(SAMPLE.quote[SIGNATURE_AT + 32 : KEY_AT], "big")
    twin = (
        SAMPLE.quote[: SIGNATURE_AT + 32]
        + (order - s).to_bytes(32, "big")
        + SAMPLE.quote[KEY_AT:]
    )
    assert twin != SAMPLE.quote
    assert verified(replace(SAMPLE, quote=twin)) == verified(SAMPLE)


def test_edited_collateral_is_refused() -> None:
    document = json.loads(SAMPLE.collateral)
    for name, old, new in (
        ("tcb_info", "OutOfDate", "UpToDate"),
        ("tcb_info", '"tcbEvaluationDataNumber":18', '"tcbEvaluationDataNumber":19'),
        ("tcb_info", '{"svn":', '{"svn": '),
        ("qe_identity", '"isvsvn":4', '"isvsvn":1'),
        ("qe_identity", "FFFF", "0000"),
    ):
        text = document[name].replace(old, new, 1)
        assert text != document[name]
        error = refused(edited(SAMPLE, **{name: text}))
        assert (error.code, error.step) == (
            RefusalCode.COLLATERAL_INVALID,
            "collateral signatures",
        )


def test_swapped_parts_of_collateral_are_refused() -> None:
    document = json.loads(SAMPLE.collateral)
    swaps = {
        ("tcb_info_signature", "qe_identity_signature"): RefusalCode.COLLATERAL_INVALID,
        ("tcb_info", "qe_identity"): RefusalCode.COLLATERAL_INVALID,
        ("root_ca_crl", "pck_crl"): RefusalCode.CRL_INVALID,
    }
    for (one, other), code in swaps.items():
        swapped = edited(SAMPLE, **{one: document[other], other: document[one]})
        error = refused(swapped)
        assert error.code in {code, RefusalCode.UNSUPPORTED_VERSION}


def test_another_times_collateral_is_as_good_while_it_is_current() -> None:
    later = platform().evidence(REPORT_DATA, now=NOW + DAY)
    verified(replace(SAMPLE, collateral=later.collateral), now=NOW + DAY)
    error = refused(replace(SAMPLE, collateral=later.collateral))
    assert error.code is RefusalCode.NOT_YET_VALID


# --- measurements -------------------------------------------------------------


def _measured(*measurements: dict[str, str]) -> TdxRules:
    return replace(rules(), measurements=measurements)


def test_an_unlisted_measurement_is_refused() -> None:
    good = platform().measurement
    for name in good:
        error = refused(SAMPLE, _measured(good | {name: "00" * 47 + "01"}))
        assert (error.code, error.step) == (
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            "measurement",
        )
    short = {name: value for name, value in good.items() if name != "rtmr3"}
    too_little: tuple[tuple[dict[str, str], ...], ...] = ((), (short,), ({},))
    for measurements in too_little:
        error = refused(SAMPLE, _measured(*measurements))
        assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED
    verified(SAMPLE, _measured(good | {"mrtd": "00" * 48}, good))


@pytest.mark.parametrize("name", ["mrconfigid", "mrowner", "mrownerconfig"])
def test_what_the_host_sets_is_zero_unless_it_is_named(name: str) -> None:
    evidence = emulated(quote=with_report(**{name: b"\1" * 48}))
    assert refused(evidence).code is RefusalCode.MEASUREMENT_NOT_ALLOWED
    named = platform().measurement | {name: "01" * 48}
    verified(evidence, _measured(named))


# --- any bytes ----------------------------------------------------------------

EDITS = st.lists(
    st.tuples(
        st.integers(0, 2**16),
        st.integers(0, 255),
        st.sampled_from(["set", "drop", "add"]),
    ),
    max_size=4,
)


def _changed(data: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    changed = bytearray(data)
    for where, octet, how in edits:
        at = where % len(changed)
        if how == "set":
            changed[at] = octet
        elif how == "add":
            changed.insert(at, octet)
        else:
            del changed[at]
    return bytes(changed)


@given(EDITS, EDITS)
@settings(max_examples=150)
def test_any_change_is_refused_or_changes_no_claim(
    in_quote: list[tuple[int, int, str]], in_collateral: list[tuple[int, int, str]]
) -> None:
    evidence = replace(
        SAMPLE,
        quote=_changed(SAMPLE.quote, in_quote),
        collateral=_changed(SAMPLE.collateral, in_collateral),
    )
    try:
        claims = verified(evidence)
    except RefusedError:
        return
    assert claims == verified(SAMPLE)


# --- what it may not do -------------------------------------------------------


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a socket was asked for")


def test_verification_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse sockets to Python, and any new file descriptor to the library."""
    held_against = rules()
    verified(SAMPLE, held_against)
    monkeypatch.setattr(socket, "socket", _refuse)
    monkeypatch.setattr(socket, "getaddrinfo", _refuse)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        claims = verified(SAMPLE, held_against)
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            os.close(os.open("/", os.O_RDONLY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert claims.bound == REPORT_DATA


def test_nothing_is_kept_in_a_representation() -> None:
    quote = parse_quote(SAMPLE.quote)
    collateral = parse_collateral(SAMPLE.collateral)
    for value in (SAMPLE, quote.qe, collateral):
        assert "BEGIN CERTIFICATE" not in repr(value)
    assert quote.signature.hex() not in repr(quote)
    assert repr(quote.pck_chain)[2:40] not in repr(quote)


# --- genuine evidence ---------------------------------------------------------


def _genuine_claims(shared_dir: Path, name: str) -> CpuClaims:
    evidence, now = genuine(shared_dir, name)
    quote = parse_quote(evidence.quote)
    registers = {f"rtmr{n}": each.hex() for n, each in enumerate(quote.report.rtmr)}
    registers["mrtd"] = quote.report.mrtd.hex()
    return verified(evidence, intel_rules(registers), now=now)


@pytest.mark.parametrize("name", ["v4", "v5"])
def test_genuine_evidence_is_accepted_at_its_date(shared_dir: Path, name: str) -> None:
    claims = _genuine_claims(shared_dir, name)
    assert claims.tee is Tee.TDX
    assert claims.details["tcb_status"] == "UpToDate"
    assert len(claims.bound) == 64
    assert len(claims.platform) == 32
    root = (shared_dir / "evidence/tdx/roots/intel_sgx_root_ca.der").read_bytes()
    evidence, now = genuine(shared_dir, name)
    whole = TrustAnchor.of_certificate(AnchorKind.INTEL, "", root)
    pinned = replace(intel_rules(measurement_of(claims)), anchors=(whole,))
    assert verified(evidence, pinned, now=now) == claims


def test_genuine_evidence_ends_with_its_first_list(shared_dir: Path) -> None:
    evidence, _ = genuine(shared_dir, "v4")
    claims = _genuine_claims(shared_dir, "v4")
    assert claims.expires_at == datetime(2025, 7, 19, 10, 0, 35, tzinfo=UTC)
    for moment, code in (
        (datetime(2025, 6, 19, 10, tzinfo=UTC), RefusalCode.NOT_YET_VALID),
        (datetime(2025, 7, 19, 10, 5, tzinfo=UTC), RefusalCode.CRL_EXPIRED),
        (datetime(2025, 7, 25, tzinfo=UTC), RefusalCode.COLLATERAL_EXPIRED),
        (datetime(2027, 1, 1, tzinfo=UTC), RefusalCode.COLLATERAL_EXPIRED),
        (datetime(2000, 1, 1, tzinfo=UTC), RefusalCode.NOT_YET_VALID),
    ):
        assert refused(evidence, intel_rules(), now=moment).code is code


@pytest.mark.parametrize(
    ("name", "code", "step"),
    [
        ("v5 too low", RefusalCode.TCB_TOO_LOW, "TCB level"),
        ("debug", RefusalCode.DEBUG_ENABLED, "debugging"),
        ("no level", RefusalCode.MALFORMED, "quote layout"),
        ("sgx", RefusalCode.UNSUPPORTED_VERSION, "quote layout"),
        ("v4", RefusalCode.MEASUREMENT_NOT_ALLOWED, "measurement"),
    ],
)
def test_genuine_evidence_is_refused_for_its_reason(
    shared_dir: Path, name: str, code: RefusalCode, step: str
) -> None:
    evidence, now = genuine(shared_dir, name)
    error = refused(evidence, intel_rules(), now=now)
    assert (error.code, error.step) == (code, step)


def test_a_genuine_quote_without_what_was_put_behind_it(shared_dir: Path) -> None:
    evidence, now = genuine(shared_dir, "no level")
    cut = replace(evidence, quote=evidence.quote[: evidence.quote.index(b"\nextra")])
    error = refused(cut, intel_rules(), now=now)
    assert (error.code, error.step) == (RefusalCode.TCB_TOO_LOW, "TCB level")


def test_genuine_evidence_has_no_emulated_root(shared_dir: Path) -> None:
    evidence, now = genuine(shared_dir, "v4")
    error = refused(evidence, rules(), now=now)
    assert (error.code, error.step) == (RefusalCode.UNTRUSTED_ROOT, "pinned root")


def test_genuine_collateral_of_something_else_is_refused(shared_dir: Path) -> None:
    evidence, now = genuine(shared_dir, "v4")
    of_sgx = genuine(shared_dir, "sgx")[0].collateral
    other = shared_dir / "evidence/tdx/other-quotes"
    mixed = {
        path.name: replace(evidence, quote=path.read_bytes())
        for path in sorted(other.iterdir())
    }
    assert len(mixed) == 5
    mixed["SGX's"] = replace(evidence, collateral=of_sgx)
    for name, each in mixed.items():
        error = refused(each, intel_rules(), now=now)
        assert (error.code, error.step) == (
            RefusalCode.ENDORSEMENT_MISMATCH,
            "collateral's platform",
        ), name


def test_genuine_evaluation_numbers_are_compared(shared_dir: Path) -> None:
    evidence, now = genuine(shared_dir, "v4")
    recent = TdxExpectations(min_tcb_evaluation_number=18)
    error = refused(evidence, intel_rules(expectations=recent), now=now)
    assert (error.code, error.step) == (
        RefusalCode.TCB_TOO_LOW,
        "TCB evaluation number",
    )


# --- hostile sizes ------------------------------------------------------------


def _hostile() -> dict[str, TdxEvidence]:
    document = json.loads(SAMPLE.collateral)
    chain = document["tcb_info_issuer_chain"]
    empty = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    texts: dict[str, dict[str, object]] = {
        "objects": {"tcb_info": "[" + "{}," * 4000 + "{}]"},
        "depth": {"tcb_info": '{"a":' * 4000},
        "numbers": {"tcb_info": "[" + "1," * 16000 + "1]"},
        "a long number": {"tcb_info": '{"version":' + "9" * 30000 + "}"},
        "a long list": {"pck_crl": "30" * 12000},
        "chains": {"tcb_info_issuer_chain": chain * 4},
        "empty chains": {"tcb_info_issuer_chain": empty * 140},
    }
    return {
        **{name: edited(SAMPLE, **changes) for name, changes in texts.items()},
        "a long chain": emulated(
            quote=lambda fields: replace(fields, pck_chain=empty.encode() * 200)
        ),
        "zeros": replace(SAMPLE, quote=bytes(16 * 1024)),
        "too large": replace(SAMPLE, collateral=b"[" * 10_000_000),
    }


@pytest.mark.parametrize("name", _hostile())
def test_hostile_input_is_refused_in_little_memory(name: str) -> None:
    evidence = _hostile()[name]
    held_against = rules()
    tracemalloc.start()
    try:
        refused(evidence, held_against)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
