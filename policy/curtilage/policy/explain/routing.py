"""The routing section in words: which tier may answer what, by actual decisions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from curtilage.policy.decision.decide import Assessment, WhatIf, assess
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import RoutingClass, TierKind
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing import ClassEntry, Routing
from curtilage.policy.document.routing_settings import (
    ANYTHING,
    Aim,
    AimKind,
    Preference,
    Speculating,
    TierEntry,
)

ABSENT: Final = (
    "nothing is chosen: every query that may leave is sent; where one cannot be sent, "
    "or must be kept local, the local model answers"
)
ANEW: Final = "without the names it is decided anew"
NOT_BELIEVED: Final = "; without 'attestation' none is trusted, so it is not asked"
OBSERVES: Final = (
    "nothing is chosen yet: every query that may leave is sent, and a trace records "
    "what would have been chosen"
)
NO_TIER: Final = "no tier"
NO_FINDINGS: Final = "queries without findings"
TRUSTED_WITH_ALL: Final = "trusted with everything"
TRUSTED_WITH_NONE: Final = "trusted with nothing that must be kept local"
AGREED: Final = "nothing is sent before a person has seen it and agreed"
NO_DRAFTS: Final = "none: both classes deny them"
SHIPPED: Final = (
    "judged by the thresholds that come with Curtilage for some models of its "
    "catalogue, and none is written by another model"
)
_PREFERENCES: Final = {
    Preference.PREFER_HOME: "preferably local or on premises",
    Preference.PREFER_STRONG: "preferably by an enclave",
    Preference.ONLY_HOME: "only local or on premises",
}
_QUEUES: Final = {
    "memory": "deferred questions wait in memory, until the process ends",
    "file": "deferred questions wait in a sealed file on this machine",
}
_HISTORIES: Final = {
    "never": "nothing of them is sent with a later question",
    "redacted_extract": "redacted, they may be sent with a later question, if they "
    "were sent before",
    "safe_summary": "a summary by the local model, or a redacted extract, may be "
    "sent with a later question",
}
_DRAFTS: Final = {
    Speculating.VERIFY: "the local model writes one where an enclave may be asked; if "
    "it is rejected, the enclave is asked",
    Speculating.RACE: "the local model writes one while an enclave is asked as well",
}
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """The tiers that may answer a query in which only one of some classes is found.

    Attributes:
        patterns: the classes; empty: nothing at all is found.
        route: how far it may go.
        tiers: ids of the tiers that may answer, the most private first.
    """

    patterns: tuple[str, ...]
    route: Route
    tiers: tuple[str, ...]


def decided_alone(policy: Policy, name: str | None) -> Assessment:
    """Return the decision for a query in which only this class is found.

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
    """Return the fate of each class that is found alone; equal ones are grouped.

    That of nothing comes first, then the most private route.
    """
    by_class = {name: _fate(policy, name) for name in policy.classes}
    together: dict[tuple[Route, tuple[str, ...]], list[str]] = {}
    for pattern, fate in _alike(by_class):
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
            and not (kept and tier.kind.outside)
        ]
        yield "class", f"{each.value}: {', '.join(names) or NO_TIER}"
    for demand in section.demands:
        classes = ", ".join(demand.classes)
        if demand.only is not None:
            yield "place", f"{classes}: only {', '.join(demand.only)}"
        if demand.never is not None:
            yield "place", f"{classes}: never {', '.join(demand.never)}"
    for fate in fates(policy):
        found = ", ".join(fate.patterns) or NO_FINDINGS
        anew = f" ({ANEW})" if fate.route is Route.DEIDENTIFY else ""
        yield "found", f"{', '.join(fate.tiers) or NO_TIER} may answer{anew}: {found}"
    yield from _conditions(section)
    yield from _preferences(section)


def _fate(policy: Policy, name: str | None) -> tuple[Route, tuple[str, ...]]:
    decision = decided_alone(policy, name)
    tiers = tuple(each.id for each in decision.permitted.tiers)
    return decision.route, tiers


def _alike(
    by_class: dict[str, tuple[Route, tuple[str, ...]]], branch: str = ""
) -> Iterator[tuple[str, tuple[Route, tuple[str, ...]]]]:
    """Yield branches of the tree with one fate, and the rest by smaller branches."""
    below: dict[str, list[str]] = {}
    for name in sorted(by_class):
        if name.startswith(branch):
            head = name[len(branch) :].partition(".")[0]
            below.setdefault(branch + head, []).append(name)
    for head, names in below.items():
        one = by_class[names[0]]
        if names == [head]:
            yield head, one
        elif all(by_class[name] == one for name in names):
            yield f"{head}.*", one
        else:
            yield from _alike({name: by_class[name] for name in names}, f"{head}.")


