"""The saved state of one sequence, in llama.cpp's layout: found, zeroed, moved. Pure.

::

    u32 magic   u32 sequence   u32 streams
    for each stream:  u32 cells, and if it is not 0:
        for each cell:   u32 position   u32 1   u32 sequence
        u32 values are transposed   u32 layers
        for each layer:  u32 type   u64 row bytes   rows      keys
        for each layer:  u32 type   u64 row bytes   rows      values
              transposed: u32 type   u32 element bytes   u32 elements   elements

The library does not document it, so it is bound to one version of the library. Each
length is checked, and the parts must fill the state exactly: what is not understood is
never taken for erased.
"""

import struct
from dataclasses import dataclass
from typing import Final

MAGIC: Final = 0xAF143CD8
MAX_LAYERS: Final = 4096


class StateError(ValueError):
    """The state has another layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The parts of a state.

    Attributes:
        stream: first and last byte of its one stream that is not empty, with its
            number of cells.
        payload: likewise of each layer's keys or values.
    """

    stream: tuple[int, int]
    payload: tuple[tuple[int, int], ...]


class _Reader:
    """Reads one number after the other; reading beyond the end is an error."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def u32(self) -> int:
        return self._number("<I")

    def u64(self) -> int:
        return self._number("<Q")

    def skip(self, size: int) -> tuple[int, int]:
        start, end = self.at, self.at + size
        if end > len(self._data):
            raise StateError("a part is longer than the state")
        self.at = end
        return start, end

    def _number(self, form: str) -> int:
        start, _ = self.skip(struct.calcsize(form))
        return int(struct.unpack_from(form, self._data, start)[0])


def find_layout(state: memoryview, *, cells: int) -> Layout:
    """Return where a sequence's keys and values are.

    Args:
        state: of one sequence.
        cells: how many it must have, at least 1: one for each position, from 0 on.

    Raises:
        StateError: it is laid out differently, or has another number of cells.
    """
    reader = _Reader(state)
    if reader.u32() != MAGIC:
        raise StateError("no state of a sequence")
    reader.u32()
    found: list[Layout] = []
    for _ in range(reader.u32()):
        start = reader.at
        if count := reader.u32():
            if count != cells or found:
                raise StateError("not one sequence with this number of cells")
            payload = _payload(reader, count)
            found.append(Layout(stream=(start, reader.at), payload=payload))
    if reader.at != len(state) or not found:
        raise StateError("the parts do not fill the state")
    return found[0]


def zero(state: memoryview, layout: Layout) -> None:
    """Overwrite keys and values with zeros; the rest stays valid."""
    for start, end in layout.payload:
        state[start:end] = bytes(end - start)


def moved(state: memoryview, layout: Layout, *, streams: int, to: int) -> bytearray:
    """Return the state for a sequence of another context.

    Args:
        state: see ``find_layout``.
        layout: see ``find_layout``.
        streams: how many sequences that context has.
        to: number of the sequence in it.
    """
    start, end = layout.stream
    head = struct.pack("<3I", MAGIC, to, streams) + bytes(4 * to)
    # At once: a buffer that grows would leave copies behind.
    result = bytearray(len(head) + end - start + 4 * (streams - 1 - to))
    result[: len(head)] = head
    memoryview(result)[len(head) : len(head) + end - start] = state[start:end]
    return result


def _payload(reader: _Reader, cells: int) -> tuple[tuple[int, int], ...]:
    for position in range(cells):
        # Another number of sequences would mean that the cell belongs to others, too.
        if (reader.u32(), reader.u32()) != (position, 1):
            raise StateError("a cell is shared, or out of order")
        reader.u32()
    transposed, layers = reader.u32(), reader.u32()
    if transposed > 1 or not 1 <= layers <= MAX_LAYERS:
        raise StateError("the layers have another layout")
    parts = [_rows(reader, cells) for _ in range(layers)]
    values = _columns if transposed else _rows
    parts += [values(reader, cells) for _ in range(layers)]
    return tuple(parts)


def _rows(reader: _Reader, cells: int) -> tuple[int, int]:
    reader.u32()
    return reader.skip(reader.u64() * cells)


def _columns(reader: _Reader, cells: int) -> tuple[int, int]:
    reader.u32()
    element = reader.u32()
    return reader.skip(element * reader.u32() * cells)
