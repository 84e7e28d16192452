"""An emulated TEE, with GPUs, as a separate process behind a unix socket.

It replaces real firmware: it signs any 64 bytes, over a chain whose root it writes to
``root.pem``, and to ``gpu-root.pem`` if it has GPUs. It measures nothing: it reports
what a release's manifest names, or its argument. It does not start where a real TEE
device exists.

Exchanges, one after the other: a byte that selects the evidence and 64 bytes in;
a 4-byte big-endian length and a JSON object out. 1 asks for CPU evidence over
those 64 bytes of report data, 2 for the devices' over a base hash.
"""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.amd_tcb import Product
from curtilage.attest.errors import AttestError
from curtilage.attest.evidence import MAX_BUNDLE_BYTES, MAX_CPU_EVIDENCE_BYTES, Tee
from curtilage.attest.evidence_json import device_object, encode_cpu_evidence
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sev_snp.report import MEASUREMENT_BYTES, REPORT_DATA_BYTES
from curtilage_dev.emulated.machines import (
    KINDS,
    MAX_GPUS,
    RSA_KINDS,
    Gpus,
    Machine,
    image_of,
    make_gpus,
    make_machine,
    stapled,
)

# Devices that exist only on a machine with a real TEE, below the root folder.
REAL_DEVICES: Final = (
    "dev/sev-guest",
    "dev/tdx_guest",
    "dev/tdx-guest",
    "dev/nsm",
    "sys/kernel/config/tsm/report",
)
EXCHANGE_TIMEOUT_S: Final = 10.0
# The protocol of the enclave's evidence process, version 3. Repeated here, because the
# enclave's code is not installed where the emulator runs.
CPU_EVIDENCE: Final = 1
DEVICE_EVIDENCE: Final = 2
REQUEST_BYTES: Final = 1 + REPORT_DATA_BYTES
MAX_ANSWER_BYTES: Final = {
    CPU_EVIDENCE: MAX_CPU_EVIDENCE_BYTES,
    DEVICE_EVIDENCE: MAX_BUNDLE_BYTES,
}
ROOT_FILE: Final = "root.pem"
GPU_ROOT_FILE: Final = "gpu-root.pem"
MANIFEST_FILE: Final = "manifest.json"
_REFUSED: Final = 2
_UNIX: Final = "unix:"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorConfig:
    """The emulator's configuration.

    Attributes:
        state: folder for the public root certificates.
        listen: path of the socket.
        measurement: 48 bytes, from which all registers follow.
        tee: the kind of TEE.
        product: the SEV-SNP product.
        gpus: the number of GPUs.
    """

    state: Path
    listen: Path
    measurement: bytes
    tee: Tee = Tee.EMULATED_SEV_SNP
    product: Product = Product.GENOA
    gpus: int = 0


class Emulator:
    """Answers requests for evidence until it is closed."""

    def __init__(
        self, config: EmulatorConfig, machine: Machine, gpus: Gpus | None = None
    ) -> None:
        self._config = config
        self._machine = machine
        self._gpus = gpus
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Write the public roots and start listening."""
        self._config.state.mkdir(parents=True, exist_ok=True)
        write_root(self._config.state / ROOT_FILE, self._machine.anchor())
        if self._gpus is not None:
            write_root(self._config.state / GPU_ROOT_FILE, self._gpus.anchor())
        self._server = await asyncio.start_unix_server(
            self._accept, path=self._config.listen
        )

    async def close(self) -> None:
        """Stop listening, remove the socket, and end all connections."""
        if self._server is not None:
            self._server.close()
            self._config.listen.unlink(missing_ok=True)
        running = dict(self._connections)
        for writer in running:
            writer.close()
        await asyncio.gather(*running.values())

    def answer(self, request: bytes) -> bytes:
        """Sign and encode the requested evidence; nothing for an unknown request."""
        asked, data = request[0], request[1:]
        if asked not in MAX_ANSWER_BYTES:
            return b""
        body = self._cpu(data) if asked == CPU_EVIDENCE else self._devices(data)
        if len(body) > MAX_ANSWER_BYTES[asked]:
            raise ValueError("evidence is larger than the protocol allows")
        return struct.pack(">I", len(body)) + body

    def _cpu(self, report_data: bytes) -> bytes:
        now = datetime.now(UTC)
        evidence = self._machine.evidence(report_data, now=now)
        return encode_cpu_evidence(stapled(self._machine, evidence, now))

    def _devices(self, b0: bytes) -> bytes:
        devices = () if self._gpus is None else self._gpus.evidence(b0)
        if self._gpus is not None:
            devices = self._gpus.stapled(devices, datetime.now(UTC))
        objects = [device_object(device) for device in devices]
        return json.dumps({"devices": objects}, separators=(",", ":")).encode()

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections[writer] = asyncio.create_task(self._exchanges(reader, writer))

    async def _exchanges(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # A caller that disconnects early or sends too little gets no answer.
        failures = (asyncio.IncompleteReadError, ConnectionError, TimeoutError)
        try:
            with contextlib.suppress(*failures):
                while request := await reader.readexactly(1):
                    async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                        request += await reader.readexactly(REQUEST_BYTES - 1)
                        answer = self.answer(request)
                        writer.write(answer)
                        await writer.drain()
                    if not answer:
                        break
        finally:
            del self._connections[writer]
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def write_root(path: Path, anchor: TrustAnchor) -> None:
    """Write a root certificate as PEM."""
    root = x509.load_der_x509_certificate(anchor.certificate_der)
    path.write_bytes(root.public_bytes(Encoding.PEM))


def find_real_devices(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the devices of a real TEE that exist below ``root``."""
    return tuple(root / name for name in REAL_DEVICES if (root / name).exists())


