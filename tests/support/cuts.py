"""Bytes in pieces, cut anywhere."""

from hypothesis import strategies as st

PLACES = st.lists(st.integers(min_value=0, max_value=10_000), max_size=20)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at some places, taken modulo their length."""
    ends = sorted(place % (len(data) + 1) for place in places)
    starts = [0, *ends]
    return [data[a:b] for a, b in zip(starts, [*ends, len(data)], strict=True)]
