import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.tdx.collateral import (
    Collateral,
    TcbStatus,
    parse_collateral,
)
from support.tdx_evidence import (
    NOW,
    edited,
    emulated,
    flipped,
    genuine,
    platform,
    refused,
    verified,
    with_tcb,
)

SAMPLE = emulated().collateral
KEYS = (
    "pck_crl_issuer_chain",
    "tcb_info_issuer_chain",
    "tcb_info",
    "tcb_info_signature",
    "qe_identity_issuer_chain",
    "qe_identity",
    "qe_identity_signature",
)


def _code(data: bytes) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        parse_collateral(data)
    return caught.value.code


def _edited(**changes: object) -> bytes:
    return edited(emulated(), **changes).collateral


def _text(name: str, **changes: object) -> bytes:
    """Change keys of one of the two signed texts; None removes one."""
    inner = json.loads(json.loads(SAMPLE)[name]) | changes
    kept = {key: value for key, value in inner.items() if value is not None}
    return _edited(**{name: json.dumps(kept)})


def test_every_field_is_read() -> None:
    fields = platform().provisioning.fields(now=NOW)
    read = parse_collateral(platform().provisioning.collateral(fields))
    tcb, qe = read.tcb, read.qe
    assert (tcb.name, tcb.issued, tcb.next_update) == (
        "TDX",
        fields.tcb.issued,
        fields.tcb.next_update,
    )
    assert (tcb.fmspc, tcb.pce_id) == (fields.tcb.fmspc, fields.tcb.pce_id)
    assert tcb.evaluation_number == fields.tcb.evaluation_number
    assert (tcb.module, tcb.modules) == (fields.tcb.module, fields.tcb.modules)
    assert tcb.levels == fields.tcb.levels
    for name in ("miscselect", "miscselect_mask", "attributes", "attributes_mask"):
        assert getattr(qe, name) == getattr(fields.qe, name)
    assert (qe.name, qe.mrsigner, qe.isvprodid) == (
        "TD_QE",
        fields.qe.mrsigner,
        fields.qe.isvprodid,
    )
    assert (qe.levels, qe.evaluation_number) == (
        fields.qe.levels,
        fields.qe.evaluation_number,
    )
    assert (qe.issued, qe.next_update) == (fields.qe.issued, fields.qe.next_update)
    assert read.root_ca_crl[:1] == read.pck_crl[:1] == b"\x30"


@pytest.mark.parametrize("name", KEYS)
def test_a_missing_key_is_refused(name: str) -> None:
    error = refused(edited(emulated(), **{name: None}))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "collateral layout")


@pytest.mark.parametrize("name", [*KEYS, "root_ca_crl", "pck_crl"])
def test_a_key_of_another_type_is_refused(name: str) -> None:
    values: tuple[object, ...] = (1, ["x"], {"x": 1}, True)
    for value in values:
        assert _code(_edited(**{name: value})) is RefusalCode.MALFORMED


def test_an_unknown_key_is_refused() -> None:
    assert _code(_edited(more="x")) is RefusalCode.MALFORMED


def test_the_pck_chain_of_later_formats_is_passed_over() -> None:
    values: tuple[str | None, ...] = (None, "anything")
    for value in values:
        document = json.loads(SAMPLE) | {"pck_certificate_chain": value}
        changed = replace(emulated(), collateral=json.dumps(document).encode())
        assert verified(changed) == verified(emulated())


@pytest.mark.parametrize(
    "data",
    [b" ", b"[]", b"{", b'"x"', b"\xff", SAMPLE[:-1], SAMPLE + b"x", b"[" * 4000],
    ids=["space", "array", "brace", "string", "octet", "cut", "behind", "deep"],
)
def test_another_text_is_refused(data: bytes) -> None:
    assert _code(data) is RefusalCode.MALFORMED


def test_collateral_that_was_not_served_has_its_own_code() -> None:
    error = refused(replace(emulated(), collateral=b""))
    assert (error.code, error.step) == (
        RefusalCode.COLLATERAL_INVALID,
        "collateral layout",
    )


def test_duplicate_keys_are_refused() -> None:
    assert _code(b'{"tcb_info":"x",' + SAMPLE[1:]) is RefusalCode.MALFORMED
    doubled = json.loads(SAMPLE)["tcb_info"].replace("{", '{"id":"TDX",', 1)
    assert _code(_edited(tcb_info=doubled)) is RefusalCode.COLLATERAL_INVALID


