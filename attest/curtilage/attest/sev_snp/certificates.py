"""AMD's rules for X.509: serial numbers of 0, and RSASSA-PSS above ECDSA.

Signatures are RSASSA-PSS with SHA-384, MGF1 and a salt of 48 bytes, under RSA-4096
keys; only the leaf's own key is ECDSA P-384 (AMD, "Versioned Chip Endorsement Key
(VCEK) Certificate and KDS Interface Specification", publication 57230).
"""

from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.x509.certificates import Certificate, read_certificate

RSA_BITS: Final = 4096
# Any other exponent is no key of AMD's; a huge one would cost seconds.
RSA_EXPONENT: Final = 65537
SALT_BYTES: Final = 48
# AMD's own extensions stand below this.
AMD_ARC: Final = "1.3.6.1.4.1.3704.1."

# The start of a certificate whose serial number is 0: two SEQUENCE headers with
# two length bytes each, version 3, then INTEGER 0. Only the zero is changed.
_ZERO_SERIAL_AT: Final = 15
_VERSION_AND_ZERO_SERIAL: Final = bytes.fromhex("a003020102020100")
_HEADERS_END: Final = 8
_TBS_AT: Final = 4


def parse_certificate(der: bytes, name: str) -> Certificate:
    """Read a DER certificate; ``name`` says which one in a refusal.

    Every VCEK and VLEK has the serial number 0 by AMD's design. RFC 5280, section
    4.1.2.2, forbids that, so cryptography warns and has announced that it will
    refuse. For reading alone the one byte is set to 1.

    Raises:
        RefusedError: ``chain_invalid``.
    """
    zero = der[_HEADERS_END : _ZERO_SERIAL_AT + 1] == _VERSION_AND_ZERO_SERIAL
    readable = der
    if zero:
        readable = der[:_ZERO_SERIAL_AT] + b"\x01" + der[_ZERO_SERIAL_AT + 1 :]
    try:
        certificate = read_certificate(readable)
    except ValueError:
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, f"{name}: not a certificate"
        ) from None
    if not zero:
        return certificate
    # Back to the bytes as they came: those are what AMD signed, and what a
    # fingerprint is of.
    end = _TBS_AT + len(certificate.signed_part)
    return replace(certificate, serial=0, signed_part=der[_TBS_AT:end], encoded=der)


def verify_rsa_pss(
    issuer: CertificatePublicKeyTypes, signed_part: bytes, signature: bytes
) -> bool:
    """Check one signature of the chain; False if it does not hold."""
    # The size too: a chain is as strong as its weakest key, and the certificate
    # that names the key is supplied by the party to be verified.
    if not isinstance(issuer, rsa.RSAPublicKey) or issuer.key_size != RSA_BITS:
        return False
    if issuer.public_numbers().e != RSA_EXPONENT:
        return False
    # Hash, mask and salt are ours, never the certificate's parameters.
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)
    try:
        issuer.verify(signature, signed_part, scheme, hashes.SHA384())
    except InvalidSignature:
        return False
    return True
