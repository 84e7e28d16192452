import pytest

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.markers import (
    PersonMarkerDetector,
    tells_of_any_man,
    tells_of_nobody,
)
from curtilage.policy.decision.findings import Normalization
from support.equipment import as_written
from support.growth import grows_at_most, seconds_of

SOMEBODY = "marker.first_person"
ADDRESSEE = "marker.addressee"
CASE = "marker.case"


def raw(text: str) -> Reading:
    return Reading(normalization=Normalization.RAW, text=text)


def kinds_of(text: str) -> set[str]:
    return {span.data_class for span in PersonMarkerDetector().find(raw(text))}


@pytest.mark.parametrize(
    "text",
    [
        "bed 12 has fever since yesterday",
        "consult for the twins in NICU, one has NEC",
        "our resident in 4B refuses insulin",
        "my patient threw up",
        "this patient bleeds",
        "the lady in bay 3 has norovirus",
        "room 9: no urine",
        "72 y/o with AF",
        "64M with chest pain",
        "POD 2 after hip replacement",
        "BP 80/40, HR 130",
        "new admission from the nursing home",
        "one of my dialysis patients wants to stop",
        "S: cough. O: crackles. A: pneumonia. P: amoxicillin",
        "Diagnosis on file: hepatitis C",
        "a friend of mine has lupus",
        "the neighbour has HIV",
        "They have been diagnosed with gonorrhoea",
        "gonorrhoea, both of them",
        "The twins in NICU, NEC.",
        "Grandad's had another funny turn",
        "Card declined, overdrawn till payday",
    ],
)
def test_a_patient_without_a_name_is_somebody(text: str) -> None:
    assert SOMEBODY in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Miscarried on Sunday. When to try again?",
        "Convicted of theft in 2019. Jobs?",
        "Just diagnosed with lupus",
        "Living with lupus, which sunscreen do you suggest?",
        "Struggling with the black dog again",
        "Type 1 here, can I dive?",
        "Got a zero in the assessment, and they withdrew the offer",
        "Help us cope with infertility",
        "Tell me how to live with schizophrenia.",
        "Help me stop drinking",
        "Abortion scheduled Friday, what to bring?",
        "Pregnant and on lithium",
        "Can't sleep since the operation",
        "Fired by text message",
        "Two rounds done, hair is gone",
    ],
)
def test_what_has_no_subject_is_the_speaker(text: str) -> None:
    assert SOMEBODY in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "What does troponin I measure?",
        "type I diabetes",
        "phase I and factor V",
        "Which cut-off of troponin I does the trial use?",
        "phase I dose, type I cancer and troponin I cut-offs",
        "The causes of World War I",
        "for i in range(10): a[i] = 0",
        "How many people in the US smoke?",
        "You need the shot IM",
        "our MRI scanner shows an error",
        "a nurse for our clinic",
        "my users and our patients",
        "What should a patient do if he or she has asthma?",
        "if the patient has sepsis",
        "The patient should be told",
        "We conducted a trial of aspirin",
        "Should we treat mild hypertension?",
        "As a nurse, how do I explain it?",
        "Diagnosed cases of measles by year",
    ],
)
def test_people_in_general_and_numerals_are_not_persons(text: str) -> None:
    assert SOMEBODY not in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "My wife's results came back",
        "My father\u2019s clinic called",
        "My neighbour's kitchen was searched",
        "Our son's school says so",
        "My ex husband report",
        "My HIV clinic closed",
        "My results: positive",
        "My car was repossessed",
    ],
)
def test_a_house_of_somebodys_is_his(text: str) -> None:
    assert SOMEBODY in kinds_of(text)
    assert not tells_of_nobody(raw(text))


@pytest.mark.parametrize(
    "text",
    [
        "The goalkeeper tested positive for cocaine",
        "The night porter at the Grand Hotel in Bath has syphilis",
        "Somebody in payroll has MS",
        "Someone here has HIV",
        "Both brothers have haemophilia",
        "The twins are on dialysis",
    ],
)
def test_whom_everybody_there_knows_is_somebody(text: str) -> None:
    assert SOMEBODY in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Is it legal if the driver has epilepsy?",
        "What should someone with HIV eat?",
        "The nurse is caring for a client with asthma",
        "the printer driver and the twins paradox",
    ],
)
def test_a_trade_in_general_is_not_a_person(text: str) -> None:
    assert SOMEBODY not in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can I get an abortion?",
        "Will I die of leukemia?",
        "Where can I get off heroin?",
        "What should I do about warts?",
        "How do we still cope?",
    ],
)
def test_a_question_about_oneself_is_the_speakers(text: str) -> None:
    assert SOMEBODY in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can I give amoxicillin with food?",
        "How do I take a blood culture?",
        "How should we treat it?",
        "Can you tell me about HIV?",
    ],
)
def test_a_question_of_the_trade_is_nobodys(text: str) -> None:
    assert SOMEBODY not in kinds_of(text)


@pytest.mark.parametrize(
    "text", ["our diabetes clinic", "our hospital's ward", "my new website"]
)
def test_an_employer_is_not_a_person(text: str) -> None:
    assert SOMEBODY not in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        *("what type I have, I do not know", "at what stage I am", "the US took us in"),
        *(
            "the type I don't have",
            "a class I didn\u2019t pass",
            "the stage I cannot bear",
        ),
        *("which type I dont know", "the grade I needed", "the level I gotta reach"),
    ],
)
def test_an_i_that_does_something_is_the_speaker(text: str) -> None:
    assert SOMEBODY in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "A 55-year-old man presents with fever. He has a rash. Why?",
        "A 30-year-old woman comes to the clinic with her husband. Is she well?",
    ],
)
def test_a_case_that_is_any_man_is_a_case(text: str) -> None:
    assert kinds_of(text) == {CASE}
    assert tells_of_any_man(raw(text))


