"""History of the release logs that this client has seen, kept across restarts.

A verified bundle shows a log at two sizes, with the proof that one continues the other.
Three checks are made against everything seen before: two roots for one size are a fork;
a proof that does not verify means two logs; and a log has shrunk if it is smaller at a
later time, or smaller for the same second. Two bundles at different sizes carry no
proof that the later tree continues the earlier one; an auditor who has a copy of the
log can compare them (``curtilage release audit``).

Stored in one small file for each log, named by its key, in the audit log's directory.
The file shows which releases' logs were seen and when, and nothing about questions.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from curtilage.attest.encoding.strict_json import (
    canonical_json,
    encode_base64,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence_json import parse_bundle
from curtilage.attest.log.heads import (
    MAX_HISTORY_BYTES,
    HeadHistory,
    TreeHead,
    parse_history,
)
from curtilage.attest.log.note import parse_checkpoint, parse_proof
from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.system.files import locked, write_private_atomically

FORMAT: Final = "curtilage/log-memory/v1"
LOCK_S: Final = 2.0
"""Longest wait for another process; then the history is kept in memory only."""
_TEXT_LIMIT: Final = 256
_MAX_BYTES: Final = 2 * MAX_HISTORY_BYTES
"""Largest file: its heads with every quotation mark escaped, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One verified bundle's view of its log.

    Attributes:
        proof: the tree in which the release was proven.
        anchor: the tree that witnesses vouched for last.
        consistency: the proof from the smaller to the larger.
        time: when a quorum of witnesses last saw the anchor, Unix seconds.
    """

    proof: TreeHead
    anchor: TreeHead
    consistency: tuple[bytes, ...]
    time: int


def view_of(bundle: bytes, key: VerifiedKey) -> LogView:
    """Return a bundle's view of its log.

    The time is taken from the witnesses: the maker of the bundle chooses the time in
    the bundle, which may be any earlier one.

    Args:
        bundle: accepted by ``verify``; nothing is verified here.
        key: the result of that verification.

    Raises:
        RefusedError: the bundle is malformed.
    """
    parsed = parse_bundle(bundle)
    proof = parse_proof(parsed.release.proof)
    notes = (proof.checkpoint, parsed.anchor.checkpoint)
    proven, anchor = (TreeHead.of(parse_checkpoint(note)[1]) for note in notes)
    return LogView(
        proof=proven,
        anchor=anchor,
        consistency=parsed.anchor.consistency,
        time=int(key.anchor_vouched.timestamp()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLog:
    """History of one log; immutable, each change returns a new one.

    Attributes:
        heads: sizes and roots.
        time: of the latest anchor, Unix seconds; 0 if none was seen.
        size: of the anchor's tree.
    """

    heads: HeadHistory = field(default_factory=HeadHistory)
    time: int = 0
    size: int = 0

    def taken(self, view: LogView) -> "SeenLog":
        """Return the history with one more verified bundle added.

        Raises:
            RefusedError: ``proof_invalid``: it is not the log seen before.
        """
        # A fork: two roots for one size, or two sizes that no proof connects. A party
        # that shows this client two logs in turn is caught here; one that shows two
        # clients different logs is caught when their copies are compared.
        heads = self.heads.linked(view.proof, view.anchor, view.consistency)
        # Within one second, what was shown first counts as the earlier state.
        if view.time == self.time and view.anchor.size < self.size:
            raise _shrunk(self.size, view.anchor.size)
        return self._at(heads, view.time, view.anchor.size)

    def joined(self, other: "SeenLog") -> "SeenLog":
        """Return the union of two histories.

        Raises:
            RefusedError: ``proof_invalid``: they saw two logs.
        """
        # Without a proof between them, only two roots of one size can be detected.
        heads = self.heads.seen(*other.heads.heads)
        return self._at(heads, other.time, other.size)

    def _at(self, heads: HeadHistory, time: int, size: int) -> "SeenLog":
        # By time first: bundles arrive in any order, and a smaller log that is older
        # has not shrunk.
        earlier, later = sorted(((self.time, self.size), (time, size)))
        if later[1] < earlier[1]:
            raise _shrunk(earlier[1], later[1])
        return SeenLog(heads=heads, time=later[0], size=later[1])

    def encode(self) -> bytes:
        """Encode for storing: canonical JSON."""
        # In base64: brackets inside a string would count when it is parsed.
        heads = encode_base64(self.heads.encode())
        return canonical_json(
            {"format": FORMAT, "heads": heads, "size": self.size, "time": self.time}
        )


def parse_seen_log(data: bytes) -> SeenLog:
    """Parse a stored history.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``unsupported_version``;
            ``proof_invalid`` where it names two roots of one size.
    """
    fields = parse_object(data, where="log memory", limit_bytes=_MAX_BYTES)
    fields.require(("format", "heads", "size", "time"))
    if fields.text("format", limit=_TEXT_LIMIT) != FORMAT:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, "log memory: another form")
    heads = fields.octets("heads", limit=MAX_HISTORY_BYTES)
    return SeenLog(
        heads=parse_history(heads),
        time=fields.integer("time"),
        size=fields.integer("size"),
    )


def _shrunk(earlier: int, later: int) -> RefusedError:
    return RefusedError(
        RefusalCode.PROOF_INVALID,
        f"the log has shrunk: {earlier} leaves, later {later}",
    )


def log_name(public_key: bytes) -> str:
    """Return the id under which a log's history is kept: 16 hex digits of its key."""
    # By its key: a log under another name is still the same log.
    return hashlib.sha256(public_key).hexdigest()[:16]


