"""Attacks on whole bundles that no other file tries.

Each goes through ``verify`` as a client calls it. Attacks on only one kind of
evidence are in that kind's own tests.
"""

# ruff: noqa: ANN401 - fields of every type are changed by name

import base64
import json
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest

from curtilage.attest.binding import challenge_report_data
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    EvidenceBundle,
    SnpEvidence,
    TdxEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_bundle, encode_cpu_evidence
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.manifest import encode_manifest, parse_manifest
from curtilage.attest.standalone import verify_device, verify_evidence
from curtilage.attest.verify import VerifiedKey, verify, verify_challenge
from curtilage_dev.deployment import MEASUREMENT, AnyDeployment, make_any_deployment
from curtilage_dev.emulated.machines import (
    KINDS,
    Machine,
    SnpMachine,
    azure_machine,
    make_gpus,
    make_machine,
)
from curtilage_dev.emulated.snp_pki import EmulatedPlatform
from curtilage_dev.log import new_witness

HOUR = timedelta(hours=1)
# Emulated collateral is stapled apart from what it endorses; a Nitro document
# brings its own certificates.
STAPLED = [tee for tee in KINDS if tee is not Tee.EMULATED_NITRO]
NONCE = bytes(range(32))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One deployment and the time at which it is fresh."""

    deployment: AnyDeployment
    now: datetime

    @property
    def machine(self) -> Machine:
        return self.deployment.machine

    def rules(self, **changes: Any) -> Expectations:
        return replace(self.deployment.expectations(), **changes)

    def verify(
        self,
        bundle: EvidenceBundle,
        rules: Expectations | None = None,
        *,
        now: datetime | None = None,
    ) -> VerifiedKey:
        at = now or self.now
        return verify(encode_bundle(bundle), rules or self.rules(), now=at)

    def refusal(
        self,
        bundle: EvidenceBundle,
        rules: Expectations | None = None,
        *,
        now: datetime | None = None,
    ) -> tuple[RefusalCode, str]:
        with pytest.raises(RefusedError) as caught:
            self.verify(bundle, rules, now=now)
        return caught.value.code, caught.value.step


Make = Callable[..., Case]


@pytest.fixture(scope="session")
def make_case(platform: EmulatedPlatform, now: datetime) -> Make:
    """Surround a machine of a kind with a log and a release."""

    @cache
    def machine(tee: Tee) -> Machine:
        if tee is Tee.EMULATED_SEV_SNP:
            return SnpMachine(platform=platform, image=MEASUREMENT)
        if tee is Tee.EMULATED_AZURE_SNP:
            return azure_machine(platform, MEASUREMENT)
        return make_machine(tee, MEASUREMENT, now=now)

    gpus = cache(lambda: make_gpus(2, now=now))

    def make(tee: Tee, *, with_gpus: bool = False) -> Case:
        deployment = make_any_deployment(
            machine(tee), now=now, gpus=gpus() if with_gpus else None
        )
        return Case(deployment=deployment, now=now)

    return make


@pytest.fixture(params=KINDS, ids=str)
def case(request: pytest.FixtureRequest, make_case: Make) -> Case:
    return make_case(request.param)


@pytest.fixture
def with_gpus(make_case: Make) -> Case:
    return make_case(Tee.EMULATED_NITRO, with_gpus=True)


# --- replays ------------------------------------------------------------------


def _restapled(old: CpuEvidence, fresh: CpuEvidence) -> CpuEvidence:
    """Combine today's stapled data with evidence that was signed before."""
    if isinstance(old, AzureEvidence) and isinstance(fresh, AzureEvidence):
        hardware: Any = _restapled(old.hardware, fresh.hardware)
        return replace(old, hardware=hardware)
    if isinstance(old, SnpEvidence) and isinstance(fresh, SnpEvidence):
        return replace(old, vek=fresh.vek, ask=fresh.ask, crl=fresh.crl)
    assert isinstance(old, TdxEvidence)
    assert isinstance(fresh, TdxEvidence)
    return replace(old, collateral=fresh.collateral)


def _later(case: Case, hours: int) -> tuple[EvidenceBundle, datetime]:
    """An old bundle with the collateral of a later hour."""
    later = case.now + hours * HOUR
    old = case.deployment.bundle()
    cpu = _restapled(old.cpu, case.machine.evidence(bytes(64), now=later))
    assert cpu != old.cpu
    return replace(old, cpu=cpu), later


