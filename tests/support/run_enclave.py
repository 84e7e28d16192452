"""Run the enclave with a scripted model, as a process of its own.

``python -m support.run_enclave CONFIG CONNECTS CANARY``: logs at DEBUG, writes
every address that anything here connects or sends to into CONNECTS, and plays
answers and faults that hold CANARY.
"""

import asyncio
import logging
import sys
from pathlib import Path

from curtilage.enclave_server.config import EnclaveConfig, parse_config
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.service import Surroundings, serve_until_signalled
from curtilage.inference.errors import EngineFailedError
from curtilage_dev.scripted_engine import Script, ScriptedEngine

OUTWARD = ("socket.connect", "socket.sendto", "socket.getaddrinfo")


def watch(connects: Path) -> None:
    file = connects.open("a", encoding="utf-8", buffering=1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in OUTWARD:
            file.write(f"{event} {arguments[1:]!r}\n")

    sys.addaudithook(hook)


def scripts(canary: str) -> tuple[Script, ...]:
    """Return one script for each of the test's exchanges."""
    return (
        Script(pieces=[canary, " and more"]),
        Script(pieces=[canary], fault=EngineFailedError("x"), fault_after=1),
        Script(pieces=[canary], fault=RuntimeError(canary), fault_after=1),
        Script(pieces=[canary] * 1000, delay_s=0.05),
        Script(pieces=[canary]),
    )


def main() -> None:
    config_path, connects, canary = sys.argv[1:]
    logging.basicConfig(level=logging.DEBUG)
    watch(Path(connects))

    async def open_model(_config: EnclaveConfig) -> Model:
        engine = ScriptedEngine(*scripts(canary))
        await engine.start()
        return Model(engine)

    def out(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def notice(line: str) -> None:
        sys.stderr.write(line + "\n")

    surroundings = Surroundings(
        out=out,
        notice=notice,
        open_model=open_model,
    )
    config = parse_config(Path(config_path).read_text("utf-8"))
    asyncio.run(serve_until_signalled(config, surroundings), debug=True)


if __name__ == "__main__":
    main()
