"""The difference between the frames' delays of a question and of cover traffic.

``python -m benchmarks.jitter``, with ``tests`` and ``dev`` on the path: the enclave
server as it is shipped, with the embedded model, answers cover requests, questions
whose prompt takes long to read and questions whose answer takes long to write, in
random order. For each kind: by how much its frames leave their grid, and how often
that one number, the spread of an answer's delays, puts the question above the cover
(0.5 is chance, 1.0 always). Other work of the machine hides the difference, so only the
figures of an idle machine count.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from benchmarks.report import Table, host
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
COLUMNS = ("kind", "answers", "delay, ms", "spread, ms", "above cover")


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


async def record(address: str, rounds: int) -> dict[str, list[list[float]]]:
    """Ask for each kind as often, in random order."""
    listed = await exchange(address, get(KEYS_PATH))
    (config, *_) = parse_key_configs(listed.body)
    seen: dict[str, list[list[float]]] = {name: [] for name in KINDS}
    for _ in range(rounds):
        for name in CHANCE.sample(list(KINDS), len(KINDS)):
            seen[name].append(await delays_of(address, config, KINDS[name]))
            # The model that was cut off comes to its end.
            await asyncio.sleep(0.5)
    return seen


def share_above(these: Sequence[float], those: Sequence[float]) -> float:
    """Return how often one of these is above one of those (area under the curve)."""
    wins = sum((a > b) + (a == b) / 2 for a in these for b in those)
    return wins / (len(these) * len(those))


def report(seen: Mapping[str, Sequence[Sequence[float]]]) -> Table:
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
            share_above(spreads[name], spreads[COVER]),
        )
        for name, answers in seen.items()
    )
    return Table(
        title=f"Delays of frames, {host()}",
        columns=COLUMNS,
        rows=rows,
        note="above cover: 0.5 is chance, 1.0 separates every question from cover",
    )


def main() -> int:
    """Start an enclave, ask, and write the table; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="answers of each kind")
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Processes(folder) as processes:
            stack = Stack(folder=folder, processes=processes, record=False)
            stack.start_evidence()
            stack.publish()
            stack.start_enclave()
            seen = asyncio.run(record(stack.enclave_address, rounds))
    sys.stdout.write(f"{report(seen).text()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
