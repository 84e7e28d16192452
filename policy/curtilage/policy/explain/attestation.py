"""The attestation section in words, for the people who are responsible for it.

One sentence for each thing that a policy trusts, and one for each data class that
demands more. Then one for each setting that is weaker than it could be: these are not
errors, but a reader of a policy should not have to know the numbers to see them.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import (
    DEFAULT_MAX_CRL_AGE_S,
    NO_HOST_DATA,
    AnchorKind,
    CustodyExpectations,
    anchors_for,
)
from curtilage.policy.document.attestation import (
    Attestation,
    Demand,
    Gpu,
    Nitro,
    Snp,
    Tdx,
)
from curtilage.policy.document.model import Policy
from curtilage.policy.expectations import (
    expectations_from,
    least_evaluation,
    least_levels,
)
from curtilage.policy.explain.breaks import breaks_in_words, raised_in_words

_DAY_S: Final = 86400
_MINUTE_S: Final = 60
_OUT_OF_DATE: Final = frozenset({"OutOfDate", "OutOfDateConfigurationNeeded"})
_RTMRS: Final = ("rtmr0", "rtmr1", "rtmr2", "rtmr3")
NOTHING: Final = "none: nothing may leave"
DEVELOPMENT: Final = (
    "DEVELOPMENT: emulated evidence, and a TPM by itself, may be trusted; neither "
    "protects memory from being read"
)
PRODUCTION: Final = "production: emulated evidence is never trusted"
NO_ROOT: Final = "but no root is pinned for it, so it is refused"
NEVER_MET: Final = " (nothing that this policy accepts can meet that)"
ONLY_TO: Final = "leaves only to an enclave with"
OTHERWISE: Final = "otherwise it is kept local"
NO_PLACE: Final = "none, so no release is accepted"
PROVES_NOTHING: Final = "which proves nothing"
NO_ISOLATION: Final = "which proves no isolation"
_KINDS: Final = {
    Tee.SEV_SNP: "AMD SEV-SNP",
    Tee.TDX: "Intel TDX",
    Tee.NITRO: "AWS Nitro Enclaves",
    Tee.AZURE_SNP: "Azure confidential VM on AMD SEV-SNP",
    Tee.AZURE_TDX: "Azure confidential VM on Intel TDX",
    Tee.TPM: f"a TPM by itself, {NO_ISOLATION}",
    Tee.EMULATED_SEV_SNP: f"emulated SEV-SNP, {PROVES_NOTHING}",
    Tee.EMULATED_TDX: f"emulated TDX, {PROVES_NOTHING}",
    Tee.EMULATED_NITRO: f"emulated Nitro, {PROVES_NOTHING}",
    Tee.EMULATED_AZURE_SNP: f"emulated Azure SEV-SNP, {PROVES_NOTHING}",
}
_VENDORS: Final = {
    AnchorKind.AMD: "AMD's root for",
    AnchorKind.INTEL: "Intel's SGX Root CA",
    AnchorKind.AWS: "AWS's Nitro Enclaves root",
    AnchorKind.NVIDIA: "NVIDIA's Device Identity CA",
    AnchorKind.TPM: "the TPM's key",
    AnchorKind.EMULATED: "an emulator's root for",
}
CLAIMS: Final = {
    "hardware": "hardware that keeps its host out",
    "gpu": "a GPU that proved itself",
    "weights": "a release that lists its models",
    "no_write": "a sandbox listed here",
    "isolation": "a process of its own for each request",
    "ephemerality": "memory that is overwritten, or ends, with each answer",
    "custody": "a machine of the list in custody",
}


def attestation_in_words(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield what the section means: a label and a sentence each."""
    attestation = policy.attestation
    if attestation is None:
        yield "enclaves", NOTHING
        return
    production = attestation.environment == "production"
    yield "enclaves", PRODUCTION if production else DEVELOPMENT
    yield from _hardware(attestation, policy)
    roots = [
        f"{_VENDORS[AnchorKind(each.kind)]}{f' {each.product}' if each.product else ''}"
        f" ({each.sha256[:16]})"
        for each in attestation.trust_anchors
    ]
    yield "roots", "; ".join(roots) or NOTHING
    yield from _software(attestation)
    if attestation.snp is not None:
        yield from _snp(attestation, attestation.snp)
    if attestation.tdx is not None:
        yield "TDX", _tdx(attestation, attestation.tdx)
    if attestation.gpu is not None:
        yield "GPUs", _gpu(attestation.gpu)
    yield from _machines(attestation, policy.custody)
    freshness = attestation.freshness
    words = f"at most {_duration(freshness.max_evidence_age_s)} old, for keys that live"
    words += f" at most {_duration(freshness.max_key_lifetime_s)}; clocks may differ by"
    yield "evidence", f"{words} {_duration(freshness.clock_skew_s)}"
    for demand in attestation.classes:
        yield "demand", demand_in_words(demand) + _unmeetable(demand, attestation)
    yield from _warnings(attestation)


