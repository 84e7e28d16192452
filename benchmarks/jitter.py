"""The difference between the frames' delays of a question and of cover traffic.

``python -m benchmarks.jitter``, with ``tests`` and ``dev`` on the path: the enclave
server as it is shipped, with the embedded model, answers cover requests, questions
whose prompt takes long to read and questions whose answer takes long to write, in
random order: alone, and beside seven other answers that are written all the time. For
each kind: by how much its frames leave their grid, and how often that one number, the
spread of an answer's delays, puts the question above the cover (0.5 is chance, 1.0
always). Other work of the machine hides the difference, so only the figures of an idle
machine count. 200 answers of each kind take about 75 minutes; ``--rounds 3`` tries it.
"""

import argparse
import asyncio
import json
import os
import secrets
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from benchmarks.report import Table, area_above, busy, host, progress
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.media import KEYS_PATH
from curtilage.wire.padding import seal_padded_request
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.enclave_parts import connect, dated, exchange, get, inner_request, post

FRAMES = 60
"""Of each answer; the shortest has 64."""
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
    """

    words: int
    max_tokens: int = 1

    def inner(self) -> bytes:
        """Return a new request of this kind."""
        now = datetime.now(UTC)
        if not self.words:
            return inner_request(
                b'{"bucket":0}', path=b"/v1/cover", fields=dated(now=now)
            )
        text = " ".join(CHANCE.choices(WORDS, k=self.words))
        body = {
            "messages": [{"role": "user", "content": f"Tell a long story. {text}"}],
            "max_tokens": self.max_tokens,
            "stream": True,
        }
        return inner_request(json.dumps(body).encode(), fields=dated(now=now))


KINDS: Mapping[str, Kind] = {
    COVER: Kind(words=0),
    "reads": Kind(words=1500),
    "writes": Kind(words=1, max_tokens=400),
}


async def delays_of(address: str, config: KeyConfig, kind: Kind) -> list[float]:
    """Ask once; return how late each frame was, in ms, against the earliest."""
    sealed = seal_padded_request(config, kind.inner(), at_least=CLASS_BYTES)
    reader, writer = await connect(address)
    writer.write(post(sealed.message))
    await reader.readuntil(b"\r\n\r\n")
    moments: list[float] = []
    while len(moments) < FRAMES:
        size = int(await reader.readuntil(b"\r\n"), 16)
        await reader.readexactly(size + 2)
        moments.append(monotonic() * 1000 - len(moments) * PERIOD_MS)
    writer.transport.abort()
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
    async with writing(address, config, batch - 1):
        for number in range(rounds):
            if number % 10 == 0:
                progress(f"batch of {batch}: {number} of {rounds} answers of each kind")
            for name in CHANCE.sample(list(KINDS), len(KINDS)):
                seen[name].append(await delays_of(address, config, KINDS[name]))
                # The model that was cut off comes to its end.
                await asyncio.sleep(0.5)
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


def main() -> int:
    """Start an enclave, ask, and write the table; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=200, help="answers of each kind (default: 200)"
    )
    parser.add_argument(
        "--batch", type=int, nargs="+", default=BATCHES, help="answers at a time"
    )
    read = parser.parse_args()
    rounds: int = read.rounds
    batches: Sequence[int] = read.batch
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
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
                seen = asyncio.run(record(stack.enclave_address, rounds, batch))
                sys.stdout.write(f"{report(seen, batch).text()}\n\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
