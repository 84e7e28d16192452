"""Two authorities and a few certificates, for the hops of a relay."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files in a folder: ``NAME.pem`` and ``NAME.key``."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    def settings(self, *, client_ca: bool = False) -> dict[str, str]:
        """Return what a relay's configuration says of TLS."""
        settings = {
            "certificate": str(self.folder / "server.pem"),
            "key": str(self.folder / "server.key"),
        }
        if client_ca:
            settings["client_ca"] = str(self.authority)
        return settings

    def server(self, name: str = "server") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            self.folder / f"{name}.pem", self.folder / f"{name}.key"
        )
        return context

    def client(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        if name is not None:
            certificate = self.folder / f"{name}.pem"
            context.load_cert_chain(certificate, self.folder / f"{name}.key")
        return context


def make_certificates(folder: Path) -> Certificates:
    """Write an authority, what it signed, and what another one signed."""
    authority = _Authority(folder, "authority")
    authority.sign("server", "localhost")
    authority.sign("misnamed", "elsewhere.example")
    authority.sign("expired", "localhost", ended=True)
    authority.sign("client", "client.example")
    _Authority(folder, "stranger").sign("untrusted", "localhost")
    return Certificates(folder=folder)


class _Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._write(name, builder, self._key)

    def sign(self, name: str, host: str, *, ended: bool = False) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(IPv4Address("127.0.0.1")))
        builder = _builder(_name(host), self._name, key, ended=ended)
        builder = builder.add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        self._write(name, builder, key)

    def _write(
        self,
        name: str,
        builder: x509.CertificateBuilder,
        key: ec.EllipticCurvePrivateKey,
    ) -> None:
        pem = builder.sign(self._key, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM
        )
        (self._folder / f"{name}.pem").write_bytes(pem)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (self._folder / f"{name}.key").write_bytes(secret)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    ended: bool = False,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=2))
        .not_valid_after(now + timedelta(hours=-1 if ended else 1))
    )
