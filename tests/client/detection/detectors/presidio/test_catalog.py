import inspect
from typing import cast

import pytest

from curtilage.client.detection.detectors.presidio.catalog import PHONE, RECOGNIZERS
from curtilage.policy.decision.classes import is_class

# What must not be built: fetches, skips, takes quadratic time, loads a model or
# asks a server (F1, F2, F3, F5, F6), or reads plain words as number plates.
BANNED = {
    "EmailRecognizer", "UrlRecognizer", "IbanRecognizer", "InPanRecognizer",
    "UsHealthInsuranceMemberIdRecognizer", "TrLicensePlateRecognizer",
    "NgVehicleRegistrationRecognizer", "UkVehicleRegistrationRecognizer",
    "SpacyRecognizer", "StanzaRecognizer", "TransformersRecognizer",
    "GLiNERRecognizer", "HuggingFaceNerRecognizer", "MedicalNERRecognizer",
    "AzureAILanguageRecognizer", "AzureHealthDeidRecognizer",
    "AzureOpenAILangExtractRecognizer", "BasicLangExtractRecognizer",
    "LangExtractRecognizer", "ZaMobileNumberRecognizer", "ZaTelephoneNumberRecognizer",
}  # fmt: skip


def test_every_class_of_the_table_is_in_the_tree() -> None:
    assert [name for name in RECOGNIZERS.values() if not is_class(name)] == []


def test_nothing_banned_is_in_the_table() -> None:
    assert BANNED & RECOGNIZERS.keys() == set()


def test_table_is_read_only() -> None:
    with pytest.raises(TypeError):
        RECOGNIZERS["EmailRecognizer"] = "identifier.direct.email"  # type: ignore[index] # pyright: ignore[reportIndexIssue]


def test_table_and_ban_know_every_pattern_recognizer_that_is_shipped() -> None:
    predefined = pytest.importorskip(
        "presidio_analyzer.predefined_recognizers",
        reason="SKIPPED LOUDLY: needs the extra pii",
    )
    analyzer = pytest.importorskip("presidio_analyzer")
    members = cast("dict[str, object]", vars(predefined))
    shipped = {
        name
        for name, each in members.items()
        if inspect.isclass(each)
        and issubclass(each, analyzer.EntityRecognizer)
        and name.endswith("Recognizer")
    }
    assert RECOGNIZERS.keys() <= shipped
    assert {
        name
        for name in shipped - RECOGNIZERS.keys() - BANNED
        if issubclass(getattr(predefined, name), analyzer.PatternRecognizer)
    } == set()
    assert PHONE in RECOGNIZERS
