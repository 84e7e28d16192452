"""In-memory counterparts of the enclave's parts, and a client made of bytes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from curtilage.enclave_server.answer.pacing import LOOP_TIMER, Timer
from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.http.binding import bind
from curtilage.enclave_server.http.context import RequestContext
from curtilage.enclave_server.http.server import EnclaveServer
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.keys import KeyRing, Published, ServerKey, make_key
from curtilage.enclave_server.telemetry import Counters
from curtilage.enclave_server.toml_reader import Listen
from curtilage.wire import bhttp, chunked, ohttp
from curtilage.wire.dates import format_date
from curtilage.wire.errors import ConsumedError
from curtilage.wire.hpke.suite import Suite, setup_recipient, setup_sender
from curtilage.wire.keyconfig import KeyConfig
from curtilage.wire.media import GATEWAY_PATH
from curtilage.wire.shaping import UNPADDED, TransportParameters
from curtilage_dev.scripted_engine import Script, ScriptedEngine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CHUNKED = "message/ohttp-chunked-req"
PLAIN = "message/ohttp-req"
QUICK = TransportParameters(frame_bytes=512, period_ms=2, first_bucket=8, buckets=5)
"""Padded, and over within 16 ms."""
LOOPBACK = Listen(host="127.0.0.1", port=0)


def chat_body(**extra: object) -> bytes:
    messages = [{"role": "user", "content": "What is a curtilage?"}]
    return json.dumps({"messages": messages, **extra}).encode()


Fields = tuple[tuple[bytes, bytes], ...]
JSON: Fields = ((b"content-type", b"application/json"),)


def dated(fields: Fields = JSON, *, now: datetime = NOW) -> Fields:
    return (*fields, (b"date", format_date(now)))


def inner_request(
    content: bytes | None = None,
    *,
    method: bytes = b"POST",
    scheme: bytes = b"https",
    authority: bytes = b"curtilage.invalid",
    path: bytes = b"/v1/chat/completions",
    fields: Fields | None = None,
) -> bytes:
    return bhttp.encode_request(
        bhttp.Request(
            method=method,
            scheme=scheme,
            authority=authority,
            path=path,
            fields=dated() if fields is None else fields,
            content=chat_body() if content is None else content,
        )
    )


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """A request as it goes out, and how to open what comes back."""

    message: bytes
    content_type: str
    open: Callable[[bytes], bhttp.Response] = field(repr=False)


def config_of(key: ServerKey, suite: Suite | None = None) -> KeyConfig:
    """Return the first configuration, or the first that offers ``suite``."""
    configs = [each.config for each in key.gateway_keys]
    return next(
        config for config in configs if suite is None or suite in config.suites()
    )


def seal(
    key: ServerKey | KeyConfig,
    inner: bytes | None = None,
    *,
    form: str = CHUNKED,
    suite: Suite | None = None,
) -> Sealed:
    config = key if isinstance(key, KeyConfig) else config_of(key, suite)
    inner = inner_request() if inner is None else inner
    if form == PLAIN:
        plain = ohttp.seal_request(config, inner, suite=suite)
        return Sealed(
            message=plain.message,
            content_type=form,
            open=lambda data: bhttp.decode_response(plain.opener.open(data)),
        )
    sealed = chunked.seal_chunked_request(config, inner, suite=suite)

    def open_chunked(data: bytes) -> bhttp.Response:
        pieces = sealed.opener.push(data)
        return bhttp.decode_response(b"".join(pieces) + sealed.opener.finish())

    return Sealed(message=sealed.message, content_type=form, open=open_chunked)


def is_wiped(key: ServerKey) -> bool:
    """Whether nothing can be opened any more, with either key."""
    for gateway_key in key.gateway_keys:
        suite = gateway_key.config.suites()[0]
        enc, _ = setup_sender(suite, gateway_key.config.public_key, b"")
        try:
            setup_recipient(suite, enc, gateway_key.private_key, b"")
        except ConsumedError:
            continue
        return False
    return key.replay.is_full


def error_code(response: bhttp.Response) -> str:
    body = json.loads(response.content)
    return str(body.get("error", body)["code"])


@dataclass
class StaticBundles:
    """Publishes what it is given."""

    current: Published | None
    failing: bool = False

    def published(self, now: datetime) -> Published | None:
        assert now.tzinfo is UTC
        return self.current


@dataclass(kw_only=True)
class Parts:
    """Everything behind one server under test."""

    context: RequestContext
    engine: ScriptedEngine
    key: ServerKey
    bundles: StaticBundles
    counters: Counters

    def counted(self) -> dict[str, int]:
        return {name: n for name, n in self.counters.snapshot().items() if n}


async def make_parts(
    *scripts: Script,
    limits: Limits | None = None,
    now: datetime = NOW,
    max_queued: int = 4,
    transport: TransportParameters = UNPADDED,
    timer: Timer = LOOP_TIMER,
) -> Parts:
    limits = limits or Limits()
    engine = ScriptedEngine(*scripts, max_queued=max_queued)
    await engine.start()
    key = make_key(
        now=now, lifetime_s=3600, replay_capacity=limits.max_requests_per_key
    )
    keys = KeyRing()
    keys.install(key)
    bundles = StaticBundles(
        Published(
            bundle=b'{"v":2}', key_configs=key.key_configs, tee="emulated-sev-snp"
        )
    )
    counters = Counters()
    model = Model(engine)
    context = RequestContext(
        keys=keys,
        bundles=bundles,
        model=model,
        model_name=model.name,
        counters=counters,
        limits=limits,
        chat_limits=ChatLimits(),
        transport=transport,
        clock=lambda: now,
        timer=timer,
    )
    return Parts(
        context=context, engine=engine, key=key, bundles=bundles, counters=counters
    )


@asynccontextmanager
async def serving(parts: Parts, listen: Listen = LOOPBACK) -> AsyncGenerator[str]:
    server = EnclaveServer(parts.context)
    with bind(listen) as bound:
        address = await server.start(bound)
        try:
            yield address
        finally:
            await server.stop()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP/1.1 answer, as read from the socket.

    ``head`` is everything but the Date; ``pieces`` are the transfer chunks.
    """

    status: int
    head: tuple[tuple[str, str], ...]
    body: bytes
    pieces: tuple[bytes, ...] = ()

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.head if key == name]


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address.removeprefix("unix:"))
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port))


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    raw = await reader.readuntil(b"\r\n\r\n")
    lines = raw.decode().split("\r\n")[:-2]
    fields = [line.split(": ", 1) for line in lines[1:]]
    head = tuple((key, value) for key, value in fields if key != "Date")
    named = {key.lower(): value for key, value in head}
    pieces: list[bytes] = []
    if named.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        length = named.get("content-length")
        pieces.append(
            await reader.read()
            if length is None
            else await reader.readexactly(int(length))
        )
    return Answer(
        status=int(lines[0].split(" ")[1]),
        head=head,
        body=b"".join(pieces),
        pieces=tuple(pieces),
    )


def post(
    body: bytes,
    *,
    content_type: str | None = CHUNKED,
    path: str = GATEWAY_PATH,
    method: str = "POST",
    fields: Sequence[str] = (),
    length: int | None = None,
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: enclave"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    if not any(name.lower().startswith("transfer-encoding") for name in fields):
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    lines += fields
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: enclave\r\n\r\n".encode()


async def exchange(address: str, raw: bytes, *, timeout_s: float = 30) -> Answer:
    async with asyncio.timeout(timeout_s):
        reader, writer = await connect(address)
        try:
            writer.write(raw)
            return await read_answer(reader)
        finally:
            writer.close()


async def ask(address: str, sealed: Sealed) -> Answer:
    return await exchange(
        address, post(sealed.message, content_type=sealed.content_type)
    )


async def until(condition: Callable[[], bool], *, within_s: float = 5) -> None:
    for _ in range(int(within_s / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError
