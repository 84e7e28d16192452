import contextlib
import warnings
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.tdx.certificates import (
    ECDSA_SHA256,
    PckPlatform,
    parse_certificate,
    parse_pem_chain,
    parse_platform,
    platform_extension,
    public_key,
    verify_raw_p256,
)
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.x509.certificates import (
    Certificate,
    on_curve,
    parse_revocation_list,
    verify_p256,
)
from curtilage_dev.emulated.dcap import (
    ListFields,
    default_platform,
    distinguished_name,
    make_list,
    sgx_extension,
    sign_raw,
)
from support.tdx_evidence import NOW, genuine, platform

MADE = platform().provisioning


def _chain(text: bytes, count: int) -> tuple[Certificate, ...]:
    return parse_pem_chain(text, "chain", count=count, known={})


def _chain_code(text: bytes, count: int = 3) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _chain(text, count)
    return caught.value.code


def test_a_chain_is_read_leaf_first() -> None:
    pck, authority, root = _chain(MADE.pck_chain(), 3)
    assert pck.common_name == "Intel SGX PCK Certificate"
    assert not pck.is_ca
    assert platform_extension(pck) == sgx_extension(default_platform())
    assert authority.is_ca
    assert authority.path_length == 0
    assert root.subject == root.issuer == authority.issuer
    assert root.encoded == MADE.root
    assert root.fingerprint == platform().anchor().fingerprint


def test_known_certificates_are_not_read_again() -> None:
    known: dict[bytes, Certificate] = {}
    first = parse_pem_chain(MADE.pck_chain(), "chain", count=3, known=known)
    second = parse_pem_chain(MADE.pck_chain(), "chain", count=3, known=known)
    assert len(known) == 3
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_line_ends_of_either_kind_are_read() -> None:
    assert _chain(MADE.pck_chain().replace(b"\n", b"\r\n"), 3)
    assert _chain(MADE.pck_chain().rstrip(), 3)
    assert _chain(b"\n" + MADE.pck_chain().replace(b"-\n-", b"-\n \n-"), 3)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        MADE.pck_chain()[:-20],
        b"words" + MADE.pck_chain(),
        MADE.pck_chain() + b"words",
        MADE.pck_chain() + b"\0\0",
        MADE.pck_chain().replace(b"BEGIN CERTIFICATE", b"BEGIN X509 CRL"),
        MADE.pck_chain() + MADE.pck_chain(),
        b"-----BEGIN CERTIFICATE-----\nAA=A\n-----END CERTIFICATE-----\n" * 3,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" * 3,
    ],
    ids=[
        "empty",
        "white space",
        "cut",
        "before",
        "behind",
        "zeros",
        "label",
        "twice",
        "base64",
        "DER",
    ],
)
def test_another_text_is_no_chain(text: bytes) -> None:
    assert _chain_code(text) is RefusalCode.CHAIN_INVALID


def test_another_number_of_certificates_is_refused() -> None:
    assert _chain_code(MADE.pck_chain(), 2) is RefusalCode.CHAIN_INVALID
    assert _chain_code(MADE.pck_chain(), 4) is RefusalCode.CHAIN_INVALID


def _der(change: str) -> bytes:
    """Make a certificate that cryptography reads, but that is not Intel's kind."""
    key = ec.generate_private_key(
        ec.SECP384R1() if change == "P-384" else ec.SECP256R1()
    )
    name = distinguished_name("Intel SGX Root CA")
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
    )
    if change in {"critical", "huge"}:
        oid = x509.ObjectIdentifier("1.2.3.4")
        value = x509.UnrecognizedExtension(oid, bytes(4096 if change == "huge" else 2))
        builder = builder.add_extension(value, change == "critical")
    algorithm = hashes.SHA384() if change == "SHA-384" else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(Encoding.DER)


def test_a_bare_certificate_is_no_authority() -> None:
    bare = parse_certificate(_der("none"), "bare")
    assert (bare.is_ca, bare.path_length) == (False, None)
    assert not bare.signs_certificates
    assert not bare.signs_lists
    assert platform_extension(bare) == b""


