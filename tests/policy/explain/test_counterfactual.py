from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curtilage.policy.decision.decide import Inspection, WhatIf, assess, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy
from curtilage.policy.explain import counterfactual
from curtilage.policy.explain.counterfactual import (
    Change,
    class_of,
    outcome_of,
    smallest_change,
)
from support.inspections import changed, inspection_of

HEAD = "version: 1\ndefault: {decision: enclave}\n"
FIRST = 'rules:\n- {id: any-uncertain, when: "uncertain.*", then: local}\n'
RULES = """\
- {id: near, when: "health.* & identifier.*", within: window, then: local}
- {id: same, when: "secret.* & marker.*", within: span, then: block}
- {id: many, when: "identifier.quasi.*", within: message, distinct: 2, then: local}
- {id: sure, when: "financial.*", min_conf: 60, then: deidentify}
- {id: mix, when: "(topic.* | special.*>=40) & marker.*", then: local}
- {id: name, when: identifier.direct.person, then: deidentify}
"""
EXCLUDE = 'exclude:\n- {class: identifier.direct.person, unless: "health.*"}\n'
POLICIES = (
    load_policy(HEAD + "strict_topics: true\n" + FIRST + RULES + EXCLUDE),
    load_policy("version: 1\ndefault: {decision: local}\n" + FIRST + RULES),
    load_policy("version: 1\ndefault: {decision: deidentify}\n" + FIRST + RULES),
    load_policy(HEAD + "public_figures: leave\n" + FIRST + RULES),
)
OPEN = POLICIES[0]
NAMES = [
    "health.lab",
    "identifier.direct.person",
    "identifier.quasi.zip",
    "identifier.quasi.age",
    "identifier.quasi.city",
    "secret.token",
    "financial.income",
    "topic.health",
    "marker.first_person",
    "special.union",
    "uncertain.name",
    "no.such.class",
    "identifier.public.figure",
]


def found(
    name: str,
    start: int = 0,
    *,
    score: int = 60,
    message: int = 0,
    validated: bool = False,
) -> Finding:
    return Finding(
        data_class=name,
        detector="test",
        start=start,
        end=start + 5,
        score=score,
        validated=validated,
        normalization=Normalization.RAW,
        where=Where(message=message, role="user", json_path="content"),
    )


def inspected(*findings: Finding, pinned: bool = False) -> Inspection:
    return inspection_of(
        findings=findings, payload_digest=bytes(32), messages=3, pinned=pinned
    )


def change_of(*findings: Finding, pinned: bool = False) -> Change:
    change = smallest_change(OPEN, inspected(*findings, pinned=pinned))
    assert change is not None
    return change


def classes(change: Change) -> list[str]:
    return [each.data_class for each in change.absent]


FINDINGS = st.lists(
    st.builds(
        found,
        st.sampled_from(NAMES),
        st.sampled_from([0, 3, 40, 500]),
        score=st.sampled_from([20, 45, 60, 100, 101]),
        message=st.integers(0, 1),
        validated=st.booleans(),
    ),
    max_size=7,
)


def sizes_that_flip(
    policy_index: int, inspection: Inspection, most: int
) -> tuple[int, ...]:
    """Try every set of places, history and default, by brute force."""
    policy = POLICIES[policy_index]
    route = decide(policy.rulebook, inspection).route
    names = [class_of(policy, each) for each in inspection.findings]
    place_of = [
        (name, each.start, each.where.message)
        for name, each in zip(names, inspection.findings, strict=True)
    ]
    places = sorted(set(place_of))
    things: list[object] = [*places, "history", "default"]
    flipping: list[int] = []
    for size in range(1, most + 1):
        for gone in combinations(things, size):
            kept = tuple(
                each
                for each, place in zip(inspection.findings, place_of, strict=True)
                if place not in gone
            )
            pinned = inspection.pinned and "history" not in gone
            decision = assess(
                policy.rulebook,
                WhatIf(findings=kept, messages=inspection.messages, pinned=pinned),
            )
            if "default" in gone:
                ranks = [Route.ENCLAVE.privacy]
                ranks += [hit.route.privacy for hit in decision.rules]
                privacy = max(ranks)
            else:
                privacy = decision.route.privacy
            if privacy < route.privacy:
                flipping.append(size)
                break
    return tuple(flipping)


@settings(max_examples=150)
@given(FINDINGS, st.booleans(), st.integers(0, 2))
def test_the_change_flips_the_route_and_no_smaller_one_does(
    findings: list[Finding], pinned: bool, index: int
) -> None:
    policy, inspection = POLICIES[index], inspected(*findings, pinned=pinned)
    before = decide(policy.rulebook, inspection).route
    change = smallest_change(policy, inspection)
    if before is Route.ENCLAVE:
        assert change is None
        return
    assert change is not None
    assert outcome_of(policy, inspection, change) == (change.route, change.rule)
    assert change.route.privacy < before.privacy
    assert change.smallest
    size = len(change.absent) + change.history + change.default
    assert sizes_that_flip(index, inspection, size - 1) == ()


