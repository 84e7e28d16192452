"""Small inputs of every kind that the image's builder reads, made here."""

import io
import lzma
import struct
import tarfile
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CONFIG: Final = """\
environment = "production"
listen = "unix:/run/enclave/gateway.sock"
evidence = "unix:/run/evidence/evidence.sock"
release = "/run/curtilage/release"

[[trust_anchors]]
kind = "amd"
product = "Genoa"
certificate = "/etc/curtilage/ark.pem"

[log]
origin = "log.example/releases"
key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
quorum = 1
[[log.witnesses]]
name = "witness.example"
key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="

[model]
path = "embedded"
"""


def write_deb(path: Path, files: Mapping[str, bytes], *, odd: str = "") -> Path:
    """Write a Debian package; ``odd`` names a device node to put into it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:xz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.mode = 0o755 if "/bin/" in name else 0o644
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        if odd:
            node = tarfile.TarInfo(f"./{odd}")
            node.type = tarfile.CHRTYPE
            tar.addfile(node)
    members = {"debian-binary": b"2.0\n", "data.tar.xz": archive.getvalue()}
    path.write_bytes(b"!<arch>\n" + b"".join(_ar(*item) for item in members.items()))
    return path


def _ar(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
    return head.encode() + content + b"\n" * (len(content) % 2)


def write_wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def kernel_module(depends: str) -> bytes:
    """A module as its package holds it; of a real one only the notes matter here."""
    body = b"\x7fELF" + b"\0name=x\0depends=" + depends.encode() + b"\0vermagic=y\0"
    return lzma.compress(body, format=lzma.FORMAT_XZ)


def pe_image(sections: Mapping[str, bytes], *, grown: Mapping[str, int] = {}) -> bytes:
    """A PE file; ``grown``: sections whose virtual size exceeds what is stored."""
    stub = bytes(0x3C) + struct.pack("<I", 0x40)
    head = b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, 16, 0)
    at = len(stub) + len(head) + 16 + 40 * len(sections)
    table, body = b"", b""
    for name, content in sections.items():
        size = len(content) + grown.get(name, 0)
        stored = content + bytes(-len(content) % 32) * (name not in grown)
        fields = (name.encode(), size, 0, len(stored), at + len(body), bytes(16))
        table += struct.pack("<8sIIII16s", *fields)
        body += stored
    return stub + head + bytes(16) + table + body


_FOOTER: Final = "96b582de-1fb2-45f7-baea-a366c55a082d"
_RESET: Final = "00f771de-1a7e-4fcb-890e-68c77e2fb44e"
_HASHES: Final = "7255371f-3a3b-4b04-927b-1da6efa8d454"
_METADATA: Final = "dc886566-984a-4798-a75e-5585a7bf67cc"


def ovmf(*, kernel_hashes: bool = True) -> bytes:
    """A firmware with the tables that a launch digest is computed from."""
    kinds = {1: 0x800000, 2: 0x80D000, 3: 0x80E000}  # memory, secrets, CPUID
    if kernel_hashes:
        kinds[0x10] = 0x810000
    items = b"".join(struct.pack("<III", at, 4096, kind) for kind, at in kinds.items())
    metadata = struct.pack("<4sIII", b"ASEV", 16 + len(items), 1, len(kinds)) + items
    size = 8192
    start = 1024  # where the metadata lies
    entries = _entry(_RESET, struct.pack("<I", 0x80B004))
    entries += _entry(_HASHES, struct.pack("<II", 0x810C00, 0x400))
    entries += _entry(_METADATA, struct.pack("<I", size - start))
    footer = struct.pack("<H", len(entries) + 18) + uuid.UUID(_FOOTER).bytes_le
    table = entries + footer
    firmware = bytearray(size)
    firmware[start : start + len(metadata)] = metadata
    firmware[size - 32 - len(table) : size - 32] = table
    return bytes(firmware)


def _entry(name: str, data: bytes) -> bytes:
    return data + struct.pack("<H", len(data) + 18) + uuid.UUID(name).bytes_le
