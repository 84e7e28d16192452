"""The whole evaluation on made-up sets, with detectors that are easy to foresee."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.cli import main as cli
from curtilage.client.chat.query import Query, single_query
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.inspection import prepare
from curtilage.client.detection.spans import failure
from curtilage.lab.commands import evaluate
from curtilage.lab.evaluation import timing
from curtilage.lab.evaluation.bench import (
    Bench,
    Judged,
)
from curtilage.lab.evaluation.curve import Shift, ner_recall, profiles, thresholds
from curtilage.lab.evaluation.faults import FAULTS, HARMLESS, Broken, faults
from curtilage.lab.evaluation.figures import (
    Evaluation,
    Figure,
    Target,
)
from curtilage.lab.evaluation.identifiers import evasion, lowered
from curtilage.lab.evaluation.languages import NAMED
from curtilage.lab.evaluation.names import fairness
from curtilage.lab.evaluation.questions import CLEAN
from curtilage.lab.evaluation.rows import Gold, Part, Row, held_out
from curtilage.lab.evaluation.run import GROUPS, Choice, Doors, figures_of
from curtilage.lab.evaluation.statistics import share
from curtilage.lab.evaluation.tables import GROUP_TITLES, table
from curtilage.lab.evaluation.timing import (
    SocketCount,
    best_ms,
    texts_of,
    without_model,
    worker_sockets,
)
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import PROFILES, load_profile
from curtilage.policy.document.model import PATIENT_MS, Policy, Thresholds, full_scan
from support.inspections import changed

POLICY = load_profile("default")
CANARY = "zq7canary4711"
PATTERNS = {
    "identifier.direct.email": r"\S+@\S+",
    "identifier.direct.person": r"\b(?:Ana|Bo|Cy)\b(?: [A-Z]\w+)?",
    "uncertain.number_run": r"\d{7,}",
    "secret.password": r"diagnosed",
}


def found_in(text: str) -> Iterator[Finding]:
    for name, pattern in PATTERNS.items():
        for match in re.finditer(pattern, text):
            yield Finding(
                data_class=name,
                detector="made-up",
                start=match.start(),
                end=match.end(),
                score=80,
                validated=False,
                normalization=Normalization.RAW,
                where=Where(message=0, role="user", json_path="content"),
            )


@dataclass(slots=True)
class Foreseeable:
    """Detectors that know a few patterns and live in this process."""

    policy: Policy
    worker_pid: int | None = None
    closed: bool = False
    advice: str | None = None

    def inspect(self, query: Query) -> Inspection:
        prepared = prepare(query, self.policy.limits)
        texts = prepared.texts
        return prepared.with_findings([each for t in texts for each in found_in(t)])

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        return map(self.inspect, queries)

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StockSpan:
    kind: str
    start: int
    end: int


class Stock:
    """Plain Presidio's stand-in: sees e-mail addresses only."""

    def spans(self, text: str) -> list[StockSpan]:
        return [
            StockSpan(kind="EMAIL_ADDRESS", start=match.start(), end=match.end())
            for match in re.finditer(r"\S+@\S+", text)
        ]


def sentence(text: str, *spans: tuple[str, str]) -> dict[str, object]:
    return {
        "full_text": text,
        "template_id": len(text),
        "spans": [
            {
                "entity_type": kind,
                "start_position": text.index(value),
                "end_position": text.index(value) + len(value),
            }
            for kind, value in spans
        ],
    }


