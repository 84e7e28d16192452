import pytest

from curtilage.client.detection.detectors.anomalies import LanguageDetector
from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from curtilage.client.detection.detectors.readings import Reading
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.values import COVERED_LANGUAGES

pytest.importorskip("py3langid", reason="SKIPPED LOUDLY: needs the extra pii")


def found(text: str, *languages: str) -> list[str]:
    """Return what a detector for some languages says is in none of them."""
    reading = Reading(normalization=Normalization.RAW, text=text)
    spans = list(LanguageDetector(languages).find(reading))
    assert {span.data_class for span in spans} <= {"uncertain.language"}
    return [text[span.start : span.end] for span in spans]


def test_what_the_policy_calls_covered_brings_its_words() -> None:
    assert VOCABULARIES.keys() == COVERED_LANGUAGES.keys()


def test_a_language_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="not covered"):
        LanguageDetector(("en", "tlh"))


def test_a_covered_language_that_is_not_named_is_found() -> None:
    text = "What is the weather like?"
    assert found(text, "en") == []
    assert found(text) == [text]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("What does 你 mean", "你"),
        ("what is привет", "привет"),
        ("Είμαι tired", "Είμαι"),
    ],
)
def test_a_letter_of_another_script_is_found(text: str, place: str) -> None:
    assert found(text, "en") == [place]


@pytest.mark.parametrize("text", ["What is π?", "x² + β = 5 µm", "a 5 Å layer"])
def test_signs_of_mathematics_are_covered(text: str) -> None:
    assert found(text, "en") == []
