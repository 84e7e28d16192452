"""Checks across the entries of ``attestation:``.

Works on the tree as it was written, like ``checks``: a value of the wrong
type is ignored here, since ``model`` reports it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from curtilage.attest.claims import measurement_problem
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import SNP_TEES, TDX_TEES
from curtilage.attest.expectations_checks import OLDEST_IN_PRODUCTION
from curtilage.policy.breaks import Break, Default, known_breaks

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | None"
Location: TypeAlias = tuple[str | int, ...]
Complaint: TypeAlias = tuple[Location, str]

_SECTION: Final = "attestation"
_TEES: Final = frozenset(tee.value for tee in Tee)
# Which kinds of evidence each of these speaks about.
_SPEAKS_OF: Final[Mapping[str, frozenset[str]]] = {
    "snp": frozenset(tee.value for tee in SNP_TEES),
    "tdx": frozenset(tee.value for tee in TDX_TEES),
    "nitro": frozenset({Tee.NITRO.value, Tee.EMULATED_NITRO.value}),
    "tpm": frozenset({Tee.TPM.value}),
}
# These two need no key, so they may be left out.
_OPTIONAL: Final = frozenset({"nitro", "tpm"})
_PPID_HEX: Final = 32
_NEEDS: Final = "needs environment: development"


def attestation_complaints(tree: Tree) -> Iterator[Complaint]:
    """Yield what is wrong between the section's entries, each with its place."""
    attestation = tree if isinstance(tree, dict) else {}
    # Any other word counts as production, a misspelt one too.
    if attestation.get("environment") != "development":
        yield from _production(attestation)
    yield from _anchors_once(attestation)
    yield from _sections(attestation)
    yield from _gpu(attestation)
    yield from _measurements(attestation)
    yield from _platforms(attestation)
    yield from _accepted(attestation)
    yield from _classes(attestation)


