"""DER elements (X.690), as far as vendors' own certificate extensions need them.

Reads tags and lengths in their one canonical form, and nothing of what elements
mean. Tags of more than one byte do not occur there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
_LONG_FORM: Final = 0x80
# A tag number of 31 says that the number is in the bytes that follow.
_TAG_NUMBER: Final = 0x1F


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element.

    Attributes:
        tag: its first byte.
        content: what the length counts.
        encoded: the whole of it.
    """

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """Yield the elements that ``data`` consists of, one after the other.

    Raises:
        ValueError: they are not DER, or not all of ``data``.
    """
    position = 0
    while position < len(data):
        start, length = _length(data, position + 1)
        end = start + length
        tag = data[position]
        # Slices never fail: a length beyond the end would silently give less.
        if end > len(data) or tag & _TAG_NUMBER == _TAG_NUMBER:
            raise ValueError("an element runs past the end, or has a long tag")
        yield Element(tag=tag, content=data[start:end], encoded=data[position:end])
        position = end


def only_element(data: bytes) -> Element:
    """Return the one element that ``data`` is.

    Raises:
        ValueError: there is none, or another one.
    """
    found = tuple(elements(data))
    # Bytes behind the element would be in the signed certificate, but not read.
    if len(found) != 1:
        raise ValueError("not one element")
    return found[0]


def content_of(element: Element, tag: int) -> bytes:
    """Return the content of an element that must be of this kind.

    Raises:
        ValueError: it is of another kind.
    """
    if element.tag != tag:
        raise ValueError("an element of another kind")
    return element.content


def whole_bytes(element: Element) -> bytes:
    """Return the bytes of a BIT STRING that must consist of whole ones.

    So do keys and signatures. A number of unused bits at its front changes nothing
    that a library reads, and gives one object several encodings.

    Raises:
        ValueError: it is no BIT STRING, is empty, or has unused bits.
    """
    content = content_of(element, BIT_STRING)
    if content[:1] != b"\0":
        raise ValueError("a BIT STRING of no whole bytes")
    return content[1:]


def _length(data: bytes, position: int) -> tuple[int, int]:
    """Return where the content begins and how long it is."""
    if position >= len(data):
        raise ValueError("an element has no length")
    first = data[position]
    # X.690, section 8.1.3.4: up to 127 the byte is the length itself.
    if first < _LONG_FORM:
        return position + 1, first
    # Section 8.1.3.5: so many bytes of length follow.
    count = first - _LONG_FORM
    start = position + 1 + count
    length = int.from_bytes(data[position + 1 : start], "big")
    # DER has one spelling of each length (X.690, section 10.1), and no open one.
    if length < _LONG_FORM or length >> 8 * (count - 1) == 0:
        raise ValueError("a length that is not the shortest")
    return start, length
