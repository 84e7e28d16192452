"""How certificates are read, above all those whose serial number is 0."""

import contextlib
import datetime as dt
import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.sev_snp.certificates import (
    parse_certificate,
    verify_rsa_pss,
)
from curtilage.attest.x509.certificates import Certificate, parse_revocation_list
from curtilage_dev.emulated.snp_pki import EmulatedPlatform

SERIAL_AT = 15


@pytest.fixture
def strict_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library as it has announced itself: serial number 0 is an error."""
    load = x509.load_der_x509_certificate

    def refuse(data: bytes) -> x509.Certificate:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return load(data)
            except Warning:
                raise ValueError("serial number is not positive") from None

    monkeypatch.setattr(x509, "load_der_x509_certificate", refuse)


def _library_refuses(der: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            x509.load_der_x509_certificate(der)
        except (Warning, ValueError):
            return True
    return False


def test_canary_the_library_minds_serial_number_0(platform: EmulatedPlatform) -> None:
    """If this fails, the library reads such certificates: drop our own reader."""
    assert _library_refuses(platform.vek)
    assert not _library_refuses(platform.ask)


@pytest.mark.usefixtures("strict_library")
def test_serial_number_0_is_read_when_the_library_refuses(
    platform: EmulatedPlatform,
) -> None:
    vek = parse_certificate(platform.vek, "VEK")
    ask = parse_certificate(platform.ask, "ASK")
    assert (vek.serial, vek.common_name) == (0, "SEV-VCEK")
    assert verify_rsa_pss(ask.public_key, vek.signed_part, vek.signature)


def test_reading_changes_nothing_but_the_serial_number(
    platform: EmulatedPlatform,
) -> None:
    zero = parse_certificate(platform.vek, "VEK")
    one_der = bytearray(platform.vek)
    one_der[SERIAL_AT] = 1
    one = parse_certificate(bytes(one_der), "VEK")
    assert (zero.serial, one.serial) == (0, 1)
    assert zero.signed_part != one.signed_part
    assert zero.signed_part in platform.vek
    assert _but(zero) == _but(one)


def _but(certificate: Certificate) -> tuple[object, ...]:
    return (
        certificate.subject,
        certificate.issuer,
        certificate.common_name,
        certificate.not_before,
        certificate.not_after,
        certificate.public_key,
        certificate.unrecognised,
        certificate.signature,
    )


@pytest.mark.parametrize("serial", [1, 127, 128, 2**159 - 1])
def test_positive_serial_numbers_are_read(serial: int) -> None:
    der = _made(serial)
    assert parse_certificate(der, "VEK").serial == serial


def _made(serial: int) -> bytes:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x" * 40)])
    moment = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(moment)
        .not_valid_after(moment)
        .sign(key, hashes.SHA384())
    )
    return signed.public_bytes(Encoding.DER)


def test_negative_serial_number_is_refused(platform: EmulatedPlatform) -> None:
    """No VCEK has one; the library's own check applies."""
    der = bytearray(platform.vek)
    der[SERIAL_AT] = 0xFF
    with pytest.raises(RefusedError):
        parse_certificate(bytes(der), "VEK")


@pytest.mark.parametrize("which", ["vek", "ask"])
def test_outer_algorithm_must_be_the_signed_one(
    platform: EmulatedPlatform, which: str
) -> None:
    """Nothing signs the outer copy, so any other would be a second spelling."""
    der: bytes = getattr(platform, which)
    signed = parse_certificate(der, "").signed_part
    start = der.index(signed) + len(signed)
    for place in range(start, len(der) - 517):
        changed = bytearray(der)
        changed[place] ^= 1
        with pytest.raises(RefusedError):
            parse_certificate(bytes(changed), "")


@settings(max_examples=300)
@given(data=st.data())
def test_any_change_is_read_or_refused(
    platform: EmulatedPlatform, data: st.DataObject
) -> None:
    der = bytearray(data.draw(st.sampled_from([platform.vek, platform.ask])))
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RefusedError):
        parse_certificate(bytes(der), "VEK")


@settings(max_examples=300)
@given(data=st.data())
def test_any_changed_list_is_read_or_refused(
    platform: EmulatedPlatform, now: dt.datetime, data: st.DataObject
) -> None:
    der = bytearray(_list(platform, now))
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RefusedError):
        parse_revocation_list(bytes(der), "CRL")


def _list(platform: EmulatedPlatform, now: dt.datetime) -> bytes:
    if not _LISTS:
        _LISTS.append(platform.crl(now=now, revoked=range(1, 9)))
    return _LISTS[0]


_LISTS: list[bytes] = []


def test_list_names_what_it_revokes(
    platform: EmulatedPlatform, now: dt.datetime
) -> None:
    crl = parse_revocation_list(_list(platform, now), "CRL")
    assert crl.revoked == frozenset(range(1, 9))


@pytest.mark.parametrize("data", [b"", b"\x30", b"x" * 100])
def test_bytes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_certificate(data, "VEK")
    assert caught.value.code is RefusalCode.CHAIN_INVALID
    with pytest.raises(RefusedError) as caught:
        parse_revocation_list(data, "CRL")
    assert caught.value.code is RefusalCode.CRL_INVALID
