import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.detection_plan import (
    NOT_THE_FIELDS,
    DetectionPlan,
    ExclusionList,
    NerPlan,
    OwnDetector,
    PresidioPlan,
)
from curtilage.policy.document.load import (
    PROFILES,
    load_policy,
    load_profile,
    profile_text,
)
from support.inspections import inspection_of

ANY = '- {id: any-uncertain, when: "uncertain.*", then: local}\n'
WORDS = st.text(max_size=8)
MANY = st.lists(WORDS, max_size=3).map(tuple)
SCORES = st.integers(0, 100)
HEX = st.binary(max_size=4).map(bytes.hex)
DATA_CLASSES = st.sampled_from([*sorted(CLASSES), "org.dictionary.x", "org.edm.y2"])
NER = st.builds(
    NerPlan,
    engine=st.sampled_from(["none", "embedded", "spacy", "transformers"]),
    path=WORDS,
    sha256=HEX,
    labels=st.lists(st.tuples(WORDS, DATA_CLASSES), max_size=3).map(tuple),
    recall=st.integers(0, 300),
)
OWN = st.builds(
    OwnDetector,
    id=WORDS,
    kind=st.sampled_from(["regex", "dictionary", "edm"]),
    data_class=DATA_CLASSES,
    base_score=SCORES,
    pattern=WORDS,
    entries=MANY,
    salt=HEX,
    context=MANY,
    window=st.integers(0, 1000),
    boost=SCORES,
    validate=WORDS,
    exclude=MANY,
)
LISTS = st.builds(
    ExclusionList,
    name=WORDS,
    classes=st.lists(DATA_CLASSES, max_size=3).map(tuple),
    entries=MANY,
)
PLANS = st.builds(
    DetectionPlan,
    packs=MANY,
    recognizers=MANY,
    ner=NER,
    detectors=st.lists(OWN, max_size=2).map(tuple),
    scan=st.sampled_from(["early_exit", "full"]),
    exit_classes=st.lists(DATA_CLASSES, max_size=3).map(tuple),
    lists=st.lists(LISTS, max_size=2).map(tuple),
)
DETECTOR = OwnDetector(
    id="project",
    kind="dictionary",
    data_class="org.dictionary.project",
    base_score=80,
    entries=("canary",),
    salt="0a",
    exclude=("canary",),
)
LISTED = ExclusionList(
    name="l.txt", classes=("identifier.direct.person",), entries=("canary",)
)
PLAN = DetectionPlan(
    packs=("pci",),
    recognizers=("CreditCardRecognizer",),
    ner=NerPlan(engine="spacy", path="/m", sha256="00", labels=(("P", "org.edm.x"),)),
    detectors=(DETECTOR,),
    scan="early_exit",
    exit_classes=("financial.pan",),
    lists=(LISTED,),
    languages=("de", "en"),
)


POINTS = PresidioPlan(entry_points=(("code", "acme", "1"),)).to_fields()


@settings(deadline=None, max_examples=40)  # a busy machine is no finding
@given(PLANS)
def test_a_plan_comes_back_from_json(plan: DetectionPlan) -> None:
    assert DetectionPlan.from_fields(json.loads(json.dumps(plan.to_fields()))) == plan


def test_a_plan_has_the_languages_that_the_policy_names() -> None:
    # English is not among them, so a text in English is kept local.
    text = f"version: 1\nlanguages: [fr, de]\nrules:\n{ANY}"
    assert load_policy(text).plan.languages == ("de", "fr")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profiles_plan_comes_back_from_json(name: str) -> None:
    plan = load_profile(name).plan
    assert plan.packs
    assert DetectionPlan.from_fields(json.loads(json.dumps(plan.to_fields()))) == plan


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, {"packs": []}])
def test_from_fields_refuses_other_values(value: object) -> None:
    with pytest.raises(ValueError, match=f"{NOT_THE_FIELDS} DetectionPlan"):
        DetectionPlan.from_fields(value)


