"""The command ``curtilage-stapler``: arguments and exit codes."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.attest.amd_tcb import Product
from curtilage.enclave_server.process import (
    UNIX,
    OutputError,
    notice,
    parse,
    require_streams,
    unix_path,
    version,
)
from curtilage.enclave_server.stapler.addresses import (
    AMD_KDS,
    AZURE_IMDS,
    INTEL_CERTIFICATES,
    INTEL_PCS,
    NVIDIA_OCSP,
    Addresses,
    is_base_address,
)
from curtilage.enclave_server.stapler.errors import StaplerError
from curtilage.enclave_server.stapler.fetch import Fetcher
from curtilage.enclave_server.stapler.identity import (
    ask_devices,
    ask_identity,
    chains_of,
    identity_of,
)
from curtilage.enclave_server.stapler.run import (
    INTERVAL_S,
    LEAST_PAUSE_S,
    Stapler,
    StaplerSettings,
    devices_file,
)
from curtilage.enclave_server.stapler.store import EndorsementStore

EXIT_OK: Final = 0
EXIT_FAILED: Final = 3

DESCRIPTION: Final = """\
Fetch the vendors' endorsements of this machine, outside the enclave, into files that
curtilage-enclave evidence staples to its evidence: AMD's, Intel's or AWS's of the CPU,
NVIDIA's of GPUs. Trusts nothing and need not
be trusted: the verifier of the evidence verifies these files.

  curtilage-stapler run --identity unix:/run/stapler/identity.sock \\
      --endorsements /var/lib/curtilage/endorsements
  curtilage-stapler identify --socket unix:/run/stapler/identity.sock \\
      --out identity.json          # without network access; carry it along

exit codes: 0 done, 2 usage, 3 something was not available
"""


class _Arguments(argparse.Namespace):
    action: str
    identity: str
    endorsements: Path
    once: bool
    interval: int
    product: Product | None
    amd_kds: str
    intel_pcs: str
    intel_certificates: str
    nvidia_ocsp: str
    azure_imds: str
    aws_lists: str | None
    proxy: str | None
    socket: Path
    out: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        require_streams()
        parsed = _Arguments(**vars(parse(_parser(), arguments)))
        action = _identify if parsed.action == "identify" else _run
        asyncio.run(action(parsed))
    except OutputError:
        return EXIT_FAILED
    except StaplerError as error:
        notice(f"curtilage-stapler: {error}")
        return EXIT_FAILED
    return EXIT_OK


async def _identify(arguments: _Arguments) -> None:
    """Store the identity that the evidence process reports for its machine."""
    evidence = await ask_identity(arguments.socket)
    # Only an identity that a round could use is worth carrying.
    identity_of(evidence, product=arguments.product)
    store = EndorsementStore(arguments.out.parent)
    store.write(arguments.out.name, evidence)
    devices = await ask_devices(arguments.socket)
    if chains_of(devices):
        store.write(devices_file(arguments.out).name, devices)


async def _run(arguments: _Arguments) -> None:
    identity = arguments.identity
    settings = StaplerSettings(
        endorsements=arguments.endorsements,
        identity=Path(identity.removeprefix(UNIX)),
        by_socket=identity.startswith(UNIX),
        addresses=Addresses(
            amd_kds=arguments.amd_kds,
            intel_pcs=arguments.intel_pcs,
            intel_certificates=arguments.intel_certificates,
            nvidia_ocsp=arguments.nvidia_ocsp,
            azure_imds=arguments.azure_imds,
            aws_lists=arguments.aws_lists or "",
        ),
        product=arguments.product,
        interval_s=arguments.interval,
    )
    async with Fetcher(proxy=arguments.proxy) as fetcher:
        stapler = Stapler(
            settings, fetcher, clock=lambda: datetime.now(UTC), notice=notice
        )
        if arguments.once:
            await stapler.round()
        else:
            await _until_signalled(stapler)


async def _until_signalled(stapler: Stapler) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(stapler.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        # A round ends by itself only if it cannot continue.
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curtilage-stapler",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    actions = parser.add_subparsers(dest="action", required=True)
    identify = actions.add_parser("identify", help="store the machine's identity")
    identify.add_argument(
        "--socket", required=True, type=unix_path, metavar="unix:PATH"
    )
    identify.add_argument("--out", required=True, type=Path, metavar="FILE")
    _add_product(identify)
    run = actions.add_parser("run", help="fetch, and fetch again before it expires")
    run.add_argument(
        "--identity", required=True, metavar="unix:PATH|FILE", help="which machine"
    )
    run.add_argument("--endorsements", required=True, type=Path, metavar="DIR")
    run.add_argument("--once", action="store_true", help="one round, then exit")
    run.add_argument(
        "--interval", type=_interval, default=INTERVAL_S, metavar="SECONDS"
    )
    run.add_argument("--proxy", metavar="http://HOST:PORT", help="for HTTPS (CONNECT)")
    for name, usual in (
        ("--amd-kds", AMD_KDS),
        ("--intel-pcs", INTEL_PCS),
        ("--intel-certificates", INTEL_CERTIFICATES),
        ("--nvidia-ocsp", NVIDIA_OCSP),
        ("--azure-imds", AZURE_IMDS),
    ):
        run.add_argument(
            name, type=_base, default=usual, metavar="URL", help=f"usually {usual}"
        )
    run.add_argument(
        "--aws-lists",
        type=_base,
        metavar="URL",
        help="in place of the servers that an enclave's certificates name",
    )
    _add_product(run)
    return parser


def _add_product(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--product",
        type=Product,
        choices=list(Product),
        help="of a SEV-SNP report that does not name it (version 2)",
    )


def _base(text: str) -> str:
    if not is_base_address(text):
        raise argparse.ArgumentTypeError(
            "must be https://host[/path], or http on this machine, without a trailing"
            " slash"
        )
    return text


def _interval(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_PAUSE_S:
        raise argparse.ArgumentTypeError(f"must be {LEAST_PAUSE_S} or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
