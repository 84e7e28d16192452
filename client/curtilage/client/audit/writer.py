"""The audit trail's writer: a line is on disk before anything may be sent.

``append`` returns once the line is written and synced; otherwise it raises, and the
caller sends nothing. Several processes may write to one log: each holds the lock for
one line, and first reads the lines that others added.

A crash can leave a last line without its newline. It was never confirmed to a caller,
so the next writer moves it into a file of its own and truncates it. Any other
inconsistency is damage, is never repaired here, and keeps every query local:
``curtilage audit verify`` names the record.

A log and its checkpoints can be truncated together, back to an earlier checkpoint,
without a key, and are then consistent again. So a writer remembers how far the log
extended (``Seen``), and refuses a log that is shorter or lacks the checkpoints that
every writer leaves. A writer that starts later knows only what is on disk.
"""

import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.client.audit.checkpoint import (
    CHECKPOINT_LINES,
    CHECKPOINT_S,
    AuditHead,
    sign_head,
    verify_head,
)
from curtilage.client.audit.directory import (
    AuditDirectory,
    AuditKeys,
    Disk,
    as_audit_error,
)
from curtilage.client.audit.record import AuditEntry, ReceiptEntry, receipt_secret
from curtilage.client.audit.tail import Tail
from curtilage.client.audit.verify import lines_of, verify_heads
from curtilage.client.errors import AuditError
from curtilage.client.system.files import open_private
from curtilage.policy.errors import AuditRefusedError

WHAT_NOW: Final = (
    "nothing is written to it, so nothing is sent. Keep the folder as it is, to "
    "examine it with `curtilage audit verify`, and create a new log elsewhere with "
    "`curtilage audit init --dir DIR`"
)


