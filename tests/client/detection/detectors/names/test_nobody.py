import pytest

from curtilage.client.detection.detectors.names.nobody import (
    is_identifier,
    is_joined_name,
    is_nobody,
    is_place_or_company,
    is_spoken_of,
    unknown_words,
)
from curtilage.client.detection.wordlists import is_term
from support.examples import examples
from support.growth import grows_at_most, seconds_of


def place(text: str, words: str) -> tuple[int, int]:
    start = text.index(words)
    return start, start + len(words)


@examples(
    ("text", "name"),
    [
        ("what does a positive Babinski mean", "Babinski"),
        ("Gleason 7 prostate cancer", "Gleason"),
        ("What is Wilson's disease?", "Wilson's"),
        ("What is Wilson disease?", "Wilson"),
        ("treatment of Crohn's or colitis", "Crohn's"),
        ("the effects of Crohn's", "Crohn"),
        ("what is an Apgar score of 7", "Apgar"),
        ("the Glasgow coma scale", "Glasgow"),
        ("insert a Foley catheter", "Foley"),
        ("non-Hodgkin lymphoma", "Hodgkin"),
        ("Parkinson's and dementia", "Parkinson"),
        ("explain Bayes' theorem", "Bayes"),
        ("Moore's law is dead", "Moore"),
        ("implement Dijkstra's algorithm", "Dijkstra"),
        ("results of the SPRINT trial", "SPRINT"),
        ("the modified Duke criteria", "Duke"),
        ("Rome IV criteria", "Rome"),
        ("a Mann-Whitney test", "Mann-Whitney"),
        ("Crigler-Najjar syndrome", "Crigler-Najjar"),
        ("is remdesivir useful", "remdesivir"),
        ("apixaban or warfarin", "apixaban"),
        ("an E. coli infection", "E. coli"),
        ("an E. coli infection", "coli"),
        ("CYP2D6 alleles", "CYP2D6"),
        ("according to Naegele's rule", "Naegele"),
        ("juvenile Batten disease", "Batten"),
        ("measure Hb1 levels", "Hb"),
        ("sub-Bowman's keratomileusis", "Bowman"),
        ("ANOVA Kruskal-Wallis and", "Kruskal"),
        ("Bell's palsy", "Bell"),
        ("Babinski, Hoffmann and Romberg signs", "Babinski, Hoffmann"),
        ("Rome IV criteria", "Rome IV"),
        ("Fournier's gangrene", "Fournier"),
        ("Hodgkin vs non-Hodgkin lymphoma", "Hodgkin"),
        ("Fermat's little theorem", "Fermat"),
        ("Lenke et al. classified them", "Lenke"),
    ],
)
def test_a_thing_named_after_a_person_is_not_a_person(text: str, name: str) -> None:
    assert is_nobody(text, *place(text, name))


@examples(
    ("text", "name"),
    [
        ("Wilson has cancer", "Wilson"),
        ("Wilson has liver disease", "Wilson"),
        ("Mr. Parkinson called", "Parkinson"),
        ("Crohn came to see me", "Crohn"),
        ("Ana Wilson's disease is worse", "Wilson"),
        ("Okafor's disease is progressing", "Okafor"),
        ("the Okafor test", "Okafor"),
        ("Okafor's test came back", "Okafor"),
        ("Wilson's test came back", "Wilson"),
        ("Wilson's mother called", "Wilson"),
        ("Smith-Jones has asthma", "Smith-Jones"),
        ("Foley called yesterday", "Foley"),
        ("ask Foley to pay", "Foley"),
        ("Crohn's mother called", "Crohn"),
        ("Politis owes rent", "Politis"),
        ("Morales owes rent", "Morales"),
        ("Vuletic owes rent", "Vuletic"),
        ("Wilson signs the lease", "Wilson"),
        ("tell Gleason to come", "Gleason"),
        ("Okafor scores are low", "Okafor"),
        ("Murphy is late", "Murphy"),
        ("Foley was admitted last night", "Foley"),
        ("I wrote to Foley", "Foley"),
        ("Okafor et al. v. Haugland", "Okafor"),
        ("Llama a Zubieta al mediodía", "Zubieta"),
        ("Porta Gasparoni al mare", "Gasparoni"),
    ],
)
def test_who_has_the_name_of_a_thing_is_somebody(text: str, name: str) -> None:
    assert not is_nobody(text, *place(text, name))


