import asyncio
import gzip
import json
import stat
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.http import server as app
from curtilage.enclave_server.http.server import EnclaveServer
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.ohttp import gateway
from curtilage.enclave_server.ohttp.keys import Published
from curtilage.enclave_server.toml_reader import Listen
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineFailedError,
    TemplateError,
)
from curtilage.inference.protocol import (
    CancelToken,
    Event,
    GenerateRequest,
    Token,
)
from curtilage.wire.keyconfig import parse_key_configs
from curtilage_dev.scripted_engine import Script, ScriptedEngine
from support.enclave_parts import (
    CHUNKED,
    NOW,
    PLAIN,
    Answer,
    Parts,
    Sealed,
    ask,
    chat_body,
    connect,
    error_code,
    exchange,
    get,
    inner_request,
    make_parts,
    post,
    read_answer,
    seal,
    serving,
    until,
)

FORMS = [PLAIN, CHUNKED]
GATEWAY = "/.well-known/ohttp-gateway"
FORBIDDEN_FIELDS = {"Set-Cookie", "Via", "Location", "ETag", "X-Powered-By"}


def events_of(content: bytes) -> list[object]:
    lines = content.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [
        json.loads(line[6:]) if line != "data: [DONE]" else "[DONE]" for line in lines
    ]


async def answer_inside(parts: Parts, sealed: Sealed) -> tuple[int, str]:
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    assert answer.status == 200
    response = sealed.open(answer.body)
    return response.status, error_code(response)


@pytest.mark.parametrize("form", FORMS)
async def test_whole_answer_is_one_completion(form: str) -> None:
    parts = await make_parts()
    sealed = seal(parts.key, inner_request(chat_body(logprobs=True)), form=form)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    response = sealed.open(answer.body)
    assert response.status == 200
    assert response.fields == ((b"content-type", b"application/json"),)
    body = json.loads(response.content)
    assert body["object"] == "chat.completion"
    assert body["model"] == "scripted"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello, world."}
    assert choice["finish_reason"] == "stop"
    assert len(choice["logprobs"]["content"]) == 4
    assert body["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 4,
        "total_tokens": 11,
    }
    assert parts.counted() == {"opened": 1, "answered": 1}


