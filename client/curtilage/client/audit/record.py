"""The audit record: the decision about a query, without any of its text.

A record is one line of canonical JSON (sorted keys, no spaces, ASCII only) and contains
the hash of the line before it, so that edits, gaps and reordering are detected. It
holds class names and counts, ids and digests; the payload is identified only by an HMAC
under the organisation's key, since a bare hash of a short question can be guessed.
This module reads no clock and no file.

A log has three kinds of lines. A ``SegmentStart`` is the first line of each file and
binds it to the file before; an ``AuditRecord`` is one decision; a ``ReceiptLine`` is an
enclave's receipt for a recorded request. A receipt identifies question and answer by
values that can only be checked with a secret of the organisation.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Self, cast

from typing_extensions import override

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
# A record with a hundred classes has about 4 KiB; a start holds 63 hashes.
MAX_LINE_BYTES: Final = 64 * 1024
MAX_COUNT: Final = 2**53 - 1
"""The largest integer that every JSON parser keeps exactly."""

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
APPLICATION_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""Names of a gateway's applications; in its keys and in the records."""
_HEX: Final = re.compile(r"[0-9a-f]*", re.ASCII)
_NAME_CHARS: Final = 128
_DECISION: Final = "decision"
_SEGMENT: Final = "segment"
_RECEIPT: Final = "receipt"


class Outcome(StrEnum):
    """The outcome of a query, as far as this record shows.

    ``ENCLAVE`` is written before the query is sealed: it means that it may have been
    sent, never that it was answered. ``CUT`` follows an answer from the enclave that
    began and broke off. ``ON_PREMISES`` is written before a payload is sent to an
    on-premises server. ``COVER`` is a request that belongs to no query, and
    ``CHALLENGE`` asks the enclave for fresh evidence and contains nothing else:
    a request on the wire without a record of its kind is a leak.

    The last four add information about a query, each in a record of its own, so that
    none of them hides where it was answered or sent. ``QUEUED``: it waits on this
    device; when it is sent later, that is a query with records of its own and the
    same commitment. ``ESCALATED``: the local model's draft was rejected,
    and another tier is tried next; its own record follows. ``REPLACED``: text that had
    been shown was withdrawn, and another answer replaces it. ``DEGRADED``: the
    answer is complete, but not as chosen: from another tier, or about a part only.
    """

    LOCAL = "local"
    ON_PREMISES = "house"  # records are signed: this word of the format stays
    ENCLAVE = "enclave"
    BLOCKED = "blocked"
    CUT = "cut"
    COVER = "cover"
    CHALLENGE = "challenge"
    QUEUED = "queued"
    ESCALATED = "escalated"
    REPLACED = "replaced"
    DEGRADED = "degraded"

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        return cls("house") if value == "on_premises" else None


