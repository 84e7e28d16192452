"""Validly signed bad states: each has its code, its step and a second opinion."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from curtilage.attest.errors import RefusalCode
from curtilage.attest.evidence import TdxEvidence
from curtilage.attest.expectations import TdxExpectations
from curtilage.attest.steps import StepLog, TdxCheck
from curtilage.attest.tdx.certificates import PckPlatform
from curtilage.attest.tdx.collateral import SvnLevel, TcbStatus
from curtilage.attest.tdx.quote import TdExtension
from curtilage.attest.tdx.verify import (
    TD_DEBUG,
    TD_KEY_LOCKER,
    TD_MIGRATABLE,
    TD_PERFMON,
    TD_PKS,
    TD_SEPT_VE_DISABLE,
    verify_td,
)
from curtilage_dev.emulated.collateral import NAMED_MODULE, make_module
from curtilage_dev.emulated.dcap import (
    CertificateFields,
    CollateralFields,
    default_platform,
    generate_dcap_keys,
    pem,
)
from curtilage_dev.emulated.tdx import (
    TD_EXTENSION,
    TEE_TCB_SVN,
    ChangeCollateral,
    ChangeQuote,
    EmulatedTdx,
    QuoteFields,
    make_tdx_platform,
)
from support.tdx_evidence import (
    NOW,
    edited,
    emulated,
    extended,
    flipped,
    platform,
    refused,
    rules,
    verified,
    with_identity,
    with_qe,
    with_report,
    with_tcb,
)
from support.tdx_library import endless_list, library_accepts

DAY = timedelta(days=1)
LEVELS = platform().provisioning.fields(now=NOW).tcb.levels
QE_ATTRIBUTES = QuoteFields(
    report=platform().quote_fields(bytes(64)).report
).qe.attributes


def _unchanged_quote(fields: QuoteFields) -> QuoteFields:
    return fields


def _unchanged_collateral(fields: CollateralFields) -> CollateralFields:
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One bad state that is signed as a good one would be.

    Attributes:
        quote: what is wrong with the quote.
        collateral: what is wrong with the collateral.
        code: why it must be refused.
        step: and where.
        lax: the library alone would accept it.
    """

    quote: ChangeQuote = _unchanged_quote
    collateral: ChangeCollateral = _unchanged_collateral
    code: RefusalCode
    step: TdxCheck
    lax: bool = False

    def evidence(self) -> TdxEvidence:
        return emulated(quote=self.quote, collateral=self.collateral)


def _attributes(bits: int, code: RefusalCode, *, lax: bool = False) -> State:
    early = code is RefusalCode.DEBUG_ENABLED
    return State(
        quote=with_report(td_attributes=bits),
        code=code,
        step=TdxCheck.DEBUGGING if early else TdxCheck.TD_ATTRIBUTES,
        lax=lax,
    )


def _svn(*svns: int) -> ChangeQuote:
    return with_report(tee_tcb_svn=bytes(svns).ljust(16, b"\0"))


def _extension(**changes: object) -> ChangeQuote:
    extension = replace(TD_EXTENSION, **changes)  # type: ignore[arg-type] # by name
    return extended(extension=extension)


def _level(status: TcbStatus) -> ChangeCollateral:
    return with_tcb(levels=(replace(LEVELS[0], status=status), LEVELS[1]))


def _svn_level(status: TcbStatus) -> tuple[SvnLevel, ...]:
    return (SvnLevel(isvsvn=4, status=status, advisories=()),)


def _module_level(status: TcbStatus) -> ChangeCollateral:
    return with_tcb(modules=(make_module("TDX_01", ((4, status),)),))


def _root_list(**changes: object) -> ChangeCollateral:
    def change(fields: CollateralFields) -> CollateralFields:
        assert fields.root_list is not None
        changed = replace(fields.root_list, **changes)  # type: ignore[arg-type] # by name
        return replace(fields, root_list=changed)

    return change


def _pck_list(**changes: object) -> ChangeCollateral:
    def change(fields: CollateralFields) -> CollateralFields:
        assert fields.pck_list is not None
        changed = replace(fields.pck_list, **changes)  # type: ignore[arg-type] # by name
        return replace(fields, pck_list=changed)

    return change


