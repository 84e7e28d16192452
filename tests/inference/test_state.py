"""The layout of a sequence's state; the real one is in ``test_native``."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.state import (
    MAGIC,
    MAX_LAYERS,
    StateError,
    find_layout,
    moved,
    zero,
)

CELLS = 3
ROW = b"\x07" * 8


def state(
    *,
    magic: int = MAGIC,
    streams: int = 2,
    at: int = 1,
    cells: int = CELLS,
    positions: tuple[int, ...] = (0, 1, 2),
    owners: int = 1,
    transposed: int = 0,
    layers: int = 2,
    row_bytes: int = len(ROW),
) -> bytes:
    stream = struct.pack("<I", cells)
    for position in positions:
        stream += struct.pack("<3I", position, owners, 0)
    stream += struct.pack("<2I", transposed, layers)
    keys = struct.pack("<IQ", 1, row_bytes) + ROW * cells
    stream += keys * layers
    values = struct.pack("<3I", 1, 2, len(ROW) // 2) + ROW * cells
    stream += (values if transposed else keys) * layers
    empty = struct.pack("<I", 0)
    head = struct.pack("<3I", magic, 0, streams)
    return head + empty * at + stream + empty * (streams - 1 - at)


@pytest.mark.parametrize("transposed", [0, 1])
def test_keys_and_values_are_zeroed_and_nothing_else(transposed: int) -> None:
    data = bytearray(state(transposed=transposed))
    layout = find_layout(memoryview(data), cells=CELLS)
    assert len(layout.payload) == 4
    zero(memoryview(data), layout)
    assert data == state(transposed=transposed).replace(b"\x07", b"\x00")


def test_a_state_is_moved_to_another_number_of_sequences() -> None:
    data = memoryview(state(streams=1, at=0))
    layout = find_layout(data, cells=CELLS)
    for streams, to in ((1, 0), (4, 0), (4, 2), (4, 3)):
        there = moved(data, layout, streams=streams, to=to)
        expected = bytearray(state(streams=streams, at=to))
        expected[4:8] = struct.pack("<I", to)
        assert there == expected


@pytest.mark.parametrize(
    "other",
    [
        {"magic": MAGIC + 1},
        {"cells": CELLS + 1, "positions": (0, 1, 2, 3)},
        {"positions": (0, 2, 3)},
        {"owners": 0},
        {"owners": 2},
        {"transposed": 2},
        {"layers": 0},
        {"row_bytes": len(ROW) + 1},
        {"row_bytes": 2**63},
    ],
    ids=str,
)
def test_another_layout_is_refused(other: dict[str, int]) -> None:
    with pytest.raises(StateError):
        find_layout(memoryview(state(**other)), cells=CELLS)  # type: ignore[arg-type]


def test_too_many_layers_are_refused_before_they_are_read() -> None:
    data = state()
    # After the head, an empty stream, the count, the cells and one more number.
    at = 12 + 4 + 4 + 12 * CELLS + 4
    many = data[:at] + struct.pack("<I", MAX_LAYERS + 1) + data[at + 4 :]
    with pytest.raises(StateError, match="layers"):
        find_layout(memoryview(many), cells=CELLS)


def test_two_sequences_and_none_are_refused() -> None:
    one = state(streams=1, at=0)
    both = one[:8] + struct.pack("<I", 2) + one[12:] * 2
    none = struct.pack("<5I", MAGIC, 0, 2, 0, 0)
    for data in (both, none):
        with pytest.raises(StateError):
            find_layout(memoryview(data), cells=CELLS)


def test_every_cut_and_every_addition_is_refused() -> None:
    whole = state()
    for size in range(len(whole)):
        with pytest.raises(StateError):
            find_layout(memoryview(whole[:size]), cells=CELLS)
    with pytest.raises(StateError):
        find_layout(memoryview(whole + b"\x00"), cells=CELLS)


@given(st.data())
def test_any_bytes_give_a_layout_within_them_or_a_refusal(data: st.DataObject) -> None:
    octets = bytearray(state())
    for at in data.draw(st.lists(st.integers(0, len(octets) - 1), max_size=6)):
        octets[at] = data.draw(st.integers(0, 255))
    try:
        layout = find_layout(memoryview(octets), cells=CELLS)
    except StateError:
        return
    assert all(0 <= a <= b <= len(octets) for a, b in layout.payload)
