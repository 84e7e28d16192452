"""Emulated Intel provisioning: root, certificates, revocation lists, collateral.

Every statement is a value that can be changed before it is signed, so that each
refusal can be provoked with valid signatures. Nothing here is Intel's, and every
certificate says so.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from curtilage.attest.tdx.certificates import SGX_EXTENSION, PckPlatform
from curtilage.attest.tdx.endorsements import PCK_NAME, ROOT_NAME, SIGNER_NAME
from curtilage_dev.emulated.collateral import (
    PCESVN,
    QeIdentityFields,
    TcbInfoFields,
    encode_qe_identity,
    encode_tcb_info,
)
from curtilage_dev.emulated.der import element, key_usage

ORGANIZATION: Final = "Emulated TEE - not Intel"
AUTHORITY_NAME: Final = "Intel SGX PCK Platform CA"
# As long as Intel's: about 30, 15 and 7 years.
ROOT_LIFE: Final = timedelta(days=30 * 365)
AUTHORITY_LIFE: Final = timedelta(days=15 * 365)
LEAF_LIFE: Final = timedelta(days=7 * 365)
COLLATERAL_LIFE: Final = timedelta(days=30)
# Clocks of client and emulator may differ by this much at the start.
BACKDATE: Final = timedelta(hours=1)
SERIALS: Final = {"root": 1, "authority": 2, "pck": 3, "signer": 4}

FMSPC: Final = bytes.fromhex("90c06f000000")
PLATFORM_SVNS: Final = (3, 3, 2, 2, 4, 1, 0, 5, *(0,) * 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DcapKeys:
    """The P-256 keys of one emulated provisioning service; in memory only."""

    root: ec.EllipticCurvePrivateKey = field(repr=False)
    authority: ec.EllipticCurvePrivateKey = field(repr=False)
    signer: ec.EllipticCurvePrivateKey = field(repr=False)
    pck: ec.EllipticCurvePrivateKey = field(repr=False)
    attestation: ec.EllipticCurvePrivateKey = field(repr=False)


def generate_dcap_keys() -> DcapKeys:
    """Generate all keys; takes less than a millisecond."""
    root, authority, signer, pck, attestation = (
        ec.generate_private_key(ec.SECP256R1()) for _ in range(5)
    )
    return DcapKeys(
        root=root, authority=authority, signer=signer, pck=pck, attestation=attestation
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFields:
    """The content of a certificate, before it is signed.

    Attributes:
        common_name: the subject's.
        issuer_name: the issuer's common name.
        public_key: what is endorsed.
        not_before: start of validity.
        not_after: end of validity.
        serial: at least 1.
        authority: basicConstraints and keyUsage of a CA.
        path_length: the number of authorities allowed below it.
        sgx: Intel's own extension, DER, or empty.
        critical: whether that extension is.
    """

    common_name: str
    issuer_name: str
    public_key: ec.EllipticCurvePublicKey
    not_before: datetime
    not_after: datetime
    serial: int
    authority: bool = False
    path_length: int | None = None
    sgx: bytes = b""
    critical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFields:
    """The content of a revocation list, before it is signed.

    Attributes:
        issuer_name: the issuer's common name.
        issued: when it was made.
        next_update: until when it is current.
        revoked: serial numbers.
        critical: whether it carries a critical extension.
    """

    issuer_name: str
    issued: datetime
    next_update: datetime
    revoked: tuple[int, ...] = ()
    critical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollateralFields:
    """Everything that is stapled to a quote, before it is signed.

    Attributes:
        tcb: the statement about the platform.
        qe: the statement about the quoting enclave.
        root_list: the root's revocation list, or None for none at all.
        pck_list: the PCK authority's, or None.
    """

    tcb: TcbInfoFields
    qe: QeIdentityFields
    root_list: ListFields | None
    pck_list: ListFields | None


ChangeCertificate = Callable[[str, CertificateFields], CertificateFields]
"""Changes a certificate's fields, by its role: root, authority, pck, signer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """One emulated provisioning service with one platform.

    Attributes:
        keys: every private key.
        platform: the platform in the PCK certificate.
        root: the root certificate, DER.
        authority: the PCK authority's certificate, DER.
        pck: the platform's certificate, DER.
        signer: the certificate that signs collateral, DER.
    """

    keys: DcapKeys = field(repr=False)
    platform: PckPlatform
    root: bytes = field(repr=False)
    authority: bytes = field(repr=False)
    pck: bytes = field(repr=False)
    signer: bytes = field(repr=False)

    def pck_chain(self) -> bytes:
        """Return the chain inside a quote, PEM, leaf first."""
        return pem(self.pck, self.authority, self.root).encode("ascii")

    def fields(self, *, now: datetime) -> CollateralFields:
        """Return ordinary collateral for this platform, open to change."""
        start, end = now - BACKDATE, now + COLLATERAL_LIFE
        return CollateralFields(
            tcb=TcbInfoFields(
                issued=start,
                next_update=end,
                fmspc=self.platform.fmspc,
                pce_id=self.platform.pce_id,
            ),
            qe=QeIdentityFields(issued=start, next_update=end),
            root_list=ListFields(issuer_name=ROOT_NAME, issued=start, next_update=end),
            pck_list=ListFields(
                issuer_name=AUTHORITY_NAME, issued=start, next_update=end
            ),
        )

    def collateral(self, fields: CollateralFields) -> bytes:
        """Sign collateral; returns the JSON of ``QuoteCollateralV3``."""
        tcb_info = encode_tcb_info(fields.tcb)
        qe_identity = encode_qe_identity(fields.qe)
        signers = pem(self.signer, self.root)
        document = {
            "pck_crl_issuer_chain": pem(self.authority, self.root),
            "root_ca_crl": _list(fields.root_list, self.keys.root),
            "pck_crl": _list(fields.pck_list, self.keys.authority),
            "tcb_info_issuer_chain": signers,
            "tcb_info": tcb_info,
            "tcb_info_signature": sign_raw(tcb_info, self.keys.signer),
            "qe_identity_issuer_chain": signers,
            "qe_identity": qe_identity,
            "qe_identity_signature": sign_raw(qe_identity, self.keys.signer),
        }
        return json.dumps(document, separators=(",", ":")).encode("ascii")


def make_provisioning(
    keys: DcapKeys,
    *,
    now: datetime,
    platform: PckPlatform | None = None,
    change: ChangeCertificate = lambda _, fields: fields,
) -> Provisioning:
    """Issue all certificates of one platform.

    Args:
        keys: generated once; certificates are cheap.
        now: start of validity, but for an hour.
        platform: the platform in the PCK certificate.
        change: alters a certificate before it is signed.
    """
    described = platform or default_platform()
    start = now - BACKDATE

    def issue(
        role: str, name: str, key: ec.EllipticCurvePrivateKey, life: timedelta
    ) -> bytes:
        below_authority = role == "pck"
        fields = CertificateFields(
            common_name=name,
            issuer_name=AUTHORITY_NAME if below_authority else ROOT_NAME,
            public_key=key.public_key(),
            not_before=start,
            not_after=start + life,
            serial=SERIALS[role],
            authority=role in {"root", "authority"},
            path_length={"root": 1, "authority": 0}.get(role),
            sgx=sgx_extension(described) if below_authority else b"",
        )
        issuer = keys.authority if below_authority else keys.root
        return make_certificate(change(role, fields), issuer)

    return Provisioning(
        keys=keys,
        platform=described,
        root=issue("root", ROOT_NAME, keys.root, ROOT_LIFE),
        authority=issue("authority", AUTHORITY_NAME, keys.authority, AUTHORITY_LIFE),
        pck=issue("pck", PCK_NAME, keys.pck, LEAF_LIFE),
        signer=issue("signer", SIGNER_NAME, keys.signer, LEAF_LIFE),
    )


def default_platform() -> PckPlatform:
    """Return a platform that reaches the highest level."""
    return PckPlatform(
        ppid=bytes(range(1, 17)),
        fmspc=FMSPC,
        pce_id=bytes(2),
        svns=PLATFORM_SVNS,
        pcesvn=PCESVN,
    )


def make_certificate(
    fields: CertificateFields, issuer: ec.EllipticCurvePrivateKey
) -> bytes:
    """Sign a certificate with ECDSA and SHA-256, as Intel does; returns DER."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(distinguished_name(fields.common_name))
        .issuer_name(distinguished_name(fields.issuer_name))
        .public_key(fields.public_key)
        .serial_number(fields.serial)
        .not_valid_before(fields.not_before)
        .not_valid_after(fields.not_after)
        .add_extension(
            x509.BasicConstraints(fields.authority, fields.path_length), True
        )
        .add_extension(
            key_usage(
                signs_certificates=fields.authority,
                signs_data=not fields.authority,
                commits=not fields.authority,
            ),
            True,
        )
        .add_extension(_key_identifier(issuer), False)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(fields.public_key), False
        )
    )
    if fields.sgx:
        oid = x509.ObjectIdentifier(SGX_EXTENSION)
        extension = x509.UnrecognizedExtension(oid, fields.sgx)
        builder = builder.add_extension(extension, fields.critical)
    return builder.sign(issuer, hashes.SHA256()).public_bytes(Encoding.DER)


