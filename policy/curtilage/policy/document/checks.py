"""Checks across a policy's entries; ``model`` checks each entry by itself.

Works on the tree as it was written, so that these problems are reported along with
all others. A value of the wrong type is ignored here: ``model`` reports it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from curtilage.policy.decision.classes import is_own_class
from curtilage.policy.decision.rules import ANY_UNCERTAIN, ANY_UNCERTAIN_WHEN
from curtilage.policy.document.addresses import (
    Address,
    is_loopback,
    parse_address,
    same_owner,
)
from curtilage.policy.document.attestation_checks import (
    Complaint,
    Location,
    Tree,
    attestation_complaints,
)
from curtilage.policy.document.routing_checks import routing_complaints

__all__ = [
    "Complaint",
    "Location",
    "Tree",
    "as_written",
    "complaints",
    "detectors_named",
    "own_classes",
    "pack_complaints",
]


def complaints(tree: Tree, packed: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield what is wrong between entries, each with its place in the tree.

    Args:
        tree: a policy, with its detectors named (``detectors_named``).
        packed: the ids of its packs' rules, each with its pack.
    """
    document = _mapping(tree)
    rules = _entries(document, "rules")
    yield from _ids(rules, ("rules",), packed)
    yield from _ids(_own_detectors(document), ("detectors", "own"), {})
    yield from _any_uncertain(rules)
    attestation = _mapping(document.get("attestation"))
    yield from attestation_complaints(document.get("attestation"))
    yield from _transport(_mapping(document.get("transport")), attestation)
    development = attestation.get("environment") == "development"
    yield from routing_complaints(document.get("routing"), development=development)


def pack_complaints(tree: Tree, name: str) -> Iterator[Complaint]:
    """Yield what is wrong between the entries of the pack of this name."""
    document = _mapping(tree)
    rules = _entries(document, "rules")
    yield from _ids(rules, ("rules",), {})
    if document.get("pack") != name:
        yield ("pack",), f"this file is the pack {name!r}"
    for index, rule in enumerate(rules):
        # A pack is shared by many policies: a pack with this rule would hide that a
        # policy itself lacks it.
        if rule.get("id") == ANY_UNCERTAIN:
            place = ("rules", index, "id")
            yield place, f"{ANY_UNCERTAIN!r} must be in each policy, and in no pack"
        if not rule.get("reason"):
            yield ("rules", index), "each rule of a pack gives its reason"


def own_classes(tree: Tree) -> frozenset[str]:
    """Return the classes that a policy's own detectors bring to the tree."""
    names = [each.get("class") for each in _own_detectors(_mapping(tree))]
    detectors = _mapping(_mapping(tree).get("detectors"))
    names += _mapping(_mapping(detectors.get("presidio")).get("classes")).values()
    return frozenset(n for n in names if isinstance(n, str) and is_own_class(n))


def detectors_named(tree: Tree) -> Tree:
    """Return a policy whose ``detectors`` are keys, where they were a list.

    ``detectors: [...]`` is short for ``detectors: {own: [...]}``.
    """
    if isinstance(tree, dict) and isinstance(own := tree.get("detectors"), list):
        named: Tree = {"own": own}
        return {**tree, "detectors": named}
    return tree


def as_written(found: Iterable[Complaint], tree: Tree) -> Iterator[Complaint]:
    """Put complaints back to their places in a tree, as its file has it."""
    short = isinstance(tree, dict) and isinstance(tree.get("detectors"), list)
    for place, message in found:
        if short and place[:2] == ("detectors", "own"):
            yield ("detectors", *place[2:]), message
        else:
            yield place, message


def _own_detectors(document: Mapping[str, Tree]) -> list[Mapping[str, Tree]]:
    return _entries(_mapping(document.get("detectors")), "own")


def _entries(document: Mapping[str, Tree], key: str) -> list[Mapping[str, Tree]]:
    value = document.get(key)
    return [_mapping(each) for each in value] if isinstance(value, list) else []


def _ids(
    entries: Sequence[Mapping[str, Tree]], at: Location, packed: Mapping[str, str]
) -> Iterator[Complaint]:
    seen: set[str] = set()
    kind = str(at[0]).removesuffix("s")
    for index, entry in enumerate(entries):
        name = entry.get("id")
        if isinstance(name, str):
            # Audit records and explanations name a rule by its id alone.
            if name in seen:
                yield (*at, index, "id"), f"another {kind} above has the same id"
            if name in packed:
                message = f"a rule of the pack {packed[name]!r} has the same id"
                yield (*at, index, "id"), message
            seen.add(name)


def _any_uncertain(rules: Sequence[Mapping[str, Tree]]) -> Iterator[Complaint]:
    # A detector's failure is reported as a finding, and this rule keeps it local.
    # Without the rule, a worker that crashed would count as one that found nothing.
    found = [i for i, rule in enumerate(rules) if rule.get("id") == ANY_UNCERTAIN]
    if not found:
        rule_text = (
            f'{{id: {ANY_UNCERTAIN}, when: "{ANY_UNCERTAIN_WHEN}", then: local}}'
        )
        yield ("rules",), f"the rule {ANY_UNCERTAIN!r} cannot be removed: {rule_text}"
        return
    rule, place = rules[found[0]], ("rules", found[0])
    if rule.get("when") != ANY_UNCERTAIN_WHEN:
        yield (
            (*place, "when"),
            f"{ANY_UNCERTAIN!r} cannot be weakened: write {ANY_UNCERTAIN_WHEN!r}",
        )
    if rule.get("then") not in ("local", "block"):
        yield (
            (*place, "then"),
            f"{ANY_UNCERTAIN!r} cannot be weakened: write local or block",
        )
    # With either, a single finding of this kind could pass.
    for key in ("min_conf", "distinct"):
        if key in rule:
            yield (*place, key), f"{ANY_UNCERTAIN!r} cannot be weakened by {key!r}"


def _transport(
    transport: Mapping[str, Tree], attestation: Mapping[str, Tree]
) -> Iterator[Complaint]:
    if transport.get("cover") is not None and transport.get("unsafe_unpadded") is True:
        message = "cover traffic can be distinguished from answers that are not padded"
        yield ("transport", "cover"), message
    accept = transport.get("accept")
    entries = accept if isinstance(accept, list) else []
    for index, entry in enumerate(entries):
        if isinstance(entry, dict) and entry in entries[:index]:
            yield ("transport", "accept", index), "the same parameters twice"
    development = attestation.get("environment") == "development"
    named = {key: _address(transport.get(key)) for key in ("mirror", "gateway")}
    for key, address in named.items():
        if address is not None and address.scheme == "http" and not development:
            yield ("transport", key), "plain http needs environment: development"
    # The enclave's operator must not also run the second source of its keys. On one
    # machine, as in development, there is only one owner.
    mirror, gateway = named["mirror"], named["gateway"]
    if mirror is None or gateway is None or not same_owner(mirror.host, gateway.host):
        return
    if not (development and is_loopback(mirror.host)):
        yield (
            ("transport", "mirror"),
            "mirror and gateway have one owner: their last two labels are the same",
        )


def _address(value: Tree) -> Address | None:
    try:
        return parse_address(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _mapping(tree: Tree) -> Mapping[str, Tree]:
    return tree if isinstance(tree, dict) else {}
