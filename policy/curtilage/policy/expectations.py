"""Translates a policy's sections about enclaves into expectations of evidence.

Field by field. A policy without ``attestation:`` does not check less: it permits no
enclave at all.
"""

from collections.abc import Iterable, Mapping

from curtilage.attest.amd_tcb import Tcb
from curtilage.attest.claims import Claim
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    GpuExpectations,
    LogExpectations,
    NitroExpectations,
    PlatformExpectations,
    Revocation,
    SnpExpectations,
    TdxExpectations,
    TrustAnchor,
)
from curtilage.attest.requirements import Requirement
from curtilage.policy.breaks import known_breaks
from curtilage.policy.decision.classes import is_uncertain
from curtilage.policy.document.attestation import (
    Attestation,
    Gpu,
    Nitro,
    Platforms,
    Snp,
    Tdx,
)
from curtilage.policy.document.model import Policy
from curtilage.wire.shaping import UNPADDED, TransportParameters


def expectations_from(policy: Policy) -> Expectations:
    """Return what evidence must show under this policy.

    Never raises for a policy that was loaded: whatever is missing or empty
    becomes an expectation that ``attest.verify`` refuses by name.
    """
    attestation = policy.attestation
    if attestation is None:
        return _nothing(policy.digest)
    releases, freshness = attestation.releases, attestation.freshness
    return Expectations(
        environment=Environment(attestation.environment),
        roots=tuple(
            TrustAnchor(
                kind=AnchorKind(anchor.kind),
                product=anchor.product or "",
                fingerprint=anchor.sha256,
                certificate_der=anchor.certificate or b"",
            )
            for anchor in attestation.trust_anchors
        ),
        required_cpu_tees=frozenset(attestation.required_cpu_tees),
        required_devices={
            str(kind): count for kind, count in attestation.required_devices.items()
        },
        release_names=frozenset(releases.names),
        denied_releases=frozenset(releases.denied),
        log=LogExpectations(
            origin=releases.log.origin,
            public_key=releases.log.key,
            witnesses={each.name: each.key for each in releases.log.witnesses},
            quorum=releases.log.quorum,
            max_checkpoint_age_s=releases.max_checkpoint_age_s,
        ),
        measurements={
            str(tee): accepted for tee, accepted in attestation.measurements.items()
        },
        snp=_snp(attestation.snp, least_levels(attestation)),
        tdx=_tdx(attestation.tdx, least_evaluation(attestation)),
        nitro=_nitro(attestation.nitro),
        gpu=_gpu(attestation.gpu),
        sandbox=frozenset(attestation.sandbox),
        platforms=_platforms(attestation.platforms),
        custody=policy.custody,
        freshness=FreshnessExpectations(
            max_key_lifetime_s=freshness.max_key_lifetime_s,
            max_evidence_age_s=freshness.max_evidence_age_s,
            clock_skew_s=freshness.clock_skew_s,
        ),
        transport=transport_expectations(policy),
        digest=policy.digest,
    )


def requirement_for(policy: Policy, classes: Iterable[str]) -> Requirement:
    """Return what data of these classes demands of an enclave.

    Several entries that apply add up: every claim of each, the kinds of evidence
    and the places that all of them accept, the lowest age. An answered challenge
    counts as long as the strictest of those entries that demand one says.

    Args:
        policy: the policy.
        classes: the classes that were found, such as ``health.condition``. A name
            that is not in the tree counts as every class.
    """
    attestation = policy.attestation
    if attestation is None:
        return Requirement()
    found = frozenset(classes)
    # An unknown class may be any of them, so every demand applies.
    unknown = not all(name in policy.classes or is_uncertain(name) for name in found)
    result = Requirement()
    for demand in attestation.classes:
        if not unknown and not demand.covered(policy.classes) & found:
            continue
        result = Requirement(
            claims=result.claims | {Claim(name) for name in demand.require},
            cpu_tees=_both(result.cpu_tees, demand.cpu_tees),
            max_evidence_age_s=_lower(
                result.max_evidence_age_s, demand.max_evidence_age_s
            ),
            challenge_age_s=_lower(result.challenge_age_s, demand.challenge_age_s),
            operators=_both(result.operators, demand.operators),
            countries=_both(result.countries, demand.countries),
            regions=_both(result.regions, demand.regions),
        )
    return result


