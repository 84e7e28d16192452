from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.policy.decision.classes import CLASSES, is_uncertain
from curtilage.policy.decision.conversation import pins
from curtilage.policy.decision.decide import (
    DEFAULT_REASON,
    Decision,
    Inspection,
    decide,
)
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import ANY_UNCERTAIN, Rulebook
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import PROFILES, load_policy, load_profile
from curtilage.policy.document.model import PACKS, Policy
from support.inspections import inspection_of

HEAD = """\
version: 1
default: {decision: enclave}
"""
FIRST = """\
rules:
- {id: any-uncertain, when: "uncertain.*", then: local, reason: unknown}
"""
DIGEST = bytes(32)

# Every feature at once, for the properties.
RICH = load_policy(
    HEAD
    + "strict_topics: true\n"
    + FIRST
    + """\
- {id: near, when: "health.* & identifier.*", within: window, then: local}
- {id: same, when: "secret.* & marker.*", within: span, then: block}
- {id: message, when: "legal.* & org.*", within: message, then: block}
- {id: many, when: "identifier.quasi.*", within: message, distinct: 2, then: local}
- {id: sure, when: "financial.*", min_conf: 60, then: deidentify}
- {id: mix, when: "(topic.* | special.*>=40) & marker.*", then: local}
- {id: open, when: "health.lab", then: enclave}
exclude:
- {class: "identifier.direct.*", unless: "health.* | special.*"}
- {class: org.confidential}
- {class: "financial.*", dictionary: listed.txt, unless: marker.first_person}
detectors:
- {id: own, kind: regex, class: org.edm.own, pattern: x, base_score: 50}
""",
    files=lambda _name: b"entry\n",
)


def rules(text: str, *, head: str = HEAD) -> Policy:
    return load_policy(head + FIRST + text)


def found(
    name: str,
    score: int = 60,
    start: int = 0,
    message: int = 0,
    normalization: Normalization = Normalization.RAW,
    *,
    validated: bool = False,
    path: str = "content",
    listed: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        data_class=name,
        detector="test",
        start=start,
        end=start + 5,
        score=score,
        validated=validated,
        normalization=normalization,
        where=Where(message=message, role="user", json_path=path),
        listed=listed,
    )


def look(policy: Policy, *findings: Finding, pinned: bool = False) -> Decision:
    return decide(policy.rulebook, inspected(findings, pinned=pinned))


def inspected(findings: Sequence[Finding], *, pinned: bool = False) -> Inspection:
    return inspection_of(
        findings=tuple(findings), payload_digest=DIGEST, messages=3, pinned=pinned
    )


# Often the same class twice, which the whole tree would hardly ever give.
FEW = [
    "health.lab",
    "identifier.direct.email",
    "identifier.quasi.zip",
    "marker.first_person",
    "topic.health",
    "financial.pan",
    "no.such.class",
    "org.edm.own",
    "org.edm.other",
]
FINDINGS = st.builds(
    found,
    st.one_of(st.sampled_from(FEW), st.sampled_from(sorted(CLASSES))),
    st.integers(-1, 101),
    st.integers(0, 200),
    st.integers(0, 2),
    st.sampled_from(Normalization),
    validated=st.booleans(),
    path=st.sampled_from(["content", "name"]),
    listed=st.sampled_from([(), ("listed.txt",), ("other.txt", "listed.txt")]),
)
INSPECTIONS = st.lists(FINDINGS, max_size=8)
POLICIES = st.sampled_from(
    [
        RICH,
        *map(load_profile, PROFILES),
        *(load_policy(f"{HEAD}packs: [{name}]\n{FIRST}") for name in PACKS),
    ]
)


def test_nothing_found_takes_the_default() -> None:
    decision = look(rules(""))
    assert decision.route is Route.ENCLAVE
    assert (decision.rule, decision.reason) == ("default", DEFAULT_REASON)
    assert (decision.classes, decision.rules, decision.uncertain) == ((), (), ())
    assert decision.allowed is not None
    assert decision.allowed.payload_digest == DIGEST


def test_absent_default_keeps_queries_local() -> None:
    decision = look(rules("", head="version: 1\n"))
    assert decision.route is Route.LOCAL
    assert decision.allowed is None


