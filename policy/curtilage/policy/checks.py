"""What a policy's entries must be together; each alone is ``model``'s matter.

Works on the tree as it was written, so that these problems are told along with
all others. A value of the wrong type is passed over here: ``model`` tells it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from curtilage.policy.rules import ANY_UNCERTAIN, ANY_UNCERTAIN_WHEN

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | None"
Location: TypeAlias = tuple[str | int, ...]
Complaint: TypeAlias = tuple[Location, str]

_EMULATED = "emulated"


def complaints(tree: Tree) -> Iterator[Complaint]:
    """Yield what is wrong between entries, each with its place in the tree."""
    document = _mapping(tree)
    rules = [_mapping(each) for each in _sequence(document.get("rules"))]
    yield from _ids(rules)
    yield from _any_uncertain(rules)
    yield from _environment(_mapping(document.get("attestation")))


def _ids(rules: Sequence[Mapping[str, Tree]]) -> Iterator[Complaint]:
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        name = rule.get("id")
        if isinstance(name, str):
            if name in seen:
                yield ("rules", index, "id"), "another rule above has the same id"
            seen.add(name)


def _any_uncertain(rules: Sequence[Mapping[str, Tree]]) -> Iterator[Complaint]:
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
    for key in ("min_conf", "distinct"):
        if key in rule:
            yield (*place, key), f"{ANY_UNCERTAIN!r} cannot be weakened by {key!r}"


def _environment(attestation: Mapping[str, Tree]) -> Iterator[Complaint]:
    if attestation.get("environment") == "development":
        return
    for index, anchor in enumerate(_sequence(attestation.get("trust_anchors"))):
        if _mapping(anchor).get("kind") == _EMULATED:
            kind = ("attestation", "trust_anchors", index, "kind")
            yield kind, "an emulated root needs environment: development"
    for index, tee in enumerate(_sequence(attestation.get("required_cpu_tees"))):
        if isinstance(tee, str) and tee.startswith(_EMULATED):
            place = ("attestation", "required_cpu_tees", index)
            yield place, "an emulated TEE needs environment: development"


def _mapping(tree: Tree) -> Mapping[str, Tree]:
    return tree if isinstance(tree, dict) else {}


def _sequence(tree: Tree) -> Sequence[Tree]:
    return tree if isinstance(tree, list) else ()
