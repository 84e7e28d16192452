"""Public figures: when they may leave, and what makes them count as persons."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import Decision, decide
from curtilage.policy.decision.findings import (
    Approved,
    Finding,
    Normalization,
    Where,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import FIGURE, PERSON
from curtilage.policy.document.load import PROFILES, load_policy, load_profile
from curtilage.policy.document.model import Policy
from support.examples import examples
from support.inspections import inspection_of

RULES = """\
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: name, when: identifier.direct.person, then: deidentify}
"""
HEAD = "version: 1\ndefault: {decision: enclave}\n"
STAY = load_policy(HEAD + RULES)
LEAVE = load_policy(HEAD + "public_figures: leave\n" + RULES)
RICH = load_policy(
    HEAD
    + "public_figures: leave\n"
    + RULES
    + """\
- {id: near, when: "health.* & identifier.*", within: window, then: local}
- {id: figures, when: "identifier.public.figure & identifier.quasi.*", then: local}
- {id: many, when: "identifier.*", distinct: 2, then: local}
exclude:
- {class: "identifier.direct.*", unless: "health.* | special.*"}
"""
)
LOADED = {name: load_profile(name) for name in PROFILES}
QUESTION = Where(message=0, role="user", json_path="content")
PROMPT = Where(message=1, role="system", json_path="content")
HARMLESS = (
    "identifier.quasi.city",
    "identifier.quasi.nationality",
    "identifier.quasi.gender",
    "identifier.quasi.occupation",
    "identifier.quasi.url",
    "marker.first_person",
    "marker.addressee",
)


def found(name: str, where: Where = QUESTION, score: int = 90) -> Finding:
    return Finding(
        data_class=name,
        detector="test",
        start=0,
        end=8,
        score=score,
        validated=False,
        normalization=Normalization.RAW,
        where=where,
    )


def decided(policy: Policy, *findings: str | Finding) -> Decision:
    each = tuple(found(one) if isinstance(one, str) else one for one in findings)
    inspection = inspection_of(findings=each, payload_digest=bytes(32), messages=2)
    return decide(policy.rulebook, inspection)


def test_without_the_key_a_figure_is_a_person() -> None:
    decision = decided(STAY, FIGURE)
    assert (decision.route, decision.rule) == (Route.DEIDENTIFY, "name")
    assert decision.classes == (PERSON, FIGURE)


def test_with_it_a_figure_alone_leaves_as_it_is() -> None:
    decision = decided(LEAVE, FIGURE)
    assert decision.route is Route.ENCLAVE
    assert decision.classes == (FIGURE,)


@pytest.mark.parametrize("other", HARMLESS)
def test_usual_context_of_figures_may_leave(other: str) -> None:
    assert decided(LEAVE, FIGURE, other).route is Route.ENCLAVE


@examples("other", sorted(CLASSES - {FIGURE, *HARMLESS}))
def test_anything_else_makes_a_figure_count_as_a_person(other: str) -> None:
    for where in (QUESTION, PROMPT):
        decision = decided(LEAVE, FIGURE, found(other, where))
        assert decision.route is not Route.ENCLAVE
        assert "name" in {hit.id for hit in decision.rules}


def test_the_policys_own_lists_make_a_figure_count_as_a_person() -> None:
    policy = load_policy(
        HEAD
        + "public_figures: leave\n"
        + RULES
        + "detectors:\n- {id: own, kind: regex, class: org.dictionary.own, pattern: x,"
        " base_score: 50}\n"
    )
    assert decided(policy, FIGURE, "org.dictionary.own").route is Route.DEIDENTIFY


def test_a_topic_below_the_threshold_does_not_count() -> None:
    assert decided(LEAVE, FIGURE, found("topic.legal", score=49)).route is Route.ENCLAVE
    unsure = found("topic.legal", score=50)
    assert decided(LEAVE, FIGURE, unsure).route is Route.DEIDENTIFY


def test_an_excluded_person_is_an_excluded_figure() -> None:
    policy = load_policy(
        HEAD + RULES + "exclude:\n- {class: identifier.direct.person}\n"
    )
    assert decided(policy, FIGURE).route is Route.ENCLAVE


def test_an_approval_sets_no_figure_aside_where_a_person_would_block() -> None:
    digest = "ab" * 32
    policy = load_policy(
        HEAD
        + f"approved:\n- {{sha256: {digest}, by: A. Weber, date: 2026-11-22}}\n"
        + RULES
        + "- {id: never, when: identifier.direct.person, then: block}\n"
    )
    inspection = inspection_of(
        findings=(found(FIGURE, PROMPT),),
        payload_digest=bytes(32),
        messages=2,
        approved=(Approved(where=PROMPT, sha256=digest),),
    )
    assert decide(policy.rulebook, inspection).route is Route.BLOCK


def test_figures_leave_under_every_profile_but_the_clinics() -> None:
    routes = {name: decided(policy, FIGURE).route for name, policy in LOADED.items()}
    assert routes.pop("clinic") is Route.LOCAL
    assert set(routes.values()) == {Route.ENCLAVE}


@pytest.mark.parametrize("name", PROFILES)
def test_a_figure_with_health_is_kept_local(name: str) -> None:
    assert decided(LOADED[name], FIGURE, "health.condition").route is Route.LOCAL


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(sorted(CLASSES)), max_size=4),
    st.sampled_from(sorted(CLASSES)),
    st.integers(0, 100),
    st.sampled_from([STAY, LEAVE, RICH, *LOADED.values()]),
)
def test_one_finding_more_lets_nothing_leave(
    names: list[str], more: str, score: int, policy: Policy
) -> None:
    before = decided(policy, FIGURE, *names)
    after = decided(policy, FIGURE, *names, found(more, score=score))
    assert after.route.privacy >= before.route.privacy
