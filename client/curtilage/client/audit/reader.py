"""Reads an audit log from its directory, to verify, prove or export it.

Writes nothing and takes no lock: it reads the log as it was at the start, together with
the checkpoints that existed a moment later.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from curtilage.attest.log.note import NoteKey
from curtilage.client.audit.checkpoint import parse_key
from curtilage.client.audit.directory import AuditDirectory, as_audit_error
from curtilage.client.audit.proof import Claim, Counter, encode_proof, parse_proof
from curtilage.client.audit.record import Line
from curtilage.client.audit.verify import (
    See,
    Segment,
    VerifiedLog,
    lines_of,
    see_nothing,
    verify_heads,
    verify_log,
)
from curtilage.client.errors import AuditError, UsageError
from curtilage.policy.errors import AuditRefusedError, AuditStep

REPORTED_EVERY = 1000
ANOTHER_COUNT: Final = (
    "proof: the log gives another count (where the clock went back, it counts by "
    "position, which proofs of earlier versions did not)"
)

Progress = Callable[[int], None]
"""Called periodically with the number of lines read."""


def no_progress(lines: int) -> None:
    """Report nothing."""
    del lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The extent of a log that other processes may be writing to.

    Attributes:
        end: its last file's number, and that file's size in bytes.
        notes: number of checkpoints it had a moment later.
        last: the last of these, or one kept elsewhere that covers more; unverified,
            and empty if there is none.
    """

    end: tuple[int, int]
    notes: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToRead:
    """A log's directory, and the key that must have signed it.

    Attributes:
        directory: of the log.
        key: the key of its checkpoints.
        kept: checkpoints that were kept elsewhere; the log must agree with them.
        progress: called with the number of lines read.
    """

    directory: AuditDirectory
    key: NoteKey
    kept: tuple[str, ...] = ()
    progress: Progress = no_progress

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        key: str | None = None,
        kept: Sequence[str] = (),
        progress: Progress = no_progress,
    ) -> "LogToRead":
        """Find a log and its key.

        Args:
            path: the directory.
            key: the public key as a verifier key, or None: the one in the log's folder.
            kept: texts of checkpoints that were kept elsewhere.
            progress: called with the number of lines read.

        Raises:
            AuditError: there is no log.
            AuditRefusedError: the key is malformed, or the log has another one.
        """
        directory = AuditDirectory(path)
        if not directory.made and not directory.path.is_dir():
            raise AuditError(f"{path}: no audit log; nothing was recorded there yet")
        stored = directory.public_key() if key is None or directory.made else None
        wanted = stored if key is None else parse_key(key)
        # The first step of the verification, reported as step 1.
        if wanted is None or (stored is not None and stored != wanted):
            raise AuditRefusedError(AuditStep.KEY, "the log has another key")
        return cls(directory=directory, key=wanted, kept=tuple(kept), progress=progress)

    def verify(self, see: See = see_nothing) -> VerifiedLog:
        """Verify the whole log; ``see`` is passed each line.

        Raises:
            AuditError: a file cannot be read.
            AuditRefusedError: names the first wrong record.
        """
        return self._verify(self._now(), see)

    def prove(
        self, claim: Claim, *, allow_unseen: bool = False
    ) -> tuple[dict[str, object], VerifiedLog]:
        """Count a claim over all that is signed; return the proof.

        Args:
            claim: the claim to be counted.
            allow_unseen: prove it despite the reasons of ``Counter.unseen``; the
                proof states this.

        Raises:
            UsageError: a class of a policy's own is in no record, or no
                decision is in the claim's time.
            AuditError: a file cannot be read.
            AuditRefusedError: the log does not verify.
        """
        now = self._now()
        counter = Counter(claim, next(verify_heads(filter(None, [now.last]), self.key)))
        log = self._verify(now, counter.see)
        if counter.unseen and not allow_unseen:
            raise UsageError(
                f"{'; '.join(counter.unseen)}: a count of zero would mean nothing; "
                "if this is intended, pass --allow-unseen"
            )
        return counter.document(now.last, self.key), log

    def check_proof(self, data: bytes) -> VerifiedLog:
        """Count a proof's claim again, over the log up to the proof's checkpoint.

        Raises:
            AuditError: a file cannot be read.
            AuditRefusedError: the log does not verify, or the proof does not match
                the log.
        """
        proof = parse_proof(data, self.key)
        counter = Counter(proof.claim, proof.head)
        kept = (*self.kept, proof.checkpoint)
        reading = LogToRead(
            directory=self.directory, key=self.key, kept=kept, progress=self.progress
        )
        log = reading.verify(counter.see)
        if encode_proof(counter.document(proof.checkpoint, self.key)) != data:
            raise AuditRefusedError(AuditStep.CHECKPOINTS, ANOTHER_COUNT)
        return log

    def _now(self) -> "_Moment":
        """Return the current extent of the log."""
        numbers = self.directory.segments()
        if not numbers:
            raise AuditError(f"{self.directory.path}: no audit log")
        path = self.directory.segment(numbers[-1])
        with as_audit_error(path):
            end = (numbers[-1], path.stat().st_size)
        # Read after the lines: so these sign all but a writer's last few, and later
        # lines are only read if these sign them.
        notes, last = 0, b""
        for notes, last in enumerate(self.directory.each_note(), start=1):  # noqa: B007
            pass
        texts = (*self.kept, last.decode("utf-8", "replace"))
        return _Moment(end=end, notes=notes, last=max(texts, key=_size))

    def _verify(self, now: "_Moment", see: See) -> VerifiedLog:
        own = islice(self.directory.each_note(), now.notes)
        texts = (note.decode("utf-8", "replace") for note in own)
        # The log's own notes keep their order, so that a wrong order is detected.
        notes = heapq.merge(sorted(self.kept, key=_size), texts, key=_size)

        def seen(line: Line, data: bytes) -> None:
            see(line, data)
            if line.seq % REPORTED_EVERY == 0:
                self.progress(line.seq)

        return verify_log(self._segments(now), notes, self.key, see=seen)

    def _segments(self, now: "_Moment") -> Iterator[Segment]:
        count, end, signed = 0, now.end, _size(now.last)

        def lines(number: int) -> Iterator[bytes]:
            nonlocal count
            offset = 0
            for line in lines_of(self.directory.read_segment(number)):
                if count >= signed and (number, offset) >= end:
                    return
                yield line
                count, offset = count + 1, offset + len(line)

        for number in self.directory.segments():
            if count >= signed and number > end[0]:
                return
            yield Segment(number=number, lines=lines(number))


def _size(note: str) -> int:
    """Return a note's size, unverified; used only for sorting."""
    lines = note.split("\n", 2)
    return int(lines[1]) if len(lines) > 1 and lines[1].isdecimal() else 0
