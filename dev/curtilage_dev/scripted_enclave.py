"""The enclave server with a script in place of its model.

For tests and measurements that need an answer of known length and pace. Everything
else is the shipped program: sockets, keys, evidence, padding. The release must name
the script's digest, ``SCRIPTED_SHA256``.

``--runs FILE`` gets a word when an answer begins, and one when it ends; with
``--gate FILE`` one piece is sent for each byte in that file, so that its writer
decides when the next one comes.
"""

import argparse
import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import override

from curtilage.enclave_server.config import EnclaveConfig, parse_config
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.service import Surroundings, serve_until_signalled
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    Event,
    GenerateRequest,
    Token,
)
from curtilage_dev.scripted_engine import SCRIPTED_INFO, Script, ScriptedEngine

SCRIPTED_SHA256: Final = SCRIPTED_INFO.model_sha256
WORD: Final = "word "
MAX_QUEUED: Final = 1024
BEGAN: Final = "began"
ENDED: Final = "ended"
STOPPED: Final = "stopped"
_POLL_S: Final = 0.002
# Its multiples are evenly distributed in 0..1, however many there are.
_GOLDEN: Final = 0.6180339887


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The script of the answers.

    Attributes:
        pieces: how many pieces an answer has.
        delay_ms: pause before each of them.
        read_us: pause before the first, for each character of the request.
        first_ms: a further pause before the first.
        spread_ms: that pause varies by up to this much, depending on the question's
            seed: evenly, and equally for every engine.
        runs: file that records each run, or None.
        gate: file that releases pieces, or None.
        turn_ms: how long one is played while others wait; 0: to its end.
        queue: how many may wait.
        sequences: how many are played at the same time.
    """

    pieces: int
    delay_ms: int = 0
    read_us: int = 0
    first_ms: int = 0
    spread_ms: int = 0
    runs: Path | None = None
    gate: Path | None = None
    turn_ms: int = 0
    queue: int = MAX_QUEUED
    sequences: int = 1

    def arguments(self) -> tuple[str, ...]:
        """Return this as the command's arguments."""
        named: dict[str, int | Path | None] = {
            "--pieces": self.pieces,
            "--delay-ms": self.delay_ms,
            "--read-us": self.read_us,
            "--first-ms": self.first_ms,
            "--spread-ms": self.spread_ms,
            "--runs": self.runs,
            "--gate": self.gate,
            "--turn-ms": self.turn_ms,
            "--queue": self.queue,
            "--sequences": self.sequences,
        }
        given = {name: each for name, each in named.items() if each is not None}
        return tuple(str(part) for pair in given.items() for part in pair)

    def first_s(self, seed: int) -> float:
        """Return the further pause before the first piece of an answer."""
        share = seed * _GOLDEN % 1.0
        return (self.first_ms + self.spread_ms * share) / 1000


class PlayedEngine(ScriptedEngine):
    """A scripted engine that records its runs, and waits at the gate."""

    def __init__(self, play: Play) -> None:
        super().__init__(
            Script(
                pieces=[WORD] * play.pieces,
                delay_s=play.delay_ms / 1000,
                read_s=play.read_us / 1e6,
            ),
            max_queued=play.queue,
            sequences=play.sequences,
            turn_s=play.turn_ms / 1000 or math.inf,
        )
        self._play_of = play

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Play the script; see the Protocol."""
        self._record(BEGAN)
        outcome, said = STOPPED, 0
        try:
            token = cancel or CancelToken()
            await asyncio.sleep(self._play_of.first_s(request.settings.seed or 0))
            async with aclosing(super().generate(request, cancel=token)) as events:
                async for event in events:
                    if isinstance(event, Token):
                        said += 1
                        await self._let_out(said, token)
                    if isinstance(event, Done) and event.finish != "cancelled":
                        outcome = ENDED
                    yield event
        finally:
            self._record(outcome)

    async def _let_out(self, number: int, cancel: CancelToken) -> None:
        gate = self._play_of.gate
        while gate is not None and not cancel.cancelled:
            if gate.exists() and gate.stat().st_size >= number:
                return
            await asyncio.sleep(_POLL_S)

    def _record(self, word: str) -> None:
        if self._play_of.runs is not None:
            with self._play_of.runs.open("a", encoding="utf-8") as file:
                file.write(f"{word}\n")


class PlayArguments(argparse.Namespace):
    """The arguments of ``add_play`` as they were read."""

    pieces: int
    delay_ms: int
    read_us: int
    first_ms: int
    spread_ms: int
    runs: Path | None
    gate: Path | None
    turn_ms: int
    queue: int
    sequences: int

    def play(self) -> Play:
        """Return what is to be played."""
        return Play(
            pieces=self.pieces,
            delay_ms=self.delay_ms,
            read_us=self.read_us,
            first_ms=self.first_ms,
            spread_ms=self.spread_ms,
            runs=self.runs,
            gate=self.gate,
            turn_ms=self.turn_ms,
            queue=self.queue,
            sequences=self.sequences,
        )


def add_play(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the script."""
    parser.add_argument("--pieces", type=int, default=200)
    parser.add_argument("--queue", type=int, default=MAX_QUEUED)
    parser.add_argument("--sequences", type=int, default=1)
    for name in ("--delay-ms", "--read-us", "--first-ms", "--spread-ms", "--turn-ms"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--runs", type=Path, metavar="FILE")
    parser.add_argument("--gate", type=Path, metavar="FILE")


class _Arguments(PlayArguments):
    config: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m curtilage_dev.scripted_enclave")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE")
    add_play(parser)
    read = parser.parse_args(arguments, namespace=_Arguments())

    async def open_model(_config: EnclaveConfig) -> Model:
        engine = PlayedEngine(read.play())
        await engine.start()
        return Model(engine)

    surroundings = Surroundings(out=_out, notice=_notice, open_model=open_model)
    config = parse_config(read.config.read_text("utf-8"))
    asyncio.run(serve_until_signalled(config, surroundings))
    return 0


def _out(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _notice(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
