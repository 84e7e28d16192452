"""Bytes out of the files that attestation tools write.

Pure. One tool writes a report as it is, the next as hexadecimal, base64, PEM, a
dump with addresses, a JSON array of numbers or a text in quotes. What a file
holds is told by its bytes alone, never by its name. Nothing is cut off and
nothing is mended: bytes too many stay, so that the verifier sees and refuses
them.

Telling text from bytes cannot go wrong unnoticed: a binary report of which every
byte happened to be printable would be decoded as text, and then refused.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from curtilage.attest.errors import RefusalCode, RefusedError

MAX_FILE_BYTES: Final = 256 * 1024
"""Of one file. The largest genuine one, a quote of 8,000 bytes as a dump with
addresses, has about 40 KiB; a bundle may have as much as this."""
MAX_CERTIFICATES: Final = 16

_TEXT: Final = re.compile(rb"[\t\n\r\x20-\x7e]*")
BOM: Final = b"\xef\xbb\xbf"
"""Windows tools put it before UTF-8 text."""
# An object, or a list that begins with one; white space as RFC 8259, section 2, has it.
_OBJECT: Final = re.compile(rb"(?:\[[\t\n\r ]*)?\{")
_PEM_BEGIN: Final = b"-----BEGIN"
_PEM_HEAD: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----")
_PEM_BODY: Final = re.compile(rb"[A-Za-z0-9+/=\s]*")
# 0x1f, 1f:2b, 1f 2b, {0x1f, 0x2b}: all say the same.
_HEX_NOISE: Final = re.compile(rb"0[xX]|[\s:,;{}]")
_HEX: Final = re.compile(rb"(?:[0-9A-Fa-f]{2})*")
# An address and what stands there: as xxd prints it, and as hexdump and od do.
_DUMP_LINES: Final = (
    re.compile(rb"([0-9A-Fa-f]{4,16}):((?: ?[0-9A-Fa-f]{2})*)(?:  .*)?"),
    re.compile(rb"([0-9A-Fa-f]{4,16})((?: {1,3}[0-9A-Fa-f]{2})*)(?:\s+[|>].*)?"),
)
# In base64 of random bytes two letters of three are no hexadecimal digits. "A" is
# left out, of which base64 of zeros consists.
_HEX_LETTERS: Final = b"0123456789abcdefBCDEF"
_MISTYPED_HEX: Final = 8
_TELLING_LETTERS: Final = 32
_BYTE: Final = range(256)
_SEQUENCE: Final = 0x30
_LONG_FORM: Final = 0x80
_MAX_DER_HEADER: Final = 5


def malformed(detail: str) -> RefusedError:
    """Return the refusal of a file that is not what it should be."""
    return RefusedError(RefusalCode.MALFORMED, detail)


def is_text(data: bytes) -> bool:
    """Tell whether these are printable characters and line ends only."""
    return _TEXT.fullmatch(data.removeprefix(BOM)) is not None


def decode_blob(data: bytes, where: str) -> bytes:
    """Return the bytes that a file means, whichever way it writes them.

    Args:
        data: the file.
        where: what it should hold, for the refusal.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    if len(data) > MAX_FILE_BYTES:
        raise RefusedError(RefusalCode.TOO_LARGE, f"{where}: file too large")
    if not data or not is_text(data):
        return data
    text = data.removeprefix(BOM).strip()
    if text.startswith(b'"'):
        # A JSON text, encoded once: twice would be without end, and no tool does it.
        value = strict_json(text, where)
        if not isinstance(value, str) or value.lstrip().startswith('"'):
            raise malformed(f"{where}: not a text in quotes")
        return json_bytes(value, where)
    # The order decides: hexadecimal digits are base64's as well, and a dump's without
    # its colons are hexadecimal.
    for decode in (_pem_blob, _numbers, _dump, _hex, _base64_blob):
        decoded = decode(text)
        if decoded is not None:
            return decoded
    raise malformed(f"{where}: neither hexadecimal, base64, PEM nor bytes")


