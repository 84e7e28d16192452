"""Requests evidence over our key from the evidence process.

A separate process talks to the TEE device (this one may open no device, and no
connection but this one). Nothing that it returns is trusted here; ``bundle`` verifies
it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

from typing_extensions import override

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import CpuEvidence, GpuEvidence
from curtilage.attest.evidence_json import parse_cpu_evidence
from curtilage.enclave_server.errors import EvidenceError
from curtilage.enclave_server.evidence_protocol import (
    CPU_EVIDENCE,
    DATA_BYTES,
    DEVICE_EVIDENCE,
    LENGTH_BYTES,
    MAX_ANSWER_BYTES,
    encode_request,
    parse_devices,
)

NO_ANSWER: Final = "the evidence process did not answer"
NONE: Final = "the evidence process has no evidence; it says why"
TOO_LARGE: Final = "the evidence is too large"
TIMEOUT_S: Final = 30.0
"""For one whole exchange."""


class EvidenceSource(Protocol):
    """Acquires evidence."""

    async def acquire(self, report_data: bytes) -> CpuEvidence:
        """Return CPU evidence over ``report_data`` (64 bytes).

        Raises:
            EvidenceError: there is none.
        """
        ...

    async def acquire_devices(self, base: bytes) -> tuple[GpuEvidence, ...]:
        """Return the devices' evidence, with nonces derived from B0 (64 bytes).

        Raises:
            EvidenceError: there is none; no device at all is an empty tuple.
        """
        ...


class _Line(asyncio.Protocol):
    """A connection to the evidence process: answers in the order of the requests.

    Args:
        lost: called when it has ended.
    """

    def __init__(self, lost: Callable[[], object]) -> None:
        self._lost = lost
        self._transport: asyncio.WriteTransport | None = None
        self._data = bytearray()
        self._due: deque[tuple[int, asyncio.Future[bytes]]] = deque()

    def ask(self, asked: int, data: bytes) -> "asyncio.Future[bytes]":
        """Send a request; return its answer, which nobody need wait for."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._due.append((MAX_ANSWER_BYTES[asked], answer))
        if self._transport is not None:
            self._transport.write(encode_request(asked, data))
        return answer

    def end(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio gives every connection a transport that can write.
        self._transport = cast("asyncio.WriteTransport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._data += data
        while self._due and len(self._data) >= LENGTH_BYTES:
            length = int.from_bytes(self._data[:LENGTH_BYTES])
            most, answer = self._due[0]
            if length > most:
                # Checked before more is read into memory.
                self._settle(answer, EvidenceError(TOO_LARGE))
                self.end()
                return
            end = LENGTH_BYTES + length
            if len(self._data) < end:
                return
            self._due.popleft()
            self._settle(answer, bytes(self._data[LENGTH_BYTES:end]))
            del self._data[:end]
        if self._data and not self._due:
            self.end()  # more than was asked for

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        why = type(exc or asyncio.IncompleteReadError(b"", None)).__name__
        for _, answer in self._due:
            self._settle(answer, EvidenceError(f"{NO_ANSWER}: {why}"))
        self._due.clear()
        self._lost()

    @staticmethod
    def _settle(answer: "asyncio.Future[bytes]", found: bytes | EvidenceError) -> None:
        # Its caller may have given up, or the connection have ended before.
        if answer.done():
            return
        if isinstance(found, bytes):
            answer.set_result(found)
        else:
            answer.set_exception(found)


class SocketEvidenceSource:
    """The evidence process behind a UNIX socket, over one connection that is kept.

    A connection that was lost is opened again by the next request, as long as this
    process may open any.

    Args:
        path: the socket.
        timeout_s: for one whole exchange.

    Attributes:
        lost: called when the connection has ended, unless by ``close``.
    """

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._line: _Line | None = None
        self._opening = asyncio.Lock()
        self.lost: Callable[[], object] = _ignored

    async def open(self) -> None:
        """Open the connection, if there is none.

        Raises:
            EvidenceError: there is no such process.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._opened()
        except TimeoutError:
            raise EvidenceError("the evidence process took too long") from None
        except OSError as error:
            raise EvidenceError(f"{NO_ANSWER}: {type(error).__name__}") from None

    def close(self) -> None:
        """Close the connection."""
        self.lost = _ignored
        if self._line is not None:
            self._line.end()

    async def acquire(self, report_data: bytes) -> CpuEvidence:
        """Request it once; see the Protocol."""
        answer = await self._asked(CPU_EVIDENCE, report_data)
        try:
            return parse_cpu_evidence(answer)
        except RefusedError as error:
            raise EvidenceError(f"the evidence is not usable: {error.code}") from None

    async def acquire_devices(self, base: bytes) -> tuple[GpuEvidence, ...]:
        """Request it once; see the Protocol."""
        answer = await self._asked(DEVICE_EVIDENCE, base)
        try:
            return parse_devices(answer)
        except RefusedError as error:
            raise EvidenceError(f"the evidence is not usable: {error.code}") from None

    async def _asked(self, asked: int, data: bytes) -> bytes:
        if len(data) != DATA_BYTES:
            raise EvidenceError(f"report data is not {DATA_BYTES} bytes")
        try:
            async with asyncio.timeout(self._timeout_s):
                line = await self._opened()
                answer = await line.ask(asked, data)
        except TimeoutError:
            raise EvidenceError("the evidence process took too long") from None
        except OSError as error:
            raise EvidenceError(f"{NO_ANSWER}: {type(error).__name__}") from None
        if not answer:
            raise EvidenceError(NONE)
        return answer

    async def _opened(self) -> _Line:
        async with self._opening:
            if self._line is None:
                loop = asyncio.get_running_loop()
                _, self._line = await loop.create_unix_connection(
                    lambda: _Line(self._ended), str(self._path)
                )
            return self._line

    def _ended(self) -> None:
        self._line = None
        self.lost()


def _ignored() -> None:
    """Do nothing."""