def _warnings(attestation: Attestation) -> Iterator[tuple[str, str]]:
    for weakness in weaknesses(attestation):
        yield "weak", weakness
    for sentence in breaks_in_words(attestation):
        yield "broken", sentence


def demand_in_words(demand: Demand) -> str:
    """Say what some data classes demand in addition to everything else."""
    wanted = [CLAIMS[name] for name in demand.require]
    if demand.cpu_tees is not None:
        kinds = " or ".join(_KINDS[Tee(tee)] for tee in demand.cpu_tees)
        wanted.append(f"evidence of {kinds or 'no kind at all'}")
    if demand.max_evidence_age_s is not None:
        wanted.append(f"evidence of the last {_duration(demand.max_evidence_age_s)}")
    if demand.challenge_age_s is not None:
        age = _duration(demand.challenge_age_s)
        wanted.append(f"a challenge answered in the last {age}")
    for what, named in (
        ("operator", demand.operators),
        ("country", demand.countries),
        ("region", demand.regions),
    ):
        if named is not None:
            places = " or ".join(named) or NO_PLACE
            wanted.append(f"a release that states its {what}: {places}")
    return f"{', '.join(demand.classes)}: {ONLY_TO} {', '.join(wanted)}; {OTHERWISE}"


def weaknesses(attestation: Attestation) -> Iterator[str]:
    """Yield one sentence for each setting that is weaker than it could be."""
    if attestation.releases.log.quorum == 1:
        yield "only one witness vouches for the log"
    yield from _measurements(attestation)
    if attestation.snp is not None:
        yield from _weak_snp(attestation.snp)
    if attestation.tdx is not None:
        yield from _weak_tdx(attestation, attestation.tdx)
    yield from _weak_revocation(attestation)
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
            yield f"no measurement of {tee} is listed: any that is released is accepted"
    for tee, accepted in pinned.items():
        if any(not "".join(each.values()).strip("0") for each in accepted):
            yield f"a measurement of {tee} is all zeros, which no image has"
        # Azure's is the vTPM's registers', which the measurement must name.
        elif not Tee(tee).quoted and any(map(_unmeasured, accepted)):
            yield (
                f"a measurement of {tee} has zeros in RTMR 0 to 3: it accepts any "
                "kernel and image that its firmware starts"
            )


def _unmeasured(measurement: Mapping[str, str]) -> bool:
    """Whether a measurement names all of TDX's run-time registers, as zeros."""
    named = [measurement.get(each) for each in _RTMRS]
    return all(each is not None and not each.strip("0") for each in named)


def _weak_snp(snp: Snp) -> Iterator[str]:
    for each in snp.min_tcb:
        if not any((each.bl, each.tee, each.snp, each.ucode, each.fmc)):
            yield f"any firmware of {each.product} is accepted: its minimum is zero"
    if any(level > 0 for level in snp.vmpl):
        yield "less privileged parts of a guest may speak for all of it"
    if snp.max_crl_age_s > DEFAULT_MAX_CRL_AGE_S:
        yield f"AMD's revocation list may be {snp.max_crl_age_s // _DAY_S} days old"
    if set(snp.host_data) - {NO_HOST_DATA.hex()}:
        yield "the host may have handed data to the guest (host_data)"


def _weak_tdx(attestation: Attestation, tdx: Tdx) -> Iterator[str]:
    if _OUT_OF_DATE & set(tdx.statuses):
        yield "TDX platforms that lack Intel's security fixes are accepted (OutOfDate)"
    elif set(tdx.statuses) - {"UpToDate"}:
        yield "TDX platforms that Intel wants configured otherwise are accepted"
    if least_evaluation(attestation) == 0:
        yield "an evaluation of Intel's of any age is accepted while it is valid"


def _weak_revocation(attestation: Attestation) -> Iterator[str]:
    nitro, gpu = attestation.nitro or Nitro(), attestation.gpu
    if "nitro" in attestation.required_cpu_tees and nitro.revocation != "required":
        yield "AWS's revocation lists are checked only where they are stapled"
    # Such a certificate runs to the year 9999.
    if gpu is not None and gpu.revocation != "required":
        yield "a revoked GPU is refused only where NVIDIA's answer is stapled"


def _unmeetable(demand: Demand, attestation: Attestation) -> str:
    """Say that a demand cannot be met under its own policy, where that is so."""
    # Not an error: a class may be kept local on purpose until there is such an
    # enclave. But the author has to see it.
    missing = {
        "hardware": not any(Tee(tee).isolates for tee in attestation.required_cpu_tees),
        "gpu": "nvidia-gpu" not in attestation.required_devices,
        "no_write": not attestation.sandbox,
        "custody": attestation.custody is None,
    }
    places = (demand.operators, demand.countries, demand.regions)
    if () not in (demand.cpu_tees, *places) and not any(
        missing.get(name) for name in demand.require
    ):
        return ""
    return NEVER_MET


