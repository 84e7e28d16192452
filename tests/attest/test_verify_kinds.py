"""Bundles around evidence of every kind, through the one ``verify``."""

# ruff: noqa: ANN401 - fields of every type are changed by name

import builtins
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest

from curtilage.attest import dispatch
from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.binding import (
    challenge_report_data,
    qualifying_data_v2,
    report_data_v2,
)
from curtilage.attest.bundle_checks import base_of
from curtilage.attest.claims import Claim
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    EvidenceBundle,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_bundle, encode_cpu_evidence
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    PlatformExpectations,
    TrustAnchor,
)
from curtilage.attest.log.manifest import GpuRelease, encode_manifest, parse_manifest
from curtilage.attest.sandbox import (
    Ephemerality,
    Isolation,
    SandboxStatement,
    encode_statement,
)
from curtilage.attest.sev_snp.report import SIGNED_BYTES
from curtilage.attest.steps import UNFORESEEN, StepLog
from curtilage.attest.verify import (
    VerifiedKey,
    verify,
    verify_challenge,
)
from curtilage_dev.deployment import (
    GPU,
    KEY_CONFIGS,
    MEASUREMENT,
    AnyDeployment,
    make_any_deployment,
    make_manifest,
)
from curtilage_dev.emulated.dcap import default_platform, generate_dcap_keys
from curtilage_dev.emulated.machines import (
    Machine,
    SnpMachine,
    TdxMachine,
    azure_machine,
    make_gpus,
    make_machine,
)
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, RootKeys, make_platform
from curtilage_dev.emulated.tdx import make_tdx_platform
from curtilage_dev.emulated.tpm import EmulatedTpm, QuoteFields, make_tpm
from support.sandboxes import HELD, SANDBOX, naming, statement

KINDS = [
    Tee.EMULATED_SEV_SNP,
    Tee.EMULATED_TDX,
    Tee.EMULATED_NITRO,
    Tee.EMULATED_AZURE_SNP,
    Tee.TPM,
]
NONCE = bytes(range(32))


