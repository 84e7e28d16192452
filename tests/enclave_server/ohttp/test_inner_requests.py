import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.binding import challenge_report_data
from curtilage.attest.evidence import (
    MAX_CPU_EVIDENCE_BYTES,
    CpuEvidence,
    NitroEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_cpu_evidence, parse_cpu_evidence
from curtilage.attest.receipt import KEY_FIELD, encode_field
from curtilage.enclave_server.answer.challenger import (
    MARGIN_BYTES,
    WAIT_S,
    Challenger,
    challenge_error,
)
from curtilage.enclave_server.answer.run import AnswerRun
from curtilage.enclave_server.errors import ChatError, EvidenceError
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.gateway import Form, Terms, open_exchange
from curtilage.enclave_server.ohttp.inner_requests import (
    ChallengeRequest,
    parse_challenge_request,
)
from curtilage.enclave_server.ohttp.keys import ServerKey
from curtilage.enclave_server.telemetry import Event
from curtilage.wire import bhttp
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from support.enclave_parts import (
    NOW,
    QUICK,
    chat_body,
    dated,
    error_code,
    inner_request,
    seal,
)
from support.padded_parts import FORMS, HEAD, KEY, Played, Playing, play
from support.virtual_time import VirtualTime

NONCE, BASE, NEWEST = b"n" * 32, b"b" * 64, b"c" * 64
CANARY = "canary-17e0"
EVIDENCE = NitroEvidence(tee=Tee.EMULATED_NITRO, document=b"d" * 3000)
PATH = b"/v1/challenge"
SHAPES = {"padded": QUICK, "usual": PADDED, "unpadded": UNPADDED}


@dataclass
class Bases:
    """Knows two bases of one key."""

    evidence_bytes: int = len(encode_cpu_evidence(EVIDENCE))
    emulated: bool = True

    def base_of(self, key: ServerKey, base: bytes) -> bytes | None:
        assert key is KEY
        if not base:
            return NEWEST
        return base if base in {BASE, NEWEST} else None


@dataclass
class Source:
    """Returns evidence after a while, or fails."""

    time: VirtualTime
    after_s: float = 0.0
    gives: CpuEvidence | Exception = EVIDENCE
    asked: list[bytes] = field(default_factory=list[bytes])
    cancelled: int = 0

    async def acquire(self, report_data: bytes) -> CpuEvidence:
        self.asked.append(report_data)
        try:
            if self.after_s:
                await self.time.sleep(self.after_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


@dataclass(kw_only=True)
class Setting:
    """A challenger and its dependencies."""

    time: VirtualTime = field(default_factory=VirtualTime)
    bases: Bases = field(default_factory=Bases)
    interval_s: float = 0.0

    def __post_init__(self) -> None:
        self.source = Source(self.time)
        self.challenger = Challenger(
            bases=self.bases,
            source=self.source,
            least_interval_s=self.interval_s,
            clock=lambda: self.time.now,
        )


def body(**more: object) -> bytes:
    return json.dumps({"nonce": NONCE.hex(), **more}).encode()


async def ask(
    setting: Setting,
    *,
    content: bytes | None = None,
    form: str = FORMS[0],
    transport: TransportParameters = QUICK,
    inner: bytes | None = None,
) -> Played:
    if inner is None:
        inner = inner_request(body() if content is None else content, path=PATH)
    return await play(
        inner=inner,
        form=form,
        transport=transport,
        challenges=setting.challenger,
        time=setting.time,
    )


def evidence_in(response: bhttp.Response) -> CpuEvidence:
    value = json.loads(response.content)
    assert list(value) == ["evidence"]
    return parse_cpu_evidence(json.dumps(value["evidence"]).encode())


@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMS)
async def test_challenge_is_answered_with_evidence_over_its_nonce(
    form: str, transport: TransportParameters
) -> None:
    setting = Setting()
    played = await ask(setting, form=form, transport=transport)
    assert played.response.status == 200
    assert evidence_in(played.response) == EVIDENCE
    assert played.outcome is Event.CHALLENGED
    assert setting.source.asked == [challenge_report_data(NEWEST, NONCE, emulated=True)]
    assert played.model.begun == 0


@pytest.mark.parametrize("emulated", [True, False])
async def test_client_names_the_base_that_it_holds(emulated: bool) -> None:
    setting = Setting(bases=Bases(emulated=emulated))
    await ask(setting, content=body(b0=BASE.hex()))
    assert setting.source.asked == [
        challenge_report_data(BASE, NONCE, emulated=emulated)
    ]


@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
async def test_base_that_was_never_published_is_not_signed(
    transport: TransportParameters,
) -> None:
    setting = Setting()
    played = await ask(setting, content=body(b0="00" * 64), transport=transport)
    assert played.response.status == 400
    assert error_code(played.response) == "out_of_range"
    assert setting.source.asked == []
    # It has not used up another client's interval either.
    assert (await ask(setting)).outcome is Event.CHALLENGED


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "invalid_json"),
        (b"{}", "invalid_value"),
        (b'{"nonce":7}', "invalid_value"),
        (b'{"nonce":"00"}', "invalid_value"),
        (body(nonce="0" * 63), "invalid_value"),
        (body(nonce="0" * 65), "invalid_value"),
        (body(nonce="A" * 64), "invalid_value"),
        (body(nonce="g" * 64), "invalid_value"),
        (body(nonce="0" * 64 + "\n"), "invalid_value"),
        (body(b0=""), "invalid_value"),
        (body(b0=None), "invalid_value"),
        (body(b0="0" * 127), "invalid_value"),
        (body(more=1), "unsupported_parameter"),
    ],
)
def test_content_out_of_shape_is_refused(content: bytes, code: str) -> None:
    with pytest.raises(ChatError) as caught:
        parse_challenge_request(content)
    assert (caught.value.status, caught.value.code) == (400, code)


