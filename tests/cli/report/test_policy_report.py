import base64
import json
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from functools import cache
from html import unescape
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError
from typing_extensions import override

from curtilage.cli.report.charts import (
    Bar,
    Interval,
    Line,
    Point,
    bar_chart,
    line_chart,
)
from curtilage.cli.report.class_names import CLASSES_IN_WORDS, class_in_words, in_words
from curtilage.cli.report.evaluation_json import (
    MAX_BYTES,
    CurvePoint,
    MeasuredError,
    parse_measured,
)
from curtilage.cli.report.figures import curve_chart
from curtilage.cli.report.html import rendered
from curtilage.cli.report.policy_report import ROUTE_WORDS, Report, render
from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.conditions import parse_condition
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.document.load import (
    PROFILES,
    load_pack,
    load_policy,
    load_profile,
    profile_text,
)
from curtilage.policy.document.model import Policy
from support.fakes import returns
from support.inspections import inspection_of

MADE = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"
VOID = {"meta", "br"}


@cache
def profile(name: str) -> Policy:
    return load_profile(name)


def figure(name: str, value: float, **more: object) -> dict[str, object]:
    return {
        "id": name,
        "group": name.partition(".")[0],
        "title": f"figure {name}",
        "unit": "share",
        "value": value,
        "low": value - 0.02,
        "high": value + 0.02,
        "n": 500,
        "sense": ">=",
        "target": 0.95,
        "met": value >= 0.95,
        "stock": {"value": 0.24, "low": 0.2, "high": 0.28},
        "note": "",
    } | more


def evaluation(**more: object) -> dict[str, object]:
    return {
        "format": 1,
        "date": "2026-11-21",
        "data": "data",
        "part": "held-out",
        "policy": {"source": "x", "digest": profile("default").digest},
        "missing": [],
        "figures": [
            figure("identifying.one", 0.97),
            figure("leave.two", 0.91, note="a note"),
            figure("leave.three", 0.99, target=None, sense=None, met=None, stock=None),
            figure("names.none", 0.0, n=0),
            figure("latency.p99", 11.2, unit="ms", sense="<=", target=15, met=True),
            figure("fairness.gap", 0.03, unit="points", met=True),
            figure("latency.ratio", 3.4, unit="ratio"),
            figure("sockets.opened", 0, unit="count"),
        ],
        "curve": [
            {"knob": knob, "setting": 10 * at, "recall": 0.9 + at / 100, "leave": 0.9}
            for knob in ("direct", "recall")
            for at in range(9)
        ],
    } | more


def page(policy: Policy | None = None, *, measured: object = None) -> str:
    return render(
        Report(
            policy=policy or profile("default"),
            name="mine",
            made=MADE,
            measured=None
            if measured is None
            else parse_measured(json.dumps(measured).encode()),
            signature="Not checked",
        )
    )


