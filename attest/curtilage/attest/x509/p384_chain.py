"""Certificate chains in which every key is on P-384: Nitro's and NVIDIA's.

Root first, and the root is pinned by its fingerprint. What is checked is what
RFC 5280, section 6.1, asks of a path without policies: names, usage, basic
constraints, path length, critical extensions, signatures and dates; revocation is
``revocation``'s.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.claims import Link
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.x509.certificates import (
    Certificate,
    on_curve,
    read_certificate,
    verify_p384,
)
from curtilage.attest.x509.kept import certified


def check_pinned_root(root: bytes, anchors: Sequence[TrustAnchor]) -> str:
    """Return the served root's fingerprint; refuse one that is not pinned.

    Raises:
        RefusedError: ``untrusted_root``.
    """
    # Before anything of the chain is parsed: a library never sees a root that is not
    # pinned.
    fingerprint = hashlib.sha256(root).hexdigest()
    if fingerprint not in {anchor.fingerprint for anchor in anchors}:
        raise RefusedError(
            RefusalCode.UNTRUSTED_ROOT, f"root {fingerprint[:16]}… is not pinned"
        )
    return fingerprint


def parse_chain(ders: Sequence[bytes]) -> tuple[Certificate, ...]:
    """Read DER certificates, root first, of which the last is the leaf.

    Raises:
        RefusedError: ``chain_invalid`` for anything but P-384, ECDSA with
            SHA-384 and critical extensions that are understood.
    """
    return tuple(read_p384(der, place_of(n, len(ders))) for n, der in enumerate(ders))


def check_chain(chain: Sequence[Certificate]) -> None:
    """Check that each certificate was issued by the one before it.

    Raises:
        RefusedError: ``chain_invalid``.
    """
    # The signatures come last: names, usage and lengths are cheaper to refuse.
    last = len(chain) - 1
    for number, authority in enumerate(chain[:-1]):
        place = place_of(number, len(chain))
        # Without this, anybody with a certificate could issue others (RFC 5280, section
        # 6.1.4, k and n).
        if not (authority.is_ca and authority.signs_certificates):
            raise _invalid(f"{place}: no authority")
        # RFC 5280, section 4.2.1.9: the number of authorities that may follow,
        # the leaf not among them.
        following = last - 1 - number
        if authority.path_length is not None and authority.path_length < following:
            raise _invalid(f"{place}: path too long")
    # A key that issues certificates must not sign evidence: its owner is an authority,
    # not a machine.
    if chain[last].is_ca or not chain[last].signs_data:
        raise _invalid("leaf: is an authority, or may not sign")
    for number in range(1, len(chain)):
        child, issuer = chain[number], chain[number - 1]
        place = place_of(number, len(chain))
        # RFC 5280, section 6.1.3 (a)(4).
        if child.issuer != issuer.subject:
            raise _invalid(f"{place}: issuer's name")
        if not certified(verify_p384, issuer, child.signed_part, child.signature):
            raise _invalid(f"{place}: signature")


def check_dates(
    chain: Sequence[Certificate], *, now: datetime, clock_skew_s: int
) -> datetime:
    """Check that every certificate is valid now; return the first end.

    Raises:
        RefusedError: ``not_yet_valid`` or ``expired_endorsement``.
    """
    # Only beginnings get the allowance: a device's certificate is minutes old
    # when it is checked, and its issuer's clock may run ahead of ours.
    begun = now + timedelta(seconds=clock_skew_s)
    for number, certificate in enumerate(chain):
        place = place_of(number, len(chain))
        if begun < certificate.not_before:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{place} is not valid yet")
        # Not for ends: that would be a longer life.
        if now > certificate.not_after:
            raise RefusedError(RefusalCode.EXPIRED_ENDORSEMENT, f"{place} has expired")
    return min(certificate.not_after for certificate in chain)


def chain_links(
    chain: Sequence[Certificate], *, root: str, leaf: str
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


def read_p384(der: bytes, place: str) -> Certificate:
    """Read one DER certificate; ``place`` says which one in a refusal.

    Raises:
        RefusedError: ``chain_invalid``, as in ``parse_chain``.
    """
    try:
        certificate = read_certificate(der)
    except ValueError:
        certificate = None
    if certificate is None or on_curve(certificate.public_key, ec.SECP384R1) is None:
        raise _invalid(f"{place}: not a certificate with a P-384 key")
    # RFC 5280, section 4.2: an unrecognised critical extension refuses.
    if certificate.unknown_critical:
        raise _invalid(f"{place}: a critical extension is not understood")
    if certificate.serial <= 0:
        raise _invalid(f"{place}: serial number")
    if certificate.algorithm != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
        raise _invalid(f"{place}: not signed with ECDSA and SHA-384")
    return certificate


def place_of(number: int, count: int) -> str:
    """Return how refusals name the certificate at this place, root first."""
    if number == 0:
        return "root"
    return "leaf" if number == count - 1 else f"intermediate {number}"


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.CHAIN_INVALID, detail)
