"""What a writer remembers of its log, so that no cut behind its back passes.

A log and its checkpoints can be cut together, back to an earlier checkpoint,
without a key, and agree with each other again. So a writer keeps in memory how
far the log reached when it last had it, and refuses one that does not reach
there any more. A writer that begins later knows no more than the disk does.
"""

from dataclasses import dataclass
from typing import Final

from curtilage.client.audit_files import AuditDirectory
from curtilage.policy.audit_tail import Tail
from curtilage.policy.audit_verify import lines_of

WHAT_NOW: Final = (
    "nothing is written to it, so nothing leaves. Keep the folder as it is, to "
    "examine it with `curtilage audit verify`, and make a new log elsewhere with "
    "`curtilage audit init --dir DIR`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How far a log reached.

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
        """Remember the log that ends here."""
        return cls(
            log=tail.log, segment=tail.segment, size=tail.size, head=tail.last_hash
        )

    def is_in(self, files: AuditDirectory) -> bool:
        """Tell whether the log on the disk still begins with what was seen.

        Raises:
            AuditError: a file cannot be read.
            AuditRefusedError: the file holds what is no line of this log.
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