def _both(
    accepted: frozenset[str] | None, more: Iterable[str] | None
) -> frozenset[str] | None:
    # What all entries accept; where that is nothing, nothing is sent.
    if more is None:
        return accepted
    return frozenset(more) if accepted is None else accepted & frozenset(more)


def _lower(first: int | None, second: int | None) -> int | None:
    return min((each for each in (first, second) if each is not None), default=None)


def transport_expectations(policy: Policy) -> frozenset[TransportParameters]:
    """Return the ways of shaping answers that this policy accepts."""
    transport = policy.transport
    accepted = [frames.parameters() for frames in transport.accept]
    unsafe = [UNPADDED] if transport.unsafe_unpadded else []
    return frozenset([*accepted, *unsafe])


def _nothing(digest: str) -> Expectations:
    # Empty everywhere, and production: ``attest`` refuses this before it reads any
    # evidence. No value means "do not check".
    return Expectations(
        environment=Environment.PRODUCTION,
        roots=(),
        required_cpu_tees=frozenset(),
        release_names=frozenset(),
        log=LogExpectations(
            origin="", public_key=b"", witnesses={}, quorum=1, max_checkpoint_age_s=0
        ),
        snp=_snp(None, {}),
        tdx=_tdx(None, 0),
        freshness=FreshnessExpectations(max_key_lifetime_s=0, max_evidence_age_s=0),
        transport=frozenset(),
        digest=digest,
    )


def least_levels(attestation: Attestation) -> dict[str, Tcb]:
    """Return AMD's lowest patch levels by product, with those that fix known breaks."""
    named: dict[str, Tcb] = {
        minimum.product: Tcb(
            # Only Turin has this level, and there the loader insists on it.
            fmc=minimum.fmc or 0,
            bl=minimum.bl,
            tee=minimum.tee,
            snp=minimum.snp,
            ucode=minimum.ucode,
        )
        for minimum in (attestation.snp.min_tcb if attestation.snp else ())
    }
    # In development, machines are for trying: what they lack is only said.
    if attestation.environment != "production":
        return named
    accepted = attestation.accepted_breaks
    return {
        product: known_breaks().raised(product, minimum, accepted)
        for product, minimum in named.items()
    }


def least_evaluation(attestation: Attestation) -> int:
    """Return the lowest number of Intel's evaluation, likewise."""
    named = 0 if attestation.tdx is None else attestation.tdx.min_tcb_evaluation_number
    if attestation.environment != "production":
        return named
    return known_breaks().raised_evaluation(named, attestation.accepted_breaks)


def _snp(snp: Snp | None, levels: Mapping[str, Tcb]) -> SnpExpectations:
    # Without the section no report is accepted; the loader reports it to the author.
    if snp is None:
        return SnpExpectations(min_tcb={}, vmpl=frozenset(), host_data=frozenset())
    return SnpExpectations(
        min_tcb=levels,
        min_version=snp.min_version,
        vmpl=frozenset(snp.vmpl),
        allow_vlek=snp.allow_vlek,
        allow_masked_chip=snp.allow_masked_chip,
        max_crl_age_s=snp.max_crl_age_s,
        host_data=frozenset(bytes.fromhex(each) for each in snp.host_data),
    )


def _tdx(tdx: Tdx | None, evaluation: int) -> TdxExpectations:
    if tdx is None:
        return TdxExpectations(statuses=frozenset())
    return TdxExpectations(
        statuses=frozenset(tdx.statuses),
        min_tcb_evaluation_number=evaluation,
        rejected_advisories=frozenset(tdx.rejected_advisories),
    )


def _nitro(nitro: Nitro | None) -> NitroExpectations:
    # The section may be left out; then its defaults hold.
    return NitroExpectations(revocation=Revocation((nitro or Nitro()).revocation))


def _gpu(gpu: Gpu | None) -> GpuExpectations:
    if gpu is None:
        return GpuExpectations()
    return GpuExpectations(
        drivers=frozenset(gpu.drivers),
        vbioses=frozenset(gpu.vbioses),
        golden=frozenset(gpu.golden),
        revocation=Revocation(gpu.revocation),
    )


def _platforms(platforms: Platforms | None) -> PlatformExpectations:
    if platforms is None:
        return PlatformExpectations()
    allow = platforms.allow
    return PlatformExpectations(
        deny=frozenset(platforms.deny),
        allow=None if allow is None else frozenset(allow),
    )
