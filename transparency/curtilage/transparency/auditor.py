"""Audits a log: checks every leaf, and that there is only one history.

Compares every file with the checkpoint, reports what each leaf releases and which ones
are unexpected, and compares the log with another copy of it, or with an earlier
checkpoint. Findings are reported, not raised: an audit continues where it can.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.log.model_manifest import ModelManifest, parse_leaf
from curtilage.attest.log.note import Checkpoint
from curtilage.transparency.errors import FileError
from curtilage.transparency.log import LogFolder, Progress, no_progress
from curtilage.transparency.proof import ReleaseRules, is_expired


class Flag(StrEnum):
    """Findings about a leaf; the names are stable."""

    NOT_A_MANIFEST = "not_a_manifest"
    UNKNOWN_NAME = "unknown_name"
    VERSION_TWICE = "version_twice"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


# It is normal that old releases expire and bad ones are withdrawn. The others need a
# person's attention.
ALARMING = frozenset({Flag.NOT_A_MANIFEST, Flag.UNKNOWN_NAME, Flag.VERSION_TWICE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf of a log.

    Attributes:
        index: its number.
        sha256: of its bytes, hex: the release digest of bindings and receipts.
        manifest: what it releases, for enclaves or for devices; None if it is not a
            manifest.
        flags: the findings about it.
    """

    index: int
    sha256: str
    manifest: ReleaseManifest | ModelManifest | None
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        origin: the log.
        size: number of leaves according to the checkpoint.
        root: its root hash, hex.
        vouched_time: Unix time that a quorum confirms, or None.
        leaves: those that could be read.
        problems: why the log cannot be trusted; empty: it is consistent.
    """

    origin: str
    size: int
    root: str
    vouched_time: int | None
    leaves: tuple[Leaf, ...]
    problems: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing needs a person's attention."""
        flags = {flag for leaf in self.leaves for flag in leaf.flags}
        return not self.problems and not flags & ALARMING


def audit(
    folder: LogFolder,
    rules: ReleaseRules,
    *,
    now: datetime,
    progress: Progress = no_progress,
) -> AuditReport:
    """Audit a whole log.

    Args:
        folder: the log's folder, or a copy of it.
        rules: the log's key, the required cosignatures, and the known names.
        now: the time, aware.
        progress: called with the number of leaves checked.

    Raises:
        RefusedError: the checkpoint is not by a log that the rules name; without it
            there is nothing to compare.
        FileError: there is no checkpoint.
    """
    text = folder.checkpoint()
    problems: list[str] = []
    try:
        witnessed = rules.log.verify_checkpoint(text)
    except RefusedError as refusal:
        # A missed quorum is only one of the findings; the leaves are reported too. But
        # the log's own signature must hold, or there is nothing to compare them with.
        witnessed = rules.log.without_quorum().verify_checkpoint(text)
        problems.append(str(refusal))
    head = witnessed.checkpoint
    leaves: list[Leaf] = []
    try:
        leaves = [
            _leaf(index, entry, rules, now)
            for start, entries in folder.bundles(head.size)
            for index, entry in enumerate(entries, start)
        ]
        # After the leaves, so that they are listed even if this fails.
        folder.tree(head, progress)
    except (RefusedError, FileError) as failure:
        problems.append(str(failure))
    return AuditReport(
        origin=head.origin,
        size=head.size,
        root=head.root.hex(),
        vouched_time=witnessed.vouched_time,
        leaves=_with_repeats(leaves),
        problems=tuple(problems),
    )


def compare_copy(
    folder: LogFolder,
    other: LogFolder,
    rules: ReleaseRules,
    *,
    progress: Progress = no_progress,
) -> tuple[str, ...]:
    """Return why two copies are not the same log at two times; empty: they are."""
    try:
        mine, theirs = _head(folder, rules), _head(other, rules)
        if mine.origin != theirs.origin:
            return (f"the other copy is of another log: {theirs.origin}",)
        trees = folder.tree(mine, progress), other.tree(theirs, progress)
    except (RefusedError, FileError) as failure:
        return (f"other copy: {failure}",)
    # One may be older than the other: leaves that both have must be equal.
    smaller = min(mine.size, theirs.size)
    if trees[0].root(smaller) == trees[1].root(smaller):
        return ()
    pairs = zip(trees[0].leaf_hashes, trees[1].leaf_hashes, strict=False)
    differs = next(index for index, (a, b) in enumerate(pairs) if a != b)
    return (f"FORK: the two copies differ from leaf {differs} on",)


def compare_checkpoint(
    folder: LogFolder,
    earlier: str,
    rules: ReleaseRules,
    *,
    progress: Progress = no_progress,
) -> tuple[str, ...]:
    """Return why a log does not continue an earlier checkpoint; empty: it does.

    Args:
        folder: the log now.
        earlier: a checkpoint's text, as it was kept.
        rules: for this log; cosignatures of the earlier checkpoint are not required.
        progress: called with the number of leaves checked.
    """
    try:
        then = _signed(earlier, rules)
        now = _head(folder, rules)
        if then.origin != now.origin:
            return (f"the earlier checkpoint is of another log: {then.origin}",)
        if then.size > now.size:
            return (f"SHRUNK: there were {then.size} leaves, now there are {now.size}",)
        tree = folder.tree(now, progress)
    except (RefusedError, FileError) as failure:
        return (f"earlier checkpoint: {failure}",)
    if tree.root(then.size) == then.root:
        return ()
    return (f"FORK: the first {then.size} leaves are not those that were signed then",)


def with_problems(report: AuditReport, problems: tuple[str, ...]) -> AuditReport:
    """Return a report with more problems."""
    return replace(report, problems=(*report.problems, *problems))


def _head(folder: LogFolder, rules: ReleaseRules) -> Checkpoint:
    return _signed(folder.checkpoint(), rules)


def _signed(text: str, rules: ReleaseRules) -> Checkpoint:
    return rules.log.without_quorum().verify_checkpoint(text).checkpoint


def _leaf(index: int, entry: bytes, rules: ReleaseRules, now: datetime) -> Leaf:
    sha256 = hashlib.sha256(entry).hexdigest()
    try:
        manifest = parse_leaf(entry)
    except RefusedError:
        return Leaf(
            index=index, sha256=sha256, manifest=None, flags=(Flag.NOT_A_MANIFEST,)
        )
    said = {
        Flag.UNKNOWN_NAME: rules.names is not None and manifest.name not in rules.names,
        Flag.WITHDRAWN: f"{manifest.name} {manifest.version}" in rules.denied,
        Flag.EXPIRED: is_expired(manifest, now),
    }
    flags = tuple(flag for flag, holds in said.items() if holds)
    return Leaf(index=index, sha256=sha256, manifest=manifest, flags=flags)


def _with_repeats(leaves: list[Leaf]) -> tuple[Leaf, ...]:
    """Flag releases that share a name and version, which are ambiguous."""
    seen = Counter(_release(leaf) for leaf in leaves if leaf.manifest is not None)
    return tuple(
        replace(leaf, flags=(*leaf.flags, Flag.VERSION_TWICE))
        if leaf.manifest is not None and seen[_release(leaf)] > 1
        else leaf
        for leaf in leaves
    )


def _release(leaf: Leaf) -> tuple[str, str]:
    manifest = leaf.manifest
    return (manifest.name, manifest.version) if manifest else ("", "")
