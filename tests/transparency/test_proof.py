"""Releases that are logged and good, and every way in which one is not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import encode_proof
from curtilage.attest.log.witness_policy import parse_policy, simple_policy
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.expectations import expectations_from
from curtilage.transparency.log import add_cosignatures
from curtilage.transparency.proof import (
    ReleaseRules,
    VerifiedRelease,
    prove,
    rules_from,
    verify_release,
)
from support.release_logs import NAME, NOW, KeptLog, manifest

MANIFEST = manifest()
AGE_S = 3600


@pytest.fixture
def log(tmp_path: Path) -> KeptLog:
    kept = KeptLog(tmp_path)
    kept.add(manifest("0.9.0"), MANIFEST, manifest("1.1.0"))
    cosign(kept)
    return kept


def cosign(log: KeptLog, seconds: int = 0) -> None:
    now = NOW + timedelta(seconds=seconds)
    line = log.witness.cosign_folder(log.folder, log.key, now=now)
    add_cosignatures(log.path, log.key, [log.witness.verifier_key.key], line)


def rules(log: KeptLog) -> ReleaseRules:
    witness = log.witness.verifier_key.key
    return ReleaseRules(
        log=simple_policy(log=log.key, witnesses=[witness], quorum=1),
        names=frozenset({NAME}),
        max_checkpoint_age_s=AGE_S,
    )


def proof(log: KeptLog, leaf: bytes = MANIFEST) -> str:
    return prove(log.folder, log.key, leaf).text


def verify(
    kept: KeptLog, held: ReleaseRules | None = None, *, seconds: int = 0
) -> VerifiedRelease:
    now = NOW + timedelta(seconds=seconds)
    return verify_release(MANIFEST, proof(kept), held or rules(kept), now=now)


def code(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def test_a_release_is_verified(log: KeptLog) -> None:
    found = verify(log)
    assert (found.manifest.version, found.index) == ("1.0.0", 1)
    assert found.witnessed.checkpoint.size == 3
    assert found.witnessed.times == {b"w.example": int(NOW.timestamp())}
    assert found.name_checked


def test_a_release_that_is_not_logged_is_refused(log: KeptLog) -> None:
    other = manifest("2.0.0")
    assert code(lambda: prove(log.folder, log.key, other)) is (
        RefusalCode.RELEASE_NOT_LOGGED
    )
    assert code(lambda: verify_release(MANIFEST, "", rules(log), now=NOW)) is (
        RefusalCode.RELEASE_NOT_LOGGED
    )
    assert code(lambda: verify_release(other, proof(log), rules(log), now=NOW)) is (
        RefusalCode.PROOF_INVALID
    )


def test_another_name_is_refused(log: KeptLog) -> None:
    assert code(
        lambda: verify(log, replace(rules(log), names=frozenset({"other"})))
    ) is (RefusalCode.RELEASE_NOT_LOGGED)
    assert code(lambda: verify(log, replace(rules(log), names=frozenset()))) is (
        RefusalCode.RELEASE_NOT_LOGGED
    )
    assert not verify(log, replace(rules(log), names=None)).name_checked


def test_a_denied_version_is_refused(log: KeptLog) -> None:
    assert code(
        lambda: verify(log, replace(rules(log), denied=frozenset({f"{NAME} 1.0.0"})))
    ) is (RefusalCode.RELEASE_DENIED)
    denied = frozenset({f"{NAME} 0.9.0"})
    assert verify(log, replace(rules(log), denied=denied)).index == 1


def test_an_expired_release_is_refused(log: KeptLog) -> None:
    held = replace(rules(log), max_checkpoint_age_s=None)
    end = NOW + timedelta(days=90)
    text = proof(log)
    before = end - timedelta(seconds=1)
    assert verify_release(MANIFEST, text, held, now=before).index == 1
    assert code(lambda: verify_release(MANIFEST, text, held, now=end)) is (
        RefusalCode.STALE
    )


def test_an_old_checkpoint_is_refused(log: KeptLog) -> None:
    assert verify(log, seconds=AGE_S - 1).index == 1
    assert code(lambda: verify(log, seconds=AGE_S)) is RefusalCode.CHECKPOINT_STALE


def test_a_checkpoint_of_the_future_is_refused(log: KeptLog) -> None:
    assert verify(log, seconds=-60).index == 1
    assert code(lambda: verify(log, seconds=-61)) is RefusalCode.NOT_YET_VALID


def test_a_short_quorum_is_refused(log: KeptLog) -> None:
    log.add(manifest("1.2.0"))  # a new checkpoint without cosignatures
    assert code(lambda: verify(log)) is RefusalCode.QUORUM_NOT_MET
    cosign(log, seconds=10)
    assert verify(log).index == 1


def test_without_a_quorum_no_age_is_trusted(log: KeptLog) -> None:
    free = simple_policy(log=log.key, witnesses=(), quorum=0)
    assert (
        code(lambda: verify(log, replace(rules(log), log=free)))
        is RefusalCode.CHECKPOINT_STALE
    )
    found = verify(log, replace(rules(log), log=free, max_checkpoint_age_s=None))
    assert found.witnessed.vouched_time is None


def test_logged_bytes_that_are_no_manifest_are_refused(log: KeptLog) -> None:
    log.add(b"{}")
    cosign(log)
    text = proof(log, b"{}")
    assert code(lambda: verify_release(b"{}", text, rules(log), now=NOW)) is (
        RefusalCode.MALFORMED
    )


def test_a_changed_manifest_is_another(log: KeptLog) -> None:
    changed = MANIFEST.replace(b'"source":"development"', b'"source":"developmenT"')
    assert changed != MANIFEST
    assert code(lambda: verify_release(changed, proof(log), rules(log), now=NOW)) is (
        RefusalCode.PROOF_INVALID
    )


def test_a_wrong_index_or_hash_is_refused(log: KeptLog) -> None:
    made = prove(log.folder, log.key, MANIFEST)
    path = made.tree.inclusion(1)
    for index, hashes in ((0, path), (2, path), (3, path), (1, path[:-1]), (1, ())):
        text = encode_proof(index, hashes, log.folder.checkpoint())
        assert (
            code(
                lambda text=text: verify_release(MANIFEST, text, rules(log), now=NOW)  # type: ignore[misc]
            )
            is RefusalCode.PROOF_INVALID
        )


def test_a_proof_is_only_made_of_a_whole_log(log: KeptLog) -> None:
    tile = log.path / "tile/0/000.p/3"
    tile.write_bytes(tile.read_bytes()[:-1] + b"\0")
    assert code(lambda: proof(log)) is RefusalCode.PROOF_INVALID


# --- the same rules from a policy -----------------------------------------------


def policy_rules(log: KeptLog) -> ReleaseRules:
    witness = log.witness.verifier_key.text
    text = f"log {log.signer.verifier_key.text}\nwitness w {witness}\nquorum w\n"
    return replace(rules(log), log=parse_policy(text.encode()))


def test_a_log_policy_file_says_the_same(log: KeptLog) -> None:
    found = verify_release(MANIFEST, proof(log), policy_rules(log), now=NOW)
    assert found.witnessed.times == {b"w": int(NOW.timestamp())}


def test_a_policy_that_names_no_enclave_believes_no_log() -> None:
    nothing = expectations_from(load_policy(profile_text("default")))
    assert code(lambda: rules_from(nothing)) is RefusalCode.POLICY_INVALID
