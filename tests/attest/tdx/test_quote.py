import contextlib
from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path

import dcap_qvl  # type: ignore[import-untyped] # it has no stubs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.tdx import quote as layout
from curtilage.attest.tdx.quote import TdxQuote, parse_quote
from curtilage_dev.emulated.tdx import TD_EXTENSION, QuoteFields, encode_report
from support.tdx_evidence import (
    REPORT_DATA,
    emulated,
    extended,
    flipped,
    genuine,
    platform,
    refused,
    verified,
)

# Where things stand in a version 4 quote.
LENGTH_AT = layout.HEADER_BYTES + layout.TD_REPORT_10_BYTES
SIGNATURE_AT = LENGTH_AT + 4
KEY_AT = SIGNATURE_AT + layout.SIGNATURE_BYTES
OUTER_AT = KEY_AT + layout.PUBLIC_KEY_BYTES
QE_AT = OUTER_AT + 6
QE_SIGNATURE_AT = QE_AT + layout.QE_REPORT_BYTES
AUTHENTICATION_AT = QE_SIGNATURE_AT + layout.SIGNATURE_BYTES
INNER_AT = AUTHENTICATION_AT + 2 + layout.AUTHENTICATION_DATA_BYTES
CHAIN_AT = INNER_AT + 6
# Every field another, none of them zero.
EXTENSION = layout.TdExtension(
    vmid=0x21,
    td_id=b"\x22" * 32,
    device_info=b"\x23" * 48,
    init_servicetd=b"\x24" * 48,
    init_servicetd_attributes=b"\x25" * 8,
    init_cpusvn=b"\x26" * 16,
    init_tee_tcb_svn=b"\x27" * 16,
    init_model=b"\x28" * 12,
    current_servicetd=b"\x29" * 48,
    current_servicetd_attributes=b"\x2a" * 8,
)


def _fields() -> QuoteFields:
    return platform().quote_fields(REPORT_DATA)


def _quote(**changes: object) -> bytes:
    return platform().quote(replace(_fields(), **changes))  # type: ignore[arg-type] # by name


