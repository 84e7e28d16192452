"""Intel's rules for X.509, and the platform data in a PCK certificate.

Intel, "SGX PCK Certificate and Certificate Revocation List Profile Specification":
P-256 keys and ECDSA with SHA-256 throughout; section 1.3.5 has the extension.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.encoding import der
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
# Anchored at both ends by the caller's loop: text between two certificates would be
# evidence that is not checked.
_PEM: Final = re.compile(
    rb"\s*-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\r\n]*)-----END CERTIFICATE-----\s*"
)
# The extension is a SEQUENCE of pairs of an object identifier and its value; this is
# the identifiers' arc, 1.2.840.113741.1.13.1, as DER. What follows it names a field.
_ARC: Final = bytes.fromhex("2a864886f84d010d01")
_PPID: Final = b"\x01"
_TCB: Final = b"\x02"
_PCE_ID: Final = b"\x03"
_FMSPC: Final = b"\x04"
_PCESVN: Final = b"\x02\x11"
COMPONENTS: Final = 16

PPID_BYTES: Final = 16
PCE_ID_BYTES: Final = 2
FMSPC_BYTES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PckPlatform:
    """The platform that a PCK certificate was issued to; unverified.

    Attributes:
        ppid: the platform's provisioning id, 16 bytes.
        fmspc: family, model, stepping, platform and custom SKU, 6 bytes.
        pce_id: which provisioning enclave, 2 bytes.
        svns: the 16 security versions that the key was made for.
        pcesvn: the provisioning enclave's security version.
    """

    ppid: bytes
    fmspc: bytes
    pce_id: bytes
    svns: tuple[int, ...]
    pcesvn: int


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
    # One certificate after the other, without gaps. A reader that searches for BEGIN
    # would skip anything in between.
    ders: list[bytes] = []
    position = 0
    while position < len(text) and len(ders) <= count:
        found = _PEM.match(text, position)
        if found is None:
            raise _chain_invalid(f"{name}: not PEM certificates")
        try:
            decoded = base64.b64decode(b"".join(found[1].split()), validate=True)
        except (binascii.Error, ValueError):
            raise _chain_invalid(f"{name}: not PEM certificates") from None
        ders.append(decoded)
        position = found.end()
    # A fourth certificate would not be checked, or would make the path longer than the
    # rules are written for.
    if len(ders) != count:
        raise _chain_invalid(f"{name}: not {count} certificates")
    # The same root is in four chains, so it is read once.
    for encoded in ders:
        if encoded not in known:
            known[encoded] = parse_certificate(encoded, name)
    return tuple(known[encoded] for encoded in ders)


def parse_certificate(encoded: bytes, name: str) -> Certificate:
    """Read a DER certificate; ``name`` says which one in a refusal.

    Raises:
        RefusedError: ``chain_invalid``: not a certificate, too long, with a critical
            extension that is not understood, or with a serial number below 1.
    """
    if len(encoded) > MAX_CERTIFICATE_BYTES:
        raise _chain_invalid(f"{name}: a certificate of {len(encoded)} bytes")
    try:
        certificate = read_certificate(encoded)
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


def parse_platform(extension: bytes) -> PckPlatform:
    """Read Intel's extension; fields that are not needed are skipped.

    Args:
        extension: its DER; empty where the certificate has none.

    Raises:
        RefusedError: ``chain_invalid``: not a PCK certificate's extension.
    """
    try:
        # Parsed as DER, not searched for the identifiers' bytes: a search would also
        # find them inside another value, where the certificate's requester may have
        # put them.
        fields = _pairs(der.only_element(extension))
        tcb = _pairs(fields[_TCB])
        return PckPlatform(
            ppid=_octets(fields[_PPID], PPID_BYTES),
            fmspc=_octets(fields[_FMSPC], FMSPC_BYTES),
            pce_id=_octets(fields[_PCE_ID], PCE_ID_BYTES),
            svns=tuple(
                _integer(tcb[_TCB + bytes([number])], maximum=0xFF)
                for number in range(1, COMPONENTS + 1)
            ),
            pcesvn=_integer(tcb[_PCESVN], maximum=0xFFFF),
        )
    except (KeyError, ValueError):
        raise _chain_invalid("PCK: Intel's extension cannot be read") from None


def _pairs(element: der.Element) -> dict[bytes, der.Element]:
    """Read pairs of an identifier under Intel's arc and its value."""
    fields: dict[bytes, der.Element] = {}
    for pair in der.elements(der.content_of(element, der.SEQUENCE)):
        parts = list(der.elements(der.content_of(pair, der.SEQUENCE)))
        if len(parts) != 2:  # noqa: PLR2004 - an identifier and its value
            raise ValueError("not a pair")
        identifier = der.content_of(parts[0], der.OBJECT_IDENTIFIER)
        # Only Intel's own fields: one of somebody else's under a shortened name would
        # be taken for the PPID.
        if not identifier.startswith(_ARC):
            raise ValueError("not under Intel's arc")
        name = identifier.removeprefix(_ARC)
        # The first or the last? Two readers would answer differently.
        if name in fields:
            raise ValueError("named twice")
        fields[name] = parts[1]
    return fields


def _octets(element: der.Element, count: int) -> bytes:
    content = der.content_of(element, der.OCTET_STRING)
    if len(content) != count:
        raise ValueError("an octet string of another length")
    return content


def _integer(element: der.Element, *, maximum: int) -> int:
    # Signed, as DER has it: 0xFF is -1 and no security version of 255.
    content = der.content_of(element, der.INTEGER)
    number = int.from_bytes(content, "big", signed=True)
    if not content or not 0 <= number <= maximum:
        raise ValueError("a number that is not used here")
    return number


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


def _chain_invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.CHAIN_INVALID, detail)
