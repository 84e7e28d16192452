"""The certificate table that a host hands to its SEV-SNP guests.

Pure. What ``auxblob`` of configfs-tsm and the extended guest request hold: rows
of GUID, offset and length, little-endian, ended by a row of zeros (Guest-host
communication block standard, section 4.1.8.1). Rows stand in any order.
"""

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from curtilage.cli.attest.encodings import decode_blob, malformed

_ROW: Final = struct.Struct("<16sII")
_MAX_ROWS: Final = 16
_CERTIFICATES: Final = frozenset(
    uuid.UUID(text)
    for text in (
        "63da758d-e664-4564-adc5-f4b93be8accd",  # VCEK
        "a8074bc2-a25a-483e-aae6-39c045a0b8a1",  # VLEK
        "4ab7b379-bbac-4fe4-a02f-05aef327c782",  # ASK
        "c0b406a4-a803-4952-9743-3fb6014cd0ae",  # ARK
    )
)
_CRL: Final = uuid.UUID("92f81bc3-5811-4d3d-97ff-d19f88dc67ea")
_KNOWN: Final = _CERTIFICATES | {_CRL}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    """What a table holds.

    Attributes:
        certificates: DER, in the table's order.
        crl: the revocation list, DER; empty where there is none.
    """

    certificates: tuple[bytes, ...] = field(default=(), repr=False)
    crl: bytes = field(default=b"", repr=False)


def read_table(file: bytes, *, encoded: bool = True) -> HostTable | None:
    """Return what a table holds, or None where the file is none.

    Args:
        file: the table.
        encoded: it may be written as text; False: these are its bytes.

    Raises:
        RefusedError: ``malformed``: a row points outside.
    """
    data = decode_blob(file, "certificate table") if encoded else file
    if all(_guid(name) not in _KNOWN for name, _, _ in _rows(data)):
        return None
    certificates: list[bytes] = []
    crls: list[bytes] = []
    rows = list(_rows(data))
    for name, offset, length in rows:
        if offset + length > len(data):
            raise malformed("certificate table: a row points outside")
        guid = _guid(name)
        if guid in _KNOWN:
            kept = crls if guid == _CRL else certificates
            kept.append(data[offset : offset + length])
    # Without the row of zeros it was cut off, and would seem to hold fewer than it did.
    last = data[len(rows) * _ROW.size : (len(rows) + 1) * _ROW.size]
    if len(rows) == _MAX_ROWS or len(last) < _ROW.size:
        raise malformed("certificate table: no end, or too many rows")
    if len(crls) > 1:
        raise malformed("certificate table: several revocation lists")
    return HostTable(certificates=tuple(certificates), crl=b"".join(crls))


def _rows(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the rows before the one of zeros, as many as may be and are whole."""
    end = min(len(data) // _ROW.size, _MAX_ROWS) * _ROW.size
    for name, offset, length in _ROW.iter_unpack(data[:end]):
        if not any(name):
            return
        yield name, offset, length


def _guid(data: bytes) -> uuid.UUID:
    # Hosts differ in the byte order of GUIDs; no two of ours are confused by it.
    plain = uuid.UUID(bytes=data)
    return plain if plain in _KNOWN else uuid.UUID(bytes_le=data)
