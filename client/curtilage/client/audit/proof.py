"""Proofs of claims about an audit log: counts over every record, as a document.

"No health data went to the enclave in the second quarter" is a claim: a condition on
classes, an outcome, a period. Its proof is the count over a log whose chain and
checkpoints were verified, the checkpoint that signs this log, and for each record that
fulfils the claim its number and its path to the signed root. The absence of records
cannot be proven without the log: anyone who has the log can count again and must obtain
the same document.

Classes count if they were found, however weakly, also if an exclusion of the policy
covered them: too many rather than too few. The same holds for time: where the clock
went back, records count that are in the period by position (``span``), and the proof
states how many are there only by position.
"""

import base64
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.tree import Tree, hash_leaf, root_from_inclusion
from curtilage.client.audit.checkpoint import AuditHead, encode_key, verify_head
from curtilage.client.audit.record import (
    AuditRecord,
    Line,
    Outcome,
    parse_line,
    parse_time,
    time_text,
)
from curtilage.client.audit.span import Span
from curtilage.policy.decision.classes import CLASSES, expand, is_own_class
from curtilage.policy.decision.conditions import MAX_SCORE, parse_condition
from curtilage.policy.errors import AuditRefusedError, AuditStep

FORMAT: Final = "curtilage/audit-proof/v1"
MAX_PROOF_BYTES: Final = 64 * 1024 * 1024
MAX_PATHS: Final = 10_000
"""With more matching records, only their count is reported, without paths."""
IN_NO_RECORD: Final = "is in no record of the log"
NONE_DECIDED: Final = "no decision was made in this time"

