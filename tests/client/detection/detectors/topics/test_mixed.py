import pytest

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.mixed import (
    MixedDetector,
    family_in,
)
from curtilage.policy.decision.findings import Normalization


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in family_in(text)]


@pytest.mark.parametrize(
    ("text", "kin"),
    [
        ("so my suegra tiene fiebre again, what now?", "suegra"),
        ("ok oma hat Fieber again, should we call?".lower(), "oma"),
        ("frère prend des gouttes again, what now?", "frère"),
        ("my nonna ha la febbre, should she eat?", "nonna"),
        ("the schoonmoeder heeft koorts, what do we do?", "schoonmoeder"),
        ("irmã tem febre again, what now?", "irmã"),
        ("la suegra est tombée à cause du diabète", "suegra"),
        ("la sobrinha se mareó, ¿vamos a urgencias?", "sobrinha"),
        ("ma schoonmoeder tousse", "schoonmoeder"),
        ("meine grandma has a fever, was soll ich jetzt tun?", "grandma"),
    ],
)
def test_family_in_a_sentence_of_two_languages_is_found(text: str, kin: str) -> None:
    assert found(text) == [kin]


@pytest.mark.parametrize(
    "text",
    [
        "what helps when a grandmother has a fever?",
        "was hilft, wenn die schwester fieber hat?",
        "que faire quand une tante a de la fièvre ?",
        "¿qué hacer cuando la abuela tiene fiebre?",
        "das ist nicht mehr so einfach",
    ],
)
def test_family_in_one_language_is_left_to_its_rules(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("desde el Schlaganfall mi schwager no come", {"Schlaganfall"}),
        ("mia schoonmoeder ha di nuovo astma, cosa aiuta?", {"astma"}),
        ("ma suegra a encore son ictus", {"ictus"}),
        ("meine nephew hat wieder asthma", {"asthma"}),
        # In one language only, or with no illness of the family word's own.
        ("mi cuñada tiene otra vez asma", set[str]()),
        ("meine suegra hat wieder Zeit", set[str]()),
        ("Was ist ein Schlaganfall?", set[str]()),
    ],
)
def test_health_in_the_language_of_the_family_word(text: str, words: set[str]) -> None:
    reading = Reading(normalization=Normalization.RAW, text=text)
    spans = list(MixedDetector().find(reading))
    assert {text[each.start : each.end] for each in spans} == words
    assert all(each.data_class.startswith("health.") for each in spans)
