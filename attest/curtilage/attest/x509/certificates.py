"""X.509 certificates and revocation lists: read once, then plain values.

The one reader for every vendor. It knows RFC 5280 and no vendor: which keys,
algorithms, names and extensions are accepted is defined by the rules of AMD
(``sev_snp.certificates``), of Intel (``tdx.certificates``), and of chains on P-384
(``x509.p384_chain``). Every value is read eagerly, so that no library error can come
out of a later step.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from curtilage.attest.encoding import der
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
# The certificates of a machine with eight GPUs, and of their responders.
MAX_READ: Final = 128
# What the rules look at, so what may be critical.
_UNDERSTOOD: Final = (x509.BasicConstraints, x509.KeyUsage)

# Tags of fields in the signed part.
_VERSION: Final = 0xA0
_UNIQUE_IDS: Final = frozenset({0x81, 0x82})

_ExtensionT = TypeVar("_ExtensionT", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate's values; unverified.

    Attributes:
        subject: the subject's DER.
        issuer: the issuer's DER.
        common_name: the subject's common name, or "" where it has not exactly one.
        serial: the serial number.
        not_before: start of validity.
        not_after: end of validity.
        public_key: the key it endorses, of any kind.
        key_info: that key's SubjectPublicKeyInfo, DER.
        algorithm: how it says it is signed.
        is_ca: basicConstraints says CA.
        path_length: how many authorities may stand below; None is no limit.
        signs_certificates: keyUsage says keyCertSign.
        signs_lists: keyUsage says cRLSign.
        signs_data: keyUsage says digitalSignature.
        signs_answers: extendedKeyUsage says OCSPSigning and nothing else.
        list_addresses: where it says that its issuer's lists are.
        unrecognised: extensions that the library does not know, raw, by OID.
        unknown_critical: an extension that is not processed here is critical.
        signed_part: the bytes that the signature covers.
        signature: the issuer's signature.
        encoded: the whole certificate, DER, as it came.
    """

    subject: bytes
    issuer: bytes
    common_name: str
    serial: int
    not_before: datetime
    not_after: datetime
    public_key: CertificatePublicKeyTypes
    key_info: bytes = field(repr=False)
    algorithm: x509.ObjectIdentifier
    is_ca: bool
    path_length: int | None
    signs_certificates: bool
    signs_lists: bool
    signs_data: bool
    signs_answers: bool
    list_addresses: frozenset[str]
    unrecognised: Mapping[str, bytes] = field(repr=False)
    unknown_critical: bool
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    encoded: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, lower-case hex."""
        return hashlib.sha256(self.encoded).hexdigest()


@lru_cache(MAX_READ)
def read_certificate(encoded: bytes) -> Certificate:
    """Read a certificate's values; the caller's rules decide whether to accept them.

    They are kept for the next time: values of the same bytes are the same.

    Raises:
        ValueError: not a certificate; every error of the library's is this one.
    """
    try:
        return _values(x509.load_der_x509_certificate(encoded), encoded)
    except LIBRARY_ERRORS:
        raise ValueError("not a certificate") from None


def _values(parsed: x509.Certificate, encoded: bytes) -> Certificate:
    _refuse_other_encodings(encoded, parsed.signature)
    key = parsed.public_key()
    names = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    # Absent means "no": a certificate without basicConstraints is no authority
    # (RFC 5280, section 4.2.1.9), and one without keyUsage, of which section 4.2.1.3
    # says "any", may sign nothing here.
    usage = _extension(parsed, x509.KeyUsage)
    constraints = _extension(parsed, x509.BasicConstraints)
    purpose = _extension(parsed, x509.ExtendedKeyUsage)
    points = _extension(parsed, x509.CRLDistributionPoints)
    return Certificate(
        subject=parsed.subject.public_bytes(),
        issuer=parsed.issuer.public_bytes(),
        # With two common names, one reader takes the first and another the last.
        common_name=str(names[0].value) if len(names) == 1 else "",
        serial=parsed.serial_number,
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        public_key=key,
        key_info=key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        algorithm=parsed.signature_algorithm_oid,
        is_ca=constraints is not None and constraints.ca,
        path_length=None if constraints is None else constraints.path_length,
        signs_certificates=usage is not None and usage.key_cert_sign,
        signs_lists=usage is not None and usage.crl_sign,
        signs_data=usage is not None and usage.digital_signature,
        signs_answers=purpose is not None and _is_for_answers(purpose),
        list_addresses=frozenset(
            address for point in points or () for address in _uris(point.full_name)
        ),
        unrecognised=MappingProxyType(
            {
                extension.oid.dotted_string: extension.value.value
                for extension in parsed.extensions
                if isinstance(extension.value, x509.UnrecognizedExtension)
            }
        ),
        # A critical extension changes what a certificate means (RFC 5280, section
        # 4.2): name constraints, for example, that would not be enforced here.
        unknown_critical=any(
            extension.critical and not _is_understood(extension.value)
            for extension in parsed.extensions
        ),
        signed_part=parsed.tbs_certificate_bytes,
        signature=parsed.signature,
        # As it came, and not encoded again: a fingerprint is of bytes.
        encoded=encoded,
    )


def _is_understood(value: x509.ExtensionType) -> bool:
    # A purpose restricts what a key is for; here one alone is known.
    if isinstance(value, x509.ExtendedKeyUsage):
        return _is_for_answers(value)
    return isinstance(value, _UNDERSTOOD)


def _is_for_answers(purpose: x509.ExtendedKeyUsage) -> bool:
    return list(purpose) == [ExtendedKeyUsageOID.OCSP_SIGNING]


def _uris(names: Iterable[x509.GeneralName] | None) -> Iterable[str]:
    for name in names or ():
        if isinstance(name, x509.UniformResourceIdentifier):
            yield name.value


def _refuse_other_encodings(encoded: bytes, signature: bytes) -> None:
    """Refuse what would give one certificate several encodings, and so fingerprints.

    The signature's algorithm is written twice (RFC 5280, section 4.1.1.2), and nothing
    signs the outer copy. The library compares less than all of it, and it drops the
    numbers of unused bits: nothing signs that of the signature, either.
    """
    signed, algorithm, signed_by = der.elements(der.only_element(encoded).content)
    if algorithm.encoded not in signed.encoded:
        raise ValueError("the outer signature algorithm is another one")
    fields = list(der.elements(der.content_of(signed, der.SEQUENCE)))
    # RFC 5280, section 4.1: the version may be left out; the key is the sixth field
    # behind it, and the identifiers are [1] and [2] behind the key.
    key, *optional = fields[5 + (fields[0].tag == _VERSION) :]
    _, key_bits = der.elements(key.content)
    der.whole_bytes(key_bits)
    if der.whole_bytes(signed_by) != signature:
        raise ValueError("another signature than the one that was read")
    if any(each.content[:1] != b"\0" for each in optional if each.tag in _UNIQUE_IDS):
        raise ValueError("a unique identifier with unused bits")


def _extension(parsed: x509.Certificate, kind: type[_ExtensionT]) -> _ExtensionT | None:
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationList:
    """A revocation list's values; unverified.

    Attributes:
        issuer: the issuer's DER.
        issued: when it was issued.
        next_update: until when it is current, or None if it does not say.
        revoked: the serial numbers it revokes.
        scope: the addresses of the part of the issuer's certificates that it is
            about; empty for all of them.
        algorithm: how it says it is signed.
        signed_part: the bytes that the signature covers.
        signature: the issuer's signature.
    """

    issuer: bytes
    issued: datetime
    next_update: datetime | None
    revoked: frozenset[int] = field(repr=False)
    scope: frozenset[str]
    algorithm: x509.ObjectIdentifier
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def parse_revocation_list(
    encoded: bytes, name: str, *, scoped: bool = False
) -> RevocationList:
    """Read a DER revocation list.

    Args:
        encoded: the list.
        name: says which one in a refusal.
        scoped: the caller compares ``scope`` with a certificate's addresses;
            otherwise a list that is about a part of them is refused.

    Raises:
        RefusedError: ``crl_invalid``.
    """
    try:
        parsed = x509.load_der_x509_crl(encoded)
        *_, signed_by = der.elements(der.only_element(encoded).content)
        der.whole_bytes(signed_by)
        point = _scope(parsed) if scoped else None
        # A critical extension changes what the list means (a delta, or only
        # some certificates), so one that is not understood refuses it.
        critical = any(
            extension.critical and extension.value != point
            for extension in parsed.extensions
        )
        values = RevocationList(
            issuer=parsed.issuer.public_bytes(),
            issued=parsed.last_update_utc,
            next_update=parsed.next_update_utc,
            revoked=frozenset(entry.serial_number for entry in parsed),
            scope=frozenset() if point is None else frozenset(_uris(point.full_name)),
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


def _scope(
    parsed: x509.CertificateRevocationList,
) -> x509.IssuingDistributionPoint | None:
    """Return what a list is about, where that can be understood."""
    try:
        kind = x509.IssuingDistributionPoint
        point = parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    # All of its other fields leave certificates out, by kind or by reason, or add
    # those of others (RFC 5280, section 5.2.5).
    whole = x509.IssuingDistributionPoint(
        full_name=point.full_name,
        relative_name=None,
        only_contains_user_certs=False,
        only_contains_ca_certs=False,
        only_some_reasons=None,
        indirect_crl=False,
        only_contains_attribute_certs=False,
    )
    return point if point == whole else None


def current_until(
    issued: datetime,
    next_update: datetime | None,
    name: str,
    *,
    max_age_s: int,
    clock_skew_s: int,
    now: datetime,
) -> datetime:
    """Return until when a list or an answer may be used.

    Raises:
        RefusedError: ``crl_invalid``, ``not_yet_valid`` or ``crl_expired``.
    """
    # RFC 5280, section 5.1.2.5, demands the date. Without one, a list would be current
    # for ever.
    if next_update is None:
        raise RefusedError(RefusalCode.CRL_INVALID, f"{name} has no expiry date")
    # The issuer's own date may be far away; ours may end it earlier, never later.
    end = min(next_update, issued + timedelta(seconds=max_age_s))
    # A list of the future would be "current" for longer than any other.
    if issued > now + timedelta(seconds=clock_skew_s):
        raise RefusedError(RefusalCode.NOT_YET_VALID, f"{name} is not valid yet")
    # Otherwise an attacker that withholds new lists could keep a revoked certificate
    # valid with the last list that did not name it. The next one is issued by that very
    # second.
    if now >= end:
        raise RefusedError(
            RefusalCode.CRL_EXPIRED, f"{name} was current until {end:%Y-%m-%d}"
        )
    return end


def on_curve(
    key: CertificatePublicKeyTypes | None, curve: type[ec.EllipticCurve]
) -> ec.EllipticCurvePublicKey | None:
    """Return the key if it is on this curve, or None."""
    held = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, curve)
    return key if held and isinstance(key, ec.EllipticCurvePublicKey) else None


def verify_p256(
    key: CertificatePublicKeyTypes | None, signed_part: bytes, signature: bytes
) -> bool:
    """Check a DER signature, ECDSA P-256 with SHA-256; False if it does not hold."""
    return _verify(on_curve(key, ec.SECP256R1), hashes.SHA256(), signed_part, signature)


def verify_p384(
    key: CertificatePublicKeyTypes | None, signed_part: bytes, signature: bytes
) -> bool:
    """Check a DER signature, ECDSA P-384 with SHA-384; False if it does not hold."""
    return _verify(on_curve(key, ec.SECP384R1), hashes.SHA384(), signed_part, signature)


def _verify(
    key: ec.EllipticCurvePublicKey | None,
    algorithm: hashes.HashAlgorithm,
    signed_part: bytes,
    signature: bytes,
) -> bool:
    # A key of another kind is reported like a signature that does not verify: callers
    # need not distinguish the two, and cannot forget one.
    if key is None:
        return False
    try:
        key.verify(signature, signed_part, ec.ECDSA(algorithm))
    except InvalidSignature:
        return False
    return True
