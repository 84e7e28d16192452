"""The cost of the frames' size and period, and what they still disclose.

``python -m benchmarks.leak``, with ``tests`` and ``dev`` on the path: the shipped
enclave server, except for the engine, gives 200 answers of ten kinds, and the relay
passes them on. For each choice: bytes and seconds compared with no padding, and how
often a classifier that sees sizes and gaps recognises the kind.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Table
from curtilage.wire.shaping import UNPADDED, Shape, TransportParameters
from curtilage_dev.processes import Process
from support.leak import LengthAttack, Trace, Way, chance, leak_enclave, record
from support.leak_model import classify

CHOICES = ((256, 50), (512, 25), (512, 50), (512, 100), (1024, 50), (1024, 100))
"""Bytes of a frame and milliseconds of a period."""
FIRST_BUCKET_MS = 3200
PAUSE_MS = 10.0
"""Between tokens: every answer takes less than the first bucket."""
COLUMNS = (
    "frame, period",
    "bytes",
    "times as many",
    "first text, s",
    "complete, s",
    "kind recognised, %",
    "by chance, at most %",
    "lengths, r",
    "of one size, %",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The traces of one choice.

    Attributes:
        parameters: the choice.
        traces: of all answers.
    """

    parameters: TransportParameters
    traces: Sequence[Trace]

    @property
    def mean_size(self) -> float:
        """Of an answer, on average."""
        return statistics.mean(trace.octets for trace in self.traces)

    def row(self, plain: float) -> tuple[str | float, ...]:
        """Return this choice's row of the table.

        Args:
            plain: bytes of an answer without padding, on average.
        """
        traces = self.traces
        sizes = [trace.octets for trace in traces]
        usual = max(sizes.count(size) for size in set(sizes))
        return (
            _name(self.parameters),
            self.mean_size,
            self.mean_size / plain,
            statistics.median(trace.first_s for trace in traces),
            statistics.median(trace.last_s for trace in traces),
            100 * classify(traces),
            100 * chance(len(traces))[1],
            LengthAttack(traces).correlation(),
            100 * usual / len(traces),
        )


def measure_leak(
    folder: Path, choices: Sequence[tuple[int, int]], at_once: int
) -> Table:
    """Measure every choice, and none.

    Args:
        folder: for the processes' files.
        choices: bytes of a frame and milliseconds of a period.
        at_once: answers that run concurrently.
    """
    parameters = [UNPADDED, *(_parameters(*choice) for choice in choices)]
    seen = [_measure(each, folder, at_once) for each in parameters]
    plain = seen[0].mean_size
    return Table(
        title="Answers as the relay sees them: 200 of ten kinds, 120 to 260 tokens",
        columns=COLUMNS,
        rows=tuple(each.row(plain) for each in seen),
        note="lengths: correlation of sizes with token lengths, at the best of five "
        "beginnings; kind: gradient boosting, five folds",
    )


def _measure(parameters: TransportParameters, folder: Path, at_once: int) -> Seen:
    sys.stderr.write(f"  {_name(parameters)} …\n")

    async def run() -> list[Trace]:
        async with (
            leak_enclave(parameters, PAUSE_MS, folder) as enclave,
            _relay(enclave, folder) as address,
        ):
            way = Way(address=address, keys="/leak/keys", gateway="/leak")
            return await record(way, at_once=at_once)

    return Seen(parameters=parameters, traces=asyncio.run(run()))


@asynccontextmanager
async def _relay(enclave: str, folder: Path) -> AsyncGenerator[str]:
    """Run the relay in front of an enclave; give its address."""
    config = folder / "relay.toml"
    text = (
        'environment = "development"\nlisten = "127.0.0.1:0"\n'
        f'[gateways]\nleak = "http://{enclave}"\n'
        "[clients]\nconnections = 0\nexchanges = 0\nrequests_per_s = 0\n"
    )
    await asyncio.to_thread(config.write_text, text, "utf-8")
    command = [sys.executable, "-m", "curtilage.relay", "--config", str(config)]
    process = Process("relay", command, folder=folder)
    try:
        ready = await asyncio.to_thread(process.wait_ready)
        yield str(ready["listen"]).removeprefix("http://")
    finally:
        await asyncio.to_thread(process.stop)


def _parameters(frame_bytes: int, period_ms: int) -> TransportParameters:
    return TransportParameters(
        frame_bytes=frame_bytes,
        period_ms=period_ms,
        first_bucket=FIRST_BUCKET_MS // period_ms,
        buckets=4,
    )


def _name(parameters: TransportParameters) -> str:
    if parameters.shape is Shape.UNSAFE_UNPADDED:
        return "none"
    return f"{parameters.frame_bytes} B, {parameters.period_ms} ms"


def main() -> int:
    """Measure and print; return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=8, help="concurrent answers")
    parser.add_argument("--quick", action="store_true", help="the released choice only")
    parser.add_argument("--json", type=Path, help="write the table there, too")
    read = parser.parse_args()
    choices = [(512, 50)] if read.quick else CHOICES
    with tempfile.TemporaryDirectory(prefix="curtilage-leak-") as folder:
        table = measure_leak(Path(folder), choices, read.at_once)
    sys.stdout.write(f"{table.text()}\n")
    if read.json is not None:
        read.json.write_text(json.dumps(table.value(), indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
