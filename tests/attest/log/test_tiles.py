import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.tiles import (
    MAX_ENTRY_BYTES,
    Tile,
    bundles_between,
    encode_bundle,
    encode_tile,
    parse_bundle,
    parse_tile,
    tile_root,
    tiles_between,
    tiles_of,
)
from curtilage.attest.log.tree import Tree, hash_leaf
from support.naive_tree import naive_root
from support.tile_paths import parse_path


def _paths(size: int) -> list[str]:
    return [tile.path for tile in tiles_of(size)]


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(level=0, index=0), "tile/0/000"),
        (Tile(level=0, index=0, width=5), "tile/0/000.p/5"),
        (Tile(level=1, index=999), "tile/1/999"),
        (Tile(level=2, index=1000), "tile/2/x001/000"),
        (Tile(level=0, index=1234067), "tile/0/x001/x234/067"),
        (Tile(level=63, index=12345, width=255), "tile/63/x012/345.p/255"),
        (Tile(level=None, index=7, width=1), "tile/entries/007.p/1"),
    ],
)
def test_a_path_is_that_of_the_specification(tile: Tile, path: str) -> None:
    assert tile.path == path
    assert parse_path(path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "",
        "tile/0/0",
        "tile/0/0000",
        "tile/00/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/0/x000/001",
        "tile/0/001/000",
        "tile/0/x001",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/05",
        "tile/0/000.p/",
        "tile/0/000/",
        "/tile/0/000",
        "tile/0/../../000",
        "tile/entry/000",
        "tile/0/000\n",
        "tile/0/\u0660\u0660\u0660",
        "tile/0/" + "x999/" * 7 + "999",
    ],
)
def test_any_other_path_is_refused(path: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_path(path)
    assert caught.value.code is RefusalCode.MALFORMED


@given(st.text(max_size=40))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        tile = parse_path("tile/" + text)
    except RefusedError:
        return
    assert tile.path == "tile/" + text


@given(
    st.one_of(st.none(), st.integers(0, 63)),
    st.integers(0, 2**55),
    st.integers(1, 256),
)
def test_every_tile_has_one_path(level: int | None, index: int, width: int) -> None:
    tile = Tile(level=level, index=index, width=width)
    assert parse_path(tile.path) == tile
    assert tile.whole.width == 256


def test_a_tree_has_the_tiles_of_the_specifications_examples() -> None:
    assert _paths(0) == []
    assert _paths(256) == ["tile/0/000", "tile/1/000.p/1"]
    tiles = _paths(70_000)
    assert len(tiles) == 273 + 1 + 1 + 1 + 1
    assert tiles[272:] == [
        "tile/0/272",
        "tile/0/273.p/112",
        "tile/1/000",
        "tile/1/001.p/17",
        "tile/2/000.p/1",
    ]


@given(st.integers(0, 140_000), st.integers(0, 70_000))
def test_what_is_between_two_sizes_completes_the_larger(size: int, more: int) -> None:
    written = {*tiles_of(size), *tiles_between(size, size + more)}
    needed = set(tiles_of(size + more))
    assert needed <= written
    # And nothing that was there for the smaller size is written again.
    assert not set(tiles_between(size, size + more)) & set(tiles_of(size))


def test_bundles_follow_the_lowest_level() -> None:
    assert [tile.path for tile in bundles_between(250, 600)] == [
        "tile/entries/000",
        "tile/entries/001",
        "tile/entries/002.p/88",
    ]
    assert list(bundles_between(5, 5)) == []


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=256))
def test_entries_are_read_back(entries: list[bytes]) -> None:
    tile = Tile(level=None, index=0, width=len(entries))
    assert list(parse_bundle(encode_bundle(entries), tile)) == entries


@given(st.binary(max_size=200), st.integers(1, 256))
def test_any_bytes_are_entries_or_refused(data: bytes, width: int) -> None:
    tile = Tile(level=None, index=0, width=width)
    try:
        entries = parse_bundle(data, tile)
    except RefusedError:
        return
    assert encode_bundle(entries) == data


def test_every_prefix_of_a_bundle_is_refused() -> None:
    data = encode_bundle([b"one", b"", b"three"])
    tile = Tile(level=None, index=0, width=3)
    for cut in (*(data[:length] for length in range(len(data))), data + b"\0"):
        with pytest.raises(RefusedError, match="malformed"):
            parse_bundle(cut, tile)


def test_an_entry_has_at_most_65535_bytes() -> None:
    tile = Tile(level=None, index=0, width=1)
    longest = bytes(MAX_ENTRY_BYTES)
    assert parse_bundle(encode_bundle([longest]), tile) == (longest,)
    with pytest.raises(RefusedError) as caught:
        encode_bundle([longest + b"\0"])
    assert caught.value.code is RefusalCode.TOO_LARGE


@pytest.mark.parametrize("length", [0, 31, 33, 63, 65, 96])
def test_a_tile_is_exactly_as_long_as_it_is_wide(length: int) -> None:
    tile = Tile(level=0, index=0, width=2)
    assert parse_tile(encode_tile([bytes(32)] * 2), tile) == (bytes(32),) * 2
    with pytest.raises(RefusedError, match="not 2 hashes"):
        parse_tile(bytes(length), tile)


def test_a_full_tile_has_the_root_of_its_leaves() -> None:
    leaves = [bytes([number]) for number in range(256)]
    hashes = [hash_leaf(leaf) for leaf in leaves]
    assert tile_root(hashes) == naive_root(leaves) == Tree(hashes).root()
