import re
from importlib import resources

import pytest

from curtilage.client.detection.detectors.presidio.catalog import RECOGNIZERS
from curtilage.policy.decision.classes import CLASSES, expand
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_pack, load_policy, pack_text, read_pack
from curtilage.policy.document.model import PACKS
from curtilage.policy.document.packs import Pack
from curtilage.policy.errors import PolicyError, Problem
from support.examples import examples
from support.inspections import inspection_of

HEAD = "version: 1\ndefault: {decision: enclave}\n"
FIRST = 'rules:\n- {id: any-uncertain, when: "uncertain.*", then: local}\n'
LOADED = [load_pack(name) for name in PACKS]
RULES = [(pack, rule) for pack in LOADED for rule in pack.rules]

# A paragraph, an article, a requirement or a control; not merely a law's name.
PLACE = re.compile(
    r"(Articles?|recital|requirement|control|section|Rule|Part) (of )?"
    r"(Evidence )?[A-Z]?[0-9]|[0-9]+ (CFR|U\.S\.C\.) (Part )?[0-9]|IA-5"
)
SMALL = """\
pack: pci
title: Cards
source: PCI DSS
covers:
- {item: PAN, text: A number, classes: [financial.pan], how: by its digits}
recognizers: [CreditCardRecognizer]
rules:
- {id: card, when: financial.pan, then: local, reason: PCI DSS}
"""


def test_every_pack_is_a_file_and_every_file_a_pack() -> None:
    folder = resources.files("curtilage.policy") / "packs"
    names = {place.name.removesuffix(".yaml") for place in folder.iterdir()}
    assert names == set(PACKS)


@pytest.mark.parametrize("pack", LOADED, ids=PACKS)
def test_a_pack_says_what_it_covers(pack: Pack) -> None:
    assert pack.title
    assert len(pack.source) > 20
    assert len({each.item for each in pack.covers}) == len(pack.covers) > 3
    assert all(len(each.how) > 10 for each in pack.covers)


@examples("rule", [rule for _, rule in RULES])
def test_every_rule_cites_a_place_in_a_law_or_standard(rule: object) -> None:
    reason = str(getattr(rule, "reason"))  # noqa: B009 - any kind of rule
    assert PLACE.search(reason), reason
    assert len(reason) > 60


def test_a_rule_id_is_in_one_pack_only() -> None:
    ids = [rule.id for _, rule in RULES]
    assert len(set(ids)) == len(ids)
    assert "any-uncertain" not in ids


def test_rules_that_others_name_keep_their_names() -> None:
    assert {rule.id for _, rule in RULES} >= {
        "secret",
        "payment-card",
        "bank-account",
        "tax-id",
        "personal-finance",
        "government-id",
        "contact",
        "device",
        "biometric",
        "record-number",
        "mosaic",
        "person-name",
        "phi",
        "special-category",
        "privilege",
        "export-control",
        "confidential",
    }


def test_only_a_name_is_replaced() -> None:
    replaced = {rule.id for _, rule in RULES if rule.then is Route.DEIDENTIFY}
    assert replaced == {"person-name", "named-person"}
    assert {rule.then for _, rule in RULES} == {Route.LOCAL, Route.DEIDENTIFY}


def test_safe_harbor_is_covered_from_a_to_r() -> None:
    covers = load_pack("hipaa").covers
    assert [each.item for each in covers] == list("ABCDEFGHIJKLMNOPQR")


def test_article_9_is_covered_class_by_class() -> None:
    covered = {
        name
        for cover in load_pack("gdpr").covers
        if cover.item.startswith(("9", "10"))
        for pattern in cover.classes
        for name in expand(pattern)
    }
    assert covered >= {name for name in CLASSES if name.startswith("special.")}
    assert covered >= {name for name in CLASSES if name.startswith("health.")}


# What a law lists although no rule of its pack keeps it home by itself.
FREE = {
    "financial.pan_masked",
    "identifier.quasi.url",
    "topic.finance",
    "uncertain.attachment",
    "uncertain.number_run",
    "uncertain.opaque_blob",
    "uncertain.name",
}


@pytest.mark.parametrize("pack", LOADED, ids=PACKS)
def test_what_a_pack_covers_its_rules_name(pack: Pack) -> None:
    text = HEAD + f"packs: [{pack.pack}]\n" + FIRST
    named = frozenset[str]().union(
        *(rule.condition.classes for rule in load_policy(text).rules)
    )
    covered = {
        name
        for cover in pack.covers
        for pattern in cover.classes
        for name in expand(pattern)
    }
    # Money in the laws on health and privacy, and the like, where it is alone.
    assert covered - named <= FREE


def test_every_recognizer_is_one_that_may_run() -> None:
    named = {name for pack in LOADED for name in pack.recognizers}
    assert named <= set(RECOGNIZERS)
    assert set(RECOGNIZERS) <= named


def test_recognizers_are_sorted_and_each_once() -> None:
    for pack in LOADED:
        assert list(pack.recognizers) == sorted(set(pack.recognizers))


