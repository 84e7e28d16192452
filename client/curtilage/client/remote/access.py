"""How the relay knows its customer, and how we know the relay: files, read once.

A certificate, a key of it, a private authority, an API key. Their contents are
in no argument of a process, no ``repr`` and no error; errors name the file.
"""

import ipaddress
import re
import ssl  # noqa: TID251 - a door
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtilage.client.errors import ConfigError

MAX_KEY_FILE_BYTES: Final = 4096
# As RFC 6750 writes a bearer token; anything else could end the header line.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{8,1024}=*")
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayAccess:
    """What to show the relay, and whom to take for it.

    Attributes:
        tls: for connections to the relay.
        api_key: the bearer token, or None.
        readable_by_others: the API key's file, where others may read it.
    """

    tls: ssl.SSLContext = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    readable_by_others: Path | None = None

    def fields(self) -> dict[str, str]:
        """Return the header fields of a request to the relay."""
        key = self.api_key
        return {} if key is None else {"Authorization": f"Bearer {key}"}


def read_access(
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    certificate_key: Path | None = None,
    key: Path | None = None,
) -> RelayAccess:
    """Read the files.

    Args:
        ca: certificates (PEM) of the only authorities to trust for the relay;
            None: those that the system trusts.
        certificate: our certificate and its chain (PEM), if the relay wants one.
        certificate_key: its private key (PEM); None: in the same file.
        key: a file with the API key that the relay's operator gave us.

    Raises:
        ConfigError: one cannot be read or is not what it should be; names it.
    """
    # Read once, at the start: what is exchanged later takes effect when somebody
    # restarts the client, and not in the middle of a query.
    tls = tls_context(ca)
    if certificate is not None:
        _load_certificate(tls, certificate, certificate_key)
    elif certificate_key is not None:
        raise ConfigError(f"{certificate_key}: a key without its certificate")
    if key is None:
        return RelayAccess(tls=tls)
    return RelayAccess(
        tls=tls,
        api_key=_read_token(key),
        # Told, and not refused: on some mounts every file looks like this.
        readable_by_others=key if key.stat().st_mode & _FOR_OTHERS else None,
    )


def tls_context(ca: Path | None = None) -> ssl.SSLContext:
    """Return how we speak TLS to others: 1.2 or later, names checked.

    Args:
        ca: certificates of the only authorities to trust; None: the system's.

    Raises:
        ConfigError: the file cannot be read, or holds no certificate.
    """
    # With ``cafile`` the system's authorities are left out, not added to: an operator
    # who names one wants no other to be able to speak for the relay.
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (ssl.SSLError, OSError) as failure:
        raise ConfigError(f"{ca}: {_trouble(failure, 'no certificates')}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def is_loopback(host: str) -> bool:
    """Tell this machine's own addresses and its name."""
    # RFC 6761, section 6.3: these names are this machine's, whatever DNS says.
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_numeric(host) and ipaddress.ip_address(host).is_loopback


def is_numeric(host: str) -> bool:
    """Tell an address in numbers from a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _load_certificate(
    tls: ssl.SSLContext, certificate: Path, certificate_key: Path | None
) -> None:
    key = None if certificate_key is None else str(certificate_key)
    named = certificate if certificate_key is None else certificate_key

    # Without this, OpenSSL would ask at the terminal, and a service hang at its start.
    def no_password() -> str:
        raise ConfigError(f"{named}: the key is encrypted, and nobody can be asked")

    try:
        tls.load_cert_chain(str(certificate), key, no_password)
    except (ssl.SSLError, OSError) as failure:
        pair = certificate if key is None else f"{certificate}, {certificate_key}"
        expected = "not a certificate and its key"
        raise ConfigError(f"{pair}: {_trouble(failure, expected)}") from None


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Bounded: a wrong path may name anything, also what has no end.
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
    # One line end is what editors leave; anything else in it would end the header, and
    # begin one of the file's choice. The message must not repeat what was found.
    token = data.strip()
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(f"{path}: expected one API key and nothing else")
    return token.decode()


def _trouble(failure: OSError, otherwise: str) -> str:
    # The library's own words repeat no content, but say where in its code it was.
    if isinstance(failure, ssl.SSLError):
        return f"{otherwise} in PEM"
    return failure.strerror or "cannot be read"
