from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.names.capitals import NameDetector
from curtilage.client.detection.detectors.readings import Reading, readings
from curtilage.client.detection.detectors.scanner import scan
from curtilage.client.detection.detectors.topics.lexicon import (
    CLASSES,
    LexiconDetector,
    class_of,
)
from curtilage.client.detection.detectors.topics.phrases import (
    PHRASES,
    Phrase,
    phrases_in,
)
from curtilage.client.detection.persons import settled
from curtilage.client.detection.wordlists import bag
from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.findings import Normalization, Where
from support.equipment import own
from support.examples import examples
from support.growth import grows_at_most, seconds_of


def classes_of(*texts: str) -> set[str]:
    found = [
        span.at(Where(message=at, role="user", json_path="content"))
        for at, spans in enumerate(scan(texts, own()))
        for span in spans
    ]
    return {each.data_class for each in settled(found)}


def test_every_lexicon_class_is_in_the_tree() -> None:
    assert [name for name in CLASSES if not is_class(name)] == []


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("diabetic", "health.condition"),
        ("hiv", "health.condition"),
        ("insulin", "health.medication"),
        ("chemotherapy", "health.procedure"),
        ("rhinoplasty", "health.procedure"),
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
def test_impersonal_health_is_not_marked(text: str) -> None:
    assert "marker.first_person" not in classes_of(text)


def test_impersonal_special_words_are_a_topic() -> None:
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
def test_phrases_reveal_special_categories(text: str, name: str) -> None:
    assert name in classes_of(text)


@examples(
    ("text", "name"),
    [
        ("she hears voices at work", "health.condition"),
        ("my period is nine days late", "health.condition"),
        ("bleeding between periods", "health.condition"),
        ("I haven't had my period since May", "health.condition"),
        ("Struggling with the black dog again", "health.condition"),
        ("grandad can't find his words", "health.condition"),
        ("after my bypass I can't climb stairs", "health.procedure"),
        ("We will cut forty people in Leeds", "org.confidential"),
        ("the firm withdraws its offer", "topic.hr"),
        ("overdrawn till payday", "financial.balance"),
        ("sometimes I wish I was dead", "health.condition"),
        ("he says he will hurt himself", "health.condition"),
        ("I\u2019m clean for two years now", "health.condition"),
        ("my sister throws up every morning", "health.condition"),
        ("our nephew refuses to eat", "health.condition"),
        ("grandma no longer recognizes me", "health.condition"),
        ("we lost touch since he gave me crabs", "health.condition"),
        ("my boy still wets his bed", "health.condition"),
        ("what does a viral load of 40 mean for me", "health.lab"),
        ("they want a stent in me by May", "health.procedure"),
        ("she was admitted on 22/7/2026", "health.procedure"),
        ("he got discharged yesterday", "health.procedure"),
        ("my brother is trans", "special.orientation"),
        ("our trans daughter needs a school", "special.orientation"),
        ("my parents eat halal", "special.religion"),
        ("our rabbi asked for the keys", "special.religion"),
        ("I wear a niqab on the train", "special.religion"),
        ("my wife is undocumented", "special.ethnicity"),
        ("he served six months for theft", "special.criminal"),
        ("I sold drugs in school", "special.criminal"),
        ("my overdraft is minus 80", "financial.balance"),
        ("I am overdrawn by $300", "financial.balance"),
        ("I am behind on my rent", "topic.finance"),
        ("we lost about \u20ac12,000 in gambling", "topic.finance"),
        ("a debt collector called", "topic.finance"),
        ("our client pleads not guilty", "legal.privilege"),
        ("my client never admitted it", "legal.privilege"),
        ("a memo for our counsel on the merger", "legal.privilege"),
        ("our lawyers advised us to settle", "legal.privilege"),
        ("these numbers are not public yet", "org.confidential"),
        ("embargoed until Friday", "org.confidential"),
        ("i have inside information on the bid", "org.confidential"),
        ("Q2 earnings will beat the forecast", "org.confidential"),
        ("we are about to lay off half of the team", "org.confidential"),
        ("where can I sell these two old missiles", "export.itar"),
        ("a permit for our uranium samples", "export.itar"),
        ("what they drip into me on Mondays", "health.procedure"),
        ("they want to take my leg off", "health.procedure"),
        ("the biopsy came back bad", "health.procedure"),
        ("a lump in my left breast", "health.condition"),
        ("I cut again last night", "health.condition"),
        ("haven't kept a meal down since May", "health.condition"),
        ("I drink a bottle every evening", "health.condition"),
        ("I missed my period", "health.condition"),
        ("he chokes me when he is angry", "health.condition"),
        ("my ferritin is 6", "health.lab"),
        ("my uncle is the imam", "special.religion"),
        ("we both left the church", "special.religion"),
        ("we are both women", "special.orientation"),
        ("there's a bench warrant out for me", "special.criminal"),
        ("I am on parole until June", "special.criminal"),
        ("the police searched my flat", "special.criminal"),
        ("we are the only black family here", "special.ethnicity"),
        ("my visa ran out", "special.ethnicity"),
        ("I carry the gene", "special.genetic"),
        ("I voted for them", "special.politics"),
        ("I know who signed the cards", "special.union"),
        ("my husband had an affair", "special.sex_life"),
        ("I bring home 2,140 a month", "financial.income"),
        ("net 1,900 a month", "financial.income"),
        ("I owe my brother six grand", "topic.finance"),
        ("three months behind with the rent", "topic.finance"),
        ("the bailiffs came", "topic.finance"),
        ("HMRC says we are late", "topic.finance"),
        ("the judge gave me a fine", "topic.legal"),
        ("she is suing me", "topic.legal"),
        ("I got served this morning", "topic.legal"),
        ("HR called me in", "topic.hr"),
        ("I was let go on Friday", "topic.hr"),
        ("my boss keeps yelling", "topic.hr"),
        ("client says he did it", "legal.privilege"),
        ("I'm his solicitor", "legal.privilege"),
        ("revenue came in 9% under guidance", "org.confidential"),
        ("we are acquiring our rival company", "org.confidential"),
        ("the CEO resigns next week", "org.confidential"),
    ],
)
def test_what_people_say_without_the_word_for_it(text: str, name: str) -> None:
    assert name in classes_of(text)


