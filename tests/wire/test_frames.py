import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire.bhttp import (
    DEFAULT_LIMITS,
    ContentChunk,
    Response,
    ResponseDecoder,
    ResponseEnd,
    ResponseHead,
    decode_response,
    encode_response_head,
)
from curtilage.wire.chunked import open_chunked_request
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
)
from curtilage.wire.frames import (
    AnswerFramer,
    Filler,
    Frame,
    FrameCheck,
    answer_bytes,
    answer_limits,
    encode_padded_response,
    fill_event_stream,
    fill_json,
)
from curtilage.wire.hpke.suite import SUITES, Suite
from curtilage.wire.ohttp import open_request, seal_request
from curtilage.wire.padding import seal_padded_request
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from support.wire_keys import KEYS, LIVE

HEAD = encode_response_head(200, ((b"content-type", b"text/event-stream"),))
SMALL = TransportParameters(frame_bytes=64, period_ms=1, first_bucket=2, buckets=5)

frame_sizes = st.sampled_from([64, 65, 66, 67, 127, 512, 16384]) | st.integers(64, 600)
small_parameters = st.builds(
    TransportParameters,
    frame_bytes=frame_sizes,
    first_bucket=st.integers(2, 9),
    buckets=st.integers(1, 5),
)
# What an event stream can say; the marks a line could carry are in it.
event_data = st.text(
    st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=90
).filter(lambda text: not text.startswith(" "))


def head_of(octets: int) -> bytes:
    """Return a response head of exactly so many bytes, 5 or more."""
    bare = encode_response_head(200, ())
    for value in range(octets):
        head = encode_response_head(200, ((b"x", b"v" * value),))
        if len(head) == octets:
            return head
    # The few lengths that one field cannot make: a second one shifts them.
    for value in range(octets):
        head = encode_response_head(200, ((b"x", b"v" * value), (b"y", b"")))
        if len(head) == octets:
            return head
    assert octets == len(bare), octets
    return bare


def frames(framer: AnswerFramer, content: Iterator[bytes]) -> Iterator[Frame]:
    """Run a framer to its end; each unit is written when it is ready."""
    for unit in content:
        if unit:
            framer.write(unit)
        else:
            yield framer.next()
    framer.end()
    while not framer.over:
        yield framer.next()


def decoded(answer: list[Frame]) -> tuple[ResponseHead, bytes, ResponseEnd]:
    assert [frame.final for frame in answer] == [False] * (len(answer) - 1) + [True]
    decoder = ResponseDecoder()
    events = [e for frame in answer for e in decoder.push(frame.plaintext)]
    events += decoder.finish()
    head, *chunks, end = events
    assert isinstance(head, ResponseHead)
    assert isinstance(end, ResponseEnd)
    data = [chunk.data for chunk in chunks if isinstance(chunk, ContentChunk)]
    return head, b"".join(data), end


def sse_events(stream: bytes) -> list[str]:
    """Read an event stream as the HTML standard's section 9.2.6 says."""
    events: list[str] = []
    data: list[str] = []
    for line in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        name, colon, value = line.partition(":")
        if not line:
            events += ["\n".join(data)] if data else []
            data = []
        elif colon and not name:
            continue
        elif name == "data":
            data.append(value.removeprefix(" "))
        else:
            raise AssertionError("neither data nor a comment")
    assert not data
    return events


def checked(parameters: TransportParameters, answer: list[Frame]) -> None:
    check = FrameCheck(parameters)
    for frame in answer[:-1]:
        check.chunk(len(frame.plaintext))
    check.finish(len(answer[-1].plaintext))
    assert check.frames == len(answer)
    assert len(answer) in {
        parameters.frames_of(bucket) for bucket in range(parameters.buckets)
    }


@given(parameters=small_parameters, texts=st.lists(event_data | st.none()))
def test_event_stream_comes_out_whole_and_in_order(
    parameters: TransportParameters, texts: list[str | None]
) -> None:
    framer = AnswerFramer(parameters, HEAD, filler=fill_event_stream)
    written: list[str] = []
    answer: list[Frame] = []
    for text in texts:
        unit = f"data: {text}\n\n".encode()
        if text is None:
            if framer.sent < parameters.max_frames - 1:
                answer.append(framer.next())
        elif len(unit) <= framer.room:
            framer.write(unit)
            written.append(text)
    answer += frames(framer, iter(()))
    checked(parameters, answer)
    head, stream, end = decoded(answer)
    assert head.status == 200
    assert end.trailers == ()
    assert sse_events(stream) == written


