import copy
import pickle  # only to be refused
import re
import socket
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

import curtilage.attest.verify as verify_module
from curtilage.attest import bundle_checks, dispatch
from curtilage.attest.errors import RefusalCode, RefusedError, Step
from curtilage.attest.evidence import MAX_BUNDLE_BYTES, EvidenceBundle, SnpEvidence, Tee
from curtilage.attest.evidence_json import encode_bundle, parse_bundle
from curtilage.attest.expectations import Environment, Expectations
from curtilage.attest.log.manifest import encode_manifest, parse_manifest
from curtilage.attest.sev_snp.report import SIGNED_BYTES
from curtilage.attest.steps import Check
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from curtilage_dev.deployment import (
    KEY_CONFIGS,
    Deployment,
    make_deployment,
    make_manifest,
)
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, RootKeys, make_platform
from curtilage_dev.emulated.snp_reports import ReportFields

P384_ORDER = int(
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf"
    "581a0db248b0a77aecec196accc52973",
    16,
)
Refused = Callable[..., RefusedError]
CHECKS = list(Check)
BEFORE_THE_EVIDENCE = CHECKS[: CHECKS.index(Check.REPORT_LAYOUT)]
SNP_STEPS = CHECKS[
    CHECKS.index(Check.REPORT_LAYOUT) : CHECKS.index(Check.PINNED_MEASUREMENT)
]
AFTER_THE_EVIDENCE = [
    Check.PLATFORM,
    Check.REQUIRED_DEVICES,
    Check.REPORT_DATA,
    Check.SANDBOX,
    Check.TRANSPORT,
]


@pytest.fixture
def verified(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime
) -> VerifiedKey:
    return verify(encode_bundle(bundle), expectations, now=now)


# --- what is accepted ---------------------------------------------------------


def test_verify_accepts_a_fresh_bundle(
    verified: VerifiedKey, expectations: Expectations, now: datetime
) -> None:
    assert verified.key_configs == KEY_CONFIGS
    assert verified.emulated
    assert verified.tee == "emulated-sev-snp"
    assert verified.release_name == "curtilage-enclave"
    assert verified.expectations_digest == expectations.digest
    assert verified.not_before == now
    assert verified.transport == PADDED


def test_verify_passes_every_step_in_order(verified: VerifiedKey) -> None:
    assert [step.number for step in verified.steps] == list(
        range(1, len(verified.steps) + 1)
    )
    assert [step.name for step in verified.steps] == [
        *BEFORE_THE_EVIDENCE,
        *SNP_STEPS,
        *AFTER_THE_EVIDENCE,
    ]
    assert all(step.passed and step.detail for step in verified.steps)


def test_the_steps_are_listed_once_in_the_docstring() -> None:
    text = verify_module.__doc__ or ""
    listed = re.findall(r"^ +(\d+)\. ([^:]+):", text, re.MULTILINE)
    assert [int(number) for number, _ in listed] == list(range(1, 19))
    names = [name for _, name in listed]
    assert names[:9] == BEFORE_THE_EVIDENCE
    assert [name for name in names[9:] if "evidence" not in name] == [
        "pinned measurement",
        "platform",
        "required devices",
        "distinct devices",
        "report data",
        "sandbox",
        "transport parameters",
    ]