SEGMENT_BYTES: Final = 4 * 1024 * 1024  # read at start: 0.1 s, 8,000 records
LOCK_S: Final = 10.0
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
NO_CHECKPOINT: Final = "no checkpoint is left of those that were signed"
NOT_AS_WRITTEN: Final = "it does not hold what was written to it"
NEVER_SIGNED: Final = "lines are in no checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The extent of a log when this writer last used it.

    Attributes:
        log: the log's id.
        segment: the file of its last line.
        size: number of lines.
        head: ``chain_hash`` of the last of them, hex.
    """

    log: str
    segment: int
    size: int
    head: str

    @classmethod
    def of(cls, tail: Tail) -> "Seen":
        """Return the extent of the log that ends here."""
        return cls(
            log=tail.log, segment=tail.segment, size=tail.size, head=tail.last_hash
        )

    def is_in(self, files: AuditDirectory) -> bool:
        """Return whether the log on disk still begins with these lines.

        Raises:
            AuditError: a file cannot be read.
            AuditRefusedError: the file contains something else than lines of this log.
        """
        if self.segment not in files.segments():
            return False
        lines = lines_of(files.read_segment(self.segment))
        first = next(lines, b"")
        if not first.endswith(b"\n"):
            return False
        tail = Tail(self.log)
        tail.open_segment(first)
        tail.take(first)
        for line in lines:
            if tail.size == self.size or not line.endswith(b"\n"):
                break
            tail.follow(line)
        return (tail.size, tail.last_hash) == (self.size, self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """Limits at which a writer signs, starts a file and stops waiting for the lock.

    Attributes:
        checkpoint_lines: sign after this many lines at most, ``CHECKPOINT_LINES`` or
            fewer.
        checkpoint_s: sign before the next line if the last signature is older,
            ``CHECKPOINT_S`` or less.
        segment_bytes: start another file once one is this large.
        lock_s: how long to wait for another writer.
    """

    checkpoint_lines: int = CHECKPOINT_LINES
    checkpoint_s: float = CHECKPOINT_S
    segment_bytes: int = SEGMENT_BYTES
    lock_s: float = LOCK_S

    def __post_init__(self) -> None:
        """Refuse a writer whose log would not verify.

        Raises:
            ValueError: it would sign less often than ``verify_log`` demands.
        """
        if self.checkpoint_lines > CHECKPOINT_LINES or self.checkpoint_s > CHECKPOINT_S:
            raise ValueError(
                f"sign every {CHECKPOINT_LINES} lines and {CHECKPOINT_S:.0f} s at least"
            )


@dataclass(slots=True, kw_only=True)
class _Open:
    """The current file, and the state needed for its next line.

    ``size_bytes`` is where its last complete line ends, ``latest`` the latest time of a
    line that follows an unsigned one; only up to date when the file was opened.
    """

    tail: Tail
    descriptor: int
    size_bytes: int
    latest: datetime = _NEVER


class AuditLog:
    """A writer of one log; may be used from several threads.

    Args:
        directory: of the log.
        make: create directory and keys if there are none; otherwise a directory
            without a log is refused.
        limits: sizes and times.
        disk: the system calls.
        clock: the time, aware.
        random: the randomness of new keys.
    """

    def __init__(
        self,
        directory: Path,
        *,
        make: bool = False,
        limits: AuditLimits | None = None,
        disk: Disk | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._files = AuditDirectory(directory, disk)
        self._make = make
        self._limits = limits or AuditLimits()
        self._clock = clock
        self._random = random
        self._mutex = threading.Lock()
        self._keys: AuditKeys | None = None
        self._open: _Open | None = None
        self._signed: AuditHead | None = None
        self._seen: Seen | None = None
        self._failed = False

    def append(self, entry: AuditEntry) -> None:
        """Write one record and wait until it is on disk.

        Raises:
            AuditError: it may not be; the step that it records must not be taken.
            ValueError: the entry contains what a record must not contain.
        """
        self._append(
            lambda tail, now, keys: tail.next_record(
                entry, now=now, key=keys.organisation
            )
        )

    def append_receipt(self, entry: ReceiptEntry) -> None:
        """Write one receipt and wait until it is on disk.

        Raises:
            AuditError: it could not be written.
            ValueError: the entry contains what a receipt must not contain.
        """
        self._append(lambda tail, now, _: tail.next_receipt(entry, now=now))

    def receipt_secret(self, receipt_id: bytes) -> bytes:
        """Return the secret for one receipt, 32 bytes; see ``receipt_secret``.

        Raises:
            AuditError: the organisation's key cannot be read.
        """
        with self._mutex:
            if self._keys is None:
                self._keys = self._read_keys()
            return receipt_secret(self._keys.organisation, receipt_id)

    def prepare(self) -> None:
        """Create missing files, repair after a crash, get ready to write.

        Raises:
            AuditError: it cannot be written to.
        """
        with self._writing():
            pass

    def checkpoint(self) -> None:
        """Sign the log as it is, unless nothing was written since.

        After any failure the log is read again, and its unsigned lines are signed.

        Raises:
            AuditError: the signature could not be written.
        """
        current, signed = self._open, self._signed
        unsigned = self._failed or (
            current is not None and (signed is None or signed.size < current.tail.size)
        )
        if not unsigned:
            return
        with self._writing() as (keys, here):
            if self._signed is None or self._signed.size < here.tail.size:
                self._sign(keys, here.tail, self._clock())

    def close(self) -> None:
        """Sign the log as it is and release it; it may be used again.

        Raises:
            AuditError: the signature could not be written.
        """
        try:
            self.checkpoint()
        finally:
            with self._mutex:
                self._let_go()

    def _append(self, line_of: "Callable[[Tail, datetime, AuditKeys], bytes]") -> None:
        with self._writing() as (keys, opened):
            here, now = opened, self._clock()
            if self._checkpoint_is_due(here.tail, now):
                self._sign(keys, here.tail, now)
            if here.size_bytes >= self._limits.segment_bytes:
                # Signed first, so that the last checkpoint always extends this far.
                self._sign(keys, here.tail, now)
                self._open = None
                os.close(here.descriptor)
                here = self._begin_segment(here.tail, now)
            self._write(here, line_of(here.tail, now, keys))

    @contextmanager
    def _writing(self) -> Generator[tuple[AuditKeys, _Open]]:
        """Hold the lock, with a state that matches the disk."""
        with self._mutex:
            self._failed = True  # until the end is reached
            if self._keys is None:
                self._keys = self._read_keys()
            with self._files.locked(self._limits.lock_s):
                try:
                    current = self._open
                    if current is None or self._was_replaced(current):
                        self._let_go()
                        current = self._open = self._read_end(self._keys)
                    else:
                        self._catch_up(current)
                    self._seen = Seen.of(current.tail)
                    yield self._keys, current
                    if self._open is not None:  # another file may have been started
                        self._seen = Seen.of(self._open.tail)
                except BaseException:
                    # The state on disk is read again before the next line.
                    self._let_go()
                    raise
            self._failed = False

    def _read_keys(self) -> AuditKeys:
        if not self._files.made:
            if not self._make:
                raise AuditError(
                    f"{self._files.path}: no audit log; create one with "
                    f"`curtilage audit init --dir {self._files.path}`"
                )
            self._files.make(random=self._random, now=self._clock())
        self._files.check_private()
        return self._files.keys()

    def _was_replaced(self, current: _Open) -> bool:
        """Return whether another writer started a new file, or the file was moved."""
        path = self._files.segment(current.tail.segment)
        following = self._files.segment(current.tail.segment + 1)
        try:
            there, here = path.stat(), os.fstat(current.descriptor)
        except OSError:
            return True
        same = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
        return not same or following.exists()

    def _catch_up(self, current: _Open) -> None:
        # Lines that other processes added, read as such: numbers, hashes and
        # checkpoints must continue this writer's state.
        with as_audit_error(self._files.segment(current.tail.segment)):
            start, size = current.size_bytes, os.fstat(current.descriptor).st_size
            more = max(size - start, 0)
            added = os.pread(current.descriptor, more, start) if more else b""
        if size < start:
            raise self._cut("it became shorter")
        if added:
            self._follow(current, lines_of([added]))
            self._mend(current)

    def _read_end(self, keys: AuditKeys) -> _Open:
        """Read the last file, repair it, and check it against the last checkpoint."""
        numbers = self._files.segments()
        self._signed = self._last_head(keys)
        # Created together with the log: a log without one was changed.
        if self._signed is None:
            raise self._cut(NO_CHECKPOINT)
        if not numbers:
            raise self._cut("the log is gone, its checkpoints are not")
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise AuditError(f"{self._files.path}: a file of the log is missing")
        current = self._read_segment(keys, numbers[-1])
        if current is None:  # its writer crashed before its first line was complete
            current = self._read_previous(keys, numbers)
        unsigned = current.tail.size - self._signed.size
        if unsigned < 0:
            raise self._not_as_signed()
        self._require_pace(keys, current, self._signed)
        # A log that was truncated in the meantime, with its checkpoints, is consistent;
        # but this writer remembers.
        with self._damage():
            if self._seen is not None and not self._seen.is_in(self._files):
                raise self._cut(NOT_AS_WRITTEN)
        # Only now: a signature makes the lines trusted.
        if unsigned:
            self._sign(keys, current.tail, self._clock())
        return current

    def _require_pace(self, keys: AuditKeys, current: _Open, signed: AuditHead) -> None:
        """Refuse to sign lines that no writer leaves unsigned (``verify_log``)."""
        unsigned = current.tail.size - signed.size
        if unsigned > CHECKPOINT_LINES:
            raise self._cut(f"the last {unsigned} {NEVER_SIGNED}")
        newest = signed.time
        if _is_late(current.latest, newest):
            # In rare cases the last is not the newest: one of several writers relies on
            # a checkpoint of its own, and the clock went back before another signed.
            with self._damage():
                heads = verify_heads(self._files.notes()[0], keys.public)
            newest = max(head.time for head in heads)
        if _is_late(current.latest, newest):
            raise self._cut("its last lines should have waited for a checkpoint")

    def _read_previous(self, keys: AuditKeys, numbers: list[int]) -> _Open:
        previous = self._read_segment(keys, numbers[-2]) if len(numbers) > 1 else None
        if previous is None:
            raise self._cut("its last file but one is empty or gone")
        self._open = None
        os.close(previous.descriptor)
        return self._begin_segment(previous.tail, self._clock())

    def _read_segment(self, keys: AuditKeys, number: int) -> _Open | None:
        """Read one file; None if not even its first line is complete."""
        lines = lines_of(self._files.read_segment(number))
        first = next(lines, b"")
        if not first.endswith(b"\n"):
            return None
        tail, path = Tail(keys.public.name), self._files.segment(number)
        with self._damage():
            tail.open_segment(first)
            # A file is started only once everything before it is signed.
            if self._signed is None or self._signed.size < tail.size:
                raise self._cut("its last file begins with what was never signed")
            self._as_signed(tail)
            tail.take(first)
        if tail.segment != number:
            raise AuditError(f"{path}: another file's lines")
        with as_audit_error(path):
            descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
        current = _Open(tail=tail, descriptor=descriptor, size_bytes=len(first))
        self._open = current
        self._follow(current, lines)
        self._mend(current)
        return current

    def _follow(self, current: _Open, lines: Iterator[bytes]) -> None:
        with self._damage():
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                read = current.tail.follow(line)
                current.size_bytes += len(line)
                if self._signed is not None and read.seq > self._signed.size:
                    current.latest = max(current.latest, read.time)
                self._as_signed(current.tail)

    def _mend(self, current: _Open) -> None:
        """Move an incomplete last line aside: it was never confirmed."""
        path = self._files.segment(current.tail.segment)
        with as_audit_error(path):
            size = os.fstat(current.descriptor).st_size
            if size == current.size_bytes:
                return
            start = current.size_bytes
            torn = os.pread(current.descriptor, size - start, start)
            self._files.set_aside(f"{path.stem}-{start}", torn)
            self._files.disk.truncate(current.descriptor, start)
            self._files.disk.sync(current.descriptor)

    def _begin_segment(self, tail: Tail, now: datetime) -> _Open:
        """Start the next file; remains of a crash under its name are moved aside."""
        path = self._files.segment(tail.segment + 1)
        with as_audit_error(path):
            if path.exists():
                self._files.set_aside(f"{path.stem}-0", path.read_bytes())
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
            descriptor = open_private(path, flags)
        current = _Open(tail=tail, descriptor=descriptor, size_bytes=0)
        self._open = current
        self._write(current, tail.next_segment(now))
        with as_audit_error(path):
            self._files.sync_folder()
        return current

    def _write(self, current: _Open, line: bytes) -> None:
        number = current.tail.segment + (current.size_bytes == 0)
        with as_audit_error(self._files.segment(number)):
            try:
                self._files.write_all(current.descriptor, line)
            except OSError:
                # This line is not confirmed; if it cannot be removed now, the next
                # writer does it.
                with suppress(OSError):
                    self._files.disk.truncate(current.descriptor, current.size_bytes)
                raise
        current.tail.take(line)
        current.size_bytes += len(line)

    def _checkpoint_is_due(self, tail: Tail, now: datetime) -> bool:
        if self._signed is None:
            return True
        unsigned = tail.size - self._signed.size
        age_s = (now - self._signed.time).total_seconds()
        # After the clock was set back, the next one must not be delayed.
        late = age_s >= self._limits.checkpoint_s or age_s < 0
        return unsigned >= self._limits.checkpoint_lines or (unsigned > 0 and late)

    def _sign(self, keys: AuditKeys, tail: Tail, now: datetime) -> None:
        head = tail.head(now)
        note = sign_head(head, keys.public, keys.signing.sign).encode()
        self._files.append_note(note)
        self._signed = head

    def _last_head(self, keys: AuditKeys) -> AuditHead | None:
        last = deque(self._files.each_note(), maxlen=1)
        with self._damage():
            for note in last:
                return verify_head(note.decode("utf-8", "replace"), keys.public)
        return None

    def _as_signed(self, tail: Tail) -> None:
        """Refuse a log that differs from what its last checkpoint signed."""
        signed = self._signed
        if signed is None or signed.size != tail.size:
            return
        if signed != tail.head(signed.time):
            raise self._not_as_signed()

    def _not_as_signed(self) -> AuditError:
        return AuditError(
            f"{self._files.path}: the log is not what its last checkpoint signed; "
            "run `curtilage audit verify`"
        )

    def _cut(self, what: str) -> AuditError:
        return AuditError(
            f"{self._files.path}: the log was cut or changed: {what}; {WHAT_NOW}"
        )

    @contextmanager
    def _damage(self) -> Generator[None]:
        try:
            yield
        except AuditRefusedError as refusal:
            raise AuditError(
                f"{self._files.path}: the log is damaged ({refusal}); run "
                "`curtilage audit verify`"
            ) from None

    def _let_go(self) -> None:
        current, self._open = self._open, None
        self._signed = None
        if current is not None:
            with suppress(OSError):
                os.close(current.descriptor)


def _is_late(line: datetime, signed: datetime) -> bool:
    return (line - signed).total_seconds() >= CHECKPOINT_S
