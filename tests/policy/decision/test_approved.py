"""What an approval sets aside, and what none ever does."""

from collections.abc import Sequence
from dataclasses import replace

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
from curtilage.policy.decision.rules import unapproved
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from support.inspections import inspection_of

SHA256 = "ab" * 32
HEAD = f"""\
version: 1
default: {{decision: enclave}}
packs: [secrets, pci, hipaa, gdpr, glba]
approved:
- {{sha256: "{SHA256}", role: system, by: A. Weber, date: 2026-11-22}}
rules:
- {{id: any-uncertain, when: "uncertain.*", then: local}}
"""
POLICY = load_policy(HEAD)
BLOCKING = load_policy(
    HEAD + '- {id: never, when: "org.confidential & topic.hr", then: block}\n'
)
PROMPT = Where(message=0, role="system", json_path="content")
QUESTION = Where(message=1, role="user", json_path="content")
APPROVED = (Approved(where=PROMPT, sha256=SHA256),)


def found(
    name: str,
    where: Where = PROMPT,
    score: int = 90,
    *,
    validated: bool = False,
    form: Normalization = Normalization.RAW,
) -> Finding:
    return Finding(
        data_class=name,
        detector="test",
        start=0,
        end=5,
        score=score,
        validated=validated,
        normalization=form,
        where=where,
    )


def look(
    *findings: Finding,
    policy: Policy = POLICY,
    approved: Sequence[Approved] = APPROVED,
) -> Decision:
    return decide(
        policy.rulebook,
        inspection_of(
            findings=findings,
            payload_digest=bytes(32),
            messages=2,
            approved=tuple(approved),
        ),
    )


HOSPITAL = (found("health.provider"), found("topic.health"))
FIRST_PERSON = found("marker.first_person", QUESTION)


def test_findings_in_an_approved_prompt_do_not_decide() -> None:
    prompt = (*HOSPITAL, found("marker.first_person"), found("identifier.quasi.date"))
    assert look(*prompt, approved=()).route is Route.LOCAL
    decision = look(*prompt)
    assert (decision.route, decision.classes) == (Route.ENCLAVE, ())


def test_an_approved_word_and_the_users_are_no_pair() -> None:
    assert look(*HOSPITAL, FIRST_PERSON, approved=()).route is Route.LOCAL
    assert look(*HOSPITAL, FIRST_PERSON).route is Route.ENCLAVE


def test_an_approved_word_keeps_no_exclusion_from_its_effect() -> None:
    policy = load_policy(
        HEAD + "exclude:\n- {class: identifier.direct.person, unless: 'health.*'}\n"
    )
    person = found("identifier.direct.person", QUESTION)
    assert look(person, *HOSPITAL, policy=policy).route is Route.ENCLAVE
    own = found("health.lab", QUESTION)
    assert look(person, own, policy=policy).route is Route.LOCAL


def test_findings_in_the_users_text_still_decide() -> None:
    theirs = replace(HOSPITAL[1], where=QUESTION)
    assert look(*HOSPITAL, theirs, FIRST_PERSON).route is Route.LOCAL


@pytest.mark.parametrize(
    "name", ["uncertain.number_run", "uncertain.language", "uncertain.name"]
)
def test_what_a_person_has_read_is_known(name: str) -> None:
    assert look(found(name), approved=()).route is Route.LOCAL
    assert look(found(name)).route is Route.ENCLAVE


@pytest.mark.parametrize(
    "name",
    [
        *sorted(each for each in CLASSES if each.startswith("secret.")),
        *(
            f"uncertain.{each}"
            for each in (
                "opaque_blob",
                "obfuscation",
                "oversize",
                "timeout",
                "waited",
                "error",
                "undecodable",
                "attachment",
                "stale_policy",
            )
        ),
        "no.such.class",
    ],
)
def test_no_approval_frees(name: str) -> None:
    assert look(found(name)).route is Route.LOCAL


@pytest.mark.parametrize("name", ["financial.pan", "identifier.direct.gov_id.us_ssn"])
def test_no_approval_frees_what_a_check_proves(name: str) -> None:
    assert look(found(name, validated=True)).route is Route.LOCAL
    assert look(found(name)).route is Route.ENCLAVE


