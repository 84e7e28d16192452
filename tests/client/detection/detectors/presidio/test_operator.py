import json
import logging
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.chat.query import Message, Query
from curtilage.client.detection.detectors.all import equipment_of
from curtilage.client.detection.detectors.patterns.re2 import linear
from curtilage.client.detection.detectors.presidio import operator
from curtilage.client.detection.detectors.presidio.engine import blank_engine
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.inspection import Inspector
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.detection_plan import PresidioPlan
from curtilage.policy.document.load import load_policy, read_tree
from curtilage.policy.document.recognizers import GROUP, entities_of, recognizers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from presidio_analyzer import AnalyzerEngine, RecognizerResult

analyzer = pytest.importorskip(
    "presidio_analyzer", reason="SKIPPED LOUDLY: needs the extra pii"
)
YAML = r"""
recognizers:
- name: Badges
  supported_language: en
  supported_entity: BADGE
  patterns:
  - {name: badge, regex: '\bEMP-\d{4}\b', score: 0.3}
  - {name: weak, regex: '(?<!\d)\d{4}(?!\d)', score: 0.01}
  - {name: long, regex: 'EMP-\d+(?:-[a-z]+)?', score: 0.2}
  context: [badge, employee]
- name: Titles
  supported_language: en
  supported_entity: TITLE
  deny_list: [Mr., Mrs., "Prof."]
  deny_list_score: 0.7
- name: Codes
  supported_language: en
  supported_entity: CODE
  patterns:
  - {name: code, regex: '^c[äa]?\w+\d$', score: 0.5}
"""
CLASSES = {
    "BADGE": "org.dictionary.badge",
    "TITLE": "identifier.quasi.occupation",
    "CODE": "health.mrn",
}


def plan_of(text: str, classes: dict[str, str] | None = None) -> PresidioPlan:
    recognizers = recognizers_of(read_tree(text, lambda _: (), source="r"))
    named = {each: (classes or CLASSES)[each] for each in entities_of(recognizers)}
    return PresidioPlan(recognizers=recognizers, classes=tuple(sorted(named.items())))


@pytest.fixture(scope="module")
def ours() -> operator.OperatorRecognizers:
    return operator.from_yaml(plan_of(YAML))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> "AnalyzerEngine":
    file = tmp_path_factory.mktemp("presidio") / "r.yaml"
    file.write_text(YAML, "utf-8")
    registry = analyzer.RecognizerRegistry(supported_languages=["en"])
    registry.add_recognizers_from_yaml(file)
    made: AnalyzerEngine = analyzer.AnalyzerEngine(
        registry=registry, nlp_engine=blank_engine(), supported_languages=["en"]
    )
    return made


def fields_of(results: "Sequence[RecognizerResult]") -> list[tuple[object, ...]]:
    return sorted(
        (each.entity_type, each.start, each.end, each.score) for each in results
    )


TEXTS = [
    "EMP-1234",
    "the badge EMP-1234 of an employee",
    "Prof. and Mr. Miller, mr. x",
    "1234 emp-99999-ab",
    "c12\ncä7\ncab1",
    "\u0661\u0662\u0663\u0664 EMP-\u0661\u0662\u0663\u0664",
    "EMP-1234\x1cEMP-1234\x0b7",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_results_are_presidios(
    text: str, ours: operator.OperatorRecognizers, plain: "AnalyzerEngine"
) -> None:
    assert fields_of(ours.results(text)) == fields_of(
        plain.analyze(text, language="en")
    )


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(st.sampled_from([*TEXTS, " ", "badge", "\n", "é"]), max_size=6))
def test_results_are_presidios_in_longer_texts(
    parts: list[str], ours: operator.OperatorRecognizers, plain: "AnalyzerEngine"
) -> None:
    text = "".join(parts)
    assert fields_of(ours.results(text)) == fields_of(
        plain.analyze(text, language="en")
    )


def test_a_context_word_raises_a_score(ours: operator.OperatorRecognizers) -> None:
    def score(text: str) -> int:
        reading = Reading(normalization=Normalization.RAW, text=text)
        return max(
            each.score
            for each in ours.find(reading)
            if each.data_class == "org.dictionary.badge"
        )

    assert score("about EMP-1234") == 30
    assert score("about badge EMP-1234") == 65


@pytest.mark.parametrize(
    ("pattern", "linearly"),
    [
        (r"\bEMP-\d{4}\b", True),
        ("a{2,}b", True),
        (r"(?<!\d)x", False),  # none of RE2's
        ("a{,3}b", False),  # RE2 reads the braces as themselves
        ("(?:foo){e<=1}", False),
        ("(?U)x", False),
        (r"\p{Lu}x", False),
        ("x*", False),  # matches the empty text
    ],
)
def test_what_runs_in_linear_time(pattern: str, *, linearly: bool) -> None:
    assert (linear(pattern) is not None) is linearly


