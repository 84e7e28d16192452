"""An emulated SEV-SNP endorsement chain, byte for byte in AMD's layout.

Same names, extensions, key sizes and serial numbers as AMD's certificates, but
under a root of our own whose organisation is "Emulated TEE - not AMD".
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.evidence import SnpEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.sev_snp.certificates import (
    AMD_ARC,
    RSA_BITS,
    RSA_EXPONENT,
    SALT_BYTES,
)
from curtilage.attest.sev_snp.report import CHIP_ID_BYTES, SigningKey
from curtilage_dev.emulated.der import key_usage
from curtilage_dev.emulated.snp_reports import ReportFields, encode_report, sign_report

ORGANIZATION: Final = "Emulated TEE - not AMD"
DEFAULT_TCB: Final = Tcb(bl=10, tee=0, snp=23, ucode=84)
# As long as AMD's: 25 years for authorities, 7 for a chip's key.
AUTHORITY_LIFE: Final = timedelta(days=25 * 365)
KEY_LIFE: Final = timedelta(days=7 * 365)
CRL_LIFE: Final = timedelta(days=30)
# Clocks of client and emulator may differ by this much at the start.
BACKDATE: Final = timedelta(hours=1)
ASK_SERIAL: Final = 0x20001
_TURIN_HARDWARE_ID_BYTES: Final = 8
_SERIAL_AT: Final = 15
_TBS_AT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RootKeys:
    """The two RSA keys of a chain; they live in memory only."""

    ark: rsa.RSAPrivateKey = field(repr=False)
    ask: rsa.RSAPrivateKey = field(repr=False)


def generate_root_keys() -> RootKeys:
    """Generate both RSA-4096 keys side by side; takes seconds."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        ark, ask = (
            pool.submit(rsa.generate_private_key, RSA_EXPONENT, RSA_BITS)
            for _ in range(2)
        )
        return RootKeys(ark=ark.result(), ask=ask.result())


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFields:
    """The content of a certificate, before it is signed.

    Attributes:
        common_name: the subject's.
        issuer_name: the issuer's common name.
        public_key: what is endorsed.
        not_before: start of validity.
        not_after: end of validity.
        serial: 0 is possible, as in AMD's chip keys.
        authority: basicConstraints and keyUsage of a CA.
        left_out: "constraints" or "usage" leaves out the one or the other.
        amd: AMD's extensions by the OID's last parts, raw.
    """

    common_name: str
    issuer_name: str
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    not_before: datetime
    not_after: datetime
    serial: int = 0
    authority: bool = False
    left_out: str = ""
    amd: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def make_certificate(fields: CertificateFields, issuer: rsa.RSAPrivateKey) -> bytes:
    """Sign a certificate with RSASSA-PSS as AMD does; returns DER."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(distinguished_name(fields.common_name))
        .issuer_name(distinguished_name(fields.issuer_name))
        .public_key(fields.public_key)
        .serial_number(fields.serial or 1)
        .not_valid_before(fields.not_before)
        .not_valid_after(fields.not_after)
    )
    if fields.authority and fields.left_out != "constraints":
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
    if fields.authority and fields.left_out != "usage":
        builder = builder.add_extension(
            key_usage(signs_certificates=True, signs_data=False), True
        )
    for name, value in fields.amd.items():
        oid = x509.ObjectIdentifier(AMD_ARC + name)
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), False)
    signed = builder.sign(issuer, hashes.SHA384(), rsa_padding=_pss())
    der = signed.public_bytes(Encoding.DER)
    if fields.serial:
        return der
    return _with_zero_serial(der, len(signed.tbs_certificate_bytes), issuer)


def make_crl(
    issuer: rsa.RSAPrivateKey,
    issuer_name: str,
    *,
    issued: datetime,
    next_update: datetime,
    revoked: Iterable[int] = (),
) -> bytes:
    """Sign a revocation list; returns DER."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(distinguished_name(issuer_name))
        .last_update(issued)
        .next_update(next_update)
    )
    for serial in revoked:
        entry = x509.RevokedCertificateBuilder()
        entry = entry.serial_number(serial).revocation_date(issued)
        builder = builder.add_revoked_certificate(entry.build())
    signed = builder.sign(issuer, hashes.SHA384(), rsa_padding=_pss())
    return signed.public_bytes(Encoding.DER)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedPlatform:
    """One emulated chip: its keys and its chain.

    Attributes:
        product: which product it plays.
        signing_key: whether it signs with a VCEK or a VLEK.
        tcb: its patch levels.
        chip_id: 64 bytes.
        ark: the root certificate, DER.
        ask: the intermediate, DER.
        vek: the chip's certificate, DER.
        root_keys: for more certificates and revocation lists.
        vek_key: signs reports.
    """

    product: Product
    signing_key: SigningKey
    tcb: Tcb
    chip_id: bytes
    ark: bytes = field(repr=False)
    ask: bytes = field(repr=False)
    vek: bytes = field(repr=False)
    root_keys: RootKeys = field(repr=False)
    vek_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def root(self) -> bytes:
        """The root certificate, DER."""
        return self.ark

    def anchor(self) -> TrustAnchor:
        """Return the root as a policy pins it."""
        return TrustAnchor.of_certificate(
            AnchorKind.EMULATED, self.product.value, self.ark
        )

    def evidence(self, fields: ReportFields, *, now: datetime) -> SnpEvidence:
        """Sign a report and return it with the chain and a fresh revocation list."""
        return SnpEvidence(
            tee=Tee.EMULATED_SEV_SNP,
            report=sign_report(encode_report(fields), self.vek_key),
            vek=self.vek,
            ask=self.ask,
            crl=self.crl(now=now),
        )

    def crl(self, *, now: datetime, revoked: Iterable[int] = ()) -> bytes:
        """Issue a revocation list."""
        return make_crl(
            self.root_keys.ark,
            f"ARK-{self.product}",
            issued=now - BACKDATE,
            next_update=now + CRL_LIFE,
            revoked=revoked,
        )

    def report_fields(self, *, report_data: bytes, measurement: bytes) -> ReportFields:
        """Return an ordinary report of this chip, open to change."""
        return ReportFields(
            report_data=report_data,
            measurement=measurement,
            product=self.product,
            signing_key=self.signing_key,
            chip_id=self.chip_id,
            reported_tcb=self.tcb,
            committed_tcb=self.tcb,
            launch_tcb=self.tcb,
        )


