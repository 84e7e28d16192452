import base64
import json
from textwrap import dedent

import pytest

from curtilage.policy.decision.decide import Decision, Inspection, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.counterfactual import outcome_of, smallest_change
from curtilage.policy.explain.decision import (
    CONSENT,
    change_in_words,
    explain,
    explain_json,
)
from curtilage.policy.explain.routing import (
    ABSENT,
    NOT_BELIEVED,
    OBSERVES,
    Fate,
    fates,
    routing_in_words,
)
from support import inspections

RULES = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: keys, when: "secret.*", then: block}
- {id: health, when: "health.*", then: local}
"""
ROUTING = f"""\
routing:
  tiers:
  - {{id: device, kind: in_process, cost_microusd_per_mtok: 50000}}
  - id: ward
    kind: house
    address: https://llm.clinic.example/v1
    model: big
    spki_sha256: {"ab" * 32}
    trusted: ["health.*"]
    context_tokens: 32768
  - {{id: enclave, kind: attested, questions_per_min: 9}}
  classes: {{confidential: {{tiers: [device]}}}}
  demands:
  - {{classes: ["org.*"], only: [device]}}
  - {{classes: ["legal.*"], never: [device, ward]}}
  intents: {{overrides: {{code: only_home, unknown: prefer_home}}}}