_OWN_NAME: Final = re.compile(r"org\.(?:dictionary|edm)\.[a-z][a-z0-9_]*", re.ASCII)
_COUNTED: Final = (
    *("records", "with_class", "with_outcome"),
    *("matching", "matching_about_somebody"),
)
_BY_POSITION: Final = "records_by_position"
_SOMEBODY: Final = parse_condition("identifier.* | marker.first_person")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim to be counted.

    Attributes:
        when: a condition on classes, in the language of a policy's ``when``.
        outcome: where the query was answered or sent.
        since: the earliest time, aware, or None.
        until: the time before which, aware, or None.
    """

    when: str
    outcome: Outcome
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid condition, such as one with a mistyped class.

        Raises:
            ValueError: with what is wrong.
        """
        parse_condition(self.when, own=self.own_classes)

    @property
    def own_classes(self) -> frozenset[str]:
        """The classes of a policy's own detectors that the condition names."""
        return frozenset(_OWN_NAME.findall(self.when))


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One record that fulfils a claim.

    Attributes:
        seq: its number.
        line: the record as written in the log; empty beyond ``MAX_PATHS``.
    """

    seq: int
    line: bytes


def when_of_classes(patterns: list[str]) -> str:
    """Turn names of classes into a ``when`` condition.

    A name is a class, a pattern, or a branch of the tree: ``health`` means
    ``health.* | topic.health``.

    Raises:
        ValueError: a name matches nothing; a mistyped name must never be counted as
            zero.
    """
    parts: list[str] = []
    for pattern in patterns:
        if "." in pattern:
            # Raises if it is not a class; a policy's own classes are known by their
            # form.
            own = frozenset({pattern}) if is_own_class(pattern) else frozenset[str]()
            expand(pattern, own=own)
            parts.append(pattern)
            continue
        known = len(parts)
        for part in (f"{pattern}.*", f"topic.{pattern}"):
            with suppress(ValueError):
                expand(part)
                parts.append(part)
        if len(parts) == known:
            raise ValueError(f"{pattern!r} names no data class and no branch of them")
    return " | ".join(parts)


class Counter:
    """Counts the records of a claim while a log is verified.

    Args:
        claim: what is counted.
        head: the checkpoint up to which is counted; later lines are skipped.
    """

    def __init__(self, claim: Claim, head: AuditHead) -> None:
        self.claim = claim
        self._head = head
        # Names that are in no tree: of a policy's own classes, or of another release.
        self._own = claim.own_classes
        self._condition = parse_condition(claim.when, own=self._own)
        self._hashes: list[bytes] = []
        self._ends: list[str] = []
        self._span = Span(since=claim.since, until=claim.until)
        # Records that may be in the period, and how many certainly are: of lines that
        # seem too late, a later one may show that the clock was wrong.
        self._open = dict.fromkeys((*_COUNTED, _BY_POSITION), 0)
        self._sure = dict(self._open)
        self._matches: list[Match] = []
        self._never = set(claim.own_classes)

    @property
    def unseen(self) -> list[str]:
        """Return reasons why a count of zero may be misleading.

        A named class of a policy's own that is in no record of the log: it may be
        mistyped, or no detector looked for it. A period without a decision.
        """
        said = [f"{name} {IN_NO_RECORD}" for name in sorted(self._never)]
        found = self._sure["records"]
        return said if found else [*said, NONE_DECIDED]

    def see(self, line: Line, data: bytes) -> None:
        """Count one line; pass this method to ``verify_log``."""
        if line.seq >= self._head.size:
            return
        self._hashes.append(hash_leaf(data))
        self._ends = [*self._ends[:1], time_text(line.time)]
        begun = self._span.begun
        self._span.see(line)
        if self._span.reached_before:
            self._sure = dict(self._open)
        if begun and not self._span.begun:
            # The clock was wrong, and was corrected before the period began.
            self._open = dict.fromkeys(self._open, 0)
            self._sure = dict(self._open)
            self._matches.clear()
        if isinstance(line, AuditRecord):
            self._never -= line.classes.keys()
            if self._span.begun:
                self._count(line, data)
        if self._span.reached:
            self._sure = dict(self._open)

    def document(self, checkpoint: str, key: NoteKey) -> dict[str, object]:
        """Return the proof; only after ``verify_log`` accepted the whole log.

        Args:
            checkpoint: the text of the checkpoint up to which was counted.
            key: the log's key.
        """
        claim, span = self.claim, self._span
        clock: dict[str, object] = {}
        # How far times were trusted; omitted where the clock cannot have mattered.
        if span.ends and span.steps_back:
            by_position = self._sure[_BY_POSITION]
            clock = {"steps_back": span.steps_back, _BY_POSITION: by_position}
        matches = self._matches[: self._sure["matching"]]
        matching: list[dict[str, object]] = [{"seq": each.seq} for each in matches]
        # All with their paths or none: paths need a tree over every line.
        if 0 < len(matches) <= MAX_PATHS:
            tree = Tree(self._hashes)
            matching = [
                {
                    "seq": each.seq,
                    "record": each.line.decode("ascii"),
                    "path": [
                        base64.b64encode(node).decode()
                        for node in tree.inclusion(each.seq)
                    ],
                }
                for each in matches
            ]
        return {
            "format": FORMAT,
            "log": self._head.log,
            "key": encode_key(key),
            "claim": {
                "when": claim.when,
                "outcome": claim.outcome.value,
                "from": _optional(claim.since),
                "to": _optional(claim.until),
            },
            "range": {
                "first": 0,
                "last": self._head.size - 1,
                "begins": self._ends[0],
                "ends": self._ends[-1],
                "head": self._head.head,
            },
            "counted": {name: self._sure[name] for name in _COUNTED},
            **({"clock": clock} if clock else {}),
            "unseen": self.unseen,
            "checkpoint": checkpoint,
            "matching": matching,
        }

    def _count(self, line: AuditRecord, data: bytes) -> None:
        unknown = line.classes.keys() - CLASSES - self._own
        if unknown:
            # A pattern such as ``org.*`` includes them: rather too many.
            self._own |= unknown
            self._condition = parse_condition(self.claim.when, own=self._own)
        scores = dict.fromkeys(line.classes, MAX_SCORE)
        found = self._condition.holds(scores)
        there = line.outcome is self.claim.outcome
        self._open["records"] += 1
        self._open["with_class"] += found
        self._open["with_outcome"] += there
        self._open[_BY_POSITION] += not self._span.holds(line.time)
        if found and there:
            self._open["matching"] += 1
            self._open["matching_about_somebody"] += _SOMEBODY.holds(scores)
            shown = data if len(self._matches) < MAX_PATHS else b""
            self._matches.append(Match(seq=line.seq, line=shown))


def encode_proof(document: Mapping[str, object]) -> bytes:
    """Encode a proof: JSON, indented for readers, with sorted keys."""
    return json.dumps(document, indent=2).encode("ascii") + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A parsed proof: its claim and its content.

    Attributes:
        claim: the claim that was counted.
        fields: the whole document.
        checkpoint: the checkpoint that signs the log.
        head: the checkpoint's content.
    """

    claim: Claim
    fields: Mapping[str, object]
    checkpoint: str
    head: AuditHead


