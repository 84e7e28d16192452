"""The evidence process: stands between the TEE device and the server.

It alone opens the device, and it opens nothing else: no network, no file but the
endorsements. It answers on a UNIX socket (see ``evidence_protocol``), one request
at a time, and verifies nothing; everything it reads is bounded. A second socket,
for the stapler outside, answers with the machine's identity only: whoever reaches
it can have nothing signed that he chose, takes no connection from the server, and
has the device once an hour, when the server does not want it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from curtilage.attest.evidence import CpuEvidence
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.enclave_server.acquire.endorsements import (
    Endorsements,
    read_endorsements,
)
from curtilage.enclave_server.errors import AcquisitionError
from curtilage.enclave_server.evidence_protocol import (
    CPU_EVIDENCE,
    DEVICE_EVIDENCE,
    IDENTITY,
    MAX_ANSWER_BYTES,
    REQUEST_BYTES,
    encode_answer,
    encode_devices,
    identity_data,
)

EXCHANGE_TIMEOUT_S: Final = 60.0
IDENTITY_KEPT_S: Final = 3600.0
"""What identifies the machine is made anew after this long: patch levels change."""
MAX_CONNECTIONS: Final = 8
"""Of each socket."""
SOCKET_MODE: Final = 0o660
"""For our own user and the socket's group; never for everybody."""
ALL: Final = frozenset({CPU_EVIDENCE, DEVICE_EVIDENCE, IDENTITY})
IDENTITY_ONLY: Final = frozenset({IDENTITY})


class AcquiresCpuEvidence(Protocol):
    """Talks to one kind of device; it may take its time."""

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        """Return evidence over 64 bytes, with what is stapled to it.

        Raises:
            AcquisitionError: there is none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSettings:
    """What the process is configured with.

    Attributes:
        endorsements: the directory that the stapler fills.
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
        provider: talks to the device.
        notice: takes one line for each failure; no evidence in it.
        timer: seconds, steady.
    """

    def __init__(
        self,
        settings: EvidenceSettings,
        provider: AcquiresCpuEvidence,
        notice: Callable[[str], None],
        *,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._notice = notice
        self._timer = timer
        self._turn = asyncio.Lock()
        self._wanted = 0
        self._unwanted = asyncio.Event()
        self._unwanted.set()
        self._identifying = asyncio.Lock()
        self._identity: tuple[float, bytes] | None = None
        self._exchanges: dict[Path, set[asyncio.Task[None]]] = {}
        self._servers: list[tuple[Path, asyncio.Server]] = []

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: a socket cannot be had.
        """
        await self._listen(self._settings.listen, ALL)
        if self._settings.identify is not None:
            await self._listen(self._settings.identify, IDENTITY_ONLY)

    async def close(self) -> None:
        """Stop listening, remove the sockets, and end what is under way."""
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
            exchange = asyncio.create_task(self._exchange(reader, writer, allowed))
            running.add(exchange)
            exchange.add_done_callback(running.discard)

        server = await asyncio.start_unix_server(serve, path)  # noqa: TID251 - a door
        self._servers.append((path, server))
        _admit_group(path)

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowed: frozenset[int],
    ) -> None:
        # Whoever hangs up, says too little or asks for what is not there gets
        # no answer: not even an error, which would tell a stranger what there is.
        failures = (asyncio.IncompleteReadError, OSError, TimeoutError)
        try:
            with suppress(*failures):
                async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                    request = await reader.readexactly(REQUEST_BYTES)
                    writer.write(await self._answer(request, allowed))
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, request: bytes, allowed: frozenset[int]) -> bytes:
        asked, data = request[0], request[1:]
        # By the socket, before the device hears of it: who may only ask which machine
        # this is could else have a binding of his own signed, and pose as us.
        if asked not in allowed:
            return b""
        try:
            body = await self._made(asked, data)
        except AcquisitionError as error:
            self._notice(f"no evidence: {error}")
            return b""
        # An outermost edge: what went wrong may hold evidence, its name does not.
        except Exception as error:  # noqa: BLE001 - see above
            self._notice(f"no evidence: {type(error).__name__}")
            return b""
        if len(body) > MAX_ANSWER_BYTES[asked]:
            self._notice("no evidence: it is longer than the protocol allows")
            return b""
        return encode_answer(body)

    async def _made(self, asked: int, data: bytes) -> bytes:
        if asked == DEVICE_EVIDENCE:
            # No provider here knows of any device but the CPU.
            return encode_devices(())
        if asked == IDENTITY:
            return await self._identified()
        # Counted before the turn is waited for: an identity gives way to it at once.
        self._wanted += 1
        self._unwanted.clear()
        try:
            async with self._turn:
                return await asyncio.to_thread(self._stapled, data)
        finally:
            self._wanted -= 1
            if not self._wanted:
                self._unwanted.set()

    async def _identified(self) -> bytes:
        """Return what identifies the machine; kept, so that asking is cheap.

        Nothing is stapled to it: the report alone says which machine this is.
        """
        async with self._identifying:
            kept, now = self._identity, self._timer()
            if kept is not None and now - kept[0] < IDENTITY_KEPT_S:
                return kept[1]
            # The server goes first: a challenge waits for two seconds only.
            while self._wanted:
                await self._unwanted.wait()
            async with self._turn:
                body = await asyncio.to_thread(
                    self._acquired, identity_data(), Endorsements()
                )
            self._identity = now, body
            return body

    def _stapled(self, data: bytes) -> bytes:
        return self._acquired(data, read_endorsements(self._settings.endorsements))

    def _acquired(self, data: bytes, endorsements: Endorsements) -> bytes:
        return encode_cpu_evidence(self._provider.acquire(data, endorsements))


def _admit_group(path: Path) -> None:
    path.chmod(SOCKET_MODE)
