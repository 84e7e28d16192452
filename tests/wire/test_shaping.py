from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.errors import LimitExceededError, MalformedError
from curtilage.wire.shaping import (
    ENCODED_BYTES,
    PADDED,
    UNPADDED,
    TransportParameters,
    parse_transport_parameters,
)

NUMBERS = ("frame_bytes", "period_ms", "first_bucket", "buckets")


def with_number(
    base: TransportParameters, name: str, value: int
) -> TransportParameters:
    numbers = {each: getattr(base, each) for each in NUMBERS} | {name: value}
    return replace(base, **numbers)


parameters = st.builds(
    TransportParameters,
    frame_bytes=st.integers(64, 16384),
    period_ms=st.integers(1, 1000),
    first_bucket=st.integers(2, 1000),
    buckets=st.integers(1, 6),
)


def test_default_is_what_the_design_names() -> None:
    assert PADDED.encode() == bytes([1, 1, 2, 0, 0, 50, 0, 64, 7])
    assert PADDED.max_frames == 4096
    assert [PADDED.frames_of(k) for k in range(7)] == [
        64,
        128,
        256,
        512,
        1024,
        2048,
        4096,
    ]


def test_unpadded_has_no_numbers() -> None:
    assert UNPADDED.encode() == bytes([1, 2, 0, 0, 0, 0, 0, 0, 0])
    assert UNPADDED.max_frames == 0


@given(parameters=parameters | st.just(UNPADDED))
def test_parse_gives_back_what_was_encoded(parameters: TransportParameters) -> None:
    encoded = parameters.encode()
    assert len(encoded) == ENCODED_BYTES
    assert parse_transport_parameters(encoded) == parameters


@given(data=st.binary(min_size=9, max_size=9) | st.binary(max_size=12))
def test_parse_takes_one_form_only(data: bytes) -> None:
    try:
        parsed = parse_transport_parameters(data)
    except MalformedError:
        return
    assert parsed.encode() == data


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frame_bytes", 63),
        ("frame_bytes", 16385),
        ("period_ms", 0),
        ("period_ms", 1001),
        ("first_bucket", 1),
        ("first_bucket", 65536),
        ("buckets", 0),
        ("buckets", 17),
    ],
)
def test_number_out_of_range_is_refused(name: str, value: int) -> None:
    with pytest.raises(MalformedError, match=name):
        with_number(PADDED, name, value)


@pytest.mark.parametrize("name", NUMBERS)
def test_number_in_an_unpadded_shape_is_refused(name: str) -> None:
    with pytest.raises(MalformedError, match="unpadded"):
        with_number(UNPADDED, name, 1)


def test_answer_beyond_what_a_key_may_seal_is_refused() -> None:
    TransportParameters(frame_bytes=16384, first_bucket=2, buckets=16)
    with pytest.raises(MalformedError, match="too long"):
        TransportParameters(frame_bytes=16384, first_bucket=3, buckets=16)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PADDED.encode()[:-1],
        PADDED.encode() + b"\0",
        b"\0" + PADDED.encode()[1:],
        b"\2" + PADDED.encode()[1:],
        b"\1\0" + PADDED.encode()[2:],
        b"\1\3" + PADDED.encode()[2:],
        b"\1\3" + UNPADDED.encode()[2:],
        b"\1\2" + PADDED.encode()[2:],
        b"\1\1" + UNPADDED.encode()[2:],
    ],
    ids=[
        "empty",
        "short",
        "long",
        "version 0",
        "version 2",
        "shape 0",
        "shape 3",
        "shape 3 without numbers",
        "unpadded with numbers",
        "padded without numbers",
    ],
)
def test_parse_refuses(data: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_transport_parameters(data)


@given(parameters=parameters, frames=st.integers(1, 40000))
def test_bucket_is_the_smallest_that_holds(
    parameters: TransportParameters, frames: int
) -> None:
    if frames > parameters.max_frames:
        with pytest.raises(LimitExceededError):
            parameters.bucket_of(frames)
        return
    bucket = parameters.bucket_of(frames)
    assert parameters.frames_of(bucket) >= frames
    assert bucket == 0 or parameters.frames_of(bucket - 1) < frames


@pytest.mark.parametrize("bucket", [-1, 7])
def test_bucket_that_there_is_not_is_refused(bucket: int) -> None:
    with pytest.raises(LimitExceededError):
        PADDED.frames_of(bucket)
