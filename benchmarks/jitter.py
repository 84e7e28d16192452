"""The difference between the frames' delays of a question and of cover traffic.

The enclave server as it is shipped, with the embedded model, answers cover requests,
questions whose prompt takes long to read, whose answer takes long to write, or that
demand a large JSON schema, in random order: alone, and beside seven other answers that
are written all the time. No relay runs: the moments are those at which the enclave
server's frames arrive, by the kernel, from a tap on the line (a packet socket, as
root); nothing is read before the last frame was sent, so the observer takes no
processor time meanwhile.

For each kind: by how much its frames leave their grid, and how often that one number,
the spread of an answer's delays, puts the question above the cover (0.5 is chance, 1.0
always). Other work of the machine hides the difference, so only the figures of an idle
machine count. 200 answers of each kind take about 100 minutes; ``--answers 3`` tries
it.
"""

import asyncio
import json
import os
import secrets
import socket
import statistics
import struct
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import Table, area_above, busy, host, progress
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.media import KEYS_PATH
from curtilage.wire.padding import seal_padded_request
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.enclave_parts import dated, exchange, get, inner_request, post

FRAMES = 60
"""Of each answer; the shortest has 64."""
LATEST = 3
"""Frames: later than that, the last one is not waited for."""
HEADERS_BYTES = 128
TAP_BYTES, LINE_BYTES = 16 << 20, 4 << 20
# Of Linux; Python names none of them.
_ETH_P_IP, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 0x0800, 33, 35
PERIOD_MS = 50.0
CLASS_BYTES = 16384
COVER = "cover"
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")
CHANCE = secrets.SystemRandom()
BATCHES = (1, 8)
"""Answers at a time, the measured one included."""
COLUMNS = ("kind", "answers", "delay, ms", "spread, ms", "above cover (95 %)")
ENGINE_THREADS = 2
"""Of the enclave's default configuration; it leaves one processor to the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of question.

    Attributes:
        words: of the prompt; 0 asks for cover.
        max_tokens: of the answer.
        members: of the JSON object that is demanded; 0: text.
    """

    words: int
    max_tokens: int = 1
    members: int = 0

    def inner(self) -> bytes:
        """Return a new request of this kind."""
        now = datetime.now(UTC)
        if not self.words:
            return inner_request(
                b'{"bucket":0}', path=b"/v1/cover", fields=dated(now=now)
            )
        text = " ".join(CHANCE.choices(WORDS, k=self.words))
        body: dict[str, object] = {
            "messages": [{"role": "user", "content": f"Tell a long story. {text}"}],
            "max_tokens": self.max_tokens,
            "stream": True,
        }
        if self.members:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": "form",
                    "strict": True,
                    "schema": self._schema(),
                },
            }
        return inner_request(json.dumps(body).encode(), fields=dated(now=now))

    def _schema(self) -> dict[str, object]:
        names = [f"member_{number}" for number in range(self.members)]
        return {
            "type": "object",
            "properties": {
                name: {"enum": CHANCE.sample(sorted({*WORDS}), 3)} for name in names
            },
            "required": names,
            "additionalProperties": False,
        }


KINDS: Mapping[str, Kind] = {
    COVER: Kind(words=0),
    "reads": Kind(words=1500),
    "writes": Kind(words=1, max_tokens=400),
    "demands": Kind(words=1, members=200),
}


class Tap:
    """Sees every packet of the loopback interface, with the kernel's time of it."""

    def __init__(self) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_PACKET, kind, socket.htons(_ETH_P_IP))
        self._socket.bind(("lo", _ETH_P_IP))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, TAP_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def close(self) -> None:
        """Stop."""
        self._socket.close()

    def clear(self) -> None:
        """Drop what was seen."""
        for _ in self._seen():
            pass

    def sent_to(self, port: int) -> list[tuple[int, int, float]]:
        """Return what was sent to a port: TCP's number, bytes, and when, in ms."""
        return [
            (sequence, size, at_ms)
            for to, sequence, size, at_ms in self._seen()
            if to == port and size
        ]

    def _seen(self) -> Iterator[tuple[int, int, int, float]]:
        while True:
            try:
                packet, extra, _, _ = self._socket.recvmsg(HEADERS_BYTES, 64)
            except BlockingIOError:
                return
            if packet[9] != socket.IPPROTO_TCP:
                continue
            # What is sent is seen where it arrives, on the same processor.
            (_, _, stamp), *_ = extra
            seconds, nanoseconds = struct.unpack("qq", stamp)
            start = 4 * (packet[0] & 15)
            total = int.from_bytes(packet[2:4], "big")
            to, sequence = struct.unpack_from(">HI", packet, start + 2)
            size = total - start - 4 * (packet[start + 12] >> 4)
            yield to, sequence, size, seconds * 1000 + nanoseconds / 1e6


