"""Reads another service's JSON document member by member, each with a type and a bound.

Pure. Unlike a bundle of our own, such a document may have members that this release
does not know: they are passed over, and nothing is concluded from them. A member that
is read has exactly one meaning, or the document is refused.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from curtilage.attest.encoding.strict_json import decode_base64, malformed, too_large
from curtilage.cli.attest.encodings import BOM
from curtilage.cli.json_lines import unique_keys

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
"""Limit of a document. The largest genuine one, a gateway's with eight GPUs for each
model and an event log for each machine, takes 1.5 MiB."""
MAX_PART_BYTES: Final = 1024 * 1024
"""Limit of one text or byte string inside."""
MAX_OPENED: Final = 20_000
"""Limit of objects and arrays in a document; an event log opens some hundreds."""

_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*+")


class Members:
    """One JSON object of a document.

    Args:
        values: the object.
        where: its name, for refusals.
    """

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where

    @property
    def where(self) -> str:
        """The object's name in refusals."""
        return self._where

    @property
    def names(self) -> frozenset[str]:
        """The names of the members that are present and not null."""
        return frozenset(
            name for name, value in self._values.items() if value is not None
        )

    def has(self, *names: str) -> bool:
        """Return whether all of these members are present and not null."""
        return self.names.issuperset(names)

    def value(self, name: str) -> object:
        """Return a member of any kind; None if it is absent."""
        return self._values.get(name)

    def text(self, name: str, *, limit: int = MAX_PART_BYTES) -> str:
        """Return a string of at most ``limit`` characters."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise malformed(f"{self._path(name)}: not a string")
        if len(value) > limit:
            raise too_large(f"{self._path(name)}: more than {limit} characters")
        # JSON can spell half of a character, which no file and no hash can hold.
        try:
            value.encode()
        except UnicodeEncodeError:
            raise malformed(f"{self._path(name)}: lone surrogate") from None
        return value

    def hexadecimal(self, name: str, *, length: int | None = None) -> bytes:
        """Return hexadecimal text as bytes, of exactly ``length`` if that is given."""
        text = self.text(name).removeprefix("0x")
        # Python's own reader also takes spaces between the digits.
        if not _HEX.fullmatch(text):
            raise malformed(f"{self._path(name)}: not hexadecimal")
        return self._sized(name, bytes.fromhex(text), length)

    def base64(
        self, name: str, *, length: int | None = None, limit: int = MAX_PART_BYTES
    ) -> bytes:
        """Return base64 text as bytes, of exactly ``length`` if that is given."""
        data = decode_base64(self.text(name, limit=limit), self._path(name))
        return self._sized(name, data, length)

    def child(self, name: str) -> "Members":
        """Return a nested object."""
        return members_of(self._values.get(name), self._path(name))

    def children(self, name: str, *, limit: int) -> "tuple[Members, ...]":
        """Return an array of at most ``limit`` objects."""
        entries = self.entries(name, limit=limit)
        return tuple(members_of(each, self._path(name)) for each in entries)

    def entries(self, name: str, *, limit: int) -> list[object]:
        """Return an array of at most ``limit`` values of any kind."""
        return listed(self._values.get(name), self._path(name), limit=limit)

    def texts(self, name: str, *, limit: int) -> tuple[str, ...]:
        """Return an array of at most ``limit`` strings."""
        entries = self.entries(name, limit=limit)
        if not all(isinstance(each, str) for each in entries):
            raise malformed(f"{self._path(name)}: not an array of strings")
        return tuple(cast("list[str]", entries))

    def _sized(self, name: str, data: bytes, length: int | None) -> bytes:
        if length is not None and len(data) != length:
            raise malformed(f"{self._path(name)}: not {length} bytes")
        return data

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}"


def read_document(data: bytes, where: str) -> Members:
    """Return the one JSON object of a document.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    return members_of(read_value(data, where), where)


def read_value(data: bytes, where: str) -> object:
    """Return the value of a JSON text in which no object has a key twice.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise too_large(f"{where}: more than {MAX_DOCUMENT_BYTES} bytes")
    # Counted before the parser runs, which would otherwise build what is refused.
    if data.count(b"{") + data.count(b"[") > MAX_OPENED:
        raise too_large(f"{where}: more than {MAX_OPENED} objects and arrays")
    try:
        value: object = json.loads(
            data.removeprefix(BOM).decode(), object_pairs_hook=unique_keys
        )
    # Deeply nested brackets exceed Python's recursion limit.
    except (ValueError, RecursionError):
        raise malformed(f"{where}: not JSON, or a key is repeated") from None
    return value


def members_of(value: object, where: str) -> Members:
    """Return a JSON value that is an object.

    Raises:
        RefusedError: ``malformed``: it is something else.
    """
    if not isinstance(value, dict):
        raise malformed(f"{where}: not an object")
    return Members(cast("dict[str, object]", value), where)


def listed(value: object, where: str, *, limit: int) -> list[object]:
    """Return a JSON value that is an array of at most ``limit`` values.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    if not isinstance(value, list):
        raise malformed(f"{where}: not an array")
    entries = cast("list[object]", value)
    if len(entries) > limit:
        raise too_large(f"{where}: more than {limit} entries")
    return entries
