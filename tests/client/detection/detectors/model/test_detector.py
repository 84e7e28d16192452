# pyright: reportPrivateUsage=false
# The model inside a detector is handed to another one.
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.model import detector as ner
from curtilage.client.detection.detectors.model import embedded as guard_model
from curtilage.client.detection.detectors.model.detector import (
    EmbeddedModel,
    MissingModelDetector,
    NerDetector,
    ner_detectors,
)
from curtilage.client.detection.detectors.model.entity import Passages
from curtilage.client.detection.detectors.names.capitals import NameDetector
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import Detector, run
from curtilage.client.detection.spans import Span, merge
from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.detection_plan import NerPlan
from support.growth import grows_at_most

pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: needs the extra pii")
pytest.importorskip("tokenizers", reason="SKIPPED LOUDLY: needs the extra pii")
from support.tiny_guard import write_guard

PERSON = "identifier.direct.person"
UNSURE = "uncertain.name"
CITY = "identifier.quasi.city"
EMPLOYER = "identifier.quasi.employer"


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> NerDetector:
    folder = write_guard(tmp_path_factory.mktemp("guard") / "guard_model")
    return NerDetector(EmbeddedModel(guard_model.load_guard(folder), recall=100))


def raw(text: str) -> Reading:
    return Reading(normalization=Normalization.RAW, text=text)


def spans(detector: Detector, text: str) -> list[Span]:
    return list(run(detector, raw(text)))


def found(detector: Detector, text: str) -> dict[str, str]:
    """The class of everything found, by the words it stands on."""
    return {
        text[each.start : each.end]: each.data_class for each in spans(detector, text)
    }


def found_classes(detector: Detector, text: str) -> set[str]:
    return {each.data_class for each in spans(detector, text) if each.score >= 50}


def people_in(detector: Detector, text: str) -> set[str]:
    found = (each for each in spans(detector, text) if each.data_class == PERSON)
    return {text[each.start : each.end] for each in found}


# --- the engines --------------------------------------------------------------


def test_engine_none_is_the_name_rules() -> None:
    ((chosen, views),) = ner_detectors(NerPlan(engine="none"))
    assert isinstance(chosen, NameDetector)
    assert views == frozenset({Normalization.RAW})


def test_embedded_model_that_is_missing_fails_on_every_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def elsewhere(package: str) -> Path:
        assert package == "curtilage.client.detection.detectors.model"
        return tmp_path

    monkeypatch.setattr(
        "curtilage.client.detection.detectors.model.embedded.resources.files", elsewhere
    )
    ((chosen, _),) = ner_detectors(NerPlan(engine="embedded"))
    assert isinstance(chosen, MissingModelDetector)
    assert [each.data_class for each in spans(chosen, "hello")] == ["uncertain.error"]


def test_embedded_model_with_an_unknown_kind_fails_on_every_text(
    monkeypatch: pytest.MonkeyPatch, detector: NerDetector
) -> None:
    model = detector._model
    assert isinstance(model, EmbeddedModel)
    monkeypatch.setattr(ner, "CLASSES", {"PERSON": PERSON})
    monkeypatch.setattr(guard_model, "load_guard", lambda: model.guard)
    ((chosen, _),) = ner_detectors(NerPlan(engine="embedded"))
    assert isinstance(chosen, MissingModelDetector)


def test_embedded_model_is_opened_at_the_knob_of_the_plan(
    monkeypatch: pytest.MonkeyPatch, detector: NerDetector
) -> None:
    model = detector._model
    assert isinstance(model, EmbeddedModel)
    monkeypatch.setattr(guard_model, "load_guard", lambda: model.guard)
    ((low, _),) = ner_detectors(NerPlan(engine="embedded", recall=0))
    ((high, _),) = ner_detectors(NerPlan(engine="embedded", recall=100))
    assert "quendy" not in found(low, "the quendy")
    assert found(high, "the quendy")["quendy"] == PERSON