def _refused(data: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        parse_quote(data)
    return caught.value


def _code(data: bytes) -> RefusalCode:
    return _refused(data).code


def test_every_field_of_version_4_is_read_where_it_was_written() -> None:
    report = layout.TdReport(
        tee_tcb_svn=b"\x01" * 16,
        mrseam=b"\x02" * 48,
        mrsignerseam=b"\x03" * 48,
        seam_attributes=b"\x04" * 8,
        td_attributes=0x0505050505050505,
        xfam=b"\x06" * 8,
        mrtd=b"\x07" * 48,
        mrconfigid=b"\x08" * 48,
        mrowner=b"\x09" * 48,
        mrownerconfig=b"\x0a" * 48,
        rtmr=tuple(bytes([0x0B + number]) * 48 for number in range(4)),
        report_data=b"\x0f" * 64,
        tee_tcb_svn2=None,
        mrservicetd=None,
    )
    quote = parse_quote(_quote(report=report))
    assert quote.report == report
    assert quote.version == 4
    assert quote.signed_part[layout.HEADER_BYTES :] == encode_report(report)
    assert quote.qe_authentication_data == bytes(32)
    assert quote.pck_chain == platform().provisioning.pck_chain()


def test_offsets_are_those_of_the_table() -> None:
    widths = {
        layout.OFFSET_TEE_TCB_SVN: 16,
        layout.OFFSET_MRSEAM: 48,
        layout.OFFSET_MRSIGNERSEAM: 48,
        layout.OFFSET_SEAM_ATTRIBUTES: 8,
        layout.OFFSET_TD_ATTRIBUTES: 8,
        layout.OFFSET_XFAM: 8,
        layout.OFFSET_MRTD: 48,
        layout.OFFSET_MRCONFIGID: 48,
        layout.OFFSET_MROWNER: 48,
        layout.OFFSET_MROWNERCONFIG: 48,
        layout.OFFSET_RTMR: 192,
        layout.OFFSET_REPORT_DATA: 64,
        layout.OFFSET_TEE_TCB_SVN2: 16,
        layout.OFFSET_MRSERVICETD: 48,
        layout.OFFSET_VMID: 1,
        layout.OFFSET_TD_ID: 32,
        layout.OFFSET_DEVICE_INFO: 48,
        layout.OFFSET_INIT_SERVICETD: 48,
        layout.OFFSET_INIT_SERVICETD_ATTRIBUTES: 8,
        layout.OFFSET_INIT_CPUSVN: 16,
        layout.OFFSET_INIT_TEE_TCB_SVN: 16,
        layout.OFFSET_INIT_MODEL: 12,
        layout.OFFSET_CURRENT_SERVICETD: 48,
        layout.OFFSET_CURRENT_SERVICETD_ATTRIBUTES: 8,
    }
    end = 0
    for offset, width in widths.items():
        assert offset == end
        end = offset + width
    assert end == layout.TD_REPORT_15EX_BYTES
    assert layout.OFFSET_TEE_TCB_SVN2 == layout.TD_REPORT_10_BYTES
    assert layout.OFFSET_VMID == layout.TD_REPORT_15_BYTES


def test_version_5_holds_any_report() -> None:
    plain = parse_quote(_quote(version=5))
    assert (plain.version, plain.report.mrservicetd) == (5, None)
    assert plain.report.version == "1.0"
    fields = extended(tee_tcb_svn2=b"\x11" * 16, mrservicetd=b"\x22" * 48)(_fields())
    quote = parse_quote(platform().quote(fields))
    assert quote.report == fields.report
    assert len(quote.signed_part) == 48 + 6 + 648
    assert quote.report.version == "1.5"
    fields = extended(
        tee_tcb_svn2=b"\x11" * 16, mrservicetd=b"\x22" * 48, extension=EXTENSION
    )(_fields())
    quote = parse_quote(platform().quote(fields))
    assert quote.report == fields.report
    assert len(quote.signed_part) == 48 + 6 + 885
    assert quote.report.version == "1.5ex"


def test_the_library_reads_every_field_of_1_5ex_at_its_offset() -> None:
    # Its layout was written down by others, from Intel's header.
    data = platform().quote(extended(extension=EXTENSION)(_fields()))
    report = dcap_qvl.parse_quote(data).report
    assert isinstance(report, dcap_qvl.TdReport15Ex)
    names = {
        "vmid": "vmid",
        "td_id": "td_id",
        "device_info": "dev_info",
        "init_servicetd": "init_service_td_hash",
        "init_servicetd_attributes": "init_service_td_attributes",
        "init_cpusvn": "init_cpu_svn",
        "init_tee_tcb_svn": "init_tee_tcb_svn",
        "init_model": "init_tee_fmspc",
        "current_servicetd": "cur_service_td_hash",
        "current_servicetd_attributes": "cur_service_td_attributes",
    }
    assert set(names) == {each.name for each in dataclass_fields(EXTENSION)}
    for ours, theirs in names.items():
        assert getattr(report, theirs) == getattr(EXTENSION, ours), ours
    assert report.tee_tcb_svn2 == _fields().report.tee_tcb_svn
    assert report.mr_service_td == bytes(48)


@pytest.mark.parametrize("size", [584, 648, 884, 886, 0, 1 << 31], ids=str)
def test_another_size_of_1_5ex_is_refused(size: int) -> None:
    # Body and signature are where they would be for that size.
    fields = extended(extension=EXTENSION)(_fields())
    quote = platform().quote(replace(fields, body_size=size))
    assert _code(quote) is RefusalCode.MALFORMED
    start = layout.HEADER_BYTES + layout.BODY_DESCRIPTOR_BYTES
    end = start + layout.TD_REPORT_15EX_BYTES
    body = quote[start:end].ljust(size, b"\0")[:size] if size < 1000 else b""
    moved = quote[:start] + body + quote[end:]
    assert _refused(moved).detail == f"quote: body has {size} bytes, not 885"


def test_the_type_of_a_body_is_not_guessed_from_its_size() -> None:
    for body_type in (2, 3):
        fields = extended(extension=EXTENSION)(_fields())
        data = platform().quote(replace(fields, body_type=body_type))
        assert _code(data) is RefusalCode.MALFORMED
    for report in (_fields().report, extended()(_fields()).report):
        data = _quote(version=5, report=report, body_type=4)
        assert _code(data) is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "offset",
    [
        layout.OFFSET_VMID,
        layout.OFFSET_TD_ID,
        layout.OFFSET_DEVICE_INFO,
        layout.OFFSET_INIT_SERVICETD,
        layout.OFFSET_INIT_SERVICETD_ATTRIBUTES,
        layout.OFFSET_INIT_CPUSVN,
        layout.OFFSET_INIT_TEE_TCB_SVN,
        layout.OFFSET_INIT_MODEL,
        layout.OFFSET_CURRENT_SERVICETD,
        layout.OFFSET_CURRENT_SERVICETD_ATTRIBUTES,
        layout.TD_REPORT_15EX_BYTES - 1,
    ],
)
def test_every_field_of_1_5ex_is_signed(offset: int) -> None:
    evidence = emulated(quote=extended(extension=TD_EXTENSION))
    verified(evidence)
    start = layout.HEADER_BYTES + layout.BODY_DESCRIPTOR_BYTES
    error = refused(replace(evidence, quote=flipped(evidence.quote, start + offset)))
    assert (error.code, error.step) == (RefusalCode.BAD_SIGNATURE, "quote signature")


