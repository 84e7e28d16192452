"""Emulated revocation on P-384: authorities' lists, and their responders' answers.

As AWS's lists and NVIDIA's OCSP answers, which a responder of the very authority signs,
whose certificate comes along. Every field can be changed before it is signed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.p384_pki import (
    P384Fields,
    distinguished_name,
    new_key,
    sign_certificate,
)

# AWS renews its lists within days; NVIDIA's answers are good for one.
LIST_LIFE: Final = timedelta(days=7)
ANSWER_LIFE: Final = timedelta(days=1)
BACKDATE: Final = timedelta(minutes=5)
RESPONDER_LIFE: Final = timedelta(days=365)

Extensions = tuple[tuple[str, bool, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFields:
    """The content of a list, before it is signed.

    Attributes:
        issuer: whose it is, and whose key signs it.
        issued: when.
        next_update: until when it is current.
        revoked: serial numbers.
        scope: the part of the certificates that it is about; None for all.
        algorithm: what it is signed with.
    """

    issuer: P384Fields
    issued: datetime
    next_update: datetime
    revoked: tuple[int, ...] = ()
    scope: x509.IssuingDistributionPoint | None = None
    algorithm: hashes.SHA256 | hashes.SHA384 = field(default_factory=hashes.SHA384)

    @classmethod
    def ordinary(cls, issuer: P384Fields, now: datetime) -> Self:
        """Return a list that revokes nothing."""
        issued = now - BACKDATE
        return cls(issuer=issuer, issued=issued, next_update=issued + LIST_LIFE)


ChangeList = Callable[[ListFields], ListFields]


def sign_list(fields: ListFields) -> bytes:
    """Sign a list; returns DER."""
    issuer = fields.issuer
    name = distinguished_name(issuer.organization, issuer.common_name)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(name)
        .last_update(fields.issued)
        .next_update(fields.next_update)
    )
    for serial in fields.revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial)
        builder = builder.add_revoked_certificate(
            entry.revocation_date(fields.issued).build()
        )
    if fields.scope is not None:
        builder = builder.add_extension(fields.scope, critical=True)
    signed = builder.sign(issuer.key, fields.algorithm)
    return signed.public_bytes(Encoding.DER)


def scope(*addresses: str) -> x509.IssuingDistributionPoint:
    """Return what says that a list is about the certificates that name an address."""
    return x509.IssuingDistributionPoint(
        full_name=[x509.UniformResourceIdentifier(each) for each in addresses],
        relative_name=None,
        only_contains_user_certs=False,
        only_contains_ca_certs=False,
        only_some_reasons=None,
        indirect_crl=False,
        only_contains_attribute_certs=False,
    )


def list_address(address: str) -> Extensions:
    """Return a certificate's extension that says where its issuer's list is."""
    point = x509.DistributionPoint(
        full_name=[x509.UniformResourceIdentifier(address)],
        relative_name=None,
        reasons=None,
        crl_issuer=None,
    )
    points = x509.CRLDistributionPoints([point])
    oid = ExtensionOID.CRL_DISTRIBUTION_POINTS.dotted_string
    return ((oid, False, points.public_bytes()),)


def purpose(*, critical: bool = False, also: Sequence[str] = ()) -> Extensions:
    """Return a certificate's extension that lets its key sign answers."""
    others = (x509.ObjectIdentifier(each) for each in also)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING, *others])
    oid = ExtensionOID.EXTENDED_KEY_USAGE.dotted_string
    return ((oid, critical, usage.public_bytes()),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFields:
    """The content of an answer, before it is signed.

    Attributes:
        certificate: DER, that it is about.
        issuer: DER, of the authority that issued it.
        responder: whose key signs, and what its certificate says.
        appointed_by: who signs the responder's certificate.
        issued: when.
        next_update: until when it is current; None leaves it out.
        status: what it says.
        algorithm: what the certificate's issuer is named by.
        signed_with: the hash of its signature.
        alone: the responder's certificate does not come along.
        extensions: further ones, and whether critical.
    """

    certificate: bytes
    issuer: bytes
    responder: P384Fields
    appointed_by: P384Fields
    issued: datetime
    next_update: datetime | None
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD
    algorithm: hashes.HashAlgorithm = field(default_factory=hashes.SHA256)
    signed_with: hashes.SHA256 | hashes.SHA384 = field(default_factory=hashes.SHA384)
    alone: bool = False
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = ()


ChangeAnswer = Callable[[AnswerFields], AnswerFields]


def make_responder(authority: P384Fields, now: datetime) -> P384Fields:
    """Make a responder's key, and what its certificate says."""
    return P384Fields(
        common_name=f"Emulated OCSP Responder of {authority.common_name}",
        organization=authority.organization,
        key=new_key(),
        not_before=now - BACKDATE,
        not_after=now - BACKDATE + RESPONDER_LIFE,
        authority=None,
        signs_certificates=False,
        signs_data=True,
        extensions=purpose(),
    )


def sign_answer(fields: AnswerFields) -> bytes:
    """Sign an answer; returns DER."""
    certificate = x509.load_der_x509_certificate(fields.certificate)
    issuer = x509.load_der_x509_certificate(fields.issuer)
    responder = x509.load_der_x509_certificate(
        sign_certificate(fields.responder, fields.appointed_by)
    )
    revoked = fields.status is ocsp.OCSPCertStatus.REVOKED
    builder = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=certificate,
            issuer=issuer,
            algorithm=fields.algorithm,
            cert_status=fields.status,
            this_update=fields.issued,
            next_update=fields.next_update,
            revocation_time=fields.issued if revoked else None,
            revocation_reason=None,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, responder)
    )
    if not fields.alone:
        builder = builder.certificates([responder])
    for extension, critical in fields.extensions:
        builder = builder.add_extension(extension, critical=critical)
    signed = builder.sign(fields.responder.key, fields.signed_with)
    return signed.public_bytes(Encoding.DER)


def sign_answers(
    authorities: Sequence[P384Fields],
    chain: Sequence[bytes],
    now: datetime,
    *,
    change: ChangeAnswer = unchanged,
) -> tuple[bytes, ...]:
    """Answer about each certificate between root and leaf.

    Args:
        authorities: the root and those below it, as ``chain`` has them.
        chain: DER, root first, the leaf last.
        now: when the answers are given.
        change: edits each answer before it is signed.
    """
    issued = now - BACKDATE
    return tuple(
        sign_answer(
            change(
                AnswerFields(
                    certificate=chain[number],
                    issuer=chain[number - 1],
                    responder=make_responder(authorities[number - 1], now),
                    appointed_by=authorities[number - 1],
                    issued=issued,
                    next_update=issued + ANSWER_LIFE,
                )
            )
        )
        for number in range(1, len(chain) - 1)
    )