@given(nonce=st.binary(min_size=32, max_size=32), base=st.binary(max_size=64))
def test_any_nonce_is_read(nonce: bytes, base: bytes) -> None:
    base = base if len(base) == 64 else b""
    content = {"nonce": nonce.hex(), **({"b0": base.hex()} if base else {})}
    assert parse_challenge_request(json.dumps(content).encode()) == ChallengeRequest(
        nonce=nonce, base=base
    )


@pytest.mark.parametrize("transport", SHAPES.values(), ids=SHAPES)
async def test_second_challenge_within_the_interval_is_busy(
    transport: TransportParameters,
) -> None:
    setting = Setting(interval_s=3600.0)
    first = await ask(setting, transport=transport)
    second = await ask(setting, transport=transport)
    assert first.outcome is Event.CHALLENGED
    assert second.outcome is Event.BUSY
    assert second.response.status == 503
    assert error_code(second.response) == "busy"
    assert (b"retry-after", b"10") in second.response.fields
    assert len(setting.source.asked) == 1
    setting.time.now += 3600
    assert (await ask(setting, transport=transport)).outcome is Event.CHALLENGED


async def test_one_acquisition_at_a_time() -> None:
    setting = Setting()
    setting.source.after_s = 1e9
    challenge = ChallengeRequest(nonce=NONCE)
    first = setting.challenger.begin(KEY, challenge)
    await asyncio.sleep(0)
    with pytest.raises(ChatError) as caught:
        setting.challenger.begin(KEY, challenge)
    assert (caught.value.status, caught.value.code) == (503, "busy")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = setting.challenger.begin(KEY, challenge)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_challenges_are_not_found_unless_enabled() -> None:
    played = await play(inner=inner_request(body(), path=PATH))
    assert played.response.status == 404
    assert error_code(played.response) == "not_found"
    sealed = seal(KEY, inner_request(body(), path=PATH))
    terms = Terms(chat=ChatLimits(), transport=PADDED, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    form = Form(sealed.content_type)
    exchange = open_exchange(keys, form, sealed.message, terms)
    assert isinstance(exchange.asked, ChatError)
    assert exchange.asked.status == 404


Trouble = Callable[[Setting], None]


def _fails(setting: Setting) -> None:
    setting.source.gives = EvidenceError(CANARY)


def _breaks(setting: Setting) -> None:
    setting.source.gives = RuntimeError(CANARY)


def _hangs(setting: Setting) -> None:
    setting.source.after_s = 1e6


def _is_late(setting: Setting) -> None:
    setting.source.after_s = 1000.0


def _is_busy(setting: Setting) -> None:
    setting.challenger.begin(KEY, ChallengeRequest(nonce=NONCE))


def _is_too_long(setting: Setting) -> None:
    document = b"d" * 70_000
    setting.source.gives = NitroEvidence(tee=Tee.EMULATED_NITRO, document=document)


def _nothing(_setting: Setting) -> None:
    pass


TROUBLES: dict[str, Trouble] = {
    "none": _nothing,
    "fails": _fails,
    "breaks": _breaks,
    "hangs": _hangs,
    "late": _is_late,
    "busy": _is_busy,
    "too-long": _is_too_long,
}
REFUSED = {
    "no-date": inner_request(body(), path=PATH, fields=dated()[:1]),
    "not-json": inner_request(b"{", path=PATH),
    "unknown-base": inner_request(body(b0="00" * 64), path=PATH),
    "wrong-method": inner_request(body(), path=PATH, method=b"GET"),
    "wrong-type": inner_request(body(), path=PATH, fields=dated()[1:]),
    "other-authority": inner_request(body(), path=PATH, authority=b"x"),
}
FEW = TransportParameters(frame_bytes=2048, period_ms=200, first_bucket=8, buckets=4)
NARROW = TransportParameters(frame_bytes=512, period_ms=100, first_bucket=8, buckets=6)


@pytest.mark.parametrize("transport", [FEW, NARROW])
@pytest.mark.parametrize("form", FORMS)
async def test_answers_look_the_same_outside_whatever_they_say(
    form: str, transport: TransportParameters
) -> None:
    """Red team 16: sizes and times of all answers to challenges, one trace."""
    traces: dict[str, list[tuple[float, int]]] = {}
    for name, trouble in TROUBLES.items():
        setting = Setting()
        trouble(setting)
        played = await ask(setting, form=form, transport=transport)
        traces[name] = played.trace
        assert CANARY.encode() not in played.response.content
    for name, inner in REFUSED.items():
        traces[name] = (
            await ask(Setting(), form=form, transport=transport, inner=inner)
        ).trace
    traces["receipt"] = (
        await ask(
            Setting(),
            form=form,
            transport=transport,
            inner=inner_request(
                body(),
                path=PATH,
                fields=(*dated(), (KEY_FIELD, encode_field(NONCE))),
            ),
        )
    ).trace
    rounded = {
        name: [(round(when, 6), size) for when, size in trace]
        for name, trace in traces.items()
    }
    assert all(trace == rounded["none"] for trace in rounded.values()), {
        name: len(trace) for name, trace in rounded.items()
    }


def test_replayed_challenge_is_as_long_as_any() -> None:
    sealed = seal(KEY, inner_request(body(), path=PATH))
    keys = dict.fromkeys(KEY.key_ids, KEY)
    terms = Terms(chat=ChatLimits(), transport=PADDED, now=NOW, challenge_bucket=3)
    form = Form(sealed.content_type)
    first = open_exchange(keys, form, sealed.message, terms)
    second = open_exchange(keys, form, sealed.message, terms)
    assert isinstance(first.asked, ChallengeRequest)
    assert isinstance(second.asked, ChatError)
    assert second.asked.code == "replayed"
    assert first.least_bucket == second.least_bucket == 3


@pytest.mark.parametrize(
    ("trouble", "transport"),
    [
        *itertools.product(["fails", "hangs", "late", "too-long"], [PADDED, NARROW]),
        ("hangs", QUICK),
        ("too-long", QUICK),
        ("fails", UNPADDED),
    ],
)
async def test_evidence_that_is_not_there_in_time_is_not_had(
    transport: TransportParameters, trouble: str
) -> None:
    setting = Setting()
    TROUBLES[trouble](setting)
    played = await ask(setting, transport=transport)
    assert error_code(played.response) == "no_evidence"
    assert played.outcome is Event.CHALLENGE_FAILED
    assert setting.source.cancelled == (trouble in {"hangs", "late"})


async def test_silence_is_not_waited_out_unpadded() -> None:
    setting = Setting()
    setting.source.gives = TimeoutError(CANARY)
    played = await ask(setting, transport=UNPADDED)
    assert played.response.status == 503
    assert error_code(played.response) == "no_evidence"


async def test_what_breaks_is_an_internal_error() -> None:
    setting = Setting()
    _breaks(setting)
    played = await ask(setting)
    assert error_code(played.response) == "internal_error"
    assert played.outcome is Event.ANSWER_FAILED


@pytest.mark.parametrize("first_bucket", [16, 32, 64, 128])
async def test_evidence_that_comes_within_the_bucket_is_sent(first_bucket: int) -> None:
    setting = Setting()
    setting.source.after_s = WAIT_S - 0.1
    transport = replace(PADDED, first_bucket=first_bucket)
    played = await ask(setting, transport=transport)
    assert evidence_in(played.response) == EVIDENCE
    assert played.response.status == 200


@pytest.mark.parametrize("begun", [True, False])
async def test_client_that_leaves_frees_its_turn(begun: bool) -> None:
    setting = Setting()
    setting.source.after_s = 1e9
    sealed = seal(KEY, inner_request(body(), path=PATH))
    terms = Terms(chat=ChatLimits(), transport=PADDED, now=NOW, challenge_bucket=0)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = AnswerRun(
        exchange=open_exchange(keys, Form(sealed.content_type), sealed.message, terms),
        model=Playing((), setting.time),
        head=HEAD,
        accepted=setting.time.now,
        limit_s=600,
        timer=setting.time.timer,
        challenges=setting.challenger,
    )
    pieces = underway.pieces()
    if begun:
        assert await anext(pieces)
        await pieces.aclose()
    else:
        # Before the first frame is due, with no head yet.
        waiting = asyncio.create_task(anext(pieces))
        for _ in range(3):
            await asyncio.sleep(0)
        assert setting.source.asked
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
    await asyncio.sleep(0)
    assert setting.source.cancelled == 1
    assert underway.outcome is Event.ANSWER_CANCELLED
    setting.source.after_s = 0
    assert (await ask(setting)).outcome is Event.CHALLENGED


@pytest.mark.parametrize("transport", [QUICK, PADDED, NARROW])
@pytest.mark.parametrize("evidence_bytes", [0, 3000, 20_000, MAX_CPU_EVIDENCE_BYTES])
def test_bucket_follows_from_the_bundle_alone(
    transport: TransportParameters, evidence_bytes: int
) -> None:
    setting = Setting(bases=Bases(evidence_bytes=evidence_bytes))
    shape = setting.challenger.shape(transport)
    assert shape == setting.challenger.shape(transport)
    expected = min(evidence_bytes + MARGIN_BYTES, MAX_CPU_EVIDENCE_BYTES)
    assert shape.content_bytes == expected
    assert 0 <= shape.bucket < transport.buckets


def test_errors_have_fixed_texts() -> None:
    assert challenge_error(RuntimeError(CANARY)).code == "internal_error"
    assert challenge_error(EvidenceError(CANARY)).code == "no_evidence"
    assert challenge_error(TimeoutError(CANARY)).code == "no_evidence"
    assert challenge_error(ChatError(503, "busy")).code == "busy"


async def test_chat_is_not_lengthened_where_challenges_are_answered() -> None:
    setting = Setting()
    plain = await play(inner=inner_request(chat_body()))
    parallel = await play(
        inner=inner_request(chat_body()),
        challenges=setting.challenger,
        time=VirtualTime(),
    )
    assert len(plain.trace) == len(parallel.trace)
