"""JSON as strictly as evidence needs it.

Refuses what the standard library lets through: duplicate and unknown keys,
numbers that are not plain decimal integers, loose base64, and any depth or
size beyond a bound. Error details name fields and sizes, never values.
"""

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NoReturn, cast

from curtilage.attest.errors import RefusalCode, RefusedError

# A bundle opens about ten objects and arrays, a manifest a few dozen. Bounding
# how many are opened in all also bounds how deep they nest, before parsing.
MAX_OPENED: Final = 256
# 19 decimal digits reach past 2**63 - 1, the largest number any field may hold.
MAX_DIGITS: Final = 19
MAX_INTEGER: Final = 2**63 - 1


def malformed(detail: str) -> RefusedError:
    """Return the refusal for bytes that are not what they should be."""
    return RefusedError(RefusalCode.MALFORMED, detail)


def too_large(detail: str) -> RefusedError:
    """Return the refusal for something beyond its bound."""
    return RefusedError(RefusalCode.TOO_LARGE, detail)


def decode_base64(text: str, where: str) -> bytes:
    """Decode standard base64; only the one canonical spelling passes."""
    try:
        # Without ``validate`` the library passes over whatever is no base64, line ends
        # and worse.
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise malformed(f"{where}: not base64") from None
    # The last character may carry bits that mean nothing, so several texts stand for
    # one value; whatever is hashed would have as many spellings.
    if encode_base64(data) != text:
        raise malformed(f"{where}: base64 is not canonical")
    return data


def encode_base64(data: bytes) -> str:
    """Encode standard base64 with padding."""
    return base64.b64encode(data).decode("ascii")


def decode_base64url(text: str, where: str) -> bytes:
    """Decode base64url without padding (RFC 7515, section 2); one spelling only."""
    padded = text + "=" * (-len(text) % 4)
    try:
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise malformed(f"{where}: not base64url") from None
    if encode_base64url(data) != text:
        raise malformed(f"{where}: base64url is not canonical")
    return data


def encode_base64url(data: bytes) -> str:
    """Encode base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def canonical_json(value: object) -> bytes:
    """Encode with sorted keys, no spaces and ASCII only."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode("ascii")


class Fields:
    """One JSON object, read field by field, each with a type and a bound."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that are present."""
        return tuple(self._values)

    def require(self, expected: Collection[str]) -> None:
        """Refuse unless exactly the expected keys are present."""
        missing = sorted(set(expected) - set(self._values))
        if missing:
            raise malformed(f"{self._where}: missing {', '.join(missing)}")
        unknown = len(set(self._values) - set(expected))
        # Counted and not named: a key is the sender's text, and refusals are shown and
        # logged.
        if unknown:
            raise malformed(f"{self._where}: {unknown} unknown key(s)")

    def text(self, name: str, *, limit: int) -> str:
        """Return a string of at most ``limit`` UTF-8 bytes."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise malformed(f"{self._path(name)}: not a string")
        return self._bounded(name, value, limit)

    def octets(self, name: str, *, limit: int) -> bytes:
        """Return base64 text as at most ``limit`` bytes."""
        # Base64 spends four characters on each three bytes, rounded up.
        text = self.text(name, limit=(limit + 2) // 3 * 4)
        data = decode_base64(text, self._path(name))
        if len(data) > limit:
            raise too_large(f"{self._path(name)}: more than {limit} bytes")
        return data

    def integer(self, name: str, *, maximum: int = MAX_INTEGER) -> int:
        """Return an integer from 0 to ``maximum``."""
        value = self._values.get(name)
        # ``True`` is an ``int`` in Python; without this, a flag would be a time of one
        # second.
        if not isinstance(value, int) or isinstance(value, bool):
            raise malformed(f"{self._path(name)}: not an integer")
        if value > maximum:
            raise malformed(f"{self._path(name)}: larger than {maximum}")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise malformed(f"{self._path(name)}: neither true nor false")
        return value

    def child(self, name: str) -> "Fields":
        """Return a nested object."""
        return _fields(self._values.get(name), self._path(name))

    def children(self, name: str, *, limit: int) -> "tuple[Fields, ...]":
        """Return an array of at most ``limit`` objects."""
        where = self._path(name)
        return tuple(_fields(item, where) for item in self._array(name, limit))

    def texts(self, name: str, *, limit: int, item_limit: int) -> tuple[str, ...]:
        """Return an array of at most ``limit`` strings."""
        items = self._array(name, limit)
        if not all(isinstance(item, str) for item in items):
            raise malformed(f"{self._path(name)}: not an array of strings")
        texts = cast("list[str]", items)
        return tuple(self._bounded(name, item, item_limit) for item in texts)

    def octets_list(
        self, name: str, *, limit: int, item_limit: int
    ) -> tuple[bytes, ...]:
        """Return an array of base64 texts as at most ``limit`` byte strings."""
        texts = self.texts(name, limit=limit, item_limit=(item_limit + 2) // 3 * 4)
        values = tuple(decode_base64(text, self._path(name)) for text in texts)
        if any(len(value) > item_limit for value in values):
            raise too_large(f"{self._path(name)}: more than {item_limit} bytes")
        return values

    def _array(self, name: str, limit: int) -> list[object]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise malformed(f"{self._path(name)}: not an array")
        items = cast("list[object]", value)
        if len(items) > limit:
            raise too_large(f"{self._path(name)}: more than {limit} items")
        return items

    def _bounded(self, name: str, value: str, limit: int) -> str:
        try:
            # JSON can spell half of a character ("\\ud800"), which no file and no hash
            # can hold.
            length = len(value.encode("utf-8"))
        except UnicodeEncodeError:
            raise malformed(f"{self._path(name)}: lone surrogate") from None
        if length > limit:
            raise too_large(f"{self._path(name)}: more than {limit} bytes")
        return value

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}"


def parse_object(
    data: bytes, *, where: str, limit_bytes: int, max_opened: int = MAX_OPENED
) -> Fields:
    """Parse one JSON object of at most ``limit_bytes`` bytes.

    ``max_opened`` bounds how many objects and arrays are opened in all; brackets
    inside strings count too.
    """
    if len(data) > limit_bytes:
        raise too_large(f"{where}: {len(data)} bytes, limit {limit_bytes}")
    # Counted on the bytes before the parser runs: its own recursion would end in an
    # error of Python's, or in C's stack.
    if data.count(b"{") + data.count(b"[") > max_opened:
        raise malformed(f"{where}: more than {max_opened} objects and arrays")
    try:
        value: object = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except (ValueError, RecursionError):
        raise malformed(f"{where}: not JSON") from None
    return _fields(value, where)


def _fields(value: object, where: str) -> Fields:
    if not isinstance(value, dict):
        raise malformed(f"{where}: not an object")
    return Fields(cast("dict[str, object]", value), where)


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        # RFC 8259, section 4, leaves open which of two counts: a signer and a verifier
        # that disagree on it would approve two different texts.
        if name in values:
            raise malformed("duplicate key")
        values[name] = value
    return values


def _integer(text: str) -> int:
    # JSON's own grammar has already refused leading zeros and plus signs.
    # Python converts as many digits as come, in quadratic time, or raises an error of
    # its own.
    if not text.isdigit() or len(text) > MAX_DIGITS:
        raise malformed("number is negative or too long")
    return int(text)


def _refuse_number(_text: str) -> NoReturn:
    raise malformed("number is not an integer")
