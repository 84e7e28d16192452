"""Memory of relay and gateway for connections: idle, and streaming.

Real processes on loopback. An idle connection has sent one health check and remains
open. A streaming one is a padded answer in progress through the relay; the engine is a
script that answers one question at a time, so all but one of the answers wait for their
turn while their frames are sent. Resident set sizes, as the system reports them.
"""

import asyncio
import json
import resource
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from benchmarks.report import Table
from curtilage.wire import bhttp
from curtilage.wire.dates import format_date
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.padding import seal_padded_request
from curtilage.wire.shaping import PADDED
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import Play
from curtilage_dev.stack import GATEWAY, Stack

IDLE: Final = 1000
STREAMING: Final = 200
TOGETHER: Final = 20
KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * 1024
SETTLE_S: Final = 2.0
DEADLINE_S: Final = 50.0
WARM_UP: Final = 20
DESCRIPTORS: Final = 4096
# A connection's memory does not depend on the pace of its frames, but the load of two
# hundred of them on a busy machine does.
TRANSPORT: Final = replace(PADDED, period_ms=1000)
PLAY: Final = Play(pieces=200, delay_ms=50)
ENCLAVE_LIMITS: Final = """\
[limits]
max_connections = 2048
max_queue = 1024
idle_s = 600
"""
RELAY_LIMITS: Final = """\
[clients]
connections = 0
exchanges = 0
requests_per_s = 0
[limits]
max_connections = 2048
max_upstream = 512
idle_timeout_s = 600.0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Resident set sizes in bytes, the relay's and the gateway's."""

    relay: int
    enclave: int


def measure_memory(folder: Path) -> list[Table]:
    """Measure both; takes about half a minute.

    Raises:
        TimeoutError: the machine is too busy for it.
    """
    _raise_descriptor_limit()
    with ExitStack() as running:
        processes = running.enter_context(Processes(folder))
        stack = Stack(
            folder=folder,
            processes=processes,
            record=False,
            play=PLAY,
            transport=TRANSPORT,
            enclave_extra=ENCLAVE_LIMITS,
            relay_extra=RELAY_LIMITS,
        )
        stack.start_evidence()
        stack.publish()
        stack.start_enclave()
        stack.start_relay()
        measured = asyncio.run(_measure(stack))
    return [_table(measured)]


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _measure(stack: Stack) -> list[tuple[str, _Sizes]]:
    key = await asyncio.to_thread(_key, stack)
    opened: list[asyncio.StreamWriter] = []
    readers: list[asyncio.Task[None]] = []
    measured: list[tuple[str, _Sizes]] = []

    async def stream() -> None:
        reader, writer = await _ask(stack.relay_address, key)
        opened.append(writer)
        readers.append(asyncio.create_task(_drop(reader)))

    async with asyncio.timeout(DEADLINE_S):
        try:
            warm = [_ask(stack.relay_address, key) for _ in range(WARM_UP)]
            for _, writer in await asyncio.gather(*warm):
                writer.close()
            measured.append(("started, some questions asked", await _settled(stack)))
            for address in (stack.relay_address, stack.enclave_address):
                opened += [await _idle(address) for _ in range(IDLE)]
            measured.append((f"{IDLE:,} idle connections each", await _settled(stack)))
            for _ in range(0, STREAMING, TOGETHER):
                # The first frame comes a period after its question.
                await asyncio.gather(*(stream() for _ in range(TOGETHER)))
            measured.append((f"and {STREAMING} streaming", await _settled(stack)))
            if any(task.done() for task in readers):
                raise ConnectionError("an answer ended while others began")
        finally:
            for writer in opened:
                writer.close()
            await asyncio.gather(*readers, return_exceptions=True)
    return measured


def _key(stack: Stack) -> KeyConfig:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{stack.relay_url}/keys", timeout=20) as response:
        return parse_key_configs(response.read())[0]


async def _idle(address: str) -> asyncio.StreamWriter:
    """Open a connection, have one request answered, and let it be."""
    reader, writer = await _connect(address)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError("the server does not keep so many connections")
    return writer


async def _ask(
    address: str, key: KeyConfig
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask, and return once frames of the answer come."""
    reader, writer = await _connect(address)
    message = seal_padded_request(key, _question()).message
    head = (
        f"POST /{GATEWAY} HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: message/ohttp-chunked-req\r\nIncremental: ?1\r\n"
        f"Content-Length: {len(message)}\r\n\r\n"
    )
    writer.write(head.encode() + message)
    answered = await reader.readuntil(b"\r\n\r\n")
    if not answered.startswith(b"HTTP/1.1 200"):
        raise ConnectionError("the relay does not take so many questions")
    await reader.readuntil(b"\r\n")
    return reader, writer


def _question() -> bytes:
    turn = {"role": "user", "content": "What is a curtilage?"}
    content = {"messages": [turn], "stream": True, "max_tokens": PLAY.pieces}
    return bhttp.encode_request(
        bhttp.Request(
            method=b"POST",
            scheme=b"https",
            authority=b"curtilage.invalid",
            path=b"/v1/chat/completions",
            fields=(
                (b"content-type", b"application/json"),
                (b"date", format_date(datetime.now(UTC))),
            ),
            content=json.dumps(content).encode(),
        )
    )


async def _drop(reader: asyncio.StreamReader) -> None:
    """Read on, so that the answer goes on, until it ends."""
    while await reader.read(65536):
        pass


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _settled(stack: Stack) -> _Sizes:
    await asyncio.sleep(SETTLE_S)
    return _Sizes(relay=_resident(stack, "relay"), enclave=_resident(stack, "enclave"))


def _resident(stack: Stack, name: str) -> int:
    return psutil.Process(stack.running[name].pid).memory_info().rss


def _table(measured: list[tuple[str, _Sizes]]) -> Table:
    counts = (0, IDLE, STREAMING)
    rows: list[tuple[str | float, ...]] = []
    before = measured[0][1]
    for (title, sizes), count in zip(measured, counts, strict=True):
        each = max(count, 1)
        rows.append(
            (
                title,
                sizes.relay / MEBIBYTE,
                (sizes.relay - before.relay) / each / KIBIBYTE,
                sizes.enclave / MEBIBYTE,
                (sizes.enclave - before.enclave) / each / KIBIBYTE,
            )
        )
        before = sizes
    return Table(
        title="Memory of relay and gateway",
        columns=(
            "with",
            "relay MiB",
            "relay KiB each",
            "gateway MiB",
            "gateway KiB each",
        ),
        rows=tuple(rows),
        note="resident set sizes, and how much each connection added; plain HTTP on "
        "loopback; every stream a padded answer (a frame each second) through the "
        "relay; scripted engine, no model in memory; idle connections to the gateway "
        "are opened directly",
    )