# --- entities -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words", "name"),
    [
        ("the bogdana ilieva", "bogdana ilieva", PERSON),
        ("in plovdiv", "plovdiv", CITY),
        ("at acme", "acme", EMPLOYER),
        ("on elm street", "elm street", "identifier.direct.address"),
        ("the 41", "41", "identifier.quasi.age"),
        ("the 93", "93", "identifier.quasi.age90"),
        ("on 3rd of may", "3rd of may", "identifier.quasi.date"),
        ("the latvian", "latvian", "identifier.quasi.nationality"),
    ],
)
def test_kinds_become_classes(
    detector: NerDetector, text: str, words: str, name: str
) -> None:
    assert found(detector, text)[words] == name


def test_every_class_is_in_the_tree() -> None:
    assert [name for name in ner.CLASSES.values() if not is_class(name)] == []


def test_a_religion_is_left_to_the_lexicon(detector: NerDetector) -> None:
    assert found(detector, "the catholic") == {}


@pytest.mark.parametrize(
    ("data_class", "words", "expected"),
    [
        (ner.ADDRESS, "27 moss lane", ner.ADDRESS),
        (ner.ADDRESS, "Hauptstraße 5", ner.ADDRESS),
        (ner.ADDRESS, "P.O. Box 12", ner.ADDRESS),
        (ner.ADDRESS, "14 Thornbury, Leeds", ner.ADDRESS),
        (ner.ADDRESS, "1 Elm St\nSpringfield", ner.ADDRESS),
        (ner.ADDRESS, "5638 Aasa 43\nHumilimont, 78618", ner.ADDRESS),
        (ner.ADDRESS, "600\nAtlanta\t400", ner.CITY),
        (ner.ADDRESS, "Atlanta", ner.CITY),
        (ner.ADDRESS, "90210", ner.ZIP),
        (ner.ADDRESS, "SW1A 1AA", ner.ZIP),
        (ner.ADDRESS, "GDDR6", None),
        (ner.ADDRESS, "25.1.8937393", None),
        (ner.ADDRESS, "-v8a", None),
        (ner.ADDRESS, "s2", None),
        (ner.ADDRESS, "EMP-1234", None),
        (ner.ADDRESS, "Circular 230", None),
        (ner.ADDRESS, "page 286", None),
        (ner.ADDRESS, "U.S. Dist. LEXIS 90198", None),
        (ner.ADDRESS, "pen, 12 pieces", ner.CITY),
        (ner.ADDRESS, "12g Thornbury", ner.ADDRESS),
        (ner.AGE, "41 years old", ner.AGE),
        (ner.AGE, "forty", ner.AGE),
        (ner.AGE, "90", ner.OLD_AGE),
        (ner.AGE, "89", ner.AGE),
        (ner.AGE, "ninety-one", ner.OLD_AGE),
        (ner.AGE, "9" * 5000, ner.OLD_AGE),
        (ner.AGE, "An unengaged girl", None),
        (ner.DATE, "12 May", ner.DATE),
        (ner.DATE, "in August", ner.DATE),
        (ner.DATE, "1987", ner.DATE),
        (ner.DATE, "tomorrow", None),
        (ner.DATE, "next Friday", None),
        (ner.NATIONALITY, "Latvian", ner.NATIONALITY),
        (ner.NATIONALITY, "Catholic", None),
        (ner.NATIONALITY, "bilingual", None),
        (PERSON, "41", PERSON),
    ],
)
def test_an_entity_is_what_its_words_allow(
    data_class: str, words: str, expected: str | None
) -> None:
    assert ner.finer_class(data_class, words) == expected


@pytest.mark.parametrize("text", ["the python", "the @ meets"])
def test_an_unsure_person_that_is_no_name_is_nothing(
    detector: NerDetector, text: str
) -> None:
    model = detector._model
    assert [each.kind for each in model.opinion(raw(text)).entities] == ["PERSON"]
    assert people_in(detector, text) == set()


def test_a_word_that_is_a_name_too_stays_a_person(detector: NerDetector) -> None:
    assert people_in(detector, "the grace") == {"grace"}


# --- topics -------------------------------------------------------------------


def test_a_topic_covers_the_whole_text(detector: NerDetector) -> None:
    text = "the diagnosed in plovdiv"
    classes = {each.data_class: each for each in spans(detector, text)}
    topic = classes["topic.health"]
    assert (topic.start, topic.end) == (0, len(text))
    assert topic.score >= 50


