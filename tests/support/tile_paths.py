"""A reader of tile paths, strict enough to show that each tile has one path.

The product writes and requests paths; it never serves them.
"""

import re
from typing import Final

from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.log.tiles import (
    ENTRIES,
    MAX_LEVEL,
    TILE_WIDTH,
    Tile,
)

MAX_SIZE: Final = 2**63 - 1
# Eight elements of three digits reach past 2**63 leaves.
_PATH: Final = re.compile(
    r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/){0,7}[0-9]{3})"
    r"(?:\.p/([1-9][0-9]{0,2}))?",
    re.ASCII,
)


def parse_path(path: str) -> Tile:
    """Read a tile's path.

    Raises:
        RefusedError: ``malformed``: any spelling but the one that ``Tile.path``
            gives.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise malformed("tile: not a path of a tile")
    level = None if match[1] == ENTRIES else int(match[1])
    tile = Tile(
        level=level,
        index=int(match[2].replace("x", "").replace("/", "")),
        width=int(match[3] or TILE_WIDTH),
    )
    # Written again and compared: one file has one path, so a cache or a server cannot
    # be asked for it under two.
    if tile.path != path or (level or 0) > MAX_LEVEL or tile.index > MAX_SIZE:
        raise malformed("tile: not the path of any tile")
    return tile