@pytest.mark.parametrize(
    "word",
    ["apixaban", "Romiplostim", "Bosutinib", "meningitis", "glioblastoma"],
)
def test_drugs_and_illnesses_are_recognised_by_their_endings(word: str) -> None:
    assert is_term(word)


@pytest.mark.parametrize(
    "word", ["Morales", "Vuletic", "Medema", "Malone", "Luria", "Esteban", "Okonkwo"]
)
def test_surnames_do_not_end_so(word: str) -> None:
    assert not is_term(word)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a flight to Nsukka", "Nsukka"),
        ("they live in Nsukka", "Nsukka"),
        ("Nsukka, Nigeria is hot", "Nsukka"),
        ("the Nsukka airport", "Nsukka"),
        ("we asked Wexlar Ltd for a quote", "Wexlar"),
        ("ask IBM", "IBM"),
        ("ask OpenWhisk", "OpenWhisk"),
        ("ask Pfizer", "Pfizer"),
        ("the Khyber Teaching Hospital", "Khyber Teaching Hospital"),
    ],
)
def test_places_and_companies_have_marks(text: str, words: str) -> None:
    assert is_place_or_company(text, *place(text, words))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the second rent of Haugland is late", "Haugland"),
        ("write to Haugland", "Haugland"),
        ("I am mad at Haugland", "Haugland"),
        ("ask okafor, haugland and petrosyan", "okafor, haugland and petrosyan"),
        ("the haugland twins", "haugland twins"),
    ],
)
def test_a_surname_alone_has_none(text: str, words: str) -> None:
    assert not is_place_or_company(text, *place(text, words))


@pytest.mark.parametrize(
    ("text", "words", "spoken_of"),
    [
        ("does the Mayo Clinic recommend it", "Mayo Clinic", True),
        ("Toyota or Honda", "Honda", True),
        ("I work at Mayo Clinic", "Mayo Clinic", False),
        ("Toyota fired me", "Toyota", False),
        ("Wexlar makes pumps", "Wexlar", False),
    ],
)
def test_companies_that_everybody_knows_are_spoken_of(
    text: str, words: str, *, spoken_of: bool
) -> None:
    assert is_spoken_of(text, text.index(words), words) is spoken_of


@pytest.mark.parametrize(
    ("found", "joined"),
    [
        ("Fulvio dal Colle", True),
        ("Rosa dos Montes", True),
        ("Palma de Mallorca", False),
        ("Fulvio Colle", False),
        ("Fulvio dal mare", False),
        ("dal Colle", False),
        (" ", False),
    ],
)
def test_a_given_name_and_a_particle_make_a_person_of_a_place(
    found: str, joined: bool
) -> None:
    assert is_joined_name(found) is joined


def test_several_names_in_one_are_split() -> None:
    text = "ask okafor, haugland and petrosyan"
    found = [text[start:end] for start, end in unknown_words(text, 4, len(text))]
    assert found == ["okafor", "haugland", "petrosyan"]


@pytest.mark.parametrize("name", ["doctor_account", "PatientService", "clientNameList"])
def test_ordinary_words_joined_are_what_a_program_calls_something(name: str) -> None:
    text = f"rename {name} please"
    assert is_identifier(text, *place(text, name[:6]))


@pytest.mark.parametrize("name", ["okonkwo_rent", "HauglandService", "Okonkwo"])
def test_a_name_within_is_somebody(name: str) -> None:
    text = f"rename {name} please"
    assert not is_identifier(text, *place(text, name))


def test_time_grows_with_the_length_only() -> None:
    def cost(size: int) -> float:
        text = "Wilson-" * size
        places = [(at, at + 6) for at in range(0, len(text), 7)]

        def judge() -> None:
            for start, end in places:
                is_place_or_company(text, start, end)
            is_nobody(text, 0, 6)

        return seconds_of(judge)

    assert grows_at_most(cost, lengths=(200, 1600), factor=12)


@pytest.mark.parametrize(
    ("text", "word", "option"),
    [
        ('git commit --author "A" --amend', "amend", True),
        ("run it --quiet", "quiet", True),
        # A signature, a given name, and a word that is no program's by itself.
        ("thanks\n--oyelaran --shell", "oyelaran", False),
        ("x --anna --shell", "anna", False),
        ("thanks --oyelaran", "oyelaran", False),
    ],
)
def test_a_programs_option_is_not_a_person(text: str, word: str, option: bool) -> None:
    assert is_nobody(text, *place(text, word)) is option
