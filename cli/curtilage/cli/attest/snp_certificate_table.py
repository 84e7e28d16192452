"""The certificate table that a host passes to its SEV-SNP guests.

Pure. The content of ``auxblob`` in configfs-tsm and of the extended guest request:
rows of GUID, offset and length, little-endian, ended by a row of zeros (Guest-host
communication block standard, section 4.1.8.1). Rows have any order.
"""

import struct
import uuid
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Final

from curtilage.attest.encoding.strict_json import malformed

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
    """Contents of a table.

    Attributes:
        certificates: DER, in the table's order.
        crl: the revocation list, DER; empty if there is none.
    """

    certificates: tuple[bytes, ...] = field(default=(), repr=False)
    crl: bytes = field(default=b"", repr=False)


def read_table(data: bytes) -> HostTable | None:
    """Return the content of a table, or None if no row has a known GUID.

    Raises:
        RefusedError: ``malformed``: a row points outside the table, the last row is
            missing, or there are several revocation lists.
    """
    whole = _ROW.iter_unpack(data[: len(data) // _ROW.size * _ROW.size])
    rows = list(takewhile(lambda row: any(row[0]), islice(whole, _MAX_ROWS)))
    if all(_guid(name) not in _KNOWN for name, _, _ in rows):
        return None
    certificates: list[bytes] = []
    crls: list[bytes] = []
    for name, offset, length in rows:
        # Python would cut the slice silently, and a truncated certificate would be
        # refused for another reason.
        if offset + length > len(data):
            raise malformed("certificate table: a row points outside the table")
        guid = _guid(name)
        if guid in _KNOWN:
            kept = crls if guid == _CRL else certificates
            kept.append(data[offset : offset + length])
    # A table without the row of zeros is truncated.
    if len(rows) == _MAX_ROWS or len(data) < (len(rows) + 1) * _ROW.size:
        raise malformed("certificate table: no end, or too many rows")
    # With two, a host could hide a revocation behind an older list.
    if len(crls) > 1:
        raise malformed("certificate table: several revocation lists")
    return HostTable(certificates=tuple(certificates), crl=b"".join(crls))


def _guid(data: bytes) -> uuid.UUID:
    # Hosts differ in the byte order of GUIDs; the known ones stay distinct in both.
    plain = uuid.UUID(bytes=data)
    return plain if plain in _KNOWN else uuid.UUID(bytes_le=data)
