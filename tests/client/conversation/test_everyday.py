import tomllib
from functools import cache, partial
from pathlib import Path
from typing import Final

import pytest

from curtilage.client.chat.query import Message, Query
from curtilage.client.conversation.contents import KeptContents
from curtilage.client.conversation.everyday import (
    MAX_CHARS,
    Everyday,
    is_everyday,
    subject_traces,
    traces_of,
)
from curtilage.client.conversation.pinned import Found, PinnedConversations
from curtilage.policy.document.values import COVERED_LANGUAGES
from support.examples import examples

ALL: Final = tuple(COVERED_LANGUAGES)
NOTHING: Final = Found(frozenset())
SAID: Final = {
    code: tomllib.loads(
        (Path(__file__).parent / "follow_ups" / f"{code}.toml").read_text("utf-8")
    )
    for code in ALL
}
# For all languages: kept text, and continuations in the same or another language.
GOES_ON: Final = [
    (each["said"], question)
    for cases in SAID.values()
    for each in (*cases["stayed"], cases["changed"])
    for question in each["then"]
]
FRESH: Final = [
    (code, text) for code, cases in SAID.items() for text in cases["fresh"]["texts"]
]


def chat(*said: str) -> Query:
    return Query(
        messages=tuple(
            Message(role=("user", "assistant")[at % 2], content=text)
            for at, text in enumerate(said)
        )
    )


def after(*said: str) -> PinnedConversations:
    pins = PinnedConversations(contents=partial(KeptContents, languages=ALL))
    pins.add(chat(*said), NOTHING)
    return pins


@cache
def asked_only(said: str) -> PinnedConversations:
    """After one text; shared by all examples, for asking changes nothing."""
    return after(said)


@examples(("stayed", "question"), GOES_ON)
def test_a_continuing_question_is_held(stayed: str, question: str) -> None:
    pins = asked_only(stayed)
    assert pins.holds(chat(question), NOTHING)
    assert pins.holds(chat(stayed, "Here.", question), NOTHING)


@examples(("code", "question"), FRESH)
def test_a_question_of_another_subject_may_leave(code: str, question: str) -> None:
    for cases in SAID.values():
        for each in cases["stayed"]:
            pins = asked_only(each["said"])
            assert not pins.holds(chat(question), NOTHING), each
            # With what stayed before it, it would take that along.
            assert pins.holds(chat(each["said"], "", question), NOTHING)
    assert is_everyday(question, [code])


def test_each_language_has_enough_of_them() -> None:
    for cases in SAID.values():
        assert sum(len(each["then"]) for each in cases["stayed"]) >= 12
        assert len(cases["fresh"]["texts"]) >= 8
        assert cases["changed"]["then"]


# --- why a question is kept, each next to one that may be sent ----------------------


@pytest.mark.parametrize(
    ("code", "stays", "leaves"),
    [
        ("de", "Ist Wien ein Berg?", "Was ist ein Berg?"),
        ("de", "Nenne Berge in Warschau.", "Nenne Berge in Wien."),
        ("de", "Nenne 48 Berge in 12.", "Nenne Berge in 12."),
        ("de", "Schreib einen Brief auf Englisch.", "Schreib ein Lied auf Englisch."),
        ("de", "Welche Flüsse in Wien?", "Welche Flüsse sind in Wien?"),
        ("es", "¿Cómo es en la luna?", "¿Cómo es la luna?"),
        ("es", "¿Qué flores tiene?", "¿Qué flores tiene España?"),
        ("de", "Wie ist der Herbst?", "Schreib ein Gedicht über den Herbst."),
        ("de", "Wie ist Python?", "Wie ist Docker in Linux?"),
        ("es", "¿Qué ríos tiene esta isla?", "¿Qué ríos tiene la isla de España?"),
        ("de", "Welche Berge sind die?", "Welche Berge sind die höchsten?"),
        ("de", "Wo liegt der Berg?", "Wo liegt der Berg von Wien?"),
        ("de", "Wie ist die Insel?", "Wie ist die Insel Island?"),
        ("fr", "Quels lacs en ont en Espagne ?", "Quels lacs existent en Espagne ?"),
        (
            "de",
            "Nenne Berge in der Stadt aus Wien.",
            "Nenne Berge in Städten aus Wien.",
        ),
        ("de", "Wie sind mir Berge?", "Wie sind Berge?"),
        ("de", "Wie lese ich Märchen?", "Wie lese ich ein Array in Python?"),
        ("pt", "Que rios e montanhas?", "Que rios é que existem em Portugal?"),
        ("de", "Welche Berge gibt es es?", "Welche Berge gibt es?"),
    ],
    ids=[
        *("begins with nothing", "a word that is not listed", "a long number"),
        *("no subject", "no verb", "a circumstance", "a pronoun left out"),
        *("scenery", "one tool", "a pronoun like a word"),
        *("an article alone", "one that was spoken of", "the same, not named"),
        *("an article that is a pronoun", "what was made"),
        *("to me, late", "the first person", "is and and", "a phrase and a word"),
    ],
)
def test_each_check_keeps_a_question(code: str, stays: str, leaves: str) -> None:
    assert not is_everyday(stays, [code])
    assert is_everyday(leaves, [code])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?!",
        "Nenne Flüsse in Spain.",
        "Nenne Flüsse. What is the capital of Spain?",
        "Nenne rivers.",
        "Nenne Flüsse 在 Wien.",
        "Nenne Flüsse." + " " * MAX_CHARS,
    ],
    ids=[
        *("empty", "marks", "a word", "a sentence", "a subject", "other letters"),
        "a long text",
    ],
)
def test_a_question_that_is_not_of_one_language_is_held(text: str) -> None:
    assert not is_everyday(text, ALL)