def decode_certificates(data: bytes, where: str) -> tuple[bytes, ...]:
    """Return every certificate of a file, DER, in the file's order.

    Takes PEM blocks, DER, several DER one after another, a JSON array of any of
    these as text, and base64 of any of them.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    if len(data) > MAX_FILE_BYTES:
        raise RefusedError(RefusalCode.TOO_LARGE, f"{where}: file too large")
    # Three: an array, of base64, of PEM. Deeper is nobody's form, and each level could
    # be another one.
    every = _certificates(data, where, depth=3)
    # Lazily, so that a thousand of them cost no more than one too many.
    found = tuple(islice(every, MAX_CERTIFICATES + 1))
    if len(found) > MAX_CERTIFICATES:
        raise _too_many(where)
    return found


def decode_der(data: bytes, where: str) -> bytes:
    """Return the one DER object of a file: a certificate, a list, a key.

    Raises:
        RefusedError: ``malformed``, also where there are several.
    """
    if not data:
        return b""
    found = decode_certificates(data, where)
    if len(found) != 1:
        raise malformed(f"{where}: {len(found)} objects where one belongs")
    return found[0]


def decode_json(data: bytes, where: str) -> dict[str, object] | None:
    """Return the JSON object that a file holds, or None where it holds none.

    An array of one object counts as that object.

    Raises:
        RefusedError: ``malformed``: it begins like JSON and is none.
    """
    text = data.removeprefix(BOM).strip()
    if _OBJECT.match(text) is None:
        return None
    if len(data) > MAX_FILE_BYTES:
        raise RefusedError(RefusalCode.TOO_LARGE, f"{where}: file too large")
    value = strict_json(text, where)
    if isinstance(value, list):
        several = cast("list[object]", value)
        value = several[0] if len(several) == 1 else None
    if not isinstance(value, dict):
        raise malformed(f"{where}: not exactly one JSON object")
    return cast("dict[str, object]", value)


def strict_json(text: bytes, where: str) -> object:
    """Return what a JSON text says; a key may stand in an object once.

    Raises:
        RefusedError: ``malformed``.
    """
    try:
        value: object = json.loads(text, object_pairs_hook=_no_duplicates)
    # Deep enough brackets end Python's recursion.
    except (ValueError, RecursionError):
        raise malformed(f"{where}: not JSON, or a key stands there twice") from None
    return value


def json_bytes(value: object, where: str) -> bytes:
    """Return the bytes that a JSON member means: text as above, or numbers.

    Raises:
        RefusedError: ``malformed``.
    """
    if isinstance(value, str):
        try:
            return decode_blob(value.encode("ascii"), where)
        except UnicodeEncodeError:
            raise malformed(f"{where}: not ASCII") from None
    if isinstance(value, list):
        decoded = _octets(cast("list[object]", value))
        if decoded is not None:
            return decoded
    raise malformed(f"{where}: neither text nor an array of bytes")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Which of two is meant, another reader may see otherwise.
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands there twice")
    return fields


def _too_many(where: str) -> RefusedError:
    return RefusedError(RefusalCode.TOO_LARGE, f"{where}: more than {MAX_CERTIFICATES}")


def _certificates(data: bytes, where: str, *, depth: int) -> Iterator[bytes]:
    if not depth:
        raise malformed(f"{where}: encoded too many times")
    text = data.removeprefix(BOM).strip() if is_text(data) else b""
    if text.startswith(b"["):
        value = strict_json(text, where)
        entries = cast("list[object]", value) if isinstance(value, list) else []
        for each in _texts(entries, where):
            yield from _certificates(each, where, depth=depth - 1)
    elif _PEM_BEGIN in text:
        yield from _pem_blocks(text, where)
    elif text:
        yield from _certificates(decode_blob(data, where), where, depth=depth - 1)
    else:
        yield from _der_objects(data, where)


def _texts(entries: list[object], where: str) -> Iterator[bytes]:
    """Return what an array holds: files as text, or the octets of one file."""
    octets = _octets(entries)
    if octets:
        yield octets
        return
    if len(entries) > MAX_CERTIFICATES:
        raise _too_many(where)
    for each in entries:
        if not isinstance(each, str) or not each.isascii():
            raise malformed(f"{where}: an array of something else than text")
        yield each.encode()


def _pem_blocks(text: bytes, where: str) -> Iterator[bytes]:
    """Return each block's bytes; what stands between blocks is a remark."""
    at = text.find(_PEM_BEGIN)
    while at >= 0:
        block = _pem_block(text, at)
        decoded = None if block is None else _base64(block[0])
        if block is None or decoded is None:
            raise malformed(f"{where}: not whole PEM blocks")
        yield decoded
        at = text.find(_PEM_BEGIN, block[1])