@examples(
    "text",
    [
        "What does kosher mean?",
        "the trial period ends after thirty days",
        "our contract's initial period of two years",
        "bypass the introduction",
        "a cutting-edge model",
        "We will cut the costs of the project",
        "Explain bankruptcy law",
        "What is a stent?",
        "What is a trans fat?",
        "Throw up a dialog where an error occurs",
        "My code throws up an exception",
        "What is a debt collector?",
        "How large is our technical debt?",
        "I need a function that returns the account balance",
        "My account shows a pending transfer",
        "my client wants a blue logo",
        "How does an HTTP client talk to a server?",
        "What is insider information?",
        "What is material non-public information?",
        "Why is this function not public?",
        "How do missiles find their way?",
        "In our game the missiles miss",
        "Is the API undocumented?",
        "This is an undocumented function",
        "Is there a religion without a god?",
        "How long is it from q1 to q3 in a box plot?",
        "kill the process and end it",
        "What does a plea mean?",
        "Explain performance reviews",
        "How is net pay computed?",
        "Cut the onions and weigh the flour",
        "The judge of the contest was strict",
        "How does a carrier signal work?",
        "The warrant of a stock option",
        "Release the brake before the start",
        "What is the register of a processor?",
        "The party starts at eight",
        "How do I join two tables?",
        "A tube in a monitor",
        "count all lines of a file",
        "Our server runs out of memory",
        "the tests came back green",
    ],
)
def test_talk_of_such_things_is_impersonal(text: str) -> None:
    assert [name for name, _ in phrases_in(text.lower(), bag(text))] == []


def test_each_phrase_needs_one_of_its_words() -> None:
    found = list(phrases_in("she hears voices", frozenset({"voices"})))
    assert [(name, match[0]) for name, match in found] == [
        ("health.condition", "hears voices")
    ]
    assert list(phrases_in("she hears voices", frozenset({"hears"}))) == []


@examples("phrase", PHRASES)
def test_a_phrase_takes_linear_time(phrase: Phrase) -> None:
    unit = "my client, our new balance we lost 40k and i did two years for old "

    def cost(text: str) -> float:
        return seconds_of(lambda: list(phrase.pattern.finditer(text)))

    assert grows_at_most(lambda n: cost(unit * n), lengths=(20, 80), factor=8)


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
    def cost(unit: str, times: int) -> float:
        reading = Reading(normalization=Normalization.RAW, text=unit * times)
        return seconds_of(lambda: list(LexiconDetector().find(reading)))

    for unit in ("our a b ", "do not send ", "this these our ", "process our local "):
        assert grows_at_most(partial(cost, unit), lengths=(500, 2000), factor=8)


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
