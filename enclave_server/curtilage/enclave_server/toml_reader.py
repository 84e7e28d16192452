"""Strict reading of TOML tables: typed, bounded, all problems at once.

Knows types, not meanings: the keys are defined in ``config``.
"""

import base64
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import COSIGNATURE_V1, ED25519
from curtilage.attest.log.vkeys import public_key_in

KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Address of the gateway: a TCP address or a UNIX socket, never both.

    Attributes:
        host: an IP address, or empty.
        port: 0 picks a free port.
        path: the UNIX socket, or None.
    """

    host: str = ""
    port: int = 0
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """The bounds of a whole number, for the annotation of a field; both are allowed."""

    lowest: int
    highest: int


_Settings = TypeVar("_Settings")
_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a file: what was not read yet, and the problems of the whole file.

    A missing or invalid value is recorded as a problem and read as an empty value of
    its type, so that one run reports everything.
    """

    values: dict[str, object]
    place: str = ""
    problems: list[str] = field(default_factory=list[str])

    def problem(self, key: str, message: str) -> None:
        """Record a problem of one key."""
        self.problems.append(f"{self.place}{key}: {message}")

    def has(self, key: str) -> bool:
        """Return whether the key is present and not yet read."""
        return key in self.values

    def finish(self) -> None:
        """Refuse every key that was not read."""
        for key in self.values:
            # An unknown key is the operator's own text; even so, only printable
            # characters.
            self.problem(repr(key), "unknown key")

    def text(self, key: str) -> str:
        """Read a string that is not empty."""
        value = self.values.pop(key, None)
        if not isinstance(value, str) or not value:
            self.problem(key, "a string is required")
            return ""
        return value

    def one_of(self, key: str, allowed: Sequence[_Word]) -> _Word:
        """Read one of some words; an invalid one is read as the first."""
        value = self.text(key)
        for word in allowed:
            if word == value:
                return word
        self.problem(key, f"must be one of {', '.join(allowed)}")
        return allowed[0]

    def integer(self, key: str, lowest: int, highest: int, *, default: int) -> int:
        """Read an integer within bounds."""
        value = self.values.pop(key, default)
        # bool is an int to Python, not to TOML.
        if not isinstance(value, int) or isinstance(value, bool):
            self.problem(key, "an integer is required")
            return default
        if not lowest <= value <= highest:
            self.problem(key, f"must be {lowest} to {highest}")
            return default
        return value

    def boolean(self, key: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self.values.pop(key, default)
        if not isinstance(value, bool):
            self.problem(key, "true or false is required")
            return default
        return value

    def settings(self, key: str, usual: _Settings) -> _Settings:
        """Read an optional sub-table of whole numbers and flags into a dataclass.

        Args:
            key: of the sub-table.
            usual: the defaults; each number's annotation has its bounds (``Within``).
        """
        table, chosen = self.table(key, optional=True), dict[str, Any]()
        for name, kind in get_type_hints(type(usual), include_extras=True).items():
            default = getattr(usual, name)
            if kind is bool:
                chosen[name] = table.boolean(name, default=default)
            else:
                _, bounds = get_args(kind)
                chosen[name] = table.integer(
                    name, bounds.lowest, bounds.highest, default=default
                )
        table.finish()
        made: _Settings = replace(cast("Any", usual), **chosen)
        return made

    def path(self, key: str) -> Path:
        """Read an absolute path; a relative one depends on the working directory."""
        value = self.text(key)
        if value and not value.startswith("/"):
            self.problem(key, "must be an absolute path")
        return Path(value)

    def unix_path(self, key: str) -> Path:
        """Read ``unix:`` and an absolute path."""
        value = self.text(key)
        if value and not value.startswith("unix:/"):
            self.problem(key, 'must be "unix:" and an absolute path')
        return Path(value.removeprefix("unix:"))

    def key(self, key: str) -> bytes:
        """Read a log's or a witness's Ed25519 key: in base64, or as a vkey."""
        text = self.text(key)
        try:
            value = public_key_in(text, ED25519, COSIGNATURE_V1)
            value = base64.b64decode(text, validate=True) if value is None else value
        except (RefusedError, ValueError):
            value = b""
        # The value is not quoted: it may be a private key, by mistake.
        if len(value) != KEY_BYTES:
            self.problem(key, f"must be {KEY_BYTES} bytes in base64, or a vkey")
        return value

    def listen(self, key: str) -> Listen:
        """Read a UNIX socket, or an IP address and port."""
        value = self.text(key)
        if value.startswith("unix:/"):
            return Listen(path=Path(value.removeprefix("unix:")))
        # The last colon: an IPv6 address has its own, between brackets.
        host, _, port = value.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not _is_address(host) or not _is_port(port):
            self.problem(key, 'must be "unix:/path" or an IP address and port')
            return Listen()
        return Listen(host=host, port=int(port))

    def table(self, key: str, *, optional: bool = False) -> "Table":
        """Read a sub-table; an optional one may be absent."""
        value = self.values.pop(key, {} if optional else None)
        if not isinstance(value, dict):
            self.problem(key, "a table is required")
            value = {}
        values = cast("dict[str, object]", value)  # TOML's names are texts
        return Table(values, f"{self.place}{key}.", self.problems)

    def tables(self, key: str) -> tuple["Table", ...]:
        """Read an array of tables, at least one."""
        value = self.values.pop(key, None)
        if not isinstance(value, list) or not value:
            self.problem(key, "at least one table is required")
            return ()
        found: list[Table] = []
        for number, item in enumerate(cast("list[object]", value)):
            place = f"{self.place}{key}[{number}]."
            if isinstance(item, dict):
                values = cast("dict[str, object]", item)
                found.append(Table(values, place, self.problems))
            else:
                self.problems.append(f"{place.rstrip('.')}: a table is required")
        return tuple(found)


def is_loopback(host: str) -> bool:
    """Return whether an IP address is a loopback address."""
    return ipaddress.ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    """Accept addresses only; a name could resolve to anything."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_port(port: str) -> bool:
    return port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 2**16  # noqa: PLR2004
