"""Predicts TPM PCR 11 of a unified kernel image.

systemd-stub extends PCR 11 (SHA-256 bank) for each section of the image that it knows,
in its own order: first with the section's name and a NUL, then with the section's
content up to its virtual size (systemd-stub(7), "TPM PCR Notes"; order:
``unified_section`` in systemd 257). Boot phases, which systemd would extend later, do
not occur: nothing in this image extends PCR 11 again.
"""

import hashlib
import struct
from collections.abc import Mapping
from typing import Final

from deploy.image.errors import FormatError

ORDER: Final = (
    ".linux",
    ".osrel",
    ".cmdline",
    ".initrd",
    ".ucode",
    ".splash",
    ".dtb",
    ".uname",
    ".sbat",
    ".pcrpkey",
    ".profile",
    ".dtbauto",
    ".hwids",
    ".efifw",
)
PCR_BYTES: Final = 32

_PE_POINTER: Final = 0x3C
_PE_MAGIC: Final = b"PE\0\0"
_FILE_HEADER: Final = struct.Struct("<HHIIIHH")
# Name, VirtualSize, VirtualAddress, SizeOfRawData, PointerToRawData, the rest.
_SECTION: Final = struct.Struct("<8sIIII16s")


def predict_pcr11(image: bytes) -> bytes:
    """Return PCR 11 after systemd-stub has started this image (32 bytes).

    Raises:
        FormatError: not a PE file, or one with no kernel in it.
    """
    sections = read_sections(image)
    if ".linux" not in sections:
        raise FormatError("not a unified kernel image: no section .linux")
    register = bytes(PCR_BYTES)
    for name in ORDER:
        if name in sections:
            register = _extend(register, name.encode() + b"\0")
            register = _extend(register, sections[name])
    return register


def read_sections(image: bytes) -> Mapping[str, bytes]:
    """Return the sections of a PE file by name, each cut to its virtual size.

    A name that occurs twice is refused: this module does not guess which of them a stub
    would measure (multi-profile images are not built here).

    Raises:
        FormatError: not a PE file, or truncated.
    """
    try:
        return _read_sections(image)
    except (struct.error, UnicodeDecodeError):
        raise FormatError("not a PE file, or cut short") from None


def _read_sections(image: bytes) -> dict[str, bytes]:
    (at,) = struct.unpack_from("<I", image, _PE_POINTER)
    if image[at : at + len(_PE_MAGIC)] != _PE_MAGIC:
        raise FormatError("not a PE file")
    at += len(_PE_MAGIC)
    _, count, _, _, _, optional_bytes, _ = _FILE_HEADER.unpack_from(image, at)
    at += _FILE_HEADER.size + optional_bytes
    sections: dict[str, bytes] = {}
    for number in range(count):
        fields = _SECTION.unpack_from(image, at + number * _SECTION.size)
        raw_name, virtual_size, _, raw_size, pointer, _ = fields
        name = raw_name.rstrip(b"\0").decode("ascii")
        content = image[pointer : pointer + min(raw_size, virtual_size)]
        if name in sections or len(content) != min(raw_size, virtual_size):
            raise FormatError(f"section {name}: twice, or cut short")
        # What a loader would fill with zeros is measured with them.
        sections[name] = content + bytes(virtual_size - len(content))
    return sections


def _extend(register: bytes, data: bytes) -> bytes:
    return hashlib.sha256(register + hashlib.sha256(data).digest()).digest()
