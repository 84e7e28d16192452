"""A whole emulated deployment in memory: machine, log, release, bundle, rules.

For tests of every part that handles evidence. Each piece can be changed before the
report is signed again, so that every refusal can be caused by evidence that is
otherwise genuine for its root.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.binding import SignedDevice, report_data_v2
from curtilage.attest.bundle_checks import base_of
from curtilage.attest.evidence import (
    Anchor,
    DeviceKind,
    EvidenceBundle,
    Release,
    SnpEvidence,
    Tee,
)
from curtilage.attest.expectations import (
    SNP_TEES,
    Environment,
    Expectations,
    FreshnessExpectations,
    LogExpectations,
    SnpExpectations,
    TrustAnchor,
)
from curtilage.attest.log.manifest import (
    GpuRelease,
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.attest.nvidia.spdm import SIGNATURE_BYTES
from curtilage.wire.shaping import PADDED, TransportParameters
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.gpu import ordinary_expectations, ordinary_release
from curtilage_dev.emulated.machines import Gpus, Machine, registers_of
from curtilage_dev.emulated.snp_pki import DEFAULT_TCB, EmulatedPlatform
from curtilage_dev.emulated.snp_reports import ReportFields
from curtilage_dev.log import (
    DEFAULT_ORIGIN,
    DEFAULT_WITNESS,
    DevelopmentLog,
    new_signer,
    new_witness,
)

RELEASE_NAME: Final = "curtilage-enclave"
MEASUREMENT: Final = hashlib.sha384(b"emulated launch measurement").digest()
# One key configuration with X25519, HKDF-SHA256 and AES-128-GCM; there is no private
# key for it.
KEY_CONFIGS: Final = bytes.fromhex("0029010020" + "09" * 32 + "000400010001")
KEY_LIFE: Final = timedelta(hours=12)
GPU: Final = DeviceKind.EMULATED_NVIDIA_GPU
_EARLIER_LEAVES: Final = (b"first leaf", b"second leaf", b"third leaf")

ChangeReport = Callable[[ReportFields], ReportFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """One enclave's release and log at one moment, without the machine.

    Attributes:
        log: that contains the manifest.
        manifest: the release.
        index: the manifest's place in the log.
        now: the moment at which everything is fresh.
    """

    log: DevelopmentLog
    manifest: bytes
    index: int
    now: datetime

    @property
    def transport(self) -> TransportParameters:
        """The shape of the release's answers."""
        return parse_manifest(self.manifest).transport

    def log_expectations(self) -> LogExpectations:
        """Return this log as a policy names it."""
        return LogExpectations(
            origin=self.log.signer.name,
            public_key=self.log.signer.public.public_key,
            witnesses={w.name: w.public.public_key for w in self.log.witnesses},
            quorum=1,
            max_checkpoint_age_s=86400,
        )

    def expectations_of(self, tee: Tee, *roots: TrustAnchor) -> Expectations:
        """Return the rules for this release on some kind of machine."""
        return Expectations(
            environment=Environment.DEVELOPMENT,
            roots=roots,
            required_cpu_tees=frozenset({tee.value}),
            release_names=frozenset({RELEASE_NAME}),
            log=self.log_expectations(),
            freshness=FreshnessExpectations(),
            transport=frozenset({self.transport}),
            digest="sha256:" + hashlib.sha256(b"development policy").hexdigest(),
        )

    def unsigned_bundle(self) -> EvidenceBundle:
        """Assemble a bundle whose evidence is still missing."""
        nothing = SnpEvidence(
            tee=Tee.EMULATED_SEV_SNP, report=b"", vek=b"", ask=b"", crl=b""
        )
        return EvidenceBundle(
            key_configs=KEY_CONFIGS,
            not_before=int(self.now.timestamp()),
            not_after=int((self.now + KEY_LIFE).timestamp()),
            release=Release(
                manifest=self.manifest, proof=self.log.proof(self.index, self.now)
            ),
            anchor=Anchor(
                origin=self.log.signer.name,
                size=len(self.log.leaves),
                root=self.log.root,
                time=int(self.now.timestamp()),
                checkpoint=self.log.checkpoint(self.now),
            ),
            cpu=nothing,
            transport_parameters=self.transport.encode(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Surroundings):
    """One SEV-SNP enclave and its surroundings.

    Attributes:
        platform: the emulated chip.
    """

    platform: EmulatedPlatform

    def expectations(self) -> Expectations:
        """Return the rules that this deployment's evidence satisfies."""
        product = self.platform.product.value
        return replace(
            self.expectations_of(Tee.EMULATED_SEV_SNP, self.anchor()),
            snp=SnpExpectations(min_tcb={product: self.platform.tcb}),
        )

    def anchor(self) -> TrustAnchor:
        """Return this deployment's root as a policy names it."""
        return self.platform.anchor()

    def bundle(self, change: ChangeReport = unchanged) -> EvidenceBundle:
        """Assemble a bundle; ``change`` edits the report before it is signed."""
        return self.attest(self.unsigned_bundle(), change)

    def attest(
        self, bundle: EvidenceBundle, change: ChangeReport = unchanged
    ) -> EvidenceBundle:
        """Sign a report over the current content of the bundle."""
        report_data = report_data_v2(base_of(bundle), (), emulated=True)
        fields = self.platform.report_fields(
            report_data=report_data, measurement=MEASUREMENT
        )
        evidence = self.platform.evidence(change(fields), now=self.now)
        return replace(bundle, cpu=evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyDeployment(Surroundings):
    """An enclave on a machine of any kind, with or without GPUs.

    Attributes:
        machine: the emulated machine.
        gpus: its GPUs, or None.
    """

    machine: Machine
    gpus: Gpus | None = None

    def expectations(self) -> Expectations:
        """Return the rules that this deployment's evidence satisfies."""
        roots = [self.machine.anchor()]
        devices: dict[str, int] = {}
        if self.gpus is not None:
            roots.append(self.gpus.anchor())
            devices[GPU.value] = len(self.gpus.devices)
        product = self.machine.anchor().product
        amd = [product] if self.machine.tee in SNP_TEES else []
        return replace(
            self.expectations_of(self.machine.tee, *roots),
            required_devices=devices,
            snp=SnpExpectations(min_tcb=dict.fromkeys(amd, DEFAULT_TCB)),
            gpu=ordinary_expectations(),
        )

    def bundle(self) -> EvidenceBundle:
        """Assemble a bundle with evidence of the machine and of its GPUs."""
        return self.attest(self.unsigned_bundle())

    def attest(self, bundle: EvidenceBundle) -> EvidenceBundle:
        """Have everything signed over the current content of the bundle."""
        b0 = base_of(bundle)
        devices = () if self.gpus is None else self.gpus.evidence(b0)
        return self.bind(replace(bundle, devices=devices))

    def bind(self, bundle: EvidenceBundle) -> EvidenceBundle:
        """Have the machine sign over a bundle and the devices in it."""
        report_data = report_data_v2(
            base_of(bundle),
            [
                SignedDevice(
                    kind=device.kind.value,
                    index=index,
                    signed_part=device.report[:-SIGNATURE_BYTES],
                )
                for index, device in enumerate(bundle.devices)
            ],
            emulated=True,
        )
        return replace(bundle, cpu=self.machine.evidence(report_data, now=self.now))


def make_manifest(
    now: datetime,
    *,
    transport: TransportParameters = PADDED,
    tee: Tee = Tee.EMULATED_SEV_SNP,
    gpus: bool = False,
) -> ReleaseManifest:
    """Describe a release for one kind of machine that was just published."""
    return ReleaseManifest(
        name=RELEASE_NAME,
        version="0.0.1",
        source="development",
        measurements={tee.value: (registers_of(tee, MEASUREMENT),)},
        models=(hashlib.sha256(b"model").hexdigest(),),
        min_tcb={},
        not_after=int((now + timedelta(days=90)).timestamp()),
        transport=transport,
        gpu=ordinary_release() if gpus else GpuRelease(),
    )


def make_deployment(
    platform: EmulatedPlatform,
    *,
    now: datetime,
    manifest: ReleaseManifest | None = None,
) -> Deployment:
    """Publish a release in a fresh log and make everything else around it."""
    leaf = encode_manifest(manifest or make_manifest(now))
    return Deployment(
        platform=platform,
        log=_log_of(leaf),
        manifest=leaf,
        index=len(_EARLIER_LEAVES),
        now=now,
    )


def make_any_deployment(
    machine: Machine,
    *,
    now: datetime,
    gpus: Gpus | None = None,
    manifest: ReleaseManifest | None = None,
) -> AnyDeployment:
    """Publish a release for a machine of any kind, which runs ``MEASUREMENT``."""
    leaf = encode_manifest(
        manifest or make_manifest(now, tee=machine.tee, gpus=gpus is not None)
    )
    return AnyDeployment(
        machine=machine,
        gpus=gpus,
        log=_log_of(leaf),
        manifest=leaf,
        index=len(_EARLIER_LEAVES),
        now=now,
    )


def _log_of(leaf: bytes) -> DevelopmentLog:
    return DevelopmentLog(
        signer=new_signer(DEFAULT_ORIGIN),
        witnesses=(new_witness(DEFAULT_WITNESS),),
        leaves=(*_EARLIER_LEAVES, leaf, b"fifth leaf"),
    )
