"""The audit record: what was decided about a query, without a word of it.

A record is one line of canonical JSON (sorted keys, no spaces, ASCII only)
and names the line before it by hash, so that an edit, a gap or a new order
shows. It holds class names and counts, ids and digests; the payload is named
by an HMAC under the organisation's key alone, since a bare hash of a short
question can be guessed. Reads no clock and no file.

Three kinds of lines make a log. A ``SegmentStart`` is the first line of each
file and binds it to the file before; an ``AuditRecord`` is one decision; a
``ReceiptLine`` is an enclave's receipt for what a record let out. A receipt names
question and answer by values that need a secret of the organisation to check.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, cast

from curtilage.attest.receipt import PUBLIC_KEY_BYTES, RECEIPT_BYTES
from curtilage.policy.decision.classes import UNCERTAIN_ERROR
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.findings import Finding
from curtilage.policy.decision.routes import Route
from curtilage.policy.errors import AuditRefusedError, AuditStep

VERSION: Final = 1
HASH_BYTES: Final = 32
KEY_BYTES: Final = 32
QUERY_ID_BYTES: Final = 8
RECEIPT_ID_BYTES: Final = 16
# A record of a hundred classes has about 4 KiB; a start holds 63 hashes.
MAX_LINE_BYTES: Final = 64 * 1024
MAX_COUNT: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

_CHAIN_LABEL: Final = b"curtilage/audit/chain/v1\n"
_GENESIS_LABEL: Final = b"curtilage/audit/genesis/v1\n"
_COMMIT_LABEL: Final = b"curtilage/audit/payload/v1\n"
_RECEIPT_KEY_LABEL: Final = b"curtilage/receipt-key/v1\0"
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_TIME_SHAPE: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z", re.ASCII
)
_CLASS: Final = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*)+", re.ASCII)
# Rule ids, verdict ids, failure reasons, log ids, policy digests: never free text.
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]*", re.ASCII)
_NAME_CHARS: Final = 128
_DECISION: Final = "decision"
_SEGMENT: Final = "segment"
_RECEIPT: Final = "receipt"


class Outcome(StrEnum):
    """What became of a query, as far as this record tells.

    ``ENCLAVE`` is written before the query is sealed: it says that it may have
    left, never that it was answered. ``CUT`` follows an answer that began at
    the enclave and broke off. ``HOUSE`` is written before a server in the house is told
    it. ``COVER`` is a request that no query stands behind,
    ``CHALLENGE`` asks the enclave for fresh evidence and says nothing else:
    whatever left without a record of one of the three kinds is a leak.

    The last four tell what became of a query besides, each in a record of its own, so
    that none of them hides where it was answered or sent. ``QUEUED``: it waits on this
    device; what is asked when it no longer waits is a query with records of its own,
    and the same commitment. ``ESCALATED``: an answer of the house was not good enough,
    and another tier is to be asked; its own record follows. ``REPLACED``: text that had
    been shown was taken back, and another answer stands in its place. ``DEGRADED``: the
    answer is complete and less than what was chosen: by another tier, or of a part.
    """

    LOCAL = "local"
    HOUSE = "house"
    ENCLAVE = "enclave"
    BLOCKED = "blocked"
    CUT = "cut"
    COVER = "cover"
    CHALLENGE = "challenge"
    QUEUED = "queued"
    ESCALATED = "escalated"
    REPLACED = "replaced"
    DEGRADED = "degraded"


TELLING: Final = frozenset(
    {Outcome.ENCLAVE, Outcome.HOUSE, Outcome.COVER, Outcome.CHALLENGE}
)
"""What somebody else is told by; recorded before that, or it does not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What the caller knows of one step, before it has a place in the log.

    Attributes:
        query: 16 hex digits, drawn for each query; joins the records of one.
        attempt: from 1, counts the records of one query.
        policy: the policy's digest.
        classes: how often each data class was found, ``uncertain.*`` too.
        route: what the policy permits.
        outcome: where it was answered or sent.
        rule: the id of the rule that decided.
        verdict: id of the evidence relied upon; empty unless it was sent.
        fallback: why the tier that was chosen does not answer, or not all of it;
            empty where nothing failed.
        messages: how many messages the query has.
        payload_digest: SHA-256 of the payload; never written as it is.
        approved: SHA-256 of each text in it that the policy approves, in hex, sorted.
    """

    query: str
    attempt: int
    policy: str
    classes: Mapping[str, int]
    route: Route
    outcome: Outcome
    rule: str
    verdict: str = ""
    fallback: str = ""
    messages: int
    payload_digest: bytes = field(repr=False)
    approved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One decision, at its place in the log.

    Attributes:
        seq: from 0, counts every line of the log.
        prev: ``chain_hash`` of the line before, hex.
        time: when it was written, aware UTC, by the writer's own clock.
        commitment: ``commit`` of the payload, hex.
        query: see ``AuditEntry``, as are all that follow.
    """

    seq: int
    prev: str
    time: datetime
    commitment: str
    query: str
    attempt: int
    policy: str
    classes: Mapping[str, int]
    route: Route
    outcome: Outcome
    rule: str
    verdict: str
    fallback: str
    messages: int
    approved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStart:
    """The first line of a file of the log.

    Attributes:
        seq: from 0, counts every line of the log.
        prev: ``chain_hash`` of the last line of the file before, hex; of the
            first file, ``genesis_hash`` of the log.
        time: when the file was begun, aware UTC.
        log: the log's id.
        segment: the file's number, from 1.
        tree: the hashes, hex, that stand for all lines before this one (see
            ``attest.log.tree.Frontier``), so that a writer need not read them all.
    """

    seq: int
    prev: str
    time: datetime
    log: str
    segment: int
    tree: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptEntry:
    """A receipt that was verified, before it has a place in the log.

    Attributes:
        query: of the record that let the question out.
        attempt: of the same record.
        receipt_id: 16 bytes, what ``receipt_secret`` was made from.
        public_key: the key that the evidence bound, 32 bytes.
        receipt: as it came, 235 bytes.
    """

    query: str
    attempt: int
    receipt_id: bytes
    public_key: bytes
    receipt: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptLine:
    """A receipt, at its place in the log.

    Attributes:
        seq: from 0, counts every line of the log.
        prev: ``chain_hash`` of the line before, hex.
        time: when it was written, aware UTC.
        query: see ``ReceiptEntry``.
        attempt: see ``ReceiptEntry``.
        receipt_id: hex.
        public_key: hex.
        receipt: hex.
    """

    seq: int
    prev: str
    time: datetime
    query: str
    attempt: int
    receipt_id: str
    public_key: str
    receipt: str = field(repr=False)


