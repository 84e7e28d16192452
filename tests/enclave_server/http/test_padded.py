"""Padded answers over HTTP, as the relay sees them."""

import asyncio
import gc
import json
import socket
from collections.abc import Mapping

import pytest

from curtilage.enclave_server.answer.pacing import Timer
from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.http import server as app
from curtilage.enclave_server.http.server import MAX_UNSENT_BYTES
from curtilage.enclave_server.ohttp.gateway import Exchange, Form, Terms, open_exchange
from curtilage.enclave_server.ohttp.keys import ServerKey
from curtilage.inference.errors import EngineFailedError
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.scripted_engine import Script
from support.enclave_parts import (
    CHUNKED,
    PLAIN,
    QUICK,
    Parts,
    Sealed,
    ask,
    chat_body,
    connect,
    inner_request,
    make_parts,
    post,
    seal,
    serving,
    until,
)
from support.virtual_time import VirtualTime

FORMS = [PLAIN, CHUNKED]
FRAMES = [16 + 530, *[530] * 6, 529]


def chat(parts: Parts, *, stream: bool, form: str = CHUNKED) -> Sealed:
    return seal(parts.key, inner_request(chat_body(stream=stream)), form=form)


async def timed_parts(*scripts: Script) -> Parts:
    """Ticks come when all tasks wait, so that no load changes a bucket."""
    return await make_parts(*scripts, transport=QUICK, timer=VirtualTime().timer)


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_each_frame_is_one_chunk_of_one_size(stream: bool) -> None:
    parts = await timed_parts()
    sealed = chat(parts, stream=stream)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    assert [len(piece) for piece in answer.pieces] == FRAMES
    response = sealed.open(answer.body)
    assert response.status == 200
    assert b"Hello" in response.content
    assert parts.counted() == {"opened": 1, "answered": 1, "frames_sent": 1}


@pytest.mark.parametrize("form", FORMS)
async def test_outer_fields_are_constant_and_in_order(form: str) -> None:
    parts = await timed_parts()
    async with serving(parts) as address:
        heads = {
            (await ask(address, chat(parts, stream=stream, form=form))).head
            for stream in (True, False)
        }
        refused = seal(parts.key, inner_request(path=b"/x"), form=form)
        heads.add((await ask(address, refused)).head)
    (head,) = heads
    total = str(sum(FRAMES))
    framing = {
        PLAIN: (("Content-Length", total),),
        CHUNKED: (("Incremental", "?1"), ("Transfer-Encoding", "chunked")),
    }
    assert head == (
        ("Server", "curtilage"),
        ("Content-Type", form.replace("req", "res")),
        ("Cache-Control", "private, no-store"),
        *framing[form],
    )


SCRIPTS = {
    "short": Script(pieces=["a"]),
    "long": Script(pieces=["word "] * 12),
    "nothing": Script(pieces=[]),
    "fails": Script(pieces=["a"], fault=EngineFailedError("x"), fault_after=1),
    "fails-unforeseen": Script(pieces=[], fault=RuntimeError("canary")),
}


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
@pytest.mark.parametrize("form", FORMS)
async def test_answers_of_one_bucket_are_indistinguishable(
    form: str, stream: bool
) -> None:
    seen: set[tuple[object, ...]] = set()
    for script in SCRIPTS.values():
        parts = await timed_parts(script)
        async with serving(parts) as address:
            answer = await ask(address, chat(parts, stream=stream, form=form))
        seen.add((answer.head, tuple(map(len, answer.pieces))))
    assert len(seen) == 1


async def test_cover_is_an_answer_without_a_model() -> None:
    parts = await timed_parts()
    inner = inner_request(b'{"bucket":1}', path=b"/v1/cover")
    sealed = seal(parts.key, inner)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
        again = await ask(address, sealed)
    assert len(answer.pieces) == 16
    assert len(again.pieces) == 8
    assert json.loads(sealed.open(answer.body).content) == {}
    assert parts.counted() == {
        "opened": 2,
        "covered": 1,
        "replayed": 1,
        "frames_sent": 3,
    }
    assert parts.engine.requests == []


async def test_unpadded_release_knows_no_cover() -> None:
    parts = await make_parts()
    sealed = seal(parts.key, inner_request(b'{"bucket":0}', path=b"/v1/cover"))
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert response.status == 404


