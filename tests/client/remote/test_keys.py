from dataclasses import replace
from datetime import timedelta

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence_json import encode_bundle, parse_bundle
from curtilage.client.remote.key_store import NEGATIVE_TTL
from curtilage.client.remote.log_history import view_of
from support.memory_enclave import NOW, MemoryEnclave, deployment, key_store


def test_an_accepted_key_is_pinned_until_it_expires() -> None:
    enclaves = key_store()
    assert enclaves.current(NOW) is None
    key = enclaves.accept(MemoryEnclave().bundle, NOW)
    assert enclaves.current(NOW) is key
    assert enclaves.current(key.expires_at - timedelta(seconds=1)) is key
    assert enclaves.current(key.expires_at) is None
    assert enclaves.current(NOW) is None, "an expired key is gone for good"


def test_a_refusal_is_remembered_for_a_minute() -> None:
    enclaves = key_store()
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(b"{}", NOW)
    with pytest.raises(RefusedError) as again:
        enclaves.current(NOW + NEGATIVE_TTL - timedelta(seconds=1))
    assert again.value.code is refused.value.code
    assert again.value is not refused.value, "a traceback would grow"
    assert enclaves.current(NOW + NEGATIVE_TTL) is None


def test_a_refusal_drops_the_key_before() -> None:
    enclaves = key_store()
    enclaves.accept(MemoryEnclave().bundle, NOW)
    with pytest.raises(RefusedError):
        enclaves.accept(b"{}", NOW)
    assert enclaves.current(NOW + NEGATIVE_TTL) is None


def test_expired_evidence_is_not_pinned() -> None:
    enclaves = key_store()
    with pytest.raises(RefusedError):
        enclaves.accept(MemoryEnclave().bundle, NOW + timedelta(days=2))
    assert enclaves.current(NOW + timedelta(days=3)) is None


def test_drop_forgets_only_that_key() -> None:
    enclaves = key_store()
    enclave = MemoryEnclave()
    old = enclaves.accept(enclave.bundle, NOW)
    enclave.rotate(7)
    new = enclaves.accept(enclave.bundle, NOW)
    enclaves.drop(old)
    assert enclaves.current(NOW) is new
    enclaves.drop(new)
    assert enclaves.current(NOW) is None


def test_another_policy_drops_what_was_verified_under_the_old_one() -> None:
    enclaves, bundle = key_store(), MemoryEnclave().bundle
    enclaves.accept(bundle, NOW)
    enclaves.apply(replace(enclaves.expectations, digest="sha256:" + "ab" * 32))
    assert enclaves.current(NOW) is None
    fresh = enclaves.accept(bundle, NOW)
    assert fresh.expectations_digest == enclaves.expectations.digest


def test_a_key_is_bound_to_the_policy_it_was_verified_under() -> None:
    """Even if the expectations are replaced without ``apply``."""
    enclaves = key_store()
    enclaves.accept(MemoryEnclave().bundle, NOW)
    enclaves.expectations = replace(enclaves.expectations, digest="sha256:" + "ab" * 32)
    assert enclaves.current(NOW) is None


def test_another_policy_is_not_refused_for_the_old_ones_sake() -> None:
    enclaves = key_store()
    with pytest.raises(RefusedError):
        enclaves.accept(b"{}", NOW)
    enclaves.apply(enclaves.expectations)
    assert enclaves.current(NOW) is None


def renewed(enclave: MemoryEnclave) -> bytes:
    """Make evidence for the same keys, of a window that begins later."""
    enclave.attest(NOW - timedelta(minutes=30))
    return enclave.bundle


def test_a_renewal_replaces_the_key_in_force() -> None:
    enclaves, enclave = key_store(), MemoryEnclave()
    old = enclaves.accept(enclave.bundle, NOW)
    fresh = enclaves.renew(renewed(enclave), NOW)
    assert fresh.expires_at > old.expires_at
    assert enclaves.current(NOW) is fresh


@pytest.mark.parametrize("bundle", [b"", b"{}", b"["], ids=repr)
def test_a_renewal_that_is_refused_changes_nothing(bundle: bytes) -> None:
    enclaves = key_store()
    key = enclaves.accept(MemoryEnclave().bundle, NOW)
    with pytest.raises(RefusedError):
        enclaves.renew(bundle, NOW)
    assert enclaves.current(NOW) is key
    assert enclaves.current(key.expires_at) is None, "its end stays its end"


def test_older_evidence_is_not_a_renewal() -> None:
    enclaves, enclave = key_store(), MemoryEnclave()
    older = enclave.bundle
    enclaves.accept(older, NOW)
    fresh = enclaves.renew(renewed(enclave), NOW)
    for bundle in (enclave.bundle, older):
        with pytest.raises(RefusedError) as refused:
            enclaves.renew(bundle, NOW)
        assert refused.value.code is RefusalCode.STALE
        assert enclaves.current(NOW) is fresh


def test_a_malleable_bundle_is_not_a_second_key() -> None:
    """JSON spaces or another signature: the same list, so the same entry."""
    enclaves, enclave = key_store(), MemoryEnclave()
    key = enclaves.accept(enclave.bundle, NOW)
    again = enclaves.accept(enclave.bundle.replace(b",", b", "), NOW)
    assert again.key_configs_digest == key.key_configs_digest
    assert again.verdict_id == key.verdict_id
    assert enclaves.current(NOW) is again


def test_both_tree_heads_of_a_bundle_are_known() -> None:
    bundle = MemoryEnclave().bundle
    key = key_store().accept(bundle, NOW)
    view, anchor = view_of(bundle, key), parse_bundle(bundle).anchor
    assert (view.anchor.size, view.anchor.root) == (anchor.size, anchor.root)
    assert view.proof.size <= anchor.size
    assert view.time == anchor.time


def forked() -> bytes:
    """The same release in another tree of the same size, by the same log."""
    ours = deployment()
    log = replace(ours.log, leaves=(b"another leaf", *ours.log.leaves[1:]))
    return encode_bundle(replace(ours, log=log).bundle())


def test_a_log_that_shows_two_trees_is_refused() -> None:
    enclaves = key_store()
    enclaves.accept(encode_bundle(deployment().bundle()), NOW)
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(forked(), NOW)
    assert refused.value.code is RefusalCode.PROOF_INVALID
    assert "forked" in refused.value.detail


def test_either_tree_alone_is_accepted() -> None:
    assert key_store().accept(forked(), NOW).emulated


def test_a_fork_is_remembered_across_policies_and_renewals() -> None:
    enclaves = key_store()
    key = enclaves.accept(encode_bundle(deployment().bundle()), NOW)
    with pytest.raises(RefusedError):
        enclaves.renew(forked(), NOW)
    assert enclaves.current(NOW) is key, "the one in force stays"
    enclaves.apply(enclaves.expectations)
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(forked(), NOW)
    assert refused.value.code is RefusalCode.PROOF_INVALID


def test_a_policy_that_is_applied_again_drops_its_keys_too() -> None:
    enclaves = key_store()
    enclaves.accept(MemoryEnclave().bundle, NOW)
    enclaves.apply(enclaves.expectations)
    assert enclaves.known is None
    assert enclaves.current(NOW) is None
