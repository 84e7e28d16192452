"""Addresses that a policy names, and whether two of them belong to one owner.

Syntax only: nothing is looked up. Two hosts count as one owner's if their last two
labels are the same. This needs no list of public suffixes and errs on the safe side:
two customers under one provider's domain count as one.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_ADDRESS_CHARS: Final = 1000
# Lower case, and no user, query or fragment: each host has one spelling, and
# ``https://mirror.example@other.example`` is not mistaken for the host in front.
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ADDRESS: Final = re.compile(
    r"(?P<scheme>https?)://"
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]*)*)"
)
# sun_path of unix(7) has 108 bytes, with the zero at its end.
_SOCKET: Final = re.compile(r"unix:(?=.{2,107}\Z)(?:/[A-Za-z0-9._-]+)+")
_IPV4: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_MAX_PORT: Final = 65535
_LOOPBACK: Final = frozenset({"localhost", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address in its parts.

    Attributes:
        scheme: ``https``, or ``http`` on this machine.
        host: a name in lower case, or a literal address; IPv6 in brackets.
        path: what follows; may be empty.
    """

    scheme: str
    host: str
    path: str


def parse_address(text: str) -> Address:
    """Read an address; http is only for this machine.

    Raises:
        ValueError: not an address; the message is fit for the author of a policy.
    """
    # The length first, to bound what the pattern is applied to.
    match = _ADDRESS.fullmatch(text) if len(text) <= MAX_ADDRESS_CHARS else None
    if match is None or int(match["port"] or 1) > _MAX_PORT:
        raise ValueError(
            "expected https://host, in lower case, without user, query or fragment"
        )
    if match["scheme"] == "http" and not is_loopback(match["host"]):
        raise ValueError("plain http is for this machine's own addresses: use https")
    return Address(scheme=match["scheme"], host=match["host"], path=match["path"])


def mirror_address(text: str) -> str:
    """Refuse anything but the address of a copy of the key list.

    Raises:
        ValueError: with a message for the author.
    """
    parse_address(text)
    return text


def gateway_address(text: str) -> str:
    """Refuse anything but the address of a gateway: only scheme, host and port.

    Raises:
        ValueError: with a message for the author.
    """
    if parse_address(text).path:
        raise ValueError("expected https://host, with nothing after it")
    return text


def on_premises_address(text: str) -> str:
    """Refuse anything but the address of an on-premises server.

    Raises:
        ValueError: with a message for the author.
    """
    if text.startswith("unix:"):
        if not _SOCKET.fullmatch(text) or {".", ".."} & set(text.split("/")):
            raise ValueError("expected unix:/path/of/a/socket")
        return text
    parse_address(text)
    return text


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its spelling alone."""
    # By spelling, never by a look-up, whose answer others could change later.
    loopback = _IPV4.fullmatch(host) is not None and host.startswith("127.")
    return loopback or host in _LOOPBACK


def registrable_domain(host: str) -> str:
    """Return the last two labels of a name, and a literal address whole."""
    # Parts of a literal address say nothing of its owner.
    if host.startswith("[") or _IPV4.fullmatch(host):
        return host
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


def same_owner(one: str, other: str) -> bool:
    """Return whether two hosts must be assumed to have one owner."""
    return registrable_domain(one) == registrable_domain(other)