INNERS = {
    "chat": inner_request(),
    "cover": inner_request(b'{"bucket":0}', path=b"/v1/cover"),
    "refused": inner_request(b"{"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", INNERS)
async def test_time_to_open_a_request_does_not_show(
    kind: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = VirtualTime()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await time.sleep(seconds)

    def open_slowly(
        keys: Mapping[int, ServerKey], form: Form, message: bytes, terms: Terms
    ) -> Exchange:
        time.now += 0.0015
        return open_exchange(keys, form, message, terms)

    monkeypatch.setattr(app, "open_exchange", open_slowly)
    timer = Timer(clock=lambda: time.now, sleep=sleep)
    parts = await make_parts(transport=QUICK, timer=timer)
    async with serving(parts) as address:
        await ask(address, seal(parts.key, INNERS[kind], form=form))
    # One period after the last byte; all others one period after the one before. Each
    # is sealed a fifth of a period before.
    waits = [0.0001, 0.0004, *[0.0016, 0.0004] * 7]
    assert [round(seconds, 6) for seconds in slept] == waits


SLOW_FRAMES = TransportParameters(period_ms=1000, first_bucket=64)
# A token that never comes by itself: only closing ends it.
STUCK = Script(pieces=["a"] * 10, delay_s=3600)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
async def test_lost_connection_stops_the_engine(form: str, stream: bool) -> None:
    parts = await make_parts(STUCK, transport=SLOW_FRAMES)
    async with serving(parts) as address:
        _, writer = await connect(address)
        sealed = chat(parts, stream=stream, form=form)
        writer.write(post(sealed.message, content_type=form))
        await until(lambda: bool(parts.engine.requests))
        assert parts.engine.load().running
        writer.transport.abort()
        # Long before the next frame, and before any token.
        await until(lambda: not parts.engine.load().running, within_s=5)
        await until(lambda: "answer_cancelled" in parts.counted())


async def test_lost_connection_leaves_the_queue() -> None:
    parts = await make_parts(STUCK, transport=SLOW_FRAMES)
    async with serving(parts) as address:
        _, first = await connect(address)
        first.write(post(chat(parts, stream=True).message))
        await until(lambda: parts.engine.load().running == 1)
        _, second = await connect(address)
        second.write(post(chat(parts, stream=True).message))
        await until(lambda: parts.engine.load().queued == 1)
        second.transport.abort()
        await until(lambda: parts.engine.load().queued == 0)
        first.transport.abort()
        await until(lambda: parts.engine.load().running == 0)


def unsent_bytes(port: int) -> int:
    """The buffers of the server's transports for its readers."""
    transports = [
        each
        for each in gc.get_objects()
        if isinstance(each, asyncio.Transport)
        and (each.get_extra_info("sockname") or (0, 0))[1] == port
    ]
    return max((each.get_write_buffer_size() for each in transports), default=0)


async def test_slow_reader_holds_some_frames_and_no_more() -> None:
    large = TransportParameters(
        frame_bytes=16384, period_ms=1, first_bucket=4096, buckets=4
    )
    parts = await make_parts(
        Script(pieces=["x" * 1000] * 10_000),
        transport=large,
        limits=Limits(write_s=2),
    )
    most = 0
    async with serving(parts) as address:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.setblocking(False)
            raw = post(chat(parts, stream=True).message)
            await asyncio.get_running_loop().sock_sendall(reader, raw)
            await until(lambda: bool(parts.engine.requests))
            for _ in range(400):
                most = max(most, unsent_bytes(port))
                if "answer_cancelled" in parts.counted():
                    break
                await asyncio.sleep(0.02)
            # It was disconnected in the end, and held little until then.
            assert "answer_cancelled" in parts.counted()
            assert not parts.engine.load().running
    assert 0 < most <= MAX_UNSENT_BYTES + 2 * (16384 + 64)


async def test_answer_that_goes_on_is_ended_by_a_stop() -> None:
    parts = await make_parts(STUCK, transport=SLOW_FRAMES, limits=Limits(shutdown_s=0))
    async with serving(parts) as address:
        _, writer = await connect(address)
        writer.write(post(chat(parts, stream=True).message))
        await until(lambda: bool(parts.engine.requests))
    assert not parts.engine.load().running
    writer.close()