def test_other_keys_and_algorithms_are_seen() -> None:
    other = parse_certificate(_der("P-384"), "other")
    assert on_curve(other.public_key, ec.SECP256R1) is None
    assert parse_certificate(_der("SHA-384"), "other").algorithm != ECDSA_SHA256


def test_a_critical_extension_refuses_a_certificate() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_certificate(_der("critical"), "other")
    assert caught.value.code is RefusalCode.CHAIN_INVALID


@pytest.mark.parametrize("sort", ["ignore", "error"])
@pytest.mark.parametrize("serial", ["00", "80"])
def test_a_serial_number_is_positive(
    sort: Literal["ignore", "error"], serial: str
) -> None:
    """The library warns of such a number; what a process makes of that is its own."""
    one = bytes.fromhex("a003020102020101")
    made = _der("none")
    assert one in made[:64]
    der = made.replace(one, one[:-1] + bytes.fromhex(serial), 1)
    with warnings.catch_warnings():
        warnings.simplefilter(sort)
        with pytest.raises(RefusedError) as caught:
            parse_certificate(der, "other")
    assert caught.value.code is RefusalCode.CHAIN_INVALID


def test_a_huge_certificate_is_refused_unread() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_certificate(_der("huge"), "huge")
    assert caught.value.code is RefusalCode.CHAIN_INVALID


def _list(**changes: object) -> bytes:
    fields = ListFields(issuer_name="x", issued=NOW, next_update=NOW)
    return make_list(replace(fields, **changes), MADE.keys.root)  # type: ignore[arg-type] # by name


def test_a_list_is_read() -> None:
    later = NOW + timedelta(days=1)
    parsed = parse_revocation_list(_list(next_update=later, revoked=(5, 9)), "list")
    assert (parsed.issued, parsed.next_update) == (NOW, later)
    assert parsed.revoked == {5, 9}
    assert parsed.algorithm == ECDSA_SHA256


@pytest.mark.parametrize("der", [b"", b"\x30\0", MADE.root], ids=["none", "0", "other"])
def test_another_text_is_no_list(der: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_revocation_list(der, "list")
    assert caught.value.code is RefusalCode.CRL_INVALID


def test_a_critical_extension_refuses_a_list() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_revocation_list(_list(critical=True), "list")
    assert caught.value.code is RefusalCode.CRL_INVALID


def test_signatures_of_both_kinds() -> None:
    key = MADE.keys.root
    signature = key.sign(b"text", ec.ECDSA(hashes.SHA256()))
    raw = bytes.fromhex(sign_raw("text", key))
    assert verify_p256(key.public_key(), b"text", signature)
    assert verify_raw_p256(key.public_key(), b"text", raw)
    for other in (MADE.keys.pck.public_key(), None):
        assert not verify_p256(other, b"text", signature)
        assert not verify_raw_p256(other, b"text", raw)
    assert not verify_raw_p256(key.public_key(), b"another", raw)
    assert not verify_raw_p256(key.public_key(), b"text", bytes(64))
    assert not verify_raw_p256(key.public_key(), b"text", b"\xff" * 64)


def test_coordinates_off_the_curve_are_no_key() -> None:
    assert public_key(bytes(64)) is None
    assert public_key(b"\xff" * 64) is None


# --- Intel's extension --------------------------------------------------------


def test_the_platform_is_read() -> None:
    described = PckPlatform(
        ppid=b"\x01" * 16,
        fmspc=b"\x02" * 6,
        pce_id=b"\x03" * 2,
        svns=tuple(range(240, 256)),
        pcesvn=0xFFFF,
    )
    assert parse_platform(sgx_extension(described)) == described


def _extension_code(data: bytes) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        parse_platform(data)
    return caught.value.code


EXTENSION = sgx_extension(default_platform())


def _swapped(old: str, new: str) -> bytes:
    changed = EXTENSION.replace(bytes.fromhex(old), bytes.fromhex(new), 1)
    assert changed != EXTENSION
    assert len(changed) == len(EXTENSION)
    return changed


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30\0",
        EXTENSION + EXTENSION,
        EXTENSION + b"\0",
        EXTENSION[:-1],
        EXTENSION[:1],
        EXTENSION[:2],
        b"\x31" + EXTENSION[1:],
        b"\x30\x80" + EXTENSION[4:],
        b"\x30\x83\0" + EXTENSION[2:],
        b"\x30\x83" + EXTENSION[2:],
        b"\x30\x81\x04\x30\x02\x05\0",
        b"\x30\x82\0\x84" + bytes(0x84),
        b"\x30\x04\x30\x02\x05\0",
        # The PPID's pair as another kind, under another name, under no name of
        # Intel's, and twice.
        _swapped("060a2a864886f84d010d0101", "050a2a864886f84d010d0101"),
        _swapped("060a2a864886f84d010d0101", "060a2a864886f84d010d0102"),
        _swapped("060a2a864886f84d010d0101", "060a2a864886f84d010e0101"),
        # An FMSPC that is no octet string, a PCESVN that is no number, one that
        # is negative, and a component above 255.
        _swapped("0406" + "90c06f000000", "0206" + "90c06f000000"),
        _swapped("02010d", "04010d"),
        _swapped("02010d", "0201ff"),
    ],
)
def test_another_extension_is_refused(data: bytes) -> None:
    assert _extension_code(data) is RefusalCode.CHAIN_INVALID


