"""Certificate chains in which every key is on P-384: Nitro's and NVIDIA's.

Root first, and the root is pinned by its fingerprint. Every value is read
eagerly, so that no library error can come out of a later step. What is checked
is what RFC 5280, section 6.1, asks of a path without policies: names, usage,
basic constraints, path length, critical extensions, signatures and dates;
revocation is not.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, SignatureAlgorithmOID

from curtilage.attest.claims import Link
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.x509.values import (
    LIBRARY_ERRORS,
    common_name,
    find_extension,
    unrecognised_extensions,
    verify_ecdsa,
)

_UNDERSTOOD: Final = frozenset({ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class P384Certificate:
    """A certificate's values; unverified.

    Attributes:
        subject: the subject's DER.
        issuer: the issuer's DER.
        common_name: the subject's common name, or "" where it is not one.
        serial: the serial number, positive.
        not_before: start of validity.
        not_after: end of validity.
        public_key: the key it endorses, on P-384.
        is_ca: basicConstraints says CA.
        path_length: how many authorities may follow, or None for any number.
        signs_certificates: keyUsage says keyCertSign.
        signs_data: keyUsage says digitalSignature.
        unrecognised: extensions that the library does not know, raw, by OID.
        fingerprint: SHA-256 of the whole certificate, lower-case hex.
        signed_part: the bytes that the signature covers.
        signature: the issuer's signature, DER.
    """

    subject: bytes
    issuer: bytes
    common_name: str
    serial: int
    not_before: datetime
    not_after: datetime
    public_key: ec.EllipticCurvePublicKey
    is_ca: bool
    path_length: int | None
    signs_certificates: bool
    signs_data: bool
    unrecognised: Mapping[str, bytes] = field(repr=False)
    fingerprint: str
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def check_pinned_root(root: bytes, anchors: Sequence[TrustAnchor]) -> str:
    """Return the served root's fingerprint; refuse one that is not pinned.

    Raises:
        RefusedError: ``untrusted_root``.
    """
    fingerprint = hashlib.sha256(root).hexdigest()
    if fingerprint not in {anchor.fingerprint for anchor in anchors}:
        raise RefusedError(
            RefusalCode.UNTRUSTED_ROOT, f"root {fingerprint[:16]}… is not pinned"
        )
    return fingerprint


def parse_chain(ders: Sequence[bytes]) -> tuple[P384Certificate, ...]:
    """Read DER certificates, root first, of which the last is the leaf.

    Raises:
        RefusedError: ``chain_invalid`` for anything but P-384, ECDSA with
            SHA-384 and critical extensions that are understood.
    """
    return tuple(_parse(der, _place(n, len(ders))) for n, der in enumerate(ders))


def check_chain(chain: Sequence[P384Certificate]) -> None:
    """Check that each certificate was issued by the one before it.

    Raises:
        RefusedError: ``chain_invalid``.
    """
    last = len(chain) - 1
    for number, authority in enumerate(chain[:-1]):
        place = _place(number, len(chain))
        if not (authority.is_ca and authority.signs_certificates):
            raise _invalid(f"{place}: no authority")
        # RFC 5280, section 4.2.1.9: the number of authorities that may follow,
        # the leaf not among them.
        following = last - 1 - number
        if authority.path_length is not None and authority.path_length < following:
            raise _invalid(f"{place}: path too long")
    if chain[last].is_ca or not chain[last].signs_data:
        raise _invalid("leaf: is an authority, or may not sign")
    for number in range(1, len(chain)):
        _check_issued(chain[number], chain[number - 1], _place(number, len(chain)))


def check_dates(
    chain: Sequence[P384Certificate], *, now: datetime, clock_skew_s: int
) -> datetime:
    """Check that every certificate is valid now; return the first end.

    Raises:
        RefusedError: ``not_yet_valid`` or ``expired_endorsement``.
    """
    # Only beginnings get the allowance: a device's certificate is minutes old
    # when it is looked at, and its issuer's clock may run ahead of ours.
    begun = now + timedelta(seconds=clock_skew_s)
    for number, certificate in enumerate(chain):
        place = _place(number, len(chain))
        if begun < certificate.not_before:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{place} is not valid yet")
        if now > certificate.not_after:
            raise RefusedError(RefusalCode.EXPIRED_ENDORSEMENT, f"{place} has expired")
    return min(certificate.not_after for certificate in chain)


def verify_p384(
    key: ec.EllipticCurvePublicKey, signed_part: bytes, signature: bytes
) -> bool:
    """Check one DER signature with SHA-384; False if it does not hold."""
    return verify_ecdsa(key, hashes.SHA384(), signed_part, signature)


def chain_links(
    chain: Sequence[P384Certificate], *, root: str, leaf: str
) -> tuple[Link, ...]:
    """Return who vouches for whom, root first; the ends' roles are given."""
    roles = [root, *["intermediate"] * (len(chain) - 2), leaf]
    issuers = [chain[0], *chain[:-1]]
    return tuple(
        Link(
            subject=certificate.common_name,
            issuer=issuer.common_name,
            role=role,
            fingerprint=certificate.fingerprint,
            not_after=certificate.not_after,
        )
        for certificate, issuer, role in zip(chain, issuers, roles, strict=True)
    )


def _parse(der: bytes, place: str) -> P384Certificate:
    try:
        parsed = x509.load_der_x509_certificate(der)
        certificate = _read(parsed, der)
        understood = all(
            extension.oid in _UNDERSTOOD
            for extension in parsed.extensions
            if extension.critical
        )
    except LIBRARY_ERRORS:
        raise _invalid(f"{place}: not a certificate with a P-384 key") from None
    # RFC 5280, section 4.2: an unrecognised critical extension refuses.
    if not understood:
        raise _invalid(f"{place}: a critical extension is not understood")
    if certificate.serial <= 0:
        raise _invalid(f"{place}: serial number")
    if parsed.signature_algorithm_oid != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
        raise _invalid(f"{place}: not signed with ECDSA and SHA-384")
    return certificate


def _read(parsed: x509.Certificate, der: bytes) -> P384Certificate:
    key = parsed.public_key()
    if not (
        isinstance(key, ec.EllipticCurvePublicKey)
        and isinstance(key.curve, ec.SECP384R1)
    ):
        raise TypeError("not a key on P-384")
    usage = find_extension(parsed, x509.KeyUsage)
    constraints = find_extension(parsed, x509.BasicConstraints)
    return P384Certificate(
        subject=parsed.subject.public_bytes(),
        issuer=parsed.issuer.public_bytes(),
        common_name=common_name(parsed),
        serial=parsed.serial_number,
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        public_key=key,
        is_ca=constraints is not None and constraints.ca,
        path_length=None if constraints is None else constraints.path_length,
        signs_certificates=usage is not None and usage.key_cert_sign,
        signs_data=usage is not None and usage.digital_signature,
        unrecognised=unrecognised_extensions(parsed),
        fingerprint=hashlib.sha256(der).hexdigest(),
        signed_part=parsed.tbs_certificate_bytes,
        signature=parsed.signature,
    )


def _check_issued(child: P384Certificate, issuer: P384Certificate, place: str) -> None:
    if child.issuer != issuer.subject:
        raise _invalid(f"{place}: issuer's name")
    if not verify_p384(issuer.public_key, child.signed_part, child.signature):
        raise _invalid(f"{place}: signature")


def _place(number: int, count: int) -> str:
    if number == 0:
        return "root"
    return "leaf" if number == count - 1 else f"intermediate {number}"


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.CHAIN_INVALID, detail)
