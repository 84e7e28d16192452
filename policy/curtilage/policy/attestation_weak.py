"""What in an ``attestation:`` section asks for less than it could, in words.

Nothing here is an error: each may be meant. But whoever reads a policy should not
have to know the numbers to see it.
"""

from collections.abc import Iterator
from typing import Final

from curtilage.attest.expectations import DEFAULT_MAX_CRL_AGE_S, NO_HOST_DATA
from curtilage.policy.attestation import Attestation, Snp, Tdx

_DAY_S: Final = 86400
_MINUTE_S: Final = 60
_OUT_OF_DATE: Final = frozenset({"OutOfDate", "OutOfDateConfigurationNeeded"})


def weaknesses(attestation: Attestation) -> Iterator[str]:
    """Yield one sentence for each thing that asks for less than it could."""
    if attestation.releases.log.quorum == 1:
        yield "one witness by itself vouches for the log"
    yield from _measurements(attestation)
    if attestation.snp is not None:
        yield from _snp(attestation.snp)
    if attestation.tdx is not None:
        yield from _tdx(attestation.tdx)
    freshness = attestation.freshness
    if freshness.max_key_lifetime_s > _DAY_S:
        yield "keys may live longer than a day"
    if freshness.max_evidence_age_s > _DAY_S:
        yield "evidence may be older than a day"
    if freshness.clock_skew_s > _MINUTE_S:
        yield f"clocks may differ by {freshness.clock_skew_s} seconds"


def _measurements(attestation: Attestation) -> Iterator[str]:
    pinned = attestation.measurements
    for tee in attestation.required_cpu_tees:
        if pinned and tee not in pinned:
            yield f"no measurement of {tee} is listed: any that is released will do"
    for tee, accepted in pinned.items():
        if any(not "".join(each.values()).strip("0") for each in accepted):
            yield f"a measurement of {tee} is all zeros, which no image has"


def _snp(snp: Snp) -> Iterator[str]:
    for each in snp.min_tcb:
        if not any((each.bl, each.tee, each.snp, each.ucode, each.fmc)):
            yield f"any firmware of {each.product} will do: its minimum is zero"
    if any(level > 0 for level in snp.vmpl):
        yield "less privileged parts of a guest may speak for all of it"
    if snp.max_crl_age_s > DEFAULT_MAX_CRL_AGE_S:
        yield f"AMD's revocation list may be {snp.max_crl_age_s // _DAY_S} days old"
    if set(snp.host_data) - {NO_HOST_DATA.hex()}:
        yield "the host may have handed data to the guest (host_data)"


def _tdx(tdx: Tdx) -> Iterator[str]:
    if _OUT_OF_DATE & set(tdx.statuses):
        yield "TDX platforms with holes that Intel has closed will do (OutOfDate)"
    elif set(tdx.statuses) - {"UpToDate"}:
        yield "TDX platforms that Intel wants configured otherwise will do"
    if tdx.min_tcb_evaluation_number == 0:
        yield "however old an evaluation of Intel's will do, while it is valid"
