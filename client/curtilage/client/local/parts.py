"""One model file out of parts, for whoever reaches no hub but can carry files.

Each part is a piece of the file, as ``split`` cuts it. What counts is the digest of
the whole; what is checked before it only says sooner, and better, what is wrong.
"""

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from curtilage.client.files import open_ordinary
from curtilage.client.local.registry import (
    CHUNK_BYTES,
    GGUF_MAGIC,
    ModelEntry,
    ModelRegistryError,
    Progress,
    Registry,
)

_NUMBER: Final = re.compile(r"\d+")


class PartsError(ModelRegistryError):
    """The parts are not all there, or cannot be read."""


def put_together(
    registry: Registry,
    name: str,
    parts: Sequence[Path],
    *,
    sha256: str,
    size_bytes: int | None = None,
    progress: Progress,
) -> ModelEntry:
    """Join parts to one file in the registry's folder, check its digest, register it.

    The parts stay as they are. What breaks off begins anew the next time. The final
    name appears only after the digest matched.

    Args:
        registry: the models of the user.
        name: what the model is called here.
        parts: the files, in any order where ``in_order`` finds their numbers.
        sha256: digest of the whole, 64 hex digits.
        size_bytes: size of the whole, where it is known.
        progress: called as bytes are written.

    Raises:
        PartsError: a part is missing, named twice, or cannot be read.
        ModelArrivingError: another process brings the same file.
        ModelRegistryError: the whole has another digest (it was deleted), the name
            stands for another file, or there is no room.
    """
    ordered = in_order(parts)
    total = _whole_size(ordered)
    if size_bytes is not None and total != size_bytes:
        raise PartsError(
            f"the {len(ordered)} parts have {total} bytes together, not {size_bytes}: "
            "a part is missing, cut short, or of another file"
        )

    def join(file: BinaryIO) -> None:
        # Not gone on with: what is there may be of other parts, or of a download.
        file.truncate(0)
        registry.require_room(total)
        done = 0
        for part in ordered:
            with open_ordinary(part) as source:
                while chunk := source.read(CHUNK_BYTES):
                    done += file.write(chunk)
                    progress(done, total)

    try:
        return registry.receive(
            ModelEntry(
                name=name,
                path="",
                sha256=sha256.lower(),
                size_bytes=0,
                source="added from one file"
                if len(ordered) == 1
                else f"put together from {len(ordered)} parts",
            ),
            join,
        )
    except OSError as problem:
        # A part that vanished is named; else it is the disk, which is full or fails.
        where = problem.filename or registry.folder
        raise PartsError(f"{where}: {problem.strerror}") from None


def in_order(parts: Sequence[Path]) -> tuple[Path, ...]:
    """Put parts in order by the number that tells their names apart.

    A shell writes ``part10`` before ``part2``. Names that differ in anything but one
    number are taken in the order in which they were given.

    Raises:
        PartsError: there is none, or a number is missing or there twice.
    """
    if not parts:
        raise PartsError("there are no parts")
    names = [part.name for part in parts]
    columns = list(zip(*(_NUMBER.findall(name) for name in names), strict=False))
    changing = [column for column in columns if len({*map(int, column)}) > 1]
    if len({tuple(_NUMBER.split(name)) for name in names}) > 1 or len(changing) != 1:
        return tuple(parts)
    numbered = sorted(zip(map(int, changing[0]), parts, strict=True))
    if numbered[0][0] > 1:
        raise PartsError(f"part 1 is missing: the first is {numbered[0][1].name}")
    for (before, _), (after, part) in pairwise(numbered):
        if after == before:
            raise PartsError(f"part {after} is there twice")
        if after > before + 1:
            raise PartsError(
                f"part {before + 1} is missing: {part.name} follows number {before}"
            )
    return tuple(part for _, part in numbered)


def _whole_size(parts: Sequence[Path]) -> int:
    """Return the size of all together.

    Raises:
        PartsError: one is there twice under two names, cannot be read, or the first
            is not the beginning of a model.
    """
    found: dict[tuple[int, int], int] = {}
    for part in parts:
        try:
            with open_ordinary(part) as file:
                status = os.fstat(file.fileno())
                if not found and file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                    raise PartsError(f"{part} is not the beginning of a GGUF file")
        except OSError as problem:
            raise PartsError(f"{part}: {problem.strerror}") from None
        if (status.st_dev, status.st_ino) in found:
            raise PartsError(f"{part} is there twice")
        found[status.st_dev, status.st_ino] = status.st_size
    return sum(found.values())