def _production(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    """Report every entry that proves no isolation."""
    yield from _anchors_in_production(attestation)
    for index, tee in enumerate(list_in(attestation, "required_cpu_tees")):
        if not _isolates(tee):
            yield (_SECTION, "required_cpu_tees", index), f"{_unfit(tee)} {_NEEDS}"
    for tee in mapping_in(attestation, "measurements"):
        if not _isolates(tee):
            yield (_SECTION, "measurements", tee), f"{_unfit(tee)} {_NEEDS}"
    for kind in mapping_in(attestation, "required_devices"):
        if kind == DeviceKind.EMULATED_NVIDIA_GPU.value:
            yield (_SECTION, "required_devices", kind), f"an emulated GPU {_NEEDS}"
    yield from _broken(attestation)
    version = mapping_in(attestation, "snp").get("min_version")
    if isinstance(version, int) and version < OLDEST_IN_PRODUCTION:
        yield (
            (_SECTION, "snp", "min_version"),
            f"version {version} names no product; it {_NEEDS}",
        )


def _broken(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    """Report every product that is broken, unless the policy accepts that."""
    accepted = {
        str(each.get("id"))
        for each in list_in(attestation, "accept_broken")
        if isinstance(each, dict)
    }
    kinds = _strings(attestation, "required_cpu_tees") or _TEES
    snp = mapping_in(attestation, "snp")
    for place, entries in (
        ((_SECTION, "trust_anchors"), list_in(attestation, "trust_anchors")),
        ((_SECTION, "snp", "min_tcb"), list_in(snp, "min_tcb")),
    ):
        for index, entry in enumerate(entries):
            product = entry.get("product") if isinstance(entry, dict) else None
            if not isinstance(product, str):
                continue
            for row in known_breaks().of(kinds, (product,)):
                if refused := _refused(row, accepted):
                    yield (*place, index, "product"), refused


def _refused(row: Break, accepted: Collection[str]) -> str:
    # Only rows of products: a policy names those, and can leave one out.
    said = f"{row.name} ({row.published}, {row.source}): {row.effect}"
    if row.default is Default.NEVER:
        return said
    if row.default is Default.REFUSE and row.id not in accepted:
        return f"{said}; accept_broken accepts it, with id: {row.id} and a reason"
    return ""


def _accepted(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    """Report what is accepted without an effect: its author expects one."""
    kinds = _strings(attestation, "required_cpu_tees") | set(
        mapping_in(attestation, "required_devices")
    )
    products = frozenset(
        str(each.get("product"))
        for each in list_in(attestation, "trust_anchors")
        if isinstance(each, dict) and each.get("kind") == "amd"
    )
    seen = set[str]()
    for index, entry in enumerate(list_in(attestation, "accept_broken")):
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        row = known_breaks().named(name)
        problem = None
        if row is None:
            problem = f"no known break has this id (as of {known_breaks().as_of})"
        elif row.default in {Default.STATE, Default.NEVER}:
            problem = "nothing follows from this one that could be accepted"
        elif not row.affects(kinds, products):
            problem = "it affects nothing that this policy accepts"
        elif name in seen:
            problem = "the same break twice"
        seen.add(name)
        if problem is not None:
            yield (_SECTION, "accept_broken", index, "id"), problem


def _anchors_in_production(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    for index, anchor in enumerate(list_in(attestation, "trust_anchors")):
        kind = anchor.get("kind") if isinstance(anchor, dict) else None
        place = (_SECTION, "trust_anchors", index, "kind")
        if kind == "emulated":
            yield place, f"an emulated root {_NEEDS}"
        if kind == "tpm":
            yield place, f"a TPM by itself shows no isolation; it {_NEEDS}"


def _anchors_once(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    anchors = list_in(attestation, "trust_anchors")
    for index, anchor in enumerate(anchors):
        if isinstance(anchor, dict) and anchor in anchors[:index]:
            yield (_SECTION, "trust_anchors", index), "the same root twice"


def _isolates(name: Tree) -> bool:
    # ``model`` reports an unknown name; it is not reported here a second time.
    return not isinstance(name, str) or name not in _TEES or Tee(name).isolates


def _unfit(name: Tree) -> str:
    return "a TPM by itself" if name == Tee.TPM.value else "an emulated TEE"


def _sections(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    """Report a kind without its section, and a section without its kind."""
    named = _strings(attestation, "required_cpu_tees")
    if not named:
        return
    for section, speaks_of in _SPEAKS_OF.items():
        used = bool(named & speaks_of)
        if used and section not in attestation and section not in _OPTIONAL:
            kinds = ", ".join(sorted(named & speaks_of))
            yield (_SECTION,), f"{kinds} needs the section {section!r}"
        # Rules that apply to nothing: their author expects them to have an effect.
        if section in attestation and not used:
            message = "no kind of evidence that is required is judged by this"
            yield (_SECTION, section), message


def _gpu(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    required = bool(mapping_in(attestation, "required_devices"))
    if required and "gpu" not in attestation:
        yield (_SECTION,), "a required GPU needs the section 'gpu'"
    if "gpu" in attestation and not required:
        yield (_SECTION, "gpu"), "no device that is required is judged by this"


def _measurements(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    named = _strings(attestation, "required_cpu_tees")
    measurements = mapping_in(attestation, "measurements")
    for tee in measurements:
        place: Location = (_SECTION, "measurements", tee)
        if tee not in _TEES:
            continue
        if named and tee not in named:
            yield place, "this kind of evidence is not among required_cpu_tees"
        for index, entry in enumerate(list_in(measurements, tee)):
            if not isinstance(entry, dict):
                continue
            # ``model`` reports a value of another type; here it names no register.
            named_here = {k: v for k, v in entry.items() if isinstance(v, str)}
            problem = measurement_problem(named_here, Tee(tee))
            if problem is not None:
                yield (*place, index), problem


def _platforms(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    """Report a machine that no evidence of a required kind could name."""
    named = _strings(attestation, "required_cpu_tees")
    platforms = mapping_in(attestation, "platforms")
    for key in ("deny", "allow"):
        for index, machine in enumerate(list_in(platforms, key)):
            kinds = _kinds_that_name(machine) if isinstance(machine, str) else named
            # Denying or allowing a machine that no evidence can name has no effect, and
            # the author would believe that it had.
            if named and not kinds & named:
                message = "no kind among required_cpu_tees names a machine so"
                yield (_SECTION, "platforms", key, index), message


def _kinds_that_name(machine: str) -> frozenset[str]:
    # Each vendor's names have their own form, so the form identifies the vendor.
    if machine.startswith("i-"):
        return _SPEAKS_OF["nitro"]
    # A hidden id is written as zeros, and counts as naming no machine.
    if not machine.strip("0"):
        return frozenset()
    return _SPEAKS_OF["tdx" if len(machine) == _PPID_HEX else "snp"]


def _classes(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    named = _strings(attestation, "required_cpu_tees")
    for index, entry in enumerate(list_in(attestation, "classes")):
        demand = entry if isinstance(entry, dict) else {}
        for place, tee in enumerate(list_in(demand, "cpu_tees")):
            if isinstance(tee, str) and tee in _TEES - named:
                where = (_SECTION, "classes", index, "cpu_tees", place)
                yield where, "this kind of evidence is not among required_cpu_tees"


def mapping_in(tree: Mapping[str, Tree], key: str) -> Mapping[str, Tree]:
    """Return the mapping under a key; an empty one where it is anything else."""
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def list_in(tree: Mapping[str, Tree], key: str) -> list[Tree]:
    """Return the list under a key; an empty one where it is anything else."""
    value = tree.get(key)
    return value if isinstance(value, list) else []


def _strings(tree: Mapping[str, Tree], key: str) -> frozenset[str]:
    return frozenset(each for each in list_in(tree, key) if isinstance(each, str))