def test_a_pattern_that_times_out_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = (
        "{recognizers: [{name: S, supported_entity: CODE, "
        "patterns: [{regex: '(?<!x)(a|a?)+$', score: 0.5}]}]}"
    )
    ours = operator.from_yaml(plan_of(slow))
    monkeypatch.setattr(operator, "PATTERN_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError):
        ours.results("a" * 5000 + "!")


# --- in Python ----------------------------------------------------------------

MODULE = """\
from presidio_analyzer import EntityRecognizer, Pattern, PatternRecognizer
from presidio_analyzer import RecognizerResult


class Found(PatternRecognizer):
    def __init__(self):
        patterns = [Pattern("c", "zq[0-9]+", 0.6)]
        super().__init__(supported_entity="CODE", patterns=patterns)


class Raises(EntityRecognizer):
    def __init__(self):
        super().__init__(supported_entities=["CODE"])

    def load(self):
        pass

    def analyze(self, text, entities, nlp_artifacts=None):
        raise RuntimeError(text)


class Other(Raises):
    def analyze(self, text, entities, nlp_artifacts=None):
        return [RecognizerResult("ELSE", 0, 1, 0.5)]


made = Found()
def several(): return [Found(), Other()]
def broken(): raise RuntimeError("no")
def none(): return []
class Alike:  # runs where nobody looks what it is
    id, supported_entities, context = "alike", ["CODE"], []
    def analyze(self, text, entities, nlp_artifacts=None, **more): return []
    def __getattr__(self, name): return None
def unclassed():
    found = Found(); found.supported_entities = ["UNKNOWN"]; return found
"""
NAMES = (
    "Found",
    "Raises",
    "made",
    "several",
    "Other",
    "broken",
    "none",
    "Alike",
    "unclassed",
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme_recognizers.py").write_text(MODULE, "utf-8")
    info = tmp_path / "acme_recognizers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-recognizers\nVersion: 1.0\n", "utf-8"
    )
    lines = "\n".join(f"{name} = acme_recognizers:{name}" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}\n", "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def with_point(name: str, version: str = "1.0") -> PresidioPlan:
    return PresidioPlan(
        entry_points=((name, "acme-recognizers", version),),
        classes=(("CODE", "health.mrn"),),
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["Found", "made"])
def test_an_entry_point_is_loaded_and_runs(name: str) -> None:
    plan = with_point(name)
    ours = operator.from_entry_point(plan, plan.entry_points[0])
    (span,) = ours.find(Reading(normalization=Normalization.RAW, text="a zq77 b"))
    assert (span.data_class, span.start, span.end) == ("health.mrn", 2, 6)
    assert (span.detector, span.score) == (f"presidio.{name}", 60)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "version", "built"),
    [
        ("Raises", "1.0", True),
        ("Other", "1.0", True),
        ("several", "1.0", True),
        ("broken", "1.0", False),
        ("none", "1.0", False),
        ("Alike", "1.0", False),
        ("unclassed", "1.0", False),
        ("absent", "1.0", False),
        ("Found", "1.1", False),
    ],
)
def test_what_fails_keeps_every_query_home(
    name: str, version: str, *, built: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plan = load_policy(POLICY).plan
    first, _ = equipment_of(
        type(plan).from_fields(
            plan.to_fields() | {"presidio": with_point(name, version).to_fields()}
        )
    )
    ours = [each for each in first if each[0].id.startswith("presidio.")]
    scanner = Scanner(ours)
    assert scanner.broken == (() if built else (f"presidio.{name}",))
    (spans,) = scanner.scan(["canary 4711"])
    assert {each.data_class for each in spans} == {"uncertain.error"}
    assert "canary" not in caplog.text


POLICY = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
"""


@pytest.mark.usefixtures("installed")
def test_what_starts_says_what_could_not_be_built() -> None:
    points = "".join(
        f"{{name: {name}, distribution: acme-recognizers, version: '1.0'}}, "
        for name in ("Found", "broken")
    )
    policy = load_policy(
        f"{POLICY}detectors:\n  presidio:\n    entry_points: [{points}]\n"
        "    classes: {CODE: health.mrn}\n"
    )
    inspector = Inspector.start(policy, spare=False)
    try:
        advice = inspector.advice
        query = Query(messages=(Message(role="user", content="What about zq77?"),))
        found = {each.data_class for each in inspector.inspect(query).findings}
    finally:
        inspector.close()
    assert advice is not None
    assert advice.startswith("presidio.broken: ")
    assert {"uncertain.error", "health.mrn"} <= found


# --- the document -------------------------------------------------------------

REFERENCE = Path(__file__).parents[5] / "docs" / "policy-reference.md"


def test_the_example_in_the_reference_works() -> None:
    section = REFERENCE.read_text("utf-8").partition("### Presidio recognizers")[2]
    blocks = [each.partition("```")[0] for each in section.split("```yaml\n")[1:3]]

    def read(name: str) -> bytes:
        assert name == "recognizers.yaml"
        return blocks[1].encode()

    policy = load_policy(POLICY + dedent(blocks[0]), files=read)
    ours = operator.from_yaml(policy.plan.presidio)
    text = "Badge EMP-1234 opens ward 3 west"
    reading = Reading(normalization=Normalization.RAW, text=text)
    found = {
        each.data_class: text[each.start : each.end] for each in ours.find(reading)
    }
    assert found == {
        "org.dictionary.badge": "EMP-1234",
        "identifier.quasi.city": "ward 3 west",
    }
    assert json.loads(policy.plan.presidio.recognizers[0])["name"] == "Badges"