def test_verify_opens_no_socket(
    bundle: EvidenceBundle,
    expectations: Expectations,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert verify(encode_bundle(bundle), expectations, now=now).emulated


def test_malleable_signature_gives_the_same_verdict(
    bundle: EvidenceBundle,
    expectations: Expectations,
    verified: VerifiedKey,
    now: datetime,
) -> None:
    assert isinstance(bundle.cpu, SnpEvidence)
    report = bytearray(bundle.cpu.report)
    place = slice(SIGNED_BYTES + 72, SIGNED_BYTES + 144)
    s = int.from_bytes(report[place], "little")
    report[place] = (P384_ORDER - s).to_bytes(72, "little")
    other = replace(bundle, cpu=replace(bundle.cpu, report=bytes(report)))
    assert bytes(report) != bundle.cpu.report
    assert verify(encode_bundle(other), expectations, now=now) == verified


def test_spaces_in_the_json_give_the_same_verdict_name(
    bundle: EvidenceBundle,
    expectations: Expectations,
    verified: VerifiedKey,
    now: datetime,
) -> None:
    spaced = encode_bundle(bundle).replace(b'"v":4', b'"v" : 4')
    again = verify(spaced, expectations, now=now)
    assert again.verdict_id == verified.verdict_id


def test_renewed_evidence_of_the_same_keys_keeps_the_key_digest(
    deployment: Deployment,
    expectations: Expectations,
    verified: VerifiedKey,
    now: datetime,
) -> None:
    again = verify(encode_bundle(deployment.bundle()), expectations, now=now)
    assert again.key_configs_digest == verified.key_configs_digest


# --- what a verified key is ---------------------------------------------------


def _fields(verified: VerifiedKey) -> dict[str, Any]:
    names = [each.name for each in fields(verified) if each.init]
    return {name: getattr(verified, name) for name in names}


def test_verified_key_cannot_be_built_elsewhere(verified: VerifiedKey) -> None:
    with pytest.raises(TypeError, match="'door'"):
        VerifiedKey(**_fields(verified))
    for forged in (None, object(), verified):
        with pytest.raises(TypeError, match=r"only verify\(\) builds"):
            VerifiedKey(**_fields(verified), door=forged)


def test_verified_key_cannot_be_changed(verified: VerifiedKey) -> None:
    with pytest.raises(FrozenInstanceError):
        verified.key_configs = b""  # type: ignore[misc] # the point of the test
    with pytest.raises(ValueError, match="door"):
        replace(verified, emulated=False)  # type: ignore[call-arg] # as above


@pytest.mark.parametrize(
    "copier", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deep", "pickle"]
)
def test_verified_key_cannot_be_copied(
    verified: VerifiedKey, copier: Callable[[object], object]
) -> None:
    with pytest.raises(TypeError):
        copier(verified)


def test_verified_key_has_no_subclasses() -> None:
    with pytest.raises(TypeError):
        type("Forged", (VerifiedKey,), {})


def test_verified_key_is_unusable_once_expired(
    verified: VerifiedKey, now: datetime
) -> None:
    verified.usable_at(now)
    verified.usable_at(verified.expires_at - timedelta(seconds=1))
    with pytest.raises(RefusedError) as caught:
        verified.usable_at(verified.expires_at)
    assert caught.value.code is RefusalCode.STALE


# --- expiry -------------------------------------------------------------------


def _expiry(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime
) -> timedelta:
    return verify(encode_bundle(bundle), expectations, now=now).expires_at - now


def test_expiry_is_the_windows_end(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    short = replace(deployment.bundle(), not_after=int(now.timestamp()) + 77)
    assert _expiry(deployment.attest(short), expectations, now) == timedelta(seconds=77)


def test_expiry_is_the_anchors_age(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime
) -> None:
    freshness = replace(expectations.freshness, max_evidence_age_s=78)
    rules = replace(expectations, freshness=freshness)
    assert _expiry(bundle, rules, now) == timedelta(seconds=78)


def test_expiry_is_the_proofs_age(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime
) -> None:
    rules = replace(
        expectations, log=replace(expectations.log, max_checkpoint_age_s=79)
    )
    assert _expiry(bundle, rules, now) == timedelta(seconds=79)


def test_expiry_is_the_revocation_lists(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime
) -> None:
    hour = 3600  # by which the emulator backdates its list
    rules = replace(
        expectations, snp=replace(expectations.snp, max_crl_age_s=hour + 80)
    )
    assert _expiry(bundle, rules, now) == timedelta(seconds=80)


def test_expiry_is_the_manifests_end(platform: EmulatedPlatform, now: datetime) -> None:
    ordinary = parse_manifest(make_deployment(platform, now=now).manifest)
    ending = replace(ordinary, not_after=int(now.timestamp()) + 81)
    deployment = make_deployment(platform, now=now, manifest=ending)
    expiry = _expiry(deployment.bundle(), deployment.expectations(), now)
    assert expiry == timedelta(seconds=81)


def test_a_manifest_may_end_beyond_the_calendar(
    platform: EmulatedPlatform, now: datetime
) -> None:
    ordinary = parse_manifest(make_deployment(platform, now=now).manifest)
    endless = replace(ordinary, not_after=2**63 - 1)
    deployment = make_deployment(platform, now=now, manifest=endless)
    expiry = _expiry(deployment.bundle(), deployment.expectations(), now)
    assert expiry == timedelta(hours=12)


# --- steps 1 to 4 -------------------------------------------------------------


def test_verify_refuses_a_clock_without_a_zone(
    refused: Refused, bundle: EvidenceBundle, now: datetime
) -> None:
    error = refused(bundle, now=now.replace(tzinfo=None))
    assert (error.code, error.step) == (RefusalCode.POLICY_INVALID, "expectations")


@pytest.mark.parametrize("keep", ["roots", "tees", "neither"])
def test_production_refuses_emulation(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations, keep: str
) -> None:
    production = replace(
        expectations,
        environment=Environment.PRODUCTION,
        roots=expectations.roots if keep == "roots" else (),
        required_cpu_tees=(
            expectations.required_cpu_tees if keep == "tees" else frozenset({"sev-snp"})
        ),
    )
    code = (
        RefusalCode.POLICY_INVALID
        if keep == "neither"
        else RefusalCode.EMULATED_REFUSED
    )
    assert refused(bundle, production).code is code


def _pretend_amd(
    monkeypatch: pytest.MonkeyPatch, expectations: Expectations
) -> Expectations:
    """Let the emulated root pass for AMD's own, to reach the steps after."""
    (root,) = expectations.roots
    kind = type(root.kind)("amd")
    monkeypatch.setattr(
        "curtilage.attest.expectations_checks.VENDOR_ROOT_FINGERPRINTS",
        {kind: {root.product: root.fingerprint}},
    )
    return replace(
        expectations,
        environment=Environment.PRODUCTION,
        roots=(replace(root, kind=kind),),
        required_cpu_tees=frozenset({"sev-snp"}),
    )


def test_production_refuses_an_emulated_bundle_under_amd_roots(
    refused: Refused,
    bundle: EvidenceBundle,
    expectations: Expectations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = refused(bundle, _pretend_amd(monkeypatch, expectations))
    assert (error.code, error.step) == (
        RefusalCode.EMULATED_REFUSED,
        "kind of evidence",
    )


def test_production_refuses_emulation_twice(
    refused: Refused,
    bundle: EvidenceBundle,
    expectations: Expectations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second check holds alone, should the first ever be lost."""

    def accept(_: Expectations) -> None:
        pass

    monkeypatch.setattr(bundle_checks, "validate_expectations", accept)
    production = replace(expectations, environment=Environment.PRODUCTION)
    error = refused(bundle, production)
    assert (error.code, error.step) == (
        RefusalCode.EMULATED_REFUSED,
        "kind of evidence",
    )


def test_development_that_names_no_emulation_refuses_it(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations
) -> None:
    rules = replace(expectations, required_cpu_tees=frozenset({"sev-snp"}))
    assert refused(bundle, rules).code is RefusalCode.EMULATED_REFUSED


def test_a_kind_that_the_policy_does_not_name_is_refused(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    other = replace(bundle, cpu=replace(bundle.cpu, tee=Tee.SEV_SNP))
    error = refused(other)
    assert error.code is RefusalCode.UNSUPPORTED_PRODUCT


def test_emulated_bytes_that_claim_to_be_genuine_find_no_root(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations
) -> None:
    lying = replace(bundle, cpu=replace(bundle.cpu, tee=Tee.SEV_SNP))
    both = replace(
        expectations, required_cpu_tees=frozenset({"sev-snp", "emulated-sev-snp"})
    )
    error = refused(lying, both)
    assert (error.code, error.step) == (RefusalCode.UNTRUSTED_ROOT, "pinned root")


def test_emulated_report_data_never_binds_as_genuine(
    *,
    refused: Refused,
    bundle: EvidenceBundle,
    monkeypatch: pytest.MonkeyPatch,
    platform: EmulatedPlatform,
    now: datetime,
) -> None:
    """Even if the emulated root were trusted, the label would differ."""
    manifest = parse_manifest(bundle.release.manifest)
    measured = {"sev-snp": manifest.measurements["emulated-sev-snp"]}
    deployment = make_deployment(
        platform, now=now, manifest=replace(manifest, measurements=measured)
    )
    lying = deployment.bundle()
    lying = replace(lying, cpu=replace(lying.cpu, tee=Tee.SEV_SNP))
    rules = _pretend_amd(monkeypatch, deployment.expectations())
    assert refused(lying, rules).code is RefusalCode.BINDING_MISMATCH


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        (0, 0, RefusalCode.MALFORMED),
        (10, 0, RefusalCode.MALFORMED),
        (0, 86401, RefusalCode.STALE),
        (61, 3600, RefusalCode.NOT_YET_VALID),
        (-3600, 0, RefusalCode.STALE),
        (-3600, -1, RefusalCode.STALE),
    ],
    ids=["empty", "reversed", "long", "future", "ends now", "ended"],
)
def test_key_window_is_refused(
    *,
    refused: Refused,
    bundle: EvidenceBundle,
    now: datetime,
    start: int,
    end: int,
    code: RefusalCode,
) -> None:
    moment = int(now.timestamp())
    changed = replace(bundle, not_before=moment + start, not_after=moment + end)
    error = refused(changed)
    assert (error.code, error.step) == (code, "key window")


def test_key_window_may_begin_within_the_clock_skew(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    soon = replace(deployment.bundle(), not_before=int(now.timestamp()) + 60)
    assert verify(
        encode_bundle(deployment.attest(soon)), expectations, now=now
    ).emulated


# --- steps 5 to 8 -------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"size": 4}, {"root": bytes(32)}, {"origin": "other.invalid/log"}],
    ids=["size", "root", "origin"],
)
def test_anchor_must_be_its_checkpoint(
    refused: Refused, bundle: EvidenceBundle, change: dict[str, Any]
) -> None:
    changed = replace(bundle, anchor=replace(bundle.anchor, **change))
    error = refused(changed)
    assert (error.code, error.step) == (RefusalCode.PROOF_INVALID, "log checkpoint")


def test_anchor_time_must_be_vouched_for(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    later = replace(bundle.anchor, time=bundle.anchor.time + 1)
    error = refused(replace(bundle, anchor=later))
    assert (error.code, error.step) == (RefusalCode.QUORUM_NOT_MET, "log checkpoint")


def test_release_without_a_proof_is_not_logged(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    changed = replace(bundle, release=replace(bundle.release, proof=""))
    assert refused(changed).code is RefusalCode.RELEASE_NOT_LOGGED


def test_edited_manifest_is_not_in_the_log(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    manifest = parse_manifest(bundle.release.manifest)
    edited = encode_manifest(replace(manifest, version="6.6.6"))
    changed = replace(bundle, release=replace(bundle.release, manifest=edited))
    error = refused(changed)
    assert (error.code, error.step) == (RefusalCode.PROOF_INVALID, "release proof")


def test_forked_log_is_refused(
    refused: Refused, deployment: Deployment, now: datetime
) -> None:
    """Same key, same size, another root: someone was shown another tree."""
    fork = replace(deployment.log, leaves=(b"other", *deployment.log.leaves[1:]))
    bundle = deployment.bundle()
    forked = replace(bundle.anchor, root=fork.root, checkpoint=fork.checkpoint(now))
    error = refused(deployment.attest(replace(bundle, anchor=forked)))
    assert (error.code, error.step) == (RefusalCode.PROOF_INVALID, "log consistency")


def _grown(
    deployment: Deployment,
    now: datetime,
    **anchor: Any,  # noqa: ANN401 - fields of every type
) -> EvidenceBundle:
    """Anchor the bundle in a log that has grown by one leaf since the proof."""
    grown = replace(deployment.log, leaves=(*deployment.log.leaves, b"sixth"))
    bundle = deployment.bundle()
    values: dict[str, Any] = {
        "size": 6,
        "root": grown.root,
        "checkpoint": grown.checkpoint(now),
        "consistency": grown.consistency(5, 6),
    }
    changed = replace(bundle.anchor, **{**values, **anchor})
    return deployment.attest(replace(bundle, anchor=changed))


def test_a_grown_log_is_no_fork(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    bundle = _grown(deployment, now)
    assert verify(encode_bundle(bundle), expectations, now=now).emulated


def test_the_proof_may_be_of_the_later_tree(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    grown = replace(deployment.log, leaves=(*deployment.log.leaves, b"sixth"))
    bundle = deployment.bundle()
    later = replace(
        bundle,
        release=replace(bundle.release, proof=grown.proof(deployment.index, now)),
        anchor=replace(bundle.anchor, consistency=grown.consistency(5, 6)),
    )
    assert verify(encode_bundle(later), expectations, now=now).emulated


Hashes = tuple[bytes, ...]
HISTORIES: dict[str, Callable[[Hashes], Hashes]] = {
    "none": lambda hashes: hashes[:0],
    "dropped": lambda hashes: hashes[:-1],
    "appended": lambda hashes: (*hashes, bytes(32)),
    "changed": lambda hashes: (bytes(32), *hashes[1:]),
    "reversed": lambda hashes: hashes[::-1],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_that_is_not_proved_is_refused(
    *,
    refused: Refused,
    deployment: Deployment,
    now: datetime,
    name: str,
) -> None:
    hashes = HISTORIES[name](_grown(deployment, now).anchor.consistency)
    error = refused(_grown(deployment, now, consistency=hashes))
    assert (error.code, error.step) == (RefusalCode.PROOF_INVALID, "log consistency")


def test_a_fork_between_two_sizes_is_refused(
    refused: Refused, deployment: Deployment, now: datetime
) -> None:
    """Another tree, one leaf longer, signed and witnessed by the same keys."""
    leaves = (b"other", *deployment.log.leaves[1:], b"sixth")
    fork = replace(deployment.log, leaves=leaves)
    values = {"root": fork.root, "checkpoint": fork.checkpoint(now)}
    for hashes in (fork.consistency(5, 6), _grown(deployment, now).anchor.consistency):
        error = refused(_grown(deployment, now, **values, consistency=hashes))
        assert (error.code, error.step) == (
            RefusalCode.PROOF_INVALID,
            "log consistency",
        )


def test_hashes_between_trees_of_one_size_are_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle
) -> None:
    changed = replace(bundle, anchor=replace(bundle.anchor, consistency=(bytes(32),)))
    error = refused(deployment.attest(changed))
    assert (error.code, error.step) == (RefusalCode.PROOF_INVALID, "log consistency")


def test_another_release_name_is_refused(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations
) -> None:
    rules = replace(expectations, release_names=frozenset({"something-else"}))
    error = refused(bundle, rules)
    assert (error.code, error.step) == (
        RefusalCode.RELEASE_NOT_LOGGED,
        "release manifest",
    )


@pytest.mark.parametrize(
    ("denied", "refuses"),
    [
        ("curtilage-enclave 0.0.1", True),
        ("curtilage-enclave 0.0.2", False),
        ("curtilage-enclave 0.0", False),
        ("another 0.0.1", False),
    ],
)
def test_denied_release_is_refused(
    *,
    refused: Refused,
    bundle: EvidenceBundle,
    expectations: Expectations,
    now: datetime,
    denied: str,
    refuses: bool,
) -> None:
    rules = replace(expectations, denied_releases=frozenset({denied}))
    if not refuses:
        assert verify(encode_bundle(bundle), rules, now=now).release_version == "0.0.1"
        return
    error = refused(bundle, rules)
    assert (error.code, error.step) == (RefusalCode.RELEASE_DENIED, "release manifest")


def test_withdrawn_release_is_refused(
    refused: Refused, platform: EmulatedPlatform, now: datetime
) -> None:
    ordinary = parse_manifest(make_deployment(platform, now=now).manifest)
    ended = replace(ordinary, not_after=int(now.timestamp()))
    deployment = make_deployment(platform, now=now, manifest=ended)
    error = refused(deployment.bundle(), deployment.expectations())
    assert (error.code, error.step) == (RefusalCode.STALE, "release manifest")


def test_logged_bytes_that_are_no_manifest_are_refused(
    refused: Refused, deployment: Deployment, now: datetime
) -> None:
    bundle = deployment.bundle()
    release = replace(
        bundle.release, manifest=b"first leaf", proof=deployment.log.proof(0, now)
    )
    error = refused(deployment.attest(replace(bundle, release=release)))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "release manifest")


def _witnessed(
    deployment: Deployment, *, anchor: datetime, proof: datetime
) -> EvidenceBundle:
    bundle = deployment.bundle()
    return deployment.attest(
        replace(
            bundle,
            anchor=replace(
                bundle.anchor,
                time=int(anchor.timestamp()),
                checkpoint=deployment.log.checkpoint(anchor),
            ),
            release=replace(
                bundle.release, proof=deployment.log.proof(deployment.index, proof)
            ),
        )
    )


@pytest.mark.parametrize(
    ("anchor_s", "proof_s", "code"),
    [
        (61, 0, RefusalCode.NOT_YET_VALID),
        (0, 61, RefusalCode.NOT_YET_VALID),
        (-43200, 0, RefusalCode.STALE),
        (0, -86400, RefusalCode.CHECKPOINT_STALE),
    ],
    ids=["anchor future", "proof future", "anchor old", "proof old"],
)
def test_freshness_is_refused(
    *,
    refused: Refused,
    deployment: Deployment,
    now: datetime,
    anchor_s: int,
    proof_s: int,
    code: RefusalCode,
) -> None:
    changed = _witnessed(
        deployment,
        anchor=now + timedelta(seconds=anchor_s),
        proof=now + timedelta(seconds=proof_s),
    )
    error = refused(changed)
    assert (error.code, error.step) == (code, "freshness")


def test_freshness_allows_the_last_second(
    deployment: Deployment, expectations: Expectations, now: datetime
) -> None:
    changed = _witnessed(
        deployment,
        anchor=now - timedelta(seconds=43199),
        proof=now - timedelta(seconds=86399),
    )
    verified = verify(encode_bundle(changed), expectations, now=now)
    assert verified.expires_at == now + timedelta(seconds=1)


def test_old_bundle_is_refused_later(
    refused: Refused, bundle: EvidenceBundle, now: datetime
) -> None:
    assert refused(bundle, now=now + timedelta(hours=12)).code is RefusalCode.STALE


def test_bundle_is_refused_before_its_time(
    refused: Refused, bundle: EvidenceBundle, now: datetime
) -> None:
    error = refused(bundle, now=now - timedelta(hours=1))
    assert error.code is RefusalCode.NOT_YET_VALID


# --- step 22: everything that the report data binds ---------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"key_configs": KEY_CONFIGS[:2] + b"\x02" + KEY_CONFIGS[3:]},
        {"key_configs": KEY_CONFIGS[:-1] + b"\x03"},
        {"key_configs": KEY_CONFIGS + KEY_CONFIGS},
        {"receipt_public_key": bytes(32)},
        {"sandbox": b"{}"},
        {"v": 3, "sandbox_policy_digest": bytes(32)},
        {"v": 3, "sandbox_result_digest": bytes(32)},
        {"transport_parameters": b"\0"},
    ],
    ids=[
        *("key id", "suite", "appended", "receipt", "sandbox"),
        *("policy", "result", "transport"),
    ],
)
def test_report_data_binds_the_bundle(
    refused: Refused, bundle: EvidenceBundle, change: dict[str, Any]
) -> None:
    error = refused(replace(bundle, **change))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


@pytest.mark.parametrize(("name", "by"), [("not_before", 1), ("not_after", -1)])
def test_report_data_binds_the_window(
    refused: Refused, bundle: EvidenceBundle, name: str, by: int
) -> None:
    changed: dict[str, Any] = {name: getattr(bundle, name) + by}
    assert refused(replace(bundle, **changed)).code is RefusalCode.BINDING_MISMATCH


def test_report_data_binds_the_anchors_time(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    earlier = replace(bundle.anchor, time=bundle.anchor.time - 1)
    error = refused(replace(bundle, anchor=earlier))
    assert error.code is RefusalCode.BINDING_MISMATCH


def test_report_data_binds_the_release(
    refused: Refused, deployment: Deployment, now: datetime
) -> None:
    """The other manifest is logged, of the right name, and lists the measurement."""
    manifest = parse_manifest(deployment.manifest)
    other = encode_manifest(replace(manifest, version="0.0.2"))
    log = replace(deployment.log, leaves=(*deployment.log.leaves[:-1], other))
    bundle = deployment.bundle()
    changed = replace(
        bundle,
        release=replace(
            bundle.release,
            manifest=other,
            proof=log.proof(len(log.leaves) - 1, now),
        ),
        anchor=replace(bundle.anchor, root=log.root, checkpoint=log.checkpoint(now)),
    )
    assert refused(changed).code is RefusalCode.BINDING_MISMATCH


def test_half_matching_report_data_is_refused(
    refused: Refused, deployment: Deployment
) -> None:
    def halve(fields: ReportFields) -> ReportFields:
        return replace(fields, report_data=fields.report_data[:32] + bytes(32))

    assert refused(deployment.bundle(halve)).code is RefusalCode.BINDING_MISMATCH


def test_evidence_of_another_bundle_is_refused(
    refused: Refused, deployment: Deployment, bundle: EvidenceBundle
) -> None:
    """A relay keeps the evidence and swaps the keys under it."""
    other = deployment.attest(replace(bundle, key_configs=KEY_CONFIGS[:-1] + b"\x03"))
    stolen = replace(bundle, cpu=other.cpu)
    assert refused(stolen).code is RefusalCode.BINDING_MISMATCH


# One key with X-Wing and two AEADs, then one with X25519, as an enclave publishes.
X_WING_ENTRY = bytes.fromhex(
    "04cd02647a" + "0a" * 1216 + "0008" + "00010001" + "00010003"
)
TWO_SUITES = X_WING_ENTRY + KEY_CONFIGS
STRIPPED = {
    "the post-quantum key": KEY_CONFIGS,
    "the classical key": X_WING_ENTRY,
    "their order": KEY_CONFIGS + X_WING_ENTRY,
    "an AEAD": bytes.fromhex("04c902647a" + "0a" * 1216 + "0004" + "00010001")
    + KEY_CONFIGS,
}


@pytest.mark.parametrize("name", STRIPPED)
def test_a_suite_cannot_be_stripped_from_the_keys(
    refused: Refused,
    deployment: Deployment,
    expectations: Expectations,
    now: datetime,
    name: str,
) -> None:
    """Another gateway documented such a binding and dropped it later."""
    bundle = replace(deployment.bundle(), key_configs=TWO_SUITES)
    attested = deployment.attest(bundle)
    assert verify(encode_bundle(attested), expectations, now=now).key_configs == (
        TWO_SUITES
    )
    error = refused(replace(attested, key_configs=STRIPPED[name]))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


# --- step 23: the release's transport parameters ------------------------------


OTHERS = {
    "slower": replace(PADDED, period_ms=51).encode(),
    "unpadded": UNPADDED.encode(),
    "none": b"",
    "another version": b"\2" + PADDED.encode()[1:],
    "cut": PADDED.encode()[:-1],
    "longer": PADDED.encode() + b"\0",
}


@pytest.mark.parametrize("name", OTHERS)
def test_bound_transport_parameters_must_be_the_releases(
    refused: Refused, deployment: Deployment, name: str
) -> None:
    """The enclave signs these itself, but its release says otherwise."""
    bundle = replace(deployment.bundle(), transport_parameters=OTHERS[name])
    error = refused(deployment.attest(bundle))
    assert (error.code, error.step) == (
        RefusalCode.BINDING_MISMATCH,
        "transport parameters",
    )


@pytest.mark.parametrize("name", OTHERS)
def test_transport_parameters_cannot_be_swapped(
    refused: Refused, bundle: EvidenceBundle, name: str
) -> None:
    error = refused(replace(bundle, transport_parameters=OTHERS[name]))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


def _released(
    platform: EmulatedPlatform, now: datetime, transport: TransportParameters
) -> Deployment:
    manifest = make_manifest(now, transport=transport)
    return make_deployment(platform, now=now, manifest=manifest)


@pytest.mark.parametrize(
    "transport",
    [
        UNPADDED,
        replace(PADDED, frame_bytes=1024),
        replace(PADDED, period_ms=100),
        replace(PADDED, first_bucket=32),
        replace(PADDED, buckets=6),
    ],
    ids=["unpadded", "frame", "period", "first bucket", "buckets"],
)
def test_transport_parameters_must_be_accepted(
    *,
    refused: Refused,
    platform: EmulatedPlatform,
    now: datetime,
    transport: TransportParameters,
) -> None:
    deployment = _released(platform, now, transport)
    others = frozenset({PADDED})
    rules = replace(deployment.expectations(), transport=others)
    error = refused(deployment.bundle(), rules)
    assert (error.code, error.step) == (
        RefusalCode.TRANSPORT_NOT_ACCEPTED,
        "transport parameters",
    )
    both = replace(rules, transport=others | {transport})
    verified = verify(encode_bundle(deployment.bundle()), both, now=now)
    assert verified.transport == transport
    assert verified.steps[-1].detail


def test_accepting_no_transport_parameters_refuses_everything(
    refused: Refused, bundle: EvidenceBundle, expectations: Expectations
) -> None:
    error = refused(bundle, replace(expectations, transport=frozenset()))
    assert (error.code, error.step) == (RefusalCode.POLICY_INVALID, "expectations")


def test_accepting_none_is_refused_twice(
    refused: Refused,
    bundle: EvidenceBundle,
    expectations: Expectations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second check holds alone, should the first ever be lost."""

    def accept(_: Expectations) -> None:
        pass

    monkeypatch.setattr(bundle_checks, "validate_expectations", accept)
    error = refused(bundle, replace(expectations, transport=frozenset()))
    assert error.code is RefusalCode.TRANSPORT_NOT_ACCEPTED


# --- nothing but refusals -----------------------------------------------------


def test_unforeseen_exceptions_are_refusals(
    refused: Refused, bundle: EvidenceBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("canary-in-an-exception")

    monkeypatch.setattr(dispatch, "verify_snp", fail)
    error = refused(bundle)
    assert error.code is RefusalCode.VERIFIER_UNAVAILABLE
    assert "canary" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_refusals_name_the_step_and_the_code(refused: Refused) -> None:
    error = refused(b"{}")
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "bundle")
    assert error.detail.startswith("bundle.v: ")
    assert str(error) == f"malformed at step 'bundle': {error.detail}"
    assert error.steps[-1] == Step(
        number=2, name="bundle", passed=False, detail=f"malformed: {error.detail}"
    )


def test_oversize_bundle_is_refused_unread(refused: Refused) -> None:
    error = refused(b"\xff" * (MAX_BUNDLE_BYTES + 1))
    assert error.code is RefusalCode.TOO_LARGE


def test_prefixes_of_a_bundle_are_refused(
    refused: Refused, bundle: EvidenceBundle
) -> None:
    data = encode_bundle(bundle)
    for length in range(0, len(data), 97):
        assert refused(data[:length]).code is RefusalCode.MALFORMED


def test_bundle_survives_its_encoding(bundle: EvidenceBundle) -> None:
    assert parse_bundle(encode_bundle(bundle)) == bundle


def test_another_deployments_root_refuses(
    refused: Refused, bundle: EvidenceBundle, other_root_keys: RootKeys, now: datetime
) -> None:
    other = make_deployment(make_platform(other_root_keys, now=now), now=now)
    error = refused(other.bundle())
    assert error.code is RefusalCode.UNSIGNED, "another log, so no known key signed"
    stranger = replace(bundle, cpu=other.bundle().cpu)
    error = refused(stranger)
    assert (error.code, error.step) == (
        RefusalCode.CHAIN_INVALID,
        "certificate chain",
    )
