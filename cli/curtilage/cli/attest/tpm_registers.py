"""Parses the register values of a TPM quote in the formats of common tools.

Pure. A value is never truncated or padded: the verifier refuses a wrong length, since
bytes moved between neighbouring registers would keep the digest.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, cast

from curtilage.attest.encoding.reader import Reader
from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.cli.attest.encodings import (
    BOM,
    decode_blob,
    is_text,
    json_bytes,
    strict_json,
)

MAX_VALUES_BYTES: Final = 64 * 1024
"""Limit of the file; four banks as JSON numbers need less than half of it."""
_PCR_BYTES: Final = 32
_MAX_PCRS: Final = 24
# Both structured forms begin with a count of 1 and the algorithm SHA-256.
_SERIALIZED: Final = struct.pack("<IH", 1, 0x000B)
_MARSHALED: Final = struct.pack(">IH", 1, 0x000B)
# tpm2-tools dump TPML_PCR_SELECTION from memory: always sixteen entries of algorithm,
# size of the mask, mask and padding.
_MASK_BYTES: Final = 4
_REST_OF_SELECTIONS: Final = 1 + 15 * 8
_DIGESTS: Final = 8
_DIGEST_BYTES: Final = 64

Values = tuple[tuple[int, bytes], ...]


def read_values(file: bytes, *, selected: Callable[[], tuple[int, ...]]) -> Values:
    """Return each register's index and value, in the file's order.

    The file is tpm2-tools' binary dump, the marshaled lists, JSON as in ``values_of``,
    or concatenated values: registers 0 onward if there are 24, else those of the quote.

    Args:
        file: the file; empty: no values.
        selected: the registers that the quote covers.

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
    if data.startswith(_SERIALIZED):
        return _serialized(Reader(data[len(_SERIALIZED) :], "PCR values"))
    if data.startswith(_MARSHALED):
        rest = data[len(_MARSHALED) :]
        return _marshaled(Reader(rest, "PCR values", byteorder="big"))
    if len(data) % _PCR_BYTES or not data:
        raise malformed(f"PCR values: not of {_PCR_BYTES} bytes each")
    values = [data[at : at + _PCR_BYTES] for at in range(0, len(data), _PCR_BYTES)]
    # All registers have their numbers by position; fewer could be any.
    if len(values) == _MAX_PCRS:
        return tuple(enumerate(values))
    return _paired(selected(), values)


def values_of(found: object) -> Values:
    """Return indices and values of registers from a JSON value.

    It is an object by index, possibly under ``pcrs`` and its bank ``sha256``, or an
    array from register 0 onward.

    Raises:
        RefusedError: ``malformed``.
    """
    for name in ("pcrs", "sha256"):
        if isinstance(found, dict) and name in found:
            found = cast("dict[str, object]", found)[name]
    if isinstance(found, dict):
        values: list[tuple[int, bytes]] = []
        for name, each in cast("dict[str, object]", found).items():
            digits = name.lower().removeprefix("pcr")
            # ``int`` also accepts digits of other scripts, so that one register could
            # be named in two ways.
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 2):  # noqa: PLR2004
                raise malformed("PCR values: invalid register number")
            values.append((int(digits), json_bytes(each, "PCR")))
        return tuple(values)
    if not isinstance(found, list):
        raise malformed("PCR values: neither an object nor an array")
    listed = enumerate(cast("list[object]", found))
    return tuple((index, json_bytes(each, "PCR")) for index, each in listed)


def _serialized(reader: Reader) -> Values:
    """Parse the rest of a selection and the TPML_DIGEST lists after it."""
    size, mask = reader.number(1), reader.take(_MASK_BYTES)
    if size > _MASK_BYTES:
        raise malformed("PCR values: the mask is too long")
    reader.take(_REST_OF_SELECTIONS)
    values: list[bytes] = []
    for _ in range(reader.number(4)):
        count = reader.number(4)
        for number in range(_DIGESTS):
            length, digest = reader.number(2), reader.take(_DIGEST_BYTES)
            if number < count:
                values.append(digest[:length])
    reader.end()
    return _paired(_indices(mask[:size]), values)


def _marshaled(reader: Reader) -> Values:
    """Parse the same as marshaled by TPM 2.0 Library, Part 2, 10.6.2 and 10.9.3."""
    mask = reader.take(reader.number(1))
    values: list[bytes] = []
    while reader.left:
        count = reader.number(4)
        # Otherwise zeros after the values would be ignored, as empty lists.
        if not count:
            raise malformed("PCR values: an empty list")
        values += [reader.take(reader.number(2)) for _ in range(count)]
    return _paired(_indices(mask), values)


def _indices(mask: bytes) -> list[int]:
    bits = int.from_bytes(mask, "little")
    return [index for index in range(8 * len(mask)) if bits >> index & 1]


def _paired(indices: Sequence[int], values: Sequence[bytes]) -> Values:
    # Never paired as far as they go: a missing value would move all others to wrong
    # registers.
    if len(indices) != len(values):
        raise malformed(f"PCR values: {len(values)} of {len(indices)} registers")
    return tuple(zip(indices, values, strict=True))
