"""One encoding of each certificate: BIT STRINGs that do not consist of whole bytes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from curtilage.attest.encoding import der
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.sev_snp.certificates import parse_certificate as amd_certificate
from curtilage.attest.tdx.certificates import parse_certificate as intel_certificate
from curtilage.attest.x509.certificates import (
    parse_revocation_list,
    read_certificate,
    verify_p256,
)
from curtilage.attest.x509.p384_chain import parse_chain

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a name")])


def even_key() -> ec.EllipticCurvePrivateKey:
    """Return a key whose last bit is 0, so that it may be called unused."""
    while True:
        key = ec.generate_private_key(ec.SECP256R1())
        if key.public_key().public_numbers().y % 2 == 0:
            return key


KEY = even_key()


def made() -> bytes:
    """Return a certificate whose signature ends with a bit that is 0."""
    for serial in count(1):
        builder = (
            x509.CertificateBuilder(subject_name=NAME, issuer_name=NAME)
            .public_key(KEY.public_key())
            .serial_number(serial)
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=1))
            # A BIT STRING of bits with names: here unused ones are as they should be.
            .add_extension(x509.KeyUsage(*[True] + [False] * 8), critical=True)
        )
        encoded = builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)
        if not encoded[-1] & 1:
            return encoded
    raise AssertionError


def element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    long = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = bytes([size]) if size < 0x80 else bytes([0x80 + len(long)]) + long
    return bytes([tag]) + length + content


def parts(encoded: bytes) -> list[bytes]:
    return [each.encoded for each in der.elements(der.only_element(encoded).content)]


def with_unused(bits: bytes, number: int) -> bytes:
    """Return a BIT STRING with another number of unused bits."""
    content = der.only_element(bits).content
    return element(bits[0], bytes([number]), content[1:])


def signature_changed(encoded: bytes, number: int) -> bytes:
    signed, algorithm, signature = parts(encoded)
    return element(der.SEQUENCE, signed, algorithm, with_unused(signature, number))


def signed_again(encoded: bytes, change: Callable[[list[bytes]], None]) -> bytes:
    """Change fields of the signed part, and sign it anew."""
    signed, algorithm, _ = parts(encoded)
    fields = parts(signed)
    change(fields)
    signed = element(der.SEQUENCE, *fields)
    signature = KEY.sign(signed, ec.ECDSA(hashes.SHA256()))
    return element(
        der.SEQUENCE, signed, algorithm, element(der.BIT_STRING, b"\0", signature)
    )


def key_changed(encoded: bytes, number: int) -> bytes:
    def change(fields: list[bytes]) -> None:
        algorithm, bits = parts(fields[6])
        fields[6] = element(der.SEQUENCE, algorithm, with_unused(bits, number))

    return signed_again(encoded, change)


def identified(encoded: bytes, tag: int, number: int) -> bytes:
    def change(fields: list[bytes]) -> None:
        fields.insert(7, element(tag, bytes([number]), b"\0\0"))

    return signed_again(encoded, change)


TAMPERED: dict[str, Callable[[int], bytes]] = {
    "signature": lambda number: signature_changed(made(), number),
    "key": lambda number: key_changed(made(), number),
    "issuer's identifier": lambda number: identified(made(), 0x81, number),
    "subject's identifier": lambda number: identified(made(), 0x82, number),
}


@pytest.mark.parametrize("place", TAMPERED)
def test_a_certificate_of_whole_bytes_is_read(place: str) -> None:
    """Or a refusal below would prove nothing."""
    read = read_certificate(TAMPERED[place](0))
    assert verify_p256(read.public_key, read.signed_part, read.signature)
    assert read.signs_data


def test_the_library_lets_unused_bits_pass() -> None:
    """If it ever refuses them itself, the check here has become a second one."""
    one, other = made(), signature_changed(made(), 1)
    parsed = x509.load_der_x509_certificate(other)
    parsed.verify_directly_issued_by(x509.load_der_x509_certificate(one))


@pytest.mark.parametrize("number", [1, 7, 8, 255])
@pytest.mark.parametrize("place", TAMPERED)
def test_unused_bits_are_refused(place: str, number: int) -> None:
    with pytest.raises(ValueError, match="not a certificate"):
        read_certificate(TAMPERED[place](number))


VENDORS: dict[str, Callable[[bytes], object]] = {
    "AMD": lambda encoded: amd_certificate(encoded, "a certificate"),
    "Intel": lambda encoded: intel_certificate(encoded, "a certificate"),
    "AWS, Microsoft, NVIDIA": lambda encoded: parse_chain((encoded,)),
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_unused_bits_are_refused_for_every_vendor(vendor: str) -> None:
    with pytest.raises(RefusedError) as refused:
        VENDORS[vendor](signature_changed(made(), 1))
    assert refused.value.code is RefusalCode.CHAIN_INVALID


def test_a_bit_string_without_content_is_refused() -> None:
    signed, algorithm, _ = parts(made())
    empty = element(der.SEQUENCE, signed, algorithm, element(der.BIT_STRING))
    with pytest.raises(ValueError, match="not a certificate"):
        read_certificate(empty)


def made_list() -> bytes:
    """Return a revocation list whose signature ends with a bit that is 0."""
    for number in count(1):
        moment = NOW + timedelta(seconds=number)
        builder = (
            x509.CertificateRevocationListBuilder(issuer_name=NAME)
            .last_update(moment)
            .next_update(moment + timedelta(days=1))
        )
        encoded = builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)
        if not encoded[-1] & 1:
            return encoded
    raise AssertionError


def test_unused_bits_of_a_revocation_list_are_refused() -> None:
    encoded = made_list()
    assert parse_revocation_list(encoded, "a list").signature
    with pytest.raises(RefusedError) as refused:
        parse_revocation_list(signature_changed(encoded, 1), "a list")
    assert refused.value.code is RefusalCode.CRL_INVALID
