"""Callers of the endpoint: an account of this machine, or a holder of the token.

Loopback belongs to every account of a machine, so an address says nothing about the
user. Linux knows who owns each end of a connection: of a UNIX socket the kernel
says it (``SO_PEERCRED``), of TCP ``/proc/net/tcp`` and ``tcp6`` do. Programs of the
account that started the endpoint need nothing else. All other callers, and those
whose account cannot be determined, must send the token. It knows no question.
"""

import asyncio
import hmac
import ipaddress
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

from curtilage.client.errors import ConfigError
from curtilage.client.system.files import (
    locked,
    make_private_folder,
    open_private,
    write_private_atomically,
)

TOKEN_NAME: Final = "endpoint-token"  # noqa: S105 - the name of its file
TOKEN_BYTES: Final = 32
BY_TOKEN: Final = "token"  # noqa: S105 - a name
"""The caller of which only the token is known."""
TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")
_USUAL_OVERFLOW_UID: Final = 65534
_LOCK_S: Final = 10.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_TOKEN_BYTES: Final = 128
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
# A row is skipped if another that shares its place in the kernel's table goes away
# while the table is read, so one reading without it proves nothing.
_READINGS: Final = 3
# The states (include/net/tcp_states.h) in which a program holds this end and may still
# read an answer: established, and both in which it has sent its last byte.
_HELD_STATES: Final = frozenset({"01", "04", "05"})
_WORD_BYTES: Final = 4
# asm-generic/socket.h. On the few machines where the numbers are others, the kernel
# refuses these or returns something of another size, and the caller is unknown.
_SOL_SOCKET: Final = 1
_SO_PEERCRED: Final = 17
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid

End = tuple[str, int]
"""An address and a port, as returned by ``getpeername``."""
ReadTable = Callable[[], Iterable[str]]


def stored_token(folder: Path, random: Callable[[int], str]) -> str:
    """Return the token of a user's endpoint; create it if there is none.

    Args:
        folder: the user's state folder.
        random: returns the text of this many random bytes (``secrets.token_urlsafe``).

    Raises:
        ConfigError: its file has another format, or others could read it.
        OSError: it cannot be read or created.
    """
    path = folder / TOKEN_NAME
    make_private_folder(folder)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        raise ConfigError(f"{folder}: a folder that other accounts may write to")
    with locked(path.with_name(f".{TOKEN_NAME}.lock"), _LOCK_S):
        with suppress(FileNotFoundError):
            return _read_token(path)
        token = random(TOKEN_BYTES)
        with write_private_atomically(path) as file:
            file.write(f"{token}\n".encode())
    return token


