"""What this client has seen of a release log, kept so that it cannot be unseen.

A verified bundle shows a log at two sizes, with the proof that one continues the
other. Three things are held against all that was seen before: a second root for
one size is a fork, a proof that does not hold is two logs, and a log that is
smaller at a later time, or is shown smaller for the same second, has shrunk. Two
bundles at different sizes bring no proof that the later tree continues the
earlier one; an auditor who has a copy of the log can compare them (``curtilage release
audit``).

Kept in one small file for each log, by its key, beside the audit log. The file
says which releases' logs were seen and when, and nothing of any question.
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
from curtilage.client.files import locked, write_private_atomically

FORMAT: Final = "curtilage/log-memory/v1"
LOCK_S: Final = 2.0
"""How long another process is waited for; then this one remembers by itself."""
_TEXT_LIMIT: Final = 256
_MAX_BYTES: Final = 2 * MAX_HISTORY_BYTES
"""Of a file: its heads with every quotation mark escaped, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What one verified bundle shows of its log.

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
    """Return what a bundle shows of its log.

    The time is the witnesses' own: the one that the bundle names may be any
    earlier one, and the maker of the bundle chooses it.

    Args:
        bundle: that ``verify`` accepted: nothing is verified here.
        key: what it accepted.

    Raises:
        RefusedError: it was another one.
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
    """What was seen of one log; every change is a new memory.

    Attributes:
        heads: sizes and roots.
        time: of the latest anchor, Unix seconds; 0 where none was seen.
        size: of the tree that it vouched for.
    """

    heads: HeadHistory = field(default_factory=HeadHistory)
    time: int = 0
    size: int = 0

    def taken(self, view: LogView) -> "SeenLog":
        """Return the memory with one more verified bundle in it.

        Raises:
            RefusedError: ``proof_invalid``: it is not the log that was seen.
        """
        # A fork is two roots for one size, or two sizes that no proof joins. Whoever
        # showed us one log yesterday and another today is caught here; who shows two
        # clients two logs is caught where their copies meet.
        heads = self.heads.linked(view.proof, view.anchor, view.consistency)
        # Within one second, what was shown first counts as what was there first.
        if view.time == self.time and view.anchor.size < self.size:
            raise _shrunk(self.size, view.anchor.size)
        return self._at(heads, view.time, view.anchor.size)

    def joined(self, other: "SeenLog") -> "SeenLog":
        """Return what either has seen.

        Raises:
            RefusedError: ``proof_invalid``: they saw two logs.
        """
        # Without a proof between them: what can be seen is two roots of one size.
        heads = self.heads.seen(*other.heads.heads)
        return self._at(heads, other.time, other.size)

    def _at(self, heads: HeadHistory, time: int, size: int) -> "SeenLog":
        # By time first: bundles reach us in any order, and a smaller log that is older
        # has not shrunk.
        earlier, later = sorted(((self.time, self.size), (time, size)))
        if later[1] < earlier[1]:
            raise _shrunk(earlier[1], later[1])
        return SeenLog(heads=heads, time=later[0], size=later[1])

    def encode(self) -> bytes:
        """Encode for storing: canonical JSON."""
        # In base64, since the brackets inside a string count when it is read again.
        heads = encode_base64(self.heads.encode())
        return canonical_json(
            {"format": FORMAT, "heads": heads, "size": self.size, "time": self.time}
        )


def parse_seen_log(data: bytes) -> SeenLog:
    """Read a stored memory.

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
    """Return the name by which a log is remembered: 16 hex digits of its key."""
    # By its key: a log that gives itself another name is still the one that was seen.
    return hashlib.sha256(public_key).hexdigest()[:16]


class KeepsLogHistory(Protocol):
    """Where memories outlive the process."""

    def load(self, name: str) -> SeenLog:
        """Return what was kept of a log; empty where nothing was.

        Raises:
            RefusedError: what was kept cannot be read.
        """
        ...

    def add(self, name: str, memory: SeenLog) -> None:
        """Keep what was seen, with what was kept meanwhile.

        Raises:
            RefusedError: ``proof_invalid``: what was kept is of another log.
        """
        ...


class LogHistoryFiles:
    """Memories in a directory, which is not made here.

    Args:
        path: the audit log's directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, name: str) -> SeenLog:
        """Return what was kept of a log; empty where nothing was.

        Raises:
            RefusedError: ``proof_invalid``: the file is there and cannot be read
                as what it was. To forget is a decision: somebody must delete it.
        """
        # Unreadable is not empty. Taken for empty, a damaged file would be a way to
        # make this client forget what it saw.
        path = self._file(name)
        try:
            with path.open("rb") as file:
                return parse_seen_log(file.read(_MAX_BYTES + 1))
        except FileNotFoundError:
            return SeenLog()
        except (OSError, RefusedError):
            raise RefusedError(
                RefusalCode.PROOF_INVALID,
                f"what was seen of the log cannot be read: {path.name}",
            ) from None

    def add(self, name: str, memory: SeenLog) -> None:
        """Keep what was seen, with what other processes have kept meanwhile.

        Where it cannot be written, this process still remembers. The audit trail
        is in the same directory: nothing leaves without a record written there.

        Raises:
            RefusedError: ``proof_invalid``: they saw another log.
        """
        # Read again under the lock: between our reading and this, another process may
        # have seen more, and nothing that was seen may be lost.
        path = self._file(name)
        with suppress(OSError), locked(path.with_suffix(".lock"), LOCK_S):
            joined = self.load(name).joined(memory)
            with write_private_atomically(path) as file:
                file.write(joined.encode())

    def _file(self, name: str) -> Path:
        return self._path / f"log-{name}.json"


class LogHistory:
    """The memories of all logs that this process asks about.

    Args:
        kept: where they outlive it; None: they do not.
    """

    def __init__(self, kept: KeepsLogHistory | None = None) -> None:
        self._kept = kept
        self._seen: dict[str, SeenLog] = {}

    def check(self, public_key: bytes, view: LogView) -> Callable[[], None]:
        """Hold a verified bundle's log against what was seen.

        Args:
            public_key: of the log.
            view: what the bundle shows.

        Returns:
            What takes note of it; raises as this does, where another process has
            seen another log meanwhile.

        Raises:
            RefusedError: ``proof_invalid``; nothing is taken note of.
        """
        name = log_name(public_key)
        before = self._seen.get(name, SeenLog())
        # Both, since each may know more: the file has what others saw, this process
        # what it could not write.
        kept = SeenLog() if self._kept is None else self._kept.load(name)
        memory = kept.joined(before).taken(view)

        # Taken note of by the caller, once all else about the bundle has held: a bundle
        # that is refused must leave no trace, or it could make the next one refused.
        def keep() -> None:
            if self._kept is not None and memory != kept:
                self._kept.add(name, memory)
            self._seen[name] = memory

        return keep
