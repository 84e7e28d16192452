"""A decision in words, and as JSON: what was found by class, never by content."""

import json
from collections.abc import Iterator
from typing import Final

from curtilage.policy.decide import Decision, RuleHit
from curtilage.policy.model import Policy
from curtilage.policy.routes import Route
from curtilage.policy.rules import DEFAULT, STICKY, STRICT_TOPICS

NO_REASON: Final = "the policy gives no reason"
_OUTCOMES: Final = {
    Route.BLOCK: "Nobody answers this query: the policy blocks it.",
    Route.LOCAL: "This query stays here: only the local model may answer it.",
    Route.DEIDENTIFY: (
        "This query may leave only without the names in it. Names are not replaced "
        "in this release, so it stays here."
    ),
    Route.ENCLAVE: "This query may leave, sealed to an enclave that was verified.",
}
NO_ENCLAVE: Final = (
    "The policy names no enclave (attestation:), so it is answered here all the same."
)
_BUILT_IN: Final = {
    DEFAULT: "default.decision",
    STICKY: "sticky",
    STRICT_TOPICS: "strict_topics",
}


def explain(policy: Policy, decision: Decision) -> str:
    """Tell a decision in a few lines, for the person who asked.

    Raises:
        ValueError: the decision was made under another policy.
    """
    _require_same(policy, decision)
    return "\n".join(_lines(policy, decision))


def explain_json(policy: Policy, decision: Decision) -> str:
    """Return a decision as one JSON object, keys in a fixed order.

    Raises:
        ValueError: the decision was made under another policy.
    """
    _require_same(policy, decision)
    answer = {
        "route": decision.route.value,
        "rule": decision.rule,
        "reason": decision.reason,
        "classes": list(decision.classes),
        "uncertain": list(decision.uncertain),
        "rules": [
            {"id": hit.id, "route": hit.route.value, "reason": hit.reason}
            for hit in decision.rules
        ],
        "policy": {"source": policy.source, "digest": policy.digest},
    }
    return json.dumps(answer)


def _require_same(policy: Policy, decision: Decision) -> None:
    if policy.digest != decision.policy_digest:
        raise ValueError("the decision was made under another policy")


def _lines(policy: Policy, decision: Decision) -> Iterator[str]:
    yield _OUTCOMES[decision.route]
    if decision.route is Route.ENCLAVE and policy.attestation is None:
        yield NO_ENCLAVE
    yield f"Found: {', '.join(decision.classes) or 'nothing that a rule names'}."
    if decision.uncertain:
        yield f"Could not be known: {', '.join(decision.uncertain)}."
    reason = decision.reason.strip().removesuffix(".") or NO_REASON
    yield f"Decided by {_source(decision.rule)}: {reason}."
    for hit in decision.rules:
        yield f"  {hit.route.value:<10}  {hit.id}{_condition(policy, hit)}"
    yield f"Policy: {policy.source}, {policy.digest}."


def _source(rule: str) -> str:
    if rule in _BUILT_IN:
        return f"the policy's {_BUILT_IN[rule]!r}"
    return f"rule {rule!r}"


def _condition(policy: Policy, hit: RuleHit) -> str:
    for rule in policy.rules:
        if rule.id == hit.id:
            distinct = f", {rule.distinct} different" if rule.distinct > 1 else ""
            return f": when {rule.when} (within {rule.within.value}{distinct})"
    return ""
