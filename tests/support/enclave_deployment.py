"""An enclave's surroundings: emulated chip, log, release files, configuration."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from curtilage.attest.evidence import CpuEvidence, GpuEvidence, SnpEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.sandbox import SandboxStatement
from curtilage.enclave_server.config import EnclaveConfig, parse_config
from curtilage.enclave_server.errors import EvidenceError
from curtilage.enclave_server.evidence.bundle import BundleKeeper
from curtilage.enclave_server.evidence.release import read_anchors
from curtilage.enclave_server.ohttp.keys import KeyRing
from curtilage.enclave_server.telemetry import Counters
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.deployment import (
    MEASUREMENT,
    AnyDeployment,
    Deployment,
    Surroundings,
    make_any_deployment,
    make_deployment,
    make_manifest,
)
from curtilage_dev.emulated.machines import (
    Gpus,
    Machine,
    SnpMachine,
    azure_machine,
    make_gpus,
    make_machine,
)
from curtilage_dev.emulated.snp_pki import (
    EmulatedPlatform,
    RootKeys,
    generate_root_keys,
    make_platform,
)
from curtilage_dev.scripted_engine import SCRIPTED_INFO
from support.enclave_parts import QUICK


@cache
def root_keys() -> RootKeys:
    """Two RSA-4096 keys take seconds: one pair serves the whole run."""
    return generate_root_keys()


@dataclass
class Clock:
    now: datetime

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass(kw_only=True)
class MemoryEvidence:
    """The evidence process in memory; each wrong turn can be set."""

    platform: EmulatedPlatform
    clock: Clock
    measurement: bytes = MEASUREMENT
    fail: bool = False
    answer_to: bytes | None = None
    asked: list[bytes] = field(default_factory=list[bytes])
    bases: list[bytes] = field(default_factory=list[bytes])
    devices: tuple[GpuEvidence, ...] = ()

    async def acquire(self, report_data: bytes) -> SnpEvidence:
        self.asked.append(report_data)
        if self.fail:
            raise EvidenceError("the evidence process did not answer")
        fields = self.platform.report_fields(
            report_data=self.answer_to or report_data, measurement=self.measurement
        )
        return self.platform.evidence(fields, now=self.clock.now)

    async def acquire_devices(self, base: bytes) -> tuple[GpuEvidence, ...]:
        self.bases.append(base)
        return self.devices


@dataclass(kw_only=True)
class MachineEvidence:
    """The evidence process of a machine of any kind, in memory."""

    machine: Machine
    gpus: Gpus | None
    clock: Clock
    fail: bool = False
    asked: list[bytes] = field(default_factory=list[bytes])
    bases: list[bytes] = field(default_factory=list[bytes])
    order: Callable[[tuple[GpuEvidence, ...]], tuple[GpuEvidence, ...]] = tuple

    async def acquire(self, report_data: bytes) -> CpuEvidence:
        self.asked.append(report_data)
        if self.fail:
            raise EvidenceError("the evidence process did not answer")
        return self.machine.evidence(report_data, now=self.clock.now)

    async def acquire_devices(self, base: bytes) -> tuple[GpuEvidence, ...]:
        self.bases.append(base)
        return self.order(() if self.gpus is None else self.gpus.evidence(base))


@dataclass(kw_only=True)
class World:
    """One enclave and everything around it, under one folder."""

    folder: Path
    deployment: Deployment
    clock: Clock
    config: EnclaveConfig
    evidence: MemoryEvidence
    keys: KeyRing
    counters: Counters
    anchors: tuple[TrustAnchor, ...]
    keeper: BundleKeeper

    def publish(self, *, index: int | None = None) -> None:
        """Write the release files, witnessed now."""
        write_release(self.folder, self.deployment, self.clock.now, index=index)


def write_release(
    folder: Path, deployment: Surroundings, now: datetime, *, index: int | None = None
) -> None:
    release = folder / "release"
    release.mkdir(exist_ok=True)
    log = deployment.log
    place = deployment.index if index is None else index
    (release / "manifest.json").write_bytes(deployment.manifest)
    (release / "proof.txt").write_text(log.proof(place, now), "utf-8")
    (release / "checkpoint.txt").write_text(log.checkpoint(now), "utf-8")


def write_root(folder: Path, platform: EmulatedPlatform) -> None:
    root = x509.load_der_x509_certificate(platform.ark)
    (folder / "root.pem").write_bytes(root.public_bytes(Encoding.PEM))


GENOA = """[[trust_anchors]]
kind = "emulated"
product = "Genoa"
certificate = "{folder}/root.pem"
"""


def config_text(
    folder: Path,
    deployment: Surroundings,
    *,
    extra: str = "",
    anchors: str = GENOA,
) -> str:
    log = deployment.log
    (witness,) = log.witnesses
    return f"""
