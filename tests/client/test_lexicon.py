import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.lexicon import CLASSES, LexiconDetector, class_of
from curtilage.client.names import NameDetector
from curtilage.client.scan import own_equipment, scan
from curtilage.client.views import Reading, readings
from curtilage.policy.classes import is_class
from curtilage.policy.findings import View

EQUIPMENT = own_equipment()


def classes_of(*texts: str) -> set[str]:
    return {span.data_class for spans in scan(texts, EQUIPMENT) for span in spans}


def test_every_lexicon_class_is_in_the_tree() -> None:
    assert [name for name in CLASSES if not is_class(name)] == []


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("diabetic", "health.condition"),
        ("hiv", "health.condition"),
        ("insulin", "health.medication"),
        ("chemotherapy", "health.procedure"),
        ("lesbian", "special.orientation"),
        ("orthodox", None),
        ("table", None),
    ],
)
def test_class_of_a_word(word: str, name: str | None) -> None:
    assert class_of(word) == name


@pytest.mark.parametrize(
    "text",
    [
        "I was diagnosed with HIV last week",
        "my daughter has a fever",
        "the patient has diabetes",
        "patient presents with chest pain",
        "her biopsy came back",
        "our client suffers from asthma",
        "58 yo with copd",
    ],
)
def test_health_of_somebody_is_marked(text: str) -> None:
    found = classes_of(text)
    assert "marker.first_person" in found
    assert any(name.startswith("health.") for name in found)


@pytest.mark.parametrize(
    "text",
    [
        "What is HIV?",
        "What are the symptoms of diabetes?",
        "Can you tell me how insulin works?",
        "How do I spell diarrhea?",
        "Write a leaflet for patients with asthma",
        "I want to know what dialysis is",
    ],
)
def test_health_of_nobody_is_not_marked(text: str) -> None:
    assert "marker.first_person" not in classes_of(text)


def test_special_words_about_nobody_are_a_topic() -> None:
    found = classes_of("Explain the history of Islam")
    assert "topic.special" in found
    assert not any(name.startswith("special.") for name in found)


def test_special_words_about_somebody_are_data() -> None:
    assert "special.religion" in classes_of("my wife is Muslim")


def test_a_marker_in_another_message_makes_special_words_data() -> None:
    assert "special.orientation" in classes_of("tell me about gay bars", "I am 30")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I joined the trade union", "special.union"),
        ("am I allowed to stand for election, I wonder", "special.politics"),
        ("I am a member of the green party", "special.politics"),
        ("my brother has a criminal record", "special.criminal"),
        ("I came out to my parents", "special.orientation"),
        ("we go to church every week", "special.religion"),
        ("my blood test is back", "health.lab"),
    ],
)
def test_phrases_tell_of_special_categories(text: str, name: str) -> None:
    assert name in classes_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Find the leak in our internal billing service",
        "Summarize these confidential notes",
        "Draft the internal memo about the move",
        "Clean up this customer list",
        "Sort this spreadsheet of patient contacts",
        "Sort this table with the salary of everybody",
        "Help with our go-to-market plan",
        "don't send this to the cloud",
        "Do not share it with any third party",
        "process this locally",
        "keep all of it on-prem please",
        "this must not leave the building",
    ],
)
def test_what_is_internal_or_shall_stay_is_confidential(text: str) -> None:
    assert "org.confidential" in classes_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "What is an internal combustion engine?",
        "Compare on-prem and cloud hosting",
        "How do companies protect customer data?",
        "is this company any good",
        "Write a list of customer types",
        "leave a note for the cloud team",
        "my private key is lost",
    ],
)
def test_talk_of_confidentiality_is_not_confidential(text: str) -> None:
    assert "org.confidential" not in classes_of(text)


def test_confidential_rules_take_linear_time() -> None:
    def cost(text: str) -> float:
        started = time.thread_time()
        list(LexiconDetector().find(Reading(view=View.RAW, text=text)))
        return time.thread_time() - started

    for unit in ("our a b ", "do not send ", "this these our ", "process our local "):
        cost(unit * 10)
        short = min(cost(unit * 500) for _ in range(3))
        long = min(cost(unit * 1000) for _ in range(3))
        assert long < 4 * short + 0.005


@pytest.mark.parametrize(
    "text",
    [
        "What is HIV?",
        "Explain the difference between HTTP and HTTPS",
        "Draft a polite email asking a supplier for a quote in March",
        "How does compound interest work?",
        "Summarize the causes of World War II in Europe",
        "Write a Python function that reverses a string",
        "Translate 'good morning' into Spanish and French",
        "What's the weather like in London on Monday?",
        "Compare PostgreSQL with MySQL",
        "Photosynthesis: how does it work?",
        "Prepare an agenda for a staff meeting",
        "WHAT IS THE CAPITAL OF FRANCE",
        "1. Explain GDPR\n2. List its principles\n- Keep it short",
        "Write a Patient Information Leaflet about flossing",
        "Use MS Word or Excel",
    ],
)
def test_harmless_capitals_are_no_names(text: str) -> None:
    assert not classes_of(text) & {"uncertain.name", "identifier.direct.person"}


@pytest.mark.parametrize(
    "text",
    [
        "patient John Smith",
        "my name is john smith",
        "my name is xiomara",
        "Dr. Okonkwo called",
        "dr okonkwo called",
        "Mr Bond is here",
        "my friend Bogdana is here",
        "name: Wijtze",
    ],
)
def test_introduced_people_are_persons(text: str) -> None:
    assert "identifier.direct.person" in classes_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please write to Krisztina about the meeting",
        "ask john about it",
        "Sarah is late again",
        "send it to McKay",
        "O'Leary wrote this",
        "a letter for Anne-Sophie Blanc",
        "JOHN DOE WAS HERE YESTERDAY",
        "a note on Grace, who left",
        "meet J. Doerr there",
        "ask Krisztina's mother",
    ],
)
def test_possible_names_are_uncertain(text: str) -> None:
    assert classes_of(text) & {"uncertain.name", "identifier.direct.person"}


@pytest.mark.parametrize(
    "text",
    [
        "Wie geht es mir mit dem Geld auf der Bank",
        "¿Cómo está mi cuenta del banco?",
        "привет",
        "我的名字",
        "What does 你 mean",
        "mon mari est malade et je ne sais pas quoi faire",
        "Quelle heure est-il ?",
        "Wie spät ist es?",
        "¿Cuánto cuesta?",
    ],
)
def test_other_languages_are_uncertain(text: str) -> None:
    assert "uncertain.language" in classes_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "im hungry",
        "das boot tickets",
        "What is π?",
        "a café in Zürich",
        "x² + β = 5 µm",
        "set a timer for ten minutes",
    ],
)
def test_english_with_a_few_other_letters_is_covered(text: str) -> None:
    assert not classes_of(text) & {"uncertain.language", "uncertain.obfuscation"}


@pytest.mark.parametrize(
    "text",
    [
        "pass\u200bword",
        "b\u043eb is here",
        "\u202eevil",
        "aGVsbG8gbXkgbmFtZSBpcyBib2I=",
    ],
    ids=["zero width", "cyrillic o", "override", "base64"],
)
def test_hidden_text_is_obfuscation(text: str) -> None:
    assert "uncertain.obfuscation" in classes_of(text)


@given(st.text(max_size=120))
def test_name_detector_takes_any_text(text: str) -> None:
    detector = NameDetector()
    for reading in readings(text):
        for span in detector.find(reading):
            assert 0 <= span.start < span.end <= len(reading.text)
