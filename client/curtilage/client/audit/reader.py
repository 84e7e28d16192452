"""Read an audit log from its directory, to verify, prove or export it.

Writes nothing there and takes no lock: what is read is the log as it was when the
reading began, and as far as the checkpoints reach that were read a moment later.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

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

TOLD_EVERY = 1000

Progress = Callable[[int], None]
"""Called now and then with the number of lines read."""


def no_progress(lines: int) -> None:
    """Report nothing."""
    del lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """How far a log reached that others may write to.

    Attributes:
        end: its last file's number, and that file's size in bytes.
        notes: how many checkpoints it had a moment later.
        last: the last of these, or one kept elsewhere that covers more; unverified,
            and empty where there is none.
    """

    end: tuple[int, int]
    notes: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToRead:
    """A log's directory, and who must have signed it.

    Attributes:
        directory: where it is.
        key: the key that its checkpoints must bear.
        kept: checkpoints that were kept elsewhere; the log must agree.
        progress: called with how far it came.
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
            progress: called with how far it came.

        Raises:
            AuditError: there is no log.
            AuditRefusedError: the key is none, or the log bears another one.
        """
        directory = AuditDirectory(path)
        if not directory.made and not directory.path.is_dir():
            raise AuditError(f"{path}: no audit log; nothing was recorded there yet")
        beside = directory.public_key() if key is None or directory.made else None
        wanted = beside if key is None else parse_key(key)
        # 1. The first step of the verification, told as such.
        if wanted is None or (beside is not None and beside != wanted):
            raise AuditRefusedError(AuditStep.KEY, "the log bears another key")
        return cls(directory=directory, key=wanted, kept=tuple(kept), progress=progress)

    def verify(self, see: See = see_nothing) -> VerifiedLog:
        """Verify the whole log; ``see`` is shown each line.

        Raises:
            AuditError: a file cannot be read.
            AuditRefusedError: names the first record that is wrong.
        """
        return self._verify(self._now(), see)

    def prove(
        self, claim: Claim, *, allow_unseen: bool = False
    ) -> tuple[dict[str, object], VerifiedLog]:
        """Count a claim over all that is signed; return the proof.

        Args:
            claim: what is counted.
            allow_unseen: prove also what ``Counter.unseen`` tells of; the
                proof says so.

        Raises:
            UsageError: a class of a policy's own is in no record, or no
                decision is in the claim's time.
            AuditError: a file cannot be read.
            AuditRefusedError: the log is not right.
        """
        now = self._now()
        counter = Counter(claim, next(verify_heads(filter(None, [now.last]), self.key)))
        log = self._verify(now, counter.see)
        if counter.unseen and not allow_unseen:
            raise UsageError(
                f"{'; '.join(counter.unseen)}: a count of zero would mean nothing; "
                "if it is meant so, say --allow-unseen"
            )
        return counter.document(now.last, self.key), log

    def check_proof(self, data: bytes) -> VerifiedLog:
        """Count a proof's claim again, over the log as far as it reached then.

        Raises:
            AuditError: a file cannot be read.
            AuditRefusedError: the log is not right, or the proof is not what
                the log says.
        """
        proof = parse_proof(data, self.key)
        counter = Counter(proof.claim, proof.head)
        kept = (*self.kept, proof.checkpoint)
        reading = LogToRead(
            directory=self.directory, key=self.key, kept=kept, progress=self.progress
        )
        log = reading.verify(counter.see)
        if encode_proof(counter.document(proof.checkpoint, self.key)) != data:
            raise AuditRefusedError(
                AuditStep.CHECKPOINTS,
                "proof: the log counts otherwise (where the clock went back, it counts "
                "by position, which proofs of earlier versions did not)",
            )
        return log

    def _now(self) -> "_Moment":
        """Look how far the log reaches."""
        numbers = self.directory.segments()
        if not numbers:
            raise AuditError(f"{self.directory.path}: no audit log")
        path = self.directory.segment(numbers[-1])
        with as_audit_error(path):
            end = (numbers[-1], path.stat().st_size)
        # Behind the lines: so these sign all of them but a writer's last few, and
        # lines that come later are not looked at unless these sign them.
        notes, last = 0, b""
        for notes, last in enumerate(self.directory.each_note(), start=1):  # noqa: B007
            pass
        texts = (*self.kept, last.decode("utf-8", "replace"))
        return _Moment(end=end, notes=notes, last=max(texts, key=_size))

    def _verify(self, now: "_Moment", see: See) -> VerifiedLog:
        own = islice(self.directory.each_note(), now.notes)
        texts = (note.decode("utf-8", "replace") for note in own)
        # The log's own ones keep their order, so that one out of order shows.
        notes = heapq.merge(sorted(self.kept, key=_size), texts, key=_size)

        def seen(line: Line, data: bytes) -> None:
            see(line, data)
            if line.seq % TOLD_EVERY == 0:
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
    """Read a note's size, unverified; only to find its place."""
    lines = note.split("\n", 2)
    return int(lines[1]) if len(lines) > 1 and lines[1].isdecimal() else 0