class Checker(HTMLParser):
    """Collects tags that do not close in order, and every attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.attributes: set[str] = set()
        self.tags: set[str] = set()
        self.text = ""

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    return checker


@pytest.mark.parametrize("name", PROFILES)
def test_the_page_of_every_profile_is_whole_and_closed(name: str) -> None:
    html = page(profile(name), measured=evaluation())
    checker = checked(html)
    assert checker.wrong == []
    assert checker.open == []
    assert html.startswith("<!DOCTYPE html>")
    assert profile(name).digest in checker.text


def test_the_page_has_no_external_references() -> None:
    html = page(measured=evaluation())
    checker = checked(html)
    assert not checker.tags & {"script", "link", "img", "iframe", "object", "a", "base"}
    assert not {name for name in checker.attributes if name.startswith("on")}
    assert not checker.attributes & {"src", "href", "action", "srcset", "xlink:href"}
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_the_page_explains_each_rule() -> None:
    policy = profile("default")
    text = checked(page(policy)).text
    for rule in policy.rules:
        assert rule.id in text
        assert " ".join(rule.reason.split()) in " ".join(text.split())


def test_the_page_has_the_tables_of_its_packs() -> None:
    bare = load_policy(
        "version: 1\npacks: [pci]\n"
        'rules:\n- {id: any-uncertain, when: "uncertain.*", then: local}\n'
    )
    text = " ".join(checked(page(bare)).text.split())
    for cover in load_pack("pci").covers:
        assert " ".join(cover.text.split()) in text
    absent = text.partition("Not part of this policy: ")[2]
    assert load_pack("hipaa").title in absent
    assert load_pack("pci").title not in absent


HOSTILE_POLICY = f"""\
version: 1
default: {{decision: enclave}}
rules:
- {{id: any-uncertain, when: "uncertain.*", then: local, reason: {json.dumps(HOSTILE)}}}
- {{id: bare, when: "secret.token & health.lab", within: span, then: block}}
exclude:
- {{class: org.confidential, unless: health.lab, reason: {json.dumps(HOSTILE)}}}
"""


def test_hostile_texts_stay_texts() -> None:
    policy = load_policy(HOSTILE_POLICY, source=HOSTILE)
    measured = evaluation(
        data=HOSTILE,
        missing=[HOSTILE],
        figures=[figure("leave.x", 0.5, title=HOSTILE, note=HOSTILE)],
        curve=[{"knob": HOSTILE, "setting": 1, "recall": 0.5, "leave": 0.5}],
    )
    report = Report(
        policy=policy,
        name=HOSTILE,
        made=MADE,
        measured=parse_measured(json.dumps(measured).encode()),
        signature=HOSTILE,
    )
    html = render(report)
    checker = checked(html)
    assert checker.wrong == []
    assert checker.open == []
    assert not checker.tags & {"script", "img"}
    assert "onerror" not in checker.attributes
    assert checker.text.count("alert(1)") >= 8


def test_a_value_that_was_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        rendered("policy_report.html", words={})


def test_a_curve_is_one_file_without_outside_resources() -> None:
    points = [
        CurvePoint(knob=knob, setting=setting, recall=0.9, leave=setting / 100)
        for knob in ("all", "<name>")
        for setting in (10, 50)
    ]
    text = curve_chart(points, file_title="A & B")
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.tag.endswith("svg")
    assert [each.text for each in root.iter() if each.tag.endswith("}title")] == [
        "A & B",
        "<name> 10: recall 90.0%, may be sent 10.0%",
        "<name> 50: recall 90.0%, may be sent 50.0%",
        "all 10: recall 90.0%, may be sent 10.0%",
        "all 50: recall 90.0%, may be sent 50.0%",
    ]
    assert "href" not in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "--paper: #ffffff" in text


def test_an_empty_curve_is_drawn_only_in_a_file() -> None:
    assert curve_chart([]) == ""
    assert curve_chart([], file_title="none").startswith("<svg")


def test_the_page_shows_what_a_policy_ignores() -> None:
    text = checked(page(load_policy(HOSTILE_POLICY))).text
    assert "Ignored: org.confidential, unless health.lab." in text
    assert "no reason is given" in text
    assert "at the same place" in text
    assert "None is named, so nothing is sent to an enclave." in text


def test_the_page_says_whether_public_figures_are_persons() -> None:
    said = checked(page(load_profile("default"))).text
    assert "A person of history or of fiction may be named, if" in said
    clinic = checked(page(load_profile("clinic"))).text
    assert "A person of history or of fiction counts as a person." in clinic


SETTINGS = """\
version: 1
sticky: validated
strict_topics: true
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
exclude:
- {class: identifier.direct.person, dictionary: famous.txt}
detectors:
  wall: required
  own:
  - id: code
    kind: dictionary
    class: org.dictionary.code
    entries: [osprey]
    base_score: 9
attestation:
  environment: development
  trust_anchors: []
  required_cpu_tees: [emulated-sev-snp]
  releases:
    names: [enclave]
    log: {origin: log.example, key: KEY, witnesses: [], quorum: 1}
    max_checkpoint_age_s: 60
  snp:
    min_version: 3
    vmpl: [0]
    allow_vlek: false
    allow_masked_chip: false
    min_tcb: []
  freshness: {max_key_lifetime_s: 60, max_evidence_age_s: 90, clock_skew_s: 1}
