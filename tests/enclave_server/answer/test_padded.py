"""Padded answers in virtual time: what is sent when, whatever the content."""

import asyncio
import json
from dataclasses import replace

import pytest

from curtilage.client.chat.answer import Delta
from curtilage.client.remote.answer_reader import Completion, EventStream
from curtilage.enclave_server.answer.run import AnswerRun
from curtilage.enclave_server.errors import BusyError, ChatError, ModelError
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.gateway import Form, Terms, open_exchange
from curtilage.enclave_server.ohttp.openai_answers import (
    Answer,
    Begun,
    Call,
    Piece,
)
from curtilage.enclave_server.ohttp.sealing import PaddedSealer
from curtilage.enclave_server.telemetry import Event
from curtilage.wire.errors import ConsumedError
from curtilage.wire.shaping import TransportParameters
from support.enclave_parts import (
    NOW,
    QUICK,
    chat_body,
    inner_request,
    seal,
)
from support.padded_parts import (
    END,
    HEAD,
    KEY,
    NORMAL,
    REFUSED,
    SEALED_FRAME,
    SMALL,
    WAYS,
    Playing,
    events_of,
    finish_of,
    frame_sizes,
    play,
    text_of,
)
from support.virtual_time import VirtualTime


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
@pytest.mark.parametrize("way", WAYS)
async def test_every_answer_of_a_bucket_looks_the_same(way: str, stream: bool) -> None:
    played = await play(*WAYS[way], stream=stream)
    assert played.sizes == frame_sizes(8)
    assert played.times == [round(n * 0.002, 6) for n in range(1, 9)]
    assert b"canary" not in played.response.content
    assert played.model.closed == played.model.begun == 1


@pytest.mark.parametrize("refused", REFUSED)
async def test_refusal_looks_like_an_answer(refused: str) -> None:
    played = await play(inner=REFUSED[refused])
    assert played.sizes == frame_sizes(8)
    assert played.times == [round(n * 0.002, 6) for n in range(1, 9)]
    assert played.response.status in {400, 404, 405}
    assert json.loads(played.response.content)
    assert played.model.begun == 0
    assert played.batches == 1