@settings(max_examples=150)
@given(FINDINGS, st.booleans())
@example(
    findings=[
        found("topic.health", score=60),
        found("topic.health", score=101, validated=True),
    ],
    pinned=False,
)
def test_lower_scores_are_enough_where_it_says_so(
    findings: list[Finding], pinned: bool
) -> None:
    inspection = inspected(*findings, pinned=pinned)
    change = smallest_change(OPEN, inspection)
    if change is None:
        return
    before = decide(OPEN.rulebook, inspection).route
    assert outcome_of(OPEN, lowered(inspection, change), rest(change))[0] is not before
    for each in change.absent:
        if each.below is not None:
            assert 0 < each.below <= each.score


def lowered(inspection: Inspection, change: Change) -> Inspection:
    """Lower what a score decides, instead of taking it away."""
    below = {
        (each.data_class, each.where, each.start): each.below
        for each in change.absent
        if each.below is not None
    }
    # Nonsense counts as uncertain, whatever it calls itself, and is not lowered.
    findings = [
        replace(each, score=min(each.score, limit - 1))
        if (limit := below.get((class_of(OPEN, each), each.where, each.start)))
        is not None
        else each
        for each in inspection.findings
    ]
    return changed(inspection, findings=findings)


def rest(change: Change) -> Change:
    gone = tuple(each for each in change.absent if each.below is None)
    return replace(change, absent=gone)


def test_the_threshold_is_reported() -> None:
    change = change_of(found("financial.income", score=75))
    assert [each.below for each in change.absent] == [60]
    sure = change_of(found("financial.income", score=75, validated=True))
    assert [each.below for each in sure.absent] == [None]
    assert change_of(found("uncertain.name")).absent[0].below is None


def test_of_a_pair_one_is_enough() -> None:
    change = change_of(
        found("health.lab"),
        found("identifier.direct.email", 10),
        found("identifier.direct.phone", 20),
    )
    assert classes(change) == ["health.lab"]
    assert (change.route, change.rule) == (Route.ENCLAVE, "default")


def test_classes_that_no_deciding_rule_names_are_ignored() -> None:
    change = change_of(found("uncertain.name"), found("identifier.direct.person", 10))
    assert classes(change) == ["uncertain.name"]


def test_a_finding_that_blocks_an_exclusion_can_be_the_change() -> None:
    change = change_of(
        found("health.provider", 600),
        found("identifier.direct.person"),
        found("identifier.direct.person", 20),
    )
    assert classes(change) == ["health.provider"]


def test_the_history_can_be_the_change() -> None:
    change = change_of(pinned=True)
    assert (change.absent, change.history, change.default) == ((), True, False)
    assert change.route is Route.ENCLAVE


def test_the_default_can_be_the_change() -> None:
    change = smallest_change(POLICIES[1], inspected())
    assert change is not None
    assert (change.absent, change.history, change.default) == ((), False, True)
    assert (change.route, change.rule) == (Route.ENCLAVE, "default")


def test_the_default_may_leave_another_rule_to_decide() -> None:
    change = smallest_change(POLICIES[1], inspected(found("identifier.direct.person")))
    assert change is not None
    assert (change.route, change.rule) == (Route.DEIDENTIFY, "name")


def test_a_topic_that_is_kept_local_is_the_change() -> None:
    change = change_of(found("topic.finance", score=70))
    assert classes(change) == ["topic.finance"]
    assert change.absent[0].below == 50


def test_a_finding_that_makes_no_sense_counts_as_an_error() -> None:
    assert classes(change_of(found("no.such.class"))) == ["uncertain.error"]


def test_many_places_become_classes() -> None:
    many = [found("uncertain.name", 10 * i) for i in range(counterfactual.MAX_PLACES)]
    by_place = change_of(*many)
    assert len(by_place.absent) == len(many)
    assert by_place.smallest
    by_class = change_of(*many, found("uncertain.error"))
    assert classes(by_class) == ["uncertain.name", "uncertain.error"]
    assert [each.where for each in by_class.absent] == [None, None]
    assert not by_class.smallest
    inspection = inspected(*many, found("uncertain.error"))
    assert outcome_of(OPEN, inspection, by_class)[0] is Route.ENCLAVE


def test_too_many_sets_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    quasi = [found(name, 10 * i) for i, name in enumerate(NAMES[2:5])]
    assert change_of(*quasi).smallest
    monkeypatch.setattr(counterfactual, "MAX_TRIES", 3)
    change = change_of(*quasi)
    assert not change.smallest
    assert outcome_of(OPEN, inspected(*quasi), change)[0] is Route.ENCLAVE
    for index in range(len(change.absent)):
        fewer = tuple(e for i, e in enumerate(change.absent) if i != index)
        smaller = replace(change, absent=fewer)
        assert outcome_of(OPEN, inspected(*quasi), smaller)[0] is Route.LOCAL


@pytest.mark.parametrize(
    ("names", "route"),
    [
        (["secret.token", "marker.first_person"], Route.ENCLAVE),
        (["secret.token", "marker.first_person", "uncertain.name"], Route.LOCAL),
        (["uncertain.name", "financial.income"], Route.DEIDENTIFY),
    ],
)
def test_the_change_leads_to_the_next_route(names: list[str], route: Route) -> None:
    assert change_of(*(found(name) for name in names)).route is route
