"""The shipped profiles: what each of them promises to its customers."""

import re
from dataclasses import replace

import pytest

from curtilage.policy.decision.classes import CLASSES, is_uncertain
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import (
    PROFILES,
    load_policy,
    load_profile,
    profile_text,
)
from curtilage.policy.document.model import PACKS, Policy
from curtilage.policy.document.routing_settings import Speculating
from support.examples import examples
from support.inspections import inspection_of

LOADED = {name: load_profile(name) for name in PROFILES}
STRICT = [name for name in PROFILES if name != "default"]
PERSON = "identifier.direct.person"
SPEAKER = "marker.first_person"
CASE = "marker.case"


def route_of(policy: Policy, *names: str, score: int = 60) -> Route:
    findings = tuple(
        Finding(
            data_class=name,
            detector="test",
            start=100 * index,
            end=100 * index + 5,
            score=score,
            validated=False,
            normalization=Normalization.RAW,
            where=Where(message=0, role="user", json_path="content"),
        )
        for index, name in enumerate(names)
    )
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    return decide(policy.rulebook, inspection).route


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_reads_like_a_document(name: str) -> None:
    text = profile_text(name)
    assert text.startswith("# ")
    routes = sorted(Route, key=lambda each: each.privacy, reverse=True)
    order = " > ".join(each.value for each in routes)
    assert re.search(rf"^# +{order}$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_wants_drafts_of_what_is_public_or_internal(name: str) -> None:
    plan = LOADED[name].routing
    assert plan is not None
    assert plan.speculation.mode is Speculating.VERIFY
    assert plan.drafted == {RoutingClass.PUBLIC, RoutingClass.INTERNAL}
    assert plan.speculation.thresholds is None, "by what comes with Curtilage"


@pytest.mark.parametrize("name", PROFILES)
def test_own_rules_of_a_profile_give_reasons(name: str) -> None:
    policy = LOADED[name]
    own = [rule for rule in policy.rules if not rule.pack]
    assert own[0].id == "any-uncertain"
    assert [rule.id for rule in own if len(rule.reason) < 60] == []
    assert {rule.route for rule in own} == {Route.LOCAL}
    assert len(own) == 1 if name == "default" else len(own) > 3


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_names_no_enclave_and_leaves_nothing_out(name: str) -> None:
    policy = LOADED[name]
    assert policy.attestation is None
    assert policy.exclusions == ()
    assert set(policy.document.packs) == set(PACKS)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_keeps_local_what_every_profile_must(name: str) -> None:
    alone = [
        each
        for each in sorted(CLASSES)
        if is_uncertain(each)
        or each.startswith(
            ("secret.", "identifier.direct.gov_id.", "export.", "legal.")
        )
        or each
        in {
            "financial.pan",
            "financial.cvv",
            "financial.track",
            "financial.iban",
            "financial.tax_id",
            "health.mrn",
            "health.plan_id",
            "identifier.direct.email",
            "identifier.direct.phone",
            "identifier.direct.address",
            "identifier.direct.ip",
            "special.biometric",
            "org.confidential",
        }
    ]
    assert [
        each for each in alone if route_of(LOADED[name], each) is not Route.LOCAL
    ] == []


@pytest.mark.parametrize("name", PROFILES)
def test_health_and_special_categories_of_a_person_are_kept_local(name: str) -> None:
    kept = [
        each
        for each in CLASSES
        if each.startswith(("health.", "special."))
        or each in {"topic.health", "topic.special"}
    ]
    for each in kept:
        for whose in (PERSON, SPEAKER, "identifier.quasi.dob"):
            assert route_of(LOADED[name], each, whose) is Route.LOCAL, (each, whose)


@pytest.mark.parametrize("name", PROFILES)
@examples(
    "impersonal",
    [
        "identifier.quasi.age",
        "identifier.quasi.date",
        "identifier.quasi.city",
        "identifier.quasi.url",
        "marker.addressee",
    ],
)
@pytest.mark.parametrize("health", ["health.condition", "topic.health"])
def test_impersonal_health_may_leave(name: str, impersonal: str, health: str) -> None:
    policy = LOADED[name]
    assert route_of(policy, health, impersonal) is Route.ENCLAVE


def test_a_case_without_a_name_stays_in_the_clinic_only() -> None:
    routes = {
        name: route_of(policy, "health.condition", CASE, "identifier.quasi.age")
        for name, policy in LOADED.items()
    }
    assert routes.pop("clinic") is Route.LOCAL
    assert set(routes.values()) == {Route.ENCLAVE}


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("where", ["zip", "city", "date"])
def test_a_case_with_a_day_or_a_place_stays(name: str, where: str) -> None:
    found = ("health.condition", CASE, f"identifier.quasi.{where}")
    assert route_of(LOADED[name], *found) is Route.LOCAL


@pytest.mark.parametrize("name", PROFILES)
def test_work_of_the_speaker_is_kept_local(name: str) -> None:
    assert route_of(LOADED[name], "topic.hr", SPEAKER) is Route.LOCAL


def test_pseudonymised_health_leaves_where_the_policy_says_so() -> None:
    text = profile_text("default")
    said = load_policy(f"{text}\npseudonymised_health: leave\n")
    for health in ("health.condition", "topic.health"):
        assert route_of(LOADED["default"], health, PERSON) is Route.LOCAL
        assert route_of(said, health, PERSON) is Route.DEIDENTIFY
        for other in (SPEAKER, "identifier.quasi.dob", "identifier.direct.email"):
            assert route_of(said, health, PERSON, other) is Route.LOCAL


@pytest.mark.parametrize("name", PROFILES)
def test_harmless_queries_may_leave(name: str) -> None:
    policy = LOADED[name]
    assert route_of(policy) is Route.ENCLAVE
    assert route_of(policy, SPEAKER) is Route.ENCLAVE
    assert route_of(policy, "identifier.quasi.url") is Route.ENCLAVE
    assert route_of(policy, "identifier.quasi.city") is Route.ENCLAVE
    assert route_of(policy, "financial.pan_masked") is Route.ENCLAVE
    assert route_of(policy, "topic.finance") is Route.ENCLAVE
    assert route_of(policy, "topic.hr") is Route.ENCLAVE
    assert route_of(policy, "topic.legal") is Route.ENCLAVE


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("topic", ["topic.finance", "topic.legal"])
def test_money_and_law_of_the_speaker_are_kept_local(name: str, topic: str) -> None:
    assert route_of(LOADED[name], topic, SPEAKER) is Route.LOCAL
    unsure = route_of(LOADED[name], topic, SPEAKER, score=39)
    assert unsure is Route.ENCLAVE


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "clinic"])
def test_a_name_alone_is_replaced(name: str) -> None:
    assert route_of(LOADED[name], PERSON) is Route.DEIDENTIFY


