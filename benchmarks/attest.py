"""The cost of verifying evidence: processor time, and memory for hostile bytes.

A whole bundle, as a client verifies it once for each rotation of the enclave's keys:
the first one, and those that follow, whose chains are known; the same with NVIDIA's
answers about revocation; each verifier by itself; the cached result, as for each query;
and dcap-qvl alone over the same TDX quote, in the same run. The evidence is emulated,
byte for byte in the vendors' formats, with keys and signatures of their sizes.
Everything runs in this thread, in turns, so that other work of the machine affects all
of them alike.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import dcap_qvl  # type: ignore[import-untyped]

from benchmarks.attest_hostile import Targets, measure_hostile
from benchmarks.report import Table
from curtilage.attest.bundle_checks import trusted_log
from curtilage.attest.evidence import EvidenceBundle, TdxEvidence, Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.note import verify_checkpoint, verify_proof
from curtilage.attest.standalone import verify_device, verify_evidence
from curtilage.attest.verify import verify
from curtilage.attest.x509.kept import forget
from curtilage.client.remote.key_store import KeyStore
from curtilage_dev.deployment import MEASUREMENT, AnyDeployment, make_any_deployment
from curtilage_dev.emulated.machines import (
    Gpus,
    Machine,
    SnpMachine,
    azure_machine,
    make_gpus,
    make_machine,
    registers_of,
)
from curtilage_dev.emulated.snp_pki import generate_root_keys, make_platform

BATCH: Final = 4  # operations between two readings of the clock
CACHE_BATCH: Final = 2000
REPORT_DATA: Final = bytes(range(64))

# What a whole bundle and a query may cost.
BUNDLE_AIM_MS: Final = 10.0
CACHE_AIM_US: Final = 20.0
BUNDLE: Final = "bundle: SNP + GPU + log proof"
FIRST: Final = "  the first one, no chain known"
REVOCATION: Final = "bundle: the same and revocation"
AIMED: Final = frozenset({BUNDLE, FIRST, REVOCATION, f"{FIRST} "})
TDX: Final = "TDX quote and collateral"
LIBRARY: Final = "  dcap-qvl alone, the same quote"

Operation = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """One machine of each kind, all of the same moment."""

    machines: Mapping[Tee, Machine]
    gpus: Gpus
    now: datetime


def measure_attest(rounds: int) -> list[Table]:
    """Measure verification, the cache, and hostile input; about half a minute."""
    parts = _make_parts()
    costs = _in_turns(_operations(parts), rounds)
    hostile = measure_hostile(_targets(parts))
    return [_verification(costs), _cache(parts, rounds), hostile]


def _make_parts() -> _Parts:
    now = datetime.now(UTC).replace(microsecond=0)
    platform = make_platform(generate_root_keys(), now=now)
    machines: dict[Tee, Machine] = {
        Tee.EMULATED_SEV_SNP: SnpMachine(platform=platform, image=MEASUREMENT),
        Tee.EMULATED_AZURE_SNP: azure_machine(platform, MEASUREMENT),
    }
    for tee in (Tee.EMULATED_TDX, Tee.EMULATED_NITRO):
        machines[tee] = make_machine(tee, MEASUREMENT, now=now)
    return _Parts(machines=machines, gpus=make_gpus(1, now=now), now=now)


def _targets(parts: _Parts) -> Targets:
    snp = parts.machines[Tee.EMULATED_SEV_SNP]
    return Targets(
        machines=parts.machines,
        rules={
            tee: _pinned(make_any_deployment(machine, now=parts.now), tee)
            for tee, machine in parts.machines.items()
        },
        gpus=parts.gpus,
        gpu_rules=make_any_deployment(
            snp, now=parts.now, gpus=parts.gpus
        ).expectations(),
        now=parts.now,
    )


def _operations(parts: _Parts) -> dict[str, Operation]:
    snp = parts.machines[Tee.EMULATED_SEV_SNP]
    whole = make_any_deployment(snp, now=parts.now, gpus=parts.gpus)
    plain = make_any_deployment(snp, now=parts.now)
    bundle = whole.bundle()
    answered = replace(bundle, devices=parts.gpus.stapled(bundle.devices, parts.now))
    return {
        BUNDLE: _bundle(whole, bundle),
        FIRST: _first(_bundle(whole, bundle)),
        REVOCATION: _bundle(whole, answered),
        f"{FIRST} ": _first(_bundle(whole, answered)),
        "bundle: SNP + log proof": _bundle(plain, plain.bundle()),
        "SNP report, chain and CRL": _cpu(parts, Tee.EMULATED_SEV_SNP),
        "GPU report and chain": _gpu(whole),
        TDX: _cpu(parts, Tee.EMULATED_TDX),
        LIBRARY: _library(parts),
        "Nitro document": _cpu(parts, Tee.EMULATED_NITRO),
        "Azure: HCL blob, quote, SNP": _cpu(parts, Tee.EMULATED_AZURE_SNP),
        "log: proof, checkpoint, cosignature": _log(plain),
    }


def _first(operation: Operation) -> Operation:
    """Do it as a program does it once."""

    def fresh() -> object:
        forget()
        return operation()

    return fresh


def _bundle(deployment: AnyDeployment, bundle: EvidenceBundle) -> Operation:
    data = encode_bundle(bundle)
    expectations = deployment.expectations()
    return lambda: verify(data, expectations, now=deployment.now)


def _cpu(parts: _Parts, tee: Tee) -> Operation:
    machine = parts.machines[tee]
    evidence = machine.evidence(REPORT_DATA, now=parts.now)
    expectations = _pinned(make_any_deployment(machine, now=parts.now), tee)
    return lambda: verify_evidence(evidence, expectations, now=parts.now, bound=None)


def _gpu(deployment: AnyDeployment) -> Operation:
    evidence = deployment.bundle().devices[0]
    expectations = deployment.expectations()
    now = deployment.now
    return lambda: verify_device(evidence, expectations, now=now, nonce=None)


def _pinned(deployment: AnyDeployment, tee: Tee) -> Expectations:
    accepted = {tee.value: (registers_of(tee, MEASUREMENT),)}
    return replace(deployment.expectations(), measurements=accepted)


def _library(parts: _Parts) -> Operation:
    """Verify with the library alone, its collateral parsed beforehand."""
    machine = parts.machines[Tee.EMULATED_TDX]
    evidence = machine.evidence(REPORT_DATA, now=parts.now)
    if not isinstance(evidence, TdxEvidence):
        raise TypeError("not TDX evidence")
    collateral = dcap_qvl.QuoteCollateralV3.from_json(evidence.collateral.decode())
    root = machine.anchor().certificate_der
    seconds = int(parts.now.timestamp())
    policy = dcap_qvl.QuotePolicy.strict(seconds).allow_smt(True)
    policy = policy.allow_dynamic_platform(True).allow_cached_keys(True)
    return lambda: dcap_qvl.QuoteVerifier(root).verify_with_policy(
        evidence.quote, collateral, seconds, policy
    )


def _log(deployment: AnyDeployment) -> Operation:
    bundle = deployment.bundle()
    trusted = trusted_log(deployment.log_expectations())

    def both() -> None:
        leaf = bundle.release.manifest
        verify_proof(bundle.release.proof, leaf=leaf, log=trusted)
        verify_checkpoint(bundle.anchor.checkpoint, trusted)

    return both


def _in_turns(ways: dict[str, Operation], rounds: int) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-max(2, rounds // 10), rounds):
        for name, way in ways.items():
            cost = _milliseconds(way, BATCH)
            if number >= 0:  # the first ones fill caches
                costs[name].append(cost)
    return costs


def _milliseconds(operation: Operation, count: int) -> float:
    started = time.thread_time_ns()
    for _ in range(count):
        operation()
    return (time.thread_time_ns() - started) / count / 1_000_000


def _verification(costs: dict[str, list[float]]) -> Table:
    library = statistics.median(costs[LIBRARY])
    rows: list[tuple[str | float, ...]] = []
    for name, taken in costs.items():
        middle = statistics.median(taken)
        aim: str | float = BUNDLE_AIM_MS if name in AIMED else "-"
        rows.append((name, middle, min(taken), aim, middle / library))
    rounds = len(costs[LIBRARY])
    return Table(
        title=f"Verifying evidence: ms of processor time, {rounds} rounds in turns",
        columns=("what", "median", "least", "aim", "times dcap-qvl"),
        rows=tuple(rows),
        note="emulated evidence, the vendors' forms, key types and chain lengths; "
        "chains are known from an earlier one, where nothing else is said; our TDX "
        "verifier checks everything itself and then asks dcap-qvl too",
    )


def _cache(parts: _Parts, rounds: int) -> Table:
    snp = parts.machines[Tee.EMULATED_SEV_SNP]
    deployment = make_any_deployment(snp, now=parts.now, gpus=parts.gpus)
    book = KeyStore(expectations=deployment.expectations())
    book.accept(encode_bundle(deployment.bundle()), parts.now)
    taken = [
        _milliseconds(lambda: book.current(parts.now), CACHE_BATCH) * 1000
        for _ in range(rounds)
    ]
    row = ("a verified key from the cache", statistics.median(taken), min(taken))
    return Table(
        title="For each query: µs of processor time",
        columns=("what", "median", "least", "aim"),
        rows=((*row, CACHE_AIM_US),),
        note="the client's KeyStore.current: same policy, not expired",
    )