def test_huge_collateral_is_refused_unread() -> None:
    assert _code(SAMPLE.ljust(48 * 1024 + 1)) is RefusalCode.TOO_LARGE


def test_deep_texts_are_refused() -> None:
    for text in ("[" * 5000, '{"a":' * 4000 + "1" + "}" * 4000, "[" * 3000):
        assert _code(_edited(tcb_info=text)) in {
            RefusalCode.COLLATERAL_INVALID,
            RefusalCode.MALFORMED,
        }


@pytest.mark.parametrize("name", ["root_ca_crl", "pck_crl"])
def test_a_missing_list_has_a_code_of_its_own(name: str) -> None:
    for value in (None, ""):
        error = refused(edited(emulated(), **{name: value}))
        assert (error.code, error.step) == (
            RefusalCode.CRL_MISSING,
            "revocation lists",
        )


@pytest.mark.parametrize("value", ["zz", "0", " 00", "00 11"])
def test_a_list_that_is_no_hex_is_refused(value: str) -> None:
    assert _code(_edited(pck_crl=value)) is RefusalCode.CRL_INVALID


@pytest.mark.parametrize(
    "value", ["", "00" * 63, "00" * 65, "zz" * 64, "00" * 63 + "0 "]
)
def test_a_signature_of_another_form_is_refused(value: str) -> None:
    for name in ("tcb_info_signature", "qe_identity_signature"):
        assert _code(_edited(**{name: value})) in {
            RefusalCode.MALFORMED,
            RefusalCode.TOO_LARGE,
        }


Text = tuple[str, dict[str, object]]
TEXTS: tuple[Text, ...] = (
    ("tcb_info", {"id": None}),
    ("tcb_info", {"id": 1}),
    ("tcb_info", {"version": None}),
    ("tcb_info", {"version": "3"}),
    ("tcb_info", {"version": 3.0}),
    ("tcb_info", {"issueDate": None}),
    ("tcb_info", {"issueDate": "2027-06-01"}),
    ("tcb_info", {"issueDate": "2027-06-01T00:00:00+00:00"}),
    ("tcb_info", {"issueDate": "2027-13-01T00:00:00Z"}),
    ("tcb_info", {"nextUpdate": "2027-02-30T00:00:00Z"}),
    ("tcb_info", {"nextUpdate": "٢٠٢٧-06-01T00:00:00Z"}),
    ("tcb_info", {"fmspc": "00" * 5}),
    ("tcb_info", {"fmspc": "0x" * 6}),
    ("tcb_info", {"pceId": None}),
    ("tcb_info", {"tcbEvaluationDataNumber": -1}),
    ("tcb_info", {"tcbEvaluationDataNumber": 2**32}),
    ("tcb_info", {"tcbEvaluationDataNumber": None}),
    ("tcb_info", {"tcbLevels": None}),
    ("tcb_info", {"tcbLevels": {}}),
    ("tcb_info", {"tcbLevels": [1]}),
    ("tcb_info", {"tcbLevels": [{}]}),
    ("tcb_info", {"tdxModule": {}}),
    ("tcb_info", {"tdxModule": 1}),
    ("tcb_info", {"tdxModuleIdentities": {}}),
    ("tcb_info", {"tdxModuleIdentities": [{}]}),
    ("qe_identity", {"version": None}),
    ("qe_identity", {"miscselect": "00"}),
    ("qe_identity", {"miscselectMask": None}),
    ("qe_identity", {"attributes": "00" * 15}),
    ("qe_identity", {"attributesMask": "zz" * 16}),
    ("qe_identity", {"mrsigner": None}),
    ("qe_identity", {"isvprodid": 2**16}),
    ("qe_identity", {"isvprodid": True}),
    ("qe_identity", {"tcbLevels": [{"tcb": {"isvsvn": -1}}]}),
    ("qe_identity", {"nextUpdate": "never"}),
)


@pytest.mark.parametrize(("name", "changes"), TEXTS, ids=str)
def test_a_text_that_intel_cannot_have_written(
    name: str, changes: dict[str, object]
) -> None:
    assert _code(_text(name, **changes)) is RefusalCode.COLLATERAL_INVALID


@pytest.mark.parametrize(
    ("name", "version"),
    [("tcb_info", 2), ("tcb_info", 4), ("qe_identity", 1), ("qe_identity", 4)],
)
def test_another_version_of_a_text_is_refused(name: str, version: int) -> None:
    code = _code(_text(name, version=version))
    assert code is RefusalCode.UNSUPPORTED_VERSION