def _sequence(content: bytes) -> bytes:
    return b"\x30\x82" + len(content).to_bytes(2, "big") + content


CONTENT = EXTENSION[4:]
# The PPID's pair comes first, and has 30 bytes behind its two of header.
PPID_PAIR = CONTENT[:32]


def test_a_field_that_is_not_known_is_passed_over() -> None:
    unknown = bytes.fromhex("300f060a2a864886f84d010d017f0401ff")
    assert parse_platform(_sequence(CONTENT + unknown)) == default_platform()


@pytest.mark.parametrize(
    "content",
    [
        CONTENT + PPID_PAIR,
        CONTENT + bytes.fromhex("300606022a030500"),
        b"\x30\x81\x1e" + PPID_PAIR[2:] + CONTENT[32:],
        b"\x30\x82\0\x1e" + PPID_PAIR[2:] + CONTENT[32:],
        b"\x30\x80" + PPID_PAIR[2:] + CONTENT[32:],
    ],
    ids=["twice", "another arc", "long form", "longer form", "open form"],
)
def test_der_of_another_form_is_refused(content: bytes) -> None:
    assert parse_platform(_sequence(CONTENT)) == default_platform()
    assert _extension_code(_sequence(content)) is RefusalCode.CHAIN_INVALID


def test_values_of_other_sizes_are_refused() -> None:
    described = default_platform()
    for wrong in (
        replace(described, ppid=bytes(15)),
        replace(described, fmspc=bytes(7)),
        replace(described, pce_id=bytes(1)),
        replace(described, pcesvn=0x10000),
    ):
        assert _extension_code(sgx_extension(wrong)) is RefusalCode.CHAIN_INVALID


@given(st.integers(0, len(EXTENSION) - 1), st.integers(0, 255))
def test_any_change_gives_a_platform_or_a_refusal(where: int, octet: int) -> None:
    data = EXTENSION[:where] + bytes([octet]) + EXTENSION[where + 1 :]
    with contextlib.suppress(RefusedError):
        assert len(parse_platform(data).svns) == 16


@given(st.binary(max_size=200))
def test_any_bytes_give_a_platform_or_a_refusal(data: bytes) -> None:
    assert _extension_code(data) is RefusalCode.CHAIN_INVALID


def test_genuine_chains_lead_to_intels_root(shared_dir: Path) -> None:
    root = (shared_dir / "evidence/tdx/roots/intel_sgx_root_ca.der").read_bytes()
    for name in ("v4", "v5", "v5 too low", "debug"):
        quote = parse_quote(genuine(shared_dir, name)[0].quote)
        chain = _chain(quote.pck_chain.removesuffix(b"\0"), 3)
        assert chain[2].encoded == root
        for child, issuer in zip(chain, (*chain[1:], chain[2]), strict=True):
            assert verify_p256(issuer.public_key, child.signed_part, child.signature)
        assert isinstance(chain[0].not_after, datetime)
        assert parse_platform(platform_extension(chain[0])).fmspc[-3:] == bytes(3)