Line = AuditRecord | SegmentStart | ReceiptLine


def receipt_secret(key: bytes, receipt_id: bytes) -> bytes:
    """Return the secret that a receipt's values are made with, 32 bytes.

    Only those have it who hold the organisation's key, and the enclave for
    the one request that it came with.

    Raises:
        ValueError: the key is not 32 bytes or the id not 16.
    """
    if len(key) != KEY_BYTES or len(receipt_id) != RECEIPT_ID_BYTES:
        raise ValueError(f"a key of {KEY_BYTES} and an id of {RECEIPT_ID_BYTES} bytes")
    return hmac.digest(key, _RECEIPT_KEY_LABEL + receipt_id, "sha256")


def commit(key: bytes, payload_digest: bytes) -> str:
    """Return HMAC-SHA256 of a payload's digest under the organisation's key.

    Equal payloads have equal commitments: whoever holds the payload and the
    key can find it in the log; whoever holds the log alone cannot guess it.

    Raises:
        ValueError: the key or the digest is not 32 bytes.
    """
    if len(key) != KEY_BYTES or len(payload_digest) != HASH_BYTES:
        raise ValueError(f"key and digest have {KEY_BYTES} bytes each")
    return hmac.digest(key, _COMMIT_LABEL + payload_digest, "sha256").hex()


