"""The only door to cbor2: bounded CBOR (RFC 8949) without tags and duplicates.

Every byte is walked before the library sees any of it: depth, number of items
and every length are checked against what is there, and only the types that
evidence is made of come through. No tag, no float and no string in pieces, so
no decoder of the library's (dates, fractions, expressions, shared references)
can be reached.
"""

from typing import Final, TypeAlias

from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.attest.errors import RefusalCode, RefusedError

MAX_DEPTH: Final = 4
MAX_ITEMS: Final = 512

CborValue: TypeAlias = (
    "bool | int | str | bytes | list[CborValue] | dict[int | str, CborValue] | None"
)

_UNSIGNED: Final = 0
_NEGATIVE: Final = 1
_BYTES: Final = 2
_TEXT: Final = 3
_ARRAY: Final = 4
_MAP: Final = 5
_SIMPLE: Final = 7
_KEY_TYPES: Final = frozenset({_UNSIGNED, _NEGATIVE, _TEXT})
# False, true, null.
_SIMPLE_VALUES: Final = frozenset({20, 21, 22})
# The additional information of an initial byte (RFC 8949, section 3).
_ONE_BYTE: Final = 24
_EIGHT_BYTES: Final = 27
_INDEFINITE: Final = 31
_BREAK: Final = 0xFF
# The smallest number that deserves each longer form (section 4.2.1).
_SMALLEST: Final = {1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}


def decode(
    data: bytes, *, where: str, limit_bytes: int, canonical: bool = False
) -> CborValue:
    """Decode exactly one item.

    Args:
        data: longer than ``limit_bytes`` is refused unread.
        where: what this is, for a refusal.
        limit_bytes: the largest size.
        canonical: also refuse indefinite lengths and numbers in a longer form
            than they need (section 4.2.1, without the order of keys).

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``verifier_unavailable``.
    """
    # Unread: nothing of a message that is too long is worth a step.
    if len(data) > limit_bytes:
        raise too_large(f"{where}: {len(data)} bytes, limit {limit_bytes}")
    # Twice over the bytes, and the first time without building anything. So an array
    # that announces 2**32 members costs nothing.
    walk = _Walk(data, where, canonical=canonical)
    walk.item(MAX_DEPTH)
    # One item and the end. Anything behind it would not be signed, or be read by
    # another parser.
    if walk.at != len(data):
        raise malformed(f"{where}: trailing bytes")
    try:
        import cbor2  # noqa: PLC0415 - an extra: without it, refuse
    except ImportError:
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "cbor2 is not installed"
        ) from None
    try:
        value: CborValue = cbor2.loads(
            data, max_depth=MAX_DEPTH + 1, allow_duplicate_keys=False
        )
    # What remains for the library to find: duplicate keys, and text that is no
    # UTF-8. Its error may quote the bytes.
    except (cbor2.CBORError, ValueError):
        raise malformed(f"{where}: not CBOR") from None
    return value


def encode_octets(data: bytes) -> bytes:
    """Encode a byte string in its shortest form."""
    for size, smallest in reversed(_SMALLEST.items()):
        if len(data) >= smallest:
            information = _ONE_BYTE + size.bit_length() - 1
            head = bytes([_BYTES << 5 | information])
            return head + len(data).to_bytes(size, "big") + data
    return bytes([_BYTES << 5 | len(data)]) + data


class _Walk:
    """Walks over items without building them."""

    def __init__(self, data: bytes, where: str, *, canonical: bool) -> None:
        self.at = 0
        self._data = data
        self._where = where
        self._canonical = canonical
        self._items = 0

    def item(self, depth: int) -> None:
        """Walk over one item that may open ``depth`` containers."""
        self._items += 1
        # Counted in all and not per container, or containers in containers would
        # multiply.
        if self._items > MAX_ITEMS:
            raise too_large(f"{self._where}: more than {MAX_ITEMS} items")
        major, information = divmod(self._peek(), 32)
        self.at += 1
        if major in {_ARRAY, _MAP}:
            self._container(major, information, depth)
        elif major in {_BYTES, _TEXT}:
            self._string(self._number(information))
        elif major in {_UNSIGNED, _NEGATIVE}:
            self._number(information)
        # Tags are where decoders have had their holes: dates, big numbers, references
        # back into the message.
        elif major != _SIMPLE or information not in _SIMPLE_VALUES:
            raise malformed(f"{self._where}: a tag, a float or a simple value")

    def _container(self, major: int, information: int, depth: int) -> None:
        # The walk is recursive, so its depth is bounded before Python's stack is.
        if depth == 0:
            raise malformed(f"{self._where}: more than {MAX_DEPTH} levels")
        if information == _INDEFINITE and not self._canonical:
            while self._peek() != _BREAK:
                self._member(major, depth - 1)
            self.at += 1
            return
        for _ in range(self._number(information)):
            self._member(major, depth - 1)

    def _member(self, major: int, depth: int) -> None:
        if major == _MAP:
            # A container as a key would have to be hashed, and some readers do not
            # distinguish bytes and text.
            if self._peek() >> 5 not in _KEY_TYPES:
                raise malformed(f"{self._where}: a key is no number and no text")
            self.item(depth)
        self.item(depth)

    def _string(self, length: int) -> None:
        # Before anything is taken: the length is the sender's.
        if length > len(self._data) - self.at:
            raise malformed(f"{self._where}: truncated")
        self.at += length

    def _number(self, information: int) -> int:
        if information < _ONE_BYTE:
            return information
        if information > _EIGHT_BYTES:
            raise malformed(f"{self._where}: a length is reserved or indefinite")
        size = 1 << (information - _ONE_BYTE)
        start = self.at
        self._string(size)
        number = int.from_bytes(self._data[start : self.at], "big")
        # A second spelling of one number (RFC 8949, section 4.2.1) is a second spelling
        # of whatever is hashed.
        if self._canonical and number < _SMALLEST[size]:
            raise malformed(f"{self._where}: a number is not in its shortest form")
        return number

    def _peek(self) -> int:
        if self.at >= len(self._data):
            raise malformed(f"{self._where}: truncated")
        return self._data[self.at]
