"""Every input worth trying again, by harness and name.

What once broke something is a file, ``found/HARNESS/NAME``: nothing but a person
takes it out. Bad-input lists and valid messages are made when they are needed
(``seeds.py``). The rest is one archive: what reached a branch that nothing else
reached, under its digest, and true evidence, which is other bytes whenever it is
made.
"""

import io
import lzma
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fuzz.seeds import every_seed, file_name

FOUND: Final = Path(__file__).resolve().parent / "found"
ARCHIVE: Final = Path(__file__).resolve().parent / "corpus.tar.xz"

Inputs = Mapping[str, bytes]


@cache
def archived() -> Mapping[str, Inputs]:
    """Read the archive, in memory."""
    read: dict[str, dict[str, bytes]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None, member.name
            harness, name = member.name.split("/")
            read.setdefault(harness, {})[name] = file.read()
    return read


@cache
def made() -> Mapping[str, Inputs]:
    """Make every seed."""
    seeds: dict[str, dict[str, bytes]] = {}
    for harness, name, data in every_seed():
        seeds.setdefault(harness, {})[file_name(name)] = data
    return seeds


def broke(harness: str) -> Inputs:
    """Read the inputs that once broke a harness's parser."""
    return {path.name: path.read_bytes() for path in (FOUND / harness).glob("*")}


def inputs(harness: str) -> Inputs:
    """Return all of a harness, in a fixed order, and the empty input."""
    sources = (archived().get(harness, {}), made().get(harness, {}), broke(harness))
    every = {name: data for source in sources for name, data in source.items()}
    return {"": b"", **dict(sorted(every.items()))}


def packed(corpus: Mapping[str, Inputs]) -> bytes:
    """Return a tar archive that depends on names and content alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for harness in sorted(corpus):
            for name, data in sorted(corpus[harness].items()):
                member = tarfile.TarInfo(f"{harness}/{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def replace(corpus: Mapping[str, Inputs]) -> None:
    """Write the archive anew."""
    ARCHIVE.write_bytes(lzma.compress(packed(corpus), preset=9 | lzma.PRESET_EXTREME))
    archived.cache_clear()