def parse_arguments(arguments: Sequence[str]) -> EmulatorConfig:
    """Read the command line; exits with a message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m curtilage_dev.emulator",
        description="Emulate a TEE for development. Proves no isolation.",
    )
    parser.add_argument("--state", required=True, type=Path, metavar="DIR")
    parser.add_argument("--listen", required=True, type=_unix_path, metavar="unix:PATH")
    reported = parser.add_mutually_exclusive_group(required=True)
    reported.add_argument("--measurement", type=_measurement, metavar="HEX")
    reported.add_argument(
        "--release",
        type=Path,
        metavar="DIR",
        help="report the first measurement that the manifest.json there names",
    )
    parser.add_argument(
        "--tee", default=Tee.EMULATED_SEV_SNP, type=Tee, choices=list(KINDS)
    )
    parser.add_argument(
        "--product", default=Product.GENOA, type=Product, choices=list(Product)
    )
    parser.add_argument(
        "--gpus", default=0, type=int, choices=range(MAX_GPUS + 1), metavar="N"
    )
    read = parser.parse_args(arguments, namespace=_Arguments())
    try:
        measurement = read.measurement or released_image(read.release, read.tee)
    except (AttestError, OSError, ValueError) as error:
        parser.error(f"--release: {error}")
    return EmulatorConfig(
        state=read.state,
        listen=read.listen,
        measurement=measurement,
        tee=read.tee,
        product=read.product,
        gpus=read.gpus,
    )


def released_image(release: Path, tee: Tee) -> bytes:
    """Return the image whose measurement a release names first for this kind.

    Args:
        release: the folder with its ``manifest.json``.
        tee: the kind of machine.

    Raises:
        OSError: the file cannot be read.
        AttestError: it is not a manifest.
        ValueError: it names none for this kind, or not an emulated machine's.
    """
    manifest = parse_manifest((release / MANIFEST_FILE).read_bytes())
    named = manifest.measurements.get(tee.value)
    if not named:
        raise ValueError(f"the release names no measurement for {tee}")
    return image_of(tee, named[0])


class _Arguments(argparse.Namespace):
    state: Path
    listen: Path
    measurement: bytes | None
    release: Path
    tee: Tee
    product: Product
    gpus: int


async def serve(config: EmulatorConfig, *, stop: asyncio.Event) -> None:
    """Make the keys, listen, report it on stdout, and serve until ``stop``."""
    if config.tee in RSA_KINDS:
        sys.stderr.write("emulator: making two RSA-4096 keys, a few seconds\n")
    emulator = await asyncio.to_thread(_make, config)
    await emulator.start()
    ready = {
        "event": "ready",
        "listen": f"{_UNIX}{config.listen}",
        "product": config.product.value,
        "root": str(config.state / ROOT_FILE),
        "tee": config.tee.value,
        "gpus": config.gpus,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await emulator.close()


def _make(config: EmulatorConfig) -> Emulator:
    now = datetime.now(UTC)
    machine = make_machine(
        config.tee, config.measurement, now=now, product=config.product
    )
    gpus = make_gpus(config.gpus, now=now) if config.gpus else None
    return Emulator(config, machine, gpus)


async def _serve_until_signal(config: EmulatorConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(config, stop=stop)


def main(
    arguments: Sequence[str] | None = None, *, device_root: Path = Path("/")
) -> int:
    """Run the emulator; returns the exit status."""
    config = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    devices = find_real_devices(device_root)
    if devices:
        names = ", ".join(str(path) for path in devices)
        sys.stderr.write(f"emulator: refusing to start next to a real TEE: {names}\n")
        return _REFUSED
    asyncio.run(_serve_until_signal(config))
    return 0


def _unix_path(text: str) -> Path:
    if not text.startswith(_UNIX) or text == _UNIX:
        raise argparse.ArgumentTypeError("must be unix:PATH")
    return Path(text.removeprefix(_UNIX))


def _measurement(text: str) -> bytes:
    if re.fullmatch(rf"[0-9a-f]{{{2 * MEASUREMENT_BYTES}}}", text) is None:
        raise argparse.ArgumentTypeError(
            f"must be {2 * MEASUREMENT_BYTES} lower-case hex digits"
        )
    return bytes.fromhex(text)


if __name__ == "__main__":
    sys.exit(main())