def _no_list(name: str) -> ChangeCollateral:
    def change(fields: CollateralFields) -> CollateralFields:
        return replace(fields, **{name: None})  # type: ignore[arg-type] # by name

    return change


NORMAL = TD_SEPT_VE_DISABLE
ENDS: dict[str, Literal["little", "big"]] = {"first": "little", "last": "big"}
STATES: dict[str, State] = {
    # The trust domain.
    "debug": _attributes(NORMAL | TD_DEBUG, RefusalCode.DEBUG_ENABLED),
    "debug, version 5": State(
        quote=extended(td_attributes=NORMAL | TD_DEBUG),
        code=RefusalCode.DEBUG_ENABLED,
        step=TdxCheck.DEBUGGING,
    ),
    **{
        f"profiling, bit {bit}": _attributes(
            NORMAL | 1 << bit, RefusalCode.DEBUG_ENABLED
        )
        for bit in range(1, 8)
    },
    "SEPT_VE_DISABLE off": _attributes(0, RefusalCode.MEASUREMENT_NOT_ALLOWED),
    "migratable": _attributes(
        NORMAL | TD_MIGRATABLE, RefusalCode.MIGRATION_AGENT_ALLOWED
    ),
    **{
        f"unknown attribute, bit {bit}": _attributes(
            NORMAL | 1 << bit, RefusalCode.MEASUREMENT_NOT_ALLOWED, lax=lax
        )
        for bit, lax in ((8, False), (17, False), (18, True), (32, False), (62, True))
    },
    "service domain": State(
        quote=extended(mrservicetd=b"\1" * 48),
        code=RefusalCode.MIGRATION_AGENT_ALLOWED,
        step=TdxCheck.TD_ATTRIBUTES,
    ),
    "service domain, report 1.5ex": State(
        quote=extended(mrservicetd=b"\1" * 48, extension=TD_EXTENSION),
        code=RefusalCode.MIGRATION_AGENT_ALLOWED,
        step=TdxCheck.TD_ATTRIBUTES,
    ),
    **{
        f"{name}, {where} octet": State(
            quote=_extension(**{name: (1).to_bytes(size, order)}),
            code=RefusalCode.MIGRATION_AGENT_ALLOWED,
            step=TdxCheck.TD_ATTRIBUTES,
            lax=True,
        )
        for name, size in (
            ("current_servicetd", 48),
            ("current_servicetd_attributes", 8),
            ("init_servicetd", 48),
            ("init_servicetd_attributes", 8),
            ("init_cpusvn", 16),
            ("init_tee_tcb_svn", 16),
            ("init_model", 12),
        )
        for where, order in ENDS.items()
    },
    **{
        f"inner machine {vmid}": State(
            quote=_extension(vmid=vmid),
            code=RefusalCode.MEASUREMENT_NOT_ALLOWED,
            step=TdxCheck.TD_ATTRIBUTES,
            lax=True,
        )
        for vmid in (1, 3, 255)
    },
    **{
        f"devices, {where} octet": State(
            quote=_extension(device_info=(1).to_bytes(48, order)),
            code=RefusalCode.MEASUREMENT_NOT_ALLOWED,
            step=TdxCheck.TD_ATTRIBUTES,
            lax=True,
        )
        for where, order in ENDS.items()
    },
    "debug, report 1.5ex": State(
        quote=extended(td_attributes=NORMAL | TD_DEBUG, extension=TD_EXTENSION),
        code=RefusalCode.DEBUG_ENABLED,
        step=TdxCheck.DEBUGGING,
    ),
    "SERVTD_EXT, report 1.5ex": State(
        quote=extended(td_attributes=NORMAL | 1 << 17, extension=TD_EXTENSION),
        code=RefusalCode.MEASUREMENT_NOT_ALLOWED,
        step=TdxCheck.TD_ATTRIBUTES,
    ),
    # The TDX module.
    "unknown module": State(
        quote=_svn(6, 2, 3),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.TDX_MODULE,
    ),
    "module's signer": State(
        quote=with_report(mrsignerseam=b"\1" * 48),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.TDX_MODULE,
    ),
    "module's attributes": State(
        quote=with_report(seam_attributes=b"\1" + bytes(7)),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.TDX_MODULE,
    ),
    "unnamed module's signer": State(
        quote=lambda fields: with_report(mrsignerseam=b"\1" * 48)(
            _svn(5, 0, 3)(fields)
        ),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.TDX_MODULE,
    ),
    "module too low": State(
        quote=_svn(5, 1, 3), code=RefusalCode.TCB_TOO_LOW, step=TdxCheck.TCB_LEVEL
    ),
    # How current everything is.
    "unnamed module too low": State(
        quote=_svn(4, 0, 3), code=RefusalCode.TCB_TOO_LOW, step=TdxCheck.TCB_LEVEL
    ),
    "processor too low": State(
        quote=_svn(6, 1, 1), code=RefusalCode.TCB_TOO_LOW, step=TdxCheck.TCB_LEVEL
    ),
    "no levels": State(
        collateral=with_tcb(levels=()),
        code=RefusalCode.TCB_TOO_LOW,
        step=TdxCheck.TCB_LEVEL,
    ),
    "levels of SGX alone": State(
        collateral=with_tcb(levels=(replace(LEVELS[0], tdx=()),)),
        code=RefusalCode.TCB_TOO_LOW,
        step=TdxCheck.TCB_LEVEL,
    ),
    "older level": State(
        quote=_svn(6, 1, 2), code=RefusalCode.TCB_STATUS, step=TdxCheck.TCB_STATUS
    ),
    **{
        f"platform {status}": State(
            collateral=_level(status),
            code=RefusalCode.TCB_STATUS,
            step=TdxCheck.TCB_STATUS,
        )
        for status in TcbStatus
        if status is not TcbStatus.UP_TO_DATE
    },
    **{
        f"quoting enclave {status}": State(
            collateral=with_identity(levels=_svn_level(status)),
            code=RefusalCode.TCB_STATUS,
            step=TdxCheck.TCB_STATUS,
        )
        for status in (TcbStatus.OUT_OF_DATE, TcbStatus.REVOKED)
    },
    **{
        f"module {status}": State(
            collateral=_module_level(status),
            code=RefusalCode.TCB_STATUS,
            step=TdxCheck.TCB_STATUS,
        )
        for status in (TcbStatus.OUT_OF_DATE, TcbStatus.REVOKED)
    },
    # The quoting enclave.
    "QE debug": State(
        quote=with_qe(attributes=b"\x17" + QE_ATTRIBUTES[1:]),
        code=RefusalCode.DEBUG_ENABLED,
        step=TdxCheck.QE_IDENTITY,
    ),
    "QE attributes": State(
        quote=with_qe(attributes=b"\x35" + QE_ATTRIBUTES[1:]),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.QE_IDENTITY,
    ),
    "QE MISCSELECT": State(
        quote=with_qe(miscselect=b"\1\0\0\0"),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.QE_IDENTITY,
    ),
    "QE signer": State(
        quote=with_qe(mrsigner=b"\1" * 32),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.QE_IDENTITY,
    ),
    "QE product": State(
        quote=with_qe(isvprodid=1),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.QE_IDENTITY,
    ),
    "another identity": State(
        collateral=with_identity(mrsigner=b"\1" * 32),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.QE_IDENTITY,
    ),
    "QE too low": State(
        quote=with_qe(isvsvn=3), code=RefusalCode.TCB_TOO_LOW, step=TdxCheck.TCB_LEVEL
    ),
    "QE names another key": State(
        quote=with_qe(report_data=bytes(64)),
        code=RefusalCode.BAD_SIGNATURE,
        step=TdxCheck.QUOTING_ENCLAVE,
    ),
    # The collateral.
    "another FMSPC": State(
        collateral=with_tcb(fmspc=bytes(6)),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.COLLATERAL_PLATFORM,
    ),
    "another PCE": State(
        collateral=with_tcb(pce_id=b"\1\0"),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.COLLATERAL_PLATFORM,
        lax=True,
    ),
    "TCB info of SGX": State(
        collateral=with_tcb(name="SGX"),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.COLLATERAL_PLATFORM,
    ),
    "QE identity of SGX": State(
        collateral=with_identity(name="QE"),
        code=RefusalCode.ENDORSEMENT_MISMATCH,
        step=TdxCheck.COLLATERAL_PLATFORM,
    ),
    "TCB info version 2": State(
        collateral=with_tcb(version=2),
        code=RefusalCode.UNSUPPORTED_VERSION,
        step=TdxCheck.COLLATERAL_LAYOUT,
    ),
    "QE identity version 1": State(
        collateral=with_identity(version=1),
        code=RefusalCode.UNSUPPORTED_VERSION,
        step=TdxCheck.COLLATERAL_LAYOUT,
    ),
    "TCB info stale": State(
        collateral=with_tcb(next_update=NOW - DAY, issued=NOW - 2 * DAY),
        code=RefusalCode.COLLATERAL_EXPIRED,
        step=TdxCheck.COLLATERAL_DATES,
    ),
    "TCB info early": State(
        collateral=with_tcb(issued=NOW + DAY),
        code=RefusalCode.NOT_YET_VALID,
        step=TdxCheck.COLLATERAL_DATES,
    ),
    "QE identity stale": State(
        collateral=with_identity(next_update=NOW - DAY, issued=NOW - 2 * DAY),
        code=RefusalCode.COLLATERAL_EXPIRED,
        step=TdxCheck.COLLATERAL_DATES,
    ),
    "QE identity early": State(
        collateral=with_identity(issued=NOW + DAY),
        code=RefusalCode.NOT_YET_VALID,
        step=TdxCheck.COLLATERAL_DATES,
    ),
    # Revocation.
    "no root list": State(
        collateral=_no_list("root_list"),
        code=RefusalCode.CRL_MISSING,
        step=TdxCheck.REVOCATION,
    ),
    "no PCK list": State(
        collateral=_no_list("pck_list"),
        code=RefusalCode.CRL_MISSING,
        step=TdxCheck.REVOCATION,
    ),
    "root list stale": State(
        collateral=_root_list(next_update=NOW - DAY, issued=NOW - 2 * DAY),
        code=RefusalCode.CRL_EXPIRED,
        step=TdxCheck.REVOCATION,
    ),
    "PCK list stale": State(
        collateral=_pck_list(next_update=NOW - DAY, issued=NOW - 2 * DAY),
        code=RefusalCode.CRL_EXPIRED,
        step=TdxCheck.REVOCATION,
    ),
    "PCK list early": State(
        collateral=_pck_list(issued=NOW + DAY),
        code=RefusalCode.NOT_YET_VALID,
        step=TdxCheck.REVOCATION,
        lax=True,
    ),
    "PCK list of somebody else": State(
        collateral=_pck_list(issuer_name="Intel SGX PCK Processor CA"),
        code=RefusalCode.CRL_INVALID,
        step=TdxCheck.REVOCATION,
    ),
    "partial list": State(
        collateral=_pck_list(critical=True),
        code=RefusalCode.CRL_INVALID,
        step=TdxCheck.REVOCATION,
    ),
    "PCK revoked": State(
        collateral=_pck_list(revoked=(3,)),
        code=RefusalCode.REVOKED,
        step=TdxCheck.REVOCATION,
    ),
    "PCK authority revoked": State(
        collateral=_root_list(revoked=(2,)),
        code=RefusalCode.REVOKED,
        step=TdxCheck.REVOCATION,
    ),
    "signer revoked": State(
        collateral=_root_list(revoked=(4,)),
        code=RefusalCode.REVOKED,
        step=TdxCheck.REVOCATION,
    ),
    "root revoked": State(
        collateral=_root_list(revoked=(1,)),
        code=RefusalCode.REVOKED,
        step=TdxCheck.REVOCATION,
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_validly_signed_bad_state_is_refused(name: str) -> None:
    state = STATES[name]
    error = refused(state.evidence())
    assert (error.code, error.step) == (state.code, state.step.value)


@pytest.mark.parametrize("name", STATES)
def test_the_library_agrees(name: str) -> None:
    state = STATES[name]
    assert library_accepts(state.evidence(), NOW) is state.lax


@pytest.mark.parametrize(
    "bits",
    [NORMAL, NORMAL | TD_PKS, NORMAL | TD_KEY_LOCKER | TD_PERFMON, NORMAL | 1 << 27],
    ids=hex,
)
def test_harmless_attributes_are_accepted_by_both(bits: int) -> None:
    evidence = emulated(quote=with_report(td_attributes=bits))
    assert verified(evidence).details["td_attributes"] == f"{bits:016x}"
    assert library_accepts(evidence, NOW)


def test_bit_fields_of_the_identity_stand_as_in_the_report() -> None:
    bits = b"\1\2\0\4"
    for wanted in (bits, bits[::-1]):
        evidence = emulated(
            quote=with_qe(miscselect=bits), collateral=with_identity(miscselect=wanted)
        )
        same = wanted == bits
        assert library_accepts(evidence, NOW) is same
        if same:
            verified(evidence)
        else:
            assert refused(evidence).code is RefusalCode.ENDORSEMENT_MISMATCH


@pytest.mark.parametrize("index", range(16))
def test_masked_attributes_of_the_quoting_enclave_do_not_matter(index: int) -> None:
    mask = b"\xfb" + b"\xff" * 7 + bytes(8)
    changed = flipped(QE_ATTRIBUTES, index, 0x40)
    evidence = emulated(quote=with_qe(attributes=changed))
    accepted = mask[index] & 0x40 == 0
    assert library_accepts(evidence, NOW) is accepted
    if accepted:
        verified(evidence)
    else:
        assert refused(evidence).code is RefusalCode.ENDORSEMENT_MISMATCH


def test_the_module_without_a_name_is_judged_by_the_platforms_levels() -> None:
    evidence = emulated(quote=_svn(5, 0, 3))
    assert verified(evidence).details["tcb_status"] == "UpToDate"
    assert library_accepts(evidence, NOW)
    without = with_tcb(module=make_module("", ()), modules=())
    assert verified(emulated(quote=_svn(5, 0, 3), collateral=without)) is not None


# --- the policy ---------------------------------------------------------------


def _accepting(*statuses: TcbStatus) -> TdxExpectations:
    return TdxExpectations(statuses=frozenset(status.value for status in statuses))


@pytest.mark.parametrize(
    "status", [status for status in TcbStatus if status is not TcbStatus.REVOKED]
)
def test_a_status_that_the_policy_names_is_accepted(status: TcbStatus) -> None:
    evidence = emulated(collateral=_level(status))
    claims = verified(evidence, rules(expectations=_accepting(status)))
    assert claims.details["tcb_status"] == status.value


def test_up_to_date_is_refused_where_it_is_not_named() -> None:
    others = _accepting(TcbStatus.OUT_OF_DATE)
    error = refused(emulated(), rules(expectations=others))
    assert (error.code, error.step) == (RefusalCode.TCB_STATUS, "TCB status")


def test_no_status_refuses_everything() -> None:
    error = refused(emulated(), rules(expectations=_accepting()))
    assert error.code is RefusalCode.TCB_STATUS


def test_revoked_platforms_are_never_accepted() -> None:
    evidence = emulated(collateral=_level(TcbStatus.REVOKED))
    error = refused(evidence, rules(expectations=_accepting(*TcbStatus)))
    assert (error.code, error.step) == (RefusalCode.TCB_STATUS, "TCB status")


@pytest.mark.parametrize(
    "change",
    [
        with_tcb(levels=(replace(LEVELS[0], advisories=("INTEL-SA-00001",)),)),
        with_identity(
            levels=(
                SvnLevel(
                    isvsvn=4,
                    status=TcbStatus.UP_TO_DATE,
                    advisories=("INTEL-SA-00001",),
                ),
            )
        ),
        with_tcb(
            modules=(
                replace(
                    NAMED_MODULE,
                    levels=(
                        SvnLevel(
                            isvsvn=4,
                            status=TcbStatus.UP_TO_DATE,
                            advisories=("INTEL-SA-00001",),
                        ),
                    ),
                ),
            )
        ),
    ],
    ids=["platform", "quoting enclave", "module"],
)
def test_an_open_advisory_is_refused_where_it_is_named(
    change: ChangeCollateral,
) -> None:
    evidence = emulated(collateral=change)
    assert verified(evidence).details["advisories"] == ("INTEL-SA-00001",)
    for spelling in ("INTEL-SA-00001", "intel-sa-00001"):
        named = TdxExpectations(rejected_advisories=frozenset({spelling}))
        error = refused(evidence, rules(expectations=named))
        assert (error.code, error.step) == (RefusalCode.TCB_STATUS, "TCB status")
    other = TdxExpectations(rejected_advisories=frozenset({"INTEL-SA-00002"}))
    verified(evidence, rules(expectations=other))


@pytest.mark.parametrize(
    "change",
    [with_tcb(evaluation_number=17), with_identity(evaluation_number=17)],
    ids=["TCB info", "QE identity"],
)
def test_an_old_evaluation_number_is_refused(change: ChangeCollateral) -> None:
    recent = TdxExpectations(min_tcb_evaluation_number=18)
    verified(emulated(), rules(expectations=recent))
    error = refused(emulated(collateral=change), rules(expectations=recent))
    assert (error.code, error.step) == (
        RefusalCode.TCB_TOO_LOW,
        "TCB evaluation number",
    )


# --- platforms and certificates -----------------------------------------------


def _of_platform(described: PckPlatform) -> EmulatedTdx:
    return make_tdx_platform(generate_dcap_keys(), now=NOW, platform=described)


def test_a_platform_below_every_level_is_refused() -> None:
    good = default_platform()
    low_component = (*good.svns[:7], 4, *good.svns[8:])
    for described in (
        replace(good, svns=low_component),
        replace(good, pcesvn=10),
    ):
        maker = _of_platform(described)
        error = refused(emulated(made_by=maker), rules(maker))
        assert (error.code, error.step) == (RefusalCode.TCB_TOO_LOW, "TCB level")


def test_a_platform_at_the_older_level_is_out_of_date() -> None:
    maker = _of_platform(replace(default_platform(), pcesvn=12))
    error = refused(emulated(made_by=maker), rules(maker))
    assert error.code is RefusalCode.TCB_STATUS
    assert error.detail.startswith("OutOfDate ")


def test_a_platform_without_a_provisioning_id_is_named_by_nothing() -> None:
    """Its FMSPC would be a name that every processor of its model has."""
    maker = _of_platform(replace(default_platform(), ppid=bytes(16)))
    claims = verified(emulated(made_by=maker), rules(maker))
    assert claims.platform == ""
    assert claims.details["platform_is"] == "unnamed"
    assert claims.details["fmspc"] == default_platform().fmspc.hex()


def _certificate(role: str, **changes: object) -> EmulatedTdx:
    def change(each: str, fields: CertificateFields) -> CertificateFields:
        if each != role:
            return fields
        return replace(fields, **changes)  # type: ignore[arg-type] # by name

    return make_tdx_platform(generate_dcap_keys(), now=NOW, change=change)


CHAINS = TdxCheck.CERTIFICATE_CHAINS
CERTIFICATES: dict[str, tuple[str, dict[str, object], TdxCheck]] = {
    "root's name": ("root", {"common_name": "Root"}, CHAINS),
    "root no authority": ("root", {"authority": False, "path_length": None}, CHAINS),
    "root above nothing": ("root", {"path_length": 0}, CHAINS),
    "authority's name": ("authority", {"common_name": "CA"}, CHAINS),
    "authority none": ("authority", {"authority": False, "path_length": None}, CHAINS),
    "authority's issuer": ("authority", {"issuer_name": "Somebody"}, CHAINS),
    "PCK's name": ("pck", {"common_name": "Intel SGX TCB Signing"}, CHAINS),
    "PCK an authority": ("pck", {"authority": True}, CHAINS),
    "PCK's issuer": ("pck", {"issuer_name": "Intel SGX Root CA"}, CHAINS),
    "signer's name": ("signer", {"common_name": "Intel SGX PCK Certificate"}, CHAINS),
    "signer an authority": ("signer", {"authority": True}, CHAINS),
    "signer's issuer": ("signer", {"issuer_name": "Somebody"}, CHAINS),
    "critical extension": ("pck", {"critical": True}, TdxCheck.CERTIFICATES),
    "no extension": ("pck", {"sgx": b""}, TdxCheck.COLLATERAL_PLATFORM),
    "another extension": ("pck", {"sgx": b"\x30\0"}, TdxCheck.COLLATERAL_PLATFORM),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_of_another_kind_is_refused(name: str) -> None:
    role, changes, step = CERTIFICATES[name]
    maker = _certificate(role, **changes)
    error = refused(emulated(made_by=maker), rules(maker))
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, step.value)


def test_a_whole_hierarchy_under_another_name_is_refused() -> None:
    def change(role: str, fields: CertificateFields) -> CertificateFields:
        if role == "pck":
            return fields
        named = replace(fields, issuer_name="Somebody's Root CA")
        if role != "root":
            return named
        return replace(named, common_name="Somebody's Root CA")

    maker = make_tdx_platform(generate_dcap_keys(), now=NOW, change=change)
    error = refused(emulated(made_by=maker), rules(maker))
    assert (error.code, error.detail) == (
        RefusalCode.CHAIN_INVALID,
        "root: unexpected name",
    )


def test_a_root_that_is_not_signed_by_itself_is_refused() -> None:
    made = platform().provisioning
    root = flipped(made.root, len(made.root) - 1)
    maker = replace(platform(), provisioning=replace(made, root=root))
    error = refused(emulated(made_by=maker), rules(maker))
    assert (error.code, error.detail) == (RefusalCode.CHAIN_INVALID, "root: signature")


@pytest.mark.parametrize("role", ["root", "authority", "pck", "signer"])
def test_a_certificate_of_another_time_is_refused(role: str) -> None:
    for changes, code in (
        ({"not_after": NOW - timedelta(seconds=1)}, RefusalCode.EXPIRED_ENDORSEMENT),
        ({"not_before": NOW + timedelta(seconds=1)}, RefusalCode.NOT_YET_VALID),
    ):
        earlier = {"not_before": NOW - 2 * DAY}
        maker = _certificate(role, **(earlier | changes))
        error = refused(emulated(made_by=maker), rules(maker))
        assert (error.code, error.step) == (code, "certificate dates")


def test_keys_of_another_kind_are_refused() -> None:
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    for role in ("pck", "signer", "authority"):
        maker = _certificate(role, public_key=other)
        error = refused(emulated(made_by=maker), rules(maker))
        assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, CHAINS.value)


def _with_key(role: str) -> EmulatedTdx:
    """Return a platform of which one private key is another than certified."""
    made = platform().provisioning
    other = generate_dcap_keys()
    keys = replace(made.keys, **{role: getattr(other, role)})
    return replace(platform(), provisioning=replace(made, keys=keys))


@pytest.mark.parametrize(
    ("role", "code", "step"),
    [
        ("pck", RefusalCode.BAD_SIGNATURE, TdxCheck.QUOTING_ENCLAVE),
        ("signer", RefusalCode.COLLATERAL_INVALID, TdxCheck.COLLATERAL_SIGNATURES),
        ("root", RefusalCode.CRL_INVALID, TdxCheck.REVOCATION),
        ("authority", RefusalCode.CRL_INVALID, TdxCheck.REVOCATION),
    ],
)
def test_a_signature_by_another_key_is_refused(
    role: str, code: RefusalCode, step: TdxCheck
) -> None:
    evidence = emulated(made_by=_with_key(role))
    error = refused(evidence)
    assert (error.code, error.step) == (code, step.value)
    assert not library_accepts(evidence, NOW)


def test_collateral_of_another_pck_authority_is_refused() -> None:
    # The same root has issued another authority of the same name. Its list is served
    # in place of the right one's, or only its certificate is.
    made = platform().provisioning
    keys = replace(made.keys, authority=generate_dcap_keys().authority)
    second = make_tdx_platform(keys, now=NOW).provisioning
    swapped = replace(made, keys=keys, authority=second.authority)
    theirs = replace(emulated(), collateral=swapped.collateral(swapped.fields(now=NOW)))
    chain = edited(emulated(), pck_crl_issuer_chain=pem(second.authority, made.root))
    for evidence in (theirs, chain):
        error = refused(evidence)
        assert (error.code, error.step) == (
            RefusalCode.CRL_INVALID,
            "revocation lists",
        )
    assert not library_accepts(theirs, NOW)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"current_servicetd": b"\1" * 48}, "a service domain is bound to it"),
        ({"init_servicetd": b"\1" * 48}, "a service domain was bound to it"),
        ({"init_model": b"\1" * 12}, "it may have been made on another platform"),
        ({"vmid": 2}, "virtual machine 2 inside the trust domain asked"),
        ({"device_info": b"\1" * 48}, "the trust domain has devices"),
    ],
    ids=str,
)
def test_the_refusal_says_who_has_a_say(
    changes: dict[str, object], detail: str
) -> None:
    assert refused(emulated(quote=_extension(**changes))).detail == detail


