"""The enclave server with an engine that answers with the question.

So a canary passes both ways, and an answer shows that the enclave opened it. All else
is the shipped program.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from typing_extensions import override

from curtilage.enclave_server.config import EnclaveConfig, parse_config
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.service import Surroundings, serve_until_signalled
from curtilage.inference.protocol import CancelToken, Event, GenerateRequest
from curtilage_dev.scripted_engine import Script, ScriptedEngine


class EchoEngine(ScriptedEngine):
    """Answers with the last message."""

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Play the question back; see the Protocol."""
        self._scripts = [Script(pieces=[request.messages[-1].content])]
        async with aclosing(super().generate(request, cancel=cancel)) as events:
            async for event in events:
                yield event


def main() -> None:
    """Run until SIGTERM."""

    async def open_model(_config: EnclaveConfig) -> Model:
        engine = EchoEngine()
        await engine.start()
        return Model(engine)

    def out(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def notice(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    config = parse_config(Path(sys.argv[1]).read_text("utf-8"))
    surroundings = Surroundings(out=out, notice=notice, open_model=open_model)
    asyncio.run(serve_until_signalled(config, surroundings))


if __name__ == "__main__":
    main()
