"""Proofs from a log's folder, and the verification of a release by a proof.

To make a proof, the whole folder is first compared with its checkpoint. To verify one,
no folder, network or clock is needed: manifest, proof and rules are bytes and values,
and every outcome other than acceptance is a refusal with its code.
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
    """The rules for accepted releases.

    Attributes:
        log: its checkpoints are accepted, with its quorum of cosignatures.
        names: the accepted releases; None if the caller accepts every name, which the
            verdict repeats.
        denied: "name version" of releases that are refused.
        max_checkpoint_age_s: the maximum age of the proof's checkpoint; None if the
            quorum confirms no time, or if no age is required.
        clock_skew_s: how far ahead a witness's clock may be.
    """

    log: LogPolicy
    names: frozenset[str] | None
    denied: frozenset[str] = frozenset()
    max_checkpoint_age_s: int | None = None
    clock_skew_s: int = DEFAULT_SKEW_S


def rules_from(expectations: Expectations) -> ReleaseRules:
    """Return the rules of a client with this policy.

    Raises:
        RefusedError: ``policy_invalid``: its log has no witness, or a repeated key.
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
    """A release that was logged, is accepted, and has not expired.

    Attributes:
        manifest: its parsed manifest.
        index: its leaf's number.
        witnessed: the checkpoint, and the witnesses that cosigned it.
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
        rules: the rules to verify against.
        now: the time, aware.

    Raises:
        RefusedError: ``release_not_logged``, ``release_denied``, ``stale``,
            ``checkpoint_stale``, ``not_yet_valid``, ``malformed``, and every refusal
            of the log policy.
    """
    if not proof:
        raise RefusedError(RefusalCode.RELEASE_NOT_LOGGED, "there is no proof")
    inclusion, witnessed = rules.log.verify_proof(proof, leaf=manifest)
    # Parsed only now: without a valid proof, the bytes may be from anyone.
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
    """Return whether a release has expired."""
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
    """A proof that was made, and verified before it is returned.

    Attributes:
        index: the leaf's number.
        size: number of leaves of the proof's tree.
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
        RefusedError: ``release_not_logged``: it is not in the log; or the folder does
            not match its checkpoint.
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
    # Like its recipients will: a wrong proof is detected here and not by them.
    verify_proof(proof, leaf=leaf, log=trusted)
    return Proven(index=index, size=head.size, text=proof, tree=tree)