def test_a_question_in_two_languages_needs_both_to_accept_it() -> None:
    """Portuguese: "the algorithm". Spanish: "or algorithm"."""
    question = "Como funciona o algoritmo?"
    assert is_everyday(question, ["es"])
    assert not is_everyday(question, ["es", "pt"])


def test_only_the_languages_of_the_policy_count() -> None:
    assert is_everyday("Nenne Flüsse in Europa.", ["en", "de"])
    assert not is_everyday("Nenne Flüsse in Europa.", ["en", "fr"])


@pytest.mark.parametrize("mark", ["\u00ad", "\u200b"])
def test_a_mark_that_cannot_be_seen_hides_no_word(mark: str) -> None:
    assert is_everyday(f"Nenne Flü{mark}sse in Europa.", ["de"])
    assert not is_everyday(f"Nenne Flüsse und d{mark}iese.", ["de"])


def test_accents_may_be_missing_but_pronouns_are_recognised() -> None:
    assert is_everyday("Cual es la capital de Mongolia?", ["es"])
    assert is_everyday("Nenne Flusse in Europa.", ["de"])
    assert not is_everyday("Donde esta la capital?", ["es"])


@pytest.mark.parametrize("code", ALL)
def test_no_word_that_refers_is_a_subject(code: str) -> None:
    """It keeps a question in any case, and would be listed for nothing."""
    words = Everyday.read(code)
    assert words.refers.isdisjoint(words.about | words.to_me | words.me)


def test_a_word_that_refers_is_known_as_it_is_typed() -> None:
    # With "ß", which is read as "ss".
    assert Everyday.read("de").judge("Nenne außerdem Flüsse in Europa.") is False


@pytest.mark.parametrize(
    ("stayed", "question", "shared"),
    [
        ("Unsere Rezepte sind geheim.", "Rezept", True),
        ("Unser Limonadenrezept ist geheim.", "Rezepte", True),
        ("Las recetas son secretas.", "receta", True),
        ("Die Städte sind geheim.", "STADT", True),
        ("Ich liege krank.", "ich wie liegt", False),
        ("I am ill.", "am Meer", False),
        ("Am Montag.", "Monde", False),
        ("Una.", "Un", False),
    ],
)
def test_a_shared_word_is_one_whatever_its_ending(
    stayed: str, question: str, *, shared: bool
) -> None:
    assert traces_of(stayed).isdisjoint(subject_traces(question, ALL)) is not shared


# --- with what is remembered ----------------------------------------------------------


def test_a_kept_subject_is_held() -> None:
    pins = after("Unser Pfannkuchen ist streng geheim.")
    recipe = "Gib mir ein Rezept für Pfannkuchen ohne Eier."
    assert pins.holds(chat(recipe), NOTHING)
    assert not after("Streng geheim.").holds(chat(recipe), NOTHING)


def test_a_summary_in_another_language_is_held_in_any_role() -> None:
    fresh = "Nenne Flüsse in Europa."
    summary = Message(role="system", content="The user's mother is in hospital.")
    query = Query(messages=(summary, *chat(fresh).messages))
    pins = after("Meine Mutter liegt auf Station.")
    assert pins.holds(query, NOTHING)
    assert pins.holds(chat("Nenne Berge in Europa.", "She is ill.", fresh), NOTHING)
    # The prompt of an application is new once.
    pins.add(query, NOTHING, own=False)
    again = Query(messages=(summary, *chat("Nenne Inseln, Sterne.").messages))
    assert not pins.holds(again, NOTHING)


def test_with_english_only_its_own_rules_apply() -> None:
    pins = PinnedConversations(contents=partial(KeptContents, languages=["en"]))
    pins.add(chat("My mother Anna has cancer."), NOTHING)
    assert not pins.holds(chat("Recommend board games for rainy afternoons."), NOTHING)
    assert pins.holds(chat("Nenne Flüsse in Europa."), NOTHING)
