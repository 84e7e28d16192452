import json
from dataclasses import replace
from typing import Any

import pytest

from curtilage.policy.decision.classes import STALE_POLICY
from curtilage.policy.decision.decide import Decision, Inspection, decide
from curtilage.policy.decision.findings import (
    Approved,
    Finding,
    Normalization,
    Where,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import DEFAULT, STICKY
from curtilage.policy.document.load import load_policy, load_profile
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.counterfactual import Absent, Change, smallest_change
from curtilage.policy.explain.decision import (
    ASIDE,
    BUILT_IN,
    COULD,
    MAX_SHOWN,
    NO_REASON,
    NOT_IN_FORCE,
    OUTCOMES,
    SMALLEST,
    SUFFICES,
    WHOLE_QUERY,
    change_in_words,
    explain,
    explain_json,
)
from support.inspections import changed, inspection_of

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


ANYWHERE = Absent(
    data_class="secret.token",
    where=None,
    start=0,
    end=0,
    normalization=Normalization.RAW,
    score=60,
)
NOTHING = Change(
    absent=(),
    history=False,
    default=False,
    route=Route.ENCLAVE,
    rule="default",
    smallest=True,
)
CONTENT = Where(message=0, role="user", json_path="content")


def found(name: str, start: int = 0, where: Where = CONTENT) -> Finding:
    return Finding(
        data_class=name,
        detector="test",
        start=start,
        end=start + 5,
        score=60,
        validated=False,
        normalization=Normalization.RAW,
        where=where,
    )


def inspected(*findings: Finding, pinned: bool = False) -> Inspection:
    return inspection_of(
        findings=findings, payload_digest=bytes(32), messages=1, pinned=pinned
    )


def decision_on(*names: str, policy: Policy = POLICY, pinned: bool = False) -> Decision:
    return decide(policy.rulebook, inspected(*map(found, names), pinned=pinned))


def explained(*findings: Finding, pinned: bool = False) -> list[str]:
    inspection = inspected(*findings, pinned=pinned)
    return explain(POLICY, decide(POLICY.rulebook, inspection), inspection).splitlines()


@pytest.mark.parametrize(
    ("names", "route"),
    [
        ([], Route.ENCLAVE),
        (["identifier.direct.person"], Route.DEIDENTIFY),
        (["uncertain.timeout"], Route.LOCAL),
        (["secret.token"], Route.BLOCK),
    ],
)
def test_explain_begins_with_the_outcome(names: list[str], route: Route) -> None:
    lines = explain(POLICY, decision_on(*names)).splitlines()
    assert lines[0] == OUTCOMES[route]


def test_explain_lists_the_findings_and_the_rule() -> None:
    names = ("identifier.quasi.zip", "identifier.quasi.age", "uncertain.name")
    lines = explain(POLICY, decision_on(*names)).splitlines()
    found, unknown, decided, first, second, policy = lines[1:]
    assert found.endswith(": identifier.quasi.age, identifier.quasi.zip.")
    assert unknown.endswith(": uncertain.name.")
    assert decided.endswith(f" 'mosaic': {NO_REASON}.")
    assert first.startswith("  local       any-uncertain: ")
    assert second.startswith("  local       mosaic: ")
    assert first.endswith(" uncertain.* (within conversation)")
    assert second.endswith(" identifier.quasi.* (within message, 2 different)")
    assert policy.endswith(f": mine.yaml, {POLICY.digest}.")


@pytest.mark.parametrize(
    ("key", "others", "sentence"),
    [
        ("stay", [], "counts as a person (public_figures: stay)."),
        (
            "leave",
            [],
            (
                "may leave: nothing here makes it count as a person "
                "(public_figures: leave)."
            ),
        ),
        (
            "leave",
            ["health.lab", "identifier.quasi.city"],
            "counts as a person, because of health.lab (public_figures: leave).",
        ),
    ],
)
def test_explain_describes_a_public_figure(
    key: str, others: list[str], sentence: str
) -> None:
    policy = load_policy(
        f"""\
version: 1
default: {{decision: enclave}}
public_figures: {key}
rules:
- {{id: any-uncertain, when: "uncertain.*", then: local}}
"""
    )
    inspection = inspected(*map(found, ("identifier.public.figure", *others)))
    lines = explain(policy, decide(policy.rulebook, inspection), inspection)
    assert f"\nidentifier.public.figure {sentence}\n" in lines


def test_explain_says_where_the_policy_gives_no_reason() -> None:
    text = explain(POLICY, decision_on("secret.token"))
    assert f" 'secret': {NO_REASON}." in text


def test_explain_names_what_is_built_in() -> None:
    assert f"{BUILT_IN[DEFAULT]!r}: " in explain(POLICY, decision_on())
    pinned = explain(POLICY, decision_on(pinned=True))
    assert f"{BUILT_IN[STICKY]!r}: " in pinned
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
        "permitted": {
            "consent": False,
            "class": "confidential",
            "tiers": ["local"],
            "denied": {"enclave": "route"},
        },
        "policy": {"source": "mine.yaml", "digest": POLICY.digest},
    }


