"""The routing section in words: who may answer what, asked of the decision itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from curtilage.policy.decision.decide import Assessment, WhatIf, assess
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import RoutingClass, TierKind
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing import ANYTHING, ClassEntry, Routing, TierEntry
from curtilage.policy.document.routing_plan import Preference, Speculating

ABSENT: Final = (
    "nothing is chosen: what may leave leaves, and where it cannot be sent, or must "
    "stay, the local model answers"
)
ANEW: Final = "who else, without the names, is decided anew"
NOT_BELIEVED: Final = "; without 'attestation' none is believed, so it is not asked"
OBSERVES: Final = (
    "nothing is chosen yet: what may leave leaves, and a trace tells what would have "
    "been chosen"
)
NOBODY: Final = "nobody"
_PREFERENCES: Final = {
    Preference.PREFER_HOME: "rather in the house",
    Preference.PREFER_STRONG: "rather by an enclave",
    Preference.ONLY_HOME: "in the house alone",
}
_QUEUES: Final = {
    "memory": "what is asked with defer waits in memory, until the process ends",
    "file": "what is asked with defer waits in a sealed file on this machine",
}
_HISTORIES: Final = {
    "never": "nothing of them goes along with a later question",
    "redacted_extract": "redacted, they may go along with a later question, where they "
    "left before",
    "safe_summary": "a summary that the local model makes, or what is redacted, may go "
    "along with a later question",
}
_DRAFTS: Final = {
    Speculating.VERIFY: "the local model writes one where an enclave may be asked; if "
    "it does not do, the enclave is asked",
    Speculating.RACE: "the local model writes one while an enclave is asked as well",
}
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Who may answer a query in which one of some classes is found, and nothing else.

    Attributes:
        patterns: the classes; empty: nothing at all is found.
        route: how far it may go.
        tiers: ids of the tiers that may answer, the most private first.
    """

    patterns: tuple[str, ...]
    route: Route
    tiers: tuple[str, ...]


def decided_alone(policy: Policy, name: str | None) -> Assessment:
    """Return what is decided of a query in which a class is found, and nothing else.

    Args:
        policy: the policy.
        name: the class, found with certainty though no check proves it; None: nothing
            is found.
    """
    finding = Finding(
        data_class=name or "",
        detector="policy",
        start=0,
        end=1,
        score=100,
        validated=False,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )
    alone = WhatIf(findings=() if name is None else (finding,))
    return assess(policy.rulebook, alone)


def fates(policy: Policy) -> tuple[Fate, ...]:
    """Return what becomes of each class that is found alone, those alike together.

    That of nothing comes first, then the most private route.
    """
    told = {name: _fate(policy, name) for name in policy.classes}
    together: dict[tuple[Route, tuple[str, ...]], list[str]] = {}
    for pattern, fate in _alike(told):
        together.setdefault(fate, []).append(pattern)
    route, tiers = _fate(policy, None)
    return (
        Fate(patterns=(), route=route, tiers=tiers),
        *(
            Fate(patterns=tuple(patterns), route=route, tiers=tiers)
            for (route, tiers), patterns in sorted(
                together.items(), key=lambda each: -each[0][0].privacy
            )
        ),
    )


