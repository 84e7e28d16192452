"""What the rules expect of plain cases, and of hostile ones."""

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest

from curtilage.client.routing.estimate import (
    HEAD_CHARS,
    KNOWN,
    ROUTINE_INTENTS,
    TAIL_CHARS,
    Estimate,
    Intent,
    RulesEstimator,
    Signs,
    answer_tokens,
    ends_of,
    expected_gain,
    named_intent,
    prompt_tokens,
    signs_of,
)
from curtilage.client.routing.estimators import open_estimator

MOST = 512
PLAIN = {
    "Classify this review as positive or negative: great!": Intent.CLASSIFICATION,
    "Extract all dates from: 3 May and 4 June": Intent.EXTRACTION,
    "Summarise this report in two sentences.": Intent.SUMMARISATION,
    "Rewrite this more politely: give me the report": Intent.TRANSFORM,
    "What is the capital of France?": Intent.QA,
    "Write a poem about autumn": Intent.GENERATION,
    "Prove that the square root of 2 is irrational": Intent.REASONING,
    "Write a Python function that sorts a list": Intent.CODE,
    "Fasse den folgenden Text zusammen: Der Hund lief.": Intent.SUMMARISATION,
    "Écris une fonction Python qui trie une liste": Intent.CODE,
    "Traduce al inglés: buenos días": Intent.TRANSFORM,
    "Scrivi una poesia sull'autunno": Intent.GENERATION,
    "Bereken hoeveel 12 procent van 80 is": Intent.REASONING,
    "Qual é a capital de Portugal?": Intent.QA,
}


def expected(text: str) -> Estimate:
    return RulesEstimator().estimate(text, MOST)


@pytest.mark.parametrize("text", PLAIN)
def test_plain_requests_are_distinguished(text: str) -> None:
    assert expected(text).intent is PLAIN[text]


@pytest.mark.parametrize("text", ["", "hello", "…", "42"])
def test_what_says_nothing_is_unknown(text: str) -> None:
    assert expected(text).intent is Intent.UNKNOWN


@pytest.mark.parametrize("kind", ["rules", "ngram"])
@pytest.mark.parametrize(
    "text",
    [
        "\u0130\u0130hi. x",
        ("\u0130" * 26 + "please. ") * 6 + "x" * 6,
        "\u0130" * 3000 + " translate",
        "please " * 300 + "\u0130" * 40,
    ],
)
def test_a_letter_that_grows_in_small_letters_has_no_negative_length(
    text: str, kind: Literal["rules", "ngram"]
) -> None:
    estimate = open_estimator(kind).estimate(text, MOST)
    assert signs_of(text).characters >= 0
    assert 0 <= estimate.gain <= 1


@pytest.mark.parametrize("kind", ["rules", "ngram"])
@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b\u200b", "\U0001f600", "?!"])
def test_where_nothing_is_asked_nothing_is_gained(
    text: str, kind: Literal["rules", "ngram"]
) -> None:
    assert open_estimator(kind).estimate(text, MOST).gain == 0


def test_an_intent_below_the_threshold_is_not_named() -> None:
    text = "What is the capital of France?"
    assert RulesEstimator(0.99).estimate(text, MOST).intent is Intent.UNKNOWN


def test_code_gains_more_than_sorting() -> None:
    code = expected("Write a Python function that sorts a list")
    assert code.gain_low > expected("Is this spam? You won!").gain


def test_a_long_context_gains_more_than_a_short_one() -> None:
    task = "Summarise this report. "
    gains = [expected(task + "It rained. " * n).gain for n in (1, 200, 2000)]
    assert gains == sorted(set(gains))


def test_several_steps_in_another_task_gain_more() -> None:
    task = "Write a letter to my landlord"
    assert expected(f"{task}, step by step").gain > expected(task).gain


ROUTINE = [
    "Finish the sentence: We look forward to",
    "Fill the gap: See you ___ Monday",
    "What does PDF stand for?",
    "How many minutes are in a day?",
    "Wie viele Tage hat eine Woche?",
    "Correct the spelling: recieve",
    "Is this urgent, yes or no? The tap drips.",
    "Compliment, klacht of vraag? Mooie winkel.",
    "Welche Abteilung: Einkauf oder Verkauf? Preis ist falsch.",
    "Rends ça plus aimable : Partez.",
]


@pytest.mark.parametrize("text", ROUTINE)
def test_routine_work_is_named_and_gains_little(text: str) -> None:
    expectation = expected(text)
    assert expectation.intent in ROUTINE_INTENTS
    assert expectation.gain < 0.15


def test_a_quantity_is_a_sum_only_with_two_numbers_or_many_words() -> None:
    fact, sum_of_two = map(
        expected,
        ("How many days are in March?", "How many days are 3 weeks and 4 days?"),
    )
    assert (fact.intent, sum_of_two.intent) == (Intent.QA, Intent.REASONING)


def test_numbers_in_words_are_numbers() -> None:
    expectation = expected("How many apples are two bags of seven?")
    assert expectation.intent is Intent.REASONING


