"""Writes a tree as a cpio archive in the kernel's format ("newc").

Documentation/driver-api/early-userspace/buffer-format.rst of the kernel: ASCII header
of 110 bytes, name, content, each padded to four bytes; a last entry named
``TRAILER!!!``. Inode numbers are unique, so that no two entries are hard links.
"""

from collections.abc import Iterator
from typing import Final

from deploy.image.errors import FormatError
from deploy.image.tree import Entry, Kind, Tree

MAGIC: Final = "070701"
TRAILER: Final = "TRAILER!!!"
ALIGNMENT: Final = 4
MAX_FILE_BYTES: Final = 2**32 - 1


def write_cpio(tree: Tree, *, mtime: int) -> Iterator[bytes]:
    """Yield the archive of a tree, every entry with one time.

    Args:
        tree: to be written.
        mtime: seconds since 1970; 32 bits.

    Raises:
        FormatError: a file of 4 GiB or more, or a time that does not fit.
    """
    if not 0 <= mtime < 2**32:
        raise FormatError("the time of an archive's entries must fit 32 bits")
    for number, (path, entry) in enumerate(tree.entries(), start=1):
        if len(entry.content) > MAX_FILE_BYTES:
            raise FormatError(f"{path}: a file of 4 GiB or more")
        mode = entry.kind.mode
        yield _header(path, entry, number=number, mtime=mtime, mode=mode)
        yield _padded(entry.content)
    last = Entry(kind=Kind.FILE)
    yield _header(TRAILER, last, number=0, mtime=0, mode=0)


def _header(path: str, entry: Entry, *, number: int, mtime: int, mode: int) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if entry.kind is Kind.DIRECTORY else 1
    fields = (number, mode, 0, 0, links, mtime, len(entry.content))
    # major, minor, and those of the device file; then the checksum
    rest = (0, 0, 0, 0, len(name), 0)
    ascii_fields = "".join(f"{value:08x}" for value in fields + rest)
    return _padded((MAGIC + ascii_fields).encode("ascii") + name)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
