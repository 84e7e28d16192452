"""The end of an audit log: the state needed to add the next line.

A writer needs only the last file, since each file begins with a summary of all lines
before. This module builds lines and heads; it writes nothing.
"""

from datetime import UTC, datetime

from curtilage.attest.log.tree import MAX_LEVELS, Frontier
from curtilage.client.audit.checkpoint import AuditHead
from curtilage.client.audit.record import (
    AuditEntry,
    Line,
    ReceiptEntry,
    SegmentStart,
    chain_hash,
    encode_line,
    genesis_hash,
    parse_line,
    receipt_line_of,
    record_of,
)
from curtilage.policy.errors import AuditRefusedError, AuditStep


class Tail:
    """The state after the last line of a log.

    Args:
        log: the log's id; a new ``Tail`` is the state before its first line.
    """

    def __init__(self, log: str) -> None:
        self._log = log
        self._tree = Frontier()
        self._prev = genesis_hash(log)
        self._segment = 0

    @property
    def log(self) -> str:
        """The log's id."""
        return self._log

    @property
    def last_hash(self) -> str:
        """``chain_hash`` of the last line, for the next one."""
        return self._prev

    @property
    def size(self) -> int:
        """Number of lines so far, which is the next line's number."""
        return self._tree.size

    @property
    def segment(self) -> int:
        """The number of the file that is written to; 0 before the first."""
        return self._segment

    def head(self, now: datetime) -> AuditHead:
        """Return the content of a checkpoint; a log without a line has no head."""
        return AuditHead(
            log=self._log,
            size=self.size,
            root=self._tree.root(),
            head=self._prev,
            time=now,
        )

    def next_record(self, entry: AuditEntry, *, now: datetime, key: bytes) -> bytes:
        """Encode the next record, with its newline; ``take`` it once written."""
        record = record_of(entry, seq=self.size, prev=self._prev, now=now, key=key)
        return encode_line(record) + b"\n"

    def next_receipt(self, entry: ReceiptEntry, *, now: datetime) -> bytes:
        """Encode a receipt as the next line; see ``next_record``."""
        line = receipt_line_of(entry, seq=self.size, prev=self._prev, now=now)
        return encode_line(line) + b"\n"

    def next_segment(self, now: datetime) -> bytes:
        """Encode the first line of the next file, with its newline."""
        start = SegmentStart(
            seq=self.size,
            prev=self._prev,
            time=now.astimezone(UTC),
            log=self._log,
            segment=self._segment + 1,
            tree=tuple(root.hex() for root in self._tree.roots),
        )
        return encode_line(start) + b"\n"

    def open_segment(self, data: bytes) -> None:
        """Set the state before the first line of a file; then ``take`` it.

        Its statement about the lines before is trusted here; ``verify_log``
        checks it.

        Raises:
            AuditRefusedError: not such a line, or another log's.
        """
        start = parse_line(data.removesuffix(b"\n"))
        if not isinstance(start, SegmentStart) or start.log != self._log:
            raise AuditRefusedError(AuditStep.BINDING, "a file of another log")
        if len(start.tree) > MAX_LEVELS or len(start.tree) != start.seq.bit_count():
            raise AuditRefusedError(
                AuditStep.BINDING, "its tree is of another size", record=start.seq
            )
        self._tree = Frontier(start.seq, [bytes.fromhex(each) for each in start.tree])
        self._prev, self._segment = start.prev, start.segment - 1

    def take(self, data: bytes) -> None:
        """Take a line just built by ``next_*``, without parsing it."""
        line = data.removesuffix(b"\n")
        # Cheaper than parsing, and equivalent: canonical JSON has no spaces, and no
        # other field can hold a quotation mark.
        self._segment += b'"kind":"segment"' in line
        self._tree.push(line)
        self._prev = chain_hash(line)

    def follow(self, data: bytes) -> Line:
        """Take a line that another process wrote; return it.

        Raises:
            AuditRefusedError: it does not follow.
        """
        line = parse_line(data.removesuffix(b"\n"))
        if isinstance(line, SegmentStart):
            raise AuditRefusedError(
                AuditStep.BINDING, "a file begins in its middle", record=self.size
            )
        if line.seq != self.size:
            raise AuditRefusedError(
                AuditStep.NUMBERS, f"numbered {line.seq}", record=self.size
            )
        if line.prev != self._prev:
            raise AuditRefusedError(
                AuditStep.CHAIN, "does not follow", record=self.size
            )
        self.take(data)
        return line