def test_default_takes_part_where_rules_fire() -> None:
    policy = rules(
        "- {id: x, when: org.*, then: deidentify}\n",
        head="version: 1\ndefault: {decision: local}\n",
    )
    decision = look(policy, found("org.confidential"))
    assert (decision.route, decision.rule) == (Route.LOCAL, "default")


def test_decide_takes_the_first_of_the_most_private() -> None:
    policy = rules(
        """\
- {id: a, when: org.*, then: deidentify, reason: one}
- {id: b, when: org.*, then: local, reason: two}
- {id: c, when: org.*, then: local, reason: three}
- {id: d, when: org.*, then: enclave}
"""
    )
    decision = look(policy, found("org.confidential"))
    assert [hit.id for hit in decision.rules] == ["a", "b", "c", "d"]
    assert (decision.rule, decision.reason) == ("b", "two")
    assert decision.route is Route.LOCAL


def test_decide_names_what_was_found_before_what_is_unknown() -> None:
    policy = load_profile("default")
    both = look(policy, found("uncertain.number_run"), found("financial.pan"))
    assert both.rule == "payment-card"
    assert [hit.id for hit in both.rules] == [
        "payment-card",
        "bank-account",
        "any-uncertain",
    ]
    assert look(policy, found("uncertain.number_run")).rule == "any-uncertain"


@pytest.mark.parametrize("name", sorted(filter(is_uncertain, CLASSES)))
def test_every_uncertainty_keeps_queries_local(name: str) -> None:
    decision = look(rules(""), found(name, score=0))
    assert (decision.route, decision.rule) == (Route.LOCAL, "any-uncertain")
    assert decision.uncertain == (name,)
    assert decision.classes == ()
    assert decision.allowed is None


@pytest.mark.parametrize(
    "finding",
    [
        found("no.such.class"),
        found("financial"),
        found("org.confidential", score=101),
        found("org.confidential", score=-1),
    ],
    ids=["unknown", "inner", "above", "below"],
)
def test_invalid_finding_keeps_queries_local(finding: Finding) -> None:
    decision = look(rules(""), finding)
    assert decision.route is Route.LOCAL
    assert decision.uncertain == ("uncertain.error",)


def test_deidentify_is_reported_and_not_allowed() -> None:
    policy = rules("- {id: name, when: identifier.direct.person, then: deidentify}\n")
    decision = look(policy, found("identifier.direct.person"))
    assert decision.route is Route.DEIDENTIFY
    assert decision.allowed is None


def test_thresholds_concern_three_families() -> None:
    policy = rules(
        """\
- {id: d, when: "identifier.direct.*", then: local}
- {id: q, when: "identifier.quasi.*", then: local}
- {id: t, when: "topic.*", then: local}
- {id: f, when: "financial.*", then: local}
""",
        head=HEAD + "thresholds: {direct: 30, quasi: 40, topic: 50}\n",
    )
    for name, least in (
        ("identifier.direct.email", 30),
        ("identifier.quasi.zip", 40),
        ("topic.health", 50),
    ):
        assert look(policy, found(name, least - 1)).route is Route.ENCLAVE
        assert look(policy, found(name, least)).route is Route.LOCAL
    assert look(policy, found("financial.pan", 0)).route is Route.LOCAL


def test_checksum_counts_as_certain() -> None:
    policy = rules("- {id: x, when: financial.pan, min_conf: 99, then: local}\n")
    assert look(policy, found("financial.pan", 98)).route is Route.ENCLAVE
    sure = found("financial.pan", 5, validated=True)
    assert look(policy, sure).route is Route.LOCAL


def test_surest_finding_of_a_class_counts() -> None:
    policy = rules("- {id: x, when: financial.pan>=50, then: local}\n")
    pair = [found("financial.pan", 50), found("financial.pan", 49)]
    assert look(policy, *pair).route is Route.LOCAL
    assert look(policy, *reversed(pair)).route is Route.LOCAL


def test_min_conf_replaces_the_threshold() -> None:
    policy = rules("- {id: x, when: identifier.direct.*, min_conf: 10, then: local}\n")
    assert look(policy, found("identifier.direct.email", 10)).route is Route.LOCAL
    assert look(policy, found("identifier.direct.email", 9)).route is Route.ENCLAVE