def chain_hash(line: bytes) -> str:
    """Return the hash by which the next line names this one; no newline in it."""
    return hashlib.sha256(_CHAIN_LABEL + line).hexdigest()


def genesis_hash(log: str) -> str:
    """Return what the first line of a log names instead of a line before."""
    return hashlib.sha256(_GENESIS_LABEL + log.encode()).hexdigest()


def record_of(
    entry: AuditEntry, *, seq: int, prev: str, now: datetime, key: bytes
) -> AuditRecord:
    """Give an entry its place in the log.

    Args:
        entry: what was decided.
        seq: the number of the line.
        prev: ``chain_hash`` of the line before.
        now: aware; written as UTC, to the microsecond.
        key: the organisation's key, 32 bytes.
    """
    return AuditRecord(
        seq=seq,
        prev=prev,
        time=now.astimezone(UTC),
        commitment=commit(key, entry.payload_digest),
        query=entry.query,
        attempt=entry.attempt,
        policy=entry.policy,
        classes=entry.classes,
        route=entry.route,
        outcome=entry.outcome,
        rule=entry.rule,
        verdict=entry.verdict,
        fallback=entry.fallback,
        messages=entry.messages,
        approved=entry.approved,
    )


def receipt_line_of(
    entry: ReceiptEntry, *, seq: int, prev: str, now: datetime
) -> ReceiptLine:
    """Give a receipt its place in the log; see ``record_of``."""
    return ReceiptLine(
        seq=seq,
        prev=prev,
        time=now.astimezone(UTC),
        query=entry.query,
        attempt=entry.attempt,
        receipt_id=entry.receipt_id.hex(),
        public_key=entry.public_key.hex(),
        receipt=entry.receipt.hex(),
    )


def histogram(
    findings: Iterable[Finding], decision: Decision, known: Container[str]
) -> dict[str, int]:
    """Count what was found, by class, sorted.

    What an exclusion of the policy passed over counts too: the log tells what
    was there. A name that is no class could be content; it is counted as
    ``uncertain.error``, as the decision did.

    Args:
        findings: what was found.
        decision: what followed from it.
        known: the policy's classes.
    """
    counts = dict.fromkeys((*decision.classes, *decision.uncertain), 0)
    for each in findings:
        counted = each.data_class if each.data_class in known else UNCERTAIN_ERROR
        counts[counted] = counts.get(counted, 0) + 1
    return {name: max(counts[name], 1) for name in sorted(counts)}


def encode_line(line: Line) -> bytes:
    """Encode a line canonically, without its newline.

    Raises:
        ValueError: a field holds what could be free text, or is out of bounds.
    """
    fields: dict[str, object] = {
        "v": VERSION,
        "seq": _count(line.seq),
        "prev": _hash(line.prev),
        "time": time_text(line.time),
    }
    if isinstance(line, SegmentStart):
        fields |= {
            "kind": _SEGMENT,
            "log": _word(line.log),
            "segment": _count(line.segment),
            "tree": [_hash(each) for each in line.tree],
        }
    elif isinstance(line, ReceiptLine):
        fields |= {
            "kind": _RECEIPT,
            "query": _hex(line.query, QUERY_ID_BYTES),
            "attempt": _count(line.attempt),
            "id": _hex(line.receipt_id, RECEIPT_ID_BYTES),
            "key": _hex(line.public_key, PUBLIC_KEY_BYTES),
            "receipt": _hex(line.receipt, RECEIPT_BYTES),
        }
    else:
        # A class's name comes from whoever found it: what is no name could be a word
        # of the query, and is refused as every other field that could be free text.
        for name in line.classes:
            _require(len(name) <= _NAME_CHARS and _CLASS.fullmatch(name) is not None)
        fields |= {
            "kind": _DECISION,
            "commitment": _hash(line.commitment),
            "query": _hex(line.query, QUERY_ID_BYTES),
            "attempt": _count(line.attempt),
            "policy": _word(line.policy),
            "classes": {name: _count(n) for name, n in line.classes.items()},
            "route": line.route.value,
            "outcome": line.outcome.value,
            "rule": _word(line.rule),
            "verdict": line.verdict and _word(line.verdict),
            "fallback": line.fallback and _word(line.fallback),
            "messages": _count(line.messages),
        }
        # There where it says something: older records have no such field, and a record
        # has one spelling.
        if line.approved:
            fields["approved"] = [_hash(each) for each in line.approved]
    return _ENCODER.encode(fields).encode("ascii")