async def delays_of(
    tap: Tap, address: str, config: KeyConfig, kind: Kind
) -> list[float]:
    """Ask once; return how late each frame was, in ms, against the earliest."""
    sealed = seal_padded_request(config, kind.inner(), at_least=CLASS_BYTES)
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    with socket.socket() as line:
        line.setblocking(False)
        # All of it fits: nothing needs to be read meanwhile.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LINE_BYTES)
        await loop.sock_connect(line, (host, int(port)))
        own = line.getsockname()[1]
        tap.clear()
        await loop.sock_sendall(line, post(sealed.message))
        await asyncio.sleep((FRAMES + LATEST) * PERIOD_MS / 1000)
        data = line.recv(LINE_BYTES)
    return _delays(tap.sent_to(own), data)


def _delays(packets: Sequence[tuple[int, int, float]], data: bytes) -> list[float]:
    """Return how late each frame was."""
    first = packets[0][0]
    ends = [(number - first + size, at_ms) for number, size, at_ms in packets]
    moments: list[float] = []
    at = data.index(b"\r\n\r\n") + 4
    while len(moments) < FRAMES:
        line = data.index(b"\r\n", at)
        at = line + 2 + int(data[at:line], 16) + 2
        sent_ms = next(at_ms for end, at_ms in ends if end >= at)
        moments.append(sent_ms - len(moments) * PERIOD_MS)
    return [moment - min(moments) for moment in moments]


@asynccontextmanager
async def writing(
    address: str, config: KeyConfig, answers: int
) -> AsyncGenerator[None]:
    """Keep so many answers running, each replaced by another when it ends."""

    async def write() -> None:
        while True:
            # Cut off by us while others write: then the next one begins.
            with suppress(OSError, EOFError):
                sealed = seal_padded_request(
                    config, KINDS["writes"].inner(), at_least=CLASS_BYTES
                )
                await exchange(address, post(sealed.message), timeout_s=600)

    tasks = [asyncio.create_task(write()) for _ in range(answers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def record(
    address: str, rounds: int, batch: int = 1
) -> dict[str, list[list[float]]]:
    """Ask for each kind as often, in random order, beside ``batch - 1`` answers."""
    listed = await exchange(address, get(KEYS_PATH))
    (config, *_) = parse_key_configs(listed.body)
    seen: dict[str, list[list[float]]] = {name: [] for name in KINDS}
    tap = Tap()
    async with writing(address, config, batch - 1):
        for number in range(rounds):
            if number % 10 == 0:
                progress(f"batch of {batch}: {number} of {rounds} answers of each kind")
            for name in CHANCE.sample(list(KINDS), len(KINDS)):
                delays = await delays_of(tap, address, config, KINDS[name])
                seen[name].append(delays)
                # The model that was cut off comes to its end.
                await asyncio.sleep(0.5)
    tap.close()
    return seen


def report(seen: Mapping[str, Sequence[Sequence[float]]], batch: int = 1) -> Table:
    """Return one row for each kind."""
    spreads = {
        name: [statistics.pstdev(delays) for delays in answers]
        for name, answers in seen.items()
    }
    rows = tuple(
        (
            name,
            str(len(answers)),
            statistics.median(statistics.median(delays) for delays in answers),
            statistics.median(spreads[name]),
            "-" if name == COVER else str(area_above(spreads[name], spreads[COVER])),
        )
        for name, answers in seen.items()
    )
    return Table(
        title=f"Delays of frames, {batch} at a time, {host()}",
        columns=COLUMNS,
        rows=rows,
        note="above cover: 0.5 is chance, 1.0 separates every question from cover; "
        f"{spare()}; {busy()}",
    )


def spare() -> str:
    """Say whether a processor is left beside engine, sender of frames and observer."""
    processors = os.cpu_count() or 1
    engine = min(ENGINE_THREADS, max(1, processors - 1))
    left = processors - engine - 1
    return (
        f"{left} spare: {engine} for the engine, 1 for the sender of frames, the rest "
        "for this observer and others"
        if left > 0
        else "NO SPARE PROCESSOR: engine, sender of frames and observer share "
        f"{processors}"
    )


def measure_jitter(
    folder: Path, answers: int, batches: Sequence[int] = BATCHES
) -> list[Table]:
    """Measure so many answers of each kind; each table is shown when it is there."""
    tables: list[Table] = []
    with Processes(folder) as processes:
        stack = Stack(
            folder=folder,
            processes=processes,
            record=False,
            enclave_extra=f"sequences = {max(batches)}",
        )
        stack.start_evidence()
        stack.publish()
        stack.start_enclave()
        for batch in batches:
            seen = asyncio.run(record(stack.enclave_address, answers, batch))
            tables.append(report(seen, batch))
            progress(f"{tables[-1].text()}\n")
    return tables
