"""What a PCK certificate says about its platform: Intel's own extension.

Intel, "SGX PCK Certificate and Certificate Revocation List Profile
Specification", section 1.3.5: a SEQUENCE of pairs of an object identifier under
1.2.840.113741.1.13.1 and its value. What is not needed is stepped over.
"""

from dataclasses import dataclass
from typing import Final

from curtilage.attest.encoding import der
from curtilage.attest.errors import RefusalCode, RefusedError

# The arc's encoding; what follows it names a field.
_ARC: Final = bytes.fromhex("2a864886f84d010d01")
_PPID: Final = b"\x01"
_TCB: Final = b"\x02"
_PCE_ID: Final = b"\x03"
_FMSPC: Final = b"\x04"
_PCESVN: Final = b"\x02\x11"
COMPONENTS: Final = 16

PPID_BYTES: Final = 16
PCE_ID_BYTES: Final = 2
FMSPC_BYTES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PckPlatform:
    """The platform that a PCK certificate was issued to; unverified.

    Attributes:
        ppid: the platform's provisioning id, 16 bytes.
        fmspc: family, model, stepping, platform and custom SKU, 6 bytes.
        pce_id: which provisioning enclave, 2 bytes.
        svns: the 16 security versions that the key was made for.
        pcesvn: the provisioning enclave's security version.
    """

    ppid: bytes
    fmspc: bytes
    pce_id: bytes
    svns: tuple[int, ...]
    pcesvn: int


def parse_platform(extension: bytes) -> PckPlatform:
    """Read Intel's extension.

    Args:
        extension: its DER; empty where the certificate has none.

    Raises:
        RefusedError: ``chain_invalid``: not a PCK certificate's extension.
    """
    try:
        # Read as DER and not searched for the identifiers' bytes: a search would find
        # them inside another value too, where whoever asked for the certificate may
        # have put them.
        fields = _pairs(der.only_element(extension))
        tcb = _pairs(fields[_TCB])
        return PckPlatform(
            ppid=_octets(fields[_PPID], PPID_BYTES),
            fmspc=_octets(fields[_FMSPC], FMSPC_BYTES),
            pce_id=_octets(fields[_PCE_ID], PCE_ID_BYTES),
            svns=tuple(
                _integer(tcb[_TCB + bytes([number])], maximum=0xFF)
                for number in range(1, COMPONENTS + 1)
            ),
            pcesvn=_integer(tcb[_PCESVN], maximum=0xFFFF),
        )
    except (KeyError, ValueError):
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, "PCK: Intel's extension cannot be read"
        ) from None


def _pairs(element: der.Element) -> dict[bytes, der.Element]:
    """Read pairs of an identifier under Intel's arc and its value."""
    fields: dict[bytes, der.Element] = {}
    for pair in der.elements(der.content_of(element, der.SEQUENCE)):
        parts = list(der.elements(der.content_of(pair, der.SEQUENCE)))
        if len(parts) != 2:  # noqa: PLR2004 - an identifier and its value
            raise ValueError("not a pair")
        identifier = der.content_of(parts[0], der.OBJECT_IDENTIFIER)
        # Only Intel's own fields: one of somebody else's under a shortened name would
        # be taken for the PPID.
        if not identifier.startswith(_ARC):
            raise ValueError("not under Intel's arc")
        name = identifier.removeprefix(_ARC)
        # The first or the last? Two readers would answer differently.
        if name in fields:
            raise ValueError("named twice")
        fields[name] = parts[1]
    return fields


def _octets(element: der.Element, count: int) -> bytes:
    content = der.content_of(element, der.OCTET_STRING)
    if len(content) != count:
        raise ValueError("an octet string of another length")
    return content


def _integer(element: der.Element, *, maximum: int) -> int:
    # Signed, as DER has it: 0xFF is -1 and no security version of 255.
    content = der.content_of(element, der.INTEGER)
    number = int.from_bytes(content, "big", signed=True)
    if not content or not 0 <= number <= maximum:
        raise ValueError("a number that is not used here")
    return number