@examples(
    ("name", "found"),
    [
        ("clinic", PERSON),
        ("clinic", "identifier.direct.username"),
        ("clinic", f"health.condition {SPEAKER}"),
        ("clinic", f"topic.health {PERSON}"),
        ("clinic", f"health.condition {CASE}"),
        ("clinic", f"topic.health {CASE}"),
        ("clinic", f"topic.special {CASE}"),
        ("clinic", f"topic.special {SPEAKER}"),
        ("clinic", "special.religion"),
        ("clinic", "identifier.quasi.dob"),
        ("clinic", "identifier.quasi.age identifier.quasi.city"),
        ("bank", f"topic.finance {PERSON}"),
        ("bank", "topic.finance identifier.quasi.dob"),
        ("bank", "financial.balance"),
        ("bank", "financial.credit_score"),
        ("bank", "financial.expiry financial.pan_masked"),
        ("bank", f"financial.pan_masked {PERSON}"),
        ("bank", f"topic.legal {PERSON}"),
        ("law-firm", f"topic.legal {PERSON}"),
        ("law-firm", f"topic.legal {SPEAKER}"),
        ("law-firm", "topic.legal identifier.quasi.employer"),
        ("law-firm", f"topic.finance {PERSON}"),
        ("law-firm", "topic.hr identifier.quasi.employer"),
        ("law-firm", f"{PERSON} identifier.quasi.employer"),
        ("law-firm", "special.criminal"),
        ("public-office", "special.criminal"),
        ("public-office", "special.religion"),
        ("public-office", "topic.special"),
        ("public-office", f"topic.hr {PERSON}"),
        ("public-office", f"topic.finance {PERSON}"),
        ("public-office", f"topic.legal {PERSON}"),
        ("public-office", f"topic.special {PERSON}"),
        ("public-office", "identifier.quasi.age identifier.quasi.city"),
    ],
)
def test_what_a_profile_adds(name: str, found: str) -> None:
    names = found.split()
    assert route_of(LOADED[name], *names) is Route.LOCAL


@pytest.mark.parametrize("name", STRICT)
def test_no_profile_is_less_private_than_the_default(name: str) -> None:
    default, strict = LOADED["default"], LOADED[name]
    for first in sorted(CLASSES):
        for second in (first, PERSON, SPEAKER, "identifier.quasi.dob", "health.lab"):
            before = route_of(default, first, second)
            after = route_of(strict, first, second)
            assert after.privacy >= before.privacy, (first, second)


@pytest.mark.parametrize("name", ["clinic", "law-firm", "public-office"])
def test_a_strict_profile_counts_less_sure_findings(name: str) -> None:
    found = {
        "clinic": ("topic.health", SPEAKER),
        "law-firm": ("topic.legal", PERSON),
        "public-office": ("topic.special",),
    }[name]
    assert route_of(LOADED[name], *found, score=45) is Route.LOCAL
    assert route_of(LOADED[name], *found, score=39) is not Route.LOCAL


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_decides_with_its_routing_as_without(name: str) -> None:
    # The tail of the file, so that cutting it off leaves everything else as it is.
    before, comment, section = profile_text(name).partition("\n# Where answers may be")
    assert comment
    assert re.findall(r"^(\w+):", section, re.MULTILINE) == ["routing"]
    without, shipped = load_policy(before), load_profile(name)
    assert without.routing is None
    assert shipped.routing is not None
    # All that a decision reads is the same, so every decision is.
    digest = shipped.digest
    assert replace(without.rulebook, digest=digest) == shipped.rulebook


@pytest.mark.parametrize("name", PROFILES)
def test_the_server_that_a_profile_shows_can_be_named(name: str) -> None:
    before, comment, section = profile_text(name).partition("\n# Where answers may be")
    shown = section.replace("\n  # - id: on-premises", "\n  - id: on-premises")
    text = before + comment + shown.replace("\n  #   ", "\n    ")
    pem = b"-----BEGIN CERTIFICATE-----\nMAMBAf8=\n-----END CERTIFICATE-----\n"
    policy = load_policy(text, files=lambda _: pem)
    assert [each.id for each in policy.tiering.tiers] == [
        "local",
        "on-premises",
        "enclave",
    ]
    assert policy.tiering.tiers[1].trusted == policy.tiering.known


@pytest.mark.parametrize("name", PROFILES)
def test_a_clinic_and_a_law_firm_refuse_what_is_too_long(name: str) -> None:
    """A letter of which a part was read is a hazard there; elsewhere it is said."""
    routing = LOADED[name].routing
    assert routing is not None
    assert routing.local.shortens is (name not in {"clinic", "law-firm"})