def parse_proof(data: bytes, key: NoteKey) -> Proof:
    """Parse a proof and check all that can be checked without the log.

    That is: its checkpoint is signed by ``key``, it covers exactly the lines that the
    checkpoint signs, and each record in it is in that log.

    Raises:
        AuditRefusedError: not a proof, or of another log, or a path fails.
    """
    if len(data) > MAX_PROOF_BYTES:
        raise _refused("too large")
    try:
        fields = cast(
            "dict[str, object]",
            json.loads(data.decode("ascii"), object_pairs_hook=_each_once),
        )
        asked = cast("dict[str, str | None]", fields["claim"])
        claim = Claim(
            when=str(asked["when"]),
            outcome=Outcome(str(asked["outcome"])),
            since=_time(asked["from"]),
            until=_time(asked["to"]),
        )
        checkpoint = str(fields["checkpoint"])
        size = cast("dict[str, int]", fields["range"])["last"] + 1
        matching = list(cast("list[dict[str, object]]", fields["matching"]))
        canonical = encode_proof(fields) == data
        known = fields["format"] == FORMAT
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise _refused("not an audit proof") from None
    if not known:
        raise _refused("not an audit proof")
    # One spelling for each proof, so that all parsers agree on its content.
    if not canonical:
        raise _refused("not in its canonical form")
    head = verify_head(checkpoint, key)
    if head.size != size:
        raise _refused("its checkpoint is of another size")
    for match in matching:
        _check_path(match, head)
    return Proof(claim=claim, fields=fields, checkpoint=checkpoint, head=head)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Some parsers take the first of two equal keys, others the last.
    if len({key for key, _ in pairs}) < len(pairs):
        raise _refused("a key is repeated in it")
    return dict(pairs)


def _check_path(match: Mapping[str, object], head: AuditHead) -> None:
    if "path" not in match:
        return
    try:
        record = str(match["record"]).encode("ascii")
        line = parse_line(record)
        path = [base64.b64decode(each) for each in cast("list[str]", match["path"])]
        reached = root_from_inclusion(
            index=line.seq, size=head.size, leaf_hash=hash_leaf(record), hashes=path
        )
    except (ValueError, TypeError, LookupError, RefusedError, AuditRefusedError):
        raise _refused("a record or a path in it is malformed") from None
    if reached != head.root or match["seq"] != line.seq:
        raise AuditRefusedError(
            AuditStep.CHECKPOINTS, "not in the log that was signed", record=line.seq
        )


def _optional(time: datetime | None) -> str | None:
    return None if time is None else time_text(time)


def _time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)


def _refused(detail: str) -> AuditRefusedError:
    return AuditRefusedError(AuditStep.CHECKPOINTS, f"proof: {detail}")
