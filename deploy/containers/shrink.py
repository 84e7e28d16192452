"""What an image leaves out of a wheel: files that no program in it reads.

Where a wheel holds one library under several names, links replace the copies, as a
wheel cannot hold a link. Of native libraries remains what the loader maps: sections
and symbols behind the last segment are for linkers and debuggers.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

from deploy.image.errors import FormatError
from deploy.image.tree import Kind, Tree
from tools.slim import UNUSED

# Further to those of ``make setup``, which also serves people who compile and test.
FURTHER: Final = (
    "**/*.a",
    "**/*.cu",
    "**/*.h",
    "**/*.hh",
    "**/*.hpp",
    "**/*.pxd",
    "**/*.pyi",
    "*/**/tests",
    "bin",
    "blis/benchmark.py",
    "blis/py.*.so",  # a second copy, for callers in Python: spaCy calls the first
    "numpy/f2py",
    "stdnum/*.dat",  # of numbers that no detector reads
)
# The dictionaries of the languages that the detectors read; a test compares.
LANGUAGES: Final = ("de", "en", "es", "fr", "it", "nl", "pt")
_OTHERS: Final = re.compile(
    r"simplemma/strategies/dictionaries/data/(?!(?:" + "|".join(LANGUAGES) + r")\.)"
    r"|spacy/lang/(?!(?:en|xx)/)[a-z]{2,3}/"
)

_ELF: Final = b"\x7fELF\x02\x01"  # of 64 bits, little-endian
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")


def is_read(path: str) -> bool:
    """Return whether a program may read this file, by its path below the site."""
    return _UNREAD.match(path) is None and _OTHERS.match(path) is None


def without_sections(library: bytes) -> bytes:
    """Return an ELF file without what follows its last segment; others as they are.

    Raises:
        FormatError: a file that ends before its segments do.
    """
    if not library.startswith(_ELF):
        return library
    if len(library) < _HEADER.size:
        raise FormatError("an ELF file ends within its header")
    fields = list(_HEADER.unpack_from(library))
    end = max(_ends(library, at=fields[5], size=fields[9], count=fields[10]))
    if end > len(library):
        raise FormatError("an ELF file ends within a segment")
    # e_shoff, e_shnum, e_shstrndx: there is no table of sections.
    fields[6] = fields[12] = fields[13] = 0
    return _HEADER.pack(*fields) + library[_HEADER.size : end]


def _ends(library: bytes, *, at: int, size: int, count: int) -> Iterator[int]:
    """Yield where each part ends that a loader reads."""
    yield at + size * count
    if at + size * count > len(library) or size != _SEGMENT.size:
        raise FormatError("an ELF file without a table of segments")
    for number in range(count):
        _, _, offset, _, _, length, _, _ = _SEGMENT.unpack_from(
            library, at + size * number
        )
        yield offset + length


def link_copies(tree: Tree, folder: str) -> Tree:
    """Return the tree with links in place of copies among the files of a folder."""
    firsts: dict[bytes, str] = {}
    linked = Tree()
    for path, entry in tree.entries():
        above, _, name = path.rpartition("/")
        if above == folder and entry.kind in {Kind.FILE, Kind.PROGRAM}:
            first = firsts.setdefault(entry.content, name)
            if first != name:
                linked.add_link(path, first)
                continue
        linked.add(path, entry)
    return linked


def _expression(pattern: str) -> str:
    """Return a pattern of paths as a regular expression; it covers what is below."""
    marks = {"**/": "(?:[^/]+/)*", "*": "[^/]*", "[!": "[^"}
    parts = re.split(r"(\*\*/|\*|\[!|\])", pattern.rstrip("/"))
    made = (marks.get(part, part if part == "]" else re.escape(part)) for part in parts)
    return "".join(made)


_UNREAD: Final = re.compile(
    "(?:" + "|".join(_expression(each) for each in (*UNUSED, *FURTHER)) + ")(?:/|$)"
)