def _read_token(path: Path) -> str:
    descriptor = open_private(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        private = (
            stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and not status.st_mode & _FOR_OTHERS
        )
        text = file.read(_MOST_TOKEN_BYTES).decode("latin-1").strip() if private else ""
    if not private:
        raise ConfigError(
            f"{path}: another account may have read or written it; delete it, and the "
            "next start makes a new one"
        )
    if _TOKEN.fullmatch(text) is None:
        raise ConfigError(
            f"{path}: not a token of this endpoint; delete it, and the next start "
            "makes a new one"
        )
    return text


class Callers:
    """Decides which callers are served, and identifies them.

    Args:
        token: required from callers of other accounts; None: there is none.
        own: the account that is served without it; None: that of this process.
        tables: each reads one of the kernel's tables of TCP connections.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        own: int | None = None,
        tables: Sequence[ReadTable] = (),
    ) -> None:
        self._token = None if token is None else token.encode()
        self._own = os.geteuid() if own is None else own
        self._tables = tables or tuple(partial(_rows, path) for path in TABLES)

    async def account(self, transport: asyncio.BaseTransport) -> int | None:
        """Return the account that owns the other end of a connection, if known."""
        names = ("peername", "sockname")
        ends: list[object] = [transport.get_extra_info(name) for name in names]
        if all(isinstance(end, tuple) for end in ends):
            peer, own = (cast("End", end)[:2] for end in ends)
            # In a thread: on a machine with many connections the kernel needs some
            # time to write its table.
            uid = await asyncio.to_thread(_account_of, self._tables, peer, own)
        else:
            uid = _peer_of(transport.get_extra_info("socket"))
        # The kernel uses this number for all accounts without a number in our user
        # namespace: it identifies none.
        return None if uid == overflow_uid() else uid

    def caller(self, uid: int | None, authorization: Sequence[str]) -> str | None:
        """Return the name of a caller to be served, or None: it is refused.

        Args:
            uid: its account, if that is known.
            authorization: the values of its ``Authorization`` fields.
        """
        # The superuser is treated like others. It can read the token, so this protects
        # nothing from it; but processes of root often act for another account.
        if uid != self._own and not self._holds_token(authorization):
            return None
        return BY_TOKEN if uid is None else f"uid:{uid}"

    def _holds_token(self, authorization: Sequence[str]) -> bool:
        if self._token is None or len(authorization) != 1:
            return False
        scheme, _, given = authorization[0].partition(" ")
        # RFC 9110, section 11.1: scheme names are case-insensitive. The comparison
        # takes constant time.
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("utf-8", "surrogateescape"), self._token
        )


def uid_of(rows: Iterable[str], peer: End, own: End) -> int | None:
    """Return the owner of a TCP connection's other end.

    Args:
        rows: of ``/proc/net/tcp`` or ``/proc/net/tcp6``.
        peer: that end.
        own: ours.

    Returns:
        The uid, or None: no row is certain.
    """
    wanted = {f"{there} {here}" for there, here in _written(peer, own)}
    found: set[int] = set()
    port = f":{peer[1]:04X} "
    for row in rows:
        columns = row.split() if port in row else []
        if len(columns) < 10 or f"{columns[1]} {columns[2]}" not in wanted:  # noqa: PLR2004
            continue
        state, uid, inode = columns[3], columns[7], columns[9]
        # Without an inode no program holds it any more, and its uid is a meaningless
        # zero.
        if state in _HELD_STATES and inode != "0" and uid.isdecimal():
            found.add(int(uid))
    return found.pop() if len(found) == 1 else None


def overflow_uid(path: Path = OVERFLOW_UID) -> int:
    """Return the number that the kernel uses for accounts that cannot be mapped."""
    with suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return _USUAL_OVERFLOW_UID


def _account_of(tables: Sequence[ReadTable], peer: End, own: End) -> int | None:
    # One table after the other: the kernel takes milliseconds for each, and a
    # connection is in only one.
    for table in (*tables,) * _READINGS:
        uid = uid_of(table(), peer, own)
        if uid is not None:
            return uid
    return None


def _rows(path: Path) -> Iterator[str]:
    with suppress(OSError), path.open("r", encoding="ascii") as file:
        yield from file


def _written(peer: End, own: End) -> Iterator[tuple[str, str]]:
    """Yield both ends in the formats of the kernel's tables."""
    try:
        there, here = (_address(host) for host, _ in (peer, own))
    except ValueError:
        return
    yield _end(there.packed, peer[1]), _end(here.packed, own[1])
    if there.version == here.version == 4:  # noqa: PLR2004
        # The other end may be an IPv6 socket that uses IPv4 (RFC 4291, 2.5.5.2).
        mapped = bytes(10) + b"\xff\xff"
        yield (
            _end(mapped + there.packed, peer[1]),
            _end(mapped + here.packed, own[1]),
        )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _end(packed: bytes, port: int) -> str:
    # Words of four bytes, each in this machine's byte order.
    words = (
        int.from_bytes(packed[at : at + _WORD_BYTES], sys.byteorder)
        for at in range(0, len(packed), _WORD_BYTES)
    )
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _peer_of(socket: object) -> int | None:
    ask = getattr(socket, "getsockopt", None)
    if ask is None:
        return None
    with suppress(OSError):
        credentials = ask(_SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size)
        if isinstance(credentials, bytes) and len(credentials) == _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack(credentials)[1])
    return None