def test_explain_refuses_a_decision_of_another_policy() -> None:
    foreign = decision_on(policy=load_profile("default"))
    for explain_it in (explain, explain_json):
        with pytest.raises(ValueError, match="another policy"):
            explain_it(POLICY, foreign)


def test_explain_lists_the_places_and_the_smallest_change() -> None:
    """The only test of these words; all others test what the words must name."""
    assert explained(found("secret.token", 8), found("uncertain.error", 30)) == [
        "This query is not answered: the policy blocks it.",
        "Found: secret.token.",
        "Could not be determined: uncertain.error.",
        "  secret.token at characters 8-13 of message 1, score 60",
        "  uncertain.error at characters 30-35 of message 1",
        f"Decided by rule 'secret': {NO_REASON}.",
        "  local       any-uncertain: when uncertain.* (within conversation)",
        "  block       secret: when secret.* (within conversation)",
        (
            "Smallest change: without secret.token at characters 8-13 of message 1 it "
            "could be answered by the local model."
        ),
        f"Policy: mine.yaml, {POLICY.digest}.",
    ]


def test_explain_suggests_no_change_for_a_query_that_may_leave() -> None:
    assert not any("change" in line for line in explained())


def test_explain_names_other_texts_and_readings() -> None:
    name = Where(message=2, role="user", json_path="name")
    decoded = replace(
        found("secret.token", where=name), normalization=Normalization.DECODED
    )
    place = explained(decoded)[2]
    assert place.startswith("  secret.token at characters 0-5 ")
    assert " message 3, name (decoded reading)" in place
    assert place.endswith(", score 60")


def test_explain_lists_findings_in_the_whole_query() -> None:
    whole = Where(message=0, role="user", json_path="")
    timeout = replace(found("uncertain.timeout", where=whole), end=0)
    lines = explained(timeout, found("uncertain.number_run", where=whole))
    assert lines[3:5] == [
        "  uncertain.timeout",
        f"  uncertain.number_run{WHOLE_QUERY}",
    ]
    change = lines[-2]
    assert change.startswith(f"{SMALLEST}: ")
    assert f" uncertain.timeout, uncertain.number_run{WHOLE_QUERY} " in change
    assert change.endswith(f"{COULD[Route.ENCLAVE]}.")


def test_explain_says_where_a_check_digit_held() -> None:
    assert explained(replace(found("secret.token"), validated=True))[2].endswith(
        ", a check digit holds"
    )


def test_explain_shows_a_number_of_places() -> None:
    lines = explained(*(found("secret.token", 9 * i) for i in range(MAX_SHOWN + 3)))
    assert lines[1 + MAX_SHOWN].startswith("  secret.token at")
    assert lines[2 + MAX_SHOWN] == "  and 3 more"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"history": True},
            "if no earlier query of this conversation had been kept local",
        ),
        ({"default": True}, "if the policy's default.decision were 'enclave'"),
        ({"absent": (ANYWHERE,)}, "without secret.token anywhere"),
        (
            {"absent": (ANYWHERE, ANYWHERE), "history": True},
            (
                "without secret.token and secret.token anywhere and if no earlier "
                "query of this conversation had been kept local"
            ),
        ),
        (
            {"absent": (replace(ANYWHERE, below=40),)},
            "without secret.token (or found with less than 40) anywhere",
        ),
    ],
)
def test_a_change_is_described(change: dict[str, Any], words: str) -> None:
    sentence = change_in_words(replace(NOTHING, **change))
    assert sentence == f"Smallest change: {words} it could leave."


