# pyright: reportPrivateUsage=false
# The model inside a detector is handed to another one.
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
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
from curtilage.client.detection.detectors.model.entity import Entity, Passages
from curtilage.client.detection.detectors.model.operator import PlainOpinion
from curtilage.client.detection.detectors.names.capitals import NameDetector
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import Detector, run
from curtilage.client.detection.spans import Span, merge
from curtilage.client.detection.turns import JOINT
from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.detection_plan import NerPlan
from support.growth import grows_at_most

pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: needs the extra pii")
pytest.importorskip("tokenizers", reason="SKIPPED LOUDLY: needs the extra pii")
from support.examples import examples
from support.tiny_guard import LABELS, write_guard

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
    """The class of everything found, by the words that it covers."""
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


# --- a model of the other languages ---------------------------------------------


class Judge:
    """A model that keeps what it was asked; ``blind``: and sees none of it."""

    def __init__(self, guard: guard_model.GuardModel, *, blind: bool = False) -> None:
        self.manifest = guard.manifest
        self.asked: list[str] = []
        self._guard = guard
        self._blind = blind

    def judge_all(
        self, asked: Sequence[Passages], *, recall: int
    ) -> Sequence[guard_model.Judgement]:
        self.asked += [each.text for each in asked]
        if self._blind:
            asked = [
                Passages(text="the" * len(each.text), excerpts=()) for each in asked
            ]
        return self._guard.judge_all(asked, recall=recall)


@pytest.fixture
def guard(tmp_path: Path) -> guard_model.GuardModel:
    return guard_model.load_guard(write_guard(tmp_path / "guard_model"))


ENGLISH = "What is the plan for the meeting on Friday?"
GERMAN = "Wie wird das Wetter morgen in der Stadt?"
MIXED = f"{ENGLISH} Meine Tochter ist heute nicht in der Schule."