def test_levels_of_another_kind_are_refused() -> None:
    assert _code(_text("tcb_info", tcbType=1)) is RefusalCode.UNSUPPORTED_VERSION
    assert _code(_text("tcb_info", tcbType=None)) is RefusalCode.COLLATERAL_INVALID


def _levels(**changes: object) -> bytes:
    level = json.loads(json.loads(SAMPLE)["tcb_info"])["tcbLevels"][0] | changes
    return _text("tcb_info", tcbLevels=[level])


def test_levels_of_another_form_are_refused() -> None:
    level = json.loads(json.loads(SAMPLE)["tcb_info"])["tcbLevels"][0]
    short = level["tcb"] | {"tdxtcbcomponents": [{"svn": 0}] * 15}
    high = level["tcb"] | {"sgxtcbcomponents": [{"svn": 256}] * 16}
    for changes in (
        {"tcbStatus": "Splendid"},
        {"tcbStatus": 1},
        {"advisoryIDs": "INTEL-SA-1"},
        {"advisoryIDs": [1]},
        {"tcb": short},
        {"tcb": high},
        {"tcb": level["tcb"] | {"pcesvn": 2**16}},
    ):
        assert _code(_levels(**changes)) is RefusalCode.COLLATERAL_INVALID
    assert parse_collateral(_levels(tcbStatus="Revoked")).tcb.levels[0].status is (
        TcbStatus.REVOKED
    )


def test_a_text_about_sgx_is_read_without_its_tdx_parts() -> None:
    inner = json.loads(json.loads(SAMPLE)["tcb_info"])
    for level in inner["tcbLevels"]:
        del level["tcb"]["tdxtcbcomponents"]
    del inner["tdxModule"], inner["tdxModuleIdentities"]
    read = parse_collateral(_edited(tcb_info=json.dumps(inner | {"id": "SGX"})))
    assert (read.tcb.module, read.tcb.modules) == (None, ())
    assert {level.tdx for level in read.tcb.levels} == {()}


def test_additional_members_of_intel_are_ignored() -> None:
    more = parse_collateral(_text("tcb_info", tcbType=0, more={"a": [1]}))
    assert more.tcb == parse_collateral(SAMPLE).tcb
    more = parse_collateral(_text("qe_identity", more="x"))
    assert more.qe == parse_collateral(SAMPLE).qe


def test_many_levels_fit_and_more_do_not() -> None:
    level = platform().provisioning.fields(now=NOW).tcb.levels[0]
    many = emulated(collateral=with_tcb(levels=(level,) * 24))
    assert len(parse_collateral(many.collateral).tcb.levels) == 24
    inner = json.loads(json.loads(SAMPLE)["qe_identity"])
    levels = inner["tcbLevels"] * 65
    data = _text("qe_identity", tcbLevels=levels)
    assert _code(data) is RefusalCode.COLLATERAL_INVALID


@given(st.binary(max_size=300))
def test_any_bytes_give_collateral_or_a_refusal(data: bytes) -> None:
    with contextlib.suppress(RefusedError):
        assert isinstance(parse_collateral(data), Collateral)


@given(st.integers(0, len(SAMPLE) - 1), st.integers(1, 255))
@settings(max_examples=200)
def test_any_change_gives_collateral_or_a_refusal(where: int, mask: int) -> None:
    with contextlib.suppress(RefusedError):
        assert isinstance(parse_collateral(flipped(SAMPLE, where, mask)), Collateral)


def test_genuine_collateral_is_read(shared_dir: Path) -> None:
    expected = {
        "v4": ("TDX", datetime(2025, 7, 19, 10, 16, 3, tzinfo=UTC), 17, "b0c06f000000"),
        "v5": ("TDX", datetime(2026, 3, 3, 14, 49, 26, tzinfo=UTC), 18, "90c06f000000"),
        "debug": (
            "TDX",
            datetime(2023, 7, 18, 8, 42, 58, tzinfo=UTC),
            15,
            "50806f000000",
        ),
        "sgx": (
            "SGX",
            datetime(2025, 7, 19, 10, 56, 11, tzinfo=UTC),
            17,
            "00a067110000",
        ),
    }
    for name, wanted in expected.items():
        tcb = parse_collateral(genuine(shared_dir, name)[0].collateral).tcb
        found = (tcb.name, tcb.next_update, tcb.evaluation_number, tcb.fmspc.hex())
        assert found == wanted
