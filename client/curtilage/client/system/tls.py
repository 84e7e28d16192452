"""TLS settings, API keys from files, and the names of this machine.

For all modules that open connections; address and content are their concern. A key is
never in a process argument, a ``repr`` or an error; errors name the file.
"""

import ipaddress
import os
import re
import ssl  # noqa: TID251 - a door
import stat
from pathlib import Path
from typing import Final

from curtilage.client.errors import ConfigError

MAX_KEY_FILE_BYTES: Final = 4096
# A bearer token as in RFC 6750; anything else could end the header line.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{8,1024}=*")
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def tls_context(ca: Path | bytes | None = None) -> ssl.SSLContext:
    """Return the TLS settings of our connections: 1.2 or later, names verified.

    Args:
        ca: certificates (PEM) of the only authorities to trust, or a file of them;
            None: the system's trust store.

    Raises:
        ConfigError: the file cannot be read, or contains no certificate.
    """
    if isinstance(ca, bytes):
        try:
            # No ``create_default_context``: for an empty text it uses the system's.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ConfigError("ca: no certificates in PEM") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
    # ``cafile`` replaces the system's authorities: an operator who names one wants no
    # other to be able to impersonate the relay.
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (ssl.SSLError, OSError) as failure:
        raise ConfigError(f"{ca}: {trouble(failure, 'no certificates')}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by address or name."""
    # RFC 6761, section 6.3: these names mean this machine, whatever DNS returns.
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_numeric(host) and ipaddress.ip_address(host).is_loopback


def is_numeric(host: str) -> bool:
    """Return whether a host is a numeric address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def read_token(path: Path) -> tuple[str, bool]:
    """Read an API key from its file.

    Returns:
        The bearer token, and whether other users of this machine can read the file:
        that is reported and not refused, since on some mounts every file looks so.

    Raises:
        ConfigError: it cannot be read, or has other content; names the file.
    """
    try:
        with path.open("rb") as file:
            # Bounded: a wrong path may refer to anything, even to an endless file.
            data = file.read(MAX_KEY_FILE_BYTES + 1)
            for_others = bool(os.fstat(file.fileno()).st_mode & _FOR_OTHERS)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
    # A final line end is common in editors; any other would end the header and begin
    # one of the file's choice. The message must not repeat the content.
    token = data.strip()
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(f"{path}: expected one API key and nothing else")
    return token.decode(), for_others


def trouble(failure: OSError, otherwise: str) -> str:
    """Describe a problem with a certificate file; ``otherwise`` names the content."""
    # The library's own text has no content, but names positions in its source code.
    if isinstance(failure, ssl.SSLError):
        return f"{otherwise} in PEM"
    return failure.strerror or "cannot be read"
