"""Bytes from evidence files: raw, PEM, base64, hexadecimal or JSON.

Pure. The form is recognised by the bytes alone, never by the file's name. Text in
any other form is refused, and so is text that could be read in two ways. Nothing is
cut off or repaired: the verifier sees superfluous bytes and refuses them. If every
byte of a binary report were printable, it would be decoded as text and then refused.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from curtilage.attest.encoding import der
from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.cli.json_lines import unique_keys

MAX_FILE_BYTES: Final = 256 * 1024
"""Limit of one file. The largest genuine evidence, a quote in a buffer of 8,000 bytes,
takes 40 KiB as a JSON array of numbers; a bundle may reach the limit."""
# More than any chain, so that a file of thousands of certificates is not parsed.
MAX_CERTIFICATES: Final = 16
FORMS: Final = (
    "accepted are raw bytes, PEM, base64, hexadecimal (white space and a leading 0x "
    "allowed), or the documented JSON object"
)
BOM: Final = b"\xef\xbb\xbf"
"""Windows tools put it before UTF-8 text."""

_TEXT: Final = re.compile(rb"[\t\n\r\x20-\x7e]*")
_LIST_OF_OBJECTS: Final = re.compile(rb"\[\s*\{")
_PEM_BEGIN: Final = b"-----BEGIN"
# Both ends must have the same label: two concatenated files are not one block.
_PEM: Final = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]{1,64})-----([A-Za-z0-9+/=\s]*+)-----END \1-----"
)
_HEX: Final = re.compile(rb"(?:0[xX])?((?:[0-9A-Fa-f]{2})*+)")
# Two thirds of the letters in base64 of random bytes are not hexadecimal digits. "A"
# does not count: base64 of zeros consists of it.
_HEX_LETTERS: Final = b"0123456789abcdefBCDEF"
_MISTYPED_HEX: Final = 8
_LONG: Final = 32
_BYTE: Final = range(256)


def is_text(data: bytes) -> bool:
    """Return whether these are printable characters and line ends only."""
    return _TEXT.fullmatch(data.removeprefix(BOM)) is not None


def decode_blob(data: bytes, where: str) -> bytes:
    """Return the bytes of a file that is raw, PEM, hexadecimal or base64.

    Args:
        data: the file.
        where: what it should hold, for the refusal.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    # Once: text inside text could be read in two ways by two programs.
    decoded = _decode_once(data, where)
    return data if decoded is data else _refuse_text(decoded, where)