"""


def test_the_page_shows_the_settings() -> None:
    key = base64.b64encode(bytes(32)).decode()
    policy = load_policy(SETTINGS.replace("KEY", key), files=returns(b"Ada Lovelace"))
    text = checked(page(policy)).text
    for words in (
        "Emulated SEV-SNP, which proves nothing; but no root is pinned for it",
        "Without the kernel's isolation, no detector starts.",
        "enclave, in the log log.example, seen by 1 of 0 witnesses in the last",
        "At most 90 seconds old, for keys that live at most 1 minute; clocks may",
        "DEVELOPMENT: emulated evidence, and a TPM by itself, may be trusted",
        "Once a question with a valid check digit was kept local",
        "in the list 'famous.txt'.",
        "A dictionary of the organisation: a word from the list 'code'.",
        "Talk of a sensitive topic without a person is kept local.",
    ):
        assert words in text, words
    assert "names no enclave, so nothing" not in text


def test_a_figure_of_an_unknown_group_is_in_the_table_alone() -> None:
    html = page(measured=evaluation(curve=[], figures=[figure("new.x", 0.5, met=None)]))
    assert "<svg" not in html
    assert "figure new.x" in checked(html).text


def test_a_page_without_measurement_says_so() -> None:
    assert "No measurement was given" in checked(page()).text


def test_a_measurement_of_another_policy_is_marked() -> None:
    foreign = evaluation(policy={"source": "y", "digest": "sha256:other"})
    assert "another policy" in checked(page(measured=foreign)).text
    assert "another policy" not in checked(page(measured=evaluation())).text


def test_figures_are_shown_in_their_units() -> None:
    text = checked(page(measured=evaluation(missing=["pupa"]))).text
    for words in (
        "97.0%",
        "95.0% to 99.0%",
        "at least 95.0% met",
        "at least 95.0% not met",
        "11.20 ms",
        "at most 15.00 ms met",
        "3.0 points",
        "3.4 times",
        "not measured",
        "Not measured, data missing: pupa.",
        "a note",
        "4 of 7",
    ):
        assert words in text, words


def test_a_measurement_may_have_no_curve_and_no_share() -> None:
    bare = evaluation(curve=[], figures=[figure("latency.x", 1.5, unit="ms")])
    assert "<svg" not in page(measured=bare)


def test_a_chart_keeps_within_its_frame() -> None:
    one = Interval(value=1.0, low=0.9, high=1.1)
    chart = bar_chart([Bar(label="a " * 80, measured=one, target=1.0)], title="t")
    width = float(chart.split('viewBox="0 0 ')[1].split(" ")[0])
    places = re.findall(r'\b(?:x1|x2|x)="([0-9.]+)"', chart)
    assert places
    assert all(0 <= float(each) <= width for each in places)
    assert "…" in chart
    assert checked(chart).open == []


def test_a_bar_is_labelled_in_words_and_numbers() -> None:
    bar = Bar(
        label="one",
        measured=Interval(value=0.5, low=0.4, high=0.6),
        target=0.95,
        stock=Interval(value=0.25, low=0.2, high=0.3),
    )
    text = checked(bar_chart([bar], title="title")).text
    for words in ("title", "one", "50.0%", "plain 25.0%", "100%"):
        assert words in text


@pytest.mark.parametrize(
    ("values", "least"),
    [([], "0%"), ([0.0], "0%"), ([0.55], "50%"), ([0.93, 0.99], "90%"), ([1.0], "90%")],
)
def test_axes_begin_below_the_data(values: list[float], least: str) -> None:
    points = tuple(Point(x=each, y=each, label="p") for each in values)
    chart = line_chart([Line(name="n", points=points)], title="t", x="x", y="y")
    assert checked(chart).text.startswith(f"t{least}")


def test_every_class_has_words() -> None:
    numbers = {each for each in CLASSES if each.startswith("identifier.direct.gov_id.")}
    assert set(CLASSES_IN_WORDS) == CLASSES - numbers
    for name in numbers:
        assert class_in_words(name).startswith("a national number (")
    assert class_in_words("org.dictionary.x") == "a word from the list 'x'"
    assert class_in_words("org.edm.x") == "an exact value from the list 'x'"
    assert class_in_words("else") == "else"


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("secret.*", "a key, password or token"),
        ("financial.pan", "a payment card number"),
        ("financial.{pan,cvv}", "a card verification code or a payment card number"),
        ("topic.health>=50", "talk of health, with a score of at least 50 of 100"),
        (
            "health.lab & (special.genetic | secret.token)",
            "a laboratory value together with (genetic data or an access token)",
        ),
        (
            "identifier.direct.{gov_id.*,passport}",
            "a person's government-issued number or a passport number",
        ),
    ],
)
def test_a_condition_is_described_in_words(when: str, words: str) -> None:
    assert in_words(parse_condition(when)) == words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"format": 2}, "not an evaluation of format 1"),
        ({"date": 1}, "'date' is not a string"),
        ({"policy": []}, "expected an object"),
        ({"figures": {}}, "'figures' is not a list"),
        ({"figures": [1]}, "expected an object"),
        ({"figures": [figure("a", 0.5, met="yes")]}, "'met' is neither"),
        ({"figures": [figure("a", 0.5, n=True)]}, "'n' is not a number"),
        ({"figures": [figure("a", float("nan"))]}, "'value' is not finite"),
        ({"figures": [figure("a", 0.5, stock=1)]}, "expected an object"),
        ({"curve": [{"knob": "k", "setting": 1, "recall": 2, "leave": 0}]}, "0 to 1"),
    ],
)
def test_parse_measured_refuses_an_invalid_evaluation(
    changed: dict[str, object], words: str
) -> None:
    with pytest.raises(MeasuredError, match=words):
        parse_measured(json.dumps(evaluation(**changed)).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b" " * (MAX_BYTES + 1)])
def test_parse_measured_refuses_other_bytes(data: bytes) -> None:
    with pytest.raises(MeasuredError):
        parse_measured(data)


def rows(html: str) -> list[str]:
    found = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    return [*map(plain, found)]


def plain(html: str) -> str:
    """Return the text, with a space in place of each tag."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def setting(html: str, name: str) -> str:
    return checked(html.partition(f"<dt>{name}</dt>")[2].partition("</dd>")[0]).text


