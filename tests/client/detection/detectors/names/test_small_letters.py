"""Unknown words in small letters, where a surname can be."""

import pytest

from curtilage.client.detection.detectors.model.detector import (
    MissingModelDetector,
    NerDetector,
    ner_detectors,
)
from curtilage.client.detection.detectors.names import small_letters
from curtilage.client.detection.detectors.names.small_letters import (
    Looks,
    is_prose,
    unknown_small,
)
from curtilage.policy.document.load import load_profile
from support.equipment import as_written

pytest.importorskip("simplemma", reason="SKIPPED LOUDLY: needs the extra pii")

SENTENCES = {
    "de": "Die zweite Miete von {} ist noch offen.",
    "es": "La segunda renta de {} está pendiente.",
    "fr": "Le deuxième loyer de {} est encore en attente.",
    "it": "Il secondo affitto di {} è ancora in sospeso.",
    "nl": "De tweede huur van {} staat nog open.",
    "pt": "A segunda renda de {} está em atraso.",
}


def looks(text: str) -> dict[str, Looks]:
    return {
        text[start:end]: each for start, end, each in unknown_small(as_written(text))
    }


@pytest.mark.parametrize("code", SENTENCES)
def test_a_word_of_no_vocabulary_is_looked_at(code: str) -> None:
    for name in ("hakobyan", "quorimel", "iwasaki-nwosu"):
        assert looks(SENTENCES[code].format(name))[name] is Looks.FOREIGN


@pytest.mark.parametrize(
    ("text", "word", "like"),
    [
        ("Die zweite Miete von der quorwix ist offen.", "quorwix", Looks.FOREIGN_NOUN),
        ("El contrato de la quorwix está abierto.", "quorwix", Looks.FOREIGN_NOUN),
        ("El contrato de quorwixamente está abierto.", "quorwixamente", Looks.NATIVE),
        ("Le loyer d'okwonjo est encore en attente.", "okwonjo", Looks.FOREIGN),
        (
            "Le loyer et l'okwonjo sont encore en attente.",
            "okwonjo",
            Looks.FOREIGN_NOUN,
        ),
    ],
)
def test_what_looks_like_the_language_needs_more(
    text: str, word: str, like: Looks
) -> None:
    assert looks(text)[word] is like


@pytest.mark.parametrize(
    "text",
    [
        "La manzana y el destornillador están en la cocina de la casa.",
        "Les carottes et le tournevis sont dans la cuisine de la maison.",
        "De appel en de schroevendraaier liggen in de keuken.",
        "Die Miete steht in miete.xlsx und in get_quorwix(x) und im Haus.",
        "The second rent of quorwix is late.",
        "La paciente deja de tomar alfuzosina y una cefalosporina por la flatulencia.",
        "Le plomb et la bilirubine dans le myocarde, et une statine contre l'ictère.",
        "I calcoli renali e la bilirubina, con gli antistaminici per il prurito.",
        "De galstenen en de hersenvliesontsteking van de amandelen.",
        # Everyday words that no list of frequent words has, one for each language.
        "Come si fa un nodo con le noci nella credenza della casa?",
        "Welke knoop en welke moer passen op de boot van het huis?",
        "Quel nœud et quelle ficelle pour le bateau de la maison ?",
        "Quantos algarismos e que baralho estão na casa da escola?",
        "Wo liegt der tacker neben der tür und dem fenster im haus?",
        "¿Qué cifras y qué baraja están en la casa de la escuela?",
        # Forms that dictionaries have, with what is joined to them.
        "Un dolor sévère, le régime général et le sang élevé dans la maison.",
        "¿Puede usted ayudarnos, o comunicarse con la oficina del lácteo grueso?",
    ],
)
def test_ordinary_words_code_and_english_are_left_out(text: str) -> None:
    assert set(looks(text).values()) <= {Looks.LISTED}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        # With a capital in a dictionary, given names, and unused forms.
        ("es", "garcía"),
        ("es", "camila"),
        ("it", "chiara"),
        ("es", "gallares"),
        ("de", "hundt"),
        ("pt", "quintares"),
        ("it", "vivaldi"),
    ],
)
def test_a_name_that_a_dictionary_has_counts_as_unknown(code: str, name: str) -> None:
    assert looks(SENTENCES[code].format(name))[name] is not Looks.LISTED


def test_words_of_a_dictionary_do_not_make_code_of_a_text() -> None:
    text = "Un sang sévère et élevé."
    listed, foreign = [Looks.LISTED] * 20, [Looks.FOREIGN] * 7
    assert is_prose(text, listed)
    assert not is_prose(text, foreign)


def test_without_dictionaries_every_text_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load_profile("default").plan
    (found, _), *_ = ner_detectors(plan.ner, plan.languages)
    assert isinstance(found, NerDetector)
    monkeypatch.setattr(small_letters, "_DICTIONARIES", "not_installed_here")
    (found, _), *_ = ner_detectors(plan.ner, plan.languages)
    assert isinstance(found, MissingModelDetector)
