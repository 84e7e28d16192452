# pyright: reportPrivateUsage=false
# Private members are looked at here, to see what is left in them.
import io
import json
from typing import SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from curtilage.sandbox.pipe import (
    MAX_FRAME_BYTES,
    FrameReader,
    encode_frame,
    read_frame,
)

JSON = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_frames_round_trip(value: object) -> None:
    assert read_frame(io.BytesIO(encode_frame(value))) == value


@given(JSON, st.data())
def test_a_cut_frame_is_refused(value: object, data: st.DataObject) -> None:
    frame = encode_frame(value)
    cut = data.draw(st.integers(1, len(frame) - 1))
    with pytest.raises(ValueError, match="truncated"):
        read_frame(io.BytesIO(frame[:cut]))


def test_the_end_of_a_stream_is_none() -> None:
    assert read_frame(io.BytesIO(b"")) is None


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big") + b"x",
        b"\x00\x00\x00\x01x",
        b"\x00\x00\x00\x04null",
        b"\x00\x00\x00\x02\xff\xff",
    ],
    ids=["too long", "no JSON", "null", "no text"],
)
def test_a_bad_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"too long|Expecting|empty|decode"):
        read_frame(io.BytesIO(data))


@given(st.lists(JSON), st.data())
def test_frames_are_cut_from_pieces_of_any_length(
    values: list[object], data: st.DataObject
) -> None:
    sent = b"".join(map(encode_frame, values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=9)))
    reader = FrameReader(MAX_FRAME_BYTES)
    ends = zip([0, *cuts], [*cuts, len(sent)], strict=True)
    got = [value for begin, end in ends for value in reader.feed(sent[begin:end])]
    assert got == values


@pytest.mark.parametrize(
    "data",
    [(100).to_bytes(4, "big"), b"\x00\x00\x00\x01x", b"\x00\x00\x00\x04null"],
    ids=["too long", "no JSON", "null"],
)
def test_a_bad_frame_is_refused_as_it_arrives(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"too long|Expecting|empty"):
        FrameReader(99).feed(data)


class _Watched(bytearray):
    """Bytes that remember what was in front when it was deleted."""

    dropped = b""

    @override
    def __delitem__(self, at: SupportsIndex | slice) -> None:
        assert isinstance(at, slice)
        self.dropped += self[at]
        super().__delitem__(at)


def test_what_was_read_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytearray] = []
    loads = json.loads

    def watched(body: bytearray) -> object:
        bodies.append(body)
        return loads(body)

    monkeypatch.setattr(json, "loads", watched)
    frame = encode_frame("a text")
    assert read_frame(io.BytesIO(frame)) == "a text"
    reader = FrameReader(MAX_FRAME_BYTES)
    reader._data = data = _Watched()
    assert reader.feed(frame + frame[:7]) == ["a text"]
    assert data.dropped == bytes(len(frame))
    assert bytes(data) == frame[:7]
    assert [bytes(each) for each in bodies] == [bytes(len(frame) - 4)] * 2