def _hardware(attestation: Attestation, policy: Policy) -> Iterator[tuple[str, str]]:
    # From the actual expectations, so that these words say no more than is checked.
    roots = expectations_from(policy).roots
    for name in attestation.required_cpu_tees:
        tee = Tee(name)
        words = _KINDS[tee]
        if not anchors_for(roots, tee):
            words += f"; {NO_ROOT}"
        yield "hardware", words
    if not attestation.required_cpu_tees:
        yield "hardware", NOTHING
    for kind, count in attestation.required_devices.items():
        device = DeviceKind(kind)
        emulated = f", emulated, {PROVES_NOTHING}" if device.emulated else ""
        words = f"at least {count} NVIDIA GPU{emulated}, bound to the CPU"
        if not anchors_for(roots, device):
            words += f"; {NO_ROOT}"
        yield "devices", words


def _software(attestation: Attestation) -> Iterator[tuple[str, str]]:
    releases = attestation.releases
    names = " or ".join(releases.names) or NOTHING
    denied = f", but not {', '.join(releases.denied)}" if releases.denied else ""
    log = releases.log
    witnesses = _count(len(log.witnesses), "witness", "witnesses")
    seen = f"seen by {log.quorum} of {witnesses}"
    age = _duration(releases.max_checkpoint_age_s)
    yield (
        "releases",
        f"{names}{denied}, in the log {log.origin}, {seen} in the last {age}",
    )
    for tee, measurements in attestation.measurements.items():
        listed = f"{_count(len(measurements), 'measurement')} listed here"
        kinds = "; ".join(sorted({", ".join(sorted(each)) for each in measurements}))
        only = f"only {listed} ({kinds or 'none'}), and released"
        yield "pinned", f"{_KINDS[Tee(tee)]}: {only}"
    if attestation.sandbox:
        listed = _count(len(attestation.sandbox), "sandbox policy", "sandbox policies")
        yield "sandbox", f"{listed} listed here count as writing nothing"


def _snp(attestation: Attestation, snp: Snp) -> Iterator[tuple[str, str]]:
    levels = "; ".join(
        f"{product} at {f'fmc {each.fmc}, ' if product == 'Turin' else ''}"
        f"bl {each.bl}, tee {each.tee}, snp {each.snp}, ucode {each.ucode} or later"
        f"{raised_in_words(attestation, product)}"
        for product, each in least_levels(attestation).items()
    )
    yield "firmware", levels or NOTHING
    vmpl = " or ".join(map(str, snp.vmpl)) or "none, so all are refused"
    words = f"report version {snp.min_version} or later, privilege level {vmpl}"
    age = _duration(snp.max_crl_age_s)
    yield "SEV-SNP", f"{words}, revocation list at most {age} old"
    if snp.allow_vlek:
        yield "SEV-SNP", "keys that a cloud has loaded into the chip are accepted"
    if snp.allow_masked_chip:
        yield "SEV-SNP", "chips that hide their id are accepted"


def _tdx(attestation: Attestation, tdx: Tdx) -> str:
    statuses = " or ".join(tdx.statuses) or NOTHING
    words = f"status {statuses}, by Intel's evaluation"
    words += f" {least_evaluation(attestation)} or later"
    words += raised_in_words(attestation, "")
    if tdx.rejected_advisories:
        words += f"; never with {', '.join(tdx.rejected_advisories)} open"
    return words


def _machines(
    attestation: Attestation, custody: CustodyExpectations | None
) -> Iterator[tuple[str, str]]:
    refused = "evidence that names no machine is refused"
    if attestation.platforms is not None:
        allow, deny = attestation.platforms.allow, attestation.platforms.deny
        words = "any" if allow is None else f"only {len(allow)} that are listed"
        words += f", never {len(deny)} that are listed" if deny else ""
        yield "machines", f"{words}; {refused}"
    if attestation.custody is not None and custody is not None:
        listed = _count(len(custody.machines), "machine")
        until = f"{datetime.fromtimestamp(custody.until, tz=UTC):%Y-%m-%d}"
        words = f"{attestation.custody.name} answers for {listed} until {until}"
        yield "custody", f"{words}; {refused}"


def _gpu(gpu: Gpu) -> str:
    drivers = " or ".join(gpu.drivers) or NOTHING
    vbioses = " or ".join(gpu.vbioses) or NOTHING
    golden = _count(len(gpu.golden), "set", "sets")
    return f"driver {drivers}, VBIOS {vbioses}, {golden} of measurements"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _duration(seconds: int) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return _count(seconds // size, unit)
    return _count(seconds, "second")
