"""Which server in the house is meant, whom to take for it, and how long to wait."""

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
from curtilage.client.tls import is_loopback, read_token, tls_context

UNIX: Final = "unix:"
ROOT_PATH: Final = "/v1"
"""Where OpenAI's API begins, where an address names no path."""
_SPKI: Final = re.compile(r"[0-9a-f]{64}")
_LABEL: Final = b"curtilage/house/v1"
_SUPERUSER: Final = 0
_MOST_LINKS: Final = 40  # as Linux follows
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseSettings:
    """One server in the house.

    Attributes:
        url: what questions are posted to.
        model: the name by which the server knows the model.
        digest: names address, authorities and key, 32 bytes: what a permit is for.
        socket: the UNIX socket to reach it by, or None.
        tls: with the authorities that say who it is, or None.
        spki_sha256: the digest of its public key, which says so alone, or None.
        api_key: the bearer token, or None.
        readable_by_others: the API key's file, where others may read it.
        connect_s: how long a connection may take, the name's look-up included.
        first_s: how long the first word may take, from the question on.
        stall_s: how long an answer may pause: go without text.
        total_s: the budget for a whole answer; see ``HouseServer.generate``.
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


def house_settings(
    *,
    address: str,
    model: str,
    ca: bytes = b"",
    spki_sha256: str = "",
    key_file: Path | None = None,
    plain_loopback: bool = False,
    total_s: float = 60.0,
) -> HouseSettings:
    """Read what a policy says of a server in the house, and the user's key for it.

    Args:
        address: ``https://host[:port][/path]``, ``unix:/path``, or ``http://`` on
            loopback.
        model: the name by which the server knows the model.
        ca: certificates (PEM) of the only authorities to trust for it; or
        spki_sha256: SHA-256 of its public key (SubjectPublicKeyInfo, DER), 64
            hexadecimal digits, which alone says who it is. One of them for
            ``https``, and none for anything else.
        key_file: a file with the API key that its operator gave the user.
        plain_loopback: whether ``http`` to this machine is acceptable, which a
            development policy alone says.
        total_s: the policy's budget for a whole answer.

    Raises:
        ConfigError: something is not what it should be; names it.
    """
    api_key, for_others = (None, False) if key_file is None else read_token(key_file)
    url, socket = _place(address, plain_loopback=plain_loopback)
    tls, pin = None, None
    if url.startswith("https:"):
        tls, pin = _identity(address, ca, spki_sha256)
    elif ca or spki_sha256:
        # Taken and not looked at, it would promise what nobody checks.
        raise ConfigError(
            f"house address {address!r}: ca and spki_sha256 are for https"
        )
    parts = (_LABEL, address.encode(), ca, spki_sha256.encode())
    named = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return HouseSettings(
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
    """Refuse a socket that somebody else on this machine could have put there.

    Raises:
        PermissionError: they could.
        OSError: there is none.
    """
    *links, socket = _followed(path)
    own = {_SUPERUSER, os.getuid()}
    served = socket.stat()
    if not stat.S_ISSOCK(served.st_mode):
        raise PermissionError("not a socket")
    # Of each link on the way, too: in a folder such as /tmp anybody may put one that
    # leads to a socket of his own, in a folder that is his alone.
    for each in (socket, *links):
        # Whoever may write into its folder can put another in its place. So the folder
        # is ours, the system's, or of the server itself, and for no other to write.
        folder = each.parent.stat()
        if folder.st_mode & _OTHERS_WRITE or folder.st_uid not in own | {served.st_uid}:
            raise PermissionError("a folder that others may write to")
        # And whoever may write further up can exchange the folder; not in one such as
        # /tmp, whose sticky bit leaves the entries of others alone.
        for above in each.parent.parents:
            status = above.stat()
            others = (
                status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
            )
            if others or status.st_uid not in own:
                raise PermissionError("a folder above that others may write to")


def _followed(path: Path) -> Iterator[Path]:
    """Yield each link that an absolute path goes through, then where it leads."""
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
        # As the kernel reads it: from the root, or from where the link is.
        target = step.readlink()
        at = Path("/") if target.is_absolute() else at
        left += reversed(target.parts[target.is_absolute() :])
    yield at


def _place(address: str, *, plain_loopback: bool) -> tuple[str, Path | None]:
    """Return the base of the URL, and the socket where there is one."""
    if address.startswith(UNIX):
        path = Path(address.removeprefix(UNIX))
        if not path.is_absolute():
            raise ConfigError(f"house address {address!r}: expected unix:/path")
        # The name goes into the field ``Host`` and nowhere else.
        return f"http://localhost{ROOT_PATH}", path
    try:
        url = urlsplit(address)
        _ = url.port  # refuses what is no number
    except ValueError:
        url = None
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError(
            f"house address {address!r}: expected https://host/path or unix:/path"
        )
    # An address that says more than a host and a path is a mistake, or carries a
    # secret; and a password in it would be sent.
    if url.query or url.fragment or url.username or url.password:
        raise ConfigError(
            f"house address {address!r}: expected a host, a path, and nothing else"
        )
    if url.scheme == "http" and not (plain_loopback and is_loopback(url.hostname)):
        raise ConfigError(
            f"house address {address!r}: plain http is for this machine's own "
            "addresses under a policy with environment: development"
        )
    base = address.rstrip("/")
    return base if url.path.strip("/") else base + ROOT_PATH, None


def _identity(
    address: str, ca: bytes, spki_sha256: str
) -> tuple[ssl.SSLContext | None, bytes | None]:
    """Return how to know the server: by authorities, or by its key."""
    # The system's authorities vouch for names that anybody may own. What must not
    # leave the house goes to a server that the policy names by itself.
    if bool(ca) == bool(spki_sha256):
        raise ConfigError(f"house address {address!r}: expected ca or spki_sha256")
    if ca:
        return tls_context(ca), None
    if _SPKI.fullmatch(spki_sha256) is None:
        raise ConfigError(f"house address {address!r}: spki_sha256 is no SHA-256")
    return None, bytes.fromhex(spki_sha256)
