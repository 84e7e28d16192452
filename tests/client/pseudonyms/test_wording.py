import pytest

from curtilage.client.pseudonyms.wording import language_of, worded


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "What is the address of John?"),
        ("de", "Die Patientin Müller ist nicht in Köln"),
        ("fr", "Le patient est dans la salle"),
        ("es", "¿Cuál es el diagnóstico de la paciente?"),
        ("it", "Il paziente ha la febbre e non dorme"),
        ("nl", "Wat is het adres van Jan de Vries?"),
        ("pt", "O doente é de Lisboa e não dorme"),
    ],
)
def test_a_language_is_recognised_by_its_small_words(language: str, text: str) -> None:
    assert language_of([text, "and the rest of it is in English"]) == language


@pytest.mark.parametrize("text", ["", "Anna Berlin", "de la", "0170 1234567"])
def test_a_text_without_small_words_leaves_it_to_the_next(text: str) -> None:
    assert language_of([text]) is None
    assert language_of([text, "das ist nicht der Fall"]) == "de"


def test_a_kind_without_a_word_of_its_own_is_called_as_in_english() -> None:
    assert worded("IBAN", "de") == "IBAN"
    assert worded("PLACE", "sv") == "PLACE"
