"""The evidence process: the only one with access to the TEE device and to GPUs.

It opens these devices and nothing else: no network, and no file but the endorsements.
It answers on a UNIX socket (see ``evidence_protocol``), one request at a time, and
verifies nothing; everything that it reads is bounded. A second socket, for the stapler
outside, answers only with the machine's identity: its callers cannot have data of their
choice signed, take no connections from the server, and get the device once an hour,
when the server does not need it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from curtilage.attest.evidence import CpuEvidence, GpuEvidence
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.enclave_server.acquire.endorsements import (
    Endorsements,
    read_endorsements,
)
from curtilage.enclave_server.errors import AcquisitionError
from curtilage.enclave_server.evidence_protocol import (
    CPU_EVIDENCE,
    DEVICE_EVIDENCE,
    DEVICE_IDENTITY,
    IDENTITY,
    MAX_ANSWER_BYTES,
    REQUEST_BYTES,
    encode_answer,
    encode_devices,
    identity_data,
)

NO_EVIDENCE: Final = "no evidence"
TOO_LONG: Final = "it is longer than the protocol allows"
EXCHANGE_TIMEOUT_S: Final = 60.0
IDENTITY_KEPT_S: Final = 3600.0
"""The identity is acquired again after this long: patch levels change."""
MAX_CONNECTIONS: Final = 8
"""Of each socket."""
SOCKET_MODE: Final = 0o660
"""For our own user and the socket's group; never for all users."""
IDENTITIES: Final = frozenset({IDENTITY, DEVICE_IDENTITY})
ALL: Final = frozenset({CPU_EVIDENCE, DEVICE_EVIDENCE}) | IDENTITIES


class AcquiresCpuEvidence(Protocol):
    """Talks to one kind of device; a call may take long."""

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        """Return evidence over 64 bytes, with what is stapled to it.

        Raises:
            AcquisitionError: there is none.
        """
        ...


class AcquiresDeviceEvidence(Protocol):
    """Talks to the devices that are not the CPU; a call may take long."""

    def acquire(
        self, base: bytes, endorsements: Endorsements
    ) -> tuple[GpuEvidence, ...]:
        """Return each device's evidence, over the nonce that B0 (64 bytes) gives it.

        Raises:
            AcquisitionError: there is none.
        """
        ...


