"""Asks the evidence process for evidence over our key.

The process that talks to the TEE device is another one (this one may open no
device and no connection but this). One exchange for each connection: exactly
64 bytes of report data there, a length and one JSON object back. Nothing that
comes back is believed here; ``bundle`` verifies it.
"""

import asyncio
from pathlib import Path
from typing import Final, Protocol

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_CPU_EVIDENCE_BYTES,
    SnpEvidence,
    parse_cpu_evidence,
)
from curtilage.enclave_server.errors import EvidenceError

REPORT_DATA_BYTES: Final = 64
LENGTH_BYTES: Final = 4


class EvidenceSource(Protocol):
    """Whoever can have a report signed."""

    async def acquire(self, report_data: bytes) -> SnpEvidence:
        """Return evidence whose report carries ``report_data`` (64 bytes).

        Raises:
            EvidenceError: there is none.
        """
        ...


class SocketEvidenceSource:
    """The evidence process behind a UNIX socket.

    Args:
        path: the socket.
        timeout_s: for one whole exchange.
    """

    def __init__(self, path: Path, *, timeout_s: float = 30.0) -> None:
        self._path = path
        self._timeout_s = timeout_s

    async def acquire(self, report_data: bytes) -> SnpEvidence:
        """Ask once; see the Protocol."""
        if len(report_data) != REPORT_DATA_BYTES:
            raise EvidenceError(f"report data is not {REPORT_DATA_BYTES} bytes")
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._exchange(report_data)
            return parse_cpu_evidence(answer)
        except TimeoutError:
            raise EvidenceError("the evidence process took too long") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise EvidenceError(
                f"the evidence process did not answer: {type(error).__name__}"
            ) from None
        except RefusedError as error:
            raise EvidenceError(f"the evidence is not usable: {error.code}") from None

    async def _exchange(self, report_data: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(report_data)
            await writer.drain()
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
            if length > MAX_CPU_EVIDENCE_BYTES:
                # Checked before anything is read into memory.
                raise EvidenceError("the evidence is too large")
            return await reader.readexactly(length)
        finally:
            writer.close()