def test_distinct_counts_classes_not_findings() -> None:
    policy = rules("- {id: x, when: identifier.quasi.*, distinct: 2, then: local}\n")
    one = [found("identifier.quasi.url", start=n) for n in range(9)]
    assert look(policy, *one).route is Route.ENCLAVE
    assert look(policy, *one, found("identifier.quasi.zip")).route is Route.LOCAL


def test_distinct_counts_within_its_scope() -> None:
    policy = rules(
        "- {id: x, when: identifier.quasi.*, distinct: 2, within: message, "
        "then: local}\n"
    )
    zip_code = found("identifier.quasi.zip")
    assert look(policy, zip_code, found("identifier.quasi.age", message=1)).route is (
        Route.ENCLAVE
    )
    assert look(policy, zip_code, found("identifier.quasi.age", start=99)).route is (
        Route.LOCAL
    )


@pytest.mark.parametrize(
    ("within", "other", "fires"),
    [
        ("span", found("marker.first_person", start=4), True),
        ("span", found("marker.first_person", start=5), False),
        (
            "span",
            found("marker.first_person", start=99, normalization=Normalization.NFKC),
            True,
        ),
        ("span", found("marker.first_person", path="name"), False),
        ("window", found("marker.first_person", start=65), True),
        ("window", found("marker.first_person", start=66), False),
        (
            "window",
            found("marker.first_person", start=99, normalization=Normalization.NFKC),
            True,
        ),
        ("window", found("marker.first_person", path="name"), False),
        ("window", found("marker.first_person", message=1), False),
        ("message", found("marker.first_person", start=9999), True),
        ("message", found("marker.first_person", path="name"), True),
        ("message", found("marker.first_person", message=1), False),
        ("conversation", found("marker.first_person", message=1), True),
    ],
)
def test_within_bounds_what_counts_together(
    within: str, other: Finding, *, fires: bool
) -> None:
    policy = rules(
        f'- {{id: x, when: "health.* & marker.*", within: {within}, then: local}}\n'
    )
    expected = Route.LOCAL if fires else Route.ENCLAVE
    assert look(policy, found("health.lab"), other).route is expected
    assert look(policy, other, found("health.lab")).route is expected


def test_single_finding_fires_in_every_scope() -> None:
    for within in ("span", "window", "message", "conversation"):
        policy = rules(f"- {{id: x, when: org.*, within: {within}, then: local}}\n")
        assert look(policy, found("org.confidential")).route is Route.LOCAL


def test_exclusion_removes_unvalidated_findings() -> None:
    policy = rules(
        "- {id: x, when: financial.*, then: local}\nexclude: [{class: financial.pan}]\n"
    )
    decision = look(policy, found("financial.pan"))
    assert (decision.route, decision.classes) == (Route.ENCLAVE, ())
    sure = found("financial.pan", validated=True)
    assert look(policy, sure).classes == ("financial.pan",)
    assert look(policy, sure).route is Route.LOCAL


def test_exclusion_yields_to_unless() -> None:
    policy = rules(
        "- {id: x, when: identifier.direct.person, then: local}\n"
        "exclude: [{class: identifier.direct.person, unless: 'health.*'}]\n"
    )
    person = found("identifier.direct.person")
    assert look(policy, person).route is Route.ENCLAVE
    assert look(policy, person, found("health.lab")).route is Route.LOCAL


def test_strict_topics_keeps_a_topic_local() -> None:
    strict = rules("", head=HEAD + "strict_topics: true\n")
    decision = look(strict, found("topic.legal", 50))
    assert (decision.route, decision.rule) == (Route.LOCAL, "strict-topics")
    assert look(strict, found("topic.legal", 49)).route is Route.ENCLAVE
    assert look(rules(""), found("topic.legal", 50)).route is Route.ENCLAVE


def test_pinned_conversation_is_kept_local() -> None:
    decision = look(rules(""), pinned=True)
    assert (decision.route, decision.rule) == (Route.LOCAL, "sticky")
    assert decision.allowed is None