def test_what_is_said_of_somebody_is_judged_by_itself(
    monkeypatch: pytest.MonkeyPatch, detector: NerDetector
) -> None:
    judged: list[str] = []
    cut = guard_model.GuardModel._cut

    def cutting(self: guard_model.GuardModel, text: str) -> object:
        judged.append(text)
        return cut(self, text)

    monkeypatch.setattr(guard_model.GuardModel, "_cut", cutting)
    text = "The hall has forty desks. They put a stent in me. It is on a hill."
    spans(detector, text)
    assert judged == [text, "They put a stent in me."]


def test_what_was_judged_ahead_is_found_and_not_judged_again(
    monkeypatch: pytest.MonkeyPatch, detector: NerDetector
) -> None:
    texts = ["Bogdana Ilieva is here. My knee hurts.", "the", "I was diagnosed"]
    readings = [raw(text) for text in texts]
    detector.ahead(readings)
    monkeypatch.delattr(guard_model.GuardModel, "judge_all")
    found = [run(detector, each) for each in readings]
    monkeypatch.undo()
    assert found == [run(detector, raw(text)) for text in texts]
    assert found[0]


@pytest.mark.parametrize("between", [" ", "\n\n"])
@pytest.mark.parametrize(
    ("told", "topic"),
    [
        ("They put a stent in me in May, can I fly?", "topic.health"),
        ("After the op I can't feel my left foot.", "topic.health"),
        ("I wear hijab and my boss says no.", "topic.special"),
    ],
)
def test_harmless_words_beside_it_hide_no_topic(
    told: str, topic: str, between: str
) -> None:
    real = NerDetector(EmbeddedModel(guard_model.load_guard(), recall=100))
    beside = "The library opened in 1932 and has forty desks. Tours start at ten."
    assert topic in found_classes(real, f"{beside}{between}{told}")
    assert topic not in found_classes(real, beside)


def test_a_sure_topic_is_about_somebody(detector: NerDetector) -> None:
    assert "marker.first_person" in found(detector, "the diagnosed").values()
    assert "marker.first_person" not in found(detector, "the meets").values()


def test_an_unlikely_topic_is_no_finding(detector: NerDetector) -> None:
    assert spans(detector, "the meets the") == []


# --- the union with lists and rules -------------------------------------------


@pytest.mark.parametrize("text", ["the acme", "ask acme", "plovdiv is late"])
def test_one_unlisted_word_without_the_marks_of_a_place_is_a_person(
    detector: NerDetector, text: str
) -> None:
    assert PERSON in set(found(detector, text).values())


@pytest.mark.parametrize(
    "text",
    [
        "what are the brand names of Tobramycin?",
        "is apixaban better than remdesivir in the NICU?",
        "What are the treatments for Wilson's disease?",
        "rename doctor_account and @Entity",
        "the Mann-Whitney test and Duke criteria",
    ],
)
def test_things_are_neither_people_nor_places(text: str) -> None:
    real = NerDetector(EmbeddedModel(guard_model.load_guard(), recall=100))
    assert not {PERSON, CITY, EMPLOYER} & set(found(real, text).values())


@pytest.mark.parametrize(
    "text",
    [
        "Ask Haugland to pay",
        "ask haugland to pay",
        "the second rent of haugland is late",
        "The Hauglands owe two rents",
        "the haugland twins fight",
        "{'okafor': 2, 'haugland': 1} rents",
        "Wilson has cancer, says Haugland",
    ],
)
def test_surnames_alone_are_people(text: str) -> None:
    real = NerDetector(EmbeddedModel(guard_model.load_guard(), recall=100))
    assert any("haugland" in name.lower() for name in people_in(real, text))


def test_who_is_introduced_is_a_person_whatever_the_model_says(
    detector: NerDetector,
) -> None:
    assert found(detector, "my name is xiomara")["xiomara"] == PERSON
    assert found(detector, "dr okonkwo called")["okonkwo"] == PERSON


