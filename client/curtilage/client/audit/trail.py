"""The audit trail as an event loop sees it: what the session asks of it.

Knows when a failure keeps a query home and when it is only reported.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from curtilage.client.audit.record import AuditEntry, ReceiptEntry
from curtilage.client.audit.writer import AuditLog
from curtilage.client.errors import AuditError


class AuditTrail(Protocol):
    """What the session needs of the audit trail."""

    @property
    def problem(self) -> str | None:
        """Why nothing could be written or signed when last tried, or None."""
        ...

    async def append(self, entry: AuditEntry) -> None:
        """Return once the entry is on the disk.

        Raises:
            AuditError: it is not, so nothing may leave.
        """
        ...

    async def append_receipt(self, entry: ReceiptEntry) -> bool:
        """Keep a receipt with the record that it belongs to; return whether it is.

        Nothing hangs on it: what it is about has left and come back.
        """
        ...

    async def receipt_secret(self, receipt_id: bytes) -> bytes | None:
        """Return the organisation's secret for one receipt, or None without a key."""
        ...

    async def checkpoint(self) -> None:
        """Sign what was written; a failure is a ``problem``."""
        ...

    async def close(self) -> None:
        """Sign what was written and let go of the files."""
        ...


class DiskAuditTrail:
    """``AuditLog`` for an event loop, which it never blocks.

    Args:
        log: the writer.
    """

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._unwritten: str | None = None
        self._unsigned: str | None = None

    @property
    def problem(self) -> str | None:
        """Why nothing could be written or signed when last tried, or None.

        What a record failed of ends with the next record that is written: a
        checkpoint may succeed where there is no room for a line.
        """
        return self._unwritten or self._unsigned

    async def prepare(self) -> None:
        """Find out now whether it can be written; if not, it is a ``problem``."""
        await self._signed(self._log.prepare)

    async def append(self, entry: AuditEntry) -> None:
        """Return once the entry is on the disk.

        Raises:
            AuditError: it is not, so nothing may leave.
        """
        # In a thread: a sync takes as long as the disk likes, and others are answered.
        try:
            await asyncio.to_thread(self._log.append, entry)
        except AuditError as error:
            self._unwritten = str(error)
            raise
        # What could be free text is no field of a record. Nor is it told here.
        except ValueError:
            self._unwritten = "a record could not be written: a field is out of bounds"
            raise AuditError(self._unwritten) from None
        # After a failed checkpoint no record is written before it is made up for.
        self._unwritten = self._unsigned = None

    async def append_receipt(self, entry: ReceiptEntry) -> bool:
        """Keep a receipt; a failure is a ``problem``."""
        try:
            await asyncio.to_thread(self._log.append_receipt, entry)
        except AuditError as error:
            self._unwritten = str(error)
            return False
        except ValueError:
            self._unwritten = "a receipt could not be written: a field is out of bounds"
            return False
        return True

    async def receipt_secret(self, receipt_id: bytes) -> bytes | None:
        """Return the secret for one receipt; None where the key cannot be read."""
        try:
            return await asyncio.to_thread(self._log.receipt_secret, receipt_id)
        except AuditError as error:
            self._unwritten = str(error)
            return None

    async def checkpoint(self) -> None:
        """Sign what was written; a failure is a ``problem`` until one succeeds."""
        await self._signed(self._log.checkpoint)

    async def close(self) -> None:
        """Sign what was written and let go of the files."""
        await self._signed(self._log.close)

    async def _signed(self, step: Callable[[], None]) -> None:
        """Take a step after which all that was written is signed."""
        try:
            await asyncio.to_thread(step)
        except AuditError as error:
            self._unsigned = str(error)
        else:
            self._unsigned = None