@pytest.mark.parametrize(
    ("text", "english", "other"),
    [(ENGLISH, True, False), (GERMAN, False, True), (MIXED, True, True)],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_text_is_judged_by_who_knows_its_languages(
    text: str,
    guard: guard_model.GuardModel,
    *,
    english: bool,
    other: bool,
    ahead: bool,
) -> None:
    one, another = Judge(guard), Judge(guard)
    model = NerDetector(EmbeddedModel(guard=one, recall=100, others=another))
    reading = raw(text)
    if ahead:
        model.ahead([reading])
    run(model, reading)
    assert (text in one.asked, text in another.asked) == (english, other)


@pytest.mark.parametrize("blind", [0, 1])
def test_what_one_of_two_models_sees_is_found(
    guard: guard_model.GuardModel, blind: int
) -> None:
    one, another = (Judge(guard, blind=at == blind) for at in (0, 1))
    model = NerDetector(EmbeddedModel(guard=one, recall=100, others=another))
    seen = found(model, f"The Zorblat was diagnosed in plovdiv. {MIXED}")
    assert seen["Zorblat"] == PERSON, "a doubt is one"
    assert seen["plovdiv"] == CITY
    assert "topic.health" in found_classes(model, f"It was diagnosed. {MIXED}")


@pytest.mark.parametrize(
    ("languages", "opened"),
    [
        (("en",), [None]),
        (("en", "de"), [None, guard_model.multilingual()]),
        (("fr",), [None, guard_model.multilingual()]),
    ],
)
def test_the_other_model_is_opened_where_another_language_is_named(
    languages: tuple[str, ...],
    opened: list[object],
    guard: guard_model.GuardModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def load(folder: object = None) -> guard_model.GuardModel:
        asked.append(folder)
        return guard

    monkeypatch.setattr(guard_model, "load_guard", load)
    ((chosen, _),) = ner_detectors(NerPlan(engine="embedded"), languages)
    assert isinstance(chosen, NerDetector)
    assert asked == [None]  # the other one when a text needs it
    chosen.ahead([raw("Wie schreibe ich einen kurzen Brief?")])
    assert asked == opened


@pytest.mark.parametrize("wrong", ["gone", "of another kind"])
def test_without_the_other_model_nothing_is_judged(
    wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    if wrong != "gone":
        write_guard(folder, entities=[each.replace("NRP", "X") for each in LABELS])
    monkeypatch.setattr(guard_model, "multilingual", lambda: folder)
    ((chosen, _),) = ner_detectors(NerPlan(engine="embedded"), ("en", "de"))
    assert isinstance(chosen, MissingModelDetector)
    assert [each.data_class for each in spans(chosen, "hello")] == ["uncertain.error"]


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


@examples(
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
        (ner.ADDRESS, "der Bus 412", None),
        (ner.ADDRESS, "le train n° 8412", None),
        (ner.ADDRESS, "Psalm 119", None),
        (ner.ADDRESS, "die Straßenbahnlinie 12", None),
        (ner.ADDRESS, "Busweg 12", ner.ADDRESS),
        (ner.ADDRESS, "Reeperbahn 154", ner.ADDRESS),
        (ner.ADDRESS, "Grabenzug 5", ner.ADDRESS),
        (ner.ADDRESS, "die Straßenbahn 12", None),
        (ner.ADDRESS, "Grünzug 8", ner.ADDRESS),
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


@pytest.mark.parametrize(
    ("before", "words", "expected"),
    [
        ("De trein vertrekt van ", "spoor 12", None),
        ("Ze woont op ", "Het Spoor 12", ner.ADDRESS),
        ("Adresse der Patientin:\n", "Gleis 7", ner.ADDRESS),
        ("Vivo cerca. Sale del ", "andén 4", None),
        ("Vivo en ", "Andén 4", ner.ADDRESS),
        ("Delivery address: ", "Metro 4", ner.ADDRESS),
        ("J'habite ", "quai 12", ner.ADDRESS),
        ("Abita in ", "Binario 8", ner.ADDRESS),
        ("Ela mora na ", "Linha 3", ner.ADDRESS),
    ],
)
def test_where_somebody_lives_is_an_address_whatever_its_name(
    before: str, words: str, expected: str | None
) -> None:
    assert ner.finer_class(ner.ADDRESS, words, before) == expected


@pytest.mark.parametrize("text", ["the python", "the @ meets"])
def test_an_unsure_person_that_is_no_name_is_nothing(
    detector: NerDetector, text: str
) -> None:
    model = detector._model
    assert [each.kind for each in model.opinion(raw(text)).entities] == ["PERSON"]
    assert people_in(detector, text) == set()


def test_a_word_that_is_a_name_too_stays_a_person(detector: NerDetector) -> None:
    assert people_in(detector, "the grace") == {"grace"}


@dataclass(frozen=True, slots=True)
class Sees:
    """A model that sees one entity, whatever it is shown."""

    entity: Entity
    classes: Mapping[str, str] = field(default_factory=lambda: ner.CLASSES)
    person: str = "PERSON"

    def opinion(self, reading: Reading) -> PlainOpinion:
        del reading
        return PlainOpinion(entities=(self.entity,))


def seen(text: str, start: int, end: int, kind: str) -> list[tuple[str, str]]:
    entity = Entity(kind=kind, start=start, end=end, score=90)
    shown = spans(NerDetector(Sees(entity)), text)
    return [(each.data_class, text[each.start : each.end]) for each in shown]


@pytest.mark.parametrize("marks", [".", ",", ";", ":", " ", "\t", "\n", ". ", ";:\n "])
def test_marks_before_an_entity_are_none_of_it(marks: str) -> None:
    text = f"so{marks}haugland"
    assert seen(text, 2, len(text), "LOCATION") == [(CITY, "haugland")]


@pytest.mark.parametrize("name", ["o'neil", "j. r. haugland", "@haugland", "haugland."])
def test_other_marks_of_an_entity_are_part_of_it(name: str) -> None:
    assert seen(name, 0, len(name), "PERSON") == [(PERSON, name)]


def test_an_ordinary_word_behind_a_mark_is_no_person() -> None:
    assert seen("mr. then", 2, 8, "PERSON") == []


def test_an_entity_of_marks_alone_is_nothing() -> None:
    assert seen("so. ", 2, 4, "NRP") == []


def test_an_entity_over_the_joint_of_two_turns_keeps_every_word() -> None:
    text = f"my name is tom{JOINT}baker"
    assert seen(text, 11, len(text), "PERSON") == [(PERSON, f"tom{JOINT}baker")]


@pytest.mark.parametrize(("start", "end"), [(0, 99), (-1, 4), (4, 2), (9, 9)])
def test_an_entity_at_no_place_of_the_text_is_an_error(start: int, end: int) -> None:
    assert seen("so..", start, end, "NRP") == [("uncertain.error", "so..")]


@pytest.mark.parametrize("joint", ["\n", JOINT])
def test_the_next_turn_is_not_read_as_part_of_a_name(joint: str) -> None:
    real = NerDetector(EmbeddedModel(guard_model.load_guard(), recall=100))
    text = f"I met Mr. Baker{joint}Then tell him to come"
    assert people_in(real, text) == {"Baker"}


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
    ("statement", "topic"),
    [
        ("They put a stent in me in May, can I fly?", "topic.health"),
        ("After the op I can't feel my left foot.", "topic.health"),
        ("I wear hijab and my boss says no.", "topic.special"),
    ],
)
def test_harmless_words_around_it_hide_no_topic(
    statement: str, topic: str, between: str
) -> None:
    real = NerDetector(EmbeddedModel(guard_model.load_guard(), recall=100))
    context = "The library opened in 1932 and has forty desks. Tours start at ten."
    assert topic in found_classes(real, f"{context}{between}{statement}")
    assert topic not in found_classes(real, context)


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


def test_an_unknown_word_next_to_a_name_in_a_list_is_a_person(
    detector: NerDetector,
) -> None:
    seen = found(detector, '{"bogdana": 2, "grobnik": 1}')
    assert seen == {"bogdana": PERSON, "grobnik": PERSON}


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


def test_shipped_models_have_the_kinds_and_topics_of_the_policy() -> None:
    one, other = (
        guard_model.load_guard(folder).manifest
        for folder in (None, guard_model.multilingual())
    )
    assert set(one.kinds[1:]) == set(other.kinds[1:]) == set(ner.CLASSES)
    assert all(is_class(f"topic.{name}") for name in one.topics)
    # What two of them say of one text is joined topic by topic.
    assert set(other.topics) == set(one.topics)


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


@pytest.mark.parametrize("folder", [None, guard_model.multilingual()])
def test_what_a_shipped_model_says_does_not_depend_on_neighbours(
    folder: Traversable | None,
) -> None:
    guard = guard_model.load_guard(folder)
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
    asked = [Passages(text=text, excerpts=(text[:20],)) for text in texts]
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


# --- surnames in small letters, and names that go on, in every language -------

AROUND = {
    "de": ("Wir treffen uns am Montag.", "Bitte schreibe eine kurze Erinnerung."),
    "es": ("Nos vemos el lunes.", "Escribe un recordatorio breve."),
    "fr": ("On se voit lundi.", "Rédige un petit rappel."),
    "it": ("Ci vediamo lunedì.", "Scrivi un breve promemoria."),
    "nl": ("We zien elkaar maandag.", "Schrijf een korte herinnering."),
    "pt": ("Vemo-nos na segunda.", "Escreve um lembrete breve."),
}
SMALL_IN = {
    "de": "Die zweite Miete von {} ist noch offen.",
    "es": "Creo que {} olvidó las llaves de la oficina.",
    "fr": "Selon {} la réunion est reportée.",
    "it": "La macchina della vicina {} blocca il cortile.",
    "nl": "Volgens {} is het overleg verschoven.",
    "pt": "O contrato com {} continua aberto.",
}
JOINED_IN = {
    "de": ("Die Rede hält heute Karoline am Löffel aus Spaß.", "Karoline am Löffel"),
    "en": ("Write to Peter of the Glen today.", "Peter of the Glen"),
    "es": ("Felicita a Ana de la Torre.", "Ana de la Torre"),
    "fr": ("Félicite Claire du Moulin-Blanc.", "Claire du Moulin-Blanc"),
    "it": ("Ringrazia Luca dal Ponte.", "Luca dal Ponte"),
    "nl": ("Feliciteer Kees uit den Bogaard.", "Kees uit den Bogaard"),
    "pt": ("Convida a Rosa dos Anjos.", "Rosa dos Anjos"),
}


@pytest.fixture(scope="module")
def of_all_languages() -> NerDetector:
    others = guard_model.load_guard(guard_model.multilingual())
    guard = guard_model.load_guard()
    return NerDetector(EmbeddedModel(guard, recall=100, others=others))


def is_found(detector: NerDetector, code: str, name: str) -> bool:
    """Return whether a name in small letters is found between ordinary sentences."""
    before, behind = AROUND[code]
    return name in people_in(
        detector, f"{before} {SMALL_IN[code].format(name)} {behind}"
    )


@pytest.mark.parametrize("code", SMALL_IN)
def test_a_surname_in_small_letters_between_ordinary_sentences_is_a_person(
    of_all_languages: NerDetector, code: str
) -> None:
    names = ("hakobyan", "iwasaki", "uwimana", "schimmelpfennig", "quorimel")
    assert [each for each in names if not is_found(of_all_languages, code, each)] == []


@pytest.mark.parametrize(
    ("code", "name"), [("pt", "nunes"), ("es", "navarro"), ("fr", "morel")]
)
def test_a_surname_that_a_dictionary_has_is_a_person(
    of_all_languages: NerDetector, code: str, name: str
) -> None:
    assert is_found(of_all_languages, code, name)


@pytest.mark.parametrize(
    "text",
    [
        "On se voit lundi. La flamme est forte et le froid sévère. Merci.",
        "Nos vemos el lunes. El producto lácteo hace bultos en la cocina. Gracias.",
        "Nos vemos el lunes. Pon el sacacorchos junto a la mermelada. Gracias.",
        "On se voit lundi. Range le tire-bouchon avec la confiture. Merci.",
        "Ci vediamo lunedì. Metti il cavatappi vicino alla marmellata. Grazie.",
        "We zien elkaar maandag. Leg de kurkentrekker bij de jam. Bedankt.",
        "Vemo-nos na segunda. Põe o saca-rolhas junto da compota. Obrigado.",
        "Wir sehen uns am Montag. Lege den Zettel bitte griffbereit hin. Danke.",
    ],
)
def test_an_unlisted_ordinary_word_is_not_a_person(
    of_all_languages: NerDetector, text: str
) -> None:
    assert people_in(of_all_languages, text) == set()


def asked_for(text: str) -> float:
    """Return how many characters are judged for a text, in lengths of the text."""
    others = Judge(guard_model.load_guard(guard_model.multilingual()))
    guard = guard_model.load_guard()
    people_in(NerDetector(EmbeddedModel(guard, recall=100, others=others)), text)
    return sum(map(len, others.asked)) / len(text)


def test_what_is_asked_about_small_words_grows_no_faster_than_the_text() -> None:
    # A query's time limit grows with its length; what was asked did with its words.
    sentence = "La segunda renta de quorimel{} y de iwasaki está pendiente en casa. "
    text = "".join(sentence.format(at) for at in "abcdefghijklmnopqrst")
    assert asked_for(text) < 6
    assert asked_for(5 * text) < 4


def test_of_what_is_no_prose_nothing_is_asked() -> None:
    # As in a text that is read backwards: more unknown words than a third.
    words = "quorimel hakobyan iwasaki uwimana tarregui fioroni bravoux wendler"
    text = f"La casa y la mesa están en la calle. {words} están en casa."
    assert asked_for(text) < 3


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # No model doubts the word itself: only a capital makes a name of it.
        ("Das Licht geht nicht. Ich habe wendler eine Antwort versprochen.", "wendler"),
        ("La luz no va. La segunda factura de tarregui sigue pendiente.", "tarregui"),
        ("La lumière est éteinte. Hier bravoux a apporté le classeur.", "bravoux"),
        ("La luce è spenta. Ieri fioroni ha portato la cartella.", "fioroni"),
        ("Het licht is uit. Iemand moet buitekoop naar de kist vragen.", "buitekoop"),
        ("A luz apagou. A fatura de figarenha ainda está por pagar.", "figarenha"),
    ],
)
def test_a_surname_that_looks_like_a_word_is_a_person(
    of_all_languages: NerDetector, text: str, name: str
) -> None:
    assert name in people_in(of_all_languages, text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "Reserviere zwei Plätze für Malte von Felde und einen für den Fahrer.",
            "Malte von Felde",
        ),
        ("Prenota due posti per Ginevra dal Monte.", "Ginevra dal Monte"),
        ("Traduce mi nota a Fermín del Quintivar al inglés.", "Fermín del Quintivar"),
    ],
)
def test_a_name_that_reads_like_a_verb_a_town_or_a_citation_is_one(
    of_all_languages: NerDetector, text: str, name: str
) -> None:
    assert any(name in each for each in people_in(of_all_languages, text))


@pytest.mark.parametrize("code", JOINED_IN)
def test_what_particles_join_is_one_name(
    of_all_languages: NerDetector, code: str
) -> None:
    text, name = JOINED_IN[code]
    assert any(name in each for each in people_in(of_all_languages, text))


def test_a_town_behind_a_title_is_a_person_whatever_the_model_says(
    of_all_languages: NerDetector,
) -> None:
    assert "Nantes-Quor" in people_in(
        of_all_languages, "Rédige une invitation pour Madame de Nantes-Quor."
    )
