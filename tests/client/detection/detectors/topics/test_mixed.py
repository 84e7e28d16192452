import pytest

from curtilage.client.detection.detectors.topics.mixed import family_in


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