def route_of(packs: str, *names: str) -> Route:
    findings = tuple(
        Finding(
            data_class=name,
            detector="test",
            start=0,
            end=5,
            score=60,
            validated=False,
            normalization=Normalization.RAW,
            where=Where(message=index, role="user", json_path="content"),
        )
        for index, name in enumerate(names)
    )
    policy = load_policy(HEAD + f"packs: [{packs}]\n" + FIRST)
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    return decide(policy.rulebook, inspection).route


PERSON = "identifier.direct.person"
SPEAKER = "marker.first_person"


@examples(
    ("packs", "names", "route"),
    [
        ("secrets", "secret.token", Route.LOCAL),
        ("secrets", "financial.pan", Route.ENCLAVE),
        ("pci", "financial.pan", Route.LOCAL),
        ("pci", "financial.cvv", Route.LOCAL),
        ("pci", "financial.track", Route.LOCAL),
        ("pci", "financial.pan_masked", Route.ENCLAVE),
        ("pci", f"financial.pan_masked {PERSON}", Route.LOCAL),
        ("pci", "financial.expiry", Route.ENCLAVE),
        ("hipaa", PERSON, Route.DEIDENTIFY),
        ("hipaa", "health.condition", Route.ENCLAVE),
        ("hipaa", "topic.health", Route.ENCLAVE),
        ("hipaa", f"health.condition {SPEAKER}", Route.LOCAL),
        ("hipaa", f"topic.health {PERSON}", Route.LOCAL),
        ("hipaa", "health.condition identifier.quasi.city", Route.ENCLAVE),
        ("hipaa", "health.condition identifier.quasi.age", Route.ENCLAVE),
        ("hipaa", "health.condition identifier.quasi.date", Route.ENCLAVE),
        ("hipaa", "health.condition identifier.quasi.age90", Route.LOCAL),
        ("hipaa", "health.condition marker.case", Route.ENCLAVE),
        ("hipaa", "health.lab marker.case identifier.quasi.zip", Route.LOCAL),
        ("hipaa", "health.mrn", Route.LOCAL),
        ("hipaa", "health.dea", Route.LOCAL),
        ("hipaa", "financial.account", Route.ENCLAVE),
        ("hipaa", "financial.account health.lab", Route.LOCAL),
        ("hipaa", "identifier.direct.vehicle", Route.LOCAL),
        ("hipaa", f"special.religion {PERSON}", Route.DEIDENTIFY),
        ("gdpr", PERSON, Route.DEIDENTIFY),
        ("gdpr", "identifier.direct.gov_id.pl_pesel", Route.LOCAL),
        ("gdpr", "financial.tax_id", Route.LOCAL),
        ("gdpr", "special.religion", Route.LOCAL),
        ("gdpr", "topic.special", Route.ENCLAVE),
        ("gdpr", f"topic.special {SPEAKER}", Route.LOCAL),
        ("gdpr", "topic.hr", Route.ENCLAVE),
        ("gdpr", f"topic.hr {SPEAKER}", Route.LOCAL),
        ("gdpr", f"special.religion {SPEAKER}", Route.LOCAL),
        ("gdpr", f"topic.special {PERSON}", Route.LOCAL),
        ("gdpr", f"special.criminal {PERSON}", Route.LOCAL),
        ("gdpr", f"health.condition {SPEAKER}", Route.LOCAL),
        ("gdpr", "special.biometric", Route.LOCAL),
        ("glba", "financial.iban", Route.LOCAL),
        ("glba", "identifier.direct.gov_id.us_ssn", Route.LOCAL),
        ("glba", "financial.balance", Route.ENCLAVE),
        ("glba", f"financial.balance {SPEAKER}", Route.LOCAL),
        ("glba", "topic.finance", Route.ENCLAVE),
        ("glba", f"topic.finance {SPEAKER}", Route.LOCAL),
        ("glba", f"topic.finance {PERSON}", Route.ENCLAVE),
        ("legal_export", "legal.docket", Route.LOCAL),
        ("legal_export", "export.eccn", Route.LOCAL),
        ("legal_export", "org.confidential", Route.LOCAL),
        ("legal_export", "topic.legal", Route.ENCLAVE),
        ("legal_export", f"topic.legal {SPEAKER}", Route.LOCAL),
        ("legal_export", "topic.legal financial.tax_id", Route.LOCAL),
    ],
)
def test_a_pack_decides(packs: str, names: str, route: Route) -> None:
    assert route_of(packs, *names.split()) is route


@pytest.mark.parametrize("pack", ["hipaa", "gdpr"])
def test_data_of_one_person_is_kept_local_under_either_law(pack: str) -> None:
    replaced = {PERSON, "identifier.direct.username", "identifier.direct.url_personal"}
    for name in expand("identifier.direct.*"):
        expected = Route.DEIDENTIFY if name in replaced else Route.LOCAL
        assert route_of(pack, name) is expected, name