def test_no_approval_frees_what_a_blocking_rule_names() -> None:
    both = (found("org.confidential"), found("topic.hr"))
    assert look(*both, policy=BLOCKING).route is Route.BLOCK
    # Half of it in the prompt, half of it in the question: blocked all the same.
    asked = replace(both[1], where=QUESTION)
    assert look(both[0], asked, policy=BLOCKING).route is Route.BLOCK


@pytest.mark.parametrize(
    "approval",
    [
        Approved(where=replace(PROMPT, role="user"), sha256=SHA256),
        Approved(where=replace(PROMPT, role="developer"), sha256=SHA256),
        Approved(where=replace(PROMPT, role="tool"), sha256=SHA256),
        Approved(where=replace(PROMPT, json_path="name"), sha256=SHA256),
        Approved(where=replace(PROMPT, json_path=""), sha256=SHA256),
        Approved(where=PROMPT, sha256="cd" * 32),
    ],
    ids=["user", "developer", "tool", "name", "everywhere", "another text"],
)
def test_only_what_the_policy_names_is_approved(approval: Approved) -> None:
    there = [replace(each, where=approval.where) for each in HOSPITAL]
    mine = replace(FIRST_PERSON, where=QUESTION)
    assert look(*there, mine, approved=[approval]).route is Route.LOCAL


def test_no_rulebook_can_approve_the_users_text() -> None:
    # A policy cannot say so; a rulebook that did would let its own user out.
    said = found("health.lab", replace(PROMPT, role="user"))
    rulebook = replace(POLICY.rulebook, approved=frozenset({("user", SHA256)}))
    approval = Approved(where=said.where, sha256=SHA256)
    assert unapproved(rulebook, [said], [approval]) == [said]


def test_an_approval_is_of_one_place() -> None:
    elsewhere = Where(message=2, role="system", json_path="content")
    there = [replace(each, where=elsewhere) for each in HOSPITAL]
    assert look(*there, FIRST_PERSON).route is Route.LOCAL


def test_a_policy_without_approvals_frees_nothing() -> None:
    bare = load_policy(
        HEAD.replace(HEAD[HEAD.index("approved") : HEAD.index("rules")], "")
    )
    assert look(*HOSPITAL, FIRST_PERSON, policy=bare).route is Route.LOCAL


FINDINGS = st.lists(
    st.builds(
        found,
        st.sampled_from([*sorted(CLASSES), "no.such.class"]),
        st.sampled_from([PROMPT, QUESTION, replace(PROMPT, json_path="")]),
        st.integers(-1, 101),
        validated=st.booleans(),
        form=st.sampled_from(Normalization),
    ),
    max_size=8,
)
POLICIES = st.sampled_from([POLICY, BLOCKING])


@settings(deadline=None)  # a busy machine is no finding
@given(POLICIES, FINDINGS)
def test_an_approval_never_takes_away_what_the_user_said(
    policy: Policy, findings: list[Finding]
) -> None:
    kept = unapproved(policy.rulebook, findings, APPROVED)
    elsewhere = [each for each in findings if each.where != PROMPT]
    assert [each for each in kept if each.where != PROMPT] == elsewhere
    # So the route is at least as private as what the user said is by itself.
    with_prompt = look(*findings, policy=policy).route
    assert with_prompt.privacy >= look(*elsewhere, policy=policy).route.privacy


@settings(deadline=None)
@given(POLICIES, FINDINGS, FINDINGS, st.booleans())
def test_one_finding_more_is_never_less_private(
    policy: Policy, findings: list[Finding], more: list[Finding], approved: bool
) -> None:
    used = APPROVED if approved else ()
    fewer = look(*findings, policy=policy, approved=used).route
    route = look(*findings, *more, policy=policy, approved=used).route
    assert route.privacy >= fewer.privacy


@settings(deadline=None)
@given(POLICIES, FINDINGS)
def test_an_approval_never_lifts_a_block(
    policy: Policy, findings: list[Finding]
) -> None:
    if look(*findings, policy=policy, approved=()).route is Route.BLOCK:
        assert look(*findings, policy=policy).route is Route.BLOCK