@pytest.mark.parametrize(
    ("sticky", "findings", "pinned", "expected"),
    [
        ("conversation", [], False, False),
        ("conversation", [found("org.confidential")], False, True),
        ("conversation", [], True, True),
        ("content", [], False, False),
        ("content", [found("org.confidential")], False, True),
        ("content", [], True, True),
        ("validated", [], False, False),
        ("validated", [found("org.confidential")], False, False),
        ("validated", [found("org.confidential", validated=True)], False, True),
        ("validated", [found("secret.dsn", validated=True)], False, False),
        ("validated", [], True, True),
    ],
)
def test_pins_as_the_policy_says(
    sticky: str, findings: list[Finding], *, pinned: bool, expected: bool
) -> None:
    policy = rules(
        "- {id: x, when: org.*, then: local}\n", head=HEAD + f"sticky: {sticky}\n"
    )
    inspection = inspected(findings, pinned=pinned)
    assert (
        pins(policy.rulebook, inspection, decide(policy.rulebook, inspection))
        is expected
    )


@pytest.mark.parametrize("sticky", ["conversation", "content", "validated"])
@pytest.mark.parametrize("floor", RoutingClass)
def test_a_senders_declaration_pins_the_conversation(
    sticky: str, floor: RoutingClass
) -> None:
    policy = rules(
        "- {id: x, when: org.*, then: local}\n", head=HEAD + f"sticky: {sticky}\n"
    )
    inspection = inspected([]).stricter(floor=floor)
    decision = decide(policy.rulebook, inspection)
    kept = pins(policy.rulebook, inspection, decision)
    assert kept is (floor is RoutingClass.RESTRICTED)


@pytest.mark.parametrize("sticky", ["conversation", "content", "validated"])
def test_a_query_that_left_without_its_names_pins_nothing(sticky: str) -> None:
    policy = rules(
        "- {id: x, when: org.*, then: deidentify}\n", head=HEAD + f"sticky: {sticky}\n"
    )
    inspection = inspected([found("org.confidential", validated=True)])
    decision = decide(policy.rulebook, inspection)
    assert decision.route is Route.DEIDENTIFY
    assert not pins(policy.rulebook, inspection, decision)


def test_inspection_refuses_a_digest_of_the_wrong_size() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        inspection_of(findings=(), payload_digest=bytes(31), messages=1)


@settings(deadline=None)  # a busy machine is no finding
@given(POLICIES, INSPECTIONS, FINDINGS, st.booleans(), st.data())
def test_one_finding_more_is_never_less_private(
    policy: Policy,
    findings: list[Finding],
    another: Finding,
    pinned: bool,
    data: st.DataObject,
) -> None:
    place = data.draw(st.integers(0, len(findings)))
    more = [*findings[:place], another, *findings[place:]]
    before = look(policy, *findings, pinned=pinned)
    after = look(policy, *more, pinned=pinned)
    assert after.route.privacy >= before.route.privacy
    assert {hit.id for hit in before.rules} <= {hit.id for hit in after.rules}
    assert set(before.classes) <= set(after.classes)
    assert set(before.uncertain) <= set(after.uncertain)
    assert before.allowed is not None or after.allowed is None


@settings(deadline=None)  # a busy machine is no finding
@given(POLICIES, INSPECTIONS, st.data())
def test_decide_is_deterministic_and_knows_no_order(
    policy: Policy, findings: list[Finding], data: st.DataObject
) -> None:
    first = look(policy, *findings)
    assert look(policy, *findings) == first
    assert look(policy, *data.draw(st.permutations(findings))) == first


@settings(deadline=None)  # a busy machine is no finding
@given(POLICIES, INSPECTIONS)
def test_allowed_is_there_exactly_for_the_enclave(
    policy: Policy, findings: list[Finding]
) -> None:
    decision = look(policy, *findings)
    assert (decision.allowed is not None) is (decision.route is Route.ENCLAVE)
    if any(is_uncertain(name) for name in decision.uncertain):
        assert decision.allowed is None


def test_a_rulebook_without_the_rule_for_the_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match=repr(ANY_UNCERTAIN)):
        Rulebook(
            digest="sha256:00",
            default=Route.ENCLAVE,
            rules=(),
            strict_topics=False,
            topic_threshold=60,
            sticky="conversation",
        )


@pytest.mark.parametrize(
    "change",
    [
        {"when": "uncertain.error"},
        {"distinct": 2},
        {"route": Route.DEIDENTIFY},
        {"id": "another"},
    ],
)
def test_a_rule_that_is_not_quite_that_one_is_not_enough(
    change: dict[str, object],
) -> None:
    rulebook = rules("").rulebook
    (rule,) = rulebook.rules
    with pytest.raises(ValueError, match="without the rule"):
        replace(rulebook, rules=(replace(rule, **change),))  # type: ignore[arg-type]
