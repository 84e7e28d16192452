"""What the rules expect of plain cases, and of hostile ones."""

import pytest

from curtilage.client.routing.estimate import (
    HEAD_CHARS,
    TAIL_CHARS,
    Estimate,
    Intent,
    RulesEstimator,
    answer_tokens,
    ends_of,
    prompt_tokens,
)

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
def test_plain_requests_are_told_apart(text: str) -> None:
    assert expected(text).intent is PLAIN[text]


@pytest.mark.parametrize("text", ["", "hello", "…", "42"])
def test_what_says_nothing_is_unknown(text: str) -> None:
    assert expected(text).intent is Intent.UNKNOWN


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
