"""Emulated certificate chains on P-384, as Nitro and NVIDIA GPUs have them.

Every field can be changed before it is signed, so that each refusal of a chain
can be provoked by certificates whose signatures hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from curtilage.attest.encoding.cose import SIGNATURE_BYTES
from curtilage_dev.emulated.der import key_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class P384Fields:
    """The content of one certificate, and its key.

    Attributes:
        common_name: the subject's; with the organisation it is the whole name.
        organization: the subject's.
        key: the certificate's own key, usually on P-384.
        not_before: start of validity.
        not_after: end of validity.
        authority: basicConstraints' CA; None leaves the extension out.
        path_length: basicConstraints' pathLenConstraint.
        signs_certificates: keyUsage's keyCertSign.
        signs_data: keyUsage's digitalSignature.
        signs_lists: keyUsage's cRLSign; None: as ``signs_certificates``.
        extensions: further ones: OID, whether critical, content.
        issuer_name: the issuer's common name; None takes the issuer's own.
        algorithm: what the issuer signs with.
    """

    common_name: str
    organization: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    not_before: datetime
    not_after: datetime
    authority: bool | None = True
    path_length: int | None = None
    signs_certificates: bool = True
    signs_data: bool = False
    signs_lists: bool | None = None
    extensions: tuple[tuple[str, bool, bytes], ...] = ()
    issuer_name: str | None = None
    algorithm: hashes.SHA256 | hashes.SHA384 | hashes.SHA512 = field(
        default_factory=hashes.SHA384
    )


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make a key on P-384; it lives in memory only."""
    return ec.generate_private_key(ec.SECP384R1())


def sign_certificate(fields: P384Fields, issuer: P384Fields) -> bytes:
    """Sign one certificate with its issuer's key; returns DER."""
    issued_by = distinguished_name(
        issuer.organization, fields.issuer_name or issuer.common_name
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(distinguished_name(fields.organization, fields.common_name))
        .issuer_name(issued_by)
        .public_key(fields.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(fields.not_before)
        .not_valid_after(fields.not_after)
        .add_extension(
            key_usage(
                signs_certificates=fields.signs_certificates,
                signs_data=fields.signs_data,
                signs_lists=fields.signs_lists,
            ),
            critical=True,
        )
    )
    if fields.authority is not None:
        constraints = x509.BasicConstraints(fields.authority, fields.path_length)
        builder = builder.add_extension(constraints, critical=True)
    for oid, critical, content in fields.extensions:
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), content)
        builder = builder.add_extension(extension, critical=critical)
    signed = builder.sign(issuer.key, fields.algorithm)
    return signed.public_bytes(Encoding.DER)


def sign_chain(root: P384Fields, chain: Sequence[P384Fields]) -> tuple[bytes, ...]:
    """Sign the certificates below a root, each with the key of the one before."""
    issuers = (root, *chain)
    return tuple(
        sign_certificate(fields, issuer)
        for fields, issuer in zip(chain, issuers, strict=False)
    )


def raw_signature(key: ec.EllipticCurvePrivateKey, signed_part: bytes) -> bytes:
    """Sign with SHA-384; returns r and s, 48 bytes each, big-endian."""
    r, s = decode_dss_signature(key.sign(signed_part, ec.ECDSA(hashes.SHA384())))
    half = SIGNATURE_BYTES // 2
    return r.to_bytes(half, "big") + s.to_bytes(half, "big")


def distinguished_name(organization: str, common_name: str) -> x509.Name:
    """Return a whole name."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
