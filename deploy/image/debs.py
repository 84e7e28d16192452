"""Reads Debian packages without installing them: no maintainer script ever runs.

A package is an ``ar`` archive whose member ``data.tar.*`` holds its files (deb(5)).
"""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from deploy.image.errors import FormatError
from deploy.image.tree import Tree

AR_MAGIC: Final = b"!<arch>\n"
AR_HEADER_BYTES: Final = 60
AR_END: Final = b"`\n"


def add_package(tree: Tree, package: Path, wanted: Callable[[str], bool]) -> int:
    """Add the files of a package that ``wanted`` selects to the tree.

    Returns:
        how many there were.

    Raises:
        FormatError: not a package, or a file of a kind that is not allowed.
    """
    count = 0
    for member, content in read_package(package):
        path = member.name.removeprefix("./").rstrip("/")
        if not path or not wanted(path):
            continue
        if member.issym():
            tree.add_link(path, member.linkname)
        elif member.isfile():
            tree.add_file(path, content, program=bool(member.mode & 0o111))
        elif not member.isdir():
            raise FormatError(f"{package.name}: {path} is neither file nor link")
        count += not member.isdir()
    return count


def read_package(package: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yield the files that a package would install, with their contents.

    Raises:
        FormatError: not a package in a supported format.
    """
    data = _data_archive(package)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                yield member, file.read() if file is not None else b""
    except tarfile.TarError as error:
        raise FormatError(f"{package.name}: {type(error).__name__}") from None


def find_in_package(package: Path, ending: str) -> bytes:
    """Return the only file of a package whose path ends in this text.

    Raises:
        FormatError: there is none, or several.
    """
    found = [
        content
        for member, content in read_package(package)
        if member.isfile() and member.name.endswith(ending)
    ]
    if len(found) != 1:
        raise FormatError(f"{package.name}: {len(found)} files named …{ending}")
    return found[0]


def _data_archive(package: Path) -> bytes:
    raw = package.read_bytes()
    if not raw.startswith(AR_MAGIC):
        raise FormatError(f"{package.name}: not a Debian package")
    at = len(AR_MAGIC)
    while at + AR_HEADER_BYTES <= len(raw):
        header = raw[at : at + AR_HEADER_BYTES]
        name = header[:16].rstrip(b" /")
        size = header[48:58].strip()
        if header[58:] != AR_END or not size.isdigit():
            break
        at += AR_HEADER_BYTES
        if name.startswith(b"data.tar"):
            return raw[at : at + int(size)]
        at += int(size) + int(size) % 2
    raise FormatError(f"{package.name}: a package without data.tar")