def test_a_listed_name_is_a_person_whatever_the_model_says(
    detector: NerDetector,
) -> None:
    assert found(detector, "the Karen meets")["Karen"] == PERSON


def test_a_capital_the_model_clears_is_nothing(detector: NerDetector) -> None:
    assert found(detector, "the Grobnik meets") == {}


def test_a_capital_the_model_doubts_is_a_person(detector: NerDetector) -> None:
    assert found(detector, "the Zorblat meets")["Zorblat"] == PERSON


def test_a_suspect_that_is_a_place_is_no_person(detector: NerDetector) -> None:
    assert found(detector, "meets in Plovdiv") == {"Plovdiv": CITY}


def test_a_name_glued_to_a_found_one_belongs_to_it(detector: NerDetector) -> None:
    assert found(detector, "the Bogdana Grobnik meets") == {"Bogdana Grobnik": PERSON}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my name is Bogdana Ilieva", "Bogdana Ilieva"),
        ("Dr. Grobnik Ilieva meets", "Grobnik Ilieva"),
        ("the Karen Ilieva meets", "Karen Ilieva"),
    ],
)
def test_a_name_that_several_found_is_one_span(
    detector: NerDetector, text: str, name: str
) -> None:
    merged = merge(spans(detector, text))
    people = [each for each in merged if each.data_class == PERSON]
    assert [text[each.start : each.end] for each in people] == [name]


def test_people_apart_stay_apart(detector: NerDetector) -> None:
    assert people_in(detector, "Karen, Bogdana") == {"Karen", "Bogdana"}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9))))
def test_joined_people_cover_what_was_found(places: list[tuple[int, int]]) -> None:
    text = "a bc def g hi jkl mno pq r stu"
    made = [
        Span(data_class=PERSON, detector="x", start=at, end=at + size, score=size)
        for at, size in places
    ]
    whole = list(ner.joined(text, made))
    covered = {at for each in whole for at in range(each.start, each.end)}
    assert covered >= {at for each in made for at in range(each.start, each.end)}
    assert all(one.end < two.start for one, two in pairwise(whole))


def test_model_never_makes_fewer_people_of_introductions(
    detector: NerDetector,
) -> None:
    text = "Dear Bogdana,\nthe diagnosed\nBest regards,\nXiomara"
    sure = people_in(NameDetector(), text)
    assert len(sure) == 2
    assert sure <= people_in(detector, text)


@given(st.text(max_size=120))
def test_any_text_gives_spans_inside_it(text: str) -> None:
    for each in DETECTORS[0].find(raw(text)):
        assert 0 <= each.start <= each.end <= len(text)
        assert is_class(each.data_class)
        assert 1 <= each.score <= 100


DETECTORS: list[NerDetector] = []


@pytest.fixture(scope="module", autouse=True)
def _share(detector: NerDetector) -> None:
    DETECTORS[:] = [detector]


# --- the model that ships -----------------------------------------------------


@pytest.fixture(scope="module")
def embedded() -> Detector:
    ((found, _),) = ner_detectors(NerPlan(engine="embedded"))
    assert isinstance(found, NerDetector)
    return found


def test_shipped_model_has_the_kinds_and_topics_of_the_policy() -> None:
    manifest = guard_model.load_guard().manifest
    assert set(manifest.kinds[1:]) == set(ner.CLASSES)
    assert all(is_class(f"topic.{name}") for name in manifest.topics)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Please call Krisztina Farkas back", "Krisztina Farkas"),
        ("remind me to email bogdana ilieva tomorrow", "bogdana ilieva"),
        ("is priya venkataraman free on friday", "priya venkataraman"),
        ("Nguyen Thi Mai wrote to us", "Nguyen Thi Mai"),
        ("See attached.\n\nBest regards,\nOluwaseun Adeyemi\nSales", "Oluwaseun"),
        ('user = User(name="Wijtze Boersma", role="admin")', "Wijtze Boersma"),
        ("the account yesenia_ocampo was locked", "yesenia"),
        ("the form from Mr O'Neil-Sato", "Sato"),
    ],
)
def test_shipped_model_finds_names(embedded: Detector, text: str, name: str) -> None:
    start, end = text.index(name), text.index(name) + len(name)
    covered = {
        at
        for each in spans(embedded, text)
        if each.data_class == PERSON
        for at in range(each.start, each.end)
    }
    letters = {at for at in range(start, end) if text[at].isalpha()}
    assert letters <= covered