def test_every_prefix_is_refused() -> None:
    quote = _quote()
    for end in [*range(SIGNATURE_AT + 8), *range(OUTER_AT - 3, CHAIN_AT + 3), -1]:
        assert _code(quote[:end]) is RefusalCode.MALFORMED, end


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": 3}, RefusalCode.UNSUPPORTED_VERSION),
        ({"version": 6}, RefusalCode.UNSUPPORTED_VERSION),
        ({"version": 0}, RefusalCode.UNSUPPORTED_VERSION),
        ({"key_type": 3}, RefusalCode.UNSUPPORTED_ALGORITHM),
        ({"key_type": 0}, RefusalCode.UNSUPPORTED_ALGORITHM),
        ({"tee_type": 0}, RefusalCode.UNSUPPORTED_PRODUCT),
        ({"tee_type": 0x82}, RefusalCode.UNSUPPORTED_PRODUCT),
        ({"vendor": bytes(16)}, RefusalCode.UNSUPPORTED_PRODUCT),
        ({"version": 5, "body_type": 1}, RefusalCode.UNSUPPORTED_PRODUCT),
        ({"version": 5, "body_type": 5}, RefusalCode.UNSUPPORTED_VERSION),
        ({"version": 5, "body_type": 4}, RefusalCode.MALFORMED),
        ({"version": 5, "body_type": 0}, RefusalCode.UNSUPPORTED_VERSION),
        ({"version": 5, "body_type": 3}, RefusalCode.MALFORMED),
        ({"version": 5, "body_size": 648}, RefusalCode.MALFORMED),
        ({"version": 5, "body_size": 583}, RefusalCode.MALFORMED),
        ({"outer_type": 5}, RefusalCode.MALFORMED),
        ({"outer_type": 0}, RefusalCode.MALFORMED),
        ({"inner_type": 6}, RefusalCode.MALFORMED),
        ({"inner_type": 1}, RefusalCode.MALFORMED),
        ({"inner_type": 3}, RefusalCode.MALFORMED),
        ({"authentication_data": b""}, RefusalCode.MALFORMED),
        ({"authentication_data": bytes(31)}, RefusalCode.MALFORMED),
        ({"authentication_data": bytes(33)}, RefusalCode.MALFORMED),
    ],
    ids=str,
)
def test_another_format_is_refused(
    change: dict[str, object], code: RefusalCode
) -> None:
    data = _quote(**change)
    assert _code(data) is code
    error = refused(replace(emulated(), quote=data))
    assert (error.code, error.step) == (code, "quote layout")


def _lengthened(offset: int, width: int, by: int) -> Callable[[bytes], bytes]:
    def change(quote: bytes) -> bytes:
        length = int.from_bytes(quote[offset : offset + width], "little") + by
        return (
            quote[:offset] + length.to_bytes(width, "little") + quote[offset + width :]
        )

    return change


@pytest.mark.parametrize("by", [-1, 1], ids=str)
@pytest.mark.parametrize(
    ("offset", "width"),
    [
        (LENGTH_AT, 4),
        (OUTER_AT + 2, 4),
        (AUTHENTICATION_AT, 2),
        (INNER_AT + 2, 4),
    ],
    ids=["signature data", "outer", "authentication data", "inner"],
)
def test_wrong_length_inside_is_refused(offset: int, width: int, by: int) -> None:
    data = _lengthened(offset, width, by)(_quote())
    assert _code(data) is RefusalCode.MALFORMED
    assert refused(replace(emulated(), quote=data)).code is RefusalCode.MALFORMED