def make_list(fields: ListFields, issuer: ec.EllipticCurvePrivateKey) -> bytes:
    """Sign a revocation list; returns DER."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(distinguished_name(fields.issuer_name))
        .last_update(fields.issued)
        .next_update(fields.next_update)
        .add_extension(x509.CRLNumber(1), False)
        .add_extension(_key_identifier(issuer), False)
    )
    if fields.critical:
        builder = builder.add_extension(x509.DeltaCRLIndicator(1), True)
    for serial in fields.revoked:
        entry = x509.RevokedCertificateBuilder()
        entry = entry.serial_number(serial).revocation_date(fields.issued)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(issuer, hashes.SHA256()).public_bytes(Encoding.DER)


def sign_raw(text: str | bytes, key: ec.EllipticCurvePrivateKey) -> str:
    """Sign as quotes and collateral do: r and s, 32 bytes each, in hex."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return (r.to_bytes(32, "big") + s.to_bytes(32, "big")).hex()


def pem(*certificates: bytes) -> str:
    """Return certificates as PEM, one after the other."""
    return "".join(
        x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM).decode("ascii")
        for der in certificates
    )


def distinguished_name(common_name: str) -> x509.Name:
    """Return a name with Intel's attributes and our organisation."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.LOCALITY_NAME, "Santa Clara"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "CA"),
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
        ]
    )


def sgx_extension(platform: PckPlatform) -> bytes:
    """Return Intel's extension of a PCK certificate, DER."""
    cpusvn = bytes(platform.svns)
    tcb = [
        _pair(f"2.{number}", _integer(svn))
        for number, svn in enumerate(platform.svns, start=1)
    ]
    tcb += [_pair("2.17", _integer(platform.pcesvn)), _pair("2.18", _octets(cpusvn))]
    true = element(0x01, b"\xff")
    configuration = [_pair(f"7.{number}", true) for number in (1, 2, 3)]
    return _sequence(
        [
            _pair("1", _octets(platform.ppid)),
            _pair("2", _sequence(tcb)),
            _pair("3", _octets(platform.pce_id)),
            _pair("4", _octets(platform.fmspc)),
            # Scalable; the memory of servers with TDX.
            _pair("5", element(0x0A, b"\x01")),
            _pair("6", _octets(bytes(16))),
            _pair("7", _sequence(configuration)),
        ]
    )


def _list(fields: ListFields | None, key: ec.EllipticCurvePrivateKey) -> str:
    return "" if fields is None else make_list(fields, key).hex()


def _key_identifier(issuer: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())


def _pair(name: str, value: bytes) -> bytes:
    oid = x509.ObjectIdentifier(f"{SGX_EXTENSION}.{name}").dotted_string
    first, second, *rest = (int(part) for part in oid.split("."))
    content = bytes([first * 40 + second]) + b"".join(map(_base_128, rest))
    return _sequence([element(0x06, content), value])


def _base_128(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(0x80 | number & 0x7F)
    return bytes(reversed(groups))


def _sequence(parts: Iterable[bytes]) -> bytes:
    return element(0x30, b"".join(parts))


def _octets(value: bytes) -> bytes:
    return element(0x04, value)


def _integer(number: int) -> bytes:
    # One bit more than the number has, for the sign.
    return element(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))
