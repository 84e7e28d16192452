"""The command ``curtilage-enclave evidence``: arguments and exit codes."""

import argparse
import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from curtilage.enclave_server.acquire.process import (
    AcquiresCpuEvidence,
    AcquiresDeviceEvidence,
    EvidenceServer,
    EvidenceSettings,
    NoDevices,
)
from curtilage.enclave_server.process import (
    UNIX,
    OutputError,
    forbid_core_dumps,
    notice,
    out,
    parse,
    require_streams,
    unix_path,
)
from curtilage.enclave_server.telemetry import silence_libraries
from curtilage.sandbox.folders import gpus
from curtilage.sandbox.wall import local_server

DEVICES: Final = ("/sys/kernel/config", "/dev/nsm", "/dev/tpmrm0")
"""Devices that providers write to; one missing at start stays inaccessible."""
NO_NVML: Final = "--gpus nvml needs NVIDIA's package nvidia-ml-py (the extra 'gpu')"
EXIT_OK: Final = 0
EXIT_FAILED: Final = 3

DESCRIPTION: Final = """\
Talk to the TEE device, and to GPUs, for curtilage-enclave, as a separate process. Has
what the server requests signed, over a UNIX socket that only the server may reach;
verifies nothing, and connects to nothing. Before it listens it enters a sandbox, as far
as the kernel supports it, and reports missing layers on standard error.

The endorsements directory holds the files that curtilage-stapler fetched outside:
vek.der, ask.der, ark.der, crl.der, collateral.json, td-quote.bin, nitro-crl-*.der,
gpu-ocsp-*.der, each optional, read for each request.

--listen signs any 64 bytes, --identify one fixed text: put each socket into its own
folder, mode 2750, with the group of the process that may connect.
"""


class EvidenceArguments(argparse.Namespace):
    """The command line's arguments; see its help."""

    provider: str
    endorsements: Path
    listen: Path
    identify: Path | None
    privilege_level: int | None
    gpus: str


def _tsm(arguments: EvidenceArguments) -> AcquiresCpuEvidence:
    from curtilage.enclave_server.acquire.configfs_tsm import (  # noqa: PLC0415 - one of three
        TsmProvider,
    )

    return TsmProvider(privilege_level=arguments.privilege_level)


def _nsm(_arguments: EvidenceArguments) -> AcquiresCpuEvidence:
    from curtilage.enclave_server.acquire.nitro_nsm import (  # noqa: PLC0415 - one of three
        NsmProvider,
    )

    return NsmProvider()


def _azure_vtpm(_arguments: EvidenceArguments) -> AcquiresCpuEvidence:
    from curtilage.enclave_server.acquire.azure_vtpm import (  # noqa: PLC0415 - one of three
        AzureTpmProvider,
    )

    return AzureTpmProvider()


PROVIDERS: Final[Mapping[str, Callable[[EvidenceArguments], AcquiresCpuEvidence]]] = {
    "tsm": _tsm,
    "nsm": _nsm,
    "azure-vtpm": _azure_vtpm,
}


def _none(_arguments: EvidenceArguments) -> AcquiresDeviceEvidence:
    return NoDevices()


def _nvml(_arguments: EvidenceArguments) -> AcquiresDeviceEvidence:
    from curtilage.enclave_server.acquire.nvml import (  # noqa: PLC0415 - an extra's
        nvml_provider,
    )

    return nvml_provider()


GPUS: Final[Mapping[str, Callable[[EvidenceArguments], AcquiresDeviceEvidence]]] = {
    "none": _none,
    "nvml": _nvml,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    forbid_core_dumps()
    try:
        require_streams()
        parsed = parse(_parser(), arguments)
        return _run(EvidenceArguments(**vars(parsed)))
    except OutputError:
        return EXIT_FAILED


def _run(arguments: EvidenceArguments) -> int:
    settings = EvidenceSettings(
        endorsements=arguments.endorsements,
        listen=arguments.listen,
        identify=arguments.identify,
    )
    try:
        devices = GPUS[arguments.gpus](arguments)
    except ImportError:
        notice(NO_NVML)
        return EXIT_FAILED
    provider = PROVIDERS[arguments.provider](arguments)
    server = EvidenceServer(settings, provider, notice, devices=devices)
    written = [*map(Path, DEVICES), *(gpus()[0] if arguments.gpus == "nvml" else ())]
    sockets = [path.parent for path in (settings.listen, settings.identify) if path]
    # Before the socket exists, and for good: whatever a request does to this process,
    # it reaches no network and writes only to the device and these folders, as far as
    # the layers are available. Without a layer it serves even so, and reports it.
    wall = local_server([*written, *sockets])
    for layer in wall.missing:
        notice(f"no wall: {layer}")
    try:
        asyncio.run(serve_until_signalled(server, settings, out))
    except OSError as error:
        notice(f"cannot listen: {error.strerror or type(error).__name__}")
        return EXIT_FAILED
    return EXIT_OK


async def serve_until_signalled(
    server: EvidenceServer, settings: EvidenceSettings, out: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; ``out`` gets one line when ready.

    Raises:
        OSError: a socket cannot be opened.
    """
    silence_libraries()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start()
        out(json.dumps({"ready": True, "listen": f"{UNIX}{settings.listen}"}))
        await stop.wait()
    finally:
        await server.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curtilage-enclave evidence",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--provider",
        required=True,
        choices=tuple(PROVIDERS),
        help="tsm: SEV-SNP or TDX by configfs; nsm: Nitro; azure-vtpm: Azure",
    )
    parser.add_argument("--endorsements", required=True, type=Path, metavar="DIR")
    parser.add_argument("--listen", required=True, type=unix_path, metavar="unix:PATH")
    parser.add_argument(
        "--identify",
        type=unix_path,
        metavar="unix:PATH",
        help="a second socket, for the stapler: identifies this machine, and no more",
    )
    parser.add_argument(
        "--gpus",
        choices=tuple(GPUS),
        default="none",
        help="nvml: all NVIDIA GPUs of this machine, through the driver's library",
    )
    parser.add_argument(
        "--privilege-level",
        type=int,
        choices=range(4),
        metavar="0..3",
        help="VMPL of a SEV-SNP report (default: the kernel's own)",
    )
    return parser