@given(
    parameters=small_parameters,
    before=st.integers(0, 5),
    value=st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_json_comes_out_as_it_went_in(
    parameters: TransportParameters, before: int, value: dict[str, str]
) -> None:
    framer = AnswerFramer(parameters, HEAD, filler=fill_json)
    text = json.dumps(value).encode()
    ticks = min(before, parameters.max_frames - 1)
    answer = [framer.next() for _ in range(ticks)]
    if len(text) > framer.room:
        with pytest.raises(LimitExceededError):
            framer.write(text)
        return
    answer += frames(framer, iter([text]))
    checked(parameters, answer)
    assert json.loads(decoded(answer)[1]) == value


@pytest.mark.parametrize("frame_bytes", [64, 65, 66, 128, 512])
@pytest.mark.parametrize("filler", [fill_event_stream, fill_json])
def test_every_head_length_up_to_a_frame_works(
    frame_bytes: int, filler: Filler
) -> None:
    parameters = TransportParameters(
        frame_bytes=frame_bytes, first_bucket=4, buckets=1, period_ms=1
    )
    # The whole of a small frame; of a larger one the ends, and where the length
    # of the content takes one byte instead of two.
    gap = range(24, frame_bytes - 70) if frame_bytes > 128 else range(0)
    for octets in sorted({*range(8, frame_bytes + 1)} - {*gap}):
        head = head_of(octets)
        framer = AnswerFramer(parameters, head, filler=filler)
        room = framer.room
        content = b" " * room if filler is fill_json else fill_event_stream(room)
        answer = list(frames(framer, iter([content])))
        checked(parameters, answer)
        found, stream, _ = decoded(answer)
        whole = decode_response(head)
        assert (found.status, found.fields) == (whole.status, whole.fields)
        assert stream == content


def test_head_longer_than_a_frame_is_refused() -> None:
    AnswerFramer(SMALL, head_of(64), filler=fill_json)
    with pytest.raises(MalformedError, match="head"):
        AnswerFramer(SMALL, head_of(65), filler=fill_json)


def test_unpadded_parameters_are_refused() -> None:
    with pytest.raises(MalformedError, match="padded"):
        AnswerFramer(UNPADDED, HEAD, filler=fill_json)


@pytest.mark.parametrize("least", [-1, 5])
def test_least_bucket_that_there_is_not_is_refused(least: int) -> None:
    with pytest.raises(LimitExceededError):
        AnswerFramer(SMALL, HEAD, filler=fill_json, least_bucket=least)


@pytest.mark.parametrize("least", range(5))
def test_least_bucket_is_kept(least: int) -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json, least_bucket=least)
    answer = list(frames(framer, iter([b"{}"])))
    assert len(answer) == 2 << least


@given(units=st.lists(st.binary(max_size=40), max_size=60))
def test_room_is_what_can_be_written_and_not_one_octet_more(
    units: list[bytes],
) -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    written = b""
    answer: list[Frame] = []
    for unit in units:
        if len(unit) > framer.room:
            before = framer.pending, framer.room
            with pytest.raises(LimitExceededError):
                framer.write(unit)
            assert (framer.pending, framer.room) == before
        elif unit:
            framer.write(unit)
            written += unit
        elif framer.sent < SMALL.max_frames - 1:
            answer.append(framer.next())
    rest = bytes(framer.room)
    framer.write(rest)
    assert (framer.room, framer.pending >= 0) == (0, True)
    answer += frames(framer, iter(()))
    assert len(answer) == SMALL.max_frames
    content = decoded(answer)[1]
    assert content.replace(b" ", b"") == (written + rest).replace(b" ", b"")


def test_room_falls_by_a_frame_at_every_idle_tick() -> None:
    framer = AnswerFramer(PADDED, HEAD, filler=fill_json)
    framer.next()
    rooms: list[int] = []
    for _ in range(4):
        rooms.append(framer.room)
        framer.next()
    assert rooms == [4094 * 510 - 510 * n for n in range(4)]


