"""Settings of an on-premises server: address, identity and timeouts."""

import errno
import hashlib
import os
import re
import ssl  # noqa: TID251 - a door
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from curtilage.client.errors import ConfigError
from curtilage.client.system.tls import is_loopback, read_token, tls_context

UNIX: Final = "unix:"
ROOT_PATH: Final = "/v1"
"""Path of OpenAI's API, for addresses without a path."""
_SPKI: Final = re.compile(r"[0-9a-f]{64}")
# Part of a digest: the old word stays, so that a server keeps its identity.
_LABEL: Final = b"curtilage/house/v1"
_SUPERUSER: Final = 0
_MOST_LINKS: Final = 40  # as in Linux
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPremisesSettings:
    """One on-premises server.

    Attributes:
        url: for questions (POST).
        model: the server's name for the model.
        digest: of address, authorities and key, 32 bytes; identifies it in permits.
        socket: the UNIX socket to connect to, or None.
        tls: with the authorities that identify it, or None.
        spki_sha256: the digest of its public key, which alone identifies it, or None.
        api_key: the bearer token, or None.
        readable_by_others: the API key's file, if other users may read it.
        connect_s: limit for a connection, name resolution included.
        first_s: limit for the first word, from the question on.
        stall_s: longest pause of an answer without text.
        total_s: the budget for a whole answer; see ``OnPremisesServer.generate``.
    """

    url: str
    model: str
    digest: bytes
    socket: Path | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    spki_sha256: bytes | None = None
    api_key: str | None = field(default=None, repr=False)
    readable_by_others: Path | None = None
    connect_s: float = 2.0
    first_s: float = 60.0
    stall_s: float = 30.0
    total_s: float = 60.0


def on_premises_settings(
    *,
    address: str,
    model: str,
    ca: bytes = b"",
    spki_sha256: str = "",
    key_file: Path | None = None,
    plain_loopback: bool = False,
    total_s: float = 60.0,
) -> OnPremisesSettings:
    """Read a policy's settings of an on-premises server, and the user's key for it.

    Args:
        address: ``https://host[:port][/path]``, ``unix:/path``, or ``http://`` on
            loopback.
        model: the server's name for the model.
        ca: certificates (PEM) of the only authorities to trust for it; or
        spki_sha256: SHA-256 of its public key (SubjectPublicKeyInfo, DER), 64
            hexadecimal digits, which alone identifies it. One of them for
            ``https``, and none otherwise.
        key_file: a file with the API key that its operator gave the user.
        plain_loopback: whether ``http`` to this machine is acceptable; only a
            development policy permits it.
        total_s: the policy's budget for a whole answer.

    Raises:
        ConfigError: a setting is wrong; names it.
    """
    api_key, for_others = (None, False) if key_file is None else read_token(key_file)
    url, socket = _place(address, plain_loopback=plain_loopback)
    tls, pin = None, None
    if url.startswith("https:"):
        tls, pin = _identity(address, ca, spki_sha256)
    elif ca or spki_sha256:
        # Accepting it unused would suggest a check that does not happen.
        raise ConfigError(
            f"on-premises address {address!r}: ca and spki_sha256 are for https"
        )
    parts = (_LABEL, address.encode(), ca, spki_sha256.encode())
    named = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return OnPremisesSettings(
        url=f"{url}/chat/completions",
        model=model,
        digest=hashlib.sha256(named).digest(),
        socket=socket,
        tls=tls,
        spki_sha256=pin,
        api_key=api_key,
        readable_by_others=key_file if for_others else None,
        total_s=total_s,
    )


def require_private_socket(path: Path) -> None:
    """Refuse a socket that another account of this machine could have created.

    Raises:
        PermissionError: one could.
        OSError: there is none.
    """
    *links, socket = _followed(path)
    own = {_SUPERUSER, os.getuid()}
    served = socket.stat()
    if not stat.S_ISSOCK(served.st_mode):
        raise PermissionError("not a socket")
    # All links on the path count, too: in a folder such as /tmp any account may create
    # one that leads to its own socket, in a folder of its own.
    for each in (socket, *links):
        # An account that may write into its folder can replace it. So the folder must
        # belong to us, the system or the server itself, and not be writable for others.
        folder = each.parent.stat()
        if folder.st_mode & _OTHERS_WRITE or folder.st_uid not in own | {served.st_uid}:
            raise PermissionError("a folder that others may write to")
        # An account that may write further up can replace the folder. Folders such
        # as /tmp are an exception: their sticky bit protects the entries of others.
        for above in each.parent.parents:
            status = above.stat()
            others = (
                status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
            )
            if others or status.st_uid not in own:
                raise PermissionError("a folder above that others may write to")


def _followed(path: Path) -> Iterator[Path]:
    """Yield each link that an absolute path goes through, then its target."""
    at, left = Path("/"), [*reversed(path.parts[1:])]
    links = 0
    while left:
        part = left.pop()
        step = at.parent if part == ".." else at / part
        if not step.is_symlink():
            at = step
            continue
        yield step
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        # As the kernel resolves it: from the root, or from the link's folder.
        target = step.readlink()
        at = Path("/") if target.is_absolute() else at
        left += reversed(target.parts[target.is_absolute() :])
    yield at


def _place(address: str, *, plain_loopback: bool) -> tuple[str, Path | None]:
    """Return the base of the URL, and the socket if there is one."""
    if address.startswith(UNIX):
        path = Path(address.removeprefix(UNIX))
        if not path.is_absolute():
            raise ConfigError(f"on-premises address {address!r}: expected unix:/path")
        # This name is only used in the field ``Host``.
        return f"http://localhost{ROOT_PATH}", path
    try:
        url = urlsplit(address)
        _ = url.port  # raises if it is not a number
    except ValueError:
        url = None
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError(
            f"on-premises address {address!r}: expected https://host/path or unix:/path"
        )
    # An address with more than a host and a path is a mistake or carries a secret; a
    # password in it would be sent.
    if url.query or url.fragment or url.username or url.password:
        raise ConfigError(
            f"on-premises address {address!r}: expected a host, a path, nothing else"
        )
    if url.scheme == "http" and not (plain_loopback and is_loopback(url.hostname)):
        raise ConfigError(
            f"on-premises address {address!r}: plain http is for this machine's own "
            "addresses under a policy with environment: development"
        )
    base = address.rstrip("/")
    return base if url.path.strip("/") else base + ROOT_PATH, None


def _identity(
    address: str, ca: bytes, spki_sha256: str
) -> tuple[ssl.SSLContext | None, bytes | None]:
    """Return the identity of the server: its authorities, or its key."""
    # The system's authorities vouch for names that anyone may own. Regulated data need
    # a server that the policy identifies by itself.
    if bool(ca) == bool(spki_sha256):
        raise ConfigError(f"on-premises address {address!r}: set ca or spki_sha256")
    if ca:
        return tls_context(ca), None
    if _SPKI.fullmatch(spki_sha256) is None:
        raise ConfigError(f"on-premises address {address!r}: spki_sha256 is no SHA-256")
    return None, bytes.fromhex(spki_sha256)
