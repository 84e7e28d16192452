"""A whole emulated deployment in memory: chip, log, release, bundle, rules.

For tests of every part that meets evidence. Each piece can be changed before
the report is signed again, so that every refusal can be provoked by evidence
that is otherwise genuine for its root.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.binding import base_hash_v2, report_data_v2
from curtilage.attest.evidence import (
    Anchor,
    EvidenceBundle,
    Release,
    SnpEvidence,
    Tee,
)
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    LogExpectations,
    SnpExpectations,
    TrustAnchor,
)
from curtilage.attest.manifest import (
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.attest.verify import binding_inputs
from curtilage.wire.shaping import PADDED, TransportParameters
from curtilage_dev.log import (
    DEFAULT_ORIGIN,
    DEFAULT_WITNESS,
    DevelopmentLog,
    new_signer,
)
from curtilage_dev.pki import EmulatedPlatform
from curtilage_dev.reports import ReportFields

RELEASE_NAME: Final = "curtilage-enclave"
MEASUREMENT: Final = hashlib.sha384(b"emulated launch measurement").digest()
# One key configuration with X25519, HKDF-SHA256 and AES-128-GCM; the public key
# is that of no one.
KEY_CONFIGS: Final = bytes.fromhex("0029010020" + "09" * 32 + "000400010001")
KEY_LIFE: Final = timedelta(hours=12)
_EARLIER_LEAVES: Final = (b"first leaf", b"second leaf", b"third leaf")

ChangeReport = Callable[[ReportFields], ReportFields]


def unchanged(fields: ReportFields) -> ReportFields:
    """Leave a report as it is."""
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One enclave's surroundings at one moment.

    Attributes:
        platform: the emulated chip.
        log: where the manifest was logged.
        manifest: the release.
        index: the manifest's place in the log.
        now: the moment at which everything is fresh.
    """

    platform: EmulatedPlatform
    log: DevelopmentLog
    manifest: bytes
    index: int
    now: datetime

    def expectations(self) -> Expectations:
        """Return the rules that this deployment's evidence satisfies."""
        return Expectations(
            environment=Environment.DEVELOPMENT,
            roots=(self.anchor(),),
            required_cpu_tees=frozenset({Tee.EMULATED_SEV_SNP.value}),
            release_names=frozenset({RELEASE_NAME}),
            log=LogExpectations(
                origin=self.log.signer.name,
                public_key=self.log.signer.public.public_key,
                witnesses={w.name: w.public.public_key for w in self.log.witnesses},
                quorum=1,
                max_checkpoint_age_s=86400,
            ),
            snp=SnpExpectations(
                min_tcb={self.platform.product.value: self.platform.tcb}
            ),
            freshness=FreshnessExpectations(),
            transport=frozenset({self.transport}),
            digest="sha256:" + hashlib.sha256(b"development policy").hexdigest(),
        )

    @property
    def transport(self) -> TransportParameters:
        """How the release shapes its answers."""
        return parse_manifest(self.manifest).transport

    def anchor(self) -> TrustAnchor:
        """Return this deployment's root as a policy names it."""
        return TrustAnchor(
            kind=AnchorKind.EMULATED,
            product=self.platform.product.value,
            certificate_der=self.platform.ark,
        )

    def bundle(self, change: ChangeReport = unchanged) -> EvidenceBundle:
        """Assemble a bundle; ``change`` edits the report before it is signed."""
        empty = SnpEvidence(
            tee=Tee.EMULATED_SEV_SNP, report=b"", vek=b"", ask=b"", crl=b""
        )
        unsigned = EvidenceBundle(
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
            cpu=empty,
            transport_parameters=self.transport.encode(),
        )
        return self.attest(unsigned, change)

    def attest(
        self, bundle: EvidenceBundle, change: ChangeReport = unchanged
    ) -> EvidenceBundle:
        """Sign a report over whatever the bundle now says."""
        report_data = report_data_v2(
            base_hash_v2(binding_inputs(bundle)), (), emulated=True
        )
        fields = self.platform.report_fields(
            report_data=report_data, measurement=MEASUREMENT
        )
        evidence = self.platform.evidence(change(fields), now=self.now)
        return replace(bundle, cpu=evidence)


def make_manifest(
    now: datetime, *, transport: TransportParameters = PADDED
) -> ReleaseManifest:
    """Describe a release that was just published."""
    return ReleaseManifest(
        name=RELEASE_NAME,
        version="0.0.1",
        source="development",
        measurements={Tee.EMULATED_SEV_SNP.value: (MEASUREMENT.hex(),)},
        models=(hashlib.sha256(b"model").hexdigest(),),
        min_tcb={},
        not_after=int((now + timedelta(days=90)).timestamp()),
        transport=transport,
    )


def make_deployment(
    platform: EmulatedPlatform,
    *,
    now: datetime,
    manifest: ReleaseManifest | None = None,
) -> Deployment:
    """Publish a release in a fresh log and surround it with everything else."""
    leaf = encode_manifest(manifest or make_manifest(now))
    log = DevelopmentLog(
        signer=new_signer(DEFAULT_ORIGIN),
        witnesses=(new_signer(DEFAULT_WITNESS),),
        leaves=(*_EARLIER_LEAVES, leaf, b"fifth leaf"),
    )
    return Deployment(
        platform=platform, log=log, manifest=leaf, index=len(_EARLIER_LEAVES), now=now
    )