def write_sets(data: Path) -> None:
    def put(name: str, text: str) -> None:
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    sentences = [
        sentence("Write to ana@x.example", ("EMAIL_ADDRESS", "ana@x.example")),
        sentence("My number is 5550100", ("PHONE_NUMBER", "5550100")),
        sentence("The card of 1 2 3 4", ("CREDIT_CARD", "1 2 3 4")),
        sentence(
            "Tell Ana Ruiz what Zoe said", ("PERSON", "Ana Ruiz"), ("PERSON", "Zoe")
        ),
        sentence("Nobody is here"),
    ]
    put("presidio-research/synth.json", json.dumps(sentences))
    queries = [["what is the weather", "weather"], [f"tell me {CANARY}", "x"]]
    put("clinc150/data.json", json.dumps({"val": queries}))
    put("banking77/test.csv", "text,category\nWhere is my card?,a\nPay Bo,b\n")
    put("arena-hard/v0.1.jsonl", json.dumps({"uid": "1", "prompt": "Sort 123456789"}))
    put("gsm8k/test.jsonl", json.dumps({"question": "Bo has 3 apples."}))
    put("mt-bench/mt_bench.jsonl", json.dumps({"question_id": 1, "turns": ["Rhyme"]}))
    put(
        "counsel-chat/c.csv",
        "questionID,questionTitle,questionText\n1,I was diagnosed,Help\n2,Sad,Why?\n",
    )
    put("mts-dialog/t.csv", "ID,section_text,dialogue\n0,diagnosed,Ana: hi\n")
    put(
        "aci-bench/t.csv",
        f"encounter_id,dialogue,note\n1,diagnosed,{'xxxx ' * 51000}\n",
    )
    labels = {"labels": {"pii": {"exemplars": ["my records"]}}}
    put("vllm-sr-privacy/labels.json", json.dumps(labels))
    asked = "Ana Ruiz asked about Lima,ana ruiz||lima"
    put("pupa/PUPA_New.csv", f"user_query,pii_units\n{asked}\n")
    put("pii-masking-bias/templates.csv", "Hi {{Name}}\n")
    names = ["Ana Ruiz,Ana,HA,F", "Bo Li,Bo,AS,M", "Dot Orr,Dot,WO,F", "Cy Oba,Cy,AF,M"]
    head = "full_name,first_name,race_ethnic_group,gender"
    put("pii-masking-bias/names.csv", "\n".join([head, *names]))
    put("ner-corpora/WNUT17.conll", "Ana\tB-person\nin\tO\nRome\tB-location\n")
    for name in ("uner-ewt", "uner-german-pud", "uner-swedish-talbanken"):
        put(f"{name}/d.iob2", "1\tAna\tB-PER\t-\t-\n")
    put("routing/a/b.jsonl", json.dumps({"prompt": "Translate this"}))
    sets = {name for each in CLEAN.values() for name in each.sets}
    sets |= {name.partition(":")[0] for each in NAMED.values() for name in each}
    sets |= {"covid-faq", "xquad-questions", "chatterbot-corpus", "tatoeba-short"}
    rows: list[dict[str, object]] = [
        {"lang": "en", "text": f"What is {CANARY}?", "subject": "anatomy"},
        {"lang": "en", "text": "Ana may write to Zoe", "spans": [[0, 3, "PER"]]},
        {"lang": "es", "text": "Zoe ríe", "spans": [[0, 3, "PER"]], "topic": "food"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for name in sorted((sets | {"contextual-anonymizer"}) - OLD_SETS):
        put(f"{name}/data.jsonl", lines)
    put("nlu-evaluation-data/f.csv", 'a;answer_annotation\n1;"call [person : ana]"\n')


OLD_SETS = {"uner-ewt", "uner-german-pud", "uner-swedish-talbanken"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_sets(tmp_path / "sets")
    return tmp_path / "sets"


def bench_on(data: Path, **changes: object) -> Bench:
    bench = Bench(
        data=data,
        part=Part.ALL,
        limit=100,
        policy=POLICY,
        inspectors=[Foreseeable(POLICY), Foreseeable(POLICY)],
        stocks=(Stock(), Stock()),
    )
    return replace(bench, **changes)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the fields' own types


def figures_on(data: Path, *ids: str) -> dict[str, Figure]:
    bench = bench_on(data)
    found = figures_of(bench, Choice(ids=ids), DOORS)
    return {figure.id: figure for figure in found}


def no_worker(policy: Policy) -> Foreseeable:
    return Foreseeable(policy)


def no_detectors(policy: Policy) -> Callable[[str], object]:
    return lambda text: list(found_in(text * len(policy.digest[:1])))


DOORS = Doors(start=no_worker, detectors=no_detectors)


# --- the figures of each section -------------------------------------------------


def test_structured_recall_counts_texts_that_do_not_leave_unchanged(
    data: Path,
) -> None:
    figure = figures_on(data, "structured")["structured.query"]
    assert figure.estimate.value == pytest.approx(2 / 3)
    assert figure.estimate.n == 3
    assert figure.met is False
    assert [each.value for each in figure.stocks] == pytest.approx([1 / 3, 1 / 3])
    routes = figure.routes
    assert routes is not None
    assert (routes.home, routes.pseudonyms) == pytest.approx((2 / 3, 0))
    assert routes.unchanged == pytest.approx(1 / 3)


def test_identifying_recall_counts_pseudonyms_as_caught(data: Path) -> None:
    found = figures_on(data, "identifying")
    assert found["identifying.query"].estimate.value == pytest.approx(3 / 4)


def test_only_values_in_the_text_sent_are_leaks(data: Path) -> None:
    found = figures_on(data, "identifying")
    # Of five marks, the card is sent as it is, and Zoe next to a pseudonym.
    assert found["identifying.leak"].estimate.value == pytest.approx(2 / 5)
    changed = found["identifying.leak_deidentified"]
    assert changed.estimate.value == pytest.approx(1 / 2)
    assert changed.met is False
    # Presidio's stand-in masks no name, and its mask takes the address away.
    assert [each.value for each in changed.stocks] == pytest.approx([1, 1])
    assert found["identifying.leak"].stocks[0].value == pytest.approx(4 / 5)
    assert found["identifying.type.person"].estimate.value == pytest.approx(1 / 2)
    assert found["identifying.type.email_address"].estimate.value == 1


def test_lower_case_is_measured_separately(data: Path) -> None:
    found = figures_on(data, "identifying.type_lower")
    assert found["identifying.type_lower.person"].estimate.value == 0
    assert set(found) == {f"identifying.type_lower.{kind}" for kind in KINDS}


KINDS = ("person", "email_address", "phone_number", "credit_card")


def test_health_counts_what_is_too_long_apart(data: Path) -> None:
    found = figures_on(data, "health")
    assert found["health.counsel"].estimate.value == pytest.approx(1 / 2)
    assert found["health.aci_note"].estimate.value == 1
    assert found["health.oversize"].estimate.value == pytest.approx(1 / 6)
    assert found["health.all"].estimate.n == 6


def test_what_may_leave_includes_pseudonyms(data: Path) -> None:
    found = figures_on(data, "leave")
    assert found["leave.clinc150"].estimate.value == 1
    assert found["leave.banking77"].estimate.value == 1
    assert found["leave.unchanged.banking77"].estimate.value == pytest.approx(1 / 2)
    assert found["leave.arena-hard"].estimate.value == 0


def test_units_that_leave_are_counted_in_what_goes_out(data: Path) -> None:
    found = figures_on(data, "pupa")
    assert found["pupa.flagged"].estimate.value == 1
    assert found["pupa.leak"].estimate.value == pytest.approx(1 / 2)


def test_fairness_is_the_largest_difference(data: Path) -> None:
    found = figures_on(data, "fairness")
    assert found["fairness.group.wo"].estimate.value == 0
    assert found["fairness.group.as"].estimate.value == 1
    assert found["fairness.gap"].estimate.value == 1
    assert found["fairness.gap"].met is False
    assert found["fairness.gap.lower"].met is None
    assert found["fairness.gap_gender"].estimate.value == pytest.approx(1 / 2)


def test_names_are_counted_by_corpus_and_kind(data: Path) -> None:
    found = figures_on(data, "names")
    assert found["names.wnut17.person"].estimate.value == 1
    assert found["names.wnut17.location"].estimate.value == 0
    assert found["names.nlu.person"].estimate.value == 0
    assert found["names.gate.german-pud"].estimate.value == 0


def test_personal_and_impersonal_questions_are_distinguished(data: Path) -> None:
    found = figures_on(data, "clinical")
    # Of these detectors only an address, a long number or three names is known.
    somebody = found["clinical.somebody.en"]
    assert 0 < somebody.estimate.value < 1
    assert somebody.target == Target.at_least(0.995)
    # These detectors take "undiagnosed", in one question of ours, for a secret.
    assert found["clinical.nobody"].estimate.value == pytest.approx(1 / 47)
    assert found["clinical.nobody"].met
    assert found["clinical.nobody.our_own"].estimate.n == 40
    assert found["clinical.records.meddocan"].estimate.value == pytest.approx(1 / 2)


def test_the_mean_of_clean_questions_is_over_sets(data: Path) -> None:
    found = figures_on(data, "clean")
    assert found["clean.mean"].estimate.value == 1
    # The rows of six kinds, of which two are from two sets each; xlinghealth's third
    # row is Spanish and counts too.
    assert found["clean.mean"].estimate.n == 24
    assert {"clean.requests.en", "clean.requests.es"} <= set(found)


def test_hard_prompts_are_counted_in_english_and_in_all_languages(data: Path) -> None:
    found = figures_on(data, "hard")
    assert found["hard.english"].estimate.value == pytest.approx(2 / 3)
    assert {"hard.all.en", "hard.all.es"} <= set(found)


def test_a_text_that_names_somebody_may_leave_without_the_name(data: Path) -> None:
    found = figures_on(data, "named")
    # "Ana" is replaced; "Zoe", whom these detectors do not know, leaves.
    assert found["named.da"].estimate.value == pytest.approx(1 / 2)
    assert found["named.da"].routes is not None
    assert found["named.da"].routes.pseudonyms == pytest.approx(1 / 2)
    assert found["named.fr"].estimate.n == 0
    assert found["named.leak"].estimate.value > 0
    assert found["named.leak_deidentified"].estimate.value == 0


def test_each_language_has_six_figures(data: Path) -> None:
    found = figures_on(data, "language.en")
    kinds = ("identifying", "structured", "health", "special", "affairs", "harmless")
    assert list(found) == [f"language.en.{kind}" for kind in kinds]
    assert found["language.en.harmless"].estimate.value == 1
    assert found["language.en.health"].estimate.value == 0


def test_a_language_without_texts_of_our_own_has_no_rows(data: Path) -> None:
    found = figures_on(data, "language.da")
    assert found["language.da.special"].estimate.n == 0
    assert found["language.da.health"].estimate.n > 0


def test_every_text_of_the_red_team_counts_once_by_kind_and_by_language(
    data: Path,
) -> None:
    found = figures_on(data, "redteam")
    every = found["redteam.all"].estimate
    for about in ("kind", "lang"):
        parts = [
            each.estimate.n
            for name, each in found.items()
            if name.startswith(f"redteam.{about}.")
        ]
        assert sum(parts) == every.n
    # These detectors know an address and a run of digits, and no words.
    assert found["redteam.kind.window_border"].estimate.value < 1
    assert found["redteam.kind.indirect"].estimate.value == 0
    assert found["redteam.harmless"].estimate.n == 30


def test_our_own_texts_are_held_out(data: Path) -> None:
    chosen = ("told", "surname", "national", "redteam")
    for part, some in ((Part.DEVELOPED, False), (Part.HELD_OUT, True)):
        figures = figures_of(bench_on(data, part=part), Choice(ids=chosen), DOORS)
        assert {bool(each.estimate.n) for each in figures} == {some}


def test_long_prompts_are_looked_at_under_the_policys_own_deadline(data: Path) -> None:
    figure = figures_on(data, "deadline")["deadline.lost"]
    assert figure.met
    assert figure.estimate.n == 100


@pytest.mark.parametrize("name", sorted(UNFINISHED))
def test_a_prompt_that_was_not_looked_at_to_its_end_is_lost(
    data: Path, name: str
) -> None:
    class Unfinished(Foreseeable):
        @override
        def inspect(self, query: Query) -> Inspection:
            where = Where(message=0, role="user", json_path="content")
            prepared = prepare(query, self.policy.limits)
            return prepared.with_findings([failure(name, "inspector", where)])

    doors = Doors(start=Unfinished, detectors=no_detectors)
    (figure,) = figures_of(bench_on(data), Choice(ids=("deadline",)), doors)
    assert figure.estimate.value == 1


def test_evasion_takes_every_disguise(data: Path) -> None:
    found = {figure.id: figure for figure in evasion(bench_on(data))}
    assert found["evasion.mutations"].estimate.n == 180
    assert found["evasion.turns"].estimate.n == 18
    assert 0 < found["evasion.mutations"].estimate.value < 1


def test_latency_has_every_length_and_the_ratio(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "TEXTS", 4)
    found = figures_on(data, "latency")
    for length in (50, 300, 2000):
        assert found[f"latency.rules.{length}.p99_cpu"].unit == "ms"
    assert found["latency.rules.300.p99_cpu"].target == Target.at_most(5.0)
    assert found["latency.rules.300.p50_cpu"].target is None
    assert found["latency.rules.faster"].unit == "ratio"
    assert found["latency.rules.faster_model"].target is None
    assert found["latency.rules.stock_model.short_p50_cpu"].unit == "ms"


def test_no_socket_is_opened(data: Path) -> None:
    figure = figures_on(data, "sockets")["sockets.opened"]
    assert (figure.estimate.value, figure.met) == (0, True)


def test_validity_compares_with_the_policys_own_scan(data: Path) -> None:
    found = figures_on(data, "validity")
    assert found["validity.failures"].estimate.value == 0
    assert found["validity.early_exit"].estimate.value == 0


def test_a_missing_set_is_said_once_and_has_no_figures(data: Path) -> None:
    for path in (data / "clinc150").iterdir():
        path.unlink()
    said: list[str] = []
    bench = bench_on(data, notify=said.append)
    found = {
        figure.id: figure for figure in figures_of(bench, Choice(ids=("leave",)), DOORS)
    }
    assert found["leave.clinc150"].estimate.n == 0
    assert found["leave.clinc150"].met is None
    assert found["leave.banking77"].estimate.n
    assert bench.missing == ["clinc150"]
    assert sum("MISSING" in line for line in said) == 1


def test_the_parts_share_out_the_rows(data: Path) -> None:
    counts = [
        len(bench_on(data, part=part).rows("presidio-research"))
        for part in (Part.DEVELOPED, Part.HELD_OUT)
    ]
    assert sum(counts) == 5
    assert bench_on(data, part=Part.DEVELOPED).rows("pupa") == ()


def test_misses_name_rows_and_no_text(data: Path) -> None:
    bench = bench_on(data)
    list(figures_of(bench, Choice(ids=("structured", "leave")), DOORS))
    assert ("structured.query", "presidio-research:synth.json:2") in bench.misses
    assert ("leave.arena-hard", "arena-hard:v0.1.jsonl:0") in bench.misses


def test_a_row_is_looked_at_once(data: Path) -> None:
    bench = bench_on(data)
    rows = bench.rows("clinc150")
    first = bench.judge(rows, "a")
    bench.inspectors = []
    assert bench.judge(rows, "b") == first


# --- policies and findings as the figures need them --------------------------------


def test_a_full_scan_keeps_rules_digest_and_size() -> None:
    patient = full_scan(POLICY)
    assert patient.document.scan == "full"
    assert patient.limits.deadline_ms == PATIENT_MS
    assert patient.limits.max_chars == POLICY.limits.max_chars
    assert (patient.rules, patient.digest) == (POLICY.rules, POLICY.digest)


def test_a_policy_can_do_without_a_model() -> None:
    assert without_model(POLICY).document.ner.engine == "none"


def test_lower_case_keeps_places() -> None:
    row = Row(id="a", key="k", text="\u0130stanbul ANA", gold=(GOLD,))
    small = lowered(row)
    assert (small.value(GOLD), len(small.text), small.id) == ("ana", 12, "a:lower")


GOLD = Gold(kind="PERSON", start=9, end=12)


def judged(text: str) -> Judged:
    row = Row(id="a", key="", text=text)
    inspection = Foreseeable(POLICY).inspect(single_query(text))
    return Judged(
        row=row, inspection=inspection, decision=decide(POLICY.rulebook, inspection)
    )


def test_any_overlap_notices_a_name() -> None:
    classes = frozenset({"identifier.direct.person"})
    one = judged("Tell Ana Ruiz")
    assert one.notices(Gold(kind="PERSON", start=9, end=13), classes)
    assert not one.notices(Gold(kind="PERSON", start=0, end=5), classes)
    assert not one.notices(Gold(kind="PERSON", start=5, end=8), frozenset({"x"}))


def test_a_value_in_the_text_sent_is_a_leak() -> None:
    one = replace(judged("x"), outgoing="of no use")
    assert one.leaks(["of", "NO USE", "ana"]) == [False, True, False]
    assert replace(one, outgoing="").leaks(["now"]) == [False]


def test_what_leaves_has_pseudonyms_and_was_looked_at_again(data: Path) -> None:
    bench = bench_on(data)
    texts = ["Tell Ana Ruiz", "Tell nobody", "Ana was diagnosed", "Tell \u27e6 Bo"]
    rows = [Row(id=text, key="", text=text) for text in texts]
    found = bench.judge(rows, "a")
    assert [each.outgoing for each in found] == [
        "Tell \u27e6PERSON_1\u27e7",
        "Tell nobody",
        "",
        "",  # the marks of pseudonyms are the query's own
    ]
    assert [each.stays for each in found] == [False, False, True, True]
    assert [each.leaves for each in found] == [True, True, False, True]


class Distrustful(Foreseeable):
    """Finds a secret wherever a name was replaced."""

    @override
    def inspect(self, query: Query) -> Inspection:
        text = query.messages[0].content.replace("[x]", "diagnosed")
        inspection = Foreseeable(self.policy).inspect(single_query(text))
        return changed(inspection, payload_digest=query.payload_digest())


def test_a_text_with_more_than_pseudonyms_is_kept_local(data: Path) -> None:
    bench = bench_on(data, inspectors=[Distrustful(POLICY)])
    row = Row(id="a", key="", text="Tell Ana Ruiz")
    (found,) = bench.judge([row], "a")
    assert found.decision.route is Route.DEIDENTIFY
    assert found.stays


# --- the curve ---------------------------------------------------------------------


def test_a_higher_threshold_drops_what_no_checksum_confirms() -> None:
    inspection = Foreseeable(POLICY).inspect(single_query("Ana a@b.example"))
    shift = Shift(prefixes=("identifier.direct.",), setting=81, own=Thresholds())
    assert shift.apply(inspection).findings == ()
    sure = changed(
        inspection,
        findings=tuple(replace(each, validated=True) for each in inspection.findings),
    )
    assert shift.apply(sure).findings == sure.findings


def test_a_lower_threshold_lifts_what_was_too_unsure() -> None:
    inspection = Foreseeable(POLICY).inspect(single_query("Ana"))
    unsure = changed(inspection, findings=(replace(inspection.findings[0], score=10),))
    own = Thresholds(direct=35)
    assert decide(POLICY.rulebook, unsure).route is Route.ENCLAVE
    for setting, score in ((10, 35), (5, 35)):
        shift = Shift(prefixes=("identifier.direct.",), setting=setting, own=own)
        assert shift.apply(unsure).findings[0].score == score
    other = Shift(prefixes=("topic.",), setting=100, own=own)
    assert other.apply(unsure).findings == unsure.findings


def test_the_curve_falls_and_rises_with_the_threshold(data: Path) -> None:
    points = [point for point in thresholds(bench_on(data)) if point.knob == "all"]
    assert points[0].recall > points[-1].recall
    assert points[0].leave <= points[-1].leave


def test_each_profile_has_a_curve_of_its_own(data: Path) -> None:
    points = list(profiles(bench_on(data), no_worker))
    assert {point.knob for point in points} == set(PROFILES)
    assert {point.setting for point in points} == {1, *range(10, 101, 10)}


def test_without_a_model_its_knob_is_not_turned(data: Path) -> None:
    policy = without_model(POLICY)
    assert list(ner_recall(bench_on(data, policy=policy), no_worker)) == []


def test_the_models_knob_is_turned_on_a_sample(data: Path) -> None:
    document = POLICY.document
    ner = document.ner.model_copy(update={"engine": "embedded"})
    policy = replace(POLICY, document=document.model_copy(update={"ner": ner}))
    started: list[Foreseeable] = []

    def start(policy: Policy) -> Foreseeable:
        started.append(Foreseeable(policy))
        return started[-1]

    points = list(ner_recall(bench_on(data, policy=policy), start))
    settings = [each.policy.document.ner.recall for each in started]
    assert settings == [point.setting for point in points] == [0, 50, 100, 200, 300]
    assert all(each.closed for each in started)


# --- faults, time, sockets ----------------------------------------------------------


def test_a_detector_that_fails_in_any_way_keeps_the_query_home() -> None:
    figure = next(iter(faults(POLICY)))
    assert figure.met
    assert figure.estimate.n == len(FAULTS) * len(own_equipment())


def test_a_process_that_fails_in_any_way_keeps_the_query_home() -> None:
    *_, figure = faults(POLICY)
    assert figure.met
    assert figure.estimate.n == 6


def test_a_socket_counts_only_while_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    count = SocketCount()
    count.hear("socket.connect", ())
    assert count.seen == 0
    monkeypatch.setattr(count, "on", True)
    count.hear("socket.connect", ())
    count.hear("open", ())
    assert count.seen == 1


def test_of_no_process_no_socket_is_known() -> None:
    assert worker_sockets(None) == 0


def note(seen: list[str], who: str, text: str) -> None:
    seen.append(who + text)


def test_ways_to_look_take_turns_and_the_best_time_counts() -> None:
    seen: list[str] = []
    now = iter(range(1000))
    looks = [partial(note, seen, "a"), partial(note, seen, "b")]
    best = best_ms(looks, ["x", "y"], lambda: next(now))
    assert best == [[1000.0, 1000.0], [1000.0, 1000.0]]
    assert seen[4:8] == ["ax\n", "bx\n", "ay\n", "by\n"]
    assert len(set(seen)) == 16


def test_texts_of_a_length_are_whole_ones_first() -> None:
    rows = ["x" * 10, "y" * 50, "z" * 500]
    made = texts_of(rows, 50, count=3)
    assert made[0] == "y" * 50
    assert [len(text) for text in made] == [50, 50, 50]
    assert texts_of([], 50, count=3) == []


# --- output ---------------------------------------------------------------------------


def evaluation(*figures: Figure) -> Evaluation:
    return Evaluation(
        date="2026-01-31",
        data="sets",
        part="all",
        policy_source="profile 'default'",
        policy_digest="sha256:00",
        figures=figures,
        curve=(),
        missing=("pupa",),
    )


def figure(name: str, hits: int, n: int, target: Target | None = None) -> Figure:
    return Figure(id=name, title=name, estimate=share(hits, n), target=target)


def test_the_json_has_the_fields_that_others_read() -> None:
    fields = evaluation(figure("a.b", 9, 10, Target.at_least(0.95))).fields()
    assert fields["format"] == 1
    assert fields["missing"] == ["pupa"]
    assert json.loads(json.dumps(fields))["figures"] == [
        {
            "id": "a.b",
            "group": "a",
            "title": "a.b",
            "unit": "share",
            "value": 0.9,
            "low": 0.5958,
            "high": 0.9821,
            "n": 10,
            "sense": ">=",
            "target": 0.95,
            "met": False,
            "developed": None,
            "routes": None,
            "stock": None,
            "stock_model": None,
            "note": "",
        }
    ]


def test_a_target_without_rows_is_neither_met_nor_missed() -> None:
    assert figure("a.b", 0, 0, Target.at_least(0.5)).met is None


def test_the_table_is_aligned_and_marks_targets() -> None:
    text = table(
        evaluation(
            figure("leave.x", 9, 10, Target.at_least(0.95)),
            figure("leave.long title", 100, 100, Target.at_least(0.95)),
            figure("names.y", 0, 0),
        )
    )
    rows = [line for line in text.splitlines() if "\u2265" in line]
    assert "NOT MET" in rows[0]
    assert rows[1].rstrip().endswith("met")
    assert len({line.index("\u2265") for line in rows}) == 1
    assert "no rows" in text
    assert "1 of 2 targets met" in text
    assert re.search("MISSING, .*: pupa", text)


@pytest.mark.parametrize(
    ("ids", "kept"),
    [((), True), (("a",), True), (("a.b",), True), (("a.bc",), False), (("b",), False)],
)
def test_a_choice_is_by_group_or_by_the_beginning(
    ids: tuple[str, ...], kept: bool
) -> None:
    assert Choice(ids=ids).has(figure("a.b.c", 1, 1)) is kept


# --- the command --------------------------------------------------------------------


def run(
    data: Path, monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[int, list[Foreseeable]]:
    started: list[Foreseeable] = []

    def start(policy: Policy) -> Foreseeable:
        started.append(Foreseeable(policy, advice="no wall stands"))
        return started[-1]

    monkeypatch.setattr(evaluate, "inspector_for", start)
    monkeypatch.delenv("CURTILAGE_POLICY", raising=False)
    monkeypatch.setattr(cli, "_refuse_core_dumps", lambda: None)
    return cli.main(["evaluate", "--data", str(data), *more]), started


WANTED = ",".join(group for group in GROUPS if group not in {"faults", "latency"})


def test_the_command_measures_writes_and_stops_its_workers(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("json", "plot", "misses")}
    flags = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    status, started = run(data, monkeypatch, "--only", WANTED, *flags)
    assert status == 0
    assert all(each.closed for each in started)
    shown = capsys.readouterr()
    assert shown.err.startswith("no wall stands\n")
    fields = json.loads(files["json"].read_text())
    assert {each["group"] for each in fields["figures"]} == {
        group
        for group in WANTED.split(",")
        if group not in {"curve", "profiles", "own"}
    }
    assert fields["policy"]["digest"] == POLICY.digest
    assert fields["curve"]
    assert {each["knob"] for each in fields["profiles"]} == set(PROFILES)
    assert files["plot"].read_text().startswith("<svg")
    assert (
        "structured.query\tpresidio-research:synth.json:2\n"
        in files["misses"].read_text()
    )
    written = "".join(path.read_text() for path in files.values())
    assert CANARY not in written + shown.out + shown.err


def test_both_parts_stand_in_one_table(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.json"
    flags = ("--part", "apart", "--only", "leave.gsm8k", "--json", str(path))
    write_gsm8k(data, rows=40)
    assert run(data, monkeypatch, *flags)[0] == 0
    fields = json.loads(path.read_text())
    (figure,) = fields["figures"]
    assert fields["part"] == "held-out"
    assert (figure["n"], figure["developed"]["n"]) == held_out_of_40()


def write_gsm8k(data: Path, rows: int) -> None:
    lines = [json.dumps({"question": f"How many are {n} apples?"}) for n in range(rows)]
    (data / "gsm8k" / "test.jsonl").write_text("\n".join(lines))


def held_out_of_40() -> tuple[int, int]:
    kept = sum(held_out(f"gsm8k:How many are {n} apples?") for n in range(40))
    return kept, 40 - kept


def test_the_tables_of_a_page_are_written_between_its_marks(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "<!-- figures: written by curtilage evaluate --markdown -->"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{first}\nold\n<!-- end -->\nafter\n")
    only = "leave.clinc150,language.en,language.da,redteam.all,redteam.kind.base64"
    flags = ("--only", only, "--limit", "3", "--markdown", str(page))
    assert run(data, monkeypatch, *flags)[0] == 0
    text = page.read_text()
    assert text.startswith(f"before\n{first}\n")
    assert text.endswith("\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert "| clinc150, assistant queries | 100.0% |" in text
    assert f"| *{GROUP_TITLES['leave']}* |||" in text
    assert "| language | identifying (\u2265 95.0%) |" in text
    assert [line[:5] for line in text.splitlines() if line[:5] in {"| en ", "| da "}]
    heads = [line for line in text.splitlines() if line.startswith("| language |")]
    assert [line.count("|") for line in heads] == [8]
    assert "| base64 | " in text


def test_a_page_without_marks_is_left_alone(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    assert run(data, monkeypatch, "--only", "pupa", "--markdown", str(page))[0] == 2
    assert "needs the lines" in capsys.readouterr().err
    assert page.read_text() == "nothing\n"


def test_the_command_reports_a_missing_set_by_its_status(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "pupa" / "PUPA_New.csv").unlink()
    status, _ = run(data, monkeypatch, "--only", "pupa")
    assert status == 3
    shown = capsys.readouterr()
    assert re.search("MISSING SET, .*: pupa", shown.err)
    assert re.search("MISSING, .*: pupa", shown.out)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--only", "nothing"), "none of structured"),
        (("--limit", "0"), "--limit"),
        (("--policy", "no-such-file"), "no-such-file"),
        (("--json", "/dev/null/x", "--only", "pupa"), "/dev/null/x"),
    ],
)
def test_wrong_use_is_reported(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    said: str,
) -> None:
    status, started = run(data, monkeypatch, *flags)
    assert status == 2
    assert said in capsys.readouterr().err
    assert all(each.closed for each in started)


def run_on_texts(monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr(evaluate, "inspector_for", no_worker)
    monkeypatch.delenv("CURTILAGE_POLICY", raising=False)
    monkeypatch.setattr(cli, "_refuse_core_dumps", lambda: None)
    return cli.main(["evaluate", *flags])


def test_own_texts_are_measured_without_any_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, path = tmp_path / "own.csv", tmp_path / "f.json"
    own.write_text(
        "text,must,names\nNumber 5550100,stays,\nBo diagnosed,may leave,\n"
        f"Ana may write to Zoe,names only,Ana|Zoe\n{CANARY},,\n"
    )
    assert run_on_texts(monkeypatch, "--texts", str(own), "--json", str(path)) == 0
    fields = json.loads(path.read_text())
    values = {each["id"]: each["value"] for each in fields["figures"]}
    assert values == {
        "own.stays": 1,
        "own.may_leave": 0,
        "own.names_only": 0,
        "own.leak": 0.5,
        "own.leak_deidentified": 0.5,
    }
    assert fields["data"] == "own.csv"
    shown = capsys.readouterr()
    assert "1 texts have nothing" in shown.err
    assert CANARY not in shown.out + shown.err


def test_a_sheet_is_written_and_nothing_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, sheet = tmp_path / "t.txt", tmp_path / "sheet.csv"
    source.write_text(CANARY)
    flags = ("--texts", str(source), "--sheet", str(sheet))
    assert run_on_texts(monkeypatch, *flags) == 0
    assert CANARY in sheet.read_text()
    shown = capsys.readouterr()
    assert "1 texts; " in shown.out
    assert CANARY not in shown.out + shown.err


@pytest.mark.parametrize("flags", [(), ("--sheet", "sheet.csv")])
def test_what_to_measure_must_be_said(
    flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_on_texts(monkeypatch, *flags) == 2
    assert "--texts FILE" in capsys.readouterr().err


def test_a_missing_folder_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path / "gone", monkeypatch)[0] == 2


def test_a_policy_may_be_a_shipped_profile(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.json"
    flags = ("--policy", "default", "--only", "pupa", "--json", str(path))
    assert run(data, monkeypatch, *flags)[0] == 0
    assert json.loads(path.read_text())["policy"]["source"] == "profile 'default'"


def test_broken_detectors_keep_their_names() -> None:
    assert Broken(id="x", fault=FAULTS[0]).id == "x"
    assert decide(
        POLICY.rulebook, Foreseeable(POLICY).inspect(single_query(HARMLESS))
    ).route is (Route.ENCLAVE)


def test_groups_without_two_members_have_no_gap(data: Path) -> None:
    for path in (data / "pii-masking-bias").iterdir():
        path.unlink()
    gaps = [each for each in fairness(bench_on(data)) if "gap" in each.id]
    assert all(each.met is None for each in gaps)
