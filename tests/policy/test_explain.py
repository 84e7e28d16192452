import json

import pytest

from curtilage.policy.decide import Decision, Inspection, decide
from curtilage.policy.explain import NO_REASON, explain, explain_json
from curtilage.policy.findings import Finding, View, Where
from curtilage.policy.load import load_policy, load_profile
from curtilage.policy.model import Policy

POLICY = load_policy(
    """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local, reason: Unknown.}
- {id: secret, when: "secret.*", then: block}
- {id: name, when: identifier.direct.person, then: deidentify, reason: A name.}
- {id: mosaic, when: "identifier.quasi.*", distinct: 2, within: message, then: local}
""",
    source="mine.yaml",
)


def decision_on(*names: str, policy: Policy = POLICY, pinned: bool = False) -> Decision:
    findings = tuple(
        Finding(
            data_class=name,
            detector="test",
            start=0,
            end=5,
            score=60,
            validated=False,
            view=View.RAW,
            where=Where(message=0, role="user", json_path="content"),
        )
        for name in names
    )
    return decide(
        policy,
        Inspection(
            findings=findings, payload_digest=bytes(32), messages=1, pinned=pinned
        ),
    )


@pytest.mark.parametrize(
    ("names", "outcome"),
    [
        ([], "This query may leave"),
        (["identifier.direct.person"], "This query may leave only without the names"),
        (["uncertain.timeout"], "This query stays here"),
        (["secret.token"], "Nobody answers this query"),
    ],
)
def test_explain_begins_with_the_outcome(names: list[str], outcome: str) -> None:
    assert explain(POLICY, decision_on(*names)).startswith(outcome)


def test_explain_tells_what_was_found_and_which_rule() -> None:
    names = ("identifier.quasi.zip", "identifier.quasi.age", "uncertain.name")
    lines = explain(POLICY, decision_on(*names)).splitlines()
    assert lines[1:] == [
        "Found: identifier.quasi.age, identifier.quasi.zip.",
        "Could not be known: uncertain.name.",
        f"Decided by rule 'mosaic': {NO_REASON}.",
        "  local       any-uncertain: when uncertain.* (within conversation)",
        "  local       mosaic: when identifier.quasi.* (within message, 2 different)",
        f"Policy: mine.yaml, {POLICY.digest}.",
    ]


def test_explain_says_where_the_policy_gives_no_reason() -> None:
    text = explain(POLICY, decision_on("secret.token"))
    assert f"Decided by rule 'secret': {NO_REASON}." in text


def test_explain_names_what_is_built_in() -> None:
    assert "the policy's 'default.decision'" in explain(POLICY, decision_on())
    pinned = explain(POLICY, decision_on(pinned=True))
    assert "the policy's 'sticky'" in pinned
    assert "  local       sticky\n" in pinned


def test_explain_json_holds_the_decision() -> None:
    answer = json.loads(explain_json(POLICY, decision_on("identifier.direct.person")))
    assert answer == {
        "route": "deidentify",
        "rule": "name",
        "reason": "A name.",
        "classes": ["identifier.direct.person"],
        "uncertain": [],
        "rules": [{"id": "name", "route": "deidentify", "reason": "A name."}],
        "policy": {"source": "mine.yaml", "digest": POLICY.digest},
    }


def test_explain_refuses_a_decision_of_another_policy() -> None:
    foreign = decision_on(policy=load_profile("default"))
    for tell in (explain, explain_json):
        with pytest.raises(ValueError, match="another policy"):
            tell(POLICY, foreign)
