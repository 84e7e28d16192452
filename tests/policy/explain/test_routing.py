import base64
import json
from textwrap import dedent

import pytest

from curtilage.policy.decision.decide import Decision, Inspection, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import TIERS
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.counterfactual import outcome_of, smallest_change
from curtilage.policy.explain.decision import (
    BUILT_IN,
    CONSENT,
    KEPT,
    THE_SENDER,
    change_in_words,
    explain,
    explain_json,
)
from curtilage.policy.explain.routing import (
    ABSENT,
    AGREED,
    NO_DRAFTS,
    NO_FINDINGS,
    NO_TIER,
    NOT_BELIEVED,
    OBSERVES,
    SHIPPED,
    TRUSTED_WITH_ALL,
    TRUSTED_WITH_NONE,
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
    kind: on_premises
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
    by_label: dict[str, list[str]] = {}
    for label, sentence in routing_in_words(policy):
        by_label.setdefault(label, []).append(sentence)
    return by_label


@pytest.mark.parametrize(
    ("aim", "said"),
    [
        ("local_percent: 70", "70 %"),
        ("quality_loss_permille: 35", "35 of 1,000"),
        ("cost_per_1000: 0.5", "$0.5"),
    ],
)
def test_an_aim_is_a_sentence(aim: str, said: str) -> None:
    (sentence,) = words(load_policy(f"{RULES}{ROUTING}  aim: {{{aim}}}\n"))["aim"]
    assert said in sentence


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


def test_an_absent_section_is_described() -> None:
    assert words(load_policy(RULES)) == {"tiers": [ABSENT]}


def test_the_words_of_a_section() -> None:
    """The only test of these words; all others test what the words must name."""
    described = words(POLICY)
    del described["found"]
    assert described == {
        "tier": [
            "device: the local model, in this process; 0.05 US$ a million tokens",
            (
                "ward: an on-premises server, https://llm.clinic.example/v1, model "
                f"big, with the key sha256:{'ab' * 32}; trusted with health.*, and "
                "nothing else; up to 32,768 tokens"
            ),
            (
                "enclave: an enclave that was verified, behind the relay"
                f"{NOT_BELIEVED}; 9 questions a minute"
            ),
        ],
        "class": [
            "public: device, ward, enclave",
            "internal: device, ward, enclave",
            "confidential: device",
            "restricted: device, ward",
        ],
        "place": ["org.*: only device", "legal.*: never device, ward"],
        "intent": [
            "code (where it is 70 % sure): only local or on premises",
            "unknown (the rest): preferably local or on premises",
        ],
        "hardness": ["estimated by learned weights"],
        "breaker": ["a tier that failed 3 times in 30 s is not asked for 30 s"],
    }


@pytest.mark.parametrize(
    ("trusted", "said"),
    [
        ("['*']", TRUSTED_WITH_ALL),
        ("[]", TRUSTED_WITH_NONE),
    ],
)
def test_trust_is_described(trusted: str, said: str) -> None:
    policy = load_policy(
        RULES + ROUTING.replace('trusted: ["health.*"]', f"trusted: {trusted}")
    )
    assert said in words(policy)["tier"][1]


def test_a_certificate_file_is_described() -> None:
    text = ROUTING.replace(f"spki_sha256: {'ab' * 32}", "ca: on-premises.pem")
    pem = "-----BEGIN CERTIFICATE-----\nMAMBAf8=\n-----END CERTIFICATE-----\n"
    policy = load_policy(RULES + text, files=lambda _: pem.encode())
    ward = words(policy)["tier"][1]
    assert " on-premises.pem" in ward
    assert "sha256:" not in ward


def test_a_policy_that_only_observes_is_described() -> None:
    assert "observes" not in words(POLICY)
    observing = load_policy(RULES + ROUTING + "  observe: true\n")
    assert words(observing)["observes"] == [OBSERVES]


def test_drafts_are_described_with_their_classes_and_thresholds() -> None:
    section = ROUTING + "  speculation: {mode: verify}\n"
    (said,) = words(load_policy(RULES + section))["drafts"]
    assert "of public and internal" in said
    assert said.endswith(SHIPPED)
    plain = "classes: {confidential: {tiers: [device]}}"
    denied = "classes: {internal: {speculation: deny}"
    (said,) = words(load_policy(RULES + section.replace(plain, denied + "}")))["drafts"]
    assert "of public " in said
    assert "internal" not in said
    denied += ", public: {speculation: deny}}"
    (said,) = words(load_policy(RULES + section.replace(plain, denied)))["drafts"]
    assert said == NO_DRAFTS


def test_conditions_for_sending_are_described() -> None:
    assert not words(POLICY).keys() & {"consent", "history", "drafts"}
    classes = "confidential: {consent: required, history: redacted_extract}"
    section = ROUTING.replace("confidential: {tiers: [device]}", classes)
    described = words(load_policy(RULES + section))
    (consent,) = described["consent"]
    assert consent.startswith("confidential, ")
    assert consent.endswith(AGREED)
    assert "history" not in described, "it needs an entry for restricted turns"
    section = section.replace(classes, f"{classes}, restricted: {{history: never}}")
    assert [
        each.partition(":")[0]
        for each in words(load_policy(RULES + section))["history"]
    ] == ["restricted turns", "confidential turns"]


def test_the_source_of_the_model_is_described() -> None:
    assert "model" not in words(POLICY)
    key = base64.b64encode(bytes(32)).decode()
    other = base64.b64encode(bytes([1] * 32)).decode()
    rollout = (
        "  rollout: {name: clinic-home, log: {origin: log.example/home, "
        f"key: '{key}', witnesses: [{{name: w, key: '{other}'}}], quorum: 1}}}}\n"
    )
    (said,) = words(load_policy(RULES + ROUTING + rollout))["model"]
    for named in ("'clinic-home'", "log.example/home", "1 of 1"):
        assert named in said


def test_fates_match_the_decisions() -> None:
    everywhere = ("device", "ward", "enclave")
    listed = fates(POLICY)
    assert listed[0] == Fate(patterns=(), route=Route.ENCLAVE, tiers=everywhere)
    assert listed[1] == Fate(patterns=("secret.*",), route=Route.BLOCK, tiers=())
    by_pattern = {pattern: fate for fate in listed for pattern in fate.patterns}
    assert by_pattern["health.*"].tiers == ("device", "ward")
    assert by_pattern["uncertain.*"].tiers == ("device",)
    # Kept local only by the demand, so that the rule is the routing's.
    assert by_pattern["org.*"].route is Route.LOCAL
    assert by_pattern["org.*"].tiers == ("device",)
    assert by_pattern["legal.*"].tiers == ("enclave",)
    assert by_pattern["financial.*"].tiers == everywhere
    for pattern, fate in by_pattern.items():
        name = pattern.replace(".*", "")
        below = [each for each in POLICY.classes if f"{each}.".startswith(f"{name}.")]
        for each in below:
            assert decision_on(each).route is fate.route


def test_fates_are_described_by_place() -> None:
    lines = words(POLICY)["found"]
    tiers = {
        found: named for named, _, found in (each.partition(" may ") for each in lines)
    }
    assert list(tiers.items())[:2] == [
        (f"answer: {NO_FINDINGS}", "device, ward, enclave"),
        ("answer: secret.*", NO_TIER),
    ]
    assert tiers["answer: health.*"] == "device, ward"


# --- what `explain` says -----------------------------------------------------------


def test_explain_says_who_may_answer() -> None:
    lines = explain(POLICY, decision_on("health.condition")).splitlines()
    assert lines[0] == KEPT
    assert ": device, ward; " in lines[1]
    assert lines[1].endswith(" enclave (route).")
    lines = explain(POLICY, decision_on("secret.token")).splitlines()
    assert f": {NO_TIER}; " in lines[1]
    assert " device (route)" in lines[1]
    lines = explain(POLICY, decision_on()).splitlines()
    assert lines[1].endswith(": device, ward, enclave.")


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
def test_explain_says_it_of_a_query_that_is_sent_without_its_names(tiers: str) -> None:
    """The rewritten text is of this class at least, so a person is asked about it."""
    rules = RULES + '- {id: names, when: "identifier.direct.*", then: deidentify}\n'
    classes = f"{{tiers: [{tiers}], consent: required}}"
    policy = load_policy(rules + ROUTING.replace("{tiers: [device]}", classes))
    decision = decision_on("identifier.direct.person", policy=policy)
    assert decision.route is Route.DEIDENTIFY
    asked = tiers == "enclave"
    assert (CONSENT in explain(policy, decision).splitlines()) is asked


def test_a_local_query_needs_no_consent() -> None:
    decision = decision_on("health.condition", policy=CONSENTING)
    assert CONSENTING.routing is not None
    assert CONSENTING.routing.asks_first(decision.permitted.routing_class)
    assert CONSENT not in explain(CONSENTING, decision)
    answer = json.loads(explain_json(CONSENTING, decision))
    assert answer["permitted"]["consent"] is False


def test_explain_says_that_tiers_decided() -> None:
    text = explain(POLICY, decision_on("org.confidential"))
    assert f"{BUILT_IN[TIERS]!r}: " in text


def test_explain_json_says_who_may_answer() -> None:
    answer = json.loads(explain_json(POLICY, decision_on("health.condition")))
    assert answer["permitted"] == {
        "class": "restricted",
        "tiers": ["device", "ward"],
        "denied": {"enclave": "route"},
        "consent": False,
    }


def test_explain_says_that_the_sender_wants_it_kept_local() -> None:
    inspection = inspection_of(floor=RoutingClass.RESTRICTED)
    text = explain(POLICY, decide(POLICY.rulebook, inspection), inspection)
    assert f" {THE_SENDER}: " in text
    change = smallest_change(POLICY, inspection)
    assert change is not None
    assert (change.floor, change.absent, change.route) == (True, (), Route.ENCLAVE)
    assert change_in_words(change) in text.splitlines()


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
