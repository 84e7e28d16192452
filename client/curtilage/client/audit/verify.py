"""Verifies an audit log, line by line, and names the first wrong record.

The steps, in the order in which they are reported:

    1. key: the checkpoints' key is the expected one
    2. segments: the files are numbered 1, 2, 3 … without a gap
    3. form: each line is a record in its canonical form
    4. numbers: each line's number is one more than the number before
    5. chain: each line contains the hash of the line before
    6. binding: each file begins with a line that binds it to what came before
    7. checkpoints: each is signed and matches the log at its size, and they are as
       close together as writers leave them, in lines and in time
    8. end: the log is at least as long as its last checkpoint, and not longer by
       more than a writer leaves unsigned

Lines can be chained again without a key, so removing a checkpoint would allow the lines
that it signed to be edited, up to the next one; after the last one, without limit.
Hence the second halves of steps 7 and 8: every writer obeys both, even if killed.

Not detected: that log and checkpoints were truncated together, back to an earlier
checkpoint, which takes no key, followed by as many forged lines as a writer may leave
unsigned; and that a log was replaced as a whole, with checkpoints and key. Against
both, keep a checkpoint and the key elsewhere and pass them in. Times are the writer's
own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.tree import Frontier
from curtilage.client.audit.checkpoint import (
    CHECKPOINT_LINES,
    CHECKPOINT_S,
    AuditHead,
    verify_head,
)
from curtilage.client.audit.record import (
    MAX_LINE_BYTES,
    AuditRecord,
    Line,
    ReceiptLine,
    SegmentStart,
    chain_hash,
    genesis_hash,
    parse_line,
)
from curtilage.client.audit.span import Span
from curtilage.policy.errors import AuditRefusedError, AuditStep

_TORN = (
    "its line is incomplete: truncated, left by a crash, or being written now; "
    "the next writer sets such a line aside"
)
_EMPTY_END = (
    "the last file is empty: truncated, left by a crash, or being written now; the "
    "next writer starts such a file again"
)
TAKEN_OUT = (
    "checkpoints were removed, and with them lines may have been removed or forged. "
    "Keep the log as it is, compare it with a checkpoint that was kept elsewhere, and "
    "start a new log"
)

_NEVER = datetime.min.replace(tzinfo=UTC)

See = Callable[[Line, bytes], None]
"""Called with each line once it is verified, parsed and as written."""


def see_nothing(line: Line, data: bytes) -> None:
    """Ignore every line."""
    del line, data


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file of a log, unverified.

    Attributes:
        number: from its name.
        lines: its lines with their newlines; the last may lack one.
    """

    number: int
    lines: Iterable[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedLog:
    """A log with all its lines and checkpoints verified.

    Attributes:
        log: the log's id.
        size: number of lines, the files' first lines included.
        records: number of decisions among them.
        signed_records: number of those that the last checkpoint covers. The others
            can be forged by anyone with write access to the log.
        receipts: number of enclaves' receipts among them.
        segments: number of files.
        checkpoints: number of checkpoints.
        signed: number of lines that the last checkpoint covers.
        signed_at: when it was signed, by the signer's own clock.
        head: ``chain_hash`` of the last line, hex.
        root: root of the tree over all lines, 32 bytes.
        first: time of the first line.
        last: time of the last line.
        steps_back: how often a line is older than the one before it: a clock
            was set back, or several writers' clocks differ.
        checkpoint: the last checkpoint's text.
    """

    log: str
    size: int
    records: int
    signed_records: int
    receipts: int
    segments: int
    checkpoints: int
    signed: int
    signed_at: datetime
    head: str
    root: bytes
    first: datetime
    last: datetime
    steps_back: int
    checkpoint: str


def verify_heads(notes: Iterable[str], key: NoteKey) -> Iterator[AuditHead]:
    """Verify every checkpoint by itself, and that their sizes only grow (step 7).

    Lazily, as they are consumed: a log may have a million.

    Raises:
        AuditRefusedError: one is not signed, or is out of order.
    """
    size = 0
    for number, note in enumerate(notes, start=1):
        try:
            head = verify_head(note, key)
        except AuditRefusedError as refusal:
            raise AuditRefusedError(
                refusal.step, f"checkpoint {number}: {refusal.detail}"
            ) from None
        if head.size < max(size, 1):
            raise _checkpoints(f"checkpoint {number} is out of order")
        size = head.size
        yield head
    if not size:
        raise _checkpoints("there is none; nothing here is signed")


def verify_log(
    segments: Iterable[Segment],
    notes: Iterable[str],
    key: NoteKey,
    *,
    see: See = see_nothing,
) -> VerifiedLog:
    """Verify a whole log.

    Args:
        segments: its files, in order.
        notes: its checkpoints, in order; one kept elsewhere may be among them.
        key: the key that the checkpoints must be signed with.
        see: is called with every line, before a later one may prove to be wrong; so
            use the collected data only after this function returned.

    Raises:
        AuditRefusedError: names the step and the first wrong record.
    """
    reader = _Reader(notes, key, see)
    for segment in segments:
        reader.begin(segment.number)
        for line in segment.lines:
            reader.read(line)
    return reader.end()


class _Reader:
    """State of the verification after the last line read."""

    def __init__(self, notes: Iterable[str], key: NoteKey, see: See) -> None:
        self._log = key.name
        self._note = ""
        self._heads = verify_heads(self._noted(notes), key)
        self._count = 0
        self._due = next(self._heads, None)
        self._signed = 0
        self._signed_records = 0
        self._signed_at = _NEVER
        self._latest = _NEVER
        self._see = see
        self._tree = Frontier()
        self._prev = genesis_hash(key.name)
        self._segment = 0
        self._fresh = False
        self._records = 0
        self._receipts = 0
        self._times = Span()
        self._first: datetime | None = None
        self._last: datetime | None = None

    @property
    def _size(self) -> int:
        return self._tree.size

    def begin(self, number: int) -> None:
        """Start the next file."""
        # 2. A missing file means missing records.
        if number != self._segment + 1:
            raise AuditRefusedError(
                AuditStep.SEGMENTS,
                f"file {self._segment + 1} is missing; the next one is {number}",
                record=self._size,
            )
        if self._fresh:
            raise self._wrong(AuditStep.SEGMENTS, f"file {self._segment} is empty")
        self._segment, self._fresh = number, True

    def read(self, data: bytes) -> None:
        """Verify the next line, with its newline."""
        if len(data) > MAX_LINE_BYTES + 1:
            raise self._wrong(AuditStep.FORM, "longer than any record")
        if not data.endswith(b"\n"):
            raise self._wrong(AuditStep.END, _TORN)
        data = data[:-1]
        # 3. One spelling for each record, so that no two lines mean the same.
        try:
            line = parse_line(data)
        except AuditRefusedError as refusal:
            raise self._wrong(refusal.step, refusal.detail) from None
        self._in_order(line)
        self._bound(line)
        self._in_pace(line)
        self._tree.push(data)
        self._prev = chain_hash(data)
        self._times.see(line)
        self._first, self._last = self._first or line.time, line.time
        self._records += isinstance(line, AuditRecord)
        self._receipts += isinstance(line, ReceiptLine)
        self._checkpointed()
        self._see(line, data)

    def end(self) -> VerifiedLog:
        """Finish the log: nothing that was signed may be missing."""
        # 8. The end was truncated, or a whole file of it is missing.
        if self._due is not None:
            raise self._wrong(
                AuditStep.END,
                f"missing, as is all that follows: a checkpoint signed "
                f"{self._due.size} lines, and here are {self._size}",
            )
        if self._first is None or self._last is None or self._fresh:
            raise self._wrong(AuditStep.SEGMENTS, _EMPTY_END)
        return VerifiedLog(
            log=self._log,
            size=self._size,
            records=self._records,
            signed_records=self._signed_records,
            receipts=self._receipts,
            segments=self._segment,
            checkpoints=self._count,
            signed=self._signed,
            signed_at=self._signed_at,
            head=self._prev,
            root=self._tree.root(),
            first=self._first,
            last=self._last,
            steps_back=self._times.steps_back,
            checkpoint=self._note,
        )

    def _noted(self, notes: Iterable[str]) -> Iterator[str]:
        for note in notes:
            self._note = note
            yield note

    def _in_order(self, line: Line) -> None:
        # 4. A gap is a dropped record; a step back, one inserted or moved.
        if line.seq > self._size:
            raise self._wrong(
                AuditStep.NUMBERS, f"missing; record {line.seq} is in its place"
            )
        if line.seq < self._size:
            raise self._wrong(
                AuditStep.NUMBERS,
                f"record {line.seq} is in its place: inserted, or out of order",
            )
        # 5. The number matches, the hash does not: the line before was changed.
        if line.prev != self._prev:
            changed = max(self._size - 1, 0)
            raise AuditRefusedError(
                AuditStep.CHAIN,
                f"not the record that record {self._size} follows: one was changed",
                record=changed,
            )

    def _bound(self, line: Line) -> None:
        # 6. The first line of a file binds it, and no other line does.
        if self._fresh != isinstance(line, SegmentStart):
            raise self._wrong(AuditStep.BINDING, "a file begins in the wrong place")
        self._fresh = False
        if not isinstance(line, SegmentStart):
            return
        tree = tuple(root.hex() for root in self._tree.roots)
        if (line.log, line.segment, line.tree) != (self._log, self._segment, tree):
            raise self._wrong(
                AuditStep.BINDING, "bound to another log, file or history"
            )

    def _in_pace(self, line: Line) -> None:
        # 7 and 8. The limits that every writer obeys before it adds a line after lines
        # that no checkpoint covers; directly after a checkpoint, any line is allowed.
        unsigned = self._size - self._signed
        if not unsigned:
            return
        if isinstance(line, SegmentStart):
            raise self._wrong(
                AuditStep.CHECKPOINTS,
                f"a file begins, and the {unsigned} lines before are in no checkpoint; "
                f"a writer signs before it begins a file: {TAKEN_OUT}",
            )
        if unsigned >= CHECKPOINT_LINES:
            raise self._wrong(
                AuditStep.END if self._due is None else AuditStep.CHECKPOINTS,
                f"the {unsigned} lines before it are in no checkpoint, and a writer "
                f"signs them before it writes another: {TAKEN_OUT}",
            )
        # The latest of all checkpoints: one of several writers may rely on a checkpoint
        # of its own that is not the last, and the clock may have gone back since.
        age_s = (line.time - self._latest).total_seconds()
        if self._signed and age_s >= CHECKPOINT_S:
            raise self._wrong(
                AuditStep.CHECKPOINTS,
                f"written {age_s:.0f} s after the last checkpoint, and the {unsigned} "
                f"lines before it are in none; after {CHECKPOINT_S:.0f} s a writer "
                f"signs first: {TAKEN_OUT}",
            )

    def _checkpointed(self) -> None:
        # 7. All checkpoints of this size; a kept one may repeat one of ours.
        while self._due is not None and self._due.size == self._size:
            same = self._due.head == self._prev and self._due.root == self._tree.root()
            if not same:
                raise AuditRefusedError(
                    AuditStep.CHECKPOINTS,
                    f"of the records {self._signed} to {self._size - 1}, one is not "
                    "what was signed",
                    record=self._signed,
                )
            self._count += 1
            self._signed = self._size
            self._signed_records = self._records
            self._signed_at = self._due.time
            self._latest = max(self._latest, self._due.time)
            self._due = next(self._heads, None)

    def _wrong(self, step: AuditStep, detail: str) -> AuditRefusedError:
        return AuditRefusedError(step, detail, record=self._size)


def _checkpoints(detail: str) -> AuditRefusedError:
    return AuditRefusedError(AuditStep.CHECKPOINTS, detail)


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split bytes into lines with their newlines; the last may lack one.

    Args:
        chunks: a file's bytes, in pieces of any size.
    """
    carry = b""
    for chunk in chunks:
        *whole, carry = (carry + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(carry) > MAX_LINE_BYTES:
            yield carry  # too long for a line, so it will be refused as one
            return
    if carry:
        yield carry