def test_bytes_between_the_parts_are_refused() -> None:
    # One byte more inside the outer certification data, all lengths above it
    # adjusted: only the innermost one says otherwise.
    quote = _quote() + b"\0"
    for offset in (LENGTH_AT, OUTER_AT + 2):
        quote = _lengthened(offset, 4, 1)(quote)
    error = _refused(quote)
    assert error.code is RefusalCode.MALFORMED
    assert error.detail.startswith("certification data: trailing ")


BEGIN, END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


def _reframed(change: Callable[[bytes], bytes]) -> bytes:
    """Return a quote with another chain, and every length around it adjusted."""
    quote = _quote()
    chain = change(quote[CHAIN_AT:])
    by = len(chain) - len(quote[CHAIN_AT:])
    for offset in (LENGTH_AT, OUTER_AT + 2, INNER_AT + 2):
        quote = _lengthened(offset, 4, by)(quote)
    return quote[:CHAIN_AT] + chain


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\0", b"\n\0", b" \n\n"])
def test_a_framed_chain_may_end_as_tools_end_it(end: bytes) -> None:
    quote = _reframed(lambda chain: chain.rstrip() + end)
    assert parse_quote(quote).pck_chain.startswith(BEGIN)


UNFRAMED: list[Callable[[bytes], bytes]] = [
    lambda chain: chain[:0],
    lambda chain: chain[:0] + b"\0",
    lambda chain: chain[:0] + b"\n",
    lambda chain: chain + b"\0\0",
    lambda chain: chain + b"\0x",
    lambda chain: chain + b"words",
    lambda chain: b"words" + chain,
    lambda chain: b"\0" + chain,
    lambda chain: chain[1:],
    lambda chain: chain.rstrip()[:-1],
    lambda chain: chain.replace(END + b"\n", END + b"\n" + bytes(8), 1),
    lambda chain: chain.replace(END + b"\n", END + b"\nwords\n", 1),
    lambda chain: chain.replace(BEGIN, BEGIN + bytes(8), 1),
    lambda chain: chain.replace(END, b"", 1),
    lambda chain: chain.replace(END, END[:-1], 1),
    lambda chain: chain.replace(BEGIN, b"-----BEGIN TRUSTED CERTIFICATE-----", 1),
    lambda chain: chain + BEGIN,
]


@pytest.mark.parametrize("change", UNFRAMED)
def test_a_chain_that_is_not_framed_is_refused(
    change: Callable[[bytes], bytes],
) -> None:
    data = _reframed(change)
    assert _code(data) is RefusalCode.MALFORMED
    error = refused(replace(emulated(), quote=data))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "quote layout")


def test_many_blank_lines_cost_little_time() -> None:
    data = _reframed(lambda chain: chain.replace(b"\n", b"\n" * 9) + b"\n" * 999 + b"x")
    assert _code(data) is RefusalCode.MALFORMED


@pytest.mark.parametrize("body_type", [0, 5, 0xFFFF])
@pytest.mark.parametrize("size", [0, 583, 1 << 31])
def test_a_body_that_is_not_framed_is_of_no_later_version(
    body_type: int, size: int
) -> None:
    data = _quote(version=5, body_type=body_type, body_size=size)
    assert _code(data) is RefusalCode.MALFORMED


def test_another_version_of_the_same_bytes_is_refused() -> None:
    as_version_5 = flipped(_quote(), layout.OFFSET_VERSION, 1)
    assert _code(as_version_5) is RefusalCode.MALFORMED
    as_version_4 = flipped(_quote(version=5, body_type=2), layout.OFFSET_VERSION, 1)
    assert _code(as_version_4) is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "behind",
    [
        b"\0",
        b"x",
        bytes(69),
        bytes(71),
        bytes(70)[:-1] + b"\1",
        b"\1" * 70,
        bytes(306),
        bytes(308),
        bytes(307)[:-1] + b"\1",
    ],
)
def test_bytes_behind_the_quote_are_refused(behind: bytes) -> None:
    error = refused(emulated(quote=lambda fields: replace(fields, behind=behind)))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "quote layout")


