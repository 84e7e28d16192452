"""Padded answers in virtual time: what goes out when, whatever is said."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.enclave_server.answering import AnswerUnderway
from curtilage.enclave_server.answers import (
    Answer,
    AnswerHead,
    Begun,
    Ending,
    Piece,
)
from curtilage.enclave_server.chat import ChatLimits, ChatRequest
from curtilage.enclave_server.errors import BusyError, ChatError, ModelError
from curtilage.enclave_server.gateway import Form, Terms, open_exchange
from curtilage.enclave_server.keys import make_key
from curtilage.enclave_server.telemetry import Event
from curtilage.wire import bhttp
from curtilage.wire.frames import answer_bytes
from curtilage.wire.shaping import TransportParameters
from support.enclave_parts import (
    CHUNKED,
    NOW,
    PLAIN,
    QUICK,
    chat_body,
    error_code,
    inner_request,
    seal,
)
from support.virtual_time import VirtualTime

KEY = make_key(now=NOW, lifetime_s=100, replay_capacity=100_000)
HEAD = AnswerHead(answer_id="chatcmpl-" + "0" * 24, created=3, model="scripted")
END = Ending(finish_reason="stop", prompt_tokens=2, completion_tokens=1)
NORMAL = TransportParameters()
SEALED_FRAME = 512 + 16 + 2
FORMS = [CHUNKED, PLAIN]


@dataclass
class Playing:
    """Says what it is given; a number is a pause, an exception is raised."""

    says: Sequence[Answer | float | Exception]
    time: VirtualTime
    begun: int = 0
    closed: int = 0
    said: int = 0
    asked: list[ChatRequest] = field(default_factory=list[ChatRequest])

    async def answer(self, chat: ChatRequest) -> AsyncGenerator[Answer]:
        self.begun += 1
        self.asked.append(chat)
        try:
            for item in self.says:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, int | float):
                    await self.time.sleep(item)
                else:
                    self.said += 1
                    yield item
        finally:
            self.closed += 1


@dataclass(kw_only=True)
class Played:
    """One answer as the line saw it, and what was inside."""

    trace: list[tuple[float, int]]
    response: bhttp.Response
    outcome: Event
    model: Playing
    batches: int
    late: bool

    @property
    def sizes(self) -> list[int]:
        return [size for _, size in self.trace]

    @property
    def times(self) -> list[float]:
        return [round(moment, 6) for moment, _ in self.trace]


async def play(
    *says: Answer | float | Exception,
    inner: bytes | None = None,
    form: str = CHUNKED,
    transport: TransportParameters = QUICK,
    limit_s: float = 600,
    lag_s: Sequence[float] = (),
    **body: object,
) -> Played:
    body = {"stream": True, **body}
    sealed = seal(
        KEY, inner_request(chat_body(**body)) if inner is None else inner, form=form
    )
    terms = Terms(chat=ChatLimits(), transport=transport, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    time = VirtualTime(lag_s=list(lag_s))
    start = time.now
    model = Playing(says, time)
    underway = AnswerUnderway(
        exchange=open_exchange(keys, Form(form), sealed.message, terms),
        model=model,
        head=HEAD,
        limit_s=limit_s,
        timer=time.timer,
    )
    trace: list[tuple[float, int]] = []
    data = b""
    async for piece in underway.pieces():
        trace.append((time.now - start, len(piece)))
        data += piece
    return Played(
        trace=trace,
        response=sealed.open(data),
        outcome=underway.outcome,
        model=model,
        batches=underway.batches,
        late=underway.late,
    )


def frame_sizes(frames: int) -> list[int]:
    """What the line sees: the nonce goes with the first, the last is one less."""
    return [16 + SEALED_FRAME, *([SEALED_FRAME] * (frames - 2)), SEALED_FRAME - 1]


def text_of(content: bytes) -> str:
    return "".join(
        event["choices"][0]["delta"].get("content", "")
        for event in events_of(content)
        if "choices" in event
    )


def events_of(content: bytes) -> list[dict[str, list[dict[str, dict[str, str]]]]]:
    """Read server-sent events as any client would: comments say nothing."""
    lines = content.decode().split("\n")
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data:")]
    assert all(not line or line[0] == ":" or line[:6] == "data: " for line in lines)
    return [json.loads(line) for line in data if line != "[DONE]"]


def finish_of(content: bytes) -> object:
    return [
        event["choices"][0]["finish_reason"]
        for event in events_of(content)
        if "choices" in event
    ][-1]


# Every way an answer can go, all of one bucket.
WAYS: dict[str, tuple[Answer | float | Exception, ...]] = {
    "at-once": (Begun(), Piece(text="Hello"), END),
    "token-by-token": (
        Begun(),
        *(item for _ in range(4) for item in (0.0021, Piece(text="tok "))),
        END,
    ),
    "slow-to-begin": (0.009, Begun(), Piece(text="late"), END),
    "ends-early": (Begun(), END),
    "one-long-piece": (Begun(), Piece(text="x" * 1500), END),
    "pause-inside": (Begun(), Piece(text="a"), 0.008, Piece(text="b"), END),
    "busy": (BusyError("x"),),
    "fails-at-once": (ModelError("x"),),
    "fails-late": (Begun(), Piece(text="a"), 0.007, RuntimeError("canary")),
    "never-ends-rightly": (Begun(), Piece(text="a")),
    "says-nothing": (),
}


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
@pytest.mark.parametrize("way", WAYS)
async def test_every_answer_of_a_bucket_looks_the_same(way: str, stream: bool) -> None:
    played = await play(*WAYS[way], stream=stream)
    assert played.sizes == frame_sizes(8)
    assert played.times == [round(n * 0.002, 6) for n in range(8)]
    assert b"canary" not in played.response.content
    assert played.model.closed == played.model.begun == 1


REFUSED = {
    "no-date": inner_request(fields=((b"content-type", b"application/json"),)),
    "not-json": inner_request(b"{"),
    "no-such-path": inner_request(path=b"/v1/models"),
    "wrong-method": inner_request(method=b"GET"),
    "no-request": b"\x04",
}


@pytest.mark.parametrize("refused", REFUSED)
async def test_refusal_looks_like_an_answer(refused: str) -> None:
    played = await play(inner=REFUSED[refused])
    assert played.sizes == frame_sizes(8)
    assert played.times == [round(n * 0.002, 6) for n in range(8)]
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
        underway = AnswerUnderway(
            exchange=exchange,
            model=Playing((Begun(), END), time),
            head=HEAD,
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
    underway = AnswerUnderway(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=model,
        head=HEAD,
        limit_s=9,
        timer=time.timer,
    )
    pieces = underway.pieces()
    assert len(await anext(pieces)) == 16 + SEALED_FRAME
    assert (time.now, model.begun) == (1000.0, 0)
    await anext(pieces)
    assert model.begun == 1
    await pieces.aclose()
    assert model.closed == 1


async def test_late_tick_comes_at_once_and_is_not_merged() -> None:
    played = await play(Begun(), END, lag_s=[0, 0, 0.0051])
    assert played.sizes == frame_sizes(8)
    # The third is 5.1 ms late; two more were due by then and go out with it,
    # each by itself; those behind keep their times.
    assert played.times == [0, 0.002, 0.0091, 0.0091, 0.0091, 0.01, 0.012, 0.014]
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


async def test_pieces_with_probabilities_stay_apart() -> None:
    pieces = [Piece(text=f"{n} ", logprob=-0.5) for n in range(5)]
    played = await play(Begun(), *pieces, END, logprobs=True)
    events = events_of(played.response.content)
    assert len(events) == 1 + 5 + 1
    assert all(event["choices"][0]["logprobs"] for event in events[1:-1])


async def test_nothing_but_comments_stands_between_events() -> None:
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
async def test_what_fails_later_is_told_in_the_content(
    error: Exception, status: int, code: str, outcome: Event, stream: bool
) -> None:
    played = await play(error, stream=stream)
    assert played.response.status == 200
    content = played.response.content
    if stream:
        line = next(line for line in content.split(b"\n") if b"data:" in line)
        content = line.removeprefix(b"data: ")
    told = json.loads(content)["error"]
    assert (told["status"], told["code"]) == (status, code)
    assert b"[DONE]" not in played.response.content
    assert played.outcome is outcome


# Two kibioctets of room at most.
SMALL = replace(QUICK, first_bucket=2, buckets=2)


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
    # What there is of it is whole: a prefix, to the token, and well filled.
    assert "".join(piece.text for piece in pieces).startswith(text)
    assert len(text) > 90
    assert usage["completion_tokens"] * 5 == len(text)
    assert usage["prompt_tokens"] == 5
    assert played.outcome is Event.ANSWERED
    assert played.model.closed == 1
    assert played.model.said < 1000


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
    # Three content frames of 510 octets, less the head; one tick has passed.
    assert played.model.asked[0].max_tokens < 2 * 510 + 1
    assert (await play(Begun(), END, max_tokens=7)).model.asked[0].max_tokens == 7


async def test_reader_that_does_not_read_holds_the_model_back() -> None:
    sealed = seal(KEY, inner_request(chat_body(stream=True)))
    time = VirtualTime()
    model = Playing((Begun(), *[Piece(text="x" * 100)] * 5000, END), time)
    terms = Terms(chat=ChatLimits(), transport=NORMAL, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = AnswerUnderway(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=model,
        head=HEAD,
        limit_s=9,
        timer=time.timer,
    )
    pieces = underway.pieces()
    for _ in range(3):
        await anext(pieces)
    for _ in range(1000):
        # Nobody asks for the next frame, however long the others run.
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
    underway = AnswerUnderway(
        exchange=open_exchange(keys, Form.CHUNKED, sealed.message, terms),
        model=model,
        head=HEAD,
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
    assert played.times[-1] == round((frames - 1) * 0.002, 6)
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
    assert played.times == [0.014]
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
    assert played.times == [round(n * 0.002, 6) for n in range(frames)]
    text = "".join(item.text for item in says if isinstance(item, Piece))
    content = played.response.content
    if b"time_limit" in content:
        return
    told = (
        text_of(content)
        if stream
        else json.loads(content)["choices"][0]["message"]["content"]
    )
    assert text.startswith(told)
    assert told == text or b'"length"' in content


def test_shortest_frames_still_tell_a_refusal() -> None:
    asyncio.run(_shortest_frames())


async def _shortest_frames() -> None:
    shortest = replace(QUICK, frame_bytes=64, first_bucket=2, buckets=1)
    played = await play(inner=REFUSED["no-date"], transport=shortest)
    assert played.response.status == 400
    assert len(played.sizes) == 2
    for stream in (True, False):
        played = await play(Begun(), END, transport=shortest, stream=stream)
        assert len(played.sizes) == 2
