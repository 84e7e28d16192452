"""Binds the server's sockets; others listen on them later.

A server that has locked itself binds nothing, and until it has evidence it listens to
no client: a connection is refused until then.
"""

import contextlib
import socket  # noqa: TID251 - a door
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from curtilage.enclave_server.toml_reader import Listen

SOCKET_MODE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A socket with its address; to be used as a context, which closes it.

    Attributes:
        socket: of TCP or of a path.
        address: in the form of the ready line.
        path: of a UNIX socket, or None.
    """

    socket: socket.socket
    address: str
    path: Path | None = None

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.socket.close()
        if self.path is not None:
            # A locked process may not remove it; who binds it again does.
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)


def bind(listen: Listen) -> Bound:
    """Bind an address.

    Raises:
        OSError: it cannot be used.
    """
    if listen.path is not None:
        return bind_path(listen.path)
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Else an address could not be used for a minute after a server has ended.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((listen.host, listen.port))
        host, port = made.getsockname()[:2]
    except BaseException:
        made.close()
        raise
    return Bound(
        socket=made, address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    )


def bind_path(path: Path) -> Bound:
    """Bind a UNIX socket for this account alone, in place of one that nobody serves.

    Raises:
        OSError: the path cannot be used.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        # Before anybody listens: no other account connects in between.
        path.chmod(SOCKET_MODE)
    except BaseException:
        made.close()
        raise
    return Bound(socket=made, address=f"unix:{path}", path=path)