def make_platform(
    root_keys: RootKeys,
    *,
    now: datetime,
    product: Product = Product.GENOA,
    signing_key: SigningKey = SigningKey.VCEK,
    tcb: Tcb = DEFAULT_TCB,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> EmulatedPlatform:
    """Make a chip with a chain of its own under the given keys."""
    vek_key = ec.generate_private_key(ec.SECP384R1())
    chip_id = _chip_id(product, signing_key, random)
    start = now - BACKDATE
    ark_name = f"ARK-{product}"
    ask_name = f"SEV-{'VLEK-' if signing_key is SigningKey.VLEK else ''}{product}"
    ark = CertificateFields(
        common_name=ark_name,
        issuer_name=ark_name,
        public_key=root_keys.ark.public_key(),
        not_before=start,
        not_after=start + AUTHORITY_LIFE,
        serial=ASK_SERIAL - 1,
        authority=True,
    )
    ask = CertificateFields(
        common_name=ask_name,
        issuer_name=ark_name,
        public_key=root_keys.ask.public_key(),
        not_before=start,
        not_after=start + AUTHORITY_LIFE,
        serial=ASK_SERIAL,
        authority=True,
    )
    vek = CertificateFields(
        common_name=f"SEV-{signing_key.name}",
        issuer_name=ask_name,
        public_key=vek_key.public_key(),
        not_before=start,
        not_after=start + KEY_LIFE,
        amd=amd_extensions(product, signing_key, tcb, chip_id),
    )
    return EmulatedPlatform(
        product=product,
        signing_key=signing_key,
        tcb=tcb,
        chip_id=chip_id,
        ark=make_certificate(ark, root_keys.ark),
        ask=make_certificate(ask, root_keys.ark),
        vek=make_certificate(vek, root_keys.ask),
        root_keys=root_keys,
        vek_key=vek_key,
    )


def amd_extensions(
    product: Product, signing_key: SigningKey, tcb: Tcb, chip_id: bytes
) -> dict[str, bytes]:
    """Return the extensions that AMD puts into a chip's certificate."""
    named = f"{product}-B0" if product is Product.MILAN else product.value
    if product is Product.TURIN:
        levels = {"3.9": tcb.fmc, "3.5": 0, "3.6": 0, "3.7": 0}
    else:
        levels = {"3.4": 0, "3.5": 0, "3.6": 0, "3.7": 0}
    levels |= {"3.1": tcb.bl, "3.2": tcb.tee, "3.3": tcb.snp, "3.8": tcb.ucode}
    extensions = {"1": _integer(0), "2": _ia5(named)}
    extensions |= {name: _integer(level) for name, level in levels.items()}
    if signing_key is SigningKey.VLEK:
        return {**extensions, "5": _ia5("CN=emulated.example")}
    turin = product is Product.TURIN
    hardware_id = chip_id[:_TURIN_HARDWARE_ID_BYTES] if turin else chip_id
    return {**extensions, "4": hardware_id}


def distinguished_name(common_name: str) -> x509.Name:
    """Return a name with AMD's attributes and our organisation."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Engineering"),
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.LOCALITY_NAME, "Santa Clara"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "CA"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _pss() -> padding.PSS:
    return padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)


def _with_zero_serial(der: bytes, signed_bytes: int, key: rsa.RSAPrivateKey) -> bytes:
    """Set the serial number to 0, which the library refuses, and sign again."""
    body = bytearray(der[: _TBS_AT + signed_bytes])
    body[_SERIAL_AT] = 0
    signature = key.sign(bytes(body[_TBS_AT:]), _pss(), hashes.SHA384())
    return bytes(body) + der[len(body) : -len(signature)] + signature


def _chip_id(
    product: Product, signing_key: SigningKey, random: Callable[[int], bytes]
) -> bytes:
    if signing_key is SigningKey.VLEK:
        return bytes(CHIP_ID_BYTES)
    length = _TURIN_HARDWARE_ID_BYTES if product is Product.TURIN else CHIP_ID_BYTES
    return random(length).ljust(CHIP_ID_BYTES, b"\0")


def _integer(number: int) -> bytes:
    content = number.to_bytes(1 + (number > 0x7F), "big")  # noqa: PLR2004 - sign bit
    return bytes([0x02, len(content)]) + content


def _ia5(text: str) -> bytes:
    return bytes([0x16, len(text)]) + text.encode("ascii")