@pytest.mark.parametrize("extension", [None, TD_EXTENSION], ids=["1.5", "1.5ex"])
@pytest.mark.parametrize(
    ("svn", "code", "step"),
    [
        ((6, 1, 1), RefusalCode.TCB_TOO_LOW, TdxCheck.TCB_LEVEL),
        ((5, 1, 3), RefusalCode.TCB_TOO_LOW, TdxCheck.TCB_LEVEL),
        ((6, 2, 3), RefusalCode.ENDORSEMENT_MISMATCH, TdxCheck.TCB_LEVEL),
        ((6, 1, 2), RefusalCode.TCB_STATUS, TdxCheck.TCB_STATUS),
    ],
)
def test_what_runs_now_is_judged_like_what_ran_at_the_start(
    svn: tuple[int, ...],
    code: RefusalCode,
    step: TdxCheck,
    extension: TdExtension | None,
) -> None:
    """A module may have been exchanged beneath a running domain."""
    now = bytes(svn).ljust(16, b"\0")
    error = refused(emulated(quote=extended(tee_tcb_svn2=now, extension=extension)))
    assert (error.code, error.step) == (code, step.value)


def test_a_list_that_never_ends_is_refused() -> None:
    # RFC 5280 forbids it, but a list can be written so.
    evidence = endless_list(emulated(), platform())
    error = refused(evidence)
    assert (error.code, error.step) == (RefusalCode.CRL_INVALID, "revocation lists")
    assert "no expiry date" in error.detail


def test_clocks_may_differ_by_the_allowance() -> None:
    soon = NOW + timedelta(seconds=59)
    for change in (
        with_tcb(issued=soon),
        with_identity(issued=soon),
        _root_list(issued=soon),
        _pck_list(issued=soon),
    ):
        verified(emulated(collateral=change))
    late = NOW + timedelta(seconds=61)
    for change in (with_tcb(issued=late), _root_list(issued=late)):
        assert refused(emulated(collateral=change)).code is RefusalCode.NOT_YET_VALID


def test_everything_but_the_measurement_can_be_verified_alone() -> None:
    unlisted = replace(rules(), measurements=())
    log = StepLog()
    claims = verify_td(emulated(), unlisted, now=NOW, log=log)
    assert claims.registers["mrtd"] == platform().measurement["mrtd"]
    names = [step.name for step in log.steps]
    assert names == [step.value for step in TdxCheck][:-1]
    assert TEE_TCB_SVN.hex() == claims.details["tee_tcb_svn"]
    error = refused(emulated(), unlisted)
    assert (error.code, error.step) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        "measurement",
    )
