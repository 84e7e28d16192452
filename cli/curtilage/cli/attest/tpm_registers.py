"""The register values of a TPM quote, as tools write them beside it.

Pure. A value is never shortened or filled up: one of a wrong length is for the
verifier to refuse, since bytes that move between neighbours keep the digest.
"""

import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, cast

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.encodings import (
    BOM,
    decode_blob,
    is_text,
    json_bytes,
    malformed,
    strict_json,
)

MAX_VALUES_BYTES: Final = 64 * 1024
"""Of the file; four banks as JSON numbers have less than half of it."""
_PCR_BYTES: Final = 32
_MAX_PCRS: Final = 24
_SHA256: Final = 0x000B
# tpm2-tools write the structures as they lie in memory, little-endian: always
# sixteen selections, each of algorithm, size of the mask, mask and a gap.
_SELECTIONS: Final = 16
_COUNT: Final = struct.Struct("<I")
_SELECTION: Final = struct.Struct("<HB4sx")
_DIGESTS: Final = 8
_DIGEST: Final = struct.Struct("<H64s")
_SELECTION_END: Final = _COUNT.size + _SELECTIONS * _SELECTION.size
# "0: 0x00aa…", "pcr7=00aa…", also as tpm2_pcrread prints it below "sha256:".
_LINE: Final = re.compile(r"(?:pcr\s*)?(\d{1,2})\s*[:=]\s*(?:0x)?([0-9a-fA-F]+)")
_BANK: Final = re.compile(r"(sha\d{1,3})\s*:", re.IGNORECASE)
# What else tpm2_quote prints around them.
_OTHER_LINE: Final = re.compile(r"(?:quoted|signature|alg|sig|calcDigest|pcrs)\s*:.*")
# As marshaled (TPM 2.0 Library, Part 2, sections 10.6.2 and 10.9.3): one selection
# of count, algorithm, size and mask; then lists of count, and size and value.
_MARSHALED: Final = struct.Struct(">IHB")
_MARSHALED_COUNT: Final = struct.Struct(">I")
_MARSHALED_SIZE: Final = struct.Struct(">H")
_MASKS: Final = (3, 4)

Values = tuple[tuple[int, bytes], ...]