@pytest.mark.parametrize("key", [each.name for each in fields(DetectionPlan)])
def test_from_fields_refuses_a_missing_key(key: str) -> None:
    value = PLAN.to_fields()
    del value[key]
    with pytest.raises(ValueError, match=f"{NOT_THE_FIELDS} DetectionPlan"):
        DetectionPlan.from_fields(value)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *((each.name, None) for each in fields(DetectionPlan)),
        ("unknown", 1),
        ("packs", ["pci", 3]),
        ("packs", "pci"),
        ("scan", "some"),
        ("exit_classes", ["financial.nothing"]),
        ("detectors", [None]),
        ("lists", [None]),
        ("languages", [7]),
        ("presidio", POINTS | {"entry_points": [["code", "acme"]]}),
        ("presidio", POINTS | {"classes": [["CODE"]]}),
        ("presidio", POINTS | {"recognizers": "{}"}),
    ],
)
def test_from_fields_refuses_wrong_values(key: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^(expected|{NOT_THE_FIELDS})"):
        DetectionPlan.from_fields(PLAN.to_fields() | {key: wrong})


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *((each.name, None) for each in fields(NerPlan)),
        ("engine", "own"),
        ("sha256", "xyz"),
        ("sha256", "abc"),
        ("labels", [["P"]]),
        ("labels", [["P", "person"]]),
        ("recall", 301),
        ("recall", -1),
        ("recall", True),
        ("unknown", 1),
    ],
)
def test_ner_plan_refuses_wrong_values(key: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^(expected|{NOT_THE_FIELDS})"):
        NerPlan.from_fields(PLAN.ner.to_fields() | {key: wrong})


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *((each.name, None) for each in fields(OwnDetector)),
        ("kind", "own"),
        ("data_class", "org.project"),
        ("base_score", 101),
        ("base_score", 5.0),
        ("entries", [3]),
        ("salt", "0A"),
        ("window", 1001),
        ("boost", -1),
        ("unknown", 1),
    ],
)
def test_own_detector_refuses_wrong_values(key: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^(expected|{NOT_THE_FIELDS})"):
        OwnDetector.from_fields(DETECTOR.to_fields() | {key: wrong})


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *((each.name, None) for each in fields(ExclusionList)),
        ("classes", ["person"]),
        ("unknown", 1),
    ],
)
def test_exclusion_list_refuses_wrong_values(key: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^(expected|{NOT_THE_FIELDS})"):
        ExclusionList.from_fields(LISTED.to_fields() | {key: wrong})


def test_no_repr_shows_an_entry() -> None:
    assert "canary" not in repr(PLAN)
    assert "0a" not in repr(DETECTOR)


def test_plan_of_the_smallest_policy_runs_nothing_of_others() -> None:
    plan = load_policy(f"version: 1\nrules:\n{ANY}").plan
    assert plan == DetectionPlan(
        packs=(),
        recognizers=(),
        ner=NerPlan(engine="none"),
        detectors=(),
        scan="full",
        exit_classes=(),
    )


def test_plan_takes_the_union_of_the_packs_recognizers() -> None:
    def recognizers(packs: str) -> tuple[str, ...]:
        text = f"version: 1\npacks: [{packs}]\nrules:\n{ANY}"
        return load_policy(text).plan.recognizers

    assert recognizers("secrets") == ()
    assert recognizers("pci, secrets") == ("CreditCardRecognizer",)
    both = set(recognizers("hipaa")) | set(recognizers("gdpr"))
    assert recognizers("gdpr, hipaa") == tuple(sorted(both))


def test_plan_hands_on_the_policys_own_model() -> None:
    digest = "ab" * 32
    plan = load_policy(
        f"version: 1\nrules:\n{ANY}"
        f"ner: {{engine: spacy, path: /m, sha256: {digest}, recall: 40,\n"
        "  labels: {PER: identifier.direct.person, LOC: identifier.quasi.city}}\n"
    ).plan
    assert plan.ner == NerPlan(
        engine="spacy",
        path="/m",
        sha256=digest,
        labels=(("LOC", "identifier.quasi.city"), ("PER", "identifier.direct.person")),
        recall=40,
    )


def exit_classes(text: str) -> tuple[str, ...]:
    return load_policy(text).plan.exit_classes


@pytest.mark.parametrize("name", PROFILES)
def test_exit_classes_are_those_that_settle_the_route(name: str) -> None:
    text = profile_text(name).replace("scan: full", "scan: early_exit")
    policy = load_policy(text)
    settled = set(policy.plan.exit_classes)
    assert "financial.pan" in settled
    for data_class in CLASSES:
        finding = Finding(
            data_class=data_class,
            detector="test",
            start=3,
            end=9,
            score=1,
            validated=True,
            normalization=Normalization.COMPACT,
            where=Where(message=2, role="tool", json_path="content"),
        )
        inspection = inspection_of(
            findings=(finding,), payload_digest=bytes(32), messages=3
        )
        home = decide(policy.rulebook, inspection).route is Route.LOCAL
        assert home is (data_class in settled), data_class


def test_nothing_exits_early_where_something_could_block() -> None:
    early = f"version: 1\nscan: early_exit\nrules:\n{ANY}"
    assert "uncertain.error" in exit_classes(early)
    block = '- {id: never, when: "secret.* & topic.hr", then: block}\n'
    assert exit_classes(early + block) == ()
    assert exit_classes(early.replace("local", "block")) == ()
    assert exit_classes(early + "default: {decision: block}\n") == ()
    assert exit_classes(early.replace("early_exit", "full")) == ()


def test_a_rule_of_deidentification_settles_nothing() -> None:
    text = f"version: 1\nscan: early_exit\npacks: [hipaa]\nrules:\n{ANY}"
    assert "identifier.direct.person" not in exit_classes(text)
    assert "identifier.direct.email" in exit_classes(text)


def test_a_plan_differs_with_each_of_its_parts() -> None:
    assert replace(PLAN, scan="full") != PLAN
    assert replace(PLAN, detectors=()) != PLAN
