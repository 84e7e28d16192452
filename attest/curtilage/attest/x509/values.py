"""What every chain of X.509 certificates here is read with.

Vendors differ in keys, names and extensions of their own, which their own modules
know. Common to all: values are read eagerly, so that no library error can come out
of a later step, and one signature is a plain yes or no.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from curtilage.attest.errors import RefusalCode, RefusedError

# What cryptography raises for bytes it cannot make sense of. TypeError comes
# from values of unexpected kinds inside well-formed DER, a warning where the
# process has made errors of warnings: of a serial number below 1, for example.
LIBRARY_ERRORS: Final = (
    Warning,
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)

_ExtensionT = TypeVar("_ExtensionT", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationList:
    """A revocation list's values; unverified.

    Attributes:
        issuer: the issuer's DER.
        issued: when it was issued.
        next_update: until when it is current, or None if it does not say.
        revoked: the serial numbers it revokes.
        algorithm: how it says it is signed.
        signed_part: the bytes that the signature covers.
        signature: the issuer's signature.
    """

    issuer: bytes
    issued: datetime
    next_update: datetime | None
    revoked: frozenset[int] = field(repr=False)
    algorithm: x509.ObjectIdentifier
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def parse_revocation_list(der: bytes, name: str) -> RevocationList:
    """Read a DER revocation list; ``name`` says which one in a refusal.

    Raises:
        RefusedError: ``crl_invalid``.
    """
    try:
        parsed = x509.load_der_x509_crl(der)
        # A critical extension changes what the list means (a delta, or only
        # some certificates), so one that is not understood refuses it.
        critical = any(extension.critical for extension in parsed.extensions)
        values = RevocationList(
            issuer=parsed.issuer.public_bytes(),
            issued=parsed.last_update_utc,
            next_update=parsed.next_update_utc,
            revoked=frozenset(entry.serial_number for entry in parsed),
            algorithm=parsed.signature_algorithm_oid,
            signed_part=parsed.tbs_certlist_bytes,
            signature=parsed.signature,
        )
    except LIBRARY_ERRORS:
        raise RefusedError(
            RefusalCode.CRL_INVALID, f"{name}: not a revocation list"
        ) from None
    if critical:
        raise RefusedError(RefusalCode.CRL_INVALID, f"{name}: critical extension")
    return values


def common_name(parsed: x509.Certificate) -> str:
    """Return the subject's common name, or "" where it has not exactly one."""
    names = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def find_extension(
    parsed: x509.Certificate, kind: type[_ExtensionT]
) -> _ExtensionT | None:
    """Return an extension that the library knows, or None without it."""
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def unrecognised_extensions(parsed: x509.Certificate) -> dict[str, bytes]:
    """Return the extensions that the library does not know, raw, by OID."""
    return {
        extension.oid.dotted_string: extension.value.value
        for extension in parsed.extensions
        if isinstance(extension.value, x509.UnrecognizedExtension)
    }


def verify_ecdsa(
    key: ec.EllipticCurvePublicKey,
    algorithm: hashes.HashAlgorithm,
    signed_part: bytes,
    signature: bytes,
) -> bool:
    """Check a DER signature; False if it does not hold."""
    try:
        key.verify(signature, signed_part, ec.ECDSA(algorithm))
    except InvalidSignature:
        return False
    return True
