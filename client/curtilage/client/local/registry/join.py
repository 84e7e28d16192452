"""Joins the parts of a model file, for users without access to a hub.

Each part is a piece of the file, as ``split`` cuts it. The digest of the whole decides;
earlier checks only report a mistake sooner and more precisely.
"""

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from curtilage.client.local.registry.store import (
    CHUNK_BYTES,
    GGUF_MAGIC,
    ModelEntry,
    ModelRegistryError,
    OtherDigestError,
    Progress,
    Registry,
)
from curtilage.client.system.files import open_ordinary

TWICE: Final = "is given twice"
_NUMBER: Final = re.compile(r"([0-9]+)")


class PartsError(ModelRegistryError):
    """The parts are incomplete, or cannot be read."""


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

    The parts are not changed. After an interruption it starts again. The file gets
    its final name only after the digest matched.

    Args:
        registry: the models of the user.
        name: the model's name here.
        parts: the files, in any order: they are sorted by their names.
        sha256: digest of the whole, 64 hex digits.
        size_bytes: size of the whole, if known.
        progress: called as bytes are written.

    Raises:
        PartsError: a part is missing, given twice, or cannot be read, or the whole has
            another digest; it was deleted.
        ModelArrivingError: another process creates the same file.
        ModelRegistryError: the name refers to another file, or there is no space.
    """
    ordered = in_order(parts)
    total = _whole_size(ordered)
    if size_bytes is not None and total != size_bytes:
        raise PartsError(
            f"the {len(ordered)} parts have {total} bytes together, not {size_bytes}: "
            "a part is missing, truncated, or of another file"
        )

    def join(file: BinaryIO) -> None:
        # Not resumed: a partial file may be from other parts or from a download.
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
    except OtherDigestError as problem:
        first, last = ordered[0].name, ordered[-1].name
        raise PartsError(
            f"{problem}; {len(ordered)} parts were joined in the order of their names, "
            f"from {first} to {last}: one may be missing or changed, or its name may "
            "not show its position"
        ) from None
    except OSError as problem:
        # A missing part is named; otherwise the disk is full or fails.
        where = problem.filename or registry.folder
        raise PartsError(f"{where}: {problem.strerror}") from None


def in_order(parts: Sequence[Path]) -> tuple[Path, ...]:
    """Sort parts by their names.

    A number in a name counts as a number: a shell writes ``part10`` before ``part2``.
    If names differ by one number only, it also shows which part is missing. For parts
    with the same name in several folders, the folders' names decide.

    Raises:
        PartsError: there are none, or a number is missing or occurs twice.
    """
    if not parts:
        raise PartsError("there are no parts")
    ordered = tuple(
        sorted(parts, key=lambda part: (_natural(part.name), _natural(str(part))))
    )
    names = [_natural(part.name) for part in ordered]
    # Every second piece is a number.
    if len({(len(name), *name[::2]) for name in names}) > 1:
        return ordered
    columns = zip(*(name[1::2] for name in names), strict=True)
    changing = [column for column in columns if len({*column}) > 1]
    if len(changing) != 1:
        return ordered
    numbered = list(zip(map(int, changing[0]), ordered, strict=True))
    if numbered[0][0] > 1:
        raise PartsError(f"part 1 is missing: the first is {numbered[0][1].name}")
    for (before, _), (after, part) in pairwise(numbered):
        if after == before:
            raise PartsError(f"part {after} {TWICE}")
        if after > before + 1:
            raise PartsError(
                f"part {before + 1} is missing: {part.name} follows number {before}"
            )
    return ordered


def _natural(text: str) -> tuple[str | int, ...]:
    """Return the sort key of a text: words, and numbers between them."""
    pieces = _NUMBER.split(text)
    return tuple(int(each) if at % 2 else each for at, each in enumerate(pieces))


def _whole_size(parts: Sequence[Path]) -> int:
    """Return the total size.

    Raises:
        PartsError: a file is given twice under two names, cannot be read, or the first
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
            raise PartsError(f"{part} {TWICE}")
        found[status.st_dev, status.st_ino] = status.st_size
    return sum(found.values())