@pytest.mark.parametrize("case", STAPLED, indirect=True, ids=str)
def test_newer_collateral_does_not_revive_a_key_that_ended(case: Case) -> None:
    bundle, soon = _later(case, 2)
    assert case.verify(bundle, now=soon).expires_at > soon
    bundle, late = _later(case, 12)
    assert case.refusal(bundle, now=late) == (RefusalCode.STALE, "key window")


@pytest.mark.parametrize("case", STAPLED, indirect=True, ids=str)
def test_newer_collateral_does_not_make_old_evidence_younger(case: Case) -> None:
    """A policy with long windows, and evidence that is older than it allows."""
    bundle, later = _later(case, 6)
    freshness = replace(case.rules().freshness, max_evidence_age_s=5 * 3600)
    rules = case.rules(freshness=freshness)
    assert case.refusal(bundle, rules, now=later) == (RefusalCode.STALE, "freshness")


@pytest.mark.parametrize("case", STAPLED, indirect=True, ids=str)
def test_a_newer_anchor_does_not_make_old_evidence_younger(case: Case) -> None:
    bundle, later = _later(case, 6)
    log = case.deployment.log
    anchor = replace(
        bundle.anchor, time=int(later.timestamp()), checkpoint=log.checkpoint(later)
    )
    assert case.refusal(replace(bundle, anchor=anchor), now=later) == (
        RefusalCode.BINDING_MISMATCH,
        "report data",
    )


# --- the beacon, and what an idle log is worth --------------------------------


def _made_beforehand(case: Case, hours: int) -> tuple[EvidenceBundle, datetime]:
    """Evidence made now over the anchor that the log is going to have then."""
    then = case.now + hours * HOUR
    log, bundle = case.deployment.log, case.deployment.unsigned_bundle()
    bundle = replace(
        bundle,
        not_before=int(then.timestamp()),
        not_after=int((then + HOUR).timestamp()),
        anchor=replace(bundle.anchor, time=int(then.timestamp())),
    )
    signed = case.deployment.attest(bundle)
    # Then the witnesses do see the log, which has stood still.
    anchor = replace(signed.anchor, checkpoint=log.checkpoint(then))
    return replace(signed, anchor=anchor), then


@pytest.mark.parametrize("case", STAPLED, indirect=True, ids=str)
def test_a_root_that_repeats_proves_no_time(case: Case) -> None:
    """A known limit: only a log that grows shows that evidence is not older.

    That is why the policy's log should be a busy one.
    """
    bundle, then = _made_beforehand(case, 6)
    assert case.verify(bundle, now=then).anchor_time == then


@pytest.mark.parametrize("case", STAPLED, indirect=True, ids=str)
def test_an_unpredictable_root_does(case: Case) -> None:
    bundle, then = _made_beforehand(case, 6)
    log = case.deployment.log
    grown = replace(log, leaves=(*log.leaves, b"somebody else's"))
    size = len(log.leaves)
    anchor = replace(
        bundle.anchor,
        size=size + 1,
        root=grown.root,
        checkpoint=grown.checkpoint(then),
        consistency=grown.consistency(size, size + 1),
    )
    assert case.refusal(replace(bundle, anchor=anchor), now=then) == (
        RefusalCode.BINDING_MISMATCH,
        "report data",
    )


def test_nitros_own_time_proves_what_an_idle_log_does_not(make_case: Make) -> None:
    case = make_case(Tee.EMULATED_NITRO)
    bundle, then = _made_beforehand(case, 6)
    assert case.refusal(bundle, now=then)[0] is RefusalCode.EXPIRED_ENDORSEMENT


@pytest.mark.parametrize("field", ["origin", "size", "root"])
def test_evidence_over_an_anchor_that_is_not_its_checkpoint_is_refused(
    case: Case, field: str
) -> None:
    """Even where the machine signed over exactly that."""
    other = {"origin": "elsewhere.invalid/log", "size": 1, "root": bytes(32)}[field]
    bundle = case.deployment.unsigned_bundle()
    changed: dict[str, Any] = {field: other}
    bundle = replace(bundle, anchor=replace(bundle.anchor, **changed))
    assert case.refusal(case.deployment.attest(bundle)) == (
        RefusalCode.PROOF_INVALID,
        "log checkpoint",
    )


# --- quorums, and a release for one client ------------------------------------


