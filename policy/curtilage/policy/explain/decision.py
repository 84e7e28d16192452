"""A decision in words and as JSON: findings by class, without content."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from curtilage.policy.decision.classes import STALE_POLICY, is_uncertain
from curtilage.policy.decision.decide import Assessment, WhatIf
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import (
    DEFAULT,
    FIGURE,
    FLOOR,
    STICKY,
    STRICT_TOPICS,
    TIERS,
    Rule,
    scores_of,
    unapproved,
)
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.counterfactual import (
    Change,
    class_of,
    smallest_change,
)
from curtilage.policy.explain.routing import NO_TIER

NO_REASON: Final = "the policy gives no reason"
MAX_SHOWN: Final = 20
OUTCOMES: Final = {
    Route.BLOCK: "This query is not answered: the policy blocks it.",
    Route.LOCAL: "This query is kept local: only the local model may answer it.",
    Route.DEIDENTIFY: (
        "This query may leave with the names in it replaced, sealed to an enclave "
        "that was verified."
    ),
    Route.ENCLAVE: "This query may leave, sealed to an enclave that was verified.",
}
NOT_IN_FORCE: Final = (
    "the policy is not signed, or its signature does not hold any more (`curtilage "
    "policy verify` says which)"
)
NO_ENCLAVE: Final = (
    "The policy names no enclave (attestation:), so it is kept local all the same."
)
CONSENT: Final = (
    "Before anything is sent, a person must see it and agree "
    "(routing.classes.*.consent)."
)
COULD: Final = {
    Route.LOCAL: "it could be answered by the local model",
    Route.DEIDENTIFY: "it could leave with the names in it replaced",
    Route.ENCLAVE: "it could leave",
}
KEPT: Final = "This query is kept on premises."
SMALLEST: Final = "Smallest change"
SUFFICES: Final = "A change that suffices"
ASIDE: Final = "; approved, does not count"
WHOLE_QUERY: Final = " across the query"
THE_SENDER: Final = "the sender"
BUILT_IN: Final = {
    DEFAULT: "default.decision",
    STICKY: "sticky",
    STRICT_TOPICS: "strict_topics",
    TIERS: "routing",
}


def explain(
    policy: Policy, decision: Assessment, inspection: WhatIf | None = None
) -> str:
    """Explain a decision in a few lines, for the person who asked.

    Args:
        policy: the policy in force.
        decision: what was decided under it.
        inspection: what the decision was made from; with it, the places are
            listed, and the smallest change that would have changed the route.
            Offsets count from 0, and the end is exclusive.

    Raises:
        ValueError: the decision was made under another policy.
    """
    _require_same(policy, decision)
    lines = [OUTCOMES[decision.route]]
    if policy.routing is not None:
        lines = list(_tiers(decision))
    lines += _before_it_leaves(policy, decision)
    classes = ", ".join(decision.classes)
    lines.append(f"Found: {classes or 'nothing that a rule names'}.")
    if decision.uncertain:
        lines.append(f"Could not be determined: {', '.join(decision.uncertain)}.")
    if STALE_POLICY in decision.uncertain:
        lines.append(f"Not in force: {NOT_IN_FORCE}; nothing is sent to an enclave.")
    if inspection is not None:
        lines += _places(policy, inspection)
        lines += _approvals(policy, inspection)
        lines += _figures(policy, inspection)
    rules = {rule.id: rule for rule in policy.rules}
    source = _source(decision.rule, rules.get(decision.rule))
    reason = decision.reason.strip().removesuffix(".") or NO_REASON
    lines.append(f"Decided by {source}: {reason}.")
    # Every rule that fired, not only the one that decided.
    for hit in decision.rules:
        condition = _condition(rules.get(hit.id))
        lines.append(f"  {hit.route.value:<10}  {hit.id}{condition}")
    change = None if inspection is None else smallest_change(policy, inspection)
    if change is not None:
        lines.append(change_in_words(change))
    lines.append(f"Policy: {policy.source}, {policy.digest}.")
    return "\n".join(lines)


def explain_json(
    policy: Policy, decision: Assessment, inspection: WhatIf | None = None
) -> str:
    """Return a decision as one JSON object, keys in a fixed order.

    With an inspection it also has ``findings``, ``labels`` (the classes of each
    text in which something was found, or which is approved) and ``change``, which is
    null where the route is the least private one already.

    Raises:
        ValueError: the decision was made under another policy.
    """
    _require_same(policy, decision)
    answer: dict[str, object] = {
        "route": decision.route.value,
        "rule": decision.rule,
        "reason": decision.reason,
        "classes": list(decision.classes),
        "uncertain": list(decision.uncertain),
        "rules": [
            {"id": hit.id, "route": hit.route.value, "reason": hit.reason}
            for hit in decision.rules
        ],
        "permitted": {
            "class": decision.permitted.routing_class.value,
            "tiers": [each.id for each in decision.permitted.tiers],
            "denied": {name: why.value for name, why in decision.permitted.denied},
            "consent": asks_first(policy, decision),
        },
        "policy": {"source": policy.source, "digest": policy.digest},
    }
    if inspection is not None:
        counted = _counted(policy, inspection)
        answer["findings"] = [
            {
                "class": class_of(policy, each),
                "detector": each.detector,
                **_where(each.where, each.normalization),
                "start": each.start,
                "end": each.end,
                "score": each.score,
                "validated": each.validated,
                "approved": each not in counted,
            }
            for each in inspection.findings
        ]
        answer["labels"] = [
            {
                "message": label.where.message,
                "role": label.where.role,
                "path": label.where.json_path,
                "classes": list(label.classes),
                "approved": label.sha256,
            }
            for label in labels(policy, inspection)
        ]
        answer["change"] = _change(smallest_change(policy, inspection))
    return json.dumps(answer)


def asks_first(policy: Policy, decision: Assessment) -> bool:
    """Return whether a person must agree before an enclave is sent the query."""
    permitted = decision.permitted
    if decision.route is Route.DEIDENTIFY:
        # The rewritten query has a decision of its own, of this class or a more
        # private one.
        permitted = policy.rulebook.tiering.permitted(
            Route.ENCLAVE, frozenset(), floor=permitted.routing_class
        )
    return (
        policy.routing is not None
        and policy.routing.asks_first(permitted.routing_class)
        and any(each.kind.outside for each in permitted.tiers)
    )


def _before_it_leaves(policy: Policy, decision: Assessment) -> Iterator[str]:
    if asks_first(policy, decision):
        yield CONSENT
    leaves = decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}
    if leaves and policy.attestation is None:
        yield NO_ENCLAVE


def _tiers(decision: Assessment) -> Iterator[str]:
    # The sentence without the section says that only the local model may answer.
    kept = decision.route is Route.LOCAL
    yield KEPT if kept else OUTCOMES[decision.route]
    permitted = decision.permitted
    names = ", ".join(each.id for each in permitted.tiers)
    denied = ", ".join(f"{name} ({why.value})" for name, why in permitted.denied)
    words = f"May be answered by: {names or NO_TIER}"
    yield words + (f"; not by {denied}." if denied else ".")


def change_in_words(change: Change) -> str:
    """Describe a change in one sentence, without content."""
    # Findings at one place are described together.
    by_place: dict[str, list[str]] = defaultdict(list)
    for each in change.absent:
        less = "" if each.below is None else f" (or found with less than {each.below})"
        place = " anywhere"
        if each.where is not None:
            place = _at(each.where, each.normalization, each.start, each.end)
        by_place[place].append(each.data_class + less)
    parts: list[str] = []
    if by_place:
        absent = (f"{' and '.join(found)}{place}" for place, found in by_place.items())
        parts.append(f"without {', '.join(absent)}")
    if change.history:
        parts.append("if no earlier query of this conversation had been kept local")
    if change.floor:
        parts.append("if the sender had not wanted it kept local")
    if change.default:
        parts.append("if the policy's default.decision were 'enclave'")
    which = SMALLEST if change.smallest else SUFFICES
    return f"{which}: {' and '.join(parts)} {COULD[change.route]}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The classes found in one text of a conversation.

    Attributes:
        where: the text's place; without a path, several texts together.
        classes: what was found in it, sorted.
        sha256: of the text where the policy approves it, else None.
    """

    where: Where
    classes: tuple[str, ...]
    sha256: str | None