def _pem_block(text: bytes, start: int) -> tuple[bytes, int] | None:
    """Return the base64 of the block that begins here, and where it ends."""
    head = _PEM_HEAD.match(text, start)
    if head is None:
        return None
    # Under the name that it began with: two files that ran together are no block.
    last = b"-----END " + head[1] + b"-----"
    end = text.find(last, head.end())
    if end < 0 or _PEM_BODY.fullmatch(text, head.end(), end) is None:
        return None
    return text[head.end() : end], end + len(last)


def _pem_blob(text: bytes) -> bytes | None:
    if not text.startswith(_PEM_BEGIN):
        return None
    block = _pem_block(text, 0)
    return None if block is None or block[1] != len(text) else _base64(block[0])


def _der_objects(data: bytes, where: str) -> Iterator[bytes]:
    """Cut DER objects that follow each other (X.690, sections 8.1.2 and 10.1)."""
    at = 0
    while at < len(data):
        # Not more than a header is read ahead: the length is the file's own claim.
        size = _der_size(data[at : at + _MAX_DER_HEADER])
        if size is None or at + size > len(data):
            raise malformed(f"{where}: neither DER nor PEM")
        yield data[at : at + size]
        at += size


def _der_size(data: bytes) -> int | None:
    """Return the length of the object that begins with these octets, in whole."""
    header = 2
    if len(data) < header or data[0] != _SEQUENCE:
        return None
    first = data[1]
    if first < _LONG_FORM:
        return header + first
    octets = first - _LONG_FORM
    # Three octets say 16 MiB, more than any file has.
    if not 0 < octets <= 3 or len(data) < header + octets:  # noqa: PLR2004
        return None
    return header + octets + int.from_bytes(data[header : header + octets], "big")


def _numbers(text: bytes) -> bytes | None:
    """Read a JSON array of numbers."""
    if not text.startswith(b"["):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _octets(cast("list[object]", value)) if isinstance(value, list) else None


def _octets(values: list[object]) -> bytes | None:
    # Exactly an integer: true and false are integers of Python's, and no bytes.
    numbers = [each for each in values if type(each) is int and each in _BYTE]
    return bytes(numbers) if len(numbers) == len(values) else None


def _hex(text: bytes) -> bytes | None:
    digits = _HEX_NOISE.sub(b"", text)
    return bytes.fromhex(digits.decode()) if _HEX.fullmatch(digits) else None


def _dump(text: bytes) -> bytes | None:
    """Read what xxd, ``hexdump -C`` and ``od -A x -t x1`` print.

    A line of one asterisk repeats the line before up to the next address. Each
    address must be where it says; so plain digits are not taken for a dump.
    """
    decoded, row, folded = bytearray(), b"", False
    lines = text.splitlines()
    if len(lines) == 1 and b":" not in text:
        return None
    for line in (each.strip() for each in lines):
        if line == b"*" and row:
            folded = True
            continue
        address, found = _dump_line(line)
        if folded:
            if not len(decoded) <= address <= MAX_FILE_BYTES:
                return None
            decoded += row * ((address - len(decoded)) // len(row))
            folded = False
        if address != len(decoded):
            return None
        row = found
        decoded += row
    return None if folded else bytes(decoded)


def _dump_line(line: bytes) -> tuple[int, bytes]:
    """Return a line's address and bytes; address -1 where it has none."""
    for pattern in _DUMP_LINES:
        whole = pattern.fullmatch(line)
        if whole is not None:
            return int(whole[1], 16), bytes.fromhex(whole[2].decode())
    return -1, b""


def _base64_blob(text: bytes) -> bytes | None:
    """Read base64 that is not hexadecimal with a wrong letter in it.

    Such a text would give other bytes, and they another, misleading refusal.
    """
    telling = b"".join(text.split()).replace(b"A", b"")
    others = len(telling.translate(None, _HEX_LETTERS))
    if text.startswith(_PEM_BEGIN) or (
        len(telling) >= _TELLING_LETTERS and others * _MISTYPED_HEX < len(telling)
    ):
        return None
    return _base64(text)


def _base64(text: bytes) -> bytes | None:
    """Read base64 or base64url, with or without padding and line ends."""
    joined = b"".join(text.split()).translate(bytes.maketrans(b"-_", b"+/"))
    try:
        padded = joined + b"=" * (-len(joined) % 4)
        # Without ``validate`` the library would pass over whatever is no base64.
        return base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        return None