def _tier(tier: TierEntry, policy: Policy) -> str:
    match tier.kind:
        case TierKind.IN_PROCESS:
            words = "the local model, in this process"
        case TierKind.ON_PREMISES:
            words = _on_premises(tier)
        case TierKind.ATTESTED:
            words = "an enclave that was verified, behind the relay"
            words += NOT_BELIEVED if policy.attestation is None else ""
        case _:
            assert_never(tier.kind)
    if tier.context_tokens is not None:
        words += f"; up to {tier.context_tokens:,} tokens"
    if tier.questions_per_min is not None:
        words += f"; {tier.questions_per_min:,} questions a minute"
    if tier.cost_microusd_per_mtok:
        dollars = tier.cost_microusd_per_mtok / _MICRO
        words += f"; {dollars:g} US$ a million tokens"
    return f"{tier.id}: {words}"


def _on_premises(tier: TierEntry) -> str:
    words = f"an on-premises server, {tier.address}, model {tier.model}"
    if tier.ca is not None:
        words += f", certified only by {tier.ca}"
    if tier.spki_sha256 is not None:
        words += f", with the key sha256:{tier.spki_sha256}"
    if ANYTHING in tier.trusted:
        return f"{words}; {TRUSTED_WITH_ALL}"
    if not tier.trusted:
        return f"{words}; {TRUSTED_WITH_NONE}"
    return f"{words}; trusted with {', '.join(tier.trusted)}, and nothing else"


def _drafts(section: Routing) -> str:
    """Say how drafts are written, for which classes, and how they are judged."""
    drafted = [each.value for each in reversed(RoutingClass) if each in section.drafted]
    if not drafted:
        return NO_DRAFTS
    file = section.speculation.thresholds
    judge = SHIPPED if file is None else f"judged by {file}"
    mode = _DRAFTS[section.speculation.mode]
    return f"{mode}; of {' and '.join(drafted)} texts; {judge}"


def _conditions(section: Routing) -> Iterator[tuple[str, str]]:
    kept = section.classes.restricted
    for each, entry in section.classes.entries():
        if isinstance(entry, ClassEntry) and entry.consent is not None:
            yield "consent", f"{each.value}, or more private: {AGREED}"
        # Without an entry for restricted turns, nothing of such a conversation is sent.
        if entry.history is not None and kept is not None and kept.history is not None:
            yield "history", f"{each.value} turns: {_HISTORIES[entry.history]}"


def aim_in_words(aim: Aim) -> str:
    """Return an aim as a sentence."""
    match aim.kind:
        case AimKind.LOCAL_PERCENT:
            return f"{aim.value} % of what may be sent is answered locally"
        case AimKind.QUALITY_LOSS_PERMILLE:
            return (
                f"as many questions as possible are answered locally, while at most "
                f"{aim.value} of 1,000 answers are worse than if all were sent"
            )
        case AimKind.COST_PER_1000:
            return (
                f"enough questions are answered locally that 1,000 cost at most "
                f"${aim.value / 1000:g}"
            )


def _preferences(section: Routing) -> Iterator[tuple[str, str]]:
    if section.observe:
        yield "observes", OBSERVES
    sure = section.intents.threshold_permille / 10
    for intent, preference in section.intents.overrides.items():
        words = f"where it is {sure:g} % sure" if intent != "unknown" else "the rest"
        yield "intent", f"{intent} ({words}): {_PREFERENCES[preference]}"
    if section.aim is not None:
        yield "aim", aim_in_words(section.aim)
    weights = {"ngram": "learned weights", "rules": "rules"}[section.estimator.kind]
    file = section.estimator.file
    if section.speculation.mode is not Speculating.OFF:
        yield "drafts", _drafts(section)
    yield (
        "hardness",
        f"estimated by {weights}{'' if file is None else f' of {file}'}",
    )
    breaker = section.breaker
    yield (
        "breaker",
        (
            f"a tier that failed {breaker.fails} times in {breaker.window_s} s is not "
            f"asked for {breaker.open_s} s"
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
