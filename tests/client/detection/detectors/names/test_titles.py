"""Who has a title, a rank, a trade or a family word before the name is a person."""

import pytest

from curtilage.client.detection.detectors.names.titles import (
    TITLE,
    UNSURE_TITLE,
    titled,
)
from curtilage.client.detection.packs import TITLES
from support.equipment import as_written

# One sentence a language, and titles of every kind: honorifics, inflected and
# abbreviated, kin, church, school, court, hospital, army, nobility, craft.
SENTENCES = {
    "de": "Schreibe bitte noch heute eine Einladung an {} und bedanke dich.",
    "en": "Write an invitation to {} and say thank you.",
    "es": "Escribe hoy una invitación para {} y da las gracias.",
    "fr": "Rédige une invitation pour {} et dis merci.",
    "it": "Scrivi oggi un invito per {} e ringrazia.",
    "nl": "Schrijf vandaag een uitnodiging aan {} en bedank.",
    "pt": "Escreve hoje um convite para {} e agradece.",
}
ANNOUNCED = {
    "de": """Herr|Herrn|Hrn.|Hr.|Frau|Fr.|Frl.|Herrn Prof. Dr. med.|Kollegin|Kollegen|
        Nachbarn|Oma|Onkel|Tante|Schwägerin|Stiefvater|Patenonkel|Schwester|Pfleger|
        Oberarzt|Hebamme|Pfarrer|Pater|Lehrerin|Klassenlehrerin|Hauptkommissarin|
        Richter|RA|Leutnant|Gräfin|Bäckermeister|Dipl.-Ing.|Hausmeister|Mandantin""",
    "en": """Mr|Mr.|Mrs|Ms.|Mx.|Dr|Prof.|Sir|Rev.|Sgt.|Nurse|Rabbi|Aunt|Uncle|Grandma|
        Constable|Colonel|Bishop|my neighbour|our tenant|my brother-in-law|Midwife""",
    "es": """Sr.|Sra.|Srta.|D.|Dña.|D.ª|don|doña|el señor|Dra.|Lic.|tía|cuñada|abuela|
        vecina|enfermero|capitán|jueza|alcaldesa|sor|padre|marquesa|compañero""",
    "fr": """M.|Mme|Mlle|Me.|Mgr|Dr|maître|monsieur|sœur|tante|belle-sœur|mamie|voisine|
        infirmière|l'abbé|sage-femme|colonel|commissaire|notaire|comtesse|collègue""",
    "it": """sig.|sig.ra|dott.ssa|dott.|ing.|avv.|prof.ssa|signor|zia|nonno|suocera|
        suor|don|maresciallo|maestra|infermiera|notaio|contessa|collega|vicino""",
    "nl": """dhr.|mw.|mevr.|mevrouw|de heer|meneer|juf|meester|mr.|drs.|tante|oom|oma|
        schoonzus|buurman|zuster|dominee|jonkheer|wethouder|huisarts|collega""",
    "pt": """Sr.|Sra.|D.|Dra.|Eng.º|dona|o senhor|tia|avó|cunhado|vizinha|enfermeira|
        frei|irmã|tenente|juíza|vereadora|visconde|professora|colega|porteiro""",
}
# No list has the first; the others are a town and an ordinary word of the language.
NAMES = {
    "de": ("Quorimel", "Oldenburg", "Löffel"),
    "en": ("Quorimel", "Lancaster", "Butter"),
    "es": ("Quorimel", "Segovia", "Estrella"),
    "fr": ("Quorimel", "Nantes", "Fromage"),
    "it": ("Quorimel", "Ferrara", "Formaggio"),
    "nl": ("Quorimel", "Deventer", "Lepel"),
    "pt": ("Quorimel", "Coimbra", "Queijo"),
}


def found(text: str) -> dict[str, str]:
    return {
        text[each.start : each.end]: each.detector for each in titled(as_written(text))
    }


@pytest.mark.parametrize("code", SENTENCES)
def test_a_capital_behind_a_title_is_a_person_whatever_the_word(code: str) -> None:
    missed = [
        f"{title} {name}"
        for title in (each.strip() for each in ANNOUNCED[code].split("|"))
        for name in NAMES[code]
        if found(SENTENCES[code].format(f"{title} {name}")).get(name) != TITLE
    ]
    assert missed == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Rédige une invitation pour Madame de Quorimel-Latour.", "Quorimel-Latour"),
        ("Schreibe heute noch an Herrn von der Quorimel.", "Quorimel"),
        ("Scrivi un invito per la sig.ra D'Orimel.", "D'Orimel"),
        ("Schrijf een uitnodiging aan mevrouw Van den Orimel.", "Van den Orimel"),
        ("Write an invitation to Mr al-Orimel today.", "al-Orimel"),
        ("Escribe una invitación para don Hugo Orimel Bastra.", "Hugo Orimel Bastra"),
        ("Schreibe heute noch an Oma Ida Löffel.", "Ida Löffel"),
    ],
)
def test_all_words_of_a_name_behind_a_title_are_one(text: str, name: str) -> None:
    assert name in found(text)


@pytest.mark.parametrize("text", ["Write to Frau Orimel.", "Call Mme Orimel today."])
def test_a_title_of_another_language_announces_as_well(text: str) -> None:
    assert found(text) == {"Orimel": TITLE}


@pytest.mark.parametrize(
    "text",
    [
        "Is our Sister company as large as Uncle Sam and Mother Nature say?",
        "Who played Doctor Who, and who was Captain America?",
        "Kannst du den Kollegen Feedback geben und der Oma Geld schicken?",
        "Wie singt man Bruder Jakob, und was ist mit Mutter Erde?",
        "Kann eine Frau Kinder bekommen, und jede Frau Urlaub nehmen?",
        "Das Treffen ist Fr. 10 Uhr, und Fr. Abend gehen wir ins Kino.",
        "Pourquoi le Père Noël est-il rouge, et qui chante Frère Jacques ?",
        "¿Por qué Papá Noel vive en el norte, y qué dice la Madre Tierra?",
        "Perché Babbo Natale è rosso, e chi ha scritto Don Chisciotte?",
        "Waarom heet het Moeder Aarde, en wie was Oom Dagobert ook alweer?",
        "Porque é que o Pai Natal é vermelho, e quem escreveu Dom Casmurro?",
        "Dear Mr President, the General Terms do not apply.",
        "I asked the doctor. Then we left.",
        # A minute, and no minister.
        "The pulse is 84/min. An oral dose follows, at 3 l / min. Oxygen is given.",
    ],
)
def test_words_that_look_like_titles_announce_no_person(text: str) -> None:
    assert TITLE not in found(text).values()


def test_a_title_that_is_as_often_none_leaves_an_ordinary_word_to_the_model() -> None:
    assert found("General Gardener is here")["Gardener"] == UNSURE_TITLE
    assert found("General Quorimel is here")["Quorimel"] == TITLE


@pytest.mark.parametrize("code", TITLES)
def test_lists_are_in_small_letters_and_disjoint(code: str) -> None:
    titles = TITLES[code]
    every = [*titles.honorifics, *titles.roles, *titles.not_names, *titles.things]
    assert [each for each in every if each != each.lower()] == []
    assert titles.honorifics.isdisjoint(titles.roles)
    assert titles.unsure <= titles.honorifics | titles.roles