def decode_certificates(
    data: bytes, where: str, *, wrapped: bool = False
) -> tuple[bytes, ...]:
    """Return every certificate of a file, DER, in the file's order.

    The file has PEM blocks, DER objects one after another, or base64 or hexadecimal
    of such objects.

    Args:
        data: the file.
        where: what it should hold, for the refusal.
        wrapped: base64 of PEM is accepted too, as NVIDIA's tools write it.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    _refuse_large(data, where)
    if is_text(data) and _PEM_BEGIN not in data:
        data = (_decode_once if wrapped else decode_blob)(data, where)
    objects = _pem_blocks if is_text(data) else _der_objects
    # Lazily: parsing stops at the first certificate over the limit.
    found = tuple(islice(objects(data, where), MAX_CERTIFICATES + 1))
    if len(found) > MAX_CERTIFICATES:
        raise too_large(f"{where}: more than {MAX_CERTIFICATES}")
    return found


def decode_der(data: bytes, where: str) -> bytes:
    """Return the one DER object of a file: a certificate, a list, a key.

    Raises:
        RefusedError: ``malformed``, also where there are several.
    """
    found = decode_certificates(data, where)
    if data and len(found) != 1:
        raise malformed(f"{where}: {len(found)} objects instead of one")
    return b"".join(found)


def decode_json(
    data: bytes, where: str, *, listed: bool = False
) -> dict[str, object] | None:
    """Return the JSON object of a file, or None where the file is not JSON.

    Args:
        data: the file.
        where: what it should hold, for the refusal.
        listed: an array of one object counts as that object.

    Raises:
        RefusedError: ``malformed``, where it begins like such JSON and is not, or
            ``too_large``.
    """
    text = data.removeprefix(BOM).strip()
    if not text.startswith(b"{") and not (listed and _LIST_OF_OBJECTS.match(text)):
        return None
    _refuse_large(data, where)
    value = strict_json(text, where)
    if isinstance(value, list):
        several = cast("list[object]", value)
        value = several[0] if len(several) == 1 else None
    if not isinstance(value, dict):
        raise malformed(f"{where}: not exactly one JSON object")
    return cast("dict[str, object]", value)


def strict_json(data: bytes, where: str) -> object:
    """Return the value of a JSON text in which no object has a key twice.

    Raises:
        RefusedError: ``malformed``.
    """
    try:
        text = data.removeprefix(BOM).decode()
        value: object = json.loads(text, object_pairs_hook=unique_keys)
    # Deeply nested brackets exceed Python's recursion limit.
    except (ValueError, RecursionError):
        raise malformed(f"{where}: not JSON, or a key is repeated; {FORMS}") from None
    return value


def json_bytes(value: object, where: str) -> bytes:
    """Return the bytes of a JSON member: text as in a file, or an array of numbers.

    Raises:
        RefusedError: ``malformed``.
    """
    member = json_file(value, where)
    return decode_blob(member, where) if isinstance(value, str) else member


def json_file(value: object, where: str) -> bytes:
    """Return a JSON member as a file would hold it; text is not decoded.

    Raises:
        RefusedError: ``malformed``.
    """
    if isinstance(value, str) and value.isascii() and is_text(value.encode()):
        return value.encode()
    if isinstance(value, list):
        entries = cast("list[object]", value)
        # Exactly integers: true and false are integers in Python, and are not bytes.
        numbers = [each for each in entries if type(each) is int and each in _BYTE]
        if len(numbers) == len(entries):
            return _refuse_text(bytes(numbers), where)
    raise malformed(
        f"{where}: neither PEM, base64 or hexadecimal text, nor an array of bytes"
    )


def _refuse_large(data: bytes, where: str) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise too_large(f"{where}: file too large")


def _refuse_text(decoded: bytes, where: str) -> bytes:
    # Text inside text: base64 of hexadecimal, numbers that spell PEM.
    if decoded.strip() and is_text(decoded):
        raise malformed(f"{where}: encoded more than once; {FORMS}")
    return decoded


def _decode_once(data: bytes, where: str) -> bytes:
    _refuse_large(data, where)
    if not is_text(data):
        return data
    text = data.removeprefix(BOM).strip()
    groups = text.split()
    # A dump with addresses (the first one is zeros, in another width than the data) or
    # numbers that each begin with 0x: read as plain hexadecimal or base64, such text
    # would yield other bytes.
    several = len(groups) > 1
    dump = several and not groups[0].strip(b"0") and len(groups[0]) != len(groups[1])
    numbers = several and all(each[:2] in {b"0x", b"0X"} for each in groups)
    decoded = None
    if _PEM_BEGIN in text:
        block = _PEM.fullmatch(text)
        decoded = None if block is None else _base64(block[2])
    elif not (dump or numbers):
        # The order matters: hexadecimal digits are also base64 letters.
        digits = _HEX.fullmatch(joined := b"".join(groups))
        significant = joined.replace(b"A", b"")
        others = len(significant.translate(None, _HEX_LETTERS))
        if digits:
            decoded = bytes.fromhex(digits[1].decode())
        # Hexadecimal with a wrong letter, decoded as base64, would cause a misleading
        # refusal.
        elif len(significant) < _LONG or others * _MISTYPED_HEX >= len(significant):
            decoded = _base64(joined)
    if decoded is None:
        raise malformed(f"{where}: {FORMS}")
    return decoded


def _base64(text: bytes) -> bytes | None:
    """Read base64 or base64url, with or without padding and line ends."""
    joined = b"".join(text.split()).translate(bytes.maketrans(b"-_", b"+/"))
    try:
        padded = joined + b"=" * (-len(joined) % 4)
        # Without ``validate`` the library skips invalid characters.
        return base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _pem_blocks(text: bytes, where: str) -> Iterator[bytes]:
    """Yield the bytes of each block; text between blocks is ignored as a comment."""
    # Without a block, only white space is accepted; PEM inside JSON is not a PEM file.
    remark, *rest = text.removeprefix(BOM).strip().split(_PEM_BEGIN)
    if (remark and not rest) or remark.startswith((b"[", b"{", b'"')):
        raise malformed(f"{where}: {FORMS}")
    for each in rest:
        block = _PEM.match(_PEM_BEGIN + each)
        decoded = None if block is None else _base64(block[2])
        if decoded is None:
            raise malformed(f"{where}: not whole PEM blocks; {FORMS}")
        yield decoded


def _der_objects(data: bytes, where: str) -> Iterator[bytes]:
    """Yield DER objects that follow each other (X.690, sections 8.1.2 and 10.1)."""
    try:
        for each in der.elements(data):
            # A certificate, a list and a key are each a SEQUENCE. Zeros as padding
            # would otherwise be read as empty objects.
            der.content_of(each, der.SEQUENCE)
            yield each.encoded
    except ValueError:
        raise malformed(f"{where}: neither PEM nor DER; {FORMS}") from None
