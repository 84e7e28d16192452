"""Makes an environment smaller and leaves what it does as it is: ``slim(site)``.

Half of what wheels put there is read by nobody: symbols for debuggers, tests, data of
functions that nothing here calls, and the same library three times, since a wheel
cannot hold a link. Runs after every installation; the standard library is enough.
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
    "cryptography_vectors/[!H_]*/",  # of 125 MB, the tests read those of HPKE
    "cryptography_vectors/HMAC",
    "include",  # the engine's second copy, for programs in C
    "lib",
    "numpy/**/tests",
    "onnxruntime/capi/libonnxruntime.so.*",  # for programs in C; Python's has it inside
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
    "phonenumbers/carrierdata",
    "phonenumbers/geodata",
    "phonenumbers/tzdata",
    "scipy/**/tests",
    "sklearn/**/tests",
    "spacy/tests",
    "srsly/**/tests",
    "thinc/tests",
)
REPEATED: Final = "llama_cpp/lib"
_DEBUGGING: Final = b".debug_info\0"


def slim(site: Path) -> None:
    """Remove what is not used, the symbols for debuggers, and second copies."""
    remove_unused(site)
    if strip := shutil.which("strip"):
        for library in site.rglob("*.so"):
            if not library.is_symlink() and has_symbols(library):
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


def has_symbols(library: Path) -> bool:
    """Whether a library has what only a debugger reads."""
    with library.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.rfind(_DEBUGGING) >= 0


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
