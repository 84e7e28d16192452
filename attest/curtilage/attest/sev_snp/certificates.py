"""X.509 as AMD's endorsement chain uses it: read once, then plain values.

Every value is read eagerly here, so that no library error can come out of a
later step. Signatures are RSASSA-PSS with SHA-384, MGF1 and a salt of 48 bytes,
under RSA-4096 keys; only the leaf's own key is ECDSA P-384.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificatePublicKeyTypes,
)
from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.x509.values import (
    LIBRARY_ERRORS,
    common_name,
    find_extension,
    unrecognised_extensions,
    verify_ecdsa,
)

RSA_BITS: Final = 4096
# Any other exponent is no key of AMD's; a huge one would cost seconds.
RSA_EXPONENT: Final = 65537
SALT_BYTES: Final = 48
AMD_ARC: Final = "1.3.6.1.4.1.3704.1."

# The start of a certificate whose serial number is 0: two SEQUENCE headers with
# two length bytes each, version 3, then INTEGER 0. Only the zero is changed.
_ZERO_SERIAL_AT: Final = 15
_VERSION_AND_ZERO_SERIAL: Final = bytes.fromhex("a003020102020100")
_HEADERS_END: Final = 8
_TBS_AT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate's values; unverified.

    Attributes:
        subject: the subject's DER.
        issuer: the issuer's DER.
        common_name: the subject's common name.
        serial: the serial number.
        not_before: start of validity.
        not_after: end of validity.
        public_key: the key it endorses.
        pss: whether it says it is signed with RSASSA-PSS.
        is_ca: basicConstraints says CA.
        signs_certificates: keyUsage says keyCertSign.
        amd: AMD's own extensions, raw, by the OID's last parts.
        signed_part: the bytes that the signature covers.
        signature: the issuer's signature.
        fingerprint: SHA-256 of the whole certificate, lower-case hex.
    """

    subject: bytes
    issuer: bytes
    common_name: str
    serial: int
    not_before: datetime
    not_after: datetime
    public_key: CertificatePublicKeyTypes
    pss: bool
    is_ca: bool
    signs_certificates: bool
    amd: Mapping[str, bytes] = field(repr=False)
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    fingerprint: str


def parse_certificate(der: bytes, name: str) -> Certificate:
    """Read a DER certificate; ``name`` says which one in a refusal."""
    readable = _with_positive_serial(der)
    try:
        parsed = x509.load_der_x509_certificate(readable)
        _refuse_second_algorithm(parsed, readable)
        certificate = _read_certificate(parsed, hashlib.sha256(der).hexdigest())
    except LIBRARY_ERRORS:
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, f"{name}: not a certificate"
        ) from None
    if readable is der:
        return certificate
    return _with_zero_serial(certificate, der)


def verify_rsa_pss(
    issuer: CertificatePublicKeyTypes, signed_part: bytes, signature: bytes
) -> bool:
    """Check one signature of the chain; False if it does not hold."""
    if not isinstance(issuer, rsa.RSAPublicKey) or issuer.key_size != RSA_BITS:
        return False
    if issuer.public_numbers().e != RSA_EXPONENT:
        return False
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)
    try:
        issuer.verify(signature, signed_part, scheme, hashes.SHA384())
    except InvalidSignature:
        return False
    return True


def verify_ecdsa_p384(
    key: CertificatePublicKeyTypes, signed_part: bytes, signature: bytes
) -> bool:
    """Check a report's signature (DER); False if it does not hold."""
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    if not isinstance(key.curve, ec.SECP384R1):
        return False
    return verify_ecdsa(key, hashes.SHA384(), signed_part, signature)


def _refuse_second_algorithm(parsed: x509.Certificate, der: bytes) -> None:
    """Refuse an outer signature algorithm that is not the signed one.

    It stands twice (RFC 5280, section 4.1.1.2), and nothing signs the outer
    copy: parameters changed there would give the same certificate another
    fingerprint. The library compares less than all of it.
    """
    signed = parsed.tbs_certificate_bytes
    content = len(parsed.signature) + 1
    header = 2 + (content > 0x7F) + (content > 0xFF)  # noqa: PLR2004 - DER lengths
    start = der.index(signed) + len(signed)
    if der[start : len(der) - header - content] not in signed:
        raise ValueError("the outer signature algorithm is another one")


def _read_certificate(parsed: x509.Certificate, fingerprint: str) -> Certificate:
    usage = find_extension(parsed, x509.KeyUsage)
    constraints = find_extension(parsed, x509.BasicConstraints)
    return Certificate(
        subject=parsed.subject.public_bytes(),
        issuer=parsed.issuer.public_bytes(),
        common_name=common_name(parsed),
        serial=parsed.serial_number,
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        public_key=parsed.public_key(),
        pss=parsed.signature_algorithm_oid == SignatureAlgorithmOID.RSASSA_PSS,
        is_ca=constraints is not None and constraints.ca,
        signs_certificates=usage is not None and usage.key_cert_sign,
        amd=_amd_extensions(parsed),
        signed_part=parsed.tbs_certificate_bytes,
        signature=parsed.signature,
        fingerprint=fingerprint,
    )


def _amd_extensions(parsed: x509.Certificate) -> dict[str, bytes]:
    return {
        oid.removeprefix(AMD_ARC): value
        for oid, value in unrecognised_extensions(parsed).items()
        if oid.startswith(AMD_ARC)
    }


def _with_positive_serial(der: bytes) -> bytes:
    """Return the certificate in a form that the library agrees to read.

    Every VCEK and VLEK has the serial number 0 by AMD's design. RFC 5280
    forbids that, so cryptography warns and has announced that it will refuse.
    For reading alone the one byte is set to 1; the signature is checked over
    the bytes as they came, see ``_with_zero_serial``.
    """
    if der[_HEADERS_END : _ZERO_SERIAL_AT + 1] != _VERSION_AND_ZERO_SERIAL:
        return der
    return der[:_ZERO_SERIAL_AT] + b"\x01" + der[_ZERO_SERIAL_AT + 1 :]


def _with_zero_serial(certificate: Certificate, der: bytes) -> Certificate:
    """Put back what ``_with_positive_serial`` changed."""
    end = _TBS_AT + len(certificate.signed_part)
    return replace(certificate, serial=0, signed_part=der[_TBS_AT:end])
