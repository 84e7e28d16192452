"""Install the peers, test every combination with them, and report the results."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from conformance.peers import enclave, homeward, outward
from conformance.peers.go_client import GoClient
from conformance.peers.install import Installed, InstallError, install
from conformance.peers.table import Table

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Return 0 if everything went as it must, 1 if not, 2 without the peers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "peers")
    read = parser.parse_args()
    try:
        installed = install(read.cache)
    except InstallError as failure:
        _say(f"the peers are not there: {failure}")
        return 2
    table = Table()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        asyncio.run(_run(table, installed, Path(folder)))
    _say("")
    for line in table.lines():
        _say(line)
    return 1 if table.wrong else 0


async def _run(table: Table, installed: Installed, folder: Path) -> None:
    commands = {"go": (str(installed.go), "serve"), "node": installed.node}
    for name, command in commands.items():
        _say(f"our client → {name}'s gateway")
        async with outward.running(name, command, folder) as gateway:
            await outward.ask(table, gateway)
    client = GoClient(program=installed.go)
    _say("Go's client → a gateway of our wire library alone")
    await homeward.ask(table, client)
    _say("Go's client → the enclave server")
    await enclave.ask(table, client)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