def routing_in_words(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield what the section means: a label and a sentence each."""
    section = policy.document.routing
    if section is None:
        yield "tiers", ABSENT
        return
    for tier in section.tiers:
        yield "tier", _tier(tier, policy)
    for each in reversed(RoutingClass):
        listed = policy.tiering.classes.get(each)
        kept = each is RoutingClass.RESTRICTED
        names = [
            tier.id
            for tier in policy.tiering.tiers
            if (listed is None or tier.id in listed)
            and not (kept and tier.kind is TierKind.ATTESTED)
        ]
        yield "class", f"{each.value}: {', '.join(names) or NOBODY}"
    for demand in section.demands:
        classes = ", ".join(demand.classes)
        if demand.only is not None:
            yield "place", f"{classes}: only {', '.join(demand.only)}"
        if demand.never is not None:
            yield "place", f"{classes}: never {', '.join(demand.never)}"
    for fate in fates(policy):
        found = ", ".join(fate.patterns) or "what nothing is found in"
        anew = f" ({ANEW})" if fate.route is Route.DEIDENTIFY else ""
        yield "found", f"{', '.join(fate.tiers) or NOBODY} may answer{anew}: {found}"
    yield from _conditions(section)
    yield from _preferences(section)


def _fate(policy: Policy, name: str | None) -> tuple[Route, tuple[str, ...]]:
    decision = decided_alone(policy, name)
    tiers = tuple(each.id for each in decision.permitted.tiers)
    return decision.route, tiers


def _alike(
    told: dict[str, tuple[Route, tuple[str, ...]]], branch: str = ""
) -> Iterator[tuple[str, tuple[Route, tuple[str, ...]]]]:
    """Yield branches of the tree that fare alike, and the rest by smaller ones."""
    below: dict[str, list[str]] = {}
    for name in sorted(told):
        if name.startswith(branch):
            head = name[len(branch) :].partition(".")[0]
            below.setdefault(branch + head, []).append(name)
    for head, names in below.items():
        one = told[names[0]]
        if names == [head]:
            yield head, one
        elif all(told[name] == one for name in names):
            yield f"{head}.*", one
        else:
            yield from _alike({name: told[name] for name in names}, f"{head}.")


def _tier(tier: TierEntry, policy: Policy) -> str:
    if tier.kind == "house":
        words = _house(tier)
    elif tier.kind == "in_process":
        words = "the local model, in this process"
    else:
        words = "an enclave that was verified, behind the relay"
        words += NOT_BELIEVED if policy.attestation is None else ""
    if tier.context_tokens is not None:
        words += f"; up to {tier.context_tokens:,} tokens"
    if tier.questions_per_min is not None:
        words += f"; {tier.questions_per_min:,} questions a minute"
    if tier.cost_microusd_per_mtok:
        dollars = tier.cost_microusd_per_mtok / _MICRO
        words += f"; {dollars:g} US$ a million tokens"
    return f"{tier.id}: {words}"


def _house(tier: TierEntry) -> str:
    words = f"a server in the house, {tier.address}, model {tier.model}"
    if tier.ca is not None:
        words += f", vouched for by {tier.ca} alone"
    if tier.spki_sha256 is not None:
        words += f", with the key sha256:{tier.spki_sha256}"
    if ANYTHING in tier.trusted:
        return f"{words}; trusted with everything"
    if not tier.trusted:
        return f"{words}; trusted with nothing that must stay"
    return f"{words}; trusted with {', '.join(tier.trusted)}, and nothing else"


def _conditions(section: Routing) -> Iterator[tuple[str, str]]:
    kept = section.classes.restricted
    for each, entry in section.classes.entries():
        if isinstance(entry, ClassEntry) and entry.consent is not None:
            what = f"{each.value}, or more private"
            yield "consent", f"{what}: nothing leaves before a person saw it and agreed"
        # Without an entry of what had to stay, such a conversation stays whole.
        if entry.history is not None and kept is not None and kept.history is not None:
            yield "history", f"{each.value} turns: {_HISTORIES[entry.history]}"


def _preferences(section: Routing) -> Iterator[tuple[str, str]]:
    if section.observe:
        yield "observes", OBSERVES
    sure = section.intents.threshold_permille / 10
    for intent, preference in section.intents.overrides.items():
        words = f"where it is {sure:g} % sure" if intent != "unknown" else "the rest"
        yield "intent", f"{intent} ({words}): {_PREFERENCES[preference]}"
    weights = {"ngram": "learned weights", "rules": "rules"}[section.estimator.kind]
    file = section.estimator.file
    if section.speculation.mode is not Speculating.OFF:
        yield "drafts", _DRAFTS[section.speculation.mode]
    yield (
        "hardness",
        f"estimated by {weights}{'' if file is None else f' of {file}'}",
    )
    breaker = section.breaker
    yield (
        "breaker",
        (
            f"a tier that failed {breaker.fails} times in {breaker.window_s} s is left "
            f"alone for {breaker.open_s} s"
        ),
    )
    queue = section.queue
    if queue.store != "none":
        yield "queue", _QUEUES[queue.store]
    if section.rollout is not None:
        log = section.rollout.log
        yield (
            "model",
            (
                f"where none is named, the one that manifests {section.rollout.name!r} "
                f"say, logged in {log.origin} and cosigned by {log.quorum} of "
                f"{len(log.witnesses)}"
            ),
        )