def test_topics_are_described_as_the_rules_decide() -> None:
    said = setting(page(profile("clinic")), "Topics")
    assert said == "Talk of a sensitive topic without a person may be sent."
    own = load_policy(
        "version: 1\n"
        "default: {decision: enclave, require: [all_detectors_ok, language_covered, "
        "within_limits, policy_current]}\n"
        "rules:\n"
        '- {id: any-uncertain, when: "uncertain.*", then: local}\n'
        '- {id: talk, when: "topic.health | topic.special", then: local}\n'
    )
    assert setting(page(own), "Topics") == (
        "Without a person, talk of health, a special category is kept local; "
        "talk of personal finance, a personnel matter, a legal matter may be sent."
    )


@pytest.mark.parametrize("name", PROFILES)
def test_statements_about_a_class_match_the_decision(name: str) -> None:
    policy = profile(name)
    said = setting(page(policy), "Topics")
    for each in ("topic.health", "topic.special", "topic.finance"):
        at = Where(message=0, role="user", json_path="content")
        found = Finding(
            data_class=each,
            detector="t",
            start=0,
            end=1,
            score=100,
            validated=False,
            normalization=Normalization.RAW,
            where=at,
        )
        alone = inspection_of(findings=(found,), payload_digest=bytes(32), messages=1)
        route = ROUTE_WORDS[decide(policy.rulebook, alone).route]
        topic = class_in_words(each).removeprefix("talk of ")
        (clause,) = (
            part
            for part in re.split("; ", said)
            if topic in part or "sensitive" in part
        )
        assert route in clause


