"""Proofs from a log's folder, and what a proof says about a release.

Making a proof reads the folder and compares all of it with its checkpoint first.
Believing one needs no folder, no network and no clock of its own: manifest, proof and
rules are bytes and values, and every outcome that is not acceptance is a refusal with
its code.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.manifest import ReleaseManifest, parse_manifest
from curtilage.attest.log.model_manifest import ModelManifest
from curtilage.attest.log.note import (
    NoteKey,
    TrustedLog,
    encode_proof,
    verify_checkpoint,
    verify_proof,
)
from curtilage.attest.log.tree import Tree, hash_leaf
from curtilage.attest.log.witness_policy import LogPolicy, Witnessed, simple_policy
from curtilage.transparency.log import LogFolder, Progress, no_progress

DEFAULT_SKEW_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRules:
    """Which releases are accepted.

    Attributes:
        log: whose checkpoints, and whose cosignatures suffice.
        names: the accepted releases; None where the caller has said that every
            name is accepted, which the verdict repeats.
        denied: "name version" of releases that are refused.
        max_checkpoint_age_s: how old the proof's checkpoint may be; None under a
            quorum that vouches for no time, or where no age was asked for.
        clock_skew_s: how far ahead a witness's clock may run.
    """

    log: LogPolicy
    names: frozenset[str] | None
    denied: frozenset[str] = frozenset()
    max_checkpoint_age_s: int | None = None
    clock_skew_s: int = DEFAULT_SKEW_S


def rules_from(expectations: Expectations) -> ReleaseRules:
    """Return the rules of a client with this policy.

    Raises:
        RefusedError: ``policy_invalid``: its log has no witness, or a key twice.
    """
    log = expectations.log
    return ReleaseRules(
        log=simple_policy(
            log=NoteKey(name=log.origin, public_key=log.public_key),
            witnesses=[
                NoteKey(name=name, public_key=key)
                for name, key in log.witnesses.items()
            ],
            quorum=log.quorum,
        ),
        names=expectations.release_names,
        denied=expectations.denied_releases,
        max_checkpoint_age_s=log.max_checkpoint_age_s,
        clock_skew_s=expectations.freshness.clock_skew_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRelease:
    """A release that was logged, is wanted, and has not expired.

    Attributes:
        manifest: what it consists of.
        index: its leaf's number.
        witnessed: the checkpoint, and who vouches for it.
        name_checked: whether the rules named the accepted releases.
    """

    manifest: ReleaseManifest
    index: int
    witnessed: Witnessed
    name_checked: bool


def verify_release(
    manifest: bytes, proof: str, rules: ReleaseRules, *, now: datetime
) -> VerifiedRelease:
    """Verify that a manifest was logged and is valid now.

    Args:
        manifest: its exact bytes, which are the leaf.
        proof: a tlog-proof; empty: it was not logged.
        rules: what to hold it against.
        now: the time, aware.

    Raises:
        RefusedError: ``release_not_logged``, ``release_denied``, ``stale``,
            ``checkpoint_stale``, ``not_yet_valid``, ``malformed``, and whatever the
            log policy refuses.
    """
    if not proof:
        raise RefusedError(RefusalCode.RELEASE_NOT_LOGGED, "there is no proof")
    inclusion, witnessed = rules.log.verify_proof(proof, leaf=manifest)
    # Only now is it read: what no log vouches for may be anybody's bytes.
    parsed = parse_manifest(manifest)
    if rules.names is not None and parsed.name not in rules.names:
        raise RefusedError(
            RefusalCode.RELEASE_NOT_LOGGED, "the policy names another release"
        )
    if f"{parsed.name} {parsed.version}" in rules.denied:
        raise RefusedError(RefusalCode.RELEASE_DENIED, "the policy denies this release")
    if is_expired(parsed, now):
        raise RefusedError(RefusalCode.STALE, "the release has expired")
    _require_fresh(witnessed, rules, now)
    return VerifiedRelease(
        manifest=parsed,
        index=inclusion.index,
        witnessed=witnessed,
        name_checked=rules.names is not None,
    )


def is_expired(manifest: ReleaseManifest | ModelManifest, now: datetime) -> bool:
    """Return whether a release's time is over."""
    return now.timestamp() >= manifest.not_after


def _require_fresh(witnessed: Witnessed, rules: ReleaseRules, now: datetime) -> None:
    if witnessed.vouched_time is None:
        if rules.max_checkpoint_age_s is not None:
            raise RefusedError(
                RefusalCode.CHECKPOINT_STALE,
                "no quorum vouches for the checkpoint's age",
            )
        return
    age = now.timestamp() - witnessed.vouched_time
    # A time ahead of ours would keep an old checkpoint fresh for as long.
    if age < -rules.clock_skew_s:
        raise RefusedError(RefusalCode.NOT_YET_VALID, "a checkpoint of the future")
    if rules.max_checkpoint_age_s is not None and age >= rules.max_checkpoint_age_s:
        raise RefusedError(
            RefusalCode.CHECKPOINT_STALE, f"the proof is {age:.0f} s old, too old"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A proof that was made, and verified before it is given out.

    Attributes:
        index: the leaf's number.
        size: number of leaves of the tree that it leads to.
        text: the tlog-proof.
        tree: the tree, for consistency proofs.
    """

    index: int
    size: int
    text: str
    tree: Tree


def prove(
    folder: LogFolder, log: NoteKey, leaf: bytes, *, progress: Progress = no_progress
) -> Proven:
    """Prove that a leaf is in a log, under the folder's checkpoint.

    Args:
        folder: the log's folder, or a copy of it.
        log: the log's key.
        leaf: the manifest's bytes.
        progress: called while the folder is compared with its checkpoint.

    Raises:
        RefusedError: ``release_not_logged``: it is not in the log; or the folder is
            not what its checkpoint says.
    """
    text = folder.checkpoint()
    trusted = TrustedLog(origin=log.name, key=log, witnesses=())
    head = verify_checkpoint(text, trusted)
    tree = folder.tree(head, progress)
    wanted = hash_leaf(leaf)
    if wanted not in tree.leaf_hashes:
        raise RefusedError(RefusalCode.RELEASE_NOT_LOGGED, "it is not in this log")
    index = tree.leaf_hashes.index(wanted)
    proof = encode_proof(index, tree.inclusion(index), text)
    # As its recipients will: a wrong proof is found here and not by them.
    verify_proof(proof, leaf=leaf, log=trusted)
    return Proven(index=index, size=head.size, text=proof, tree=tree)
