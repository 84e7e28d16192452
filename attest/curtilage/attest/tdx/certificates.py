"""Intel's rules for X.509: P-256 keys and ECDSA with SHA-256 throughout.

Intel, "SGX PCK Certificate and Certificate Revocation List Profile Specification".
"""

import base64
import binascii
import re
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_CERTIFICATE_BYTES
from curtilage.attest.x509.certificates import (
    Certificate,
    read_certificate,
    verify_p256,
)

# Intel's own extension of a PCK certificate.
SGX_EXTENSION: Final = "1.2.840.113741.1.13.1"
NUMBER_BYTES: Final = 32
ECDSA_SHA256: Final = SignatureAlgorithmOID.ECDSA_WITH_SHA256
# Anchored at both ends by the caller's loop: words between two certificates would be
# bytes of the evidence that nobody looked at.
_PEM: Final = re.compile(
    rb"\s*-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\r\n]*)-----END CERTIFICATE-----\s*"
)


def parse_pem_chain(
    text: bytes,
    name: str,
    *,
    count: int,
    known: dict[bytes, Certificate],
) -> tuple[Certificate, ...]:
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
    # One certificate after the other and nothing skipped. A reader that searches for
    # BEGIN would step over whatever stands between.
    ders: list[bytes] = []
    position = 0
    while position < len(text) and len(ders) <= count:
        found = _PEM.match(text, position)
        if found is None:
            raise _chain_invalid(f"{name}: not PEM certificates")
        ders.append(_decode(found.group(1), name))
        position = found.end()
    # A fourth certificate would be one that nobody looks at, or a longer path than the
    # rules are written for.
    if len(ders) != count:
        raise _chain_invalid(f"{name}: not {count} certificates")
    # The same root stands in four chains, so it is read once.
    for der in ders:
        if der not in known:
            known[der] = parse_certificate(der, name)
    return tuple(known[der] for der in ders)


def parse_certificate(der: bytes, name: str) -> Certificate:
    """Read a DER certificate; ``name`` says which one in a refusal.

    Raises:
        RefusedError: ``chain_invalid``: not a certificate, too long, with a critical
            extension that is not understood, or with a serial number below 1.
    """
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise _chain_invalid(f"{name}: a certificate of {len(der)} bytes")
    try:
        certificate = read_certificate(der)
    except ValueError:
        raise _chain_invalid(f"{name}: not a certificate") from None
    # A revocation list names serial numbers; 0 and below are none (RFC 5280, section
    # 4.1.2.2), so such a certificate could not be revoked.
    if certificate.unknown_critical or certificate.serial <= 0:
        raise _chain_invalid(f"{name}: not a certificate")
    return certificate


def platform_extension(certificate: Certificate) -> bytes:
    """Return Intel's own extension, DER, or empty where there is none."""
    return certificate.unrecognised.get(SGX_EXTENSION, b"")


def verify_raw_p256(
    key: CertificatePublicKeyTypes | None, signed_part: bytes, signature: bytes
) -> bool:
    """Check a signature of r and s, 32 bytes each; False if it does not hold."""
    # Bare r and s, big-endian, as the quote's format has them. For (r, s) also (r, n -
    # s) holds, so a signature is never an identity.
    r = int.from_bytes(signature[:NUMBER_BYTES], "big")
    s = int.from_bytes(signature[NUMBER_BYTES:], "big")
    return verify_p256(key, signed_part, encode_dss_signature(r, s))


def public_key(point: bytes) -> ec.EllipticCurvePublicKey | None:
    """Return the key with the coordinates x and y, 32 bytes each.

    None means that no point of the curve has them.
    """
    try:
        # The library refuses what is not on the curve: arithmetic with such points
        # means nothing, and so would a signature that held under them.
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