@pytest.mark.parametrize(
    "text",
    [
        "What is HIV?",
        "How do I reverse a list in Python?",
        "set an alarm for seven in the morning",
        "Explain how vaccines work to a ten year old",
    ],
)
def test_shipped_model_lets_questions_be(embedded: Detector, text: str) -> None:
    found = {each.data_class: each.score for each in spans(embedded, text)}
    assert PERSON not in found
    assert found.get("topic.health", 0) < 50
    assert found.get("topic.special", 0) < 50


@pytest.mark.parametrize(
    "text",
    [
        "I was diagnosed with HIV last week",
        "I have been so depressed since my divorce",
        "my boss fired me because I am pregnant",
    ],
)
def test_shipped_model_knows_ones_own_situation(embedded: Detector, text: str) -> None:
    found = {each.data_class: each.score for each in spans(embedded, text)}
    assert max(found.get("topic.health", 0), found.get("topic.special", 0)) >= 50
    assert "marker.first_person" in found


@pytest.mark.parametrize(
    "text",
    [
        "Does metformin reduce mortality in patients with heart failure?",
        "Do episodic migraineurs selectively attend to headache-related stimuli?",
        "Our study included 84 patients who underwent hip replacement.",
        "Write a job advert for a nurse in our clinic",
        "How does chapter 7 bankruptcy work?",
        "Explain plea bargaining to a student",
        "Why do people join trade unions?",
        "How do I write a fair performance review?",
    ],
)
def test_talk_of_a_subject_is_no_topic(embedded: Detector, text: str) -> None:
    found = {each.data_class: each.score for each in spans(embedded, text)}
    assert all(score < 50 for name, score in found.items() if name.startswith("topic."))


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("health", "bed 12 has fever since yesterday, blood culture grew E. coli"),
        ("health", "The stuff they drip into me on Thursdays makes my hair fall out"),
        ("health", "Miscarried on Sunday. When to try again?"),
        ("special", "Convicted of theft in 2019. Jobs?"),
        ("finance", "I bring home 2,140 a month and rent is 1,300, is that ok?"),
        ("legal", "there's a bench warrant out for me in Ohio"),
        ("hr", "they let me go at the end of the month, after 12 years"),
    ],
)
def test_somebodys_affairs_are_a_topic_without_the_word(
    embedded: Detector, topic: str, text: str
) -> None:
    found = {each.data_class: each.score for each in spans(embedded, text)}
    assert found.get(f"topic.{topic}", 0) >= 50
    assert "marker.first_person" in found


def test_what_the_shipped_model_says_does_not_depend_on_neighbours() -> None:
    guard = guard_model.load_guard()
    assert guard.manifest.rows_apart
    texts = [
        "Call Miroslava about the invoice",
        "call miroslava",
        "\N{SNOWMAN} " * 9,
        "I was diagnosed with HIV last week",
        "My landlord wants me out by May. Can he?",
        "A long one about the library. " * 40,
        "",
    ]
    asked = [Passages(text=text, beside=(text[:20],)) for text in texts]
    together = guard.judge_all(asked * 3, recall=100)
    for each, judged in zip(asked * 3, together, strict=True):
        (alone,) = guard.judge_all([each], recall=100)
        assert judged.entities == alone.entities
        # Sums of 32-bit floats come in another order; a score may round apart.
        for topic, score in alone.topics.items():
            assert abs(judged.topics[topic] - score) <= 1


def test_the_shipped_model_takes_time_in_proportion() -> None:
    guard = guard_model.load_guard()

    def cost(pieces: int) -> float:
        text = "a." * pieces
        began = time.process_time()  # of every thread: the model has some
        guard.judge_all([Passages(text=text)], recall=100)
        return time.process_time() - began

    assert grows_at_most(cost, lengths=(250, 1000), factor=8)
