"""The manifest of home models: one spelling, one line, and shares that only grow."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from curtilage.attest.encoding.strict_json import canonical_json
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.log.model_manifest import (
    STAGES,
    Arm,
    ModelFiles,
    ModelManifest,
    encode_model_manifest,
    parse_leaf,
    parse_model_manifest,
    require_next,
    verify_model_manifest,
)
from curtilage.attest.log.witness_policy import LogPolicy, simple_policy
from curtilage_dev.log import DevelopmentLog, new_signer, new_witness

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
OLD = ModelFiles(sha256="0a" * 32, size_bytes=100)
NEW = ModelFiles(sha256="1b" * 32, size_bytes=200)
TUNED = replace(OLD, adapter="2c" * 32, adapter_bytes=3)
MANIFEST = ModelManifest(
    name="clinic-home",
    serial=7,
    not_after=int(NOW.timestamp()) + 3600,
    previous=OLD,
    arms=(Arm(percent=5, promised_permille=850, model=NEW),),
)
BOTH = replace(
    MANIFEST,
    arms=(*MANIFEST.arms, Arm(percent=25, promised_permille=800, model=TUNED)),
)
DEVICES = [number.to_bytes(32) for number in range(2000)]


@pytest.mark.parametrize("manifest", [MANIFEST, BOTH], ids=["one", "two"])
def test_manifest_survives_its_encoding(manifest: ModelManifest) -> None:
    assert parse_model_manifest(encode_model_manifest(manifest)) == manifest
    assert parse_leaf(encode_model_manifest(manifest)) == manifest


def test_neither_kind_is_taken_for_the_other() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_manifest(encode_model_manifest(MANIFEST))
    assert caught.value.code is RefusalCode.UNSUPPORTED_VERSION


def arm(**edit: object) -> Callable[[dict[str, Any]], None]:
    return lambda tree: tree["arms"][0].update(edit)


def model(**edit: object) -> Callable[[dict[str, Any]], None]:
    return lambda tree: tree["arms"][0]["model"].update(edit)


def tree(**edit: object) -> Callable[[dict[str, Any]], None]:
    return lambda tree: tree.update(edit)


WRONG = {
    "kind": tree(kind="home"),
    "version": tree(v=2),
    "a key more": tree(stage=5),
    "name": tree(name="Clinic"),
    "no arm": tree(arms=[]),
    "three arms": tree(arms=[7] * 3),
    "a share of nothing": arm(percent=0),
    "a share of more": arm(percent=101),
    "no promise": arm(promised_permille=0),
    "a promise without fail": arm(promised_permille=1000),
    "the same model": arm(model=asdict(OLD)),
    "digest": model(sha256="1B" * 32),
    "no size": model(size_bytes=0),
    "an adapter without size": model(adapter="2c" * 32),
    "a size without adapter": model(adapter_bytes=3),
    "an adapter that is none": model(adapter="2c", adapter_bytes=3),
}


@pytest.mark.parametrize("edit", WRONG.values(), ids=WRONG)
def test_a_wrong_manifest_is_refused(edit: Callable[[dict[str, Any]], None]) -> None:
    said = json.loads(encode_model_manifest(MANIFEST))
    edit(said)
    with pytest.raises(RefusedError):
        parse_model_manifest(canonical_json(said))


def test_two_shares_are_no_more_than_all() -> None:
    full = replace(BOTH, arms=(replace(BOTH.arms[0], percent=76), BOTH.arms[1]))
    with pytest.raises(RefusedError, match="more than all"):
        parse_model_manifest(encode_model_manifest(full))


def test_another_spelling_is_refused() -> None:
    with pytest.raises(RefusedError, match="canonical"):
        parse_model_manifest(encode_model_manifest(MANIFEST) + b"\n")


# Who takes it.


def at(percent: int, manifest: ModelManifest = MANIFEST) -> ModelManifest:
    arms = (replace(manifest.arms[0], percent=percent), *manifest.arms[1:])
    return replace(manifest, serial=manifest.serial + percent, arms=arms)


def test_a_device_that_took_it_keeps_it_in_each_larger_stage() -> None:
    took: set[bytes] = set()
    for stage in STAGES:
        takes = {each for each in DEVICES if at(stage).arm_of(each) is not None}
        assert took <= takes
        # Within five standard deviations of the share.
        assert abs(len(takes) / len(DEVICES) - stage / 100) < 0.05
        took = takes
    assert len(took) == len(DEVICES)


def test_two_arms_share_no_device_and_none_changes_between_them() -> None:
    before = {each: BOTH.arm_of(each) for each in DEVICES}
    after = {each: at(75, BOTH).arm_of(each) for each in DEVICES}
    assert {None, *BOTH.arms} == set(before.values())
    for each in DEVICES:
        if (arm := before[each]) is not None:
            assert (found := after[each]) is not None
            assert found.model == arm.model


def test_each_rollout_begins_with_different_devices() -> None:
    other = replace(MANIFEST, arms=(replace(MANIFEST.arms[0], model=TUNED),))
    taken = [
        {each for each in DEVICES if manifest.arm_of(each)}
        for manifest in (at(25), at(25, other))
    ]
    assert taken[0] != taken[1]


# Verification: the trusted logs, and expiry.


def logged(*leaves: bytes) -> tuple[DevelopmentLog, LogPolicy]:
    """Log some leaves; return the log, and the rules that trust it."""
    log = DevelopmentLog(
        signer=new_signer("log.example/home"),
        witnesses=(new_witness("w.example"),),
        leaves=leaves,
    )
    witnesses = [each.public for each in log.witnesses]
    return log, simple_policy(log=log.signer.public, witnesses=witnesses, quorum=1)


LEAF = encode_model_manifest(MANIFEST)


def test_a_logged_manifest_is_accepted() -> None:
    log, rules = logged(b"another", LEAF)
    proof = log.proof(1, NOW)
    assert verify_model_manifest(LEAF, proof, log=rules, name="clinic-home") == MANIFEST


def test_a_manifest_that_is_not_logged_is_refused() -> None:
    other = encode_model_manifest(at(100))
    log, rules = logged(LEAF, b"no manifest")
    _, strangers = logged()
    proof = log.proof(0, NOW)
    for data, said, name, trusted, code in (
        (LEAF, "", "clinic-home", rules, RefusalCode.RELEASE_NOT_LOGGED),
        (LEAF, proof, "other", rules, RefusalCode.RELEASE_NOT_LOGGED),
        (other, proof, "clinic-home", rules, RefusalCode.PROOF_INVALID),
        (b"no manifest", log.proof(1, NOW), "x", rules, RefusalCode.MALFORMED),
        (LEAF, proof, "clinic-home", strangers, RefusalCode.UNSIGNED),
    ):
        with pytest.raises(RefusedError) as caught:
            verify_model_manifest(data, said, log=trusted, name=name)
        assert caught.value.code is code


def test_only_a_newer_one_replaces_it() -> None:
    require_next(MANIFEST, serial=None, now=NOW)
    require_next(MANIFEST, serial=6, now=NOW)
    for serial in (7, 8):
        with pytest.raises(RefusedError, match="not newer") as caught:
            require_next(MANIFEST, serial=serial, now=NOW)
        assert caught.value.code is RefusalCode.STALE


def test_an_expired_one_replaces_nothing() -> None:
    late = datetime.fromtimestamp(MANIFEST.not_after, UTC)
    with pytest.raises(RefusedError, match="expired") as caught:
        require_next(MANIFEST, serial=None, now=late)
    assert caught.value.code is RefusalCode.STALE