def test_frame_of_512_has_the_layout_of_the_protocol() -> None:
    framer = AnswerFramer(PADDED, HEAD, filler=fill_event_stream)
    framer.write(b"data: x\n\n")
    first, second = framer.next(), framer.next()
    framer.end(((b"t", b"v"),))
    end, *padding, last = [framer.next() for _ in range(62)]
    assert first.plaintext.startswith(HEAD)
    assert second.plaintext == bytes.fromhex("41fe") + b":" + b" " * 507 + b"\n\n"
    assert end.plaintext == b"\0\1t\1v\0".ljust(512, b"\0")
    assert set(padding) == {Frame(plaintext=bytes(512), final=False)}
    assert last == Frame(plaintext=bytes(512), final=True)
    assert framer.over


@given(parameters=small_parameters, quiet=st.integers(0, 40), length=st.integers(0, 99))
def test_the_end_follows_the_last_content_by_one_frame(
    parameters: TransportParameters, quiet: int, length: int
) -> None:
    framer = AnswerFramer(parameters, HEAD, filler=fill_json)
    decoder = ResponseDecoder(answer_limits(parameters))
    for _ in range(min(quiet, parameters.max_frames - 2)):
        decoder.push(framer.next().plaintext)
    framer.write(b"x" * min(length, framer.room))
    framer.end(lambda: ((b"t", b"v"),))
    # The head is in the first frame, which always holds content.
    while framer.pending or not framer.sent:
        assert not any(
            isinstance(event, ResponseEnd)
            for event in decoder.push(framer.next().plaintext)
        )
    (end,) = decoder.push(framer.next().plaintext)
    assert end == ResponseEnd(trailers=((b"t", b"v"),))
    while not framer.over:
        frame = framer.next()
        assert (frame.content, frame.plaintext.strip(b"\0")) == (b"", b"")
        assert decoder.push(frame.plaintext) == []
    decoder.finish()


def test_the_longest_answer_ends_in_its_final_frame() -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    framer.write(b"x" * framer.room)
    framer.end(((b"t", b"v"),))
    answer: list[Frame] = []
    while not framer.over:
        answer.append(framer.next())
    assert len(answer) == SMALL.max_frames
    assert answer[-1].plaintext.startswith(b"\0\1t\1v\0")
    assert decoded(answer)[2].trailers == ((b"t", b"v"),)


def test_trailers_longer_than_a_frame_are_refused() -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    framer.end(((b"receipt", b"r" * 53),))
    with pytest.raises(LimitExceededError, match="trailers"):
        AnswerFramer(SMALL, HEAD, filler=fill_json).end(((b"receipt", b"r" * 54),))


def test_after_the_end_nothing_is_written() -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    before = framer.ended
    framer.end()
    assert (before, framer.ended, framer.room) == (False, True, 0)
    with pytest.raises(ConsumedError):
        framer.write(b"x")
    with pytest.raises(ConsumedError):
        framer.end()


def test_after_the_final_frame_there_is_none() -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    list(frames(framer, iter(())))
    with pytest.raises(ConsumedError):
        framer.next()


def test_answer_that_does_not_end_gets_no_final_frame() -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    for _ in range(SMALL.max_frames - 1):
        assert not framer.next().final
    assert framer.room == 0
    with pytest.raises(LimitExceededError):
        framer.next()
    framer.end()
    assert framer.next().final


def test_frame_does_not_show_its_content() -> None:
    framer = AnswerFramer(SMALL, HEAD, filler=fill_json)
    framer.write(b"canary")
    assert "canary" not in repr(framer.next())


@pytest.mark.parametrize("filler", [fill_event_stream, fill_json])
@pytest.mark.parametrize("count", range(12))
def test_filler_has_the_length_asked_for_and_says_nothing(
    filler: Filler, count: int
) -> None:
    filled = filler(count)
    assert len(filled) == count
    if filler is fill_json:
        assert json.loads(filled + b"{}" + filled) == {}
    else:
        assert sse_events(filled + b"data: x\n\n" + filled + b"data: y\n\n") == [
            "x",
            "y",
        ]


# The client's side.


@pytest.mark.parametrize("length", [0, 511, 513])
def test_check_refuses_a_chunk_that_is_no_frame(length: int) -> None:
    with pytest.raises(MalformedError, match="512"):
        FrameCheck(PADDED).chunk(length)
    with pytest.raises(MalformedError, match="512"):
        FrameCheck(PADDED).finish(length)


