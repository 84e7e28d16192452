import pytest

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile, profile_text
from curtilage.policy.document.model import PACKS
from support.examples import examples
from support.inspections import inspection_of

DEFAULT = load_profile("default")
PERSON = "identifier.direct.person"
FIRST_PERSON = "marker.first_person"
DIRECT = [
    "passport",
    "licence",
    "email",
    "phone",
    "fax",
    "address",
    "ip",
    "mac",
    "device",
    "vehicle",
    "biometric",
    "photo",
]
FINANCIAL = ["pan", "cvv", "track", "iban", "crypto", "tax_id"]


def route_of(*names: str) -> Route:
    findings = tuple(
        Finding(
            data_class=name,
            detector="test",
            start=1000 * index,
            end=1000 * index + 5,
            score=60,
            validated=False,
            normalization=Normalization.RAW,
            where=Where(message=index, role="user", json_path="content"),
        )
        for index, name in enumerate(names)
    )
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    return decide(DEFAULT.rulebook, inspection).route


def family(*prefixes: str) -> list[str]:
    return sorted(name for name in CLASSES if name.startswith(prefixes))


def test_every_rule_gives_a_reason() -> None:
    assert [rule.id for rule in DEFAULT.rules if len(rule.reason) < 40] == []


def test_only_own_rule_is_about_the_unknown() -> None:
    assert [rule.id for rule in DEFAULT.rules if not rule.pack] == ["any-uncertain"]


def test_every_pack_is_in_it() -> None:
    assert DEFAULT.document.packs == PACKS


def test_profile_names_no_enclave() -> None:
    assert DEFAULT.attestation is None


def test_unknown_profile_is_refused() -> None:
    with pytest.raises(KeyError, match="strict"):
        profile_text("strict")


BORN = {"identifier.quasi.dob", "identifier.quasi.age90"}


@examples(
    "name",
    [
        *family("uncertain.", "secret.", "legal.", "export.", "org.", "special."),
        "health.npi",
        "health.dea",
        *family("identifier.direct.gov_id."),
        *(f"identifier.direct.{name}" for name in DIRECT),
        *(f"financial.{name}" for name in FINANCIAL),
        "health.mrn",
        "health.plan_id",
        "identifier.quasi.dob",
        "identifier.quasi.age90",
    ],
)
def test_each_alone_is_kept_local(name: str) -> None:
    assert route_of(name) is Route.LOCAL


@pytest.mark.parametrize(
    "name",
    [
        *sorted(set(family("identifier.quasi.")) - BORN),
        *family("marker."),
        *sorted(family("topic.")),
        "financial.pan_masked",
        "financial.income",
        "financial.account",
        "health.condition",
        "health.medication",
    ],
)
def test_may_leave_alone(name: str) -> None:
    assert route_of(name) is Route.ENCLAVE


def test_names_ask_for_deidentification() -> None:
    assert route_of(PERSON) is Route.DEIDENTIFY
    assert route_of("identifier.direct.username") is Route.DEIDENTIFY
    assert route_of("identifier.direct.url_personal") is Route.DEIDENTIFY


@examples("health", family("health.", "topic.health"))
@pytest.mark.parametrize("whose", [PERSON, FIRST_PERSON, "identifier.quasi.dob"])
def test_health_of_someone_is_kept_local(health: str, whose: str) -> None:
    assert route_of(health, whose) is Route.LOCAL


@pytest.mark.parametrize("special", family("special.", "topic.special"))
@pytest.mark.parametrize("whose", [PERSON, FIRST_PERSON])
def test_special_category_of_someone_is_kept_local(special: str, whose: str) -> None:
    assert route_of(special, whose) is Route.LOCAL


@pytest.mark.parametrize("whose", [PERSON, FIRST_PERSON])
@pytest.mark.parametrize("money", ["account", "income", "balance", "credit_score"])
def test_finance_of_someone_is_kept_local(money: str, whose: str) -> None:
    assert route_of(f"financial.{money}", whose) is Route.LOCAL


def test_three_attributes_are_kept_local() -> None:
    two = ("identifier.quasi.zip", "identifier.quasi.age")
    assert route_of(*two) is Route.ENCLAVE
    assert route_of(*two, "identifier.quasi.gender") is Route.LOCAL


def test_web_addresses_alone_may_leave() -> None:
    assert route_of(*["identifier.quasi.url"] * 9) is Route.ENCLAVE
