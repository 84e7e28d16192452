"""The audit trail's interface for an event loop, as the session uses it.

It decides when a failure keeps a query local and when it is only reported.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from curtilage.client.audit.record import AuditEntry, ReceiptEntry
from curtilage.client.audit.writer import AuditLog
from curtilage.client.errors import AuditError


class AuditTrail(Protocol):
    """The session's interface to the audit trail."""

    @property
    def problem(self) -> str | None:
        """Why the last write or signature failed, or None."""
        ...

    async def append(self, entry: AuditEntry) -> None:
        """Return once the entry is on disk.

        Raises:
            AuditError: it is not, so nothing may be sent.
        """
        ...

    async def append_receipt(self, entry: ReceiptEntry) -> bool:
        """Store a receipt with the record that it belongs to; return whether it was.

        Nothing depends on it: the exchange that it is about is complete.
        """
        ...

    async def receipt_secret(self, receipt_id: bytes) -> bytes | None:
        """Return the organisation's secret for one receipt, or None without a key."""
        ...

    async def checkpoint(self) -> None:
        """Sign what was written; a failure is a ``problem``."""
        ...

    async def close(self) -> None:
        """Sign what was written and release the files."""
        ...


class DiskAuditTrail:
    """``AuditLog`` for an event loop, without blocking it.

    Args:
        log: the writer.
    """

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._unwritten: str | None = None
        self._unsigned: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the last write or signature failed, or None.

        A failed record remains a problem until the next record is written: a
        checkpoint may succeed where there is no room for a line.
        """
        return self._unwritten or self._unsigned

    async def prepare(self) -> None:
        """Check now whether it can be written; if not, there is a ``problem``."""
        await self._signed(self._log.prepare)

    async def append(self, entry: AuditEntry) -> None:
        """Return once the entry is on disk.

        Raises:
            AuditError: it is not, so nothing may be sent.
        """
        # In a thread: a sync may take long, and other queries must not wait.
        try:
            await asyncio.to_thread(self._log.append, entry)
        except AuditError as error:
            self._unwritten = str(error)
            raise
        # The field may hold free text, so this message does not repeat it either.
        except ValueError:
            self._unwritten = "a record could not be written: a field is out of bounds"
            raise AuditError(self._unwritten) from None
        # No record is written until a failed checkpoint has been repeated.
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
        """Sign what was written and release the files."""
        await self._signed(self._log.close)

    async def _signed(self, step: Callable[[], None]) -> None:
        """Run a step after which everything written is signed."""
        try:
            await asyncio.to_thread(step)
        except AuditError as error:
            self._unsigned = str(error)
        else:
            self._unsigned = None
