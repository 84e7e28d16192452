"""The guest's root as values: paths, modes, contents; no file system involved.

What a file system would add, such as owners, times, inode numbers and the order of
names, therefore cannot differ between two builds. Owners are root, modes are one of
three, and the archive's writer gives every entry one and the same time.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from deploy.image.errors import FormatError

# Debian's merged /usr: these names are links, and files that packages put below them
# are below usr/.
MERGED: Final = ("bin", "sbin", "lib", "lib64")


class Kind(Enum):
    """The kind of an entry."""

    DIRECTORY = 0o040755
    FILE = 0o100644
    PROGRAM = 0o100755
    LINK = 0o120777

    @property
    def mode(self) -> int:
        """The entry's whole mode, type included."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name of the guest's root.

    Attributes:
        kind: see there.
        content: a file's bytes, a link's target, or nothing.
    """

    kind: Kind
    content: bytes = b""


class Tree:
    """Entries by their path, which has no leading slash."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        for name in MERGED:
            self._entries[name] = Entry(kind=Kind.LINK, content=f"usr/{name}".encode())
            self.add_directory(f"usr/{name}")

    def add_directory(self, path: str) -> None:
        """Add a directory and those above it."""
        self.add(clean(path), Entry(kind=Kind.DIRECTORY))

    def add_file(self, path: str, content: bytes, *, program: bool = False) -> None:
        """Add a file; the same path twice needs the same content."""
        kind = Kind.PROGRAM if program else Kind.FILE
        self.add(clean(path), Entry(kind=kind, content=content))

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self.add(clean(path), Entry(kind=Kind.LINK, content=target.encode()))

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Yield every entry, each directory before its contents."""
        yield from sorted(self._entries.items(), key=lambda item: item[0].encode())

    def has(self, path: str) -> bool:
        """Return whether there is an entry with this path."""
        return clean(path) in self._entries

    def content(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FormatError: there is no such file.
        """
        entry = self._entries.get(clean(path))
        if entry is None or entry.kind in {Kind.DIRECTORY, Kind.LINK}:
            raise FormatError(f"the image has no file {path}")
        return entry.content

    def add(self, path: str, entry: Entry) -> None:
        """Add an entry by its path in the tree's form, and the directories above it.

        Raises:
            FormatError: there is another entry with this path, or a file above it.
        """
        parent = posixpath.dirname(path)
        if parent and parent not in self._entries:
            self.add(parent, Entry(kind=Kind.DIRECTORY))
        if parent and self._entries[parent].kind is not Kind.DIRECTORY:
            raise FormatError(f"{parent} is not a directory, but contains {path}")
        if self._entries.setdefault(path, entry) != entry:
            raise FormatError(f"two inputs disagree about {path}")


def clean(path: str) -> str:
    """Return a path in the tree's form: relative, below merged /usr.

    Raises:
        FormatError: it is empty or would lead out of the root.
    """
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not parts or ".." in parts or "\0" in path:
        raise FormatError("a path that leads nowhere or out of the image")
    if parts[0] in MERGED and len(parts) > 1:
        parts.insert(0, "usr")
    return "/".join(parts)
