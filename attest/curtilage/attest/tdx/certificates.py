"""X.509 as Intel's provisioning service uses it: read once, then plain values.

Every value is read eagerly here, so that no library error can come out of a
later step. Keys are P-256 and signatures ECDSA with SHA-256 throughout (Intel,
"SGX PCK Certificate and Certificate Revocation List Profile Specification").
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_CERTIFICATE_BYTES
from curtilage.attest.x509.values import (
    LIBRARY_ERRORS,
    common_name,
    find_extension,
    unrecognised_extensions,
    verify_ecdsa,
)

# Intel's own extension of a PCK certificate.
SGX_EXTENSION: Final = "1.2.840.113741.1.13.1"
NUMBER_BYTES: Final = 32
ECDSA_SHA256: Final = SignatureAlgorithmOID.ECDSA_WITH_SHA256
# A critical extension changes what a certificate means (RFC 5280, section 4.2),
# so one that is not looked at here refuses it.
_UNDERSTOOD: Final = (x509.BasicConstraints, x509.KeyUsage)
_PEM: Final = re.compile(
    rb"\s*-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\r\n]*)-----END CERTIFICATE-----\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelCertificate:
    """A certificate's values; unverified.

    Attributes:
        subject: the subject's DER.
        issuer: the issuer's DER.
        common_name: the subject's common name.
        serial: the serial number.
        not_before: start of validity.
        not_after: end of validity.
        key: the P-256 key it endorses, or None if it is another kind of key.
        key_info: that key's SubjectPublicKeyInfo.
        ecdsa_sha256: whether it says it is signed with ECDSA and SHA-256.
        is_ca: basicConstraints says CA.
        path_length: how many authorities may stand below; None is no limit.
        signs_certificates: keyUsage says keyCertSign.
        signs_lists: keyUsage says cRLSign.
        sgx: Intel's own extension, DER, or empty.
        signed_part: the bytes that the signature covers.
        signature: the issuer's signature, DER.
        encoded: the whole certificate, DER.
    """

    subject: bytes
    issuer: bytes
    common_name: str
    serial: int
    not_before: datetime
    not_after: datetime
    key: ec.EllipticCurvePublicKey | None
    key_info: bytes = field(repr=False)
    ecdsa_sha256: bool
    is_ca: bool
    path_length: int | None
    signs_certificates: bool
    signs_lists: bool
    sgx: bytes = field(repr=False)
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    encoded: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, lower-case hex."""
        return hashlib.sha256(self.encoded).hexdigest()


def parse_pem_chain(
    text: bytes,
    name: str,
    *,
    count: int,
    known: dict[bytes, IntelCertificate],
) -> tuple[IntelCertificate, ...]:
    """Read exactly ``count`` PEM certificates, leaf first, nothing between them.

    Args:
        text: unverified; only white space may stand around each certificate.
        name: which chain, in a refusal.
        count: how many there must be.
        known: certificates that have been read, by their DER; those of this
            chain are added, for the same ones stand in several chains.

    Raises:
        RefusedError: ``chain_invalid``.
    """
    ders: list[bytes] = []
    position = 0
    while position < len(text) and len(ders) <= count:
        found = _PEM.match(text, position)
        if found is None:
            raise _chain_invalid(f"{name}: not PEM certificates")
        ders.append(_decode(found.group(1), name))
        position = found.end()
    if len(ders) != count:
        raise _chain_invalid(f"{name}: not {count} certificates")
    for der in ders:
        if der not in known:
            known[der] = parse_certificate(der, name)
    return tuple(known[der] for der in ders)


def parse_certificate(der: bytes, name: str) -> IntelCertificate:
    """Read a DER certificate; ``name`` says which one in a refusal.

    Raises:
        RefusedError: ``chain_invalid``.
    """
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise _chain_invalid(f"{name}: a certificate of {len(der)} bytes")
    try:
        return _read_certificate(x509.load_der_x509_certificate(der))
    except LIBRARY_ERRORS:
        raise _chain_invalid(f"{name}: not a certificate") from None


def verify_ecdsa_p256(
    key: ec.EllipticCurvePublicKey | None, signed_part: bytes, signature: bytes
) -> bool:
    """Check a DER signature; False if it does not hold."""
    return key is not None and verify_ecdsa(
        key, hashes.SHA256(), signed_part, signature
    )


def verify_raw_p256(
    key: ec.EllipticCurvePublicKey | None, signed_part: bytes, signature: bytes
) -> bool:
    """Check a signature of r and s, 32 bytes each; False if it does not hold."""
    r = int.from_bytes(signature[:NUMBER_BYTES], "big")
    s = int.from_bytes(signature[NUMBER_BYTES:], "big")
    return verify_ecdsa_p256(key, signed_part, encode_dss_signature(r, s))


def public_key(point: bytes) -> ec.EllipticCurvePublicKey | None:
    """Return the key with the coordinates x and y, 32 bytes each.

    None means that no point of the curve has them.
    """
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(
            ec.SECP256R1(), b"\x04" + point
        )
    except ValueError:
        return None


def _decode(text: bytes, name: str) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _chain_invalid(f"{name}: not PEM certificates") from None


def _chain_invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.CHAIN_INVALID, detail)


def _read_certificate(parsed: x509.Certificate) -> IntelCertificate:
    _refuse_unknown_critical(parsed)
    if parsed.serial_number <= 0:
        raise ValueError("the serial number is not positive")
    usage = find_extension(parsed, x509.KeyUsage)
    constraints = find_extension(parsed, x509.BasicConstraints)
    key = parsed.public_key()
    p256 = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(
        key.curve, ec.SECP256R1
    )
    return IntelCertificate(
        subject=parsed.subject.public_bytes(),
        issuer=parsed.issuer.public_bytes(),
        common_name=common_name(parsed),
        serial=parsed.serial_number,
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        key=key if p256 and isinstance(key, ec.EllipticCurvePublicKey) else None,
        key_info=key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        ecdsa_sha256=parsed.signature_algorithm_oid == ECDSA_SHA256,
        is_ca=constraints is not None and constraints.ca,
        path_length=None if constraints is None else constraints.path_length,
        signs_certificates=usage is not None and usage.key_cert_sign,
        signs_lists=usage is not None and usage.crl_sign,
        sgx=unrecognised_extensions(parsed).get(SGX_EXTENSION, b""),
        signed_part=parsed.tbs_certificate_bytes,
        signature=parsed.signature,
        encoded=parsed.public_bytes(Encoding.DER),
    )


def _refuse_unknown_critical(parsed: x509.Certificate) -> None:
    for extension in parsed.extensions:
        if extension.critical and not isinstance(extension.value, _UNDERSTOOD):
            raise ValueError("a critical extension that is not understood")
