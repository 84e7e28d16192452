"""The firmware identity in a device's certificate (TCG DICE, 2.23.133.5.4.1).

The extension comes in two forms. Hopper carries a CompositeDeviceID (version, the
issuer's public key, FWID); others a DiceTcbInfo, whose member [6] lists FWIDs, which
Blackwell puts under 2.23.133.5.4.1.1. A FWID is an algorithm and a digest; Blackwell
lists one of zeros next to its own, for a layer that was not measured. Both forms are
parsed exactly as DER; a search for the digest's bytes would also find it where it
means something else.
"""

from collections.abc import Mapping
from typing import Final

from curtilage.attest.encoding import der
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError

DICE_TCB_INFO: Final = "2.23.133.5.4.1"
BLACKWELL_TCB_INFO: Final = "2.23.133.5.4.1.1"
FWID_BYTES: Final = 48
# OBJECT IDENTIFIER id-sha384, with its header.
_SHA384: Final = bytes.fromhex("0609608648016503040202")
# DiceTcbInfo's members are all optional and stand in order; [6] holds the FWIDs.
_FWIDS: Final = 0xA6
_CONTEXT_SPECIFIC: Final = 0x80
_CLASS: Final = 0xC0
_MEMBER: Final = 0x1F
_COMPOSITE_PARTS: Final = 3
_WHERE: Final = "leaf's firmware identity"


def firmware_id(extensions: Mapping[str, bytes], issuer_key: bytes) -> bytes:
    """Return the SHA-384 firmware identity that a certificate names.

    Args:
        extensions: the leaf's unrecognised extensions, raw, by OID.
        issuer_key: SubjectPublicKeyInfo of the key that issued the leaf, which an
            older device's extension must name.

    Raises:
        RefusedError: ``endorsement_mismatch`` if it names none, several or another
            issuer's key, ``malformed`` if it cannot be read.
    """
    identifiers = (DICE_TCB_INFO, BLACKWELL_TCB_INFO)
    found = [extensions[each] for each in identifiers if each in extensions]
    # Two readers could take one each.
    if len(found) > 1:
        raise malformed(f"{_WHERE}: two extensions")
    named: tuple[bytes, ...] = ()
    for extension in found:
        elements = _elements(_sequence(_only(extension)))
        # The one form begins with a version, the other with a context tag; there is no
        # third.
        composite = bool(elements) and elements[0].tag == der.INTEGER
        named = _composite(elements, issuer_key) if composite else _tcb_info(elements)
    # Zeros are no digest of anything.
    measured = [each for each in named if any(each)]
    # No firmware named is any firmware: the key may be an old one's, with a hole that
    # has been mended since. Of two, the report could name either.
    if len(measured) != 1:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH,
            f"the leaf names {'several firmwares' if measured else 'no firmware'}",
        )
    return measured[0]


def _composite(
    elements: tuple[der.Element, ...], issuer_key: bytes
) -> tuple[bytes, ...]:
    if len(elements) != _COMPOSITE_PARTS:
        raise malformed(f"{_WHERE}: not three parts")
    _, device_key, fwid = elements
    # The composite id names its device by key. Copied into another device's certificate
    # it would name the wrong one.
    if device_key.encoded != issuer_key:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the firmware's device is another"
        )
    return (_fwid(_sequence(fwid)),)


def _tcb_info(elements: tuple[der.Element, ...]) -> tuple[bytes, ...]:
    members = [each.tag & _MEMBER for each in elements]
    # TCG DICE, DiceTcbInfo: optional members in ascending order. A member twice, or out
    # of order, would be read by two readers in two ways.
    alien = any(each.tag & _CLASS != _CONTEXT_SPECIFIC for each in elements)
    if alien or members != sorted(set(members)):
        raise malformed(f"{_WHERE}: unknown form")
    lists = [each.content for each in elements if each.tag == _FWIDS]
    return tuple(_fwid(_sequence(each)) for each in _elements(b"".join(lists)))


def _fwid(content: bytes) -> bytes:
    # Identifier and parameters as they stand in every such certificate; a shorter hash
    # would be an easier collision.
    if not content.startswith(_SHA384):
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, "the firmware's digest is not SHA-384"
        )
    digest = _only(content[len(_SHA384) :])
    if digest.tag != der.OCTET_STRING or len(digest.content) != FWID_BYTES:
        raise malformed(f"{_WHERE}: not {FWID_BYTES} bytes")
    return digest.content


def _sequence(element: der.Element) -> bytes:
    if element.tag != der.SEQUENCE:
        raise malformed(f"{_WHERE}: not a sequence")
    return element.content


def _elements(data: bytes) -> tuple[der.Element, ...]:
    try:
        return tuple(der.elements(data))
    except ValueError:
        raise malformed(f"{_WHERE}: not DER") from None


def _only(data: bytes) -> der.Element:
    elements = _elements(data)
    if len(elements) != 1:
        raise malformed(f"{_WHERE}: not one element")
    return elements[0]
