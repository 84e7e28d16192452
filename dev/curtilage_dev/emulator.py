"""An emulated SEV-SNP device as a process of its own, behind a unix socket.

It stands where real firmware would: it signs whatever 64 bytes it is asked to,
over a chain whose root it writes to ``root.pem``. It measures nothing; the
measurement is an argument. Where a real TEE device exists it does not start.

One exchange per connection: 64 bytes of report data in; a 4-byte big-endian
length and a JSON object out.
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

from curtilage.attest.evidence import (
    MAX_CPU_EVIDENCE_BYTES,
    Tee,
    encode_cpu_evidence,
)
from curtilage.attest.snp_report import MEASUREMENT_BYTES, REPORT_DATA_BYTES
from curtilage.attest.tcb import Product
from curtilage_dev.pki import EmulatedPlatform, generate_root_keys, make_platform

# Devices that only a machine with a real TEE has, below the root folder.
REAL_DEVICES: Final = (
    "dev/sev-guest",
    "dev/tdx_guest",
    "dev/tdx-guest",
    "dev/nsm",
    "sys/kernel/config/tsm/report",
)
EXCHANGE_TIMEOUT_S: Final = 10.0
ROOT_FILE: Final = "root.pem"
_REFUSED: Final = 2
_UNIX: Final = "unix:"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorConfig:
    """What the emulator is told.

    Attributes:
        state: folder for the public root certificate.
        listen: path of the socket.
        measurement: 48 bytes to report as the launch measurement.
        product: which product to play.
    """

    state: Path
    listen: Path
    measurement: bytes
    product: Product = Product.GENOA


class Emulator:
    """Answers requests for evidence until it is closed."""

    def __init__(self, config: EmulatorConfig, platform: EmulatedPlatform) -> None:
        self._config = config
        self._platform = platform
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Write the public root and begin to listen."""
        self._config.state.mkdir(parents=True, exist_ok=True)
        root = x509.load_der_x509_certificate(self._platform.ark)
        pem = root.public_bytes(Encoding.PEM)
        (self._config.state / ROOT_FILE).write_bytes(pem)
        self._server = await asyncio.start_unix_server(
            self._exchange, path=self._config.listen
        )

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._config.listen.unlink(missing_ok=True)

    def answer(self, report_data: bytes) -> bytes:
        """Sign one report and encode it for the socket."""
        fields = self._platform.report_fields(
            report_data=report_data, measurement=self._config.measurement
        )
        evidence = self._platform.evidence(fields, now=datetime.now(UTC))
        body = encode_cpu_evidence(evidence)
        if len(body) > MAX_CPU_EVIDENCE_BYTES:
            raise ValueError("evidence is larger than the protocol allows")
        return struct.pack(">I", len(body)) + body

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # A caller that hangs up early or says too little gets no answer.
        failures = (asyncio.IncompleteReadError, ConnectionError, TimeoutError)
        with contextlib.suppress(*failures):
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                report_data = await reader.readexactly(REPORT_DATA_BYTES)
                writer.write(self.answer(report_data))
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def find_real_devices(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the devices of a real TEE that exist below ``root``."""
    return tuple(root / name for name in REAL_DEVICES if (root / name).exists())


def parse_arguments(arguments: Sequence[str]) -> EmulatorConfig:
    """Read the command line; exits with a message if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m curtilage_dev.emulator",
        description="Emulate a SEV-SNP device for development. Proves no isolation.",
    )
    parser.add_argument("--state", required=True, type=Path, metavar="DIR")
    parser.add_argument("--listen", required=True, type=_unix_path, metavar="unix:PATH")
    parser.add_argument(
        "--measurement", required=True, type=_measurement, metavar="HEX"
    )
    parser.add_argument(
        "--product", default=Product.GENOA, type=Product, choices=list(Product)
    )
    read = parser.parse_args(arguments, namespace=_Arguments())
    return EmulatorConfig(
        state=read.state,
        listen=read.listen,
        measurement=read.measurement,
        product=read.product,
    )


class _Arguments(argparse.Namespace):
    state: Path
    listen: Path
    measurement: bytes
    product: Product


async def serve(config: EmulatorConfig, *, stop: asyncio.Event) -> None:
    """Make the keys, listen, say so on stdout, and serve until ``stop``."""
    sys.stderr.write("emulator: making two RSA-4096 keys, a few seconds\n")
    keys = await asyncio.to_thread(generate_root_keys)
    platform = make_platform(keys, now=datetime.now(UTC), product=config.product)
    emulator = Emulator(config, platform)
    await emulator.start()
    ready = {
        "event": "ready",
        "listen": f"{_UNIX}{config.listen}",
        "product": config.product.value,
        "root": str(config.state / ROOT_FILE),
        "tee": Tee.EMULATED_SEV_SNP.value,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await emulator.close()


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
        sys.stderr.write(f"emulator: refusing to start beside a real TEE: {names}\n")
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
