"""A SEV-SNP report in Protocol Buffers, as the go-sev-guest library passes it on.

Pure. The hardware signed the 1,184 bytes of the report's own layout, so the fields are
put back into their places (AMD 56860, table "ATTESTATION_REPORT"). A field put into the
wrong place changes a signed byte, and the signature then fails.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.sev_snp import report as layout

MAX_FIELDS: Final = 128

_VARINT: Final = 0
_EIGHT_BYTES: Final = 1
_LENGTH: Final = 2
_FOUR_BYTES: Final = 5
_MAX_VARINT_BYTES: Final = 10
_MORE: Final = 0x80
_MAX_U64: Final = 2**64 - 1

# Numbers in the library's message ``Report``, with place and struct format.
_NUMBERS: Final[Mapping[int, tuple[int, str]]] = {
    1: (layout.OFFSET_VERSION, "<I"),
    2: (layout.OFFSET_GUEST_SVN, "<I"),
    3: (layout.OFFSET_POLICY, "<Q"),
    6: (layout.OFFSET_VMPL, "<I"),
    7: (layout.OFFSET_ALGORITHM, "<I"),
    8: (layout.OFFSET_CURRENT_TCB, "<Q"),
    9: (layout.OFFSET_PLATFORM_INFO, "<Q"),
    10: (layout.OFFSET_KEY_INFO, "<I"),
    18: (layout.OFFSET_REPORTED_TCB, "<Q"),
    20: (layout.OFFSET_COMMITTED_TCB, "<Q"),
    21: (layout.OFFSET_CURRENT_FIRMWARE, "B"),
    22: (layout.OFFSET_CURRENT_FIRMWARE + 1, "B"),
    23: (layout.OFFSET_CURRENT_FIRMWARE + 2, "B"),
    24: (layout.OFFSET_COMMITTED_FIRMWARE, "B"),
    25: (layout.OFFSET_COMMITTED_FIRMWARE + 1, "B"),
    26: (layout.OFFSET_COMMITTED_FIRMWARE + 2, "B"),
    27: (layout.OFFSET_LAUNCH_TCB, "<Q"),
    30: (layout.OFFSET_MITIGATIONS, "<Q"),
    31: (layout.OFFSET_MITIGATIONS + 8, "<Q"),
}
_STRINGS: Final[Mapping[int, tuple[int, int]]] = {
    4: (layout.OFFSET_FAMILY_ID, 16),
    5: (layout.OFFSET_IMAGE_ID, 16),
    11: (layout.OFFSET_REPORT_DATA, layout.REPORT_DATA_BYTES),
    12: (layout.OFFSET_MEASUREMENT, layout.MEASUREMENT_BYTES),
    13: (layout.OFFSET_HOST_DATA, 32),
    14: (layout.OFFSET_ID_KEY_DIGEST, 48),
    15: (layout.OFFSET_AUTHOR_KEY_DIGEST, 48),
    16: (layout.OFFSET_REPORT_ID, 32),
    17: (layout.OFFSET_REPORT_ID_MA, 32),
    19: (layout.OFFSET_CHIP_ID, layout.CHIP_ID_BYTES),
    28: (layout.SIGNED_BYTES, layout.REPORT_BYTES - layout.SIGNED_BYTES),
}
_CPUID: Final = 29
_REPORT: Final = 1
_CHAIN: Final = 2
_VCEK, _VLEK, _ASK, _ARK = 1, 6, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The message ``Attestation``.

    Attributes:
        report: in the hardware's layout.
        vek: the VCEK or VLEK, DER; empty if there is none.
        chain: ASK and ARK, DER, one after the other.
    """

    report: bytes = field(repr=False)
    vek: bytes = field(repr=False)
    chain: bytes = field(repr=False)


def read_message(data: bytes) -> Message:
    """Return the parts of an ``Attestation``.

    Raises:
        RefusedError: ``malformed``.
    """
    fields = _fields(data)
    chain = _fields(_octets(fields, _CHAIN))
    vcek, vlek = _octets(chain, _VCEK), _octets(chain, _VLEK)
    # With both, this program would choose who vouches for the report's key.
    if vcek and vlek:
        raise malformed("attestation: both a VCEK and a VLEK")
    return Message(
        report=_report(_fields(_octets(fields, _REPORT))),
        vek=vcek or vlek,
        chain=_octets(chain, _ASK) + _octets(chain, _ARK),
    )


def _report(fields: Mapping[int, int | bytes]) -> bytes:
    report = bytearray(layout.REPORT_BYTES)
    for number, (offset, form) in _NUMBERS.items():
        value = fields.get(number, 0)
        try:
            # Python's ``struct`` refuses what does not fit, and bytes.
            struct.pack_into(form, report, offset, value)
        except struct.error:
            raise malformed(f"report: field {number} does not fit") from None
    for number, (offset, length) in _STRINGS.items():
        value = _octets(fields, number)
        if value and len(value) != length:
            raise malformed(f"report: field {number} is not {length} bytes")
        report[offset : offset + len(value)] = value
    cpuid = fields.get(_CPUID, 0)
    if isinstance(cpuid, bytes):
        raise malformed("report: CPUID is not a number")
    # CPUID 1, EAX: stepping, model and family with their extensions; the report has the
    # sums in three bytes.
    family = (cpuid >> 8 & 0xF) + (cpuid >> 20 & 0xFF)
    model = (cpuid >> 4 & 0xF) | (cpuid >> 16 & 0xF) << 4
    sums = (family & 0xFF, model, cpuid & 0xF)
    struct.pack_into("3B", report, layout.OFFSET_CPUID, *sums)
    return bytes(report)


def _octets(fields: Mapping[int, int | bytes], number: int) -> bytes:
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise malformed(f"attestation: field {number} is not bytes")
    return value


def _fields(data: bytes) -> Mapping[int, int | bytes]:
    """Return the fields of one message by number.

    The wire format lets a later field replace an earlier one of the same number; a
    reader that merges them sees something else, so repetition is refused.
    """
    found: dict[int, int | bytes] = {}
    for number, value in _read(data):
        if number in found or len(found) == MAX_FIELDS:
            raise malformed("attestation: a field is repeated, or too many")
        found[number] = value
    return found


def _read(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _LENGTH:
            length, at = _varint(data, at)
        elif kind in {_EIGHT_BYTES, _FOUR_BYTES}:
            length = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise malformed("attestation: not Protocol Buffers")
        part = data[at : at + length]
        # Python would cut the slice silently.
        if len(part) != length:
            raise malformed("attestation: truncated")
        at += length
        yield tag >> 3, part if kind == _LENGTH else int.from_bytes(part, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if at + count >= len(data):
            break
        byte = data[at + count]
        value |= (byte & ~_MORE) << 7 * count
        if not byte & _MORE:
            if value > _MAX_U64:
                break
            return value, at + count + 1
    raise malformed("attestation: not a number")
