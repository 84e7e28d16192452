import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.pipe import MAX_FRAME_BYTES, encode_frame, read_frame

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