@pytest.fixture
def watched(make_case: Make) -> Case:
    """A log that two witnesses must have seen."""
    case = make_case(Tee.EMULATED_NITRO)
    log = case.deployment.log
    both = replace(log, witnesses=(*log.witnesses, new_witness("second.invalid")))
    return replace(case, deployment=replace(case.deployment, log=both))


def _two(case: Case) -> Expectations:
    return case.rules(log=replace(case.rules().log, quorum=2))


@pytest.mark.parametrize("missing", [0, 1])
def test_an_anchor_that_too_few_have_seen_is_refused(
    watched: Case, missing: int
) -> None:
    assert watched.verify(watched.deployment.bundle(), _two(watched)).emulated
    log, bundle = watched.deployment.log, watched.deployment.unsigned_bundle()
    alone = replace(log, witnesses=(log.witnesses[1 - missing],))
    anchor = replace(bundle.anchor, checkpoint=alone.checkpoint(watched.now))
    signed = watched.deployment.attest(replace(bundle, anchor=anchor))
    assert watched.refusal(signed, _two(watched)) == (
        RefusalCode.QUORUM_NOT_MET,
        "log checkpoint",
    )


@pytest.mark.parametrize("missing", [0, 1])
def test_a_proof_that_too_few_have_seen_is_refused(watched: Case, missing: int) -> None:
    log, bundle = watched.deployment.log, watched.deployment.bundle()
    alone = replace(log, witnesses=(log.witnesses[1 - missing],))
    proof = alone.proof(watched.deployment.index, watched.now)
    changed = replace(bundle, release=replace(bundle.release, proof=proof))
    assert watched.refusal(changed, _two(watched))[0] is RefusalCode.QUORUM_NOT_MET


def test_a_release_for_one_client_is_in_no_log(case: Case) -> None:
    """A manifest with a measurement of its own, in a tree that others never see."""
    deployment = case.deployment
    theirs = parse_manifest(deployment.manifest)
    mine = encode_manifest(replace(theirs, version="0.0.1-for-you"))
    leaves = list(deployment.log.leaves)
    leaves[deployment.index] = mine
    fork = replace(deployment.log, leaves=tuple(leaves))
    bundle = deployment.unsigned_bundle()
    release = replace(
        bundle.release, manifest=mine, proof=fork.proof(deployment.index, case.now)
    )
    signed = deployment.attest(replace(bundle, release=release))
    assert case.refusal(signed) == (RefusalCode.PROOF_INVALID, "log consistency")
    # Nor does the log's own proof cover it.
    unlogged = replace(signed, release=replace(bundle.release, manifest=mine))
    assert case.refusal(deployment.attest(unlogged)) == (
        RefusalCode.PROOF_INVALID,
        "release proof",
    )


# --- what other verifiers let through -----------------------------------------


def _token(algorithm: str, signature: bytes) -> bytes:
    header = json.dumps({"alg": algorithm, "kid": "served"}).encode()
    claims = json.dumps({"x-nvidia-overall-att-result": True}).encode()
    parts = (header, claims, signature)
    return b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in parts)


@pytest.mark.parametrize(
    ("algorithm", "signature", "code"),
    [
        ("none", b"", RefusalCode.UNSIGNED),
        ("HS256", bytes(32), RefusalCode.UNSUPPORTED_ALGORITHM),
        ("ES384", bytes(96), RefusalCode.UNSUPPORTED_ALGORITHM),
    ],
)
def test_somebody_elses_verdict_is_no_gpu(
    with_gpus: Case, algorithm: str, signature: bytes, code: RefusalCode
) -> None:
    """Regardless of its signer, and of the certificate that is served with it."""
    bundle = with_gpus.deployment.bundle()
    token = replace(bundle.devices[0], report=_token(algorithm, signature))
    changed = replace(bundle, devices=(token, *bundle.devices[1:]))
    assert with_gpus.refusal(with_gpus.deployment.bind(changed))[0] is code


def test_a_gpu_is_not_optional_where_it_is_asked_for(with_gpus: Case) -> None:
    without = replace(with_gpus.deployment, gpus=None)
    assert with_gpus.refusal(without.bundle()) == (
        RefusalCode.DEVICE_MISSING,
        "required devices",
    )


def _azure_cpu(bundle: EvidenceBundle) -> AzureEvidence:
    assert isinstance(bundle.cpu, AzureEvidence)
    return bundle.cpu


