"""Plays one padded answer in virtual time, and keeps what the line saw."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from curtilage.enclave_server.answer.run import AnswerRun, AnswersChallenges
from curtilage.enclave_server.errors import BusyError, ModelError
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatLimits
from curtilage.enclave_server.ohttp.gateway import Form, Terms, open_exchange
from curtilage.enclave_server.ohttp.keys import ReceiptTerms, make_key
from curtilage.enclave_server.ohttp.openai_answers import (
    Answer,
    AnswerHead,
    Begun,
    Ending,
    Piece,
)
from curtilage.enclave_server.telemetry import Event
from curtilage.wire import bhttp
from curtilage.wire.shaping import TransportParameters
from support.enclave_parts import (
    CHUNKED,
    NOW,
    PLAIN,
    QUICK,
    chat_body,
    inner_request,
    seal,
)
from support.virtual_time import VirtualTime

RELEASE, MODEL = b"r" * 32, b"m" * 32
KEY = make_key(
    now=NOW,
    lifetime_s=100,
    replay_capacity=100_000,
    receipts=ReceiptTerms(release_digest=RELEASE, model_digest=MODEL),
)
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
    asked: list[ChatCompletionRequest] = field(
        default_factory=list[ChatCompletionRequest]
    )

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
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
    challenges: AnswersChallenges | None = None,
    time: VirtualTime | None = None,
    **body: object,
) -> Played:
    body = {"stream": True, **body}
    sealed = seal(
        KEY, inner_request(chat_body(**body)) if inner is None else inner, form=form
    )
    bucket = None if challenges is None else challenges.shape(transport).bucket
    terms = Terms(
        chat=ChatLimits(), transport=transport, now=NOW, challenge_bucket=bucket
    )
    keys = dict.fromkeys(KEY.key_ids, KEY)
    time = time or VirtualTime()
    time.lag_s.extend(lag_s)
    start = time.now
    model = Playing(says, time)
    underway = AnswerRun(
        exchange=open_exchange(keys, Form(form), sealed.message, terms),
        model=model,
        head=HEAD,
        accepted=start,
        limit_s=limit_s,
        timer=time.timer,
        challenges=challenges,
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


# Two KiB of room at most.
SMALL = replace(QUICK, first_bucket=2, buckets=2)


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


REFUSED = {
    "no-date": inner_request(fields=((b"content-type", b"application/json"),)),
    "not-json": inner_request(b"{"),
    "no-such-path": inner_request(path=b"/v1/models"),
    "wrong-method": inner_request(method=b"GET"),
    "no-request": b"\x04",
}