def parse_line(data: bytes) -> Line:
    """Parse a line, and accept its one canonical spelling only.

    Raises:
        AuditRefusedError: anything else; says nothing of what stood there.
    """
    if len(data) > MAX_LINE_BYTES:
        raise _not_a_record()
    try:
        value: object = json.loads(data.decode("ascii"))
        line = _line_of(value)
        canonical = encode_line(line) == data
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise _not_a_record() from None
    if not canonical:
        raise _not_a_record()
    return line


def time_text(time: datetime) -> str:
    """Write a time as the records do: UTC, microseconds, ``Z``."""
    return f"{time.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_time(text: str) -> datetime:
    """Read a time as ``time_text`` writes it.

    Raises:
        ValueError: it is written otherwise.
    """
    if _TIME_SHAPE.fullmatch(text) is None:
        raise ValueError("not a time of this log")
    return datetime.fromisoformat(text)


def _not_a_record() -> AuditRefusedError:
    return AuditRefusedError(AuditStep.FORM, "not a record in its canonical form")


def _line_of(value: object) -> Line:
    """Build a line; whatever is missing, unknown or odd shows when encoded."""
    # No check beyond types here: ``parse_line`` encodes what came out and compares,
    # so each field's bounds stand in one place.
    fields = cast("dict[str, object]", value)
    if fields["kind"] == _SEGMENT:
        return SegmentStart(
            seq=_count(fields["seq"]),
            prev=_text(fields["prev"]),
            time=parse_time(_text(fields["time"])),
            log=_text(fields["log"]),
            segment=_count(fields["segment"]),
            tree=tuple(map(_text, cast("list[object]", fields["tree"]))),
        )
    if fields["kind"] == _RECEIPT:
        return ReceiptLine(
            seq=_count(fields["seq"]),
            prev=_text(fields["prev"]),
            time=parse_time(_text(fields["time"])),
            query=_text(fields["query"]),
            attempt=_count(fields["attempt"]),
            receipt_id=_text(fields["id"]),
            public_key=_text(fields["key"]),
            receipt=_text(fields["receipt"]),
        )
    classes = cast("dict[str, object]", fields["classes"])
    return AuditRecord(
        seq=_count(fields["seq"]),
        prev=_text(fields["prev"]),
        time=parse_time(_text(fields["time"])),
        commitment=_text(fields["commitment"]),
        query=_text(fields["query"]),
        attempt=_count(fields["attempt"]),
        policy=_text(fields["policy"]),
        classes={name: _count(count) for name, count in classes.items()},
        route=Route(_text(fields["route"])),
        outcome=Outcome(_text(fields["outcome"])),
        rule=_text(fields["rule"]),
        verdict=_text(fields["verdict"]),
        fallback=_text(fields["fallback"]),
        messages=_count(fields["messages"]),
        approved=tuple(map(_text, cast("list[object]", fields.get("approved", [])))),
    )


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError("a field of the record is not what it should be")


def _text(value: object) -> str:
    _require(isinstance(value, str))
    return cast("str", value)


def _count(value: object) -> int:
    # ``type``: in Python, true is an int, and would be written as such.
    _require(type(value) is int and 0 <= value <= MAX_COUNT)
    return cast("int", value)


def _word(value: str) -> str:
    _require(_WORD.fullmatch(value) is not None)
    return value


def _hash(value: str) -> str:
    return _hex(value, HASH_BYTES)


def _hex(value: str, size_bytes: int) -> str:
    _require(len(value) == 2 * size_bytes and _HEX.fullmatch(value) is not None)
    return value