def test_a_change_that_may_not_be_the_smallest_says_so() -> None:
    sentence = change_in_words(replace(NOTHING, history=True, smallest=False))
    smallest = change_in_words(replace(NOTHING, history=True))
    assert sentence == smallest.replace(SMALLEST, SUFFICES)
    assert sentence != smallest


def test_explain_json_holds_the_places_and_the_change() -> None:
    inspection = inspected(found("identifier.direct.person", 3))
    decision = decide(POLICY.rulebook, inspection)
    answer = json.loads(explain_json(POLICY, decision, inspection))
    place = {
        "class": "identifier.direct.person",
        "message": 0,
        "role": "user",
        "path": "content",
        "view": "raw",
        "start": 3,
        "end": 8,
    }
    assert answer["findings"] == [
        place | {"detector": "test", "score": 60, "validated": False, "approved": False}
    ]
    assert answer["labels"] == [
        {
            "message": 0,
            "role": "user",
            "path": "content",
            "classes": ["identifier.direct.person"],
            "approved": None,
        }
    ]
    change = smallest_change(POLICY, inspection)
    assert change is not None
    assert answer["change"] == {
        "without": [place | {"score": 60, "below": 35}],
        "history": False,
        "floor": False,
        "default": False,
        "route": "enclave",
        "rule": "default",
        "smallest": True,
        "words": change_in_words(change),
    }
    assert "characters 3-8" in answer["change"]["words"]
    assert "less than 35" in answer["change"]["words"]


def test_explain_json_has_no_change_for_what_may_leave() -> None:
    inspection = inspected()
    answer = json.loads(
        explain_json(POLICY, decide(POLICY.rulebook, inspection), inspection)
    )
    assert answer["findings"] == []
    assert answer["change"] is None


def test_explain_json_of_many_places_names_none() -> None:
    many = [found("uncertain.name", 9 * i) for i in range(60)]
    inspection = inspected(*many)
    answer = json.loads(
        explain_json(POLICY, decide(POLICY.rulebook, inspection), inspection)
    )
    assert answer["change"]["without"][0]["message"] is None


APPROVING = load_policy(
    """\
version: 1
default: {decision: enclave}
approved:
- {sha256: "%s", by: A. Weber, date: 2026-11-22, note: read}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: health, when: "health.*", then: local}
"""
    % ("ab" * 32)
)
PROMPT = Where(message=0, role="system", json_path="content")
CONVERSATION = changed(
    inspected(
        found("health.lab", where=PROMPT),
        found("marker.first_person", where=replace(CONTENT, message=1)),
        found("health.lab", where=replace(CONTENT, message=1)),
    ),
    approved=(Approved(where=PROMPT, sha256="ab" * 32),),
)


def test_an_approval_is_listed_with_approver_and_effect() -> None:
    decision = decide(APPROVING.rulebook, CONVERSATION)
    text = explain(APPROVING, decision, CONVERSATION)
    assert f" message 1, score 60{ASIDE}" in text
    assert f"sha256:{'ab' * 32}, by A. Weber on 2026-11-22" in text
    assert text.count(ASIDE) == 1


def test_each_text_is_labelled_with_what_was_found_in_it() -> None:
    decision = decide(APPROVING.rulebook, CONVERSATION)
    answer = json.loads(explain_json(APPROVING, decision, CONVERSATION))
    assert [
        (each["role"], each["classes"], each["approved"]) for each in answer["labels"]
    ] == [
        ("system", ["health.lab"], "ab" * 32),
        ("user", ["health.lab", "marker.first_person"], None),
    ]
    assert [each["approved"] for each in answer["findings"]] == [True, False, False]


def test_the_smallest_change_never_asks_for_what_is_approved() -> None:
    decision = decide(APPROVING.rulebook, CONVERSATION)
    answer = json.loads(explain_json(APPROVING, decision, CONVERSATION))
    assert [each["message"] for each in answer["change"]["without"]] == [1]


def test_a_policy_that_is_not_in_force_is_called_so() -> None:
    for name, said in ((STALE_POLICY, True), ("uncertain.timeout", False)):
        inspection = inspected(found(name))
        text = explain(POLICY, decide(POLICY.rulebook, inspection), inspection)
        assert (f"Not in force: {NOT_IN_FORCE}" in text) is said