INVALID_FIELD: Final = "a field of the record has an invalid value"
SENDING: Final = frozenset(
    {Outcome.ENCLAVE, Outcome.ON_PREMISES, Outcome.COVER, Outcome.CHALLENGE}
)
"""Outcomes that disclose something; recorded first, or nothing is disclosed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """The caller's data about one step, before it has a place in the log.

    Attributes:
        query: 16 hex digits, drawn for each query; shared by all its records.
        attempt: counts the records of one query, from 1.
        policy: the policy's digest.
        classes: how often each data class was found, ``uncertain.*`` too.
        route: what the policy permits.
        outcome: where it was answered or sent.
        rule: the id of the rule that decided.
        verdict: id of the evidence relied upon; empty unless it was sent.
        fallback: why the chosen tier does not answer, or only in part; empty if
            nothing failed.
        messages: number of messages in the query.
        payload_digest: SHA-256 of the payload; never written in this form.
        approved: SHA-256 of each text in it that the policy approves, in hex, sorted.
        application: that asked, by its name in the gateway's file; empty: no gateway.
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
    application: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One decision, with its place in the log.

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
    application: str = ""


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
        tree: the hashes, hex, that represent all lines before this one (see
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
    """A verified receipt, before it has a place in the log.

    Attributes:
        query: of the record that permitted the request.
        attempt: of the same record.
        receipt_id: 16 bytes; ``receipt_secret`` was derived from it.
        public_key: the key that the evidence bound, 32 bytes.
        receipt: as received, 235 bytes.
    """

    query: str
    attempt: int
    receipt_id: bytes
    public_key: bytes
    receipt: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptLine:
    """A receipt, with its place in the log.

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
    """Return the secret that a receipt's values are computed with, 32 bytes.

    It is known to holders of the organisation's key, and to the enclave for the request
    that it was sent with.

    Raises:
        ValueError: the key is not 32 bytes or the id not 16.
    """
    if len(key) != KEY_BYTES or len(receipt_id) != RECEIPT_ID_BYTES:
        raise ValueError(f"a key of {KEY_BYTES} and an id of {RECEIPT_ID_BYTES} bytes")
    return hmac.digest(key, _RECEIPT_KEY_LABEL + receipt_id, "sha256")


def commit(key: bytes, payload_digest: bytes) -> str:
    """Return HMAC-SHA256 of a payload's digest under the organisation's key.

    Equal payloads have equal commitments: with the payload and the key, it can be found
    in the log; from the log alone, it cannot be guessed.

    Raises:
        ValueError: the key or the digest is not 32 bytes.
    """
    if len(key) != KEY_BYTES or len(payload_digest) != HASH_BYTES:
        raise ValueError(f"key and digest have {KEY_BYTES} bytes each")
    return hmac.digest(key, _COMMIT_LABEL + payload_digest, "sha256").hex()


def chain_hash(line: bytes) -> str:
    """Return the hash of a line, without its newline, for the next line."""
    return hashlib.sha256(_CHAIN_LABEL + line).hexdigest()


def genesis_hash(log: str) -> str:
    """Return the value that a log's first line contains instead of a hash."""
    return hashlib.sha256(_GENESIS_LABEL + log.encode()).hexdigest()


def record_of(
    entry: AuditEntry, *, seq: int, prev: str, now: datetime, key: bytes
) -> AuditRecord:
    """Turn an entry into a record at its place in the log.

    Args:
        entry: the decision.
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
        application=entry.application,
    )


def receipt_line_of(
    entry: ReceiptEntry, *, seq: int, prev: str, now: datetime
) -> ReceiptLine:
    """Turn a receipt into a line at its place in the log; see ``record_of``."""
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
    """Count the findings, by class, sorted.

    Findings covered by an exclusion of the policy count too: the log records what was
    found. A name that is not a class could be content; it is counted as
    ``uncertain.error``, as the decision did.

    Args:
        findings: the findings.
        decision: the decision about them.
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
        ValueError: a field contains what could be free text, or is out of bounds.
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
        # The name of a class comes from a detector: anything else could be a word of
        # the query, and is refused like any other field that could be free text.
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
        # Only if not empty: older records have no such fields, and each record has one
        # spelling.
        if line.approved:
            fields["approved"] = [_hash(each) for each in line.approved]
        if line.application:
            _require(APPLICATION_NAME.fullmatch(line.application) is not None)
            fields["application"] = line.application
    return _ENCODER.encode(fields).encode("ascii")


def parse_line(data: bytes) -> Line:
    """Parse a line; accept only its canonical spelling.

    Raises:
        AuditRefusedError: anything else; the message contains nothing of it.
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
    """Format a time as in the records: UTC, microseconds, ``Z``."""
    return f"{time.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_time(text: str) -> datetime:
    """Parse a time as formatted by ``time_text``.

    Raises:
        ValueError: it has another format.
    """
    if _TIME_SHAPE.fullmatch(text) is None:
        raise ValueError("not a time of this log")
    return datetime.fromisoformat(text)


def _not_a_record() -> AuditRefusedError:
    return AuditRefusedError(AuditStep.FORM, "not a record in its canonical form")


def _line_of(value: object) -> Line:
    """Build a line; missing, unknown or invalid fields are detected when encoding."""
    # Only types are checked here: ``parse_line`` encodes the result and compares, so
    # each field's limits are defined in one place.
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
        application=_text(fields.get("application", "")),
    )


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError(INVALID_FIELD)


def _text(value: object) -> str:
    _require(isinstance(value, str))
    return cast("str", value)


def _count(value: object) -> int:
    # ``type``: in Python, True is an int, and would be written as one.
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
