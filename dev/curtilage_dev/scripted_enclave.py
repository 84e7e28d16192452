"""The enclave server with a script in the place of its model.

For tests and measurements that need an answer of known length and pace. All else
is the shipped program: sockets, keys, evidence, padding. The release must name
the script's digest, ``SCRIPTED_SHA256``.

``--runs FILE`` gets a word when an answer begins, and one when it ends; with
``--gate FILE`` a piece is said for each byte in that file, so that whoever
writes it decides when the next one comes.
"""

import argparse
import asyncio
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
from curtilage.inference.scripted import SCRIPTED_INFO, Script, ScriptedEngine

SCRIPTED_SHA256: Final = SCRIPTED_INFO.model_sha256
WORD: Final = "word "
BEGAN: Final = "began"
ENDED: Final = "ended"
STOPPED: Final = "stopped"
_POLL_S: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What is played.

    Attributes:
        pieces: how many pieces an answer has.
        delay_ms: pause before each of them.
        runs: file that is told of each run, or None.
        gate: file that lets pieces out, or None.
    """

    pieces: int
    delay_ms: int = 0
    runs: Path | None = None
    gate: Path | None = None

    def arguments(self) -> tuple[str, ...]:
        """Return this as the command's arguments."""
        named = {"--runs": self.runs, "--gate": self.gate}
        files = [str(each) for pair in named.items() if pair[1] for each in pair]
        numbers = ["--pieces", str(self.pieces), "--delay-ms", str(self.delay_ms)]
        return (*numbers, *files)


class PlayedEngine(ScriptedEngine):
    """A scripted engine that tells when it runs, and waits where it is told to."""

    def __init__(self, play: Play) -> None:
        super().__init__(
            Script(pieces=[WORD] * play.pieces, delay_s=play.delay_ms / 1000)
        )
        self._play_of = play

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Play the script; see the Protocol."""
        self._tell(BEGAN)
        outcome, said = STOPPED, 0
        try:
            token = cancel or CancelToken()
            async with aclosing(super().generate(request, cancel=token)) as events:
                async for event in events:
                    if isinstance(event, Token):
                        said += 1
                        await self._let_out(said, token)
                    if isinstance(event, Done) and event.finish != "cancelled":
                        outcome = ENDED
                    yield event
        finally:
            self._tell(outcome)

    async def _let_out(self, number: int, cancel: CancelToken) -> None:
        gate = self._play_of.gate
        while gate is not None and not cancel.cancelled:
            if gate.exists() and gate.stat().st_size >= number:
                return
            await asyncio.sleep(_POLL_S)

    def _tell(self, word: str) -> None:
        if self._play_of.runs is not None:
            with self._play_of.runs.open("a", encoding="utf-8") as file:
                file.write(f"{word}\n")


class _Arguments(argparse.Namespace):
    config: Path
    pieces: int
    delay_ms: int
    runs: Path | None
    gate: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m curtilage_dev.scripted_enclave")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE")
    parser.add_argument("--pieces", type=int, default=200)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--runs", type=Path, metavar="FILE")
    parser.add_argument("--gate", type=Path, metavar="FILE")
    read = parser.parse_args(arguments, namespace=_Arguments())
    play = Play(
        pieces=read.pieces, delay_ms=read.delay_ms, runs=read.runs, gate=read.gate
    )

    async def open_model(_config: EnclaveConfig) -> Model:
        engine = PlayedEngine(play)
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