@pytest.mark.parametrize("form", FORMS)
async def test_streamed_answer_is_events(form: str) -> None:
    parts = await make_parts()
    sealed = seal(parts.key, inner_request(chat_body(stream=True)), form=form)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    response = sealed.open(answer.body)
    assert response.fields == ((b"content-type", b"text/event-stream"),)
    *events, done = events_of(response.content)
    assert done == "[DONE]"
    chunks = [json.dumps(event) for event in events]
    assert all("chat.completion.chunk" in chunk for chunk in chunks)
    deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "Hello, world."
    last = json.loads(chunks[-1])
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["usage"]["completion_tokens"] == 4
    assert len({json.loads(chunk)["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("form", FORMS)
async def test_answer_fields_are_constant(form: str) -> None:
    parts = await make_parts()
    async with serving(parts) as address:
        answer = await ask(address, seal(parts.key, form=form))
    fields = {
        "Server": "curtilage",
        "Content-Type": form.replace("req", "res"),
        "Cache-Control": "private, no-store",
    }
    if form == CHUNKED:
        fields |= {"Incremental": "?1", "Transfer-Encoding": "chunked"}
    else:
        fields |= {"Content-Length": str(len(answer.body))}
    assert dict(answer.head) == fields


class GatedEngine(ScriptedEngine):
    """Sends one token each time the gate is opened."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.gate = asyncio.Semaphore(0)

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        async with aclosing(super().generate(request, cancel=cancel)) as events:
            async for event in events:
                if isinstance(event, Token):
                    await self.gate.acquire()
                yield event


async def read_piece(reader: asyncio.StreamReader) -> int:
    size = int(await reader.readuntil(b"\r\n"), 16)
    await reader.readexactly(size + 2)
    return size


async def test_tokens_arrive_one_by_one() -> None:
    parts = await make_parts()
    engine = GatedEngine(Script(pieces=["a", "b", "c"]))
    await engine.start()
    parts.context = replace(parts.context, model=Model(engine))
    sealed = seal(parts.key, inner_request(chat_body(stream=True)))
    async with serving(parts) as address, asyncio.timeout(30):
        reader, writer = await connect(address)
        writer.write(post(sealed.message))
        # The head and the role arrive before any token; then one piece each, before
        # there is another.
        await reader.readuntil(b"\r\n\r\n")
        assert await read_piece(reader)
        for _ in range(3):
            engine.gate.release()
            assert await read_piece(reader)
        assert await read_piece(reader)
        assert not await read_piece(reader)
        writer.close()


async def test_keys_are_served_under_both_paths() -> None:
    parts = await make_parts()
    async with serving(parts) as address:
        answers = [await exchange(address, get(p)) for p in ("/ohttp-keys", GATEWAY)]
    assert answers[0] == answers[1]
    assert answers[0].status == 200
    assert dict(answers[0].head) == {
        "Server": "curtilage",
        "Content-Type": "application/ohttp-keys",
        "Cache-Control": "public, max-age=300",
        "Content-Length": "1274",
    }
    configs = parse_key_configs(answers[0].body)
    assert configs == tuple(each.config for each in parts.key.gateway_keys)


async def test_bundle_and_health_are_served() -> None:
    parts = await make_parts()
    async with serving(parts) as address:
        bundle = await exchange(address, get("/attestation-bundle"))
        health = await exchange(address, get("/healthz"))
    assert bundle.body == b'{"v":2}'
    assert bundle.values("Content-Type") == [
        "application/vnd.curtilage.evidence-bundle+json"
    ]
    assert json.loads(health.body) == {"status": "ok", "evidence": "emulated-sev-snp"}


async def test_health_says_that_evidence_is_not_renewed() -> None:
    parts = await make_parts()
    parts.bundles.failing = True
    async with serving(parts) as address:
        health = await exchange(address, get("/healthz"))
    assert health.status == 200
    assert json.loads(health.body) == {
        "status": "degraded",
        "reasons": ["evidence_not_renewed"],
        "evidence": "emulated-sev-snp",
    }


@pytest.mark.parametrize(
    "path", ["/ohttp-keys", GATEWAY, "/attestation-bundle", "/healthz"]
)
async def test_expired_bundle_is_not_served(path: str) -> None:
    parts = await make_parts()
    parts.bundles.current = None
    async with serving(parts) as address:
        assert (await exchange(address, get(path))).status == 503


async def test_expired_key_is_unknown() -> None:
    parts = await make_parts()
    sealed = seal(parts.key)
    late = NOW + timedelta(seconds=3600)
    parts.context = replace(parts.context, clock=lambda: late)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    assert (answer.status, b"#ohttp-key" in answer.body) == (422, True)
    assert parts.counted() == {"key_unknown": 1}


async def test_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    parts = await make_parts()
    path = tmp_path / "e.sock"
    async with serving(parts, Listen(path=path)) as address:
        assert address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await exchange(address, get("/healthz"))).status == 200
    assert not path.exists()


async def test_ipv6_address_is_named_as_a_url_would() -> None:
    parts = await make_parts()
    async with serving(parts, Listen(host="::1", port=0)) as address:
        assert address.startswith("[::1]:")
        assert (await exchange(address, get("/healthz"))).status == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (get("/"), 404),
        (get("/metrics"), 404),
        (get("/ohttp-keys?x=1"), 404),
        (get("/ohttp-keys/"), 404),
        (get("//ohttp-keys"), 404),
        (get("/%6fhttp-keys"), 404),
        (post(b"x", path="/ohttp-keys"), 405),
        (post(b"x", path="/attestation-bundle"), 405),
        (post(b"x", method="PUT"), 405),
        (post(b"x", method="PATCH"), 405),
        (post(b"x", method="DELETE"), 405),
        (post(b"", method="OPTIONS"), 405),
        (post(b"", method="TRACE"), 405),
        (post(b"x", content_type=None), 415),
        (post(b"x", content_type="application/json"), 415),
        (post(b"x", content_type=CHUNKED + "; charset=utf-8"), 415),
        (post(b"x", fields=["Content-Type: " + CHUNKED]), 400),
        (post(b"x", content_type="multipart/form-data; boundary=x"), 415),
        (post(gzip.compress(b"x"), fields=["Content-Encoding: gzip"]), 415),
        (post(b"x", fields=["Content-Encoding: br"]), 415),
        (post(b"x", fields=["Content-Encoding: zstd"]), 415),
        (post(b"x", fields=["Content-Encoding: deflate"]), 415),
        (post(b"x", fields=["Content-Encoding: identity"]), 415),
        (post(b"x", fields=["Expect: 100-continue"]), 417),
        (post(b"x", fields=["Expect: banana"]), 417),
        (post(b""), 422),
        (post(b"x", fields=["Incremental: banana"]), 422),
        (post(b"", length=10**12), 413),
        (post(b"", length=1024 * 1024 + 1), 413),
        (b"CONNECT enclave:443 HTTP/1.1\r\nHost: enclave\r\n\r\n", 405),
        (b"POST " + GATEWAY.encode() + b" HTTP/1.1\r\nHost: enclave\r\n\r\n", 415),
        (b"GET " + GATEWAY.encode() + b" HTTP/1.1\r\n bad\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 canary\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: e\r\n\r\n", 400),
        (post(b"x", fields=["X-Long: " + "a" * 9000]), 400),
        (post(b"x", fields=[f"X-{n}: a" for n in range(100)]), 400),
        (post(b"x", fields=["Content-Length: 1"]), 400),
        (post(b"x", fields=["Transfer-Encoding: xchunked"]), 400),
        (post(b"zz\r\n", fields=["Transfer-Encoding: chunked"]), 400),
    ],
)
async def test_bad_request_gets_its_constant_answer(raw: bytes, status: int) -> None:
    parts = await make_parts()
    async with serving(parts) as address:
        answer = await exchange(address, raw)
    assert answer.status == status
    assert answer.values("Server") == ["curtilage"]
    assert answer.values("Content-Type") == ["application/problem+json"]
    assert not FORBIDDEN_FIELDS & {name for name, _ in answer.head}
    assert b"canary" not in answer.body
    assert parts.engine.requests == []


async def test_wrong_method_names_the_right_ones() -> None:
    async with serving(await make_parts()) as address:
        answer = await exchange(address, post(b"x", method="PUT"))
    assert answer.values("Allow") == ["GET, POST"]


@pytest.mark.parametrize(
    "head",
    [
        f"POST http://other.example{GATEWAY} HTTP/1.1\r\nHost: enclave",
        f"POST {GATEWAY} HTTP/1.1\r\nHost: other.example",
        f"POST {GATEWAY} HTTP/1.0",
        f"POST {GATEWAY} HTTP/1.1\r\nHost: e\r\nIncremental: ?0",
    ],
    ids=["absolute-form", "foreign-host", "http-1.0", "incremental-0"],
)
async def test_form_of_the_outer_request_changes_nothing(head: str) -> None:
    parts = await make_parts()
    sealed = seal(parts.key)
    raw = (
        f"{head}\r\nContent-Type: {CHUNKED}\r\n"
        f"Content-Length: {len(sealed.message)}\r\n\r\n"
    ).encode() + sealed.message
    async with serving(parts) as address:
        answer = await exchange(address, raw)
    assert sealed.open(answer.body).status == 200


async def test_body_may_come_byte_by_byte() -> None:
    parts = await make_parts()
    sealed = seal(parts.key)
    body = b"".join(b"1\r\n%c\r\n" % octet for octet in sealed.message) + b"0\r\n\r\n"
    raw = post(body, fields=["Transfer-Encoding: chunked"])
    async with serving(parts) as address:
        answer = await exchange(address, raw)
    assert sealed.open(answer.body).status == 200


async def test_body_beyond_the_limit_is_refused_while_it_comes() -> None:
    parts = await make_parts(limits=Limits(max_body_bytes=1024))
    body = b"400\r\n" + b"a" * 1024 + b"\r\n"
    async with serving(parts) as address:
        within = await exchange(
            address, post(body + b"0\r\n\r\n", fields=["Transfer-Encoding: chunked"])
        )
        beyond = await exchange(
            address, post(body * 2, fields=["Transfer-Encoding: chunked"])
        )
    assert (within.status, beyond.status) == (422, 413)


async def test_body_that_breaks_its_framing_midway_ends_at_its_deadline() -> None:
    parts = await make_parts(limits=Limits(body_s=1))
    async with serving(parts) as address:
        reader, writer = await connect(address)
        writer.write(post(b"1\r\na\r\n", fields=["Transfer-Encoding: chunked"]))
        await asyncio.sleep(0.1)
        writer.write(b"zz\r\n")
        assert (await read_answer(reader)).status == 408
        writer.close()


@pytest.mark.parametrize("form", FORMS)
async def test_refusal_after_decapsulation_is_encapsulated(form: str) -> None:
    parts = await make_parts()
    sealed = seal(parts.key, inner_request(path=b"/v1/models"), form=form)
    assert await answer_inside(parts, sealed) == (404, "not_found")
    assert parts.counted() == {"opened": 1, "inner_refused": 1}


async def test_server_that_never_started_stops() -> None:
    await EnclaveServer((await make_parts()).context).stop()


async def test_connection_is_reused_after_a_refusal() -> None:
    parts = await make_parts()
    sealed = seal(parts.key)
    async with serving(parts) as address:
        reader, writer = await connect(address)
        writer.write(post(b"garbage"))
        assert (await read_answer(reader)).status == 422
        writer.write(post(sealed.message))
        assert sealed.open((await read_answer(reader)).body).status == 200
        writer.close()


def flipped(message: bytes, place: int) -> bytes:
    changed = bytearray(message)
    changed[place] ^= 1
    return bytes(changed)


async def test_all_failures_of_decapsulation_look_the_same() -> None:
    parts = await make_parts()
    plain, chunked = seal(parts.key, form=PLAIN), seal(parts.key)
    stranger = await make_parts()
    key_id = bytes([parts.key.key_ids[1]])
    bad = [
        (b"", CHUNKED),
        (key_id, CHUNKED),
        (chunked.message[:7], CHUNKED),
        (chunked.message[:20], CHUNKED),
        (chunked.message[:39], CHUNKED),
        (chunked.message[:-1], CHUNKED),
        (chunked.message + b"\0", CHUNKED),
        (plain.message, CHUNKED),
        (chunked.message, PLAIN),
        (plain.message[:-1], PLAIN),
        (key_id + seal(stranger.key).message[1:], CHUNKED),
        (chunked.message[:7] + bytes(32) + chunked.message[39:], CHUNKED),
        (key_id + b"\x64\x7a" + chunked.message[3:], CHUNKED),
        (chunked.message[:5] + b"\xff\xff" + chunked.message[7:], CHUNKED),
        (chunked.message[:39] + b"\xff" * 8 + chunked.message[47:], CHUNKED),
        *((flipped(chunked.message, n), CHUNKED) for n in range(1, 60)),
        *((flipped(plain.message, n), PLAIN) for n in range(1, 60)),
    ]
    answers: set[Answer] = set()
    async with serving(parts) as address:
        for message, content_type in bad:
            answers.add(
                await exchange(address, post(message, content_type=content_type))
            )
    (answer,) = answers
    assert answer.status == 422
    assert parts.engine.requests == []
    assert parts.counted() == {"unopenable": len(bad)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (
            ContextTooLongError(prompt_tokens=9, max_tokens=1, context_tokens=5),
            400,
            "context_length_exceeded",
        ),
        (TemplateError("no such role"), 400, "invalid_value"),
        (EngineFailedError("gone"), 500, "internal_error"),
    ],
    ids=["too-long", "template", "failed"],
)
async def test_engine_fault_is_an_encapsulated_error(
    form: str, stream: bool, fault: Exception, status: int, code: str
) -> None:
    script = Script(fault=fault, pieces=[], fault_after=0)
    parts = await make_parts(script)
    sealed = seal(parts.key, inner_request(chat_body(stream=stream)), form=form)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    assert answer.status == 200
    response = sealed.open(answer.body)
    if not stream:
        assert (response.status, error_code(response)) == (status, code)
        return
    # The scripted engine has begun before it fails, so the head was sent.
    assert response.status == 200
    *_, last = events_of(response.content)
    assert json.loads(json.dumps(last))["error"]["code"] == code


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", FORMS)
async def test_closed_engine_is_an_encapsulated_500(form: str, stream: bool) -> None:
    parts = await make_parts()
    await parts.engine.close()
    sealed = seal(parts.key, inner_request(chat_body(stream=stream)), form=form)
    assert await answer_inside(parts, sealed) == (500, "internal_error")


async def test_engine_that_stops_by_itself_is_an_error() -> None:
    parts = await make_parts(Script(finish="cancelled"))
    assert await answer_inside(parts, seal(parts.key)) == (500, "internal_error")


async def test_fault_in_mid_stream_ends_without_done() -> None:
    script = Script(pieces=["a", "b"], fault=EngineFailedError("x"), fault_after=1)
    parts = await make_parts(script)
    sealed = seal(parts.key, inner_request(chat_body(stream=True)))
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert b"[DONE]" not in response.content
    assert b"internal_error" in response.content
    assert parts.counted() == {"opened": 1, "answer_failed": 1}


async def test_full_queue_is_an_encapsulated_503() -> None:
    parts = await make_parts(Script(pieces=["a"] * 50, delay_s=0.05), max_queued=0)
    first, second = seal(parts.key), seal(parts.key)
    async with serving(parts) as address:
        _, writer = await connect(address)
        writer.write(post(first.message))
        await until(lambda: bool(parts.engine.requests))
        response = second.open((await ask(address, second)).body)
        writer.close()
    assert (response.status, error_code(response)) == (503, "busy")
    assert (b"retry-after", b"10") in response.fields
    assert parts.counted()["busy"] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_that_takes_too_long_ends_in_an_error(stream: bool) -> None:
    parts = await make_parts(
        Script(pieces=["a"], delay_s=60), limits=Limits(answer_s=1)
    )
    sealed = seal(parts.key, inner_request(chat_body(stream=stream)))
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert b"time_limit" in response.content
    assert (response.status == 504) is not stream


@pytest.mark.parametrize("form", FORMS)
async def test_disconnect_cancels_generation(form: str) -> None:
    parts = await make_parts(Script(pieces=["a"] * 1000, delay_s=0.02))
    sealed = seal(parts.key, inner_request(chat_body(stream=True)), form=form)
    async with serving(parts) as address:
        _, writer = await connect(address)
        writer.write(post(sealed.message, content_type=form))
        await until(lambda: bool(parts.engine.requests))
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await until(lambda: not parts.engine.load().running)
    assert parts.counted() == {"opened": 1, "answer_cancelled": 1}


async def test_reader_that_does_not_read_loses_the_model() -> None:
    parts = await make_parts(
        Script(pieces=["x" * 200_000] * 100), limits=Limits(write_s=1)
    )
    sealed = seal(parts.key, inner_request(chat_body(stream=True)))
    async with serving(parts) as address:
        _, writer = await connect(address)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(post(sealed.message))
        await until(lambda: bool(parts.engine.requests))
        await until(lambda: not parts.engine.load().running)
        writer.close()
    assert parts.counted() == {"opened": 1, "answer_cancelled": 1}


async def closed_after(address: str, data: bytes) -> tuple[float, bytes]:
    started = time.monotonic()
    reader, writer = await connect(address)
    writer.write(data)
    async with asyncio.timeout(40):
        rest = await reader.read()
    writer.close()
    return time.monotonic() - started, rest


@pytest.mark.parametrize(
    ("limits", "data", "answered"),
    [
        (Limits(header_s=1, idle_s=60), b"POST / HTTP/1.1\r\nHost:", b""),
        (Limits(header_s=60, idle_s=1), b"", b""),
        (Limits(header_s=1, idle_s=60), b"", b""),
        (Limits(header_s=60, idle_s=1), get("/healthz"), b"HTTP/1.1 200"),
        (Limits(body_s=1), post(b"abc", length=9), b"HTTP/1.1 408"),
    ],
    ids=["half-a-head", "nothing", "silence", "idle", "half-a-body"],
)
async def test_slow_peer_is_dropped(
    limits: Limits, data: bytes, answered: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LINGER_S", 0.1)
    async with serving(await make_parts(limits=limits)) as address:
        waited, rest = await closed_after(address, data)
    # Not before its time; the other limits' times are not waited for.
    assert waited > 0.8
    assert rest[: len(answered)] == answered
    assert bool(rest) == bool(answered)


async def two_heads_in_pieces(address: str) -> list[int]:
    reader, writer = await connect(address)
    statuses: list[int] = []
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        for _ in range(2):
            raw = get("/healthz")
            writer.write(raw[:9])
            await asyncio.sleep(0.6)
            writer.write(raw[9:])
            statuses.append((await read_answer(reader)).status)
    writer.close()
    return statuses


async def test_head_in_pieces_is_in_time() -> None:
    parts = await make_parts(limits=Limits(header_s=1))
    async with serving(parts) as address:
        for _ in range(8):
            # On a busy machine our own pauses are sometimes too long.
            if await two_heads_in_pieces(address) == [200, 200]:
                return
    raise TimeoutError


async def test_connection_beyond_the_cap_is_refused() -> None:
    parts = await make_parts(limits=Limits(max_connections=1))
    async with serving(parts) as address:
        reader, writer = await connect(address)
        writer.write(get("/healthz"))
        await read_answer(reader)
        refused = await exchange(address, get("/healthz"))
        assert refused.status == 503
        assert refused.values("Server") == ["curtilage"]
        writer.close()
        # At any time after the server has noticed.
        for _ in range(500):
            if (await exchange(address, get("/healthz"))).status == 200:
                return
            await asyncio.sleep(0.01)
    raise TimeoutError


async def test_stop_lets_an_answer_under_way_finish() -> None:
    parts = await make_parts(Script(pieces=["a"] * 5, delay_s=0.05))
    sealed = seal(parts.key)
    async with serving(parts) as address:
        reader, writer = await connect(address)
        writer.write(post(sealed.message))
        await until(lambda: bool(parts.engine.requests))
        pending = asyncio.create_task(read_answer(reader))
    assert sealed.open((await pending).body).status == 200
    writer.close()


class FailingBundles:
    failing = False

    def published(self, now: datetime) -> Published | None:
        raise RuntimeError(f"canary {now}")


async def test_unforeseen_failure_is_a_constant_500() -> None:
    parts = await make_parts()
    parts.context = replace(parts.context, bundles=FailingBundles())
    async with serving(parts) as address:
        answer = await exchange(address, get("/ohttp-keys"))
    assert answer.status == 500
    assert b"canary" not in answer.body
    assert parts.counted() == {"internal_error": 1}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", FORMS)
async def test_unforeseen_failure_of_the_model_is_sealed(
    form: str, stream: bool
) -> None:
    script = Script(pieces=["a", "b"], fault=RuntimeError("canary"), fault_after=1)
    parts = await make_parts(script)
    sealed = seal(parts.key, inner_request(chat_body(stream=stream)), form=form)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    response = sealed.open(answer.body)
    assert answer.status == 200
    assert b"internal_error" in response.content
    assert b"canary" not in response.content
    assert parts.counted() == {"opened": 1, "answer_failed": 1}


@pytest.mark.parametrize("form", FORMS)
async def test_unknown_model_is_an_encapsulated_error(form: str) -> None:
    parts = await make_parts()
    sealed = seal(parts.key, inner_request(chat_body(model="x\ty" * 99)), form=form)
    assert await answer_inside(parts, sealed) == (404, "model_not_found")


@pytest.mark.parametrize("form", FORMS)
async def test_unforeseen_failure_of_dispatch_is_sealed(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(gateway, "parse_chat_completion_request", fail)
    parts = await make_parts()
    assert await answer_inside(parts, seal(parts.key, form=form)) == (
        500,
        "internal_error",
    )


async def test_request_reaches_the_engine_as_it_was_asked() -> None:
    parts = await make_parts()
    body = json.dumps(
        {
            "messages": [
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": "hi", "name": "ann"},
            ],
            "max_tokens": 2,
            "temperature": 0.1,
            "top_p": 0.2,
            "seed": 5,
            "stop": ["x"],
        }
    ).encode()
    sealed = seal(parts.key, inner_request(body))
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert json.loads(response.content)["choices"][0]["finish_reason"] == "length"
    (request,) = parts.engine.requests
    assert [(m.role, m.content) for m in request.messages] == [
        ("developer", "be brief"),
        ("user", "hi"),
    ]
    settings = request.settings
    assert (settings.max_tokens, settings.temperature) == (2, 0.1)
    assert (settings.top_p, settings.seed, settings.stop) == (0.2, 5, ("x",))


def holds(items: list[int], count: int) -> bool:
    return len(items) == count


async def test_a_sweep_follows_each_exchange() -> None:
    swept: list[int] = []
    parts = await make_parts()
    context = replace(parts.context, sweep=lambda: swept.append(1))
    parts = replace(parts, context=context)
    async with serving(parts) as address:
        for number in (1, 2):
            await ask(address, seal(parts.key))
            await until(partial(holds, swept, number))