class KeepsLogHistory(Protocol):
    """Persistent storage of log histories."""

    def load(self, name: str) -> SeenLog:
        """Return the stored history of a log; empty if there is none.

        Raises:
            RefusedError: the stored history cannot be read.
        """
        ...

    def add(self, name: str, memory: SeenLog) -> None:
        """Store a history, merged with what was stored meanwhile.

        Raises:
            RefusedError: ``proof_invalid``: the stored history is of another log.
        """
        ...


class LogHistoryFiles:
    """Histories stored in a directory, which must exist.

    Args:
        path: the audit log's directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, name: str) -> SeenLog:
        """Return the stored history of a log; empty if there is none.

        Raises:
            RefusedError: ``proof_invalid``: the file exists and cannot be read. It is
                never discarded automatically: an administrator must delete it.
        """
        # Unreadable is not empty: otherwise damaging the file would make this client
        # forget the log.
        path = self._file(name)
        try:
            with path.open("rb") as file:
                return parse_seen_log(file.read(_MAX_BYTES + 1))
        except FileNotFoundError:
            return SeenLog()
        except (OSError, RefusedError):
            raise RefusedError(
                RefusalCode.PROOF_INVALID,
                f"the history of the log cannot be read: {path.name}",
            ) from None

    def add(self, name: str, memory: SeenLog) -> None:
        """Store a history, merged with what other processes stored meanwhile.

        If it cannot be written, this process still keeps it in memory. The audit trail
        is in the same directory: without a record there, nothing is sent.

        Raises:
            RefusedError: ``proof_invalid``: they saw another log.
        """
        # Read again under the lock: another process may have stored more in the
        # meantime, and nothing of it may be lost.
        path = self._file(name)
        with suppress(OSError), locked(path.with_suffix(".lock"), LOCK_S):
            joined = self.load(name).joined(memory)
            with write_private_atomically(path) as file:
                file.write(joined.encode())

    def _file(self, name: str) -> Path:
        return self._path / f"log-{name}.json"


class LogHistory:
    """The histories of all logs that this process uses.

    Args:
        kept: persistent storage; None: in memory only.
    """

    def __init__(self, kept: KeepsLogHistory | None = None) -> None:
        self._kept = kept
        self._seen: dict[str, SeenLog] = {}

    def check(self, public_key: bytes, view: LogView) -> Callable[[], None]:
        """Check a verified bundle's log against the history.

        Args:
            public_key: of the log.
            view: what the bundle shows.

        Returns:
            A function that records it; it raises like this one, if another process
            has seen another log meanwhile.

        Raises:
            RefusedError: ``proof_invalid``; nothing is recorded.
        """
        name = log_name(public_key)
        before = self._seen.get(name, SeenLog())
        # Both, since each may know more: the file has what other processes saw, memory
        # has what could not be written.
        kept = SeenLog() if self._kept is None else self._kept.load(name)
        memory = kept.joined(before).taken(view)

        # Recorded by the caller, once all other checks have passed: a refused bundle
        # must leave no trace, or it could cause the next one to be refused.
        def keep() -> None:
            if self._kept is not None and memory != kept:
                self._kept.add(name, memory)
            self._seen[name] = memory

        return keep
