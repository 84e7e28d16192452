"""The stapler's rounds: identify the machine, fetch, and schedule the next one.

A round fetches everything and replaces what differs. A round that fails leaves the
files unchanged; whether they are still valid is for the verifier to decide.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from curtilage.attest.amd_tcb import Product
from curtilage.attest.evidence import MAX_BUNDLE_BYTES, MAX_CPU_EVIDENCE_BYTES
from curtilage.enclave_server.acquire.endorsements import NAMED
from curtilage.enclave_server.evidence_protocol import encode_devices
from curtilage.enclave_server.files import read_ordinary
from curtilage.enclave_server.stapler.addresses import Addresses
from curtilage.enclave_server.stapler.amd import amd_expires, fetch_amd
from curtilage.enclave_server.stapler.aws import aws_expires, fetch_aws
from curtilage.enclave_server.stapler.azure import fetch_azure
from curtilage.enclave_server.stapler.errors import IdentityError, StaplerError
from curtilage.enclave_server.stapler.fetch import Fetches
from curtilage.enclave_server.stapler.identity import (
    Identity,
    NitroIdentity,
    SnpIdentity,
    TdReportIdentity,
    TdxIdentity,
    ask_devices,
    ask_identity,
    chains_of,
    identity_of,
)
from curtilage.enclave_server.stapler.intel import fetch_intel, intel_expires
from curtilage.enclave_server.stapler.nvidia import fetch_nvidia, nvidia_expires
from curtilage.enclave_server.stapler.store import EndorsementStore

UNCHANGED: Final = "nothing has changed"
NOT_RENEWED: Final = "not renewed"
INTERVAL_S: Final = 6 * 3600
"""At most this long between two rounds."""
LEAST_PAUSE_S: Final = 60
"""At least this long, whatever runs out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaplerSettings:
    """The stapler's configuration.

    Attributes:
        endorsements: the directory to fill.
        identity: the evidence process's stapler socket, or a file with its
            identity.
        by_socket: which of the two it is.
        addresses: the vendors', or mirrors'.
        product: AMD's, for reports that do not name it.
        interval_s: at most this long between two rounds.
    """

    endorsements: Path
    identity: Path
    by_socket: bool
    addresses: Addresses = field(default_factory=Addresses)
    product: Product | None = None
    interval_s: int = INTERVAL_S


class Stapler:
    """Keeps one machine's endorsements up to date.

    Args:
        settings: see there.
        fetcher: the network access.
        clock: aware UTC.
        notice: takes one line for each round.
    """

    def __init__(
        self,
        settings: StaplerSettings,
        fetcher: Fetches,
        *,
        clock: Callable[[], datetime],
        notice: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._store = EndorsementStore(settings.endorsements)
        self._clock = clock
        self._notice = notice

    async def round(self) -> datetime | None:
        """Fetch everything, and replace what differs.

        Returns:
            When the first of it expires; None if that cannot be read.

        Raises:
            StaplerError: something was not available; the old files are kept.
        """
        settings = self._settings
        if settings.by_socket:
            evidence = await ask_identity(settings.identity)
            devices = await ask_devices(settings.identity)
        else:
            evidence = _read(settings.identity, MAX_CPU_EVIDENCE_BYTES)
            devices = _read_devices(settings.identity)
        identity = identity_of(evidence, product=settings.product)
        files, ends = await self._fetched(identity)
        answers = await fetch_nvidia(
            self._fetcher, settings.addresses.nvidia_ocsp, chains_of(devices)
        )
        if answers:
            files, ends = {**files, **answers}, [*ends, nvidia_expires(answers)]
        known = [end for end in ends if end is not None]
        expires = min(known) if known and len(known) == len(ends) else None
        # Nothing is written before everything was fetched: the files are of one round.
        written: list[str] = []
        for name, data in files.items():
            if self._store.read(name) != data:
                self._store.write(name, data)
                written.append(name)
        # A chain that has changed leaves files behind that nothing will read.
        self._store.drop(NAMED, files)
        changed = ", ".join(sorted(written))
        what = f"renewed {changed}" if written else UNCHANGED
        if expires is not None:
            what += f"; good until {expires:%Y-%m-%d %H:%M} UTC"
        self._notice(what)
        return expires

    async def _fetched(
        self, identity: Identity
    ) -> tuple[Mapping[str, bytes], list[datetime | None]]:
        """Return the files of the CPU's vendor, and when they expire."""
        fetcher, addresses = self._fetcher, self._settings.addresses
        match identity:
            case SnpIdentity():
                files = await fetch_amd(fetcher, addresses.amd_kds, identity)
                return files, [amd_expires(files)]
            case NitroIdentity():
                files = await fetch_aws(fetcher, addresses.aws_lists, identity)
                return files, [aws_expires(files)]
            case TdReportIdentity():
                files = await fetch_azure(fetcher, addresses, identity)
                return files, [intel_expires(files)]
            case TdxIdentity():
                files = await fetch_intel(fetcher, addresses, identity)
                return files, [intel_expires(files)]

    async def run(
        self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Do rounds for ever, half way to the next expiry at the latest."""
        failures = 0
        while True:
            try:
                expires = await self.round()
                failures = 0
                pause_s = self._pause_s(expires)
            except StaplerError as error:
                self._notice(f"{NOT_RENEWED}: {error}")
                # Twice as long each time: vendors throttle clients that ask too often.
                pause_s = min(
                    LEAST_PAUSE_S * 2.0**failures, float(self._settings.interval_s)
                )
                failures = min(failures + 1, 16)
            await sleep(pause_s)

    def _pause_s(self, expires: datetime | None) -> float:
        interval_s = float(self._settings.interval_s)
        if expires is None:
            return interval_s
        left_s = (expires - self._clock()) / timedelta(seconds=1)
        return max(float(LEAST_PAUSE_S), min(interval_s, left_s / 2))


def devices_file(identity: Path) -> Path:
    """Return where a file's machine's GPUs are identified, if it has any."""
    return identity.with_name(f"{identity.name}.gpus")


def _read_devices(identity: Path) -> bytes:
    path = devices_file(identity)
    return _read(path, MAX_BUNDLE_BYTES) if path.exists() else encode_devices(())


def _read(path: Path, limit: int) -> bytes:
    try:
        data = read_ordinary(path, limit + 1)
    except OSError as error:
        raise IdentityError(f"{path.name}: {type(error).__name__}") from None
    if len(data) > limit:
        raise IdentityError(f"{path.name}: more than {limit} bytes")
    return data