@dataclass(frozen=True, kw_only=True)
class TpmMachine:
    """A machine that has a TPM and nothing else."""

    tpm: EmulatedTpm
    tee: Tee = Tee.TPM

    def anchor(self) -> TrustAnchor:
        return self.tpm.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        del now
        fields = QuoteFields(extra_data=qualifying_data_v2(report_data))
        return self.tpm.evidence(fields)

    def measurement(self) -> dict[str, str]:
        pcrs = QuoteFields(extra_data=b"").pcrs
        return {f"pcr{index}": pcrs[index].hex() for index in (4, 11)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One deployment, and what its evidence signs."""

    deployment: AnyDeployment
    now: datetime

    def rules(self, **changes: Any) -> Expectations:
        return replace(self.deployment.expectations(), **changes)

    def bundle(self, **changes: Any) -> EvidenceBundle:
        return self.sign(replace(self.deployment.unsigned_bundle(), **changes))

    def sign(self, bundle: EvidenceBundle) -> EvidenceBundle:
        """Have everything signed over whatever the bundle now says."""
        machine = self.deployment.machine
        if machine.tee.emulated:
            return self.deployment.attest(bundle)
        data = report_data_v2(base_of(bundle), (), emulated=False)
        return replace(bundle, cpu=machine.evidence(data, now=self.now))

    def verify(
        self, bundle: EvidenceBundle, rules: Expectations | None = None
    ) -> VerifiedKey:
        return verify(encode_bundle(bundle), rules or self.rules(), now=self.now)

    def refused(
        self, bundle: EvidenceBundle, rules: Expectations | None = None
    ) -> RefusedError:
        with pytest.raises(RefusedError) as caught:
            self.verify(bundle, rules)
        return caught.value

    def answer(self, key: VerifiedKey, nonce: bytes = NONCE) -> bytes:
        """Answer a challenge as the enclave does."""
        machine = self.deployment.machine
        data = challenge_report_data(key.b0, nonce, emulated=machine.tee.emulated)
        return encode_cpu_evidence(machine.evidence(data, now=self.now))


Make = Callable[..., Case]


@pytest.fixture(scope="session")
def make_case(platform: EmulatedPlatform, now: datetime) -> Make:
    """Surround a machine of a kind, made once, with a log and a release."""
    machine, gpus = _machines(platform, now), cache(lambda: make_gpus(2, now=now))

    def make(tee: Tee, *, with_gpus: bool = False) -> Case:
        own = machine(tee)
        manifest = None
        if isinstance(own, TpmMachine):
            measured = {"tpm": (own.measurement(),)}
            manifest = replace(make_manifest(now), measurements=measured)
        deployment = make_any_deployment(
            own, now=now, gpus=gpus() if with_gpus else None, manifest=manifest
        )
        return Case(deployment=deployment, now=now)

    return make


def _machines(platform: EmulatedPlatform, now: datetime) -> Callable[[Tee], Machine]:
    @cache
    def machine(tee: Tee) -> Machine:
        if tee is Tee.EMULATED_SEV_SNP:
            return SnpMachine(platform=platform, image=MEASUREMENT)
        if tee is Tee.EMULATED_AZURE_SNP:
            return azure_machine(platform, MEASUREMENT)
        if tee is Tee.TPM:
            return TpmMachine(tpm=make_tpm())
        return make_machine(tee, MEASUREMENT, now=now)

    return machine


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, make_case: Make) -> Case:
    return make_case(request.param)


@pytest.fixture
def with_gpus(make_case: Make) -> Case:
    return make_case(Tee.EMULATED_NITRO, with_gpus=True)


# --- what is accepted ---------------------------------------------------------


def test_every_kind_is_verified(case: Case) -> None:
    key = case.verify(case.bundle())
    tee = case.deployment.machine.tee
    assert (key.tee, key.claims.tee) == (tee.value, tee)
    assert (key.emulated, key.isolates) == (tee.emulated, False)
    assert key.claims.registers[_first(tee)] == key.measurement
    assert key.steps[-1].name == "transport parameters"
    assert [step.number for step in key.steps] == list(range(1, len(key.steps) + 1))


def _first(tee: Tee) -> str:
    if tee in {Tee.EMULATED_SEV_SNP, Tee.EMULATED_AZURE_SNP}:
        return "launch"
    return "mrtd" if tee is Tee.EMULATED_TDX else "pcr0"


def test_no_kind_opens_a_socket(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = case.bundle()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert case.verify(bundle).key_configs == KEY_CONFIGS


def test_the_chain_of_trust_is_reported_root_first(case: Case) -> None:
    key = case.verify(case.bundle())
    *evidence, release, sealing = key.links
    assert evidence
    assert tuple(evidence) == key.claims.links
    assert release.role == "published release"
    assert release.fingerprint == key.release_digest.hex()
    assert sealing.fingerprint == key.key_configs_digest
    assert all(len(link.fingerprint) == 64 for link in key.links)


def test_expiries_are_named(case: Case) -> None:
    key = case.verify(case.bundle())
    ends = dict(key.expiries)
    assert set(ends) == {
        "key window",
        "evidence age",
        "CPU endorsements",
        "release",
        "release proof",
    }
    assert key.expires_at == min(ends.values())
    assert ends["key window"] == key.not_after == case.now + timedelta(hours=12)
    assert ends["evidence age"] == key.anchor_time + timedelta(hours=12)
    assert ends["CPU endorsements"] == key.claims.expires_at
    assert ends["release proof"] == case.now + timedelta(days=1)


def test_devices_have_their_place_among_links_and_expiries(with_gpus: Case) -> None:
    key = with_gpus.verify(with_gpus.bundle())
    ends = dict(key.expiries)
    assert [device.index for device in key.devices] == [0, 1]
    for device in key.devices:
        assert ends[f"{GPU} {device.index} endorsements"] == device.expires_at
        assert set(device.links) <= set(key.links)


def test_only_a_device_that_ends_sooner_ends_the_key_sooner(with_gpus: Case) -> None:
    key = with_gpus.verify(with_gpus.bundle())
    first = min(device.expires_at for device in key.devices)
    assert key.expires_at <= first


# --- the binding, of every kind -----------------------------------------------


SWAPPED: dict[str, dict[str, Any]] = {
    "key id": {"key_configs": KEY_CONFIGS[:2] + b"\x02" + KEY_CONFIGS[3:]},
    "suite": {"key_configs": KEY_CONFIGS[:-1] + b"\x03"},
    "appended": {"key_configs": KEY_CONFIGS + KEY_CONFIGS},
    "receipt key": {"receipt_public_key": bytes(32)},
    "sandbox": {"sandbox": b"{}"},
    "transport": {"transport_parameters": b"\0"},
}
OLD_SWAPPED: dict[str, dict[str, Any]] = {
    **{name: value for name, value in SWAPPED.items() if name != "sandbox"},
    "sandbox": {"sandbox_policy_digest": bytes(32)},
    "sandbox result": {"sandbox_result_digest": bytes(32)},
}


@pytest.mark.parametrize("name", SWAPPED)
def test_a_relay_that_swaps_anything_is_found_out(case: Case, name: str) -> None:
    error = case.refused(replace(case.bundle(), **SWAPPED[name]))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


@pytest.mark.parametrize("name", OLD_SWAPPED)
def test_in_version_3_too_a_relay_is_found_out(case: Case, name: str) -> None:
    error = case.refused(replace(case.bundle(v=3), **OLD_SWAPPED[name]))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


@pytest.mark.parametrize(("signed", "shown"), [(3, 4), (4, 3)])
def test_evidence_of_one_version_proves_no_other(
    case: Case, signed: int, shown: int
) -> None:
    error = case.refused(replace(case.bundle(v=signed), v=shown))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


PARTS: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda data: data[:32] + bytes(32),
    "zeros": lambda data: bytes(len(data)),
    "halves exchanged": lambda data: data[32:] + data[:32],
}


@pytest.mark.parametrize("name", PARTS)
def test_anything_but_the_whole_binding_is_refused(case: Case, name: str) -> None:
    bundle = case.bundle()
    emulated = case.deployment.machine.tee.emulated
    data = report_data_v2(base_of(bundle), (), emulated=emulated)
    cpu = case.deployment.machine.evidence(PARTS[name](data), now=case.now)
    error = case.refused(replace(bundle, cpu=cpu))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


def test_the_other_label_is_refused(case: Case) -> None:
    """Emulated and genuine evidence over the same inputs differ."""
    bundle = case.bundle()
    other = not case.deployment.machine.tee.emulated
    data = report_data_v2(base_of(bundle), (), emulated=other)
    cpu = case.deployment.machine.evidence(data, now=case.now)
    error = case.refused(replace(bundle, cpu=cpu))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


def test_an_old_bundle_is_refused_after_its_end(case: Case) -> None:
    data = encode_bundle(case.bundle())
    with pytest.raises(RefusedError) as caught:
        verify(data, case.rules(), now=case.now + timedelta(hours=12))
    assert caught.value.code is RefusalCode.STALE


def test_renewed_evidence_does_not_renew_an_old_binding(case: Case) -> None:
    """Replay: the old keys and window with evidence for newer ones."""
    old = case.bundle()
    newer = case.sign(replace(old, not_after=old.not_after - 1))
    error = case.refused(replace(old, cpu=newer.cpu))
    assert error.code is RefusalCode.BINDING_MISMATCH


# --- malleability: another signature over the same words -----------------------

P384_ORDER = int(
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf"
    "581a0db248b0a77aecec196accc52973",
    16,
)
P256_ORDER = int("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
# Where a TDX quote's version 4 keeps its signature: header, TD report, length.
TDX_SIGNATURE = 48 + 584 + 4


def _negated(data: bytes, start: int, order: int, byteorder: Any = "big") -> bytes:
    """Replace the second number of a signature by its negative."""
    size = 72 if byteorder == "little" else (order.bit_length() + 7) // 8
    place = slice(start + size, start + 2 * size)
    changed = bytearray(data)
    s = int.from_bytes(changed[place], byteorder)
    changed[place] = (order - s).to_bytes(size, byteorder)
    assert bytes(changed) != data
    return bytes(changed)


def _malleated(cpu: CpuEvidence) -> CpuEvidence:
    if isinstance(cpu, SnpEvidence):
        report = _negated(cpu.report, SIGNED_BYTES, P384_ORDER, "little")
        return replace(cpu, report=report)
    if isinstance(cpu, TdxEvidence):
        quote = _negated(cpu.quote, TDX_SIGNATURE, P256_ORDER)
        return replace(cpu, quote=quote)
    if isinstance(cpu, NitroEvidence):
        document = _negated(cpu.document, len(cpu.document) - 96, P384_ORDER)
        return replace(cpu, document=document)
    assert isinstance(cpu, AzureEvidence)
    hardware = _malleated(cpu.hardware)
    assert isinstance(cpu.hardware, SnpEvidence)
    assert isinstance(hardware, SnpEvidence)
    hcl = cpu.hcl.replace(cpu.hardware.report, hardware.report)
    return replace(cpu, hardware=hardware, hcl=hcl)


@pytest.mark.parametrize("case", KINDS[:-1], indirect=True)
def test_another_signature_over_the_same_words_is_the_same_verdict(case: Case) -> None:
    """Turning (r, s) into (r, n - s) gains no second cache entry."""
    bundle = case.bundle()
    other = replace(bundle, cpu=_malleated(bundle.cpu))
    assert encode_bundle(other) != encode_bundle(bundle)
    assert case.verify(other) == case.verify(bundle)
    assert case.verify(other).verdict_id == case.verify(bundle).verdict_id


def test_another_signature_of_a_gpu_is_the_same_verdict(with_gpus: Case) -> None:
    bundle = with_gpus.bundle()
    first = bundle.devices[0]
    report = _negated(first.report, len(first.report) - 96, P384_ORDER)
    other = replace(
        bundle, devices=(replace(first, report=report), *bundle.devices[1:])
    )
    assert with_gpus.verify(other) == with_gpus.verify(bundle)


def test_a_verdict_is_named_by_what_was_signed(case: Case) -> None:
    key = case.verify(case.bundle())
    other = case.verify(case.bundle(receipt_public_key=bytes(32)))
    assert key.verdict_id != other.verdict_id
    again = case.verify(case.bundle(), case.rules(digest="sha256:other"))
    assert key.verdict_id != again.verdict_id


def test_a_verdicts_name_is_too_long_to_be_made_twice(case: Case) -> None:
    """An enclave's operator chooses the keys, and may try any number of them."""
    assert len(case.verify(case.bundle()).verdict_id) == 64


def test_a_verdicts_name_says_which_machine(
    make_case: Make, root_keys: RootKeys, now: datetime
) -> None:
    """The same image with the same keys, in two machines."""
    case = make_case(Tee.EMULATED_SEV_SNP)
    key = case.verify(case.bundle())
    moved = SnpMachine(platform=make_platform(root_keys, now=now), image=MEASUREMENT)
    twin = replace(case, deployment=replace(case.deployment, machine=moved))
    other = twin.verify(twin.bundle())
    assert (other.claims.bound, other.measurement) == (
        key.claims.bound,
        key.measurement,
    )
    assert other.verdict_id != key.verdict_id


# --- kinds, roots, environments -----------------------------------------------


def test_a_kind_that_the_policy_does_not_name_is_refused(case: Case) -> None:
    tee = case.deployment.machine.tee
    rules = case.rules(required_cpu_tees=frozenset({"nitro"}))
    error = case.refused(case.bundle(), rules)
    assert error.step == "kind of evidence"
    assert error.code is (
        RefusalCode.EMULATED_REFUSED
        if tee.emulated
        else RefusalCode.UNSUPPORTED_PRODUCT
    )


def test_production_refuses_every_kind_that_shows_no_isolation(case: Case) -> None:
    rules = case.rules(environment=Environment.PRODUCTION)
    error = case.refused(case.bundle(), rules)
    assert (error.code, error.step) == (RefusalCode.EMULATED_REFUSED, "expectations")


def test_production_refuses_it_twice(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second check holds alone, should the first ever be lost."""

    def accept(_: Expectations) -> None:
        pass

    monkeypatch.setattr(dispatch_checks(), "validate_expectations", accept)
    rules = case.rules(environment=Environment.PRODUCTION)
    error = case.refused(case.bundle(), rules)
    assert (error.code, error.step) == (
        RefusalCode.EMULATED_REFUSED,
        "kind of evidence",
    )


def dispatch_checks() -> Any:
    from curtilage.attest import bundle_checks  # noqa: PLC0415 - to be changed

    return bundle_checks


VENDORS = {
    Tee.EMULATED_SEV_SNP: (Tee.SEV_SNP, AnchorKind.AMD, "Genoa"),
    Tee.EMULATED_AZURE_SNP: (Tee.AZURE_SNP, AnchorKind.AMD, "Genoa"),
    Tee.EMULATED_TDX: (Tee.TDX, AnchorKind.INTEL, ""),
    Tee.EMULATED_NITRO: (Tee.NITRO, AnchorKind.AWS, ""),
}


@pytest.mark.parametrize("case", VENDORS, indirect=True)
def test_emulated_evidence_that_says_it_is_genuine_is_refused(case: Case) -> None:
    tee = case.deployment.machine.tee
    genuine, kind, product = VENDORS[tee]
    manifest = parse_manifest(case.deployment.manifest)
    measured = {genuine.value: manifest.measurements[tee.value]}
    deployment = make_any_deployment(
        case.deployment.machine,
        now=case.now,
        manifest=replace(manifest, measurements=measured),
    )
    lying = replace(case, deployment=deployment)
    bundle = lying.bundle()
    cpu: Any = replace(bundle.cpu, tee=genuine)
    if hasattr(cpu, "hardware"):
        cpu = replace(cpu, hardware=replace(cpu.hardware, tee=Tee.SEV_SNP))
    rules = lying.rules(
        environment=Environment.PRODUCTION,
        roots=(TrustAnchor.of_vendor(kind, product),),
        required_cpu_tees=frozenset({genuine.value}),
    )
    error = lying.refused(replace(bundle, cpu=cpu), rules)
    assert error.code in {
        RefusalCode.UNTRUSTED_ROOT,
        RefusalCode.CHAIN_INVALID,
        RefusalCode.COLLATERAL_INVALID,
    }


def test_without_a_root_of_its_kind_nothing_is_accepted(case: Case) -> None:
    other = TrustAnchor.of_vendor(AnchorKind.AWS)
    error = case.refused(case.bundle(), case.rules(roots=(other,)))
    assert error.code is RefusalCode.UNTRUSTED_ROOT


def test_measurements_are_those_of_the_release(case: Case) -> None:
    manifest = parse_manifest(case.deployment.manifest)
    tee = case.deployment.machine.tee.value
    released = manifest.measurements[tee]
    for measurements in ({}, {tee: ()}, {f"not-{tee}": released}):
        leaf = encode_manifest(replace(manifest, measurements=measurements))
        assert parse_manifest(leaf).measurements == measurements
        deployment = make_any_deployment(
            case.deployment.machine,
            now=case.now,
            manifest=replace(manifest, measurements=measurements),
        )
        other = replace(case, deployment=deployment)
        error = other.refused(other.bundle())
        assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_pinned_measurements_must_hold_as_well(case: Case) -> None:
    tee = case.deployment.machine.tee.value
    manifest = parse_manifest(case.deployment.manifest)
    released = manifest.measurements[tee]
    pinned = case.rules(measurements={tee: released})
    steps = case.verify(case.bundle(), pinned).steps
    assert "pinned measurement" in {step.name for step in steps}
    (measurement,) = released
    name, value = next(iter(measurement.items()))
    other = {**measurement, name: "0" * len(value)}
    for accepted, said in (((other,), f"accepted: {name} 000"), ((), "none is acc")):
        error = case.refused(case.bundle(), case.rules(measurements={tee: accepted}))
        assert (error.code, error.step) == (
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            "pinned measurement",
        )
        assert error.detail.startswith("released, but ")
        assert said in error.detail


# --- machines -----------------------------------------------------------------


def test_machines_are_denied_and_allowed(case: Case) -> None:
    platform = case.verify(case.bundle()).claims.platform
    other = "ff" * 64
    if not platform:
        assert case.deployment.machine.tee is Tee.TPM
        for listed in (
            PlatformExpectations(deny=frozenset({other})),
            PlatformExpectations(allow=frozenset({other})),
        ):
            error = case.refused(case.bundle(), case.rules(platforms=listed))
            assert error.code is RefusalCode.PLATFORM_DENIED
        return
    for accepted in (
        PlatformExpectations(deny=frozenset({other})),
        PlatformExpectations(allow=frozenset({platform, other})),
    ):
        key = case.verify(case.bundle(), case.rules(platforms=accepted))
        assert key.claims.platform == platform
    for refused in (
        PlatformExpectations(deny=frozenset({platform})),
        PlatformExpectations(allow=frozenset({other})),
        PlatformExpectations(allow=frozenset()),
        PlatformExpectations(allow=frozenset({platform}), deny=frozenset({platform})),
    ):
        error = case.refused(case.bundle(), case.rules(platforms=refused))
        assert (error.code, error.step) == (RefusalCode.PLATFORM_DENIED, "platform")


@pytest.mark.parametrize("case", [Tee.EMULATED_NITRO], indirect=True)
def test_a_nitro_instance_covers_all_its_enclaves(case: Case) -> None:
    """An enclave's own number is new with each start."""
    platform = case.verify(case.bundle()).claims.platform
    instance, mark, number = platform.partition("-enc")
    assert mark
    for named in (instance, platform):
        listed = frozenset({named})
        allowed = case.rules(platforms=PlatformExpectations(allow=listed))
        assert case.verify(case.bundle(), allowed).claims.platform == platform
        denied = case.rules(platforms=PlatformExpectations(deny=listed))
        assert case.refused(case.bundle(), denied).code is RefusalCode.PLATFORM_DENIED
    for other in (instance[:-1], f"{instance}0", f"{instance}-enc", number):
        listed = frozenset({other})
        allowed = case.rules(platforms=PlatformExpectations(allow=listed))
        error = case.refused(case.bundle(), allowed)
        assert error.code is RefusalCode.PLATFORM_DENIED


def test_a_td_that_names_no_machine_passes_no_list(now: datetime) -> None:
    unnamed = replace(default_platform(), ppid=bytes(16))
    td = make_tdx_platform(generate_dcap_keys(), now=now, platform=unnamed)
    measured: dict[str, Any] = {"emulated-tdx": (td.measurement,)}
    manifest = replace(make_manifest(now), measurements=measured)
    machine = TdxMachine(platform=td)
    deployment = make_any_deployment(machine, now=now, manifest=manifest)
    case = Case(deployment=deployment, now=now)
    assert case.verify(case.bundle()).claims.platform == ""
    for listed in ("00" * 16, unnamed.fmspc.hex(), default_platform().ppid.hex()):
        named = frozenset({listed})
        for platforms in (
            PlatformExpectations(deny=named),
            PlatformExpectations(allow=named),
        ):
            error = case.refused(case.bundle(), case.rules(platforms=platforms))
            assert error.code is RefusalCode.PLATFORM_DENIED
            assert "names none" in error.detail


# --- verifiers that are not there, or fail ------------------------------------


EXTRAS = {Tee.EMULATED_TDX: "dcap_qvl", Tee.EMULATED_NITRO: "cbor2"}


@pytest.mark.parametrize("case", EXTRAS, indirect=True)
def test_a_missing_extra_is_a_refusal(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = EXTRAS[case.deployment.machine.tee]
    bundle, known = case.bundle(), builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == extra:
            raise ImportError(name=extra)
        return known(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert case.refused(bundle).code is RefusalCode.VERIFIER_UNAVAILABLE


FAILURES: dict[type[Exception], str] = {
    ImportError: "the verifier's extra is not installed",
    ZeroDivisionError: UNFORESEEN,
    MemoryError: UNFORESEEN,
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_verifier_that_fails_is_a_refusal(
    case: Case, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    bundle = case.bundle()

    def fail(*_: object, **__: object) -> None:
        raise failure("canary-in-an-exception")

    monkeypatch.setattr(dispatch, "_verify_cpu", fail)
    error = case.refused(bundle)
    assert error.code is RefusalCode.VERIFIER_UNAVAILABLE
    assert error.detail == FAILURES[failure]
    assert "canary" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_a_device_verifier_that_fails_is_a_refusal(
    with_gpus: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = with_gpus.bundle()

    def fail(*_: object, **__: object) -> None:
        raise ImportError("canary")

    monkeypatch.setattr(dispatch, "_verify_gpu", fail)
    assert with_gpus.refused(bundle).code is RefusalCode.VERIFIER_UNAVAILABLE


# --- devices and releases -----------------------------------------------------


def _released(case: Case, gpu: GpuRelease) -> Case:
    manifest = replace(parse_manifest(case.deployment.manifest), gpu=gpu)
    machine, gpus = case.deployment.machine, case.deployment.gpus
    deployment = make_any_deployment(
        machine, now=case.now, gpus=gpus, manifest=manifest
    )
    return replace(case, deployment=deployment)


def test_a_release_that_says_nothing_of_gpus_leaves_them_to_the_policy(
    with_gpus: Case,
) -> None:
    silent = _released(with_gpus, GpuRelease())
    assert len(silent.verify(silent.bundle()).devices) == 2


@pytest.mark.parametrize("name", ["drivers", "vbioses", "golden"])
def test_a_gpu_must_be_one_of_the_releases_too(with_gpus: Case, name: str) -> None:
    ordinary = parse_manifest(with_gpus.deployment.manifest).gpu
    assert getattr(ordinary, name)
    changes: dict[str, Any] = {name: ("00" * 32,)}
    other = _released(with_gpus, replace(ordinary, **changes))
    assert other.refused(other.bundle()).step.startswith("GPU")


def test_capitals_of_a_version_do_not_matter(with_gpus: Case) -> None:
    ordinary = parse_manifest(with_gpus.deployment.manifest).gpu
    capitals = tuple(each.upper() for each in ordinary.vbioses)
    other = _released(with_gpus, replace(ordinary, vbioses=capitals))
    assert len(other.verify(other.bundle()).devices) == 2


# --- what a key shows ---------------------------------------------------------


def test_a_key_shows_no_more_than_was_verified(case: Case) -> None:
    key = case.verify(case.bundle())
    assert key.shows == {Claim.WEIGHTS}
    manifest = replace(parse_manifest(case.deployment.manifest), models=())
    deployment = make_any_deployment(
        case.deployment.machine, now=case.now, manifest=manifest
    )
    other = replace(case, deployment=deployment)
    assert other.verify(other.bundle()).shows == set()


def test_an_emulated_gpu_is_no_gpu(with_gpus: Case) -> None:
    key = with_gpus.verify(with_gpus.bundle())
    assert Claim.GPU not in key.shows
    assert key.devices


LISTED = frozenset({SANDBOX})
MODES = {Claim.ISOLATION, Claim.EPHEMERALITY}


def _boxed(case: Case, stated: SandboxStatement | None, **named: Any) -> Case:
    """Release the sandbox of a statement, or other words in their place."""
    manifest = parse_manifest(case.deployment.manifest)
    if stated is not None:
        manifest = naming(manifest, stated)
    deployment = make_any_deployment(
        case.deployment.machine, now=case.now, manifest=replace(manifest, **named)
    )
    return replace(case, deployment=deployment)


@pytest.mark.parametrize(
    ("listed", "shown"), [(SANDBOX, True), ("00" * 32, False)], ids=["listed", "not"]
)
def test_a_listed_sandbox_shows_that_nothing_is_written(
    case: Case, listed: str, shown: bool
) -> None:
    boxed = _boxed(case, statement())
    bundle = boxed.bundle(sandbox=encode_statement(statement()))
    key = boxed.verify(bundle, boxed.rules(sandbox=frozenset({listed})))
    assert (Claim.NO_WRITE in key.shows) is shown
    assert key.shows >= MODES
    assert key.sandbox == statement()


@pytest.mark.parametrize(
    ("isolation", "ephemerality", "shown"),
    [
        (Isolation.PROCESS, Ephemerality.PROCESS, MODES),
        (Isolation.SHARED, Ephemerality.OVERWRITTEN, {Claim.EPHEMERALITY}),
        (Isolation.SHARED, Ephemerality.NONE, set[Claim]()),
        (Isolation.PROCESS, Ephemerality.NONE, {Claim.ISOLATION}),
    ],
)
def test_each_mode_is_a_claim_of_its_own(
    make_case: Make,
    isolation: Isolation,
    ephemerality: Ephemerality,
    shown: set[Claim],
) -> None:
    stated = statement(isolation=isolation, ephemerality=ephemerality)
    boxed = _boxed(make_case(Tee.EMULATED_NITRO), stated)
    bundle = boxed.bundle(sandbox=encode_statement(stated))
    key = boxed.verify(bundle, boxed.rules(sandbox=LISTED))
    assert key.shows & (MODES | {Claim.NO_WRITE}) == shown | {Claim.NO_WRITE}


def test_without_a_statement_nothing_is_shown_of_a_sandbox(case: Case) -> None:
    key = case.verify(case.bundle(), case.rules(sandbox=frozenset({SANDBOX, ""})))
    assert key.sandbox is None
    assert not key.shows & (MODES | {Claim.NO_WRITE})


OTHER: dict[str, tuple[SandboxStatement | None, dict[str, Any]]] = {
    "none": (None, {}),
    "another": (statement(loaded="00" * 32), {}),
    "not released": (
        statement(),
        {"sandbox": "", "isolation": None, "ephemerality": None},
    ),
    "released without its modes": (
        statement(),
        {"isolation": None, "ephemerality": None},
    ),
    "another isolation": (statement(isolation=Isolation.SHARED), {}),
    "another ephemerality": (statement(ephemerality=Ephemerality.NONE), {}),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_sandbox_must_be_the_releases(case: Case, name: str) -> None:
    """The enclave signs it itself, but its release says otherwise."""
    stated, named = OTHER[name]
    boxed = _boxed(case, statement(), **named)
    bound = b"" if stated is None else encode_statement(stated)
    error = boxed.refused(boxed.bundle(sandbox=bound), boxed.rules(sandbox=LISTED))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "sandbox")


def test_a_sandbox_that_its_own_test_found_open_is_refused(case: Case) -> None:
    opened = replace(
        HELD, processes=(*HELD.processes[:1], replace(HELD.processes[1], denied=()))
    )
    for result in (opened, replace(HELD, landlock_abi=0)):
        stated = statement(result=result)
        boxed = _boxed(case, stated)
        error = boxed.refused(boxed.bundle(sandbox=encode_statement(stated)))
        assert (error.code, error.step) == (RefusalCode.SANDBOX_OPEN, "sandbox")


def test_a_statement_in_another_spelling_is_refused(case: Case) -> None:
    boxed = _boxed(case, statement())
    spaced = encode_statement(statement()).replace(b":", b": ")
    error = boxed.refused(boxed.bundle(sandbox=spaced))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, "sandbox")


# --- challenges ---------------------------------------------------------------


def _challenged(
    case: Case,
    evidence: bytes,
    key: VerifiedKey,
    *,
    nonce: bytes = NONCE,
    **changes: Any,
) -> None:
    later = changes.pop("now", case.now)
    verify_challenge(evidence, key, nonce, case.rules(**changes), now=later)


def _unanswered(
    case: Case, evidence: bytes, key: VerifiedKey, **changes: Any
) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        _challenged(case, evidence, key, **changes)
    return caught.value


def test_a_challenge_is_answered(case: Case) -> None:
    key = case.verify(case.bundle())
    _challenged(case, case.answer(key), key)


def test_an_answer_to_another_challenge_is_refused(case: Case) -> None:
    key = case.verify(case.bundle())
    error = _unanswered(case, case.answer(key, bytes(32)), key)
    assert (error.code, error.step) == (
        RefusalCode.BINDING_MISMATCH,
        "challenge binding",
    )


def test_the_bundles_own_evidence_answers_no_challenge(case: Case) -> None:
    bundle = case.bundle()
    key = case.verify(bundle)
    error = _unanswered(case, encode_cpu_evidence(bundle.cpu), key)
    assert error.code is RefusalCode.BINDING_MISMATCH


def test_an_answer_over_another_key_is_refused(case: Case) -> None:
    key = case.verify(case.bundle())
    other = case.verify(case.bundle(receipt_public_key=bytes(32)))
    error = _unanswered(case, case.answer(other), key)
    assert error.code is RefusalCode.BINDING_MISMATCH


def test_an_answer_under_the_other_label_is_refused(case: Case) -> None:
    key = case.verify(case.bundle())
    machine = case.deployment.machine
    data = challenge_report_data(key.b0, NONCE, emulated=not machine.tee.emulated)
    answer = encode_cpu_evidence(machine.evidence(data, now=case.now))
    assert _unanswered(case, answer, key).code is RefusalCode.BINDING_MISMATCH


def test_an_answer_of_another_kind_is_refused(case: Case, make_case: Make) -> None:
    key = case.verify(case.bundle())
    kinds = [kind for kind in KINDS if kind is not case.deployment.machine.tee]
    other = make_case(kinds[0])
    error = _unanswered(case, other.answer(key), key)
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "challenge")


def test_an_answer_after_the_keys_end_is_refused(case: Case) -> None:
    key = case.verify(case.bundle())
    error = _unanswered(case, case.answer(key), key, now=key.expires_at)
    assert (error.code, error.step) == (RefusalCode.STALE, "challenge")


def test_an_answer_that_is_no_evidence_is_refused(case: Case) -> None:
    key = case.verify(case.bundle())
    assert _unanswered(case, b"{}", key).code is RefusalCode.MALFORMED


def test_an_answer_under_a_policy_that_permits_nothing_is_refused(case: Case) -> None:
    key = case.verify(case.bundle())
    error = _unanswered(case, case.answer(key), key, roots=())
    assert error.code is RefusalCode.POLICY_INVALID


@pytest.mark.parametrize("nonce", [NONCE[:-1], b"", bytes(33)], ids=[31, 0, 33])
def test_a_nonce_of_another_length_is_the_callers_mistake(
    case: Case, nonce: bytes
) -> None:
    key = case.verify(case.bundle())
    with pytest.raises(ValueError, match=r"^nonce .* 32 bytes$"):
        _challenged(case, case.answer(key), key, nonce=nonce)


def test_an_answer_under_another_policy_is_refused(case: Case) -> None:
    """One that would have accepted it as well, but did not verify the key."""
    key = case.verify(case.bundle())
    error = _unanswered(case, case.answer(key), key, digest="sha256:other")
    assert (error.code, error.step) == (RefusalCode.POLICY_INVALID, "challenge")
    assert "another policy" in error.detail


def test_an_answer_below_the_releases_patch_levels_is_refused(
    root_keys: RootKeys, now: datetime
) -> None:
    """The chip that was verified, but with the firmware of the day before."""

    def same_chip(size: int) -> bytes:
        return b"\x55" * size

    good = make_platform(root_keys, now=now, random=same_chip)
    low = replace(good.tcb, snp=1, ucode=10)
    old = make_platform(root_keys, now=now, random=same_chip, tcb=low)
    old = replace(old, ark=good.ark, ask=good.ask)
    manifest = replace(make_manifest(now), min_tcb={Product.GENOA: good.tcb})
    machine = SnpMachine(platform=good, image=MEASUREMENT)
    deployment = make_any_deployment(machine, now=now, manifest=manifest)
    case = Case(deployment=deployment, now=now)
    zero = Tcb(fmc=0, bl=0, tee=0, snp=0, ucode=0)
    snp = replace(case.rules().snp, min_tcb={"Genoa": zero})
    key = case.verify(case.bundle(), case.rules(snp=snp))
    _challenged(case, case.answer(key), key, snp=snp)
    moved = SnpMachine(platform=old, image=MEASUREMENT)
    rolled = replace(case, deployment=replace(deployment, machine=moved))
    error = _unanswered(case, rolled.answer(key), key, snp=snp)
    assert (error.code, error.step) == (RefusalCode.TCB_TOO_LOW, "minimum TCB")


def test_who_answered_is_said_no_better_than_it_is_known(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    passed = StepLog.passed

    def noted(log: StepLog, detail: str) -> None:
        said.append(detail)
        passed(log, detail)

    key = case.verify(case.bundle())
    monkeypatch.setattr(StepLog, "passed", noted)
    _challenged(case, case.answer(key), key)
    named = " verified" in said[-1]
    assert named is bool(key.claims.platform)
    assert named or " identify " in said[-1]


def test_only_a_verified_key_is_challenged(case: Case) -> None:
    forged: Any = object()
    with pytest.raises(TypeError):
        verify_challenge(b"{}", forged, NONCE, case.rules(), now=case.now)


def test_another_machine_of_the_same_image_answers_for_no_other(
    make_case: Make, root_keys: RootKeys, now: datetime
) -> None:
    """Same root, same release, same key even; but not the chip that was verified."""
    case = make_case(Tee.EMULATED_SEV_SNP)
    key = case.verify(case.bundle())
    other = make_platform(root_keys, now=now)
    moved = SnpMachine(platform=other, image=MEASUREMENT)
    twin = replace(case, deployment=replace(case.deployment, machine=moved))
    assert twin.verify(twin.bundle()).claims.platform != key.claims.platform
    error = _unanswered(case, twin.answer(key), key)
    assert (error.code, error.step) == (
        RefusalCode.BINDING_MISMATCH,
        "challenge binding",
    )


def test_another_image_on_the_same_machine_answers_for_no_other(
    make_case: Make, platform: EmulatedPlatform
) -> None:
    case = make_case(Tee.EMULATED_SEV_SNP)
    key = case.verify(case.bundle())
    restarted = SnpMachine(platform=platform, image=bytes(48))
    twin = replace(case, deployment=replace(case.deployment, machine=restarted))
    error = _unanswered(case, twin.answer(key), key)
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED
