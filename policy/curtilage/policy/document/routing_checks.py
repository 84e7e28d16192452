"""Checks across the entries of ``routing:``.

Works on the tree as it was written, like ``checks``: a value of the wrong type is
ignored here, since ``model`` reports it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.addresses import parse_address
from curtilage.policy.document.attestation_checks import (
    Complaint,
    Location,
    Tree,
    list_in,
    mapping_in,
)

_SECTION: Final = "routing"
# A client has one process, and one relay with one pool behind it.
_ALONE: Final = {
    "in_process": "another tier above is in this process",
    "attested": "another tier above is attested, and a client asks one pool",
}


def routing_complaints(tree: Tree, *, development: bool) -> Iterator[Complaint]:
    """Yield what is wrong between the section's entries, each with its place.

    Args:
        tree: the section.
        development: whether ``attestation.environment`` is ``development``.
    """
    routing = tree if isinstance(tree, dict) else {}
    tiers = [
        each if isinstance(each, dict) else {} for each in list_in(routing, "tiers")
    ]
    yield from _tiers(tiers, development=development)
    kinds = {
        name: each.get("kind")
        for each in tiers
        if isinstance(name := each.get("id"), str)
    }
    classes = mapping_in(routing, "classes")
    yield from _classes(classes, kinds)
    if mapping_in(routing, "queue").get("store", "none") == "none":
        for name in classes:
            # Its author would believe that such questions wait.
            if "queue" in mapping_in(classes, name):
                yield (
                    (_SECTION, "classes", name, "queue"),
                    "nothing waits: 'routing.queue' has no store",
                )
    yield from _speculation(routing, kinds)
    for index, demand in enumerate(list_in(routing, "demands")):
        place: Location = (_SECTION, "demands", index)
        named = demand if isinstance(demand, dict) else {}
        for key in ("only", "never"):
            yield from _known(list_in(named, key), (*place, key), kinds)
        if kinds and all(name in list_in(named, "never") for name in kinds):
            yield (*place, "never"), "leaves no tier: a rule with 'then: block' says so"
    if "rollout" in routing and "in_process" not in kinds.values():
        yield (_SECTION, "rollout"), "there is no tier in this process"


def _tiers(
    tiers: Sequence[Mapping[str, Tree]], *, development: bool
) -> Iterator[Complaint]:
    for index, tier in enumerate(tiers):
        place = (_SECTION, "tiers", index)
        above = tiers[:index]
        name, kind, address = (tier.get(key) for key in ("id", "kind", "address"))
        # An id that two tiers share would list both, and one of them may be an enclave.
        if name is not None and name in [each.get("id") for each in above]:
            yield (*place, "id"), "another tier above has the same id"
        if kind in [each.get("kind") for each in above] and str(kind) in _ALONE:
            yield (*place, "kind"), _ALONE[str(kind)]
        if _is_plain_http(address) and not development:
            yield (*place, "address"), "plain http needs environment: development"


def _is_plain_http(address: Tree) -> bool:
    try:
        return isinstance(address, str) and parse_address(address).scheme == "http"
    except ValueError:  # ``model`` reports it; or a socket
        return False


def _classes(
    classes: Mapping[str, Tree], kinds: Mapping[str, Tree]
) -> Iterator[Complaint]:
    listed = {name: list_in(mapping_in(classes, name), "tiers") for name in classes}
    enclaves = [name for name, kind in kinds.items() if kind == "attested"]
    for name, tiers in listed.items():
        place = (_SECTION, "classes", name, "tiers")
        yield from _known(tiers, place, kinds)
        for index, each in enumerate(tiers):
            # The mask denies these in any case, but the author would believe that
            # it does not.
            if each not in enclaves:
                continue
            if name == RoutingClass.RESTRICTED:
                yield (*place, index), "restricted queries must be kept on premises"
            for other in _less_private(name):
                if each not in listed.get(other, [each]):
                    yield (
                        (*place, index),
                        f"{other!r} is less private, and does not list it",
                    )


def _speculation(
    routing: Mapping[str, Tree], kinds: Mapping[str, Tree]
) -> Iterator[Complaint]:
    entry = mapping_in(mapping_in(routing, "classes"), RoutingClass.CONFIDENTIAL)
    # A rejected draft reveals to the enclave that a question was hard, and to an
    # observer that it took longer. Restricted queries have no such key: they are not
    # sent.
    if entry.get("speculation") == "allow":
        yield (
            (_SECTION, "classes", RoutingClass.CONFIDENTIAL, "speculation"),
            "drafts are only for 'public' and 'internal', which may leave unchanged",
        )
    mode = mapping_in(routing, "speculation").get("mode")
    if mode in {"verify", "race"} and not {"in_process", "attested"} <= {
        each for each in kinds.values() if isinstance(each, str)
    }:
        yield (
            (_SECTION, "speculation", "mode"),
            "needs a tier in this process that drafts, and an attested one behind it",
        )


def _less_private(name: str) -> list[str]:
    ranked = [each.value for each in RoutingClass]  # the most private first
    return ranked[ranked.index(name) + 1 :] if name in ranked else []


def _known(
    listed: list[Tree], place: Location, kinds: Mapping[str, Tree]
) -> Iterator[Complaint]:
    for index, each in enumerate(listed):
        if isinstance(each, str) and each not in kinds:
            yield (*place, index), f"there is no tier {each!r}"