def test_the_quote_of_another_vtpm_binds_nothing(
    make_case: Make, platform: EmulatedPlatform
) -> None:
    """Node A's report and runtime data, node B's quote over A's own binding."""
    case = make_case(Tee.EMULATED_AZURE_SNP)
    bundle = case.deployment.bundle()
    twin = replace(case.deployment, machine=azure_machine(platform, MEASUREMENT))
    theirs = _azure_cpu(twin.attest(bundle))
    mixed = replace(_azure_cpu(bundle), quote=theirs.quote)
    assert case.refusal(replace(bundle, cpu=mixed)) == (
        RefusalCode.BAD_SIGNATURE,
        "quote signature",
    )


def test_edited_runtime_data_name_no_key(make_case: Make) -> None:
    case = make_case(Tee.EMULATED_AZURE_SNP)
    bundle = case.deployment.bundle()
    cpu = _azure_cpu(bundle)
    hcl = cpu.hcl.replace(b'"secure-boot":true', b'"secure-boot":null')
    assert hcl != cpu.hcl
    code, _ = case.refusal(replace(bundle, cpu=replace(cpu, hcl=hcl)))
    assert code is RefusalCode.BINDING_MISMATCH


def test_a_register_under_another_index_is_not_that_register(make_case: Make) -> None:
    case = make_case(Tee.EMULATED_AZURE_SNP)
    bundle = case.deployment.bundle()
    cpu = _azure_cpu(bundle)
    values = dict(cpu.quote.pcrs)
    relabelled = {(12 if n == 11 else 11 if n == 12 else n): values[n] for n in values}
    quote = replace(cpu.quote, pcrs=tuple(relabelled.items()))
    code, step = case.refusal(replace(bundle, cpu=replace(cpu, quote=quote)))
    assert (code, step) == (RefusalCode.BAD_SIGNATURE, "PCR values")


# --- no network, no files, no programs ----------------------------------------

# The thread that is watched, and what it did.
_watching: list[tuple[int, list[str]]] = []
# Ways to disclose something: the network, files, other programs.
_DOORS = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn")


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and (event == "open" or event.startswith(_DOORS)):
        thread, seen = _watching[-1]
        if thread == threading.get_ident():
            seen.append(f"{event} {arguments[:1]}")


sys.addaudithook(_hook)


@contextmanager
def _doors() -> Generator[list[str]]:
    """Note whatever the interpreter opens, at any depth of any library."""
    seen: list[str] = []
    _watching.append((threading.get_ident(), seen))
    try:
        yield seen
    finally:
        _watching.pop()


def test_the_doors_are_watched(tmp_path: Any) -> None:
    import socket  # noqa: PLC0415 - what is opened here is the test

    with _doors() as seen:
        socket.socket().close()
        (tmp_path / "file").write_text("x")
    assert [each.split()[0] for each in seen] == ["socket.__new__", "open"]


def _everything(case: Case, bundle: bytes, answer: bytes) -> None:
    rules = case.rules()
    key = verify(bundle, rules, now=case.now)
    if answer:
        verify_challenge(answer, key, NONCE, rules, now=case.now)


@pytest.mark.parametrize("gpus", [False, True], ids=["alone", "with GPUs"])
@pytest.mark.parametrize("tee", KINDS, ids=str)
def test_verifying_opens_nothing_at_all(
    make_case: Make, tee: Tee, *, gpus: bool
) -> None:
    case = make_case(tee, with_gpus=gpus)
    bundle = case.deployment.bundle()
    data, key = encode_bundle(bundle), case.verify(bundle)
    report_data = challenge_report_data(key.b0, NONCE, emulated=True)
    cpu = case.machine.evidence(report_data, now=case.now)
    answer = encode_cpu_evidence(cpu)
    _everything(case, data, answer)  # whatever is imported late is imported now
    with _doors() as seen:
        _everything(case, data, answer)
        verify_evidence(cpu, _pinned(case), now=case.now, bound=None)
        for device in bundle.devices:
            verify_device(device, case.rules(), now=case.now, nonce=None)
    assert seen == []


def _pinned(case: Case) -> Expectations:
    manifest = parse_manifest(case.deployment.manifest)
    tee = case.machine.tee.value
    return case.rules(measurements={tee: manifest.measurements[tee]})


def test_refusing_opens_nothing_at_all(case: Case) -> None:
    """Nor is anybody asked when something is missing."""
    bundle, later = case.deployment.bundle(), case.now + 20 * HOUR
    with pytest.raises(RefusedError):
        case.verify(bundle, now=later)
    with _doors() as seen, pytest.raises(RefusedError):
        case.verify(bundle, now=later)
    assert seen == []