def test_zeros_of_the_known_buffers_change_nothing() -> None:
    quote = _quote()
    # Room for a version 5 quote with a TD report 1.5, or with a 1.5ex.
    for padded in (
        quote + bytes(70),
        quote + bytes(307),
        quote.ljust(8000, b"\0"),
    ):
        parsed = parse_quote(padded)
        assert parsed.encoded == quote
        evidence = replace(emulated(), quote=padded)
        assert verified(evidence) == verified(replace(evidence, quote=quote))
    assert _code(quote.ljust(8000, b"\0")[:-1] + b"\1") is RefusalCode.MALFORMED
    assert _code(quote.ljust(7999, b"\0")) is RefusalCode.MALFORMED


def test_the_largest_quote_has_no_padding_but_the_buffers() -> None:
    fields = extended()(_fields())
    quote = platform().quote(fields)
    assert parse_quote(quote).encoded == quote
    assert parse_quote(quote + bytes(237)).encoded == quote
    assert _code(quote + bytes(70)) is RefusalCode.MALFORMED
    largest = platform().quote(extended(extension=EXTENSION)(_fields()))
    assert parse_quote(largest).encoded == largest
    assert parse_quote(largest.ljust(8000, b"\0")).encoded == largest
    for behind in (70, 237, 307):
        assert _code(largest + bytes(behind)) is RefusalCode.MALFORMED


def test_a_huge_quote_is_refused_unread() -> None:
    assert _code(_quote().ljust(16 * 1024 + 1, b"\0")) is RefusalCode.TOO_LARGE


@given(st.binary(max_size=6000))
@settings(max_examples=200)
def test_any_bytes_give_a_quote_or_a_refusal(data: bytes) -> None:
    with contextlib.suppress(RefusedError):
        assert isinstance(parse_quote(data), TdxQuote)


@given(
    st.integers(0, CHAIN_AT + 200),
    st.integers(0, 255),
    st.sampled_from(["set", "insert", "drop"]),
)
def test_any_change_gives_a_quote_or_a_refusal(
    where: int, octet: int, how: str
) -> None:
    quote = bytearray(_SAMPLE)
    if how == "set":
        quote[where] = octet
    elif how == "insert":
        quote.insert(where, octet)
    else:
        del quote[where]
    try:
        parsed = parse_quote(bytes(quote))
    except RefusedError:
        return
    assert len(parsed.encoded) == len(quote)


_SAMPLE = _quote()


def test_genuine_quotes_are_read(shared_dir: Path) -> None:
    folder = shared_dir / "evidence" / "tdx"
    versions = {
        "v4-uptodate-2025/quote.bin": (4, False, 4936),
        "go-v5-2026/quote.bin": (5, True, 5006),
        "v5-tcb-too-low-2026/quote.bin": (5, True, 5006),
        "DEBUG-v4-2023/quote.bin": (4, False, 4936),
        "other-quotes/go_cos113_v4.bin": (4, False, 4935),
        "other-quotes/openpcc_gce_v4.bin": (4, False, 4939),
        "other-quotes/trustee_azure_SEPT_VE_DISABLE_off.bin": (4, False, 4936),
        "other-quotes/trustee_tdx15_v5.bin": (5, True, 5006),
        "other-quotes/trustee_v4_mrconfigid.bin": (4, False, 4936),
    }
    for name, (version, is_extended, size) in versions.items():
        quote = parse_quote((folder / name).read_bytes())
        assert quote.version == version, name
        assert (quote.report.mrservicetd is not None) == is_extended, name
        assert len(quote.encoded) == size, name


def test_genuine_registers_are_the_known_ones(shared_dir: Path) -> None:
    quote = parse_quote(genuine(shared_dir, "v4")[0].quote)
    assert quote.report.mrtd.hex().startswith("91eb2b44d141d4ec")
    assert quote.report.report_data.hex().startswith("9a9d48e7f6799642")
    later = parse_quote(genuine(shared_dir, "v5")[0].quote)
    assert later.report.mrtd.hex().startswith("7348651a34b2d2d3")


def test_an_sgx_quote_is_refused(shared_dir: Path) -> None:
    quote = genuine(shared_dir, "sgx")[0].quote
    assert _code(quote) is RefusalCode.UNSUPPORTED_VERSION
    as_version_4 = flipped(quote, layout.OFFSET_VERSION, 7)
    assert _code(as_version_4) is RefusalCode.UNSUPPORTED_PRODUCT


def test_text_behind_a_genuine_quote_is_refused(shared_dir: Path) -> None:
    quote = genuine(shared_dir, "no level")[0].quote
    assert b"extra bytes" in quote
    assert _code(quote) is RefusalCode.MALFORMED
