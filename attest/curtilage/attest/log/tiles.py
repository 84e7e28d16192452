"""A log as static files: tile paths, tiles and entry bundles (C2SP tlog-tiles).

Which files a tree of some size consists of, where they lie, and what is in them.
Knows no directory: paths are relative to wherever the log is served from, and
files are bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.attest.log.tree import HASH_BYTES, hash_children

CHECKPOINT_PATH: Final = "checkpoint"
TILE_WIDTH: Final = 256
TILE_BITS: Final = 8
MAX_LEVEL: Final = 63
# Entry bundles give each entry a uint16 for its length.
MAX_ENTRY_BYTES: Final = 65535
ENTRIES: Final = "entries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One file of a log: 256 hashes or entries, or fewer at the right edge.

    Attributes:
        level: 0 for leaf hashes, up to 63; None for an entry bundle.
        index: its place in the level, from 0.
        width: 1 to 256; below 256 the tile is partial.
    """

    level: int | None
    index: int
    width: int = TILE_WIDTH

    @property
    def path(self) -> str:
        """Path at which it is served, relative to the log: ``tile/0/x001/234.p/7``."""
        # tlog-tiles, "tile index": groups of three digits, all but the last with an "x"
        # in front, so that no directory holds more than a thousand.
        digits = f"{self.index:03d}"
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
        number = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
        level = ENTRIES if self.level is None else self.level
        # A partial tile has a path of its own, so a cache never serves a narrow one for
        # the full one.
        partial = "" if self.width == TILE_WIDTH else f".p/{self.width}"
        return f"tile/{level}/{number}{partial}"

    @property
    def whole(self) -> "Tile":
        """The full tile that this one becomes, or is."""
        return Tile(level=self.level, index=self.index)


def tiles_of(size: int) -> Iterator[Tile]:
    """Yield every tile of hashes of a tree, level by level, and no entries."""
    return tiles_between(0, size)


def tiles_between(first: int, second: int) -> Iterator[Tile]:
    """Yield the tiles of hashes that the larger tree has and the smaller had not."""
    # Each level is a tree of the tiles below; the first that is empty ends the walk.
    for level in range(MAX_LEVEL + 1):
        before, after = first >> TILE_BITS * level, second >> TILE_BITS * level
        if not after:
            return
        yield from _row(level, before, after)


def bundles_between(first: int, second: int) -> Iterator[Tile]:
    """Yield the entry bundles that the larger tree has and the smaller had not."""
    return _row(None, first, second)


def _row(level: int | None, before: int, after: int) -> Iterator[Tile]:
    if before == after:
        return
    for index in range(before // TILE_WIDTH, after // TILE_WIDTH):
        yield Tile(level=level, index=index)
    if after % TILE_WIDTH:
        yield Tile(level=level, index=after // TILE_WIDTH, width=after % TILE_WIDTH)


def encode_tile(hashes: Sequence[bytes]) -> bytes:
    """Encode a tile of hashes."""
    return b"".join(hashes)


def parse_tile(data: bytes, tile: Tile) -> tuple[bytes, ...]:
    """Split a tile into its hashes.

    Raises:
        RefusedError: ``malformed``: not exactly as long as its width says.
    """
    # A tile is as wide as its path says: a shorter one would be a smaller tree's.
    if len(data) != tile.width * HASH_BYTES:
        raise malformed(f"{tile.path}: not {tile.width} hashes")
    return tuple(data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES))


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """Encode an entry bundle: each entry after its length, a big-endian uint16.

    Raises:
        RefusedError: ``too_large``: an entry is longer than 65,535 bytes.
    """
    if any(len(entry) > MAX_ENTRY_BYTES for entry in entries):
        raise too_large(f"entry: more than {MAX_ENTRY_BYTES} bytes")
    return b"".join(struct.pack(">H", len(entry)) + entry for entry in entries)


def parse_bundle(data: bytes, tile: Tile) -> tuple[bytes, ...]:
    """Split an entry bundle into as many entries as its width says.

    Raises:
        RefusedError: ``malformed``: cut off, or followed by more bytes.
    """
    entries: list[bytes] = []
    at = 0
    for _ in range(tile.width):
        start = at + 2
        # Slices never fail: without this, a length that is cut off would be read as a
        # smaller number.
        if start > len(data):
            raise malformed(f"{tile.path}: ends within a length")
        at = start + int.from_bytes(data[at:start], "big")
        entries.append(data[start:at])
    # Beyond the end as well as before it: the last entry's length is the sender's.
    if at != len(data):
        raise malformed(f"{tile.path}: cut off, or more than {tile.width} entries")
    return tuple(entries)


def tile_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root of a full tile, which is a hash of the level above."""
    level = list(hashes)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [hash_children(left, right) for left, right in pairs]
    return level[0]