class NoDevices:
    """A machine without GPUs."""

    def acquire(
        self,
        base: bytes,  # noqa: ARG002 - the Protocol's
        endorsements: Endorsements,  # noqa: ARG002 - the same
    ) -> tuple[GpuEvidence, ...]:
        """Return no evidence."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSettings:
    """The configuration of the process.

    Attributes:
        endorsements: the directory that the stapler writes to.
        listen: the server's socket.
        identify: the stapler's socket, or None.
    """

    endorsements: Path
    listen: Path
    identify: Path | None = None


class EvidenceServer:
    """Answers requests for evidence until it is closed.

    Args:
        settings: see there.
        provider: talks to the TEE device.
        notice: takes one line for each failure, without evidence.
        devices: talks to the GPUs.
        timer: seconds, monotonic.
    """

    def __init__(
        self,
        settings: EvidenceSettings,
        provider: AcquiresCpuEvidence,
        notice: Callable[[str], None],
        *,
        devices: AcquiresDeviceEvidence | None = None,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._devices = devices or NoDevices()
        self._notice = notice
        self._timer = timer
        self._turn = asyncio.Lock()
        self._wanted = 0
        self._unwanted = asyncio.Event()
        self._unwanted.set()
        self._identifying = asyncio.Lock()
        self._identities: dict[int, tuple[float, bytes]] = {}
        self._exchanges: dict[Path, set[asyncio.Task[None]]] = {}
        self._servers: list[tuple[Path, asyncio.Server]] = []

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: a socket cannot be opened.
        """
        await self._listen(self._settings.listen, ALL)
        if self._settings.identify is not None:
            await self._listen(self._settings.identify, IDENTITIES)

    async def close(self) -> None:
        """Stop listening, remove the sockets, and cancel running exchanges."""
        for path, server in self._servers:
            server.close()
            path.unlink(missing_ok=True)
        running = [task for tasks in self._exchanges.values() for task in tasks]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _listen(self, path: Path, allowed: frozenset[int]) -> None:
        running = self._exchanges[path] = set()

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(running) >= MAX_CONNECTIONS:
                writer.close()
                return
            exchange = asyncio.create_task(self._converse(reader, writer, allowed))
            running.add(exchange)
            exchange.add_done_callback(running.discard)

        server = await asyncio.start_unix_server(serve, path)  # noqa: TID251 - a door
        self._servers.append((path, server))
        _admit_group(path)

    async def _converse(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowed: frozenset[int],
    ) -> None:
        # A request that is cut off, malformed or not allowed gets no answer: not even
        # an error, which would disclose what exists here.
        failures = (asyncio.IncompleteReadError, OSError, TimeoutError)
        # The server asks again after hours; other callers must not occupy a place.
        idle_s = None if allowed is ALL else EXCHANGE_TIMEOUT_S
        try:
            with suppress(*failures):
                answered = True
                while answered:
                    async with asyncio.timeout(idle_s):
                        request = await reader.readexactly(1)
                    async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                        request += await reader.readexactly(REQUEST_BYTES - 1)
                        answer = await self._answer(request, allowed)
                        writer.write(answer)
                        await writer.drain()
                    answered = bool(answer)
        finally:
            writer.close()

    async def _answer(self, request: bytes, allowed: frozenset[int]) -> bytes:
        asked, data = request[0], request[1:]
        # By the socket, before the device is used: a caller that may only ask for the
        # identity could otherwise have its own binding signed, and impersonate us.
        if asked not in allowed:
            return b""
        try:
            body = await self._made(asked, data)
        except AcquisitionError as error:
            self._notice(f"{NO_EVIDENCE}: {error}")
            return encode_answer(b"")
        # The outermost handler: an exception's text may contain evidence, its name does
        # not.
        except Exception as error:  # noqa: BLE001 - see above
            self._notice(f"{NO_EVIDENCE}: {type(error).__name__}")
            return encode_answer(b"")
        if len(body) > MAX_ANSWER_BYTES[asked]:
            self._notice(f"{NO_EVIDENCE}: {TOO_LONG}")
            return encode_answer(b"")
        return encode_answer(body)

    async def _made(self, asked: int, data: bytes) -> bytes:
        if asked in IDENTITIES:
            return await self._identified(asked)
        # Counted before it waits: an identity gives way to it at once.
        self._wanted += 1
        self._unwanted.clear()
        try:
            async with self._turn:
                return await asyncio.to_thread(self._stapled, asked, data)
        finally:
            self._wanted -= 1
            if not self._wanted:
                self._unwanted.set()

    async def _identified(self, asked: int) -> bytes:
        """Return the machine's or its devices' identity; cached: requests are cheap.

        No endorsements are stapled to it: the report alone identifies this machine.
        """
        async with self._identifying:
            kept, now = self._identities.get(asked), self._timer()
            if kept is not None and now - kept[0] < IDENTITY_KEPT_S:
                return kept[1]
            # The server has priority: a challenge waits only two seconds.
            while self._wanted:
                await self._unwanted.wait()
            async with self._turn:
                body = await asyncio.to_thread(
                    self._acquired, asked, identity_data(), Endorsements()
                )
            self._identities[asked] = now, body
            return body

    def _stapled(self, asked: int, data: bytes) -> bytes:
        endorsements = read_endorsements(self._settings.endorsements)
        return self._acquired(asked, data, endorsements)

    def _acquired(self, asked: int, data: bytes, endorsements: Endorsements) -> bytes:
        if asked in {DEVICE_EVIDENCE, DEVICE_IDENTITY}:
            return encode_devices(self._devices.acquire(data, endorsements))
        return encode_cpu_evidence(self._provider.acquire(data, endorsements))


def _admit_group(path: Path) -> None:
    path.chmod(SOCKET_MODE)
