"""Certificates for TLS between processes of one machine, made for one run.

Our own authority and a certificate for each server, for loopback only. ECDSA P-256,
valid for days, written into one folder that its owner deletes.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from curtilage_dev.emulated.der import key_usage

LIFE: Final = timedelta(days=7)
BACKDATE: Final = timedelta(hours=1)
ORGANIZATION: Final = "Curtilage development - not for other use"
NAMES: Final = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)
_PRIVATE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The paths of a server's certificate and key, both PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """An authority whose key is in memory only.

    Attributes:
        folder: contains everything that it issues.
        certificate: the root, PEM, for clients to trust.
    """

    folder: Path
    certificate: Path
    _root: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, *, now: datetime) -> Self:
        """Make an authority; replaces what is in the folder."""
        folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("authority")
        root = (
            _builder(name, name, key, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                key_usage(signs_certificates=True, signs_data=False), critical=True
            )
            .sign(key, hashes.SHA256())
        )
        path = folder / "authority.pem"
        path.write_bytes(root.public_bytes(Encoding.PEM))
        return cls(folder=folder, certificate=path, _root=root, _key=key)

    def issue(self, name: str, *, now: datetime, hosts: Sequence[str] = ()) -> Server:
        """Issue a certificate to the server called ``name``.

        Args:
            name: of its files.
            now: the present time.
            hosts: names that it is for, besides loopback.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            _builder(_name(name), self._root.subject, key, now)
            .add_extension(
                x509.BasicConstraints(ca=False, path_length=None), critical=True
            )
            .add_extension(
                key_usage(signs_certificates=False, signs_data=True), critical=True
            )
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
            )
            .add_extension(
                x509.SubjectAlternativeName([*NAMES, *map(x509.DNSName, hosts)]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    self._key.public_key()
                ),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        server = Server(
            certificate=self.folder / f"{name}.pem", key=self.folder / f"{name}.key"
        )
        server.certificate.write_bytes(made.public_bytes(Encoding.PEM))
        server.key.touch(mode=_PRIVATE)
        server.key.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return server


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + LIFE)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
    )


def _name(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