@pytest.mark.parametrize("count", [1, 3, 5, 31, 33])
def test_check_refuses_a_count_that_is_no_bucket(count: int) -> None:
    check = FrameCheck(SMALL)
    for _ in range(count - 1):
        if check.frames == SMALL.max_frames - 1:
            with pytest.raises(MalformedError, match="more frames"):
                check.chunk(64)
        else:
            check.chunk(64)
    with pytest.raises(MalformedError, match=r"bucket"):
        check.finish(64)


def test_check_of_an_unpadded_answer_has_nothing_to_refuse() -> None:
    check = FrameCheck(UNPADDED)
    for length in (1, 700, 3):
        check.chunk(length)
    check.finish(0)
    assert check.frames == 4


def test_limits_take_the_longest_answer_and_not_one_octet_more() -> None:
    large = TransportParameters(frame_bytes=64, first_bucket=40_000, buckets=2)
    framer = AnswerFramer(large, HEAD, filler=fill_json, least_bucket=1)
    framer.end()
    decoder = ResponseDecoder(answer_limits(large))
    while not framer.over:
        decoder.push(framer.next().plaintext)
    with pytest.raises(LimitExceededError):
        decoder.push(b"\0")


def test_limits_of_an_unpadded_release_are_the_usual_ones() -> None:
    assert answer_limits(UNPADDED) == DEFAULT_LIMITS


# Sealed sizes.


@pytest.mark.parametrize("suite", SUITES, ids=str)
@settings(deadline=None, max_examples=20)
@given(parameters=small_parameters, bucket=st.integers(0, 4), unit=st.binary())
def test_sealed_answer_has_the_octets_of_its_bucket(
    suite: Suite, parameters: TransportParameters, bucket: int, unit: bytes
) -> None:
    least = min(bucket, parameters.buckets - 1)
    config = KEYS[suite.kem_id].config
    request = seal_padded_request(config, b"request", suite=suite)
    _, sealer = open_chunked_request(LIVE, request.message)
    framer = AnswerFramer(parameters, HEAD, filler=fill_json, least_bucket=least)
    framer.write(unit[: framer.room])
    framer.end()
    sealed = [sealer.begin()]
    while not framer.over:
        frame = framer.next()
        seal = sealer.finish if frame.final else sealer.seal
        sealed.append(seal(frame.plaintext))
    found = parameters.bucket_of(framer.sent)
    assert found >= least
    assert len(b"".join(sealed)) == answer_bytes(parameters, suite, found)
    assert len({len(chunk) for chunk in sealed[1:-1]}) == 1


def test_octets_of_the_default_are_those_of_the_design() -> None:
    gcm, chacha = (
        next(suite for suite in SUITES if suite.aead_id == aead) for aead in (1, 3)
    )
    assert answer_bytes(PADDED, gcm, 0) == 16 + 530 * 63 + 529
    assert answer_bytes(PADDED, chacha, 0) == 32 + 530 * 63 + 529
    assert answer_bytes(PADDED, gcm, 6) == 16 + 530 * 4095 + 529


@pytest.mark.parametrize("suite", SUITES, ids=str)
@pytest.mark.parametrize("content", [0, 1, 33000, 40000])
def test_plain_answer_is_as_long_as_the_frames_of_its_bucket(
    suite: Suite, content: int
) -> None:
    response = Response(status=200, content=b"c" * content)
    config = KEYS[suite.kem_id].config
    request = seal_request(config, b"request", suite=suite)
    opened = open_request(LIVE, request.message)
    encoded, bucket = encode_padded_response(response, PADDED, suite)
    sealed = opened.sealer.seal(encoded)
    assert bucket == (0 if content < 33900 else 1)
    assert len(sealed) == answer_bytes(PADDED, suite, bucket)
    assert decode_response(request.opener.open(sealed)) == response


def test_plain_answer_keeps_the_least_bucket() -> None:
    _, bucket = encode_padded_response(
        Response(status=200), PADDED, SUITES[0], least_bucket=3
    )
    assert bucket == 3


def test_plain_answer_beyond_the_last_bucket_is_refused() -> None:
    response = Response(status=200, content=b"c" * 3000)
    with pytest.raises(LimitExceededError):
        encode_padded_response(response, SMALL, SUITES[0])