UNSURE = Signs(
    characters=40,
    words=8,
    scores=dict.fromkeys(KNOWN, 0.0),
    numbers=0,
    hard_words=0,
    in_code=False,
    in_steps=False,
)


@pytest.mark.parametrize(
    "more_signs",
    [
        replace(UNSURE, hard_words=2),
        replace(UNSURE, in_code=True),
        replace(UNSURE, in_steps=True),
        replace(UNSURE, characters=4000),
    ],
    ids=["hard words", "code", "steps", "length"],
)
def test_each_sign_of_hard_work_gains_more(more_signs: Signs) -> None:
    routine = [float(each is Intent.TRANSFORM) for each in KNOWN]
    more = expected_gain(routine, more_signs)
    assert more > expected_gain(routine, UNSURE) + 0.05


def test_signs_of_what_is_known_to_be_hard_are_not_counted_twice() -> None:
    code = [float(each is Intent.CODE) for each in KNOWN]
    signs = replace(UNSURE, in_code=True, hard_words=3)
    assert expected_gain(code, signs) == expected_gain(code, UNSURE)


def test_any_text_of_many_pages_gains_more() -> None:
    chances = [float(each is Intent.CLASSIFICATION) for each in KNOWN]
    short, pages = (
        expected_gain(chances, replace(UNSURE, characters=n)) for n in (500, 15_000)
    )
    assert pages > short + 0.3


def test_what_is_half_sure_gains_half() -> None:
    sorting, code, half = (
        expected_gain(
            [
                a * (each is Intent.CLASSIFICATION) + b * (each is Intent.CODE)
                for each in KNOWN
            ],
            UNSURE,
        )
        for a, b in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5))
    )
    assert half == pytest.approx((sorting + code) / 2)


def test_words_of_law_and_of_medicine_are_seen_in_each_language() -> None:
    for text in (
        "Is the tenant liable?",
        "Haftet der Mieter?",
        "Le locataire, quels risques ?",
        "¿Qué riesgos tiene el inquilino?",
        "Quali rischi ha il conduttore?",
        "Welke risico's heeft de huurder?",
        "Que riscos tem o inquilino?",
    ):
        assert signs_of(text).hard_words >= 2, text


def test_routine_intents_count_together() -> None:
    chances = dict.fromkeys(KNOWN, 0.0) | {Intent.QA: 0.5, Intent.EXTRACTION: 0.4}
    intent, confidence = named_intent(list(chances.values()), 0.7)
    assert intent is Intent.QA
    assert confidence == pytest.approx(0.9)


def test_a_routine_intent_that_is_one_of_many_is_not_named() -> None:
    routine = dict.fromkeys(ROUTINE_INTENTS, 0.25)
    chances = list((dict.fromkeys(KNOWN, 0.0) | routine).values())
    assert named_intent(chances, 0.7)[0] is Intent.UNKNOWN


def test_other_intents_count_alone() -> None:
    chances = dict.fromkeys(KNOWN, 0.0) | {Intent.CODE: 0.5, Intent.REASONING: 0.5}
    assert named_intent(list(chances.values()), 0.7)[0] is Intent.UNKNOWN


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Hello, could you please help me with this? ", " Thank you."),
        ("Question: ", "\nAnswer:"),
        ("\n\n", "\n"),
    ],
)
def test_what_is_said_around_a_request_changes_no_gain(before: str, after: str) -> None:
    request = "Translate into French: the door is closed."
    assert expected(before + request + after).gain == pytest.approx(
        expected(request).gain, abs=0.001
    )


def test_a_gain_rises_smoothly_with_length() -> None:
    gains = [expected("It rained. " * n).gain for n in range(10, 1500, 10)]
    assert gains == sorted(gains)
    steps = [after - before for before, after in pairwise(gains)]
    assert max(steps) < 0.04


def test_an_answer_is_not_longer_than_asked_for() -> None:
    assert RulesEstimator().estimate("Write a poem", 7).answer_tokens == 7


def test_a_rewritten_text_is_about_as_long_as_it_was() -> None:
    assert answer_tokens(Intent.TRANSFORM, 100, MOST) == 116


def test_other_scripts_have_more_tokens_for_a_character() -> None:
    assert prompt_tokens("приветствие") > prompt_tokens("how are you")


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "\0" * 5000, "\ud800" * 5000, "first " * 300, "'" * 5000],
    ids=["one word", "NULs", "lone surrogates", "half a pattern", "quotes"],
)
def test_hostile_texts_get_an_estimate(text: str) -> None:
    assert expected(text).prompt_tokens > 0


def test_the_middle_of_a_long_text_is_not_looked_at() -> None:
    long = "x " * 2000
    ends = ends_of(long + "Write a Python function" + long)
    assert (len(ends), "Python" in ends) == (HEAD_CHARS + TAIL_CHARS + 1, False)


def test_an_estimate_holds_no_text() -> None:
    assert "landlord" not in repr(expected("Write a letter to my landlord"))