def test_each_class_of_an_item_has_a_line_of_its_own() -> None:
    html = page(profile("clinic"))
    lines = re.findall(r"<li>(.*?)</li>", html, re.DOTALL)
    result = [plain(each) for each in lines]
    assert (
        "a credit score may be sent with other data, kept by personal-finance" in result
    )
    assert "an income, talk of personal finance may be sent with other data, " in (
        " ".join(result)
    )
    assert all(each.count('class="route') <= 1 for each in lines)


def test_rules_alike_are_one_row_with_both_reasons() -> None:
    policy = load_policy(
        "version: 1\ndefault: {decision: enclave}\nrules:\n"
        '- {id: any-uncertain, when: "uncertain.*", then: local}\n'
        "- {id: one, when: health.lab, then: deidentify, reason: First.}\n"
        "- {id: two, when: health.lab, then: local, reason: Second.}\n"
        "- {id: three, when: 'health.{lab,mrn}', then: deidentify, reason: Third.}\n"
    )
    result = [each for each in rows(page(policy)) if "laboratory" in each]
    assert len(result) == 2
    assert "is kept local Second. First. Rule two" in result[0]
    assert (
        "Rule one , of the policy itself, which alone is less private: is sent"
        in result[0]
    )
    assert "Already decided more privately: a laboratory value." in result[1]


def test_the_page_begins_with_what_is_sent_who_approved_it_and_until_when() -> None:
    result = page(profile("clinic")).partition('<div class="tiles">')[2]
    text = plain(result.partition("<dl>")[0])
    assert text.startswith("Never sent keys and passwords; card numbers; ")
    assert "May be sent nothing: no enclave is named" in text
    assert "Approved by not checked" in text
    assert "Valid until not known" in text


def test_on_a_small_screen_every_cell_has_its_columns_name() -> None:
    html = page(profile("clinic"), measured=evaluation())
    cells = re.findall(r"<td([^>]*)>(?!</td>)", html)
    assert cells
    assert all("data-label=" in each for each in cells)


def test_figures_where_less_is_better_have_their_own_chart() -> None:
    figures = [
        figure("identifying.one", 0.97, stock=None),
        figure("identifying.two", 0.002, sense="<=", target=0.01, stock=None),
    ]
    text = checked(page(measured=evaluation(figures=figures))).text
    assert text.count("Identifying queries detected: of these") == 3
    assert "plain Presidio, on the same data" not in text


def test_codes_are_explained_where_they_occur() -> None:
    figures = [figure("names.one", 0.9, title="places (GPE)")]
    text = " ".join(checked(page(measured=evaluation(figures=figures))).text.split())
    assert "GPE: countries, states and cities." in text
    assert "NRP" not in text
    assert "`" not in text


def test_a_narrow_chart_keeps_within_its_frame() -> None:
    one = Interval(value=1.0, low=0.9, high=1.1)
    bar = Bar(label="a " * 40, measured=one, target=1.0, stock=one)
    chart = bar_chart([bar], title="t", narrow=True)
    places = re.findall(r'\b(?:x1|x2|x)="([0-9.]+)"', chart)
    assert all(0 <= float(each) <= 350 for each in places)
    assert checked(chart).open == []


def test_a_page_shows_who_may_answer() -> None:
    html = page(load_profile("default"))
    assert '<th scope="col">local</th><th scope="col">enclave</th>' in html
    assert "<dd>Restricted: local.</dd>" in html
    (row,) = re.findall(r"<tr>.*<code>secret\.\*</code>.*</tr>", html)
    assert re.findall(r'data-label="(?:local|enclave)">([^<]*)<', row) == [
        "may answer",
        "not asked",
    ]


def test_the_report_says_that_an_on_premises_server_reads_questions() -> None:
    routing = (
        "\nrouting:\n  tiers:\n  - {id: local, kind: in_process}\n"
        "  - {id: ward, kind: on_premises, address: 'unix:/run/llm.sock', model: m}\n"
    )
    plain = profile_text("default").partition("\nrouting:")[0]
    text = checked(page(load_policy(plain + routing))).text
    assert "names no enclave, so nothing is sent out of the organisation" in text
    assert "An on-premises server (ward) reads the questions" in text
    assert "An on-premises server" not in checked(page(load_policy(plain))).text