def labels(policy: Policy, inspection: WhatIf) -> Sequence[Label]:
    """Return the label of each text, in the order of the conversation.

    A text in which nothing was found has no label, unless it is approved.
    """
    approved = {each.where: each.sha256 for each in inspection.approved}
    found: dict[Where, set[str]] = {where: set() for where in approved}
    for each in inspection.findings:
        found.setdefault(each.where, set()).add(class_of(policy, each))
    return [
        Label(where=at, classes=tuple(sorted(found[at])), sha256=approved.get(at))
        for at in sorted(found, key=lambda at: (at.message, at.json_path))
    ]


def _counted(policy: Policy, inspection: WhatIf) -> Sequence[Finding]:
    """Return the findings that no approval sets aside, with excluded ones."""
    return unapproved(policy.rulebook, inspection.findings, inspection.approved)


def _approvals(policy: Policy, inspection: WhatIf) -> Iterator[str]:
    for used in inspection.approved:
        for entry in policy.document.approved:
            if (entry.role, entry.sha256) != (used.where.role, used.sha256):
                continue
            yield (
                f"Approved: message {used.where.message + 1} ({entry.role}), "
                f"sha256:{used.sha256}, by {entry.by} on {entry.date}; what is found "
                "in it does not decide."
            )


def _figures(policy: Policy, inspection: WhatIf) -> Iterator[str]:
    scores = scores_of(_counted(policy, inspection))
    if FIGURE not in scores:
        return
    person = f"{FIGURE} counts as a person"
    if policy.rulebook.figures is None:
        yield f"{person} (public_figures: stay)."
        return
    because_of = ", ".join(sorted(policy.rulebook.figures.matched(scores)))
    yield (
        f"{person}, because of {because_of} (public_figures: leave)."
        if because_of
        else f"{FIGURE} may leave: nothing here makes it count as a person "
        "(public_figures: leave)."
    )


