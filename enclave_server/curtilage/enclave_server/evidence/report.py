"""Requests evidence over our key from the evidence process.

A separate process talks to the TEE device (this one may open no device, and no
connection but this one). Nothing that it returns is trusted here; ``bundle`` verifies
it.
"""

import asyncio
from pathlib import Path
from typing import Final, Protocol

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


class SocketEvidenceSource:
    """The evidence process behind a UNIX socket.

    Args:
        path: the socket.
        timeout_s: for one whole exchange.
    """

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s

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
                reader, writer = await asyncio.open_unix_connection(self._path)  # noqa: TID251 - a door
                try:
                    writer.write(encode_request(asked, data))
                    await writer.drain()
                    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
                    if length > MAX_ANSWER_BYTES[asked]:
                        # Checked before anything is read into memory.
                        raise EvidenceError("the evidence is too large")
                    return await reader.readexactly(length)
                finally:
                    writer.close()
        except TimeoutError:
            raise EvidenceError("the evidence process took too long") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise EvidenceError(f"{NO_ANSWER}: {type(error).__name__}") from None
