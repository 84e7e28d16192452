"""From a policy's sections about enclaves to what evidence must look like.

A translation, field by field. A policy without ``attestation:`` is no policy that
checks less: it permits no enclave at all.
"""

from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    LogExpectations,
    SnpExpectations,
    TrustAnchor,
)
from curtilage.attest.tcb import Tcb
from curtilage.policy.model import Policy
from curtilage.policy.sections import (
    Attestation,
    Freshness,
    MinTCB,
    Releases,
    Snp,
)
from curtilage.wire.shaping import UNPADDED, TransportParameters


def expectations_from(policy: Policy) -> Expectations:
    """Return what evidence must show under this policy.

    Never raises for a policy that was loaded: whatever is missing or empty
    becomes an expectation that ``attest.verify`` refuses by name.
    """
    attestation = policy.attestation
    if attestation is None:
        return _nothing(policy.digest)
    return Expectations(
        environment=Environment(attestation.environment),
        roots=_roots(attestation),
        required_cpu_tees=frozenset(attestation.required_cpu_tees),
        release_names=frozenset(attestation.releases.names),
        log=_log(attestation.releases),
        snp=_snp(attestation.snp),
        freshness=_freshness(attestation.freshness),
        transport=transport_expectations(policy),
        digest=policy.digest,
    )


def transport_expectations(policy: Policy) -> frozenset[TransportParameters]:
    """Return the ways of shaping answers that this policy accepts."""
    transport = policy.transport
    accepted = [frames.parameters() for frames in transport.accept]
    unsafe = [UNPADDED] if transport.unsafe_unpadded else []
    return frozenset([*accepted, *unsafe])


def _nothing(digest: str) -> Expectations:
    return Expectations(
        environment=Environment.PRODUCTION,
        roots=(),
        required_cpu_tees=frozenset(),
        release_names=frozenset(),
        log=LogExpectations(
            origin="", public_key=b"", witnesses={}, quorum=1, max_checkpoint_age_s=0
        ),
        snp=SnpExpectations(min_tcb={}, vmpl=frozenset(), host_data=frozenset()),
        freshness=FreshnessExpectations(max_key_lifetime_s=0, max_evidence_age_s=0),
        transport=frozenset(),
        digest=digest,
    )


def _roots(attestation: Attestation) -> tuple[TrustAnchor, ...]:
    return tuple(
        TrustAnchor(
            kind=AnchorKind(anchor.kind),
            product=anchor.product,
            certificate_der=anchor.certificate,
        )
        for anchor in attestation.trust_anchors
    )


def _log(releases: Releases) -> LogExpectations:
    return LogExpectations(
        origin=releases.log.origin,
        public_key=releases.log.key,
        witnesses={witness.name: witness.key for witness in releases.log.witnesses},
        quorum=releases.log.quorum,
        max_checkpoint_age_s=releases.max_checkpoint_age_s,
    )


def _snp(snp: Snp) -> SnpExpectations:
    return SnpExpectations(
        min_tcb={minimum.product: _tcb(minimum) for minimum in snp.min_tcb},
        min_version=snp.min_version,
        vmpl=frozenset(snp.vmpl),
        allow_vlek=snp.allow_vlek,
        allow_masked_chip=snp.allow_masked_chip,
    )


def _tcb(minimum: MinTCB) -> Tcb:
    return Tcb(
        # Only Turin has this level, and there the loader insists on it.
        fmc=minimum.fmc or 0,
        bl=minimum.bl,
        tee=minimum.tee,
        snp=minimum.snp,
        ucode=minimum.ucode,
    )


def _freshness(freshness: Freshness) -> FreshnessExpectations:
    return FreshnessExpectations(
        max_key_lifetime_s=freshness.max_key_lifetime_s,
        max_evidence_age_s=freshness.max_evidence_age_s,
        clock_skew_s=freshness.clock_skew_s,
    )