def read_values(file: bytes, *, selected: Callable[[], tuple[int, ...]]) -> Values:
    """Return each register's index and value, in the file's order.

    Takes tpm2-tools' serialized form, the marshaled one, what tpm2_pcrread and
    tpm2_quote print, lines or JSON of index and hexadecimal, an array of values,
    and values one after another. Values without indices are
    those of registers 0 onward where there are 24, else those of the quote.

    Args:
        file: the file; empty: no values.
        selected: the registers that the quote is about.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    if not file:
        return ()
    if len(file) > MAX_VALUES_BYTES:
        raise RefusedError(RefusalCode.TOO_LARGE, "PCR values: file too large")
    listed = tuple(_listed(file)) if is_text(file) else ()
    if listed:
        return listed
    data = decode_blob(file, "PCR values")
    structured = _serialized(data) or _marshaled(data)
    if structured:
        return structured
    if len(data) % _PCR_BYTES or not data:
        raise malformed(f"PCR values: not of {_PCR_BYTES} bytes each")
    starts = range(0, len(data), _PCR_BYTES)
    values = [data[at : at + _PCR_BYTES] for at in starts]
    if len(values) == _MAX_PCRS:
        return tuple(enumerate(values))
    indices = selected()
    if len(indices) != len(values):
        raise malformed("PCR values: not as many as the quote is about")
    return tuple(zip(indices, values, strict=True))


def values_of(found: object) -> Values:
    """Return index and value of registers as a JSON value has them.

    An object by index, also beneath ``pcrs`` and its bank, or an array from
    register 0 onward.

    Raises:
        RefusedError: ``malformed``.
    """
    for name in ("pcrs", "sha256"):
        if isinstance(found, dict) and name in found:
            fields = cast("dict[str, object]", found)
            found = fields[name]
    if isinstance(found, dict):
        named = cast("dict[str, object]", found).items()
        return tuple((_index(name), json_bytes(each, "PCR")) for name, each in named)
    if not isinstance(found, list):
        raise malformed("PCR values: neither an object nor an array")
    listed = enumerate(cast("list[object]", found))
    return tuple((index, json_bytes(each, "PCR")) for index, each in listed)


def _listed(file: bytes) -> Iterator[tuple[int, bytes]]:
    text = file.removeprefix(BOM).strip()
    if text.startswith((b"{", b"[")):
        yield from values_of(strict_json(text, "PCR values"))
        return
    bank = "sha256"
    for line in (each.strip() for each in re.split(r"[,\n]", text.decode("ascii"))):
        named = _BANK.fullmatch(line)
        value = _LINE.fullmatch(line)
        # tpm2_pcrread lists every bank; values of another one, taken for SHA-256's,
        # would be refused as of a wrong length.
        if named is not None:
            bank = named[1].lower()
        elif value is not None and bank == "sha256":
            yield int(value[1]), _hex(value[2])
        elif value is None and not _OTHER_LINE.fullmatch(line):
            return


def _index(name: str) -> int:
    digits = name.lower().removeprefix("pcr")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 2:  # noqa: PLR2004
        raise malformed("PCR values: not the number of a register")
    return int(digits)


def _hex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise malformed("PCR values: half a byte") from None


def _serialized(data: bytes) -> Values:
    """Read TPML_PCR_SELECTION and the TPML_DIGEST lists after it."""
    # The count's upper octets: where they are not zeros, these are values themselves.
    if len(data) < _SELECTION_END + _COUNT.size or data[1:4] != bytes(3):
        return ()
    (selections,) = _COUNT.unpack_from(data)
    if selections != 1:
        return ()
    algorithm, size, mask = _SELECTION.unpack_from(data, _COUNT.size)
    if algorithm != _SHA256 or size > len(mask):
        return ()
    bits = int.from_bytes(mask[:size], "little")
    indices = [index for index in range(8 * size) if bits >> index & 1]
    values = list(_digests(data))
    if len(indices) != len(values):
        raise malformed("PCR values: not as many as the file selects")
    return tuple(zip(indices, values, strict=True))


def _digests(data: bytes) -> Iterator[bytes]:
    at = _SELECTION_END + _COUNT.size
    (lists,) = _COUNT.unpack_from(data, _SELECTION_END)
    whole = _COUNT.size + _DIGESTS * _DIGEST.size
    if lists > _MAX_PCRS or len(data) != at + lists * whole:
        raise malformed("PCR values: another length than the file says")
    for start in range(at, len(data), whole):
        (count,) = _COUNT.unpack_from(data, start)
        for number in range(min(count, _DIGESTS)):
            place = start + _COUNT.size + number * _DIGEST.size
            size, value = _DIGEST.unpack_from(data, place)
            yield value[:size]


def _marshaled(data: bytes) -> Values:
    """Read a TPML_PCR_SELECTION and the TPML_DIGEST lists after it, big-endian."""
    if len(data) < _MARSHALED.size:
        return ()
    selections, algorithm, size = _MARSHALED.unpack_from(data)
    if selections != 1 or algorithm != _SHA256 or size not in _MASKS:
        return ()
    end = _MARSHALED.size + size
    bits = int.from_bytes(data[_MARSHALED.size : end], "little")
    indices = [index for index in range(8 * size) if bits >> index & 1]
    values = list(_marshaled_digests(data, end))
    if len(indices) != len(values):
        raise malformed("PCR values: not as many as the file selects")
    return tuple(zip(indices, values, strict=True))


def _marshaled_digests(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data):
        (count,) = _MARSHALED_COUNT.unpack(_cut(data, at, _MARSHALED_COUNT.size))
        at += _MARSHALED_COUNT.size
        if not 0 < count <= _MAX_PCRS:
            raise malformed("PCR values: an empty or too long list")
        for _ in range(count):
            (size,) = _MARSHALED_SIZE.unpack(_cut(data, at, _MARSHALED_SIZE.size))
            at += _MARSHALED_SIZE.size
            yield _cut(data, at, size)
            at += size


def _cut(data: bytes, at: int, octets: int) -> bytes:
    if at + octets > len(data):
        raise malformed("PCR values: another length than the file says")
    return data[at : at + octets]