"""
POLICY = load_policy(RULES + ROUTING)
CITY = "identifier.quasi.city"


def words(policy: Policy) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for label, sentence in routing_in_words(policy):
        told.setdefault(label, []).append(sentence)
    return told


def inspection_of(
    *names: str, floor: RoutingClass = RoutingClass.PUBLIC, pinned: bool = False
) -> Inspection:
    found = tuple(
        Finding(
            data_class=name,
            detector="test",
            start=0,
            end=5,
            score=100,
            validated=True,
            normalization=Normalization.RAW,
            where=Where(message=0, role="user", json_path="content"),
        )
        for name in names
    )
    return inspections.inspection_of(
        findings=found,
        payload_digest=bytes(32),
        messages=1,
        floor=floor,
        pinned=pinned,
    )


def decision_on(*names: str, policy: Policy = POLICY) -> Decision:
    return decide(policy.rulebook, inspection_of(*names))


# --- what `policy check` and the report say --------------------------------------


def test_an_absent_section_is_told() -> None:
    assert words(load_policy(RULES)) == {"tiers": [ABSENT]}


def test_tiers_are_told() -> None:
    device, ward, enclave = words(POLICY)["tier"]
    assert device == (
        "device: the local model, in this process; 0.05 US$ a million tokens"
    )
    assert ward == (
        "ward: a server in the house, https://llm.clinic.example/v1, model big, with "
        f"the key sha256:{'ab' * 32}; trusted with health.*, and nothing else; up to "
        "32,768 tokens"
    )
    assert enclave.startswith("enclave: an enclave that was verified")
    assert enclave.endswith(f"{NOT_BELIEVED}; 9 questions a minute")


@pytest.mark.parametrize(
    ("trusted", "said"),
    [
        ("['*']", "trusted with everything"),
        ("[]", "trusted with nothing that must stay"),
    ],
)
def test_trust_is_told(trusted: str, said: str) -> None:
    policy = load_policy(
        RULES + ROUTING.replace('trusted: ["health.*"]', f"trusted: {trusted}")
    )
    assert said in words(policy)["tier"][1]


def test_a_certificate_file_is_told() -> None:
    text = ROUTING.replace(f"spki_sha256: {'ab' * 32}", "ca: house.pem")
    pem = "-----BEGIN CERTIFICATE-----\nMAMBAf8=\n-----END CERTIFICATE-----\n"
    policy = load_policy(RULES + text, files=lambda _: pem.encode())
    assert "vouched for by house.pem alone" in words(policy)["tier"][1]


def test_classes_and_demands_are_told() -> None:
    told = words(POLICY)
    assert told["class"] == [
        "public: device, ward, enclave",
        "internal: device, ward, enclave",
        "confidential: device",
        "restricted: device, ward",
    ]
    assert told["place"] == ["org.*: only device", "legal.*: never device, ward"]


def test_what_is_chosen_is_told() -> None:
    told = words(POLICY)
    assert told["intent"] == [
        "code (where it is 70 % sure): in the house alone",
        "unknown (the rest): rather in the house",
    ]
    assert told["hardness"] == ["estimated by learned weights"]
    assert told["breaker"] == [
        "a tier that failed 3 times in 30 s is left alone for 30 s"
    ]
    assert "observes" not in told
    observing = load_policy(RULES + ROUTING + "  observe: true\n")
    assert words(observing)["observes"] == [OBSERVES]


def test_what_leaves_on_conditions_is_told() -> None:
    assert not words(POLICY).keys() & {"consent", "history", "drafts"}
    classes = "confidential: {consent: required, history: redacted_extract}"
    section = ROUTING.replace("confidential: {tiers: [device]}", classes)
    told = words(load_policy(RULES + section))
    (consent,) = told["consent"]
    assert consent.startswith("confidential, or more private: nothing leaves before")
    assert "history" not in told, "without that of what stayed it has no effect"
    section = section.replace(classes, f"{classes}, restricted: {{history: never}}")
    assert [
        each.partition(":")[0]
        for each in words(load_policy(RULES + section))["history"]
    ] == ["restricted turns", "confidential turns"]


def test_who_names_the_model_is_told() -> None:
    assert "model" not in words(POLICY)
    key = base64.b64encode(bytes(32)).decode()
    other = base64.b64encode(bytes([1] * 32)).decode()
    rollout = (
        "  rollout: {name: clinic-home, log: {origin: log.example/home, "
        f"key: '{key}', witnesses: [{{name: w, key: '{other}'}}], quorum: 1}}}}\n"
    )
    assert words(load_policy(RULES + ROUTING + rollout))["model"] == [
        (
            "where none is named, the one that manifests 'clinic-home' say, logged in "
            "log.example/home and cosigned by 1 of 1"
        )
    ]


def test_fates_are_those_that_are_decided() -> None:
    everywhere = ("device", "ward", "enclave")
    told = fates(POLICY)
    assert told[0] == Fate(patterns=(), route=Route.ENCLAVE, tiers=everywhere)
    assert told[1] == Fate(patterns=("secret.*",), route=Route.BLOCK, tiers=())
    by_pattern = {pattern: fate for fate in told for pattern in fate.patterns}
    assert by_pattern["health.*"].tiers == ("device", "ward")
    assert by_pattern["uncertain.*"].tiers == ("device",)
    # Kept home by the demand alone, so that the rule is the routing's.
    assert by_pattern["org.*"].route is Route.LOCAL
    assert by_pattern["org.*"].tiers == ("device",)
    assert by_pattern["legal.*"].tiers == ("enclave",)
    assert by_pattern["financial.*"].tiers == everywhere
    for pattern, fate in by_pattern.items():
        name = pattern.replace(".*", "")
        below = [each for each in POLICY.classes if f"{each}.".startswith(f"{name}.")]
        for each in below:
            assert decision_on(each).route is fate.route


def test_fates_are_told_by_place() -> None:
    told = words(POLICY)["found"]
    assert told[0] == ("device, ward, enclave may answer: what nothing is found in")
    assert told[1] == "nobody may answer: secret.*"
    assert "device, ward may answer: health.*" in told


# --- what `explain` says -----------------------------------------------------------


def test_explain_says_who_may_answer() -> None:
    told = explain(POLICY, decision_on("health.condition")).splitlines()
    assert told[:2] == [
        "This query stays in the house.",
        "May be answered by: device, ward; not by enclave (route).",
    ]
    told = explain(POLICY, decision_on("secret.token")).splitlines()
    assert told[1].startswith("May be answered by: nobody; not by device (route)")
    told = explain(POLICY, decision_on()).splitlines()
    assert told[1] == "May be answered by: device, ward, enclave."


CONSENTING = load_policy(
    RULES + ROUTING.replace("{tiers: [device]}", "{consent: required}")
)


@pytest.mark.parametrize("floor", [RoutingClass.CONFIDENTIAL, RoutingClass.INTERNAL])
def test_explain_says_that_a_person_must_agree(floor: RoutingClass) -> None:
    inspection = inspection_of(floor=floor)
    asked = floor is RoutingClass.CONFIDENTIAL
    decision = decide(CONSENTING.rulebook, inspection)
    assert decision.route is Route.ENCLAVE
    assert (CONSENT in explain(CONSENTING, decision).splitlines()) is asked
    answer = json.loads(explain_json(CONSENTING, decision))
    assert answer["permitted"]["consent"] is asked


@pytest.mark.parametrize("tiers", ["enclave", "device"])
def test_explain_says_it_of_what_leaves_without_its_names(tiers: str) -> None:
    """The rewritten text is of this class at least, so a person is asked about it."""
    rules = RULES + '- {id: names, when: "identifier.direct.*", then: deidentify}\n'
    classes = f"{{tiers: [{tiers}], consent: required}}"
    policy = load_policy(rules + ROUTING.replace("{tiers: [device]}", classes))
    decision = decision_on("identifier.direct.person", policy=policy)
    assert decision.route is Route.DEIDENTIFY
    asked = tiers == "enclave"
    assert (CONSENT in explain(policy, decision).splitlines()) is asked


def test_explain_asks_nobody_about_what_is_kept_local() -> None:
    decision = decision_on("health.condition", policy=CONSENTING)
    assert CONSENTING.routing is not None
    assert CONSENTING.routing.asks_first(decision.permitted.routing_class)
    assert CONSENT not in explain(CONSENTING, decision)
    answer = json.loads(explain_json(CONSENTING, decision))
    assert answer["permitted"]["consent"] is False


def test_explain_says_that_tiers_decided() -> None:
    text = explain(POLICY, decision_on("org.confidential"))
    assert "Decided by the policy's 'routing': " in text


def test_explain_json_says_who_may_answer() -> None:
    answer = json.loads(explain_json(POLICY, decision_on("health.condition")))
    assert answer["permitted"] == {
        "class": "restricted",
        "tiers": ["device", "ward"],
        "denied": {"enclave": "route"},
        "consent": False,
    }


def test_explain_says_that_whoever_asks_wants_it_kept() -> None:
    inspection = inspection_of(floor=RoutingClass.RESTRICTED)
    text = explain(POLICY, decide(POLICY.rulebook, inspection), inspection)
    assert "Decided by whoever asks: " in text
    assert (
        "Smallest change: if whoever asks had not wanted it kept it could leave."
        in text
    )


def test_the_smallest_change_takes_a_demand_into_account() -> None:
    inspection = inspection_of("org.confidential", CITY)
    change = smallest_change(POLICY, inspection)
    assert change is not None
    assert [each.data_class for each in change.absent] == ["org.confidential"]
    assert outcome_of(POLICY, inspection, change) == (change.route, change.rule)
    assert "without org.confidential" in change_in_words(change)


def test_the_smallest_change_may_be_floor_and_finding() -> None:
    inspection = inspection_of("health.lab", floor=RoutingClass.RESTRICTED)
    change = smallest_change(POLICY, inspection)
    assert change is not None
    assert change.floor
    assert [each.data_class for each in change.absent] == ["health.lab"]
    assert outcome_of(POLICY, inspection, change) == (Route.ENCLAVE, "default")


def test_no_change_helps_where_no_enclave_is_listed() -> None:
    policy = load_policy(
        RULES
        + dedent(
            """\
            routing:
              tiers: [{id: device, kind: in_process}]
            """
        )
    )
    assert smallest_change(policy, inspection_of(CITY)) is None