def _require_same(policy: Policy, decision: Assessment) -> None:
    # Another policy's rules would explain a decision that they did not make.
    if policy.digest != decision.policy_digest:
        raise ValueError("the decision was made under another policy")


def _source(rule_id: str, rule: Rule | None) -> str:
    if rule_id == FLOOR:
        return THE_SENDER
    if rule_id in BUILT_IN:
        return f"the policy's {BUILT_IN[rule_id]!r}"
    pack = f" of the pack {rule.pack!r}" if rule is not None and rule.pack else ""
    return f"rule {rule_id!r}{pack}"


def _condition(rule: Rule | None) -> str:
    if rule is None:
        return ""
    distinct = f", {rule.distinct} different" if rule.distinct > 1 else ""
    return f": when {rule.when} (within {rule.within.value}{distinct})"


def _places(policy: Policy, inspection: WhatIf) -> Iterator[str]:
    findings, counted = inspection.findings, _counted(policy, inspection)
    for each in findings[:MAX_SHOWN]:
        sure = "a check digit holds" if each.validated else f"score {each.score}"
        name = class_of(policy, each)
        # The score of an uncertain finding has no meaning.
        how = "" if is_uncertain(name) else f", {sure}"
        place = _at(each.where, each.normalization, each.start, each.end)
        aside = "" if each in counted else ASIDE
        yield f"  {name}{place}{how}{aside}"
    if len(findings) > MAX_SHOWN:
        yield f"  and {len(findings) - MAX_SHOWN} more"


def _at(where: Where, form: Normalization, start: int, end: int) -> str:
    """Say where; empty for the whole query, which has no path."""
    if not where.json_path:
        return WHOLE_QUERY if end else ""
    path = "" if where.json_path == "content" else f", {where.json_path}"
    reading = "" if form is Normalization.RAW else f" ({form.value} reading)"
    return f" at characters {start}-{end} of message {where.message + 1}{path}{reading}"


def _where(where: Where | None, form: Normalization) -> dict[str, object]:
    return {
        "message": None if where is None else where.message,
        "role": None if where is None else where.role,
        "path": None if where is None else where.json_path,
        "view": form.value,
    }


def _change(change: Change | None) -> dict[str, object] | None:
    if change is None:
        return None
    return {
        "without": [
            {
                "class": each.data_class,
                **_where(each.where, each.normalization),
                "start": each.start,
                "end": each.end,
                "score": each.score,
                "below": each.below,
            }
            for each in change.absent
        ],
        "history": change.history,
        "floor": change.floor,
        "default": change.default,
        "route": change.route.value,
        "rule": change.rule,
        "smallest": change.smallest,
        "words": change_in_words(change),
    }