environment = "development"
listen = "127.0.0.1:0"
evidence = "unix:{folder}/evidence.sock"
release = "{folder}/release"
{extra}
{anchors.format(folder=folder)}
[log]
origin = "{log.signer.name}"
key = "{base64.b64encode(log.signer.public.public_key).decode()}"
[[log.witnesses]]
name = "{witness.name}"
key = "{base64.b64encode(witness.public.public_key).decode()}"
[model]
path = "{folder}/model.gguf"
sha256 = "{SCRIPTED_INFO.model_sha256}"
"""


def deploy(
    now: datetime,
    *,
    model: str = SCRIPTED_INFO.model_sha256,
    transport: TransportParameters = QUICK,
) -> Deployment:
    manifest = replace(make_manifest(now, transport=transport), models=(model,))
    platform = make_platform(root_keys(), now=now)
    return make_deployment(platform, now=now, manifest=manifest)


def make_world(
    folder: Path,
    *,
    now: datetime | None = None,
    extra: str = "",
    transport: TransportParameters = QUICK,
) -> World:
    clock = Clock(now or datetime(2026, 11, 21, 12, tzinfo=UTC))
    deployment = deploy(clock.now, transport=transport)
    write_release(folder, deployment, clock.now)
    write_root(folder, deployment.platform)
    config = parse_config(config_text(folder, deployment, extra=extra))
    evidence = MemoryEvidence(platform=deployment.platform, clock=clock)
    keys, counters = KeyRing(), Counters()
    anchors = read_anchors(config.anchors)
    return World(
        folder=folder,
        deployment=deployment,
        clock=clock,
        config=config,
        evidence=evidence,
        keys=keys,
        counters=counters,
        anchors=anchors,
        keeper=BundleKeeper(
            config=config,
            anchors=anchors,
            model_sha256=SCRIPTED_INFO.model_sha256,
            source=evidence,
            keys=keys,
            counters=counters,
            clock=clock,
        ),
    )


@dataclass(kw_only=True)
class AnyWorld:
    """One enclave on a machine of any kind, under one folder."""

    folder: Path
    deployment: AnyDeployment
    clock: Clock
    config: EnclaveConfig
    evidence: MachineEvidence
    keys: KeyRing
    counters: Counters
    keeper: BundleKeeper

    def publish(self) -> None:
        """Write the release files, witnessed now."""
        write_release(self.folder, self.deployment, self.clock.now)


def emulated_machine(tee: Tee, now: datetime) -> Machine:
    """Make a machine; those with RSA roots share the run's."""
    if tee is Tee.EMULATED_SEV_SNP:
        platform = make_platform(root_keys(), now=now)
        return SnpMachine(platform=platform, image=MEASUREMENT)
    if tee is Tee.EMULATED_AZURE_SNP:
        return azure_machine(make_platform(root_keys(), now=now), MEASUREMENT)
    return make_machine(tee, MEASUREMENT, now=now)


def make_any_world(
    folder: Path,
    tee: Tee,
    *,
    gpus: int = 0,
    transport: TransportParameters = QUICK,
    extra: str = "",
    change: Callable[[ReleaseManifest], ReleaseManifest] = lambda manifest: manifest,
    machine: Machine | None = None,
    sandbox: SandboxStatement | None = None,
) -> AnyWorld:
    clock = Clock(datetime(2026, 11, 21, 12, tzinfo=UTC))
    machine = machine or emulated_machine(tee, clock.now)
    devices = make_gpus(gpus, now=clock.now) if gpus else None
    manifest = make_manifest(clock.now, transport=transport, tee=tee, gpus=bool(gpus))
    manifest = replace(manifest, models=(SCRIPTED_INFO.model_sha256,))
    deployment = make_any_deployment(
        machine, now=clock.now, gpus=devices, manifest=change(manifest)
    )
    write_release(folder, deployment, clock.now)
    roots = [machine.anchor(), *([] if devices is None else [devices.anchor()])]
    anchors = "".join(_anchor_text(folder, root) for root in roots)
    config = parse_config(config_text(folder, deployment, anchors=anchors, extra=extra))
    evidence = MachineEvidence(machine=machine, gpus=devices, clock=clock)
    keys, counters = KeyRing(), Counters()
    return AnyWorld(
        folder=folder,
        deployment=deployment,
        clock=clock,
        config=config,
        evidence=evidence,
        keys=keys,
        counters=counters,
        keeper=BundleKeeper(
            config=config,
            anchors=read_anchors(config.anchors),
            model_sha256=SCRIPTED_INFO.model_sha256,
            source=evidence,
            keys=keys,
            counters=counters,
            clock=clock,
            sandbox=sandbox,
        ),
    )


def _anchor_text(folder: Path, anchor: TrustAnchor) -> str:
    if anchor.kind is AnchorKind.TPM:
        path = folder / "ak.pem"
        key = load_der_public_key(anchor.certificate_der)
        path.write_bytes(
            key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        return f'[[trust_anchors]]\nkind = "tpm"\ncertificate = "{path}"\n'
    path = folder / f"{anchor.product}.pem"
    root = x509.load_der_x509_certificate(anchor.certificate_der)
    path.write_bytes(root.public_bytes(Encoding.PEM))
    return (
        f'[[trust_anchors]]\nkind = "{anchor.kind}"\n'
        f'product = "{anchor.product}"\ncertificate = "{path}"\n'
    )