def test_packs_add_up() -> None:
    assert route_of("pci, secrets", "secret.token") is Route.LOCAL
    assert route_of("pci, gdpr", PERSON, "financial.pan") is Route.LOCAL
    assert route_of("", "financial.pan") is Route.ENCLAVE


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    return caught.value.problems


@pytest.mark.parametrize("name", ["hippa", "PCI", "../profiles/default", ""])
def test_an_unknown_pack_is_refused(name: str) -> None:
    (problem,) = problems_of(HEAD + f"packs: [pci, '{name}']\n" + FIRST)
    assert (problem.line, problem.path) == (3, "packs[1]")
    assert "'secrets', 'pci', 'hipaa'" in problem.message
    for read in (pack_text, load_pack):
        with pytest.raises(KeyError):
            read(name)


def test_a_pack_is_named_once() -> None:
    (problem,) = problems_of(HEAD + "packs: [pci, gdpr, pci]\n" + FIRST)
    assert "twice" in problem.message


def test_a_policy_cannot_take_the_id_of_a_packs_rule() -> None:
    rule = "- {id: phi, when: secret.token, then: local}\n"
    (problem,) = problems_of(HEAD + "packs: [pci, hipaa]\n" + FIRST + rule)
    assert (problem.line, problem.path) == (6, "rules[1].id")
    assert "'hipaa'" in problem.message
    load_policy(HEAD + "packs: [pci]\n" + FIRST + rule)


def test_all_problems_of_a_policy_are_reported_at_once() -> None:
    rule = "- {id: phi, when: nothing, then: local}\n"
    text = HEAD + "packs: [hipaa, hippa]\n" + FIRST + rule
    assert len(problems_of(text)) == 3


def test_any_uncertain_is_needed_in_addition_to_packs() -> None:
    text = HEAD + f"packs: [{', '.join(PACKS)}]\nrules: []\n"
    (problem,) = problems_of(text)
    assert "cannot be removed" in problem.message


def test_a_rule_knows_its_pack() -> None:
    policy = load_policy(HEAD + "packs: [pci, secrets]\n" + FIRST)
    assert [(rule.id, rule.pack) for rule in policy.rules] == [
        ("payment-card", "pci"),
        ("cardholder", "pci"),
        ("secret", "secrets"),
        ("any-uncertain", ""),
    ]


def test_the_policys_thresholds_hold_for_packs() -> None:
    text = HEAD + "packs: [hipaa]\n" + FIRST
    assert load_policy(text).rules[1].condition.holds({"identifier.direct.email": 60})
    strict = load_policy(text + "thresholds: {direct: 61}\n")
    assert not strict.rules[1].condition.holds({"identifier.direct.email": 60})


def test_a_small_pack_loads() -> None:
    pack = read_pack(SMALL, name="pci")
    assert (pack.pack, pack.recognizers) == ("pci", ("CreditCardRecognizer",))
    assert pack.covers[0].classes == ("financial.pan",)


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "said"),
    [
        ("pack: pci", "pack: gdpr", 1, "pack", "this file is the pack 'pci'"),
        ("title: Cards\n", "", 1, "title", "this key is missing"),
        ("title: Cards", "title: ''", 2, "title", "at least 1 char"),
        ("source:", "sauce: x\nsource:", 3, "sauce", "unknown key"),
        ("source:", "exclude: []\nsource:", 3, "exclude", "unknown key"),
        ("source:", "thresholds: {}\nsource:", 3, "thresholds", "unknown key"),
        ("[financial.pan]", "[org.*, org]", 5, "covers[0].classes[1]", "write"),
        ("[financial.pan]", "[]", 5, "covers[0].classes", "at least 1 item"),
        (", how: by its digits", "", 5, "covers[0].how", "missing"),
        ("[CreditCardRecognizer]", "[card]", 6, "recognizers[0]", "pattern"),
        ("[CreditCardRecognizer]", "[Abc, Abc]", 6, "recognizers", "twice"),
        ("when: financial.pan", "when: pan", 8, "rules[0].when", "unknown class"),
        ("when: financial.pan", "when: org.edm.x", 8, "rules[0].when", "no detector"),
        (", reason: PCI DSS", "", 8, "rules[0]", "gives its reason"),
        ("id: card", "id: default", 8, "rules[0].id", "is reserved"),
        ("id: card", "id: any-uncertain", 8, "rules[0].id", "in no pack"),
    ],
)
def test_a_broken_pack_is_reported_by_line(
    old: str, new: str, line: int, path: str, said: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        read_pack(SMALL.replace(old, new, 1), name="pci")
    assert caught.value.source == "pack pci"
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (line, path)
    assert said in problem.message


def test_rules_of_a_pack_have_different_ids() -> None:
    rule = SMALL.splitlines()[-1]
    with pytest.raises(PolicyError, match="same id"):
        read_pack(f"{SMALL}{rule}\n", name="pci")


def test_a_pack_that_is_not_yaml_is_reported() -> None:
    with pytest.raises(PolicyError, match="not YAML"):
        read_pack("pack: [", name="pci")
