"""How we speak to others: TLS, an API key from its file, this machine's own names.

For every door that connects; who is asked, and what is said, they decide. A key's
content is in no argument of a process, no ``repr`` and no error; errors name the file.
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
# As RFC 6750 writes a bearer token; anything else could end the header line.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{8,1024}=*")
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def tls_context(ca: Path | bytes | None = None) -> ssl.SSLContext:
    """Return how we speak TLS to others: 1.2 or later, names checked.

    Args:
        ca: certificates (PEM) of the only authorities to trust, or a file of them;
            None: the system's.

    Raises:
        ConfigError: the file cannot be read, or there is no certificate in it.
    """
    if isinstance(ca, bytes):
        try:
            # No ``create_default_context``: for an empty text it takes the system's.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ConfigError("ca: no certificates in PEM") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
    # With ``cafile`` the system's authorities are left out, not added to: an operator
    # who names one wants no other to be able to speak for the relay.
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (ssl.SSLError, OSError) as failure:
        raise ConfigError(f"{ca}: {trouble(failure, 'no certificates')}") from None
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


def read_token(path: Path) -> tuple[str, bool]:
    """Read an API key from its file.

    Returns:
        The bearer token, and whether others on this machine can read the file:
        that is to be told, and not refused, since on some mounts every file looks so.

    Raises:
        ConfigError: it cannot be read, or holds anything else; names it.
    """
    try:
        with path.open("rb") as file:
            # Bounded: a wrong path may name anything, also what has no end.
            data = file.read(MAX_KEY_FILE_BYTES + 1)
            for_others = bool(os.fstat(file.fileno()).st_mode & _FOR_OTHERS)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
    # One line end is what editors leave; anything else in it would end the header, and
    # begin one of the file's choice. The message must not repeat what was found.
    token = data.strip()
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(f"{path}: expected one API key and nothing else")
    return token.decode(), for_others


def trouble(failure: OSError, otherwise: str) -> str:
    """Say what is wrong with a file of certificates; ``otherwise``: what it is not."""
    # The library's own words repeat no content, but say where in its code it was.
    if isinstance(failure, ssl.SSLError):
        return f"{otherwise} in PEM"
    return failure.strerror or "cannot be read"