@pytest.mark.parametrize(
    "text",
    [
        "A 55-year-old man has a fever. He was admitted on Tuesday. Why?",
        "A 55-year-old man, my uncle, has a fever. Why?",
        "The patient is a 55-year-old man. He has a rash.",
        # Of a case something is asked.
        "A 55-year-old man came in. He has HIV.",
    ],
)
def test_a_day_or_a_relation_makes_a_case_somebody(text: str) -> None:
    assert SOMEBODY in kinds_of(text)
    assert not tells_of_any_man(raw(text))


def test_in_any_language_something_is_asked_of_a_case() -> None:
    assert tells_of_any_man(as_written("Un patient de 55 ans a le VIH, que faire ?"))
    assert not tells_of_any_man(as_written("Un patient de 55 ans a le VIH."))


@pytest.mark.parametrize(
    "text",
    [
        "The user is gay and not out at work.",
        "The user has two convictions for theft.",
        "The caller takes lithium.",
        "About the user: two abortions.",
    ],
)
def test_the_user_of_an_application_is_somebody(text: str) -> None:
    assert SOMEBODY in kinds_of(text)


@pytest.mark.parametrize(
    "text",
    ["The user is logged in", "The user has permission", "Help the user politely"],
)
def test_what_an_application_does_is_impersonal(text: str) -> None:
    assert kinds_of(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "Your HIV viral load is detectable again",
        "As a gay couple you can adopt",
        "Given your membership in the union",
        "You mentioned that you drink",
    ],
)
def test_you_of_whom_something_is_said_is_the_addressee(text: str) -> None:
    assert kinds_of(text) == {ADDRESSEE}


@pytest.mark.parametrize(
    "text",
    ["You can take it with food", "Ask your doctor about it", "If you have a fever"],
)
def test_you_in_advice_is_anybody(text: str) -> None:
    assert kinds_of(text) == set()


@pytest.mark.parametrize(
    ("text", "impersonal"),
    [
        ("Does metformin reduce mortality?", True),
        ("You are a helpful assistant in our hospital. Answer politely.", True),
        ("Our MRI scanner shows an error.", True),
        ("Explain troponin I", True),
        ("As a helpful assistant, you should always answer in bullet points.", True),
        ("How many songs are there? Your answer should be short.", True),
        ("Now, do the same task again.", True),
        ("We are hiring a receptionist for a dental practice; write the advert.", True),
        ("Fix the typo. Close ticket OPS-2291.", True),
        ("We are hiring and I have HIV.", False),
        ("Should you tell your mother that you have HIV?", False),
        ("Your results are back.", False),
        ("How do I deal with OCD?", False),
        ("How do you live with OCD?", False),
        ("HIV positive. What next?", False),
        ("Lisinopril 10 mg daily.", False),
        ("You are a clerk in our hospital.\x1eHow do I reset a printer?", True),
        ("You are a clerk.\x1eI have HIV. What next?", False),
        ("What helps my asthma?\x1eAnd in winter?", False),
        ("Our clinic is open on Monday, and my wife has cancer.", False),
    ],
)
def test_a_question_is_impersonal_and_a_statement_need_not_be(
    text: str, impersonal: bool
) -> None:
    assert tells_of_nobody(raw(text)) is impersonal


@pytest.mark.parametrize(
    "unit",
    [
        "my a b ",
        "the one of them has ",
        "for these two weeks ",
        "bed 12 s: o: ",
        "i i ",
    ],
)
def test_markers_take_linear_time(unit: str) -> None:
    def cost(times: int) -> float:
        reading = Reading(normalization=Normalization.RAW, text=unit * times)
        return seconds_of(lambda: list(PersonMarkerDetector().find(reading)))

    assert grows_at_most(cost, lengths=(200, 800), factor=8)


@pytest.mark.parametrize(
    "text",
    [
        "Was koche ich heute? Ich habe Hunger.",
        "Mein Hund bellt immer, wenn es klingelt.",
        "Ich backe zum ersten Mal Brot, worauf muss ich achten?",
        "Ik ben mijn sleutels kwijt, waar zou ik zoeken?",
        "Mijn oma maakte altijd appeltaart, heb je een recept?",
    ],
)
def test_what_is_every_days_is_nobodys(text: str) -> None:
    assert tells_of_nobody(as_written(text))


@pytest.mark.parametrize(
    "text",
    [
        "Was koche ich heute? Ich habe Hunger und Diabetes.",
        "Seit dem Konzert höre ich nichts mehr, was hilft?",
        "Meine Oma vergisst beim Kochen den Herd.",
        "Mein Mann sitzt im Rollstuhl, wohin in Urlaub?",
        "Mijn kleintje heeft deeg gegeten en is nu helemaal suf.",
        "Mijn zus trouwt met een moslim, wat zeg ik?",
    ],
)
def test_what_befell_somebody_in_the_kitchen_or_on_a_journey_is_his(text: str) -> None:
    assert not tells_of_nobody(as_written(text))
