"""The register values of a TPM quote, in the forms that tools deliver.

Pure. A value is never shortened or padded: the verifier refuses a wrong length, since
bytes that move between neighbours keep the digest.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.cli.attest.encodings import (
    BOM,
    decode_blob,
    is_text,
    json_bytes,
    strict_json,
)

MAX_VALUES_BYTES: Final = 64 * 1024
"""Of the file; four banks as JSON numbers have less than half of it."""
_PCR_BYTES: Final = 32
_MAX_PCRS: Final = 24
_SHA256: Final = 0x000B
# tpm2-tools write the structures as they lie in memory, little-endian: always
# sixteen selections, each of algorithm, size of the mask, mask and a gap; then lists
# of a count and eight digests, each of size and value.
_COUNT: Final = struct.Struct("<I")
_SELECTION: Final = struct.Struct("<HB4sx")
_SELECTION_END: Final = _COUNT.size + 16 * _SELECTION.size
_DIGESTS: Final = 8
_DIGEST: Final = struct.Struct("<H64s")
_LIST_BYTES: Final = _COUNT.size + _DIGESTS * _DIGEST.size
# As marshaled (TPM 2.0 Library, Part 2, sections 10.6.2 and 10.9.3): one selection
# of count, algorithm, size and mask; then lists of count, and size and value.
_MARSHALED: Final = struct.Struct(">IHB")
_MASKS: Final = (3, 4)

Values = tuple[tuple[int, bytes], ...]


def read_values(file: bytes, *, selected: Callable[[], tuple[int, ...]]) -> Values:
    """Return each register's index and value, in the file's order.

    The file is tpm2-tools' binary one, the marshaled lists, JSON as in ``values_of``,
    or values one after another: those of registers 0 onward where there are 24, else
    those of the quote.

    Args:
        file: the file; empty: no values.
        selected: the registers that the quote is about.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    if not file:
        return ()
    if len(file) > MAX_VALUES_BYTES:
        raise too_large("PCR values: file too large")
    if is_text(file) and file.removeprefix(BOM).strip()[:1] in {b"{", b"["}:
        return values_of(strict_json(file, "PCR values"))
    data = decode_blob(file, "PCR values")
    structured = _serialized(data) or _marshaled(data)
    if structured:
        return structured
    if len(data) % _PCR_BYTES or not data:
        raise malformed(f"PCR values: not of {_PCR_BYTES} bytes each")
    values = [data[at : at + _PCR_BYTES] for at in range(0, len(data), _PCR_BYTES)]
    if len(values) == _MAX_PCRS:
        return tuple(enumerate(values))
    return _paired(selected(), values)


def values_of(found: object) -> Values:
    """Return index and value of registers from a JSON value.

    It is an object by index, also beneath ``pcrs`` and its bank ``sha256``, or an
    array from register 0 onward.

    Raises:
        RefusedError: ``malformed``.
    """
    for name in ("pcrs", "sha256"):
        if isinstance(found, dict) and name in found:
            found = cast("dict[str, object]", found)[name]
    if isinstance(found, dict):
        named = cast("dict[str, object]", found).items()
        return tuple((_index(name), json_bytes(each, "PCR")) for name, each in named)
    if not isinstance(found, list):
        raise malformed("PCR values: neither an object nor an array")
    listed = enumerate(cast("list[object]", found))
    return tuple((index, json_bytes(each, "PCR")) for index, each in listed)


def _index(name: str) -> int:
    digits = name.lower().removeprefix("pcr")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 2:  # noqa: PLR2004
        raise malformed("PCR values: not the number of a register")
    return int(digits)


def _paired(indices: Sequence[int], values: Sequence[bytes]) -> Values:
    if len(indices) != len(values):
        raise malformed(f"PCR values: {len(values)} of {len(indices)} registers")
    return tuple(zip(indices, values, strict=True))


def _indices(mask: bytes) -> list[int]:
    bits = int.from_bytes(mask, "little")
    return [index for index in range(8 * len(mask)) if bits >> index & 1]


def _serialized(data: bytes) -> Values:
    """Read TPML_PCR_SELECTION and the TPML_DIGEST lists after it, little-endian."""
    if len(data) < _SELECTION_END + _COUNT.size:
        return ()
    (selections,) = _COUNT.unpack_from(data)
    algorithm, size, mask = _SELECTION.unpack_from(data, _COUNT.size)
    if selections != 1 or algorithm != _SHA256 or size > len(mask):
        return ()
    return _paired(_indices(mask[:size]), list(_digests(data)))


def _digests(data: bytes) -> Iterator[bytes]:
    (lists,) = _COUNT.unpack_from(data, _SELECTION_END)
    first = _SELECTION_END + _COUNT.size
    if lists > _MAX_PCRS or len(data) != first + lists * _LIST_BYTES:
        raise malformed("PCR values: the length differs from the file's own")
    for start in range(first, len(data), _LIST_BYTES):
        (count,) = _COUNT.unpack_from(data, start)
        for number in range(min(count, _DIGESTS)):
            at = start + _COUNT.size + number * _DIGEST.size
            size, value = _DIGEST.unpack_from(data, at)
            yield value[:size]


def _marshaled(data: bytes) -> Values:
    """Read a TPML_PCR_SELECTION and the TPML_DIGEST lists after it, big-endian."""
    if len(data) < _MARSHALED.size:
        return ()
    selections, algorithm, size = _MARSHALED.unpack_from(data)
    if selections != 1 or algorithm != _SHA256 or size not in _MASKS:
        return ()
    end = _MARSHALED.size + size
    return _paired(
        _indices(data[_MARSHALED.size : end]), list(_marshaled_digests(data, end))
    )


def _marshaled_digests(data: bytes, at: int) -> Iterator[bytes]:
    def cut(size: int) -> bytes:
        nonlocal at
        at += size
        if at > len(data):
            raise malformed("PCR values: the length differs from the file's own")
        return data[at - size : at]

    while at < len(data):
        count = int.from_bytes(cut(4), "big")
        if not 0 < count <= _MAX_PCRS:
            raise malformed("PCR values: an empty or too long list")
        for _ in range(count):
            yield cut(int.from_bytes(cut(2), "big"))
