"""Audit logs in memory, as a writer creates them, and with changed lines."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.attest.log.note import NoteKey
from curtilage.client.audit.checkpoint import log_id, sign_head
from curtilage.client.audit.record import AuditEntry, Outcome
from curtilage.client.audit.tail import Tail
from curtilage.client.audit.verify import See, Segment, VerifiedLog, see_nothing
from curtilage.client.audit.verify import verify_log as verify
from curtilage.policy.decision.routes import Route

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ORGANISATION = bytes(range(32))
SIGNING = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
KEY = NoteKey(
    name=log_id(bytes(8)),
    public_key=SIGNING.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw),
)
ENTRY = AuditEntry(
    query="00" * 8,
    attempt=1,
    policy="sha256:" + "ab" * 32,
    classes={"health.condition": 1},
    route=Route.LOCAL,
    outcome=Outcome.LOCAL,
    rule="phi",
    messages=1,
    payload_digest=bytes(32),
)


def entry(number: int) -> AuditEntry:
    """Return one of many different entries."""
    digest = hashlib.sha256(str(number).encode()).digest()
    return replace(ENTRY, query=digest[:8].hex(), payload_digest=digest)


@dataclass
class MemoryLog:
    """The files of a log, each a list of lines with their newlines."""

    segments: list[list[bytes]]
    notes: list[str]
    key: NoteKey = KEY

    @property
    def lines(self) -> list[bytes]:
        return [line for lines in self.segments for line in lines]

    def verify(self, see: See = see_nothing) -> VerifiedLog:
        numbered = enumerate(self.segments, start=1)
        segments = [Segment(number=number, lines=lines) for number, lines in numbered]
        return verify(segments, self.notes, self.key, see=see)

    def with_lines(self, lines: Sequence[bytes]) -> "MemoryLog":
        """Return the same files with other lines in them, cut at the same places."""
        cut: list[list[bytes]] = []
        start = 0
        for number, old in enumerate(self.segments):
            last = number == len(self.segments) - 1
            end = len(lines) if last else start + len(old)
            cut.append(list(lines[start:end]))
            start = end
        return MemoryLog(segments=cut, notes=list(self.notes), key=self.key)


def make_log(
    entries: Iterable[AuditEntry], *, segment: int = 8, every: int = 5
) -> MemoryLog:
    """Create a log with files of ``segment`` lines, signed after ``every`` lines.

    The end of each file is signed, too, as a writer does.
    """
    tail = Tail(KEY.name)
    log = MemoryLog(segments=[], notes=[])

    def put(line: bytes) -> None:
        log.segments[-1].append(line)
        tail.take(line)
        if tail.size % every == 0 or len(log.segments[-1]) == segment:
            log.notes.append(sign_head(tail.head(NOW), KEY, SIGNING.sign))

    for number, each in enumerate(entries):
        now = NOW + timedelta(seconds=number)
        if not log.segments or len(log.segments[-1]) == segment:
            line = tail.next_segment(now)
            log.segments.append([])
            put(line)
        put(tail.next_record(each, now=now, key=ORGANISATION))
    if tail.size % every and len(log.segments[-1]) < segment:
        log.notes.append(sign_head(tail.head(NOW), KEY, SIGNING.sign))
    return log
