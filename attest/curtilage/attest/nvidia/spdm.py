"""SPDM 1.1 GET_MEASUREMENTS and its signed MEASUREMENTS response (DSP0274).

Exact, both messages one after the other: nothing is stripped and nothing left
over. The fields' order, little-endian throughout:

    request   0x11 0xE0 | attributes 1 | operation 1 | nonce 32 | slot 1
    response  0x11 0x60 | parameters 2 | blocks 1 | record length 3 | record
              | responder's nonce 32 | opaque length 2 | opaque | signature 96
    block     index 1 | specification 1 = DMTF | size 2
              | type 1 | value size 2 = size - 3 | value
    opaque    (type 2 | size 2 | value) repeated: NVIDIA's own

Knows framing; what the measurements should be is not known here.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from curtilage.attest.encoding.reader import Reader
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError

SPDM_VERSION: Final = 0x11
GET_MEASUREMENTS: Final = 0xE0
MEASUREMENTS: Final = 0x60
NONCE_BYTES: Final = 32
SIGNATURE_BYTES: Final = 96
REQUEST_BYTES: Final = 37
# Attributes: a signature is asked for. Operation: all measurements.
SIGNATURE_REQUESTED: Final = 0x01
ALL_MEASUREMENTS: Final = 0xFF
DMTF_SPECIFICATION: Final = 0x01
# Type and size of a measurement's value, in front of it.
VALUE_HEADER_BYTES: Final = 3
# Index, specification, size; type and size of the value.
_BLOCK_HEADER: Final = struct.Struct("<BBHBH")
_SLOT: Final = 0x0F
_RESERVED_INDEX: Final = frozenset({0x00, 0xFF})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementBlock:
    """One measurement.

    Attributes:
        index: 1 to 254.
        value_type: DMTFSpecMeasurementValueType.
        value: a digest, or the raw value where the type's highest bit says so.
    """

    index: int
    value_type: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpdmReport:
    """A request and its response; unverified.

    Attributes:
        nonce: the requester's, 32 bytes.
        responder_nonce: the device's own, 32 bytes.
        record: the measurement record, as the report carries it.
        blocks: the same, taken apart, in the report's order.
        opaque: NVIDIA's fields, raw, by their type.
        signed_part: everything but the signature.
        signature: r and s, 48 bytes each, big-endian.
    """

    nonce: bytes
    responder_nonce: bytes
    record: bytes = field(repr=False)
    blocks: tuple[MeasurementBlock, ...] = field(repr=False)
    opaque: Mapping[int, bytes] = field(repr=False)
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def parse_spdm_report(data: bytes) -> SpdmReport:
    """Take a report apart; shape only, nothing is verified.

    Raises:
        RefusedError: ``malformed`` or ``unsupported_version``.
    """
    reader = Reader(data, "report")
    _header(reader, GET_MEASUREMENTS, "request")
    # A request for unsigned measurements gets an unsigned answer, which anybody can
    # write.
    if reader.number(1) != SIGNATURE_REQUESTED:
        raise malformed("request: asks for no signature")
    # A request for a single block could leave out the relevant one.
    if reader.number(1) != ALL_MEASUREMENTS:
        raise malformed("request: asks for only some measurements")
    nonce = reader.take(NONCE_BYTES)
    slot = reader.number(1)
    _header(reader, MEASUREMENTS, "response")
    # The first parameter is reserved where all measurements were asked for;
    # it says nothing, and the signature covers it.
    reader.take(1)
    # The upper half of the second is reserved; the request's must be zero.
    if reader.number(1) & _SLOT != slot:
        raise malformed("response: signed with another slot's key")
    # The number of blocks is said in front of the record and again by its length;
    # ``_blocks`` holds both against each other.
    count = reader.number(1)
    if count == 0:
        raise malformed("response: no measurements")
    record = reader.take(reader.number(3))
    responder_nonce = reader.take(NONCE_BYTES)
    opaque = reader.take(reader.number(2))
    signed_part = data[: reader.position]
    signature = reader.take(SIGNATURE_BYTES)
    if reader.left:
        # Zeros too: some drivers write one byte more than the report has.
        raise malformed(f"report: {reader.left} byte(s) too many behind the signature")
    return SpdmReport(
        nonce=nonce,
        responder_nonce=responder_nonce,
        record=record,
        blocks=_blocks(record, count),
        opaque=_opaque(opaque),
        signed_part=signed_part,
        signature=signature,
    )


def _header(reader: Reader, code: int, where: str) -> None:
    if reader.number(1) != SPDM_VERSION:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, f"{where}: not SPDM 1.1")
    if reader.number(1) != code:
        raise malformed(f"{where}: another message")


def _blocks(record: bytes, count: int) -> tuple[MeasurementBlock, ...]:
    reader = Reader(record, "measurement record")
    blocks: tuple[MeasurementBlock, ...] = ()
    for _ in range(count):
        header = reader.take(_BLOCK_HEADER.size)
        index, specification, size, value_type, value_size = _BLOCK_HEADER.unpack(
            header
        )
        if index in _RESERVED_INDEX:
            raise malformed("measurement record: reserved index")
        if specification != DMTF_SPECIFICATION:
            raise malformed("measurement record: not by DMTF's specification")
        # The same length occurs twice: read by the outer one, the next block would
        # begin inside this one.
        if size != VALUE_HEADER_BYTES + value_size:
            raise malformed("measurement record: two sizes differ")
        value = reader.take(value_size)
        blocks += (MeasurementBlock(index=index, value_type=value_type, value=value),)
    reader.end()
    # A golden digest would still notice; a reader that fills a dictionary would not.
    if len({block.index for block in blocks}) != count:
        raise malformed("measurement record: an index occurs twice")
    return blocks


def _opaque(data: bytes) -> Mapping[int, bytes]:
    reader = Reader(data, "opaque data")
    fields: dict[int, bytes] = {}
    while reader.left:
        kind = reader.number(2)
        # The last would win silently: a second driver version behind the first.
        if kind in fields:
            raise malformed("opaque data: a field occurs twice")
        fields[kind] = reader.take(reader.number(2))
    return MappingProxyType(fields)