async def test_replay_looks_like_an_answer() -> None:
    sealed = seal(KEY)
    traces: list[list[int]] = []
    outcomes: list[Event] = []
    for _ in range(2):
        terms = Terms(chat=ChatLimits(), transport=QUICK, now=NOW)
        keys = dict.fromkeys(KEY.key_ids, KEY)
        exchange = open_exchange(keys, Form.CHUNKED, sealed.message, terms)
        time = VirtualTime()
        underway = AnswerRun(
            exchange=exchange,
            model=Playing((Begun(), END), time),
            head=HEAD,
            accepted=time.now,
            limit_s=9,
            timer=time.timer,
        )
        traces.append([len(piece) async for piece in underway.pieces()])
        outcomes.append(underway.outcome)
    assert traces[0] == traces[1] == frame_sizes(8)
    assert outcomes == [Event.ANSWERED, Event.REPLAYED]


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_head_goes_out_before_the_model_is_asked(stream: bool) -> None:
    sealed = seal(KEY, inner_request(chat_body(stream=stream)))
    time = VirtualTime()
    model = Playing((Begun(), END), time)
    terms = Terms(chat=ChatLimits(), transport=QUICK, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = AnswerRun(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=model,
        head=HEAD,
        accepted=time.now,
        limit_s=9,
        timer=time.timer,
    )
    pieces = underway.pieces()
    assert len(await anext(pieces)) == 16 + SEALED_FRAME
    for _ in range(100):
        # Whatever else runs: the second frame has not been requested.
        await asyncio.sleep(0)
    assert (round(time.now, 6), model.begun) == (1000.002, 0)
    await anext(pieces)
    assert model.begun == 1
    await pieces.aclose()
    assert model.closed == 1


async def test_late_tick_comes_at_once_and_is_not_merged() -> None:
    played = await play(Begun(), END, lag_s=[0, 0, 0, 0, 0.0051])
    assert played.sizes == frame_sizes(8)
    # The third is sealed 5.1 ms late, so sent 4.7 ms late; two more were due by then
    # and go out with it, each by itself; those behind keep their times.
    assert played.times == [0.002, 0.004, 0.0107, 0.0107, 0.0107, 0.012, 0.014, 0.016]
    assert played.late


async def test_small_delays_are_not_counted_as_late() -> None:
    played = await play(Begun(), END, lag_s=[0, 0.0005, 0.0015])
    assert not played.late


@pytest.mark.parametrize(
    ("characters", "frames"), [(10, 8), (4000, 16), (9000, 32), (40_000, 128)]
)
async def test_longer_answers_fill_the_next_bucket(
    characters: int, frames: int
) -> None:
    played = await play(Begun(), Piece(text="x" * characters), END)
    assert len(played.sizes) == frames
    assert played.sizes == frame_sizes(frames)
    assert text_of(played.response.content) == "x" * characters
    assert played.batches == frames // 8


async def test_pieces_that_wait_at_a_tick_become_one_event() -> None:
    pieces = [Piece(text=f"{n} ") for n in range(20)]
    played = await play(Begun(), *pieces[:10], 0.0021, *pieces[10:], END)
    events = events_of(played.response.content)
    texts = [event["choices"][0]["delta"].get("content") for event in events]
    assert texts == [
        "",
        "".join(piece.text for piece in pieces[:10]),
        "".join(piece.text for piece in pieces[10:]),
        None,
    ]
    assert {tuple(event) for event in events[1:3]} == {
        ("id", "object", "created", "model", "choices")
    }


async def test_pieces_of_several_answers_wait_for_each_other() -> None:
    pieces = [Piece(text=f"{n} ", choice=n % 2) for n in range(20)]
    played = await play(Begun(), *pieces, replace(END, others=("stop",)), n=2)
    reader = EventStream()
    deltas = [*reader.push(played.response.content)]
    assert deltas == [
        Delta(text="".join(each.text for each in pieces[start::2]), choice=start)
        for start in (0, 1)
    ]


async def test_pieces_with_probabilities_stay_apart() -> None:
    pieces = [Piece(text=f"{n} ", logprob=-0.5) for n in range(5)]
    played = await play(Begun(), *pieces, END, logprobs=True)
    events = events_of(played.response.content)
    assert len(events) == 1 + 5 + 1
    assert all(event["choices"][0]["logprobs"] for event in events[1:-1])


async def test_only_comments_are_between_events() -> None:
    played = await play(Begun(), 0.005, Piece(text="a\n\ndata: b"), 0.003, END)
    assert played.response.fields == ((b"content-type", b"text/event-stream"),)
    assert text_of(played.response.content) == "a\n\ndata: b"
    assert played.response.content.rstrip(b":\n ").endswith(b"data: [DONE]")


async def test_whole_answer_is_json_with_space_around() -> None:
    played = await play(
        Begun(), Piece(text="a"), 0.005, Piece(text="b"), END, stream=False
    )
    assert played.response.fields == ((b"content-type", b"application/json"),)
    content = played.response.content
    assert content.startswith(b" ")
    assert json.loads(content)["choices"][0]["message"]["content"] == "ab"
    assert played.outcome is Event.ANSWERED


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
@pytest.mark.parametrize(
    ("error", "status", "code", "outcome"),
    [
        (BusyError("x"), 503, "busy", Event.BUSY),
        (ChatError(400, "invalid_value"), 400, "invalid_value", Event.INNER_REFUSED),
        (ModelError("x"), 500, "internal_error", Event.ANSWER_FAILED),
        (KeyError("canary"), 500, "internal_error", Event.ANSWER_FAILED),
    ],
)
async def test_a_later_failure_is_reported_in_the_content(
    error: Exception, status: int, code: str, outcome: Event, stream: bool
) -> None:
    played = await play(error, stream=stream)
    assert played.response.status == 200
    content = played.response.content
    if stream:
        line = next(line for line in content.split(b"\n") if b"data:" in line)
        content = line.removeprefix(b"data: ")
    reported = json.loads(content)["error"]
    assert (reported["status"], reported["code"]) == (status, code)
    assert b"[DONE]" not in played.response.content
    assert played.outcome is outcome


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_answer_that_outgrows_the_top_bucket_ends_with_length(
    stream: bool,
) -> None:
    pieces = [Piece(text=f"{n:04} ") for n in range(1000)]
    played = await play(
        Begun(prompt_tokens=5), *pieces, END, transport=SMALL, stream=stream
    )
    assert played.sizes == frame_sizes(4)
    content = played.response.content
    if stream:
        assert finish_of(content) == "length"
        assert b"[DONE]" in content
        text = text_of(content)
        usage = json.loads(content.split(b"data: ")[-2])["usage"]
    else:
        body = json.loads(content)
        text, usage = body["choices"][0]["message"]["content"], body["usage"]
        assert body["choices"][0]["finish_reason"] == "length"
    # What there is of it is intact: a prefix of whole tokens. The rest of these four
    # small frames is kept for the longest error.
    assert "".join(piece.text for piece in pieces).startswith(text)
    assert len(text) > 40
    assert usage["completion_tokens"] * 5 == len(text)
    assert usage["prompt_tokens"] == 5
    assert played.outcome is Event.ANSWERED
    assert played.model.closed == 1
    assert played.model.said < 1000


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_probabilities_that_outgrow_the_top_bucket_end_with_length(
    stream: bool,
) -> None:
    pieces = [Piece(text="word ", logprob=-0.5)] * 100
    played = await play(
        Begun(), *pieces, END, transport=SMALL, stream=stream, logprobs=True
    )
    assert played.sizes == frame_sizes(4)
    assert b'"length"' in played.response.content
    assert b"word " in played.response.content
    assert played.model.closed == 1


async def test_model_that_begins_too_late_says_nothing() -> None:
    # At the tick there is still room for an end; not for the opening event.
    tight = replace(QUICK, frame_bytes=256, first_bucket=2, buckets=2)
    played = await play(0.0021, Begun(), Piece(text="a"), END, transport=tight)
    assert len(played.sizes) == 4
    assert b"time_limit" in played.response.content


async def test_answer_that_is_not_sent_to_its_end_was_not_answered() -> None:
    sealed = seal(KEY, inner_request(chat_body(stream=True)))
    time = VirtualTime()
    terms = Terms(chat=ChatLimits(), transport=QUICK, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = AnswerRun(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=Playing((Begun(), Piece(text="a"), END), time),
        head=HEAD,
        accepted=time.now,
        limit_s=9,
        timer=time.timer,
    )
    pieces = underway.pieces()
    for _ in range(5):
        await anext(pieces)
    outcomes = [underway.outcome]
    await pieces.aclose()
    outcomes.append(underway.outcome)
    assert outcomes == [Event.ANSWERED, Event.ANSWER_CANCELLED]


def test_frames_of_an_answer_that_has_not_begun_are_refused() -> None:
    terms = Terms(chat=ChatLimits(), transport=QUICK, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    exchange = open_exchange(keys, Form.CHUNKED, seal(KEY).message, terms)
    assert isinstance(exchange.sealer, PaddedSealer)
    with pytest.raises(ConsumedError):
        exchange.sealer.next()


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_slow_answer_that_is_out_of_time_ends_with_length(stream: bool) -> None:
    played = await play(
        Begun(),
        Piece(text="word"),
        1000,
        Piece(text="never"),
        END,
        transport=SMALL,
        stream=stream,
    )
    assert played.sizes == frame_sizes(4)
    assert b'"length"' in played.response.content
    assert b"word" in played.response.content
    assert played.model.closed == 1


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
@pytest.mark.parametrize("says", [(1000.0,), (Begun(), 1000.0)], ids=["queue", "slow"])
async def test_answer_without_a_word_in_time_is_an_error(
    says: tuple[Answer | float, ...], stream: bool
) -> None:
    played = await play(*says, transport=SMALL, stream=stream)
    assert played.sizes == frame_sizes(4)
    assert b"time_limit" in played.response.content
    assert played.outcome is Event.ANSWER_FAILED
    assert played.model.closed == 1


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_deadline_covers_the_queue(stream: bool) -> None:
    played = await play(1000.0, Begun(), END, limit_s=0.009, stream=stream)
    assert played.sizes == frame_sizes(8)
    assert b"time_limit" in played.response.content
    assert played.outcome is Event.ANSWER_FAILED
    assert played.model.closed == 1


async def test_generation_is_bounded_by_the_room() -> None:
    played = await play(Begun(), END, transport=SMALL, max_tokens=4096)
    # Three content frames of 510 bytes, less the head; one tick has passed.
    assert played.model.asked[0].max_tokens < 2 * 510 + 1
    assert (await play(Begun(), END, max_tokens=7)).model.asked[0].max_tokens == 7


async def test_reader_that_does_not_read_holds_the_model_back() -> None:
    sealed = seal(KEY, inner_request(chat_body(stream=True)))
    time = VirtualTime()
    model = Playing((Begun(), *[Piece(text="x" * 100)] * 5000, END), time)
    terms = Terms(chat=ChatLimits(), transport=NORMAL, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = AnswerRun(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=model,
        head=HEAD,
        accepted=time.now,
        limit_s=9,
        timer=time.timer,
    )
    pieces = underway.pieces()
    for _ in range(3):
        await anext(pieces)
    for _ in range(1000):
        # The next frame is not requested, however long the others run.
        await asyncio.sleep(0)
    assert model.said < 3 * 6 + 4 * 6 + 2
    await pieces.aclose()
    assert model.closed == 1


@pytest.mark.parametrize("cut_at", [1, 3])
@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_lost_connection_stops_the_model_at_once(
    cut_at: int, stream: bool
) -> None:
    sealed = seal(KEY, inner_request(chat_body(stream=stream)))
    time = VirtualTime()
    model = Playing((Begun(), 5.0, Piece(text="a"), END), time)
    terms = Terms(chat=ChatLimits(), transport=NORMAL, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = AnswerRun(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=model,
        head=HEAD,
        accepted=time.now,
        limit_s=9,
        timer=time.timer,
    )
    pieces = underway.pieces()
    for _ in range(cut_at):
        await anext(pieces)
    before = time.now
    await pieces.aclose()
    assert model.closed == model.begun == int(cut_at > 1)
    assert time.now == before
    assert underway.outcome is Event.ANSWER_CANCELLED


CALL = Call(index=0, name="find", arguments='{"who":"Ann"}')
SEVERAL: tuple[Answer | float, ...] = (
    Begun(),
    Piece(text="a"),
    Piece(text="", call=CALL),
    Piece(text="b", choice=1),
    0.0041,
    Piece(text="c", choice=1),
    replace(END, finish_reason="tool_calls", others=("stop",)),
)


MIDDLE = replace(QUICK, first_bucket=4, buckets=2)


@pytest.mark.parametrize("shape", [QUICK, MIDDLE], ids=["roomy", "small"])
async def test_several_answers_and_calls_are_in_order(
    shape: TransportParameters,
) -> None:
    played = await play(*SEVERAL, transport=shape, n=2)
    reader = EventStream()
    events = [*reader.push(played.response.content)]
    said = [
        (each.choice, each.text, len(each.calls))
        for each in events
        if isinstance(each, Delta)
    ]
    first = [each for each in said if not each[0]]
    assert first == [(0, "a", 0), (0, "", 1)]
    assert "".join(text for choice, text, _ in said if choice) == "bc"
    assert reader.end().finish_reason == "tool_calls"
    assert reader.end().others == ("stop",)


async def test_several_whole_answers_are_one_object() -> None:
    played = await play(*SEVERAL, stream=False, n=2)
    reader = Completion()
    first, other = reader.push(played.response.content)
    assert isinstance(first, Delta)
    assert isinstance(other, Delta)
    assert (first.text, len(first.calls), first.calls[0].name) == ("a", 1, "find")
    assert (other.choice, other.text) == (1, "bc")
    assert reader.end().others == ("stop",)


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_of_several_answers_that_are_cut_each_says_so(stream: bool) -> None:
    pieces = [Piece(text="x" * 40, choice=at % 2) for at in range(200)]
    played = await play(Begun(), *pieces, END, transport=MIDDLE, stream=stream, n=2)
    reader = EventStream() if stream else Completion()
    assert [*reader.push(played.response.content)]
    assert (reader.end().finish_reason, reader.end().others) == ("length", ("length",))
    assert played.outcome is Event.ANSWERED


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_a_call_that_has_no_room_is_not_begun(stream: bool) -> None:
    long = replace(CALL, arguments=json.dumps({"a": "x" * 4000}))
    says = (Begun(), Piece(text="a"), Piece(text="", call=long), END)
    played = await play(*says, transport=SMALL, stream=stream)
    reader = EventStream() if stream else Completion()
    events = [*reader.push(played.response.content)]
    assert [each.text for each in events if isinstance(each, Delta)] == ["a"]
    assert reader.end().finish_reason == "length"
