"""Padded answers: cover, plain OHTTP, and any answer at all."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.enclave_server.ohttp.openai_answers import (
    Answer,
    Begun,
    Piece,
)
from curtilage.enclave_server.telemetry import Event
from curtilage.wire.frames import answer_bytes
from curtilage.wire.shaping import TransportParameters
from support.enclave_parts import (
    CHUNKED,
    PLAIN,
    QUICK,
    error_code,
    inner_request,
)
from support.padded_parts import (
    END,
    FORMS,
    KEY,
    REFUSED,
    SMALL,
    WAYS,
    frame_sizes,
    play,
    text_of,
)


@pytest.mark.parametrize("bucket", range(QUICK.buckets))
@pytest.mark.parametrize("form", FORMS)
async def test_cover_has_the_length_that_was_asked_for(bucket: int, form: str) -> None:
    inner = inner_request(json.dumps({"bucket": bucket}).encode(), path=b"/v1/cover")
    played = await play(inner=inner, form=form)
    assert played.response.status == 200
    assert played.response.fields == ((b"content-type", b"application/json"),)
    assert json.loads(played.response.content) == {}
    assert (played.outcome, played.model.begun) == (Event.COVERED, 0)
    frames = 8 << bucket
    if form == CHUNKED:
        assert played.sizes == frame_sizes(frames)
    else:
        assert played.sizes == [sum(frame_sizes(frames))]
    assert played.times[-1] == round(frames * 0.002, 6)
    assert played.batches == 1 << bucket


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"{}", "invalid_value"),
        (b'{"bucket":"1"}', "invalid_value"),
        (b'{"bucket":true}', "invalid_value"),
        (b'{"bucket":1.0}', "invalid_value"),
        (b'{"bucket":-1}', "out_of_range"),
        (b'{"bucket":5}', "out_of_range"),
        (b'{"bucket":0,"bucket":1}', "invalid_json"),
        (b'{"bucket":0,"x":1}', "unsupported_parameter"),
    ],
)
async def test_bad_cover_is_refused_like_anything_else(
    content: bytes, code: str
) -> None:
    played = await play(inner=inner_request(content, path=b"/v1/cover"))
    assert (played.response.status, error_code(played.response)) == (400, code)
    assert played.sizes == frame_sizes(8)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_plain_answer_comes_at_the_buckets_end_and_as_long(
    way: str, stream: bool
) -> None:
    played = await play(*WAYS[way], form=PLAIN, stream=stream)
    suite = KEY.gateway_keys[0].config.suites()[0]
    assert played.sizes == [answer_bytes(QUICK, suite, 0)] == [sum(frame_sizes(8))]
    assert played.times == [0.016]
    if not stream:
        assert json.loads(played.response.content)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.builds(Piece, text=st.text(max_size=300)),
            st.floats(min_value=0, max_value=0.01),
        ),
        max_size=40,
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from([QUICK, SMALL, replace(QUICK, frame_bytes=64, first_bucket=32)]),
)
async def test_any_answer_is_a_bucket_of_frames_in_time(
    says: list[Answer | float],
    stream: bool,
    logprobs: bool,
    transport: TransportParameters,
) -> None:
    says = [
        replace(item, logprob=-0.25) if logprobs and isinstance(item, Piece) else item
        for item in says
    ]
    played = await play(
        Begun(), *says, END, transport=transport, stream=stream, logprobs=logprobs
    )
    sealed = transport.frame_bytes + 16 + 2
    frames = len(played.sizes)
    assert frames in {transport.frames_of(k) for k in range(transport.buckets)}
    assert played.sizes == [16 + sealed, *([sealed] * (frames - 2)), sealed - 1]
    assert played.times == [round(n * 0.002, 6) for n in range(1, frames + 1)]
    text = "".join(item.text for item in says if isinstance(item, Piece))
    content = played.response.content
    if b"time_limit" in content:
        return
    expected = (
        text_of(content)
        if stream
        else json.loads(content)["choices"][0]["message"]["content"]
    )
    assert text.startswith(expected)
    assert expected == text or b'"length"' in content


def test_shortest_frames_still_report_a_refusal() -> None:
    asyncio.run(_shortest_frames())


async def _shortest_frames() -> None:
    shortest = replace(QUICK, frame_bytes=64, first_bucket=2, buckets=1)
    played = await play(inner=REFUSED["no-date"], transport=shortest)
    assert played.response.status == 400
    assert len(played.sizes) == 2
    for stream in (True, False):
        played = await play(Begun(), END, transport=shortest, stream=stream)
        assert len(played.sizes) == 2
