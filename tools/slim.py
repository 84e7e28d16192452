"""Makes an environment smaller and leaves what it does as it is: ``slim(site)``.

Wheels put there what nothing here reads: symbols for debuggers, tests, sources of
libraries, data of functions that are not called, and a library under three names, since
a wheel cannot hold a link. Runs after every installation of a group.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# As patterns from ``site-packages`` on.
UNUSED: Final = (
    "*/**/*.c",  # sources of the libraries
    "*/**/*.cpp",
    "*/**/*.pyx",
    "_distutils_hack",  # setuptools: spaCy names it and imports none of it
    "cryptography_vectors/[!H_]*/",  # of 125 MB, the tests read those of HPKE
    "cryptography_vectors/HMAC",
    "distutils-precedence.pth",
    "include",  # the engine's second copy, for programs in C
    "kubernetes_validate/kubernetes-json-schema/*-local",  # not the strict ones
    "kubernetes_validate/kubernetes-json-schema/v1.[12]*",
    "kubernetes_validate/kubernetes-json-schema/v1.3[0-6]*",
    "lib",
    "numpy/**/tests",
    "numpy/distutils",
    "onnxruntime/capi/libonnxruntime.so.*",  # for programs in C; Python's has it inside
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
    "phonenumbers/carrierdata",
    "phonenumbers/geodata",
    "phonenumbers/tzdata",
    "pkg_resources",
    "regex/tests",
    "scipy/**/tests",
    "setuptools",
    "setuptools-*.dist-info",
    "sklearn/**/tests",
    "spacy/tests",
    "srsly/**/tests",
    "thinc/tests",
)
REPEATED: Final = "llama_cpp/lib"
_SYMBOLS: Final = b".symtab\0"


def slim(site: Path) -> None:
    """Remove what is not used, the symbols for debuggers, and second copies."""
    remove_unused(site)
    if strip := shutil.which("strip"):
        for library in site.rglob("*.so"):
            if may_be_stripped(library, site) and has_symbols(library):
                without_symbols(library, strip)
    link_copies(site / REPEATED)


def remove_unused(site: Path) -> None:
    """Remove what ``UNUSED`` names."""
    for pattern in UNUSED:
        for path in sorted(site.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def may_be_stripped(library: Path, site: Path) -> bool:
    """Whether a library is as its linker left it.

    Where a wheel brings libraries of others, in ``NAME.libs``, auditwheel has moved
    parts of the file, and ``strip`` has been seen to break such.
    """
    top = library.relative_to(site).parts[0]
    moved = top.endswith(".libs") or (site / f"{top}.libs").exists()
    return not moved and not library.is_symlink()


def has_symbols(library: Path) -> bool:
    """Whether a library has symbols that only a debugger reads."""
    with library.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.rfind(_SYMBOLS) >= 0


def without_symbols(library: Path, strip: str) -> None:
    """Replace a library; a program that has it open keeps the old file."""
    new = library.with_name(f"{library.name}.new")
    command = [strip, "--strip-unneeded", "-o", str(new), str(library)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0:
        shutil.copymode(library, new)
        new.replace(library)
    else:
        new.unlink(missing_ok=True)


def link_copies(folder: Path) -> None:
    """Make files of the same content one file of several names."""
    same: dict[bytes, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*")):
        if path.is_file() and not path.is_symlink():
            same[path.read_bytes()].append(path)
    for first, *copies in same.values():
        for copy in copies:
            if copy.samefile(first):
                continue
            new = copy.with_name(f"{copy.name}.new")
            os.link(first, new)
            new.replace(copy)
